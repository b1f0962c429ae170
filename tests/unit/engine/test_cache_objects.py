"""An engine-managed engine whose executor keeps a cache object for every request."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from engine_factory import Recorder, ask, eventually

from ferrum.assembly.engine_builder import EngineBuilder
from ferrum.cache.block_pool import BlockPool
from ferrum.cache.cache_manager import CacheManager
from ferrum.cache.prefix_cache import PrefixCache
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InternalError, InvalidConfig
from ferrum.core.events import RequestPreempted, RequestQueued
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.request import InferenceRequest, TokenPrompt
from ferrum.core.sampling_params import SamplingParams
from ferrum.engine.engine import ContinuousBatchEngine
from ferrum.execution.executor import ExecutorCapacity
from ferrum.execution.transformers_executor import TransformersExecutor
from ferrum.testing.byte_tokenizer import ByteTokenizer
from ferrum.testing.scripted_causal_model import ScriptedCausalModel
from ferrum.testing.scripted_executor import ScriptedExecutor


def _engine(
    model: ScriptedCausalModel, recorder: Recorder | None = None, num_blocks: int = 64
) -> ContinuousBatchEngine:
    capacity = ExecutorCapacity(num_blocks, 4, 256, model.vocabulary_size, kv_bytes_per_token=10)
    scheduler = SchedulerConfig(prefill_step_chunk=5, expected_output_tokens=1)
    builder = EngineBuilder(EngineConfig(scheduler=scheduler)).with_tokenizer(ByteTokenizer())
    builder.with_executor(TransformersExecutor(model, capacity)).with_observer(recorder or Recorder())
    return builder.build()


def _greedy(prompt: Sequence[int], num_tokens: int) -> tuple[int, ...]:
    """What the model says by itself, one sequence and no engine."""
    model, tokens = ScriptedCausalModel(vocabulary_size=256), list(prompt)
    for _ in range(num_tokens):
        tokens.append(int(np.argmax(model.forward(tokens, model.new_cache()))))
    return tuple(tokens[len(prompt) :])


def _assert_nothing_is_held(engine: ContinuousBatchEngine, model: ScriptedCausalModel) -> None:
    ledger = engine.resources.kv_manager.ledger
    assert ledger.outstanding() == {}
    assert (ledger.num_open_owners, ledger.num_underflows, ledger.num_dropped_leases) == (0, 0, 0)
    assert len(model.caches) == 0


def _model() -> ScriptedCausalModel:
    return ScriptedCausalModel(vocabulary_size=256)  # never the end token


def test_requests_together_get_the_models_own_tokens() -> None:
    model = _model()
    engine = _engine(model)
    prompts = [tuple(range(number + 1, number + 9)) for number in range(6)]
    sampling = SamplingParams(temperature=0.0, max_tokens=7)
    requests = [
        InferenceRequest(f"r{number}", TokenPrompt(prompt), sampling) for number, prompt in enumerate(prompts)
    ]
    results = engine.generate(requests)
    assert [result.token_ids for result in results] == [_greedy(prompt, 7) for prompt in prompts]
    _assert_nothing_is_held(engine, model)
    engine.close()


def test_a_preempted_request_drops_its_object_and_comes_to_the_same_tokens() -> None:
    model, recorder = _model(), Recorder()

    def wait_for_all(token_ids: Sequence[int]) -> None:
        """The first of them must not be done before the last is there."""
        while 0 < len(recorder.of(RequestQueued)) < 3:
            time.sleep(0.001)

    model.before_forward = wait_for_all
    engine = _engine(model, recorder, num_blocks=10)
    results = engine.generate([ask(f"r{number}", "p" * 10, max_tokens=None) for number in range(3)])
    assert recorder.of(RequestPreempted)
    expected = _greedy(b"p" * 10, 30)
    assert [result.token_ids for result in results] == [expected] * 3
    _assert_nothing_is_held(engine, model)
    engine.close()


async def test_a_cancelled_request_drops_its_object_while_another_goes_on() -> None:
    are_both_there, may_go_on = threading.Event(), threading.Event()

    def hold(token_ids: Sequence[int]) -> None:
        assert are_both_there.wait(5.0)
        if len(model.caches) == 2 and len(model.forwards) > num_forwards + 4:
            assert may_go_on.wait(5.0)

    model = _model()
    engine = _engine(model)
    num_forwards = len(model.forwards)
    model.before_forward = hold
    leaving = await engine.open_stream(ask("a", "first", max_tokens=200))
    staying = await engine.open_stream(ask("b", "second", max_tokens=20))
    are_both_there.set()
    assert await anext(aiter(leaving))
    await eventually(lambda: len(model.forwards) > num_forwards + 4)
    assert len(model.caches) == 2
    assert engine.cancel("a")
    may_go_on.set()
    async with staying:
        chunks = [chunk async for chunk in staying]
    assert chunks[-1].result is not None
    assert chunks[-1].result.token_ids == _greedy(b"second", 20)
    await eventually(lambda: len(model.caches) == 0)
    async with leaving:
        pass
    await engine.shutdown(0.0)
    _assert_nothing_is_held(engine, model)


def test_a_request_that_breaks_the_model_fails_alone() -> None:
    def break_on_seven(token_ids: Sequence[int]) -> None:
        if 7 in token_ids:
            raise RuntimeError("seven")

    model = _model()
    engine = _engine(model)
    model.before_forward = break_on_seven
    sampling = SamplingParams(temperature=0.0, max_tokens=4)
    with pytest.raises(InternalError, match="seven"):
        engine.generate([InferenceRequest("bad", TokenPrompt((1, 7)), sampling)])
    good = InferenceRequest("good", TokenPrompt((1, 2)), sampling)
    (result,) = engine.generate([good])
    assert result.token_ids == _greedy((1, 2), 4)
    # The log that pytest keeps holds the failed pass with its cache, so caches cannot be counted here.
    assert engine.resources.kv_manager.ledger.outstanding() == {}
    assert engine.status().num_used_kv_blocks == 0
    engine.close()


def test_status_tells_how_much_the_objects_may_take() -> None:
    engine = _engine(_model())
    assert engine.status().kv_bytes == 64 * 4 * 10
    engine.close()


def test_objects_cannot_be_shared_between_requests() -> None:
    scripted = ScriptedExecutor()
    assert scripted.block_store is not None
    prefixes = PrefixCache("identity", 4, scripted.block_store)
    cache = CacheManager(BlockPool(8, LifecycleLedger()), 4, prefixes)
    executor = TransformersExecutor(_model(), ExecutorCapacity(64, 4, 256, 256))
    with pytest.raises(InvalidConfig, match="shares blocks between requests"):
        EngineBuilder().with_executor(executor).with_kv_cache(cache).build()
