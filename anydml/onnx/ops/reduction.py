"""Many elements to one, along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from anydml.codegen.program.foldings import (
    AVERAGE,
    LARGEST,
    LEAST,
    NORM,
    PRODUCT,
    SUM_OF_ABSOLUTES,
    SUM_OF_SQUARES,
    TOTAL,
)
from anydml.ir.dims import whole
from anydml.onnx.ops import native_reduction, result_types, safe
from anydml.onnx.ops.opinfo import (
    Array,
    Fold,
    KnownNode,
    NodeView,
    NotFoldable,
    OpInfo,
    Quirk,
    Symbols,
    partly_mended,
)
from anydml.onnx.ops.precision import FLOATS, round_to, to_float64, widen, without_detour
from anydml.onnx.ops.shared import axis_in
from anydml.onnx.ops.speculation import reduces_any, reduces_some
from anydml.onnx.ops.symbolic import of_sizes
from anydml.ops import expr
from anydml.ops.enums import ReduceFunction

Axes = tuple[int, ...]
Reduce = Callable[[Array, Axes], Array]
"""(data, axes) -> result of the same type that keeps the reduced axes, of length 1."""


def _axes(node: NodeView, data: Array, given: Array | None) -> Axes:
    """The axes to reduce, counted from the front: an attribute, or since 13 (ReduceSum) and 18 an input."""
    if given is not None and given.ndim != 1:
        raise ValueError(f"expected axes of rank 1, but got {given.ndim}")
    axes = (node.ints("axes") or []) if given is None else given.tolist()
    if not axes:
        return () if node.attribute("noop_with_empty_axes") else tuple(range(data.ndim))
    if data.ndim == 0:  # torch reduces scalars along their axis 0, and so do its models; as in onnxruntime
        return ()
    found = tuple(axis_in(int(axis), data.ndim) for axis in axes)
    if len(set(found)) < len(found):
        raise NotFoldable("an axis that is named twice")
    return found


def _rule(of_floats: Reduce, of_integers: Reduce) -> Fold:
    def rule(node: NodeView, data: Array, axes: Array | None = None) -> Array:
        reduced = _axes(node, data, axes)
        result = (of_floats if data.dtype in FLOATS else of_integers)(data, reduced)
        assert result.dtype == data.dtype
        return result if node.int("keepdims") else result.squeeze(reduced)

    return rule


def _count(data: Array, axes: Axes) -> int:
    return int(np.prod([data.shape[axis] for axis in axes], dtype=np.int64))


# ---- sums --------------------------------------------------------------------------------------------


def _float_sum(data: Array, axes: Axes) -> Array:
    if not axes:  # a sum begins with 0, which would take the sign of -0 away
        return data
    wide = to_float64(data)
    total: Array = wide.sum(axes, keepdims=True)
    if axes and data.size and ((wide == 0) & np.signbit(wide)).all(axes).any():
        raise NotFoldable("a sum of negative zeros, whose sign is that of what libraries begin with")
    return without_detour(total, np.abs(wide).sum(axes, keepdims=True), data.dtype)


def _exact(wrapped: Array, estimate: Array) -> Array:
    """Integers as they are, if the same in float64 says that none of them has wrapped around."""
    limits = np.iinfo(wrapped.dtype)
    margin = 1 - 2.0**-40 if limits.bits == 64 else 1.0
    if ((estimate < float(limits.min) * margin) | (estimate > float(limits.max) * margin)).any():
        raise NotFoldable("an integer that overflows: libraries wrap around, or saturate")
    return wrapped


def _integer_sum(data: Array, axes: Axes) -> Array:
    wrapped: Array = data.sum(axes, keepdims=True, dtype=data.dtype)
    if _count(data, axes) == 1:  # integers near the limits, which an estimate cannot tell from those beyond
        return wrapped
    return _exact(wrapped, data.sum(axes, keepdims=True, dtype=np.float64))


def _sum_of(change: Callable[[Array], Array]) -> tuple[Reduce, Reduce]:
    """The sums of changed elements, which are not negative."""

    def of_floats(data: Array, axes: Axes) -> Array:
        changed = change(widen(data))
        return round_to(changed.sum(axes, keepdims=True, dtype=np.float64), data.dtype)

    def of_integers(data: Array, axes: Axes) -> Array:
        estimate = change(data.astype(np.float64)).sum(axes, keepdims=True)
        return _exact(change(data).sum(axes, keepdims=True, dtype=data.dtype), estimate)

    return of_floats, of_integers


def _float_mean(data: Array, axes: Axes) -> Array:
    """Of nothing ONNX leaves it open; 0, as with onnxruntime."""
    count = _count(data, axes)
    wide = widen(data)
    total = _float_sum(wide, axes)
    if (np.isinf(total) & np.isfinite(wide).all(axes, keepdims=True)).any():
        raise NotFoldable("a mean whose sum overflows")
    mean: Array = total / max(count, 1)
    return mean.astype(data.dtype)


def _integer_mean(data: Array, axes: Axes) -> Array:
    """Cut off towards zero."""
    count = max(_count(data, axes), 1)
    wide = data if data.dtype.itemsize == 8 else data.astype(np.int64)
    total = _integer_sum(wide, axes)
    quotient: Array = total // total.dtype.type(count)
    quotient += ((total < 0) & (quotient * count != total)).astype(total.dtype)
    return quotient.astype(data.dtype)


# ---- norms and logarithms ----------------------------------------------------------------------------


def _float_l2(data: Array, axes: Axes) -> Array:
    """The squares are of the arithmetic's type, and overflow, as in ONNX's own definition."""
    squares = np.square(widen(data))
    total: Array = squares.sum(axes, keepdims=True, dtype=np.float64)
    return round_to(np.sqrt(total.astype(squares.dtype)), data.dtype)


def _integer_l2(data: Array, axes: Axes) -> Array:
    """Cut off."""
    total = np.square(data.astype(np.float64)).sum(axes, keepdims=True)
    if (total > 2.0**53).any():
        raise NotFoldable("a sum of squares that float64 cannot hold")
    return _exact(np.sqrt(total).astype(data.dtype), np.sqrt(total))


def _float_log_sum(data: Array, axes: Axes) -> Array:
    return round_to(np.log(to_float64(_float_sum(widen(data), axes))), data.dtype)


def _integer_log_sum(data: Array, axes: Axes) -> Array:
    return _to_integers(np.log(data.sum(axes, keepdims=True, dtype=np.float64)), data)


def _log_sum_exp(wide: Array, axes: Axes) -> Array:
    """Of float64, shifted by the maximum, so that nothing overflows."""
    largest = wide.max(axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, 0)
    return np.asarray(np.log(np.exp(wide - shift).sum(axes, keepdims=True)) + shift)


def _float_log_sum_exp(data: Array, axes: Axes) -> Array:
    return round_to(_log_sum_exp(to_float64(data), axes), data.dtype)


def _integer_log_sum_exp(data: Array, axes: Axes) -> Array:
    if data.size and int(np.abs(data.astype(np.float64)).max()) > 2**53:
        raise NotFoldable("integers that float64 cannot hold")
    if _count(data, axes) == 1:
        return data.copy()
    wide = data.astype(np.float64)
    result = _to_integers(_log_sum_exp(wide, axes), data)
    largest = np.where(wide == wide.max(axes, keepdims=True, initial=-np.inf), wide, -np.inf)
    if (result != _to_integers(_log_sum_exp(largest, axes), data)).any():
        raise NotFoldable("a sum to which exponentials below 1 count, which libraries cut off")
    return result


def _to_integers(result: Array, data: Array) -> Array:
    """As integers. Below zero some cut off and some round down; that of nothing is the least there is."""
    if data.dtype.kind == "i" and not data.size:
        return np.full(result.shape, np.iinfo(data.dtype).min, data.dtype)
    if not (result >= 0).all():
        raise NotFoldable("a logarithm that no integer of this type stands for, or more than one")
    return result.astype(data.dtype)


# ---- products and extremes ---------------------------------------------------------------------------


def _float_product(data: Array, axes: Axes) -> Array:
    narrow = widen(data)
    result: Array = narrow.prod(axes, keepdims=True, dtype=np.float64).astype(narrow.dtype)
    straight = narrow.prod(axes, keepdims=True)
    if (np.isfinite(straight) != np.isfinite(result)).any() or ((straight == 0) != (result == 0)).any():
        raise NotFoldable("a product that overflows in one order, and not in another")
    return result.astype(data.dtype)


def _integer_product(data: Array, axes: Axes) -> Array:
    wrapped: Array = data.prod(axes, keepdims=True, dtype=data.dtype)
    if _count(data, axes) == 1:
        return wrapped
    return _exact(wrapped, data.prod(axes, keepdims=True, dtype=np.float64))


def _float_extreme(name: str) -> Reduce:
    """A NaN among numbers counts for some libraries only; so does the sign of a zero among others."""
    pick, nothing = (np.maximum, -np.inf) if name == "max" else (np.minimum, np.inf)

    def reduce(data: Array, axes: Axes) -> Array:
        wide = widen(data)
        result = pick.reduce(wide, axes, keepdims=True, initial=nothing)
        unknown = np.isnan(result) & ~np.isnan(wide).all(axes, keepdims=True)
        zeros, signs = wide == 0, np.signbit(wide)
        both = (zeros & signs).any(axes, keepdims=True) & (zeros & ~signs).any(axes, keepdims=True)
        if (unknown | ((result == 0) & both)).any():
            raise NotFoldable(f"the {name} of numbers and NaN, or of zeros of both signs")
        return np.asarray(result).astype(data.dtype)

    return reduce


def _integer_extreme(name: str) -> Reduce:
    def reduce(data: Array, axes: Axes) -> Array:
        if data.dtype == bool:
            return np.asarray((data.any if name == "max" else data.all)(axes, keepdims=True))
        limits = np.iinfo(data.dtype)
        if name == "max":
            return np.asarray(data.max(axes, keepdims=True, initial=limits.min))
        return np.asarray(data.min(axes, keepdims=True, initial=limits.max))

    return reduce


# ---- where the extremes are --------------------------------------------------------------------------


def extreme_index(data: Array, axis: int, largest: bool, last: bool = False) -> Array:
    """The index of the first (or last) extreme along an axis, which is kept.

    Raises:
        NotFoldable: a NaN among others, which counts for some libraries only.
        ValueError: an axis of length 0 has no index.
    """
    wide = widen(data)
    length = data.shape[axis]
    if wide.dtype.kind == "f" and length > 1 and np.isnan(wide).any():
        raise NotFoldable("the extreme of numbers and NaN")
    if data.size == 0:
        shape = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        if 0 not in shape:
            raise ValueError("expected at least one element along the axis, but got none")
        return np.zeros(shape, np.int64)
    pick: Any = np.argmax if largest else np.argmin
    if not last:
        return np.asarray(pick(wide, axis, keepdims=True)).astype(np.int64)
    return np.asarray(length - 1 - pick(np.flip(wide, axis), axis, keepdims=True)).astype(np.int64)


def _arg(largest: bool) -> Fold:
    def rule(node: NodeView, data: Array) -> Array:
        if data.ndim == 0:  # as above
            return np.zeros((), np.int64)
        axis = axis_in(node.int("axis"), data.ndim)
        found = extreme_index(data, axis, largest, last=bool(node.attribute("select_last_index")))
        return found if node.int("keepdims") else found.squeeze(axis)

    return rule


def axes_of(n: KnownNode) -> list[int] | None:
    """What is reduced, as the node says it; None where that is not known."""
    if n.op.name in ("ArgMax", "ArgMin"):
        axis = n.attribute("axis")
        return [axis] if isinstance(axis, int) else []
    if n.value(1) is None:
        return list(n.ints("axes") or ())
    axes = n.content(1)
    return None if axes is None else axes.ravel().tolist()


def _from_the_end(n: KnownNode) -> bool:
    axes = axes_of(n)
    return n.may_be_empty(0) and (axes is None or any(axis < 0 for axis in axes))


def front_axes(n: KnownNode) -> list[int] | None:
    """Axes that are counted from the end, of what may be empty, as they are counted from the front; None of
    other nodes, and where that is not known."""
    axes, rank = axes_of(n), n.rank(0)
    if axes is None or rank is None or not _from_the_end(n):
        return None
    return [axis % rank for axis in axes] if all(-rank <= axis < rank for axis in axes) else None


_FROM_THE_END = partly_mended(
    "onnxruntime does not reduce an empty tensor over axes that are counted from the end",
    _from_the_end,
    lambda n: front_axes(n) is not None,
    empty=True,
)
_EMPTY_BOOL = Quirk(
    "onnxruntime refuses to reduce an empty tensor of bool",
    lambda n: n.dtype() == "bool" and n.may_be_empty(0),
    empty=True,
)


def _product_symbol(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    total = whole(1)
    for x in given[0].reshape(-1):
        total = total * x
    return None if sizes is None or prod(sizes) != 1 else of_sizes([total]).reshape(sizes)


def _sum_symbol(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    total = reduce(add, given[0].reshape(-1), whole(0))
    return None if sizes is None or prod(sizes) != 1 else of_sizes([total]).reshape(sizes)


_reduction = partial(OpInfo, result=result_types.reduced, quirks=_FROM_THE_END)
OPS = (
    _reduction(
        "ReduceSum",
        reduction=ReduceFunction.SUM,
        native=native_reduction.folds(TOTAL),
        fold=_rule(_float_sum, _integer_sum),
        symbols=_sum_symbol,
        speculatable=reduces_any,
    ),
    _reduction(
        "ReduceMean",
        reduction=ReduceFunction.AVERAGE,
        safe=safe.reduced,
        native=native_reduction.folds(AVERAGE),
        fold=_rule(_float_mean, _integer_mean),
        speculatable=reduces_any,
    ),
    _reduction(
        "ReduceProd",
        native=native_reduction.folds(PRODUCT),
        fold=_rule(_float_product, _integer_product),
        symbols=_product_symbol,
        speculatable=reduces_any,
    ),
    _reduction(
        "ReduceMax",
        reduction=ReduceFunction.MAX,
        safe=safe.reduced,
        native=native_reduction.folds(LARGEST),
        fold=_rule(_float_extreme("max"), _integer_extreme("max")),
        speculatable=reduces_some,
        quirks=(*_FROM_THE_END, _EMPTY_BOOL),
        moves_first=True,
    ),
    _reduction(
        "ReduceMin",
        reduction=ReduceFunction.MIN,
        safe=safe.reduced,
        native=native_reduction.folds(LEAST),
        fold=_rule(_float_extreme("min"), _integer_extreme("min")),
        speculatable=reduces_some,
        quirks=(*_FROM_THE_END, _EMPTY_BOOL),
        moves_first=True,
    ),
    _reduction(
        "ReduceL1",
        reduction=ReduceFunction.L1,
        native=native_reduction.folds(SUM_OF_ABSOLUTES),
        fold=_rule(*_sum_of(np.abs)),
        speculatable=reduces_any,
    ),
    _reduction(
        "ReduceL2",
        reduction=ReduceFunction.L2,
        native=native_reduction.folds(NORM),
        fold=_rule(_float_l2, _integer_l2),
        speculatable=reduces_any,
    ),
    _reduction(
        "ReduceLogSum",
        native=native_reduction.log_of_total,
        safe=safe.reduced,
        fold=_rule(_float_log_sum, _integer_log_sum),
        speculatable=reduces_some,
        moves_first=True,
    ),
    _reduction(
        "ReduceLogSumExp",
        reduction=ReduceFunction.LOG_SUM_EXP,
        native=native_reduction.log_of_powers,
        safe=safe.reduced,
        fold=_rule(_float_log_sum_exp, _integer_log_sum_exp),
        speculatable=reduces_some,
        moves_first=True,
    ),
    _reduction(
        "ReduceSumSquare",
        reduction=ReduceFunction.SUM_SQUARE,
        native=native_reduction.folds(SUM_OF_SQUARES),
        fold=_rule(*_sum_of(np.square)),
        speculatable=reduces_any,
        reference_error=("gives another type", lambda n: n.dtype() in ("int32", "uint32")),
    ),
    OpInfo(
        "ArgMax",
        reduction=ReduceFunction.ARGMAX,
        safe=safe.placed,
        native=native_reduction.place_of_best(expr.gt),
        result=result_types.found_along,
        fold=_arg(largest=True),
        speculatable=reduces_some,
        quirks=_FROM_THE_END,
        moves_first=True,
    ),
    OpInfo(
        "ArgMin",
        reduction=ReduceFunction.ARGMIN,
        safe=safe.placed,
        native=native_reduction.place_of_best(expr.lt),
        result=result_types.found_along,
        fold=_arg(largest=False),
        speculatable=reduces_some,
        quirks=_FROM_THE_END,
        moves_first=True,
    ),
)
