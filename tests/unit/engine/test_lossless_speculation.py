"""On the native runtime, speculation changes no token and no bit of any logit: whoever drafts, whatever the
company, chunks, threads and KV type.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from engine_factory import build_workshop
from gated_executor import GatedExecutor

from ferrum.cache.block_pool import DRAFT_KV_BLOCK, BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.drafting import Drafter
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import InferenceRequest, InferenceResult, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.speculation_config import SpeculationConfig, SpeculationMethod
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.execution.executor import ResolvedModelPlan
from ferrum.execution.plan_executor import PlanExecutor
from ferrum.execution.speculation.model_drafter import ModelDrafter
from ferrum.execution.speculation.ngram_drafter import NgramDrafter
from ferrum.models.architectures import build_plan
from ferrum.runtimes.native import NativeRuntime
from ferrum.runtimes.protocol import LogitsDetail
from ferrum.testing.manual_clock import ManualClock
from ferrum.weights.checkpoint import open_checkpoint
from tiny_models import llama_metadata, write_tiny_gemma3, write_tiny_llama

SONG = (5, 9, 14, 23, 9, 14, 2, 7)
PROMPTS = (SONG * 5, tuple(range(3, 60)), (8, 8, 8), SONG * 3 + (40,) + SONG)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "llama": write_tiny_llama(folder / "llama.gguf"),
        # The lower of the two layers alone: right now and then.
        "half": write_tiny_llama(folder / "half.gguf", metadata=llama_metadata(block_count=1)),
        "gemma3": write_tiny_gemma3(folder / "gemma3.gguf"),
        "short": write_tiny_llama(folder / "short.gguf", metadata=llama_metadata(context_length=50)),
    }


def native(
    model: Path,
    num_blocks: int = 64,
    num_threads: int = 1,
    kv_dtype: KvDtype = KvDtype.F16,
    detail: LogitsDetail = LogitsDetail.NONE,
) -> PlanExecutor:
    with open_checkpoint(model) as checkpoint:
        runtime = NativeRuntime(
            build_plan(checkpoint, None), checkpoint.tensors, num_blocks, num_threads, kv_dtype=kv_dtype
        )
    return PlanExecutor(runtime, ResolvedModelPlan("tiny", 64), detail)


def model_drafter(model: Path, ledger: LifecycleLedger, num_blocks: int = 64) -> ModelDrafter:
    """Takes no time, as it is told: drafts pay."""
    executor = native(model, num_blocks)
    cache = CacheManager(BlockPool(num_blocks, ledger, DRAFT_KV_BLOCK), 32)
    return ModelDrafter(executor, cache, 96, step_tokens=64, clock=lambda: 0.0)


@contextmanager
def opened(
    executor: PlanExecutor,
    make_drafter: Callable[[LifecycleLedger], Drafter] | None = None,
    num_tokens: int = 4,
    scheduler: SchedulerConfig = SchedulerConfig(),
    prefix_cache: bool = False,
) -> Iterator[ContinuousBatchEngine]:
    ledger = LifecycleLedger()
    config = EngineConfig(
        speculation=SpeculationConfig(SpeculationMethod.NGRAM, num_tokens=num_tokens),
        scheduler=scheduler,
        prefix_cache=prefix_cache,
    )
    workshop = build_workshop(
        executor,
        config=config,
        # Stands still: what pays is what is foreseen, not what this machine has just measured.
        clock=ManualClock(),
        drafter=make_drafter(ledger) if make_drafter is not None else None,
        ledger=ledger,
    )
    try:
        yield workshop.engine
    finally:
        workshop.engine.close(5.0)
    workshop.assert_nothing_is_held()


def requests(temperature: float, max_tokens: int = 40) -> list[InferenceRequest]:
    return [
        InferenceRequest(
            f"r{number}",
            TokenPrompt(prompt),
            SamplingParams(temperature=temperature, seed=number, max_tokens=max_tokens - number),
        )
        for number, prompt in enumerate(PROMPTS)
    ]


def evidence(results: list[InferenceResult]) -> list[tuple[object, ...]]:
    assert all(len(result.logit_digests) == len(result.token_ids) > 0 for result in results)
    return [
        (each.token_ids, each.logit_digests, each.finish_reason, each.usage.completion_tokens)
        for each in results
    ]


def alone(engine: ContinuousBatchEngine, asked: list[InferenceRequest]) -> list[InferenceResult]:
    return [engine.generate([request])[0] for request in asked]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafts_by", ["ngram", "llama", "half"])
@pytest.mark.parametrize(
    ("num_threads", "chunk", "num_tokens", "kv_dtype"),
    [(1, 512, 4, KvDtype.F16), (2, 7, 1, KvDtype.F16), (3, 64, 11, KvDtype.INT8)],
)
def test_speculation_changes_no_bit(
    models: dict[str, Path],
    temperature: float,
    drafts_by: str,
    num_threads: int,
    chunk: int,
    num_tokens: int,
    kv_dtype: KvDtype,
) -> None:
    asked = requests(temperature)
    with opened(native(models["llama"], kv_dtype=kv_dtype, detail=LogitsDetail.DIGEST)) as engine:
        expected = evidence(alone(engine, asked))

    def drafter(ledger: LifecycleLedger) -> Drafter:
        return NgramDrafter() if drafts_by == "ngram" else model_drafter(models[drafts_by], ledger)

    executor = native(models["llama"], num_threads=num_threads, kv_dtype=kv_dtype, detail=LogitsDetail.DIGEST)
    scheduler = SchedulerConfig(prefill_step_chunk=chunk, active_decode_prefill_chunk=chunk)
    with opened(executor, drafter, num_tokens, scheduler) as engine:
        together = engine.generate(asked)
        apart = alone(engine, asked)
    assert evidence(together) == expected
    assert evidence(apart) == expected
    assert sum(result.draft_use.drafted for result in apart) > 0
    if drafts_by != "ngram":
        assert sum(result.draft_use.accepted for result in apart) > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_sliding_window_changes_nothing(models: dict[str, Path], temperature: float) -> None:
    asked = requests(temperature)
    with opened(native(models["gemma3"], detail=LogitsDetail.DIGEST)) as engine:
        expected = evidence(alone(engine, asked))
    executor = native(models["gemma3"], detail=LogitsDetail.DIGEST)
    with opened(executor, lambda ledger: model_drafter(models["gemma3"], ledger), 7) as engine:
        assert evidence(engine.generate(asked)) == expected


@pytest.mark.parametrize("temperature", [0.0, 0.8, 2.0])
def test_a_model_that_drafts_for_itself_is_always_right(models: dict[str, Path], temperature: float) -> None:
    """Also when it draws: seed and position are the request's."""
    with opened(
        native(models["llama"], detail=LogitsDetail.DIGEST),
        lambda ledger: model_drafter(models["llama"], ledger),
    ) as engine:
        results = alone(engine, requests(temperature))
    for result in results:
        assert result.draft_use.drafted > 20
        assert result.draft_use.accepted == result.draft_use.drafted


def test_wrong_drafts_leave_nothing_in_the_prefix_cache(models: dict[str, Path]) -> None:
    """Blocks that held drafts are found by the tokens that were chosen, and hold what these give."""
    asked = requests(0.8, max_tokens=80)
    with opened(native(models["llama"], detail=LogitsDetail.DIGEST)) as engine:
        expected = alone(engine, asked)
        goes_on = [
            replace(one, request_id=f"{one.request_id}+", prompt=TokenPrompt((*ids, *result.token_ids)))
            for one, ids, result in zip(asked, PROMPTS, expected, strict=True)
        ]
        further = evidence(alone(engine, goes_on))
    with opened(
        native(models["llama"], detail=LogitsDetail.DIGEST),
        lambda ledger: model_drafter(models["half"], ledger),
        7,
        prefix_cache=True,
    ) as engine:
        assert evidence(alone(engine, asked)) == evidence(expected)
        results = alone(engine, goes_on)
    assert all(result.usage.cached_tokens > 64 for result in results)
    assert evidence(results) == further


def test_requests_that_give_way_are_drafted_for_again(models: dict[str, Path]) -> None:
    """Each grows into a second block, and there are not enough of them; not in the draft's pool either."""
    asked = [
        InferenceRequest(
            f"r{number}", TokenPrompt((number, *SONG * 3)), SamplingParams(temperature=0.8, seed=number)
        )
        for number in range(3, 15)
    ]
    scheduler = SchedulerConfig(expected_output_tokens=1)
    with opened(native(models["short"], detail=LogitsDetail.DIGEST)) as engine:
        expected = evidence(alone(engine, asked))
    gated = GatedExecutor(native(models["short"], 5, detail=LogitsDetail.DIGEST))
    with opened(gated, lambda ledger: model_drafter(models["half"], ledger, 5), 5, scheduler) as engine:
        # The first of them must not be done before the others are there.
        threading.Timer(0.3, gated.open).start()
        results = engine.generate(asked)
        assert "ferrum_engine_preemptions_total 0.0" not in engine.metrics()
    assert evidence(results) == expected
    assert sum(result.draft_use.drafted for result in results) > 0


@pytest.mark.parametrize(("model", "num_blocks"), [("short", 64), ("half", 2)])
def test_where_a_draft_model_has_no_room_there_are_no_drafts(
    models: dict[str, Path], model: str, num_blocks: int
) -> None:
    """Its context, or its pool, ends before the request's."""
    asked = requests(0.0, max_tokens=60)
    with opened(native(models["llama"], detail=LogitsDetail.DIGEST)) as engine:
        expected = evidence(alone(engine, asked))
    executor = native(models["llama"], detail=LogitsDetail.DIGEST)
    with opened(executor, lambda ledger: model_drafter(models[model], ledger, num_blocks)) as engine:
        assert evidence(engine.generate(asked)) == expected
        results = alone(engine, asked)
    assert evidence(results) == expected
    assert 0 < results[2].draft_use.drafted <= 60
