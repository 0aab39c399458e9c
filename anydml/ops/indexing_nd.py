"""Operators that read or write where a tensor of tuples of indices says, one definition each."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.ops.attributes import UINT
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import INT32
from anydml.ops.indexing import (
    CLAMPED_HERE,
    DUPLICATES,
    fits,
    levels_from_2_1,
    levels_from_3_0,
    positions,
    right_aligned,
)
from anydml.ops.layout import same_ranks
from anydml.ops.opdef import Rule, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.shapes import said


def _indexed(c: Call) -> tuple[tuple[int, ...], tuple[int, ...], int, int]:
    """The input's sizes and the indices' without irrelevant 1s, and how many are batches and in a tuple."""
    shape = c.input.shape[c.input.ndim - c.input_dimension_count :]
    indices = c.indices.shape[c.indices.ndim - c.indices_dimension_count :]
    return shape, indices, getattr(c, "batch_dimension_count", 0), indices[-1]


def _of_tuples(c: Call) -> tuple[int, ...]:
    """The sizes of what tuples of indices stand for, before they are aligned."""
    shape, indices, batches, n = _indexed(c)
    return (*indices[:-1], *shape[batches + n :])


def _rows(c: Call) -> tuple[tuple[int, int], Array]:
    """The input's sizes as rows that tuples stand for, and the row of each tuple."""
    shape, indices, batches, n = _indexed(c)
    tuples = c.indices.reshape(prod(indices[:batches]), -1, n)
    rows = np.arange(len(tuples)).reshape(-1, 1)
    for k, size in enumerate(shape[batches : batches + n]):
        rows = rows * size + positions(tuples[..., k], size)
    count = prod(shape[: batches + n])
    return (count, prod(shape[batches + n :])), rows.reshape(-1)


def _gather_nd(c: Call) -> Array:
    shape, rows = _rows(c)
    return np.take(c.input.reshape(shape), rows, axis=0).reshape(c.output.shape)


def _scatter_nd(c: Call) -> Array:
    shape, rows = _rows(c)
    result: Array = c.input.copy()
    result.reshape(shape)[rows] = c.updates.reshape(len(rows), -1)
    return result


def _within(attribute: str, tensor: str) -> tuple[Rule, ...]:
    """The number of a tensor's dimensions that count is one, and before these are only 1s."""
    field = "".join(word.capitalize() for word in attribute.split("_"))
    name = f"{tensor.capitalize()}Tensor"
    return (
        holds(
            f"{field} from 1 to the number of dimensions of {name}",
            lambda c: 1 <= getattr(c, attribute) <= getattr(c, tensor).ndim,
            attribute,
        ),
        holds(
            f"sizes of 1 in {name} before its last {field} dimensions",
            lambda c: prod(getattr(c, tensor).shape[: getattr(c, tensor).ndim - getattr(c, attribute)]) == 1,
            lambda c: f"{getattr(c, tensor).shape} and {getattr(c, attribute)}",
        ),
    )


_ND_RULES = (
    same_ranks("input", "indices"),
    *_within("input_dimension_count", "input"),
    *_within("indices_dimension_count", "indices"),
)


def _tuples_fit(c: Call) -> bool:
    shape, _, batches, n = _indexed(c)
    return batches + n <= len(shape)


_TUPLES = holds(
    "IndicesTensor with a last size (the tuples') of at most InputDimensionCount",
    _tuples_fit,
    lambda c: f"{c.indices.shape[-1]} and {c.input_dimension_count}",
)
_RESULT_FITS = holds(
    "sizes of IndicesTensor before the last and of InputTensor behind the indexed that fit into its "
    "number of dimensions, but for 1s in front",
    lambda c: fits(_of_tuples(c), c.input.ndim),
    _of_tuples,
)
_BATCHES = (
    holds(
        "BatchDimensionCount below InputDimensionCount and IndicesDimensionCount",
        lambda c: c.batch_dimension_count < min(c.input_dimension_count, c.indices_dimension_count),
        lambda c: f"{c.batch_dimension_count}, {c.input_dimension_count} and {c.indices_dimension_count}",
    ),
    holds(
        "IndicesTensor with a last size (the tuples') and BatchDimensionCount of at most InputDimensionCount",
        _tuples_fit,
        lambda c: f"{c.indices.shape[-1]}, {c.batch_dimension_count} and {c.input_dimension_count}",
    ),
    holds(
        "InputTensor and IndicesTensor of equal sizes in the first BatchDimensionCount dimensions that count",
        lambda c: _indexed(c)[0][: c.batch_dimension_count] == _indexed(c)[1][: c.batch_dimension_count],
        lambda c: f"{_indexed(c)[0]} and {_indexed(c)[1]}",
    ),
)
_INPUT_COUNT, _INDICES_COUNT = attr("InputDimensionCount", UINT), attr("IndicesDimensionCount", UINT)
_SHAPES = {
    "input": said("[1..., S...], input_dimension_count of them S"),
    "indices": said("[1..., I..., T], indices_dimension_count of them I and T"),
}
_OF_TUPLES = said("[I..., S... behind the first T], by 1s in front as many dimensions as input")
_ND_NOTES = (
    "Of Input and Indices, the last InputDimensionCount and IndicesDimensionCount dimensions count; "
    f"those before them have size 1. {CLAMPED_HERE}"
)

GATHER_ND = of_tensors(
    name="GATHER_ND",
    doc="Output has, for each tuple along the last dimension of Indices, the part of the input it names.",
    text="output[i, j, ...] = input[*indices[i, j], ...]",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("IndicesTensor", dtype="I"),
        out("OutputTensor", dtype="T"),
        _INPUT_COUNT,
        _INDICES_COUNT,
    ),
    levels=levels_from_2_1(*_ND_RULES, _TUPLES, _RESULT_FITS),
    sizes=lambda c: right_aligned(_of_tuples(c), c.input.ndim),
    shapes=_SHAPES | {"output": _OF_TUPLES},
    compute=_gather_nd,
    moves=True,
    example=example(
        [[1, 2, 3], [4, 5, 6]],
        [[1, -1], [0, 0]],
        [[6, 1]],
        input_dimension_count=2,
        indices_dimension_count=2,
        types={"I": INT32},
    ),
    notes=_ND_NOTES,
)

GATHER_ND1 = of_tensors(
    name="GATHER_ND1",
    doc="Output has, for each tuple along the last dimension of Indices, the part of the input it names, "
    "within the batch that the tuple is in.",
    text="output[batch, i, ...] = input[batch, *indices[batch, i], ...]",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("IndicesTensor", dtype="I"),
        out("OutputTensor", dtype="T"),
        _INPUT_COUNT,
        _INDICES_COUNT,
        attr("BatchDimensionCount", UINT),
    ),
    levels=levels_from_3_0(*_ND_RULES, *_BATCHES, _RESULT_FITS),
    sizes=lambda c: right_aligned(_of_tuples(c), c.input.ndim),
    shapes=_SHAPES
    | {"output": said("[I..., S... behind batches and T], by 1s in front as many dimensions as input")},
    compute=_gather_nd,
    moves=True,
    example=example(
        [[1, 2, 3], [4, 5, 6]],
        [[2], [0]],
        [[3, 4]],
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=1,
    ),
    notes=f"Batches are the first BatchDimensionCount dimensions that count. {_ND_NOTES}",
)

SCATTER_ND = of_tensors(
    name="SCATTER_ND",
    doc="Output is the input, but for each tuple along the last dimension of Indices has Updates in the part "
    "it names.",
    text="output = input; output[*indices[i, j], ...] = updates[i, j, ...]",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("IndicesTensor", dtype="I"),
        inp("UpdatesTensor", dtype="T"),
        out("OutputTensor", dtype="T", sizes="S"),
        _INPUT_COUNT,
        _INDICES_COUNT,
    ),
    levels=levels_from_2_1(
        *_ND_RULES,
        _TUPLES,
        _RESULT_FITS,
        holds(
            "UpdatesTensor of the sizes of IndicesTensor but the last, and of InputTensor behind the indexed",
            lambda c: c.updates.shape == right_aligned(_of_tuples(c), c.input.ndim),
            lambda c: f"{c.updates.shape} where {right_aligned(_of_tuples(c), c.input.ndim)} is asked for",
        ),
    ),
    shapes=_SHAPES | {"updates": _OF_TUPLES, "output": said("as input")},
    compute=_scatter_nd,
    moves=True,
    example=example(
        [[1, 2, 3], [4, 5, 6]],
        [[1, -1], [0, 0]],
        [[7, 8]],
        [[8, 2, 3], [4, 5, 7]],
        input_dimension_count=2,
        indices_dimension_count=2,
        types={"I": INT32},
    ),
    notes=f"{_ND_NOTES} {DUPLICATES}",
)
