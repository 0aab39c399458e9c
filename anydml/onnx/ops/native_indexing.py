"""How programs read and write elements by computed places: Gather, Scatter, and their kin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops.native import Inputs, Native, bounded, moves, operand
from anydml.onnx.ops.opinfo import Fold, KnownNode
from anydml.onnx.ops.shared import axis_in, scatter_reduction
from anydml.ops import expr
from anydml.ops.dtypes import BOOL, INT32, INT64, ScalarType

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Bounded, Memory, Tensor


def by_known_places(fold: Fold, otherwise: Native) -> Native:
    """The rule in NumPy, of places, where these are known before."""
    known = moves(fold)

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
        x, at = operand(inputs), operand(inputs, 1)
        if isinstance(at, program.Known) and not (isinstance(x, program.Bounded) and _names(n, x, at)):
            return known(b, n, inputs)
        return otherwise(b, n, inputs)

    return bounded(rule)


def _names(n: KnownNode, x: Bounded, at: Tensor) -> bool:
    """Whether indices are about the axis of which it is not known how long it is."""
    if n.op.name == "GatherND":
        first = n.int("batch_dims") if n.version >= 12 else 0
        return at.sizes != () and first <= x.axis < first + at.sizes[-1]
    return axis_in(n.int("axis"), len(x.sizes)) == x.axis


def gather(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    return [taken(b, x, operand(inputs, 1), axis_in(n.int("axis"), len(x.sizes)))]


def taken(b: ProgramBuilder, x: Tensor, at: Tensor, axis: int) -> Tensor:
    """Parts along an axis, by numbers from -size to size - 1."""
    source = b.memory(x)

    def part(number: str) -> Memory:
        place = _place(b, number, at.dtype, b.length(x, axis))
        pointer = b.code.at(source.pointer, b.code.times(place, source.strides[axis]), x.dtype)
        sizes, strides = ((*s[:axis], *s[axis + 1 :]) for s in (source.sizes, source.strides))
        return program.Memory(x.dtype, sizes, pointer, strides, source.lies_in)

    sizes = (*x.sizes[:axis], *at.sizes, *x.sizes[axis + 1 :])
    wrap = _as_long(
        [
            (x, lambda k: k if k < axis else k + len(at.sizes) - 1 if k > axis else None),
            (at, lambda k: axis + k),
        ]
    )
    if at.count == 1 and not isinstance(at, program.Bounded):
        found = part(b.scalar(at))
        strides = (*found.strides[:axis], *[1] * len(at.sizes), *found.strides[axis:])
        return wrap(b.settled(program.Memory(x.dtype, sizes, found.pointer, strides, found.lies_in)))
    listed = b.packed(at)
    result = b.room(x.dtype, (*x.sizes[:axis], at.count, *x.sizes[axis + 1 :]))

    def one(index: str, _: list[str]) -> list[str]:
        found = part(b.code.load(b.code.at(listed.pointer, index, at.dtype), at.dtype))
        home = b.code.at(result.pointer, b.code.times(index, result.strides[axis]), x.dtype)
        strides = (*result.strides[:axis], *result.strides[axis + 1 :])
        b.memory(found, program.Memory(x.dtype, found.sizes, home, strides))
        return []

    b.code.loop(_leading(b, at), one)
    return wrap(b.settled(b.reshape(result, sizes)))


def _leading(b: ProgramBuilder, at: Tensor) -> int | str:
    """How many there are in front, of those that there may be."""
    if not isinstance(at, program.Bounded):
        return at.count
    if prod(at.sizes[: at.axis]) != 1:
        raise NotNative("indices with gaps between them")
    return b.code.times(at.length, prod(at.sizes[at.axis + 1 :]))


def _as_long(parts: Sequence[tuple[Tensor, Callable[[int], int | None]]]) -> Callable[[Tensor], Tensor]:
    """What makes of a result one that is as long as its operands, whose axes become some of its own."""
    found = [(t.length, axis(t.axis)) for t, axis in parts if isinstance(t, program.Bounded)]
    open = [(length, axis) for length, axis in found if axis is not None]
    if len(open) > 1:
        raise NotNative("two axes of which it is not known how long they are")
    return lambda whole: program.Bounded.of(whole, open[0][1], open[0][0]) if open else whole


def _place(b: ProgramBuilder, number: str, dtype: ScalarType, length: int | str) -> str:
    """A computed index counted from the front; the program fails where there is no such place."""
    if dtype not in (INT32, INT64):
        raise NotNative(f"indices of {dtype.label}")
    if dtype is INT32:
        number = b.code.line(f"sext i32 {number} to i64")
    negative = b.code.line(f"icmp slt i64 {number}, 0")
    turned = b.code.line(f"add i64 {number}, {length}")
    place = b.code.line(f"select i1 {negative}, i64 {turned}, i64 {number}")
    inside = b.code.line(f"icmp ult i64 {place}, {length}")
    told = f"from {-length} to {length - 1}" if isinstance(length, int) else "of what there is"
    b.fail_unless(inside, f"expected an index {told}, but got {{}}", number)
    return place


@bounded
def gather_elements(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at = operand(inputs), operand(inputs, 1)
    result = b.room(x.dtype, at.sizes)

    def move(element: str, home: str) -> None:
        b.code.store(b.code.load(element, x.dtype), home, x.dtype)

    _over_elements(b, n, x, b.memory(x), at, result, move)
    return [_as_long([(at, lambda k: k)])(b.settled(result))]


@bounded
def scatter_elements(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at, new = (operand(inputs, k) for k in range(3))
    at, new = _alike(b, at, new)
    if at.sizes != new.sizes:
        raise NotNative("updates of other sizes than their places")
    result, put = b.memory(x, b.room(x.dtype, x.sizes)), _putting(b, n, x.dtype)
    _over_elements(b, n, x, result, at, b.memory(new), put)
    return [_as_long([(x, lambda k: k)])(b.settled(result))]


def _alike(b: ProgramBuilder, at: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Places and updates, of which there are equally many, and may be."""
    for t, other in ((at, new), (new, at)):
        if isinstance(t, program.Bounded):
            if t.axis >= len(other.sizes) or (isinstance(other, program.Bounded) and other.axis != t.axis):
                raise NotNative("updates that do not fit")
            program.same_length(b, t.length, b.length(other, t.axis))
            count = min(t.sizes[t.axis], other.sizes[t.axis])
            at, new = (
                program.Bounded.of(program.first_of(b, b.whole(x), t.axis, count), t.axis, t.length)
                for x in (at, new)
            )
            break
    return at, new


def _over_elements(
    b: ProgramBuilder,
    n: KnownNode,
    x: Tensor,
    named: Memory,
    at: Tensor,
    beside: Memory,
    write: Callable[[str, str], None],
) -> None:
    """For each index, in their order: `write` is told the element that it names, and the one beside it.

    `named` is where the elements of `x` are.
    """
    axis = axis_in(n.int("axis"), len(named.sizes))
    fits = (k == axis or m <= size for k, (m, size) in enumerate(zip(at.sizes, named.sizes, strict=False)))
    if len(at.sizes) != len(named.sizes) or not all(fits):
        raise NotNative("indices that do not fit")
    if isinstance(x, program.Bounded) and x.axis != axis:
        program.same_length(b, x.length, b.length(at, x.axis))
    indices = b.memory(at)
    b.work += 4 * at.count

    def one(pointers: list[str]) -> None:
        index, origin, other = pointers
        place = _place(b, b.code.load(index, at.dtype), at.dtype, b.length(x, axis))
        write(b.code.at(origin, b.code.times(place, named.strides[axis]), named.dtype), other)

    steps = [0 if k == axis else s for k, s in enumerate(named.strides)]
    lengths = [b.length(at, k) for k in range(len(at.sizes))]
    dims = list(zip(lengths, zip(indices.strides, steps, beside.strides, strict=True), strict=True))
    b.over(dims, [(t.dtype, t.pointer) for t in (indices, named, beside)], one)


@bounded
def gather_nd(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at = operand(inputs), operand(inputs, 1)
    batch = n.int("batch_dims") if n.version >= 12 else 0
    count = at.sizes[-1] if at.sizes else 0
    first, rows = batch + count, len(at.sizes) - 1
    result = b.room(x.dtype, (*at.sizes[:-1], *x.sizes[first:]))
    wrap = _as_long([(at, lambda k: k), (x, lambda k: k - first + rows if k >= first else None)])

    def move(part: Memory, home: Memory) -> None:
        b.memory(part, home)

    _over_parts(b, x, b.memory(x), at, result, batch, move)
    return [wrap(b.settled(result))]


@bounded
def scatter_nd(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at, new = (operand(inputs, k) for k in range(3))
    at, new = _alike(b, at, new)
    if new.sizes != (*at.sizes[:-1], *x.sizes[at.sizes[-1] if at.sizes else 0 :]):
        raise NotNative("updates that do not fit")
    if isinstance(x, program.Bounded) and x.axis >= at.sizes[-1]:
        raise NotNative("updates of rows of which it is not known how long they are")
    result, put = b.memory(x, b.room(x.dtype, x.sizes)), _putting(b, n, x.dtype)

    def put_all(part: Memory, update: Memory) -> None:
        dims = list(zip(part.sizes, zip(part.strides, update.strides, strict=True), strict=True))
        places = [(t.dtype, t.pointer) for t in (part, update)]
        b.over(dims, places, lambda pointers: put(*pointers))

    b.work += 2 * new.count
    _over_parts(b, x, result, at, b.memory(new), 0, put_all)
    return [_as_long([(x, lambda k: k)])(b.settled(result))]


def _over_parts(
    b: ProgramBuilder,
    x: Tensor,
    named: Memory,
    at: Tensor,
    beside: Memory,
    batch: int,
    write: Callable[[Memory, Memory], None],
) -> None:
    """For each row of indices, in their order: `write` is told the part that it names, and the one beside.

    `named` is where the elements of `x` are.
    """
    rows, count = at.sizes[:-1], at.sizes[-1] if at.sizes else 0
    first = batch + count
    if named.sizes[:batch] != rows[:batch] or batch > len(rows) or not batch < first <= len(named.sizes):
        raise NotNative("indices that do not fit")
    if any(
        isinstance(t, program.Bounded) and (t.axis < batch or t.axis == last)
        for t, last in ((x, -1), (at, len(rows)))
    ):
        raise NotNative("samples or indices of which it is not known how many there are")
    indices = b.memory(at)
    b.work += 4 * at.count

    def one(pointers: list[str]) -> None:
        index, origin, other = pointers
        for k, axis in enumerate(range(batch, first)):
            number = b.code.load(b.code.at(index, k * indices.strides[-1], at.dtype), at.dtype)
            place = _place(b, number, at.dtype, b.length(x, axis))
            origin = b.code.at(origin, b.code.times(place, named.strides[axis]), named.dtype)
        part = program.Memory(named.dtype, named.sizes[first:], origin, named.strides[first:], named.lies_in)
        write(
            part, program.Memory(named.dtype, part.sizes, other, beside.strides[len(rows) :], beside.lies_in)
        )

    steps = (*named.strides[:batch], *[0] * (len(rows) - batch))
    lengths = [b.length(at, k) for k in range(len(rows))]
    dims = list(zip(lengths, zip(indices.strides, steps, beside.strides, strict=False), strict=True))
    b.over(dims, [(t.dtype, t.pointer) for t in (indices, named, beside)], one)


def _putting(b: ProgramBuilder, n: KnownNode, dtype: ScalarType) -> Callable[[str, str], None]:
    """Code that puts an update in its place, by pointers, or reduces it with what is there."""
    how = scatter_reduction(n)
    old, new = expr.read(0, dtype), expr.read(1, dtype)
    meanings = {
        "none": lambda: new,
        "add": lambda: expr.add(old, new),
        "mul": lambda: expr.mul(old, new),
        "max": lambda: expr.select(expr.lt(new, old), old, new),  # so onnxruntime does with NaN
        "min": lambda: expr.select(expr.lt(old, new), old, new),
    }
    late = how in ("max", "min") and n.version < 18
    if how not in meanings or late or (how != "none" and dtype is BOOL):
        raise NotNative(f"reduction {how} of {dtype.label}")
    meaning = expr.convert(meanings[how](), dtype)

    def put(place: str, update: str) -> None:
        known = {new: b.code.load(update, dtype)}
        if how != "none":
            known[old] = b.code.load(place, dtype)
        (value,) = b.code.evaluate([meaning], 1, known)
        b.code.store(value, place, dtype)

    return put


def one_hot(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """By comparisons with all classes; a number below 0 counts from the end."""
    at, depth, values = (operand(inputs, k) for k in range(3))
    if not isinstance(depth, program.Known) or depth.count != 1 or values.sizes != (2,):
        raise NotNative("a number of classes that is computed")
    if at.dtype not in (INT32, INT64):
        raise NotNative(f"indices of {at.dtype.label}")
    rank = len(at.sizes) + 1
    axis, classes = axis_in(n.int("axis"), rank), int(depth.array.item())
    numbers = np.arange(classes).reshape([-1 if k == axis else 1 for k in range(rank)])
    place, number = expr.read(0, INT64), expr.read(1, INT64)
    hot = expr.or_(expr.eq(place, number), expr.eq(expr.add(place, classes), number))
    off, on = (expr.read(k, values.dtype) for k in (2, 3))
    two = [b.rearrange(values, np.array(k)) for k in range(2)]
    column = b.reshape(at, (*at.sizes[:axis], 1, *at.sizes[axis:]))
    return [b.elementwise(expr.select(hot, on, off), [column, program.Known.of(numbers), *two])]
