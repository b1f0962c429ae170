"""The prefix cache through the engine's doors: what it saves, whom it serves, and what it never does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running
from prometheus_client.parser import text_string_to_metric_families

from ferrum.core.cache_use import CacheEnd
from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InvalidRequest
from ferrum.core.events import OutstandingAtClose
from ferrum.core.request import FinishReason
from ferrum.core.step import StepPlan
from ferrum.execution.executor import ExecutorCapacity, ResourceAuthority
from ferrum.testing.scripted_executor import ScriptedExecutor

PROMPT = "a prompt of some length, so that it fills blocks"
SMALL = ExecutorCapacity(num_blocks=16, block_tokens=4, context_length=64, vocabulary_size=258)


def _prefix_samples(workshop: Workshop) -> dict[str, float]:
    return {
        sample.name.removeprefix("ferrum_prefix_cache_"): sample.value
        for family in text_string_to_metric_families(workshop.engine.metrics())
        for sample in family.samples
        if sample.name.startswith("ferrum_prefix_cache_")
    }


async def test_the_same_question_again_computes_one_token_and_answers_the_same() -> None:
    executor = ScriptedExecutor(keeps_plans=True)
    async with running(build_workshop(executor)) as workshop:
        first = await workshop.engine.infer(ask("a", PROMPT))
        executor.plans.clear()
        second = await workshop.engine.infer(ask("b", PROMPT))
    assert second.token_ids == first.token_ids
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, len(PROMPT) - 1)
    assert executor.plans[0].num_tokens == 1


async def test_streams_and_cancelled_requests_say_what_was_cached() -> None:
    async with running(build_workshop(ScriptedExecutor(latency_s=0.01))) as workshop:
        await workshop.engine.infer(ask("a", PROMPT))
        chunks = [chunk async for chunk in workshop.engine.infer_stream(ask("b", PROMPT))]
        assert chunks[-1].result is not None
        assert chunks[-1].result.usage.cached_tokens == len(PROMPT) - 1
        waiting = asyncio.create_task(workshop.engine.infer(ask("c", PROMPT, max_tokens=100)))
        await eventually(lambda: workshop.engine.status().num_running == 1)
        workshop.engine.cancel("c")
        result = await waiting
        assert result.finish_reason is FinishReason.CANCELLED
        assert result.usage.cached_tokens == len(PROMPT) - 1


async def test_status_and_metrics_count_hits_misses_and_evictions() -> None:
    async with running(build_workshop(ScriptedExecutor(capacity=SMALL))) as workshop:
        for name in "ab":
            await workshop.engine.infer(ask(name, PROMPT, max_tokens=4))
        status = workshop.engine.status().prefix_cache
        assert (status.hits, status.misses, status.hit_rate) == (1, 1, 0.5)
        assert status.saved_prefill_tokens == len(PROMPT) - 1
        assert (status.entries, status.cached_tokens) == (13, len(PROMPT) + 3)
        assert status.num_bytes == 13 * 16
        await workshop.engine.infer(ask("c", "x" * 40, max_tokens=4))
        samples = _prefix_samples(workshop)
        assert samples["hits_total"] == 1
        assert samples["misses_total"] == 2
        assert samples["evictions_total"] == workshop.engine.status().prefix_cache.evictions == 8
        assert samples["saved_prefill_tokens_total"] == len(PROMPT) - 1
        assert samples["entries"] == 16
        assert samples["bytes"] == 16 * 16


async def test_it_can_be_turned_off() -> None:
    async with running(build_workshop(config=EngineConfig(prefix_cache=False))) as workshop:
        for name in "ab":
            result = await workshop.engine.infer(ask(name, PROMPT))
            assert result.usage.cached_tokens == 0
        assert not workshop.engine.status().prefix_cache.is_enabled
        assert set(_prefix_samples(workshop).values()) == {0}


async def test_an_executor_whose_blocks_are_no_memory_shares_nothing() -> None:
    executor = ScriptedExecutor(resource_authority=ResourceAuthority.ENGINE_MANAGED)
    async with running(build_workshop(executor)) as workshop:
        for name in "ab":
            assert (await workshop.engine.infer(ask(name, PROMPT))).usage.cached_tokens == 0


async def test_salts_keep_prompts_apart() -> None:
    async with running(build_workshop()) as workshop:
        cached = {}
        for name, salt in [("a", None), ("b", "x"), ("c", "y"), ("d", "x"), ("e", None)]:
            request = replace(ask(name, PROMPT), cache_salt=salt)
            cached[name] = (await workshop.engine.infer(request)).usage.cached_tokens
    assert cached == {"a": 0, "b": 0, "c": 0, "d": len(PROMPT) - 1, "e": len(PROMPT) - 1}


@pytest.mark.parametrize("salt", ["", 5, b"x"])
def test_a_salt_that_is_no_text_is_refused(salt: object) -> None:
    with pytest.raises(InvalidRequest, match="cache_salt"):
        replace(ask(), cache_salt=salt)


async def test_a_result_explains_a_miss_when_asked() -> None:
    async with running(build_workshop()) as workshop:
        await workshop.engine.infer(ask("a", "the sky is blue"))
        asked = replace(ask("b", "the sea is blue"), wants_cache_explanation=True)
        explanation = (await workshop.engine.infer(asked)).cache_explanation
        assert (await workshop.engine.infer(ask("c"))).cache_explanation is None
    assert explanation is not None
    assert (explanation.end, explanation.position) == (CacheEnd.DIFFERENT_TOKEN, 5)
    assert (explanation.token_id, explanation.cached_token_id) == (ord("e"), ord("k"))


async def test_a_common_prefix_is_computed_once_by_requests_that_come_together() -> None:
    executor = ScriptedExecutor(keeps_plans=True)
    async with running(build_workshop(executor)) as workshop:
        asks = [ask(f"r{number}", f"{PROMPT} number {number}") for number in range(4)]
        together = await asyncio.gather(*map(workshop.engine.infer, asks))
        num_prefill = sum(
            len(part.token_ids) for plan in executor.plans for part in plan.parts if part.start_position < 55
        )
    async with running(build_workshop(config=EngineConfig(prefix_cache=False))) as workshop:
        alone = [await workshop.engine.infer(each) for each in asks]
    assert [result.token_ids for result in together] == [result.token_ids for result in alone]
    assert num_prefill <= len(PROMPT) + len(" number ") + 4 * 4


async def test_followers_go_on_when_their_leader_fails() -> None:
    def fail_the_leader(plan: StepPlan) -> None:
        if any(part.request_id == "leader" and part.start_position for part in plan.parts):
            raise RuntimeError("broken")

    executor = ScriptedExecutor(before_step=fail_the_leader)
    config = SchedulerConfig(prefill_step_chunk=8)
    async with running(build_workshop(executor, scheduler=config)) as workshop:
        names = ["leader", "one", "two"]
        asks = [ask(name, f"{PROMPT} for {name}") for name in names]
        results = await asyncio.gather(*map(workshop.engine.infer, asks), return_exceptions=True)
    assert isinstance(results[0], Exception)
    assert not any(isinstance(result, Exception) for result in results[1:])


async def test_a_request_whose_step_failed_leaves_nothing_wrong_behind() -> None:
    """Blocks of a step that raised are not known to the cache, even when the executor wrote into them."""
    failures_left = [2]  # The step, and the step once more.

    def fail_twice(plan: StepPlan) -> None:
        if failures_left[0] and plan.parts[0].start_position >= 8:
            failures_left[0] -= 1
            for part in plan.parts:
                for block in part.block_table[part.start_position // 4 :]:
                    executor.block_store.write_block(block, bytes(16))
            raise RuntimeError("broken")

    executor = ScriptedExecutor(before_step=fail_twice)
    config = SchedulerConfig(prefill_step_chunk=8)
    async with running(build_workshop(executor, scheduler=config)) as workshop:
        results = [
            await asyncio.gather(workshop.engine.infer(ask(name, PROMPT)), return_exceptions=True)
            for name in "abc"
        ]
        cold = build_workshop(config=EngineConfig(prefix_cache=False))
        async with running(cold):
            expected = await cold.engine.infer(ask("cold", PROMPT))
    assert isinstance(results[0][0], Exception)
    for (result,) in results[1:]:
        assert not isinstance(result, BaseException)
        assert result.token_ids == expected.token_ids


async def test_an_answer_comes_even_if_our_own_books_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    workshop = build_workshop()

    def fail(*arguments: object) -> None:
        raise AssertionError("a bug of ours")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(workshop.cache, "release", fail)
            result = await asyncio.wait_for(workshop.engine.infer(ask("a")), timeout=5)
            assert result.usage.completion_tokens == 8
        # What could not be given back is a leak that is told; the place among the requests is free again.
        (leak,) = [event for event in workshop.recorder.events if isinstance(event, OutstandingAtClose)]
        assert leak.request_id == "a"
        assert set(leak.outstanding) == {"kv_block"}
        assert "ferrum_engine_resource_leaks_total 1.0" in workshop.engine.metrics()
        assert (await workshop.engine.infer(ask("b"))).text == result.text
        workshop.cache.release("a")
    finally:
        await workshop.engine.shutdown(0.0)
