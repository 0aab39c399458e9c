"""Operators that read or write where a tensor of indices says, one definition each."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.errors import counted
from anydml.ops.attributes import UINT
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, INT32, INT64, UINT32, UINT64, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.ops.families import FL_1_0, FL_2_0, FL_2_1, FL_3_0, FL_4_1
from anydml.ops.layout import same_ranks
from anydml.ops.opdef import Asked, Levels, Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import axis_of, holds
from anydml.ops.shapes import said

_INDICES = (INT64, INT32, UINT64, UINT32)
_FROM_THE_END = "Negative indices count from the end, which signed types have from feature level 3_0 on."
_CLAMPED = f"{_FROM_THE_END} Indices out of range are clamped to it."
CLAMPED_HERE = (
    f"{_FROM_THE_END} DirectML's documents do not tell of indices out of range: here they are clamped."
)
DUPLICATES = "Which of several updates of one element stays is left open."


def levels_from_2_1(*rules: Rule) -> Levels:
    return {FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, I=UINT32, rules=rules), **levels_from_3_0(*rules)}


def levels_from_3_0(*rules: Rule) -> Levels:
    return {
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, I=_INDICES, rules=rules),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, I=_INDICES, rules=rules),
    }


def _counted(indices: Array, size: int) -> Array:
    """Indices from 0 on; what is out of range stays so. Not to be written to."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(size))  # which int64 holds
    found = indices.astype(np.int64, copy=False)
    return np.where(found < 0, found + size, found) if found.min() < 0 else found


def positions(indices: Array, size: int) -> Array:
    """Indices as positions in a dimension, never outside it. Not to be written to."""
    if indices.min() >= 0 and indices.max() < size:
        return indices.astype(np.int64, copy=False)
    return np.clip(_counted(indices, size), 0, size - 1)


def fits(sizes: tuple[int, ...], rank: int) -> bool:
    """Whether there are only 1s in front of the last `rank` sizes."""
    return all(n == 1 for n in sizes[: max(len(sizes) - rank, 0)])


def right_aligned(sizes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Sizes as those of `rank` dimensions: 1s are put in front, or dropped there."""
    if not fits(sizes, rank):
        raise ValueError(f"{sizes} are more than {rank} sizes")
    return ((1,) * rank + sizes)[-rank:]


# ---- along an axis -------------------------------------------------------------------------------------


def _gathered_sizes(c: Call) -> tuple[int, ...]:
    """The sizes of what GATHER reads, before they are aligned."""
    first = c.indices.ndim - c.index_dimensions
    return (*c.input.shape[: c.axis], *c.indices.shape[first:], *c.input.shape[c.axis + 1 :])


def _gather(c: Call) -> Array:
    indices = positions(c.indices, c.input.shape[c.axis])
    return np.take(c.input, indices.reshape(-1), c.axis).reshape(c.output.shape)


_GATHER_RULES = (
    same_ranks("input", "indices"),
    axis_of("input"),
    holds(
        "IndexDimensions of at most the number of dimensions of IndicesTensor",
        lambda c: c.index_dimensions <= c.indices.ndim,
        "index_dimensions",
    ),
    holds(
        "sizes of 1 in IndicesTensor before its last IndexDimensions dimensions",
        lambda c: prod(c.indices.shape[: c.indices.ndim - c.index_dimensions]) == 1,
        lambda c: f"{c.indices.shape} and {c.index_dimensions}",
    ),
    holds(
        "sizes of InputTensor before Axis, of the indices, and of InputTensor behind Axis that fit into its "
        "number of dimensions, but for 1s in front",
        lambda c: fits(_gathered_sizes(c), c.input.ndim),
        _gathered_sizes,
    ),
)

GATHER = of_tensors(
    name="GATHER",
    doc="Output has the input's elements along Axis at Indices.",
    text="output[..., i, j, ...] = input[..., indices[i, j], ...]",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("IndicesTensor", dtype="I"),
        out("OutputTensor", dtype="T"),
        attr("Axis", UINT),
        attr("IndexDimensions", UINT),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=_GATHER_RULES),
        **levels_from_2_1(*_GATHER_RULES),
    },
    sizes=lambda c: right_aligned(_gathered_sizes(c), c.input.ndim),
    shapes={
        "input": "...",
        "indices": said("[1..., I...], index_dimensions of them I"),
        "output": said("as input, I... in place of axis; 1s in front fill it up, or are dropped"),
    },
    compute=_gather,
    moves=True,
    example=example(
        [[1, 2, 3], [4, 5, 6]],
        [[2, -3]],
        [[3, 1], [6, 4]],
        axis=1,
        index_dimensions=1,
        types={"I": INT32},
    ),
    notes=f"The last IndexDimensions dimensions of Indices take the place of Axis. {_CLAMPED}",
)

_EQUAL_BUT_ON_AXIS = (
    same_ranks("input", "indices"),
    axis_of("input"),
    holds(
        "IndicesTensor of the sizes of InputTensor but along Axis",
        lambda c: all(
            n == m for k, (n, m) in enumerate(zip(c.input.shape, c.indices.shape, strict=True)) if k != c.axis
        ),
        lambda c: f"{c.indices.shape} beside {c.input.shape}",
    ),
)
_ALONG_AXIS = {"input": "...", "indices": said("as input, but any size along axis")}


def _along_axis(c: Call) -> Array:
    """Of each index, the place in the flat input."""
    size, behind = c.input.shape[c.axis], prod(c.input.shape[c.axis + 1 :])
    places: Array = positions(c.indices, size).reshape(-1, c.indices.shape[c.axis], behind)
    places = places * behind if behind > 1 else places.copy()
    places += np.arange(0, c.input.size, size * behind).reshape(-1, 1, 1) + np.arange(behind)
    return places.reshape(c.indices.shape)


GATHER_ELEMENTS = of_tensors(
    name="GATHER_ELEMENTS",
    doc="Output has, for each of Indices, the input's element there along Axis.",
    text="output[..., k, ...] = input[..., indices[..., k, ...], ...]",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("IndicesTensor", dtype="I", sizes="J"),
        out("OutputTensor", dtype="T", sizes="J"),
        attr("Axis", UINT),
    ),
    levels=levels_from_2_1(*_EQUAL_BUT_ON_AXIS),
    shapes=_ALONG_AXIS | {"output": said("as indices")},
    compute=lambda c: c.input.reshape(-1).take(_along_axis(c)),
    moves=True,
    example=example([[1, 2, 3], [4, 5, 6]], [[2, 0], [-1, 1]], [[3, 1], [6, 5]], axis=1, types={"I": INT32}),
    notes=CLAMPED_HERE,
)


def _scatter(c: Call) -> Array:
    result: Array = c.input.copy()
    result.reshape(-1)[_along_axis(c)] = c.updates
    return result


SCATTER = of_tensors(
    name="SCATTER",
    doc="Output is the input, but along Axis has Updates at Indices.",
    text="output = input; output[..., indices[..., k, ...], ...] = updates[..., k, ...]",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("IndicesTensor", dtype="I", sizes="J"),
        inp("UpdatesTensor", dtype="T", sizes="J"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axis", UINT),
    ),
    levels={
        FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=_EQUAL_BUT_ON_AXIS),
        **levels_from_2_1(*_EQUAL_BUT_ON_AXIS),
    },
    shapes=_ALONG_AXIS | {"updates": said("as indices"), "output": "..."},
    compute=_scatter,
    moves=True,
    example=example(
        [[1, 2, 3], [4, 5, 6]],
        [[2, 0], [-1, 1]],
        [[7, 8], [9, 0]],
        [[8, 2, 7], [4, 0, 9]],
        axis=1,
        types={"I": INT32},
    ),
    notes=f"{CLAMPED_HERE} {DUPLICATES}",
)

# ---- one hot -------------------------------------------------------------------------------------------

_ONE_HOT_RULES = (
    holds(
        "Axis below the number of dimensions of IndicesTensor",
        lambda c: c.axis < c.indices.ndim,
        lambda c: f"{c.axis} with {counted(c.indices.ndim, 'dimension')}",
    ),
    same_ranks("indices", "values", "output"),
    holds(
        "a size of 1 along Axis in IndicesTensor",
        lambda c: c.indices.shape[c.axis] == 1,
        lambda c: f"{c.indices.shape}",
    ),
    holds(
        "at least 2 elements in ValuesTensor", lambda c: prod(c.values.shape) >= 2, lambda c: c.values.shape
    ),
)


def _one_hot_sizes(c: Call) -> tuple[int, ...]:
    sizes = list(c.indices.shape)
    sizes[c.axis] = c.output_length
    return tuple(sizes)


def _one_hot(c: Call) -> Array:
    """Off everywhere, then on where an index is in range."""
    size = c.output.shape[c.axis]
    off, on = c.values.flat[:2]
    result = np.full(c.output.shape, off, c.output.dtype)
    found = _counted(c.indices, size)
    valid = (found >= 0) & (found < size)
    places = list(np.nonzero(valid))
    places[c.axis] = found[valid]
    result[tuple(places)] = on
    return result


ONE_HOT = of_tensors(
    name="ONE_HOT",
    doc="Output has the second of Values along Axis where Indices say, and the first elsewhere.",
    text="output[..., k, ...] = values[1] if k == indices[..., 0, ...] else values[0]",
    operands=(
        inp("IndicesTensor", dtype="I"),
        inp("ValuesTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("Axis", UINT),
    ),
    levels={
        FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=_ONE_HOT_RULES),
        **levels_from_2_1(*_ONE_HOT_RULES),
    },
    asks=(Asked("output_length", "int", "the output's size along axis", lambda c: c.output.shape[c.axis]),),
    sizes=_one_hot_sizes,
    shapes={
        "indices": said("any sizes, but 1 along axis"),
        "values": said("at least 2 elements, as many dimensions as indices"),
        "output": said("as indices, but output_length along axis"),
    },
    compute=_one_hot,
    moves=True,
    example=example(
        [[2], [-3]], [[0, 1]], [[0, 0, 1], [1, 0, 0]], output_length=3, axis=1, types={"I": INT32}
    ),
    notes=f"{_FROM_THE_END} Beside an index out of range, all is the first of Values.",
)
