"""Broken and hostile GGUF files: each is refused in one line, quickly, within bounded memory."""

import os
import resource
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ferrum.core.errors import MalformedCheckpoint, ModelError, ModelNotFound, UnsupportedModel
from ferrum.weights.block_formats import dequantize
from ferrum.weights.checkpoint import open_checkpoint
from ferrum.weights.tensor_types import OTHER_TYPE_NAMES, TensorType
from gguf_factory import encode_gguf, encode_string, encode_tensor_entry, encode_value, write_gguf

UINT8, UINT32, STRING, ARRAY = 0, 4, 8, 9
HUGE = [2**32, 2**40, 2**48, 2**60, 2**63, 2**64 - 8, 2**64 - 1]
# One of each value type the format has.
EVERY_VALUE = {
    "UINT8": np.uint8(1),
    "INT8": np.int8(1),
    "UINT16": np.uint16(1),
    "INT16": np.int16(1),
    "UINT32": np.uint32(1),
    "INT32": np.int32(1),
    "FLOAT32": np.float32(1),
    "BOOL": True,
    "STRING": "text",
    "ARRAY": ["a", "b"],
    "UINT64": np.uint64(1),
    "INT64": np.int64(1),
    "FLOAT64": np.float64(1),
}


def header(num_tensors: int = 0, num_pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_pairs)


def refuse(path: Path, content: bytes) -> ModelError:
    """The error that reading ``content`` gives, after checking what every such error must keep to."""
    path.write_bytes(content)
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    with pytest.raises((MalformedCheckpoint, UnsupportedModel)) as caught:
        open_checkpoint(path)
    assert time.perf_counter() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 100 << 10
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def one_tensor(
    dimensions: list[int],
    type_id: int = 0,
    offset: int = 0,
    data: bytes = bytes(64),
    num_dimensions: int | None = None,
) -> bytes:
    entry = bytearray(encode_tensor_entry("blk.0.w", dimensions, type_id, offset))
    if num_dimensions is not None:
        struct.pack_into("<I", entry, 8 + len("blk.0.w"), num_dimensions)
    head = header(num_tensors=1) + bytes(entry)
    return head + bytes(-len(head) % 32) + data


def small_model() -> tuple[bytes, int]:
    """A valid file and where its tensor data starts."""
    metadata = {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b", "c"], "n": 3}
    tensors: dict[str, Any] = {
        "first": (TensorType.F32, np.ones(64, np.float32), (8, 8)),
        "last": (TensorType.Q8_0, bytes(34 * 4), (2, 64)),
    }
    content = encode_gguf(metadata, tensors)
    return content, len(content) - (256 + 34 * 4)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content, data_start = small_model()
    for length in range(len(content)):
        error = refuse(tmp_path / "cut.gguf", content[:length])
        if length > data_start:
            assert "truncated: tensor" in str(error)


def test_a_cut_in_the_data_names_the_tensor_and_the_sizes(tmp_path: Path) -> None:
    content, _ = small_model()
    error = refuse(tmp_path / "cut.gguf", content[:-1])
    assert "tensor 'last' needs bytes" in str(error)
    assert str(len(content)) in str(error)
    assert f"the file has {len(content) - 1}" in str(error)


@pytest.mark.parametrize(
    "content", [b"", b"G", b"GGUF", b"GGML" + bytes(64), b"PK\x03\x04" + bytes(100), b"<!DOCTYPE html>"]
)
def test_what_is_not_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    refuse(tmp_path / "m.gguf", content)


@pytest.mark.parametrize("version", [0, 1, 4, 2**31 + 5])
def test_other_versions_are_refused_by_number(tmp_path: Path, version: int) -> None:
    assert f"version {version}" in str(refuse(tmp_path / "m.gguf", header(version=version)[:8] + bytes(64)))


@pytest.mark.parametrize("version", [2, 3])
def test_big_endian_files_are_refused_as_such(tmp_path: Path, version: int) -> None:
    content = b"GGUF" + struct.pack(">IQQ", version, 0, 0)
    assert "big-endian" in str(refuse(tmp_path / "m.gguf", content))


def test_what_is_no_file_is_not_found(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(ModelNotFound, match="not a regular file"):
        open_checkpoint(pipe)


@pytest.mark.parametrize("huge", HUGE)
@pytest.mark.parametrize(
    "content",
    [
        lambda n: header(num_tensors=n) + bytes(64),
        lambda n: header(num_pairs=n) + bytes(64),
        lambda n: header(num_pairs=1) + struct.pack("<Q", n) + bytes(64),
        lambda n: header(num_pairs=1) + encode_string("k") + struct.pack("<IQ", STRING, n) + bytes(64),
        lambda n: header(num_pairs=1) + encode_string("k") + struct.pack("<IIQ", ARRAY, UINT8, n) + bytes(64),
        lambda n: (
            header(num_pairs=1) + encode_string("k") + struct.pack("<IIQ", ARRAY, STRING, n) + bytes(64)
        ),
        lambda n: (
            header(num_pairs=1) + encode_string("k") + struct.pack("<IIQQ", ARRAY, STRING, 2, n) + bytes(64)
        ),
        lambda n: header(num_tensors=1) + struct.pack("<Q", n) + bytes(64),
        lambda n: one_tensor([n]),
        lambda n: one_tensor([32, n]),
        lambda n: one_tensor([n, n, n, n]),
        lambda n: one_tensor([4], offset=n),
    ],
    ids=[
        "tensor count",
        "pair count",
        "key length",
        "string length",
        "array count",
        "string array count",
        "array string length",
        "tensor name length",
        "dimension",
        "row count",
        "dimensions",
        "offset",
    ],
)
def test_a_huge_count_is_refused_without_allocating_it(tmp_path: Path, content: Any, huge: int) -> None:
    refuse(tmp_path / "m.gguf", content(huge))


def test_a_crafted_array_of_empty_strings_costs_no_time(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    count = 2**27
    path.write_bytes(header(num_pairs=1) + encode_string("k") + struct.pack("<IIQ", ARRAY, STRING, count))
    os.truncate(path, 8 * count + 100)  # sparse: a gigabyte of zero lengths that takes no disk
    start = time.perf_counter()
    with pytest.raises(MalformedCheckpoint, match="strings"):
        open_checkpoint(path)
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("kind", EVERY_VALUE)
def test_an_empty_key_is_refused_whatever_its_value(tmp_path: Path, kind: str) -> None:
    content = header(num_pairs=1) + encode_string("") + encode_value(EVERY_VALUE[kind]) + bytes(32)
    assert "metadata key 1 of 1" in str(refuse(tmp_path / "m.gguf", content))


@pytest.mark.parametrize("kind", EVERY_VALUE)
def test_a_repeated_key_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    pair = encode_string("general.name") + encode_value(EVERY_VALUE[kind])
    assert "'general.name' appears twice" in str(
        refuse(tmp_path / "m.gguf", header(num_pairs=2) + pair + pair)
    )


@pytest.mark.parametrize("kind", EVERY_VALUE)
def test_every_value_type_is_read_alone(tmp_path: Path, kind: str) -> None:
    value = EVERY_VALUE[kind]
    found = open_checkpoint(write_gguf(tmp_path / "m.gguf", {"k": value}, {})).metadata["k"]
    assert list(found) == value if kind == "ARRAY" else found == value


@pytest.mark.parametrize("value_type", [13, 99, 2**32 - 1])
def test_an_unknown_value_type_is_an_error_at_once(tmp_path: Path, value_type: int) -> None:
    pair = encode_string("odd.key") + struct.pack("<I", value_type) + bytes(64)
    error = refuse(tmp_path / "m.gguf", header(num_pairs=1) + pair)
    assert f"'odd.key' has the unknown value type {value_type}" in str(error)


@pytest.mark.parametrize("item_type", [13, 99, 2**32 - 1])
@pytest.mark.parametrize("count", [0, 1, 2**60])
def test_an_array_of_an_unknown_type_is_an_error_at_once(tmp_path: Path, item_type: int, count: int) -> None:
    pair = encode_string("odd.key") + struct.pack("<IIQ", ARRAY, item_type, count) + bytes(64)
    error = refuse(tmp_path / "m.gguf", header(num_pairs=1) + pair)
    assert f"'odd.key' is an array of the unknown value type {item_type}" in str(error)


def test_nested_arrays_are_refused(tmp_path: Path) -> None:
    pair = encode_string("odd.key") + struct.pack("<II", ARRAY, ARRAY) * 1000 + bytes(64)
    assert "'odd.key' is an array of arrays" in str(refuse(tmp_path / "m.gguf", header(num_pairs=1) + pair))


@pytest.mark.parametrize("value", [2, 255])
def test_a_boolean_is_zero_or_one(tmp_path: Path, value: int) -> None:
    single = encode_string("flag") + struct.pack("<IB", 7, value)
    assert "'flag' is a boolean" in str(refuse(tmp_path / "m.gguf", header(num_pairs=1) + single))
    array = encode_string("flags") + struct.pack("<IIQBB", ARRAY, 7, 2, 1, value)
    assert "'flags' is an array of booleans" in str(refuse(tmp_path / "m.gguf", header(num_pairs=1) + array))


def test_a_key_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    content = header(num_pairs=1) + encode_string(b"\xff\xfe") + encode_value(1)
    assert "not valid UTF-8" in str(refuse(tmp_path / "m.gguf", content))


@pytest.mark.parametrize("alignment", [0, 1, 4, 24, 33, 2**31 + 1, -32, "32", 32.0, True, [32]])
def test_an_impossible_alignment_is_refused_by_key(tmp_path: Path, alignment: Any) -> None:
    content = encode_gguf({"general.alignment": alignment}, {})
    assert "'general.alignment'" in str(refuse(tmp_path / "m.gguf", content))


def test_a_missing_architecture_is_named_by_key(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", {}, {}))
    with pytest.raises(MalformedCheckpoint, match=r"'general\.architecture' is missing"):
        _ = checkpoint.architecture


@pytest.mark.parametrize("num_dimensions", [0, 5, 2**32 - 1])
def test_a_rank_outside_one_to_four_is_refused(tmp_path: Path, num_dimensions: int) -> None:
    error = refuse(tmp_path / "m.gguf", one_tensor([4], num_dimensions=num_dimensions))
    assert f"tensor 'blk.0.w' has {num_dimensions} dimensions" in str(error)


@pytest.mark.parametrize(
    "dimensions", [[0], [4, 0], [0, 4], [4, 1, 0], [2**64 - 4], [2**32, 2**32], [2**16] * 4]
)
def test_impossible_dimensions_are_refused_with_the_tensor(tmp_path: Path, dimensions: list[int]) -> None:
    assert "tensor 'blk.0.w'" in str(refuse(tmp_path / "m.gguf", one_tensor(dimensions)))


def test_a_repeated_tensor_is_refused_by_name(tmp_path: Path) -> None:
    entry = encode_tensor_entry("twin", [4], 0, 0)
    content = header(num_tensors=2) + entry + entry + bytes(128)
    assert "tensor 'twin' appears twice" in str(refuse(tmp_path / "m.gguf", content))


def test_an_empty_tensor_name_is_refused(tmp_path: Path) -> None:
    content = header(num_tensors=1) + encode_tensor_entry("", [4], 0, 0) + bytes(128)
    assert "name of tensor 1 of 1" in str(refuse(tmp_path / "m.gguf", content))


def test_an_offset_off_the_alignment_is_refused(tmp_path: Path) -> None:
    assert "not a multiple of 32" in str(refuse(tmp_path / "m.gguf", one_tensor([4], offset=16)))


@pytest.mark.parametrize("kind", [kind for kind in TensorType if kind.is_quantized])
def test_a_row_of_a_part_of_a_block_is_refused(tmp_path: Path, kind: TensorType) -> None:
    error = refuse(tmp_path / "m.gguf", one_tensor([kind.block_size + 1, 2], kind.ggml_id, data=bytes(1024)))
    assert "blk.0.w" in str(error)
    assert kind.name in str(error)


@pytest.mark.parametrize("type_id", sorted(OTHER_TYPE_NAMES))
def test_a_known_type_that_is_not_supported_is_named_with_its_tensor(tmp_path: Path, type_id: int) -> None:
    error = refuse(tmp_path / "m.gguf", one_tensor([256], type_id, data=bytes(4096)))
    assert isinstance(error, UnsupportedModel)
    assert f"tensor 'blk.0.w' is stored as {OTHER_TYPE_NAMES[type_id]} ({type_id})" in str(error)
    assert "not yet supported" in str(error)


@pytest.mark.parametrize("type_id", [200, 250, 2**31, 2**32 - 1])
def test_an_unassigned_type_is_named_with_its_tensor(tmp_path: Path, type_id: int) -> None:
    error = refuse(tmp_path / "m.gguf", one_tensor([256], type_id, data=bytes(4096)))
    assert isinstance(error, UnsupportedModel)
    assert f"tensor 'blk.0.w' has the unknown type id {type_id}" in str(error)


VALID, DATA_START = small_model()


def read_all(path: Path) -> None:
    """Open the file and touch everything in it."""
    with open_checkpoint(path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            dequantize(tensor)
        for value in checkpoint.metadata.values():
            repr(value)
        if "tokenizer.ggml.tokens" in checkpoint.metadata:
            list(checkpoint.metadata.get_str_array("tokenizer.ggml.tokens", ()))


def succeeds_or_is_refused(path: Path, content: bytes) -> None:
    # A new file each time: cutting a mapped file would pull its pages from under an earlier reader.
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    start = time.perf_counter()
    with suppress(MalformedCheckpoint, UnsupportedModel):
        read_all(path)
    assert time.perf_counter() - start < 2


mutation_settings = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@mutation_settings
@given(
    changes=st.lists(st.tuples(st.integers(0, DATA_START - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_changed_header_bytes_give_success_or_a_clean_refusal(
    tmp_path: Path, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(VALID)
    for position, value in changes:
        content[position] = value
    succeeds_or_is_refused(tmp_path / "m.gguf", bytes(content))


@mutation_settings
@given(
    position=st.integers(0, DATA_START - 8),
    value=st.one_of(st.sampled_from([0, 1, *HUGE]), st.integers(0, 2**64 - 1)),
)
@example(position=8, value=2**64 - 1)
def test_a_changed_word_gives_success_or_a_clean_refusal(tmp_path: Path, position: int, value: int) -> None:
    content = bytearray(VALID)
    struct.pack_into("<Q", content, position, value)
    succeeds_or_is_refused(tmp_path / "m.gguf", bytes(content))


@mutation_settings
@given(start=st.integers(4, DATA_START), length=st.integers(1, 64), inserted=st.binary(max_size=64))
def test_lost_and_inserted_bytes_give_success_or_a_clean_refusal(
    tmp_path: Path, start: int, length: int, inserted: bytes
) -> None:
    content = VALID[:start] + inserted + VALID[start + length :]
    succeeds_or_is_refused(tmp_path / "m.gguf", content)


@mutation_settings
@given(
    tail=st.binary(max_size=256), version=st.sampled_from([2, 3]), counts=st.tuples(*[st.integers(0, 5)] * 2)
)
def test_noise_after_a_valid_start_gives_success_or_a_clean_refusal(
    tmp_path: Path, tail: bytes, version: int, counts: tuple[int, int]
) -> None:
    succeeds_or_is_refused(tmp_path / "m.gguf", header(*counts, version=version) + tail)
