"""How programs read and write elements by computed places: Gather, Scatter, and their kin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.values import Known, Memory, NotNative, Tensor
from anydml.onnx.ops.native import Inputs, Native, moves, operand
from anydml.onnx.ops.opinfo import Fold, KnownNode
from anydml.onnx.ops.shared import axis_in
from anydml.ops import expr
from anydml.ops.dtypes import BOOL, INT32, INT64, ScalarType


def by_known_places(fold: Fold, otherwise: Native) -> Native:
    """The rule in NumPy, of places, where these are known before."""
    known = moves(fold)

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
        return (known if isinstance(operand(inputs, 1), Known) else otherwise)(b, n, inputs)

    return rule


def gather(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Parts along an axis, by numbers from -size to size - 1."""
    x, at = operand(inputs), operand(inputs, 1)
    axis = axis_in(n.int("axis"), len(x.sizes))
    source = b.memory(x)

    def part(number: str) -> Memory:
        place = _place(b, number, at.dtype, x.sizes[axis])
        pointer = b.code.at(source.pointer, b.code.times(place, source.strides[axis]), x.dtype)
        sizes, strides = ((*s[:axis], *s[axis + 1 :]) for s in (source.sizes, source.strides))
        return Memory(x.dtype, sizes, pointer, strides, source.lies_in)

    sizes = (*x.sizes[:axis], *at.sizes, *x.sizes[axis + 1 :])
    if at.count == 1:
        found = part(b.scalar(at))
        strides = (*found.strides[:axis], *[1] * len(at.sizes), *found.strides[axis:])
        return [b.settled(Memory(x.dtype, sizes, found.pointer, strides, found.lies_in))]
    listed = b.packed(at)
    result = b.room(x.dtype, (*x.sizes[:axis], at.count, *x.sizes[axis + 1 :]))

    def one(index: str, _: list[str]) -> list[str]:
        found = part(b.code.load(b.code.at(listed.pointer, index, at.dtype), at.dtype))
        home = b.code.at(result.pointer, b.code.times(index, result.strides[axis]), x.dtype)
        strides = (*result.strides[:axis], *result.strides[axis + 1 :])
        b.memory(found, Memory(x.dtype, found.sizes, home, strides))
        return []

    b.code.loop(at.count, one)
    return [b.reshape(result, sizes)]


def _place(b: ProgramBuilder, number: str, dtype: ScalarType, length: int) -> str:
    """A computed index counted from the front; the program fails where there is no such place."""
    if dtype not in (INT32, INT64):
        raise NotNative(f"indices of {dtype.label}")
    if dtype is INT32:
        number = b.code.line(f"sext i32 {number} to i64")
    negative = b.code.line(f"icmp slt i64 {number}, 0")
    turned = b.code.line(f"add i64 {number}, {length}")
    place = b.code.line(f"select i1 {negative}, i64 {turned}, i64 {number}")
    inside = b.code.line(f"icmp ult i64 {place}, {length}")
    b.fail_unless(inside, f"expected an index from {-length} to {length - 1}, but got {{}}", number)
    return place


def gather_elements(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at = operand(inputs), operand(inputs, 1)
    result = b.room(x.dtype, at.sizes)

    def move(element: str, home: str) -> None:
        b.code.store(b.code.load(element, x.dtype), home, x.dtype)

    _over_elements(b, n, b.memory(x), at, result, move)
    return [b.settled(result)]


def scatter_elements(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at, new = (operand(inputs, k) for k in range(3))
    if at.sizes != new.sizes:
        raise NotNative("updates of other sizes than their places")
    result, put = b.memory(x, b.room(x.dtype, x.sizes)), _putting(b, n, x.dtype)
    _over_elements(b, n, result, at, b.memory(new), put)
    return [b.settled(result)]


def _over_elements(
    b: ProgramBuilder,
    n: KnownNode,
    named: Memory,
    at: Tensor,
    beside: Memory,
    write: Callable[[str, str], None],
) -> None:
    """For each index, in their order: `write` is told the element that it names, and the one beside it."""
    axis = axis_in(n.int("axis"), len(named.sizes))
    fits = (k == axis or m <= size for k, (m, size) in enumerate(zip(at.sizes, named.sizes, strict=False)))
    if len(at.sizes) != len(named.sizes) or not all(fits):
        raise NotNative("indices that do not fit")
    indices = b.memory(at)
    b.work += 4 * at.count

    def one(pointers: list[str]) -> None:
        index, origin, other = pointers
        place = _place(b, b.code.load(index, at.dtype), at.dtype, named.sizes[axis])
        write(b.code.at(origin, b.code.times(place, named.strides[axis]), named.dtype), other)

    steps = [0 if k == axis else s for k, s in enumerate(named.strides)]
    dims = list(zip(at.sizes, zip(indices.strides, steps, beside.strides, strict=True), strict=True))
    b.over(dims, [(t.dtype, t.pointer) for t in (indices, named, beside)], one)


def gather_nd(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at = operand(inputs), operand(inputs, 1)
    batch = n.int("batch_dims") if n.version >= 12 else 0
    count = at.sizes[-1] if at.sizes else 0
    result = b.room(x.dtype, (*at.sizes[:-1], *x.sizes[batch + count :]))

    def move(part: Memory, home: Memory) -> None:
        b.memory(part, home)

    _over_parts(b, b.memory(x), at, result, batch, move)
    return [b.settled(result)]


def scatter_nd(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, at, new = (operand(inputs, k) for k in range(3))
    if new.sizes != (*at.sizes[:-1], *x.sizes[at.sizes[-1] if at.sizes else 0 :]):
        raise NotNative("updates that do not fit")
    result, put = b.memory(x, b.room(x.dtype, x.sizes)), _putting(b, n, x.dtype)

    def put_all(part: Memory, update: Memory) -> None:
        dims = list(zip(part.sizes, zip(part.strides, update.strides, strict=True), strict=True))
        places = [(t.dtype, t.pointer) for t in (part, update)]
        b.over(dims, places, lambda pointers: put(*pointers))

    b.work += 2 * new.count
    _over_parts(b, result, at, b.memory(new), 0, put_all)
    return [b.settled(result)]


def _over_parts(
    b: ProgramBuilder,
    named: Memory,
    at: Tensor,
    beside: Memory,
    batch: int,
    write: Callable[[Memory, Memory], None],
) -> None:
    """For each row of indices, in their order: `write` is told the part that it names, and the one beside."""
    rows, count = at.sizes[:-1], at.sizes[-1] if at.sizes else 0
    first = batch + count
    if named.sizes[:batch] != rows[:batch] or batch > len(rows) or not batch < first <= len(named.sizes):
        raise NotNative("indices that do not fit")
    indices = b.memory(at)
    b.work += 4 * at.count

    def one(pointers: list[str]) -> None:
        index, origin, other = pointers
        for k, axis in enumerate(range(batch, first)):
            number = b.code.load(b.code.at(index, k * indices.strides[-1], at.dtype), at.dtype)
            place = _place(b, number, at.dtype, named.sizes[axis])
            origin = b.code.at(origin, b.code.times(place, named.strides[axis]), named.dtype)
        part = Memory(named.dtype, named.sizes[first:], origin, named.strides[first:], named.lies_in)
        write(part, Memory(named.dtype, part.sizes, other, beside.strides[len(rows) :], beside.lies_in))

    steps = (*named.strides[:batch], *[0] * (len(rows) - batch))
    dims = list(zip(rows, zip(indices.strides, steps, beside.strides, strict=False), strict=True))
    b.over(dims, [(t.dtype, t.pointer) for t in (indices, named, beside)], one)


def _putting(b: ProgramBuilder, n: KnownNode, dtype: ScalarType) -> Callable[[str, str], None]:
    """Code that puts an update in its place, by pointers, or reduces it with what is there."""
    how = n.text("reduction") if n.version >= 16 and n.op.name != "Scatter" else "none"
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
    if not isinstance(depth, Known) or depth.count != 1 or values.sizes != (2,):
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
    return [b.elementwise(expr.select(hot, on, off), [column, Known.of(numbers), *two])]
