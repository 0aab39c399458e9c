"""The ELEMENT_WISE_* operators between numbers and their quantized forms, one definition each.

A float becomes an integer by `convert`, which saturates: that is the clamp of the formulas.
"""

from __future__ import annotations

from anydml.ops.dtypes import (
    FLOAT32,
    FLOAT64,
    FLOATS_UP_TO_32_BIT,
    INT8,
    INT16,
    INT32,
    SIZE,
    UINT8,
    UINT16,
    UINT32,
)
from anydml.ops.expr import Expr, add, convert, div, fma, mul, rint, sub
from anydml.ops.families import FL_1_0, FL_2_1, FL_3_0, FL_4_0, FL_6_0, FL_6_2
from anydml.ops.opdef import ONE, Operator, at, example, inp, out
from anydml.ops.rules import SCALE_OF_INPUT

_BYTES = (UINT8, INT8)
_INTEGERS = (INT32, INT16, INT8, UINT32, UINT16, UINT8)


def _quantize(x: Expr, scale: Expr, zero_point: Expr | None) -> Expr:
    if x.dtype is INT32:
        x, scale = convert(x, FLOAT64), convert(scale, FLOAT64)
    whole = rint(div(x, scale))
    return whole if zero_point is None else add(whole, convert(zero_point, whole.dtype))


ELEMENT_WISE_QUANTIZE_LINEAR = Operator(
    name="ELEMENT_WISE_QUANTIZE_LINEAR",
    doc="Output is Input / Scale, rounded (halves to even), plus ZeroPoint, limited to its type's range.",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="C", sizes="S"),
        inp("ZeroPointTensor", dtype="Q", sizes="S", optional=FL_6_2),
        out("OutputTensor", dtype="Q", sizes="S"),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOAT32, C=FLOAT32, Q=UINT8, rules=(SCALE_OF_INPUT,)),
        FL_2_1: at(rank=(4, 4), T=(FLOAT32, INT32), C=FLOAT32, Q=_BYTES, rules=(SCALE_OF_INPUT,)),
        FL_3_0: at(rank=(1, 8), T=(FLOAT32, INT32), C=FLOAT32, Q=_BYTES, rules=(SCALE_OF_INPUT,)),
        FL_6_0: at(
            rank=(1, 8),
            T=(*FLOATS_UP_TO_32_BIT, INT32),
            C=FLOATS_UP_TO_32_BIT,
            Q=_BYTES,
            rules=(SCALE_OF_INPUT,),
        ),
    },
    scalar=_quantize,
    example=example([0, 1, 2.5, -300, 300], 1.0, 128, [128, 129, 130, 0, 255]),
    notes="A scale of 0 divides as IEEE 754 has it; a NaN becomes 0.",
)


def _dequantize(x: Expr, scale: Expr, zero_point: Expr | None) -> Expr:
    wide = FLOAT64 if SIZE[x.dtype] == 4 else FLOAT32
    difference = convert(x, wide)
    if zero_point is not None:
        difference = sub(difference, convert(zero_point, wide))
    return convert(mul(difference, convert(scale, wide)), FLOAT32)


ELEMENT_WISE_DEQUANTIZE_LINEAR = Operator(
    name="ELEMENT_WISE_DEQUANTIZE_LINEAR",
    doc="Output is Input minus ZeroPoint, times Scale.",
    operands=(
        inp("InputTensor", dtype="Q", sizes="S"),
        inp("ScaleTensor", dtype="T", sizes="S"),
        inp("ZeroPointTensor", dtype="Q", sizes="S", optional=FL_6_2),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), Q=UINT8, T=FLOAT32),
        FL_2_1: at(rank=(4, 4), Q=_INTEGERS, T=FLOAT32),
        FL_3_0: at(rank=(1, 8), Q=_INTEGERS, T=FLOAT32),
        FL_6_0: at(rank=(1, 8), Q=_INTEGERS, T=FLOATS_UP_TO_32_BIT),
    },
    scalar=_dequantize,
    example=example([128, 129, 0], [0.5], 128, [0, 0.5, -64], types={"Q": UINT8}),
    notes="The difference is exact.",
)


def _real(x: Expr, scale: Expr, zero_point: Expr | None) -> tuple[Expr, Expr]:
    whole = convert(x, FLOAT64)
    return (whole if zero_point is None else sub(whole, convert(zero_point, FLOAT64))), convert(
        scale, FLOAT64
    )


def _quantized_sum(
    a: Expr,
    a_scale: Expr,
    a_zero_point: Expr | None,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr | None,
    scale: Expr,
    zero_point: Expr | None,
) -> Expr:
    (x, x_scale), (y, y_scale) = _real(a, a_scale, a_zero_point), _real(b, b_scale, b_zero_point)
    total = fma(x, x_scale, mul(y, y_scale))
    whole = rint(div(total, convert(scale, FLOAT64)))
    return whole if zero_point is None else add(whole, convert(zero_point, FLOAT64))


ELEMENT_WISE_QUANTIZED_LINEAR_ADD = Operator(
    name="ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
    doc="Output is A plus B, both dequantized, and their sum quantized again.",
    operands=(
        inp("ATensor", dtype="A", sizes="S"),
        inp("AScaleTensor", dtype="T", sizes=ONE),
        inp("AZeroPointTensor", dtype="A", sizes=ONE, optional=FL_4_0),
        inp("BTensor", dtype="B", sizes="S"),
        inp("BScaleTensor", dtype="T", sizes=ONE),
        inp("BZeroPointTensor", dtype="B", sizes=ONE, optional=FL_4_0),
        inp("OutputScaleTensor", dtype="T", sizes=ONE),
        inp("OutputZeroPointTensor", dtype="Q", sizes=ONE, optional=FL_4_0),
        out("OutputTensor", dtype="Q", sizes="S"),
    ),
    levels={FL_4_0: at(rank=(1, 8), A=_BYTES, B=_BYTES, Q=_BYTES, T=FLOAT32)},
    scalar=_quantized_sum,
    example=example([10, 20], [0.5], None, [4, 8], [0.25], None, [1.0], [3], [9, 15]),
    notes="Computed in float64 and rounded once, halves to even. A missing zero point is 0.",
)
