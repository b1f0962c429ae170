"""Names for the array types that cross package borders."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]
Float64Array: TypeAlias = NDArray[np.float64]
Int32Array: TypeAlias = NDArray[np.int32]
Uint64Array: TypeAlias = NDArray[np.uint64]
ByteArray: TypeAlias = NDArray[np.uint8]
