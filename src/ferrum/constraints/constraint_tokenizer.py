"""The model's vocabulary as the grammar engine wants it, made of any of our tokenizers. Built once, late."""

from __future__ import annotations

import threading

from llguidance import LLTokenizer, TokenizerWrapper

from ferrum.constraints.vocabulary_tokenizer import VocabularyTokenizer
from ferrum.core.errors import FerrumError, InternalError

_CUT_ENTRIES = 4096


class ConstraintTokenizer:
    """Makes the engine's tokenizer when it is first asked for, and keeps it, or the error.

    It costs as much as reading the whole vocabulary: about 0.2 s for 50,000 tokens. Safe to share.
    """

    def __init__(self, tokenizer: VocabularyTokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._made: LLTokenizer | FerrumError | None = None

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def get(self) -> LLTokenizer:
        """Raises InternalError when it cannot be made, each time the same."""
        with self._lock:
            if self._made is None:
                try:
                    self._made = _make(self._tokenizer)
                except Exception as error:
                    self._made = InternalError(f"the structured-output runtime is not available: {error}")
                    self._made.__cause__ = error
            if isinstance(self._made, FerrumError):
                raise self._made
            return self._made

    def delimiter_id(self, text: str) -> int | None:
        """The control token that is spelled so, if there is one."""
        data = text.encode()
        ids = [each for each in self._tokenizer.control_ids if self._tokenizer.token_bytes(each) == data]
        return min(ids, default=None)

    @property
    def end_ids(self) -> frozenset[int]:
        return frozenset(self._tokenizer.eos_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)


class _Vocabulary:
    """The attributes that TokenizerWrapper reads: tokens' bytes, special ids; called, it cuts text."""

    def __init__(self, tokenizer: VocabularyTokenizer) -> None:
        size = tokenizer.vocab_size
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(size)]
        # A token of its own ends the answer of a model that knows no end token; it is cut off every mask.
        self.eos_token_ids = sorted(tokenizer.eos_ids) or [size]
        if not tokenizer.eos_ids:
            self.tokens.append(b"<end>")
        self.eos_token_id = self.eos_token_ids[0]
        self.bos_token_id: int | None = None
        self.special_token_ids = sorted({*tokenizer.control_ids, *self.eos_token_ids})
        self._tokenizer = tokenizer
        self._cut: dict[bytes, list[int]] = {}
        self._ids = {data: token_id for token_id, data in enumerate(self.tokens) if len(data) == 1}

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids whose bytes are exactly these. Asked for text that a grammar forces."""
        data = text if isinstance(text, bytes) else text.encode()
        # Answers of one schema ask for the same names again and again.
        ids = self._cut.get(data)
        if ids is None:
            if len(self._cut) >= _CUT_ENTRIES:
                self._cut.clear()
            ids = self._cut[data] = self._encode_exactly(data)
        return ids

    def _encode_exactly(self, data: bytes) -> list[int]:
        ids = self._encode_inside(data.decode("utf-8", "replace"))
        if b"".join(self.tokens[token_id] for token_id in ids) == data:
            return ids
        return [self._ids[bytes([byte])] for byte in data if bytes([byte]) in self._ids]

    def _encode_inside(self, text: str) -> list[int]:
        """As text is cut that follows other text: after a line's end where the start gets a space."""
        if not self._tokenizer.has_dummy_prefix:
            return self._tokenizer.encode(text)
        ids = self._tokenizer.encode("\n" + text)
        ends = [index for index, token_id in enumerate(ids) if self.tokens[token_id].endswith(b"\n")]
        return ids[ends[0] + 1 :] if ends else ids


def _make(tokenizer: VocabularyTokenizer) -> LLTokenizer:
    vocabulary = _Vocabulary(tokenizer)
    wrapper = TokenizerWrapper(vocabulary)
    return LLTokenizer(wrapper, n_vocab=len(vocabulary.tokens), eos_token=vocabulary.eos_token_ids)
