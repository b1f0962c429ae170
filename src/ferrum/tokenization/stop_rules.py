"""What ends one answer: end tokens of the model, stop tokens and stop strings of the caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ferrum.core.errors import InvalidRequest
from ferrum.core.sampling_params import SamplingParams


class StopTokenizer(Protocol):
    """What resolving stops asks of a tokenizer."""

    @property
    def eos_ids(self) -> Collection[int]: ...
    @property
    def control_ids(self) -> Collection[int]: ...
    def token_id(self, text: str) -> int | None: ...


@dataclass(frozen=True, slots=True)
class StopRules:
    """``end_ids`` are the model's own ends; ``stop_ids`` the caller's, each with what is reported of it.

    An id that is both is the caller's. ``texts`` are found in the decoded text, wherever the borders between
    tokens lie, so a stop string that happens to be one ordinary token needs no id. None of the first
    ``min_tokens`` tokens ends the answer. ``shows_stop``: what ended it is shown.
    """

    end_ids: frozenset[int] = frozenset()
    stop_ids: Mapping[int, int | str] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    min_tokens: int = 0
    shows_stop: bool = False

    @property
    def terminal_ids(self) -> frozenset[int]:
        """Every id that ends the answer."""
        return self.end_ids | self.stop_ids.keys() if self.stop_ids else self.end_ids


def resolve_stops(sampling: SamplingParams, tokenizer: StopTokenizer, vocabulary_size: int) -> StopRules:
    """The stops of a request for one model.

    A stop string that spells a control token means that token: it has no text to be found by. Raises
    InvalidRequest for a stop token outside the vocabulary of ``vocabulary_size`` ids.
    """
    for token_id in sampling.stop_token_ids:
        if token_id >= vocabulary_size:
            raise InvalidRequest(
                f"token id {token_id} is outside the vocabulary (0 to {vocabulary_size - 1})",
                param="stop_token_ids",
            )
    stop_ids: dict[int, int | str] = {token_id: token_id for token_id in sampling.stop_token_ids}
    for text in sampling.stop:
        spelled = tokenizer.token_id(text)
        if spelled is not None and spelled in tokenizer.control_ids:
            stop_ids.setdefault(spelled, text)
    ends = frozenset[int]() if sampling.ignore_eos else frozenset(tokenizer.eos_ids)
    return StopRules(
        end_ids=ends - stop_ids.keys() if stop_ids else ends,
        stop_ids=stop_ids,
        texts=tuple(sampling.stop),
        min_tokens=sampling.min_tokens,
        shows_stop=sampling.include_stop_str_in_output,
    )
