from __future__ import annotations

import asyncio

import pytest
from engine_factory import Workshop, ask, build_workshop, running
from prometheus_client.parser import text_string_to_metric_families

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.errors import InvalidRequest
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.scripted_executor import ScriptedExecutor


def _samples(workshop: Workshop) -> dict[str, float]:
    return {
        ",".join((sample.name.removeprefix("ferrum_engine_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(workshop.engine.metrics())
        for sample in family.samples
    }


async def test_everything_is_zero_and_readable_before_the_first_request() -> None:
    async with running(build_workshop()) as workshop:
        samples = _samples(workshop)
    sizes = {"kv_blocks": 64.0}
    unexpected = {
        name: value
        for name, value in samples.items()
        if value != sizes.get(name, 0.0) and not name.split(",")[0].endswith("_created")
    }
    assert unexpected == {}


async def test_a_request_leaves_its_numbers() -> None:
    async with running(build_workshop(config=EngineConfig(prefix_cache=False))) as workshop:
        await workshop.engine.infer(ask(max_tokens=4))
        await workshop.engine.infer(ask(max_tokens=2))
        samples = _samples(workshop)
    assert samples["requests_total"] == 2
    assert samples["requests_finished_total,length"] == 2
    assert samples["prompt_tokens_total"] == samples["prefill_tokens_total"] == 10
    assert samples["tokens_generated_total"] == 6
    assert samples["iterations_total"] == samples["step_duration_seconds_count"] == 6
    assert samples["ttft_seconds_count"] == samples["request_duration_seconds_count"] == 2
    assert samples["itl_seconds_count"] == 4
    assert (
        samples["num_requests_running"] == samples["num_requests_waiting"] == samples["kv_blocks_used"] == 0
    )


async def test_gauges_show_what_runs_and_waits() -> None:
    seen: list[dict[str, float]] = []
    executor = ScriptedExecutor()
    workshop = build_workshop(executor, scheduler=SchedulerConfig(max_running_requests=1))
    async with running(workshop):
        executor.before_step = lambda plan: seen.append(_samples(workshop))
        await asyncio.gather(*(workshop.engine.infer(ask(name)) for name in "abc"))
    assert max(sample["num_requests_running"] for sample in seen) == 1
    assert max(sample["num_requests_waiting"] for sample in seen) == 2
    assert max(sample["kv_blocks_used"] for sample in seen) > 0


async def test_refusals_are_counted_by_kind() -> None:
    async with running(build_workshop()) as workshop:
        with pytest.raises(InvalidRequest):
            await workshop.engine.infer(ask(prompt=""))
        samples = _samples(workshop)
    assert samples["requests_rejected_total,InvalidRequest"] == samples["requests_total"] == 1


async def test_preemptions_are_counted_and_change_no_answer() -> None:
    requests = [ask(name, prompt=name * 4, max_tokens=None) for name in "abcdef"]
    capacity = ExecutorCapacity(num_blocks=8, block_tokens=4, context_length=28, vocabulary_size=258)
    alone = []
    for request in requests:
        async with running(build_workshop(ScriptedExecutor(capacity=capacity))) as solo:
            alone.append(await solo.engine.infer(request))
    scheduler = SchedulerConfig(expected_output_tokens=4)
    slow = ScriptedExecutor(capacity=capacity, latency_s=0.001)  # All are there before one ends.
    async with running(build_workshop(slow, scheduler=scheduler)) as workshop:
        together = await asyncio.gather(*map(workshop.engine.infer, requests))
        samples = _samples(workshop)
    assert together == alone
    assert 1 <= samples["preemptions_total"] <= len(requests)
    # Whoever comes back computes its newest token along with what it had lost.
    prompt_tokens = samples["prompt_tokens_total"] + samples["preemptions_total"]
    assert samples["recomputed_tokens_total"] == samples["prefill_tokens_total"] - prompt_tokens > 0


@pytest.mark.parametrize("chunk", [1, 3, 4, 64])
async def test_every_prompt_token_that_was_not_cached_counts_as_prefill(chunk: int) -> None:
    scheduler = SchedulerConfig(max_num_batched_tokens=chunk, max_running_requests=1)
    workshop = build_workshop(scheduler=scheduler)
    async with running(workshop):
        # One token; a last chunk of one; all but one of them found in the cache.
        prompts = ["a", "abcdefghi", "abcdefghi", "abcdefghij", "z" * 13]
        results = [
            await workshop.engine.infer(ask(f"r{number}", prompt, max_tokens=3))
            for number, prompt in enumerate(prompts)
        ]
        samples = _samples(workshop)
    usages = [result.usage for result in results]
    assert usages[2].cached_tokens == 8
    expected = sum(usage.prompt_tokens - usage.cached_tokens for usage in usages)
    assert samples["prefill_tokens_total"] == expected
    # A step decodes every generated token but the last of each answer.
    assert samples["step_tokens_sum"] == expected + sum(usage.completion_tokens - 1 for usage in usages)
