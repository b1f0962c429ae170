"""SpeculationConfig: whether tokens are drafted, how, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ferrum.core.errors import InvalidConfig

MOST_DRAFT_TOKENS = 64


class SpeculationMethod(StrEnum):
    """NGRAM: what followed the same tokens before, in prompt and answer. DRAFT: what a smaller model says."""

    OFF = "off"
    NGRAM = "ngram"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """How an engine speculates. Validated when built; raises InvalidConfig.

    method       how tokens are drafted
    draft_model  the model that drafts, for DRAFT and for nothing else
    num_tokens   most tokens drafted for one request in one step; None = 4 of a model, 10 of n-grams
    step_tokens  most tokens drafted for all requests of one step together: memory for their logits is kept
    """

    method: SpeculationMethod = SpeculationMethod.OFF
    draft_model: str | None = None
    num_tokens: int | None = None
    step_tokens: int = 32

    def __post_init__(self) -> None:
        if not isinstance(self.method, SpeculationMethod):
            known = ", ".join(SpeculationMethod)
            raise InvalidConfig("speculation.method", f"must be one of {known}, not {self.method!r}")
        for name in ("num_tokens", "step_tokens"):
            value = getattr(self, name)
            if name == "num_tokens" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_DRAFT_TOKENS:
                raise InvalidConfig(
                    f"speculation.{name}", f"must be between 1 and {MOST_DRAFT_TOKENS}, not {value!r}"
                )
        if (self.draft_model is not None) != (self.method is SpeculationMethod.DRAFT):
            raise InvalidConfig(
                "speculation.draft_model",
                f"{self.draft_model!r} does not go with the method {self.method!s}: "
                "a draft model is named exactly when it is to draft",
            )

    @property
    def is_on(self) -> bool:
        return self.method is not SpeculationMethod.OFF

    @property
    def request_tokens(self) -> int:
        """Most tokens drafted for one request in one step."""
        if self.num_tokens is not None:
            return self.num_tokens
        return 4 if self.method is SpeculationMethod.DRAFT else 10

    def draft_rows(self, num_sequences: int) -> int:
        """Most drafted tokens that one step of so many sequences has."""
        return min(self.request_tokens * num_sequences, self.step_tokens) if self.is_on else 0
