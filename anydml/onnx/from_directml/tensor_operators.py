"""Each operator of whole tensors as ONNX nodes, where ONNX has words for it.

A function is given the `Call` (of stand-ins: sizes, types, attributes) and adds nodes on edges named like the
parameters. It gives the output's edge, or a tuple of them; None where ONNX would compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import numpy_helper

from anydml.onnx.from_directml import recurrent, windows
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.dtypes import FROM_NUMPY
from anydml.ops.enums import AxisDirection, DepthSpaceOrder, MatrixTransform, PaddingMode, ReduceFunction

Lowering = Callable[[Call, OnnxNodes], Any]


def _gemm(c: Call, o: OnnxNodes) -> Any:
    def factor(name: str, tensor: Any, transform: MatrixTransform) -> str:
        if transform is MatrixTransform.NONE:
            return name
        rank = tensor.ndim
        return str(o("Transpose", name, perm=[*range(rank - 2), rank - 1, rank - 2]))

    product = o("MatMul", factor("a", c.a, c.trans_a), factor("b", c.b, c.trans_b))
    if c.alpha != 1:
        product = o("Mul", product, o.constant(c.alpha, c.a.dtype))
    if c.c is None:
        return product
    return o("Add", product, "c" if c.beta == 1 else o("Mul", "c", o.constant(c.beta, c.a.dtype)))


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


def _reduce(c: Call, o: OnnxNodes) -> Any:
    if c.function in _REDUCTIONS:
        return o(_REDUCTIONS[c.function], "input", o.integers(c.axes), keepdims=1)
    return _index(c, o, c.function is ReduceFunction.ARGMAX, False)


def _index(c: Call, o: OnnxNodes, largest: bool, last: bool) -> Any:
    """The index along one axis: of several, DirectML counts over all."""
    if len(c.axes) != 1:
        return None
    name = "ArgMax" if largest else "ArgMin"
    found = o(name, "input", axis=c.axes[0], keepdims=1, select_last_index=int(last))
    return o.cast(found, FROM_NUMPY[c.output.dtype])


def _normalize(c: Call, o: OnnxNodes) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias."""
    spread = o("Sqrt", o("Add", "variance", o.constant(c.epsilon, c.input.dtype)))
    return o("Add", o("Mul", o("Div", o("Sub", "input", "mean"), spread), "scale"), "bias")


def _mean_variance(c: Call, o: OnnxNodes) -> Any:
    axes = c.axes if hasattr(c, "axes") else range(1 if c.cross_channel else 2, c.input.ndim)
    uses_mean = getattr(c, "use_mean", True)
    uses_variance = getattr(c, "use_variance", getattr(c, "normalize_variance", True))
    along = o.integers(list(axes))
    made = "input"
    if uses_mean:
        made = o("Sub", "input", o("ReduceMean", "input", along, keepdims=1))
    if uses_variance:
        square = o("ReduceMean", o("Mul", made, made), along, keepdims=1)
        made = o("Div", made, o("Sqrt", o("Add", square, o.constant(c.epsilon, c.input.dtype))))
    if c.scale is not None:
        made = o("Mul", made, "scale")
    if c.bias is not None:
        made = o("Add", made, "bias")
    return o("Identity", made) if made == "input" else made


def _slice(c: Call, o: OnnxNodes) -> Any:
    """SLICE's window is read from its start, in steps."""
    ends = [a + (n - 1) // s * s + 1 for a, n, s in zip(c.offsets, c.sizes, c.strides, strict=True)]
    axes = o.integers(range(c.input.ndim))
    return o("Slice", "input", o.integers(c.offsets), o.integers(ends), axes, o.integers(c.strides))


def _slice1(c: Call, o: OnnxNodes) -> Any:
    """SLICE1's window is read from its end where steps are negative."""
    starts, ends = [], []
    for a, n, s, count in zip(
        c.input_window_offsets, c.input_window_sizes, c.input_window_strides, c.output.shape, strict=True
    ):
        start = a if s > 0 else a + n - 1
        end = start + count * s
        starts.append(start)
        ends.append(end if end >= 0 else -(2**31))
    steps, axes = o.integers(c.input_window_strides), o.integers(range(c.input.ndim))
    return o("Slice", "input", o.integers(starts), o.integers(ends), axes, steps)


def _split(c: Call, o: OnnxNodes) -> Any:
    made = o(
        "Split",
        "input",
        o.integers([x.shape[c.axis] for x in c.outputs]),
        outputs=len(c.outputs),
        axis=c.axis,
    )
    return [made] if isinstance(made, str) else list(made)


def _depth(name: str, depth_first: str) -> Lowering:
    def lowered(c: Call, o: OnnxNodes) -> Any:
        order = getattr(c, "order", DepthSpaceOrder.DEPTH_COLUMN_ROW)
        if name == "SpaceToDepth":
            return (
                None
                if order is not DepthSpaceOrder.DEPTH_COLUMN_ROW
                else o(name, "input", blocksize=c.block_size)
            )
        mode = "DCR" if order is DepthSpaceOrder.DEPTH_COLUMN_ROW else depth_first
        return o(name, "input", blocksize=c.block_size, mode=mode)

    return lowered


_MODES = {
    PaddingMode.CONSTANT: "constant",
    PaddingMode.EDGE: "edge",
    PaddingMode.REFLECTION: "reflect",
    PaddingMode.WRAP: "wrap",
}


def _padding(c: Call, o: OnnxNodes) -> Any:
    if c.padding_mode not in _MODES:
        return None
    value = o.constant(c.padding_value, c.input.dtype) if c.padding_mode is PaddingMode.CONSTANT else None
    pads = o.integers([*c.start_padding, *c.end_padding])
    return o("Pad", "input", pads, value, mode=_MODES[c.padding_mode])


def _signed(o: OnnxNodes, name: str, tensor: Any) -> str:
    """Indices as ONNX takes them."""
    return name if tensor.dtype in (np.int32, np.int64) else str(o("Cast", name, to=7))


def _gather(c: Call, o: OnnxNodes) -> Any:
    """Indices are bounded: ONNX fails where DirectML reads the nearest element."""
    shape = c.indices.shape[c.indices.ndim - c.index_dimensions :]
    indices = o.reshape(_bounded(o, "indices", c.indices, c.input.shape[c.axis]), shape)
    found = o("Gather", "input", indices, axis=c.axis)
    return o.reshape(found, c.output.shape)


def _bounded(o: OnnxNodes, name: str, tensor: Any, size: int) -> str:
    indices = _signed(o, name, tensor)
    dtype = tensor.dtype if tensor.dtype in (np.int32, np.int64) else np.dtype(np.int64)
    low = -size if tensor.dtype.kind == "i" else 0
    return str(o("Clip", indices, o.constant(low, dtype), o.constant(size - 1, dtype)))


def _gather_elements(c: Call, o: OnnxNodes) -> Any:
    return o("GatherElements", "input", _bounded(o, "indices", c.indices, c.input.shape[c.axis]), axis=c.axis)


def _top_k(c: Call, o: OnnxNodes) -> Any:
    largest = getattr(c, "axis_direction", AxisDirection.DECREASING) is AxisDirection.DECREASING
    value, index = o(
        "TopK", "input", o.integers([c.k]), outputs=2, axis=c.axis, largest=int(largest), sorted=1
    )
    return value, o.cast(index, FROM_NUMPY[c.output_index.dtype])


def _cumulative(name: str, exclusive: str) -> Lowering:
    def lowered(c: Call, o: OnnxNodes) -> Any:
        if name != "CumSum" or c.input.dtype.kind == "u":
            return None
        down = c.axis_direction is AxisDirection.DECREASING
        axis = o.constant(np.int64(c.axis))
        return o(name, "input", axis, exclusive=int(getattr(c, exclusive)), reverse=int(down))

    return lowered


def _fill(c: Call, o: OnnxNodes) -> Any:
    value = numpy_helper.from_array(np.array([c.value], c.output.dtype))
    return o("ConstantOfShape", o.integers(c.output.shape), value=value)


def _cast(c: Call, o: OnnxNodes) -> Any:
    """From floats to integers, ONNX does not say what becomes of what is out of range."""
    if c.input.dtype.kind == "f" and c.output.dtype.kind in "iu":
        return None
    return o.cast("input", FROM_NUMPY[c.output.dtype])


def _value_scale(c: Call, o: OnnxNodes) -> Any:
    bias = np.array(c.bias, c.input.dtype).reshape(1, -1, *(1,) * (c.input.ndim - 2))
    return o("Add", o("Mul", "input", o.constant(c.scale, c.input.dtype)), o.constant(bias))


def _local_response(c: Call, o: OnnxNodes) -> Any:
    if not c.cross_channel or c.local_size % 2 == 0:
        return None
    return o("LRN", "input", size=c.local_size, alpha=c.alpha, beta=c.beta, bias=c.bias)


def _scatter(c: Call, o: OnnxNodes) -> Any:
    return o(
        "ScatterElements",
        "input",
        _bounded(o, "indices", c.indices, c.input.shape[c.axis]),
        "updates",
        axis=c.axis,
    )


def _one_hot(c: Call, o: OnnxNodes) -> Any:
    """The element at an index, and elsewhere the other: by comparing."""
    places = np.arange(c.output.shape[c.axis]).reshape(
        [-1 if d == c.axis else 1 for d in range(c.output.ndim)]
    )
    if c.indices.dtype.kind == "u" and c.indices.dtype.itemsize == 8:
        return None
    indices = o("Cast", "indices", to=7)
    size = o.constant(np.int64(c.output.shape[c.axis]))
    wrapped = o("Where", o("Less", indices, o.constant(np.int64(0))), o("Add", indices, size), indices)
    on = o("Equal", wrapped, o.constant(places.astype(np.int64)))
    off, value = (
        o.reshape(o("Gather", o.reshape("values", [2]), o.constant(np.int64(k)), axis=0), []) for k in (0, 1)
    )
    return o("Where", on, value, off)


def _tile(c: Call, o: OnnxNodes) -> Any:
    return o("Tile", "input", o.integers(c.repeats))


LOWERINGS: Mapping[str, Lowering] = {
    "GEMM": _gemm,
    "CONVOLUTION": windows.convolution,
    "CONVOLUTION_INTEGER": windows.convolution_integer,
    "AVERAGE_POOLING": windows.average_pooling,
    "AVERAGE_POOLING1": windows.average_pooling,
    "LP_POOLING": windows.lp_pooling,
    "LP_POOLING1": windows.lp_pooling,
    "MAX_POOLING": windows.max_pooling,
    "MAX_POOLING1": windows.max_pooling,
    "MAX_POOLING2": windows.max_pooling,
    "UPSAMPLE_2D": windows.upsample_2d,
    "RNN": recurrent.rnn,
    "GRU": recurrent.gru,
    "LSTM": recurrent.lstm,
    "REDUCE": _reduce,
    "ARGMAX": lambda c, o: _index(c, o, True, c.axis_direction is AxisDirection.DECREASING),
    "ARGMIN": lambda c, o: _index(c, o, False, c.axis_direction is AxisDirection.DECREASING),
    "BATCH_NORMALIZATION": _normalize,
    "MEAN_VARIANCE_NORMALIZATION": _mean_variance,
    "MEAN_VARIANCE_NORMALIZATION1": _mean_variance,
    "MEAN_VARIANCE_NORMALIZATION2": _mean_variance,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "SLICE": _slice,
    "SLICE1": _slice1,
    "SPLIT": _split,
    "JOIN": lambda c, o: o("Concat", *(f"inputs{k}" for k in range(len(c.inputs))), axis=c.axis),
    "TILE": _tile,
    "SPACE_TO_DEPTH": _depth("SpaceToDepth", ""),
    "SPACE_TO_DEPTH1": _depth("SpaceToDepth", ""),
    "DEPTH_TO_SPACE": _depth("DepthToSpace", "CRD"),
    "DEPTH_TO_SPACE1": _depth("DepthToSpace", "CRD"),
    "PADDING": _padding,
    "PADDING1": _padding,
    "GATHER": _gather,
    "GATHER_ELEMENTS": _gather_elements,
    "SCATTER": _scatter,
    "ONE_HOT": _one_hot,
    "TOP_K": _top_k,
    "TOP_K1": _top_k,
    "CUMULATIVE_SUMMATION": _cumulative("CumSum", "has_exclusive_sum"),
    "FILL_VALUE_CONSTANT": _fill,
    "CAST": _cast,
    "VALUE_SCALE_2D": _value_scale,
}
