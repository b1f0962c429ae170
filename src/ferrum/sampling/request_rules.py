"""From a request's parameters to the rules and gates of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams
from ferrum.core.token_gate import StillGate, TokenGate, full_mask, without_tokens
from ferrum.core.token_rules import RuleSettings, TokenMask
from ferrum.sampling.bad_words import BadWordsGate
from ferrum.sampling.early_gate import EarlyGate
from ferrum.sampling.repetition_window import RepetitionWindow
from ferrum.sampling.rule_history import RuleHistory
from ferrum.sampling.token_counts import TokenCounts
from ferrum.tokenization.stop_rules import StopRules

_SMALLEST_TEMPERATURE: Final = float(np.finfo(np.float32).tiny)


class RuleTokenizer(Protocol):
    """What rules ask of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...
    def encode_continuation(self, text: str) -> list[int]: ...
    def token_bytes(self, token_id: int) -> bytes: ...


def begin_rules(
    sampling: SamplingParams, prompt_ids: Sequence[int], tokenizer: RuleTokenizer, vocabulary_size: int
) -> RuleHistory | None:
    """The rules at the beginning of an answer; None where the parameters ask for none.

    Raises InvalidRequest for a bias on a token outside the vocabulary.
    """
    for token_id in sampling.logit_bias:
        _require_known("logit_bias", token_id, vocabulary_size)
    has_penalty = _has_penalty(sampling)
    has_dry = sampling.dry_multiplier > 0 and sampling.dry_penalty_last_n != 0
    is_drawn = sampling.temperature >= _SMALLEST_TEMPERATURE
    if not (has_penalty or has_dry or sampling.logit_bias or (is_drawn and _changes_draws(sampling))):
        return None
    counts = repetitions = None
    if has_penalty:
        counts = TokenCounts(prompt_ids, sampling.repeat_last_n)
    if has_dry:
        breakers = [text.encode("utf-8", "surrogatepass") for text in sampling.dry_sequence_breakers]
        window = sampling.dry_penalty_last_n
        repetitions = RepetitionWindow(prompt_ids, window, breakers, tokenizer.token_bytes)
    return RuleHistory(_settings(sampling, has_dry), counts, repetitions)


def asked_gates(
    sampling: SamplingParams, stops: StopRules, tokenizer: RuleTokenizer, vocabulary_size: int
) -> list[TokenGate]:
    """Gates for allowed tokens, bad words and a least length, as far as the parameters ask for them.

    Raises InvalidRequest for tokens outside the vocabulary.
    """
    gates: list[TokenGate] = []
    if sampling.allowed_token_ids is not None:
        for token_id in sampling.allowed_token_ids:
            _require_known("allowed_token_ids", token_id, vocabulary_size)
        gates.append(StillGate(_mask_of(sampling.allowed_token_ids, vocabulary_size)))
    if sampling.bad_words:
        gates.append(BadWordsGate(_bad_sequences(sampling.bad_words, tokenizer), full_mask(vocabulary_size)))
    if sampling.min_tokens and stops.terminal_ids:
        mask = without_tokens(full_mask(vocabulary_size), sorted(stops.terminal_ids))
        gates.append(EarlyGate(mask, sampling.min_tokens))
    return gates


def _require_known(param: str, token_id: int, vocabulary_size: int) -> None:
    if token_id >= vocabulary_size:
        raise InvalidRequest(
            f"token id {token_id} is outside the vocabulary (0 to {vocabulary_size - 1})", param=param
        )


def _has_penalty(sampling: SamplingParams) -> bool:
    strengths = (sampling.repetition_penalty - 1, sampling.presence_penalty, sampling.frequency_penalty)
    return sampling.repeat_last_n != 0 and any(strengths)


def _changes_draws(sampling: SamplingParams) -> bool:
    """Whether anything is asked for that has no effect on the most likely token."""
    return bool(
        sampling.typical_p < 1
        or sampling.top_n_sigma
        or sampling.xtc_probability
        or sampling.dynatemp_range
        or sampling.mirostat
    )


def _settings(sampling: SamplingParams, has_dry: bool) -> RuleSettings:
    biases = {token_id: bias for token_id, bias in sampling.logit_bias.items() if bias}
    return RuleSettings(
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        dry_multiplier=sampling.dry_multiplier if has_dry else 0.0,
        dry_base=sampling.dry_base,
        dry_allowed_length=sampling.dry_allowed_length,
        top_n_sigma=sampling.top_n_sigma,
        dynatemp_range=sampling.dynatemp_range,
        dynatemp_exponent=sampling.dynatemp_exponent,
        typical_p=sampling.typical_p,
        xtc_probability=sampling.xtc_probability,
        xtc_threshold=sampling.xtc_threshold,
        mirostat_tau=sampling.mirostat_tau if sampling.mirostat else 0.0,
        mirostat_eta=sampling.mirostat_eta,
        biased_ids=np.array(list(biases), np.int32),
        biases=np.array(list(biases.values()), np.float32),
    )


def _mask_of(token_ids: Sequence[int], vocabulary_size: int) -> TokenMask:
    allowed = np.zeros(-(-vocabulary_size // 32) * 32, np.bool_)
    allowed[list(token_ids)] = True
    return np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32)


def _bad_sequences(words: Sequence[str], tokenizer: RuleTokenizer) -> tuple[tuple[int, ...], ...]:
    """The ways in which each word may be written: at the start of a text, within one, and after a space."""
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        for ids in (
            tokenizer.encode(word),
            tokenizer.encode_continuation(word),
            tokenizer.encode_continuation(" " + word.lstrip()),
        ):
            if ids:
                sequences[tuple(ids)] = None
    return tuple(sequences)
