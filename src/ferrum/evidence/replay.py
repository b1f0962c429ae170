"""Replay: asks what a bundle asked, and compares token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ferrum.core.errors import EngineClosed, FerrumError, UnusableBundle
from ferrum.core.request import FinishReason, InferenceRequest, InferenceResult, TokenPrompt
from ferrum.evidence.bundle_files import OUTPUT_IDS, PROMPT_IDS
from ferrum.evidence.replay_bundle import ReplayBundle

Answer = Callable[[InferenceRequest], InferenceResult]

# Ends that the tokens alone decide, so that a replay must come to the same.
_DECIDED = (FinishReason.EOS, FinishReason.LENGTH)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay left the record: output token ``index`` was ``recorded`` and is ``replayed`` now.

    ``what`` is "token" or "logits" (their digests differ, which comes before tokens do). None: there was no
    such token.
    """

    what: str
    index: int
    recorded: int | None
    replayed: int | None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """``is_same``: nothing that was compared differs. ``failure`` is the error of a replay that failed."""

    request_id: str
    is_same: bool
    num_compared_tokens: int
    num_compared_digests: int
    difference: Difference | None
    recorded_end: FinishReason
    replayed_end: FinishReason
    failure: str | None
    notes: tuple[str, ...]


def replay(bundle: ReplayBundle, answer: Answer, notes: Sequence[str] = ()) -> ReplayReport:
    """Runs the bundle's request once, alone, with the seed it had.

    What was cut short (failed, cancelled, ended by a stop string, which a bundle does not keep) is compared
    as far as it came. Raises UnusableBundle for one without token ids, and what ``answer`` raises when the
    request cannot even be asked.
    """
    prompt_ids = _kept(bundle, bundle.prompt_ids, PROMPT_IDS)
    output_ids = _kept(bundle, bundle.output_ids, OUTPUT_IDS)
    is_whole = bundle.finish_reason in _DECIDED
    sampling = bundle.sampling
    if not is_whole:
        # One token at least: a request that failed before its first one may fail again.
        sampling = replace(sampling, max_tokens=max(1, len(output_ids)))
    request = InferenceRequest(f"replay-{bundle.request_id}", TokenPrompt(prompt_ids), sampling)
    said = [*notes, *_notes(bundle, is_whole=is_whole)]
    try:
        result = answer(request)
    except EngineClosed:
        raise
    except FerrumError as error:
        has_failed_before = bundle.finish_reason is FinishReason.ERROR
        return _report(bundle, (), None, FinishReason.ERROR, said, str(error), is_same=has_failed_before)
    num_digests = min(len(bundle.logit_digests), len(result.logit_digests))
    replayed_ids = result.token_ids if is_whole else result.token_ids[: len(output_ids)]
    difference = _first_difference(
        "logits", bundle.logit_digests[:num_digests], result.logit_digests[:num_digests]
    )
    token_difference = _first_difference("token", output_ids, replayed_ids)
    if difference is None or (token_difference is not None and token_difference.index < difference.index):
        difference = token_difference
    is_same = difference is None and (not is_whole or result.finish_reason is bundle.finish_reason)
    if bundle.finish_reason is FinishReason.ERROR:
        said.append("the request failed when it was recorded, and did not fail in the replay")
    report = _report(bundle, replayed_ids, difference, result.finish_reason, said, None, is_same=is_same)
    return replace(report, num_compared_digests=num_digests)


def _report(
    bundle: ReplayBundle,
    replayed_ids: Sequence[int],
    difference: Difference | None,
    end: FinishReason,
    notes: Sequence[str],
    failure: str | None,
    *,
    is_same: bool,
) -> ReplayReport:
    return ReplayReport(
        request_id=bundle.request_id,
        is_same=is_same,
        num_compared_tokens=min(len(bundle.output_ids or ()), len(replayed_ids)),
        num_compared_digests=0,
        difference=difference,
        recorded_end=bundle.finish_reason,
        replayed_end=end,
        failure=failure,
        notes=tuple(notes),
    )


def _kept(bundle: ReplayBundle, token_ids: tuple[int, ...] | None, name: str) -> tuple[int, ...]:
    if token_ids is None:
        raise UnusableBundle(
            str(bundle.path), name, "holds a hash instead of token ids, so that there is nothing to replay"
        )
    return token_ids


def _notes(bundle: ReplayBundle, *, is_whole: bool) -> list[str]:
    notes = []
    if not is_whole:
        notes.append(f"the answer was cut short ({bundle.finish_reason}); compared as far as it came")
    if bundle.num_stops:
        notes.append(f"replayed without the request's {bundle.num_stops} stop strings, which are redacted")
    if not bundle.backend.keeps_same_tokens_law:
        notes.append(f"the executor {bundle.backend.executor!r} does not promise the same tokens")
    return notes


def _first_difference(what: str, recorded: Sequence[int], replayed: Sequence[int]) -> Difference | None:
    for index in range(max(len(recorded), len(replayed))):
        pair = (_at(recorded, index), _at(replayed, index))
        if pair[0] != pair[1]:
            return Difference(what, index, *pair)
    return None


def _at(values: Sequence[int], index: int) -> int | None:
    return values[index] if index < len(values) else None
