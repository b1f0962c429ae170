"""What a long prompt does to streams that are being written, and they to it.

    python benchmarks/long_prompt.py smollm2:135m

Eight streams decode; then a prompt of 8,000 random tokens arrives. Prints the gaps between the streams'
tokens before and while it is computed, and its time to first token beside the same alone, just before and
just after. The largest gap is that of the machine, too: so the 99th percentile is printed with it, and how
much longer than usual the same work takes on the machine with no engine on it, for as long as the prompt took
(machine_pauses.py). `--rounds` repeats everything and ends with the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from machine_pauses import work_stretch

from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.cli.lasting_objects import lasting_objects
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.request import InferenceRequest, TextPrompt, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.weights.progress_reporter import SilentReporter

SETTLE_S = 2.0
# Some 250 tokens of text that goes on as text: a token that is part of a character shows nothing.
STREAM_PROMPT = "The old sailor told us of the islands, one after the other, and of the people there. " * 12
# KV room is promised for all of them, and the long prompt needs some, too.
MOST_STREAM_TOKENS = 2500


class Gaps(NamedTuple):
    """Seconds between a stream's tokens: the median before the prompt came, and three figures meanwhile."""

    usual: float
    middle: float
    late: float  # 99th percentile
    largest: float


class Round(NamedTuple):
    """Seconds to the first token alone and beside streams, and the gaps of these."""

    alone_s: float
    beside_s: float
    gaps: Gaps

    @property
    def stretch(self) -> float:
        return self.beside_s / self.alone_s

    def report(self) -> None:
        usual, middle, late, largest = self.gaps
        print(
            f"first token: alone {self.alone_s:.2f} s, beside {self.beside_s:.2f} s: {self.stretch:.2f} times"
        )
        print(
            f"gaps: median before {usual * 1e3:.1f} ms; meanwhile median {middle * 1e3:.1f} "
            f"({middle / usual:.1f} times), p99 {late * 1e3:.1f} ({late / usual:.1f}), "
            f"largest {largest * 1e3:.1f} ({largest / usual:.1f})"
        )


class Experiment:
    """The streams of one engine. Mutable: prompts are drawn one after the other."""

    def __init__(self, engine: ContinuousBatchEngine, num_streams: int, prompt_tokens: int) -> None:
        self._engine = engine
        self._num_streams = num_streams
        self._prompt_tokens = prompt_tokens
        self._draw = random.Random(3)
        self._num_requests = 0

    async def first_token_s(self) -> float:
        """Seconds to the first token of a fresh long prompt."""
        began = time.perf_counter()
        async with await self._engine.open_stream(
            self._request(self._random(self._prompt_tokens), 1)
        ) as stream:
            await anext(stream)
        return time.perf_counter() - began

    async def run(self, num_rounds: int) -> None:
        # A server that has run for a while has touched its KV blocks; the system gives out new pages slowly.
        # The three go on writing until all have begun, so that none takes the blocks of another.
        await self._end(await self._start(3, self._random(self._prompt_tokens - 1000), 1000))
        rounds: list[Round] = []
        alone_s = await self.first_token_s()
        for _ in range(num_rounds):
            beside_s, gaps = await self._beside()
            before_s, alone_s = alone_s, await self.first_token_s()
            rounds.append(Round((before_s + alone_s) / 2, beside_s, gaps))
            rounds[-1].report()
            late, largest = work_stretch(beside_s)
            print(
                f"the machine alone: the same work took up to {largest:.2f} times its median, p99 {late:.2f}"
            )
        if num_rounds > 1:
            stretches = statistics.median(each.stretch for each in rounds)
            largest = statistics.median(each.gaps.largest / each.gaps.usual for each in rounds)
            print(f"medians: first token {stretches:.2f} times, largest gap {largest:.1f} times")

    async def _beside(self) -> tuple[float, Gaps]:
        """Seconds to the first token of a long prompt beside streams, and the gaps of these."""
        streams = await self._start(self._num_streams, TextPrompt(STREAM_PROMPT), MOST_STREAM_TOKENS)
        await asyncio.sleep(SETTLE_S)
        arrived = time.perf_counter()
        beside_s = await self.first_token_s()
        ended = time.perf_counter()
        await self._end(streams)
        gaps = [pair for times in streams.values() for pair in pairwise(times)]
        before = [b - a for a, b in gaps if arrived - SETTLE_S / 2 < a and b < arrived]
        during = sorted(b - a for a, b in gaps if b > arrived and a < ended)
        late = during[int(0.99 * len(during))]
        return beside_s, Gaps(statistics.median(before), statistics.median(during), late, during[-1])

    async def _start(
        self, count: int, prompt: TextPrompt | TokenPrompt, num_tokens: int
    ) -> dict[asyncio.Task[None], list[float]]:
        """Streams that have all begun, each with the times of its tokens."""
        streams: dict[asyncio.Task[None], list[float]] = {}
        for _ in range(count):
            times: list[float] = []
            streams[asyncio.create_task(self._decode(prompt, num_tokens, times))] = times
        while not all(streams.values()):
            await asyncio.sleep(0.1)
        return streams

    async def _end(self, streams: Iterable[asyncio.Task[None]]) -> None:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    async def _decode(self, prompt: TextPrompt | TokenPrompt, num_tokens: int, times: list[float]) -> None:
        async with await self._engine.open_stream(self._request(prompt, num_tokens)) as stream:
            async for _ in stream:
                times.append(time.perf_counter())

    def _random(self, num_tokens: int) -> TokenPrompt:
        return TokenPrompt(tuple(self._draw.randrange(1000, 40_000) for _ in range(num_tokens)))

    def _request(self, prompt: TextPrompt | TokenPrompt, max_tokens: int) -> InferenceRequest:
        self._num_requests += 1
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        return InferenceRequest(f"request{self._num_requests}", prompt, sampling)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--streams", type=int, default=8)
    arguments.add_argument("--prompt-tokens", type=int, default=8000)
    arguments.add_argument("--stretch", type=float, default=SchedulerConfig().max_decode_stretch)
    arguments.add_argument("--rounds", type=int, default=1)
    given = arguments.parse_args()
    config = EngineConfig(
        scheduler=SchedulerConfig(max_decode_stretch=given.stretch),
        # So that the blocks of one prompt serve the next.
        prefix_cache=False,
    )
    with lasting_objects():  # As a server's, or the collector would walk the tokenizer beside the streams.
        engine = start_model(given.model, LoadOptions(engine=config), SilentReporter()).engine
    try:
        asyncio.run(Experiment(engine, given.streams, given.prompt_tokens).run(given.rounds))
    finally:
        engine.close(0.0)


if __name__ == "__main__":
    main()
