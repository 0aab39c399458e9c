"""Normalization in training, and the gradients of normalizations. One definition each."""

from __future__ import annotations

import numpy as np

from anydml.ops.attributes import ActivationKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT
from anydml.ops.families import FL_3_1, FL_4_1, FUSABLE
from anydml.ops.normalization import (
    EPSILON,
    LOCAL_ATTRIBUTES,
    LOCAL_NOTES,
    LOCAL_RULES,
    REPEATS_TO_INPUT,
    centred,
    local_response,
    local_sums,
    power,
    repeats_to_input,
)
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.reduction import Axes, count_along, total, total_of_products
from anydml.ops.shapes import said

# ---- batches --------------------------------------------------------------------------------------------


def _repeated_axes(x: Array) -> Axes:
    """The dimensions that scales and the like are repeated along."""
    return tuple(k for k, n in enumerate(x.shape) if n == 1)


def _batch_training(c: Call) -> tuple[Array, Array, Array]:
    axes = _repeated_axes(c.scale)
    n = count_along(c.input, axes)
    mean = total(c.input, axes) / n
    y = centred(c.input, mean)
    variance = total_of_products(y, y, axes) / n
    y *= c.scale / np.sqrt(variance + c.epsilon)
    y += c.bias
    if c.fused_add is not None:
        y += c.fused_add
    return y.astype(c.input.dtype), mean, variance


BATCH_NORMALIZATION_TRAINING = of_tensors(
    name="BATCH_NORMALIZATION_TRAINING",
    doc="As BATCH_NORMALIZATION by the input's own mean and variance, which are given, too.",
    text=(
        "output = fused_activation(scale * (input - mean) / sqrt(variance + epsilon) + bias + fused_add), "
        "mean and variance of input along the dimensions in which scale has a size of 1"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="T", sizes="C"),
        inp("BiasTensor", dtype="T", sizes="C"),
        inp("FusedAddTensor", dtype="T", sizes="S", optional=FL_4_1),
        out("OutputTensor", dtype="T", sizes="S"),
        out("OutputMeanTensor", dtype="T", sizes="C"),
        out("OutputVarianceTensor", dtype="T", sizes="C"),
        attr("Epsilon", default=EPSILON),
        attr("FusedActivation", ActivationKind(FUSABLE), None),
    ),
    levels={
        FL_4_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=repeats_to_input("scale")),
    },
    shapes={
        "input": "...",
        "scale": REPEATS_TO_INPUT,
        "bias": said("as scale"),
        "fused_add": "...",
        "output": "...",
        "output_mean": said("as scale"),
        "output_variance": said("as scale"),
    },
    compute=_batch_training,
    example=example(
        [[1, 2], [5, 10]],
        [[2, 3]],
        [[1, 0]],
        None,
        ([[-1, -3], [3, 3]], [[3, 6]], [[4, 16]]),
        epsilon=0.0,
    ),
    notes="The variance is that of the elements themselves: their number divides, not one less.",
)


def _batch_sums(c: Call, centered: Array, axes: Axes) -> tuple[Array, Array, Array]:
    """The gradients of scale and bias, and 1 / sqrt(variance + epsilon)."""
    inverse = 1 / np.sqrt(c.variance.astype(np.float64) + c.epsilon)
    of_scale = total_of_products(c.input_gradient, centered, axes) * inverse
    return of_scale, total(c.input_gradient, axes), inverse


def _batch_gradient(c: Call) -> tuple[Array, Array, Array]:
    of_scale, of_bias, inverse = _batch_sums(c, centred(c.input, c.mean), _repeated_axes(c.mean))
    return c.input_gradient * (c.scale * inverse), of_scale, of_bias


def _batch_training_gradient(c: Call) -> tuple[Array, Array, Array]:
    """Mean and variance depend on the input, too: their part is taken out of the gradient."""
    axes = _repeated_axes(c.mean)
    n = count_along(c.input, axes)
    y = centred(c.input, c.mean)
    of_scale, of_bias, inverse = _batch_sums(c, y, axes)
    y *= -of_scale * inverse / n
    y += c.input_gradient
    y -= of_bias / n
    y *= c.scale * inverse
    return y, of_scale, of_bias


_BATCH_OPERANDS = (
    inp("InputTensor", dtype="T", sizes="S"),
    inp("InputGradientTensor", dtype="T", sizes="S"),
    inp("MeanTensor", dtype="T", sizes="C"),
    inp("VarianceTensor", dtype="T", sizes="C"),
    inp("ScaleTensor", dtype="T", sizes="C"),
    out("OutputGradientTensor", dtype="T", sizes="S"),
    out("OutputScaleGradientTensor", dtype="T", sizes="C"),
    out("OutputBiasGradientTensor", dtype="T", sizes="C"),
    attr("Epsilon", default=EPSILON),
)
_BATCH_SHAPES = {
    "input": "...",
    "input_gradient": "...",
    "mean": REPEATS_TO_INPUT,
    "variance": said("as mean"),
    "scale": said("as mean"),
    "output_gradient": "...",
    "output_scale_gradient": said("as mean"),
    "output_bias_gradient": said("as mean"),
}
_BATCH_RULES = repeats_to_input("scale")
_SUMS_TEXT = (
    "output_scale_gradient = sum(input_gradient * (input - mean) / sqrt(variance + epsilon)); "
    "output_bias_gradient = sum(input_gradient)"
)

BATCH_NORMALIZATION_GRAD = of_tensors(
    name="BATCH_NORMALIZATION_GRAD",
    doc="The gradients of BATCH_NORMALIZATION: of its input, its scale and its bias.",
    text=f"output_gradient = input_gradient * scale / sqrt(variance + epsilon); {_SUMS_TEXT}",
    operands=_BATCH_OPERANDS,
    levels={FL_3_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=_BATCH_RULES)},
    shapes=_BATCH_SHAPES,
    compute=_batch_gradient,
    example=example(
        [[1, 2], [5, 10]],
        [[1, 2], [3, -1]],
        [[3, 6]],
        [[4, 16]],
        [[2, 2]],
        ([[1, 1], [3, -0.5]], [[2, -3]], [[4, 1]]),
        epsilon=0.0,
    ),
    notes="The sums run along the dimensions in which Mean has a size of 1.",
)

BATCH_NORMALIZATION_TRAINING_GRAD = of_tensors(
    name="BATCH_NORMALIZATION_TRAINING_GRAD",
    doc="The gradients of BATCH_NORMALIZATION_TRAINING: of its input, its scale and its bias.",
    text=(
        "output_gradient = scale / sqrt(variance + epsilon) * (input_gradient - mean_of(input_gradient) - "
        "(input - mean) * mean_of(input_gradient * (input - mean)) / (variance + epsilon)); " + _SUMS_TEXT
    ),
    operands=_BATCH_OPERANDS,
    levels={FL_4_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=_BATCH_RULES)},
    shapes=_BATCH_SHAPES,
    compute=_batch_training_gradient,
    example=example(
        [[1, 2], [5, 10]],
        [[1, 2], [3, -1]],
        [[3, 6]],
        [[4, 16]],
        [[2, 2]],
        ([[0, 0], [0, 0]], [[2, -3]], [[4, 1]]),
        epsilon=0.0,
    ),
    notes=(
        "Mean and Variance are taken to be those of Input, as BATCH_NORMALIZATION_TRAINING gives them. "
        "Sums and means run along the dimensions in which Mean has a size of 1."
    ),
)

# ---- neighbours -----------------------------------------------------------------------------------------


def _local_gradient(c: Call) -> Array:
    """An element counts in the divisors of all whose local region has it."""
    x, dy = c.input, c.input_gradient
    divisor = local_response(c)
    direct = dy / power(divisor, c.beta)
    shared = local_sums(direct * x / divisor, c.cross_channel, c.local_size, transposed=True)
    shared *= x
    shared *= 2 * c.alpha * c.beta / c.local_size
    return np.asarray(direct - shared)


LOCAL_RESPONSE_NORMALIZATION_GRAD = of_tensors(
    name="LOCAL_RESPONSE_NORMALIZATION_GRAD",
    doc="The gradient of LOCAL_RESPONSE_NORMALIZATION.",
    text=(
        "output_gradient = input_gradient / d ^ beta - 2 * alpha * beta / local_size * input * "
        "sum(input_gradient * input / d ^ (beta + 1) of the regions with the element), "
        "with d = bias + alpha / local_size * sum(input^2 of the local region)"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("InputGradientTensor", dtype="T", sizes="S"),
        out("OutputGradientTensor", dtype="T", sizes="S"),
        *LOCAL_ATTRIBUTES,
    ),
    levels={FL_3_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=LOCAL_RULES)},
    shapes=dict.fromkeys(("input", "input_gradient", "output_gradient"), "N C H W"),
    compute=_local_gradient,
    example=example(
        [[[[1]], [[-1]]]],
        [[[[4]], [[8]]]],
        [[[[4]], [[2]]]],
        cross_channel=True,
        local_size=3,
        alpha=3.0,
        beta=1.0,
        bias=0.0,
    ),
    notes=LOCAL_NOTES + " DirectML's page says it the other way round; here it is the operator's gradient.",
)
