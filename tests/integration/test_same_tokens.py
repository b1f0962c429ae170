"""The same tokens always: on the real models, bit for bit, whatever company, chunks and threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrum import LLM, SamplingParams
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.request import InferenceResult, TokenPrompt

CHUNKS = (1, 7, 64, 512)
THREADS = (1, 2, 3, 5)
# Long chunks on one thread are the reference; every chunk size and thread count appears beside it.
REFERENCE = (512, 1)
VARIANTS = ((512, 2), (64, 3), (7, 5), (1, 2))
ALL_VARIANTS = tuple(pair for pair in itertools.product(CHUNKS, THREADS) if pair != REFERENCE)

Requests = list[tuple[TokenPrompt, SamplingParams]]


def open_llm(model: Path, chunk: int, threads: int) -> LLM:
    scheduler = SchedulerConfig(
        max_running_requests=16,
        max_num_batched_tokens=max(16, chunk),
        prefill_step_chunk=chunk,
        active_decode_prefill_chunk=chunk,
        # Chunks as long as the variant says, not as long as this machine is quick.
        max_step_s=60.0,
        max_decode_stretch=1000.0,
    )
    # Without a prefix cache: every variant has to compute everything itself.
    config = EngineConfig(max_model_len=2048, logit_digests=True, prefix_cache=False, scheduler=scheduler)
    return LLM(model, threads=threads, config=config)


class Bench:
    """Engines over one model, opened when first needed and closed at the end."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._open: dict[tuple[int, int], LLM] = {}

    def together(self, variant: tuple[int, int], requests: Requests) -> list[tuple[object, ...]]:
        prompts = [prompt for prompt, _ in requests]
        results = self._llm(variant).generate(prompts, [sampling for _, sampling in requests])
        return [evidence(result) for result in results]

    def alone(self, variant: tuple[int, int], requests: Requests) -> list[tuple[object, ...]]:
        llm = self._llm(variant)
        return [evidence(llm.generate(prompt, sampling)[0]) for prompt, sampling in requests]

    def close(self) -> None:
        for llm in self._open.values():
            llm.close()

    def _llm(self, variant: tuple[int, int]) -> LLM:
        if variant not in self._open:
            self._open[variant] = open_llm(self._model, *variant)
        return self._open[variant]


def evidence(result: InferenceResult) -> tuple[object, ...]:
    """What must be equal: ids, the logits' bits at every generated position, text and counts."""
    assert len(result.logit_digests) == len(result.token_ids) > 0
    return (result.token_ids, result.logit_digests, result.text, result.finish_reason, result.usage)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Bench]:
    bench = Bench(smollm2_path)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Iterator[Bench]:
    bench = Bench(gemma3_path)
    yield bench
    bench.close()


def prompt_of(length: int, seed: int) -> TokenPrompt:
    ids = np.random.default_rng(seed).integers(100, 40_000, length)
    return TokenPrompt(tuple(int(token) for token in ids))


samplings = st.builds(
    SamplingParams,
    max_tokens=st.integers(1, 12),
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.0, 2.0]),
    top_k=st.sampled_from([0, 40]),
    top_p=st.sampled_from([1.0, 0.9]),
    seed=st.integers(0, 2**63 - 1),
    ignore_eos=st.just(True),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.5]),
    dry_multiplier=st.sampled_from([0.0, 0.0, 0.8]),
    typical_p=st.sampled_from([1.0, 1.0, 0.8]),
    mirostat=st.sampled_from([0, 0, 2]),
)
short_requests = st.lists(
    st.tuples(st.builds(prompt_of, st.integers(1, 150), st.integers(0, 1000)), samplings),
    min_size=2,
    max_size=6,
)
long_requests = st.tuples(st.builds(prompt_of, st.integers(1101, 1300), st.integers(0, 1000)), samplings)


def check(bench: Bench, requests: Requests, variants: tuple[tuple[int, int], ...]) -> None:
    expected = bench.alone(REFERENCE, requests)
    assert bench.together(REFERENCE, requests) == expected
    for variant in variants:
        assert bench.together(variant, requests) == expected, variant


@pytest.mark.models
@settings(deadline=None, max_examples=4, suppress_health_check=list(HealthCheck))
@given(short=short_requests, long=long_requests)
def test_smollm2_company_chunks_and_threads_change_no_bit(
    smollm2: Bench, short: Requests, long: tuple[TokenPrompt, SamplingParams]
) -> None:
    check(smollm2, [*short[:1], long, *short[1:]], VARIANTS)


@pytest.mark.models
@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
@given(short=short_requests, long=long_requests)
def test_gemma3_company_chunks_and_threads_change_no_bit(
    gemma3: Bench, short: Requests, long: tuple[TokenPrompt, SamplingParams]
) -> None:
    check(gemma3, [*short[:1], long, *short[1:]], VARIANTS[:3])


@pytest.mark.slow
@pytest.mark.models
@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
@given(short=short_requests, long=long_requests)
def test_smollm2_every_chunk_size_with_every_thread_count(
    smollm2: Bench, short: Requests, long: tuple[TokenPrompt, SamplingParams]
) -> None:
    check(smollm2, [*short[:1], long, *short[1:]], ALL_VARIANTS)


@pytest.mark.slow
@pytest.mark.models
@settings(deadline=None, max_examples=1, suppress_health_check=list(HealthCheck))
@given(short=short_requests, long=long_requests)
def test_gemma3_every_chunk_size_with_every_thread_count(
    gemma3: Bench, short: Requests, long: tuple[TokenPrompt, SamplingParams]
) -> None:
    check(gemma3, [*short[:1], long, *short[1:]], ALL_VARIANTS)
