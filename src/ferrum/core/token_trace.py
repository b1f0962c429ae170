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
    """``processors`` are those that had an effect, in the order in which they cut.

    No penalty is applied by this build, so each has the value that changes nothing.
    """

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
        processors=() if is_greedy else _processors(sampling),
        max_tokens=max_tokens,
        temperature=float(sampling.temperature),
        top_p=float(sampling.top_p),
        top_k=sampling.top_k,
        min_p=float(sampling.min_p),
    )


def _run(token_ids: Sequence[int], num_prefix: int, num_tail: int) -> TokenRun:
    return TokenRun(
        len(token_ids),
        hash_token_ids(token_ids),
        tuple(token_ids[:num_prefix]),
        tuple(token_ids[-num_tail:]),
    )


def _processors(sampling: SamplingParams) -> tuple[str, ...]:
    """The order is that of sampling/reference_sampler.py."""
    effects = {
        "temperature": sampling.temperature != 1,
        "min_p": sampling.min_p > 0,
        "top_k": sampling.top_k > 0,
        "top_p": sampling.top_p < 1,
    }
    return tuple(name for name, has_effect in effects.items() if has_effect)
