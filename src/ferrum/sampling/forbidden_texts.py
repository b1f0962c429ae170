"""Token texts that no good answer has in it: replacement characters, unknown, padding and unused tokens."""

from __future__ import annotations

REPLACEMENT = "\ufffd"
# The replacement character's three bytes, read as Latin-1.
MOJIBAKE = "\u00ef\u00bf\u00bd"

SPELLINGS = (
    "<unk>",
    "<|unk|>",
    "[UNK]",
    "<pad>",
    "<|pad|>",
    "[PAD]",
    "<mask>",
    "<|mask|>",
    "[MASK]",
    MOJIBAKE,
)
_WORDS = ("unk", "pad", "mask", "reserved", "unused")


def is_broken_text(text: str) -> bool:
    """Whether something in it could not be decoded, here or by whoever wrote it down."""
    return REPLACEMENT in text or MOJIBAKE in text


def is_forbidden_text(text: str) -> bool:
    """Whether a token spelled so is kept out of answers: broken, listed, or a bracketed word that says so."""
    if is_broken_text(text) or text in SPELLINGS:
        return True
    is_bracketed = len(text) > 2 and text[0] + text[-1] in ("<>", "[]")
    return is_bracketed and any(word in text.lower() for word in _WORDS)
