"""Operators about sizes: the elements stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.ir.dims import UNKNOWN, Affine, as_affine, as_dim, may_be_zero, whole
from anydml.ir.graph import TensorType, Type
from anydml.onnx.ops import native, result_types, safe
from anydml.onnx.ops.directml import MOVED, unary
from anydml.onnx.ops.native import Inputs, operand
from anydml.onnx.ops.opinfo import Array, Content, KnownNode, NodeView, NotFoldable, OpInfo, Symbols
from anydml.onnx.ops.shared import (
    axes_in,
    axis_in,
    flag,
    no_flops,
    numbers,
    sizes_in,
)
from anydml.onnx.ops.speculation import always, can_broadcast, has_ranks, same_count
from anydml.onnx.ops.symbolic import of_sizes, quotient, same_order
from anydml.ops import unary as unary_ops
from anydml.ops.dtypes import INT64

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _shape(node: NodeView, x: Array) -> Array:
    return np.array(x.shape[node.attribute("start") or 0 : node.attribute("end")], np.int64)


def _reshape(node: NodeView, x: Array, shape: Array | None = None) -> Array:
    given = node.ints("shape") if shape is None else numbers(shape)
    if given is None:
        raise NotFoldable("no shape")
    if any(n < -1 for n in given) or given.count(-1) > 1:
        raise ValueError(f"expected sizes of which one is -1 at most, but got {given}")
    literally = _is_literal(node)
    if literally and 0 in given and -1 in given:
        raise NotFoldable("a size of -1 beside 0, with allowzero")
    sizes = [x.shape[k] if n == 0 and not literally else n for k, n in enumerate(given)]
    return x.reshape(sizes)


def _is_literal(node: NodeView) -> bool:
    """Whether a size of 0 is one, and not the input's."""
    return node.version >= 14 and flag(node, "allowzero")


def _flatten(node: NodeView, x: Array) -> Array:
    axis = node.int("axis")
    if not (-x.ndim if node.version >= 11 else 0) <= axis <= x.ndim:
        raise ValueError(f"expected an axis of {x.ndim}, but got {axis}")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def _axes(node: NodeView, axes: Array | None) -> list[int] | None:
    """They are an attribute before opset 13."""
    return node.ints("axes") if node.version < 13 else None if axes is None else numbers(axes)


def _squeeze(node: NodeView, x: Array, axes: Array | None = None) -> Array:
    given = _axes(node, axes)
    if given is not None and not given:
        raise NotFoldable("axes that are none, which onnxruntime takes for all")
    if given is None:
        return x.reshape([n for n in x.shape if n != 1])
    return np.squeeze(x, tuple({axis_in(axis, x.ndim) for axis in given}))


def _unsqueeze(node: NodeView, x: Array, axes: Array | None = None) -> Array:
    given = _axes(node, axes)
    if given is None:
        raise NotFoldable("no axes")
    found = axes_in(given, x.ndim + len(given))
    old = iter(x.shape)
    return x.reshape([1 if k in found else next(old) for k in range(x.ndim + len(given))])


def _expand(node: NodeView, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(sizes_in(shape))))


def _identity(node: NodeView, x: Content) -> Content:
    return x


def _size(node: NodeView, x: Array) -> Any:
    return np.array(x.size, np.int64)


def _reshape_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    shape = contents[1] if len(contents) > 1 else None
    if shape is None or shape.ndim != 1:
        return None
    literally = _is_literal(node)
    given, least = ([], 0) if literally else (sizes[0], 1)  # what 0 stands for, and what says nothing else
    wanted = [given[k] if n.number == 0 and k < len(given) else n for k, n in enumerate(shape)]
    for k, n in enumerate(wanted):  # a symbol may turn out to be 0, which means the input's size, or -1
        if n.number is None and not (n.least is not None and n.least >= least) and n not in given[k : k + 1]:
            wanted[k] = UNKNOWN
    rest = [k for k, n in enumerate(wanted) if n.number == -1]
    if len(rest) == 1:
        wanted[rest[0]] = quotient(sizes[0], [n for k, n in enumerate(wanted) if k != rest[0]])
    return wanted


def _broadcast_size(a: Affine, b: Affine) -> Affine:
    if a == b or b.number == 1:
        return a
    if a.number == 1:
        return b
    known = [x for x in (a, b) if x.number is not None]
    return known[0] if len(known) == 1 else UNKNOWN  # a symbol beside a number is that number, or 1


def _expand_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    shape = contents[1] if len(contents) > 1 else None
    if shape is None or shape.ndim != 1 or any(n.least is None or n.least < 0 for n in shape):
        return None
    rank = max(len(shape), len(sizes[0]))
    ones = [whole(1)]
    pairs = zip(
        ones * (rank - len(sizes[0])) + list(sizes[0]), ones * (rank - len(shape)) + list(shape), strict=True
    )
    return [_broadcast_size(a, b) for a, b in pairs]


def _squeezes(n: KnownNode) -> bool:
    sizes, axes = n.sizes(0), n.axes()
    if n.count < 2 and "axes" not in n.given:
        return sizes is not None
    if sizes is None or axes is None:
        return False
    return all(-len(sizes) <= k < len(sizes) and sizes[k] == 1 for k in axes)


def _keeps_count(n: KnownNode) -> bool:
    before, (after,) = n.sizes(0), n.output_sizes()
    if before is None or after is None or not same_count(before, after):
        return False
    shape = n.integers(1) if "shape" not in n.given else []
    if shape is None:  # there may be a -1 in it, and of nothing no size follows
        return not any(map(may_be_zero, before))
    rest = [size for size, asked in zip(after, shape, strict=False) if asked != -1]
    return -1 not in shape or not any(map(may_be_zero, rest))


def _other_count(n: KnownNode, outputs: Sequence[Type | None], pads: Sequence[int] | None) -> bool:
    before = None if (value := n.value(0)) is None else value.known_sizes
    after = outputs[0].known_sizes if isinstance(outputs[0], TensorType) else None
    return before is not None and after is not None and prod(before) != prod(after)


def _expands(n: KnownNode) -> bool:
    before, (after,), shape = n.sizes(0), n.output_sizes(), n.integers(1)
    if before is None or after is None or shape is None:
        return False
    return can_broadcast([before, tuple(shape)]) and all(size >= 0 for size in shape)


def _may_squeeze_all(n: KnownNode) -> bool:
    """Squeeze of no axes: onnxruntime squeezes all."""
    value = n.value(1)
    return value is not None and value.known_sizes in (None, (0,))


def _shape_symbols(node: NodeView, sizes: Sequence[Affine]) -> Symbols:
    return of_sizes(sizes[node.attribute("start") : node.attribute("end")])


def _size_symbol(node: NodeView, sizes: Sequence[Affine]) -> Symbols:
    return np.asarray(reduce(mul, sizes, whole(1)), object)


def _same_bool(n: KnownNode, truth: bool) -> dict[int, bool]:
    return {0: truth}


@native.bounded
def _native_shape(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    start, end = n.attribute("start") or 0, n.attribute("end")
    axes = list(range(len(x.sizes)))[start:end]
    if isinstance(x, program.Bounded) and x.axis in axes:
        b.most[x.length] = x.sizes[x.axis]
        lengths = [str(b.length(x, k)) for k in axes]
        return [program.Register(INT64, (len(axes),), b.code.join(lengths, INT64))]
    return [program.Known.of(np.array([x.sizes[k] for k in axes], np.int64))]


@native.bounded
def _native_size(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    if isinstance(x, program.Bounded):
        each = x.count // x.sizes[x.axis]
        count = b.code.times(x.length, each)
        b.most[count] = x.count
        return [program.Register(INT64, (), count)]
    return [program.Known.of(np.array(x.count, np.int64))]


@native.bounded
def _native_expand(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
    x, shape = operand(inputs), operand(inputs, 1)
    if isinstance(shape, program.Known):
        return _to_known_sizes(b, n, inputs)
    (whole, _), wrap = program.as_long_as_each_other(b, [x, program.filled(b, np.zeros((), bool), shape)])
    sizes = np.broadcast_shapes(
        whole.sizes, [n if isinstance(n, int) else b.most[n] for n in b.lengths(shape)]
    )
    return [wrap(b.rearrange(whole, np.broadcast_to(np.arange(whole.count).reshape(whole.sizes), sizes)))]


@native.bounded
def _native_reshape(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
    """To sizes of which one is how long the tensor is, and one may be found out."""
    x, shape = operand(inputs), inputs[1] if len(inputs) > 1 else None
    if shape is None or isinstance(shape, program.Known):
        return _to_known_form(b, n, inputs)
    told = b.lengths(shape)
    if not isinstance(x, program.Bounded) or told.count(x.length) != 1 or 0 in told:
        raise NotNative("Reshape to sizes that are computed")
    axis = told.index(x.length)
    sizes = [b.most[n] if isinstance(n, str) else n for n in told]
    if -1 in sizes or axis != x.axis:  # of no elements, -1 is nothing; and a size of 0 is that of the input
        program.expect_some(b, x)
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.count // -prod(sizes)
    if prod(sizes[:axis]) != prod(x.sizes[: x.axis]) or sizes[axis] != x.sizes[x.axis]:
        raise NotNative("elements that are not in front any more")
    return [program.Bounded.of(b.reshape(b.whole(x), tuple(sizes)), axis, x.length)]


_to_known_sizes, _to_known_form = native.moves(_expand), native.reshapes(_reshape)
native.MOVING.update((_native_expand, _native_reshape))


def _covers(n: KnownNode, sizes: Sequence[Affine], integers: Sequence[Symbols | None]) -> bool:
    """Every axis stays as it is, or is 1 and repeated."""
    before = list(map(as_affine, n.sizes(0) or ()))
    return all(
        a.number == 1 or (a.terms is not None and a == b)
        for a, b in zip(before[::-1], list(sizes)[::-1], strict=False)
    )


def _reshapes_whole(n: KnownNode, sizes: Sequence[Affine], integers: Sequence[Symbols | None]) -> bool:
    """To as many elements; no size that is to be found out, or copied, where there may be none."""
    told = integers[1] if len(integers) > 1 else None
    before, after = n.sizes(0), tuple(map(as_dim, sizes))
    if told is None or before is None or len(told) != len(sizes) or _is_literal(n):
        return False
    if not same_count(before, after):
        return False
    for k, entry in enumerate(told):
        if entry.number == -1 and any(may_be_zero(m) for j, m in enumerate(after) if j != k):
            return False
        if (
            entry.number is None
            and may_be_zero(as_dim(entry))
            and (k >= len(before) or before[k] != after[k])
        ):
            return False
    return True


OPS = (
    OpInfo(
        "Expand",
        safe=safe.expanded,
        safe_if_sized=_covers,
        native=_native_expand,
        result=result_types.moved,
        fold=_expand,
        sizes=_expand_sizes,
        speculatable=_expands,
    ),
    OpInfo(
        "Flatten",
        native=native.reshapes(_flatten),
        result=result_types.flattened,
        fold=_flatten,
        symbols=same_order,
        speculatable=has_ranks,
        flops=no_flops,
    ),
    OpInfo(
        "Identity",
        result=result_types.passed,
        native=native.passes_on,
        fold=_identity,
        symbols=same_order,
        speculatable=always,
        flops=no_flops,
        directml=unary(unary_ops.ELEMENT_WISE_IDENTITY, MOVED, since=1, moves=True),
        implies=_same_bool,
        same_as_input=lambda n: True,
    ),
    OpInfo(
        "Reshape",
        safe=safe.reshaped,
        safe_if_sized=_reshapes_whole,
        native=_native_reshape,
        result=result_types.moved,
        fold=_reshape,
        symbols=same_order,
        sizes=_reshape_sizes,
        impossible=_other_count,
        speculatable=_keeps_count,
        flops=no_flops,
        implies=_same_bool,
    ),
    OpInfo(
        "Shape",
        native=_native_shape,
        result=result_types.measured,
        fold=_shape,
        speculatable=always,
        flops=no_flops,
        measures=_shape_symbols,
    ),
    OpInfo(
        "Size",
        native=_native_size,
        result=result_types.counted,
        fold=_size,
        speculatable=always,
        flops=no_flops,
        measures=_size_symbol,
    ),
    OpInfo(
        "Squeeze",
        safe=safe.squeezed,
        native=native.reshapes(_squeeze),
        result=result_types.squeezed,
        fold=_squeeze,
        symbols=same_order,
        speculatable=_squeezes,
        flops=no_flops,
        rank_unsure=_may_squeeze_all,
        needs_one=lambda n: n.axes() or (),
        implies=_same_bool,
    ),
    OpInfo(
        "Unsqueeze",
        native=native.reshapes(_unsqueeze),
        result=result_types.unsqueezed,
        fold=_unsqueeze,
        symbols=same_order,
        speculatable=lambda n: has_ranks(n) and n.axes() is not None,
        flops=no_flops,
        implies=_same_bool,
    ),
)
