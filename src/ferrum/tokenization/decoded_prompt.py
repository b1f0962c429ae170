"""A prompt's tokens as text, and where in it each of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ferrum.tokenization.stream_decoder import DecodingTokenizer, StreamDecoder


@dataclass(frozen=True, slots=True)
class DecodedPrompt:
    """``offsets``: for each token, the characters before its own, or before the one that it goes on with."""

    text: str
    offsets: tuple[int, ...]


def decode_prompt(
    tokenizer: DecodingTokenizer, prompt_ids: Sequence[int], *, shows_control_tokens: bool = False
) -> DecodedPrompt:
    """The text of all ``prompt_ids``; control tokens give none, unless they are to be shown."""
    decoder = StreamDecoder(tokenizer, shows_control_tokens=shows_control_tokens)
    pieces: list[str] = []
    offsets: list[int] = []
    num_characters = 0
    for token_id in prompt_ids:
        offsets.append(num_characters)
        pieces.append(decoder.push(token_id))
        num_characters += len(pieces[-1])
    pieces.append(decoder.flush())
    return DecodedPrompt("".join(pieces), tuple(offsets))
