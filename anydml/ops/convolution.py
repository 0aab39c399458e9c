"""Convolutions, one definition each: products of a matrix of filters with columns of what they see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from anydml.errors import counted
from anydml.ops.attributes import UINT, UINTS, ActivationKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT32, FLOATS_UP_TO_32_BIT, INT8, INT32, UINT8
from anydml.ops.enums import ConvolutionDirection, ConvolutionMode
from anydml.ops.families import FL_1_0, FL_2_1, FL_4_0, FL_5_2, FL_6_0, FUSABLE
from anydml.ops.folding import Sizes, Windows, fitting, from_one_on, spans
from anydml.ops.matrix import as_integers, differences, equal_ranks, exact_run, quantized, whole_product
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out, snake
from anydml.ops.rules import holds
from anydml.ops.shapes import said

_FUSABLE_HERE = ActivationKind((*FUSABLE, "ELEMENT_WISE_CLIP"), (("ELEMENT_WISE_CLIP", FL_6_0),))
_BYTES = (UINT8, INT8)
_COLUMN_ELEMENTS = 2**21
"""About how many elements columns have at a time."""

# ---- columns of a part of the windows at a time ------------------------------------------------------------

Product = Callable[[Array, Array, Array], object]
"""Puts the matrix product of two arrays into a third."""


def _parts(batch: int, rows: int, row: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a batch, or of the rows of one, of a bearable number of elements: `row` in each row."""
    some = max(_COLUMN_ELEMENTS // row, 1)
    together = max(some // rows, 1)
    for n in range(0, batch, together):
        for first in range(0, rows, some):
            yield slice(n, min(n + together, batch)), slice(first, min(first + some, rows))


def _correlated(
    x: Array, filters: Array, windows: Windows, groups: int, product: Product, dtype: Any
) -> Array:
    """The sums of all that windows see in their group of channels, times each filter of the group."""
    batch, channels = x.shape[:2]
    each = filters.shape[0] // groups
    weights = filters.reshape(groups, each, -1)
    rows, row = windows.blocks[0], prod(windows.blocks[1:])
    made = np.empty((batch, groups * each, *windows.blocks), dtype)
    sums = made.reshape(batch, groups, each, rows * row)
    for samples, some in _parts(batch, rows, channels * prod(windows.sizes) * row):
        columns = windows.part(some.start, some.stop).unfold(x[samples])
        columns = columns.reshape(len(columns), groups, weights.shape[-1], -1)
        product(weights, columns, sums[samples, ..., some.start * row : some.stop * row])
    return made


def _spread(x: Array, filters: Array, windows: Windows, groups: int, sizes: Sizes) -> Array:
    """The transpose of `_correlated`: each element times the filters of its channel, added to `sizes`."""
    batch, channels = x.shape[:2]
    outputs = groups * filters.shape[1]
    weights = np.swapaxes(filters.reshape(groups, channels // groups, -1), 1, 2)
    rows, row = windows.blocks[0], prod(windows.blocks[1:])
    total = np.zeros((batch, outputs, *sizes), x.dtype)
    for samples, some in _parts(batch, rows, outputs * prod(windows.sizes) * row):
        part = windows.part(some.start, some.stop)
        seen = x[samples, :, some]
        columns = np.matmul(weights, seen.reshape(len(seen), groups, channels // groups, -1))
        part.fold(columns.reshape(len(seen), outputs, *part.sizes, *part.blocks), total[samples])
    return total


# ---- convolutions of floats --------------------------------------------------------------------------------


def _forward(c: Call) -> bool:
    return c.direction is ConvolutionDirection.FORWARD


def _spread_sizes(c: Call) -> Sizes:
    """What a transposed convolution gives behind the first two dimensions."""
    return tuple(
        (n - 1) * stride + span + padding - start - end
        for n, stride, span, padding, start, end in zip(
            c.input.shape[2:],
            c.strides,
            spans(c.filter.shape[2:], c.dilations),
            c.output_padding,
            c.start_padding,
            c.end_padding,
            strict=True,
        )
    )


def _spatial_sizes(c: Call) -> Sizes:
    if not _forward(c):
        return _spread_sizes(c)
    blocks = fitting(c, c.input.shape[2:], c.filter.shape[2:])
    return tuple(n + padding for n, padding in zip(blocks, c.output_padding, strict=True))


def _output_channels(c: Call) -> int:
    return int(c.filter.shape[0] if _forward(c) else c.filter.shape[1] * c.group_count)


def _convolution_sizes(c: Call) -> Sizes:
    sizes = _spatial_sizes(c)
    if min(sizes) < 1:
        raise ValueError("the filter does not fit")
    return (c.input.shape[0], _output_channels(c), *sizes)


def _convolution(c: Call) -> Array:
    spatial = range(2, c.filter.ndim)
    filters = np.flip(c.filter, tuple(spatial)) if c.mode is ConvolutionMode.CONVOLUTION else c.filter
    sizes = c.filter.shape[2:]
    if _forward(c):
        blocks = fitting(c, c.input.shape[2:], sizes)
        windows = Windows(sizes, blocks, c.strides, c.dilations, c.start_padding)
        total = _correlated(c.input, filters, windows, c.group_count, np.matmul, c.input.dtype)
        if any(c.output_padding):
            total = np.pad(total, [(0, 0), (0, 0), *((0, n) for n in c.output_padding)])
    else:
        windows = Windows(sizes, c.input.shape[2:], c.strides, c.dilations, c.start_padding)
        total = _spread(c.input, filters, windows, c.group_count, c.output.shape[2:])
    if c.bias is not None:
        total += c.bias
    return total


def _channels_fit(c: Call) -> bool:
    channels, (filters, each) = c.input.shape[1], c.filter.shape[:2]
    if _forward(c):
        return bool(channels == each * c.group_count and filters % c.group_count == 0)
    return bool(channels == filters and filters % c.group_count == 0)


def _leaves_an_output(c: Call) -> bool:
    spatial = c.input.shape[2:]
    return min(fitting(c, spatial, c.filter.shape[2:]) if _forward(c) else _spread_sizes(c)) >= 1


_FROM_ONE_ON = (
    *from_one_on("Strides", "Dilations"),
    holds("GroupCount from 1 on", lambda c: c.group_count >= 1, "group_count"),
)
_RANKS = holds(
    "InputTensor and FilterTensor of equal numbers of dimensions",
    lambda c: c.input.ndim == c.filter.ndim,
    lambda c: f"{c.input.ndim} and {c.filter.ndim}",
)


def _bias_of(channels: Callable[[Call], int]) -> Rule:
    return holds(
        "BiasTensor {1, C, 1, ...} of the input's number of dimensions, with all channels of the output",
        lambda c: c.bias is None or c.bias.shape == (1, channels(c), *(1,) * (c.input.ndim - 2)),
        lambda c: f"{c.bias.shape} for {channels(c)} channels and {counted(c.input.ndim, 'dimension')}",
    )


_CONVOLUTION_RULES = (
    _RANKS,
    *_FROM_ONE_ON,
    holds(
        "FilterTensor {outputs, InputTensor's channels / GroupCount, ...}, outputs in as many equal groups, "
        "or, if Direction is BACKWARD, {InputTensor's channels, outputs / GroupCount, ...}",
        _channels_fit,
        lambda c: f"{c.filter.shape} for {c.input.shape} and GroupCount {c.group_count}",
    ),
    _bias_of(_output_channels),
    holds(
        "FilterTensor, with Dilations and padding, that leaves an output",
        _leaves_an_output,
        lambda c: f"{c.filter.shape} for {c.input.shape}",
    ),
)

CONVOLUTION = of_tensors(
    name="CONVOLUTION",
    doc="Output is the convolution of Input with Filter, or the transpose of one, plus Bias, put through an "
    "activation.",
    text="output[n, o, p] = fused_activation(sum(input[n, i, p * strides + w * dilations - start_padding]"
    " * filter[o, i, w]) + bias[o])",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("FilterTensor", dtype="T"),
        inp("BiasTensor", dtype="T", optional=FL_1_0),
        out("OutputTensor", dtype="T"),
        attr("Mode", ConvolutionMode, ConvolutionMode.CROSS_CORRELATION),
        attr("Direction", ConvolutionDirection, ConvolutionDirection.FORWARD),
        attr("Strides", UINTS, 1, per="spatial"),
        attr("Dilations", UINTS, 1, per="spatial"),
        attr("StartPadding", UINTS, 0, per="spatial"),
        attr("EndPadding", UINTS, 0, per="spatial"),
        attr("OutputPadding", UINTS, 0, per="spatial"),
        attr("GroupCount", UINT, 1),
        attr("FusedActivation", _FUSABLE_HERE, None),
    ),
    levels={
        FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_CONVOLUTION_RULES),
        FL_4_0: at(rank=(3, 5), T=FLOATS_UP_TO_32_BIT, rules=_CONVOLUTION_RULES),
    },
    sizes=_convolution_sizes,
    shapes={
        "input": "N C S...",
        "filter": said("[M, C / group_count, K...]; BACKWARD [C, M / group_count, K...]"),
        "bias": said("[1, M, 1...]"),
        "output": said("[N, M, windows(S, K)...]; BACKWARD as many as that makes S of"),
    },
    compute=_convolution,
    example=example(
        [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]],
        [[[[1, 0], [0, 2]]]],
        [[[[0.5]]]],
        [[[[11.5, 14.5], [20.5, 23.5]]]],
    ),
    notes="Mode CONVOLUTION turns the filter around in each of its spatial dimensions. Direction BACKWARD is "
    "the transpose of what FORWARD does with the same filter: an element of Input is spread over what that "
    "would sum up for it. OutputPadding makes Output so much larger at the ends: BACKWARD has sums there, "
    "too, as far as filters reach (as ONNX has it), FORWARD zeros; Bias is added everywhere.",
)

# ---- convolutions of whole numbers -------------------------------------------------------------------------


def _per_filter(x: Array | None, rank: int) -> Array | None:
    """One number, or one for each filter, beside filters."""
    return None if x is None else x.reshape(-1, *(1,) * (rank - 1))


def _integer_convolution(c: Call) -> Array:
    """Input - InputZeroPoint convolved with Filter - FilterZeroPoint, exactly, in floats."""
    zero_point = None if c.input_zero_point is None else c.input_zero_point.reshape(())
    x = differences(c.input, zero_point)
    filters = differences(c.filter, _per_filter(c.filter_zero_point, c.filter.ndim))
    sizes = c.filter.shape[2:]
    windows = Windows(sizes, fitting(c, c.input.shape[2:], sizes), c.strides, c.dilations, c.start_padding)
    run = exact_run(x, filters)
    dtype = np.float32 if run >= prod(filters.shape[1:]) else np.float64

    def put_product(a: Array, b: Array, into: Array) -> None:
        np.copyto(into, whole_product(a, b, run))

    return _correlated(x, filters, windows, c.group_count, put_product, dtype)


_SHAPES = {
    "input": "N C S...",
    "input_zero_point": said("one element"),
    "filter": "M C/group_count K...",
    "filter_zero_point": said("one element, or M"),
    "output": "N M windows(S,K)...",
}


def _one_element(field: str) -> Rule:
    parameter = snake(field.removesuffix("Tensor"))
    return holds(
        f"{field} of one element",
        lambda c: getattr(c, parameter) is None or prod(getattr(c, parameter).shape) == 1,
        lambda c: getattr(c, parameter).shape,
    )


def _one_or_for_each_filter(field: str) -> Rule:
    """{1, C, 1, 1}, or what is left of it without sizes of 1."""
    parameter = snake(field.removesuffix("Tensor"))

    def fits(c: Call) -> bool:
        x = getattr(c, parameter)
        if x is None or prod(x.shape) == 1:
            return True
        place = max(range(x.ndim), key=lambda k: x.shape[k])
        return prod(x.shape) == x.shape[place] == c.filter.shape[0] and place <= 1 and x.ndim - place <= 3

    return holds(
        f"{field} of one element or {{[1], C, [1], [1]}} with the channels of the output",
        fits,
        lambda c: getattr(c, parameter).shape,
    )


_INTEGER_RULES = (
    _RANKS,
    *_FROM_ONE_ON,
    holds(
        "FilterTensor {outputs, InputTensor's channels / GroupCount, ...}, outputs in as many equal groups",
        lambda c: (
            c.input.shape[1] == c.filter.shape[1] * c.group_count and c.filter.shape[0] % c.group_count == 0
        ),
        lambda c: f"{c.filter.shape} for {c.input.shape} and GroupCount {c.group_count}",
    ),
    holds(
        "FilterTensor, with Dilations, that fits into the padded InputTensor",
        lambda c: min(fitting(c, c.input.shape[2:], c.filter.shape[2:])) >= 1,
        lambda c: f"{c.filter.shape} for {c.input.shape}",
    ),
    _one_element("InputZeroPointTensor"),
    _one_or_for_each_filter("FilterZeroPointTensor"),
)
_WINDOW_ATTRIBUTES = (
    attr("Strides", UINTS, 1, per="spatial"),
    attr("Dilations", UINTS, 1, per="spatial"),
    attr("StartPadding", UINTS, 0, per="spatial"),
    attr("EndPadding", UINTS, 0, per="spatial"),
    attr("GroupCount", UINT, 1),
)
_DIMENSION_COUNT_NOTE = (
    "DirectML's pages allow a DimensionCount of 2 alone, but from 4_0 tensors of 3 dimensions as well: "
    "with these it is 1 here. Padding stands for zeros after the zero point was subtracted."
)
_CONVOLUTION_INTEGER_RULES = (*_INTEGER_RULES, equal_ranks("InputZeroPointTensor", "FilterZeroPointTensor"))
_ANY = (1, 4)
_ZERO_POINTS = {"InputZeroPointTensor": _ANY, "FilterZeroPointTensor": _ANY}

CONVOLUTION_INTEGER = of_tensors(
    name="CONVOLUTION_INTEGER",
    doc="Output is the cross-correlation of Input minus InputZeroPoint with Filter minus FilterZeroPoint.",
    text="output[n, o, p] = sum((input - input_zero_point)[n, i, p * strides + w * dilations - start_padding]"
    " * (filter - filter_zero_point)[o, i, w])",
    operands=(
        inp("InputTensor", dtype="A"),
        inp("InputZeroPointTensor", dtype="A", optional=FL_2_1),
        inp("FilterTensor", dtype="B"),
        inp("FilterZeroPointTensor", dtype="B", optional=FL_2_1),
        out("OutputTensor", dtype="I"),
        *_WINDOW_ATTRIBUTES,
    ),
    levels={
        FL_2_1: at(rank=(4, 4), A=_BYTES, B=_BYTES, I=INT32, rules=_CONVOLUTION_INTEGER_RULES),
        FL_4_0: at(
            rank=(3, 4), ranks=_ZERO_POINTS, A=_BYTES, B=_BYTES, I=INT32, rules=_CONVOLUTION_INTEGER_RULES
        ),
    },
    shapes=_SHAPES,
    compute=lambda c: as_integers(_integer_convolution(c)),
    example=example([[[1, 2, 3, 4]]], [1], [[[1, 2]]], None, [[[2, 5, 8]]], types={"A": UINT8, "B": INT8}),
    notes="Exact; a sum that INT32 cannot hold is taken modulo 2^32. A zero point that is not there is 0. "
    + _DIMENSION_COUNT_NOTE,
)


def _quantized_convolution(c: Call) -> Array:
    total = _integer_convolution(c).astype(np.float64, copy=False)
    if c.bias is not None:
        total += c.bias
    scale = c.input_scale.reshape(()).astype(np.float64) * c.filter_scale
    total *= scale.reshape(-1, *(1,) * (c.filter.ndim - 2))
    total /= c.output_scale.reshape(())
    zero_point = None if c.output_zero_point is None else c.output_zero_point.reshape(())
    return quantized(total, zero_point, c.output.dtype)


_QUANTIZED_RULES = (
    *_INTEGER_RULES,
    _one_element("InputScaleTensor"),
    _one_or_for_each_filter("FilterScaleTensor"),
    _bias_of(lambda c: int(c.filter.shape[0])),
    _one_element("OutputScaleTensor"),
    _one_element("OutputZeroPointTensor"),
)
_FACTORS = _ZERO_POINTS | {
    "InputScaleTensor": _ANY,
    "OutputScaleTensor": _ANY,
    "OutputZeroPointTensor": _ANY,
}

QUANTIZED_LINEAR_CONVOLUTION = of_tensors(
    name="QUANTIZED_LINEAR_CONVOLUTION",
    doc="Output is the cross-correlation of Input with Filter, both dequantized, plus Bias, quantized again.",
    text="output[n, o, p] = clip(round((sum((input - input_zero_point)[n, i, p * strides + w * dilations"
    " - start_padding] * (filter - filter_zero_point)[o, i, w]) + bias[o]) * input_scale * filter_scale[o]"
    " / output_scale) + output_zero_point)",
    operands=(
        inp("InputTensor", dtype="A"),
        inp("InputScaleTensor", dtype="T"),
        inp("InputZeroPointTensor", dtype="A", optional=FL_2_1),
        inp("FilterTensor", dtype="B"),
        inp("FilterScaleTensor", dtype="T"),
        inp("FilterZeroPointTensor", dtype="B", optional=FL_2_1),
        inp("BiasTensor", dtype="I", optional=FL_2_1),
        inp("OutputScaleTensor", dtype="T"),
        inp("OutputZeroPointTensor", dtype="Q", optional=FL_2_1),
        out("OutputTensor", dtype="Q"),
        *_WINDOW_ATTRIBUTES,
    ),
    levels={
        FL_2_1: at(rank=(4, 4), rules=_QUANTIZED_RULES, A=_BYTES, B=_BYTES, Q=_BYTES, T=FLOAT32, I=INT32),
        FL_4_0: at(
            rank=(3, 4),
            ranks=_FACTORS | {"FilterScaleTensor": (3, 4)},
            rules=_QUANTIZED_RULES,
            A=_BYTES,
            B=_BYTES,
            Q=_BYTES,
            T=FLOAT32,
            I=INT32,
        ),
        FL_5_2: at(
            rank=(3, 4),
            ranks=_FACTORS | {"FilterScaleTensor": _ANY},
            rules=_QUANTIZED_RULES,
            A=_BYTES,
            B=_BYTES,
            Q=_BYTES,
            T=FLOAT32,
            I=INT32,
        ),
    },
    shapes=_SHAPES
    | {
        "input_scale": said("one element"),
        "filter_scale": said("one element, or M"),
        "bias": said("[1, M, 1...]"),
        "output_scale": said("one element"),
        "output_zero_point": said("one element"),
    },
    compute=_quantized_convolution,
    example=example(
        [[[130, 132, 128]]],
        [0.5],
        [128],
        [[[2, 4]]],
        [0.5],
        None,
        [[[2]]],
        [0.5],
        [10],
        [[[21, 15]]],
    ),
    notes="The sums are exact, scaled in float64 and rounded once, halves to even; a NaN (of scales of 0) "
    "becomes 0. A zero point that is not there is 0. Bias counts in steps of InputScale * FilterScale, as "
    "ONNX has it: DirectML's page does not say. " + _DIMENSION_COUNT_NOTE,
)
