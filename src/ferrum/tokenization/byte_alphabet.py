"""The printable alphabet in which byte-level BPE writes bytes (GPT-2's `bytes_to_unicode`).

Bytes that are printable Latin-1 stand for themselves; the other 68 are written as U+0100 and up, in order.
"""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _alphabet()
CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}


def bytes_of_token(text: str) -> bytes:
    """The bytes that a byte-level token stands for; text outside the alphabet stands for itself in UTF-8."""
    try:
        return bytes([BYTE_OF_CHARACTER[character] for character in text])
    except KeyError:
        return text.encode("utf-8", "surrogateescape")
