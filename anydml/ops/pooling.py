"""Operators that reduce each window of a tensor to one element, one definition each."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from anydml.ops.attributes import UINT
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOATS_UP_TO_32_BIT, INT8, UINT8, UINT32, UINT64
from anydml.ops.enums import FeatureLevel
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_5_0,
    FL_6_2,
    OUTPUT_SIZES,
)
from anydml.ops.opdef import Levels, Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.pooling_windows import (
    DILATIONS,
    INCLUDE_PADDING,
    WINDOWS,
    divisors,
    largest,
    lowest,
    reduced,
    window_rules,
    windows_of,
)
from anydml.ops.rules import holds
from anydml.ops.shapes import said

_RULES, _DILATED_RULES = window_rules(), window_rules(dilated=True)

_TENSORS = (inp("InputTensor", dtype="T"), out("OutputTensor", dtype="T"))
_WITH_INDICES = (*_TENSORS, out("OutputIndicesTensor", dtype="I", optional=FL_2_0))

_3X3 = [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]
_DILATED_NOTES = "The output's sizes are counted with the window as it is dilated. "
_EMPTY_AVERAGE = "The average of nothing but padding is 0."
_SHAPES = {"input": "N C S...", "output": "N C pooled(S)..."}
_TWO_SHAPES = _SHAPES | {"output_indices": "N C pooled(S)..."}


# ---- averages ----------------------------------------------------------------------------------------------


def _average(c: Call) -> Array:
    windows = windows_of(c, c.input.shape)
    total = reduced(c.input, windows, np.add, 0, np.float64)
    total /= divisors(c, windows)
    return total


AVERAGE_POOLING = of_tensors(
    name="AVERAGE_POOLING",
    doc="Output is the average of each window of Input.",
    text="output[n, c, y] = sum(window at y) / (elements of the window, padding only if include_padding)",
    operands=(*_TENSORS, *WINDOWS, INCLUDE_PADDING),
    levels={FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_RULES)},
    shapes=_SHAPES,
    compute=_average,
    example=example(_3X3, [[[[3, 4], [6, 7]]]], window_size=2, include_padding=False),
    notes=_EMPTY_AVERAGE,
)

AVERAGE_POOLING1 = of_tensors(
    name="AVERAGE_POOLING1",
    doc="Output is the average of each window of Input, of whose elements some can be left out.",
    text="output[n, c, y] = sum(window at y) / (elements of the window, padding only if include_padding)",
    operands=(*_TENSORS, *WINDOWS, DILATIONS, INCLUDE_PADDING),
    levels={FL_6_2: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_DILATED_RULES)},
    shapes=_SHAPES,
    compute=_average,
    example=example(_3X3, [[[[5]]]], window_size=[2, 2], dilations=[2, 2], include_padding=False),
    notes=_DILATED_NOTES + _EMPTY_AVERAGE,
)

_BYTES = (INT8, UINT8)


def _per_channel(field: str, parameter: str) -> Rule:
    def fits(c: Call) -> bool:
        x = getattr(c, parameter)
        if x is None or all(n == 1 for n in x.shape):
            return True
        channels = c.input.shape[1]
        wanted = (1, channels, *(1,) * (c.input.ndim - 2))
        return tuple((1,) * (c.input.ndim - x.ndim) + x.shape) == wanted and x.ndim <= c.input.ndim

    return holds(
        f"{field} {{1, 1, 1, 1}} or {{1, ChannelCount, 1, 1}}",
        fits,
        lambda c: f"{getattr(c, parameter).shape} beside InputTensor {c.input.shape}",
    )


_QUANTIZED_RULES = (
    *_DILATED_RULES,
    _per_channel("InputScaleTensor", "input_scale"),
    _per_channel("InputZeroPointTensor", "input_zero_point"),
    _per_channel("OutputScaleTensor", "output_scale"),
    _per_channel("OutputZeroPointTensor", "output_zero_point"),
)


def _quantized_average(c: Call) -> Array:
    def by_channel(x: Array | None, dtype: Any) -> Any:
        return 0 if x is None else x.astype(dtype).reshape(1, -1, *(1,) * (c.input.ndim - 2))

    windows = windows_of(c, c.input.shape)
    exact = np.int32 if prod(w.size for w in windows) < 2**22 else np.int64
    whole = c.input.astype(exact) - by_channel(c.input_zero_point, exact)
    total = reduced(whole, windows, np.add, 0, exact) * by_channel(c.input_scale, np.float64)
    total /= divisors(c, windows) * by_channel(c.output_scale, np.float64)
    result: Array = np.rint(total) + by_channel(c.output_zero_point, np.float64)
    limits = np.iinfo(c.output.dtype)
    return np.nan_to_num(result, nan=0).clip(limits.min, limits.max).astype(c.output.dtype)


QUANTIZED_LINEAR_AVERAGE_POOLING = of_tensors(
    name="QUANTIZED_LINEAR_AVERAGE_POOLING",
    doc="Output is the average of each window of the dequantized Input, quantized again.",
    text="output = quantize(average_pooling1(dequantize(input)))",
    operands=(
        inp("InputTensor", dtype="A"),
        inp("InputScaleTensor", dtype="C"),
        inp("InputZeroPointTensor", dtype="A", optional=FL_6_2),
        inp("OutputScaleTensor", dtype="C"),
        inp("OutputZeroPointTensor", dtype="Q", optional=FL_6_2),
        out("OutputTensor", dtype="Q"),
        *WINDOWS,
        DILATIONS,
        INCLUDE_PADDING,
    ),
    levels={
        FL_6_2: at(
            rank=(4, 5),
            A=_BYTES,
            C=FLOAT32,
            Q=_BYTES,
            rules=_QUANTIZED_RULES,
            ranks={
                f"{name}Tensor": (1, 5)
                for name in ("InputScale", "InputZeroPoint", "OutputScale", "OutputZeroPoint")
            },
        )
    },
    shapes=_SHAPES
    | dict.fromkeys(
        ("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
        said("one element, or [1, C, 1...]"),
    ),
    compute=_quantized_average,
    example=example(
        [[[[10, 20], [30, 40]]]],
        [[[[0.5]]]],
        [[[[5]]]],
        [[[[2]]]],
        [[[[100]]]],
        [[[[105]]]],
        window_size=2,
        include_padding=False,
        types={"A": UINT8, "Q": UINT8},
    ),
    notes=_DILATED_NOTES
    + "Sums are exact; the quotient is rounded once, from float64, halves to even. A missing zero point is "
    "0, and a scale of 0 divides as IEEE 754 has it; a NaN becomes 0. Padding is the number 0, not the "
    "integer 0. A scale or zero point of fewer dimensions has sizes of 1 in front.",
)

# ---- norms -------------------------------------------------------------------------------------------------


_DIRECT = 6
"""Up to this exponent powers of float32, and sums of them, are within float64."""


def _norm(c: Call) -> Array:
    """Where powers would not fit, by their logarithms to the base 2."""
    windows = windows_of(c, c.input.shape)
    size = np.abs(c.input, dtype=np.float64)
    if c.p > _DIRECT:
        logs = reduced(c.p * np.log2(size), windows, np.logaddexp2, -np.inf, np.float64)
        return np.asarray(np.exp2(logs / c.p))
    if c.p == 2:
        np.square(size, out=size)
    elif c.p > 2:
        np.power(size, float(c.p), out=size)
    total = reduced(size, windows, np.add, 0, np.float64)
    if c.p == 2:
        return np.sqrt(total)
    return total if c.p == 1 else np.power(total, 1 / c.p)


_P = attr("P", UINT, 2)
_P_RULE = holds("P of at least 1", lambda c: c.p >= 1, "p")
_NORM_NOTES = "Powers of absolute values are float64 numbers, or their logarithms are. Padding adds nothing."

LP_POOLING = of_tensors(
    name="LP_POOLING",
    doc="Output is the Lp norm of each window of Input.",
    text="output[n, c, y] = sum(abs(window at y) ** p) ** (1 / p)",
    operands=(*_TENSORS, *WINDOWS, _P),
    levels={FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=(*_RULES, _P_RULE))},
    shapes=_SHAPES,
    compute=_norm,
    example=example([[[[3, 0, 5], [4, 0, 12]]]], [[[[5, 13]]]], window_size=2, p=2),
    notes=_NORM_NOTES,
)

LP_POOLING1 = of_tensors(
    name="LP_POOLING1",
    doc="Output is the Lp norm of each window of Input, of whose elements some can be left out.",
    text="output[n, c, y] = sum(abs(window at y) ** p) ** (1 / p)",
    operands=(*_TENSORS, *WINDOWS, DILATIONS, _P),
    levels={FL_6_2: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=(*_DILATED_RULES, _P_RULE))},
    shapes=_SHAPES,
    compute=_norm,
    example=example([[[[3, -9, -4, 5]]]], [[[[7, 14]]]], window_size=[1, 2], dilations=[1, 2], p=1),
    notes=_DILATED_NOTES + _NORM_NOTES,
)

# ---- maxima ------------------------------------------------------------------------------------------------

_FLOATS_AND_BYTES = (FLOAT32, FLOAT16, INT8, UINT8)
_INDICES = (UINT64, UINT32)
_MAX_NOTES = (
    "A NaN in a window is its maximum. Of nothing but padding the maximum is -infinity, or an integer "
    "type's least value."
)
_INDEX_NOTES = _MAX_NOTES + " Its index is then that of the plane's first element."


def _max(c: Call) -> Array:
    return reduced(c.input, windows_of(c, c.input.shape), np.maximum, lowest(c.input.dtype), c.input.dtype)


def _max_and_indices(c: Call) -> tuple[Array, Array | None]:
    if c.output_indices is None:
        return _max(c), None
    return largest(c.input, windows_of(c, c.input.shape))


def _with_indices(first: FeatureLevel, rules: tuple[Rule, ...]) -> Levels:
    return {
        first: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=rules),
        FL_3_0: at(rank=(4, 5), T=_FLOATS_AND_BYTES, I=UINT32, rules=rules),
        FL_5_0: at(rank=(4, 5), T=ALL_BUT_FLOAT64, I=_INDICES, rules=rules),
    }


MAX_POOLING = of_tensors(
    name="MAX_POOLING",
    doc="Output is the maximum of each window of Input.",
    text="output[n, c, y] = max(window at y)",
    operands=(*_TENSORS, *WINDOWS),
    levels={
        FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_RULES),
        FL_3_0: at(rank=(4, 5), T=_FLOATS_AND_BYTES, rules=_RULES),
        FL_5_0: at(rank=(4, 5), T=ALL_BUT_FLOAT64, rules=_RULES),
    },
    shapes=_SHAPES,
    compute=_max,
    example=example([[[[1, 2, 3], [6, 5, 4]]]], [[[[6, 5]]]], window_size=2),
    notes=_MAX_NOTES,
)

MAX_POOLING1 = of_tensors(
    name="MAX_POOLING1",
    doc="Output is the maximum of each window of Input, OutputIndices where it is in the flat Input.",
    text="output[n, c, y] = max(window at y); output_indices = the first place of each in input.flatten()",
    operands=(*_WITH_INDICES, *WINDOWS),
    levels=_with_indices(FL_2_0, _RULES),
    shapes=_TWO_SHAPES,
    compute=_max_and_indices,
    example=example(
        [[[[1, 2, 3], [6, 5, 4]], [[7, 7, 7], [8, 9, 9]]]],
        ([[[[6, 5]], [[9, 9]]]], [[[[3, 4]], [[10, 10]]]]),
        window_size=2,
    ),
    notes=_INDEX_NOTES,
)

MAX_POOLING2 = of_tensors(
    name="MAX_POOLING2",
    doc="As MAX_POOLING1; but some elements of each window can be left out.",
    text="output[n, c, y] = max(window at y); output_indices = the first place of each in input.flatten()",
    operands=(*_WITH_INDICES, *WINDOWS, DILATIONS),
    levels=_with_indices(FL_2_1, _DILATED_RULES),
    shapes=_TWO_SHAPES,
    compute=_max_and_indices,
    example=example(
        [[[[1, 9, 3, 9, 5]]]],
        ([[[[3, 9, 5]]]], [[[[2, 1, 4]]]]),
        window_size=[1, 2],
        dilations=[1, 2],
    ),
    notes=_DILATED_NOTES + _INDEX_NOTES,
)


def _unpool(c: Call) -> Array:
    result = np.zeros(prod(c.output.shape), c.input.dtype)
    index, values = c.indices.reshape(-1), c.input.reshape(-1)
    inside = index < result.size
    if not inside.all():
        index, values = index[inside], values[inside]
    result[index.astype(np.intp)] = values
    return result.reshape(c.output.shape)


_UNPOOLING = at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32)

MAX_UNPOOLING = of_tensors(
    name="MAX_UNPOOLING",
    doc="Output is Input's elements where Indices say in the flat Output, and 0 elsewhere.",
    text="output = 0; output.flat[indices] = input",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("IndicesTensor", dtype="I", sizes="S"),
        out("OutputTensor", dtype="T"),
    ),
    levels={FL_2_0: _UNPOOLING, FL_5_0: at(rank=(4, 4), T=ALL_BUT_FLOAT64, I=_INDICES)},
    asks=(OUTPUT_SIZES,),
    sizes=lambda c: c.output_sizes,
    shapes={"input": "N C H W", "indices": "N C H W", "output": said("output_sizes")},
    compute=_unpool,
    moves=True,
    example=example(
        [[[[6, 5]]]], [[[[3, 1]]]], [[[[0, 5, 0], [6, 0, 0]]]], output_sizes=[1, 1, 2, 3], types={"I": UINT32}
    ),
    notes="An index beyond the output is passed over; of several elements for one place the last one stays. "
    "Documents have no table before feature level 3_0: that one holds from 2_0 on, where the operator came.",
)
