"""What a caller may ask of the choice of tokens. Knows nothing of logits, tokenizers or the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ferrum.core.completion_boundary import IMMEDIATE, CompletionBoundary
from ferrum.core.constraint import Constraint, require_constraint
from ferrum.core.errors import InvalidRequest
from ferrum.core.logprobs import MAX_TOP_LOGPROBS
from ferrum.core.parameter_checks import (
    require_flag,
    require_integer,
    require_number,
    require_number_above,
    require_texts,
    require_token_ids,
)

MAX_STOP_STRINGS = 32
MAX_STOP_TOKEN_IDS = 256
MAX_CONTROL_TEXTS = 64
MAX_SEED = 2**63 - 1
MAX_LOGIT_BIASES = 1024
MAX_ALLOWED_TOKEN_IDS = 2**20
MAX_BAD_WORDS = 256
MAX_SEQUENCE_BREAKERS = 32
MAX_ANSWERS = 128


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
    n            answers to the prompt, 1 to 128, each under a seed of its own that follows from ``seed`` and
                 its index; the first is what n = 1 gives
    best_of      write this many, n to 128, and give the n of the highest log-probability in all, the best
                 first; None = n. The usage counts them all
    echo         the answer's text begins with the prompt's, and with ``logprobs`` its tokens do, too
    repetition_penalty  divides logits above 0 of tokens in prompt or answer, multiplies others; 1 = none
    presence_penalty    taken off the logits of tokens that the answer has already
    frequency_penalty   taken off for each time that the answer has them
    repeat_last_n       tokens of prompt and answer that the three look back over; None = all
    typical_p           keep the tokens of most typical surprise whose probability reaches this; 1 = all
    top_n_sigma         keep logits within this many standard deviations of the highest; 0 = all
    xtc_probability     how often tokens of a share from ``xtc_threshold`` on are dropped, the least of them
                        excepted; 0 = never
    dry_multiplier      strength of DRY: ``dry_multiplier * dry_base ** (n - dry_allowed_length)`` is off
                        the token that would go on with a repetition of n tokens; 0 = none
    dry_penalty_last_n  tokens of prompt and answer that DRY looks back over; None = all
    dry_sequence_breakers  texts that no repetition reaches across
    dynatemp_range      the temperature follows the entropy, between temperature -/+ this; 0 = fixed
    dynatemp_exponent   of the share of the largest entropy
    mirostat            2 = mirostat 2.0, which steers to a surprise of ``mirostat_tau`` bits by steps of
                        ``mirostat_eta``, among what the other limits leave; 0 = none
    logit_bias          added to the logits of these token ids
    allowed_token_ids   no other token may come, an end token neither; None = all may
    bad_words           texts whose tokens may not come one after the other
    min_tokens          so many tokens come before one that ends the answer
    constraint   what the whole answer must be; None = any text

    docs/sampling.md says in which order these work and what each computes. Raises InvalidRequest naming the
    parameter and its range.
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
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int | None = None
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    n: int = 1
    best_of: int | None = None
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        require_constraint(self.constraint)
        if self.max_tokens is not None:
            require_integer("max_tokens", self.max_tokens, 0, 2**31 - 1)
        require_number("temperature", self.temperature, 0.0, 100.0)
        require_integer("top_k", self.top_k, 0, 2**31 - 1)
        require_number_above("top_p", self.top_p, 0.0, 1.0)
        require_number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            require_integer("seed", self.seed, -(2**63), MAX_SEED)
        require_texts("stop", self.stop, MAX_STOP_STRINGS, "stop string")
        require_token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                require_integer(name, getattr(self, name), 0, MAX_TOP_LOGPROBS)
        require_integer("n", self.n, 1, MAX_ANSWERS)
        if self.best_of is not None:
            require_integer("best_of", self.best_of, self.n, MAX_ANSWERS)
        for flag in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "echo"):
            require_flag(flag, getattr(self, flag))
        if not isinstance(self.completion_boundary, CompletionBoundary):
            raise InvalidRequest(
                f"must be a CompletionBoundary, not {self.completion_boundary!r}", param="completion_boundary"
            )
        for name in ("forbidden_first_texts", "control_texts"):
            require_texts(name, getattr(self, name), MAX_CONTROL_TEXTS, "text")
        self._check_penalties()
        self._check_limits()
        self._check_tokens()

    @property
    def num_answers(self) -> int:
        """Answers that are written, whether or not they are given."""
        return self.n if self.best_of is None else self.best_of

    def _check_penalties(self) -> None:
        require_number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        require_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        require_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for window in ("repeat_last_n", "dry_penalty_last_n"):
            if getattr(self, window) is not None:
                require_integer(window, getattr(self, window), 0, 2**31 - 1)
        require_number("dry_multiplier", self.dry_multiplier, 0.0, 100.0)
        require_number("dry_base", self.dry_base, 1.0, 100.0)
        require_integer("dry_allowed_length", self.dry_allowed_length, 1, 2**31 - 1)
        require_texts(
            "dry_sequence_breakers", self.dry_sequence_breakers, MAX_SEQUENCE_BREAKERS, "sequence breaker"
        )

    def _check_limits(self) -> None:
        require_number_above("typical_p", self.typical_p, 0.0, 1.0)
        require_number("top_n_sigma", self.top_n_sigma, 0.0, 1000.0)
        require_number("xtc_probability", self.xtc_probability, 0.0, 1.0)
        require_number("xtc_threshold", self.xtc_threshold, 0.0, 1.0)
        require_number("dynatemp_range", self.dynatemp_range, 0.0, 100.0)
        require_number("dynatemp_exponent", self.dynatemp_exponent, 0.0, 100.0)
        require_integer("mirostat", self.mirostat, 0, 2)
        if self.mirostat == 1:
            raise InvalidRequest("must be 0 (off) or 2 (mirostat 2.0), not 1", param="mirostat")
        require_number_above("mirostat_tau", self.mirostat_tau, 0.0, 100.0)
        require_number("mirostat_eta", self.mirostat_eta, 0.0, 1.0)

    def _check_tokens(self) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidRequest("must map token ids to numbers", param="logit_bias")
        if len(self.logit_bias) > MAX_LOGIT_BIASES:
            raise InvalidRequest(
                f"at most {MAX_LOGIT_BIASES} tokens, not {len(self.logit_bias)}", param="logit_bias"
            )
        for token_id, bias in self.logit_bias.items():
            require_integer("logit_bias", token_id, 0, 2**31 - 1)
            require_number(f"logit_bias[{token_id}]", bias, -100.0, 100.0)
        if self.allowed_token_ids is not None:
            require_token_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS)
            if not self.allowed_token_ids:
                raise InvalidRequest(
                    "must name a token; leave it out to allow all", param="allowed_token_ids"
                )
        require_texts("bad_words", self.bad_words, MAX_BAD_WORDS, "bad word")
        require_integer("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"must be at most max_tokens ({self.max_tokens}), not {self.min_tokens}", param="min_tokens"
            )
