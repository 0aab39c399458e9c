"""Kernel bodies that write elements to where indices say: SCATTER along the last axis.

    target[r] = source[r]; target[r, index[r, k]] = updates[r, k]       of several for one element the last

An "element" of the iteration space is a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.ops.dtypes import SIZE
from anydml.ops.enums import TensorDataType

NAMES = ("source", "target", "index", "updates", "length", "run")
"""The words of a launch descriptor: arrays; then how many elements a row and its updates have."""


@dataclass(frozen=True)
class ScatteredSpec:
    dtype: TensorDataType
    """Of bits: UINT8 to UINT64."""
    index: TensorDataType
    """Of 4 or 8 bytes. Negative indices count from the end; those out of range are clamped to it."""


class ScatteredWriter(RowWriter):
    def __init__(self, spec: ScatteredSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec

    def write(self) -> None:
        self.base, self.step = self.words(NAMES, 4)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        dtype, index = self.spec.dtype, self.spec.index
        here = {n: self.pointer(word) for n, word in self.here(row, self.base, self.step).items()}
        self.copy(here["source"], here["target"], self.number("mul", self.base["length"], SIZE[dtype]))

        def one(k: str, _: list[str]) -> list[str]:
            place = self.place(self.at(here["index"], k, index), index, self.base["length"])
            value = self.load(self.at(here["updates"], k, dtype), dtype, 1)
            self.store(value, self.at(here["target"], place, dtype), dtype, 1)
            return []

        self.loop(0, self.base["run"], 1, one)
        return []
