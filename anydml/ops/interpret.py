"""Expressions on whole arrays, by NumPy: what kernels are compared with. Plain, not fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ops.dtypes import BOOL, FLOATING, NUMPY
from anydml.ops.expr import Expr, inline_calls, walk

Array = NDArray[Any]


def evaluate(expr: Expr, operands: Sequence[Array]) -> Array:
    """The expression on operands that broadcast against each other."""
    with np.errstate(all="ignore"):
        return _Evaluation([np.asarray(x) for x in operands]).of(expr)


class _Evaluation:
    def __init__(self, operands: list[Array]) -> None:
        self.operands = operands
        self.shape = np.broadcast_shapes(*(x.shape for x in operands))
        self.known: dict[Expr, Array] = {}

    def of(self, expr: Expr) -> Array:
        for part in walk(expr):
            if part not in self.known:
                self.known[part] = self._compute(part)
        return self.known[expr]

    def _compute(self, expr: Expr) -> Array:
        opcode = expr.opcode
        if opcode == "read":
            return self.operands[int(expr.value)]
        if opcode == "constant":
            return np.array(expr.value, NUMPY[expr.dtype])
        if opcode == "call":
            return self.of(inline_calls(expr))
        if opcode == "row_index":
            return self._row_index(expr)
        args = [self.known[arg] for arg in expr.args]
        if opcode in _ROWS:
            whole = np.broadcast_to(args[0], self.shape)
            wide = whole.astype(np.float64) if opcode == "row_sum" and expr.dtype in FLOATING else whole
            return np.asarray(_ROWS[opcode](wide, axis=expr.value, keepdims=True)).astype(whole.dtype)
        if opcode == "convert":
            return _convert(args[0], expr)
        if opcode == "bitcast":
            return np.ascontiguousarray(args[0]).view(NUMPY[expr.dtype]).reshape(args[0].shape)
        if opcode in ("shl", "shr"):
            return _shift(opcode, *args)
        if opcode in ("div", "rem") and expr.dtype not in FLOATING:
            return _divide(opcode, *args)
        return np.asarray(_NUMPY[opcode](*args)).astype(_numpy_type(expr), copy=False)

    def _row_index(self, expr: Expr) -> Array:
        sizes = [self.shape[a] for a in expr.value]
        shape = [self.shape[a] if a in expr.value else 1 for a in range(-len(self.shape), 0)]
        return np.arange(np.prod(sizes), dtype=np.uint32).reshape(shape)


def _numpy_type(expr: Expr) -> np.dtype:
    return np.dtype(np.bool_) if expr.dtype is BOOL else NUMPY[expr.dtype]


def _convert(x: Array, expr: Expr) -> Array:
    target = _numpy_type(expr)
    if target.kind == "f" or x.dtype.kind != "f":
        return x.astype(target)
    info = np.iinfo(target)
    low, high = float(info.min), float(info.max) + 1.0  # powers of two, or 0, in any float type
    inside = (x > low) & (x < high)
    whole = np.where(inside, x, 0).astype(target)
    least, most, zero = (np.array(n, target) for n in (info.min, info.max, 0))
    return np.where(inside, whole, np.where(x <= low, least, np.where(x > 0, most, zero)))


def _shift(opcode: str, a: Array, count: Array) -> Array:
    width = 8 * a.dtype.itemsize
    counts = np.minimum(count.astype(np.uint64), width - 1).astype(a.dtype)
    shifted = np.left_shift(a, counts) if opcode == "shl" else np.right_shift(a, counts)
    return np.where(count.astype(np.uint64) < width, shifted, 0).astype(a.dtype)


def _divide(opcode: str, a: Array, b: Array) -> Array:
    one = np.where(b == 0, 1, b).astype(a.dtype)
    rest = np.fmod(a, one)
    if opcode == "rem":
        return np.where(b == 0, 0, rest).astype(a.dtype)
    quotient = np.floor_divide(a, one)
    toward_zero = quotient + ((rest != 0) & ((a < 0) != (one < 0)))
    return np.where(b == 0, 0, toward_zero).astype(a.dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    return _fma32(a, b, c) if a.dtype == np.float32 else _fma64(a, b, c)


def _fma32(a: Array, b: Array, c: Array) -> Array:
    """Exact: the product is exact in float64, and the sum is rounded to odd before it becomes float32."""
    product = a.astype(np.float64) * b
    total, rest = _two_sum(product, c.astype(np.float64))
    bits = np.atleast_1d(total).view(np.int64)
    rest = np.atleast_1d(rest)
    even = (bits & 1 == 0) & (rest != 0) & np.isfinite(rest)
    away = (rest > 0) == (np.atleast_1d(total) > 0)
    odd = np.where(even, bits + np.where(away, 1, -1), bits)
    return odd.view(np.float64).astype(np.float32).reshape(np.shape(total))


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """Right up to a final rounding or two: the product's rest by splitting, the sum's exactly."""
    product = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    rest = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    total, more = _two_sum(product, c)
    precise = total + (more + rest)
    return np.where(np.isfinite(precise), precise, total)


def _split(x: Array) -> tuple[Array, Array]:
    high = x * 134217729.0
    high = high - (high - x)
    return high, x - high


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = np.asarray(a + b)
    part = total - a
    return total, np.asarray((a - (total - part)) + (b - part))


def _extreme(of_two: np.ufunc, x: Array, **rows: Any) -> Array:
    """Over rows; of NaNs alone, and of nothing, what loses to every number."""
    limits: Any = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    low, high = (limits.min, limits.max) if limits else (-np.inf, np.inf)
    found: Array = of_two.reduce(x, initial=low if of_two is np.fmax else high, **rows)
    return found


_ROWS: Mapping[str, Callable[..., Array]] = {
    "row_max": lambda x, **rows: _extreme(np.fmax, x, **rows),
    "row_min": lambda x, **rows: _extreme(np.fmin, x, **rows),
    "row_sum": np.sum,
}

_NUMPY: Mapping[str, Callable[..., Array]] = {
    "select": np.where,
    "select_lazy": np.where,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rem": np.fmod,
    "neg": np.negative,
    "absolute": np.abs,
    "fma": _fma,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "popcount": np.bitwise_count,
}
