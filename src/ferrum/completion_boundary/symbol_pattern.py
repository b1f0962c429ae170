"""Finds one run of symbols in a stream of them (Knuth, Morris and Pratt, "Fast pattern matching in strings",
SIAM J. Comput. 6, 1977). The state is a number, so a place in the stream can be kept and gone back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferrum.completion_boundary.symbols import Symbol


@dataclass(frozen=True, slots=True)
class SymbolPattern:
    """``failures[n]`` is the longest proper end of the first n symbols that they begin with, too."""

    symbols: tuple[Symbol, ...]
    failures: tuple[int, ...]

    @staticmethod
    def of(symbols: Sequence[Symbol]) -> SymbolPattern:
        assert symbols
        failures = [0, 0]
        for symbol in symbols[1:]:
            length = failures[-1]
            while length and symbols[length] != symbol:
                length = failures[length]
            failures.append(length + 1 if symbols[length] == symbol else 0)
        return SymbolPattern(tuple(symbols), tuple(failures))

    def after(self, num_matched: int, symbol: Symbol) -> int:
        """How many symbols of the pattern the stream ends with after ``symbol``; all of them: it is found.

        ``num_matched`` is how many before it, fewer than all.
        """
        while num_matched and self.symbols[num_matched] != symbol:
            num_matched = self.failures[num_matched]
        return num_matched + 1 if self.symbols[num_matched] == symbol else 0

    def is_whole(self, num_matched: int) -> bool:
        return num_matched == len(self.symbols)
