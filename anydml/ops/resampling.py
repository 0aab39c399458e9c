"""Operators that take an image to other sizes, and their gradients, one definition each.

Every output element lies somewhere in the input, and is a weighted sum of elements near by. Axes are
independent of each other: one is resampled after the other, as a sum of terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

import numpy as np

from anydml.ops.attributes import BOOLEAN, FLOATS, Size2DKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, INT8, UINT8
from anydml.ops.enums import AxisDirection, InterpolationMode
from anydml.ops.families import FL_1_0, FL_2_0, FL_2_1, FL_3_0, FL_5_1, FL_6_2, FL_6_4
from anydml.ops.opdef import Asked, Attribute, Levels, Operand, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.tensor_desc import MAX_ELEMENTS

# ---- one axis ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """What becomes of one axis: output = (input + input_offset) * scale + output_offset."""

    n_in: int
    n_out: int
    scale: float
    input_offset: float
    output_offset: float

    def positions(self) -> Array:
        """Where in the input each output element lies, in float32 as GPUs have it."""
        outputs: Array = np.arange(self.n_out, dtype=np.float32)
        return (outputs - np.float32(self.output_offset)) / np.float32(self.scale) - np.float32(
            self.input_offset
        )

    def inside(self, positions: Array) -> Array:
        """The elements that positions name; beyond an edge, the one at the edge."""
        last = self.n_in - 1
        found: Array = np.clip(positions, 0, last).astype(np.intp)
        return np.minimum(found, last)  # a float32 may be above it


Term = tuple[Any, Array, Array | None]
"""Targets (all of them, or a list), the source of each, and its weight (None: 1)."""


def _nearest(axis: Axis, direction: AxisDirection | None) -> list[Term]:
    x = axis.positions()
    if direction is AxisDirection.INCREASING:
        x = np.ceil(x)
    else:
        x = np.floor(x if direction is AxisDirection.DECREASING else x + np.float32(0.5))
    return [(slice(None), axis.inside(x), None)]


def _linear(axis: Axis) -> list[Term]:
    x = np.clip(axis.positions(), 0, axis.n_in - 1)
    low = axis.inside(x)
    share = x - low
    if not share.any():
        return [(slice(None), low, None)]
    return [(slice(None), low, 1 - share), (slice(None), axis.inside(low + (share > 0)), share)]


def _antialiased(axis: Axis) -> list[Term]:
    """A triangle that is wider than two elements: as wide as needed that none is passed over."""
    n, scale = axis.n_in, float(np.float32(axis.scale))
    reach = 1 / scale
    x = np.clip(axis.positions().astype(np.float64), -reach - 1, n + reach)
    count = int(min(np.ceil(2 * reach), n))
    first = np.clip(np.floor(x - reach) + 1, 0, n - count).astype(np.intp)
    elements = first + np.arange(count)[:, np.newaxis]
    inner = np.maximum(0, 1 - np.abs(elements - x) * scale)
    weights = np.stack([*inner, _before(x, scale), _before(n - 1 - x, scale)])
    weights = (weights / weights.sum(0)).astype(np.float32)
    edges = [np.full(axis.n_out, edge) for edge in (0, n - 1)]
    return [(slice(None), k, w) for k, w in zip([*elements, *edges], weights, strict=True) if w.any()]


def _before(x: Array, scale: float) -> Array:
    """The weights of all elements before the first one, for triangles around x, which count for that one."""

    def ramp(t: Array) -> Array:
        terms = np.maximum(np.ceil(t), 0)
        found: Array = terms * t - terms * (terms - 1) / 2
        return found

    begin = -1 - x
    total: Array = scale * (ramp(begin + 1 / scale) - 2 * ramp(begin) + ramp(begin - 1 / scale))
    return total.clip(min=0)


def _transposed(terms: list[Term], n_in: int) -> list[Term]:
    """The terms that bring what each source gave back to it: at most one for each source at a time."""
    sources = np.concatenate([source for _, source, _ in terms])
    outputs = np.tile(np.arange(len(terms[0][1])), len(terms))
    weights = np.concatenate([np.ones(len(s), np.float32) if w is None else w for _, s, w in terms])
    given = weights != 0
    order = np.argsort(sources[given], kind="stable")
    sources, outputs, weights = (v[given][order] for v in (sources, outputs, weights))
    counts = np.bincount(sources, minlength=n_in)
    starts = np.cumsum(counts) - counts
    found: list[Term] = []
    for k in range(counts.max()):
        targets = np.flatnonzero(counts > k)
        chosen = starts[targets] + k
        whole = len(targets) == n_in
        found.append((slice(None) if whole else targets, outputs[chosen], weights[chosen]))
    return found


def _along(x: Array, axis: int, length: int, terms: list[Term]) -> Array:
    """The sum of terms, along an axis."""
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    total: Array | None = None
    for targets, sources, weights in terms:
        part = np.take(x, sources, axis)
        if weights is not None:
            part *= weights.reshape(-1, *(1,) * (x.ndim - axis - 1)).astype(x.dtype, copy=False)
        if total is None and isinstance(targets, slice):
            total = part
        else:
            total = np.zeros(shape, x.dtype) if total is None else total
            total[(*(slice(None),) * axis, targets)] += part
    return np.zeros(shape, x.dtype) if total is None else total


# ---- all axes ------------------------------------------------------------------------------------------


def _axes(c: Call, small: Sequence[int], large: Sequence[int]) -> Iterator[Axis]:
    """The axes between the input's sizes and the output's; without offsets, between centers of elements."""
    rank = len(small)
    begins = getattr(c, "input_pixel_offsets", (0.5,) * rank)
    ends = getattr(c, "output_pixel_offsets", (-0.5,) * rank)
    return (Axis(*values) for values in zip(small, large, c.scales, begins, ends, strict=True))


def _terms(c: Call, axis: Axis) -> list[Term]:
    if c.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR:
        return _nearest(axis, getattr(c, "rounding_direction", None))
    if getattr(c, "antialiased", False) and axis.scale < 0.5:
        return _antialiased(axis)
    return _linear(axis)


def _is_identity(axis: Axis, terms: list[Term]) -> bool:
    one = len(terms) == 1 and axis.n_in == axis.n_out
    return one and bool(np.array_equal(terms[0][1], np.arange(axis.n_in)))


_AT_ONCE = 1 << 16  # elements of an output, about: what lies between stays near


def _apply(x: Array, lengths: Sequence[int], terms: Sequence[list[Term]]) -> Array:
    """All axes. The first ones, that stay as they are, are cut."""
    if prod(lengths) <= _AT_ONCE or all(len(t) <= 1 for t in terms):
        return _apply_at_once(x, lengths, terms)
    first = next(k for k in range(x.ndim) if terms[k])
    count, size = prod(x.shape[:first]), prod(lengths[first:])
    rows, result = x.reshape(count, *x.shape[first:]), np.empty((count, *lengths[first:]), x.dtype)
    block, own = max(1, _AT_ONCE // size), [[], *terms[first:]]
    for k in range(0, count, block):
        part = result[k : k + block]
        part[...] = _apply_at_once(rows[k : k + block], part.shape, own)
    return result.reshape(lengths)


def _apply_at_once(x: Array, lengths: Sequence[int], terms: Sequence[list[Term]]) -> Array:
    """Axes that make it smaller first, then last ones. Many terms are added in float64."""
    for k in sorted(range(x.ndim), key=lambda k: (lengths[k] / x.shape[k], -k)):
        if terms[k]:
            wide = x.astype(np.float64) if len(terms[k]) > 64 and x.dtype == np.float32 else x
            x = _along(wide, k, lengths[k], terms[k]).astype(x.dtype, copy=False)
    return x


def _resample_by(c: Call, axes: Sequence[Axis]) -> Array:
    terms = [_terms(c, axis) for axis in axes]
    terms = [[] if _is_identity(axis, t) else t for axis, t in zip(axes, terms, strict=True)]
    lengths = c.output.shape
    weighted = any(w is not None for t in terms for _, _, w in t)
    if c.input.dtype.kind == "f" or not weighted:
        return _apply(c.input, lengths, terms)
    return np.trunc(_apply(c.input.astype(np.float64), lengths, terms).astype(np.float32))


def _resample(c: Call) -> Array:
    return _resample_by(c, list(_axes(c, c.input.shape, c.output.shape)))


def _resample_grad(c: Call) -> Array:
    axes = list(_axes(c, c.output_gradient.shape, c.input_gradient.shape))
    terms = [_terms(c, axis) for axis in axes]
    back = [
        [] if _is_identity(axis, t) else _transposed(t, axis.n_in)
        for axis, t in zip(axes, terms, strict=True)
    ]
    return _apply(c.input_gradient, c.output_gradient.shape, back)


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


def _upsample_2d(c: Call) -> Array:
    shape = c.input.shape
    scales = (*(1,) * (len(shape) - 2), *c.scale_size)
    sizes = zip(shape, c.output.shape, scales, strict=True)
    return _resample_by(c, [Axis(n, m, s, 0.5, -0.5) for n, m, s in sizes])


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
    compute=_upsample_2d,
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
