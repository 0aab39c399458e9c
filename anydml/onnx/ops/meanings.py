"""Element-wise ONNX operators that DirectML has no operator for, in the same language: for kernels.

They are no DirectML operators: nothing validates, lists or exports them.
"""

from __future__ import annotations

import os
import platform
from functools import reduce
from math import inf, pi, sqrt

from anydml.ops import doubles, elementary
from anydml.ops.dtypes import FLOAT32, FLOATING, INT32, INT64, SIZE, UINT8, UINT32, UINT64, UP_TO_64_BIT
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import (
    Expr,
    Scalar,
    add,
    and_,
    constant,
    convert,
    div,
    eq,
    fma,
    ge,
    gt,
    is_nan,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    rint,
    select,
    sub,
    xor,
)
from anydml.ops.families import FL_6_4, number, unary
from anydml.ops.opdef import Operator, at, attr, example, inp, out

_ANY = {FL_6_4: at(rank=(1, 8), T=UP_TO_64_BIT, C=UP_TO_64_BIT, B=UINT8)}

MOST_INPUTS = 16


def _of_several(name: str, doc: str, scalar: Scalar) -> tuple[Operator, ...]:
    """An operator of one input, of two, and so on."""

    def of(count: int) -> Operator:
        inputs = [inp(f"Input{k}Tensor", dtype="T", sizes="S") for k in range(count)]
        result = out("OutputTensor", dtype="T", sizes="S")
        return Operator(name, doc, (*inputs, result), _ANY, scalar, example(*[[0]] * count, [0]))

    return tuple(map(of, range(1, MOST_INPUTS + 1)))


MAX = _of_several("MAX", "Output is the largest input.", lambda *x: reduce(maximum, x))
MIN = _of_several("MIN", "Output is the smallest input.", lambda *x: reduce(minimum, x))
SUM = _of_several("SUM", "Output is the sum of the inputs.", lambda *x: reduce(add, x))
MEAN = _of_several("MEAN", "Output is the mean of the inputs.", lambda *x: div(reduce(add, x), float(len(x))))

CLIP = Operator(
    "CLIP",
    "Output is Input where that lies between Min and Max, else the nearer of these.",
    (
        inp("InputTensor", dtype="T", sizes="S"),
        inp("MinTensor", dtype="T", sizes="S"),
        inp("MaxTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    _ANY,
    lambda x, least, most: minimum(maximum(x, least), most),
    example([-3, 0.5, 3], [0, 0, 0], [1, 1, 1], [0, 0.5, 1]),
    in_place=("InputTensor",),
)
X86 = platform.machine().lower() in ("x86_64", "amd64")


def is_same_in_libraries(given: str, wanted: str) -> bool:
    """Whether libraries make the same of floats that an integer type does not have, as kernels do."""
    if not X86:
        return wanted in ("int32", "int64")
    if wanted == "uint64":
        return os.name != "nt"  # where they are made by another compiler
    return wanted != "uint32" or given == "float16"


def _cast(x: Expr, to: TensorDataType) -> Expr:
    """ONNX leaves open what a float becomes that the type does not have: here what C makes of it on this
    processor, as with libraries. The others saturate."""
    if x.dtype not in FLOATING or to in FLOATING or not X86:
        return convert(x, to)
    wide = elementary.wide(x)
    if to is UINT64:
        beyond = ge(wide, 2.0**63)
        lower = convert(_truncated(select(beyond, sub(wide, 2.0**63), wide), INT64), UINT64)
        return select(beyond, xor(lower, 1 << 63), lower)
    return convert(_truncated(wide, INT64 if to in (INT64, UINT32) else INT32), to)


def _truncated(x: Expr, to: TensorDataType) -> Expr:
    """As x86 does it: whatever is not within the type is its least number."""
    limit = 2.0 ** (8 * SIZE[to] - 1)
    return select(and_(ge(x, -limit), lt(x, limit)), convert(x, to), -int(limit))


CAST = unary(
    "CAST",
    "Output is Input in another type.",
    _ANY,
    _cast,
    example([1.5], [1], to=TensorDataType.INT32),
    attr("To", TensorDataType),
    output="C",
)
CAST_TO_BOOL = unary(
    "CAST_TO_BOOL",
    "Output is 0 where Input is 0, else 1.",
    _ANY,
    lambda x: convert(ne(x, 0), UINT8),
    example([0, 0.5], [0, 1]),
    output="B",
)


def least_of_nan(x: Expr) -> Expr:
    """What saturates to the least number of any integer type where it is NaN, as onnxruntime quantizes."""
    return select(is_nan(x), -inf, x)


def _quantize(x: Expr, scale: Expr, zero: Expr | None = None) -> Expr:
    whole = rint(div(x, scale))
    return least_of_nan(whole if zero is None else add(whole, convert(zero, whole.dtype)))


def _dequantize(x: Expr, scale: Expr, zero: Expr | None = None) -> Expr:
    whole = convert(x, FLOAT32)  # which has room for the difference of two of 16 bits
    return mul(whole if zero is None else sub(whole, convert(zero, FLOAT32)), elementary.wide(scale))


QUANTIZE = Operator(
    "QUANTIZE",
    "Output is Input / Scale, rounded (halves to even), plus ZeroPoint, limited to its type's range.",
    (
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ScaleTensor", dtype="T", sizes="S"),
        inp("ZeroPointTensor", dtype="C", sizes="S", optional=FL_6_4),
        out("OutputTensor", dtype="C", sizes="S"),
    ),
    _ANY,
    _quantize,
    example([1, 2.5, -300], [1, 1, 1], [128, 128, 128], [129, 130, 0]),
)
DEQUANTIZE = Operator(
    "DEQUANTIZE",
    "Output is Input minus ZeroPoint, times Scale.",
    (
        inp("InputTensor", dtype="C", sizes="S"),
        inp("ScaleTensor", dtype="T", sizes="S"),
        inp("ZeroPointTensor", dtype="C", sizes="S", optional=FL_6_4),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    _ANY,
    _dequantize,
    example([129, 0], [0.5, 0.5], [128, 128], [0.5, -64]),
)


def _small_power(x: Expr, exponent: Expr) -> Expr:
    square = mul(x, x)
    one = constant(1, square.dtype)
    powers = select(eq(exponent, 2), square, select(eq(exponent, 1), convert(x, square.dtype), one))
    return select(eq(exponent, 3), mul(square, x), powers)


SMALL_POWER = Operator(
    "SMALL_POWER",
    "Output is Input to the power of Exponent, which is 0, 1, 2 or 3. Integers wrap around.",
    (
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ExponentTensor", dtype="C", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    _ANY,
    _small_power,
    example([2, 3, -2], [1, 2, 3], [2, 9, -8]),
)


def _sign(x: Expr) -> Expr:
    sign = select(gt(x, 0), 1, select(lt(x, 0), number(-1, x), number(0, x)))
    return select(is_nan(x), x, sign) if x.dtype in FLOATING else sign


SIGN = unary(
    "SIGN",
    "Output is 1 where Input is positive, -1 where it is negative, else 0; a NaN, unlike DirectML's, stays.",
    _ANY,
    _sign,
    example([-3, 0, 0.5], [-1, 0, 1]),
)


EXP = unary("EXP", "Output is e to the power of Input.", _ANY, doubles.exp, example([0], [1]))
LOG = unary("LOG", "Output is the natural logarithm of Input.", _ANY, doubles.log, example([1], [0]))
SIGMOID = unary("SIGMOID", "Output is 1 / (1 + exp(-Input)).", _ANY, doubles.sigmoid, example([0], [0.5]))
TANH = unary("TANH", "Output is the hyperbolic tangent of Input.", _ANY, doubles.tanh, example([0], [0]))
SOFTPLUS = unary(
    "SOFTPLUS", "Output is ln(1 + exp(Input)).", _ANY, doubles.softplus, example([0], [0.6931471805599453])
)


def _mish(x: Expr) -> Expr:
    return mul(elementary.wide(x), elementary.tanh(elementary.softplus(x, 1.0)))


MISH = unary("MISH", "Output is Input * tanh(softplus(Input)).", _ANY, _mish, example([0], [0]))


def _gelu_by_tanh(x: Expr) -> Expr:
    """0.5 * (1 + tanh(z)) is the logistic function of 2 z."""
    x = elementary.wide(x)
    return mul(x, elementary.sigmoid(mul(fma(mul(mul(x, x), x), 0.044715, x), 2 * sqrt(2 / pi))))


GELU_BY_TANH = unary(
    "GELU_BY_TANH",
    "Output is 0.5 * Input * (1 + tanh(sqrt(2 / π) * (Input + 0.044715 * Input^3))).",
    _ANY,
    _gelu_by_tanh,
    example([0], [0]),
)
