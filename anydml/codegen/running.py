"""Kernel bodies of running sums and products: of all elements up to each one along an axis.

An "element" of the iteration space is a line along the axis. Lines whose elements lie side by side go as
vectors, others some at a time, so that none waits for the sum of another.
"""

from __future__ import annotations

from functools import partial

from anydml.codegen.llvm_types import element_type, literal, value_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOAT64, FLOATING, SIZE, ScalarType
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import add, convert, mul, read

NAMES = ("source", "target", "length", "along", "first")
"""The words of a launch descriptor: two arrays; then of a line how many elements, how many bytes from one to
the next, and to the first one."""
MAX_APART = 4
"""Lines that go at a time where their elements do not lie side by side."""


@dataclass(frozen=True)
class RunningSpec:
    dtype: TensorDataType
    product: bool
    exclusive: bool
    """Of those before each element."""
    beside: bool
    """Lines lie side by side."""

    @property
    def wide(self) -> ScalarType:
        return FLOAT64 if self.dtype in FLOATING else self.dtype


class RunningWriter(RowWriter):
    def __init__(self, spec: RunningSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        lanes = target.vector_bytes // SIZE[spec.wide]
        self.steps = (2 * lanes, lanes // 2, 1) if spec.beside else (MAX_APART, 1)

    def write(self) -> None:
        self.base, self.step = self.words(NAMES, 2)
        self.all_of("0", "%n", self.steps, self._lines)

    def _lines(self, index: str, lines: int) -> None:
        """So many lines from `index` on: one vector, or numbers."""
        spec = self.spec
        dtype, wide = spec.dtype, spec.wide
        lanes, parts = (lines, 1) if spec.beside else (1, lines)
        ends: list[tuple[str, str]] = []
        for k in range(parts):
            here = self.here(self.number("add", index, k), self.base, self.step)
            source, target = (
                self.pointer(self.number("add", here[n], self.base["first"])) for n in ("source", "target")
            )
            ends.append((source, target))
        length, along = self.base["length"], self.base["along"]
        if spec.exclusive:
            identity = literal(1 if spec.product else 0, dtype)
            for k, (source, target) in enumerate(ends):
                self.store(self._splat(identity, dtype, lanes), target, dtype, lanes)
                ends[k] = source, self.at(target, along)
            length = self.number("sub", length, 1)
        start = literal(1 if spec.product else -0.0 if wide in FLOATING else 0, wide)
        carried = [(value_type(wide, lanes), self._splat(start, wide, lanes))] * parts
        self.loop(0, length, 1, partial(self._next, ends, lanes), carried)

    def _next(self, ends: list[tuple[str, str]], lanes: int, k: str, carried: list[str]) -> list[str]:
        dtype, wide = self.spec.dtype, self.spec.wide
        x, total = read(0, dtype), read(1, wide)
        offset = self.number("mul", k, self.base["along"])
        values = [self.load(self.at(source, offset), dtype, lanes) for source, _ in ends]
        totals = []
        for value, so_far in zip(values, carried, strict=True):
            meaning = (mul if self.spec.product else add)(total, convert(x, wide))
            totals.append(self.evaluate(meaning, lanes, {x: value, total: so_far}))
        for (_, target), so_far in zip(ends, totals, strict=True):
            made = self.evaluate(convert(total, dtype), lanes, {total: so_far})
            self.store(made, self.at(target, offset), dtype, lanes)
        return totals

    def _splat(self, number: str, dtype: ScalarType, lanes: int) -> str:
        return number if lanes == 1 else f"splat ({element_type(dtype)} {number})"
