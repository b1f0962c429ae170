"""TokenTrace: evidence of the tokens that went in and came out of a request, and of how they were chosen."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ferrum.core.sampling_params import SamplingParams

SCHEMA_VERSION = 1
TOKEN_ENCODING = "u32-le-v1"
RNG_ALGORITHM = "philox4x32-10"

# Most ids of each end that a trace shows; the hash covers all.
PROMPT_PREFIX, PROMPT_TAIL = 64, 128
GENERATED_PREFIX, GENERATED_TAIL = 256, 32

_DOMAIN = b"ferrum-token-ids:" + TOKEN_ENCODING.encode() + b"\0"


@dataclass(frozen=True, slots=True)
class TokenRun:
    """``count`` token ids: the hash of all, and the first and last of them (which may overlap)."""

    count: int
    sha256: str
    prefix: tuple[int, ...]
    tail: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """``processors`` are those that had an effect, in the order in which they work."""

    prompt: TokenRun
    generated: TokenRun
    seed: int
    sampler: str
    processors: tuple[str, ...]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    schema_version: int = SCHEMA_VERSION
    token_encoding: str = TOKEN_ENCODING
    sampling_rng_algorithm: str = RNG_ALGORITHM


def hash_token_ids(token_ids: Sequence[int]) -> str:
    """ "sha256:" and the digest of a label, a zero byte, and every id in four bytes, little-endian."""
    return "sha256:" + hashlib.sha256(_DOMAIN + struct.pack(f"<{len(token_ids)}I", *token_ids)).hexdigest()


def trace_tokens(
    prompt_ids: Sequence[int], token_ids: Sequence[int], sampling: SamplingParams, max_tokens: int, seed: int
) -> TokenTrace:
    """``max_tokens`` and ``seed`` as resolved, whatever the caller left open."""
    is_greedy = sampling.temperature == 0
    return TokenTrace(
        prompt=_run(prompt_ids, PROMPT_PREFIX, PROMPT_TAIL),
        generated=_run(token_ids, GENERATED_PREFIX, GENERATED_TAIL),
        seed=seed,
        sampler="greedy" if is_greedy else "multinomial",
        processors=_processors(sampling, is_greedy=is_greedy),
        max_tokens=max_tokens,
        temperature=float(sampling.temperature),
        top_p=float(sampling.top_p),
        top_k=sampling.top_k,
        min_p=float(sampling.min_p),
        repetition_penalty=float(sampling.repetition_penalty),
        presence_penalty=float(sampling.presence_penalty),
        frequency_penalty=float(sampling.frequency_penalty),
    )


def _run(token_ids: Sequence[int], num_prefix: int, num_tail: int) -> TokenRun:
    return TokenRun(
        len(token_ids),
        hash_token_ids(token_ids),
        tuple(token_ids[:num_prefix]),
        tuple(token_ids[-num_tail:]),
    )


def _processors(sampling: SamplingParams, *, is_greedy: bool) -> tuple[str, ...]:
    """The order is that of docs/sampling.md; what only changes draws has no effect on the likeliest token."""
    looks_back = sampling.repeat_last_n != 0
    effects = {
        "allowed_token_ids": sampling.allowed_token_ids is not None,
        "bad_words": bool(sampling.bad_words),
        "min_tokens": sampling.min_tokens > 0,
        "logit_bias": bool(sampling.logit_bias),
        "repetition_penalty": looks_back and sampling.repetition_penalty != 1,
        "presence_penalty": looks_back and sampling.presence_penalty != 0,
        "frequency_penalty": looks_back and sampling.frequency_penalty != 0,
        "dry": sampling.dry_multiplier > 0 and sampling.dry_penalty_last_n != 0,
    }
    if not is_greedy:
        effects |= {
            "top_n_sigma": sampling.top_n_sigma > 0,
            "dynatemp": sampling.dynatemp_range > 0,
            "temperature": sampling.temperature != 1,
            "min_p": sampling.min_p > 0,
            "top_k": sampling.top_k > 0,
            "typical_p": sampling.typical_p < 1,
            "top_p": sampling.top_p < 1,
            "xtc": sampling.xtc_probability > 0,
            "mirostat": sampling.mirostat > 0,
        }
    return tuple(name for name, has_effect in effects.items() if has_effect)
