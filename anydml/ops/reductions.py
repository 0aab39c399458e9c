"""The ops of the scalar language that look at whole rows."""

from __future__ import annotations

from anydml.ops.dtypes import FLOAT16, FLOAT32, UINT32
from anydml.ops.expr import Expr, convert, make

Axes = tuple[int, ...]
"""Axes of a row, each counted from the last (-1), in ascending order."""


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
