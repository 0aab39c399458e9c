"""What similar definitions share: operands, feature-level tables, and the steps before their formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anydml.ops.attributes import ScaleBias, as_type
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FLOATING,
    FLOATS_UP_TO_32_BIT,
    INT8,
    INT16,
    INT32,
    INT64,
    SIGNED,
    SIZE,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from anydml.ops.enums import FeatureLevel
from anydml.ops.expr import Expr, Scalar, add, constant, convert, fma, mul
from anydml.ops.opdef import SCALE_BIAS, Asked, Attribute, Example, Levels, Operand, Operator, at, inp, out

FL_1_0, FL_2_0, FL_2_1 = FeatureLevel.FL_1_0, FeatureLevel.FL_2_0, FeatureLevel.FL_2_1
FL_3_0, FL_3_1 = FeatureLevel.FL_3_0, FeatureLevel.FL_3_1
FL_4_0, FL_4_1 = FeatureLevel.FL_4_0, FeatureLevel.FL_4_1
FL_5_0, FL_5_1 = FeatureLevel.FL_5_0, FeatureLevel.FL_5_1
FL_5_2, FL_6_0, FL_6_1 = FeatureLevel.FL_5_2, FeatureLevel.FL_6_0, FeatureLevel.FL_6_1
FL_6_2, FL_6_3, FL_6_4 = FeatureLevel.FL_6_2, FeatureLevel.FL_6_3, FeatureLevel.FL_6_4

ALL_BUT_FLOAT64 = (FLOAT32, FLOAT16, INT64, INT32, INT16, INT8, UINT64, UINT32, UINT16, UINT8)
FLOATS_AND_32_BIT = (FLOAT32, FLOAT16, INT32, UINT32)
FLOATS_AND_32_OR_64_BIT = (FLOAT32, FLOAT16, INT64, INT32, UINT64, UINT32)
SIGNED_UP_TO_32_BIT = (FLOAT32, FLOAT16, INT32, INT16, INT8)
SIGNED_UP_TO_64_BIT = (FLOAT32, FLOAT16, INT64, INT32, INT16, INT8)

FLOATS_FROM_1_0 = {
    FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
    FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
}
FLOATS_FROM_2_0 = {
    FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
    FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
}
ACTIVATION_FROM_1_0 = {
    FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
    FL_2_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT),
    FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
}


def floats_from(level: FeatureLevel) -> Levels:
    return {level: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT)}


def unary(
    name: str,
    doc: str,
    levels: Levels,
    scalar: Scalar,
    example: Example,
    *attributes: Attribute,
    output: str = "T",
    in_place: tuple[str, ...] = ("InputTensor",),
    notes: str = "",
    of_bool: bool = False,
    told: bool = False,
) -> Operator:
    """InputTensor to an OutputTensor of its sizes; of its type, too, unless `output` says another one."""
    operands: tuple[Operand | Attribute, ...] = (
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype=output, sizes="S"),
        *attributes,
    )
    return Operator(name, doc, operands, levels, scalar, example, in_place, notes, of_bool, told)


def scaled_unary(
    name: str,
    doc: str,
    levels: Levels,
    scalar: Scalar,
    example: Example,
    *attributes: Attribute,
    notes: str = "",
) -> Operator:
    """A unary operator whose input is scaled and biased first, if that is asked for."""
    return unary(name, doc, levels, scaled(scalar), example, SCALE_BIAS, *attributes, notes=notes)


def binary(
    name: str,
    doc: str,
    levels: Levels,
    scalar: Scalar,
    example: Example,
    *,
    output: str = "T",
    in_place: tuple[str, ...] = ("ATensor", "BTensor"),
    notes: str = "",
    of_bool: bool = False,
) -> Operator:
    """ATensor and BTensor of one type to an OutputTensor, all of the same sizes."""
    operands = (
        inp("ATensor", dtype="T", sizes="S"),
        inp("BTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype=output, sizes="S"),
    )
    return Operator(name, doc, operands, levels, scalar, example, in_place, notes, of_bool)


def scaled(scalar: Scalar) -> Callable[..., Expr]:
    return lambda x, scale_bias, *rest: scalar(scale_and_bias(x, scale_bias), *rest)


def scale_and_bias(x: Expr, scale_bias: ScaleBias | None) -> Expr:
    """x * scale + bias, rounded once. Of integers: exact if both numbers are whole, else by float64."""
    if scale_bias is None:
        return x
    scale, bias = scale_bias.scale, scale_bias.bias
    if x.dtype in FLOATING:
        return fma(x, scale, bias)
    if scale.is_integer() and bias.is_integer():
        return add(mul(x, _modulo(scale, x)), _modulo(bias, x))
    return convert(fma(convert(x, FLOAT64), scale, bias), x.dtype)


def _modulo(value: float, x: Expr) -> Expr:
    """A whole number in an integer type, modulo 2 to its width."""
    bits = 8 * SIZE[x.dtype]
    least = -(2 ** (bits - 1)) if x.dtype in SIGNED else 0
    return constant((int(value) - least) % 2**bits + least, x.dtype)


def number(value: Any, x: Expr) -> Expr:
    """An attribute's number in the type of `x`; integers take it truncated and saturated."""
    return constant(as_type(value, x.dtype), x.dtype)


def real(x: Expr) -> Expr:
    """A number to compute with as a float: an integer (of up to 32 bits, exactly) as FLOAT64."""
    return x if x.dtype in FLOATING else convert(x, FLOAT64)


FUSABLE = tuple(
    f"ACTIVATION_{name}"
    for name in (
        "LINEAR SIGMOID HARD_SIGMOID TANH SCALED_TANH RELU LEAKY_RELU THRESHOLDED_RELU ELU CELU SCALED_ELU "
        "SOFTPLUS PARAMETRIC_SOFTPLUS SOFTSIGN IDENTITY SHRINK GELU"
    ).split()
)
"""The activations that other operators can apply to their result."""

OUTPUT_SIZES = Asked("output_sizes", "Sequence[int]", "the output's sizes", lambda c: c.output.shape)
