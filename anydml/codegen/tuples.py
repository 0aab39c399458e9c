"""Kernel bodies that take rows from where tuples of indices say, or put them there: GATHER_ND, SCATTER_ND.

    rows[b, j, :] = whole[b, tuples[b, j, 0], tuples[b, j, 1], ..., :]      or the other way round

An "element" of the iteration space is a row: what a tuple stands for.
"""

from __future__ import annotations

from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import SIZE
from anydml.ops.enums import TensorDataType


@dataclass(frozen=True)
class TuplesSpec:
    dtype: TensorDataType
    """Of bits: UINT8 to UINT64."""
    index: TensorDataType
    """Of 4 or 8 bytes. Negative indices count from the end; those out of range are clamped to it."""
    count: int
    """Of indices in a tuple."""
    long: bool
    """Whether a tuple stands for more than one element."""
    put: bool = False
    """Rows are put, in order: of those in one place the last one stays."""

    @property
    def names(self) -> list[str]:
        """The words of a launch descriptor: the arrays, how long the whole is along the axis of each index,
        and how many elements a row has."""
        return ["whole", "rows", "tuples", *(f"length{k}" for k in range(self.count)), "run"]


class TuplesWriter(RowWriter):
    def __init__(self, spec: TuplesSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec

    def write(self) -> None:
        self.base, self.step = self.words(self.spec.names, 3)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        spec, run = self.spec, self.base["run"]
        here = {n: self.pointer(word) for n, word in self.here(row, self.base, self.step).items()}
        place = ""
        for k in range(spec.count):
            length = self.base[f"length{k}"]
            found = self.place(self.at(here["tuples"], k, spec.index), spec.index, length)
            place = self.number("add", self.number("mul", place, length), found) if place else found
        one = self.at(here["whole"], self.number("mul", place, run) if spec.long else place, spec.dtype)
        source, target = (here["rows"], one) if spec.put else (one, here["rows"])
        if spec.long:
            self.copy(source, target, self.number("mul", run, SIZE[spec.dtype]))
        else:
            self.store(self.load(source, spec.dtype, 1), target, spec.dtype, 1)
        return []
