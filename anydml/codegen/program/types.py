"""The types of elements that programs have, and those of arrays."""

from __future__ import annotations

import numpy as np

from anydml.codegen.program.refusal import NotNative
from anydml.ops.dtypes import BFLOAT16, BOOL, FROM_NUMPY, NUMPY, ScalarType

_EVERY: tuple[ScalarType, ...] = (*FROM_NUMPY.values(), BOOL, BFLOAT16)
_TYPES = {dtype.label: dtype for dtype in _EVERY}


def array_type(dtype: ScalarType) -> np.dtype:
    """Of arrays."""
    if dtype is not BFLOAT16:
        return NUMPY[dtype]
    import ml_dtypes  # which few programs need

    bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def scalar_type(dtype: np.dtype | str) -> ScalarType:
    """The type of elements, by NumPy's type or name. Raises: NotNative, for one that programs have not."""
    name = dtype if isinstance(dtype, str) else dtype.name
    if name not in _TYPES:
        raise NotNative(f"elements of {name}")
    return _TYPES[name]
