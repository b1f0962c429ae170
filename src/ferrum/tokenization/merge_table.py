"""The merges that a vocabulary with scores stands for, in order of rank, and their cache on disk.

SentencePiece may join any two neighbours whose union is a token, best score first. Of the several ways to
cut a token in two, only one is ever used: as long as nothing joins across a token's ends, what happens
between them does not depend on the text around, so it is what happens when the token's text is merged
alone. The table holds that one merge per token (half of all candidates), which halves the time to load it.

Finding them takes seconds for 262,144 tokens, so they are kept in a file named by the digest of the
vocabulary. A cache file that cannot be used is built again; one that cannot be written is only slower next
time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ferrum.core.collector_pause import collector_paused
from ferrum.tokenization.vocabulary import Vocabulary

# Part of every digest: change it when the meaning or the order of the table changes.
_FORMAT = b"merges-2"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergeTable:
    """Merge i joins tokens ``left[i]`` and ``right[i]``; lower i goes first."""

    left: list[int]
    right: list[int]


def load_or_build_merges(vocabulary: Vocabulary, cache_directory: Path | None) -> MergeTable:
    """The table, from the cache where it is there. Never raises for the cache's sake."""
    if cache_directory is None:
        return _table(build_merges(vocabulary))
    path = cache_directory / f"{_digest(vocabulary)}.npy"
    pairs = _load(path, vocabulary.size)
    if pairs is None:
        pairs = build_merges(vocabulary)
        _save(path, pairs)
    return _table(pairs)


def build_merges(vocabulary: Vocabulary) -> NDArray[np.int32]:
    """Pairs of token ids in order of rank: [num_merges, 2].

    Ties in score go to the lower id of the result.
    """
    assert vocabulary.scores is not None
    ids = vocabulary.ordinary_ids
    order = np.lexsort((np.arange(vocabulary.size), -vocabulary.scores.astype(np.float64)))
    ranks = np.empty(vocabulary.size, dtype=np.int64)
    ranks[order] = np.arange(vocabulary.size)
    with collector_paused():
        splits = _Splits(vocabulary.tokens, ids, ranks.tolist()).find()
    merged = sorted(splits, key=ranks.__getitem__)
    pairs = [splits[token_id] for token_id in merged]
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


class _Splits:
    """Finds how each token arises: token id -> ids of its left and right part. Shorter tokens come first."""

    def __init__(self, tokens: Sequence[str], ids: Mapping[str, int], ranks: Sequence[int]) -> None:
        self._tokens = tokens
        self._ids = ids
        self._ranks = ranks
        self._splits: dict[int, tuple[int, int]] = {}

    def find(self) -> dict[int, tuple[int, int]]:
        for text in sorted(self._ids, key=len):
            candidates = self._candidates(text)
            token_id = self._ids[text]
            # A token with one candidate is not checked: if it cannot arise, its merge never happens either.
            if len(candidates) == 1:
                self._splits[token_id] = candidates[0]
                continue
            for left, right in candidates:
                if self._stay_apart(left, right):
                    self._splits[token_id] = (left, right)
                    break
        return self._splits

    def _candidates(self, text: str) -> list[tuple[int, int]]:
        find = self._ids.get
        found = []
        for cut in range(1, len(text)):
            left = find(text[:cut])
            if left is not None:
                right = find(text[cut:])
                if right is not None and self._can_arise(left) and self._can_arise(right):
                    found.append((left, right))
        return found

    def _can_arise(self, token_id: int) -> bool:
        return token_id in self._splits or len(self._tokens[token_id]) == 1

    def _stay_apart(self, left: int, right: int) -> bool:
        """Whether nothing joins across the border of two tokens before they are joined.

        Walks back in time: undoes the later made of the two tokens at the border, and asks each time whether
        the two parts that then meet would have joined earlier. On equal rank the leftmost merge goes first.
        """
        ranks, splits, tokens = self._ranks, self._splits, self._tokens
        while True:
            left_split, right_split = splits.get(left), splits.get(right)
            if right_split is not None and (left_split is None or ranks[right] >= ranks[left]):
                limit = ranks[right] + 1
                right = right_split[0]
            elif left_split is not None:
                limit = ranks[left]
                left = left_split[1]
            else:
                return True
            joined = self._ids.get(tokens[left] + tokens[right])
            if joined is not None and ranks[joined] < limit:
                return False


def _table(pairs: NDArray[np.int32]) -> MergeTable:
    return MergeTable(left=pairs[:, 0].tolist(), right=pairs[:, 1].tolist())


def _digest(vocabulary: Vocabulary) -> str:
    assert vocabulary.scores is not None
    digest = hashlib.blake2b(_FORMAT, digest_size=20)
    digest.update("\0".join(vocabulary.tokens).encode("utf-8", "surrogateescape"))
    digest.update(vocabulary.types.astype("<i8").tobytes())
    digest.update(vocabulary.scores.astype("<f4").tobytes())
    return digest.hexdigest()


def _load(path: Path, vocab_size: int) -> NDArray[np.int32] | None:
    try:
        pairs = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError):
        _LOGGER.warning("tokenizer cache %s cannot be read and is built again", path)
        return None
    is_sound = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype == np.int32
    if not is_sound or (pairs.size and not 0 <= pairs.min() <= pairs.max() < vocab_size):
        _LOGGER.warning("tokenizer cache %s is damaged and is built again", path)
        return None
    return np.asarray(pairs, dtype=np.int32)


def _save(path: Path, pairs: NDArray[np.int32]) -> None:
    """Writes beside and renames, so that a second process never reads half a file."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
            temporary = file.name
            np.save(file, pairs, allow_pickle=False)
        os.replace(temporary, path)
    except OSError as error:
        _LOGGER.warning("tokenizer cache %s cannot be written: %s", path, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
