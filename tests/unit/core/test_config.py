from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

import ferrum
from ferrum.core.config import EngineConfig, KvCacheConfig, SchedulerConfig, config_from_mapping
from ferrum.core.errors import InvalidConfig
from ferrum.core.evidence_config import EvidenceConfig, ProfileDetail
from ferrum.core.kv_dtype import KvDtype

SOURCE = Path(ferrum.__file__).parent


def _attributes_read() -> set[str]:
    """Every attribute name that production code outside the files of configurations reads."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        if path.name in ("config.py", "evidence_config.py") or "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
    return found


@pytest.mark.parametrize("kind", [EngineConfig, SchedulerConfig, KvCacheConfig, EvidenceConfig])
def test_every_field_has_a_reader(kind: type) -> None:
    unread = {field.name for field in fields(kind)} - _attributes_read()
    assert not unread, f"{kind.__name__} fields that nobody reads: {sorted(unread)}"


@pytest.mark.parametrize("kind", [EngineConfig, SchedulerConfig, KvCacheConfig, EvidenceConfig])
def test_every_field_is_documented(kind: type) -> None:
    undocumented = [field.name for field in fields(kind) if field.name not in (kind.__doc__ or "")]
    assert not undocumented


def test_unknown_keys_are_refused_and_the_known_ones_listed() -> None:
    with pytest.raises(InvalidConfig, match="max_runing_requests: no such setting") as caught:
        config_from_mapping(EngineConfig, {"scheduler": {"max_runing_requests": 3}})
    assert caught.value.field == "scheduler.max_runing_requests"
    assert "max_running_requests" in caught.value.problem


def test_nested_tables_become_nested_configs() -> None:
    values = {"scheduler": {"max_running_requests": 3}, "max_model_len": 99}
    config = config_from_mapping(EngineConfig, values)
    assert config.scheduler == SchedulerConfig(max_running_requests=3)
    assert config.max_model_len == 99


def test_the_type_of_the_cache_is_given_by_name() -> None:
    assert config_from_mapping(EngineConfig, {"kv_dtype": "int8"}).kv_dtype is KvDtype.INT8


def test_a_table_that_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="scheduler: must be a table of settings, not 7"):
        config_from_mapping(EngineConfig, {"scheduler": 7})


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("max_model_len", 0, "at least 1"),
        ("max_model_len", True, "integer"),
        ("kv_dtype", "int4", "must be f16 or int8, not 'int4'"),
        ("kv_dtype", 8, "must be f16 or int8"),
        ("memory_bytes", -5, "at least 1"),
        ("memory_utilization", 0, "above 0"),
        ("memory_utilization", 1.5, "between 0 and 1"),
        ("memory_utilization", float("nan"), "number"),
        ("stream_buffer_chunks", 0, "at least 1"),
        ("tokenizer_threads", "two", "integer"),
        ("shutdown_drain_s", -1, "between 0"),
        ("stall_after_s", 0, "between 1"),
        ("logit_digests", 1, "true or false"),
    ],
)
def test_a_wrong_engine_value_is_named(field: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem) as caught:
        config_from_mapping(EngineConfig, {field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("field", [field.name for field in fields(SchedulerConfig)])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_a_wrong_scheduler_value_is_named(field: str, value: object) -> None:
    if field in ("prefix_rendezvous_max_wait_ms", "prefill_first_until_active") and value == 0:
        return  # Turns it off.
    if field in ("max_step_s", "max_decode_stretch") and value == 1.5:
        return  # These are no counts.
    if (field, value) == ("fair_tenants", True):
        return
    with pytest.raises(InvalidConfig) as caught:
        config_from_mapping(SchedulerConfig, {field: value})
    assert caught.value.field == f"scheduler.{field}"


def test_a_step_must_have_room_for_one_token_of_each_running_request() -> None:
    with pytest.raises(InvalidConfig, match="below max_running_requests") as caught:
        SchedulerConfig(max_running_requests=20, max_num_batched_tokens=19)
    assert caught.value.field == "scheduler.max_num_batched_tokens"


def test_configs_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        EngineConfig().max_model_len = 5


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("profile_jsonl", "", "must be a path"),
        ("scheduler_trace_jsonl", 5, "must be a path"),
        ("bundle_dir", "a\0b", "must be a path"),
        ("profile_detail", "all", "must be standard or diagnostic, not 'all'"),
        ("bundle_occasion", "never", "must be failed or all"),
        ("bundle_token_ids", True, "must be kept or hashed"),
        ("bundle_limit", 0, "at least 1"),
        ("entrypoint", "web", "must be run or serve"),
    ],
)
def test_a_wrong_evidence_value_is_named(field: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem) as caught:
        config_from_mapping(EngineConfig, {"evidence": {field: value}})
    assert caught.value.field == f"evidence.{field}"


def test_choices_of_evidence_are_given_by_name() -> None:
    config = config_from_mapping(EngineConfig, {"evidence": {"profile_detail": "diagnostic"}})
    assert config.evidence.profile_detail is ProfileDetail.DIAGNOSTIC
    assert EngineConfig().evidence.is_empty
