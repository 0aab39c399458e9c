"""Kernel bodies that turn the beginnings of sequences round: REVERSE_SUBSEQUENCES.

    target[s, k, :] = source[s, count[s] - 1 - k if k < count[s] else k, :]

An "element" of the iteration space is a row of the target: elements that move together.
"""

from __future__ import annotations

from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import INT64, SIZE
from anydml.ops.enums import TensorDataType

NAMES = ("source", "target", "counts", "here", "length", "run", "along")
"""The words of a launch descriptor: a sequence of the source, a row of the target, and a count of INT64, any
from 0 on; which row it is; then how many rows a sequence has, how many elements a row, and how many bytes lie
from row to row."""


@dataclass(frozen=True)
class TurnedSpec:
    dtype: TensorDataType
    """Of bits: UINT8 to UINT64."""


class TurnedWriter(RowWriter):
    def __init__(self, spec: TurnedSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        lanes = target.vector_bytes // SIZE[spec.dtype]
        self.steps = (4 * lanes, lanes, lanes // 4, 1)

    def write(self) -> None:
        self.base, self.step = self.words(NAMES, 4)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        here = self.here(row, self.base, self.step)
        source, target, counts = (self.pointer(here[n]) for n in ("source", "target", "counts"))
        count = self.bounded("smin", self.load(counts, INT64, 1), self.base["length"])
        turned = self.line(f"icmp slt i64 {here['here']}, {count}")
        back = self.number("sub", self.number("sub", count, 1), here["here"])
        place = self.line(f"select i1 {turned}, i64 {back}, i64 {here['here']}")
        source = self.at(source, self.number("mul", place, self.base["along"]))
        self.copy_elements(source, target, self.base["run"], self.spec.dtype, self.steps)
        return []
