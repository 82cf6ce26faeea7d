"""bfloat16 in numpy, which has no such type: the bits as uint16."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]


def to_float32(bits: Bits) -> Floats:
    """The values, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_float32(values: Floats) -> Bits:
    """The nearest bfloat16 values, halves to even, as bits. NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    quiet_nan = ((bits >> 16) | 0x40).astype(np.uint16)
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet_nan, rounded)


def rounded(values: Floats) -> Floats:
    """The nearest bfloat16 values, as float32."""
    return to_float32(from_float32(values))
