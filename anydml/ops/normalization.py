"""Operators that normalize: by a mean and a variance, by neighbours, by a norm. One definition each."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.ops.attributes import BOOLEAN, UINT, ActivationKind, AxesKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT
from anydml.ops.families import FL_1_0, FL_2_1, FL_3_1, FL_4_0, FL_5_2, FL_6_3, FUSABLE
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.reduction import Axes, count_along, total, total_of_products
from anydml.ops.rules import axes_of, axis_of, holds
from anydml.ops.shapes import said

_FUSABLE = ActivationKind(FUSABLE)
EPSILON = 1e-5

# ---- sizes that are repeated ----------------------------------------------------------------------------


def repeats_to_input(*parameters: str) -> tuple[Rule, ...]:
    """Tensors that have the input's sizes or 1, dimension by dimension."""
    return tuple(_repeats(p) for p in parameters)


REPEATS_TO_INPUT = said("as input or 1, dimension by dimension")


def _shapes(sizes: str, *repeated: str) -> dict[str, str]:
    """Output has the sizes of Input, and some tensors have those or 1."""
    return {"input": sizes, **dict.fromkeys(repeated, REPEATS_TO_INPUT), "output": sizes}


def _repeats(parameter: str) -> Rule:
    def fits(c: Call) -> bool:
        x: Array | None = getattr(c, parameter)
        return x is None or (
            x.ndim == c.input.ndim and all(a in (1, n) for a, n in zip(x.shape, c.input.shape, strict=True))
        )

    return holds(
        f"{parameter.capitalize()}Tensor of InputTensor's sizes or 1, dimension by dimension",
        fits,
        lambda c: f"{getattr(c, parameter).shape} beside {c.input.shape}",
    )


# ---- batches --------------------------------------------------------------------------------------------


def centred(x: Array, mean: Array) -> Array:
    """x - mean, in FLOAT64: what lies between is not rounded, and in no float32 would it all fit."""
    return np.asarray(np.subtract(x, mean, dtype=np.float64))


def _scaled(y: Array, factor: Array, scale: Array | None, bias: Array | None, dtype: np.dtype[Any]) -> Array:
    """y * factor * scale + bias of this type, by the memory of y."""
    y *= factor if scale is None else factor * scale
    if bias is not None:
        y += bias
    return y.astype(dtype)


def _batch_normalization(c: Call) -> Array:
    factor = 1 / np.sqrt(c.variance.astype(np.float64) + c.epsilon)
    return _scaled(centred(c.input, c.mean), factor, c.scale, c.bias, c.input.dtype)


_BATCH_RULES = repeats_to_input("mean", "variance", "scale", "bias")
_SPATIAL = holds(
    "MeanTensor and VarianceTensor of InputTensor's last two sizes where Spatial is false",
    lambda c: c.spatial or all(x.shape[-2:] == c.input.shape[-2:] for x in (c.mean, c.variance)),
    lambda c: f"{c.mean.shape} and {c.variance.shape} beside {c.input.shape}",
)

BATCH_NORMALIZATION = of_tensors(
    name="BATCH_NORMALIZATION",
    doc="Output is Input less Mean, by the root of Variance, times Scale plus Bias, then an activation.",
    text="output = fused_activation(scale * (input - mean) / sqrt(variance + epsilon) + bias)",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("MeanTensor", dtype="T"),
        inp("VarianceTensor", dtype="T"),
        inp("ScaleTensor", dtype="T"),
        inp("BiasTensor", dtype="T"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Spatial", BOOLEAN, True),
        attr("Epsilon", default=EPSILON),
        attr("FusedActivation", _FUSABLE, None),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=(*_BATCH_RULES, _SPATIAL)),
        FL_3_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(*_BATCH_RULES, _SPATIAL)),
        FL_4_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=_BATCH_RULES),
    },
    shapes=_shapes("...", "mean", "variance", "scale", "bias"),
    compute=_batch_normalization,
    example=example([[1, 2], [3, 6]], [[1, 2]], [[4, 16]], [[2, 1]], [[0, 5]], [[0, 5], [2, 6]], epsilon=0.0),
    notes="Spatial changes nothing of the result.",
)

# ---- means and variances --------------------------------------------------------------------------------


def _normalized(c: Call, axes: Axes, use_mean: bool, use_variance: bool) -> Array:
    """Without a mean it is taken as 0: the variance is the mean of the squares, then."""
    x, n = c.input, count_along(c.input, axes)
    y = centred(x, total(x, axes) / n if use_mean else np.zeros((1,) * x.ndim))
    factor = np.ones((1,) * x.ndim)
    if use_variance:
        factor = 1 / np.sqrt(total_of_products(y, y, axes) / n + c.epsilon)
    return _scaled(y, factor, c.scale, c.bias, x.dtype)


_AXES = axes_of("input")
_REPEATED = repeats_to_input("scale", "bias")
_BOTH = holds(
    "ScaleTensor and BiasTensor both or neither",
    lambda c: (c.scale is None) == (c.bias is None),
    lambda c: "BiasTensor alone" if c.scale is None else "ScaleTensor alone",
)
_CHANNELS = holds(
    "ScaleTensor and BiasTensor of as many channels as InputTensor",
    lambda c: all(x is None or x.shape[1:2] == c.input.shape[1:2] for x in (c.scale, c.bias)),
    lambda c: f"{', '.join(str(x.shape) for x in (c.scale, c.bias) if x is not None)} beside {c.input.shape}",
)
_MEAN_VARIANCE_NOTES = (
    "The variance is that of the elements themselves (their number divides, not one less). "
    "Scale and Bias of sizes 1 are repeated."
)

MEAN_VARIANCE_NORMALIZATION = of_tensors(
    name="MEAN_VARIANCE_NORMALIZATION",
    doc="Output is Input less its mean, by the square root of its variance, over height and width.",
    text=(
        "output = fused_activation(scale * (input - mean) / sqrt(variance + epsilon) + bias) "
        "over axes 2 and 3, with cross_channel 1 as well; not divided without normalize_variance"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="T", optional=FL_1_0),
        inp("BiasTensor", dtype="T", optional=FL_1_0),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("CrossChannel", BOOLEAN),
        attr("NormalizeVariance", BOOLEAN),
        attr("Epsilon", default=EPSILON),
        attr("FusedActivation", _FUSABLE, None),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=(*_REPEATED, _BOTH)),
        FL_5_2: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_REPEATED),
    },
    shapes=_shapes("N C H W", "scale", "bias"),
    compute=lambda c: _normalized(c, (1, 2, 3) if c.cross_channel else (2, 3), True, c.normalize_variance),
    example=example(
        [[[[1, 5]], [[2, 10]]]],
        None,
        None,
        [[[[-1, 1]], [[-1, 1]]]],
        cross_channel=False,
        normalize_variance=True,
        epsilon=0.0,
    ),
    notes=_MEAN_VARIANCE_NOTES,
)

MEAN_VARIANCE_NORMALIZATION1 = of_tensors(
    name="MEAN_VARIANCE_NORMALIZATION1",
    doc="Output is Input less its mean, by the square root of its variance, over Axes.",
    text=(
        "output = fused_activation(scale * (input - mean) / sqrt(variance + epsilon) + bias) over axes; "
        "not divided without normalize_variance"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="T", optional=FL_2_1),
        inp("BiasTensor", dtype="T", optional=FL_2_1),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axes", AxesKind()),
        attr("NormalizeVariance", BOOLEAN),
        attr("Epsilon", default=EPSILON),
        attr("FusedActivation", _FUSABLE, None),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=(_AXES, *_REPEATED, _CHANNELS, _BOTH)),
        FL_3_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(_AXES, *_REPEATED, _CHANNELS, _BOTH)),
        FL_4_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(_AXES, *_REPEATED, _BOTH)),
        FL_5_2: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(_AXES, *_REPEATED)),
    },
    shapes=_shapes("...", "scale", "bias"),
    compute=lambda c: _normalized(c, c.axes, True, c.normalize_variance),
    example=example(
        [[1, 5], [2, 10]],
        [[2, 3]],
        [[0, 4]],
        [[-2, 7], [-2, 7]],
        axes=[1],
        normalize_variance=True,
        epsilon=0.0,
    ),
    notes=_MEAN_VARIANCE_NOTES,
)

MEAN_VARIANCE_NORMALIZATION2 = of_tensors(
    name="MEAN_VARIANCE_NORMALIZATION2",
    doc="Output is Input less its mean, by the root of its variance, over Axes; either can be left out.",
    text=(
        "output = fused_activation(scale * (input - mean) / sqrt(variance + epsilon) + bias) over axes; "
        "mean = 0 without use_mean, not divided without use_variance"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="T", optional=FL_6_3),
        inp("BiasTensor", dtype="T", optional=FL_6_3),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axes", AxesKind()),
        attr("UseMean", BOOLEAN),
        attr("UseVariance", BOOLEAN),
        attr("Epsilon", default=EPSILON),
        attr("FusedActivation", _FUSABLE, None),
    ),
    levels={FL_6_3: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(_AXES, *_REPEATED))},
    shapes=_shapes("...", "scale", "bias"),
    compute=lambda c: _normalized(c, c.axes, c.use_mean, c.use_variance),
    example=example(
        [[1, 7], [-4, 4]],
        [[5, 10]],
        None,
        [[1, 14], [-5, 10]],
        axes=[1],
        use_mean=False,
        use_variance=True,
        epsilon=0.0,
    ),
    notes=(
        f"{_MEAN_VARIANCE_NOTES} DirectML does not document UseMean: without it the mean is taken as 0, in "
        "the variance, too, as ONNX Runtime needs it for SimplifiedLayerNormalization."
    ),
)

# ---- neighbours -----------------------------------------------------------------------------------------


def window_sums(x: Array, axis: int, before: int, after: int) -> Array:
    """The sum of each element and its neighbours along an axis, as far as there are any.

    Sums of 1, 2, 4, ... elements are put together, so that wide windows take few steps.
    """
    n = x.shape[axis]
    before, after = min(before, n - 1), min(after, n - 1)
    padding = [(before, after) if k == axis else (0, 0) for k in range(x.ndim)]
    powers = np.moveaxis(np.pad(x, padding), axis, 0)
    summed, start, width, left = np.zeros((), x.dtype), 0, 1, before + after + 1
    while True:
        if left & 1:
            summed = summed + powers[start : start + n]
            start += width
        left >>= 1
        if not left:
            return np.moveaxis(summed, 0, axis)
        powers = powers[:-width] + powers[width:]
        width *= 2


def local_sums(x: Array, cross_channel: bool, local_size: int, transposed: bool = False) -> Array:
    """The sums over the local region of each element; transposed, over those whose region has it."""
    before = (local_size - 1) // 2
    after = local_size - 1 - before
    if transposed:
        before, after = after, before
    for axis in (1,) if cross_channel else (2, 3):
        x = window_sums(x, axis, before, after)
    return x


def power(x: Array, exponent: float) -> Array:
    """The usual exponent by square roots, which are faster."""
    if exponent == 0.75:
        root = np.sqrt(x)
        return np.asarray(root * np.sqrt(root))
    return np.asarray(x**exponent)


def local_response(c: Call) -> Array:
    """What the input is divided by, before its power is taken, in FLOAT64."""
    sums = local_sums(np.square(c.input, dtype=np.float64), c.cross_channel, c.local_size)
    sums *= c.alpha / c.local_size
    sums += c.bias
    return sums


LOCAL_RULES = (holds("LocalSize of at least 1", lambda c: c.local_size >= 1, "local_size"),)
LOCAL_ATTRIBUTES = (
    attr("CrossChannel", BOOLEAN),
    attr("LocalSize", UINT),
    attr("Alpha", default=1e-4),
    attr("Beta", default=0.75),
    attr("Bias", default=1.0),
)
LOCAL_NOTES = (
    "The local region is LocalSize channels, or without CrossChannel that many rows and columns; "
    "of an even LocalSize the element more lies behind. Alpha is divided by LocalSize either way."
)

LOCAL_RESPONSE_NORMALIZATION = of_tensors(
    name="LOCAL_RESPONSE_NORMALIZATION",
    doc="Output is Input divided by a power of the squares around each element.",
    text="output = input / (bias + alpha / local_size * sum(input^2 of the local region)) ^ beta",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        *LOCAL_ATTRIBUTES,
    ),
    levels={FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=LOCAL_RULES)},
    shapes=_shapes("N C H W"),
    compute=lambda c: c.input / power(local_response(c), c.beta),
    example=example(
        [[[[2]], [[-2]], [[2]]]],
        [[[[0.25]], [[-0.25]], [[0.5]]]],
        cross_channel=True,
        local_size=2,
        alpha=2.0,
        beta=1.0,
        bias=0.0,
    ),
    notes=LOCAL_NOTES,
)

# ---- norms ----------------------------------------------------------------------------------------------


def _lp_normalization(c: Call) -> Array:
    x, axes = c.input, (c.axis,)
    norm = total(np.abs(x), axes) if c.p == 1 else np.sqrt(total_of_products(x, x, axes))
    return np.asarray(x / np.maximum(norm, c.epsilon))


_NORM_RULES = (
    axis_of("input"),
    holds("P of 1 or 2", lambda c: c.p in (1, 2), "p"),
)

LP_NORMALIZATION = of_tensors(
    name="LP_NORMALIZATION",
    doc="Output is Input divided by its norm along Axis: the sum of its absolutes (P 1) or its length (P 2).",
    text="output = input / max(norm, epsilon), with norm = sum(abs(input) ^ p, axis) ^ (1 / p)",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axis", UINT),
        attr("Epsilon", default=EPSILON),
        attr("P", UINT, 2),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_NORM_RULES),
        FL_3_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=_NORM_RULES),
    },
    shapes=_shapes("..."),
    compute=_lp_normalization,
    example=example([[1, 3], [0, -2]], [[0.25, 0.75], [0, -1]], axis=1, p=1),
    notes="DirectML does not say where Epsilon stands: here the norm is at least that.",
)
