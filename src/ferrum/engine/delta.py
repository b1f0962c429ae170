"""Delta: what more there is of a growing answer."""

from __future__ import annotations

from dataclasses import dataclass

from ferrum.core.logprobs import TokenLogprobs


@dataclass(frozen=True, slots=True)
class Delta:
    """``logprobs`` of tokens, where they are wanted: of those behind the text, and of ones that have none."""

    text: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.logprobs)

    def __add__(self, later: Delta) -> Delta:
        return Delta(self.text + later.text, self.logprobs + later.logprobs)


NOTHING = Delta()
