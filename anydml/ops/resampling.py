"""Operators that take an image to other sizes, and their gradients, one definition each.

Every output element lies somewhere in the input, and is a weighted sum of elements near by. Axes are
independent of each other: one is resampled after the other, as a sum of terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np

from anydml.ops.attributes import BOOLEAN, FLOATS, Size2DKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, INT8, UINT8
from anydml.ops.enums import AxisDirection, InterpolationMode
from anydml.ops.families import FL_1_0, FL_2_0, FL_2_1, FL_3_0, FL_5_1, FL_6_2, FL_6_4
from anydml.ops.interpolation import (
    Axis,
    Term,
    antialiased,
    apply,
    is_identity,
    linear,
    nearest,
    transposed,
)
from anydml.ops.opdef import Asked, Attribute, Levels, Operand, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.shapes import said
from anydml.ops.tensor_desc import MAX_ELEMENTS

# ---- all axes ------------------------------------------------------------------------------------------


def _axes(c: Call, small: Sequence[int], large: Sequence[int]) -> Iterator[Axis]:
    """The axes between the input's sizes and the output's; without offsets, between centers of elements."""
    rank = len(small)
    begins = getattr(c, "input_pixel_offsets", (0.5,) * rank)
    ends = getattr(c, "output_pixel_offsets", (-0.5,) * rank)
    return (Axis(*values) for values in zip(small, large, c.scales, begins, ends, strict=True))


def _terms(c: Call, axis: Axis) -> list[Term]:
    if c.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR:
        return nearest(axis, getattr(c, "rounding_direction", None))
    if getattr(c, "antialiased", False) and axis.scale < 0.5:
        return antialiased(axis)
    return linear(axis)


def terms_of(c: Call) -> list[list[Term]]:
    """Of each axis of what is resampled; none of those that stay as they are."""
    small, large = c.input.shape, c.output.shape
    if c.operator.name == "UPSAMPLE_2D":
        scales = (*(1,) * (len(small) - 2), *c.scale_size)
        axes = [Axis(n, m, s, 0.5, -0.5) for n, m, s in zip(small, large, scales, strict=True)]
    else:
        axes = list(_axes(c, small, large))
    terms = [_terms(c, axis) for axis in axes]
    return [[] if is_identity(axis, t) else t for axis, t in zip(axes, terms, strict=True)]


def _resample(c: Call) -> Array:
    terms, lengths = terms_of(c), c.output.shape
    weighted = any(w is not None for t in terms for _, _, w in t)
    if c.input.dtype.kind == "f" or not weighted:
        return apply(c.input, lengths, terms)
    return np.trunc(apply(c.input.astype(np.float64), lengths, terms).astype(np.float32))


def _resample_grad(c: Call) -> Array:
    axes = list(_axes(c, c.output_gradient.shape, c.input_gradient.shape))
    terms = [_terms(c, axis) for axis in axes]
    back = [
        [] if is_identity(axis, t) else transposed(t, axis.n_in) for axis, t in zip(axes, terms, strict=True)
    ]
    return apply(c.input_gradient, c.output_gradient.shape, back)


# ---- definitions ---------------------------------------------------------------------------------------

_IMAGE: tuple[Operand | Attribute, ...] = (inp("InputTensor", dtype="T"), out("OutputTensor", dtype="T"))
_GRADIENTS: tuple[Operand | Attribute, ...] = (
    inp("InputGradientTensor", dtype="T"),
    out("OutputGradientTensor", dtype="T"),
)
_MODE = attr("InterpolationMode", InterpolationMode)
_DIRECTION = attr("RoundingDirection", AxisDirection)
_PLACES = (
    attr("Scales", FLOATS, per="dimension"),
    attr("InputPixelOffsets", FLOATS, 0.5, per="dimension"),
    attr("OutputPixelOffsets", FLOATS, -0.5, per="dimension"),
)
_WITH_BYTES = (*FLOATS_UP_TO_32_BIT, INT8, UINT8)

_SCALES_RULE = holds(
    "Scales that are finite and greater than 0",
    lambda c: all(isfinite(s) and s > 0 for s in c.scales),
    lambda c: list(c.scales),
)
_OFFSETS_RULE = holds(
    "InputPixelOffsets and OutputPixelOffsets that are finite",
    lambda c: all(map(isfinite, (*c.input_pixel_offsets, *c.output_pixel_offsets))),
    lambda c: f"{list(c.input_pixel_offsets)} and {list(c.output_pixel_offsets)}",
)
_RANK_RULE = holds(
    "OutputTensor of as many dimensions as InputTensor",
    lambda c: c.output.ndim == c.input.ndim,
    lambda c: f"{c.output.ndim} and {c.input.ndim}",
)
_GRADIENT_RANK_RULE = holds(
    "OutputGradientTensor of as many dimensions as InputGradientTensor",
    lambda c: c.output_gradient.ndim == c.input_gradient.ndim,
    lambda c: f"{c.output_gradient.ndim} and {c.input_gradient.ndim}",
)
_RESAMPLE_RULES = (_RANK_RULE, _SCALES_RULE)
_RESAMPLE1_RULES = (*_RESAMPLE_RULES, _OFFSETS_RULE)
_GRADIENT_RULES = (_GRADIENT_RANK_RULE, _SCALES_RULE, _OFFSETS_RULE)

_SIZES = Asked(
    "output_sizes",
    "Sequence[int] | None",
    "the output's sizes; None: the input's times scales, rounded down, at least 1",
    lambda c: c.output.shape,
    None,
)
_GRADIENT_SIZES = Asked(
    "output_sizes",
    "Sequence[int]",
    "the output gradient's sizes: those of what was resampled",
    lambda c: c.output_gradient.shape,
)


def _sizes(c: Call) -> tuple[int, ...]:
    if c.output_sizes is not None:
        return tuple(c.output_sizes)
    with np.errstate(over="ignore"):
        scaled = [np.float32(n) * np.float32(s) for n, s in zip(c.input.shape, c.scales, strict=True)]
    return tuple(max(int(min(float(n), MAX_ELEMENTS + 1)), 1) if n == n else 1 for n in scaled)


def _gradient_sizes(c: Call) -> tuple[int, ...]:
    return tuple(c.output_sizes)


_SHAPES = {
    "input": "...",
    "output": said("as input, each size times its scale, rounded down, at least 1; or output_sizes"),
}
_GRADIENT_SHAPES = {"input_gradient": "...", "output_gradient": said("output_sizes")}


def _tables(first: Any, rules: tuple[Any, ...]) -> Levels:
    """Four dimensions at first, up to four from 5_1 on, and bytes from 6_2 on."""
    return {
        first: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=rules),
        FL_5_1: at(rank=(1, 4), T=FLOATS_UP_TO_32_BIT, rules=rules),
        FL_6_2: at(rank=(1, 4), T=_WITH_BYTES, rules=rules),
    }


_POSITION = "input position = (output position - output offset) / scale - input offset"
_EDGES = (
    "Positions are computed in float32; beyond an edge lies what is at the edge. Scales must be greater "
    "than 0, which the documents leave open. "
)
_WHOLE = "INT8 and UINT8: a linear mean is rounded toward zero."


_UPSAMPLE_RULES = (
    holds(
        "ScaleSize of at least 1 each way",
        lambda c: min(c.scale_size) >= 1,
        lambda c: f"Height {c.scale_size[0]}, Width {c.scale_size[1]}",
    ),
)

UPSAMPLE_2D = of_tensors(
    name="UPSAMPLE_2D",
    doc="Output is the input made ScaleSize times as high and wide, the last two dimensions.",
    text="output[..., y, x] = input[..., (y + 0.5) / height - 0.5, (x + 0.5) / width - 0.5]",
    operands=(*_IMAGE, attr("ScaleSize", Size2DKind()), _MODE),
    levels={FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_UPSAMPLE_RULES)},
    sizes=lambda c: (
        *c.input.shape[:-2],
        c.input.shape[-2] * c.scale_size[0],
        c.input.shape[-1] * c.scale_size[1],
    ),
    shapes={"input": "... H W", "output": said("[..., H * scale_size[0], W * scale_size[1]]")},
    compute=_resample,
    example=example([[[[1, 2]]]], [[[[1, 1.25, 1.75, 2]]]], scale_size=(1, 2), interpolation_mode="LINEAR"),
    notes="The documents do not say where elements lie: here, as in RESAMPLE, centers on centers.",
)

RESAMPLE = of_tensors(
    name="RESAMPLE",
    doc="Output is the input scaled along each dimension, by nearest elements or linear interpolation.",
    text="output[i] = input[(i + 0.5) / scale - 0.5]",
    operands=(*_IMAGE, _MODE, attr("Scales", FLOATS, per="dimension", count="ScaleCount")),
    levels=_tables(FL_2_0, _RESAMPLE_RULES),
    asks=(_SIZES,),
    sizes=_sizes,
    shapes=_SHAPES,
    compute=_resample,
    example=example(
        [[[[1, 2, 4]]]],
        [[[[1, 1.25, 1.75, 2.5, 3.5, 4]]]],
        interpolation_mode="LINEAR",
        scales=[1, 1, 1, 2],
    ),
    notes=_EDGES + "The nearest element is floor(position + 0.5). " + _WHOLE,
)

RESAMPLE1 = of_tensors(
    name="RESAMPLE1",
    doc="Output is the input scaled and shifted along each dimension, by nearest elements or linear "
    "interpolation.",
    text=f"output[output position] = input[input position]; {_POSITION}",
    operands=(*_IMAGE, _MODE, *_PLACES),
    levels=_tables(FL_2_1, _RESAMPLE1_RULES),
    asks=(_SIZES,),
    sizes=_sizes,
    shapes=_SHAPES,
    compute=_resample,
    example=example(
        [[[[1, 2, 4]]]],
        [[[[1, 1.5, 2, 3, 4, 4]]]],
        interpolation_mode="LINEAR",
        scales=[1, 1, 1, 2],
        input_pixel_offsets=0,
        output_pixel_offsets=0,
    ),
    notes=_EDGES + "The nearest element is floor(position + 0.5). " + _WHOLE,
)

RESAMPLE2 = of_tensors(
    name="RESAMPLE2",
    doc="Output is the input scaled and shifted along each dimension; of two elements the lower one, the "
    "upper one, or linear interpolation.",
    text=f"output[output position] = input[input position]; {_POSITION}",
    operands=(*_IMAGE, _MODE, _DIRECTION, *_PLACES),
    levels={
        FL_5_1: at(rank=(1, 4), T=FLOATS_UP_TO_32_BIT, rules=_RESAMPLE1_RULES),
        FL_6_2: at(rank=(1, 4), T=_WITH_BYTES, rules=_RESAMPLE1_RULES),
    },
    asks=(_SIZES,),
    sizes=_sizes,
    shapes=_SHAPES,
    compute=_resample,
    example=example(
        [1, 2, 4],
        [1, 1, 2, 2, 4, 4],
        interpolation_mode="NEAREST_NEIGHBOR",
        rounding_direction="DECREASING",
        scales=[2],
        input_pixel_offsets=[0],
        output_pixel_offsets=[0],
    ),
    notes=_EDGES + "NEAREST_NEIGHBOR takes ceil(position) if INCREASING, floor(position) if DECREASING: an "
    "input offset of 0 instead of 0.5 makes the latter the nearest of RESAMPLE. " + _WHOLE,
)

RESAMPLE3 = of_tensors(
    name="RESAMPLE3",
    doc="Output is the input scaled and shifted along each dimension, with a wider filter where that makes "
    "it much smaller.",
    text=f"output[output position] = input[input position]; {_POSITION}",
    operands=(*_IMAGE, _MODE, _DIRECTION, *_PLACES, attr("Antialiased", BOOLEAN, False)),
    levels={FL_6_4: at(rank=(1, 4), T=_WITH_BYTES, rules=_RESAMPLE1_RULES)},
    asks=(_SIZES,),
    sizes=_sizes,
    shapes=_SHAPES,
    compute=_resample,
    example=example(
        [0, 0, 0, 0, 16, 0, 0, 0],
        [1.5, 2.5],
        interpolation_mode="LINEAR",
        rounding_direction="DECREASING",
        scales=[0.25],
        antialiased=True,
    ),
    notes=_EDGES
    + "Antialiased: linear interpolation along dimensions of scales below 1/2 weighs elements by "
    "max(0, 1 - distance * scale), with a sum of 1, those beyond an edge included. " + _WHOLE,
)

RESAMPLE_GRAD = of_tensors(
    name="RESAMPLE_GRAD",
    doc="OutputGradient is the gradient of RESAMPLE1's input, of that of its output.",
    text=f"output_gradient[input position] += input_gradient[output position]; {_POSITION}",
    operands=(*_GRADIENTS, _MODE, *_PLACES),
    levels={
        FL_3_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_GRADIENT_RULES),
        FL_5_1: at(rank=(1, 4), T=FLOATS_UP_TO_32_BIT, rules=_GRADIENT_RULES),
    },
    asks=(_GRADIENT_SIZES,),
    sizes=_gradient_sizes,
    shapes=_GRADIENT_SHAPES,
    compute=_resample_grad,
    example=example([1, 2, 3, 4], [3.25, 6.75], output_sizes=[2], interpolation_mode="LINEAR", scales=[2]),
    notes=_EDGES + "Each element adds to those that it was computed of, by the same weights.",
)

RESAMPLE_GRAD1 = of_tensors(
    name="RESAMPLE_GRAD1",
    doc="OutputGradient is the gradient of RESAMPLE2's input, of that of its output.",
    text=f"output_gradient[input position] += input_gradient[output position]; {_POSITION}",
    operands=(*_GRADIENTS, _MODE, _DIRECTION, *_PLACES),
    levels={FL_5_1: at(rank=(1, 4), T=FLOATS_UP_TO_32_BIT, rules=_GRADIENT_RULES)},
    asks=(_GRADIENT_SIZES,),
    sizes=_gradient_sizes,
    shapes=_GRADIENT_SHAPES,
    compute=_resample_grad,
    example=example(
        [1, 2, 3, 4],
        [3, 7],
        output_sizes=[2],
        interpolation_mode="NEAREST_NEIGHBOR",
        rounding_direction="DECREASING",
        scales=[2],
        input_pixel_offsets=0,
        output_pixel_offsets=0,
    ),
    notes=_EDGES + "Each element adds to those that it was computed of, by the same weights.",
)
