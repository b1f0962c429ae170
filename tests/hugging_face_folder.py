"""A Hugging Face folder without real weights: what a tokenizer and a fake model need. No torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tiny_chat_model import TEMPLATE

CONTROLS = ("<|padding|>", "<|im_start|>", "<|im_end|>")
END_ID = 258
VOCABULARY = 259


def write_tokenizer(folder: Path, template: str | None = TEMPLATE) -> None:
    """A byte-level tokenizer: 256 bytes, then three control tokens, of which the last ends an answer."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(CONTROLS))
    backend.save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {"eos_token": "<|im_end|>"}
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_folder(folder: Path, config: dict[str, Any] | None = None) -> Path:
    """A whole folder, whose weights only a fake can read."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps(config or {}))
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    return folder
