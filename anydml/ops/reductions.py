"""The ops of the scalar language that look at whole rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anydml.ops.dtypes import FLOAT16, FLOAT32, UINT32
from anydml.ops.expr import Expr, convert, make, walk

Axes = tuple[int, ...]
"""Axes of a row, each counted from the last (-1), in ascending order."""
MIN_COLUMNS = 8
"""Rows beside each other from which each has a lane of vectors."""


def row_max(a: Expr, axes: Axes) -> Expr:
    return make("row_max", a.dtype, (a,), axes)


def row_min(a: Expr, axes: Axes) -> Expr:
    return make("row_min", a.dtype, (a,), axes)


def row_sum(a: Expr, axes: Axes) -> Expr:
    x = convert(a, FLOAT32) if a.dtype is FLOAT16 else a
    return make("row_sum", x.dtype, (x,), axes)


def row_index(axes: Axes) -> Expr:
    return make("row_index", UINT32, (), axes)


REDUCTIONS = frozenset({"row_max", "row_min", "row_sum"})


def stages_of(outputs: Sequence[Expr]) -> list[list[Expr]]:
    """The row ops of each stage: those that need no other, those that need only them, ..."""
    depth: dict[Expr, int] = {}
    stages: list[list[Expr]] = []
    for e in walk(*outputs):
        depth[e] = max((depth[a] for a in e.args), default=0)
        if e.opcode in REDUCTIONS:
            if len(stages) == depth[e]:
                stages.append([])
            stages[depth[e]].append(e)
            depth[e] += 1
    return stages


def needed_for(expr: Expr, known: Collection[Expr]) -> list[Expr]:
    """The subexpressions to compute where `known` is at hand."""
    seen: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        e = stack.pop()
        if e not in seen and e not in known:
            seen[e] = None
            stack += e.args
    return list(seen)
