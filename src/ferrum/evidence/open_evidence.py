"""From a configuration to the observers that write its evidence, with their files open."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferrum.core.config import EngineConfig
from ferrum.core.events import DetailObserver
from ferrum.core.evidence_config import EvidenceConfig
from ferrum.evidence.backend_selection import BackendSelection
from ferrum.evidence.bundle_files import BundleContext
from ferrum.evidence.bundle_recorder import BundleRecorder
from ferrum.evidence.jsonl_journal import JsonlJournal
from ferrum.evidence.profile_event import ProfileContext
from ferrum.evidence.profile_recorder import ProfileRecorder
from ferrum.evidence.scheduler_trace import SchedulerTraceRecorder

PROFILE_SETTING = "evidence.profile_jsonl"
TRACE_SETTING = "evidence.scheduler_trace_jsonl"


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What evidence says of the engine it is about. ``capacities``: units there are of a resource."""

    config: EngineConfig
    backend: BackendSelection
    capacities: Mapping[str, int]


def open_evidence(facts: EngineFacts) -> list[DetailObserver]:
    """None of them when the configuration asks for nothing. Two paths of one file share one journal.

    Raises InvalidConfig for a path that cannot be written; nothing is left open then.
    """
    opened: list[DetailObserver] = []
    try:
        _open_all(facts, opened)
    except BaseException:
        for observer in opened:
            observer.close()
        raise
    return opened


def _open_all(facts: EngineFacts, opened: list[DetailObserver]) -> None:
    wanted = facts.config.evidence
    config = plain_config(facts.config)
    journal = None
    if wanted.profile_jsonl is not None:
        journal = _journal(wanted, wanted.profile_jsonl, PROFILE_SETTING)
        context = ProfileContext(
            wanted.entrypoint, facts.backend.numerics_id, _digest(config), facts.backend.model
        )
        opened.append(ProfileRecorder(journal, context, wanted.profile_detail, facts.capacities))
    if wanted.scheduler_trace_jsonl is not None:
        if journal is None or not _is_same_file(wanted):
            journal = _journal(wanted, wanted.scheduler_trace_jsonl, TRACE_SETTING)
        opened.append(SchedulerTraceRecorder(journal))
    if wanted.bundle_dir is not None:
        bundle_context = BundleContext(wanted.entrypoint, wanted.bundle_token_ids, facts.backend, config)
        opened.append(
            BundleRecorder(wanted.bundle_dir, bundle_context, wanted.bundle_occasion, wanted.bundle_limit)
        )


def _journal(wanted: EvidenceConfig, path: str, setting: str) -> JsonlJournal:
    return JsonlJournal(path, setting, most_bytes=wanted.journal_limit_bytes)


def plain_config(config: EngineConfig) -> dict[str, Any]:
    """The configuration in effect as plain values, without where evidence is written."""
    values = asdict(config)
    del values["evidence"]
    return values


def _digest(config: Mapping[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _is_same_file(wanted: EvidenceConfig) -> bool:
    """Also by another name: the profile's file is open, so it exists."""
    profile, trace = wanted.profile_jsonl, wanted.scheduler_trace_jsonl
    assert profile is not None
    assert trace is not None
    return profile == trace or (os.path.exists(trace) and os.path.samefile(profile, trace))
