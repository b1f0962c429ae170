"""Soak: thousands of short requests through one engine, many of them given up, and what is left afterwards.

The requests come in rounds of the same shapes (lengths, stops, ways to end) with new tokens and seeds, so
that a late round can be compared with an early one.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path

from ferrum.core.request import InferenceRequest, InferenceResult, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine

_STOPS = ((), (), ("\n",), (". ",), (" the", "ing"), ("qz",))
_SHARE_OF_ABORTS = 0.3
# Of those who name no limit most stop soon, and so much is promised to the next of them; fewer than one in
# ten write to the end of the context, and others have to give way.
_SHARE_WITHOUT_LIMIT, _SHARE_WITHOUT_STOP = 0.7, 0.08
_SOON = (" ", "e", "a")
_MOST_PROMPT_TOKENS, _MOST_OUTPUT_TOKENS = 150, 60
# Ids that every vocabulary of today has and that are no control tokens.
_LOWEST_ID, _HIGHEST_ID = 1000, 30_000
# So many requests as long as the context can hold keys and values; whoever else comes competes for them.
_FULL_REQUESTS = 4


class Ending(StrEnum):
    """How the caller of a request behaves."""

    READS_ALL = auto()  # as one answer
    READS_STREAM = auto()
    CLOSES_STREAM = auto()
    CANCELS_BY_ID = auto()
    DROPS_TASK = auto()


_ABORTS = (Ending.CLOSES_STREAM, Ending.CANCELS_BY_ID, Ending.DROPS_TASK)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What rounds have in common. ``patience`` is pieces of text, or milliseconds, until an abort."""

    prompt_tokens: int
    max_tokens: int | None
    temperature: float
    stop: tuple[str, ...]
    ending: Ending
    patience: int


@dataclass(frozen=True, slots=True)
class SoakRound:
    """``num_tokens``: computed ones, of prompts and answers; ``resident_bytes`` when all have ended."""

    num_requests: int
    num_tokens: int
    cpu_s: float
    resident_bytes: int

    @property
    def cpu_s_per_token(self) -> float:
        return self.cpu_s / self.num_tokens


@dataclass(frozen=True, slots=True)
class SoakReport:
    """``endings`` counts finish reasons, and "left" for tasks that were dropped before their answer.

    ``num_recomputed_tokens`` were computed again after preemptions.
    """

    rounds: tuple[SoakRound, ...]
    endings: Counter[str]
    num_preemptions: int
    num_recomputed_tokens: int

    @property
    def recomputed_share(self) -> float:
        """Of all computed tokens, those that were computed again."""
        return self.num_recomputed_tokens / sum(each.num_tokens for each in self.rounds)

    @property
    def bytes_per_request(self) -> float:
        """By which memory grew in the second half."""
        half = len(self.rounds) // 2
        num_requests = sum(each.num_requests for each in self.rounds[half:])
        return (self.rounds[-1].resident_bytes - self.rounds[half - 1].resident_bytes) / num_requests

    @property
    def late_over_early(self) -> float:
        """Processor time of a token in the last round over that in the first."""
        return self.rounds[-1].cpu_s_per_token / self.rounds[0].cpu_s_per_token


def resident_bytes() -> int:
    """Of this process, from /proc/self/smaps_rollup: shared pages of files are not counted."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


class Soak:
    """Mutable: the random generator and the counts. Nobody else may use the engine meanwhile."""

    def __init__(self, engine: ContinuousBatchEngine, requests_per_round: int, num_at_once: int = 16) -> None:
        self._engine = engine
        self._draw = random.Random(7)
        self._shapes = [self._shape() for _ in range(requests_per_round)]
        self._num_at_once = num_at_once
        self._num_requests = 0
        self._endings: Counter[str] = Counter()

    async def run(self, num_rounds: int) -> SoakReport:
        """A round to warm up, then ``num_rounds`` that are reported. Raises what a request raises."""
        await asyncio.to_thread(self._occupy)
        await self._fill_a_step()
        await self._round()
        self._endings.clear()
        names = ("preemptions", "recomputed_tokens")
        before = [self._counted(name) for name in names]
        rounds = tuple([await self._round() for _ in range(num_rounds)])
        preemptions, recomputed = (self._counted(name) - was for name, was in zip(names, before, strict=True))
        return SoakReport(rounds, self._endings, preemptions, recomputed)

    def _occupy(self) -> None:
        """Pins prefixes until no more than four requests of full length have room beside them."""
        cache = self._engine.resources.cache
        room = _FULL_REQUESTS * cache.blocks_for(self._engine.context_length)
        most = self._engine.context_length // cache.block_tokens - 1
        while (spare := cache.num_blocks - cache.num_used_blocks - room) > 0:
            prompt = self._prompt(min(spare, most) * cache.block_tokens)
            self._engine.pins.pin(f"occupied{spare}", prompt)

    async def _fill_a_step(self) -> None:
        """As many prompt tokens at once as have room: memory of the largest steps is touched by the first."""
        sampling = SamplingParams(max_tokens=1)
        prompts = [self._prompt(self._engine.context_length - 1) for _ in range(_FULL_REQUESTS)]
        await asyncio.gather(
            *(
                self._engine.infer(InferenceRequest(f"full{number}", prompt, sampling))
                for number, prompt in enumerate(prompts)
            )
        )

    async def _round(self) -> SoakRound:
        shapes, tokens_before, began = iter(self._shapes), self._num_computed_tokens(), time.process_time()
        async with asyncio.TaskGroup() as callers:
            for _ in range(self._num_at_once):
                callers.create_task(self._call_one_after_the_other(shapes))
        cpu_s = time.process_time() - began
        gc.collect()
        num_tokens = self._num_computed_tokens() - tokens_before
        return SoakRound(len(self._shapes), num_tokens, cpu_s, resident_bytes())

    def _num_computed_tokens(self) -> int:
        return self._counted("prefill_tokens") + self._counted("tokens_generated")

    def _counted(self, name: str) -> int:
        return int(self._engine.registry.get_sample_value(f"ferrum_engine_{name}_total") or 0)

    async def _call_one_after_the_other(self, shapes: Iterator[_Shape]) -> None:
        for shape in shapes:
            self._num_requests += 1
            request = InferenceRequest(
                f"soak{self._num_requests}", self._prompt(shape.prompt_tokens), self._sampling(shape)
            )
            result = await self._call(request, shape)
            self._endings["left" if result is None else result.finish_reason] += 1

    async def _call(self, request: InferenceRequest, shape: _Shape) -> InferenceResult | None:
        match shape.ending:
            case Ending.READS_ALL:
                return await self._engine.infer(request)
            case Ending.DROPS_TASK:
                return await self._drop(request, shape.patience / 1000)
            case _:
                return await self._read_stream(request, shape)

    async def _drop(self, request: InferenceRequest, patience_s: float) -> InferenceResult | None:
        """The answer, or None if it takes longer: the task that waits for it is cancelled."""
        try:
            async with asyncio.timeout(patience_s):
                return await self._engine.infer(request)
        except TimeoutError:
            return None

    async def _read_stream(self, request: InferenceRequest, shape: _Shape) -> InferenceResult | None:
        num_pieces = 0
        async with await self._engine.open_stream(request) as stream:
            async for chunk in stream:
                if chunk.result is not None:
                    return chunk.result
                num_pieces += 1
                if num_pieces == shape.patience and shape.ending is Ending.CANCELS_BY_ID:
                    self._engine.cancel(request.request_id)
                if num_pieces >= shape.patience and shape.ending is Ending.CLOSES_STREAM:
                    return None
        raise AssertionError("a stream ends with its result")

    def _shape(self) -> _Shape:
        draw = self._draw
        has_limit = draw.random() >= _SHARE_WITHOUT_LIMIT
        stop: tuple[str, ...] = draw.choice(_STOPS)
        if not has_limit:
            stop = () if draw.random() < _SHARE_WITHOUT_STOP else _SOON
        is_abort = draw.random() < _SHARE_OF_ABORTS
        if is_abort:
            stop = ()  # They would not live to be given up.
        return _Shape(
            prompt_tokens=draw.randint(1, _MOST_PROMPT_TOKENS),
            max_tokens=draw.randint(1, _MOST_OUTPUT_TOKENS) if has_limit else None,
            temperature=draw.choice((0.0, 0.7, 1.0)),
            stop=stop,
            ending=draw.choice(_ABORTS if is_abort else (Ending.READS_ALL, Ending.READS_STREAM)),
            patience=draw.randint(1, 40),
        )

    def _sampling(self, shape: _Shape) -> SamplingParams:
        return SamplingParams(
            max_tokens=shape.max_tokens,
            temperature=shape.temperature,
            stop=shape.stop,
            seed=self._draw.randrange(2**31),
        )

    def _prompt(self, num_tokens: int) -> TokenPrompt:
        return TokenPrompt(tuple(self._draw.randint(_LOWEST_ID, _HIGHEST_ID) for _ in range(num_tokens)))
