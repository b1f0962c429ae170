"""Stop strings on a real model: every door shows exactly what comes before the first one."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrum import LLM, EngineConfig, SamplingParams
from ferrum.core.config import SchedulerConfig
from ferrum.core.request import FinishReason

pytestmark = pytest.mark.models

NUM_STOPS = 200
PROMPTS = ("The capital of France is", "Dear diary, today", "def fibonacci(n):\n", "🙂 é 漢字:")


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    scheduler = SchedulerConfig(max_waiting_requests=NUM_STOPS)
    with LLM(smollm2_path, config=EngineConfig(max_model_len=512, scheduler=scheduler)) as made:
        yield made


def test_two_hundred_pieces_of_real_answers_cut_them_before_their_first_occurrence(llm: LLM) -> None:
    greedy = SamplingParams(max_tokens=40, temperature=0)
    texts = [result.text for result in llm.generate(list(PROMPTS), greedy)]
    assert all(len(text) > 20 for text in texts)
    draw = random.Random(5)
    cases = []
    for number in range(NUM_STOPS):
        index = number % len(PROMPTS)
        size = draw.randint(2, 12)
        start = draw.randrange(len(texts[index]) - size)
        cases.append((index, texts[index][start : start + size]))
    results = llm.generate(
        [PROMPTS[index] for index, _ in cases],
        [SamplingParams(max_tokens=40, temperature=0, stop=(stop,)) for _, stop in cases],
    )
    for (index, stop), result in zip(cases, results, strict=True):
        assert result.text == texts[index][: texts[index].index(stop)]
        assert (result.finish_reason, result.stop_reason) == (FinishReason.STOP, stop)
