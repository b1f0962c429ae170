"""Pieces of UTF-8 text that end or begin in the middle of a character (the Unicode Standard, table 3-7)."""

from __future__ import annotations

import codecs

from ferrum.sampling.forbidden_texts import is_broken_text

_MOST_CONTINUATIONS = 3


def is_continuation(byte: int) -> bool:
    """Whether a byte can only stand inside a character."""
    return byte & 0xC0 == 0x80


def is_fragment(data: bytes) -> bool:
    """Whether bytes that are no text may be a part of one.

    They are up to three continuation bytes, then whole characters, then perhaps the beginning of another;
    the characters are no replacement character. Empty and valid text is no fragment.
    """
    start = 0
    while start < len(data) and is_continuation(data[start]):
        start += 1
    if start > _MOST_CONTINUATIONS:
        return False
    pending = after_bytes(b"", data[start:])
    return pending is not None and bool(start or pending)


def after_bytes(pending: bytes, data: bytes) -> bytes | None:
    """The unfinished character after ``data``, which follows the unfinished character ``pending``.

    Empty when all is whole. None when they can be no text, whatever follows, or have a broken one in them.
    """
    combined = pending + data
    try:
        text, num_bytes = codecs.utf_8_decode(combined, "strict", False)
    except UnicodeDecodeError:
        return None
    rest = combined[num_bytes:]
    # Python waits for the third byte of half a surrogate pair, which is no character.
    is_surrogate = rest[:1] == b"\xed" and rest[1:2] >= b"\xa0"
    return None if is_surrogate or is_broken_text(text) else rest
