"""Tokenizers written straight from their definitions, to compare the real ones with."""

import itertools
import unicodedata
from collections.abc import Mapping, Sequence

# Unicode's White_Space property, which is what \s means in the models' expressions.
_WHITE_SPACE = frozenset(
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_SUFFIXES = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def split_single_digits(text: str) -> list[str]:
    """Every numeric character alone, the text between as it is."""
    pieces = [""]
    for character in text:
        if _is_number(character):
            pieces += [character, ""]
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece]


def split_gpt2_words(text: str) -> list[str]:
    """GPT-2's alternatives, tried in order at every position (Radford et al. 2019, `encoder.py`)."""
    words, position = [], 0
    while position < len(text):
        end = _word_end(text, position)
        words.append(text[position:end])
        position = end
    return words


def _word_end(text: str, start: int) -> int:
    for suffix in _SUFFIXES:
        if text.startswith(suffix, start):
            return start + len(suffix)
    after_space = start + (text[start] == " ")
    for belongs in (_is_letter, _is_number, _is_other):
        end = _run_end(text, after_space, belongs)
        if end > after_space:
            return end
    end = _run_end(text, start, _is_space)
    # White space before a word leaves its last character to the word.
    return end - 1 if end < len(text) and end - start > 1 else end


def _run_end(text, start, belongs):
    while start < len(text) and belongs(text[start]):
        start += 1
    return start


def _is_letter(character: str) -> bool:
    return unicodedata.category(character).startswith("L")


def _is_number(character: str) -> bool:
    return unicodedata.category(character).startswith("N")


def _is_space(character: str) -> bool:
    return character in _WHITE_SPACE


def _is_other(character: str) -> bool:
    return not (_is_letter(character) or _is_number(character) or _is_space(character))


def merge_by_rank(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding (Sennrich et al. 2016): the pair of lowest rank is merged everywhere, repeatedly."""
    while True:
        pairs = [(ranks[pair], pair) for pair in itertools.pairwise(symbols) if pair in ranks]
        if not pairs:
            return symbols
        _, (left, right) = min(pairs)
        merged: list[str] = []
        for symbol in symbols:
            # A pair is found left to right, so its left half must not be the result of the merge before it.
            if merged and merged[-1] == left and symbol == right:
                merged[-1] = "\0"
            else:
                merged.append(symbol)
        symbols = [left + right if symbol == "\0" else symbol for symbol in merged]


def merge_by_score(symbols: list[str], scores: Mapping[str, float]) -> list[str]:
    """SentencePiece's BPE: join the neighbours whose union scores best, leftmost first, one at a time."""
    symbols = list(symbols)
    while True:
        best, where = None, -1
        for index in range(len(symbols) - 1):
            score = scores.get(symbols[index] + symbols[index + 1])
            if score is not None and (best is None or score > best):
                best, where = score, index
        if best is None:
            return symbols
        symbols[where : where + 2] = [symbols[where] + symbols[where + 1]]


def cut_out_longest(text: str, whole: Sequence[str]) -> list[tuple[str, bool]]:
    """Pieces of the text with whether each is one of ``whole``: leftmost first, then longest."""
    pieces: list[tuple[str, bool]] = []
    position = start = 0
    by_length = sorted(whole, key=len, reverse=True)
    while position < len(text):
        found = next((item for item in by_length if text.startswith(item, position)), None)
        if found is None:
            position += 1
            continue
        if start < position:
            pieces.append((text[start:position], False))
        pieces.append((found, True))
        position = start = position + len(found)
    if start < len(text):
        pieces.append((text[start:], False))
    return pieces
