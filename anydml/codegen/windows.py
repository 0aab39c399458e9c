"""Kernel bodies that reduce windows: a row of outputs from the rows that its windows lie in.

    rows of the input        column by column, into a row near by, with what changes nothing at its ends
    that row                 window by window, into the output

An "element" of the iteration space is a row of the output. Some words of the launch descriptor that advance
from row to row are no addresses but numbers: where the row's windows begin along each axis but the last. So
windows that reach beyond the input need no code of their own: along these axes their elements are counted.

Of maxima, where they are may be wanted, too. Then each value goes with its place in the plane of windows, and
of equal values the one of the first place is the greatest; a NaN is greater than all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydml.codegen.emit import Emitter
from anydml.codegen.llvm_types import element_type, literal, value_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOATING, SIZE, UINT32, ScalarType
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, and_, convert, eq, gt, is_nan, lt, not_, or_, read, select, sub

NEAR_BYTES = 3072
"""Of the row near by: less than a page of the stack."""
MAX_BLOCK = 256
"""Outputs that are computed from one row near by, at most."""
MAX_INTERLEAVED = 4
"""Steps from window to window up to which vectors are picked from longer ones, not gathered."""
_NOWHERE = 0xFFFFFFFF
"""The place of what changes nothing."""


@dataclass(frozen=True)
class WindowSpec:
    """What is computed of each window, and how windows lie along the last axis."""

    source: TensorDataType
    wide: ScalarType
    """What is added up, or compared."""
    before: Expr
    """Of an element of the input, read(0)."""
    combined: Expr
    """Of what there is so far, read(0), and another one, read(1)."""
    after: Expr
    """Of the whole, read(0), and its divisor, read(1)."""
    nothing: int | float
    """Combined with it, everything stays what it is."""
    divided: bool
    """There are divisors, and rows with a result that is not finite are marked."""
    axes: int
    """Along which windows lie."""
    size: int
    """Of a window, along the last axis; then from one to the next, and from element to element."""
    stride: int
    dilation: int
    index: TensorDataType | None = None
    """Of where in the input maxima are; it is packed."""

    @property
    def near(self) -> int:
        """Elements of the row near by, each with its place where that is wanted."""
        return NEAR_BYTES // sum(SIZE[dtype] for dtype in self.carried)

    @property
    def carried(self) -> list[ScalarType]:
        return [self.wide] if self.index is None else [self.wide, UINT32]

    @property
    def block(self) -> int:
        """Outputs that are computed from one row near by; less than 1 where not even one fits."""
        reach = (self.size - 1) * self.dilation + 1 + self.stride
        return min(MAX_BLOCK, (self.near - reach) // self.stride + 1)

    @property
    def arrays(self) -> list[str]:
        others = ["divisors", "marks"] if self.divided else [] if self.index is None else ["indices"]
        return ["source", "target", *others]


def words_of(spec: WindowSpec) -> list[str]:
    """The words of a launch descriptor, by name; numbers behind names are axes of windows but the last."""
    names = [*spec.arrays, *(["origin"] if spec.index else [])]
    names += [f"first{a}" for a in range(spec.axes - 1)]
    for a in range(spec.axes - 1):
        names += [f"length{a}", f"pitch{a}", f"size{a}", f"dilation{a}"]
    return [*names, "length", "places", "padding"]


class WindowWriter(RowWriter):
    def __init__(self, spec: WindowSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        widest = max(SIZE[dtype] for dtype in (spec.source, *spec.carried))
        self.lanes = max(1, target.vector_bytes // widest)

    def write(self) -> None:
        spec = self.spec
        names = words_of(spec)
        for k, dtype in enumerate(spec.carried):
            self.lines.append(f"  %near{k} = alloca [{spec.near} x {element_type(dtype)}], align 64")
        self.base, self.step = self.words(names, names.index("length0"))
        self.loop(0, "%n", 1, lambda row, _: self._row(row))

    def _row(self, row: str) -> Sequence[str]:
        """A row of outputs, block by block."""
        spec, here = self.spec, self.here(row, self.base, self.step)
        pointers = {name: self.pointer(here[name]) for name in spec.arrays}
        self.plane, self.origin = here["source"], here.get("origin")
        if spec.divided:
            self.store("0", pointers["marks"], TensorDataType.INT8, 1)
        taps = [self._taps(a, here[f"first{a}"]) for a in range(spec.axes - 1)]
        source = pointers["source"]
        for a, (start, _, _) in enumerate(taps):
            source = self.at(source, self.number("mul", start, self.base[f"pitch{a}"]))

        def block(first: str, _: list[str]) -> list[str]:
            left = self.number("sub", self.base["places"], first)
            self._outputs(first, self.bounded("smin", left, spec.block), source, taps, pointers)
            return []

        self.loop(0, self.base["places"], spec.block, block)
        return []

    def _taps(self, axis: int, first: str) -> tuple[str, str, str]:
        """Of windows that begin at `first`, which may be outside: the first element that is inside, how many
        there are, and how many bytes lie between two."""
        length, dilation = self.base[f"length{axis}"], self.base[f"dilation{axis}"]
        missing = self.number("sub", self.number("sub", dilation, 1), first)
        skipped = self.bounded("smax", self.number("sdiv", missing, dilation), 0)
        start = self.number("add", first, self.number("mul", skipped, dilation))
        room = self.number("sub", self.number("sub", length, 1), start)
        fitting = self.number("add", self.number("sdiv", room, dilation), 1)
        left = self.number("sub", self.base[f"size{axis}"], skipped)
        count = self.bounded("smax", self.bounded("smin", fitting, left), 0)
        inside = self.line(f"icmp slt i64 {start}, {length}")
        count = self.line(f"select i1 {inside}, i64 {count}, i64 0")
        none = self.line(f"icmp eq i64 {count}, 0")
        start = self.line(f"select i1 {none}, i64 0, i64 {start}")
        return start, count, self.number("mul", self.base[f"pitch{axis}"], dilation)

    def _outputs(
        self,
        first: str,
        count: str,
        source: str,
        taps: Sequence[tuple[str, str, str]],
        pointers: Mapping[str, str],
    ) -> None:
        """`count` outputs from `first` on."""
        spec = self.spec
        begin = self.number("sub", self.number("mul", first, spec.stride), self.base["padding"])
        span = self.number("mul", self.number("sub", count, 1), spec.stride)
        span = self.number("add", span, (spec.size - 1) * spec.dilation + 1)
        inside = self.bounded("smin", self.bounded("smax", self.number("sub", "0", begin), 0), span)
        end = self.bounded("smin", self.number("sub", self.base["length"], begin), span)
        end = self.bounded("smax", end, inside)

        def store(values: Sequence[str], index: str, lanes: int) -> None:
            for k, (value, dtype) in enumerate(zip(values, spec.carried, strict=True)):
                self.store(value, self.at(f"%near{k}", index, dtype), dtype, lanes)

        def clear(index: str, lanes: int) -> None:
            store(self._nothing(lanes), index, lanes)

        steps = (2 * self.lanes, self.lanes, self.lanes // 4, 1)
        self.all_of("0", inside, steps, clear)
        self.all_of(end, span, steps, clear)

        def column(index: str, lanes: int) -> None:
            place = self.at(source, self.number("add", begin, index), spec.source)
            store(self._down(place, lanes, taps), index, lanes)

        self.all_of(inside, end, steps, column)

        def window(index: str, lanes: int) -> None:
            start = self.number("mul", index, spec.stride)
            rows = [
                (self.at(f"%near{k}", start, dtype), dtype, dict[int, str]())
                for k, dtype in enumerate(spec.carried)
            ]
            total: list[str] = []
            for k in range(spec.size):
                values = [self._every(*row, k * spec.dilation, lanes) for row in rows]
                total = self._combine(total, values, lanes) if k else values
            output = self.number("add", first, index)
            known = {read(0, spec.wide): total[0]}
            if spec.divided:
                place = self.at(pointers["divisors"], output, TensorDataType.FLOAT32)
                known[read(1, TensorDataType.FLOAT32)] = self.load(place, TensorDataType.FLOAT32, lanes)
            value, dtype = self.evaluate(spec.after, lanes, known), spec.after.dtype
            self.store(value, self.at(pointers["target"], output, dtype), dtype, lanes)
            if spec.divided:
                self._mark(value, dtype, lanes, pointers["marks"])
            if spec.index:
                self._store_places(total[1], self.at(pointers["indices"], output, spec.index), lanes)

        self.all_of("0", count, steps, window)

    def _nothing(self, lanes: int) -> list[str]:
        """What changes nothing, behind all places."""
        spec = self.spec
        values = [literal(spec.nothing, spec.wide), literal(_NOWHERE, UINT32)][: len(spec.carried)]
        if lanes == 1:
            return values
        return [f"splat ({element_type(t)} {v})" for t, v in zip(spec.carried, values, strict=True)]

    def _down(self, place: str, lanes: int, taps: Sequence[tuple[str, str, str]]) -> list[str]:
        """Neighbouring columns, each reduced along all axes but the last: the first axis first."""
        spec = self.spec
        if not taps:
            x = self.load(place, spec.source, lanes)
            value = self.evaluate(spec.before, lanes, {read(0, spec.source): x})
            return [value, self._places(place, lanes)] if spec.index else [value]
        *outer, (_, count, pitch) = taps

        def one(_: str, carried: list[str]) -> list[str]:
            *total, pointer = carried
            values = self._down(pointer, lanes, outer)
            return [*self._combine(total, values, lanes), self.at(pointer, pitch)]

        kinds = [value_type(dtype, lanes) for dtype in spec.carried]
        start = [*zip(kinds, self._nothing(lanes), strict=True), ("ptr", place)]
        return self.loop(0, count, 1, one, start)[:-1]

    def _combine(self, total: Sequence[str], values: Sequence[str], lanes: int) -> list[str]:
        """What there is so far, and more."""
        wide = self.spec.wide
        a, b, here, there = read(0, wide), read(1, wide), read(2, UINT32), read(3, UINT32)
        known = dict(zip((a, here), total, strict=False)) | dict(zip((b, there), values, strict=False))
        if self.spec.index is None:
            return [self.evaluate(self.spec.combined, lanes, known)]
        better, equal = gt(b, a), eq(b, a)
        if wide in FLOATING:
            better = or_(better, and_(is_nan(b), not_(is_nan(a))))
            equal = or_(equal, and_(is_nan(b), is_nan(a)))
        better = or_(better, and_(equal, lt(there, here)))
        return [self.evaluate(select(better, x, y), lanes, known) for x, y in ((b, a), (there, here))]

    def _places(self, pointer: str, lanes: int) -> str:
        """Of neighbours in the plane of windows."""
        behind = self.number("sub", self.line(f"ptrtoint ptr {pointer} to i64"), self.plane)
        first = self.line(f"trunc i64 {self.number('sdiv', behind, SIZE[self.spec.source])} to i32")
        if lanes == 1:
            return first
        kind, counted = value_type(UINT32, lanes), ", ".join(f"i32 {k}" for k in range(lanes))
        return self.line(f"add {kind} {self.splat(first, UINT32, lanes)}, <{counted}>")

    def _store_places(self, places: str, pointer: str, lanes: int) -> None:
        """As flat indices of the input; where there was nothing but padding, that of the plane's first."""
        index = self.spec.index
        assert index is not None
        assert self.origin is not None
        origin = self.origin if SIZE[index] == 8 else self.line(f"trunc i64 {self.origin} to i32")
        place, start = read(0, UINT32), read(1, index)
        found = convert(select(eq(place, _NOWHERE), 0, place), index)
        known = {place: places, start: self.splat(origin, index, lanes)}
        self.store(self.evaluate(add(found, start), lanes, known), pointer, index, lanes)

    def _every(self, near: str, wide: ScalarType, loaded: dict[int, str], offset: int, lanes: int) -> str:
        """Elements of a row near by from an offset on, as far apart as windows are. `loaded`: stretches of
        it, by their offsets, of which others are picked, too."""
        stride = self.spec.stride
        if stride == 1 or lanes == 1:
            return self.load(self.at(near, offset, wide), wide, lanes)
        kind = value_type(wide, lanes)
        if stride <= MAX_INTERLEAVED:
            phase = offset % stride
            if offset - phase not in loaded:
                loaded[offset - phase] = self.load(self.at(near, offset - phase, wide), wide, stride * lanes)
            picked = ", ".join(f"i32 {phase + j * stride}" for j in range(lanes))
            both = f"{value_type(wide, stride * lanes)}"
            whole = f"{both} {loaded[offset - phase]}, {both} poison"
            return self.line(f"shufflevector {whole}, <{lanes} x i32> <{picked}>")
        vector = "poison"
        for j in range(lanes):
            one = self.load(self.at(near, offset + j * stride, wide), wide, 1)
            vector = self.line(f"insertelement {kind} {vector}, {element_type(wide)} {one}, i32 {j}")
        return vector

    def _mark(self, value: str, dtype: ScalarType, lanes: int, mark: str) -> None:
        """Remember that one of these is not finite."""
        x = read(0, dtype)
        self._count += 1
        emitter = Emitter(self.target, lanes, {x: value}, f"e{self._count}.")
        some = emitter.any_lane(emitter.value(is_nan(sub(x, x))))
        self.lines += emitter.lines
        self.declared |= emitter.declared
        byte = self.line(f"zext i1 {some} to i8")
        before = self.load(mark, TensorDataType.INT8, 1)
        self.store(self.line(f"or i8 {byte}, {before}"), mark, TensorDataType.INT8, 1)
