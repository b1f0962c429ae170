from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import pytest

from ferrum.evidence.background_writer import BackgroundWriter, Lost


class _Disk:
    """Takes what is written; may be held back, or broken."""

    def __init__(self) -> None:
        self.written: list[int | Lost] = []
        self.num_writes = 0
        self.is_free = threading.Event()
        self.is_free.set()
        self.is_asked = threading.Event()
        self.problem: OSError | None = None

    def write(self, entries: Sequence[int | Lost]) -> None:
        self.is_asked.set()
        assert self.is_free.wait(5)
        self.num_writes += 1
        if self.problem is not None:
            raise self.problem
        self.written += entries


def test_entries_of_many_threads_are_written_each_thread_in_order() -> None:
    disk = _Disk()
    writer = BackgroundWriter("test", disk.write, capacity=10_000)

    def put(base: int) -> None:
        for number in range(500):
            writer.put(base + number)

    threads = [threading.Thread(target=put, args=(base,)) for base in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close()
    for base in (0, 1000, 2000):
        own = [entry for entry in disk.written if isinstance(entry, int) and base <= entry < base + 1000]
        assert own == list(range(base, base + 500))
    assert writer.num_lost == 0
    assert disk.num_writes < 500, "many entries share a write"


def test_a_full_queue_never_waits_and_the_gap_is_told_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    disk = _Disk()
    disk.is_free.clear()
    writer = BackgroundWriter("test", disk.write, capacity=3)
    writer.put(0)
    assert disk.is_asked.wait(5)
    started = time.monotonic()
    for number in range(1, 7):
        writer.put(number)
    assert time.monotonic() - started < 1
    disk.is_free.set()
    while len(disk.written) < 4:
        time.sleep(0.005)
    writer.put(7)
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert disk.written == [0, 1, 2, 3, Lost(3), 7]
    assert writer.num_lost == 3
    assert "test: 3 entries were dropped" in caplog.text


def test_what_is_lost_last_is_told_too() -> None:
    disk = _Disk()
    disk.is_free.clear()
    writer = BackgroundWriter("test", disk.write, capacity=1)
    writer.put(0)
    assert disk.is_asked.wait(5)
    writer.put(1)
    writer.put(2)
    disk.is_free.set()
    writer.close()
    assert disk.written == [0, 1, Lost(1)]


def test_a_broken_disk_is_told_once_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    disk = _Disk()
    disk.problem = OSError(28, "No space left on device")
    writer = BackgroundWriter("test", disk.write)
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            writer.put(number)
            while writer.problem is None:
                time.sleep(0.005)
        writer.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "No space left" in caplog.text
    assert (writer.num_lost, disk.num_writes) == (3, 1)


def test_nothing_is_taken_after_the_close() -> None:
    disk = _Disk()
    writer = BackgroundWriter("test", disk.write)
    writer.put(1)
    writer.close()
    writer.put(2)
    assert writer.close()
    assert disk.written == [1]
    assert writer.num_lost == 1


def test_a_disk_that_hangs_does_not_hang_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ferrum.evidence.background_writer.CLOSE_LIMIT_S", 0.05)
    disk = _Disk()
    disk.is_free.clear()
    writer = BackgroundWriter("test", disk.write)
    writer.put(1)
    with caplog.at_level(logging.ERROR):
        assert not writer.close()
    assert "its end is missing" in caplog.text
    disk.is_free.set()
