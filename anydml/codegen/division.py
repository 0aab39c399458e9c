"""Integer division that cannot trap, of vectors in floats: processors divide no vectors of integers.

Up to 32 bits floats have room for every quotient to be exact. Of 64 bits that is so where no lane of a vector
is far from 0, as hardly any is; where one is, its vector is divided number by number.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anydml.codegen.llvm_types import element_type, vector
from anydml.ops.dtypes import BOOL, FLOAT32, FLOAT64, FLOATING, INT64, SIZE, UINT64, UNSIGNED, ScalarType
from anydml.ops.elementary64 import MAGIC64
from anydml.ops.expr import Expr, add, bitcast, constant, div, eq, ge, mul, or_, select, sub, trunc

if TYPE_CHECKING:
    from anydml.codegen.emit import Emitter

NEAR = 2**51
"""Numbers below are near 0: a whole number added to MAGIC64 stands in the float's last bits."""


def branches(expr: Expr) -> bool:
    """Whether it is a division of which some lanes are computed apart."""
    divides = expr.opcode in ("div", "rem") and expr.dtype not in FLOATING
    return divides and SIZE[expr.dtype] == 8 and not _harmless(expr.args[1])


def quotient(e: Emitter, expr: Expr) -> str:
    return _divided(e, expr, "div")


def remainder(e: Emitter, expr: Expr) -> str:
    if SIZE[expr.dtype] == 8 or _harmless(expr.args[1]):
        return _divided(e, expr, "rem")
    kind, (a, b) = e.type(expr.dtype), (e.value(arg) for arg in expr.args)
    product = e.line(f"mul {kind} {_divided(e, expr, 'div')}, {b}")
    rest = e.line(f"sub {kind} {a}, {product}")
    return _zero_where(e, _is(e, expr.dtype, b, 0), expr.dtype, rest)


def _divided(e: Emitter, expr: Expr, opcode: str) -> str:
    dtype, (a, b) = expr.dtype, expr.args
    assert dtype is not BOOL
    if _harmless(b):  # which LLVM makes a multiplication
        return e.line(f"{_sign(dtype)}{opcode} {e.type(dtype)} {e.value(a)}, {e.value(b)}")
    if SIZE[dtype] < 8:
        return _by_wider_floats(e, expr)
    if e.lanes == 1:
        return _one_by_one(e, expr, opcode)
    usual = e.value(_near_quotient(a, b) if opcode == "div" else _near_remainder(a, b))
    far = or_(_is_far(a), _is_far(b))
    return e.lazily(far, partial(_one_by_one, e, expr, opcode), usual, e.type(dtype))


def _by_wider_floats(e: Emitter, expr: Expr) -> str:
    dtype, kind, sign = expr.dtype, e.type(expr.dtype), _sign(expr.dtype)
    a, b = (e.value(arg) for arg in expr.args)
    wide = e.type(FLOAT64 if SIZE[dtype] == 4 else FLOAT32)
    signed = vector("i64" if SIZE[dtype] == 4 else "i32", e.lanes)
    none = _is(e, dtype, b, 0)
    safe = e.line(f"select {e.type(BOOL)} {none}, {kind} {e.splat(1, element_type(dtype))}, {kind} {b}")
    x = e.line(f"{sign}itofp {kind} {a} to {wide}")
    y = e.line(f"{sign}itofp {kind} {safe} to {wide}")
    real = e.line(f"fdiv {wide} {x}, {y}")
    whole = e.line(f"fptosi {wide} {real} to {signed}")
    return _zero_where(e, none, dtype, e.line(f"trunc {signed} {whole} to {kind}"))


def _one_by_one(e: Emitter, expr: Expr, opcode: str) -> str:
    dtype, kind, sign = expr.dtype, e.type(expr.dtype), _sign(expr.dtype)
    a, b = (e.value(arg) for arg in expr.args)
    none = trap = _is(e, dtype, b, 0)
    if sign == "s":  # INT_MIN / -1 traps, too: the dividend divided by 1 wraps as it should
        both = e.line(f"and {e.type(BOOL)} {_is(e, dtype, b, -1)}, {_is(e, dtype, a, -(2**63))}")
        trap = e.line(f"or {e.type(BOOL)} {none}, {both}")
    safe = e.line(f"select {e.type(BOOL)} {trap}, {kind} {e.splat(1, element_type(dtype))}, {kind} {b}")
    return _zero_where(e, none, dtype, e.line(f"{sign}{opcode} {kind} {a}, {safe}"))


def _near_quotient(a: Expr, b: Expr) -> Expr:
    """Of numbers near 0. The float next to a quotient that is below a whole number is below it, too, as they
    differ by 1 / b at least."""
    whole = trunc(div(_as_float(a), _as_float(_divisor(b))))
    return select(eq(b, 0), 0, _as_integer(whole, a.dtype))


def _near_remainder(a: Expr, b: Expr) -> Expr:
    x, y = _as_float(a), _as_float(_divisor(b))
    return _as_integer(
        sub(x, mul(trunc(div(x, y)), y)), a.dtype
    )  # whole numbers that floats have, all of them


def _divisor(b: Expr) -> Expr:
    return select(eq(b, 0), 1, b)


def _is_far(x: Expr) -> Expr:
    return ge(x, NEAR) if x.dtype in UNSIGNED else ge(bitcast(add(x, NEAR), UINT64), 2 * NEAR)


_BITS = bitcast(constant(MAGIC64, FLOAT64), INT64)


def _as_float(x: Expr) -> Expr:
    return sub(bitcast(add(bitcast(x, INT64), _BITS), FLOAT64), MAGIC64)


def _as_integer(x: Expr, dtype: ScalarType) -> Expr:
    return bitcast(sub(bitcast(add(x, MAGIC64), INT64), _BITS), dtype)


def _sign(dtype: ScalarType) -> str:
    return "u" if dtype in UNSIGNED else "s"


def _is(e: Emitter, dtype: ScalarType, value: str, number: int) -> str:
    return e.line(f"icmp eq {e.type(dtype)} {value}, {e.splat(number, element_type(dtype))}")


def _zero_where(e: Emitter, condition: str, dtype: ScalarType, value: str) -> str:
    kind, zero = e.type(dtype), e.splat(0, element_type(dtype))
    return e.line(f"select {e.type(BOOL)} {condition}, {kind} {zero}, {kind} {value}")


def _harmless(divisor: Expr) -> bool:
    """A known divisor on which no integer division traps."""
    return divisor.opcode == "constant" and divisor.value not in (0, -1)
