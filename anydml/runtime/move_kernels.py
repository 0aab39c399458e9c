"""Operators that move elements, by kernels: bytes as the definitions', by several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.padded import PaddedSpec
from anydml.codegen.scattered import ScatteredSpec
from anydml.codegen.taken import TakenSpec
from anydml.codegen.tuples import TuplesSpec
from anydml.codegen.turned import TurnedSpec
from anydml.ops.attributes import as_type
from anydml.ops.call import Call, Implementation, empty, fields_of
from anydml.ops.dtypes import IN_ARRAYS, INT32, INT64, NUMPY, UINT8, UINT16, UINT32, UINT64
from anydml.ops.enums import PaddingMode
from anydml.ops.expr import and_, eq, ge, lt, or_, read, select
from anydml.ops.layout import sequences
from anydml.ops.opdef import Operator
from anydml.ops.padding import inside
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, copying, packed
from anydml.runtime.padded_launch import PaddedLaunch
from anydml.runtime.taken_launch import ScatteredLaunch, TakenLaunch, TuplesLaunch, TurnedLaunch

MIN_RUN_BYTES = 1 << 4
"""Of neighbours that stay neighbours, in what is large."""
SMALL = 1 << 12
"""Elements of which NumPy is no quicker, however they lie."""
MAX_PARTS = 16
"""Of a tensor that is put together or taken apart: a kernel has so many inputs, and as many outputs."""

MIN_PADDED_BYTES = 1 << 5
"""Of a row with what is around it, in what is large."""
MAX_ROWS = 1 << 16
"""Rows of which it is remembered where they come from."""

Tensors = Mapping[str, TensorDesc]
Attributes = Mapping[str, Any]
_BITS = {1: UINT8, 2: UINT16, 4: UINT32, 8: UINT64}


def move_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator by a kernel; None where its definition is as good."""
    return MOVES[operator.name](tensors, attributes, _width(operator, tensors), threads)


def _width(operator: Operator, tensors: Tensors) -> int:
    """Bytes of an element of the operator's outputs."""
    outputs = [
        tensors[n] for s in operator.outputs for n in (fields_of(s.name, tensors) if s.array else [s.name])
    ]
    return IN_ARRAYS[outputs[0].data_type].itemsize


def _gather(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    sizes, axis = tensors["InputTensor"].sizes, attributes["Axis"]
    behind = prod(sizes[axis + 1 :])
    large = prod(tensors["OutputTensor"].sizes) > SMALL
    if (large and behind > 1 and behind * width < MIN_RUN_BYTES) or 0 in sizes:
        return None
    return _taken(tensors, axis, width, threads, own=False)


def _gather_elements(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    if 0 in tensors["InputTensor"].sizes:
        return None
    return _taken(tensors, attributes["Axis"], width, threads, own=True)


def _taken(tensors: Tensors, axis: int, width: int, threads: int | None, own: bool) -> Implementation:
    rows = prod(tensors["InputTensor"].sizes[axis + 1 :]) > 1
    spec = TakenSpec(_BITS[width], tensors["IndicesTensor"].data_type, rows=rows, own=own)
    launch = TakenLaunch(spec, axis, threads)

    def compute(c: Call) -> Any:
        if not (c.input.flags.c_contiguous and c.indices.flags.c_contiguous):
            return c.by_definition()
        result = empty(c.output, c.input.dtype)
        launch.alone([c.input, result, c.indices])
        return result

    return compute


def _by_tuples(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    """Rows that tuples of indices stand for: taken, or put where there are updates."""
    sizes, indices = tensors["InputTensor"].sizes, tensors["IndicesTensor"].sizes
    if 0 in sizes or 0 in indices:
        return None
    put, count = "UpdatesTensor" in tensors, indices[-1]
    batches = attributes.get("BatchDimensionCount", 0)
    sizes = sizes[len(sizes) - attributes["InputDimensionCount"] :]
    long = prod(sizes[batches + count :]) > 1
    spec = TuplesSpec(_BITS[width], tensors["IndicesTensor"].data_type, count, long, put)
    launch = TuplesLaunch(spec, prod(sizes[:batches]), sizes[batches : batches + count], threads)
    copy, bits = copying(_BITS[width], threads), np.dtype(f"u{width}")

    def compute(c: Call) -> Array:
        result = empty(c.output, c.input.dtype)
        if put:
            copy.alone([c.input.view(bits), result.view(bits)])
        whole, rows = (result, packed(c.updates, threads)) if put else (packed(c.input, threads), result)
        launch.alone([whole, rows, packed(c.indices, threads)])
        return result

    return compute


def _join(tensors: Tensors, attributes: Attributes, width: int, threads: int | None) -> Implementation | None:
    axis = attributes["Axis"]
    parts = [tensors[n].sizes for n in fields_of("InputTensors", tensors)]
    copies = _copies(parts, axis, width, threads)
    if copies is None:
        return None

    def compute(c: Call) -> Array:
        result = empty(c.output, c.inputs[0].dtype)
        _copy(copies, c.inputs, _parts(result, axis, c.inputs))
        return result

    return compute


def _split(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    axis = attributes["Axis"]
    parts = [tensors[n].sizes for n in fields_of("OutputTensors", tensors)]
    copies = _copies(parts, axis, width, threads)
    if copies is None:
        return None

    def compute(c: Call) -> list[Array]:
        made = [empty(x, c.input.dtype) for x in c.outputs]
        _copy(copies, _parts(c.input, axis, made), made)
        return made

    return compute


_Copies = Sequence[tuple[list[int], RepeatedLaunch]]
"""Parts of one shape, by their numbers, and what copies them."""


def _copies(parts: Sequence[tuple[int, ...]], axis: int, width: int, threads: int | None) -> _Copies | None:
    alike: dict[tuple[int, ...], list[int]] = {}
    large = sum(map(prod, parts)) > SMALL
    for k, sizes in enumerate(parts):
        if large and prod(sizes[axis:]) * width < MIN_RUN_BYTES:
            return None
        alike.setdefault(sizes, []).append(k)
    found = []
    for numbers in alike.values():
        for first in range(0, len(numbers), MAX_PARTS):
            some = numbers[first : first + MAX_PARTS]
            values = tuple(read(k, _BITS[width]) for k in range(len(some)))
            found.append((some, RepeatedLaunch(group((_BITS[width],) * len(some), values), threads)))
    return found


def _parts(whole: Array, axis: int, parts: Sequence[Array]) -> list[Array]:
    """Views of it, as long as these along an axis, one after the other."""
    before, found, start = (slice(None),) * axis, [], 0
    for x in parts:
        end = start + x.shape[axis]
        found.append(whole[(*before, slice(start, end))])
        start = end
    return found


def _copy(copies: _Copies, sources: Sequence[Array], targets: Sequence[Array]) -> None:
    for some, launch in copies:
        launch.alone([*(sources[k] for k in some), *(targets[k] for k in some)])


def _scatter(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    """Along the last axis: there, rows can be written to apart."""
    sizes, axis = tensors["InputTensor"].sizes, attributes["Axis"]
    run = tensors["IndicesTensor"].sizes[axis]
    if prod(sizes[axis + 1 :]) > 1 or 0 in sizes or not run:
        return None
    launch = ScatteredLaunch(ScatteredSpec(_BITS[width], tensors["IndicesTensor"].data_type), threads)

    def compute(c: Call) -> Array:
        result = empty(c.output, c.input.dtype)
        source, indices, updates = (packed(x, threads) for x in (c.input, c.indices, c.updates))
        whole = result.reshape(-1, sizes[axis])
        launch.alone([source.reshape(whole.shape), whole, indices.reshape(-1, run), updates.reshape(-1, run)])
        return result

    return compute


def _reverse(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    if 0 in tensors["InputTensor"].sizes:
        return None
    launch = TurnedLaunch(TurnedSpec(_BITS[width]), threads)

    def compute(c: Call) -> Array:
        counts, sizes = sequences(c)
        result = empty(c.output, c.input.dtype)
        launch([packed(c.input, threads).reshape(sizes), result.reshape(sizes), counts])
        return result

    return compute


def _pad(tensors: Tensors, attributes: Attributes, width: int, threads: int | None) -> Implementation | None:
    """Rows are the last axis, if something is put around it, or else all behind the last such axis."""
    sizes, mode = tensors["InputTensor"].sizes, attributes["PaddingMode"]
    around = [*zip(attributes["StartPadding"], attributes["EndPadding"], strict=True)]
    padded = [k for k, ends in enumerate(around) if any(ends)]
    if not padded:
        return None
    last = padded[-1] if padded[-1] == len(sizes) - 1 else padded[-1] + 1
    first, run = min(padded[0], last), prod(sizes[last:])
    before, after = around[last] if last == padded[-1] else (0, 0)
    count = prod(sum(around[k]) + sizes[k] for k in range(first, last))
    short = (before + run + after) * width < MIN_PADDED_BYTES
    if count > MAX_ROWS or (short and prod(tensors["OutputTensor"].sizes) > SMALL):
        return None
    constant = mode is PaddingMode.CONSTANT
    rows, outside = np.zeros(1, np.int64), np.zeros(1, bool)
    for k in range(first, last):
        places = np.arange(-around[k][0], sizes[k] + around[k][1])
        rows = np.add.outer(rows * sizes[k], inside(places, sizes[k], mode)).ravel()
        outside = np.logical_or.outer(outside, (places < 0) | (places >= sizes[k])).ravel()
    rows[outside & constant] = -1
    ends = np.arange(-before, 0), np.arange(run, run + after)
    dtype = tensors["OutputTensor"].data_type
    value = (
        np.array(as_type(attributes["PaddingValue"], dtype), IN_ARRAYS[dtype]) if constant else np.zeros(1)
    )
    launch = PaddedLaunch(
        PaddedSpec(_BITS[width], constant),
        rows,
        (inside(ends[0], run, mode), inside(ends[1], run, mode)),
        value.view(f"i{value.itemsize}").item(),
        threads,
    )
    planes, height = prod(sizes[:first]), prod(sizes[first:last])

    def compute(c: Call) -> Array:
        result = empty(c.output, c.input.dtype)
        source = packed(c.input, threads).reshape(planes, height, run)
        launch.pad(source, result.reshape(planes, count, before + run + after))
        return result

    return compute


def view_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation:
    """Of an operator that is a view of its input: a copy of that. Backwards, NumPy does that as well."""
    width = _width(operator, tensors)
    launch = copying(_BITS[width], threads)
    bits = np.dtype(f"u{width}")

    def compute(c: Call) -> Any:
        assert operator.view is not None
        seen = operator.view(c)
        if any(step < 0 for step in seen.strides):
            return c.by_definition()
        result = empty(c.output, c.input.dtype)
        launch.alone([seen.view(bits), result.view(bits).reshape(seen.shape)])
        return result

    return compute


def _fill_diagonals(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    """Each row is filled from one column to another, or outside of that."""
    sizes = tensors["OutputTensor"].sizes
    if "InputTensor" not in tensors or max(sizes[-2:]) > np.iinfo(np.int32).max:
        return None
    begin, end = attributes["DiagonalFillBegin"], attributes["DiagonalFillEnd"]
    ends = [np.arange(sizes[-2])[:, np.newaxis] + d for d in sorted((begin, end))]
    first, last = (e.clip(0, sizes[-1]).astype(np.int32) for e in ends)
    columns = np.arange(sizes[-1], dtype=np.int32)[np.newaxis]
    dtype, word = tensors["OutputTensor"].data_type, _BITS[width]
    value = np.array(as_type(attributes["Value"], dtype), IN_ARRAYS[dtype])
    column, start, stop = (read(k, INT32) for k in range(3))
    within = and_(ge(column, start), lt(column, stop))
    choices = [read(3, word), read(4, word)]  # the value, the input
    meaning = select(within, *(choices if begin <= end else choices[::-1]))
    launch = RepeatedLaunch(group((INT32, INT32, INT32, word, word), (meaning,)), threads)
    launch.tables = [columns, first, last, value.view(f"u{width}")]

    def compute(c: Call) -> Array:
        result = empty(c.output, c.input.dtype)
        launch.alone([*launch.tables, *(x.view(f"u{width}") for x in (c.input, result))])
        return result

    return compute


def _one_hot(
    tensors: Tensors, attributes: Attributes, width: int, threads: int | None
) -> Implementation | None:
    """The second value where an index is that of the place, or, below 0, as far from the end."""
    sizes, axis = tensors["OutputTensor"].sizes, attributes["Axis"]
    kind, word, length = tensors["IndicesTensor"].data_type, _BITS[width], sizes[axis]
    signed = kind in (INT32, INT64)
    if length > np.iinfo(np.int32).max:
        return None
    along = tuple(length if k == axis else 1 for k in range(len(sizes)))
    places = np.arange(length, dtype=NUMPY[kind]).reshape(along)
    index, place, below = (read(k, kind) for k in range(3))
    here = or_(eq(index, place), eq(index, below)) if signed else eq(index, place)
    types = (kind,) * (3 if signed else 2) + (word, word)
    off, on = (read(len(types) - k, word) for k in (2, 1))
    launch = RepeatedLaunch(group(types, (select(here, on, off),)), threads)
    launch.tables = [places, *([places - length] if signed else [])]

    def compute(c: Call) -> Any:
        values = packed(c.values, threads).reshape(-1).view(f"u{width}")
        result = empty(c.output, c.values.dtype)
        launch.alone([c.indices, *launch.tables, values[:1], values[1:2], result.view(f"u{width}")])
        return result

    return compute


MOVES: Mapping[str, Callable[[Tensors, Attributes, int, int | None], Implementation | None]] = {
    "GATHER": _gather,
    "GATHER_ELEMENTS": _gather_elements,
    "GATHER_ND": _by_tuples,
    "GATHER_ND1": _by_tuples,
    "JOIN": _join,
    "SPLIT": _split,
    "SCATTER": _scatter,
    "SCATTER_ND": _by_tuples,
    "REVERSE_SUBSEQUENCES": _reverse,
    "PADDING": _pad,
    "PADDING1": _pad,
    "DIAGONAL_MATRIX1": _fill_diagonals,
    "ONE_HOT": _one_hot,
}
