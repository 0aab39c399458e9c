"""Row functions that reduce rows which lie beside each other, as columns of a matrix: in vectors across them.

    x[k, 0], x[k, 1], ... are neighbours: a lane for each column, and a loop over k in each stage

What is left behind the last whole vectors goes as some lanes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_load, masked_store
from anydml.codegen.reduction import ReductionEmitter
from anydml.codegen.stages import Reduction, accumulator_of
from anydml.codegen.target import Target
from anydml.ops.dtypes import ScalarType
from anydml.ops.expr import Expr, convert, read
from anydml.ops.reductions import needed_for

Carried = Sequence[tuple[str, str]]
"""Types and values."""
Inner = Callable[[Sequence[str], str, Sequence[str]], list[str]]
"""(pointers to elements, their index, what is carried) -> what is carried on."""


class ColumnEmitter(ReductionEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = shape.columns * target.vector_bytes // 4
        self._mask: str | None = None

    def write(self) -> None:
        everything = range(len(self.group.operands))
        self.operands(everything)
        self.extents()
        self.emit_lines(f"%whole = and i64 %n, {-self.lanes}", "%left = sub i64 %n, %whole")
        self.emit_lines("%any = icmp sgt i64 %whole, 0", "br i1 %any, label %begin, label %rest", "begin:")
        self.emit_lines("br label %vectors", "vectors:")
        self.emit_lines("%at = phi i64 [ 0, %begin ], [ %at.next, %vectors.latch ]")
        self._columns("%at")
        self.emit_lines("br label %vectors.latch", "vectors.latch:", f"%at.next = add i64 %at, {self.lanes}")
        self.emit_lines("%at.more = icmp slt i64 %at.next, %whole")
        self.emit_lines("br i1 %at.more, label %vectors, label %rest", "rest:")
        self.emit_lines("%some = icmp sgt i64 %left, 0", "br i1 %some, label %part, label %end", "part:")
        self.emit_lines(*first_lanes("first", "%left", self.lanes))
        self._mask = "%first"
        self._columns("%whole")
        self.emit_lines("br label %end", "end:")

    def _columns(self, first: str) -> None:
        """Some columns from one on: stage by stage, and the outputs."""
        self.some.clear()
        b, pointers = self.label(), []
        for k, dtype in enumerate(self.types[: len(self.group.operands)]):
            pointers.append(f"%p{k}")
            if self.is_(k, Access.PACKED):
                pointers[k] = f"%{b}.p{k}"
                self.emit_lines(
                    f"{pointers[k]} = getelementptr {element_type(dtype)}, ptr %p{k}, i64 {first}"
                )
        known: dict[Expr, str] = {}
        for s, stage in enumerate(self.stages):
            keep = self.kept if s == len(self.stages) - 1 else None
            known |= self._reduced(pointers, known, [Reduction(w, accumulator_of(w)) for w in stage], keep)
        if self.shape.single:
            self._store_outputs(pointers, known | self._given(pointers, "0", known, self.group.outputs))
            return
        known = self._with_constants(known, self.group.outputs)

        def store(here: Sequence[str], index: str, _: Sequence[str]) -> list[str]:
            at_hand = known if self.kept is None else {**known, self.kept: ""}
            given = self._given(here, index, at_hand, self.group.outputs)
            if self.kept is not None:
                given[self.kept] = self._load(here[self.count], self.kept.dtype)
            self._store_outputs(here, {**known, **given})
            return []

        self._nest(pointers, (), store)

    def _reduced(
        self,
        pointers: Sequence[str],
        known: Mapping[Expr, str],
        stage: Sequence[Reduction],
        keep: Expr | None,
    ) -> dict[Expr, str]:
        """The reductions of a stage, of each column; `keep` is held where the first output is to stand."""
        arguments = [r.expr.args[0] for r in stage]
        known = self._with_constants(known, arguments)

        def take(here: Sequence[str], index: str, held: Sequence[str]) -> list[str]:
            given = self._given(here, index, known, arguments)
            emitter = self.emitter({**known, **given})
            emitter.some = dict(self.some)
            values = [emitter.value(a) for a in arguments]
            kept = emitter.value(keep) if keep is not None else ""
            self.flush(emitter)
            if keep is not None:
                self._store(kept, here[self.count], keep.dtype)
            return [self._combined(r, h, v) for r, h, v in zip(stage, held, values, strict=True)]

        starts = [(self._kind(r), f"splat ({element_type(r.dtype)} {r.start(r.dtype)})") for r in stage]
        ends = self._nest(pointers, starts, take)
        found = {}
        for r, end in zip(stage, ends, strict=True):
            emitter = self.emitter({r.leaf: end})
            found[r.expr] = emitter.value(convert(r.leaf, r.expr.dtype))
            self.flush(emitter)
        return found

    def _combined(self, r: Reduction, so_far: str, value: str) -> str:
        (argument,) = r.expr.args
        leaf = read(-2, argument.dtype)
        emitter = self.emitter({r.leaf: so_far, leaf: value})
        result = emitter.value(r.combined(r.leaf, convert(leaf, r.dtype)))
        self.flush(emitter)
        return result

    def _kind(self, r: Reduction) -> str:
        return value_type(r.dtype, self.lanes)

    def _nest(
        self, pointers: Sequence[str], carried: Carried, inner: Inner, d: int = 0, index: str = "0"
    ) -> list[str]:
        """`inner` for each element of the columns, dimension by dimension; what is carried in the end."""
        if d == self.rank:
            return inner(pointers, index, [value for _, value in carried])
        b = self.label()
        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.latch ]")
        place = len(self.lines)  # of what is carried, written when it is known what becomes of it
        here = []
        for k, pointer in enumerate(pointers):
            self.emit_lines(f"%{b}.o{k} = mul i64 %{b}.i, {self._step(d, k)}")
            self.emit_lines(f"%{b}.p{k} = getelementptr i8, ptr {pointer}, i64 %{b}.o{k}")
            here.append(f"%{b}.p{k}")
        self.emit_lines(f"%{b}.x = add i64 {index}, %{b}.i")
        below = f"%{b}.x"
        if d < self.rank - 1:
            below = f"%{b}.x1"
            self.emit_lines(f"{below} = mul i64 %{b}.x, %size{d + 1}")
        held = [(kind, f"%{b}.c{j}") for j, (kind, _) in enumerate(carried)]
        ends = self._nest(here, held, inner, d + 1, below)
        self.lines[place:place] = [
            f"  {name} = phi {kind} [ {start}, %{b}.pre ], [ {end}, %{b}.latch ]"
            for (kind, name), (_, start), end in zip(held, carried, ends, strict=True)
        ]
        self.emit_lines(f"br label %{b}.latch", f"{b}.latch:", f"%{b}.next = add i64 %{b}.i, 1")
        self.emit_lines(f"%{b}.more = icmp slt i64 %{b}.next, %size{d}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        return ends

    # ---- elements

    def _given(
        self, pointers: Sequence[str], index: str, known: Mapping[Expr, str], wanted: Sequence[Expr]
    ) -> dict[Expr, str]:
        """What is read of the inputs, and where that is."""
        given: dict[Expr, str] = {}
        for e in {e: None for w in wanted for e in needed_for(w, {*known})}:
            if e.opcode == "read" and self.is_(e.value, Access.PACKED):
                given[e] = self._load(pointers[e.value], e.dtype)
            elif e.opcode == "read":
                name = self.label()
                self.emit_lines(f"%{name} = load {element_type(e.dtype)}, ptr {pointers[e.value]}, align 1")
                given[e] = self.broadcast(f"%{name}", e.dtype, f"{name}.all")
            elif e.opcode == "row_index":
                name = self.label()
                self.emit_lines(f"%{name} = trunc i64 {index} to i32")
                given[e] = self.broadcast(f"%{name}", e.dtype, f"{name}.all")
        return given

    def _load(self, pointer: str, dtype: ScalarType) -> str:
        name = f"%{self.label()}"
        loaded = f"load {value_type(dtype, self.lanes)}, ptr {pointer}, align 1"
        if self._mask is not None:
            loaded, declaration = masked_load(pointer, self._mask, dtype, self.lanes)
            self.declared.add(declaration)
        self.emit_lines(f"{name} = {loaded}")
        return name

    def _store(self, value: str, pointer: str, dtype: ScalarType) -> None:
        stored = f"store {value_type(dtype, self.lanes)} {value}, ptr {pointer}, align 1"
        if self._mask is not None:
            stored, declaration = masked_store(value, pointer, self._mask, dtype, self.lanes)
            self.declared.add(declaration)
        self.emit_lines(stored)

    def _store_outputs(self, pointers: Sequence[str], known: Mapping[Expr, str]) -> None:
        emitter = self.emitter(known)
        emitter.some = dict(self.some)
        values = [emitter.value(e) for e in self.group.outputs]
        self.flush(emitter)
        for e, value, pointer in zip(self.group.outputs, values, pointers[self.count :], strict=True):
            self._store(value, pointer, e.dtype)
