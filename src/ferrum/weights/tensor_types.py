"""The storage types of GGUF tensors: which we run, and the names of those we do not.

Ids, block sizes and block bytes: the GGUF specification (ggml docs/gguf.md) and ggml's block structures.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class TensorType(Enum):
    """One storage type: a row is whole blocks of ``block_size`` values in ``block_bytes`` bytes."""

    F32 = (0, 1, 4)
    F16 = (1, 1, 2)
    Q4_0 = (2, 32, 2 + 16)
    Q4_1 = (3, 32, 2 + 2 + 16)
    Q5_0 = (6, 32, 2 + 4 + 16)
    Q5_1 = (7, 32, 2 + 2 + 4 + 16)
    Q8_0 = (8, 32, 2 + 32)
    Q2_K = (10, 256, 16 + 64 + 2 + 2)
    Q3_K = (11, 256, 32 + 64 + 12 + 2)
    Q4_K = (12, 256, 2 + 2 + 12 + 128)
    Q5_K = (13, 256, 2 + 2 + 12 + 32 + 128)
    Q6_K = (14, 256, 128 + 64 + 16 + 2)
    BF16 = (30, 1, 2)

    def __init__(self, ggml_id: int, block_size: int, block_bytes: int) -> None:
        self.ggml_id = ggml_id
        self.block_size = block_size
        self.block_bytes = block_bytes

    @property
    def is_quantized(self) -> bool:
        """Whether values are integer codes with scales, rather than floats."""
        return self.block_size > 1

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of ``columns`` values; ``columns`` is a multiple of ``block_size``."""
        assert columns % self.block_size == 0, (self, columns)
        return columns // self.block_size * self.block_bytes


SUPPORTED_TYPES: Mapping[int, TensorType] = MappingProxyType({kind.ggml_id: kind for kind in TensorType})

# Only for error texts: a person should read the name of what their file holds, not a number.
OTHER_TYPE_NAMES: Mapping[int, str] = MappingProxyType(
    {
        4: "Q4_2",
        5: "Q4_3",
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        20: "IQ4_NL",
        21: "IQ3_S",
        22: "IQ2_S",
        23: "IQ4_XS",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        29: "IQ1_M",
        31: "Q4_0_4_4",
        32: "Q4_0_4_8",
        33: "Q4_0_8_8",
        34: "TQ1_0",
        35: "TQ2_0",
        36: "IQ4_NL_4_4",
        37: "IQ4_NL_4_8",
        38: "IQ4_NL_8_8",
        39: "MXFP4",
        40: "NVFP4",
        41: "Q1_0",
        42: "Q2_0",
    }
)
