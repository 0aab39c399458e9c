"""Row functions of expensive expressions and of reduced rows: block by block (see codegen.kernel_body)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydml.codegen.accumulators import AccumulatorEmitter
from anydml.codegen.emit import Emitter
from anydml.codegen.group import Access, Hold, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, iota, masked_load, masked_store
from anydml.codegen.short_copy import MAX_BYTES, short_copy
from anydml.codegen.stages import Reduction, kept_value, lanes_of
from anydml.codegen.target import Target
from anydml.codegen.writer import stream_alignment
from anydml.ops.dtypes import BOOL, SIZE, ScalarType
from anydml.ops.expr import Expr, read
from anydml.ops.reductions import needed_for, stages_of

Row = tuple[str, Expr | None, Expr | None]
"""Of a reduced row: the index of its first element here, what is to be held, and what is held."""


class BlockedLoopEmitter(AccumulatorEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = self.most = lanes_of(group, shape, target)
        self.rank = shape.dims
        self.some: dict[Expr, str] = {}
        """Truths about a whole row: whether they are true."""
        self.stages = stages_of(group.outputs)
        apart = self.sums_apart = target.vector_bytes == 32 and not shape.columns
        """Whether a value that is held is summed up in a pass of its own: in one with what is expensive, its
        conversions would be in the way. With vectors of 64 bytes that was not looked at."""
        self.kept = kept_value(group, self.stages, summed=apart) if shape.hold is not Hold.NOWHERE else None
        """Computed in the last stage, and used again."""
        self.hold = len(group.operands)
        """What stands for it in between, as if it were an operand."""
        self.scratch = self.kept is not None and shape.hold is Hold.SCRATCH
        self.types: list[ScalarType] = [*group.operands]
        if self.kept:
            self.types.append(self.kept.dtype)

    def write(self) -> None:
        self.memory()
        if self.shape.stream:
            self.until_aligned(self.lanes)
        everything = range(len(self.group.operands))
        pointers, strides = [f"%p{k}" for k in everything], [f"%s{k}" for k in everything]
        self.blocks("%n", pointers, strides, self._constants(), self.group.outputs, None, ())

    def _constants(self) -> dict[Expr, str]:
        """What is the same for all elements, in every lane."""

        def load(k: int) -> str:
            self.emit_lines(f"%one{k} = load {element_type(self.types[k])}, ptr %p{k}, align 1")
            return f"%one{k}"

        found = self.of_splats(load)
        return {e: self.broadcast(one, e.dtype, f"one.{k}") for k, (e, one) in enumerate(found.items())}

    def memory(self) -> None:
        """The blocks on the stack, and what the operands and their strides are."""
        for k, dtype in enumerate(self.types):
            if not self.splat(k):
                self.emit_lines(f"%block{k} = alloca [{self.lanes} x {element_type(dtype)}], align 64")
        self.narrow(self.lanes)
        if self.scratch:
            self.emit_lines(f"%scratch = alloca [{self.target.scratch + 8 * self.lanes} x i8], align 64")
        everything = range(len(self.group.operands))
        self.operands(everything)
        for k in everything:
            self.word(f"s{k}", "%strides", k)

    def blocks(
        self,
        size: str,
        pointers: Sequence[str],
        strides: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: Row | None,
        reductions: Sequence[tuple[Reduction, str]],
    ) -> list[str]:
        """`size` elements, block by block: loads, expressions, stores of the outputs, accumulators.

        Reductions come with what their accumulators start from; what these end with is returned.
        A block that is not whole, or has strided operands, takes the way through the stack (from the label
        b); from one whole block to the next, up to b.last, only the pointers move (the label b.fast).
        """
        lanes, b = self.lanes, self.label()
        index, keep, _ = row or ("0", None, None)
        given = dict(known)
        needed, loaded, stored = self.touched(known, outputs, row, reductions)
        moved = [k for k in dict.fromkeys([*loaded, *stored]) if not self.splat(k)]
        packed = [k for k in moved if self.is_(k, Access.PACKED)]
        parted = [k for k in packed if not (k == self.hold and self.scratch)]
        strided_in = [k for k in loaded if self.is_(k, Access.STRIDED)]
        strided_out = [k for k in stored if self.is_(k, Access.STRIDED)]

        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"%{b}.most = sub i64 {size}, {lanes}")
        first, head = str(lanes), self.shape.stream and not self.rank  # rows are aligned
        if head:
            self.emit_lines(
                f"%{b}.ready = icmp eq i64 %head.n, 0",
                f"%{b}.first = select i1 %{b}.ready, i64 {lanes}, i64 %head.n",
            )
            first = f"%{b}.first"
        self.emit_lines(f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.latch ]")
        if head:
            self.emit_lines(f"%{b}.cap = phi i64 [ {first}, %{b}.pre ], [ {lanes}, %{b}.latch ]")
        for j, (r, start) in enumerate(reductions):
            kind = value_type(r.dtype, self.held_lanes(r))
            self.emit_lines(f"%{b}.so{j} = phi {kind} [ {start}, %{b}.pre ], [ %{b}.after{j}, %{b}.latch ]")
        cap = f"%{b}.cap" if head else str(lanes)
        self.emit_lines(f"%{b}.left = sub i64 {size}, %{b}.i", f"%{b}.short = icmp slt i64 %{b}.left, {cap}")
        self.emit_lines(f"%{b}.m = select i1 %{b}.short, i64 %{b}.left, i64 {cap}")
        self.emit_lines(f"%{b}.whole = icmp eq i64 %{b}.m, {lanes}")
        for k in moved:
            if self.is_(k, Access.PACKED):
                kind = element_type(self.types[k])
                self.emit_lines(f"%{b}.d{k} = getelementptr {kind}, ptr {pointers[k]}, i64 %{b}.i")
            else:
                self.emit_lines(f"%{b}.o{k} = mul i64 %{b}.i, {strides[k]}")
                self.emit_lines(f"%{b}.d{k} = getelementptr i8, ptr {pointers[k]}, i64 %{b}.o{k}")
        self._copies(f"{b}.gather", f"%{b}.m", strided_in, strides, lambda k: (f"%{b}.d{k}", f"%block{k}"))
        self.emit_lines(f"br i1 %{b}.whole, label %{b}.direct, label %{b}.part")
        self.emit_lines(f"{b}.direct:", f"br label %{b}.body", f"{b}.part:")
        self._moves(b, f"%{b}.m", [k for k in parted if k in loaded], inward=True)
        self.emit_lines(f"br label %{b}.parted", f"{b}.parted:", f"br label %{b}.body", f"{b}.body:")
        fast = len(packed) == len(moved)

        def either(name: str, kind: str, direct: str, part: str, next: str) -> str:
            edges = f"[ {direct}, %{b}.direct ], [ {part}, %{b}.parted ]"
            self.emit_lines(f"{name} = phi {kind} {edges}" + (f", [ {next}, %{b}.fast ]" if fast else ""))
            return name

        at = {k: f"%block{k}" for k in moved}
        for k in packed:
            part = (
                f"%{b}.d{k}" if k == self.hold and self.scratch else f"%block{k}"
            )  # scratch has whole blocks
            at[k] = either(f"%{b}.a{k}", "ptr", f"%{b}.d{k}", part, f"%{b}.f{k}")
        either(f"%{b}.at", "i64", f"%{b}.i", f"%{b}.i", f"%{b}.at1")
        either(f"%{b}.last", "i64", f"%{b}.most", "-1", f"%{b}.last")
        for j, (r, _) in enumerate(reductions):
            kind = value_type(r.dtype, self.held_lanes(r))
            either(f"%{b}.acc{j}", kind, f"%{b}.so{j}", f"%{b}.so{j}", f"%{b}.after{j}")
        self.emit_lines(f"%{b}.all = icmp sge i64 %{b}.last, 0")
        self.load(b, given, loaded, at, pointers, row)
        self.positions(b, index, needed, given)
        emitter, values = self.computed(given, outputs, keep)
        for j, (r, _) in enumerate(reductions):
            self._accumulate(emitter, b, j, r)
        self.flush(emitter)
        self.store(values, stored, at)
        if fast:
            self.emit_lines(
                f"%{b}.at1 = add i64 %{b}.at, {lanes}", f"%{b}.go = icmp sle i64 %{b}.at1, %{b}.last"
            )
            self.emit_lines(f"br i1 %{b}.go, label %{b}.fast, label %{b}.slow", f"{b}.fast:")
            for k in packed:
                kind = element_type(self.types[k])
                self.emit_lines(f"%{b}.f{k} = getelementptr {kind}, ptr {at[k]}, i64 {lanes}")
            self.emit_lines(f"br label %{b}.body", f"{b}.slow:")
        self._copies(
            f"{b}.scatter", f"%{b}.m", strided_out, strides, lambda k: (f"%block{k}", f"%{b}.d{k}"), out=True
        )
        self.emit_lines(f"br i1 %{b}.all, label %{b}.latch, label %{b}.out", f"{b}.out:")
        self._moves(b, f"%{b}.m", [k for k in parted if k in stored], inward=False)
        self.emit_lines(f"br label %{b}.latch", f"{b}.latch:")
        self.emit_lines(f"%{b}.next = add i64 %{b}.at, %{b}.m", f"%{b}.more = icmp slt i64 %{b}.next, {size}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        return [f"%{b}.after{j}" for j in range(len(reductions))]

    def touched(
        self,
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: Row | None,
        reductions: Sequence[tuple[Reduction, str]],
    ) -> tuple[set[Expr], list[int], list[int]]:
        """What a pass computes for each element, and which operands it loads and stores."""
        _, keep, kept = row or ("0", None, None)
        wanted = [*outputs, *(r.expr.args[0] for r, _ in reductions), *([keep] if keep else [])]
        at_hand = {*known, kept} if kept else set(known)
        needed = {e for w in wanted for e in needed_for(w, at_hand)}
        loaded = sorted(e.value for e in needed if e.opcode == "read")
        if kept in wanted or any(kept in e.args for e in needed):
            loaded.append(self.hold)
        return needed, loaded, [self.count + j for j in range(len(outputs))] or ([self.hold] if keep else [])

    def load(
        self,
        b: str,
        given: dict[Expr, str],
        loaded: Sequence[int],
        at: Mapping[int, str],
        pointers: Sequence[str],
        row: Row | None,
    ) -> None:
        """A block of each operand."""
        for k in loaded:
            dtype, leaf = self.types[k], self.leaf(k, row)
            if self.splat(k):
                self.emit_lines(f"%{b}.one{k} = load {element_type(dtype)}, ptr {pointers[k]}, align 1")
                given[leaf] = self.broadcast(f"%{b}.one{k}", dtype, f"{b}.x{k}")
            else:
                self.emit_lines(f"%{b}.x{k} = load {value_type(dtype, self.lanes)}, ptr {at[k]}, align 1")
                given[leaf] = f"%{b}.x{k}"

    def computed(
        self, given: Mapping[Expr, str], outputs: Sequence[Expr], keep: Expr | None
    ) -> tuple[Emitter, list[str]]:
        """What a pass stores, and the emitter that has computed it, for reductions to go on with."""
        emitter = self.emitter(given)
        emitter.some = dict(self.some)
        return emitter, [emitter.value(e) for e in (outputs or ([keep] if keep else []))]

    def leaf(self, k: int, row: Row | None) -> Expr:
        """What an operand's block, or what is held, is the value of."""
        if k < self.count:
            return read(k, self.types[k])
        _, _, kept = row or ("0", None, None)
        assert kept is not None
        return kept

    def store(self, values: Sequence[str], stored: Sequence[int], at: Mapping[int, str]) -> None:
        """A block of each operand."""
        for k, value in zip(stored, values, strict=True):
            dtype = self.types[k]
            stream = self.shape.stream and not self.shape.staged
            stream = stream and k != self.hold and self.is_(k, Access.PACKED)
            align = stream_alignment(dtype, self.lanes) if stream else 1
            mark = ", !nontemporal !0" if stream else ""
            self.emit_lines(
                f"store {value_type(dtype, self.lanes)} {value}, ptr {at[k]}, align {align}{mark}"
            )

    def is_(self, k: int, access: Access) -> bool:
        if k == self.hold:
            return access is Access.PACKED if self.scratch else super().is_(self.count, access)
        return super().is_(k, access)

    def splat(self, k: int) -> bool:
        return k < self.count and self.is_(k, Access.SPLAT)

    def fetch_ahead(self, name: str, k: int, pointer: str, *, write: bool) -> None:
        """Ask for the same block in the next batch of rows, whose turn comes when this one is done."""
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(0, self.lanes * SIZE[self.types[k]], 64):
            self.emit_lines(
                f"%{name}.o{line} = add i64 %ahead{k}, {line}",
                f"%{name}.p{line} = getelementptr i8, ptr {pointer}, i64 %{name}.o{line}",
                f"call void @llvm.prefetch.p0(ptr %{name}.p{line}, i32 {int(write)}, i32 3, i32 1)",
            )

    def positions(self, b: str, index: str, needed: set[Expr], given: dict[Expr, str]) -> None:
        """row_index, where it is used."""
        for position in (e for e in needed if e.opcode == "row_index"):
            self.emit_lines(
                f"%{b}.here = add i64 {index}, %{b}.at", f"%{b}.here32 = trunc i64 %{b}.here to i32"
            )
            start = self.broadcast(f"%{b}.here32", position.dtype, f"{b}.start")
            kind = value_type(position.dtype, self.lanes)
            self.emit_lines(f"%{b}.index = add {kind} {start}, {iota(self.lanes)}")
            given[position] = f"%{b}.index"

    def _accumulate(self, emitter: Emitter, b: str, j: int, r: Reduction) -> None:
        """The accumulator after this block; lanes beyond its end contribute nothing."""
        given = r.argument
        kind, truths = value_type(given.dtype, self.lanes), value_type(BOOL, self.lanes)
        argument = emitter.value(given)
        p = f"{b}.r{j}"
        nothing = f"splat ({element_type(given.dtype)} {r.start(given.dtype)})"
        emitter.lines += [f"  br i1 %{b}.all, label %{p}.all, label %{p}.some", f"{p}.all:"]
        after_all = self.combine(emitter, r, f"%{b}.acc{j}", argument)
        emitter.lines += [
            f"  br label %{p}.end",
            f"{p}.some:",
            *("  " + line for line in first_lanes(f"{p}.mask", f"%{b}.m", self.lanes)),
            f"  %{p}.x = select {truths} %{p}.mask, {kind} {argument}, {kind} {nothing}",
        ]
        after_some = self.combine(emitter, r, f"%{b}.acc{j}", f"%{p}.x")
        accumulator = value_type(r.dtype, self.held_lanes(r))
        emitter.lines += [
            f"  br label %{p}.end",
            f"{p}.end:",
            f"  %{b}.after{j} = phi {accumulator} [ {after_all}, %{p}.all ], [ {after_some}, %{p}.some ]",
        ]

    def _copies(
        self,
        b: str,
        size: str,
        operands: Sequence[int],
        strides: Sequence[str],
        ends: Callable[[int], tuple[str, str]],
        *,
        out: bool = False,
    ) -> None:
        """Element by element between a strided operand and its block."""
        if not operands:
            return
        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.j = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b} ]")
        for k in operands:
            kind, (source, target) = element_type(self.types[k]), ends(k)
            block, far = (source, target) if out else (target, source)
            self.emit_lines(
                f"%{b}.o{k} = mul i64 %{b}.j, {strides[k]}",
                f"%{b}.f{k} = getelementptr i8, ptr {far}, i64 %{b}.o{k}",
            )
            self.emit_lines(f"%{b}.n{k} = getelementptr {kind}, ptr {block}, i64 %{b}.j")
            source, target = (f"%{b}.n{k}", f"%{b}.f{k}") if out else (f"%{b}.f{k}", f"%{b}.n{k}")
            self.emit_lines(
                f"%{b}.x{k} = load {kind}, ptr {source}, align 1",
                f"store {kind} %{b}.x{k}, ptr {target}, align 1",
            )
        self.emit_lines(f"%{b}.next = add i64 %{b}.j, 1", f"%{b}.more = icmp slt i64 %{b}.next, {size}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")

    def _moves(self, b: str, size: str, operands: Sequence[int], *, inward: bool) -> None:
        """Packed memory between an operand and its block."""
        # AVX2 has masked stores, too, but slow ones
        quick = self.target.masks and (inward or self.target.vector_bytes == 64)
        masked = [k for k in operands if quick and SIZE[self.types[k]] in (4, 8)]
        mask = f"{b}.given" if inward else f"{b}.taken"
        if masked:
            self.emit_lines(*first_lanes(mask, size, self.lanes))
        for k in masked:
            dtype, kind = self.types[k], value_type(self.types[k], self.lanes)
            if inward:
                moved, declaration = masked_load(f"%{b}.d{k}", f"%{mask}", dtype, self.lanes)
                self.emit_lines(f"%{b}.in{k} = {moved}", f"store {kind} %{b}.in{k}, ptr %block{k}, align 64")
            else:
                moved, declaration = masked_store(f"%{b}.out{k}", f"%{b}.d{k}", f"%{mask}", dtype, self.lanes)
                self.emit_lines(f"%{b}.out{k} = load {kind}, ptr %block{k}, align 64", moved)
            self.declared.add(declaration)
        for k in (k for k in operands if k not in masked):
            width, count = SIZE[self.types[k]], f"%{b}.{'in' if inward else 'out'}{k}"
            self.emit_lines(f"{count} = mul i64 {size}, {width}")
            source, target = (f"%{b}.d{k}", f"%block{k}") if inward else (f"%block{k}", f"%{b}.d{k}")
            if self.lanes * width <= MAX_BYTES:
                most = self.lanes * width
                self.emit_lines(*short_copy(f"{count[1:]}.copy", target, source, count, most, width))
                continue
            self.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            self.emit_lines(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)"
            )
