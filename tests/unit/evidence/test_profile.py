"""The profile of whole engines: what is in it, in which order, and that nothing is built without it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from recorded_engine import RecordedEngine, ask, read_lines

from ferrum.core.config import EngineConfig, SchedulerConfig
from ferrum.core.details import Detail
from ferrum.core.errors import FerrumError, InvalidConfig
from ferrum.core.events import FirstToken, RequestRejected, RequestSubmitted
from ferrum.core.evidence_config import Entrypoint, EvidenceConfig, ProfileDetail
from ferrum.core.ledger import LifecycleLedger
from ferrum.core.ledger_entries import LedgerEntry
from ferrum.core.step import StepPlan
from ferrum.evidence.jsonl_journal import JsonlJournal
from ferrum.evidence.profile_event import ProfileContext
from ferrum.evidence.profile_recorder import ProfileRecorder
from ferrum.evidence.profile_schema import find_problem
from ferrum.evidence.scheduler_trace import SchedulerTraceRecorder
from ferrum.execution.executor import ExecutorCapacity
from ferrum.testing.scripted_executor import ScriptedExecutor

CONTEXT = ProfileContext(Entrypoint.SYNTHETIC, "scripted", "sha256:ab")


def _phases(lines: list[dict[str, Any]], request_id: str) -> list[str]:
    return [line["phase"] for line in lines if line.get("request_id") == request_id]


def _fails(plan: StepPlan) -> None:
    raise ValueError("a broken kernel")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.jsonl"


def test_the_life_of_a_request_is_told_in_order(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)))
    (result,) = recorded.answer(ask("a", max_tokens=3))
    lines = recorded.lines(path)
    assert [find_problem(line) for line in lines] == [None] * len(lines)
    assert _phases(lines, "a") == [
        "engine_request_open",
        "engine_request_slot_reserve",
        "engine_request_slot_commit",
        "execution.request_accepted",
        "execution.request_admitted",
        "engine_kv_block_reserve",
        "engine_kv_block_commit",
        "execution.first_token",
        "engine_kv_block_release",
        "engine_request_slot_release",
        "engine_request_close",
        "execution.request_finished",
    ]
    finished = next(line for line in lines if line["phase"] == "execution.request_finished")
    assert finished["shape"] == {"prompt_tokens": result.usage.prompt_tokens, "completion_tokens": 3}
    assert finished["attributes"]["finish_reason"] == "length"


def test_start_up_is_told_once_and_each_request_accepted_once(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)))
    recorded.answer(ask("a"), ask("b"))
    lines = recorded.lines(path)
    counts = Counter(line["phase"] for line in lines)
    assert {line["entrypoint"] for line in lines} == {"synthetic"}
    assert counts["execution.startup"] == 1
    assert counts["execution.request_accepted"] == 2
    assert counts["execution.request_finished"] == 2


def test_every_unit_that_is_taken_comes_back_in_the_books(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)))
    recorded.answer(*(ask(f"r{number}", max_tokens=20) for number in range(5)))
    balance: Counter[tuple[str, str]] = Counter()
    for line in recorded.lines(path):
        resource = line.get("resource", {})
        if resource.get("action") in ("reserve", "release", "rollback"):
            sign = 1 if resource["action"] == "reserve" else -1
            balance[resource["owner_id"], resource["kind"]] += sign * resource["amount"]
    assert len(balance) == 10
    assert set(balance.values()) == {0}


def test_capacities_and_the_scene_are_told(path: Path) -> None:
    scheduler = SchedulerConfig(max_running_requests=2, max_waiting_requests=3)
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)), scheduler=scheduler)
    recorded.answer(ask("a"))
    by_phase = {line["phase"]: line for line in recorded.lines(path)}
    blocks = recorded.executor.capacity.num_blocks
    assert by_phase["engine_kv_block_reserve"]["resource"]["capacity"] == blocks
    assert by_phase["engine_request_slot_reserve"]["resource"]["capacity"] == 5
    closed = by_phase["engine_request_close"]
    assert closed["resource"]["outstanding_count"] == 0
    assert closed["attributes"]["active_sequence_count"] == 1
    assert closed["attributes"]["scheduler_snapshot"]["num_blocks"] == blocks
    assert closed["attributes"]["monotonic_nanos"] > 0
    assert closed["attributes"]["resource_trace_source"] == "engine"


def test_a_refused_request_is_told_with_its_reason(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)))
    with pytest.raises(FerrumError):
        recorded.answer(ask("a", max_tokens=200), ask("a", max_tokens=9))
    lines = recorded.lines(path)
    rejected = next(line for line in lines if line["phase"] == "engine_request_reject")
    assert rejected["resource"]["reason"] == "DuplicateRequest"
    assert rejected["resource"]["capacity"] == SchedulerConfig().max_waiting_requests


def test_what_is_outstanding_at_close_is_a_failure_with_every_kind(path: Path) -> None:
    ledger, journal = LifecycleLedger(), JsonlJournal(str(path), "x")
    recorder = ProfileRecorder(journal, CONTEXT)
    ledger.watch(recorder.on_detail)
    ledger.reserve("a", "request_slot")
    ledger.reserve("a", "kv_block", 3)
    ledger.rollback("a", "kv_block", 1)
    ledger.close("a")
    recorder.close()
    closed = read_lines(path)[-1]
    assert find_problem(closed) is None
    assert (closed["phase"], closed["status"]) == ("engine_request_close", "failure")
    assert closed["error"]["kind"] == "resource_owner_close_outstanding"
    assert closed["error"]["message"] == "a closed and still holds 2 kv_block, 1 request_slot"
    assert closed["resource"]["error"] == "resource_leak"
    assert closed["resource"]["outstanding_kinds"] == ["kv_block", "request_slot"]
    assert closed["resource"]["outstanding_count"] == 3


def test_a_request_that_leaks_is_logged_counted_and_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def leak(plan: StepPlan) -> None:
        recorded.engine.resources.cache.ledger.reserve("a", "kv_block", 2)

    executor = ScriptedExecutor(before_step=leak)
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path)), executor)
    with caplog.at_level(logging.ERROR):
        recorded.answer(ask("a", max_tokens=1))
    assert "ferrum_engine_resource_leaks_total 1.0" in recorded.engine.metrics()
    closed = next(line for line in recorded.lines(path) if line["phase"] == "engine_request_close")
    assert (closed["status"], closed["resource"]["outstanding_count"]) == ("failure", 2)
    assert "resource leak: a ended and still holds {'kv_block': 2}" in caplog.text


def test_an_over_release_says_by_how_much(path: Path) -> None:
    ledger, recorder = LifecycleLedger(), ProfileRecorder(JsonlJournal(str(path), "x"), CONTEXT)
    ledger.watch(recorder.on_detail)
    ledger.reserve("a", "kv_block", 1)
    ledger.commit("a", "kv_block", 1)
    ledger.release("a", "kv_block", 3)
    recorder.close()
    assert read_lines(path)[-1]["resource"]["underflow_amount"] == 2


def test_a_lease_that_is_dropped_is_a_failure_of_its_own(path: Path) -> None:
    from ferrum.core.lease import Lease

    ledger, recorder = LifecycleLedger(), ProfileRecorder(JsonlJournal(str(path), "x"), CONTEXT)
    ledger.watch(recorder.on_detail)
    with pytest.warns(ResourceWarning):
        Lease(ledger, "a", "kv_block", 2)
    recorder.close()
    dropped = read_lines(path)[-1]
    assert find_problem(dropped) is None
    assert (dropped["phase"], dropped["status"]) == ("engine_lease_dropped", "failure")
    assert dropped["resource"]["amount"] == 2


def test_an_event_that_breaks_the_schema_is_left_out_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = ProfileRecorder(JsonlJournal(str(path), "x"), CONTEXT)
    with caplog.at_level(logging.WARNING):
        recorder.on(FirstToken(" ", 0.1))
        recorder.on(FirstToken("a", 0.1))
        recorder.close()
    assert [line["request_id"] for line in read_lines(path)] == ["a"]
    assert "left out (execution.first_token): request_id" in caplog.text


def test_tokens_are_shown_in_the_diagnostic_detail_only(tmp_path: Path) -> None:
    standard, diagnostic = tmp_path / "standard.jsonl", tmp_path / "diagnostic.jsonl"
    first = RecordedEngine(EvidenceConfig(profile_jsonl=str(standard)))
    first.answer(ask("a"))
    assert "token_trace" not in str(first.lines(standard))
    second = RecordedEngine(
        EvidenceConfig(profile_jsonl=str(diagnostic), profile_detail=ProfileDetail.DIAGNOSTIC)
    )
    (result,) = second.answer(ask("a"))
    evidence = [
        line for line in second.lines(diagnostic) if line["phase"] == "engine_sequence_terminal_evidence"
    ]
    assert len(evidence) == 1
    assert find_problem(evidence[0]) is None
    assert evidence[0]["status"] == "diagnostic_only"
    assert evidence[0]["attributes"]["termination"] == "completed"
    assert evidence[0]["attributes"]["token_trace"]["generated"]["prefix"] == list(result.token_ids)


def test_a_failed_step_and_its_requests_are_told(path: Path) -> None:
    recorded = RecordedEngine(
        EvidenceConfig(profile_jsonl=str(path)), executor=ScriptedExecutor(before_step=_fails)
    )
    with pytest.raises(FerrumError):
        recorded.answer(ask("a"))
    failures = [line for line in recorded.lines(path) if line["status"] == "failure"]
    assert [line["phase"] for line in failures] == ["execution.step_failed", "execution.request_finished"]
    assert failures[0]["error"]["message"] == "a broken kernel"


def test_two_names_of_one_file_share_a_journal(path: Path) -> None:
    other = path.parent / "link.jsonl"
    other.symlink_to(path)
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path), scheduler_trace_jsonl=str(other)))
    recorded.answer(ask("a", max_tokens=5))
    lines = recorded.lines(path)
    steps = [line for line in lines if line.get("type") == "scheduler_iteration"]
    events = [line for line in lines if line.get("phase") == "execution.iteration"]
    assert len(steps) == len(events) == 5
    # One journal, so a step's two lines come one after the other.
    assert all(lines[lines.index(step) - 1] in events for step in steps)


def test_a_profile_respects_the_journal_limit(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl=str(path), journal_limit_bytes=1))
    recorded.answer(ask("a", max_tokens=3))
    recorded.lines(path)
    again = RecordedEngine(EvidenceConfig(profile_jsonl=str(path), journal_limit_bytes=1))
    again.answer(ask("b", max_tokens=3))
    assert not any(line.get("request_id") == "a" for line in again.lines(path))
    assert path.with_name("profile.jsonl.1").exists()


def test_the_scheduler_trace_tells_plan_queues_and_totals(path: Path) -> None:
    recorded = RecordedEngine(EvidenceConfig(scheduler_trace_jsonl=str(path)))
    (result,) = recorded.answer(ask("a", max_tokens=3))
    steps = recorded.lines(path)
    assert [step["iteration"] for step in steps] == [1, 2, 3]
    assert steps[0]["plan"] == [
        {
            "request_id": "a",
            "start_position": 0,
            "num_tokens": result.usage.prompt_tokens,
            "num_blocks": steps[0]["plan"][0]["num_blocks"],
            "chooses": True,
        }
    ]
    assert [step["outcome"] for step in steps] == ["some_ok"] * 3
    assert steps[0]["snapshot"]["num_decoding"] == 1
    assert steps[0]["totals"]["admitted"] == 1
    assert steps[-1]["totals"]["completed"] == 1
    assert "token_ids" not in str(steps)


def test_iterations_without_a_plan_are_written_four_times_and_then_one_in_128(path: Path) -> None:
    from ferrum.core.details import IterationSkipped
    from ferrum.core.scheduler_snapshot import SchedulerSnapshot

    recorder = SchedulerTraceRecorder(JsonlJournal(str(path), "x"))
    for _ in range(300):
        recorder.on_detail(IterationSkipped(SchedulerSnapshot(0, 0, 0, 0, 1, 0)))
    recorder.close()
    assert [line["skipped_in_a_row"] for line in read_lines(path)] == [1, 2, 3, 4, 128, 256]


def test_nothing_is_built_and_nobody_watches_without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: object, detail: Detail) -> None:
        raise AssertionError(f"built {detail}")

    watched: list[LedgerEntry] = []
    monkeypatch.setattr("ferrum.core.events.Observers.on_detail", forbidden)
    monkeypatch.setattr("ferrum.core.ledger.LifecycleLedger.watch", lambda self, watch: watched.append(watch))
    recorded = RecordedEngine(EvidenceConfig())
    recorded.answer(ask("a"))
    recorded.engine.close(0.0)
    assert watched == []
    assert EngineConfig().evidence.is_empty


def test_a_path_that_cannot_be_written_stops_the_build_and_leaves_nothing_running(tmp_path: Path) -> None:
    executor = ScriptedExecutor()
    evidence = EvidenceConfig(
        profile_jsonl=str(tmp_path / "profile.jsonl"), scheduler_trace_jsonl=str(tmp_path / "no" / "trace")
    )
    with pytest.raises(InvalidConfig, match="No such file") as caught:
        RecordedEngine(evidence, executor)
    assert caught.value.field == "evidence.scheduler_trace_jsonl"
    assert executor.is_closed
    assert executor.num_prepared == 0
    assert not [thread for thread in threading.enumerate() if "profile.jsonl" in thread.name]


def test_a_full_disk_changes_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    """/dev/full answers every write with "no space left" (full(4))."""
    plain = RecordedEngine(EvidenceConfig())
    recorded = RecordedEngine(EvidenceConfig(profile_jsonl="/dev/full"))
    with caplog.at_level(logging.ERROR):
        for number in range(3):
            wanted = [result.token_ids for result in plain.answer(ask(f"r{number}", max_tokens=30))]
            assert [each.token_ids for each in recorded.answer(ask(f"r{number}", max_tokens=30))] == wanted
        recorded.engine.close(0.0)
        plain.engine.close(0.0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_preempted_request_is_deferred_for_want_of_blocks(path: Path) -> None:
    capacity = ExecutorCapacity(num_blocks=12, block_tokens=4, context_length=40, vocabulary_size=258)
    recorded = RecordedEngine(
        EvidenceConfig(profile_jsonl=str(path)),
        ScriptedExecutor(capacity=capacity, latency_s=0.001),  # Both are there before one ends.
        SchedulerConfig(max_running_requests=2, expected_output_tokens=1),
    )
    recorded.answer(*(ask(f"r{number}", prompt=f"{number} says", max_tokens=None) for number in range(2)))
    deferred = [line for line in recorded.lines(path) if line.get("resource", {}).get("action") == "defer"]
    assert deferred
    assert {line["resource"]["reason"] for line in deferred} == {"kv_pressure"}
    assert all(line["resource"]["amount"] >= 1 for line in deferred)


def test_events_of_requests_carry_the_door_and_the_configuration(path: Path) -> None:
    recorder = ProfileRecorder(JsonlJournal(str(path), "x"), CONTEXT)
    recorder.on(RequestSubmitted("a"))
    recorder.on(RequestRejected("a", "QueueFull"))
    recorder.close()
    assert {line["entrypoint"] for line in read_lines(path)} == {"synthetic"}
    assert {line["runtime_preset_hash"] for line in read_lines(path)} == {"sha256:ab"}
