"""The values inside quantised blocks: integer codes, scales and minimums, in natural column order.

This is the definition of every stored type that the rest of the engine relies on: the kernels compute with
exactly these codes and factors. Layouts follow ggml's block structures (block_q4_0 ... block_q6_K). All
arithmetic is float32 with one rounding for each written operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import ByteArray, FloatArray
from ferrum.weights.quantized_tensor import QuantizedTensor
from ferrum.weights.tensor_types import TensorType

Int8Array = NDArray[np.int8]

# Rows are decoded in pieces of about this many values, so that temporaries stay small beside the result.
PIECE_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True, eq=False)
class GroupedWeights:
    """Quantised weights as ``scale * code + minimum`` for each run of ``group_size`` columns.

    ``minimums`` is None where the type has none (the value is then ``scale * code``).
    """

    codes: Int8Array  # [..., columns]
    group_size: int  # 16 or 32
    scales: FloatArray  # [..., columns / group_size]
    minimums: FloatArray | None  # [..., columns / group_size]


def decode_groups(tensor: QuantizedTensor) -> GroupedWeights:
    """The codes and factors of a quantised tensor; leading dimensions are the tensor's own.

    Codes are signed for Q4_0 (q-8), Q5_0 (q-16), Q8_0, Q3_K (q-4) and Q6_K (q-32), else unsigned. Scales are
    the block's ``d`` (32-value types) or ``d * sc`` (K types); minimums are ``m`` or ``-(dmin * m)``.
    """
    layout = LAYOUTS[tensor.type]
    columns = tensor.columns
    codes = np.empty((tensor.num_rows, columns), np.int8)
    scales = np.empty((tensor.num_rows, columns // layout.group_size), np.float32)
    minimums = np.empty_like(scales) if layout.has_minimums else None
    step = max(1, PIECE_ELEMENTS // columns)
    for start in range(0, tensor.num_rows, step):
        stop = min(start + step, tensor.num_rows)
        blocks = tensor.rows(start, stop).data.reshape(-1, tensor.type.block_bytes)
        # A block with an infinite scale is a broken model, not a broken program: values come out as they are.
        with np.errstate(invalid="ignore", over="ignore"):
            piece = layout.decode(blocks)
        codes[start:stop] = piece.codes.reshape(stop - start, columns)
        scales[start:stop] = piece.scales.reshape(stop - start, -1)
        if minimums is not None:
            assert piece.minimums is not None
            minimums[start:stop] = piece.minimums.reshape(stop - start, -1)
    leading = tensor.shape[:-1]
    return GroupedWeights(
        codes=codes.reshape(tensor.shape),
        group_size=layout.group_size,
        scales=scales.reshape(*leading, -1),
        minimums=None if minimums is None else minimums.reshape(*leading, -1),
    )


def dequantize(tensor: QuantizedTensor) -> FloatArray:
    """The tensor's values in float32, ``fl(fl(scale * code) + minimum)``, in the tensor's shape."""
    if tensor.type is TensorType.F32:
        return tensor.data.view("<f4").reshape(tensor.shape)
    if tensor.type is TensorType.F16:
        with np.errstate(invalid="ignore"):
            return tensor.data.view("<f2").astype(np.float32).reshape(tensor.shape)
    if tensor.type is TensorType.BF16:
        # bfloat16 is the upper half of a float32.
        return (tensor.data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    grouped = decode_groups(tensor)
    values = grouped.codes.astype(np.float32).reshape(*grouped.scales.shape, grouped.group_size)
    with np.errstate(invalid="ignore", over="ignore"):
        values *= grouped.scales[..., None]
        if grouped.minimums is not None:
            values += grouped.minimums[..., None]
    return values.reshape(tensor.shape)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    codes: NDArray[np.generic]  # [blocks, block_size], small integers of any integer type
    scales: FloatArray  # [blocks, groups per block]
    minimums: FloatArray | None = None  # [blocks, groups per block]


@dataclass(frozen=True, slots=True)
class _Layout:
    group_size: int
    has_minimums: bool
    decode: Callable[[ByteArray], _Piece]  # blocks [blocks, block_bytes] -> _Piece


def _half(blocks: ByteArray, start: int) -> FloatArray:
    """The float16 at byte ``start`` of each block, widened: [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: ByteArray) -> ByteArray:
    """16 bytes hold values 0..15 in their low and 16..31 in their high halves: [..., n] -> [..., 2 * n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(packed: ByteArray) -> ByteArray:
    """Bit i of a block's 32-bit word is the fifth bit of value i: [blocks, 4] -> [blocks, 32] of 0 or 16."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _decode_q4_0(blocks: ByteArray) -> _Piece:
    return _Piece(_nibbles(blocks[:, 2:18]).view(np.int8) - np.int8(8), _half(blocks, 0))


def _decode_q4_1(blocks: ByteArray) -> _Piece:
    return _Piece(_nibbles(blocks[:, 4:20]), _half(blocks, 0), _half(blocks, 2))


def _decode_q5_0(blocks: ByteArray) -> _Piece:
    codes = _nibbles(blocks[:, 6:22]) | _fifth_bits(blocks[:, 2:6])
    return _Piece(codes.view(np.int8) - np.int8(16), _half(blocks, 0))


def _decode_q5_1(blocks: ByteArray) -> _Piece:
    codes = _nibbles(blocks[:, 8:24]) | _fifth_bits(blocks[:, 4:8])
    return _Piece(codes, _half(blocks, 0), _half(blocks, 2))


def _decode_q8_0(blocks: ByteArray) -> _Piece:
    return _Piece(blocks[:, 2:34].view(np.int8), _half(blocks, 0))


def _bit_planes(packed: ByteArray, bits: int) -> ByteArray:
    """Fields of ``bits`` bits, lowest field of all bytes first: [..., bytes] -> [..., 8 / bits, bytes]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (packed[..., None, :] >> shifts) & np.uint8((1 << bits) - 1)


def _decode_q2_k(blocks: ByteArray) -> _Piece:
    factors = blocks[:, 0:16]
    codes = _bit_planes(blocks[:, 16:80].reshape(-1, 2, 32), bits=2).reshape(-1, 256)
    scales = _half(blocks, 80) * (factors & 15).astype(np.float32)
    return _Piece(codes, scales, -(_half(blocks, 82) * (factors >> 4).astype(np.float32)))


def _decode_q3_k(blocks: ByteArray) -> _Piece:
    low = _bit_planes(blocks[:, 32:96].reshape(-1, 2, 32), bits=2).reshape(-1, 256)
    high = _bit_planes(blocks[:, 0:32], bits=1).reshape(-1, 256)
    codes = (low | (high << 2)).view(np.int8) - np.int8(4)
    # 16 six-bit factors: four low bits in bytes 0..7 (low halves first), two high bits in bytes 8..11.
    packed = blocks[:, 96:108]
    low_bits = _nibbles(packed[:, 0:8])
    high_bits = _bit_planes(packed[:, 8:12], bits=2).reshape(-1, 16)
    factors = (low_bits | (high_bits << 4)).astype(np.float32) - np.float32(32)
    return _Piece(codes, _half(blocks, 108) * factors)


def _k4_factors(packed: ByteArray) -> tuple[FloatArray, FloatArray]:
    """The eight six-bit factors and eight six-bit minimums in Q4_K's and Q5_K's 12 bytes: two of [blocks, 8].

    Bytes 0..3 hold factors 0..3 and bytes 4..7 minimums 0..3 in their low six bits. Bytes 8..11 hold the low
    four bits of factors 4..7 (low half) and minimums 4..7 (high half); their high two bits are on top
    of bytes 0..3 and 4..7.
    """
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    factors = np.concatenate([first & 63, (rest & 15) | ((first >> 6) << 4)], axis=1)
    minimums = np.concatenate([second & 63, (rest >> 4) | ((second >> 6) << 4)], axis=1)
    return factors.astype(np.float32), minimums.astype(np.float32)


def _decode_q4_k(blocks: ByteArray) -> _Piece:
    factors, minimums = _k4_factors(blocks[:, 4:16])
    codes = _bit_planes(blocks[:, 16:144].reshape(-1, 4, 32), bits=4).reshape(-1, 256)
    return _Piece(codes, _half(blocks, 0) * factors, -(_half(blocks, 2) * minimums))


def _decode_q5_k(blocks: ByteArray) -> _Piece:
    factors, minimums = _k4_factors(blocks[:, 4:16])
    low = _bit_planes(blocks[:, 48:176].reshape(-1, 4, 32), bits=4).reshape(-1, 256)
    high = _bit_planes(blocks[:, 16:48], bits=1).reshape(-1, 256)
    return _Piece(low | (high << 4), _half(blocks, 0) * factors, -(_half(blocks, 2) * minimums))


def _decode_q6_k(blocks: ByteArray) -> _Piece:
    low = _bit_planes(blocks[:, 0:128].reshape(-1, 2, 64), bits=4).reshape(-1, 256)
    high = _bit_planes(blocks[:, 128:192].reshape(-1, 2, 32), bits=2).reshape(-1, 256)
    factors = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return _Piece((low | (high << 4)).view(np.int8) - np.int8(32), _half(blocks, 208) * factors)


LAYOUTS: Mapping[TensorType, _Layout] = MappingProxyType(
    {
        TensorType.Q4_0: _Layout(32, False, _decode_q4_0),
        TensorType.Q4_1: _Layout(32, True, _decode_q4_1),
        TensorType.Q5_0: _Layout(32, False, _decode_q5_0),
        TensorType.Q5_1: _Layout(32, True, _decode_q5_1),
        TensorType.Q8_0: _Layout(32, False, _decode_q8_0),
        TensorType.Q2_K: _Layout(16, True, _decode_q2_k),
        TensorType.Q3_K: _Layout(16, False, _decode_q3_k),
        TensorType.Q4_K: _Layout(32, True, _decode_q4_k),
        TensorType.Q5_K: _Layout(32, True, _decode_q5_k),
        TensorType.Q6_K: _Layout(16, False, _decode_q6_k),
    }
)
