"""Text to token ids and back; a user's text never becomes a control token.

Three ways in: ``encode`` for a user's words, ``encode_prompt`` for a raw completion with its beginning token,
``encode_with_control_tokens`` for text that a chat template wrote. Two ways out: ``decode`` leaves control
tokens out, ``decode_with_control_tokens`` writes them. Built by gguf_tokenizer.py and tokenizer_json.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ferrum.tokenization.control_tokens import ControlTokens
from ferrum.tokenization.special_tokens import SpecialTokens
from ferrum.tokenization.text_encoder import TextEncoder


@dataclass(frozen=True, slots=True)
class TokenizerParts:
    """What a vocabulary format provides.

    ``bytes_of`` gives the exact bytes of an id below ``vocab_size``. ``has_dummy_prefix``: the vocabulary
    writes a space before the first word of a text, which decoding takes away again. ``bos_keeps_start``:
    text after the beginning token still counts as the start of the prompt. ``unused_ids`` stand for nothing.
    """

    encoder: TextEncoder
    bytes_of: Callable[[int], bytes]
    control_tokens: ControlTokens
    control_ids: frozenset[int]
    special: SpecialTokens
    id_of: Callable[[str], int | None]
    vocab_size: int
    has_dummy_prefix: bool
    bos_keeps_start: bool
    chat_template: str | None
    unused_ids: frozenset[int] = frozenset()


class Tokenizer:
    """A vocabulary in use. Mutates only its cache of token bytes; safe to share between threads."""

    def __init__(self, parts: TokenizerParts) -> None:
        self._parts = parts
        self._token_bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        return self._parts.vocab_size

    @property
    def bos_id(self) -> int | None:
        return self._parts.special.bos_id

    @property
    def adds_bos(self) -> bool:
        """Whether prompts of this model begin with the beginning token."""
        return self._parts.special.adds_bos

    @property
    def eos_ids(self) -> frozenset[int]:
        """Every id that ends an answer, from all sources."""
        return self._parts.special.eos_ids

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that carry no text: control tokens and the unknown token."""
        return self._parts.control_ids

    @property
    def role_ids(self) -> frozenset[int]:
        """Beginning, unknown, padding, separator, class and mask tokens."""
        return self._parts.special.role_ids

    @property
    def unused_ids(self) -> frozenset[int]:
        """Ids below ``vocab_size`` that stand for nothing: no text, or a filler's."""
        return self._parts.unused_ids

    @property
    def control_tokens(self) -> ControlTokens:
        return self._parts.control_tokens

    @property
    def chat_template(self) -> str | None:
        """The Jinja source the model came with."""
        return self._parts.chat_template

    @property
    def has_dummy_prefix(self) -> bool:
        """Whether decoding takes away one space at the beginning of a text."""
        return self._parts.has_dummy_prefix

    @property
    def special_texts(self) -> dict[str, str]:
        """bos_token, eos_token, unk_token, pad_token as chat templates name them; "" where there is none."""
        special = self._parts.special
        named = {
            "bos_token": special.bos_id,
            "eos_token": special.eos_id,
            "unk_token": special.unknown_id,
            "pad_token": special.padding_id,
        }
        return {name: "" if token_id is None else self._text_of(token_id) for name, token_id in named.items()}

    def token_id(self, text: str) -> int | None:
        """The id of the token that the vocabulary spells exactly so, control tokens included."""
        return self._parts.id_of(text)

    def encode(self, text: str) -> list[int]:
        """A user's text, never a control token. Raises InvalidRequest for half a surrogate pair."""
        return self._parts.encoder.encode_at_start(text)

    def encode_continuation(self, text: str) -> list[int]:
        """A user's text that goes on with another. Raises InvalidRequest for half a surrogate pair."""
        return self._parts.encoder.encode_after_token(text)

    def encode_prompt(self, text: str) -> list[int]:
        """A raw prompt with what the model puts around it, the beginning token exactly once.

        Text that already begins with the beginning token's text means that very token: it is not added a
        second time, nor read as words. Everywhere else control-token texts stay ordinary text.
        """
        special = self._parts.special
        if special.adds_bos:
            text = text.removeprefix(self.special_texts["bos_token"])
        return [*special.prompt_prefix, *self.encode(text), *special.prompt_suffix]

    def encode_with_control_tokens(self, text: str) -> list[int]:
        """Text written by a template: control tokens in it become their ids, the rest is ordinary text."""
        return self.encode_marked(text, marker="")

    def encode_marked(self, text: str, marker: str) -> list[int]:
        """As encode_with_control_tokens, with ``marker`` taken out of the text between control tokens.

        A marker inside a control token's text keeps that text ordinary.
        """
        ids: list[int] = []
        position = 0
        strips_left_of_piece = False
        for match in self._parts.control_tokens.matches(text):
            piece = text[position : match.start]
            if strips_left_of_piece:
                piece = piece.lstrip()
            if match.token.strips_left:
                piece = piece.rstrip()
            self._append_piece(ids, piece, marker)
            ids.append(match.token.token_id)
            position = match.end
            strips_left_of_piece = match.token.strips_right
        rest = text[position:]
        self._append_piece(ids, rest.lstrip() if strips_left_of_piece else rest, marker)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids without control tokens; bytes that are not UTF-8 become U+FFFD."""
        controls = self._parts.control_ids
        return self._text(b"".join(self.token_bytes(i) for i in ids if i not in controls))

    def decode_with_control_tokens(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens written out."""
        is_start = self._parts.bos_keeps_start and list(ids[:1]) == [self.bos_id]
        head, rest = (ids[:1], ids[1:]) if is_start else ((), ids)
        return self._text(b"".join(map(self.token_bytes, head))) + self._text(
            b"".join(map(self.token_bytes, rest))
        )

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token: half a character where the token is half a character.

        Empty for ids from ``vocab_size`` up: some models' output layer is padded beyond their vocabulary.
        """
        known = self._token_bytes.get(token_id)
        if known is None:
            known = self._parts.bytes_of(token_id) if 0 <= token_id < self._parts.vocab_size else b""
            self._token_bytes[token_id] = known
        return known

    def _append_piece(self, ids: list[int], piece: str, marker: str) -> None:
        if marker:
            piece = piece.replace(marker, "")
        encoder = self._parts.encoder
        is_start = not ids or (self._parts.bos_keeps_start and ids == [self._parts.special.bos_id])
        ids += encoder.encode_at_start(piece) if is_start else encoder.encode_after_token(piece)

    def _text(self, data: bytes) -> str:
        if self._parts.has_dummy_prefix:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def _text_of(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("utf-8", "replace")
