from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ferrum.engine.delivery import End, LoopMailbox, PostOffice, TaskOutlet
from ferrum.engine.delta import Delta
from ferrum.engine.result_stream import Doorbell, StreamChannel


class CountedLoop:
    """Stands before a running loop and counts how often another thread would have woken it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.num_wakes = 0

    def call_soon_threadsafe(self, callback: Callable[[], Any]) -> None:
        self.num_wakes += 1
        self._loop.call_soon_threadsafe(callback)


def _lost(outlet: object) -> None:
    raise AssertionError(f"the loop of {outlet} is not lost")


async def test_a_step_of_many_answers_wakes_their_loop_once() -> None:
    loop = CountedLoop()
    mailbox = LoopMailbox(loop, _lost)
    channels = [StreamChannel(mailbox, 4, Doorbell()) for _ in range(16)]
    office = PostOffice()
    for text in ("one", " two"):
        for channel in channels:
            office.post(channel, Delta(text), None)
    office.flush()
    assert loop.num_wakes == 1
    await asyncio.sleep(0)
    assert [list(channel.pieces) for channel in channels] == [[Delta("one two")]] * 16


async def test_a_loop_that_is_behind_is_not_woken_again_and_misses_nothing() -> None:
    loop = CountedLoop()
    mailbox = LoopMailbox(loop, _lost)
    channel = StreamChannel(mailbox, 4, Doorbell())
    office = PostOffice()
    for text in "abc":
        office.post(channel, Delta(text), None)
        office.flush()
    assert loop.num_wakes == 1
    await asyncio.sleep(0)
    office.post(channel, Delta("d"), None)
    office.flush()
    assert loop.num_wakes == 2
    await asyncio.sleep(0)
    assert "".join(piece.text for piece in channel.pieces) == "abcd"


async def test_a_step_without_output_wakes_nobody() -> None:
    loop = CountedLoop()
    LoopMailbox(loop, _lost)
    PostOffice().flush()
    assert loop.num_wakes == 0


async def test_only_streams_ask_for_text_as_it_comes() -> None:
    mailbox = LoopMailbox(asyncio.get_running_loop(), _lost)
    assert StreamChannel(mailbox, 1, Doorbell()).shows_text
    assert not TaskOutlet(asyncio.get_running_loop(), mailbox).shows_text


async def test_what_a_closed_loop_never_read_is_reported() -> None:
    lost: list[object] = []
    closed = asyncio.new_event_loop()
    closed.close()
    mailbox = LoopMailbox(closed, lost.append)
    end: End | None = None
    channel = StreamChannel(mailbox, 1, Doorbell())
    office = PostOffice()
    office.post(channel, Delta("text"), end)
    office.flush()
    assert lost == [channel]
