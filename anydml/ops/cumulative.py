"""Operators that walk along an axis: running sums and products, the largest elements, what is not zero.

One definition each.
"""

from __future__ import annotations

import math
from itertools import dropwhile
from typing import Any

import numpy as np

from anydml.ops.attributes import BOOLEAN, UINT
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, UINT32, UINT64, UP_TO_32_BIT
from anydml.ops.enums import AxisDirection
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_1,
    FL_3_0,
    FL_3_1,
    FL_4_0,
    FL_5_0,
    FLOATS_AND_32_BIT,
    FLOATS_AND_32_OR_64_BIT,
)
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.reduction import accumulator
from anydml.ops.rules import axis_of, holds
from anydml.ops.shapes import said

# ---- running sums and products --------------------------------------------------------------------------


def _running(c: Call, operation: np.ufunc, exclusive: bool) -> Array:
    """The operation of all elements up to each one along the axis, or before it."""
    made = np.empty(c.input.shape, c.input.dtype)
    source, target = np.moveaxis(c.input, c.axis, 0), np.moveaxis(made, c.axis, 0)
    if c.axis_direction is AxisDirection.DECREASING:
        source, target = source[::-1], target[::-1]
    if exclusive:
        target[0] = operation.identity
        source, target = source[:-1], target[1:]
    wide = accumulator(c.input)
    stretch = math.prod(c.input.shape[c.axis + 1 :])
    if stretch >= 16 and math.prod(source.shape[1:]) >= 4096:
        # whole slices at once: `accumulate` would go through memory in large strides
        so_far = np.full(source.shape[1:], operation.identity, wide)
        for k in range(len(source)):
            operation(so_far, source[k], out=so_far)
            target[k] = so_far
    else:
        target[...] = operation.accumulate(source, axis=0, dtype=wide)
    return made


_RUNNING_RULES = (axis_of("input"),)
_RUNNING_SHAPES = {"input": "...", "output": "..."}

CUMULATIVE_SUMMATION = of_tensors(
    name="CUMULATIVE_SUMMATION",
    doc="Each element of Output is the sum of the input's elements along Axis up to it.",
    text="output = cumsum(input, axis) along axis_direction, of those before each if has_exclusive_sum",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axis", UINT),
        attr("AxisDirection", AxisDirection),
        attr("HasExclusiveSum", BOOLEAN),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), T=FLOATS_AND_32_BIT, rules=_RUNNING_RULES),
        FL_4_0: at(rank=(1, 8), T=FLOATS_AND_32_BIT, rules=_RUNNING_RULES),
        FL_5_0: at(rank=(1, 8), T=FLOATS_AND_32_OR_64_BIT, rules=_RUNNING_RULES),
    },
    shapes=_RUNNING_SHAPES,
    compute=lambda c: _running(c, np.add, c.has_exclusive_sum),
    example=example(
        [[2, 1, 3, 5], [3, 8, 7, 3]],
        [[2, 3, 6, 11], [3, 11, 18, 21]],
        axis=1,
        axis_direction="INCREASING",
        has_exclusive_sum=False,
    ),
    in_place=("InputTensor",),
    notes="Floats are summed up in float64, rounded to float32 and from there to float16; integers wrap.",
)

CUMULATIVE_PRODUCT = of_tensors(
    name="CUMULATIVE_PRODUCT",
    doc="Each element of Output is the product of the input's elements along Axis up to it.",
    text=(
        "output = cumprod(input, axis) along axis_direction, of those before each if has_exclusive_product"
    ),
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axis", UINT),
        attr("AxisDirection", AxisDirection),
        attr("HasExclusiveProduct", BOOLEAN),
    ),
    levels={
        FL_3_1: at(rank=(4, 4), T=FLOATS_AND_32_BIT, rules=_RUNNING_RULES),
        FL_4_0: at(rank=(1, 8), T=FLOATS_AND_32_BIT, rules=_RUNNING_RULES),
        FL_5_0: at(rank=(1, 8), T=FLOATS_AND_32_OR_64_BIT, rules=_RUNNING_RULES),
    },
    shapes=_RUNNING_SHAPES,
    compute=lambda c: _running(c, np.multiply, c.has_exclusive_product),
    example=example(
        [[2, 1, 3, 5], [3, 8, 7, 3]],
        [[15, 15, 5, 1], [168, 21, 3, 1]],
        axis=1,
        axis_direction="DECREASING",
        has_exclusive_product=True,
    ),
    in_place=("InputTensor",),
    notes="Floats are multiplied in float64, rounded to float32 and from there to float16; integers wrap.",
)

# ---- the largest elements -------------------------------------------------------------------------------


def _ranks(x: Array) -> Array:
    """Integers from -2^31 to 2^31-1 in the order of the elements, which have at most 32 bits."""
    if x.dtype.kind != "f":
        ranks = x.astype(np.int64)
        return ranks - 2**31 if x.dtype == np.uint32 else ranks
    bits = (x + np.float32(0)).view(np.int32)  # -0.0 becomes 0.0
    if np.isnan(x.max()):
        bits[np.isnan(x)] = 0x7FC00000
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)


_FEW = 8
"""Up to so many elements are found one after the other."""


def _few(x: Array, k: int, largest: bool) -> Array | None:
    """The positions of the first k elements; None where one of them is NaN, or as what stands for those that
    were found. Changes x."""
    rows, found = x.reshape(-1, x.shape[-1]), np.empty((*x.shape[:-1], k), np.int64)
    flat, each, beyond = found.reshape(-1, k), np.arange(len(rows)), -np.inf if largest else np.inf
    for j in range(k):
        index = rows.argmax(1) if largest else rows.argmin(1)
        value = rows[each, index]
        if np.isnan(value).any() or (value == beyond).any():
            return None
        flat[:, j] = index
        rows[each, index] = beyond
    return found


def _order(x: Array, k: int, largest: bool) -> Array:
    """The positions of the first k elements of each row in order; equal ones stay in theirs."""
    if x.dtype == np.float32 and k <= _FEW < x.shape[-1]:
        found = _few(x.copy(), k, largest)
        if found is not None:
            return found
    if x.dtype.itemsize > 4:
        return np.argsort(~x if largest else x, axis=-1, kind="stable")[..., :k]
    keys = _ranks(x)
    if largest:
        np.invert(keys, out=keys)
    keys <<= 32
    keys |= np.arange(x.shape[-1])  # makes keys unique, so that no stable sort is needed
    if k < x.shape[-1]:
        keys.partition(k - 1, axis=-1)
        keys = keys[..., :k].copy()
    keys.sort(axis=-1)
    keys &= 0xFFFFFFFF
    return keys


def _top_k(c: Call, largest: bool) -> tuple[Array, Array]:
    rows = np.ascontiguousarray(np.moveaxis(c.input, c.axis, -1))
    order = _order(rows, c.k, largest)
    values = np.take_along_axis(rows, order, axis=-1)
    return np.moveaxis(values, -1, c.axis), np.moveaxis(order, -1, c.axis)


def _top_k_sizes(c: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = (*c.input.shape[: c.axis], c.k, *c.input.shape[c.axis + 1 :])
    return sizes, sizes


_TOP_K_RULES = (
    axis_of("input"),
    holds(
        "K from 1 to the size of InputTensor along Axis",
        lambda c: 1 <= c.k <= c.input.shape[c.axis],
        lambda c: f"{c.k} of {c.input.shape[c.axis]}",
    ),
)
_TOP_K_LEVELS = {
    FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, I=UINT32, rules=_TOP_K_RULES),
    FL_3_1: at(rank=(1, 8), T=UP_TO_32_BIT, I=UINT32, rules=_TOP_K_RULES),
    FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64, I=(UINT64, UINT32), rules=_TOP_K_RULES),
}
_FIRST_K = said("as input, but k along axis")
_TOP_K_SHAPES = {"input": "...", "output_value": _FIRST_K, "output_index": _FIRST_K}
_TOP_K_NOTES = (
    "Equal elements come in the order of the input. K may be the whole size, which sorts. "
    "A NaN counts as larger than all else, and -0.0 as equal to 0.0."
)

TOP_K = of_tensors(
    name="TOP_K",
    doc="OutputValue is the K largest elements along Axis, the largest first; OutputIndex is where they are.",
    text="output_value, output_index = the k largest along axis, from the largest on",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputValueTensor", dtype="T"),
        out("OutputIndexTensor", dtype="I"),
        attr("Axis", UINT),
        attr("K", UINT),
    ),
    levels={FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=_TOP_K_RULES), **_TOP_K_LEVELS},
    sizes=_top_k_sizes,
    shapes=_TOP_K_SHAPES,
    compute=lambda c: _top_k(c, largest=True),
    example=example([[2, 7, 1, 7], [5, 3, 6, 4]], ([[7, 7], [6, 5]], [[1, 3], [2, 0]]), axis=1, k=2),
    notes=_TOP_K_NOTES + " The table of feature level 2_0 holds from 1_0 on, where the operator came.",
)

TOP_K1 = of_tensors(
    name="TOP_K1",
    doc="OutputValue is the K largest or smallest elements along Axis, sorted; OutputIndex where they are.",
    text=(
        "output_value, output_index = the first k along axis, sorted: "
        "from the smallest on (INCREASING) or the largest (DECREASING)"
    ),
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputValueTensor", dtype="T"),
        out("OutputIndexTensor", dtype="I"),
        attr("Axis", UINT),
        attr("K", UINT),
        attr("AxisDirection", AxisDirection),
    ),
    levels=_TOP_K_LEVELS,
    sizes=_top_k_sizes,
    shapes=_TOP_K_SHAPES,
    compute=lambda c: _top_k(c, largest=c.axis_direction is AxisDirection.DECREASING),
    example=example(
        [[2, 7, 1, 7], [5, 3, 6, 4]],
        ([[1, 2], [3, 4]], [[2, 0], [1, 3]]),
        axis=1,
        k=2,
        axis_direction="INCREASING",
    ),
    notes=_TOP_K_NOTES,
)

# ---- coordinates ----------------------------------------------------------------------------------------


def _effective_rank(shape: tuple[int, ...]) -> int:
    """The dimensions behind leading sizes of 1."""
    return max(1, len(list(dropwhile(lambda n: n == 1, shape))))


def _coordinates_sizes(c: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Descriptions choose the ranks and how many coordinates there are; functions give all."""
    described = c.output_coordinates is not None
    many = c.output_coordinates.shape[-1] if described else c.input.ndim
    rank = c.output_coordinates.ndim if described else 2
    count_rank = c.output_count.ndim if c.output_count is not None else 1
    return (1,) * count_rank, (*(1,) * (rank - 2), c.input.size, many)


def _nonzero(c: Call) -> tuple[Array, Array]:
    dtype: Any = np.uint32 if c.input.size < 1 << 32 else np.uint64
    left: Array = np.flatnonzero(c.input != 0).astype(dtype)
    count = len(left)
    made = np.zeros(c.output_coordinates.shape, np.uint32)
    many = made.shape[-1]
    rows = made.reshape(-1, many)
    for k, n in zip(reversed(range(many)), reversed(c.input.shape), strict=False):
        above = left // dtype(n)  # by one number NumPy divides in vectors, but has no such remainders
        rows[:count, k] = left - above * dtype(n)
        left = above
    return np.full(c.output_count.shape, count, np.uint32), made


_COORDINATES_RULES = (
    holds(
        "the last size of OutputCoordinatesTensor from the effective rank of InputTensor (without leading "
        "sizes of 1) to its number of dimensions",
        lambda c: _effective_rank(c.input.shape) <= c.output_coordinates.shape[-1] <= c.input.ndim,
        lambda c: f"{c.output_coordinates.shape[-1]} beside InputTensor {c.input.shape}",
    ),
)

NONZERO_COORDINATES = of_tensors(
    name="NONZERO_COORDINATES",
    doc="OutputCount is how many elements are not zero, and OutputCoordinates where, a row for each.",
    text="output_count, output_coordinates = count and coordinates of input != 0, in row-major order",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputCountTensor", dtype="I"),
        out("OutputCoordinatesTensor", dtype="I"),
    ),
    levels={
        FL_3_0: at(rank=(4, 5), T=UP_TO_32_BIT, I=UINT32, rules=_COORDINATES_RULES),
        FL_4_0: at(
            rank=(1, 8),
            ranks={"OutputCoordinatesTensor": (2, 8)},
            T=UP_TO_32_BIT,
            I=UINT32,
            rules=_COORDINATES_RULES,
        ),
    },
    sizes=_coordinates_sizes,
    shapes={
        "input": "...",
        "output_count": said("one element"),
        "output_coordinates": said(
            "[1..., elements of input, dimensions of input or fewer without 1s in front]"
        ),
    },
    compute=_nonzero,
    example=example([[0, 5], [7, 0]], ([2], [[0, 1], [1, 0], [0, 0], [0, 0]])),
    notes=(
        "OutputCoordinates has a row for every element of the input; behind the first OutputCount rows "
        "DirectML leaves what was there, and here are zeros. With fewer columns than dimensions the rows are "
        "of the last ones. Either zero is zero; a NaN is not."
    ),
)
