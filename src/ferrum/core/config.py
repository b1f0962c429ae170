"""Configuration of the engine: frozen values, checked when built. Knows no files, flags or environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from ferrum.core.errors import InvalidConfig
from ferrum.core.evidence_config import EvidenceConfig
from ferrum.core.kv_dtype import KvDtype
from ferrum.core.scheduling_policy import SchedulingPolicy
from ferrum.core.speculation_config import SpeculationConfig
from ferrum.core.token_policy_level import TokenPolicyLevel

_Config = TypeVar("_Config")

# Least and greatest value of the scheduler's settings that are no counts.
_REAL_LIMITS = MappingProxyType({"max_step_s": (0.001, 3600.0), "max_decode_stretch": (1.0, 1000.0)})
_NO_NUMBERS = ("policy", "fair_tenants")
_MAY_BE_ZERO = ("prefix_rendezvous_max_wait_ms", "prefill_first_until_active")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Who runs, who waits and how much one step may do.

    max_running_requests        most requests that share a step
    max_waiting_requests        most requests that wait beside the running ones; more are refused (QueueFull)
    max_waiting_tokens          most prompt tokens of all waiting requests together; a single one may wait
    max_num_batched_tokens      most tokens one step computes, decodes included
    prefill_first_until_active  while fewer requests run, steps compute prompts alone, if there are any, for
                                at most 16 steps in a row: batches fill sooner, and gaps between tokens are
                                not bounded meanwhile; 0 = decodes are in every step
    prefill_step_chunk          most prompt tokens of one request in one step
    active_decode_prefill_chunk most prompt tokens of all requests in a step that also decodes
    max_step_s                  seconds that a step may take for the sake of prompts, as predicted
    max_decode_stretch          how many times as long as without prompts a step that also decodes may take,
                                as predicted: it bounds what prompts do to the gap between others' tokens,
                                as it was before they came
    max_scored_tokens           most prompt tokens whose log-probabilities one step finds; each takes room for
                                a row of logits, as long as the vocabulary
    min_prefill_tokens          prompt tokens of the oldest request that a step computes whatever they cost,
                                so that prompts always go on
    expected_output_tokens      KV room promised on admission to a request that names no max_tokens; if it
                                writes more, the youngest request may have to be preempted
    prefix_rendezvous_max_wait_ms
                                how long a request waits for another that is computing their common prefix
                                and makes no progress; 0 = never waits
    policy                      fcfs: let in as they came; priority: by the requests' own numbers first
    fair_tenants                of those who wait, the tenant who had the fewest tokens so far comes first
    """

    max_running_requests: int = 16
    max_waiting_requests: int = 512
    max_waiting_tokens: int = 262_144
    max_num_batched_tokens: int = 512
    prefill_first_until_active: int = 0
    prefill_step_chunk: int = 512
    active_decode_prefill_chunk: int = 256
    max_step_s: float = 0.25
    max_decode_stretch: float = 4.0
    max_scored_tokens: int = 32
    min_prefill_tokens: int = 4
    expected_output_tokens: int = 256
    prefix_rendezvous_max_wait_ms: int = 10_000
    policy: SchedulingPolicy = SchedulingPolicy.FCFS
    fair_tenants: bool = False

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name not in (*_REAL_LIMITS, *_NO_NUMBERS):
                lowest = 0 if each.name in _MAY_BE_ZERO else 1
                _require_count(f"scheduler.{each.name}", getattr(self, each.name), lowest)
        for name, (lowest_value, highest_value) in _REAL_LIMITS.items():
            _require_number(f"scheduler.{name}", getattr(self, name), lowest_value, highest_value)
        _require_choice("scheduler.policy", self.policy, SchedulingPolicy)
        _require_truth("scheduler.fair_tenants", self.fair_tenants)
        if self.max_num_batched_tokens < self.max_running_requests:
            raise InvalidConfig(
                "scheduler.max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is below max_running_requests ({self.max_running_requests}): "
                "every running request needs one token a step; raise it or run fewer requests",
            )


@dataclass(frozen=True, slots=True)
class KvCacheConfig:
    """The KV cache of an engine-managed executor; a plan-runtime executor brings its own.

    num_blocks  blocks in the pool; None = as many as the executor holds
    """

    num_blocks: int | None = None

    def __post_init__(self) -> None:
        _require_optional_count("kv_cache.num_blocks", self.num_blocks)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything the engine itself needs to know.

    max_model_len          most tokens of prompt and output together; None = what the model and memory allow
    kv_dtype               how keys and values are kept: f16, or int8 in half the memory
    memory_bytes           memory the model may use in all; None = a share of what is available
    memory_utilization     that share, above 0 and at most 1
    stream_buffer_chunks   chunks a stream holds for a slow reader before texts are joined
    tokenizer_threads      threads that turn prompts into tokens
    shutdown_drain_s       seconds that running requests get to end when the engine shuts down
    stall_after_s          seconds without a step, although there is work, after which the engine is stuck:
                           it says so, tells whoever waits, and refuses requests until there is a step
    logit_digests          report a digest of the logits' bits with every token (debugging; costs time)
    prefix_cache           keep computed blocks and share them between requests that begin alike
    token_policy           which tokens are kept out of answers: vocabulary, ids that stand for nothing;
                           strict, also unknown, padding, unused and unnamed control tokens and broken text,
                           which can change answers; off, none
    recurrent_state_max_slots
                           most sequences with a recurrent state at once, for an engine-managed executor of
                           such a model; None = as many as run
    speculation            whether tokens are drafted, and how; see SpeculationConfig
    scheduler, kv_cache    see SchedulerConfig and KvCacheConfig
    evidence               what is written down of what the engine does; see EvidenceConfig
    """

    max_model_len: int | None = None
    kv_dtype: KvDtype = KvDtype.F16
    memory_bytes: int | None = None
    memory_utilization: float = 0.9
    stream_buffer_chunks: int = 100
    tokenizer_threads: int = 1
    shutdown_drain_s: float = 30.0
    stall_after_s: float = 120.0
    logit_digests: bool = False
    prefix_cache: bool = True
    token_policy: TokenPolicyLevel = TokenPolicyLevel.VOCABULARY
    recurrent_state_max_slots: int | None = None
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    kv_cache: KvCacheConfig = field(default_factory=KvCacheConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)

    def __post_init__(self) -> None:
        _require_optional_count("max_model_len", self.max_model_len)
        _require_choice("kv_dtype", self.kv_dtype, KvDtype)
        _require_choice("token_policy", self.token_policy, TokenPolicyLevel)
        _require_optional_count("memory_bytes", self.memory_bytes)
        _require_number("memory_utilization", self.memory_utilization, 0.0, 1.0)
        if self.memory_utilization == 0:
            raise InvalidConfig("memory_utilization", "must be above 0 and at most 1, not 0")
        _require_count("stream_buffer_chunks", self.stream_buffer_chunks)
        _require_count("tokenizer_threads", self.tokenizer_threads)
        _require_optional_count("recurrent_state_max_slots", self.recurrent_state_max_slots)
        _require_number("shutdown_drain_s", self.shutdown_drain_s, 0.0, 86_400.0)
        _require_number("stall_after_s", self.stall_after_s, 1.0, 86_400.0)
        for name in ("logit_digests", "prefix_cache"):
            _require_truth(name, getattr(self, name))


def config_from_mapping(kind: type[_Config], values: Mapping[str, Any]) -> _Config:
    """Builds a config (nested ones too) from plain values, as a file gives them.

    Raises InvalidConfig for a key that ``kind`` does not have, or a value it does not take.
    """
    return _from_mapping(kind, values, prefix="")


def _from_mapping(kind: type[_Config], values: Mapping[str, Any], prefix: str) -> _Config:
    hints = get_type_hints(kind)
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in hints:
            raise InvalidConfig(name, f"no such setting; there are: {', '.join(sorted(hints))}")
        if is_dataclass(hints[key]) and not isinstance(value, hints[key]):
            if not isinstance(value, Mapping):
                raise InvalidConfig(name, f"must be a table of settings, not {value!r}")
            value = _from_mapping(hints[key], value, prefix=f"{name}.")
        if isinstance(hints[key], type) and issubclass(hints[key], StrEnum) and value in list(hints[key]):
            value = hints[key](value)
        arguments[key] = value
    return kind(**arguments)


def _require_count(name: str, value: object, lowest: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(name, f"must be an integer, not {value!r}")
    if value < lowest:
        raise InvalidConfig(name, f"must be at least {lowest}, not {value}")


def _require_choice(name: str, value: object, kind: type[StrEnum]) -> None:
    if not isinstance(value, kind):
        raise InvalidConfig(name, f"must be {' or '.join(kind)}, not {value!r}")


def _require_truth(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidConfig(name, f"must be true or false, not {value!r}")


def _require_optional_count(name: str, value: object) -> None:
    if value is not None:
        _require_count(name, value)


def _require_number(name: str, value: object, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidConfig(name, f"must be a number, not {value!r}")
    if not lowest <= value <= highest:
        raise InvalidConfig(name, f"must be between {lowest:g} and {highest:g}, not {value:g}")
