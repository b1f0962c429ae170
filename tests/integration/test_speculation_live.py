"""Speculation on the real models: the same ids and the same bits of logits, in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ferrum import LLM, SamplingParams
from ferrum.assembly.model_loading import LoadOptions
from ferrum.assembly.start_model import start_model
from ferrum.core.config import EngineConfig
from ferrum.core.events import Event, StepRan
from ferrum.core.request import InferenceResult
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.weights.progress_reporter import SilentReporter

LIST = "apples, pears, plums, cherries, grapes, figs"
PROMPTS = (
    f"A shopping list: {LIST}.\nThe same list again: {LIST}.\nThe same list again:",
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n    return",
    "The weather in the mountains",
)
SAMPLINGS = [
    SamplingParams(temperature=temperature, seed=seed, max_tokens=48, ignore_eos=True)
    for seed, temperature in enumerate([0.0, 0.0, 0.8])
]


@dataclass
class StepCounter:
    num_steps: int = field(default=0)

    def on(self, event: Event) -> None:
        self.num_steps += isinstance(event, StepRan)


@contextmanager
def opened(model: Path, speculation: SpeculationConfig, threads: int) -> Iterator[tuple[LLM, StepCounter]]:
    counter = StepCounter()
    config = EngineConfig(max_model_len=512, logit_digests=True, prefix_cache=False, speculation=speculation)
    options = LoadOptions(threads=threads, engine=config)
    running = start_model(str(model), options, SilentReporter(), observers=(counter,))
    with LLM.over(running.engine) as llm:
        yield llm, counter


def evidence(results: list[InferenceResult]) -> list[tuple[object, ...]]:
    assert all(len(result.logit_digests) == len(result.token_ids) == 48 for result in results)
    return [(each.token_ids, each.logit_digests, each.text, each.usage) for each in results]


@pytest.mark.models
@pytest.mark.parametrize(
    "method", [SpeculationMethod.NGRAM, pytest.param(SpeculationMethod.DRAFT, marks=pytest.mark.slow)]
)
def test_smollm2_speculates_without_a_trace(smollm2_path: Path, method: SpeculationMethod) -> None:
    """Its own draft would not pay, so it is tried and left alone; that must leave no trace either."""
    draft = str(smollm2_path) if method is SpeculationMethod.DRAFT else None
    with opened(smollm2_path, SpeculationConfig(), 1) as (llm, plain_steps):
        apart = [
            llm.generate(prompt, sampling)[0] for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True)
        ]
    with opened(smollm2_path, SpeculationConfig(method, draft), 2) as (llm, steps):
        results = [
            llm.generate(prompt, sampling)[0] for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True)
        ]
        num_steps = steps.num_steps
        together = llm.generate(list(PROMPTS), SAMPLINGS)
    assert evidence(results) == evidence(together) == evidence(apart)
    if method is SpeculationMethod.NGRAM:
        # How many depends on what this machine measures while the test runs.
        assert results[0].draft_use.accepted > 0
        assert num_steps < plain_steps.num_steps


@pytest.mark.models
@pytest.mark.slow
def test_gemma3_speculates_without_a_trace(gemma3_path: Path) -> None:
    """Sliding windows, and a vocabulary of 262,144 words."""
    with opened(gemma3_path, SpeculationConfig(), 1) as (llm, _):
        plain = evidence(llm.generate(list(PROMPTS), SAMPLINGS))
    with opened(gemma3_path, SpeculationConfig(SpeculationMethod.NGRAM), 2) as (llm, _):
        results = llm.generate(list(PROMPTS), SAMPLINGS)
    assert evidence(results) == plain
    assert sum(result.draft_use.accepted for result in results) > 0
