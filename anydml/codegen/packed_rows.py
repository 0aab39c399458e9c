"""Passes over reduced rows along one dimension: whole blocks, then vectors, then some lanes of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydml.codegen.blocked_loop import BlockedLoopEmitter, Row
from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_load, masked_store
from anydml.codegen.short_copy import short_copy
from anydml.codegen.stages import Reduction
from anydml.codegen.target import Target
from anydml.ops.dtypes import BOOL, SIZE
from anydml.ops.expr import Expr, read

Held = Sequence[tuple[Reduction, str]]
"""Reductions, and their accumulators so far."""


class PackedRowEmitter(BlockedLoopEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.few = target.vector_bytes // 4
        """Lanes of a vector of FLOAT32."""

    def along(
        self,
        size: str,
        pointers: Sequence[str],
        strides: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: Row,
        reductions: Held,
    ) -> list[str]:
        """`size` elements; see `blocks`. Accumulators have lanes for one vector, before and behind.

        Where an operand is strided, all goes in blocks: most of the time is that of bringing its elements
        together.
        """
        b, most = self.label(), self.lanes
        _, loaded, stored = self.touched(known, outputs, row, reductions)
        nothing = [(r, self.nothing(r)) for r, _ in reductions]
        if any(self.is_(k, Access.STRIDED) for k in (*loaded, *stored)):
            return self._joined(
                reductions, self.blocks(size, pointers, strides, known, outputs, row, nothing)
            )
        self.emit_lines(
            f"%{b}.whole = and i64 {size}, {-most}",
            f"%{b}.vectors = and i64 {size}, {-self.few}",
            f"%{b}.any.whole = icmp sgt i64 %{b}.whole, 0",
            f"%{b}.any.vectors = icmp sgt i64 %{b}.vectors, %{b}.whole",
            f"%{b}.any.left = icmp sgt i64 {size}, %{b}.vectors",
        )
        given = dict(known)
        self.load(b, given, [k for k in loaded if self.splat(k)], {}, pointers, row)
        fewer = {e: self._first(value, e) for e, value in given.items()}

        def whole(held: Held) -> list[str]:
            ends = self._loop("0", f"%{b}.whole", pointers, given, outputs, row, nothing)
            return self._joined(held, ends)

        def vectors(held: Held) -> list[str]:
            return self._loop(f"%{b}.whole", f"%{b}.vectors", pointers, fewer, outputs, row, held)

        def part(held: Held) -> list[str]:
            return self._part(f"%{b}.vectors", size, pointers, fewer, outputs, row, held)

        held = self._if(f"%{b}.any.whole", reductions, whole)
        self.lanes = self.few
        held = self._if(f"%{b}.any.vectors", held, vectors)
        held = self._if(f"%{b}.any.left", held, part)
        self.lanes = most
        return [accumulator for _, accumulator in held]

    def _if(self, condition: str, held: Held, body: Callable[[Held], list[str]]) -> Held:
        """The accumulators behind what is done on a condition."""
        b = self.label()
        self.emit_lines(
            f"br label %{b}.here",
            f"{b}.here:",
            f"br i1 {condition}, label %{b}.do, label %{b}.end",
            f"{b}.do:",
        )
        ends = body(held)
        self.emit_lines(f"br label %{b}.done", f"{b}.done:", f"br label %{b}.end", f"{b}.end:")
        for j, ((r, before), end) in enumerate(zip(held, ends, strict=True)):
            kind = value_type(r.dtype, self.joined_lanes(r))
            self.emit_lines(f"%{b}.{j} = phi {kind} [ {before}, %{b}.here ], [ {end}, %{b}.done ]")
        return [(r, f"%{b}.{j}") for j, (r, _) in enumerate(held)]

    def _loop(
        self,
        first: str,
        end: str,
        pointers: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: Row,
        reductions: Held,
    ) -> list[str]:
        """Whole blocks, one of them at least."""
        b, given = self.label(), dict(known)
        index, keep, _ = row
        needed, loaded, stored = self.touched(known, outputs, row, reductions)
        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.at = phi i64 [ {first}, %{b}.pre ], [ %{b}.next, %{b}.latch ]")
        here = len(self.lines)  # the accumulators are written when it is known what they become
        at = self._places(b, (*loaded, *stored), pointers, f"%{b}.at")
        self.load(b, given, loaded, at, pointers, row)
        if keep:
            self._fetch(b, loaded, pointers, at)
        self.positions(b, index, needed, given)
        standing = {f"%{b}.x{k}": at[k] for k in loaded}
        emitter, values = self.computed(given, outputs, keep)
        ends = []
        for j, (r, _) in enumerate(reductions):
            argument = emitter.value(r.argument)
            ends.append(self.combine(emitter, r, f"%{b}.acc{j}", argument, standing.get(argument)))
        self.flush(emitter)
        self.store(values, stored, at)
        self.emit_lines(f"br label %{b}.latch", f"{b}.latch:")
        self.lines[here:here] = [
            f"  %{b}.acc{j} = phi {value_type(r.dtype, self.held_lanes(r))} "
            f"[ {start}, %{b}.pre ], [ {end}, %{b}.latch ]"
            for j, ((r, start), end) in enumerate(zip(reductions, ends, strict=True))
        ]
        self.emit_lines(f"%{b}.next = add i64 %{b}.at, {self.lanes}")
        self.emit_lines(f"%{b}.more = icmp slt i64 %{b}.next, {end}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        return ends

    def _part(
        self,
        first: str,
        end: str,
        pointers: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: Row,
        reductions: Held,
    ) -> list[str]:
        """Some lanes of a block, fewer than it has."""
        b, given, lanes = self.label(), dict(known), self.lanes
        index, keep, _ = row
        needed, loaded, stored = self.touched(known, outputs, row, reductions)
        self.emit_lines(f"%{b}.at = add i64 {first}, 0", f"%{b}.left = sub i64 {end}, %{b}.at")
        self.emit_lines(*first_lanes(f"{b}.some", f"%{b}.left", lanes))
        at = self._places(b, (*loaded, *stored), pointers, f"%{b}.at")
        parted = [k for k in at if not (k == self.hold and self.scratch)]  # scratch has whole blocks
        inward = {k: self._brought(b, k, at[k]) for k in loaded if k in parted}
        self.load(b, given, [k for k in loaded if k not in parted], at, pointers, row)
        given |= {self.leaf(k, row): value for k, value in inward.items()}
        self.positions(b, index, needed, given)
        emitter, values = self.computed(given, outputs, keep)
        ends = []
        for j, (r, start) in enumerate(reductions):
            argument, dtype = emitter.value(r.argument), r.argument.dtype
            kind, some = value_type(dtype, lanes), f"{value_type(BOOL, lanes)} %{b}.some"
            nothing = f"{kind} splat ({element_type(dtype)} {r.start(dtype)})"
            emitter.lines.append(f"  %{b}.r{j} = select {some}, {kind} {argument}, {nothing}")
            ends.append(self.combine(emitter, r, start, f"%{b}.r{j}"))
        self.flush(emitter)
        for k, value in zip(stored, values, strict=True):
            if k in parted:
                self._taken(b, k, value, at[k])
            else:
                self.store([value], [k], at)
        return ends

    def _brought(self, b: str, k: int, pointer: str) -> str:
        """Some lanes of an operand."""
        dtype, lanes, width = self.types[k], self.lanes, SIZE[self.types[k]]
        name, moved = f"%{b}.x{k}", f"load {value_type(dtype, lanes)}, ptr %block{k}, align 1"
        if self.target.masks and width in (4, 8):
            moved, declaration = masked_load(pointer, f"%{b}.some", dtype, lanes)
            self.declared.add(declaration)
        else:
            self.emit_lines(f"%{b}.in{k} = mul i64 %{b}.left, {width}")
            self.emit_lines(
                *short_copy(f"{b}.in{k}.copy", f"%block{k}", pointer, f"%{b}.in{k}", lanes * width, width)
            )
        self.emit_lines(f"{name} = {moved}")
        return name

    def _taken(self, b: str, k: int, value: str, pointer: str) -> None:
        """Some lanes to an operand. AVX2 has masked stores, too, but slow ones."""
        dtype, lanes, width = self.types[k], self.lanes, SIZE[self.types[k]]
        if self.target.masks and self.target.vector_bytes == 64 and width in (4, 8):
            moved, declaration = masked_store(value, pointer, f"%{b}.some", dtype, lanes)
            self.declared.add(declaration)
            self.emit_lines(moved)
            return
        self.emit_lines(
            f"store {value_type(dtype, lanes)} {value}, ptr %block{k}, align 64",
            f"%{b}.out{k} = mul i64 %{b}.left, {width}",
            *short_copy(f"{b}.out{k}.copy", pointer, f"%block{k}", f"%{b}.out{k}", lanes * width, width),
        )

    def _places(self, b: str, operands: Sequence[int], pointers: Sequence[str], at: str) -> dict[int, str]:
        """Where an element of packed operands is."""
        places = {}
        for k in dict.fromkeys(operands):
            if not self.splat(k):
                places[k] = f"%{b}.a{k}"
                kind = element_type(self.types[k])
                self.emit_lines(f"{places[k]} = getelementptr {kind}, ptr {pointers[k]}, i64 {at}")
        return places

    def _joined(self, held: Held, ends: Sequence[str]) -> list[str]:
        """What accumulators of whole blocks end with, and what there was before."""
        joined = []
        for (r, start), end in zip(held, ends, strict=True):
            to = self.joined_lanes(r)
            value = self.folded(self.lines, r, end, self.held_lanes(r), to)
            before, behind = read(-1, r.dtype), read(-2, r.dtype)
            emitter = self.emitter({before: start, behind: value}, to)
            joined.append(emitter.value(r.combined(before, behind)))
            self.flush(emitter)
        return joined

    def joined_lanes(self, r: Reduction) -> int:
        """Of an accumulator between dimensions."""
        return min(r.lanes(self.most), self.few)

    def _first(self, value: str, e: Expr) -> str:
        """The first lanes of what is the same in all."""
        kind, p = value_type(e.dtype, self.most), self.label()
        order = ", ".join(f"i32 {k}" for k in range(self.few))
        self.emit_lines(f"%{p} = shufflevector {kind} {value}, {kind} poison, <{self.few} x i32> <{order}>")
        return f"%{p}"

    def nothing(self, r: Reduction) -> str:
        """What an accumulator starts from."""
        return f"splat ({element_type(r.dtype)} {r.start(r.dtype)})"

    def _fetch(self, b: str, loaded: Sequence[int], pointers: Sequence[str], at: dict[int, str]) -> None:
        """Ask for what the next batch of rows reads and writes, whose turn comes when this one is done."""
        outputs = [k for k in range(self.count, len(self.group.operands)) if self.is_(k, Access.PACKED)]
        if self.shape.stream:  # they go past the caches
            outputs = []
        at = at | self._places(f"{b}.w", [k for k in outputs if k not in at], pointers, f"%{b}.at")
        for k in (*(k for k in loaded if k in at), *outputs):
            self.fetch_ahead(f"{b}.n{k}", k, at[k], write=k in outputs)
