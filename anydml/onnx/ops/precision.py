"""Which arithmetic stands behind an element type, and what it must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.ops.opinfo import Array, NotFoldable
from anydml.onnx.types import numpy_type

BFLOAT16: np.dtype[Any] = numpy_type("bfloat16")
FLOATS = frozenset(np.dtype(t) for t in (np.float16, np.float32, np.float64)) | {BFLOAT16}
"""Floats that are calculated with; smaller ones are only stored."""
_SHORT = (np.dtype(np.float16), BFLOAT16)


def widen(x: Array) -> Array:
    """float16 and bfloat16 as float32, in which they are computed; anything else as it is."""
    return x.astype(np.float32) if x.dtype in _SHORT else x


def to_float64(x: Array) -> Array:
    """Floating point as float64, so that the order of additions does not show in float32 and below."""
    return x.astype(np.float64, copy=False) if x.dtype in FLOATS else x


def double(x: Array) -> Array:
    """As float64, in which libraries' functions are right for all smaller floats, whatever processor runs."""
    return x.astype(np.float64)


def round_to(x: Any, dtype: np.dtype[Any]) -> Array:
    """What was computed, as `dtype`: float64 by way of float32 for the short ones, as libraries do."""
    x = np.asarray(x)
    if x.dtype == np.float64 and dtype in _SHORT:
        x = x.astype(np.float32)
    result: Array = x.astype(dtype)
    return result


def without_detour(result: Array, bound: Array, dtype: np.dtype[Any]) -> Array:
    """`result`, sums of numbers whose magnitudes add up to `bound`, both float64, as `dtype`.

    Raises:
        NotFoldable: a sum that `dtype` can hold might have gone beyond it on the way, in some order.
    """
    arithmetic = np.dtype(np.float32) if dtype in _SHORT else dtype
    with np.errstate(over="ignore"):
        beyond = ~np.isfinite(bound.astype(arithmetic)) & (np.abs(result) < bound)
    if beyond.any():
        raise NotFoldable("a sum that overflows in one order of additions, and not in another")
    return round_to(result, dtype)
