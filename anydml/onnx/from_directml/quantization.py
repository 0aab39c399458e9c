"""Scales and zero points: quantized tensors as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes, code_of
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT64, FROM_NUMPY, UINT8

# ---- what other families need ------------------------------------------------------------------------------


def flat(o: OnnxNodes, name: str, tensor: Any) -> str | None:
    """A tensor of one element for each channel, or of one, as ONNX has it: of one dimension, or none."""
    return None if tensor is None else o.reshape(name, [tensor.size] if tensor.size > 1 else [])


def parameters(
    c: Call, o: OnnxNodes, side: str, quantized: Any, several: Sequence[int] | None = None
) -> tuple[str, str]:
    """A scale and a zero point, 0 where there is none: ONNX wants numbers, or lists of one length.

    `side`: what their names begin with; `quantized`: a stand-in of the tensor that they are for; `several`:
    the sizes of both if one is a list, if it is no list then.
    """
    names = f"{side}_scale", f"{side}_zero_point"
    given = [getattr(c, name) for name in names]
    count = max(x.size for x in given if x is not None)
    sizes = [] if count == 1 else several or [count]

    def listed(name: str, tensor: Any) -> str:
        if tensor is None:
            return o.zeros(sizes, quantized.dtype)
        if tensor.size == prod(sizes):
            return o.reshape(name, sizes)
        return str(o("Expand", o.reshape(name, [tensor.size]), o.integers(sizes)))

    scale, zero_point = map(listed, names, given)
    return scale, zero_point


def wide(o: OnnxNodes, name: str, sizes: tuple[int, ...]) -> str:
    """A tensor of scales or zero points in float64."""
    return o.cast(o.reshape(name, sizes), FLOAT64)


def limited(o: OnnxNodes, real: str, zero_point: str | None, dtype: np.dtype[Any]) -> str:
    """Numbers of float64 rounded, halves to even, moved and limited to a type's range; of NaN 0."""
    whole = o("Round", real)
    if zero_point is not None:
        whole = o("Add", whole, zero_point)
    known = o("Where", o("IsNaN", whole), o.constant(0.0, np.float64), whole)
    info = np.iinfo(dtype)
    bounds = (o.constant(float(n), np.float64) for n in (info.min, info.max))
    return o.cast(o("Clip", known, *bounds), FROM_NUMPY[dtype])


# ---- a scale for all ---------------------------------------------------------------------------------------


def dynamic_quantize_linear(c: Call, o: OnnxNodes) -> Any:
    """ONNX's own is of UINT8 alone; of INT8, the same steps."""
    if c.types["output"] is UINT8:
        made, scale, zero_point = o("DynamicQuantizeLinear", "input", outputs=3)
    else:
        made, scale, zero_point = _dynamic(c, o)
    one = (1,) * c.input.ndim
    return made, o.reshape(scale, one), o.reshape(zero_point, one)


def _dynamic(c: Call, o: OnnxNodes) -> tuple[str, str, str]:
    info = np.iinfo(c.output.dtype)
    zero, one = (o.constant(n, np.float32) for n in (0, 1))
    low = o("Min", o("ReduceMin", "input", keepdims=0), zero)
    high = o("Max", o("ReduceMax", "input", keepdims=0), zero)
    steps = o.constant(info.max - info.min, np.float32)
    scale = o("Where", o("Equal", low, high), one, o("Div", o("Sub", high, low), steps))
    bounds = [o.constant(n, np.float32) for n in (info.min, info.max)]
    whole = o("Round", o("Sub", bounds[0], o("Div", low, scale)))
    zero_point = o.cast(o("Clip", whole, *bounds), FROM_NUMPY[c.output.dtype])
    return o("QuantizeLinear", "input", scale, zero_point), scale, zero_point


# ---- scales for blocks -------------------------------------------------------------------------------------


def quantize(c: Call, o: OnnxNodes) -> Any:
    factors, layout = _factors(c, o)
    output = None if len(factors) > 1 else code_of(c.types["output"])
    return o("QuantizeLinear", "input", *factors, output_dtype=output, **layout)


def dequantize(c: Call, o: OnnxNodes) -> Any:
    factors, layout = _factors(c, o)
    return o("DequantizeLinear", "input", *factors, **layout)


def _factors(c: Call, o: OnnxNodes) -> tuple[list[str], dict[str, Any]]:
    """Scales and zero points as ONNX has them: one, a list along an axis, or blocks along one axis.

    Of blocks along several axes, they are repeated along all axes but the one of the longest blocks.
    """
    names = [f"quantizations{k}" for k in range(len(c.quantizations))]
    sizes, counts = c.input.shape, c.quantizations[0].shape
    if all(m == 1 for m in counts):
        return [o.reshape(name, []) for name in names], {}
    several = [k for k, m in enumerate(counts) if m > 1]
    if len(several) == 1 and counts[several[0]] == sizes[several[0]]:
        return [o.reshape(name, [-1]) for name in names], {"axis": several[0]}
    axis = max(range(len(sizes)), key=lambda k: sizes[k] // counts[k])
    block = sizes[axis] // counts[axis]
    made = [_repeated(o, name, counts, sizes, axis) for name in names]
    return made, {"axis": axis, "block_size": block}


def _repeated(o: OnnxNodes, name: str, counts: tuple[int, ...], sizes: tuple[int, ...], kept: int) -> str:
    """One number for each element, but of one axis for each block."""
    blocks = [1 if k == kept else n // m for k, (n, m) in enumerate(zip(sizes, counts, strict=True))]
    if all(n == 1 for n in blocks):
        return name
    pairs = list(zip(counts, blocks, strict=True))
    apart = o.reshape(name, [n for m in counts for n in (m, 1)])
    spread = o("Expand", apart, o.integers([n for pair in pairs for n in pair]))
    return o.reshape(spread, [m * n for m, n in pairs])
