"""Row functions that reduce rows of a few vectors, which stay in registers from one stage to the next.

A row is cut into parts of 4, 2 or 1 vectors, of which the last one is read and written by a mask; what is
beyond its end contributes nothing. Several rows are under way at once, since none waits for another.
"""

from __future__ import annotations

from functools import lru_cache

from anydml.codegen.blocked_loop import BlockedLoopEmitter
from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_load, masked_store
from anydml.codegen.stages import Reduction, accumulator_of, kept_value, same_for_a_row
from anydml.codegen.target import Target
from anydml.dataclass import dataclass, field
from anydml.ops.dtypes import BOOL, SIZE
from anydml.ops.expr import Expr, read
from anydml.ops.reductions import stages_of

MOST_VECTORS = 4
"""Of a part: more at a time would not fit registers."""
MAX_WORDS = 1000
"""Of all vectors of a row: more would take long to compile."""


def registers_of(group: KernelSpec, length: int, target: Target) -> int:
    """The vectors of a row, if it is best that it stays in registers: else it is passed several times, and
    what is expensive and needed again held in memory. Whole blocks are quick there."""
    lanes = target.vector_bytes // 4
    if not target.masks or {SIZE[t] for t in group.operands} != {4} or length % (MOST_VECTORS * lanes) == 0:
        return 0
    vectors, most = -(-length // lanes), 16 if target.vector_bytes == 64 else 4
    few = vectors <= most and vectors * len(group.words) <= MAX_WORDS
    return vectors if few and _keeps(group) else 0


@lru_cache(maxsize=1024)
def _keeps(group: KernelSpec) -> bool:
    """Whether something expensive is needed again, which every launch asks."""
    return kept_value(group, stages_of(group.outputs)) is not None


@dataclass
class _Part:
    """Some vectors of the row."""

    first: int
    lanes: int
    masked: bool
    known: dict[Expr, str] = field(default_factory=dict)


class RegisterRowEmitter(BlockedLoopEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        lanes, self.parts, first = target.vector_bytes // 4, list[_Part](), 0
        left = shape.registers
        while left:
            vectors = next(n for n in (MOST_VECTORS, 2, 1) if n <= left)
            left -= vectors
            self.parts.append(_Part(first, vectors * lanes, masked=not left))
            first += vectors * lanes

    def write(self) -> None:
        everything, last = range(len(self.group.operands)), self.parts[-1]
        self.narrow(max(part.lanes for part in self.parts))
        self.operands(everything)
        for k in everything:
            self.word(f"s{k}", "%strides", k)
        self.word("m", "%operands", len(everything))
        self.emit_lines(f"%rest = sub i64 %m, {last.first}", *first_lanes("given", "%rest", last.lanes))
        self.emit_lines("%some = icmp sgt i64 %n, 0", "br i1 %some, label %row, label %return", "row:")
        here = len(self.lines)  # what leads back here is known at the end
        self._read()
        row: dict[Expr, str] = {}
        for stage in self.stages:
            row |= {e: self._reduced(Reduction(e, accumulator_of(e))) for e in stage}
            self._tell(row)
        for k, output in enumerate(self.group.outputs, start=self.count):
            for part in self.parts:
                self._write(k, part, self._value(part, output))
        self.emit_lines("br label %done", "done:")
        pointers = [f"%q{k} = phi ptr [ %p{k}, %entry ], [ %q{k}.next, %done ]" for k in everything]
        phis = ["%i = phi i64 [ 0, %entry ], [ %i.next, %done ]", *pointers]
        self.lines[here:here] = ["  " + line for line in phis]
        self.emit_lines(*(f"%q{k}.next = getelementptr i8, ptr %q{k}, i64 %s{k}" for k in everything))
        self.emit_lines("%i.next = add i64 %i, 1", "%i.more = icmp slt i64 %i.next, %n")
        self.emit_lines("br i1 %i.more, label %row, label %return", "return:")

    def _read(self) -> None:
        """The inputs of each part."""
        for k, dtype in enumerate(self.group.inputs):
            kind, leaf = element_type(dtype), read(k, dtype)
            if self.is_(k, Access.SPLAT):
                self.emit_lines(f"%one{k} = load {kind}, ptr %q{k}, align 1")
            for part in self.parts:
                at = f"%x{k}.{part.first}"
                if self.is_(k, Access.SPLAT):
                    part.known[leaf] = self.broadcast(f"%one{k}", dtype, at[1:], part.lanes)
                    continue
                self.emit_lines(f"{at}.p = getelementptr {kind}, ptr %q{k}, i64 {part.first}")
                loaded = f"load {value_type(dtype, part.lanes)}, ptr {at}.p, align 1"
                if part.masked:
                    loaded, declaration = masked_load(f"{at}.p", "%given", dtype, part.lanes)
                    self.declared.add(declaration)
                self.emit_lines(f"{at} = {loaded}")
                part.known[leaf] = at
        for position in (e for e in self.group.words if e.opcode == "row_index"):
            for part in self.parts:
                numbers = ", ".join(f"i32 {part.first + k}" for k in range(part.lanes))
                part.known[position] = f"<{numbers}>"

    def _tell(self, row: dict[Expr, str]) -> None:
        """Tell all parts what is known of the row, and what follows from that alone."""
        emitter = self.emitter(row, 1)
        for e in same_for_a_row(row, [*self.group.outputs, *(e for stage in self.stages for e in stage)]):
            row[e] = emitter.value(e)
        self.flush(emitter)
        for part in self.parts:
            for e, one in row.items():
                if e not in part.known:
                    part.known[e] = self.broadcast(one, e.dtype, self.label(), part.lanes)
        self.some = {e: one for e, one in row.items() if e.dtype is BOOL}

    def _value(self, part: _Part, e: Expr) -> str:
        emitter = self.emitter(part.known, part.lanes)
        emitter.some = dict(self.some)
        value = emitter.value(e)
        self.flush(emitter)
        part.known |= emitter.known
        return value

    def _reduced(self, r: Reduction) -> str:
        """The row's elements as one number."""
        argument = r.argument
        width = self.target.vector_bytes // SIZE[r.dtype]
        total = f"splat ({element_type(r.dtype)} {r.start(r.dtype)})"
        for part in self.parts:
            value, kind = self._value(part, argument), value_type(argument.dtype, part.lanes)
            if part.masked:
                nothing = f"splat ({element_type(argument.dtype)} {r.start(argument.dtype)})"
                given, name = f"{value_type(BOOL, part.lanes)} %given", f"%{self.label()}"
                self.emit_lines(f"{name} = select {given}, {kind} {value}, {kind} {nothing}")
                value = name
            value = self.widened(self.lines, r, value, part.lanes, width)
            sums = self.emitter({r.leaf: total, read(-2, r.dtype): value}, width)
            total = sums.value(r.combined(r.leaf, read(-2, r.dtype)))
            self.flush(sums)
        return self.reduce_lanes(r, total, width)

    def _write(self, k: int, part: _Part, value: str) -> None:
        dtype, at = self.group.operands[k], f"%y{k}.{part.first}"
        self.emit_lines(f"{at} = getelementptr {element_type(dtype)}, ptr %q{k}, i64 {part.first}")
        stored = f"store {value_type(dtype, part.lanes)} {value}, ptr {at}, align 1"
        if part.masked:
            stored, declaration = masked_store(value, at, "%given", dtype, part.lanes)
            self.declared.add(declaration)
        self.emit_lines(stored)
