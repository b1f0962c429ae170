"""TokenPolicyLevel: how much of a vocabulary is kept out of answers."""

from __future__ import annotations

from enum import StrEnum


class TokenPolicyLevel(StrEnum):
    """VOCABULARY keeps out ids that stand for nothing, STRICT also what no good answer has in it; OFF
    keeps out nothing. What each forbids is in sampling/token_policy.py.
    """

    OFF = "off"
    VOCABULARY = "vocabulary"
    STRICT = "strict"
