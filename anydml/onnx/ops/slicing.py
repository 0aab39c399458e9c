"""Concat, Slice, Split, ReverseSequence: parts of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.errors import counted
from anydml.ir.dims import UNKNOWN, Affine, Dim, may_be_zero, whole
from anydml.onnx.ops import native, result_types
from anydml.onnx.ops.native import MOVING, Inputs
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk, Symbols
from anydml.onnx.ops.shared import (
    axes_in,
    axis_in,
    numbers,
    sizes_in,
    slice_range,
)
from anydml.onnx.ops.speculation import has_ranks
from anydml.onnx.ops.symbolic import at_least
from anydml.onnx.ops.symbolic import numbers as integers
from anydml.ops.dtypes import INT32, INT64

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _concat(node: NodeView, *inputs: Array) -> Array:
    axis = node.attribute("axis")
    rank = inputs[0].ndim
    if any(x.ndim != rank for x in inputs):
        raise ValueError(f"expected equal ranks, but got {[x.ndim for x in inputs]}")
    return np.concatenate(inputs, axis_in(1 if axis is None else axis, rank))


def _split(node: NodeView, x: Array, split: Array | None = None) -> tuple[Array, ...]:
    if node.version < 2:
        raise NotFoldable("Split of opset 1")
    axis, count = axis_in(node.int("axis"), x.ndim), len(node.outputs)
    size = x.shape[axis]
    given = node.ints("split") if node.version < 13 else None if split is None else numbers(split)
    if given == []:
        raise NotFoldable("no sizes")
    if given is None:
        given = _equal_parts(node, size, count)
    if len(given) != count or sum(given) != size or min(given) < 0:
        raise ValueError(f"expected {counted(count, 'size')} adding up to {size}, but got {given}")
    ends = np.cumsum([0, *given]).tolist()
    along = (slice(None),) * axis
    return tuple([x[(*along, slice(a, b))] for a, b in pairwise(ends)])


def _equal_parts(node: NodeView, size: int, count: int) -> list[int]:
    """With num_outputs the last one is smaller; else there must be none such."""
    told = node.attribute("num_outputs") if node.version >= 18 else None
    if told is None:
        if size % count:
            raise ValueError(f"expected a size that {count} divides, but got {size}")
        return [size // count] * count
    if told != count:
        raise ValueError(f"expected {counted(told, 'output')}, but got {count}")
    part = -(-size // count)
    last = size - part * (count - 1)
    if last < 0:
        raise NotFoldable(f"{size} in {count} equal parts")
    return [part] * (count - 1) + [last]


def _slice(
    node: NodeView,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    given: list[list[int] | None]
    if node.version < 10:
        given = [node.ints("starts"), node.ints("ends"), node.ints("axes"), None]
    else:
        given = [None if x is None else numbers(x) for x in (starts, ends, axes, steps)]
    first, last, along, by = given
    if first is None or last is None:
        raise NotFoldable("no starts or ends")
    along = list(range(len(first))) if along is None else along
    by = [1] * len(first) if by is None else by
    if not len(first) == len(last) == len(along) == len(by):
        raise ValueError("expected as many starts as ends, axes and steps")
    found = [slice(None)] * x.ndim
    for axis, a, b, step in zip(axes_in(along, x.ndim), first, last, by, strict=True):
        found[axis] = slice_range(x.shape[axis], a, b, step)
    return x[tuple(found)]


def _reverse_sequence(node: NodeView, x: Array, lengths: Array) -> Array:
    batch, time = node.int("batch_axis"), node.int("time_axis")
    if x.ndim < 2 or {batch, time} != {0, 1}:
        raise ValueError(f"expected the axes 0 and 1, but got {batch} and {time} of {x.ndim}")
    wanted = sizes_in(lengths)
    if len(wanted) != x.shape[batch] or max(wanted, default=0) > x.shape[time]:
        raise ValueError(f"expected {x.shape[batch]} lengths up to {x.shape[time]}, but got {wanted}")
    result = x.copy()
    there, back = (np.moveaxis(y, (batch, time), (0, 1)) for y in (x, result))
    for k, length in enumerate(wanted):
        back[k, :length] = there[k, :length][::-1]
    return result


def _joined_symbols(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    if not any(x is not None for x in given) or any(x is None or x.ndim != 1 for x in given):
        return None
    return np.concatenate(given)


def _sliced_symbols(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    x = given[0]
    told = [integers(v) for v in given[1:]]
    if node.version < 10:
        told = [node.ints(n) for n in ("starts", "ends", "axes") if n in node.given]
    if x.ndim != 1 or len(told) < 2 or any(t is None or len(t) != 1 for t in told):
        return None
    step = told[3][0] if len(told) > 3 and told[3] else 1
    return np.asarray(x[told[0][0] : told[1][0] : step], object) if step > 0 else None  # type: ignore[index]


def _concat_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    if any(s is None or len(s) != len(sizes[0]) for s in sizes):
        return None
    axis = node.int("axis")
    if not -len(sizes[0]) <= axis < len(sizes[0]):
        return None
    others = [k for k in range(len(sizes[0])) if k != axis % len(sizes[0])]
    if any(len({s[k].number for s in sizes} - {None}) > 1 for k in others):
        return None  # they do not fit
    result = [
        next((s[k] for s in sizes if s[k].number is not None), sizes[0][k]) for k in range(len(sizes[0]))
    ]
    result[axis] = reduce(add, (s[axis] for s in sizes))
    return result


def _slice_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    """What is not cut keeps its size; where it is cut may be known in terms of symbols."""
    result = list(sizes[0])
    if node.version < 10:
        told = [node.ints(n) for n in ("starts", "ends", "axes")]
        starts, ends = ([whole(k) for k in n or ()] for n in told[:2])
        axes, steps = told[2], None
    else:
        given = [*contents, None, None, None, None][1:5]
        starts, ends = ([] if c is None else list(c.reshape(-1)) for c in given[:2])
        axes, steps = (None if c is None else integers(c) for c in given[2:])
        if any(k < len(contents) and contents[k] is None for k in (3, 4)) and axes is None:
            return None
        if axes is None and given[0] is None and given[1] is None:
            return None  # nobody knows how many axes
        if len(contents) > 4 and steps is None:
            steps = [0] * len(axes or result)  # there, and not known
    axes = list(range(max(len(starts), len(ends)))) if axes is None else axes
    if any(not -len(result) <= axis < len(result) for axis in axes):
        return None
    for k, axis in enumerate(axes):
        start, end = (e[k] if k < len(e) else UNKNOWN for e in (starts, ends))
        step = 1 if steps is None else steps[k] if k < len(steps) else 0
        result[axis] = _cut_size(result[axis], start, end) if step == 1 else UNKNOWN
    return result


def _cut_size(size: Affine, start: Affine, end: Affine) -> Affine:
    """How many elements there are from a start to an end, as far as that follows."""
    first, last = (_place(n, size) for n in (start, end))
    return last - first if at_least(last - first, 0) else UNKNOWN


def _place(place: Affine, size: Affine) -> Affine:
    """Where a start or an end lies, counted from the front, and within the axis."""
    number = place.number
    if number is not None and number >= (1 << 31) - 1:
        return size
    if number is not None and number < 0:
        place = size + place
        return place if at_least(place, 0) else UNKNOWN
    if number is None and at_least(-place, 0) and (at_least(-place, 1) or size == -place):
        place = size + place  # of nothing, -0 is the beginning, too
    if not at_least(place, 0):
        return UNKNOWN
    if number == 0 or at_least(size - place, 0):
        return place
    return size if at_least(place - size, 0) else UNKNOWN


def _joins(n: KnownNode) -> bool:
    sizes = n.input_sizes()
    if not sizes or len({len(s) for s in sizes}) != 1:
        return False
    axis = n.int("axis") % max(len(sizes[0]), 1)
    columns = [c for k, c in enumerate(zip(*sizes, strict=True)) if k != axis]
    return all(len(set(c)) == 1 and None not in c for c in columns)


def _has_places(n: KnownNode) -> bool:
    """As many starts as ends; axes and steps that are known, and no axis twice."""
    sizes = n.sizes(0)
    if not has_ranks(n) or sizes is None:
        return False
    axes, steps = n.ints("axes") if "axes" in n.given else n.integers(3), n.integers(4)
    if "starts" in n.given:
        counts: list[Dim] = [len(n.ints(name) or ()) for name in ("starts", "ends")]
    else:
        given = [n.sizes(k) for k in (1, 2)]
        counts = [s[0] for s in given if s is not None and len(s) == 1]
        if len(counts) < 2 or any(n.value(k) is not None and n.integers(k) is None for k in (3, 4)):
            return False
    count = counts[0]
    if len(set(counts)) != 1 or not isinstance(count, int) or (steps is not None and 0 in steps):
        return False
    axes = list(range(count)) if axes is None else axes
    if any(not -len(sizes) <= k < len(sizes) for k in axes) or (steps is not None and len(steps) != count):
        return False
    return len(axes) == count == len({k % len(sizes) for k in axes})


def _splits_whole(n: KnownNode) -> bool:
    sizes, axis, results = n.sizes(0), n.int("axis"), n.output_sizes()
    if sizes is None or not all(r is not None and -len(r) <= axis < len(r) == len(sizes) for r in results):
        return False
    parts = [r[axis] for r in results if r is not None]
    size, known = sizes[axis], [part for part in parts if isinstance(part, int) and part >= 0]
    if not isinstance(size, int) or len(known) != len(parts):
        return False
    return sum(known) == size and ("num_outputs" not in n.given or len(parts) <= size)  # as onnxruntime asks


def _backwards_to_the_end(n: KnownNode) -> bool:
    """Slice backwards to what stands for the end forwards."""
    ends, steps = n.content(2), n.content(4)
    if ends is None or steps is None or ends.shape != steps.shape:
        return False
    return bool(((steps < 0) & np.isin(ends, _LARGEST)).any())


def _split_evenly(n: KnownNode) -> bool:
    axis = n.attribute("axis")
    given = n.attribute("num_outputs") is not None
    return given and isinstance(axis, int) and may_be_zero(n.size(0, axis))


_LARGEST = (2**31 - 1, 2**63 - 1)


@native.bounded
def _native_concat(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    parts = [t for t in inputs if t is not None]
    axis = axis_in(1 if n.attribute("axis") is None else n.int("axis"), len(parts[0].sizes))
    along = any(isinstance(t, program.Bounded) and t.axis == axis for t in parts)
    parts, wrap = (parts, lambda whole: whole) if along else program.as_long_as_each_other(b, parts)
    sizes = [*parts[0].sizes]
    sizes[axis] = sum(p.sizes[axis] for p in parts)
    start, placed = [0] * len(sizes), []
    for part in parts:
        if part.dtype is not parts[0].dtype or [m for k, m in enumerate(part.sizes) if k != axis] != [
            m for k, m in enumerate(sizes) if k != axis
        ]:
            raise NotNative("parts that do not fit")
        placed.append(([*start], part))
        start[axis] += part.sizes[axis]
    if along:
        return [program.joined(b, parts, axis)]
    return [wrap(b.assemble(parts[0].dtype, tuple(sizes), placed))]


_at_known_places = native.moves(_slice)


@native.bounded
def _native_slice(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
    """Along each axis in turn, if a place is computed, or depends on how many there are."""
    x = native.operand(inputs)
    if not isinstance(x, program.Bounded) and all(
        t is None or isinstance(t, program.Known) for t in inputs[1:]
    ):
        return _at_known_places(b, n, inputs)
    starts, ends = (_ends(b, n, inputs, k, name) for k, name in ((1, "starts"), (2, "ends")))
    known_axes, known_steps = (native.known(inputs, k) for k in (3, 4))
    axes = (n.ints("axes") if n.version < 10 else None) if known_axes is None else known_axes.integers
    steps = [1] * len(starts) if known_steps is None else known_steps.integers
    along = axes_in(range(len(starts)) if axes is None else axes, len(x.sizes))
    if not len(along) == len(starts) == len(ends) == len(steps):
        raise NotNative("other numbers of starts, ends, axes and steps")
    for axis, start, end, step in zip(along, starts, ends, steps, strict=True):
        fixed = isinstance(start, int) and isinstance(end, int)
        if fixed and not (isinstance(x, program.Bounded) and x.axis == axis):
            x = _part(b, x, axis, slice_range(x.sizes[axis], int(start), int(end), step))
        elif step != 1:
            raise NotNative("Slice in steps of what is as long as the data decides")
        elif isinstance(x, program.Bounded) and x.axis != axis:
            raise NotNative("two axes of which it is not known how long they are")
        else:
            x = program.cut(b, x, axis, start, end)
    return [x]


MOVING.add(_native_slice)


def _ends(b: ProgramBuilder, n: KnownNode, inputs: Inputs, k: int, name: str) -> Sequence[int | str]:
    """Where parts begin or end: numbers, and registers with those that are computed."""
    if n.version < 10:
        return n.ints(name) or []
    given = native.operand(inputs, k)
    if isinstance(given, program.Known):
        return given.integers
    if isinstance(given, program.Bounded) or not given.small or given.dtype not in (INT32, INT64):
        raise NotNative("places that are no integers")
    return [b.code.line(f"sext i32 {at} to i64") if given.dtype is INT32 else at for at in b.scalars(given)]


def _part(b: ProgramBuilder, x: Tensor, axis: int, along: slice) -> Tensor:
    places = np.arange(x.count).reshape(x.sizes)[(slice(None),) * axis + (along,)]
    if not places.size:
        raise NotNative("a part without elements")
    part = b.rearrange(b.whole(x), places)
    return program.Bounded.of(part, x.axis, x.length) if isinstance(x, program.Bounded) else part


OPS = (
    OpInfo(
        "Concat",
        native=_native_concat,
        result=result_types.moved,
        fold=_concat,
        symbols=_joined_symbols,
        symbol_inputs=0,
        sizes=_concat_sizes,
        speculatable=_joins,
    ),
    OpInfo(
        "ReverseSequence",
        result=result_types.same,
        native=native.moves(_reverse_sequence),
        fold=_reverse_sequence,
    ),
    OpInfo(
        "Slice",
        native=_native_slice,
        result=result_types.sliced,
        fold=_slice,
        symbols=_sliced_symbols,
        sizes=_slice_sizes,
        speculatable=_has_places,
        quirks=(
            Quirk("onnxruntime takes the largest end for the beginning, backwards", _backwards_to_the_end),
        ),
        long_integers=True,
    ),
    OpInfo(
        "Split",
        native=native.moves(_split),
        result=result_types.split,
        fold=_split,
        speculatable=_splits_whole,
        quirks=(Quirk("onnxruntime refuses to split an empty axis evenly", _split_evenly, empty=True),),
    ),
)
