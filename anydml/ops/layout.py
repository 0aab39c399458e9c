"""Operators that only move elements: joins, splits, repeats, blocks. One definition each."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.ops.attributes import UINT, UINTS
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOATS_UP_TO_32_BIT,
    INT16,
    INT32,
    UINT16,
    UINT32,
    UINT64,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
)
from anydml.ops.enums import DepthSpaceOrder
from anydml.ops.families import ALL_BUT_FLOAT64, FL_1_0, FL_2_1, FL_3_0, FL_3_1, FL_4_0, FL_4_1, FL_5_0
from anydml.ops.opdef import Asked, Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import axis_of, holds
from anydml.ops.shapes import said


def field_of(parameter: str) -> str:
    """The field of a tensor that is one: `output_gradient` is `OutputGradientTensor`."""
    return "".join(word.capitalize() for word in parameter.split("_")) + "Tensor"


def same_ranks(*tensors: str) -> Rule:
    """Tensors (by their parameters) have as many dimensions, where their sizes differ."""
    fields = [field_of(name) for name in tensors]
    return holds(
        f"{', '.join(fields[:-1])} and {fields[-1]} of equally many dimensions",
        lambda c: len({getattr(c, name).ndim for name in tensors}) == 1,
        lambda c: ", ".join(str(getattr(c, name).shape) for name in tensors),
    )


# ---- joins and splits ----------------------------------------------------------------------------------

_16_AND_32_BIT = (FLOAT32, FLOAT16, INT32, INT16, UINT32, UINT16)


def _equal_but_on_axis(c: Call, parts: list[Array]) -> bool:
    rest = [(x.ndim, *x.shape[: c.axis], *x.shape[c.axis + 1 :]) for x in parts]
    return len(set(rest)) <= 1


def _join_sizes(c: Call) -> tuple[int, ...]:
    first = c.inputs[0].shape
    total = sum(x.shape[c.axis] for x in c.inputs)
    return (*first[: c.axis], total, *first[c.axis + 1 :])


_JOIN_RULES = (
    axis_of("inputs"),
    holds(
        "InputTensors of equal sizes but along Axis",
        lambda c: _equal_but_on_axis(c, c.inputs),
        lambda c: ", ".join(str(x.shape) for x in c.inputs),
    ),
)

JOIN = of_tensors(
    name="JOIN",
    doc="Output is the InputTensors one after the other along Axis.",
    text="output = concatenate(inputs, axis)",
    operands=(
        inp("InputTensors", dtype="T", count="InputCount"),
        out("OutputTensor", dtype="T"),
        attr("Axis", UINT),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=_16_AND_32_BIT, rules=_JOIN_RULES),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_JOIN_RULES),
        FL_3_0: at(rank=(4, 5), T=UP_TO_32_BIT, rules=_JOIN_RULES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_JOIN_RULES),
    },
    sizes=_join_sizes,
    shapes={
        "inputs": said("all the same, but along axis"),
        "output": said("as inputs, along axis their sum"),
    },
    compute=lambda c: np.concatenate(c.inputs, c.axis),
    moves=True,
    example=example(([[1, 2]], [[3, 4], [5, 6]]), [[1, 2], [3, 4], [5, 6]], axis=0),
)

_SPLIT_RULES = (
    holds("at least one tensor in OutputTensors", lambda c: c.outputs),
    axis_of("input"),
    holds(
        "OutputTensors of the input's sizes but along Axis, where they add up to it",
        lambda c: (
            _equal_but_on_axis(c, [*c.outputs, c.input])
            and sum(x.shape[c.axis] for x in c.outputs) == c.input.shape[c.axis]
        ),
        lambda c: ", ".join(str(x.shape) for x in (*c.outputs, c.input)),
    ),
)


def _split_sizes(c: Call) -> list[tuple[int, ...]]:
    shape = c.input.shape
    return [(*shape[: c.axis], n, *shape[c.axis + 1 :]) for n in c.output_axis_sizes]


def _split(c: Call) -> list[Array]:
    before, parts, start = (slice(None),) * c.axis, [], 0
    for x in c.outputs:
        end = start + x.shape[c.axis]
        parts.append(c.input[(*before, slice(start, end))])
        start = end
    return parts


SPLIT = of_tensors(
    name="SPLIT",
    doc="OutputTensors are the input's parts along Axis.",
    text="outputs = split(input, axis)",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensors", dtype="T", count="OutputCount"),
        attr("Axis", UINT),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=_16_AND_32_BIT, rules=_SPLIT_RULES),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_SPLIT_RULES),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_SPLIT_RULES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_SPLIT_RULES),
    },
    asks=(
        Asked(
            "output_axis_sizes",
            "Sequence[int]",
            "each output's size along axis",
            lambda c: [x.shape[c.axis] for x in c.outputs],
        ),
    ),
    sizes=_split_sizes,
    shapes={
        "input": "...",
        "outputs": said("as input, along axis one of output_axis_sizes each"),
    },
    compute=_split,
    moves=True,
    example=example([[1, 2, 3]], ([[1, 2]], [[3]]), axis=1, output_axis_sizes=[2, 1]),
)

# ---- repeats -------------------------------------------------------------------------------------------

_TILE_RULES = (
    same_ranks("input", "output"),
    holds("Repeats of at least 1", lambda c: min(c.repeats) > 0, "repeats"),
)


def _tile_sizes(c: Call) -> tuple[int, ...]:
    return tuple(n * max(times, 1) for n, times in zip(c.input.shape, c.repeats, strict=True))


def _tiles(c: Call) -> Array:
    sizes = [n for size in c.input.shape for n in (1, size)]
    repeated = [n for pair in zip(c.repeats, c.input.shape, strict=True) for n in pair]
    return np.broadcast_to(c.input.reshape(sizes), repeated)


TILE = of_tensors(
    name="TILE",
    doc="Output is the input, Repeats times along each dimension.",
    text="output = tile(input, repeats)",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("Repeats", UINTS, per="dimension", count="RepeatsCount"),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_TILE_RULES),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_TILE_RULES),
        FL_3_1: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_TILE_RULES),
        FL_4_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64, rules=_TILE_RULES),
    },
    sizes=_tile_sizes,
    shapes={"input": "...", "output": said("as input, each size times its repeats")},
    view=_tiles,
    example=example([[1, 2], [3, 4]], [[1, 2, 1, 2], [3, 4, 3, 4]], repeats=[1, 2]),
)

# ---- reversed sequences --------------------------------------------------------------------------------

_REVERSE_RULES = (
    axis_of("input"),
    holds(
        "SequenceLengthsTensor of the sizes of InputTensor, but 1 along Axis",
        lambda c: c.sequence_lengths.shape == (*c.input.shape[: c.axis], 1, *c.input.shape[c.axis + 1 :]),
        lambda c: f"{c.sequence_lengths.shape} beside {c.input.shape}",
    ),
)


def _same_along(lengths: Array, k: int) -> bool:
    if lengths.strides[k] == 0:
        return True
    turned = lengths.swapaxes(0, k)
    return bool((turned == turned[:1]).all())


def sequences(c: Call) -> tuple[Array, tuple[int, int, int, int]]:
    """How many rows of each sequence are reversed; the sizes before Axis, along it, and behind it, which are
    those of sequences beside each other and of a row: what moves together, for lengths are the same."""
    split, sizes = c.input.ndim, c.input.shape
    while split - 1 > c.axis and _same_along(c.sequence_lengths, split - 1):
        split -= 1
    first = (slice(None),) * split + (0,) * (c.input.ndim - split)
    before, length = prod(sizes[: c.axis]), sizes[c.axis]
    beside, row = prod(sizes[c.axis + 1 : split]), prod(sizes[split:])
    counts: Array = np.minimum(c.sequence_lengths[first], length).astype(np.int64, order="C")
    return counts.reshape(before, beside), (before, length, beside, row)


def _reverse_subsequences(c: Call) -> Array:
    counts, (before, length, beside, row) = sequences(c)
    here, counts = np.arange(length)[:, np.newaxis], counts[:, np.newaxis]
    rows = np.where(here < counts, counts - 1 - here, here)
    rows += np.arange(0, before * length, length).reshape(-1, 1, 1)
    rows *= beside
    rows += np.arange(beside)
    return np.take(c.input.reshape(-1, row), rows.reshape(-1), 0).reshape(c.input.shape)


REVERSE_SUBSEQUENCES = of_tensors(
    name="REVERSE_SUBSEQUENCES",
    doc="Output is the input with the first SequenceLengths elements of each sequence along Axis reversed.",
    text="output[..., k, ...] = input[..., length - 1 - k if k < length else k, ...]",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("SequenceLengthsTensor", dtype="L"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Axis", UINT),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, L=UINT32, rules=_REVERSE_RULES),
        FL_3_0: at(rank=(4, 5), T=UP_TO_32_BIT, L=UINT32, rules=_REVERSE_RULES),
        FL_4_0: at(rank=(1, 8), T=UP_TO_32_BIT, L=UINT32, rules=_REVERSE_RULES),
        FL_5_0: at(rank=(1, 8), T=UP_TO_64_BIT, L=(UINT64, UINT32), rules=_REVERSE_RULES),
    },
    shapes={"input": "...", "sequence_lengths": said("as input, but 1 along axis"), "output": "..."},
    compute=_reverse_subsequences,
    moves=True,
    example=example([[1, 2, 3], [4, 5, 6]], [[2], [9]], [[2, 1, 3], [6, 5, 4]], axis=1),
    notes="A length beyond the sequence is that of the sequence.",
)

# ---- blocks --------------------------------------------------------------------------------------------

_BLOCK_SIZE = attr("BlockSize", UINT)
_ORDER = attr("Order", DepthSpaceOrder, DepthSpaceOrder.DEPTH_COLUMN_ROW)
_BLOCKS = (inp("InputTensor", dtype="T"), out("OutputTensor", dtype="T"), _BLOCK_SIZE)
_AT_LEAST_1 = holds("BlockSize of at least 1", lambda c: c.block_size > 0, "block_size")

_TO_DEPTH_RULES = (
    _AT_LEAST_1,
    holds(
        "InputTensor {N, C, H, W} with H and W multiples of BlockSize",
        lambda c: all(n % c.block_size == 0 for n in c.input.shape[2:]),
        lambda c: f"{c.input.shape} and {c.block_size}",
    ),
)
_TO_SPACE_RULES = (
    _AT_LEAST_1,
    holds(
        "InputTensor {N, C, H, W} with C a multiple of BlockSize * BlockSize",
        lambda c: c.input.shape[1] % c.block_size**2 == 0,
        lambda c: f"{c.input.shape} and {c.block_size}",
    ),
)


_TO_DEPTH = {"input": "N C H W", "output": "N C*block_size*block_size H/block_size W/block_size"}
_TO_SPACE = {"input": "N C H W", "output": "N C/(block_size*block_size) H*block_size W*block_size"}


def _space_to_depth(c: Call, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW) -> Array:
    (n, depth, height, width), b = c.input.shape, c.block_size
    blocks: Array = c.input.reshape(n, depth, height // b, b, width // b, b)
    channel = (3, 5, 1) if order is DepthSpaceOrder.DEPTH_COLUMN_ROW else (1, 3, 5)
    return blocks.transpose(0, *channel, 2, 4)


def _depth_to_space(c: Call, order: DepthSpaceOrder = DepthSpaceOrder.DEPTH_COLUMN_ROW) -> Array:
    n, depth, height, width = c.output.shape
    b, h, w = c.block_size, height // c.block_size, width // c.block_size
    blocks: Array
    if order is DepthSpaceOrder.DEPTH_COLUMN_ROW:
        blocks = c.input.reshape(n, b, b, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = c.input.reshape(n, depth, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks


_SPACE = [[[[1, 2, 3, 4], [5, 6, 7, 8]]]]
_DEPTH = [[[[1, 3]], [[2, 4]], [[5, 7]], [[6, 8]]]]

SPACE_TO_DEPTH = of_tensors(
    name="SPACE_TO_DEPTH",
    doc="Output has each block of BlockSize times BlockSize elements of a channel as as many channels.",
    text="output[n, (i * b + j) * c + k, y, x] = input[n, k, y * b + i, x * b + j]",
    operands=_BLOCKS,
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_TO_DEPTH_RULES),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_TO_DEPTH_RULES),
        FL_5_0: at(rank=(4, 4), T=UP_TO_64_BIT, rules=_TO_DEPTH_RULES),
    },
    shapes=_TO_DEPTH,
    view=_space_to_depth,
    example=example(_SPACE, _DEPTH, block_size=2),
)

SPACE_TO_DEPTH1 = of_tensors(
    name="SPACE_TO_DEPTH1",
    doc="Output has each block of BlockSize times BlockSize elements of a channel as as many channels, "
    "those of one place in the block together, or with COLUMN_ROW_DEPTH those of one channel.",
    text="output[n, (i * b + j) * c + k, y, x] = input[n, k, y * b + i, x * b + j]; "
    "with COLUMN_ROW_DEPTH channel k * b * b + i * b + j",
    operands=(*_BLOCKS, _ORDER),
    levels={
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_TO_DEPTH_RULES),
        FL_5_0: at(rank=(4, 4), T=UP_TO_64_BIT, rules=_TO_DEPTH_RULES),
    },
    shapes=_TO_DEPTH,
    view=lambda c: _space_to_depth(c, c.order),
    example=example(_SPACE, _DEPTH, block_size=2, order="COLUMN_ROW_DEPTH"),
)

DEPTH_TO_SPACE = of_tensors(
    name="DEPTH_TO_SPACE",
    doc="Output has BlockSize times BlockSize channels as blocks of one channel: SPACE_TO_DEPTH undone.",
    text="output[n, k, y * b + i, x * b + j] = input[n, (i * b + j) * c + k, y, x]",
    operands=_BLOCKS,
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_TO_SPACE_RULES),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_TO_SPACE_RULES),
        FL_5_0: at(rank=(4, 4), T=UP_TO_64_BIT, rules=_TO_SPACE_RULES),
    },
    shapes=_TO_SPACE,
    view=_depth_to_space,
    example=example(_DEPTH, _SPACE, block_size=2),
)

DEPTH_TO_SPACE1 = of_tensors(
    name="DEPTH_TO_SPACE1",
    doc="Output has BlockSize times BlockSize channels as blocks of one channel: SPACE_TO_DEPTH1 undone.",
    text="output[n, k, y * b + i, x * b + j] = input[n, (i * b + j) * c + k, y, x]; "
    "with COLUMN_ROW_DEPTH channel k * b * b + i * b + j",
    operands=(*_BLOCKS, _ORDER),
    levels={
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_TO_SPACE_RULES),
        FL_5_0: at(rank=(4, 4), T=UP_TO_64_BIT, rules=_TO_SPACE_RULES),
    },
    shapes=_TO_SPACE,
    view=lambda c: _depth_to_space(c, c.order),
    example=example(_DEPTH, _SPACE, block_size=2, order="COLUMN_ROW_DEPTH"),
)
