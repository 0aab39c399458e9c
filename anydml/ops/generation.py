"""Operators that make tensors of attributes, or of a generator's state, one definition each."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.ops.attributes import INT, ScalarKind, as_type
from anydml.ops.call import Array, Call, empty
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, FROM_NUMPY, UINT32, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.ops.enums import RandomGeneratorType, TensorDataType
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_4_0,
    FL_4_1,
    FL_5_0,
    FL_5_1,
    OUTPUT_SIZES,
)
from anydml.ops.opdef import Asked, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds, of_type
from anydml.ops.shapes import said

_VALUE = (of_type("ValueDataType", "Value"),)
_START_AND_DELTA = (of_type("ValueDataType", "ValueStart", "ValueDelta"),)
_TOLD = {"output": said("output_sizes")}
_FILLS = {
    FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_VALUE),
    FL_4_0: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_VALUE),
    FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_VALUE),
}


def _fill(c: Call) -> Array:
    result = empty(c.output, c.output.dtype)
    result.fill(as_type(c.value, FROM_NUMPY[c.output.dtype]))
    return result


FILL_VALUE_CONSTANT = of_tensors(
    name="FILL_VALUE_CONSTANT",
    doc="Every element of Output is Value.",
    text="output = value",
    operands=(
        out("OutputTensor", dtype="T"),
        attr("ValueDataType", TensorDataType, implied=True),
        attr("Value", ScalarKind()),
    ),
    levels=_FILLS,
    asks=(OUTPUT_SIZES,),
    sizes=lambda c: c.output_sizes,
    shapes=_TOLD,
    compute=_fill,
    moves=True,
    example=example([2.5, 2.5, 2.5], value=2.5, output_sizes=[3]),
)


def _sequence(c: Call) -> Array:
    """Integers modulo their width; floats in float64, rounded once."""
    dtype, count = c.output.dtype, prod(c.output.shape)
    start, delta = (as_type(v, FROM_NUMPY[dtype]) for v in (c.value_start, c.value_delta))
    values: Array
    if dtype.kind == "f":
        values = start + np.arange(count, dtype=np.float64) * delta
    else:
        values = np.uint64(start % 2**64) + np.arange(count, dtype=np.uint64) * np.uint64(delta % 2**64)
    return values.astype(dtype).reshape(c.output.shape)


FILL_VALUE_SEQUENCE = of_tensors(
    name="FILL_VALUE_SEQUENCE",
    doc="Output counts in row-major order, from ValueStart on, by ValueDelta.",
    text="output.flat[i] = value_start + i * value_delta",
    operands=(
        out("OutputTensor", dtype="T"),
        attr("ValueDataType", TensorDataType, implied=True),
        attr("ValueStart", ScalarKind()),
        attr("ValueDelta", ScalarKind()),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, rules=_START_AND_DELTA),
        FL_4_0: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_START_AND_DELTA),
        FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64, rules=_START_AND_DELTA),
    },
    asks=(OUTPUT_SIZES,),
    sizes=lambda c: c.output_sizes,
    shapes=_TOLD,
    compute=_sequence,
    example=example([[1, 3.5], [6, 8.5]], value_start=1, value_delta=2.5, output_sizes=[2, 2]),
    notes="Floats are computed in float64 and rounded once; integers wrap around.",
)

# ---- diagonals -----------------------------------------------------------------------------------------


def _behind_diagonal(shape: tuple[int, ...]) -> Array:
    """Of each element of a matrix, its column minus its row."""
    return np.arange(shape[-1])[np.newaxis, :] - np.arange(shape[-2])[:, np.newaxis]


def _diagonal(c: Call) -> Array:
    shape, dtype = c.output.shape, c.output.dtype
    matrix = np.zeros(shape[-2:], dtype)
    matrix[_behind_diagonal(shape) == c.offset] = as_type(c.value, FROM_NUMPY[dtype])
    return np.broadcast_to(matrix, shape)


DIAGONAL_MATRIX = of_tensors(
    name="DIAGONAL_MATRIX",
    doc="Output is matrices of 0s, with Value on one diagonal; Offset columns right of the main one.",
    text="output[..., row, column] = column - row == offset ? value : 0",
    operands=(out("OutputTensor", dtype="T"), attr("Offset", INT), attr("Value")),
    levels={
        FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
        FL_4_0: at(rank=(2, 4), T=UP_TO_32_BIT),
        FL_5_1: at(rank=(2, 4), T=UP_TO_64_BIT),
    },
    asks=(OUTPUT_SIZES,),
    sizes=lambda c: c.output_sizes,
    shapes=_TOLD,
    compute=_diagonal,
    example=example([[0, 2, 0], [0, 0, 2]], offset=1, value=2, output_sizes=[2, 3]),
    notes="Value is truncated for integers, to which it saturates.",
)


def _diagonal1(c: Call) -> Array:
    shape, dtype = c.output.shape, c.output.dtype
    behind, begin, end = _behind_diagonal(shape), c.diagonal_fill_begin, c.diagonal_fill_end
    filled = (behind >= begin) & (behind < end) if begin <= end else (behind >= begin) | (behind < end)
    value = np.array(as_type(c.value, FROM_NUMPY[dtype]), dtype)
    rest = np.zeros((), dtype) if c.input is None else c.input
    return np.broadcast_to(np.where(filled, value, rest), shape)


_INPUT_SIZES = Asked(
    "output_sizes",
    "Sequence[int] | None",
    "the output's sizes, if there is no input",
    lambda c: c.output.shape,
    None,
)

DIAGONAL_MATRIX1 = of_tensors(
    name="DIAGONAL_MATRIX1",
    doc="Output is Value on some diagonals, those from DiagonalFillBegin to before DiagonalFillEnd, and "
    "Input elsewhere. Begin behind End: on all diagonals but those from End to before Begin.",
    text="diagonal = column - row; output[..., row, column] = (diagonal_fill_begin <= diagonal < "
    "diagonal_fill_end) ? value : input[..., row, column]",
    operands=(
        inp("InputTensor", dtype="T", sizes="S", optional=FL_5_1),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("ValueDataType", TensorDataType, implied=True),
        attr("Value", ScalarKind()),
        attr("DiagonalFillBegin", INT),
        attr("DiagonalFillEnd", INT),
    ),
    levels={FL_5_1: at(rank=(2, 4), T=UP_TO_64_BIT, rules=_VALUE)},
    asks=(_INPUT_SIZES,),
    sizes=lambda c: c.input.shape if c.input is not None else c.output_sizes,
    shapes={"input": "... M N", "output": said("as input, or output_sizes")},
    compute=_diagonal1,
    moves=True,
    example=example(
        None,
        [[0, 2, 2], [0, 0, 2]],
        value=2,
        diagonal_fill_begin=1,
        diagonal_fill_end=3,
        output_sizes=[2, 3],
    ),
    notes="Diagonal 0 starts at the upper left; those to its right are positive. Without Input it is 0s; "
    "Input has the output's sizes, which the documents do not ask for.",
)

# ---- random bits ---------------------------------------------------------------------------------------

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_AT_ONCE = 8192
"""Counters that are computed together: so many stay in the cache."""


def philox4x32_10(counter: int, key: tuple[int, int], count: int) -> Array:
    """Four random words for each of `count` counters of 128 bits, in a row."""
    words = np.empty((count, 4), np.uint32)
    for begin in range(0, count, _AT_ONCE):
        part = words[begin : begin + _AT_ONCE]
        _philox(counter + begin, key, part)
    return words.reshape(-1)


def _philox(counter: int, key: tuple[int, int], words: Array) -> None:
    steps = np.arange(len(words), dtype=np.uint64)
    low = steps + np.uint64(counter % 2**64)
    high = (low < steps) + np.uint64((counter >> 64) % 2**64)  # the carry, and what was there
    a, b, c, d = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    for r in range(10):
        first, second = ((k + r * step) % 2**32 for k, step in zip(key, _KEY_STEPS, strict=True))
        x, y = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a = y >> _HALF
        a ^= b
        a ^= np.uint64(first)
        c = x >> _HALF
        c ^= d
        c ^= np.uint64(second)
        b = np.bitwise_and(y, _LOW, out=y)
        d = np.bitwise_and(x, _LOW, out=x)
    for k, word in enumerate((a, b, c, d)):
        words[:, k] = word


def _random(c: Call) -> tuple[Array, Array]:
    state = [int(word) for word in c.input_state.reshape(-1)]
    counter = sum(word << 32 * k for k, word in enumerate(state[:4]))
    size = prod(c.output.shape)
    blocks = -(-size // 4)
    words = philox4x32_10(counter, (state[4], state[5]), blocks)[:size]
    counter += blocks
    after = [counter >> 32 * k & 0xFFFFFFFF for k in range(4)] + state[4:]
    return words.reshape(c.output.shape), np.array(after, np.uint32).reshape(c.input_state.shape)


_STATE_RULES = (
    holds(
        "InputStateTensor {[1], ..., 6}: six elements along the last dimension",
        lambda c: c.input_state.shape == (*(1,) * (c.input_state.ndim - 1), 6),
        lambda c: c.input_state.shape,
    ),
)

RANDOM_GENERATOR = of_tensors(
    name="RANDOM_GENERATOR",
    doc="Output is random bits that follow from InputState; OutputState is the state for what comes next.",
    text="output.flat[4 * i : 4 * i + 4] = philox4x32_10(counter + i, key); output_state = counter + "
    "ceil(elements / 4), key",
    operands=(
        inp("InputStateTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T"),
        out("OutputStateTensor", dtype="T", sizes="S", optional=FL_3_0),
        attr("Type", RandomGeneratorType, RandomGeneratorType.PHILOX_4X32_10),
    ),
    levels={
        FL_3_0: at(rank=(4, 4), T=UINT32, rules=_STATE_RULES),
        FL_4_0: at(rank=(1, 8), T=UINT32, rules=_STATE_RULES),
    },
    asks=(OUTPUT_SIZES,),
    sizes=lambda c: (c.output_sizes, None),
    shapes=_TOLD | {"input_state": said("[1..., 6]"), "output_state": said("as input_state")},
    compute=_random,
    moves=True,
    example=example(
        [0, 0, 0, 0, 7, 0],
        ([4099963437, 3221879260, 490388034, 367897730, 1747881627], [2, 0, 0, 0, 7, 0]),
        output_sizes=[5],
    ),
    notes="The state is a counter of 128 bits, its lowest word first, and a key of two words, in the order "
    "of Random123. What is left of the last four words is thrown away.",
)
