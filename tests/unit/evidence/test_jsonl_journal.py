from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ferrum.core.errors import InvalidConfig
from ferrum.evidence.jsonl_journal import JournalEntry, JsonlJournal


def _entry(*lines: dict[str, Any]) -> JournalEntry:
    return lambda: lines


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_appended_in_order_and_are_there_when_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"n": -1}\n')
    journal = JsonlJournal(str(path), "x").share()
    for number in range(1000):
        journal.put(_entry({"n": number}))
    journal.close()
    assert [line["n"] for line in _read(path)] == list(range(-1, 1000))


def test_a_shared_journal_is_closed_by_its_last_user(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JsonlJournal(str(path), "x")
    first, second = journal.share(), journal.share()
    first.put(_entry({"n": 1}))
    first.close()
    second.put(_entry({"n": 2}))
    second.close()
    assert _read(path) == [{"n": 1}, {"n": 2}]


def test_half_a_line_of_a_killed_process_spoils_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2')
    journal = JsonlJournal(str(path), "x").share()
    journal.put(_entry({"n": 3}))
    journal.close()
    assert path.read_bytes() == b'{"n": 1}\n{"n": 2\n{"n":3}\n'


def test_a_journal_that_grows_for_ever_keeps_its_end_in_two_files(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"n": -1}\n')
    for start in range(0, 300, 3):  # Three entries share a write.
        journal = JsonlJournal(str(path), "x", most_bytes=200).share()
        for number in range(start, start + 3):
            journal.put(_entry({"n": number}))
        journal.close()
    older = path.with_name("journal.jsonl.1")
    kept = [line["n"] for line in (*_read(older), *_read(path))]
    assert kept == list(range(kept[0], 300))
    assert 100 < older.stat().st_size <= 200
    assert path.stat().st_size <= 200
    assert older.stat().st_mode & 0o077 == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_one_write_that_is_larger_than_a_file_may_be_is_cut_between_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JsonlJournal(str(path), "x", most_bytes=200).share()
    journal.put(lambda: [{"n": number} for number in range(100)])
    journal.close()
    older = path.with_name("journal.jsonl.1")
    kept = [line["n"] for line in (*_read(older), *_read(path))]
    assert kept == list(range(kept[0], 100))
    assert 190 < older.stat().st_size <= 200
    assert path.stat().st_size <= 200
    # A line cannot be cut.
    journal = JsonlJournal(str(path), "x", most_bytes=200).share()
    journal.put(lambda: [{"n": "a" * 300}, {"n": 1}])
    journal.close()
    assert [line["n"] for line in (*_read(older), *_read(path))] == ["a" * 300, 1]


def test_what_is_no_file_is_never_put_aside(tmp_path: Path) -> None:
    """By a link, so that a broken journal would put the link aside and not the device itself."""
    path = tmp_path / "journal.jsonl"
    path.symlink_to(os.devnull)
    for number in range(3):
        journal = JsonlJournal(str(path), "x", most_bytes=1).share()
        journal.put(_entry({"n": number}))
        journal.close()
        assert journal.problem is None
    assert [each.name for each in tmp_path.iterdir()] == ["journal.jsonl"]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    JsonlJournal(str(path), "x").share().close()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["folder", "no such folder", "pipe"])
def test_a_path_that_cannot_be_written_is_refused_by_name_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "journal.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path = path / "deeper.jsonl"
    with pytest.raises(InvalidConfig, match=str(path)) as caught:
        JsonlJournal(str(path), "evidence.profile_jsonl")
    assert caught.value.field == "evidence.profile_jsonl"


def test_an_entry_that_is_no_json_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = JsonlJournal(str(path), "x").share()
    with caplog.at_level(logging.WARNING):
        journal.put(_entry({"n": 1}))
        journal.put(_entry({"n": object()}))
        journal.put(_entry({"n": 3}))
        journal.close()
    assert [line["n"] for line in _read(path)] == [1, 3]
    assert "left out" in caplog.text


def test_a_full_disk_ends_the_journal_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """/dev/full answers every write with "no space left" (full(4))."""
    with caplog.at_level(logging.WARNING):
        journal = JsonlJournal("/dev/full", "x").share()
        for number in range(3):
            journal.put(_entry({"n": number}))
        while journal.problem is None:
            time.sleep(0.005)
        journal.put(_entry({"n": 4}))
        journal.close()
    assert journal.num_lost == 4
    assert [record.message.count("No space left") for record in caplog.records] == [1, 0]


def test_a_gap_is_a_line_of_its_own(tmp_path: Path) -> None:
    path, is_free = tmp_path / "journal.jsonl", threading.Event()
    journal = JsonlJournal(str(path), "x", capacity=2).share()

    def slow() -> tuple[dict[str, Any]]:
        assert is_free.wait(5)
        return ({"n": 0},)

    journal.put(slow)
    time.sleep(0.15)
    for number in range(1, 6):
        journal.put(_entry({"n": number}))
    is_free.set()
    journal.close()
    assert _read(path) == [{"n": 0}, {"n": 1}, {"n": 2}, {"phase": "journal.dropped", "num_dropped": 3}]
