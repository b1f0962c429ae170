"""User-defined tokens: texts that are cut out whole before any merging, leftmost first, then longest."""

from __future__ import annotations

import tokenizers

from ferrum.tokenization.vocabulary import Vocabulary


def match_in_written_text(backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """Adds the vocabulary's user-defined tokens, to be found in the text before it is normalised."""
    _add(backend, vocabulary, is_normalized=False)


def match_in_normalized_text(backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """Adds them to be found after normalisation, which their own texts go through too."""
    _add(backend, vocabulary, is_normalized=True)


def _add(backend: tokenizers.Tokenizer, vocabulary: Vocabulary, is_normalized: bool) -> None:
    texts = vocabulary.user_defined_ids
    if texts:
        backend.add_tokens([tokenizers.AddedToken(text, normalized=is_normalized) for text in texts])
