"""Whether two results are the same, as far as floats go, and how they differ for who reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.errors import InvalidInput, Problem, counted

HALVES = 1e-2
"""How far results may be apart where both models round to few bits on the way, of the largest."""


@dataclass(frozen=True)
class Tolerance:
    """How far floats may be apart.

    Attributes:
        rtol, atol: `atol + rtol * abs(second)`, as for `numpy.allclose`; if one is given, the other is 0.
        of_largest: if none is given: so much of the largest element, or of 1. Who computes in another order
            rounds otherwise, and by what was larger on the way.
    """

    rtol: float | None = None
    atol: float | None = None
    of_largest: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            given = getattr(self, name)
            if given is not None and not 0 <= given < math.inf:
                raise InvalidInput(Problem(name, f"expected a finite number from 0 on, but got {given}"))

    @property
    def given(self) -> bool:
        """Whether somebody said how far."""
        return self.rtol is not None or self.atol is not None

    def close(self, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
        """Of floats of one type and shape. NaN is like NaN, infinities are like themselves."""
        if self.given:
            rtol, atol = self.rtol or 0.0, self.atol or 0.0
        else:
            finite = np.abs(a[np.isfinite(a)]).astype(np.float64)
            rtol = self._of_largest(a)
            atol = rtol * max(float(finite.max()) if finite.size else 0.0, 1.0)
        return bool(np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True))

    def told(self, a: np.ndarray[Any, Any], largest: float) -> str:
        """How far floats may be apart, for who reads that they are."""
        if self.given:
            return f"rtol {self.rtol or 0:g} and atol {self.atol or 0:g} are allowed"
        share = self._of_largest(a)
        return f"{share:g} of that{', or of 1,' if largest < 1 else ''} is allowed"

    def _of_largest(self, a: np.ndarray[Any, Any]) -> float:
        return self.of_largest if a.dtype.itemsize > 2 else HALVES


DEFAULT = Tolerance()


def same(x: Any, y: Any, tolerance: Tolerance = DEFAULT) -> bool:
    """Equal, and floats as close as they have to be; NaN and infinities in the same places."""
    if isinstance(x, list) or isinstance(y, list):
        alike = isinstance(x, list) and isinstance(y, list) and len(x) == len(y)
        return alike and all(same(a, b, tolerance) for a, b in zip(x, y, strict=True))
    if isinstance(x, dict) or isinstance(y, dict):
        alike = isinstance(x, dict) and isinstance(y, dict) and x.keys() == y.keys()
        return alike and all(same(x[key], y[key], tolerance) for key in x)
    if x is None or y is None:
        return x is y
    a, b = np.asarray(x), np.asarray(y)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return tolerance.close(a, b) if a.dtype.kind in "fc" else bool(np.array_equal(a, b))


def both_without_rows(x: Any, y: Any) -> bool:
    """Arrays of no rows, of one type and rank: of how long these would be, libraries know less than we do."""
    arrays = [v for v in (x, y) if isinstance(v, np.ndarray) and v.shape[:1] == (0,)]
    return len(arrays) == 2 and arrays[0].dtype == arrays[1].dtype and arrays[0].ndim == arrays[1].ndim


def same_kind(x: Any, y: Any) -> bool:
    """Arrays of one type and shape, as far as they are arrays."""
    kinds = [(v.shape, v.dtype) if isinstance(v, np.ndarray) else type(v) for v in (x, y)]
    return kinds[0] == kinds[1]


def one_overflows(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether floats of one are finite where those of the other are not, of models with halves: onnxruntime
    computes what stands together in float32, and so has on the way what float16 has not; what that is may
    be something else in the result."""
    floats = [(x, y) for x, y in zip(a, b, strict=True) if _are_floats(x) and _are_floats(y)]
    return any(x.shape == y.shape and (np.isfinite(x) != np.isfinite(y)).any() for x, y in floats)


def _are_floats(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def how_far(x: Any, y: Any, tolerance: Tolerance) -> str:
    """How two results differ; "" of what are no arrays."""
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return ""
    kinds = [f"{v.dtype}{list(v.shape)}" for v in (x, y)]
    if kinds[0] != kinds[1]:
        return f": {kinds[0]} and {kinds[1]}"
    if x.dtype.kind != "f":
        return f": {(x != y).sum():,} of {counted(x.size, 'element')}"
    finite = np.isfinite(x) & np.isfinite(y)
    told = f", and {where:,} are not finite in both" if (where := (~finite & (x != y)).sum()) else ""
    a, b = (v[finite].astype(np.float64) for v in (x, y))
    largest, apart = (np.max(np.abs(v), initial=0.0) for v in (a, a - b))
    return f": up to {apart:.2g} apart, of up to {largest:.2g} ({tolerance.told(x, largest)}){told}"
