"""Row functions of cheap expressions whose rows are so short that a call for each would be most of the time.

An "element" of the iteration space is a row; how long it is follows the operands' addresses. A row goes as
vectors, its end as some lanes of one: outputs may be inputs, so that no element has its turn twice.
"""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_load, masked_store
from anydml.codegen.target import Target
from anydml.codegen.writer import LoopEmitter
from anydml.ops.expr import Expr, read

MAX_ROW_BYTES = 1 << 11
"""Of an operand: longer ones are worth a call, and stores that are aligned."""


def lanes_of_rows(group: KernelSpec, target: Target) -> int:
    return target.vector_bytes // max(group.widths)


def can_end(group: KernelSpec, target: Target) -> bool:
    """Whether rows may be any number of elements: there are loads and stores of some lanes."""
    return target.masks and {*group.widths} <= {4, 8}


class ShortRowEmitter(LoopEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = lanes_of_rows(group, target)

    def write(self) -> None:
        everything = range(len(self.group.operands))
        self.operands(everything)
        for k in everything:
            self.word(f"s{k}", "%strides", k)
        self.word("m", "%operands", len(everything))
        self.emit_lines(
            f"%whole = and i64 %m, {-self.lanes}",
            "%left = sub i64 %m, %whole",
            "%any = icmp sgt i64 %whole, 0",
        )
        ends = can_end(self.group, self.target)
        if ends:
            self.emit_lines("%some = icmp sgt i64 %left, 0", *first_lanes("first", "%left", self.lanes))
        self.emit_lines("br label %row", "row:", "%i = phi i64 [ 0, %entry ], [ %i.next, %done ]")
        for k in everything:
            self.emit_lines(f"%q{k} = phi ptr [ %p{k}, %entry ], [ %q{k}.next, %done ]")
        splats = self._splats()
        self.emit_lines("br i1 %any, label %part, label %rest", "part:")
        self.emit_lines("%j = phi i64 [ 0, %row ], [ %j.next, %part ]")
        self._vector("part", "%j", splats, masked=False)
        self.emit_lines(
            f"%j.next = add i64 %j, {self.lanes}",
            "%j.more = icmp slt i64 %j.next, %whole",
            "br i1 %j.more, label %part, label %rest",
            "rest:",
        )
        if ends:
            self.emit_lines("br i1 %some, label %end, label %done", "end:")
            self._vector("end", "%whole", splats, masked=True)
        self.emit_lines("br label %done", "done:")
        self.emit_lines(*(f"%q{k}.next = getelementptr i8, ptr %q{k}, i64 %s{k}" for k in everything))
        self.emit_lines("%i.next = add i64 %i, 1", "%i.more = icmp slt i64 %i.next, %n")
        self.emit_lines("br i1 %i.more, label %row, label %return", "return:")

    def _splats(self) -> dict[Expr, str]:
        """Of operands that are one element for a row, and what follows from them, in every lane."""
        ones: dict[Expr, str] = {}
        for k, dtype in enumerate(self.group.inputs):
            if self.is_(k, Access.SPLAT):
                self.emit_lines(f"%one{k} = load {element_type(dtype)}, ptr %q{k}, align 1")
                ones[read(k, dtype)] = f"%one{k}"
        ones |= self.of_splats(lambda k: f"%one{k}")
        return {e: self.broadcast(one, e.dtype, f"wide{k}") for k, (e, one) in enumerate(ones.items())}

    def _vector(self, label: str, place: str, splats: Mapping[Expr, str], masked: bool) -> None:
        """Elements from a place on."""
        group, lanes, known = self.group, self.lanes, dict(splats)
        for k, dtype in enumerate(group.operands):
            if not self.is_(k, Access.SPLAT):
                self.emit_lines(
                    f"%{label}.a{k} = getelementptr {element_type(dtype)}, ptr %q{k}, i64 {place}"
                )
        for k, dtype in enumerate(group.inputs):
            if self.is_(k, Access.SPLAT):
                continue
            register, pointer = f"%{label}.x{k}", f"%{label}.a{k}"
            known[read(k, dtype)] = register
            if masked:
                loaded, declaration = masked_load(pointer, "%first", dtype, lanes)
                self.declared.add(declaration)
            else:
                loaded = f"load {value_type(dtype, lanes)}, ptr {pointer}, align 1"
            self.emit_lines(f"{register} = {loaded}")
        emitter = self.emitter(known)
        values = [emitter.value(e) for e in group.outputs]
        self.flush(emitter)
        for k, value in enumerate(values, start=self.count):
            dtype = group.operands[k]
            pointer = f"%{label}.a{k}"
            if masked:
                stored, declaration = masked_store(value, pointer, "%first", dtype, lanes)
                self.declared.add(declaration)
            else:
                stored = f"store {value_type(dtype, lanes)} {value}, ptr {pointer}, align 1"
            self.emit_lines(stored)
