"""Whether memory stays flat over 10,000 steps of generation.

    python benchmarks/flat_memory.py smollm2:135m

Short requests of random lengths, eight at a time, each new. All KV blocks are touched first. The text of each
token is remembered once it has come up, so the first half counts as warm-up.
"""

from __future__ import annotations

import argparse
import gc
import random

from ferrum import LLM, SamplingParams
from ferrum.bench.soak import resident_bytes
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.request import TokenPrompt

NUM_AT_ONCE = 8
CONTEXT = 512


class Load:
    """Requests one batch after the other. Mutable: the random generator and the count of steps."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._draw = random.Random(1)
        self.num_steps = 0

    def run(self, num_steps: int) -> None:
        """Generates until so many steps more have run, at least: a batch takes one for each of its tokens."""
        wanted = self.num_steps + num_steps
        while self.num_steps < wanted:
            lengths = [self._draw.randrange(20, 200) for _ in range(NUM_AT_ONCE)]
            prompts = [self._prompt() for _ in lengths]
            samplings = [SamplingParams(max_tokens=length, ignore_eos=True) for length in lengths]
            self._llm.generate(prompts, samplings)
            self.num_steps += max(lengths)

    def fill_the_cache(self) -> None:
        """Every block of the KV cache has held something afterwards."""
        sampling = SamplingParams(max_tokens=2, ignore_eos=True)
        self._llm.generate([self._prompt(CONTEXT - 2) for _ in range(2 * NUM_AT_ONCE)], sampling)

    def _prompt(self, length: int | None = None) -> TokenPrompt:
        count = length or self._draw.randrange(1, 200)
        return TokenPrompt(tuple(self._draw.randrange(1000, 40_000) for _ in range(count)))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--steps", type=int, default=10_000)
    given = arguments.parse_args()
    scheduler = SchedulerConfig(max_running_requests=NUM_AT_ONCE)
    config = EngineConfig(max_model_len=CONTEXT, scheduler=scheduler)
    with LLM(given.model, config=config) as llm:
        load = Load(llm)
        load.fill_the_cache()
        seen = []
        for _ in range(4):
            load.run(given.steps // 4)
            gc.collect()
            seen.append(resident_bytes())
            print(f"{seen[-1] / 2**20:.2f} MiB after {load.num_steps} steps")
        print(f"second half: {(seen[3] - seen[1]) / 1024:+.0f} KiB")


if __name__ == "__main__":
    main()
