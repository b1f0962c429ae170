"""Seconds from starting ``ferrum run`` on a cached model to the first byte of the answer.

    python benchmarks/first_token.py smollm2:135m gemma3:270m

Each model once to warm the caches, then five times; prints every figure and the median.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMAND = Path(sys.executable).with_name("ferrum")


def seconds_to_first_byte(model: str) -> float:
    arguments = [COMMAND, "run", model, "--raw", "--prompt", "The sky is", "--max-tokens", "4", "--seed", "1"]
    began = time.perf_counter()
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=False
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1), "no answer"
        elapsed = time.perf_counter() - began
        process.stdout.read()
    assert process.returncode == 0
    return elapsed


def main() -> None:
    for model in sys.argv[1:]:
        seconds_to_first_byte(model)
        figures = [seconds_to_first_byte(model) for _ in range(5)]
        written = " ".join(f"{figure:.2f}" for figure in figures)
        print(f"{model}: first byte after {written} s, median {statistics.median(figures):.2f} s")


if __name__ == "__main__":
    main()
