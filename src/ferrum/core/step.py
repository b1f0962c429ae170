"""One step of the engine as data: a StepPlan goes in, a StepResult comes out.

The scheduler writes a StepPlan (which tokens of which sequences), the executor turns it into flat arrays and
answers with one SampledToken for each choice of its parts. There is no split into prefill and decode: a part
computes ``token_ids`` at consecutive positions, and a decode is a part of one token.

What there is one of for each token is made between two steps, while the compute threads wait. A frozen
dataclass takes three times as long to make as a tuple, so these are tuples, or not frozen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ferrum.core.logprobs import RowLogprobs
from ferrum.core.token_rules import TokenMask, TokenRules


@dataclass(slots=True)
class SamplingInstruction:
    """How to choose the token that follows one of a part's tokens. Nobody changes one.

    ``seed`` and ``position`` (index of the chosen token in prompt + output) key the draw, so that it does not
    depend on who else is in the step. Fields mean what they mean in SamplingParams. ``rules`` are all
    processors beyond these, None = there is none. Only tokens that ``mask`` allows exist for any of them.
    ``logprobs``: how many of the most likely tokens are wanted beside the chosen one, with log-probabilities
    over the whole vocabulary; None = none, not even its own.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    position: int
    rules: TokenRules | None = None
    mask: TokenMask | None = None  # [ceil(vocabulary / 32)]; None = all are allowed
    logprobs: int | None = None

    @property
    def has_mirostat(self) -> bool:
        """Whether the choice carries a state to the next one."""
        return self.rules is not None and self.rules.settings.mirostat_tau > 0


@dataclass(frozen=True, slots=True)
class KnownTokens:
    """Tokens that are not chosen but known, and whose log-probabilities are wanted.

    ``num_top``: how many of the most likely ones in the place of each are wanted beside it.
    """

    token_ids: tuple[int, ...]
    num_top: int


class SequencePart(NamedTuple):
    """The tokens of one sequence that a step computes.

    ``block_table`` names the KV blocks of the whole sequence, in order, long enough for the part's last
    position. One token is chosen after each of the last ``len(choices)`` tokens: none while the part does not
    reach the end of the known tokens. ``scored`` are the tokens that follow the first ones of the part, one
    each, and none that a choice is made for. The last ``num_drafts`` tokens are guesses, there to be compared
    with what is chosen before them. ``state_slot`` is the sequence's recurrent state, where the engine
    manages one. ``num_forced``: of a decode's tokens, those after the first that nobody had to choose.
    """

    request_id: str
    token_ids: tuple[int, ...]
    start_position: int
    block_table: tuple[int, ...]
    choices: tuple[SamplingInstruction, ...]
    state_slot: int | None = None
    scored: KnownTokens | None = None
    num_drafts: int = 0
    num_forced: int = 0

    @property
    def num_outputs(self) -> int:
        """Rows whose logits are needed."""
        return len(self.choices) + (0 if self.scored is None else len(self.scored.token_ids))

    @property
    def is_decode(self) -> bool:
        """Computes one token (and forced and drafted ones) and chooses the next; so does the end of some
        prompts.
        """
        num_chosen = len(self.token_ids) - self.num_forced
        return num_chosen == len(self.choices) == 1 + self.num_drafts


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes; never empty, each request at most once.

    ``num_prefill_tokens``: those of prompts, and of answers that are computed anew after a preemption.
    ``num_lent_processors``: so many compute threads fewer run it, since others work on their processors; at
    least one runs it all the same, and no result depends on it.
    """

    parts: tuple[SequencePart, ...]
    num_prefill_tokens: int = 0
    num_lent_processors: int = 0

    @property
    def num_tokens(self) -> int:
        return sum([len(part.token_ids) for part in self.parts])


class SampledToken(NamedTuple):
    """The token chosen for ``request_id``; ``logit_digest`` hashes the logits' bits when digests are on.

    ``logprobs`` is there where the instruction asked for it. ``mirostat_mu`` is the state of mirostat after
    this token, for the rules of the next one; None without mirostat.
    """

    request_id: str
    token_id: int
    logit_digest: int | None = None
    logprobs: RowLogprobs | None = None
    mirostat_mu: float | None = None


@dataclass(frozen=True, slots=True)
class ScoredTokens:
    """What a part wanted to know of its ``scored`` tokens, one row each, in their order.

    The first of them follows the token at ``start_position``, the part's first.
    """

    request_id: str
    start_position: int
    rows: tuple[RowLogprobs, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One SampledToken for each choice of each part, and one ScoredTokens for each part with some, in the
    plan's order.
    """

    tokens: tuple[SampledToken, ...]
    scored: tuple[ScoredTokens, ...] = ()
