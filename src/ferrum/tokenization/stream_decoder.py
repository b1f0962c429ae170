"""Token ids to text, one at a time. Works on bytes: the deltas joined equal decoding all ids at once."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import Protocol


class DecodingTokenizer(Protocol):
    """What decoding asks of a tokenizer; see Tokenizer."""

    @property
    def control_ids(self) -> Collection[int]: ...
    @property
    def has_dummy_prefix(self) -> bool: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class StreamDecoder:
    """Decodes one answer. Mutates its pending bytes with every push; used by one request.

    Control tokens give no text, unless ``shows_control_tokens``: then they are written out. An incomplete
    character is held back until its last byte arrives; bytes that can no longer become a character turn into
    U+FFFD at once, a dangling tail does at flush().

    ``preceding_ids`` are the tokens the answer follows where it goes on in the middle of a text (a raw
    completion): its first space is then a real one and is kept. Without them the answer is a text of its own.
    """

    __slots__ = ("_drops_space", "_hidden_ids", "_is_pending", "_token_bytes", "_utf8")

    def __init__(
        self,
        tokenizer: DecodingTokenizer,
        preceding_ids: Sequence[int] = (),
        *,
        shows_control_tokens: bool = False,
    ) -> None:
        self._hidden_ids: Collection[int] = () if shows_control_tokens else tokenizer.control_ids
        self._token_bytes = tokenizer.token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._is_pending = False  # whether a character is unfinished
        follows_text = bool(preceding_ids) and preceding_ids[-1] not in tokenizer.control_ids
        self._drops_space = tokenizer.has_dummy_prefix and not follows_text

    def push(self, token_id: int) -> str:
        """The text that this token completes; often the token's own, sometimes none."""
        if token_id in self._hidden_ids:
            return ""
        data = self._token_bytes(token_id)
        if self._drops_space and data:
            data = data.removeprefix(b" ")
            self._drops_space = False
        if not self._is_pending and data.isascii():  # Mostly; the decoder takes four times as long.
            return data.decode("ascii")
        text = self._utf8.decode(data)
        self._is_pending = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """What is left when the answer ends: U+FFFD for an unfinished character, else nothing."""
        self._is_pending = False
        return self._utf8.decode(b"", final=True)
