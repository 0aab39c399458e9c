"""Kernel bodies that take elements from where indices say, or add up some of them with weights.

    target[b, j, :] = source[b, index[j], :]                        along an axis with others behind it: rows
    target[b, j] = source[b, index0[j]] * weight0[j] + ...          along the last one: elements
    target[b, j, c] = source[b, index[b, j, c], c]                  an index for each

An "element" of the iteration space is a row of the target: the elements behind the axis, or those along it.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import SIZE
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import add, mul, read


@dataclass(frozen=True)
class TakenSpec:
    dtype: TensorDataType
    index: TensorDataType
    """Of 4 or 8 bytes. Negative indices count from the end; those out of range are clamped to it."""
    terms: int = 1
    """How many elements are added up, in order."""
    weighted: bool = False
    """They are numbers, and there is a weight for each, of their type."""
    rows: bool = True
    """Along an axis that is not the last one."""
    own: bool = False
    """Every element of the target has an index."""

    @property
    def names(self) -> list[str]:
        """The words of a launch descriptor: first the arrays, source and target, indices, weights."""
        names = ["source", "target", *(f"index{k}" for k in range(self.terms))]
        names += [f"weight{k}" for k in range(self.terms) if self.weighted]
        return [*names, "length", "run"]


class TakenWriter(RowWriter):
    def __init__(self, spec: TakenSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        lanes = target.vector_bytes // SIZE[spec.dtype]
        self.steps = (lanes, lanes // 4, 1)

    def write(self) -> None:
        names = self.spec.names
        self.base, self.step = self.words(names, len(names) - 2)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        here = {n: self.pointer(word) for n, word in self.here(row, self.base, self.step).items()}
        self._whole_row(here) if self.spec.rows and not self.spec.own else self._elements(here)
        return []

    def _whole_row(self, here: Mapping[str, str]) -> None:
        """One index for all of it."""
        spec, run = self.spec, self.base["run"]
        sources = []
        for k in range(spec.terms):
            behind = self.number("mul", self.place(here[f"index{k}"], spec.index, self.base["length"]), run)
            sources.append(self.at(here["source"], behind, spec.dtype))
        if not spec.weighted:
            self.copy(sources[0], here["target"], self.number("mul", run, SIZE[spec.dtype]))
            return
        weights = [self.load(here[f"weight{k}"], spec.dtype, 1) for k in range(spec.terms)]

        def some(index: str, lanes: int) -> None:
            values = [self.load(self.at(source, index, spec.dtype), spec.dtype, lanes) for source in sources]
            self._store(here, index, lanes, values, [self.splat(w, spec.dtype, lanes) for w in weights])

        self.all_of("0", run, self.steps, some)

    def _elements(self, here: Mapping[str, str]) -> None:
        """An index for each."""
        spec = self.spec

        def some(index: str, lanes: int) -> None:
            values: list[str] = []
            weights: list[str] = []
            for k in range(spec.terms):
                first = self.at(here[f"index{k}"], index, spec.index)
                ones = []
                for j in range(lanes):
                    place = self.place(self.at(first, j, spec.index), spec.index, self.base["length"])
                    if spec.rows:  # which are as long as what lies behind the axis
                        column = self.number("add", index, j)
                        place = self.number("add", self.number("mul", place, self.base["run"]), column)
                    ones.append(self.load(self.at(here["source"], place, spec.dtype), spec.dtype, 1))
                values.append(self._joined(ones))
                if spec.weighted:
                    there = self.at(here[f"weight{k}"], index, spec.dtype)
                    weights.append(self.load(there, spec.dtype, lanes))
            self._store(here, index, lanes, values, weights)

        self.all_of("0", self.base["run"], self.steps, some)

    def _store(
        self, here: Mapping[str, str], index: str, lanes: int, values: list[str], weights: list[str]
    ) -> None:
        dtype = self.spec.dtype
        x, y, w = (read(k, dtype) for k in range(3))
        total = ""
        for k, value in enumerate(values):
            if weights:
                value = self.evaluate(mul(x, w), lanes, {x: value, w: weights[k]})
            total = self.evaluate(add(x, y), lanes, {x: total, y: value}) if k else value
        self.store(total, self.at(here["target"], index, dtype), dtype, lanes)

    def _joined(self, ones: list[str]) -> str:
        if len(ones) == 1:
            return ones[0]
        kind, vector = value_type(self.spec.dtype, len(ones)), "poison"
        for j, one in enumerate(ones):
            vector = self.line(
                f"insertelement {kind} {vector}, {element_type(self.spec.dtype)} {one}, i32 {j}"
            )
        return vector
