"""Vocabularies of a few hundred tokens as GGUF metadata, one of each kind."""

from typing import Any

import numpy as np

from ferrum.tokenization.byte_alphabet import CHARACTER_OF_BYTE
from ferrum.weights.metadata import Metadata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_MERGES = [
    "h e",
    "l l",
    "he ll",
    "hell o",
    "Ġ w",
    "o r",
    "Ġw or",
    "l d",
    "Ġwor ld",
    "Ġ hello",
    "u s",
    "us e",
    "use r",
]


def byte_level_values(**changes: Any) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary: 3 control tokens, the bytes, 13 merges, one user-defined token."""
    merged = [entry.replace(" ", "") for entry in _MERGES]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens += [CHARACTER_OF_BYTE[byte] for byte in range(256)] + merged + ["<think>"]
    types = [CONTROL] * 3 + [NORMAL] * (256 + len(merged)) + [USER_DEFINED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array(types, dtype=np.int32),
        "tokenizer.ggml.merges": list(_MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **changes,
    }


def sentencepiece_values(**changes: Any) -> dict[str, Any]:
    """Metadata of a SentencePiece vocabulary with byte fallback: <unk> <s> </s>, bytes, pieces by score."""
    pieces = [
        "▁t",
        "he",
        "▁the",
        "in",
        "er",
        "▁hello",
        "▁h",
        "ell",
        "▁hell",
        "o▁",
        "lo",
        "el",
        "▁▁",
        "aa",
        "aaa",
    ]
    characters = list("▁helotinra!xyzse<>/|_")
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *pieces,
        *characters,
        "[UD]",
    ]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    types += [NORMAL] * (len(pieces) + len(characters)) + [USER_DEFINED]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(pieces))] + [-1000.0] * (len(characters) + 1)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, dtype=np.float32),
        "tokenizer.ggml.token_type": np.array(types, dtype=np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }


def metadata(values: dict[str, Any]) -> Metadata:
    """Values of None are left out."""
    return Metadata("tiny.gguf", {key: value for key, value in values.items() if value is not None})
