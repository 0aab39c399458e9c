"""Pooling, its gradients, and windows as columns, as ONNX nodes."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

import numpy as np

from anydml.onnx.arrays import from_array
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.onnx.from_directml.quantization import parameters
from anydml.ops.call import Call
from anydml.ops.dtypes import FROM_NUMPY, INT64
from anydml.ops.folding import Windows, fitting
from anydml.ops.pooling_windows import dilations_of, divisors, lowest, windows_of


def _pool(c: Call, pads: bool = True) -> dict[str, Any]:
    dilations = dilations_of(c)
    return {
        "kernel_shape": c.window_size,
        "strides": c.strides,
        "dilations": dilations if any(n != 1 for n in dilations) else None,
        "pads": [*c.start_padding, *c.end_padding] if pads else None,
    }


def _reaches_far(c: Call) -> bool:
    """Whether windows may see nothing but padding: ONNX leaves that open, and onnxruntime refuses it."""
    if any(n >= w for n, w in zip((*c.start_padding, *c.end_padding), c.window_size * 2, strict=True)):
        return True
    return any(0 in w.counts() for w in windows_of(c, c.input.shape))


def _padded(c: Call, o: OnnxNodes, x: str, value: Any, dtype: Any) -> str:
    return o.pad(x, [0, 0, *c.start_padding], [0, 0, *c.end_padding], value, dtype)


# ---- averages and norms ------------------------------------------------------------------------------------


def average_pooling(c: Call, o: OnnxNodes, x: str = "input", dtype: Any = None) -> Any:
    """`dtype`: of `x`, if it is not the input."""
    dtype = dtype or c.input.dtype
    if not _reaches_far(c):
        return o("AveragePool", x, count_include_pad=int(c.include_padding), **_pool(c))
    mean = o("AveragePool", _padded(c, o, x, 0, dtype), **_pool(c, pads=False))
    share = prod(c.window_size) / divisors(c, windows_of(c, c.input.shape))
    return o("Mul", mean, o.constant(share, dtype))


def quantized_linear_average_pooling(c: Call, o: OnnxNodes) -> Any:
    x = o("DequantizeLinear", "input", *parameters(c, o, "input", c.input), axis=1)
    mean = average_pooling(c, o, x, np.dtype(np.float32))
    return o("QuantizeLinear", mean, *parameters(c, o, "output", c.output), axis=1)


def average_pooling_grad(c: Call, o: OnnxNodes) -> Any:
    """Each share is spread over its window: a transposed convolution with ones, channel by channel."""
    sizes, dtype = c.output_gradient.shape, c.input_gradient.dtype
    shares = o("Div", "input_gradient", o.constant(divisors(c, windows_of(c, sizes)), dtype))
    one = from_array(np.ones(1, dtype))
    ones = o("ConstantOfShape", o.integers([sizes[1], 1, *c.window_size]), value=one)
    spread = o("ConvTranspose", shares, ones, strides=c.strides, group=sizes[1])
    places = zip(c.input_gradient.shape[2:], c.strides, c.window_size, strict=True)
    reach = [(n - 1) * stride + w for n, stride, w in places]
    ends = [n - r + start for n, r, start in zip(sizes[2:], reach, c.start_padding, strict=True)]
    return o.pad(spread, [0, 0, *(-n for n in c.start_padding)], [0, 0, *ends], 0, dtype)


def lp_pooling(c: Call, o: OnnxNodes) -> Any:
    if not _reaches_far(c):
        return o("LpPool", "input", p=c.p, **_pool(c))
    return o("LpPool", _padded(c, o, "input", 0, c.input.dtype), p=c.p, **_pool(c, pads=False))


# ---- maxima ------------------------------------------------------------------------------------------------

_MAX_TYPES = ("float16", "float32", "float64", "int8", "uint8")


def max_pooling(c: Call, o: OnnxNodes) -> Any:
    """Integers of 16 and 32 bits are floats meanwhile; of 64 bits there is no float type that has them."""
    dtype, far = c.input.dtype, _reaches_far(c)
    indices = getattr(c, "output_indices", None)
    if (dtype.kind != "f" and dtype.itemsize == 8) or (far and indices is not None):
        return None
    x, passing = "input", dtype
    if dtype.name not in _MAX_TYPES:
        passing = np.dtype(np.float32 if dtype.itemsize == 2 else np.float64)
        x = o.cast(x, FROM_NUMPY[passing])
    if far:
        x = _padded(c, o, x, lowest(dtype), passing)
    made = o("MaxPool", x, outputs=1 if indices is None else 2, **_pool(c, pads=not far))
    value = made if indices is None else made[0]
    value = value if passing == dtype else o.cast(value, FROM_NUMPY[dtype])
    if far and dtype.kind == "f":
        value = _nothing(c, o, value)
    if len(c.operator.outputs) == 1:
        return value
    return value, None if indices is None else o.cast(made[1], FROM_NUMPY[indices.dtype])


def _nothing(c: Call, o: OnnxNodes, value: str) -> str:
    """Of nothing, -infinity: onnxruntime's maxima are finite at least."""
    counts = (w.counts() for w in windows_of(c, c.input.shape))
    nothing = reduce(np.multiply.outer, counts) == 0
    if not nothing.any():
        return value
    return str(o("Where", o.constant(nothing), o.constant(-np.inf, c.input.dtype), value))


def max_pooling_grad(c: Call, o: OnnxNodes) -> Any:
    """The gradients of windows, added up where the maxima are."""
    if _reaches_far(c):
        return None
    _, places = o("MaxPool", "input", outputs=2, **_pool(c))
    zeros = o.zeros([c.input.size], c.input.dtype)
    indices, received = o.reshape(places, [-1]), o.reshape("input_gradient", [-1])
    added = o("ScatterElements", zeros, indices, received, axis=0, reduction="add")
    return o.reshape(added, c.input.shape)


def max_unpooling(c: Call, o: OnnxNodes) -> Any:
    """Indices beyond the output lead to one more element, which is cut off."""
    size = prod(c.output.shape)
    flat = o("Min", o.reshape("indices", [-1]), o.constant(size, c.indices.dtype))
    zeros = o.zeros([size + 1], c.input.dtype)
    put = o("ScatterElements", zeros, o.cast(flat, INT64), o.reshape("input", [-1]), axis=0)
    return o.reshape(o.slice(put, 0, 0, size), c.output.shape)


# ---- columns -----------------------------------------------------------------------------------------------


def unfold(c: Call, o: OnnxNodes) -> Any:
    """Each axis becomes two: of the elements of a window, and of the windows."""
    spatial = len(c.window_sizes)
    x = _padded(c, o, "input", 0, c.input.dtype)
    blocks = fitting(c, c.input.shape[2:], c.window_sizes)
    for k, axis in reversed(list(enumerate(range(2, c.input.ndim)))):
        elements = np.arange(c.window_sizes[k])[:, np.newaxis] * c.dilations[k]
        x = o.take(x, elements + np.arange(blocks[k]) * c.strides[k], axis)
    pairs = range(2, 2 + 2 * spatial)
    return o.reshape(o.transpose(x, [0, 1, *pairs[::2], *pairs[1::2]]), c.output.shape)


def fold(c: Call, o: OnnxNodes) -> Any:
    """onnxruntime's Col2Im takes dilations for others, but of images."""
    columns, spatial = o.reshape("input", c.input.shape[-3:]), c.output.shape[2:]
    if len(spatial) != 2 and any(n != 1 for n in c.dilations):
        return _scattered(c, o, columns)
    return o(
        "Col2Im",
        columns,
        o.integers(spatial),
        o.integers(c.window_sizes),
        strides=c.strides,
        dilations=c.dilations,
        pads=[*c.start_padding, *c.end_padding],
    )


def _scattered(c: Call, o: OnnxNodes, columns: str) -> str:
    """Each element of a column is added to where it is from; of padding, to one more, which is cut off."""
    spatial = c.output.shape[2:]
    planes, size = prod(c.output.shape[:2]), prod(spatial)
    blocks = fitting(c, spatial, c.window_sizes)
    windows = Windows(c.window_sizes, blocks, c.strides, c.dilations, c.start_padding)
    sources = windows.unfold(np.arange(size).reshape(1, 1, *spatial) - size).reshape(1, -1) + size
    indices = o("Expand", o.constant(sources), o.integers([planes, sources.size]))
    zeros = o.zeros([planes, size + 1], c.input.dtype)
    rows = o.reshape(columns, [planes, sources.size])
    made = o("ScatterElements", zeros, indices, rows, axis=1, reduction="add")
    return o.reshape(o.slice(made, 1, 0, size), c.output.shape)
