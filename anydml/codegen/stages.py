"""Rows in stages: what a kernel body computes in each pass over a row, and what it needs for that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from anydml.codegen.group import KernelSpec, KernelVariant
from anydml.codegen.llvm_types import literal
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOAT32, FLOAT64, FLOATING, SIGNED, SIZE, ScalarType
from anydml.ops.expr import Expr, add, gt, lt, read, select, walk
from anydml.ops.reductions import REDUCTIONS, needed_for, stages_of


@dataclass
class Reduction:
    """A row op while its stage runs."""

    expr: Expr
    dtype: ScalarType
    """Of the accumulator."""

    @property
    def argument(self) -> Expr:
        """What is accumulated, before it is as wide as the accumulator."""
        (argument,) = self.expr.args
        exact = argument.opcode == "convert" and (argument.dtype, argument.args[0].dtype) == (
            FLOAT64,
            FLOAT32,
        )
        return argument.args[0] if exact else argument

    @property
    def leaf(self) -> Expr:
        """What stands for the value so far."""
        return read(-1, self.dtype)

    def combined(self, a: Expr, b: Expr) -> Expr:
        """`a` is the accumulator; a NaN in `b` loses its comparison."""
        if self.expr.opcode == "row_sum":
            return add(a, b)
        return select(gt(b, a) if self.expr.opcode == "row_max" else lt(b, a), b, a)

    def lanes(self, block: int) -> int:
        """Of the accumulator: sums in FLOAT64 are folded, to leave registers to the rest."""
        return block // 4 if self.expr.opcode == "row_sum" and block >= 16 else block

    def start(self, dtype: ScalarType) -> str:
        """What changes nothing: the literal in an accumulator's or an argument's type."""
        if self.expr.opcode == "row_sum":
            return literal(0, dtype)
        largest = self.expr.opcode == "row_min"
        if dtype in FLOATING:
            return literal(float("inf") if largest else float("-inf"), dtype)
        width = 8 * SIZE[dtype]
        low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if dtype in SIGNED else (0, 2**width - 1)
        return str(high if largest else low)


def lanes_of(group: KernelSpec, shape: KernelVariant, target: Target) -> int:
    """Elements of one block: as many vectors as hide latencies without spilling too much."""
    wide = any(SIZE[e.dtype] == 8 for e in _for_each_element(group))
    vectors = 2 if wide and not shape.long else 4
    return vectors * target.vector_bytes // 4


def _for_each_element(group: KernelSpec) -> list[Expr]:
    """What is computed element by element, functions written out: not what follows from reductions alone, nor
    how these take it."""
    every = [Reduction(e, accumulator_of(e)) for stage in stages_of(group.outputs) for e in stage]
    known = {r.expr for r in every}
    taken = {r.expr.args[0] for r in every} - {r.argument for r in every}
    words = [e for e in group.words if e not in known and e not in taken]
    varies = _varies(words, known)
    return [e for e in words if varies(e)]


def kept_value(group: KernelSpec, stages: Sequence[Sequence[Expr]], *, summed: bool = False) -> Expr | None:
    """A call of the last stage that the outputs need again and the first output's memory can hold.

    summed: else one that is summed up, and is so in a pass of its own.
    """
    again = {e for o in group.outputs for e in needed_for(o, {w for stage in stages for w in stage})}
    last = stages[-1] if stages else []
    found = [e for r in last for e in reversed(list(walk(r.args[0]))) if e in again]
    if summed and len(last) == 1:
        found.append(Reduction(last[0], accumulator_of(last[0])).argument)
    for e in found:
        expensive = e.opcode == "call" and len(list(walk(e, deep=True))) > 12
        if expensive and e.dtype is group.outputs[0].dtype:
            return e
    return None


def accumulator_of(reduction: Expr) -> ScalarType:
    return FLOAT64 if reduction.opcode == "row_sum" and reduction.dtype in FLOATING else reduction.dtype


def same_for_a_row(known: Collection[Expr], wanted: Sequence[Expr]) -> list[Expr]:
    """What is needed from one element to the next, and follows from what is known of their row.

    What elements are reduced to that is not known yet does not, though all of them may be the same.
    """
    words = [e for e in walk(*wanted, deep=True) if e not in known and e.opcode != "constant"]
    varies = _varies(words, known)
    found = [
        a
        for e in words
        if varies(e)
        for a in e.args
        if a not in known and a.opcode != "constant" and not varies(a)
    ]
    return list(dict.fromkeys(found))


def _varies(words: Iterable[Expr], known: Collection[Expr]) -> Callable[[Expr], bool]:
    """What tells whether one of these words, functions written out, or a call of theirs is another value from
    one element to the next."""
    varying: set[Expr] = set()

    def varies(e: Expr) -> bool:
        """A call does if any of its arguments does; whatever else, `varying` tells."""
        return e in varying or (e.opcode == "call" and e not in known and any(map(varies, e.args)))

    for e in words:
        if e.opcode in ("read", "row_index", *REDUCTIONS) or any(map(varies, e.args)):
            varying.add(e)
    return varies
