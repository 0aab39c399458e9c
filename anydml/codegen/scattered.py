"""Kernel bodies that write elements to where indices say: SCATTER along the last axis, and gradients.

    target[r] = source[r]; target[r, index[r, k]] = updates[r, k]       of several for one element the last
    target[r] = 0; target[r, index[r, k] - origin[r]] += updates[r, k]  in their order

An "element" of the iteration space is a row.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.llvm_types import element_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOAT32, FLOAT64, SIZE
from anydml.ops.enums import TensorDataType

NAMES = ("source", "target", "index", "updates", "origin", "length", "run")
"""The words of a launch descriptor: arrays; where a row begins, for sums; how many elements a row and its
updates have."""


@dataclass(frozen=True)
class ScatteredSpec:
    dtype: TensorDataType
    """Of bits: UINT8 to UINT64."""
    index: TensorDataType
    """Of 4 or 8 bytes. Negative indices count from the end; those out of range are clamped to it."""
    added: bool = False
    """Whether updates, of FLOAT32, are added up, in FLOAT32 or FLOAT64. Their indices, of UINT32, are places
    in all rows; one that is not in its own row is clamped to its end."""


class ScatteredWriter(RowWriter):
    def __init__(self, spec: ScatteredSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec

    def write(self) -> None:
        self.base, self.step = self.words(NAMES, 5)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        dtype, index = self.spec.dtype, self.spec.index
        words = self.here(row, self.base, self.step)
        here = {n: self.pointer(word) for n, word in words.items() if n != "origin"}
        count = self.number("mul", self.base["length"], SIZE[dtype])
        if self.spec.added:
            self._add(here, words["origin"], count)
            return []
        self.copy(here["source"], here["target"], count)

        def one(k: str, _: list[str]) -> list[str]:
            place = self.place(self.at(here["index"], k, index), index, self.base["length"])
            value = self.load(self.at(here["updates"], k, dtype), dtype, 1)
            self.store(value, self.at(here["target"], place, dtype), dtype, 1)
            return []

        self.loop(0, self.base["run"], 1, one)
        return []

    def _add(self, here: Mapping[str, str], origin: str, count: str) -> None:
        dtype, kind = self.spec.dtype, element_type(self.spec.dtype)
        self.declared.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.lines.append(
            f"  call void @llvm.memset.p0.i64(ptr {here['target']}, i8 0, i64 {count}, i1 false)"
        )
        last = self.number("sub", self.base["length"], 1)

        def one(k: str, _: list[str]) -> list[str]:
            found = self.load(self.at(here["index"], k, self.spec.index), self.spec.index, 1)
            place = self.number("sub", self.line(f"zext i32 {found} to i64"), origin)
            home = self.at(here["target"], self.bounded("umin", place, last), dtype)
            value = self.load(self.at(here["updates"], k, FLOAT32), FLOAT32, 1)
            if dtype is FLOAT64:
                value = self.line(f"fpext float {value} to double")
            self.store(self.line(f"fadd {kind} {self.load(home, dtype, 1)}, {value}"), home, dtype, 1)
            return []

        self.loop(0, self.base["run"], 1, one)
