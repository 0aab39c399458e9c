"""Kernel bodies of products of matrices, tile by tile, with what is done to them on the way out.

    target[m, n] = end(sum of a[m, k] * b[k, n] over k, c[m, n])

Rows of b are packed: neighbours of a row of the target go as vectors, and each sum is a chain of fused
multiplications and additions in the order of k, whatever the tiles are. Or its columns are, and rows of a
(`dots`): then a sum has a chain for every lane of a vector, which come together in the end.

An "element" of the iteration space is a tile of the target; or a row of it, if it has but one. All tiles of
the same columns follow each other, so that what they read of b stays near. The last one begins earlier where
it would not be full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydml.codegen.llvm_types import value_type
from anydml.codegen.masks import first_lanes, masked_load
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOAT32, INT32, SIZE
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, fma, mul, read

UNROLLED = 4
FOURS = (128, 256, 512)
"""Bits of vectors that have an instruction for products of four integers of 8 bits."""
WIDTH = SIZE[FLOAT32]
SUM, C = read(0, FLOAT32), read(1, FLOAT32)
"""What an `end` reads; of integers, the same of INT32."""


def tile_of(rows: int, columns: int, target: Target) -> tuple[int, int]:
    """Rows and columns of a tile for a target of so many: sums for most of the registers, of which some hold
    what is loaded."""
    vectors, lanes = (4, 16) if target.vector_bytes == 64 else (2, target.vector_bytes // WIDTH)
    return min(rows, 6), min(columns, vectors * lanes)


SMALL = 1 << 14
"""Multiplications and additions of a product that few kernels are to serve: what each product's own kernel
would win is less than it takes to compile it."""


def is_small(rows: int, columns: int, depth: int) -> bool:
    return rows * columns * depth < SMALL


def rounded(n: int) -> int:
    """The power of two that fits: tiles are many sizes otherwise."""
    return 1 << (n.bit_length() - 1)


DOTS = 4
"""Columns of a tile of dot products."""


def tile_of_dots(rows: int, columns: int) -> tuple[int, int]:
    """Narrow ones have more rows, as none should wait for another."""
    columns = min(columns, DOTS)
    return min(rows, 6 if columns > 1 else 8), columns


@dataclass(frozen=True)
class MatrixSpec:
    rows: int
    """Of a tile; the target has at least as many."""
    columns: int
    end: Expr
    dots: bool = False
    turned: bool = False
    """Elements of a row of a are not neighbours."""
    panels: bool = False
    """The columns of b that a tile reads lie beside each other, and those of the next tile behind them."""
    parts: int = 1
    """More than one: elements are so many neighbours along k, integers side by side: two of 16 bits, or four
    of 8 bits, of which a's or b's are without signs. A sum has all products, and wraps around at 32 bits."""
    a_signed: bool = False
    """Of four, a's have signs."""
    terms: int = 0
    """To each sum so many products are added, of an INT32 for its row (`left`) and one for its column
    (`right`)."""
    c: bool = False
    """There is one..."""
    c_repeats: bool = False
    """...of which each row is one element."""

    @property
    def dtype(self) -> TensorDataType:
        """Of all arrays."""
        return FLOAT32 if self.parts == 1 else INT32

    @property
    def arrays(self) -> list[str]:
        beside = ["left", "right"] if self.terms else []
        return ["a", "b", "target", *(["c"] if self.c else []), *beside]

    @property
    def names(self) -> list[str]:
        """The words of a launch descriptor: the arrays, the first row and column; sizes; bytes from a row to
        the next (of b as it lies), and within a row of a."""
        sizes = ["m", "n", "depth", "a_row", "b_row", "target_row", "c_row", "a_along"]
        beside = ["left_row", "right_row"] if self.terms else []
        return [*self.arrays, "row", "column", *sizes, *beside]

    @property
    def whole_rows(self) -> bool:
        """Whether the target is one row, which stays near while rows of b go by."""
        return self.rows == 1 and not self.dots


@dataclass(frozen=True)
class _Beside:
    """Where a row of the target is, and what is beside it."""

    target: str
    c: str | None
    lefts: Sequence[str]
    """The number of each term."""
    rights: Sequence[str]
    """Where the terms' numbers for columns are."""


class MatrixWriter(RowWriter):
    def __init__(self, spec: MatrixSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        most = target.vector_bytes // WIDTH
        self.dtype = spec.dtype
        self.lanes = most if spec.dots else 1 << (min(most, spec.columns).bit_length() - 1)
        self.starts = [min(first, spec.columns - self.lanes) for first in range(0, spec.columns, self.lanes)]
        """Of a tile's vectors, in its columns."""

    def write(self) -> None:
        spec = self.spec
        self.base, self.step = self.words(spec.names, len(spec.arrays) + 2)
        last_row = self.number("sub", self.base["m"], spec.rows)
        last_column = self.number("sub", self.base["n"], spec.columns)

        def tile(index: str, _: list[str]) -> list[str]:
            here = self.here(index, self.base, self.step)
            row = self.bounded("smin", here["row"], last_row)
            column = self.bounded("smin", here["column"], last_column)
            (self._dots if spec.dots else self._columns)(here, row, column)
            return []

        self.loop(0, "%n", 1, self._single if spec.whole_rows else tile)

    # ---- neighbours of a row as vectors

    def _columns(self, here: dict[str, str], row: str, column: str) -> None:
        spec, lanes = self.spec, self.lanes
        rows = self._lines(here["a"], row, "a_row", spec.rows)
        above = self.pointer(here["b"])
        if not spec.panels:
            above = self.at(above, column, self.dtype)
        kind = value_type(self.dtype, lanes)
        cells = [(r, v) for r in range(spec.rows) for v in range(len(self.starts))]

        def steps(count: int, k: str, a_at: str, b_at: str, sums: list[str]) -> tuple[str, str, list[str]]:
            for _ in range(count):
                line = self.at(above, b_at)
                vectors = [self.load(self.at(line, s, self.dtype), self.dtype, lanes) for s in self.starts]
                ones = [self.load(self.at(r, a_at), self.dtype, 1) for r in rows]
                wide = [self.splat(one, self.dtype, lanes) for one in ones]
                sums = [
                    self._multiply_add(wide[r], vectors[v], total, lanes)
                    for (r, v), total in zip(cells, sums, strict=True)
                ]
                a_at = self.number("add", a_at, self.base["a_along"] if spec.turned else WIDTH)
                b_at = self.number("add", b_at, self.base["b_row"])
            return a_at, b_at, sums

        carried = [("i64", "0"), ("i64", "0")] + [(kind, self._zero(lanes))] * len(cells)
        depth = self.base["depth"]
        whole = self.number("sub", depth, self.number("urem", depth, UNROLLED))
        for first, end, count in (("0", whole, UNROLLED), (whole, depth, 1)):

            def step(k: str, held: list[str], count: int = count) -> list[str]:
                a_at, b_at, sums = steps(count, k, held[0], held[1], held[2:])
                return [a_at, b_at, *sums]

            found = self.loop(first, end, count, step, carried)
            carried = [(t, v) for (t, _), v in zip(carried, found, strict=True)]
        sums = [v for _, v in carried[2:]]
        places = [self.number("add", column, start) for start in self.starts]
        self._finish_tile(here, row, [(r, places[v]) for r, v in cells], sums, lanes)

    def _single(self, index: str, _: list[str]) -> list[str]:
        """All of a target of one row: some rows of b after the other are added to it."""
        here, depth, n = self.here(index, self.base, self.step), self.base["depth"], self.base["n"]
        line, target = self.pointer(here["a"]), self.pointer(here["target"])
        above = self.pointer(here["b"])

        def over(body: Callable[[str, int], None]) -> None:
            """All of the row, each element once."""
            first = "0"
            for lanes in (4 * self.lanes, self.lanes, 1):
                end = self.number("sub", n, self.number("urem", self.number("sub", n, first), lanes))

                def some(place: str, _: list[str], lanes: int = lanes) -> list[str]:
                    body(place, lanes)
                    return []

                self.loop(first, end, lanes, some)
                first = end

        def add_rows(k: str, count: int) -> None:
            ones, rows = [], []
            for j in range(count):
                number = self.number("add", k, j)
                at = self.number("mul", number, self.base["a_along"])
                ones.append(self.load(self.at(line, at), self.dtype, 1))
                rows.append(self.at(above, self.number("mul", number, self.base["b_row"])))

            def some(place: str, lanes: int) -> None:
                home = self.at(target, place, self.dtype)
                total = self.load(home, self.dtype, lanes)
                for one, row in zip(ones, rows, strict=True):
                    vector = self.load(self.at(row, place, self.dtype), self.dtype, lanes)
                    total = self._multiply_add(self.splat(one, self.dtype, lanes), vector, total, lanes)
                self.store(total, home, self.dtype, lanes)

            over(some)

        def clear(place: str, lanes: int) -> None:
            self.store(self._zero(lanes), self.at(target, place, self.dtype), self.dtype, lanes)

        over(clear)
        whole = self.number("sub", depth, self.number("urem", depth, 2 * UNROLLED))
        for first, end, count in (("0", whole, 2 * UNROLLED), (whole, depth, 1)):

            def step(k: str, _: list[str], count: int = count) -> list[str]:
                add_rows(k, count)
                return []

            self.loop(first, end, count, step)
        if self.spec.end.args or self.spec.terms:
            c = self.pointer(here["c"]) if self.spec.c else None
            lefts = self._lefts(self.pointer(here["left"])) if self.spec.terms else []
            beside = _Beside(target, c, lefts, self._rights(here))
            over(
                lambda place, lanes: self._finish(
                    self.load(self.at(target, place, self.dtype), self.dtype, lanes), beside, place, lanes
                )
            )
        return []

    # ---- both along k

    def _dots(self, here: dict[str, str], row: str, column: str) -> None:
        spec, lanes = self.spec, self.lanes
        rows = self._lines(here["a"], row, "a_row", spec.rows)
        columns = self._lines(here["b"], column, "b_row", spec.columns)
        kind = value_type(self.dtype, lanes)
        cells = [(r, c) for r in range(spec.rows) for c in range(spec.columns)]

        def step(k: str, sums: list[str], lanes: int, mask: str = "") -> list[str]:
            xs, ys = (
                [self._some(self.at(p, k, self.dtype), lanes, mask) for p in lines]
                for lines in (rows, columns)
            )
            return [self._multiply_add(xs[r], ys[c], s, lanes) for (r, c), s in zip(cells, sums, strict=True)]

        depth = self.base["depth"]
        whole = self.number("sub", depth, self.number("urem", depth, lanes))
        carried = [(kind, self._zero(lanes))] * len(cells)
        sums = self.loop(0, whole, lanes, lambda k, held: step(k, held, lanes), carried)
        if self.target.masks:  # what is left, as a vector of which the rest is 0
            mask = "%first"
            left = self.number("sub", depth, whole)
            self.lines += ["  " + line for line in first_lanes("first", left, lanes)]
            carried = [(kind, s) for s in sums]
            sums = self.loop(whole, depth, lanes, lambda k, held: step(k, held, lanes, mask), carried)
        places = [self.number("add", column, c) for c in range(spec.columns)]
        totals = [self._together(sums[r * spec.columns : (r + 1) * spec.columns]) for r in range(spec.rows)]
        ones = [
            self.line(f"extractelement {value_type(self.dtype, DOTS)} {totals[r]}, i32 {c}") for r, c in cells
        ]
        if not self.target.masks:
            carried = [(value_type(self.dtype, 1), t) for t in ones]
            ones = self.loop(whole, depth, 1, lambda k, held: step(k, held, 1), carried)
        self._finish_tile(here, row, [(r, places[c]) for r, c in cells], ones, 1)

    def _some(self, pointer: str, lanes: int, mask: str) -> str:
        """A vector; of the lanes that are masked out, 0 without a look at memory."""
        if not mask:
            return self.load(pointer, self.dtype, lanes)
        loaded, declaration = masked_load(pointer, mask, self.dtype, lanes)
        self.declared.add(declaration)
        return self.line(loaded)

    def _together(self, vectors: list[str]) -> str:
        """The sums of the elements of up to four vectors, side by side: halves upon halves, all at once."""
        lanes = self.lanes
        a, b, c, d = (vectors + vectors[-1:] * DOTS)[:DOTS]
        total = self._folded([self._folded([a, b], lanes, 1), self._folded([c, d], lanes, 1)], lanes, 2)
        while lanes > DOTS:
            total, lanes = self._folded([total], lanes, DOTS), lanes // 2
        return total

    def _folded(self, vectors: list[str], lanes: int, parts: int) -> str:
        """One or two vectors of so many parts each: the halves of every part, added up."""
        x, y, half = read(0, self.dtype), read(1, self.dtype), lanes // parts // 2
        kind, halves = value_type(self.dtype, lanes), []
        for second in (0, half):
            begins = [v * lanes + p * 2 * half + second for v in range(len(vectors)) for p in range(parts)]
            places = [f"i32 {begin + k}" for begin in begins for k in range(half)]
            mask = f"<{len(places)} x i32> <{', '.join(places)}>"
            halves.append(self.line(f"shufflevector {kind} {vectors[0]}, {kind} {vectors[-1]}, {mask}"))
        return self.evaluate(add(x, y), len(places), {x: halves[0], y: halves[1]})

    # ---- what both have

    def _lines(self, word: str, first: str, pitch: str, count: int) -> list[str]:
        """Pointers to so many rows from one on."""
        line = self.at(self.pointer(word), self.number("mul", first, self.base[pitch]))
        found = [line]
        for _ in range(count - 1):
            found.append(self.at(found[-1], self.base[pitch]))
        return found

    def _multiply_add(self, x: str, y: str, total: str, lanes: int) -> str:
        a, b, c = (read(k, self.dtype) for k in range(3))
        if self.spec.parts == 1:
            return self.evaluate(fma(a, b, c), lanes, {a: x, b: y, c: total})
        if self.spec.parts == 2:
            return self._of_parts(x, y, total, lanes)
        width = min(lanes, self.target.vector_bytes // WIDTH)
        if not self.target.fours or 32 * width not in FOURS:
            return self._of_parts(x, y, total, lanes)
        name, made = f"llvm.x86.avx512.vpdpbusd.{32 * width}", []
        kind, whole = value_type(INT32, width), value_type(INT32, lanes)
        self.declared.add(f"declare {kind} @{name}({kind}, {kind}, {kind})")
        for first in range(0, lanes, width):
            factors = (y, x) if self.spec.a_signed else (x, y)  # the one without signs is the first
            given = [self._part(v, whole, first, width, lanes) for v in (total, *factors)]
            made.append(self.line(f"call {kind} @{name}({', '.join(f'{kind} {v}' for v in given)})"))
        while len(made) > 1:
            joined, width = [], 2 * width
            places = ", ".join(f"i32 {k}" for k in range(width))
            for one, two in zip(made[::2], made[1::2], strict=True):
                both = f"{kind} {one}, {kind} {two}"
                joined.append(self.line(f"shufflevector {both}, <{width} x i32> <{places}>"))
            made, kind = joined, value_type(INT32, width)
        return made[0]

    def _part(self, vector: str, kind: str, first: int, width: int, lanes: int) -> str:
        if width == lanes:
            return vector
        places = ", ".join(f"i32 {first + k}" for k in range(width))
        return self.line(f"shufflevector {kind} {vector}, {kind} poison, <{width} x i32> <{places}>")

    def _of_parts(self, x: str, y: str, total: str, lanes: int) -> str:
        """Part by part; for two of 16 bits processors have one instruction for all of this."""
        parts, kind = self.spec.parts, value_type(INT32, lanes)
        many, small = lanes * parts, f"i{32 // parts}"
        products = []
        for part in range(parts):
            places = ", ".join(f"i32 {parts * k + part}" for k in range(lanes))
            factors = []
            for vector, signed in ((x, parts == 2 or self.spec.a_signed), (y, not self.spec.a_signed)):
                every = self.line(f"bitcast {kind} {vector} to <{many} x {small}>")
                mask = f"<{many} x {small}> poison, <{lanes} x i32> <{places}>"
                found = self.line(f"shufflevector <{many} x {small}> {every}, {mask}")
                widen = f"{'sext' if signed else 'zext'} <{lanes} x {small}> {found}"
                factors.append(self.line(f"{widen} to <{lanes} x i32>"))
            products.append(self.line(f"mul <{lanes} x i32> {', '.join(factors)}"))
        both = products[0]
        for other in products[1:]:
            both = self.line(f"add <{lanes} x i32> {both}, {other}")
        if lanes == 1:
            both = self.line(f"extractelement <1 x i32> {both}, i32 0")
        return self.line(f"add {kind} {total}, {both}")

    def _zero(self, lanes: int) -> str:
        return "zeroinitializer" if lanes > 1 else "0.0" if self.spec.parts == 1 else "0"

    def _lefts(self, line: str) -> list[str]:
        """The terms' numbers for a row, which lie there."""
        return [self.load(self.at(line, t, INT32), INT32, 1) for t in range(self.spec.terms)]

    def _rights(self, here: dict[str, str]) -> list[str]:
        """Where the terms' numbers for columns lie."""
        return self._lines(here["right"], "0", "right_row", self.spec.terms) if self.spec.terms else []

    def _finish_tile(
        self, here: dict[str, str], row: str, cells: list[tuple[int, str]], sums: list[str], lanes: int
    ) -> None:
        """The sums, each of a row from this one on and the columns from a place on, go to the target."""
        spec = self.spec
        targets = self._lines(here["target"], row, "target_row", spec.rows)
        others = self._lines(here["c"], row, "c_row", spec.rows) if spec.c else [None] * spec.rows
        lines = self._lines(here["left"], row, "left_row", spec.rows) if spec.terms else []
        lefts, rights = [self._lefts(line) for line in lines] or [[]] * spec.rows, self._rights(here)
        for (r, place), total in zip(cells, sums, strict=True):
            self._finish(total, _Beside(targets[r], others[r], lefts[r], rights), place, lanes)

    def _finish(self, total: str, beside: _Beside, column: str, lanes: int) -> None:
        x, y, z = (read(k, self.dtype) for k in range(3))
        for left, right in zip(beside.lefts, beside.rights, strict=True):
            factors = {
                y: self.splat(left, INT32, lanes),
                z: self.load(self.at(right, column, INT32), INT32, lanes),
            }
            total = self.evaluate(add(x, mul(y, z)), lanes, {x: total, **factors})
        known = {x: total}
        if beside.c is not None:
            repeats = self.spec.c_repeats
            found = self.load(
                beside.c if repeats else self.at(beside.c, column, self.dtype),
                self.dtype,
                1 if repeats else lanes,
            )
            known[y] = self.splat(found, self.dtype, lanes) if repeats else found
        value = self.evaluate(self.spec.end, lanes, known)
        self.store(value, self.at(beside.target, column, self.dtype), self.dtype, lanes)
