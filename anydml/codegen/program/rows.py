"""What is computed of each row by itself: statistics of it, and every element by them.

Short rows that lie side by side stay in registers from the first statistic to the last element; others are
gone through once for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Protocol

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.foldings import Folding
from anydml.codegen.program.geometry import loops, over, reshaped_strides, strides_like
from anydml.codegen.program.reductions import fold_axes, folded_row
from anydml.codegen.program.values import Bounded, Memory, Pending, Tensor, work_of
from anydml.dataclass import dataclass
from anydml.ops.dtypes import SIZE, ScalarType
from anydml.ops.expr import Expr, read

MAX_VECTORS = 8
"""Of a row that stays in registers."""
MAX_END_OPS = 16
"""Of what who reads them does to the elements of such a row, which is written for each vector."""


class Steps(Protocol):
    """How a rule computes: with elements of the tensor, and numbers of which there is one for each row."""

    def fold(self, x: Any, folding: Folding) -> Any:
        """A number for each row."""

    def each(self, meaning: Expr, *operands: Any) -> Any:
        """What each element becomes. `meaning`: its reads are the operands' numbers."""

    def keep(self, x: Any) -> Any:
        """For several readers."""


Rule = Callable[..., Any]
"""(steps, the tensor, what is beside it...) -> the results of all elements."""


def by_rows(
    b: ProgramBuilder, tensor: Tensor, axes: Sequence[int], beside: Sequence[Tensor], rule: Rule
) -> Tensor:
    """What a rule makes of a tensor along axes, and of others of its type, which broadcast with it."""
    x = b.use(tensor)
    if isinstance(x, Memory) and not any(isinstance(t, Bounded) for t in beside):
        row = _Row.of(b, x, axes)
        given = [over(b.memory(t), x.sizes) for t in beside] if row else []
        if row and row.leads_through(given):
            return b.later(Pending(x.dtype, x.sizes, row.writer(rule, x, given), (x, *given)))
    made: Tensor = rule(Passes(b, axes), x, *beside)
    return made


@dataclass(frozen=True)
class Passes:
    """Over all rows for each step."""

    b: ProgramBuilder
    axes: Sequence[int]

    def fold(self, x: Tensor, folding: Folding) -> Tensor:
        return self.b.use(fold_axes(self.b, x, self.axes, True, folding))

    def each(self, meaning: Expr, *operands: Tensor) -> Tensor:
        return self.b.elementwise(meaning, operands)

    def keep(self, x: Tensor) -> Tensor:
        return self.b.use(x)


@dataclass(frozen=True)
class _InRow:
    """The elements of a row, in a register for each of its parts; or one number for all of them."""

    registers: tuple[str, ...]
    alone: bool


@dataclass(frozen=True)
class _Row:
    """One row at a time, which is in registers."""

    b: ProgramBuilder
    axes: Sequence[int]
    sizes: tuple[int, ...]
    dtype: ScalarType
    result: tuple[int, ...]
    """Strides of what is written."""
    parts: tuple[tuple[int, int], ...]
    """Lanes, and where they begin."""

    @staticmethod
    def of(b: ProgramBuilder, x: Memory, axes: Sequence[int]) -> _Row | None:
        """None where its rows are long, or do not lie side by side."""
        count = prod(x.sizes[k] for k in axes)
        lanes = b.vector_lanes(SIZE[x.dtype])
        whole, rest = divmod(count, lanes)
        parts = [(lanes, k * lanes) for k in range(whole)] + [(rest, whole * lanes)] * bool(rest)
        row = _Row(b, axes, x.sizes, x.dtype, strides_like(x.sizes, [x]), tuple(parts))
        aside = row._step(x.strides) == row._step(row.result) == 1
        return row if aside and count > 1 and len(parts) <= MAX_VECTORS else None

    def leads_through(self, others: Sequence[Memory]) -> bool:
        """Whether each has one stride along rows."""
        return all(t.dtype is self.dtype and self._step(t.strides) is not None for t in others)

    def _step(self, strides: Sequence[int]) -> int | None:
        """From one element of a row to the next."""
        row = [(self.sizes[k], strides[k]) for k in self.axes]
        found = reshaped_strides([n for n, _ in row], [s for _, s in row], [prod(n for n, _ in row)])
        return None if found is None else found[0]

    def writer(
        self, rule: Rule, x: Memory, beside: Sequence[Memory]
    ) -> Callable[[Expr, Sequence[Tensor]], Memory | None]:
        """Of a product that is pending."""

        def write(end: Expr, others: Sequence[Tensor]) -> Memory | None:
            if work_of(end) > MAX_END_OPS:
                return None
            more = [over(self.b.memory(t), self.sizes) for t in others]
            if not self.leads_through(more) or end.dtype is not self.dtype:
                return None
            result = self.b.room(self.dtype, self.sizes, self.result)
            self._write(rule, end, result, [x, *beside], more)
            return result

        return write

    def _write(
        self, rule: Rule, end: Expr, result: Memory, given: Sequence[Memory], more: Sequence[Memory]
    ) -> None:
        b, every = self.b, [result, *given, *more]
        b.work += 4 * result.count
        kept = [k for k in range(len(self.sizes)) if k not in self.axes]
        outer = loops([self.sizes[k] for k in kept], [[t.strides[k] for k in kept] for t in every])
        steps = [self._step(t.strides) for t in every]

        def row(pointers: list[str]) -> None:
            found = [self._load(p, s or 0) for p, s in zip(pointers[1:], steps[1:], strict=True)]
            made = rule(self, *found[: len(given)])
            if end.args:
                made = self.each(end, made, *found[len(given) :])
            for (lanes, start), register in zip(self.parts, self._spread(made), strict=True):
                b.code.store(register, b.code.at(pointers[0], start, self.dtype), self.dtype, lanes)

        b.over([(d.size, d.steps) for d in outer], [(t.dtype, t.pointer) for t in every], row)

    def _load(self, pointer: str, step: int) -> _InRow:
        code, dtype = self.b.code, self.dtype
        if step == 0:
            return _InRow((code.load(pointer, dtype),), alone=True)
        places = [(code.at(pointer, start * step, dtype), lanes) for lanes, start in self.parts]
        return _InRow(tuple(self.b.lanes(p, dtype, lanes, step) for p, lanes in places), alone=False)

    def _spread(self, x: _InRow) -> Sequence[str]:
        """In each part."""
        if not x.alone:
            return x.registers
        return [self.b.code.splat(x.registers[0], self.dtype, lanes) for lanes, _ in self.parts]

    def fold(self, x: _InRow, folding: Folding) -> _InRow:
        parts = [(lanes, name) for (lanes, _), name in zip(self.parts, self._spread(x), strict=True)]
        return _InRow((folded_row(self.b, folding, self.dtype, parts),), alone=True)

    def each(self, meaning: Expr, *operands: _InRow) -> _InRow:
        alone = all(x.alone for x in operands)
        every = [x.registers if alone else self._spread(x) for x in operands]
        reads = [read(k, self.dtype) for k in range(len(operands))]
        found = []
        for lanes, *registers in zip([1] if alone else [n for n, _ in self.parts], *every, strict=True):
            found += self.b.code.evaluate([meaning], lanes, dict(zip(reads, registers, strict=True)))
        return _InRow(tuple(found), alone)

    def keep(self, x: _InRow) -> _InRow:
        return x
