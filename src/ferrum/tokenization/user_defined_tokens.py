"""User-defined tokens: texts that are cut out of ordinary text whole, longest first, before any merging."""

from __future__ import annotations

import tokenizers

from ferrum.tokenization.vocabulary import Vocabulary


def add_user_defined_tokens(backend: tokenizers.Tokenizer, vocabulary: Vocabulary) -> None:
    """They are matched in the text as written, without normalisation."""
    texts = list(vocabulary.user_defined_ids)
    if texts:
        backend.add_tokens([tokenizers.AddedToken(text, normalized=False, special=False) for text in texts])
