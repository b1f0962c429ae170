"""The tokens a vocabulary gives a role: beginning, end, unknown, padding. Knows nothing of text encoding."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.metadata import TokenizerMetadata
from ferrum.tokenization.vocabulary import TokenType, Vocabulary

_PREFIX = "tokenizer.ggml."

# Texts that end a turn or a document wherever they are control tokens, whatever end token the file names.
END_OF_TURN_TEXTS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "</s>",
)


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """``prompt_prefix`` and ``prompt_suffix`` are put around a raw prompt (beginning token, separators).

    ``other_ids``: separator, class and mask tokens, which models that read texts have.
    """

    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    padding_id: int | None
    eos_ids: frozenset[int]
    prompt_prefix: tuple[int, ...] = ()
    prompt_suffix: tuple[int, ...] = ()
    other_ids: frozenset[int] = frozenset()

    @property
    def role_ids(self) -> frozenset[int]:
        """Every token with a role but the end tokens."""
        named = (self.bos_id, self.unknown_id, self.padding_id)
        return self.other_ids.union(token_id for token_id in named if token_id is not None)

    @property
    def adds_bos(self) -> bool:
        return self.bos_id is not None and self.bos_id in self.prompt_prefix


@dataclass(frozen=True, slots=True)
class PromptDefaults:
    """What a kind of vocabulary puts around a prompt when its file does not say."""

    adds_bos: bool
    adds_eos: bool = False
    adds_separator: bool = False


def read_special_tokens(
    metadata: TokenizerMetadata, vocabulary: Vocabulary, defaults: PromptDefaults
) -> SpecialTokens:
    """Raises TokenizerError naming the key of an id outside the vocabulary."""
    bos = _read_id(metadata, "bos_token_id", vocabulary.size)
    if bos is None:
        bos = _read_id(metadata, "cls_token_id", vocabulary.size)
    eos = _read_id(metadata, "eos_token_id", vocabulary.size)
    separator = _read_id(metadata, "seperator_token_id", vocabulary.size)  # The specification's spelling.
    ends = {eos, *(_read_id(metadata, f"{name}_token_id", vocabulary.size) for name in ("eot", "eom"))}
    controls = {
        vocabulary.tokens[token_id]: token_id for token_id in vocabulary.ids_of_type(TokenType.CONTROL)
    }
    prefix = [bos] if bos is not None and _read_flag(metadata, "add_bos_token", defaults.adds_bos) else []
    suffix = [eos] if eos is not None and _read_flag(metadata, "add_eos_token", defaults.adds_eos) else []
    if separator is not None and _read_flag(metadata, "add_sep_token", defaults.adds_separator):
        suffix.append(separator)
    return SpecialTokens(
        bos_id=bos,
        eos_id=eos,
        unknown_id=_read_id(metadata, "unknown_token_id", vocabulary.size),
        padding_id=_read_id(metadata, "padding_token_id", vocabulary.size),
        eos_ids=frozenset(end for end in ends if end is not None) | end_of_turn_ids(controls),
        prompt_prefix=tuple(prefix),
        prompt_suffix=tuple(suffix),
        other_ids=frozenset(
            token_id
            for name in ("seperator_token_id", "cls_token_id", "mask_token_id")
            if (token_id := _read_id(metadata, name, vocabulary.size)) is not None
        ),
    )


def with_control_ends(vocabulary: Vocabulary) -> Vocabulary:
    """The same, its ends of turns control tokens even where the file calls them user-defined, as some do.

    Otherwise answers would not end, and a user's text could write one. "</s>" stays what it is: vocabularies
    with HTML tags have it for struck-out text.
    """
    ends = [
        token_id
        for token_id in vocabulary.ids_of_type(TokenType.USER_DEFINED)
        if is_end_of_turn(vocabulary.tokens[token_id])
    ]
    if not ends:
        return vocabulary
    types = vocabulary.types.copy()
    types[ends] = TokenType.CONTROL
    return replace(vocabulary, types=types)


def is_end_of_turn(text: str) -> bool:
    """Whether a token spelled so can mean nothing but the end, whatever its type."""
    return text in END_OF_TURN_TEXTS and text != "</s>"


def end_of_turn_ids(controls: dict[str, int]) -> frozenset[int]:
    """Ids of the control tokens whose text is known to end a turn."""
    return frozenset(controls[text] for text in _end_texts(controls.keys()))


def _end_texts(texts: Collection[str]) -> list[str]:
    found = [text for text in END_OF_TURN_TEXTS if text in texts]
    # In vocabularies with <|return|>, <|end|> closes a channel and the answer goes on after it.
    if "<|end|>" in texts and "<|return|>" not in texts:
        found.append("<|end|>")
    return found


def _read_id(metadata: TokenizerMetadata, name: str, vocab_size: int) -> int | None:
    key = _PREFIX + name
    if key not in metadata:
        return None
    token_id = metadata.get_int(key)
    if not 0 <= token_id < vocab_size:
        raise TokenizerError(key, f"the id is {token_id}, but the vocabulary has {vocab_size} tokens")
    return token_id


def _read_flag(metadata: TokenizerMetadata, name: str, default: bool) -> bool:
    key = _PREFIX + name
    return metadata.get_bool(key) if key in metadata else default
