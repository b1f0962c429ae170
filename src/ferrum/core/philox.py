"""Random numbers that are a pure function of a key and a counter: Philox4x32-10.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Final

Words4 = tuple[int, int, int, int]
"""Four 32-bit words."""

_MASK: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
# The key grows by these every round: the golden ratio and the square root of 3 minus 1.
_KEY_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10


def philox4x32(counter: Words4, key: tuple[int, int]) -> Words4:
    """Ten rounds over four counter words under two key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int, sample_index: int = 0, purpose: int = 0, attempt: int = 0) -> float:
    """A float64 in [0, 1) with 53 random bits, keyed by the 64-bit ``seed`` (low word first) and the rest."""
    words = philox4x32((position, sample_index, purpose, attempt), (seed & _MASK, seed >> 32 & _MASK))
    return ((words[0] >> 5) * 2**26 + (words[1] >> 6)) / 2**53
