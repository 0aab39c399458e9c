"""Expressions of elements as ONNX nodes: the fourth way to read a meaning.

select(x < 0, x * 0.01, x)    ->    Less, Mul, Where
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anydml.errors import Problem, Unsupported
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.dtypes import (
    BOOL,
    FLOAT16,
    FLOATING,
    INT16,
    INT32,
    INT64,
    NUMPY,
    SIGNED,
    SIZE,
    UINT16,
    UINT64,
)
from anydml.ops.elementary import copysign
from anydml.ops.expr import (
    Expr,
    absolute,
    and_,
    div,
    eq,
    inline_calls,
    lt,
    neg,
    or_,
    select,
    walk,
    with_args,
)

_SAME = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "neg": "Neg",
    "absolute": "Abs",
    "sqrt": "Sqrt",
    "floor": "Floor",
    "ceil": "Ceil",
    "rint": "Round",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "select": "Where",
    "select_lazy": "Where",
}
_OF_BOOLS = {"and": "And", "or": "Or", "xor": "Xor", "not": "Not"}
_OF_BITS = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor", "not": "BitwiseNot"}
_FUNCTIONS = {
    "exp": "Exp",
    "log": "Log",
    "tanh": "Tanh",
    "erf": "Erf",
    "sigmoid": "Sigmoid",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "max": "Max",
    "min": "Min",
    "pow": "Pow",
    "softplus": "Softplus",
    "gelu": "Gelu",
}
"""Functions that ONNX has, too."""


def nodes_of(expr: Expr, operands: Sequence[str], o: OnnxNodes) -> str:
    """The edge that the expression's value has; operands are edges of its types.

    Raises:
        Unsupported: ONNX has no words for it.
    """
    return _Writer(operands, o).edge(expr)


def _without_bits(expr: Expr) -> Expr:
    """The same where signs were copied bit by bit; the sign of a NaN, which says nothing, is +."""
    made: dict[Expr, Expr] = {}
    for e in walk(expr):
        signed = _copied_sign(e)
        if signed is None:
            made[e] = with_args(e, tuple(made[a] for a in e.args))
            continue
        magnitude, x = absolute(made[signed[0]]), made[signed[1]]
        negative = or_(lt(x, 0.0), and_(eq(x, 0.0), lt(div(1.0, x), 0.0)))
        made[e] = select(negative, neg(magnitude), magnitude)
    return made[expr]


def _copied_sign(e: Expr) -> tuple[Expr, Expr] | None:
    """What `copysign` was told, if it made this."""
    if e.opcode != "bitcast" or e.dtype not in FLOATING or e.args[0].opcode != "or":
        return None
    inner = [a.args[0] for a in e.args[0].args if a.opcode == "and" and a.args[0].opcode == "bitcast"]
    if len(inner) != 2:
        return None
    x, magnitude = (b.args[0] for b in inner)
    return (magnitude, x) if copysign(magnitude, x) == e else None


class _Writer:
    def __init__(self, operands: Sequence[str], o: OnnxNodes) -> None:
        self.operands, self.o = operands, o
        self.edges: dict[Expr, str] = {}

    def edge(self, expr: Expr) -> str:
        said = _without_bits(expr)
        for e in walk(said):
            if e not in self.edges:
                self.edges[e] = self._one(e)
        return self.edges[said]

    def _one(self, e: Expr) -> str:
        o, args = self.o, [self.edges[a] for a in e.args]
        made: Any = None
        if e.opcode == "read":
            return self.operands[int(e.value)]
        if e.opcode == "constant":
            return o.constant(e.value, np.bool_ if e.dtype is BOOL else NUMPY[e.dtype])
        if e.opcode == "call":
            made = self._call(e, args)
            if made is None:
                return self.edge(inline_calls(e))
        elif e.opcode in _SAME:
            made = o(_SAME[e.opcode], *args)
        elif e.opcode in _OF_BOOLS:
            made = o((_OF_BOOLS if e.dtype is BOOL else _OF_BITS)[e.opcode], *args)
        elif e.opcode == "ne":
            made = o("Not", o("Equal", *args))
        elif e.opcode == "fma":
            made = o("Add", o("Mul", args[0], args[1]), args[2])
        elif e.opcode == "trunc":
            made = o("Mul", o("Sign", args[0]), o("Floor", o("Abs", args[0])))
        elif e.opcode == "div":
            made = self._divide(e, args, "Div")
        elif e.opcode == "rem":
            made = self._divide(e, args, "Mod", fmod=1)
        elif e.opcode in ("shl", "shr") and e.dtype not in SIGNED:
            made = o("BitShift", *args, direction="LEFT" if e.opcode == "shl" else "RIGHT")
        elif e.opcode == "convert":
            made = self._convert(e, args[0])
        elif e.opcode in _ROWS:
            made = self._row(e, args[0])
        if made is None:
            message = f"expected what ONNX can say, but it has no operator for {e.opcode} of {e.dtype.label}"
            raise Unsupported(Problem("to_onnx", message))
        return str(made)

    def _call(self, e: Expr, args: list[str]) -> Any:
        """A function that ONNX has, too, or has the parts of."""
        o, name = self.o, e.value.name
        if name in _FUNCTIONS and len(args) == (2 if name in ("max", "min", "pow") else 1):
            return o(_FUNCTIONS[name], *args)
        if name in ("expm1", "expm1_of_quotient"):
            power = args[0] if name == "expm1" else o("Div", *args)
            return o("Sub", o("Exp", power), o.constant(1, NUMPY[e.dtype]))
        if name == "fmod":
            return o("Mod", *args, fmod=1)
        if name == "softplus_of_product":
            return o("Softplus", o("Mul", *args))
        if name == "swish":
            return o("Mul", args[0], o("Sigmoid", o("Mul", *args)))
        return None

    def _divide(self, e: Expr, args: list[str], op: str, **attributes: Any) -> str:
        """Integers by 0 are 0 here, and trap elsewhere, as the least by -1 does; of Div and Mod."""
        if e.dtype in FLOATING or (op == "Mod" and e.dtype is UINT64):  # of which onnxruntime has no Where
            return str(self.o(op, *args, **attributes))
        o, (x, y), dtype = self.o, args, e.dtype
        if dtype in (INT16, UINT16):  # nor of these
            x, y, dtype = o.cast(x, INT32), o.cast(y, INT32), INT32
        zero, one = (o.constant(n, NUMPY[dtype]) for n in (0, 1))
        none = o("Equal", y, zero)
        y = o("Where", none, one, y)
        if dtype is INT64 or (op == "Div" and dtype is INT32):
            turned = o("Equal", y, o.constant(-1, NUMPY[dtype]))
            y = o("Where", turned, one, y)
            quotient = o("Div", x, y)
            if op == "Div":
                made = o("Where", turned, o("Sub", zero, x), quotient)
            else:  # onnxruntime's Mod of INT64 went by float64 before 1.32
                made = o("Sub", x, o("Mul", quotient, y))
        else:
            made = o(op, x, y, **attributes)
        made = o("Where", none, zero, made)
        return str(made if dtype is e.dtype else o.cast(made, e.dtype))

    def _convert(self, e: Expr, x: str) -> str:
        """Floats to integers saturate here, and a NaN is 0; elsewhere they do as the machine does."""
        given = e.args[0].dtype
        if given not in FLOATING or e.dtype in FLOATING or e.dtype is BOOL:
            return self.o.cast(x, e.dtype)
        info = np.iinfo(NUMPY[e.dtype])
        low, high = float(info.min), float(info.max)
        if given is FLOAT16 or SIZE[e.dtype] >= SIZE[given]:
            high = float(np.nextafter(np.float32(high), np.float32(0)))
        if given is FLOAT16:
            return self.o.cast(x, e.dtype)
        bounded = self.o("Clip", x, *(self.o.constant(n, NUMPY[given]) for n in (low, high)))
        known = self.o("Where", self.o("IsNaN", x), self.o.constant(0, NUMPY[given]), bounded)
        return self.o.cast(known, e.dtype)

    def _row(self, e: Expr, x: str) -> str:
        return str(self.o(_ROWS[e.opcode], x, self.o.integers(e.value), keepdims=1))


_ROWS = {"row_max": "ReduceMax", "row_min": "ReduceMin", "row_sum": "ReduceSum"}
