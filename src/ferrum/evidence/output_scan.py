"""OutputScan: whether an answer shows what no answer should."""

from __future__ import annotations

import re
from dataclasses import dataclass

REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
# The three bytes of U+FFFD read as Latin-1: text that was decoded twice.
MOJIBAKE = REPLACEMENT_CHARACTER.encode().decode("latin-1")

_PATTERNS = {
    "reserved_token": re.compile(
        r"<\|?[\w ]*(?:unk|pad|mask|reserved|unused)[\w ]*\|?>|\[(?:UNK|PAD|MASK)\]", re.I
    ),
    "mojibake": re.compile(re.escape(MOJIBAKE)),
    "replacement_character": re.compile(REPLACEMENT_CHARACTER),
}


@dataclass(frozen=True, slots=True)
class OutputScan:
    """``kind`` of the first thing found, and the characters it takes: from ``start`` up to ``end``."""

    bad_output: bool
    kind: str | None = None
    start: int | None = None
    end: int | None = None


def scan_output(text: str) -> OutputScan:
    """Looks for texts of reserved tokens, replacement characters and text that was decoded twice."""
    found = [
        (match.start(), kind, match.end()) for kind, each in _PATTERNS.items() if (match := each.search(text))
    ]
    if not found:
        return OutputScan(bad_output=False)
    start, kind, end = min(found)
    return OutputScan(True, kind, start, end)
