"""Sixteen requests at once against the same sixteen one after the other, through ``LLM.generate``.

    python benchmarks/sixteen_requests.py smollm2:135m gemma3:270m

32 prompt tokens and 64 output tokens each; five alternating pairs; prints the ratio of times of each pair.
"""

from __future__ import annotations

import random
import statistics
import sys
import time

from ferrum import LLM, SamplingParams
from ferrum.core.request import TokenPrompt


def prompts(seed: int) -> list[TokenPrompt]:
    """Fresh first tokens for every run, so that no cache of prefixes helps."""
    draw = random.Random(seed)
    return [TokenPrompt(tuple(draw.randrange(1000, 40_000) for _ in range(32))) for _ in range(16)]


def main() -> None:
    sampling = SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True)
    for model in sys.argv[1:]:
        with LLM(model) as llm:
            llm.generate(prompts(0), sampling)
            ratios = []
            for pair in range(5):
                began = time.perf_counter()
                together = llm.generate(prompts(2 * pair + 1), sampling)
                between = time.perf_counter()
                alone = [llm.generate(prompt, sampling)[0] for prompt in prompts(2 * pair + 2)]
                ended = time.perf_counter()
                assert all(len(result.token_ids) == 64 for result in [*together, *alone])
                seconds = between - began, ended - between
                ratios.append(seconds[0] / seconds[1])
                print(
                    f"{model}: together {seconds[0]:.2f} s, alone {seconds[1]:.2f} s, ratio {ratios[-1]:.3f}"
                )
            print(f"{model}: median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
