"""Many elements of a window to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.foldings import AVERAGE, LARGEST, Folding
from anydml.codegen.program.refusal import NotNative
from anydml.ir.graph import Node
from anydml.onnx.ops import product_types
from anydml.onnx.ops.native import Inputs, Native, operand, windowed
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, round_to, to_float64, widen
from anydml.onnx.ops.speculation import if_run
from anydml.onnx.ops.windows import Windows, window_too_long, windows
from anydml.onnx.protos import make_attribute
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _spatial(x: Array) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ValueError(f"expected an input of rank 3 or more, but got {x.ndim}")
    return tuple(range(2, x.ndim))


def _windows(node: NodeView, x: Array) -> Windows:
    sizes = [x.shape[k] for k in _spatial(x)]
    kernel = node.ints("kernel_shape")
    if kernel is None:
        raise NotFoldable("pooling without a kernel_shape")
    if len(kernel) != len(sizes):
        raise ValueError(f"expected {len(sizes)} kernel_shape, but got {len(kernel)}")
    found = windows(node, sizes, kernel)
    if any(max(b, a) >= k for b, a, k in zip(found.before, found.after, kernel, strict=True)):
        raise NotFoldable("padding as large as the kernel, which libraries refuse")
    return found


def _stack_windows(x: Array, where: Windows, fill: float) -> Array:
    """[positions of a window, N, C, windows...]: what every window sees."""
    padding = [(0, 0), (0, 0), *where.needed(x.shape[2:])]
    padded = np.pad(x, padding, constant_values=fill)
    return np.stack([padded[where.at(position)] for position in where.positions()])


def _inside(x: Array, where: Windows) -> Array:
    """The same for whether it is an element of the input; [positions, 1, 1, windows...]."""
    return _stack_windows(np.ones((1, 1, *x.shape[2:])), where, 0) > 0


def _max(node: NodeView, x: Array) -> tuple[Array, ...]:
    """The largest, and where in the input it is."""
    where = _windows(node, x)
    wide = widen(x)
    if x.dtype in FLOATS and np.isnan(wide).any():
        raise NotFoldable("the largest of numbers and NaN")
    inside = _inside(x, where)
    if not inside.any(0).all():
        raise NotFoldable("a window of nothing but padding")
    lowest = -np.inf if x.dtype in FLOATS else np.iinfo(x.dtype).min
    seen = _stack_windows(wide, where, lowest)
    if x.dtype in FLOATS:
        zeros, signs = (seen == 0) & inside, np.signbit(seen)
        if ((seen.max(0) == 0) & (zeros & signs).any(0) & (zeros & ~signs).any(0)).any():
            raise NotFoldable("the largest of zeros of both signs")
    result = seen.max(0).astype(x.dtype)
    if not any(node.outputs[1:]):
        return (result,)
    if node.int("storage_order"):
        raise NotFoldable("indices by columns")
    index = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    # Padding has the lowest number too, but is never the answer.
    best = np.where(inside, seen == seen.max(0), False).argmax(0)
    return result, np.take_along_axis(_stack_windows(index, where, -1), best[None], 0)[0]


def _average(node: NodeView, x: Array) -> Array:
    where = _windows(node, x)
    inside = _inside(x, where).sum(0)
    if node.attribute("count_include_pad"):
        needed = where.needed(x.shape[2:])
        if any(end > after for (_, end), after in zip(needed, where.after, strict=True)):
            raise NotFoldable("windows that go beyond the padding")
        inside = np.full_like(inside, int(np.prod(where.kernel)))
    elif not inside.all():
        raise NotFoldable("a window of nothing but padding")
    return round_to(_stack_windows(to_float64(x), where, 0).sum(0) / inside, x.dtype)


def _lp(node: NodeView, x: Array) -> Array:
    p = float(node.attribute("p"))
    if not p > 0:
        raise NotFoldable(f"norm {p}")
    total = (np.abs(_stack_windows(to_float64(x), _windows(node, x), 0)) ** p).sum(0)
    return _root(total, p, x)


def _root(total: Array, p: float, x: Array) -> Array:
    """Of sums of powers, which in the input's type must not overflow, nor underflow."""
    limits = np.finfo(widen(x).dtype)
    if not (np.isfinite(total) & (total < limits.max) & ((total == 0) | (total > limits.tiny))).all():
        raise NotFoldable("a norm that overflows, underflows or is of no number")
    return round_to(np.sqrt(total) if p == 2 else total ** (1 / p), x.dtype)


def _global(compute: Callable[[NodeView, Array, tuple[int, ...]], Array]) -> Fold:
    def rule(node: NodeView, x: Array) -> Array:
        axes = _spatial(x)
        if x.size == 0 and x.shape[0] and x.shape[1]:
            raise NotFoldable("the pool of nothing")
        if x.size == 0:
            return np.empty((*x.shape[:2], *[1] * len(axes)), x.dtype)
        return compute(node, x, axes)

    return rule


def _global_average(node: NodeView, x: Array, axes: tuple[int, ...]) -> Array:
    return round_to(to_float64(x).mean(axes, keepdims=True), x.dtype)


def _global_max(node: NodeView, x: Array, axes: tuple[int, ...]) -> Array:
    wide = widen(x)
    largest = wide.max(axes, keepdims=True)
    if np.isnan(wide).any() or ((largest == 0) & np.signbit(wide) & (wide == 0)).any():
        raise NotFoldable("the largest of numbers and NaN, or of zeros of both signs")
    return np.asarray(largest).astype(x.dtype)


def _global_lp(node: NodeView, x: Array, axes: tuple[int, ...]) -> Array:
    p = float(node.attribute("p"))
    if not p > 0:
        raise NotFoldable(f"norm {p}")
    return _root((np.abs(to_float64(x)) ** p).sum(axes, keepdims=True), p, x)


_NO_CHANNELS = Quirk(
    "onnxruntime refuses to pool no channels", lambda n: n.rank(0) != 0 and n.size(0, 1) == 0
)


def _uneven(n: KnownNode) -> bool:
    pads = n.ints("pads") or []
    return len(set(pads)) > 1 or n.outputs[1:2] == (True,)


def _axes_with_ceil_mode(n: KnownNode, rank: int) -> range:
    """Whether the last window may begin in the padding."""
    return range(2 if n.attribute("ceil_mode") else rank, rank)


def _without_ceil_mode(node: Node) -> Node:
    """A pool whose end pads say how many windows it has.

    A last window that would begin in the padding is none, for libraries; for ONNX's inference it is one.
    """
    view, sizes = NodeView(node), node.inputs[0].known_sizes if node.inputs[0] else None
    kernel = view.ints("kernel_shape") or []
    axes = len(kernel)
    strides, dilations = view.ints("strides") or [1] * axes, view.ints("dilations") or [1] * axes
    pads = view.ints("pads") or [0] * 2 * axes
    if not view.attribute("ceil_mode") or sizes is None or len(sizes) != axes + 2:
        return node
    if (
        view.mode("auto_pad") not in ("", "NOTSET")
        or (len(strides), len(dilations), len(pads)) != (axes, axes, 2 * axes)
        or min(strides) < 1
    ):
        return node
    ends = []
    for k, size in enumerate(sizes[2:]):
        begin, end, reach = pads[k], pads[k + axes], dilations[k] * (kernel[k] - 1) + 1
        room = begin + size + end - reach
        windows = -(-room // strides[k]) + 1
        if (windows - 1) * strides[k] >= begin + size:
            windows -= 1
        if windows < 1:
            return node
        ends.append(max(end, (windows - 1) * strides[k] + reach - begin - size))
    changed = ends != pads[axes:]
    counted = view.attribute("count_include_pad")
    if changed and (counted or any(end >= n for end, n in zip(ends, kernel, strict=True))):
        return node  # pads would count as elements, or be more than libraries take
    attributes = {n: a for n, a in node.attributes.items() if n != "ceil_mode"}
    if changed:
        attributes["pads"] = make_attribute("pads", pads[:axes] + ends)
    return replace(node, attributes=attributes)


def _native_pool(folding: Folding, fill: float) -> Native:
    """Of float32; windows are views. Averages with ceil_mode, and places of maxima, are left to others."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x, kernel = operand(inputs), n.ints("kernel_shape")
        if x.dtype is not FLOAT32 or len(x.sizes) < 3 or kernel is None or any(n.outputs[1:]):
            raise NotNative("pooling of another type than float32, or places of maxima")
        if n.attribute("ceil_mode") and folding is AVERAGE:
            raise NotNative("averages with ceil_mode")
        where = windows(n, x.sizes[2:], kernel)
        padded, counts = any((*where.before, *where.after)), np.ones(())
        if padded:
            ones = np.pad(np.ones(x.sizes[2:]), where.needed(x.sizes[2:]))
            counts = sum((ones[where.at(position)] for position in where.positions()), np.zeros(where.count))
        if not counts.all():
            raise NotNative("windows of padding only, of which libraries take the least number")
        seen = windowed(b, x, where, fill)
        axes = [*range(len(seen.sizes) - len(kernel), len(seen.sizes))]
        result = program.fold_axes(b, seen, axes, False, folding)
        if folding is not AVERAGE or n.attribute("count_include_pad") or not padded:
            return [result]
        factor = program.Known.of((prod(kernel) / counts).astype(np.float32))
        return [b.elementwise(expr.mul(expr.read(0, FLOAT32), expr.read(1, FLOAT32)), [result, factor])]

    return rule


def _native_global(folding: Folding) -> Native:
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        if x.dtype is not FLOAT32 or len(x.sizes) < 3:
            raise NotNative("pooling of another type than float32")
        return [program.fold_axes(b, x, [*range(2, len(x.sizes))], True, folding)]

    return rule


OPS = (
    OpInfo(
        "MaxPool",
        channels_told=True,
        any_batch=True,
        native=_native_pool(LARGEST, -np.inf),
        result=product_types.pooled,
        fold=_max,
        impossible=window_too_long,
        speculatable=if_run,
        quirks=(_NO_CHANNELS,),
        reference_error=(
            "is wrong but for two dimensions and equal pads",
            lambda n: n.rank(0) != 4 or _uneven(n),
        ),
        unsure_axes=_axes_with_ceil_mode,
        agreed=_without_ceil_mode,
    ),
    OpInfo(
        "AveragePool",
        channels_told=True,
        any_batch=True,
        native=_native_pool(AVERAGE, 0.0),
        result=product_types.pooled,
        fold=_average,
        impossible=window_too_long,
        speculatable=if_run,
        quirks=(_NO_CHANNELS,),
        extends={1: 7},
        unsure_axes=_axes_with_ceil_mode,
        agreed=_without_ceil_mode,
    ),
    OpInfo(
        "LpPool",
        fold=_lp,
        impossible=window_too_long,
        quirks=(_NO_CHANNELS,),
        reference_error=("takes means", lambda n: True),
        unsure_axes=_axes_with_ceil_mode,
        agreed=_without_ceil_mode,
    ),
    OpInfo(
        "GlobalMaxPool",
        channels_told=True,
        any_batch=True,
        native=_native_global(LARGEST),
        result=product_types.pooled_as_a_whole,
        fold=_global(_global_max),
        speculatable=if_run,
        quirks=(_NO_CHANNELS,),
        reference_error=("loses an axis", lambda n: n.rank(0) != 4),
    ),
    OpInfo(
        "GlobalAveragePool",
        channels_told=True,
        any_batch=True,
        native=_native_global(AVERAGE),
        result=product_types.pooled_as_a_whole,
        fold=_global(_global_average),
        speculatable=if_run,
        quirks=(_NO_CHANNELS,),
    ),
    OpInfo(
        "GlobalLpPool",
        result=product_types.pooled_as_a_whole,
        fold=_global(_global_lp),
        quirks=(_NO_CHANNELS,),
    ),
    OpInfo(
        "MaxUnpool",
        quirks=(
            Quirk(
                "onnxruntime refers indices to the pooled shape, not to that of the output",
                lambda n: n.value(2) is not None,
            ),
        ),
    ),
)
