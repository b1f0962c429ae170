"""The files of a replay bundle as values: what a record becomes when it is written down without its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ferrum.core.completion_boundary import boundary_to_mapping
from ferrum.core.evidence_config import BundleTokenIds, Entrypoint
from ferrum.core.request_record import RequestRecord
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_trace import hash_token_ids
from ferrum.evidence.backend_selection import BackendSelection
from ferrum.evidence.output_scan import scan_output
from ferrum.evidence.redaction import redact_prompt, redact_text, redacted_line

SCHEMA_VERSION = 1

REQUEST = "request.json"
PROMPT_IDS = "prompt_token_ids.json"
SAMPLING = "sampling_params.json"
CONFIG = "runtime_effective_config.json"
BACKEND = "backend_selection.json"
OUTPUT_IDS = "output_token_ids.json"
OUTPUT_TEXT = "output_text.txt"
OUTPUT_SCAN = "bad_output_scan.json"
COMMAND = "replay.command.json"
REPLAY_BODY = "replay_body.json"
DIAGNOSTICS = "failure_diagnostics.json"
# Of the whole engine, beside the bundles.
ENGINE_DIAGNOSTICS = "engine_failure_diagnostics.json"

REQUIRED = (
    REQUEST,
    PROMPT_IDS,
    SAMPLING,
    CONFIG,
    BACKEND,
    OUTPUT_IDS,
    OUTPUT_TEXT,
    OUTPUT_SCAN,
    COMMAND,
)


@dataclass(frozen=True, slots=True)
class BundleContext:
    """What all bundles of an engine say alike. ``config`` is the engine's configuration in effect."""

    entrypoint: Entrypoint
    token_ids: BundleTokenIds
    backend: BackendSelection
    config: Mapping[str, Any]


def bundle_files(
    record: RequestRecord, context: BundleContext, unix_nanos: int, argv: Sequence[str]
) -> dict[str, Any]:
    """File name to content: a text for ``.txt``, JSON otherwise. ``argv`` replays the bundle."""
    result = record.result
    files: dict[str, Any] = {
        REQUEST: _request_object(record, context, unix_nanos),
        PROMPT_IDS: _ids_object(record, record.prompt_ids, context.token_ids),
        SAMPLING: _sampling_object(record),
        CONFIG: context.config,
        BACKEND: asdict(context.backend),
        OUTPUT_IDS: {
            **_ids_object(record, result.token_ids, context.token_ids),
            "logit_digests": list(result.logit_digests) or None,
        },
        OUTPUT_TEXT: redacted_line(result.text),
        OUTPUT_SCAN: {"request_id": record.request_id, **asdict(scan_output(result.text))},
        COMMAND: {"argv": list(argv)},
    }
    if context.entrypoint is Entrypoint.SERVE and context.token_ids is BundleTokenIds.KEPT:
        files[REPLAY_BODY] = _replay_body(record)
    return files


def _request_object(record: RequestRecord, context: BundleContext, unix_nanos: int) -> dict[str, Any]:
    result = record.result
    return {
        "schema_version": SCHEMA_VERSION,
        "sanitized": True,
        "request_id": record.request_id,
        "entrypoint": context.entrypoint,
        "ts_unix_nanos": unix_nanos,
        "prompt": redact_prompt(record.prompt),
        "finish_reason": result.finish_reason,
        "usage": asdict(result.usage),
        "output_text": redact_text(result.text),
        "duration_s": record.duration_s,
    }


def _ids_object(record: RequestRecord, token_ids: Sequence[int], kept: BundleTokenIds) -> dict[str, Any]:
    return {
        "request_id": record.request_id,
        "token_count": len(token_ids),
        "sha256": hash_token_ids(token_ids),
        "token_ids": list(token_ids) if kept is BundleTokenIds.KEPT else None,
    }


_RULE_NUMBERS = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "repeat_last_n",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dynatemp_range",
    "dynatemp_exponent",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "min_tokens",
)


def _sampling_object(record: RequestRecord) -> dict[str, Any]:
    """The seed and the budget as resolved. Stop strings are the caller's texts; texts of tokens are not."""
    return {
        "request_id": record.request_id,
        **_plain_sampling(record),
        "stop": [redact_text(stop) for stop in record.sampling.stop],
        "bad_words": [redact_text(word) for word in record.sampling.bad_words],
    }


def _plain_sampling(record: RequestRecord) -> dict[str, Any]:
    sampling: SamplingParams = record.sampling
    return {
        "max_tokens": record.max_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "seed": record.result.seed,
        "ignore_eos": sampling.ignore_eos,
        "stop_token_ids": list(sampling.stop_token_ids),
        "include_stop_str_in_output": sampling.include_stop_str_in_output,
        "skip_special_tokens": sampling.skip_special_tokens,
        "completion_boundary": boundary_to_mapping(sampling.completion_boundary),
        "forbidden_first_texts": list(sampling.forbidden_first_texts),
        "control_texts": list(sampling.control_texts),
        **{name: getattr(sampling, name) for name in _RULE_NUMBERS},
        "dry_sequence_breakers": list(sampling.dry_sequence_breakers),
        "logit_bias": {str(token_id): bias for token_id, bias in sampling.logit_bias.items()},
        "allowed_token_ids": None if sampling.allowed_token_ids is None else list(sampling.allowed_token_ids),
    }


def _replay_body(record: RequestRecord) -> dict[str, Any]:
    """A body for /v1/completions that asks the same again, but for the stop strings."""
    return {"prompt": list(record.prompt_ids), **_plain_sampling(record)}
