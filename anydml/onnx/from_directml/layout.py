"""What only moves elements, and what makes them of attributes, as ONNX nodes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from anydml.onnx.arrays import from_array
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.attributes import as_type
from anydml.ops.call import Call
from anydml.ops.dtypes import FROM_NUMPY, INT64
from anydml.ops.enums import DepthSpaceOrder, PaddingMode

# ---- windows -----------------------------------------------------------------------------------------------


def slice_(c: Call, o: OnnxNodes) -> Any:
    """A stride of 0, which ONNX does not have, repeats one element."""
    ends = [a + (n - 1) * s + 1 for a, n, s in zip(c.offsets, c.sizes, c.strides, strict=True)]
    axes, steps = o.integers(range(c.input.ndim)), o.integers([max(s, 1) for s in c.strides])
    made = o("Slice", "input", o.integers(c.offsets), o.integers(ends), axes, steps)
    return made if all(c.strides) else o("Expand", made, o.integers(c.sizes))


def _steps(offset: int, size: int, stride: int, count: int) -> tuple[int, int]:
    """Where a window's elements begin and end; of a negative stride it is read from its end."""
    start = offset if stride > 0 else offset + size - 1
    end = start + count * stride
    return start, end if end >= 0 else -(2**31)


def _window(c: Call, counts: tuple[int, ...]) -> list[tuple[int, int]]:
    fields = c.input_window_offsets, c.input_window_sizes, c.input_window_strides
    return [_steps(*axis) for axis in zip(*fields, counts, strict=True)]


def slice1(c: Call, o: OnnxNodes) -> Any:
    starts, ends = zip(*_window(c, c.output.shape), strict=True)
    axes, steps = o.integers(range(c.input.ndim)), o.integers(c.input_window_strides)
    return o("Slice", "input", o.integers(starts), o.integers(ends), axes, steps)


def slice_grad(c: Call, o: OnnxNodes) -> Any:
    """A zero is put behind each axis, and taken wherever the window has nothing."""
    sizes, rank = c.input_gradient.shape, c.input_gradient.ndim
    places = []
    for (start, _), stride, n, made in zip(
        _window(c, sizes), c.input_window_strides, sizes, c.output_gradient.shape, strict=True
    ):
        place = np.full(made, n)
        place[start + stride * np.arange(n)] = np.arange(n)
        places.append(place)
    apart = [k for k, place in enumerate(places) if not np.array_equal(place, np.arange(sizes[k]))]
    zeros = [int(k in apart) for k in range(rank)]
    x = o.pad("input_gradient", [0] * rank, zeros, 0, c.input_gradient.dtype)
    for k in apart:
        x = o.take(x, places[k], k)
    return x if apart else o("Identity", x)


# ---- parts -------------------------------------------------------------------------------------------------


def split(c: Call, o: OnnxNodes) -> Any:
    sizes = o.integers([x.shape[c.axis] for x in c.outputs])
    made = o("Split", "input", sizes, outputs=len(c.outputs), axis=c.axis)
    return [made] if isinstance(made, str) else list(made)


def join(c: Call, o: OnnxNodes) -> Any:
    return o("Concat", *(f"inputs{k}" for k in range(len(c.inputs))), axis=c.axis)


def tile(c: Call, o: OnnxNodes) -> Any:
    return o("Tile", "input", o.integers(c.repeats))


def space_to_depth(c: Call, o: OnnxNodes) -> Any:
    """SpaceToDepth knows one order."""
    if getattr(c, "order", None) is not DepthSpaceOrder.COLUMN_ROW_DEPTH:
        return o("SpaceToDepth", "input", blocksize=c.block_size)
    (n, depth, height, width), b = c.input.shape, c.block_size
    blocks = o.reshape("input", [n, depth, height // b, b, width // b, b])
    return o.reshape(o.transpose(blocks, [0, 1, 3, 5, 2, 4]), c.output.shape)


def depth_to_space(c: Call, o: OnnxNodes) -> Any:
    mode = "CRD" if getattr(c, "order", None) is DepthSpaceOrder.COLUMN_ROW_DEPTH else "DCR"
    return o("DepthToSpace", "input", blocksize=c.block_size, mode=mode)


# ---- padding -----------------------------------------------------------------------------------------------


def padding(c: Call, o: OnnxNodes) -> Any:
    """Pad, where it knows the mode; mirrors and rounds that go beyond the input are taken axis by axis."""
    mode, pads = c.padding_mode, [*c.start_padding, *c.end_padding]
    if mode is PaddingMode.CONSTANT:
        value = as_type(c.padding_value, FROM_NUMPY[c.input.dtype])
        return o("Pad", "input", o.integers(pads), o.constant(value, c.input.dtype), mode="constant")
    if mode is PaddingMode.EDGE:
        return o("Pad", "input", o.integers(pads), mode="edge")
    if mode is PaddingMode.REFLECTION and all(n < m for n, m in zip(pads, c.input.shape * 2, strict=True)):
        return o("Pad", "input", o.integers(pads), mode="reflect")
    x = "input"
    for k, (start, n, end) in enumerate(zip(c.start_padding, c.input.shape, c.end_padding, strict=True)):
        if start or end:
            x = o.take(x, _sources(np.arange(-start, n + end), n, mode), k)
    return o("Identity", x) if x == "input" else x


def _sources(place: Any, size: int, mode: PaddingMode) -> Any:
    """Where, along an axis, the elements come from that stand at places, some of them beyond its ends."""
    if mode is PaddingMode.WRAP or size == 1:
        return place % size
    edge = int(mode is PaddingMode.SYMMETRIC)
    period = 2 * (size - 1 + edge)
    return np.minimum(place % period, period - edge - place % period)


# ---- sequences ---------------------------------------------------------------------------------------------


def reverse_subsequences(c: Call, o: OnnxNodes) -> Any:
    """Each element by its index: ReverseSequence has lengths along one other axis alone."""
    size = c.input.shape[c.axis]
    lengths = o("Min", "sequence_lengths", o.constant(size, c.sequence_lengths.dtype))
    lengths = o.cast(lengths, INT64)
    here = o.constant(np.arange(size).reshape([-1 if k == c.axis else 1 for k in range(c.input.ndim)]))
    mirrored = o("Sub", o("Sub", lengths, o.constant(np.int64(1))), here)
    index = o("Where", o("Less", here, lengths), mirrored, here)
    return o("GatherElements", "input", o("Expand", index, o.integers(c.input.shape)), axis=c.axis)


# ---- of attributes -----------------------------------------------------------------------------------------


def fill_constant(c: Call, o: OnnxNodes) -> Any:
    number = as_type(c.value, FROM_NUMPY[c.output.dtype])
    value = from_array(np.array([number], c.output.dtype))
    return o("ConstantOfShape", o.integers(c.output.shape), value=value)


def fill_sequence(c: Call, o: OnnxNodes) -> Any:
    """Floats are counted in float64; integers that would wrap around, which ONNX leaves open, are written."""
    dtype, count = FROM_NUMPY[c.output.dtype], prod(c.output.shape)
    start, delta = (as_type(v, dtype) for v in (c.value_start, c.value_delta))
    if c.output.dtype.kind != "f":
        info = np.iinfo(c.output.dtype)
        last = start + (count - 1) * delta
        if not info.min <= last <= info.max or max(start, last) > np.iinfo(np.int64).max:
            assert c.operator.compute is not None
            return o("Identity", o.constant(c.operator.compute(c)))
    wide = np.float64 if c.output.dtype.kind == "f" else np.int64
    first, end, step = (o.constant(n, wide) for n in (0, count, 1))
    counted = o("Mul", o("Range", first, end, step), o.constant(delta, wide))
    return o.reshape(o.cast(o("Add", counted, o.constant(start, wide)), dtype), c.output.shape)


def diagonal_matrix(c: Call, o: OnnxNodes) -> Any:
    """A value where the diagonals are; in front of them, an input or zeros."""
    newer = hasattr(c, "diagonal_fill_begin")
    begin, end = (c.diagonal_fill_begin, c.diagonal_fill_end) if newer else (c.offset, c.offset + 1)
    rows, columns = (np.arange(n) for n in c.output.shape[-2:])
    diagonal = o("Sub", o.constant(columns), o.constant(rows[:, np.newaxis]))
    behind = o("GreaterOrEqual", diagonal, o.constant(np.int64(begin)))
    before = o("Less", diagonal, o.constant(np.int64(end)))
    filled = o("And" if begin <= end else "Or", behind, before)
    value = o.constant(as_type(c.value, FROM_NUMPY[c.output.dtype]), c.output.dtype)
    given = newer and c.input is not None
    rest = "input" if given else o.constant(0, c.output.dtype)
    made = o("Where", filled, value, rest)
    return made if given else o("Expand", made, o.integers(c.output.shape))
