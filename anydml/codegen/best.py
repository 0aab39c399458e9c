"""Kernel bodies that find the best elements of rows, best first, and their places.

An element's *key* is an integer: its order in the upper half, and in the lower one how far it is from the
end, so that of equal elements the first one is better. A row's best keys so far lie on the stack. Most
elements are no better than the last of these, which is seen of many at a time.

An "element" of the iteration space is a row.
"""

from __future__ import annotations

from functools import partial

from anydml.codegen.llvm_types import element_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOATING, INT32, INT64, SIGNED, SIZE
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, bitcast, convert, is_nan, lt, read, select, xor

NAMES = ("source", "values", "places", "length")
"""The words of a launch descriptor."""


@dataclass(frozen=True)
class BestSpec:
    dtype: TensorDataType
    """Of at most 32 bits, and not FLOAT16."""
    place: TensorDataType
    """Of 4 or 8 bytes."""
    count: int
    """How many are found; rows have at least as many elements."""
    greatest: bool

    @property
    def order(self) -> Expr:
        """Of an element, read(0): greater for better ones. A NaN is greater than all numbers; -0 equals 0."""
        x = read(0, self.dtype)
        if self.dtype in FLOATING:
            bits = bitcast(add(x, 0.0), INT32)
            found = select(is_nan(x), 0x7FFFFFFF, select(lt(bits, 0), xor(bits, 0x7FFFFFFF), bits))
        elif SIZE[self.dtype] == 4 and self.dtype not in SIGNED:
            found = xor(bitcast(x, INT32), -(1 << 31))
        else:
            found = convert(x, INT32)
        return found if self.greatest else xor(found, -1)


class BestWriter(RowWriter):
    def __init__(self, spec: BestSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        lanes = target.vector_bytes // SIZE[INT32]
        self.steps = [4 * lanes, lanes]

    def write(self) -> None:
        self.lines.append(f"  %keys = alloca [{self.spec.count} x i64], align 64")
        self.lines.append(f"  %orders = alloca [{self.steps[0]} x i32], align 64")
        self.base, self.step = self.words(NAMES, 3)
        self.loop(0, "%n", 1, self._row)

    def _row(self, row: str, _: list[str]) -> list[str]:
        here = {n: self.pointer(word) for n, word in self.here(row, self.base, self.step).items()}
        source, length, count = here["source"], self.base["length"], self.spec.count
        for k in range(count):
            self.store(str(-(1 << 63)), self.at("%keys", k, INT64), INT64, 1)

        def alone(index: str, _: list[str]) -> list[str]:
            self._insert(self._orders(source, index, 1), index)
            return []

        self.loop(0, str(count), 1, alone)
        first = str(count)
        for lanes in self.steps:
            left = self.number("sub", length, first)
            whole = self.number("sub", left, self.number("and", left, lanes - 1))
            end = self.number("add", first, whole)
            self.loop(first, end, lanes, partial(self._several, source, lanes))
            first = end
        self.loop(first, length, 1, alone)
        for k in range(count):
            key = self.load(self.at("%keys", k, INT64), INT64, 1)
            place = self.number("xor", self.number("and", key, 0xFFFFFFFF), 0xFFFFFFFF)
            value = self.load(self.at(source, place, self.spec.dtype), self.spec.dtype, 1)
            self.store(value, self.at(here["values"], k, self.spec.dtype), self.spec.dtype, 1)
            if SIZE[self.spec.place] == 4:
                place = self.line(f"trunc i64 {place} to i32")
            self.store(place, self.at(here["places"], k, self.spec.place), self.spec.place, 1)
        return []

    def _orders(self, source: str, index: str, lanes: int) -> str:
        dtype = self.spec.dtype
        x = self.load(self.at(source, index, dtype), dtype, lanes)
        return self.evaluate(self.spec.order, lanes, {read(0, dtype): x})

    def _several(self, source: str, lanes: int, index: str, _: list[str]) -> list[str]:
        """Those of so many that are better than the last one of the best."""
        orders = self._orders(source, index, lanes)
        last = self.load(self.at("%keys", self.spec.count - 1, INT64), INT64, 1)
        worst = self.line(f"trunc i64 {self.number('ashr', last, 32)} to i32")
        better = self.line(f"icmp sgt <{lanes} x i32> {orders}, {self.splat(worst, INT32, lanes)}")
        mask = self.line(f"bitcast <{lanes} x i1> {better} to i{lanes}")
        mask = mask if lanes == 64 else self.line(f"zext i{lanes} {mask} to i64")
        self.store(orders, "%orders", INT32, lanes)
        self.declared |= {"declare i64 @llvm.ctpop.i64(i64)", "declare i64 @llvm.cttz.i64(i64, i1)"}
        found = self.line(f"call i64 @llvm.ctpop.i64(i64 {mask})")

        def one_of_them(_: str, carried: list[str]) -> list[str]:
            (left,) = carried
            lane = self.line(f"call i64 @llvm.cttz.i64(i64 {left}, i1 true)")
            self._insert(
                self.load(self.at("%orders", lane, INT32), INT32, 1), self.number("add", index, lane)
            )
            return [self.number("and", left, self.number("sub", left, 1))]

        self.loop(0, found, 1, one_of_them, [("i64", mask)])
        return []

    def _insert(self, order: str, index: str) -> None:
        """Among the best, of which the last one falls out."""
        high = self.number("shl", self.line(f"sext {element_type(INT32)} {order} to i64"), 32)
        key = self.number("or", high, self.number("xor", index, 0xFFFFFFFF))
        for k in range(self.spec.count):
            place = self.at("%keys", k, INT64)
            there = self.load(place, INT64, 1)
            self.store(self.bounded("smax", there, key), place, INT64, 1)
            key = self.bounded("smin", there, key)
