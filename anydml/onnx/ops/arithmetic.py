"""Calculation with one or more tensors, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anydml.onnx.ops import meanings, result_types, safe
from anydml.onnx.ops.directml import (
    DOUBLE,
    FLOATING,
    INTEGERS,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Attributes,
    DirectMLForm,
    binary,
    unary,
)
from anydml.onnx.ops.native_arithmetic import divided
from anydml.onnx.ops.opinfo import (
    Array,
    KnownNode,
    NodeView,
    NotFoldable,
    OpInfo,
    Quirk,
    Symbols,
    partly_mended,
)
from anydml.onnx.ops.precision import FLOATS, double, round_to, widen
from anydml.onnx.ops.releases import onnxruntime_since
from anydml.onnx.ops.shared import (
    flag,
    in_double,
    in_single,
    like,
    old_or,
    without_old_broadcast,
)
from anydml.onnx.ops.speculation import always, broadcasts, is_integer
from anydml.onnx.ops.symbolic import map_symbols, numbers
from anydml.ops import arithmetic, elementwise
from anydml.ops import unary as unary_ops
from anydml.ops.opdef import Operator


def _divide(node: NodeView, a: Array, b: Array) -> Array:
    """Integers are cut off towards zero; the smallest one by -1 wraps around."""
    without_old_broadcast(node, a, b)
    if a.dtype in FLOATS:
        return a / b
    _no_zero(b)
    quotient = a // b
    return np.where((quotient < 0) & (quotient * b != a), quotient + 1, quotient).astype(a.dtype)


def _no_zero(b: Array) -> None:
    if (b == 0).any():
        raise ZeroDivisionError("integer division by zero")


def _mod(node: NodeView, a: Array, b: Array) -> Array:
    """The remainder with the sign of the dividend (fmod), or of the divisor."""
    if a.dtype in FLOATS:
        if not flag(node, "fmod") and node.version < 28:
            raise NotFoldable("Mod of floats that is not fmod")
    else:
        _no_zero(b)
    function = np.fmod if flag(node, "fmod") else np.mod
    return round_to(function(widen(a), widen(b)), a.dtype)


def _pow(node: NodeView, a: Array, b: Array) -> Array:
    without_old_broadcast(node, a, b)
    if a.dtype in FLOATS:
        if b.dtype not in FLOATS and (np.abs(double(b)) >= 2**53).any():
            raise NotFoldable("an exponent that no float64 has")
        return round_to(np.power(double(a), double(b)), a.dtype)
    x, y = np.broadcast_arrays(a, b)
    powers = [_int_power(m, n) for m, n in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    limits = np.iinfo(a.dtype)
    if any(not limits.min <= n <= limits.max for n in powers):
        raise NotFoldable("a power that its type does not have")  # onnxruntime calculates in float64
    return np.array(powers, a.dtype).reshape(x.shape)


def _int_power(base: int, exponent: float) -> int:
    """Exact: a float64 just below the power would be cut off to the integer before it."""
    if not abs(exponent) < np.inf or exponent != int(exponent) or (base == 0 and exponent < 0):
        raise NotFoldable("a power of an integer that is none")
    whole = int(exponent)
    if whole < 0:  # a fraction, cut off
        return base ** (whole % 2) if abs(base) == 1 else 0
    result: int = base ** min(whole, 64 if abs(base) > 1 else 2 + whole % 2)  # 1, -1 and 0 come again
    return result


def _sign(node: NodeView, x: Array) -> Array:
    if x.dtype in FLOATS and np.isnan(widen(x)).any():
        raise NotFoldable("the sign of NaN")
    return np.sign(x)


def _bit_shift(node: NodeView, x: Array, y: Array) -> Array:
    """By the type's width or more it is undefined before opset 28, and leaves only the sign from there on."""
    width = x.dtype.itemsize * 8
    far = (y < 0) | (y >= width)
    if node.version < 28 and far.any():
        raise NotFoldable("a shift by more bits than there are")
    direction = node.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise NotFoldable(f"direction {direction}")
    by = np.where(far, 0, y).astype(x.dtype)
    if direction == "LEFT":
        return np.where(far, 0, np.left_shift(x, by)).astype(x.dtype)
    return np.where(far, np.where(x < 0, -1, 0).astype(x.dtype), np.right_shift(x, by)).astype(x.dtype)


def is_64_bit(n: KnownNode) -> bool:
    """Integers that float64 does not hold."""
    return n.dtype() in ("int64", "uint64")


def _may_overflow(n: KnownNode) -> bool:
    """Of 32 and 64 bits, unless known not to be of the smallest integer by -1; in older releases of all
    integers, unless known not to be by 0 either."""
    wide = n.dtype() in (None, "int32", "int64")
    if n.op.name == "Mod" and n.attribute("fmod") == 1:
        return False
    if not wide and (_fails_at_zero() or not is_integer(n, 0)):
        return False
    dividend, divisor = n.content(0), n.content(1)
    by_zero = not _fails_at_zero() and (divisor is None or not divisor.all())
    by_minus_one = wide and (divisor is None or bool(np.isin(divisor, -1).any()))
    if divisor is None and dividend is not None and dividend.dtype.kind in "iu":
        by_minus_one &= bool(np.isin(dividend, np.iinfo(dividend.dtype).min).any())
    return by_zero or by_minus_one


def is_mended_division(n: KnownNode) -> bool:
    """Whether it may overflow, and can be written so that it does not."""
    return n.dtype() is not None and n.version >= 9 and _fails_at_zero() and _may_overflow(n)


def _fails_at_zero() -> bool:
    """Whether integers divided by zero are an error in this onnxruntime, and not the end of the process."""
    return onnxruntime_since(1, 25)


_DIVISION = partly_mended(
    "onnxruntime ends the process when the smallest integer is divided by -1, and before 1.25 by 0",
    _may_overflow,
    is_mended_division,
    fatal=True,
)


def _divided_symbols(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    x, divisor = given
    by = numbers(divisor)
    return None if by is None or len(by) != 1 else map_symbols(lambda a: a.divided(by[0]), x)


def _divides(n: KnownNode) -> bool:
    if not broadcasts(n):
        return False
    if n.op.name == "Mod" and not is_integer(n, 0):
        return bool(n.attribute("fmod") == 1)
    divisor = n.integers(1)
    return not is_integer(n, 0) or (divisor is not None and not {0, -1} & set(divisor))


def _shifts(direction: str) -> Callable[[KnownNode], Attributes | None]:
    return lambda n: {} if n.text("direction") == direction else None


def _fmod(n: NodeView) -> Attributes | None:
    return {} if n.int("fmod") else None


def _modulus(n: KnownNode) -> Operator:
    return (
        arithmetic.ELEMENT_WISE_MODULUS_TRUNCATE if n.int("fmod") else arithmetic.ELEMENT_WISE_MODULUS_FLOOR
    )


def _by_no_zero(n: KnownNode) -> bool:
    """A kernel cannot tell that it divides by 0."""
    divisor = n.content(1)
    return divisor is not None and bool(divisor.all())


def _to_a_small_power(n: KnownNode) -> bool:
    """As libraries compute it: by multiplication. A cube of floats is rounded twice."""
    exponent = n.content(1)
    return exponent is not None and exponent.size == 1 and exponent.item() in (0, 1, 2, 3)


OPS = (
    OpInfo(
        "Abs",
        result=result_types.same,
        fold=like(np.abs),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ABS, NUMBERS),
    ),
    OpInfo(
        "Add",
        result=result_types.broadcast,
        fold=old_or(np.add),
        symbols=lambda n, g, s: np.asarray(g[0] + g[1], object),
        symbol_inputs=2,
        speculatable=broadcasts,
        directml=binary(arithmetic.ELEMENT_WISE_ADD, NUMBERS),
    ),
    OpInfo(
        "BitShift",
        result=result_types.broadcast,
        fold=_bit_shift,
        directml=(
            DirectMLForm(elementwise.ELEMENT_WISE_BIT_SHIFT_LEFT, UNSIGNED, (2,), _shifts("LEFT")),
            DirectMLForm(elementwise.ELEMENT_WISE_BIT_SHIFT_RIGHT, UNSIGNED, (2,), _shifts("RIGHT")),
        ),
    ),
    OpInfo(
        "BitwiseAnd",
        result=result_types.broadcast,
        fold=like(np.bitwise_and),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_BIT_AND, INTEGERS),
    ),
    OpInfo(
        "BitwiseNot",
        result=result_types.same,
        fold=like(np.invert),
        speculatable=always,
        directml=unary(elementwise.ELEMENT_WISE_BIT_NOT, INTEGERS),
    ),
    OpInfo(
        "BitwiseOr",
        result=result_types.broadcast,
        fold=like(np.bitwise_or),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_BIT_OR, INTEGERS),
    ),
    OpInfo(
        "BitwiseXor",
        result=result_types.broadcast,
        fold=like(np.bitwise_xor),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_BIT_XOR, INTEGERS),
    ),
    OpInfo(
        "Ceil",
        result=result_types.same,
        fold=in_single(lambda node, x: np.ceil(x)),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_CEIL, FLOATING),
    ),
    OpInfo(
        "Div",
        safe=safe.divided,
        result=result_types.broadcast,
        fold=_divide,
        symbols=_divided_symbols,
        symbol_inputs=2,
        speculatable=_divides,
        quirks=_DIVISION,
        native=divided(lambda n: arithmetic.ELEMENT_WISE_DIVIDE),
        directml=(
            binary(arithmetic.ELEMENT_WISE_DIVIDE, FLOATING),
            binary(arithmetic.ELEMENT_WISE_DIVIDE, INTEGERS, known=_by_no_zero),
        ),
    ),
    OpInfo(
        "Exp",
        result=result_types.same,
        fold=in_double(lambda node, x: np.exp(x)),
        speculatable=always,
        directml=(unary(unary_ops.ELEMENT_WISE_EXP), unary(meanings.EXP, DOUBLE)),
    ),
    OpInfo(
        "Floor",
        result=result_types.same,
        fold=in_single(lambda node, x: np.floor(x)),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_FLOOR, FLOATING),
    ),
    OpInfo(
        "Log",
        result=result_types.same,
        fold=in_double(lambda node, x: np.log(x)),
        speculatable=always,
        directml=(unary(unary_ops.ELEMENT_WISE_LOG), unary(meanings.LOG, DOUBLE)),
    ),
    OpInfo(
        "Mod",
        safe=safe.divided,
        result=result_types.broadcast,
        fold=_mod,
        speculatable=_divides,
        quirks=(
            *_DIVISION,
            Quirk(
                "onnxruntime takes remainders of 64-bit integers as if they were float64",
                lambda n: n.attribute("fmod") == 1 and is_64_bit(n),
            ),
        ),
        directml=(
            DirectMLForm(arithmetic.ELEMENT_WISE_MODULUS_TRUNCATE, inputs=(2,), attributes=_fmod, since=10),
            DirectMLForm(
                arithmetic.ELEMENT_WISE_MODULUS_TRUNCATE, INTEGERS, (2,), _fmod, since=10, known=_by_no_zero
            ),
            DirectMLForm(arithmetic.ELEMENT_WISE_MODULUS_FLOOR, INTEGERS, (2,), since=10, known=_by_no_zero),
        ),
        native=divided(_modulus),
        changed=True,
    ),
    OpInfo(
        "Mul",
        result=result_types.broadcast,
        fold=old_or(np.multiply),
        symbols=lambda n, g, s: np.asarray(g[0] * g[1], object),
        symbol_inputs=2,
        speculatable=broadcasts,
        directml=binary(arithmetic.ELEMENT_WISE_MULTIPLY, NUMBERS),
    ),
    OpInfo(
        "Neg",
        result=result_types.same,
        fold=like(np.negative),
        symbols=lambda n, g, s: map_symbols(lambda a: -a, g[0]),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_NEGATE, SIGNED),
    ),
    OpInfo(
        "Pow",
        result=result_types.broadcast,
        fold=_pow,
        speculatable=lambda n: broadcasts(n) and not is_integer(n, 0),
        quirks=(Quirk("onnxruntime takes powers of 64-bit integers as if they were float64", is_64_bit),),
        directml=(
            DirectMLForm(
                meanings.SMALL_POWER,
                NUMBERS,
                (2,),
                mixed=True,
                result=lambda n, given: given if n.dtype(1) in NUMBERS else None,
                known=_to_a_small_power,
            ),
            binary(arithmetic.ELEMENT_WISE_POW),
        ),
    ),
    OpInfo(
        "Reciprocal",
        result=result_types.same,
        fold=in_single(lambda node, x: 1 / x),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_RECIP, FLOATING),
    ),
    OpInfo(
        "Round",
        result=result_types.same,
        fold=in_single(lambda node, x: np.rint(x)),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ROUND, FLOATING),
    ),
    OpInfo(
        "Sign",
        result=result_types.same,
        fold=_sign,
        speculatable=always,
        directml=unary(meanings.SIGN, NUMBERS),
    ),
    OpInfo(
        "Sqrt",
        result=result_types.same,
        fold=in_single(lambda node, x: np.sqrt(x)),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_SQRT, FLOATING),
    ),
    OpInfo(
        "Sub",
        result=result_types.broadcast,
        fold=old_or(np.subtract),
        symbols=lambda n, g, s: np.asarray(g[0] - g[1], object),
        symbol_inputs=2,
        speculatable=broadcasts,
        directml=binary(arithmetic.ELEMENT_WISE_SUBTRACT, NUMBERS),
    ),
)
