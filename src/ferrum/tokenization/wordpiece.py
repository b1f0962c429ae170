"""WordPiece from GGUF metadata (`tokenizer.ggml.model` = "bert"): greedy longest match inside words.

Source: Devlin et al. 2018. GGUF files write "▁word" for a token that starts a word and "piece" for one that
continues it, where BERT itself writes "word" and "##piece".
"""

from __future__ import annotations

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from ferrum.core.errors import TokenizerError
from ferrum.tokenization.sentencepiece_bpe import SPACE
from ferrum.tokenization.text_encoder import TextEncoder
from ferrum.tokenization.vocabulary import Vocabulary

_CONTINUATION = "##"
_LONGEST_WORD = 100


def build_wordpiece_encoder(vocabulary: Vocabulary, unknown_id: int | None) -> TextEncoder:
    """Lower-cases and strips accents, as GGUF BERTs do. Raises TokenizerError without unknown token."""
    if unknown_id is None:
        raise TokenizerError(
            "tokenizer.ggml.unknown_token_id", "a WordPiece vocabulary needs an unknown token"
        )
    unknown = vocabulary.tokens[unknown_id]
    ids = {_bert_text(text): token_id for text, token_id in vocabulary.ordinary_ids.items()}
    # Not in BERT's spelling, so that no word of the text can be this token by its own name.
    ids[f"{SPACE}{unknown}"] = unknown_id
    model = models.WordPiece(
        ids,
        unk_token=f"{SPACE}{unknown}",
        max_input_chars_per_word=_LONGEST_WORD,
        continuing_subword_prefix=_CONTINUATION,
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return TextEncoder(at_start=backend, after_token=backend)


def _bert_text(text: str) -> str:
    return text.removeprefix(SPACE) if text.startswith(SPACE) else _CONTINUATION + text
