"""Operators that put elements around a tensor, one definition each."""

from __future__ import annotations

import numpy as np

from anydml.ops.attributes import UINTS, ScalarKind, as_type
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, FROM_NUMPY, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.ops.enums import PaddingMode, TensorDataType
from anydml.ops.families import FL_1_0, FL_2_1, FL_3_0, FL_3_1, FL_5_0, FL_6_4
from anydml.ops.layout import same_ranks
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.rules import of_type
from anydml.ops.shapes import said


def _padded_sizes(c: Call) -> tuple[int, ...]:
    sizes = zip(c.start_padding, c.input.shape, c.end_padding, strict=True)
    return tuple(before + n + after for before, n, after in sizes)


def inside(at: Array, size: int, mode: PaddingMode) -> Array:
    """Where, along an axis, the elements come from that stand at positions beyond its ends."""
    if mode is PaddingMode.EDGE or size == 1:
        return np.clip(at, 0, size - 1)
    edge = 1 if mode is PaddingMode.SYMMETRIC else 0
    period = size if mode is PaddingMode.WRAP else 2 * (size - 1 + edge)
    source: Array = at % period
    return source if mode is PaddingMode.WRAP else np.minimum(source, period - edge - source)


def _pad(c: Call) -> Array:
    """The input, then axis by axis what stands before and behind all that is there."""
    ends = [(start, start + n) for start, n in zip(c.start_padding, c.input.shape, strict=True)]
    if c.padding_mode is PaddingMode.CONSTANT:
        value = as_type(c.padding_value, FROM_NUMPY[c.output.dtype])
        padded = np.full(c.output.shape, value, c.output.dtype)
    else:
        padded = np.empty(c.output.shape, c.output.dtype)
    padded[tuple(slice(*end) for end in ends)] = c.input
    if c.padding_mode is PaddingMode.CONSTANT:
        return padded
    for axis, (start, stop) in enumerate(ends):
        rows = np.moveaxis(padded, axis, 0)
        there = (slice(None),) * axis + tuple(slice(*end) for end in ends[axis + 1 :])
        for first, last in ((0, start), (stop, c.output.shape[axis])):
            if first < last:
                source = start + inside(np.arange(first, last) - start, stop - start, c.padding_mode)
                rows[(slice(first, last), *there)] = rows[(source, *there)]
    return padded


_RULES = (same_ranks("input", "output"),)
_MODE = attr("PaddingMode", PaddingMode, since={PaddingMode.SYMMETRIC: FL_3_0, PaddingMode.WRAP: FL_6_4})
_SIZES = (
    attr("StartPadding", UINTS, per="dimension"),
    attr("EndPadding", UINTS, per="dimension"),
)
_SHAPES = {"input": "...", "output": said("as input, each size plus its start_padding and end_padding")}
_DOC = (
    "Output is the input with StartPadding elements before it and EndPadding behind it along each dimension: "
    "PaddingValue (CONSTANT), the element at the edge (EDGE), the input mirrored at its edge, without "
    "(REFLECTION) or with that (SYMMETRIC), or the input over and over (WRAP)."
)
_TEXT = "output = pad(input, padding_mode)"
_NOTES = (
    "Padding may be longer than the input: mirrors fold and wraps go round as often as it takes. "
    "DirectML's documents say so of mirrors only. REFLECTION of one element repeats it."
)

PADDING = of_tensors(
    name="PADDING",
    doc=_DOC,
    text=_TEXT,
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        _MODE,
        attr("PaddingValue"),
        *_SIZES,
    ),
    levels={
        FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_RULES),
        FL_2_1: at(rank=(4, 5), T=UP_TO_32_BIT, rules=_RULES),
        FL_3_1: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_RULES),
        FL_5_0: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_RULES),
    },
    sizes=_padded_sizes,
    shapes=_SHAPES,
    compute=_pad,
    moves=True,
    example=example(
        [[1, 2, 3]],
        [[3, 2, 1, 2, 3, 2]],
        padding_mode="REFLECTION",
        padding_value=0.0,
        start_padding=[0, 2],
        end_padding=[0, 1],
    ),
    notes=f"{_NOTES} PaddingValue loses its fraction in integer tensors, and saturates.",
)

PADDING1 = of_tensors(
    name="PADDING1",
    doc=_DOC,
    text=_TEXT,
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        _MODE,
        attr("PaddingValueDataType", TensorDataType, implied=True),
        attr("PaddingValue", ScalarKind()),
        *_SIZES,
    ),
    levels={
        FL_5_0: at(
            rank=(1, 8), T=UP_TO_64_BIT, rules=(*_RULES, of_type("PaddingValueDataType", "PaddingValue"))
        ),
    },
    sizes=_padded_sizes,
    shapes=_SHAPES,
    compute=_pad,
    moves=True,
    example=example(
        [[1, 2, 3]],
        [[7, 7, 1, 2, 3, 7]],
        padding_mode="CONSTANT",
        padding_value=7,
        start_padding=[0, 2],
        end_padding=[0, 1],
    ),
    notes=_NOTES,
)
