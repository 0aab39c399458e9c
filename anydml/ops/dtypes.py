"""DirectML's tensor data types as NumPy and the kernels see them, and the sets that level tables use."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum

import numpy as np

from anydml.ops.enums import TensorDataType as T

FLOAT64, FLOAT32, FLOAT16 = T.FLOAT64, T.FLOAT32, T.FLOAT16
INT64, INT32, INT16, INT8 = T.INT64, T.INT32, T.INT16, T.INT8
UINT64, UINT32, UINT16, UINT8 = T.UINT64, T.UINT32, T.UINT16, T.UINT8
UINT4, INT4 = T.UINT4, T.INT4

FLOATS_UP_TO_32_BIT = (FLOAT32, FLOAT16)
UP_TO_32_BIT = (FLOAT32, FLOAT16, INT32, INT16, INT8, UINT32, UINT16, UINT8)
UP_TO_64_BIT = (FLOAT64, FLOAT32, FLOAT16, INT64, INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8)


class TruthType(Enum):
    """The data type of comparisons inside an expression. No tensor has it: see `ops.expr.convert`."""

    BOOL = "bool"

    @property
    def label(self) -> str:
        return self.value


class BrainType(Enum):
    """A data type that no tensor of DirectML's has. Kernels and programs keep it: see `ops.bfloat16`."""

    BFLOAT16 = "bfloat16"

    @property
    def label(self) -> str:
        return self.value


BOOL = TruthType.BOOL
BFLOAT16 = BrainType.BFLOAT16
ScalarType = T | TruthType | BrainType

NUMPY: dict[ScalarType, np.dtype] = {BOOL: np.dtype(np.bool_), **{t: np.dtype(t.label) for t in UP_TO_64_BIT}}
FROM_NUMPY: dict[np.dtype, T] = {NUMPY[t]: t for t in UP_TO_64_BIT}
IN_ARRAYS: dict[ScalarType, np.dtype] = NUMPY | {UINT4: np.dtype(np.uint8), INT4: np.dtype(np.int8)}
"""How arrays hold elements: the 4-bit types one in a byte. In buffers two of them share one."""
IN_BUFFERS: dict[ScalarType, np.dtype] = NUMPY | {UINT4: np.dtype(np.uint8), INT4: np.dtype(np.uint8)}
"""The type of a buffer's array."""
SIZE: dict[ScalarType, int] = {t: d.itemsize for t, d in NUMPY.items()} | {BFLOAT16: 2}
"""Bytes of one element. The 4-bit types are not here: no kernel takes them."""
BITS: dict[ScalarType, int] = {t: 8 * n for t, n in SIZE.items()} | {UINT4: 4, INT4: 4}

FLOATING: frozenset[ScalarType] = frozenset({FLOAT64, FLOAT32, FLOAT16})
SIGNED: frozenset[ScalarType] = frozenset({INT64, INT32, INT16, INT8, INT4})
UNSIGNED: frozenset[ScalarType] = frozenset({UINT64, UINT32, UINT16, UINT8, UINT4})


def native(dtype: np.dtype) -> np.dtype:
    """The type in this machine's byte order; as it is where it has none."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def listed(types: Iterable[T]) -> str:
    """Types in a message: floats, then signed, then unsigned integers, each from narrow to wide.

    >>> listed([UINT8, INT8, FLOAT32, FLOAT16])
    'float16 | float32 | int8 | uint8'
    """
    families = [FLOATING, SIGNED, UNSIGNED]
    return " | ".join(
        t.label for t in sorted(types, key=lambda t: ([t in f for f in families][::-1], BITS[t]))
    )


def is_masked(x: object) -> bool:
    """Whether it is an array with a mask; without importing what such a one cannot be without."""
    return "numpy.ma" in sys.modules and isinstance(x, np.ma.MaskedArray)
