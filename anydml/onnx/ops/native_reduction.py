"""How programs reduce axes: to sums and extremes, and to where the extremes are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from anydml.codegen import program
from anydml.codegen.program.foldings import LARGEST, TOTAL, Folding
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops.native import Inputs, Native, bounded, known, of_float32, operand
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.shared import axis_in
from anydml.ops import elementary, expr
from anydml.ops.dtypes import BOOL, FLOAT16, FLOAT32, FLOATING

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _axes(n: KnownNode, inputs: Inputs) -> list[int]:
    rank, told = len(operand(inputs).sizes), known(inputs, 1)
    axes = (n.ints("axes") or []) if told is None else told.integers
    if not axes:
        return [] if n.attribute("noop_with_empty_axes") else list(range(rank))
    return sorted({axis_in(k, rank) for k in axes})


def folds(folding: Folding) -> Native:
    """Of floats, and of integers, which wrap around."""

    @bounded
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        if x.dtype is BOOL:
            raise NotNative("bools that are folded")
        if folding.floats_only and x.dtype not in FLOATING:
            raise NotNative("integers, which libraries fold in ways of their own")
        axes = _axes(n, inputs)
        if not axes:
            (whole,), wrap = program.as_long_as_each_other(b, [x])
            return [wrap(b.elementwise(folding.alone(expr.read(0, x.dtype)), [whole]))]
        return [program.fold_axes(b, x, axes, bool(n.int("keepdims")), folding)]

    return rule


log_of_total = of_float32(folds(replace(TOTAL, last=elementary.log)))


@of_float32
def log_of_powers(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """The logarithm of the sum of e to the elements; the largest of them, where that is infinite."""
    x, axes = b.use(operand(inputs)), _axes(n, inputs)
    if not axes:
        return [x]
    one, other = expr.read(0, FLOAT32), expr.read(1, FLOAT32)
    top = b.use(program.fold_axes(b, x, axes, True, LARGEST))
    powers = b.use(b.elementwise(elementary.exp(expr.sub(one, other)), [x, top]))
    total = b.use(program.fold_axes(b, powers, axes, True, TOTAL))
    infinite = expr.eq(expr.absolute(other), inf)
    moved = expr.select(infinite, other, expr.add(elementary.log(one), other))
    result = b.elementwise(moved, [total, top])
    if n.int("keepdims"):
        return [result]
    return [b.reshape(b.use(result), _without(x.sizes, axes))]


def _without(sizes: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(m for k, m in enumerate(sizes) if k not in axes)


def place_of_best(better: Callable[[expr.Expr, expr.Expr], expr.Expr]) -> Native:
    @bounded
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        if n.attribute("select_last_index") or x.dtype in (BOOL, FLOAT16):
            raise NotNative("the last of equal ones, or of bools or float16")
        return [
            program.place_of_extreme(
                b, x, axis_in(n.int("axis"), len(x.sizes)), bool(n.int("keepdims")), better
            )
        ]

    return rule
