"""What tokenization needs of a checkpoint's metadata, handed in by whoever reads the file.

Knows no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ferrum.core.arrays import FloatArray


class TokenizerMetadata(Protocol):
    """Typed access to metadata keys; every accessor raises an error that names the key it could not read.

    Strings may hold surrogate escapes where the file is not valid UTF-8.
    """

    def __contains__(self, key: object, /) -> bool: ...
    def get_str(self, key: str, /) -> str: ...
    def get_int(self, key: str, /) -> int: ...
    def get_bool(self, key: str, /) -> bool: ...
    def get_str_array(self, key: str, /) -> Sequence[str]: ...
    def get_int_array(self, key: str, /) -> NDArray[np.int64]: ...
    def get_float_array(self, key: str, /) -> FloatArray: ...
