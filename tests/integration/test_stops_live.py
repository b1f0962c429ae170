"""Stop strings on a real model: every door shows exactly what comes before the first one."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrum import EngineConfig, SamplingParams
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import RunningModel, start_model
from ferrum.core.config import SchedulerConfig
from ferrum.core.request import FinishReason, InferenceRequest, StreamChunk, TextPrompt
from ferrum.weights.progress_reporter import SilentReporter

pytestmark = pytest.mark.models

NUM_STOPS = 200
PROMPTS = ("The capital of France is", "Dear diary, today", "def fibonacci(n):\n", "🙂 é 漢字:")
SAMPLINGS = ({"temperature": 0.0}, {"temperature": 0.8, "seed": 11})


@pytest.fixture(scope="module")
def running(smollm2_path: Path) -> Iterator[RunningModel]:
    scheduler = SchedulerConfig(max_waiting_requests=NUM_STOPS)
    options = LoadOptions(engine=EngineConfig(max_model_len=512, scheduler=scheduler))
    made = start_model(str(smollm2_path), options, SilentReporter())
    yield made
    made.engine.close()


def ask(name: str, prompt: int, sampling: int, *stop: str) -> InferenceRequest:
    params = SamplingParams(max_tokens=24, stop=stop, **SAMPLINGS[sampling])
    return InferenceRequest(name, TextPrompt(PROMPTS[prompt]), params)


def test_two_hundred_pieces_of_real_answers_cut_them_before_their_first_occurrence(
    running: RunningModel,
) -> None:
    kinds = [(prompt, sampling) for prompt in range(len(PROMPTS)) for sampling in range(len(SAMPLINGS))]
    whole = running.engine.generate([ask(f"whole-{kind}", *kind) for kind in kinds])
    texts = dict(zip(kinds, (result.text for result in whole), strict=True))
    assert all(len(text) > 20 for text in texts.values())
    draw = random.Random(5)
    cases = []
    for number in range(NUM_STOPS):
        kind = kinds[number % len(kinds)]
        size = draw.randint(2, 12)
        start = draw.randrange(len(texts[kind]) - size)
        cases.append((kind, texts[kind][start : start + size]))
    results = running.engine.generate(
        [ask(f"at-once-{number}", *kind, stop) for number, (kind, stop) in enumerate(cases)]
    )
    streams = asyncio.run(
        _stream_all(
            running, [ask(f"streamed-{number}", *kind, stop) for number, (kind, stop) in enumerate(cases)]
        )
    )
    for (kind, stop), result, chunks in zip(cases, results, streams, strict=True):
        expected = texts[kind][: texts[kind].index(stop)]
        assert result.text == expected
        assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, stop)
        # What was streamed cannot be taken back: no character of the stop is ever shown.
        assert "".join(chunk.text for chunk in chunks) == expected
        streamed = chunks[-1].result
        assert streamed is not None
        assert (streamed.text, streamed.finish_reason, streamed.stop_reason) == (
            expected,
            FinishReason.STOP,
            stop,
        )
        assert (streamed.token_ids, streamed.usage) == (result.token_ids, result.usage)


async def _stream_all(running: RunningModel, requests: list[InferenceRequest]) -> list[list[StreamChunk]]:
    async def chunks_of(request: InferenceRequest) -> list[StreamChunk]:
        return [chunk async for chunk in running.engine.infer_stream(request)]

    return await asyncio.gather(*map(chunks_of, requests))
