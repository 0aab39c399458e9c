"""Expressions as formulas, for documentation and `explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from anydml.ops.dtypes import BOOL
from anydml.ops.expr import Expr, walk

_INFIX = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "rem": "rem",
    "shl": "<<",
    "shr": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
}


def text(expr: Expr, names: Sequence[str], known: Mapping[Expr, str] | None = None) -> str:
    """The expression as a formula in the operands' names; `known` subexpressions by their names."""
    return _text(expr, names, known or {}, False)


def _text(expr: Expr, names: Sequence[str], known: Mapping[Expr, str], inside: bool) -> str:
    if expr in known:
        return known[expr]
    opcode, args = expr.opcode, expr.args

    def inner(k: int) -> str:
        return _text(args[k], names, known, True)

    if opcode == "read":
        return names[int(expr.value)]
    if opcode == "constant":
        return _number(expr.value)
    if opcode == "convert" and args[0].dtype is not BOOL:
        return f"{expr.dtype.label}({_text(args[0], names, known, False)})"
    if opcode == "absolute":
        return f"|{_text(args[0], names, known, False)}|"
    if opcode == "neg":
        return f"-{inner(0)}"
    if opcode == "not":
        return f"not {inner(0)}" if expr.dtype is BOOL else f"~{inner(0)}"
    if opcode in ("select", "select_lazy"):
        shown = f"{inner(0)} ? {inner(1)} : {inner(2)}"
    elif opcode == "convert":
        shown = f"{inner(0)} ? 1 : 0"
    elif opcode in _INFIX:
        sign = {"and": "and", "or": "or", "xor": "!="}.get(opcode) if expr.dtype is BOOL else None
        shown = f"{inner(0)} {sign or _INFIX[opcode]} {inner(1)}"
        comparison = args[0].dtype is not BOOL and expr.dtype is BOOL
        if comparison:
            return shown
    else:
        name = expr.value.name if opcode == "call" else opcode
        listed = [_text(a, names, known, False) for a in args]
        return f"{name}({', '.join(listed)})"
    return f"({shown})" if inside else shown


def listing(results: Mapping[str, Expr], names: Sequence[str]) -> list[str]:
    """One line for each result, after one for each larger subexpression that is used more than once."""
    uses = Counter(arg for e in walk(*results.values()) for arg in e.args)
    known: dict[Expr, str] = {}
    lines = []
    for expr in walk(*results.values()):
        if uses[expr] > 1 and expr.args and expr.opcode != "convert":
            line = f"t{len(known)} = {text(expr, names, known)}"
            known[expr] = f"t{len(known)}"
            lines.append(line)
    return lines + [f"{name} = {text(expr, names, known)}" for name, expr in results.items()]


def _number(value: float) -> str:
    if isinstance(value, float):
        return {float("inf"): "∞", float("-inf"): "-∞"}.get(value, f"{value:g}")
    return str(value)
