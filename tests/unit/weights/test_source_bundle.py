from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from ferrum.core.errors import MalformedCheckpoint, ModelNotFound
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.source_bundle import SourceRole, bundle_of_checkpoint, bundle_of_folder
from tiny_models import write_tiny_llama

FILES = {
    "config.json": "{}",
    "tokenizer.json": "{ }",
    "tokenizer_config.json": "[]",
    "model-00001-of-00002.safetensors": "weights one",
    "model-00002-of-00002.safetensors": "weights two",
    "README.md": "nothing of the model",
}


def _folder(path: Path, **changes: str | None) -> Path:
    """A Hugging Face folder; a change to None leaves the file out."""
    path.mkdir(parents=True, exist_ok=True)
    named = {key.replace("__", "."): text for key, text in changes.items()}
    for name, text in (FILES | named).items():
        if text is not None:
            (path / name).write_text(text)
    return path


def test_each_file_has_its_role(tmp_path: Path) -> None:
    bundle = bundle_of_folder(_folder(tmp_path), None)
    names = {role: [file.path.name for file in bundle.of_role(role)] for role in SourceRole}
    assert names == {
        SourceRole.SEMANTICS: ["config.json"],
        SourceRole.TOKENIZER: ["tokenizer.json", "tokenizer_config.json"],
        SourceRole.WEIGHTS: ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    }
    assert bundle.root == tmp_path
    assert bundle.weight_bytes == len("weights one") + len("weights two")


def test_equal_files_have_equal_fingerprints_wherever_they_lie(tmp_path: Path) -> None:
    one, other = _folder(tmp_path / "one"), _folder(tmp_path / "other")
    cached = bundle_of_folder(other, tmp_path / "cache")
    assert bundle_of_folder(one, None).fingerprint == cached.fingerprint
    assert bundle_of_folder(other, tmp_path / "cache") == cached


@pytest.mark.parametrize("name", [name for name in FILES if name != "README.md"])
def test_every_byte_of_every_file_counts(tmp_path: Path, name: str) -> None:
    before = bundle_of_folder(_folder(tmp_path), tmp_path / "cache").fingerprint
    text = FILES[name]
    (tmp_path / name).write_text(text[:-1] + chr(ord(text[-1]) + 1))
    assert bundle_of_folder(tmp_path, tmp_path / "cache").fingerprint != before


def test_a_bundle_does_not_change(tmp_path: Path) -> None:
    bundle = bundle_of_folder(_folder(tmp_path), None)
    with pytest.raises(FrozenInstanceError):
        bundle.files = ()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = _folder(tmp_path, **{name.replace(".", "__"): None})
    with pytest.raises(ModelNotFound, match=rf"needs {name} in"):
        bundle_of_folder(folder, None)


def test_a_folder_without_shards_is_no_model(tmp_path: Path) -> None:
    shards = {name.replace(".", "__"): None for name in FILES if name.endswith("safetensors")}
    with pytest.raises(ModelNotFound, match=r"needs \*\.safetensors in"):
        bundle_of_folder(_folder(tmp_path, **shards), None)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model-00001-of-00002.safetensors"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MalformedCheckpoint, match=rf"{name}: is empty"):
        bundle_of_folder(_folder(tmp_path, **{name.replace(".", "__"): ""}), None)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_text("GGUF")
    with pytest.raises(ModelNotFound, match="this is none"):
        bundle_of_folder(file, None)


def test_a_checkpoint_is_a_bundle_of_its_weights(tmp_path: Path) -> None:
    with open_checkpoint(write_tiny_llama(tmp_path / "m.gguf")) as checkpoint:
        bundle = bundle_of_checkpoint(checkpoint, None)
        digest = checkpoint.digest()
    (file,) = bundle.of_role(SourceRole.WEIGHTS)
    assert (file.path, file.num_bytes) == (tmp_path / "m.gguf", (tmp_path / "m.gguf").stat().st_size)
    assert bundle.files == (file,)
    assert hashlib.sha256(file.digest.encode()).hexdigest() == digest
