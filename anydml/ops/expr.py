"""The language in which an operator's meaning is written, once, and read three ways.

A definition's `scalar` is called with symbols (`read`) and gives a typed expression. NumPy evaluates it
(ops.interpret: the reference), LLVM compiles it (codegen.emit: the kernels), and `text` prints it
(ops.formula: the documentation).

    >>> from anydml.ops.dtypes import FLOAT32, UINT8
    >>> from anydml.ops.formula import text
    >>> c, a, b = read(0, UINT8), read(1, FLOAT32), read(2, FLOAT32)
    >>> text(select(ne(c, 0), a, b), ["c", "a", "b"])
    'c != 0 ? a : b'

An expression is one of `Expr.opcode`:

    read, constant               element of operand number `value`; the number `value`
    select                       of a bool and two values of one type, the first where true; copies bits
    select_lazy                  the same, and the first is computed only where some lane needs it
    eq ne lt le gt ge            bool, as IEEE 754 compares (NaN equals nothing)
    and or xor not               of bools, or of the bits of integers
    add sub mul                  integers wrap around
    div rem                      rem has the dividend's sign; integers: x div 0 = x rem 0 = 0, no trap
    neg absolute                 of a float: the sign bit alone (NaN payloads stay)
    fma                          a * b + c with one rounding
    sqrt floor ceil trunc rint   rint: halves to even
    shl shr                      a count of the width or more gives 0; shr of a signed integer keeps its sign
    popcount                     number of set bits
    convert                      to another type; float to integer truncates, saturates, and takes NaN to 0
    bitcast                      the same bits as another type of the same width
    call                         a function (`value`) that is itself written in this language
    row_max row_min row_sum      over the axes `value`, the same for every element of the row; floats are
                                 summed as FLOAT64, a NaN is neither the largest nor the smallest
    row_index                    position in the row, counted over the axes `value` in row-major order

No op can trap, so every expression may be evaluated speculatively. Arithmetic on FLOAT16 happens in
FLOAT32. Expressions are interned: equal ones are the same object, so they compare and hash by identity
and a shared subexpression is computed once.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.locks import Lock
from anydml.ops.dtypes import BOOL, FLOAT16, FLOAT32, FLOATING, NUMPY, SIZE, ScalarType


class Expr:
    """A typed expression; made by the functions below."""

    __slots__ = ("__weakref__", "args", "dtype", "opcode", "value")

    opcode: str
    dtype: ScalarType
    args: tuple[Expr, ...]
    value: Any

    def __repr__(self) -> str:
        return f"<{self.opcode} {self.dtype}>"


@dataclass(frozen=True)
class Function:
    """A function of the language: `body` gives the expression of a call on its arguments."""

    name: str
    body: Callable[..., Expr]
    scales: bool = False
    """It is the first argument times 2 to the power of the second, for which AVX-512 has an instruction."""


Arg = Expr | int | float
Scalar = Callable[..., Expr]
_ALL: weakref.WeakValueDictionary[Any, Expr] = weakref.WeakValueDictionary()
_making = Lock()


def _after_fork() -> None:
    global _making  # whoever held it is not in the child
    _making = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def make(opcode: str, dtype: ScalarType, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
    """The one expression of these parts; for the functions below, and others like them."""
    if opcode in _TRUTHFUL and (simpler := _simpler(opcode, dtype, args)) is not None:
        return simpler
    # Numbers by their bits: -0.0 is not 0.0, and a NaN is itself.
    mark = struct.pack("d", value) if isinstance(value, float) else value
    key = (opcode, dtype, tuple(map(id, args)), type(value), mark)
    found = _ALL.get(key)
    if found is None:
        made = Expr()
        made.opcode, made.dtype, made.args, made.value = opcode, dtype, args, value
        with _making:  # another thread may have made it meanwhile
            return _ALL.setdefault(key, made)
    return found


_TRUTHFUL = frozenset({"eq", "ne", "and", "or", "xor"})


def _simpler(opcode: str, dtype: ScalarType, args: tuple[Expr, ...]) -> Expr | None:
    """Truths that take the way over integers, as they do between operators, without that way."""
    a, b = args
    truth = _as_bool(a)
    if truth is None:
        return None
    if opcode in ("eq", "ne"):
        if b.opcode == "constant" and b.value == 0:
            return truth if opcode == "ne" else not_(truth)
        return None
    other = _as_bool(b)
    return None if other is None else convert(make(opcode, BOOL, (truth, other)), dtype)


def _as_bool(a: Expr) -> Expr | None:
    """The bool that an integer is made from."""
    return a.args[0] if a.opcode == "convert" and a.args[0].dtype is BOOL else None


# ---- leaves and choices ------------------------------------------------------------------------------


def read(index: int, dtype: ScalarType) -> Expr:
    return make("read", dtype, (), index)


def constant(value: int | float, dtype: ScalarType) -> Expr:
    """A number, rounded to the type."""
    with np.errstate(over="ignore"):
        return make("constant", dtype, (), np.array(value, NUMPY[dtype]).item())


def select(condition: Expr, a: Arg, b: Arg) -> Expr:
    _require_bool(condition)
    x, y = _unify_operands(a, b)
    return x if x is y else make("select", x.dtype, (condition, x, y))


def select_lazy(condition: Expr, a: Arg, b: Arg) -> Expr:
    """`select` where `a` is expensive and hardly ever chosen."""
    _require_bool(condition)
    x, y = _unify_operands(a, b)
    return make("select_lazy", x.dtype, (condition, x, y))


# ---- comparisons and logic ---------------------------------------------------------------------------


def eq(a: Arg, b: Arg) -> Expr:
    return make("eq", BOOL, _unify_operands(a, b))


def ne(a: Arg, b: Arg) -> Expr:
    return make("ne", BOOL, _unify_operands(a, b))


def lt(a: Arg, b: Arg) -> Expr:
    return make("lt", BOOL, _unify_operands(a, b))


def le(a: Arg, b: Arg) -> Expr:
    return make("le", BOOL, _unify_operands(a, b))


def gt(a: Arg, b: Arg) -> Expr:
    return make("gt", BOOL, _unify_operands(a, b))


def ge(a: Arg, b: Arg) -> Expr:
    return make("ge", BOOL, _unify_operands(a, b))


def is_nan(a: Expr) -> Expr:
    return ne(a, a)


def and_(a: Arg, b: Arg) -> Expr:
    return _bits("and", a, b)


def or_(a: Arg, b: Arg) -> Expr:
    return _bits("or", a, b)


def xor(a: Arg, b: Arg) -> Expr:
    return _bits("xor", a, b)


def not_(a: Expr) -> Expr:
    _no_float(a)
    return make("not", a.dtype, (a,))


# ---- arithmetic --------------------------------------------------------------------------------------


def add(a: Arg, b: Arg) -> Expr:
    return _arithmetic("add", a, b)


def sub(a: Arg, b: Arg) -> Expr:
    return _arithmetic("sub", a, b)


def mul(a: Arg, b: Arg) -> Expr:
    x, y = _promote_to_float32(a, b)
    if y.opcode == "constant" and y.value == 1:
        return x
    if x.opcode == "constant" and x.value == 1:
        return y
    return make("mul", x.dtype, (x, y))


def div(a: Arg, b: Arg) -> Expr:
    return _arithmetic("div", a, b)


def rem(a: Arg, b: Arg) -> Expr:
    return _arithmetic("rem", a, b)


def fma(a: Arg, b: Arg, c: Arg) -> Expr:
    """a * b + c with one rounding."""
    first = next(x for x in (a, b, c) if isinstance(x, Expr))
    dtype = FLOAT32 if first.dtype is FLOAT16 else first.dtype
    x, y, z = (convert(e, dtype) if isinstance(e, Expr) else _number(e, dtype) for e in (a, b, c))
    if dtype not in FLOATING or not x.dtype == y.dtype == z.dtype:
        raise TypeError(f"fma needs floats of one type, not {dtype}")
    return make("fma", dtype, (x, y, z))


def neg(a: Expr) -> Expr:
    return make("neg", a.dtype, (a,))


def absolute(a: Expr) -> Expr:
    return make("absolute", a.dtype, (a,))


def sqrt(a: Expr) -> Expr:
    return _round_op("sqrt", a)


def floor(a: Expr) -> Expr:
    return _round_op("floor", a)


def ceil(a: Expr) -> Expr:
    return _round_op("ceil", a)


def trunc(a: Expr) -> Expr:
    return _round_op("trunc", a)


def rint(a: Expr) -> Expr:
    return _round_op("rint", a)


def maximum(a: Arg, b: Arg) -> Expr:
    """The larger; a NaN if either is one; either zero of two."""
    x, y = _unify_operands(a, b)
    return call(_MAX, x.dtype, x, y)


def minimum(a: Arg, b: Arg) -> Expr:
    """The smaller; a NaN if either is one; either zero of two."""
    x, y = _unify_operands(a, b)
    return call(_MIN, x.dtype, x, y)


def _extreme(wins: Callable[[Arg, Arg], Expr]) -> Callable[[Expr, Expr], Expr]:
    def body(x: Expr, y: Expr) -> Expr:
        if x.opcode == "constant":
            x, y = y, x
        if x.dtype not in FLOATING:
            return select(wins(x, y), x, y)
        if y.opcode == "constant" and y.value == y.value:
            return select(wins(y, x), y, x)  # a NaN in x loses the comparison and so is taken
        return select(is_nan(x), x, select(wins(x, y), x, y))

    return body


_MAX, _MIN = Function("max", _extreme(gt)), Function("min", _extreme(lt))


# ---- bits and types ----------------------------------------------------------------------------------


def shl(a: Arg, count: Arg) -> Expr:
    return _bits("shl", a, count)


def shr(a: Arg, count: Arg) -> Expr:
    return _bits("shr", a, count)


def popcount(a: Expr) -> Expr:
    _no_float(a)
    return make("popcount", a.dtype, (a,))


def convert(a: Expr, dtype: ScalarType) -> Expr:
    """`a` as `dtype`."""
    if a.dtype == dtype:
        return a
    if dtype is BOOL:
        raise TypeError(f"{a.dtype} is no bool; compare it with something")
    if a.opcode == "constant" and not (a.dtype in FLOATING and dtype not in FLOATING):
        value = a.value
        if dtype not in FLOATING and a.dtype is not BOOL:  # an integer of another width wraps around
            value = np.array(value, NUMPY[a.dtype]).astype(NUMPY[dtype]).item()
        return constant(value, dtype)
    if dtype is FLOAT16 and a.opcode == "convert" and a.args[0].dtype is FLOAT16:
        return a.args[0]  # widened for nothing
    if dtype is FLOAT16 and a.dtype is not FLOAT32:
        return convert(convert(a, FLOAT32), FLOAT16)
    if a.dtype is FLOAT16 and dtype is not FLOAT32:
        return convert(convert(a, FLOAT32), dtype)
    if dtype is FLOAT32 and _is_narrow_whole(a):
        return _clamp_cast(a.args[0], a.dtype)
    return make("convert", dtype, (a,))


def _is_narrow_whole(a: Expr) -> bool:
    """Whether `a` is a FLOAT32 converted to an integer that every FLOAT32 could hold."""
    from_float = a.opcode == "convert" and a.args[0].dtype is FLOAT32
    return from_float and a.dtype not in FLOATING and SIZE[a.dtype] < 4


def _clamp_cast(x: Expr, dtype: ScalarType) -> Expr:
    """A FLOAT32 converted to a narrow integer and back, without the way there."""
    info = np.iinfo(NUMPY[dtype])
    low, high = float(info.min), float(info.max)
    number = x if low == 0 else select(is_nan(x), 0.0, x)
    above = select(gt(number, low), number, low)  # and 0 for a NaN, where low is 0
    whole = trunc(select(lt(above, high), above, high))
    return whole if low == 0 else add(whole, 0.0)  # -0 is no integer


def bitcast(a: Expr, dtype: ScalarType) -> Expr:
    """The bits of `a` read as another type of its width."""
    if SIZE[a.dtype] != SIZE[dtype]:
        raise TypeError(f"{a.dtype} and {dtype} differ in width")
    return a if a.dtype == dtype else make("bitcast", dtype, (a,))


def call(function: Function, dtype: ScalarType, *args: Arg) -> Expr:
    """`function` of arguments that are computed with as `dtype`."""
    given = tuple(convert(a, dtype) if isinstance(a, Expr) else constant(a, dtype) for a in args)
    return make("call", dtype, given, function)


def inline_calls(expr: Expr) -> Expr:
    """What a call stands for."""
    return convert(expr.value.body(*expr.args), expr.dtype)


# ---- helpers -----------------------------------------------------------------------------------------


def walk(*roots: Expr, deep: bool = False) -> Iterator[Expr]:
    """Every subexpression once, arguments before what uses them; `deep`: what calls stand for, not them."""
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
        elif expr not in seen:
            seen.add(expr)
            if deep and expr.opcode == "call":
                stack.append((inline_calls(expr), False))
            else:
                stack.append((expr, True))
                stack += [(arg, False) for arg in reversed(expr.args)]


def with_args(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same op of other arguments of the same types."""
    if expr.opcode == "convert":
        return convert(args[0], expr.dtype)
    return make(expr.opcode, expr.dtype, args, expr.value)


def _unify_operands(a: Arg, b: Arg) -> tuple[Expr, Expr]:
    """Both operands as expressions of one type; a Python number takes the other's type."""
    if isinstance(a, Expr):
        other = b if isinstance(b, Expr) else _number(b, a.dtype)
        if a.dtype != other.dtype:
            if {a.dtype, other.dtype} == {FLOAT16, FLOAT32}:  # arithmetic has widened one of them
                return convert(a, FLOAT32), convert(other, FLOAT32)
            raise TypeError(f"operands differ in type: {a.dtype} and {other.dtype}")
        return a, other
    if isinstance(b, Expr):
        return _number(a, b.dtype), b
    raise TypeError("at least one operand must be an expression")


def _promote_to_float32(a: Arg, b: Arg) -> tuple[Expr, Expr]:
    x, y = _unify_operands(a, b)
    if x.dtype is BOOL:
        raise TypeError("a truth has no arithmetic")
    return (convert(x, FLOAT32), convert(y, FLOAT32)) if x.dtype is FLOAT16 else (x, y)


def _arithmetic(opcode: str, a: Arg, b: Arg) -> Expr:
    x, y = _promote_to_float32(a, b)
    return make(opcode, x.dtype, (x, y))


def _round_op(opcode: str, a: Expr) -> Expr:
    x = convert(a, FLOAT32) if a.dtype is FLOAT16 else a
    if x.dtype not in FLOATING:
        raise TypeError(f"{opcode} needs a float, not {x.dtype}")
    return make(opcode, x.dtype, (x,))


def _bits(opcode: str, a: Arg, b: Arg) -> Expr:
    x, y = _unify_operands(a, b)
    _no_float(x)
    return make(opcode, x.dtype, (x, y))


def _no_float(a: Expr) -> None:
    if a.dtype in FLOATING:
        raise TypeError(f"a {a.dtype} has no bits here; bitcast it")


def _require_bool(condition: Expr) -> None:
    if condition.dtype is not BOOL:
        raise TypeError(f"select needs a truth, not {condition.dtype}")


def _number(value: int | float, dtype: ScalarType) -> Expr:
    if dtype is BOOL:
        raise TypeError("a number cannot stand for a bool")
    return constant(value, dtype)
