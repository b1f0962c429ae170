"""An answer that is looked at again holds up nobody, holds nothing, and ends whatever becomes of the look."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from engine_factory import Workshop, ask, build_workshop, eventually, running

from ferrum.core.config import EngineConfig
from ferrum.core.constraint import Constraint
from ferrum.core.errors import BrokenConstraint, InternalError, InvalidConstraint
from ferrum.core.request import FinishReason, InferenceResult
from ferrum.testing.scripted_executor import ScriptedExecutor

CONSTRAINED = Constraint.regex("[xyz]{3}")


@dataclass
class SlowLook:
    """Stands in the reader's place for looking: says ``found`` when it may."""

    may_end: threading.Event
    found: str | Exception | None = None
    num_begun: int = 0

    def problem(self, constraint: Constraint, text: str) -> str | None:
        self.num_begun += 1
        assert self.may_end.wait(10)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


@asynccontextmanager
async def slowly_looking(
    monkeypatch: pytest.MonkeyPatch, found: str | Exception | None = None, config: EngineConfig | None = None
) -> AsyncIterator[tuple[Workshop, SlowLook]]:
    look = SlowLook(threading.Event(), found)
    executor = ScriptedExecutor(choose=lambda *_: ord("y"))
    async with running(build_workshop(executor, config=config)) as workshop:
        monkeypatch.setattr(workshop.engine._constraints._compiler()._reader, "problem", look.problem)
        try:
            yield workshop, look
        finally:
            look.may_end.set()


async def begun(workshop: Workshop, look: SlowLook, request_id: str = "a") -> asyncio.Task[InferenceResult]:
    task = asyncio.ensure_future(workshop.engine.infer(ask(request_id, constraint=CONSTRAINED)))
    await eventually(lambda: look.num_begun == 1, 5.0)
    return task


async def test_others_are_answered_while_an_answer_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch) as (workshop, look):
        slow = await begun(workshop, look)
        await eventually(lambda: workshop.cache.num_used_blocks == 0)
        for name in "bc":
            assert (await asyncio.wait_for(workshop.engine.infer(ask(name)), 5)).usage.completion_tokens == 8
        assert not slow.done()
        look.may_end.set()
        result = await asyncio.wait_for(slow, 5)
        assert (result.text, result.finish_reason) == ("yyy", FinishReason.EOS)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        ("it is wrong", BrokenConstraint),
        (InternalError("no process"), InternalError),
        (OSError(), InternalError),
    ],
)
async def test_what_a_look_finds_is_the_error_of_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, found: str | Exception, error: type[Exception]
) -> None:
    async with slowly_looking(monkeypatch, found) as (workshop, look):
        slow = await begun(workshop, look)
        other = asyncio.ensure_future(workshop.engine.infer(ask("b")))
        look.may_end.set()
        with pytest.raises(error):
            await asyncio.wait_for(slow, 5)
        assert (await asyncio.wait_for(other, 5)).usage.completion_tokens == 8


async def test_the_end_of_a_stream_comes_after_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch) as (workshop, look):
        chunks = []
        async with await workshop.engine.open_stream(ask("s", constraint=CONSTRAINED)) as stream:
            async for chunk in stream:
                chunks.append(chunk)
                assert chunk.result is None or look.may_end.is_set()
                if "".join(each.text for each in chunks) == "yy":
                    await eventually(lambda: look.num_begun == 1, 5.0)
                    look.may_end.set()
        assert "".join(each.text for each in chunks) == "yyy"


async def test_a_caller_who_leaves_during_the_look_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch) as (workshop, look):
        slow = await begun(workshop, look)
        slow.cancel()
        await eventually(lambda: workshop.ledger.num_open_owners == 0)
        look.may_end.set()
        # Its id is free again, and the late look is nobody's.
        assert (await asyncio.wait_for(workshop.engine.infer(ask("a")), 5)).text == "y" * 8


async def test_a_cancelled_answer_is_handed_out_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch) as (workshop, look):
        slow = await begun(workshop, look)
        assert workshop.engine.cancel("a")
        result = await asyncio.wait_for(slow, 5)
        assert (result.text, result.finish_reason) == ("yyy", FinishReason.CANCELLED)


async def test_closing_waits_for_a_look_as_long_as_for_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch) as (workshop, look):
        slow = await begun(workshop, look)
        closing = asyncio.ensure_future(workshop.engine.shutdown(10.0))
        await asyncio.sleep(0.05)
        assert not closing.done()
        look.may_end.set()
        assert (await asyncio.wait_for(slow, 5)).finish_reason is FinishReason.EOS
        await asyncio.wait_for(closing, 5)


async def test_a_look_is_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slowly_looking(monkeypatch, config=EngineConfig(stall_after_s=1.0)) as (workshop, look):
        slow = await begun(workshop, look)
        await asyncio.sleep(1.3)
        assert workshop.engine.death_reason is None
        look.may_end.set()
        assert (await asyncio.wait_for(slow, 5)).text == "yyy"


async def test_a_refusal_is_told_to_its_caller_and_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio complains of errors that nobody looked at, whenever it collects them."""
    async with running(build_workshop()) as workshop:
        with caplog.at_level(logging.ERROR, logger="asyncio"):
            for number in range(3):
                with pytest.raises(InvalidConstraint):
                    await workshop.engine.infer(ask("r", constraint=Constraint.regex(f"({number}")))
                await asyncio.sleep(0)
        assert not caplog.records
