"""Well-formed GGUF files: what is written is what is read, in both versions and every value type."""

import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from ferrum.core.errors import MalformedCheckpoint
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import TensorType
from gguf_factory import write_gguf

ARCHITECTURE = {"general.architecture": "llama"}


def stored(
    kind: TensorType, shape: tuple[int, ...], seed: int = 0
) -> tuple[TensorType, bytes, tuple[int, ...]]:
    num_bytes = int(np.prod(shape[:-1], dtype=int)) * kind.row_bytes(shape[-1])
    return kind, np.random.default_rng(seed).bytes(num_bytes), shape


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors_come_back_as_written(tmp_path: Path, version: int) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    path = write_gguf(
        tmp_path / "m.gguf",
        {**ARCHITECTURE, "a.flag": True, "a.text": "grüß dich", "a.ratio": 0.5, "a.tokens": ["x", "", "→"]},
        {"norm": (TensorType.F32, values[0], (4,)), "weight": (TensorType.F32, values, (3, 4))},
        version=version,
    )
    checkpoint = open_checkpoint(path)
    assert checkpoint.architecture == "llama"
    assert checkpoint.metadata.get_bool("a.flag") is True
    assert checkpoint.metadata.get_str("a.text") == "grüß dich"
    assert checkpoint.metadata.get_float("a.ratio") == 0.5
    assert list(checkpoint.metadata.get_str_array("a.tokens")) == ["x", "", "→"]
    assert list(checkpoint.tensors) == ["norm", "weight"]
    assert checkpoint.tensors["weight"].shape == (3, 4)
    np.testing.assert_array_equal(dequantize(checkpoint.tensors["weight"]), values)


@pytest.mark.parametrize("kind", list(TensorType))
def test_every_supported_type_is_read_from_a_file(tmp_path: Path, kind: TensorType) -> None:
    kind, raw, shape = stored(kind, (3, 256))
    path = write_gguf(tmp_path / "m.gguf", ARCHITECTURE, {"w": (kind, raw, shape)})
    tensor = open_checkpoint(path).tensors["w"]
    assert (tensor.type, tensor.shape, tensor.num_bytes) == (kind, (3, 256), len(raw))
    assert tensor.data.tobytes() == raw


def test_tensor_bytes_are_a_read_only_view_that_outlives_the_checkpoint(tmp_path: Path) -> None:
    kind, raw, shape = stored(TensorType.Q8_0, (4, 64))
    path = write_gguf(tmp_path / "m.gguf", ARCHITECTURE, {"w": (kind, raw, shape)})
    with open_checkpoint(path) as checkpoint:
        tensor = checkpoint.tensors["w"]
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable
    assert not checkpoint.tensors
    assert tensor.data.tobytes() == raw


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_alignment_from_the_metadata_places_the_tensors(tmp_path: Path, alignment: int) -> None:
    tensors = {name: stored(TensorType.Q4_0, (1, 32), seed) for seed, name in enumerate("abc")}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", ARCHITECTURE, tensors, alignment=alignment))
    assert {name: tensor.data.tobytes() for name, tensor in checkpoint.tensors.items()} == {
        name: raw for name, (_, raw, _) in tensors.items()
    }


def test_a_file_written_by_the_gguf_package_is_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_block_count(2)
    writer.add_token_list(["<pad>", "a"])
    writer.add_token_scores([0.0, -1.5])
    weights = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    writer.add_tensor(
        "w",
        gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0),
        raw_dtype=gguf.GGMLQuantizationType.Q8_0,
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = open_checkpoint(path)
    assert checkpoint.architecture == "gemma3"
    assert checkpoint.metadata.get_int("gemma3.block_count") == 2
    np.testing.assert_array_equal(checkpoint.metadata.get_float_array("tokenizer.ggml.scores"), [0.0, -1.5])
    assert np.abs(dequantize(checkpoint.tensors["w"]) - weights).max() < 0.02


INTEGER_TYPES = [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.uint64, np.int64]


@pytest.mark.parametrize("width", INTEGER_TYPES)
def test_every_integer_width_is_an_integer(tmp_path: Path, width: type[np.integer]) -> None:
    metadata = {"n": width(7), "types": np.array([1, 3, 6], width)}
    opened = open_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {})).metadata
    assert opened.get_int("n") == 7
    types = opened.get_int_array("types")
    assert types.dtype == np.int64
    assert types.tolist() == [1, 3, 6]


@pytest.mark.parametrize("width", [np.float32, np.float64])
def test_both_float_widths_are_floats(tmp_path: Path, width: type[np.floating]) -> None:
    metadata = {"x": width(1.5), "scores": np.array([1.5, -2.0], width)}
    opened = open_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {})).metadata
    assert opened.get_float("x") == 1.5
    assert opened.get_float_array("scores").tolist() == [1.5, -2.0]


ACCESSES = [
    "get_int",
    "get_float",
    "get_str",
    "get_bool",
    "get_int_array",
    "get_float_array",
    "get_str_array",
]
VALUES = {
    "an int": (3, {"get_int", "get_float"}),
    "a float": (2.5, {"get_float"}),
    "a string": ("three", {"get_str"}),
    "a boolean": (True, {"get_bool"}),
    "ints": ([1, 2], {"get_int_array"}),
    "floats": ([1.0], {"get_float_array"}),
    "strings": (["a"], {"get_str_array"}),
    "booleans": ([True, False], set()),
}


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("kind", VALUES)
def test_a_value_of_another_type_is_refused_by_its_key(tmp_path: Path, access: str, kind: str) -> None:
    value, fitting = VALUES[kind]
    metadata = open_checkpoint(write_gguf(tmp_path / "m.gguf", {"some.key": value}, {})).metadata
    if access in fitting:
        getattr(metadata, access)("some.key")
    else:
        with pytest.raises(MalformedCheckpoint, match=r"'some\.key' must be .*, but it is"):
            getattr(metadata, access)("some.key")


@pytest.mark.parametrize("access", ACCESSES)
def test_a_missing_key_is_named_unless_there_is_a_default(tmp_path: Path, access: str) -> None:
    metadata = open_checkpoint(write_gguf(tmp_path / "m.gguf", {}, {})).metadata
    with pytest.raises(MalformedCheckpoint, match=r"'llama\.context_length' is missing"):
        getattr(metadata, access)("llama.context_length")
    assert getattr(metadata, access)("llama.context_length", None) is None


def test_text_that_is_not_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", {"tokens": [b"\xff\xfe", b"ok"], "name": b"a\x80"}, {})
    metadata = open_checkpoint(path).metadata
    assert metadata.get_str_array("tokens")[0].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert metadata.get_str("name").encode("utf-8", "surrogateescape") == b"a\x80"


def test_a_vocabulary_of_262144_words_is_read_quickly(tmp_path: Path) -> None:
    tokens = [f"word{index}" for index in range(262_144)]
    metadata = {"tokens": tokens, "scores": np.zeros(262_144, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", metadata, {})
    start = time.perf_counter()
    checkpoint = open_checkpoint(path)
    # Some 0.03 s on the slowest machine seen; the limit leaves room for a busy one.
    assert time.perf_counter() - start < 1.0
    assert checkpoint.metadata.get_str_array("tokens")[262_143] == "word262143"


def test_digest_names_the_content_and_not_the_place(tmp_path: Path) -> None:
    first = write_gguf(tmp_path / "a.gguf", ARCHITECTURE, {"w": stored(TensorType.Q8_0, (64, 64), seed=1)})
    same = tmp_path / "copy" / "b.gguf"
    same.parent.mkdir()
    same.write_bytes(first.read_bytes())
    other = write_gguf(tmp_path / "c.gguf", ARCHITECTURE, {"w": stored(TensorType.Q8_0, (64, 64), seed=2)})
    digests = [open_checkpoint(path).digest() for path in (first, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 64


def test_one_changed_bit_changes_the_digest_with_and_without_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = write_gguf(tmp_path / "a.gguf", ARCHITECTURE, {"w": stored(TensorType.Q8_0, (64, 64))})
    before = open_checkpoint(path).digest(cache)
    assert open_checkpoint(path).digest(cache) == before == open_checkpoint(path).digest()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert open_checkpoint(path).digest(cache) == open_checkpoint(path).digest() != before


def test_a_remembered_digest_is_used_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    path = write_gguf(tmp_path / "a.gguf", ARCHITECTURE, {"w": stored(TensorType.Q8_0, (64, 64))})
    true_digest = open_checkpoint(path).digest(cache)
    (remembered,) = cache.iterdir()
    record = remembered.read_text()
    file_digest = record.rsplit('"', 2)[1]
    remembered.write_text(record.replace(file_digest, "0" * 64))
    assert open_checkpoint(path).digest(cache) != true_digest
    remembered.write_text("{")
    assert open_checkpoint(path).digest(cache) == true_digest


def test_a_cache_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", ARCHITECTURE, {"w": stored(TensorType.Q8_0, (64, 64))})
    (tmp_path / "blocked").write_text("a file, where a folder should be")
    assert open_checkpoint(path).digest(tmp_path / "blocked") == open_checkpoint(path).digest()
