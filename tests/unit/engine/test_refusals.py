"""A request that is refused at any stage holds nothing, and the one after it is served."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_factory import ask, build_workshop, running

from ferrum.core.config import SchedulerConfig
from ferrum.core.errors import ContextLengthExceeded, InvalidRequest, ResourceExhausted
from ferrum.core.events import RequestFinished, RequestQueued, RequestRejected
from ferrum.core.request import FinishReason, InferenceRequest

REFUSED = {
    "its prompt and budget": (ask(max_tokens=1000), ContextLengthExceeded),
    "its prompt": (ask(prompt=""), InvalidRequest),
    "its turn": (replace(ask(), priority=3), InvalidRequest),
}


@pytest.mark.parametrize("stage", REFUSED)
async def test_a_refused_request_holds_nothing(stage: str) -> None:
    request, error = REFUSED[stage]
    scheduler = SchedulerConfig(max_running_requests=1, max_waiting_requests=1)
    async with running(build_workshop(scheduler=scheduler)) as workshop:
        for _ in range(3):  # More than there are places.
            with pytest.raises(error):
                await workshop.engine.infer(request)
            assert workshop.ledger.outstanding() == {}
            assert workshop.ledger.num_open_owners == 0
        assert workshop.executor.num_steps == 0
        assert (await workshop.engine.infer(ask())).finish_reason is FinishReason.LENGTH
    assert len(workshop.recorder.of(RequestRejected)) == 3
    assert len(workshop.recorder.of(RequestQueued)) == len(workshop.recorder.of(RequestFinished)) == 1


async def test_a_priority_can_be_changed_only_where_somebody_looks_at_it() -> None:
    async with running(build_workshop()) as workshop:
        assert workshop.engine.update_priority("unknown", 3) is False


async def test_a_request_that_the_scheduler_refuses_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(build_workshop()) as workshop:

        def refuse(request: InferenceRequest, retry_after_s: float = 1.0) -> None:
            raise ResourceExhausted("KV blocks", 9, 1)

        with monkeypatch.context() as patched:
            patched.setattr(workshop.engine._scheduler, "submit", refuse)
            with pytest.raises(ResourceExhausted):
                await workshop.engine.infer(ask())
        assert workshop.ledger.outstanding() == {}
        assert await workshop.engine.infer(ask())


@pytest.mark.parametrize(
    ("prompt_tokens", "usual", "min_tokens", "expected"),
    [(200, 16, 0, 16), (250, 16, 0, 6), (255, 16, 0, 1), (100, 16, 20, 20), (250, None, 0, 6)],
)
async def test_a_budget_nobody_named_gives_way_to_the_context_and_a_named_one_never(
    prompt_tokens: int, usual: int | None, min_tokens: int, expected: int
) -> None:
    async with running(build_workshop()) as workshop:
        capacity = workshop.engine.context_length
        assert capacity == 256
        named = ask(prompt="x" * prompt_tokens, max_tokens=expected)
        unnamed = replace(
            named,
            sampling=replace(named.sampling, max_tokens=None, min_tokens=min_tokens),
            usual_max_tokens=usual,
        )
        result = await workshop.engine.infer(unnamed)
        assert result.usage.completion_tokens == expected
        if prompt_tokens + expected == capacity:
            assert (await workshop.engine.infer(named)).usage.completion_tokens == expected
            too_long = replace(named, sampling=replace(named.sampling, max_tokens=expected + 1))
            with pytest.raises(ContextLengthExceeded):
                await workshop.engine.infer(too_long)
