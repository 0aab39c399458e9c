"""Reductions, running sums and sorted elements as ONNX nodes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT64, FROM_NUMPY, INT32
from anydml.ops.enums import AxisDirection, ReduceFunction

_REDUCTIONS = {
    ReduceFunction.AVERAGE: "ReduceMean",
    ReduceFunction.L1: "ReduceL1",
    ReduceFunction.L2: "ReduceL2",
    ReduceFunction.LOG_SUM: "ReduceLogSum",
    ReduceFunction.LOG_SUM_EXP: "ReduceLogSumExp",
    ReduceFunction.MAX: "ReduceMax",
    ReduceFunction.MIN: "ReduceMin",
    ReduceFunction.MULTIPLY: "ReduceProd",
    ReduceFunction.SUM: "ReduceSum",
    ReduceFunction.SUM_SQUARE: "ReduceSumSquare",
}


def reduce(c: Call, o: OnnxNodes) -> Any:
    """ONNX has extremes of all types but integers of 16 bits, which are wider ones meanwhile."""
    if c.function not in _REDUCTIONS:
        return _position(c, o, c.function is ReduceFunction.ARGMAX, False)
    small = c.input.dtype.kind != "f" and c.input.dtype.itemsize == 2
    x = o.cast("input", INT32) if small else "input"
    made = o.reduce(_REDUCTIONS[c.function], x, c.axes, c.input.ndim)
    return o.cast(made, FROM_NUMPY[c.input.dtype]) if small else made


def argmax(c: Call, o: OnnxNodes) -> Any:
    return _position(c, o, True, c.axis_direction is AxisDirection.DECREASING)


def argmin(c: Call, o: OnnxNodes) -> Any:
    return _position(c, o, False, c.axis_direction is AxisDirection.DECREASING)


def _position(c: Call, o: OnnxNodes, largest: bool, last: bool) -> Any:
    """DirectML counts through several axes together: first they are made one."""
    name, x, axis = "ArgMax" if largest else "ArgMin", "input", c.input.ndim - 1
    if len(c.axes) == 1:
        (axis,) = c.axes
    else:
        axes = sorted(c.axes)
        kept = [k for k in range(c.input.ndim) if k not in axes]
        sizes = [c.input.shape[k] for k in kept]
        x, axis = o.reshape(o.transpose(x, [*kept, *axes]), [*sizes, -1]), len(kept)
    found = o(name, x, axis=axis, keepdims=0, select_last_index=int(last))
    return o.cast(o.reshape(found, c.output.shape), FROM_NUMPY[c.output.dtype])


# ---- along an axis -----------------------------------------------------------------------------------------


def cumulative_summation(c: Call, o: OnnxNodes) -> Any:
    down = c.axis_direction is AxisDirection.DECREASING
    axis = o.constant(np.int64(c.axis))
    return o("CumSum", "input", axis, exclusive=int(c.has_exclusive_sum), reverse=int(down))


def cumulative_product(c: Call, o: OnnxNodes) -> Any:
    """ONNX has no such operator: products of 1, 2, 4, ... elements are put together, of floats in float64."""
    down = c.axis_direction is AxisDirection.DECREASING
    size, dtype = c.input.shape[c.axis], c.input.dtype
    floats = dtype.kind == "f"
    x = o.cast("input", FLOAT64) if floats else "input"
    wide = np.dtype(np.float64) if floats else dtype

    def moved(x: str, steps: int) -> str:
        """1s come in where the axis begins, and what is beyond its end falls out."""
        coming, going = ([s * (k == c.axis) for k in range(c.input.ndim)] for s in (steps, -steps))
        starts, ends = (going, coming) if down else (coming, going)
        return o.pad(x, starts, ends, 1, wide)

    if c.has_exclusive_product:
        x = moved(x, 1)
    steps = 1
    while steps < size:
        x = o("Mul", x, moved(x, steps))
        steps *= 2
    return o.cast(x, FROM_NUMPY[dtype]) if floats else o("Identity", x)


def top_k(c: Call, o: OnnxNodes) -> Any:
    largest = getattr(c, "axis_direction", AxisDirection.DECREASING) is AxisDirection.DECREASING
    count = o.integers([c.k])
    value, index = o("TopK", "input", count, outputs=2, axis=c.axis, largest=int(largest), sorted=1)
    return value, o.cast(index, FROM_NUMPY[c.output_index.dtype])


def nonzero_coordinates(c: Call, o: OnnxNodes) -> Any:
    """As many rows as are found, then zeros for all other elements of the input."""
    rank, many = c.input.ndim, c.output_coordinates.shape[-1]
    rows = o("Transpose", o("NonZero", "input"), perm=[1, 0])
    count = o("Shape", rows, start=0, end=1)
    rest = o("Sub", o.integers([prod(c.input.shape)]), count)
    zero = o.integers([0])
    ends = o("Concat", zero, o.integers([many - rank]), rest, zero, axis=0)  # leading columns fall out
    all_rows = o.reshape(o("Pad", rows, ends, o.constant(0, np.int64)), c.output_coordinates.shape)
    counted = o.reshape(count, c.output_count.shape)
    types = (FROM_NUMPY[x.dtype] for x in (c.output_count, c.output_coordinates))
    return tuple(o.cast(x, t) for x, t in zip((counted, all_rows), types, strict=True))
