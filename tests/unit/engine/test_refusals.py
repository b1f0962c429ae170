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
