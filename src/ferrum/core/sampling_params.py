"""What a caller may ask of the choice of tokens. Knows nothing of logits, tokenizers or the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ferrum.core.completion_boundary import IMMEDIATE, CompletionBoundary
from ferrum.core.constraint import Constraint, require_constraint
from ferrum.core.errors import InvalidRequest
from ferrum.core.logprobs import MAX_TOP_LOGPROBS

MAX_STOP_STRINGS = 32
MAX_STOP_TOKEN_IDS = 256
MAX_CONTROL_TEXTS = 64
MAX_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request's tokens are chosen and when it ends. Frozen; validated when built.

    max_tokens   most tokens to generate; None = whatever the context leaves, 0 = only the prompt is computed
    temperature  0 = greedy (ties: lowest id)
    top_k        keep the k most likely tokens; 0 = all
    top_p        keep the smallest set of most likely tokens whose probability reaches this; 1 = all
    min_p        drop tokens less likely than this share of the most likely one; 0 = none
    seed         key of every draw; None = one is made and reported with the result
    stop         texts that end the answer; the answer ends just before the earliest one
    ignore_eos   end-of-sequence tokens do not end the answer and stay in the count (for benchmarks)
    stop_token_ids  tokens that end the answer, as the model's own end tokens do; not shown
    include_stop_str_in_output  the stop string, or the text of the token that ended the answer, is shown
    skip_special_tokens  control tokens give no text; otherwise they are written out
    completion_boundary  how far the answer must have come before the model may end it
    forbidden_first_texts  tokens spelled so may not come first; what is no single token here is passed over
    control_texts  control tokens spelled so may be chosen under a strict token policy
    logprobs     log-probabilities of the generated tokens, and of this many of the most likely ones in the
                 place of each, up to 20; 0 = of the tokens alone, None = none. They are of the model's own
                 distribution: nothing that is said here of the choice of tokens has a part in them
    prompt_logprobs  the same for the prompt's tokens
    echo         the answer's text begins with the prompt's, and with ``logprobs`` its tokens do, too
    constraint   what the whole answer must be; None = any text

    Raises InvalidRequest naming the parameter and its range.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    completion_boundary: CompletionBoundary = IMMEDIATE
    forbidden_first_texts: tuple[str, ...] = ()
    control_texts: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        require_constraint(self.constraint)
        if self.max_tokens is not None:
            _require_integer("max_tokens", self.max_tokens, 0, 2**31 - 1)
        _require_number("temperature", self.temperature, 0.0, 100.0)
        _require_integer("top_k", self.top_k, 0, 2**31 - 1)
        _require_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequest("must be above 0 and at most 1, not 0", param="top_p")
        _require_number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _require_integer("seed", self.seed, -(2**63), MAX_SEED)
        if not isinstance(self.stop, tuple | list) or not all(isinstance(text, str) for text in self.stop):
            raise InvalidRequest("must be a list of strings", param="stop")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequest(
                f"at most {MAX_STOP_STRINGS} stop strings, not {len(self.stop)}", param="stop"
            )
        if any(not text for text in self.stop):
            raise InvalidRequest("a stop string must not be empty", param="stop")
        _require_token_ids("stop_token_ids", self.stop_token_ids)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _require_integer(name, getattr(self, name), 0, MAX_TOP_LOGPROBS)
        for flag in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "echo"):
            if not isinstance(getattr(self, flag), bool):
                raise InvalidRequest(f"must be true or false, not {getattr(self, flag)!r}", param=flag)
        if not isinstance(self.completion_boundary, CompletionBoundary):
            raise InvalidRequest(
                f"must be a CompletionBoundary, not {self.completion_boundary!r}", param="completion_boundary"
            )
        for name in ("forbidden_first_texts", "control_texts"):
            _require_texts(name, getattr(self, name))


def _require_texts(name: str, value: object) -> None:
    if not isinstance(value, tuple | list) or not all(isinstance(text, str) and text for text in value):
        raise InvalidRequest("must be a list of texts that are not empty", param=name)
    if len(value) > MAX_CONTROL_TEXTS:
        raise InvalidRequest(f"at most {MAX_CONTROL_TEXTS} texts, not {len(value)}", param=name)


def _require_token_ids(name: str, value: object) -> None:
    if not isinstance(value, tuple | list):
        raise InvalidRequest(f"must be a list of token ids, not {value!r}", param=name)
    if len(value) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(f"at most {MAX_STOP_TOKEN_IDS} token ids, not {len(value)}", param=name)
    for token_id in value:
        _require_integer(name, token_id, 0, 2**31 - 1)


def _require_integer(name: str, value: object, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"must be an integer, not {value!r}", param=name)
    if not lowest <= value <= highest:
        raise InvalidRequest(f"must be between {lowest} and {highest}, not {value}", param=name)


def _require_number(name: str, value: object, lowest: float, highest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"must be a number, not {value!r}", param=name)
    if not math.isfinite(value) or not lowest <= value <= highest:
        raise InvalidRequest(f"must be between {lowest:g} and {highest:g}, not {value:g}", param=name)
