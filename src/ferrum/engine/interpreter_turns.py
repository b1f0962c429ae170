"""How long another thread may keep Python's interpreter lock when the engine's thread wants it back."""

from __future__ import annotations

import sys

# Python's own 5 ms are as long as two steps of a small model, and every native call gives the lock away. A
# turn that ends early costs the other thread a few microseconds.
_TURN_S = 0.0005


def shorten_turns() -> None:
    """For the whole process, whose setting it is; a shorter one is kept."""
    if sys.getswitchinterval() > _TURN_S:
        sys.setswitchinterval(_TURN_S)
