"""Kernel bodies of rows with something around them: PADDING.

    target[r] = ends[:before]  source[rows[r]]  ends[before:]       elements of that row, or a value

An "element" of the iteration space is a row of the target. A row that is not the source's (of a negative
number) is all the value.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import INT64, SIZE
from anydml.ops.enums import TensorDataType


@dataclass(frozen=True)
class PaddedSpec:
    dtype: TensorDataType
    """Of bits: UINT8 to UINT64."""
    constant: bool
    """What is around a row is a value; otherwise elements of the row."""

    @property
    def names(self) -> list[str]:
        """The words of a launch descriptor: arrays, of which two hold indices of INT64: the source's row for
        each of the target's, and within a row the elements around it; then how many elements a row has, how
        many stand before and behind it, and how many bytes lie between rows of the source."""
        arrays = ["source", "target", "rows"] if self.constant else ["source", "target", "rows", "ends"]
        return [*arrays, "run", "before", "after", "pitch", *(["value"] if self.constant else [])]


class PaddedWriter(RowWriter):
    def __init__(self, spec: PaddedSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        lanes = target.vector_bytes // SIZE[spec.dtype]
        self.steps = (4 * lanes, lanes, lanes // 4, 1)

    def write(self) -> None:
        names = self.spec.names
        self.base, self.step = self.words(names, names.index("run"))
        if self.spec.constant:
            bits = 8 * SIZE[self.spec.dtype]
            self.value = self.base["value"]
            if bits < 64:
                self.value = self.line(f"trunc i64 {self.value} to i{bits}")
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        here = {n: self.pointer(word) for n, word in self.here(row, self.base, self.step).items()}
        number = self.load(here["rows"], INT64, 1)
        before, run, after = (self.base[n] for n in ("before", "run", "after"))
        if self.spec.constant:
            whole = self.number("add", self.number("add", before, run), after)
            outside = self.line(f"icmp slt i64 {number}, 0")
            before = self.line(f"select i1 {outside}, i64 {whole}, i64 {before}")
            run = self.line(f"select i1 {outside}, i64 0, i64 {run}")
            after = self.line(f"select i1 {outside}, i64 0, i64 {after}")
        source = self.at(here["source"], self.number("mul", number, self.base["pitch"]))
        middle = self.at(here["target"], before, self.spec.dtype)
        self._around(here, "0", before, source, here["target"])
        self.copy_elements(source, middle, run, self.spec.dtype, self.steps)
        self._around(here, self.base["before"], after, source, self.at(middle, run, self.spec.dtype))
        return []

    def _around(self, here: Mapping[str, str], first: str, count: str, source: str, target: str) -> None:
        """`count` elements at the target: the value, or those of the source that stand from `first` on."""
        dtype = self.spec.dtype
        if self.spec.constant:

            def some(index: str, lanes: int) -> None:
                value = self.splat(self.value, dtype, lanes)
                self.store(value, self.at(target, index, dtype), dtype, lanes)

            self.all_of("0", count, self.steps, some)
            return

        def one(index: str, _: list[str]) -> list[str]:
            place = self.load(self.at(here["ends"], self.number("add", first, index), INT64), INT64, 1)
            value = self.load(self.at(source, place, dtype), dtype, 1)
            self.store(value, self.at(target, index, dtype), dtype, 1)
            return []

        self.loop(0, count, 1, one)
