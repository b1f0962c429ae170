"""RuleHistory: the rules of one request as its tokens come. Knows no logits and no scheduling."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.core.token_rules import RuleSettings, TokenRules
from ferrum.sampling.repetition_window import RepetitionWindow
from ferrum.sampling.token_counts import TokenCounts


class RuleHistory:
    """What ``settings`` look at, at one place of one answer. Mutated by ``take``, on the engine's thread.

    It depends on prompt and accepted tokens alone (mirostat's state comes with each of them), so that a
    request that is computed again, or ahead, meets the same rules.
    """

    def __init__(
        self, settings: RuleSettings, counts: TokenCounts | None, repetitions: RepetitionWindow | None
    ) -> None:
        self.settings = settings
        self._counts = counts
        self._repetitions = repetitions
        self._mirostat_mu = 2 * settings.mirostat_tau

    @property
    def has_mirostat(self) -> bool:
        """Whether each choice depends on how surprising the one before it was: none can be made ahead."""
        return self.settings.mirostat_tau > 0

    def rules(self) -> TokenRules:
        """For the token that comes next; holds until it is taken."""
        counts, repetitions = self._counts, self._repetitions
        rules = TokenRules(self.settings, mirostat_mu=self._mirostat_mu)
        if counts is None and repetitions is None:
            return rules
        return TokenRules(
            settings=self.settings,
            counted_ids=rules.counted_ids if counts is None else counts.ids,
            window_counts=rules.window_counts if counts is None else counts.window_counts,
            output_counts=rules.output_counts if counts is None else counts.output_counts,
            dry_tokens=rules.dry_tokens if repetitions is None else repetitions.tokens,
            dry_limit=0 if repetitions is None else repetitions.num_unbroken,
            mirostat_mu=self._mirostat_mu,
        )

    def take(self, token_id: int, mirostat_mu: float | None = None) -> None:
        """The next token, with mirostat's state after it."""
        if self._counts is not None:
            self._counts.add(token_id)
        if self._repetitions is not None:
            self._repetitions.add(token_id)
        if mirostat_mu is not None:
            self._mirostat_mu = mirostat_mu

    def after(self, token_ids: Sequence[int]) -> RuleHistory:
        """The place after these tokens, which were not taken; itself for none of them."""
        if not token_ids:
            return self
        ahead = self.copy()
        for token_id in token_ids:
            ahead.take(token_id)
        return ahead

    def copy(self) -> RuleHistory:
        """One that goes on by itself."""
        twin = RuleHistory(
            self.settings,
            None if self._counts is None else self._counts.copy(),
            None if self._repetitions is None else self._repetitions.copy(),
        )
        twin._mirostat_mu = self._mirostat_mu
        return twin
