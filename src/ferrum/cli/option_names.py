"""What the command line calls the configuration's fields, so that a refusal names what was typed."""

from __future__ import annotations

from ferrum.core.errors import InvalidConfig

OPTION_OF_FIELD = {
    "max_model_len": "--context-length",
    "context_length": "--context-length",
    "threads": "--threads",
    "spec_draft": "--draft",
    "speculation.num_tokens": "--draft-tokens",
    "scheduler.max_running_requests": "--max-num-seqs",
    "scheduler.max_waiting_requests": "--max-waiting",
    "scheduler.max_waiting_tokens": "--max-waiting-tokens",
    "scheduler.max_num_batched_tokens": "--max-num-batched-tokens",
    "scheduler.max_decode_stretch": "--max-decode-stretch",
    "scheduler.prefill_step_chunk": "--prefill-step-chunk",
    "scheduler.prefill_first_until_active": "--prefill-first-until-active",
    "scheduler.active_decode_prefill_chunk": "--active-decode-prefill-chunk",
    "stall_after_s": "--stall-seconds",
    "max_body_bytes": "--max-body-mib",
    "drain_s": "--drain-seconds",
    "served_model_name": "--served-model-name",
    "evidence.bundle_dir": "--bundle-dir",
    "evidence.bundle_limit": "--bundle-limit",
    "pin_dir": "--pin-dir",
}


def in_words_of_options(error: InvalidConfig) -> str:
    """The error's line, with the option where the field has one."""
    return f"{OPTION_OF_FIELD.get(error.field, error.field)}: {error.problem}"
