"""Checkpoints in several files, and folders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ferrum.core.errors import MalformedCheckpoint, ModelNotFound
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from gguf_factory import write_gguf


def tensor(value: float) -> tuple[TensorType, Any, tuple[int, ...]]:
    return TensorType.F32, np.full(8, value, np.float32), (8,)


def write_parts(folder: Path, count: int, *, stem: str = "model") -> list[Path]:
    paths = []
    for number in range(count):
        metadata: dict[str, Any] = {"split.no": np.uint16(number), "split.count": np.uint16(count)}
        if number == 0:
            metadata |= {"general.architecture": "llama", "split.tensors.count": np.int32(count)}
        path = folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        paths.append(write_gguf(path, metadata, {f"w{number}": tensor(number)}))
    return paths


@pytest.mark.parametrize("given", ["first", "last", "folder"])
def test_parts_are_read_as_one_checkpoint(tmp_path: Path, given: str) -> None:
    paths = write_parts(tmp_path, 3)
    argument = {"first": paths[0], "last": paths[2], "folder": tmp_path}[given]
    checkpoint = open_checkpoint(argument)
    assert checkpoint.architecture == "llama"
    assert checkpoint.files == tuple(paths)
    assert {name: dequantize(found)[0] for name, found in checkpoint.tensors.items()} == {
        "w0": 0.0,
        "w1": 1.0,
        "w2": 2.0,
    }


@pytest.mark.parametrize("given", ["part", "folder"])
def test_missing_parts_are_named(tmp_path: Path, given: str) -> None:
    paths = write_parts(tmp_path, 3)
    paths[0].unlink()
    paths[2].unlink()
    with pytest.raises(MalformedCheckpoint) as caught:
        open_checkpoint(paths[1] if given == "part" else tmp_path)
    assert "model-00001-of-00003.gguf, model-00003-of-00003.gguf" in str(caught.value)


def test_digest_of_a_split_checkpoint_covers_every_part(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, 2)
    before = open_checkpoint(paths[0]).digest()
    write_gguf(paths[1], {"split.no": np.uint16(1), "split.count": np.uint16(2)}, {"w1": tensor(5.0)})
    assert open_checkpoint(paths[0]).digest() != before


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"split.no": np.uint16(0), "split.count": np.uint16(2)}, "split.no"),
        ({"split.no": np.uint16(1), "split.count": np.uint16(3)}, "split.count"),
        ({"split.no": np.uint16(1), "split.count": "two"}, "split.count"),
        ({"split.count": np.uint16(2)}, "split.no"),
    ],
)
def test_a_part_that_contradicts_its_name_is_refused_by_key(
    tmp_path: Path, changed: dict[str, Any], key: str
) -> None:
    paths = write_parts(tmp_path, 2)
    write_gguf(paths[1], changed, {"w1": tensor(1.0)})
    with pytest.raises(MalformedCheckpoint, match=key):
        open_checkpoint(paths[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, 2)
    write_gguf(paths[1], {"split.no": np.uint16(1), "split.count": np.uint16(2)}, {"w0": tensor(1.0)})
    with pytest.raises(MalformedCheckpoint, match="'w0' is in an earlier part"):
        open_checkpoint(paths[0])


def test_a_wrong_total_of_tensors_is_refused(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, 2)
    write_gguf(paths[1], {"split.no": np.uint16(1), "split.count": np.uint16(2)}, {})
    with pytest.raises(MalformedCheckpoint, match=r"split\.tensors\.count"):
        open_checkpoint(paths[0])


def test_a_renamed_part_asks_for_its_original_name(tmp_path: Path) -> None:
    renamed = write_parts(tmp_path, 2)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(MalformedCheckpoint, match="00001-of-00002"):
        open_checkpoint(renamed)


def test_a_name_that_counts_wrongly_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m-00004-of-00003.gguf", {}, {})
    with pytest.raises(MalformedCheckpoint, match="part 4 of 3"):
        open_checkpoint(path)


def test_a_folder_with_one_model_stands_for_it_whatever_lies_beside(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "Model.GGUF", {"general.architecture": "llama"}, {})
    write_gguf(tmp_path / "mmproj-model.gguf", {"general.architecture": "clip"}, {})
    (tmp_path / "README.md").write_text("notes")
    assert open_checkpoint(tmp_path).files == (path,)


def test_a_folder_with_two_models_lists_them(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a.gguf", {}, {})
    write_parts(tmp_path, 2, stem="b")
    with pytest.raises(ModelNotFound, match=r"a\.gguf, b-00001-of-00002\.gguf"):
        open_checkpoint(tmp_path)


def test_an_empty_folder_and_a_missing_path_are_not_found(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds no \.gguf"):
        open_checkpoint(tmp_path)
    with pytest.raises(ModelNotFound, match="no such file"):
        open_checkpoint(tmp_path / "gone.gguf")
