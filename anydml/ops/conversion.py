"""Operators that take values to another type or range, one definition each."""

from __future__ import annotations

import numpy as np

from anydml.ops.attributes import FLOATS
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOATS_UP_TO_32_BIT,
    INT8,
    INT16,
    UINT8,
    UINT16,
    UP_TO_64_BIT,
)
from anydml.ops.families import ALL_BUT_FLOAT64, FL_1_0, FL_3_0, FL_3_1, FL_4_1, unary
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds

_UP_TO_16_BIT = (FLOAT32, FLOAT16, INT16, INT8, UINT16, UINT8)

CAST = unary(
    "CAST",
    "Output is Input in the output's type.",
    {
        FL_1_0: at(rank=(4, 4), T=_UP_TO_16_BIT, O=_UP_TO_16_BIT),
        FL_3_0: at(rank=(4, 4), T=ALL_BUT_FLOAT64, O=ALL_BUT_FLOAT64),
        FL_3_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64, O=ALL_BUT_FLOAT64),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, O=UP_TO_64_BIT),
    },
    lambda x: x,  # what becomes of it is `convert` to the output's type, as everywhere
    example([1.75, -1.5, 300.0, float("nan")], [1, 0, 255, 0], output_data_type="UINT8"),
    output="O",
    in_place=(),
    told=True,
    notes="The documents leave rounding open. Here floats become integers truncated and saturated, with 0 "
    "for NaN; integers become narrower ones modulo 2 to their width; what becomes a float is rounded to the "
    "nearest, halves to even, and FLOAT64 becomes FLOAT16 by way of FLOAT32.",
)

_VALUE_SCALE_RULES = (
    holds("Bias of 1 or 3 values", lambda c: len(c.bias) in (1, 3), lambda c: len(c.bias)),
    holds(
        "as many values in Bias as InputTensor has channels (dimension 1)",
        lambda c: len(c.bias) == c.input.shape[1],
        lambda c: f"{len(c.bias)} for {c.input.shape[1]} channels",
    ),
)


def _value_scale(c: Call) -> Array:
    result: Array = c.input * np.float32(c.scale)
    result += np.float32(np.reshape(c.bias, (-1, 1, 1)))
    return result


VALUE_SCALE_2D = of_tensors(
    name="VALUE_SCALE_2D",
    doc="Output is the input times Scale, plus the value in Bias of the channel.",
    text="output[n, channel, y, x] = input[n, channel, y, x] * scale + bias[channel]",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("Scale"),
        attr("Bias", FLOATS, count="ChannelCount"),
    ),
    levels={FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_VALUE_SCALE_RULES)},
    shapes={"input": "N C H W", "output": "N C H W"},
    compute=_value_scale,
    example=example(
        [[[[1, 2], [3, 4]]]],
        [[[[2.5, 4.5], [6.5, 8.5]]]],
        scale=2,
        bias=[0.5],
    ),
)
