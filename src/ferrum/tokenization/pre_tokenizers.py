"""How byte-level BPE vocabularies cut text into words, by the name in `tokenizer.ggml.pre`.

A table of facts from the models' published tokenizer.json files: the regular expressions that are applied one
after the other (each cuts further what the one before left), and the Unicode normalisation before them.
An unknown name is an error: cutting with the wrong expression loads fine and silently costs quality.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from ferrum.core.errors import TokenizerError

PRE_KEY = "tokenizer.ggml.pre"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENGLISH_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENGLISH_SUFFIXES}|{_WORD}|\p{{N}}{{1,3}}|{_PUNCTUATION}|{_SPACES}"
_QWEN2 = rf"{_ENGLISH_SUFFIXES}|{_WORD}|\p{{N}}|{_PUNCTUATION}|{_SPACES}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_PUNCTUATION_AND_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_HEAD}{_UPPER}*{_LOWER}+|{_HEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_PUNCTUATION_AND_SLASH}|{_SPACES}"
_GPT4O = (
    rf"{_HEAD}{_UPPER}*{_LOWER}+{_ENGLISH_SUFFIXES}?|{_HEAD}{_UPPER}+{_LOWER}*{_ENGLISH_SUFFIXES}?"
    rf"|\p{{N}}{{1,3}}|{_PUNCTUATION_AND_SLASH}|{_SPACES}"
)
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_SINGLE_DIGITS = r"\p{N}"
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``patterns`` are applied in order; ``is_nfc`` composes characters first.

    ``has_whole_words`` looks a word up before merging it; ``adds_bos`` holds when the file does not say.
    """

    patterns: tuple[str, ...]
    is_nfc: bool = False
    has_whole_words: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Cuts by every pattern and maps bytes to the byte-level alphabet."""
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*splits, byte_level])

    def build_normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.is_nfc else None


_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_COMPOSED_GPT2 = PreTokenizer((_GPT2,), is_nfc=True)
_DIGITS_GPT2 = PreTokenizer((_SINGLE_DIGITS, _GPT2))
_LLAMA3_WORDS = PreTokenizer((_LLAMA3,), has_whole_words=True, adds_bos=True)
_CL100K = PreTokenizer((_LLAMA3,))
_COMPOSED_QWEN2 = PreTokenizer((_QWEN2,), is_nfc=True)
_O200K = PreTokenizer((_GPT4O,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _PLAIN_GPT2,
    "gpt-2": _PLAIN_GPT2,
    "phi-2": _PLAIN_GPT2,
    "jais": _PLAIN_GPT2,
    "exaone4": _PLAIN_GPT2,
    "mpt": _COMPOSED_GPT2,
    "olmo": _COMPOSED_GPT2,
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "codeshell": _DIGITS_GPT2,
    "command-r": PreTokenizer((_SINGLE_DIGITS, _GPT2), is_nfc=True),
    "llama3": _LLAMA3_WORDS,
    "llama-v3": _LLAMA3_WORDS,
    "llama-bpe": _LLAMA3_WORDS,
    "falcon3": _LLAMA3_WORDS,
    "falcon-h1": _LLAMA3_WORDS,
    "pixtral": _LLAMA3_WORDS,
    "lfm2": _LLAMA3_WORDS,
    "dbrx": _CL100K,
    "smaug-bpe": _CL100K,
    "chatglm-bpe": _CL100K,
    "glm4": _CL100K,
    "qwen2": _COMPOSED_QWEN2,
    "deepseek-r1-qwen": _COMPOSED_QWEN2,
    "stablelm2": PreTokenizer((_QWEN2,)),
    "hunyuan": PreTokenizer((_QWEN2,)),
    "grok-2": PreTokenizer((_QWEN2,)),
    "deepseek-coder": PreTokenizer(_DEEPSEEK_CODER),
    "deepseek-v3": PreTokenizer(_DEEPSEEK_V3),
    "falcon": PreTokenizer(_FALCON),
    "tekken": PreTokenizer((_TEKKEN,), has_whole_words=True, adds_bos=True),
    "gpt-4o": _O200K,
    "llama4": _O200K,
    "bloom": PreTokenizer((_BLOOM,)),
    "poro-chat": PreTokenizer((_BLOOM,)),
    "gpt3-finnish": PreTokenizer((_BLOOM,)),
    "viking": PreTokenizer((_BLOOM, _SINGLE_DIGITS)),
}

_LOGGER = logging.getLogger(__name__)


def find_pre_tokenizer(name: str | None) -> PreTokenizer:
    """The pre-tokenizer of that name. Raises TokenizerError for one that the table does not hold.

    None (an old file without the key) and "default" (its converter did not recognise the model) say nothing
    about the model: GPT-2's expression is used and a warning says that token ids may be wrong.
    """
    if name is None or name == "default":
        found = "is missing" if name is None else "is 'default'"
        _LOGGER.warning(
            "%s %s: cutting words as GPT-2 does; if the model was trained otherwise its answers are worse, "
            "so prefer a file converted with a recent converter",
            PRE_KEY,
            found,
        )
        return PRE_TOKENIZERS["default"]
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise TokenizerError(PRE_KEY, f"no pre-tokenizer named {name!r} is known; there are: {known}")
    return PRE_TOKENIZERS[name]
