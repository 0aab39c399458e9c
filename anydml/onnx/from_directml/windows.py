"""Convolutions, pooling and the like as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.enums import ConvolutionDirection, ConvolutionMode, InterpolationMode


def flat(o: OnnxNodes, name: str, tensor: Any) -> str:
    """A tensor of one element for each channel, or of one, as ONNX has it: of one dimension, or none."""
    return o.reshape(name, [tensor.size] if tensor.size > 1 else [])


def convolution(c: Call, o: OnnxNodes) -> str | None:
    if c.mode is not ConvolutionMode.CROSS_CORRELATION:
        return None
    bias = None if c.bias is None else o.reshape("bias", [c.bias.size])
    windows: dict[str, Any] = {
        "strides": c.strides,
        "dilations": c.dilations,
        "pads": [*c.start_padding, *c.end_padding],
        "group": c.group_count,
    }
    if c.direction is ConvolutionDirection.FORWARD:
        return str(o("Conv", "input", "filter", bias, **windows))
    return str(o("ConvTranspose", "input", "filter", bias, output_padding=c.output_padding, **windows))


def convolution_integer(c: Call, o: OnnxNodes) -> str | None:
    return str(
        o(
            "ConvInteger",
            "input",
            "filter",
            None if c.input_zero_point is None else flat(o, "input_zero_point", c.input_zero_point),
            None if c.filter_zero_point is None else flat(o, "filter_zero_point", c.filter_zero_point),
            strides=c.strides,
            dilations=c.dilations,
            pads=[*c.start_padding, *c.end_padding],
            group=c.group_count,
        )
    )


def _pool(c: Call) -> dict[str, Any]:
    return {
        "kernel_shape": c.window_size,
        "strides": c.strides,
        "dilations": c.dilations if hasattr(c, "dilations") else None,
        "pads": [*c.start_padding, *c.end_padding],
        "ceil_mode": 1 if _rounds_up(c) else None,
    }


def _rounds_up(c: Call) -> bool:
    """Whether the output is longer than whole windows make it."""
    dilations = c.dilations if hasattr(c, "dilations") else (1,) * len(c.strides)
    for n, made, window, stride, dilation, start, end in zip(
        c.input.shape[2:],
        c.output.shape[2:],
        c.window_size,
        c.strides,
        dilations,
        c.start_padding,
        c.end_padding,
        strict=True,
    ):
        if made > (n + start + end - (window - 1) * dilation - 1) // stride + 1:
            return True
    return False


def average_pooling(c: Call, o: OnnxNodes) -> str | None:
    return str(o("AveragePool", "input", count_include_pad=int(c.include_padding), **_pool(c)))


def lp_pooling(c: Call, o: OnnxNodes) -> str | None:
    return str(o("LpPool", "input", p=c.p, **_pool(c)))


def max_pooling(c: Call, o: OnnxNodes) -> Any:
    if getattr(c, "output_indices", None) is None:
        made = o("MaxPool", "input", **_pool(c))
        return made if len(c.operator.outputs) == 1 else (made, None)
    value, indices = o("MaxPool", "input", outputs=2, **_pool(c))
    return None if c.input.shape[0] * c.input.shape[1] > 1 else (value, indices)


def upsample_2d(c: Call, o: OnnxNodes) -> str | None:
    if c.interpolation_mode is not InterpolationMode.NEAREST_NEIGHBOR:
        return None
    scales = o.constant(np.array([*(1,) * (c.input.ndim - 2), *c.scale_size], np.float32))
    return str(
        o(
            "Resize",
            "input",
            None,
            scales,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
    )
