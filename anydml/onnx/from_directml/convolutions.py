"""Convolutions as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anydml.onnx.arrays import from_array
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.onnx.from_directml.quantization import flat, limited, parameters, wide
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT64, INT32, UINT8
from anydml.ops.enums import ConvolutionDirection, ConvolutionMode


def _windows(c: Call) -> dict[str, Any]:
    return {
        "strides": c.strides,
        "dilations": c.dilations,
        "pads": [*c.start_padding, *c.end_padding],
        "group": c.group_count,
    }


def _of_channels(c: Call) -> tuple[int, ...]:
    """The sizes of what is the same for all elements of a channel."""
    return (1, -1, *(1,) * (c.input.ndim - 2))


def _behind(c: Call, ends: Sequence[int]) -> tuple[list[int], list[int]]:
    """Padding of the spatial dimensions at their ends."""
    return [0] * c.input.ndim, [0, 0, *ends]


# ---- of floats ---------------------------------------------------------------------------------------------


def convolution(c: Call, o: OnnxNodes) -> Any:
    """ONNX knows cross-correlations, and output padding of transposed ones that is below the stride."""
    filters = "filter"
    if c.mode is ConvolutionMode.CONVOLUTION:
        spatial = range(2, c.filter.ndim)
        backward, last, least = (o.integers([n for _ in spatial]) for n in (-1, -1, -(2**31)))
        filters = o("Slice", filters, last, least, o.integers(spatial), backward)
    forward = c.direction is ConvolutionDirection.FORWARD
    usual = not any(c.output_padding)
    if not forward and all(n < s for n, s in zip(c.output_padding, c.strides, strict=True)):
        usual = True
    bias = None if c.bias is None or not usual else o.reshape("bias", [-1])
    if forward:
        made = o("Conv", "input", filters, bias, **_windows(c))
        made = o.pad(made, *_behind(c, c.output_padding), 0, c.input.dtype)
    elif usual:
        padding = c.output_padding if any(c.output_padding) else None
        made = o("ConvTranspose", "input", filters, bias, output_padding=padding, **_windows(c))
    else:
        made = _far_padded(c, o, filters)
    return made if bias is not None or c.bias is None else o("Add", made, "bias")


def _far_padded(c: Call, o: OnnxNodes, filters: str) -> str:
    """All that filters reach, then cut or padded to the output's sizes."""
    made = o("ConvTranspose", "input", filters, **_windows(c) | {"pads": [0] * 2 * len(c.strides)})
    sizes = zip(c.input.shape[2:], c.strides, c.filter.shape[2:], c.dilations, strict=True)
    reach = [(n - 1) * stride + (w - 1) * dilation + 1 for n, stride, w, dilation in sizes]
    ends = [n - r + s for n, r, s in zip(c.output.shape[2:], reach, c.start_padding, strict=True)]
    return o.pad(made, [0, 0, *(-n for n in c.start_padding)], [0, 0, *ends], 0, c.input.dtype)


# ---- of whole numbers --------------------------------------------------------------------------------------


def convolution_integer(c: Call, o: OnnxNodes) -> Any:
    """onnxruntime's ConvInteger has one zero point for all filters; of others, its sum is taken off.

    Of INT8 inputs its sums saturate on x86 processors without VNNI: they are given as UINT8, 128 greater.
    """
    x, start = "input", flat(o, "input_zero_point", c.input_zero_point)
    if c.input.dtype == np.int8:
        x = _raised(o, x)
        start = o.constant(np.uint8(128)) if start is None else _raised(o, start)
    zero_points = c.filter_zero_point
    if zero_points is None or zero_points.size == 1:
        of_filters = flat(o, "filter_zero_point", zero_points)
        return o("ConvInteger", x, "filter", start, of_filters, **_windows(c))
    made = o("ConvInteger", x, "filter", start, **_windows(c))
    one = from_array(np.ones(1, c.filter.dtype))
    ones = o("ConstantOfShape", o.integers(c.filter.shape), value=one)
    seen = o("ConvInteger", x, ones, start, **_windows(c))
    return o("Sub", made, o("Mul", seen, o.cast(o.reshape("filter_zero_point", _of_channels(c)), INT32)))


def _raised(o: OnnxNodes, x: str) -> str:
    """INT8 as UINT8, 128 greater."""
    return o.cast(o("Add", o.cast(x, INT32), o.constant(np.int32(128))), UINT8)


def quantized_linear_convolution(c: Call, o: OnnxNodes) -> Any:
    if c.filter_zero_point is None or c.filter_zero_point.size == 1:
        bias = None if c.bias is None else o.reshape("bias", [-1])
        x, filters = parameters(c, o, "input", c.input), parameters(c, o, "filter", c.filter)
        made = parameters(c, o, "output", c.output)
        return o("QLinearConv", "input", *x, "filter", *filters, *made, bias, **_windows(c))
    total = convolution_integer(c, o)
    if c.bias is not None:
        total = o("Add", total, "bias")
    scale = o("Mul", wide(o, "input_scale", ()), wide(o, "filter_scale", _of_channels(c)))
    real = o("Div", o("Mul", o.cast(total, FLOAT64), scale), wide(o, "output_scale", ()))
    zero_point = None if c.output_zero_point is None else wide(o, "output_zero_point", ())
    return limited(o, real, zero_point, np.dtype(c.output.dtype))
