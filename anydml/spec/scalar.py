"""The language in which an operator's meaning is written, once, and read three ways.

A record's `scalar` is called with symbols (`read`) and gives a typed expression tree. NumPy evaluates
the tree (`evaluate`: the reference), LLVM compiles it (codegen.emit: the kernels), and `text` prints
it (the documentation).

    >>> from anydml.spec.dtypes import FLOAT32, UINT8
    >>> c, a, b = read(0, UINT8), read(1, FLOAT32), read(2, FLOAT32)
    >>> text(select(ne(c, 0), a, b), ["c", "a", "b"])
    'c != 0 ? a : b'

An expression is one of `Expr.word`:
    read        the element of operand number `value`
    constant    the number `value`
    select      of a truth and two values of one type, the first where true; copies bits
    eq, ne      truth of two values of one type, as IEEE 754 compares (NaN equals nothing)
    absolute    magnitude; of a float: the sign bit cleared (NaN payloads stay)
    convert     a truth as 0 or 1 of an integer type

No word can trap (none divides), so every expression may be evaluated speculatively. A word that can
must say so here, beside its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from anydml.spec.dtypes import FLOATING, NUMPY
from anydml.spec.enums import TensorDataType

BOOL: Literal["bool"] = "bool"
"""The type of a truth value inside an expression. It never reaches memory: see `convert`."""

ScalarType = TensorDataType | Literal["bool"]
Word = Literal["read", "constant", "select", "eq", "ne", "absolute", "convert"]


@dataclass(frozen=True)
class Expr:
    """A typed expression. Equal trees are equal (and hash so): they key the kernel cache."""

    word: Word
    dtype: ScalarType
    args: tuple[Expr, ...] = ()
    value: int | float = 0


Operand = Expr | int | float
Scalar = Callable[..., Expr]


def read(index: int, dtype: TensorDataType) -> Expr:
    return Expr("read", dtype, (), index)


def constant(value: int | float, dtype: TensorDataType) -> Expr:
    """A number, rounded to the type."""
    with np.errstate(over="ignore"):
        return Expr("constant", dtype, (), np.array(value, NUMPY[dtype]).item())


def select(condition: Expr, a: Operand, b: Operand) -> Expr:
    if condition.dtype != BOOL:
        raise TypeError(f"select needs a truth, not {condition.dtype}")
    x, y = _alike(a, b)
    return Expr("select", x.dtype, (condition, x, y))


def eq(a: Operand, b: Operand) -> Expr:
    return Expr("eq", BOOL, _alike(a, b))


def ne(a: Operand, b: Operand) -> Expr:
    return Expr("ne", BOOL, _alike(a, b))


def absolute(a: Expr) -> Expr:
    return Expr("absolute", a.dtype, (a,))


def convert(a: Expr, dtype: ScalarType) -> Expr:
    """`a` as `dtype`; only a truth has anywhere to go so far."""
    if a.dtype == dtype:
        return a
    if a.dtype != BOOL or dtype == BOOL or dtype in FLOATING:
        raise TypeError(f"no conversion from {a.dtype} to {dtype}")
    return Expr("convert", dtype, (a,))


def _alike(a: Operand, b: Operand) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type; a Python number takes the other's type."""
    if isinstance(a, Expr):
        other = b if isinstance(b, Expr) else _number(b, a.dtype)
        if a.dtype != other.dtype:
            raise TypeError(f"operands differ in type: {a.dtype} and {other.dtype}")
        return a, other
    if isinstance(b, Expr):
        return _number(a, b.dtype), b
    raise TypeError("at least one operand must be an expression")


def _number(value: int | float, dtype: ScalarType) -> Expr:
    if dtype == BOOL:
        raise TypeError("a number cannot stand for a truth")
    return constant(value, dtype)


# ---- reading it ------------------------------------------------------------------------------------

Array = NDArray[Any]

_NUMPY: Mapping[str, Callable[..., Array]] = {
    "select": np.where,
    "eq": np.equal,
    "ne": np.not_equal,
    "absolute": np.abs,
}


def evaluate(expr: Expr, operands: Sequence[Array]) -> Array:
    """The expression on whole arrays (broadcast against each other), by NumPy."""
    if expr.word == "read":
        return operands[int(expr.value)]
    if expr.word == "constant":
        assert expr.dtype != BOOL
        return np.array(expr.value, NUMPY[expr.dtype])
    args = [evaluate(arg, operands) for arg in expr.args]
    if expr.word == "convert":
        assert expr.dtype != BOOL
        return args[0].astype(NUMPY[expr.dtype])
    return _NUMPY[expr.word](*args)


_TEXT = {"select": "{} ? {} : {}", "eq": "{} == {}", "ne": "{} != {}", "absolute": "|{}|"}


def text(expr: Expr, names: Sequence[str]) -> str:
    """The expression as a formula in the operands' names."""

    def inner(e: Expr) -> str:
        shown = text(e, names)
        return f"({shown})" if e.word == "select" else shown

    if expr.word == "read":
        return names[int(expr.value)]
    if expr.word == "constant":
        return {float("inf"): "∞", float("-inf"): "-∞"}.get(expr.value, f"{expr.value:g}")
    if expr.word == "convert":
        return f"{inner(expr.args[0])} ? 1 : 0"
    return _TEXT[expr.word].format(*map(inner, expr.args))
