"""The engine's thread must not wait for Python's usual 5 ms until it gets the interpreter back."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from engine_factory import ask, build_workshop, running


@pytest.fixture(autouse=True)
def switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def test_an_engine_that_works_shortens_the_turns_of_python_threads() -> None:
    sys.setswitchinterval(0.005)
    async with running(build_workshop()) as workshop:
        assert sys.getswitchinterval() == 0.005, "an engine that does nothing changes nothing"
        await workshop.engine.infer(ask("a"))
        assert sys.getswitchinterval() <= 0.001


async def test_shorter_turns_than_the_engine_needs_are_kept() -> None:
    sys.setswitchinterval(0.0001)
    shorter = sys.getswitchinterval()
    async with running(build_workshop()) as workshop:
        await workshop.engine.infer(ask("a"))
    assert sys.getswitchinterval() == shorter
