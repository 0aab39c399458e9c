"""Which arithmetic stands behind an element type, and what it must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.ops.opinfo import Array, NotFoldable

_SHORT = ("float16", "bfloat16")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy (with ml_dtypes) has numbers with a fraction under this element type."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def widened(x: Array) -> Array:
    """float16 and bfloat16 as float32, in which they are computed; anything else as it is."""
    return x.astype(np.float32) if x.dtype.name in _SHORT else x


def doubled(x: Array) -> Array:
    """Floating point as float64, so that the order of additions does not show in float32 and below."""
    return x.astype(np.float64, copy=False) if is_float(x.dtype) else x


def whole_axis(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        IndexError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise IndexError(f"expected an axis from {-rank} to {rank - 1}, but got {axis}")
    return axis % rank


def rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """float64 as `dtype`, by way of float32 for the short ones: as libraries do."""
    return x.astype(np.float32).astype(dtype) if dtype.name in _SHORT else x.astype(dtype)


def without_detour(result: Array, bound: Array, dtype: np.dtype[Any]) -> Array:
    """`result`, sums of numbers whose magnitudes add up to `bound`, both float64, as `dtype`.

    Raises:
        NotFoldable: a sum that `dtype` can hold might have gone beyond it on the way, in some order.
    """
    arithmetic = np.dtype(np.float32) if dtype.name in _SHORT else dtype
    with np.errstate(over="ignore"):
        beyond = ~np.isfinite(bound.astype(arithmetic)) & (np.abs(result) < bound)
    if beyond.any():
        raise NotFoldable("a sum that overflows in one order of additions, and not in another")
    return rounded(result, dtype)
