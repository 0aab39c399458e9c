"""Normalizations, their gradients, and what training needs, as ONNX nodes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT64, FROM_NUMPY

# ---- means and variances -----------------------------------------------------------------------------------


def _root(c: Call, o: OnnxNodes, variance: str) -> Any:
    return o("Sqrt", o("Add", variance, o.constant(c.epsilon, c.input.dtype)))


def batch_normalization(c: Call, o: OnnxNodes) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias: ONNX's own has one number for each channel."""
    made = o("Div", o("Sub", "input", "mean"), _root(c, o, "variance"))
    return o("Add", o("Mul", made, "scale"), "bias")


def mean_variance(c: Call, o: OnnxNodes) -> Any:
    """The three versions say by different names what is left out, and along which axes it goes."""
    axes = c.axes if hasattr(c, "axes") else range(1 if c.cross_channel else 2, c.input.ndim)
    uses_variance = getattr(c, "use_variance", getattr(c, "normalize_variance", True))
    made, rank = "input", c.input.ndim
    if getattr(c, "use_mean", True):
        made = o("Sub", "input", o.reduce("ReduceMean", "input", axes, rank))
    if uses_variance:
        square = o.reduce("ReduceMean", o("Mul", made, made), axes, rank)
        made = o("Div", made, _root(c, o, square))
    if c.scale is not None:
        made = o("Mul", made, "scale")
    if c.bias is not None:
        made = o("Add", made, "bias")
    return o("Identity", made) if made == "input" else made


def _repeated_axes(x: Any) -> list[int]:
    """The dimensions that scales and the like are repeated along."""
    return [k for k, n in enumerate(x.shape) if n == 1]


def batch_training(c: Call, o: OnnxNodes) -> Any:
    axes, rank = _repeated_axes(c.scale), c.input.ndim
    mean = o.reduce("ReduceMean", "input", axes, rank)
    centered = o("Sub", "input", mean)
    variance = o.reduce("ReduceMean", o("Mul", centered, centered), axes, rank)
    made = o("Add", o("Mul", o("Div", centered, _root(c, o, variance)), "scale"), "bias")
    if c.fused_add is not None:
        made = o("Add", made, "fused_add")
    return made, mean, variance


def _batch_sums(c: Call, o: OnnxNodes, centered: str) -> tuple[str, str, str]:
    """The gradients of scale and bias, and 1 / sqrt(variance + epsilon)."""
    axes, rank = _repeated_axes(c.mean), c.input.ndim
    inverse = o("Reciprocal", _root(c, o, "variance"))
    products = o.reduce("ReduceSum", o("Mul", "input_gradient", centered), axes, rank)
    return o("Mul", products, inverse), o.reduce("ReduceSum", "input_gradient", axes, rank), inverse


def batch_gradient(c: Call, o: OnnxNodes) -> Any:
    of_scale, of_bias, inverse = _batch_sums(c, o, o("Sub", "input", "mean"))
    return o("Mul", "input_gradient", o("Mul", "scale", inverse)), of_scale, of_bias


def batch_training_gradient(c: Call, o: OnnxNodes) -> Any:
    """Mean and variance depend on the input, too: their part is taken out of the gradient."""
    centered = o("Sub", "input", "mean")
    of_scale, of_bias, inverse = _batch_sums(c, o, centered)
    count = o.constant(prod(c.input.shape[k] for k in _repeated_axes(c.mean)), c.input.dtype)
    of_variance = o("Mul", centered, o("Div", o("Mul", of_scale, inverse), count))
    rest = o("Sub", o("Sub", "input_gradient", of_variance), o("Div", of_bias, count))
    return o("Mul", rest, o("Mul", "scale", inverse)), of_scale, of_bias


# ---- neighbours and norms ----------------------------------------------------------------------------------


def _local_mean(c: Call, o: OnnxNodes, x: str, transposed: bool = False) -> str:
    """The mean over the local region of each element; transposed, over the elements whose region has it."""
    before = (c.local_size - 1) // 2
    after = c.local_size - 1 - before
    if transposed:
        before, after = after, before
    sizes = list(c.input.shape)
    if c.cross_channel:  # channels stand in columns
        x = o.reshape(x, [sizes[0], 1, sizes[1], sizes[2] * sizes[3]])
        window, pads = [c.local_size, 1], [before, 0, after, 0]
    else:
        window, pads = [c.local_size] * 2, [before, before, after, after]
    mean = o("AveragePool", x, kernel_shape=window, pads=pads, count_include_pad=1)
    return o.reshape(mean, sizes) if c.cross_channel else mean


def _divisor(c: Call, o: OnnxNodes) -> str:
    """bias + alpha / local_size * (the sum of the squares around each element)."""
    mean = _local_mean(c, o, o("Mul", "input", "input"))
    alpha = c.alpha if c.cross_channel else c.alpha * c.local_size
    scaled = o("Mul", mean, o.constant(alpha, c.input.dtype))
    return str(o("Add", scaled, o.constant(c.bias, c.input.dtype)))


def local_response(c: Call, o: OnnxNodes) -> Any:
    """LRN is across channels, and onnxruntime's of odd sizes."""
    if c.cross_channel and c.local_size % 2:
        return o("LRN", "input", size=c.local_size, alpha=c.alpha, beta=c.beta, bias=c.bias)
    return o("Div", "input", o("Pow", _divisor(c, o), o.constant(c.beta, c.input.dtype)))


def local_response_gradient(c: Call, o: OnnxNodes) -> Any:
    """An element counts in the divisors of all whose local region has it."""
    divisor = _divisor(c, o)
    direct = o("Div", "input_gradient", o("Pow", divisor, o.constant(c.beta, c.input.dtype)))
    mean = _local_mean(c, o, o("Div", o("Mul", direct, "input"), divisor), transposed=True)
    share = 2 * c.alpha * c.beta * (1 if c.cross_channel else c.local_size)
    return o("Sub", direct, o("Mul", o("Mul", mean, "input"), o.constant(share, c.input.dtype)))


def lp_normalization(c: Call, o: OnnxNodes) -> Any:
    """LpNormalization has no least norm."""
    norm = o.reduce("ReduceL1" if c.p == 1 else "ReduceL2", "input", [c.axis], c.input.ndim)
    return o("Div", "input", o("Max", norm, o.constant(c.epsilon, c.input.dtype)))


def value_scale(c: Call, o: OnnxNodes) -> Any:
    bias = np.reshape(c.bias, (1, -1, 1, 1))
    scaled = o("Mul", "input", o.constant(c.scale, c.input.dtype))
    return o("Add", scaled, o.constant(bias, c.input.dtype))


# ---- training ----------------------------------------------------------------------------------------------


def adam_optimizer(c: Call, o: OnnxNodes) -> Any:
    dtype = c.gradient.dtype

    def mean(old: str, new: str, share: float) -> str:
        parts = ((old, share), (new, 1 - share))
        return str(o("Add", *(o("Mul", x, o.constant(s, dtype)) for x, s in parts)))

    first = mean("input_first_moment", "gradient", c.beta1)
    second = mean("input_second_moment", o("Mul", "gradient", "gradient"), c.beta2)
    root = o("Add", o("Sqrt", second), o.constant(c.epsilon, dtype))
    change = o("Mul", o("Div", first, root), o.cast(_rate(c, o), FROM_NUMPY[dtype]))
    return o("Sub", "input_parameters", change), first, second


def _rate(c: Call, o: OnnxNodes) -> str:
    """learning_rate * sqrt(1 - beta2 ^ step) / (1 - beta1 ^ step), in float64."""
    step = o.cast(o.reshape("training_step", []), FLOAT64)

    def rest(beta: float) -> Any:
        return o("Sub", _number(o, 1.0), o("Pow", _number(o, beta), step))

    return str(o("Div", o("Mul", _number(o, c.learning_rate), o("Sqrt", rest(c.beta2))), rest(c.beta1)))


def _number(o: OnnxNodes, value: float) -> str:
    return o.constant(value, np.float64)
