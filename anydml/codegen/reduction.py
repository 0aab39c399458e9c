"""Row functions that reduce rows: in stages, for a batch of rows at a time (see codegen.kernel_body)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydml.codegen.group import KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_store
from anydml.codegen.packed_rows import PackedRowEmitter
from anydml.codegen.stages import Reduction, accumulator_of, same_for_a_row
from anydml.codegen.target import Target
from anydml.ops.dtypes import BOOL, SIZE
from anydml.ops.expr import Expr
from anydml.ops.reductions import needed_for

MAX_BATCH_ROWS = 16
"""Rows of a batch, at most: while one is folded to a number, the next one's elements are on their way."""
BATCH_ELEMENTS = 4096
"""Elements of a batch, about: what the nearest cache holds from one stage to the next."""


class ReductionEmitter(PackedRowEmitter):
    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.entry: list[str] = []
        """What stands before everything else: memory of the stack."""

    def write(self) -> None:
        self.memory()
        start = len(self.lines)
        if self.shape.staged:
            self.emit_lines(f"%staged = alloca [{self.target.scratch // 2 + 64} x i8], align 64")
        self.extents()
        reductions = [[Reduction(w, accumulator_of(w)) for w in stage] for stage in self.stages]
        for s, stage in enumerate(reductions):
            for j, r in enumerate(stage):
                self._one_for_each_row(f"row{s}.{j}", r.expr)
        self._batches(reductions)
        self.lines[start:start] = self.entry  # known by now

    def _one_for_each_row(self, name: str, e: Expr) -> None:
        """Memory for a number for each row of a batch. What no row is of is zero, so that nothing is odd."""
        kind = value_type(e.dtype, MAX_BATCH_ROWS)
        self.entry += [
            f"  %{name} = alloca {kind}, align 64",
            f"  store {kind} zeroinitializer, ptr %{name}, align 64",
        ]

    def _of_batch(self, done: Mapping[Expr, str], wanted: Sequence[Expr]) -> dict[Expr, str]:
        """What follows from a stage's results alone, for all rows of the batch at once, and where it is."""
        found = [e for e in same_for_a_row(done, wanted) if e.dtype is not BOOL]
        if not found:
            return {}
        known, lanes, p = {}, MAX_BATCH_ROWS, self.label()
        for k, (e, rows) in enumerate(done.items()):
            known[e] = f"%{p}.{k}"
            self.emit_lines(f"{known[e]} = load {value_type(e.dtype, lanes)}, ptr {rows}, align 64")
        emitter = self.emitter(known, lanes)
        values = [emitter.value(e) for e in found]
        self.flush(emitter)
        for k, (e, value) in enumerate(zip(found, values, strict=True)):
            self._one_for_each_row(f"{p}.row{k}", e)
            self.emit_lines(f"store {value_type(e.dtype, lanes)} {value}, ptr %{p}.row{k}, align 64")
        return {e: f"%{p}.row{k}" for k, e in enumerate(found)}

    def extents(self) -> None:
        """%size<d>, %step<d>.<k>: of the reduced dimensions."""
        count = len(self.group.operands)
        for d in range(self.rank):
            base = count + d * (1 + count)
            self.word(f"size{d}", "%operands", base)
            for k in range(count):
                self.word(f"step{d}.{k}", "%operands", base + 1 + k)

    def _batches(self, reductions: Sequence[Sequence[Reduction]]) -> None:
        length = "1"
        for d in range(self.rank):
            self.emit_lines(f"%length{d} = mul i64 {length}, %size{d}")
            length = f"%length{d}"
        self.emit_lines(
            f"%many = udiv i64 {BATCH_ELEMENTS}, {length}",
            f"%few = call i64 @llvm.umin.i64(i64 %many, i64 {MAX_BATCH_ROWS})",
            "%batch = call i64 @llvm.umax.i64(i64 %few, i64 1)",
        )
        self.declared |= {f"declare i64 @llvm.{m}.i64(i64, i64)" for m in ("umin", "umax")}
        for k in range(len(self.group.operands)):
            self.emit_lines(f"%ahead{k} = mul i64 %s{k}, %batch")
        if self.scratch:  # whole blocks, so that nothing beyond a row's end is in the way
            self.emit_lines(
                f"%padded = add i64 {length}, {self.lanes - 1}", f"%whole = and i64 %padded, {-self.lanes}"
            )
            self.emit_lines(f"%held = mul i64 %whole, {SIZE[self.types[self.hold]]}")
        self.emit_lines("%any = icmp slt i64 0, %n", "br i1 %any, label %begin, label %end")
        self.emit_lines("begin:", "br label %batches", "batches:")
        self.emit_lines("%from = phi i64 [ 0, %begin ], [ %to, %batched ]", "%rest = sub i64 %n, %from")
        self.emit_lines("%rows = call i64 @llvm.umin.i64(i64 %rest, i64 %batch)")
        for s in range(len(reductions) + 1):
            self._stage(s, reductions)
        self.emit_lines("br label %batched", "batched:", "%to = add i64 %from, %rows")
        self.emit_lines("%more = icmp slt i64 %to, %n", "br i1 %more, label %batches, label %end", "end:")

    def _stage(self, s: int, reductions: Sequence[Sequence[Reduction]]) -> None:
        """One pass over each row of the batch: the reductions of stage `s`, or after the last the outputs."""
        b, last = self.label(), s == len(reductions)
        single = last and self.shape.single
        done = {r.expr: f"%row{t}.{j}" for t, stage in enumerate(reductions[:s]) for j, r in enumerate(stage)}
        wanted = self.group.outputs if last else [r.expr.args[0] for r in reductions[s]]
        at_hand = done if single else done | self._of_batch(done, wanted)
        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.latch ]")
        self.emit_lines(f"%{b}.r = add i64 %from, %{b}.i")
        pointers = []
        for k in range(len(self.group.operands)):
            self.emit_lines(
                f"%{b}.o{k} = mul i64 %{b}.r, %s{k}",
                f"%{b}.p{k} = getelementptr i8, ptr %p{k}, i64 %{b}.o{k}",
            )
            pointers.append(f"%{b}.p{k}")
        if self.scratch:
            self.emit_lines(f"%{b}.h = mul i64 %{b}.i, %held")
            self.emit_lines(f"%{b}.scratch = getelementptr i8, ptr %scratch, i64 %{b}.h")
            pointers.append(f"%{b}.scratch")
        elif self.kept:
            pointers.append(pointers[self.count])
        known: dict[Expr, str] = {}
        for e, rows in at_hand.items():
            name, kind = f"{b}.w{len(known)}", element_type(e.dtype)
            self.emit_lines(f"%{name}.p = getelementptr {kind}, ptr {rows}, i64 %{b}.i")
            self.emit_lines(f"%{name}.v = load {kind}, ptr %{name}.p")
            known[e] = f"%{name}.v" if single else self.broadcast(f"%{name}.v", e.dtype, name)
        if single:
            self._store_row(pointers, known)
        elif last and self.shape.staged:
            self.emit_lines(
                f"%{b}.so.far = mul i64 %{b}.i, %s{self.count}",
                f"%{b}.staged = getelementptr i8, ptr %staged, i64 %{b}.so.far",
            )
            pointers[self.count] = f"%{b}.staged"
            self._pass(pointers, known, self.group.outputs, [], None, self.kept)
        elif last:
            self._pass(pointers, known, self.group.outputs, [], None, self.kept)
        else:
            stage = reductions[s]
            starts = [(r, self.nothing(r)) for r in stage]
            keep = self.kept if s == len(reductions) - 1 else None
            if keep and self._sums_apart(stage, keep):
                self._pass(pointers, known, (), [], keep)
                ends = self._pass(pointers, known, (), starts, None, keep)
            else:
                ends = self._pass(pointers, known, (), starts, keep)
            for j, (r, end) in enumerate(zip(stage, ends, strict=True)):
                kind, value = self._element(r), self.reduce_lanes(r, end, self.joined_lanes(r))
                self.emit_lines(f"%{b}.at{j} = getelementptr {kind}, ptr %row{s}.{j}, i64 %{b}.i")
                self.emit_lines(f"store {kind} {value}, ptr %{b}.at{j}")
        self.emit_lines(f"br label %{b}.latch", f"{b}.latch:", f"%{b}.next = add i64 %{b}.i, 1")
        self.emit_lines(f"%{b}.more = icmp slt i64 %{b}.next, %rows")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        if last and self.shape.staged:
            self._stream_batch()

    def _store_row(self, pointers: Sequence[str], known: Mapping[Expr, str]) -> None:
        """The outputs of a row that is one element of theirs, and of what is the same for all of it."""
        given = dict(known)
        for e in {e for output in self.group.outputs for e in needed_for(output, known.keys())}:
            if e.opcode == "read":
                given[e] = f"%{self.label()}"
                self.emit_lines(
                    f"{given[e]} = load {element_type(e.dtype)}, ptr {pointers[e.value]}, align 1"
                )
        emitter = self.emitter(given, 1)
        values = [emitter.value(e) for e in self.group.outputs]
        self.flush(emitter)
        for e, value, pointer in zip(self.group.outputs, values, pointers[self.count :], strict=False):
            self.emit_lines(f"store {element_type(e.dtype)} {value}, ptr {pointer}, align 1")

    def _stream_batch(self) -> None:
        """What stands on the stack goes past the caches, but for its ends, which share lines with others."""
        p, k = self.label(), self.count
        dtype, size = self.group.operands[k], self.target.vector_bytes
        lanes = size // SIZE[dtype]
        kind, element = value_type(dtype, lanes), element_type(dtype)

        def places(name: str, index: str) -> list[str]:
            return [
                f"%{p}.{name}.s = getelementptr {element}, ptr %staged, i64 {index}",
                f"%{p}.{name}.t = getelementptr {element}, ptr %{p}.target, i64 {index}",
                f"%{p}.{name}.x = load {kind}, ptr %{p}.{name}.s, align 1",  # a vector more is there
            ]

        def end(name: str, index: str, count: str) -> None:
            stored, declaration = masked_store(
                f"%{p}.{name}.x", f"%{p}.{name}.t", f"%{p}.{name}", dtype, lanes
            )
            self.declared.add(declaration)
            self.emit_lines(*first_lanes(f"{p}.{name}", count, lanes), *places(name, index), stored)

        self.emit_lines(
            f"%{p}.offset = mul i64 %from, %s{k}",
            f"%{p}.target = getelementptr i8, ptr %p{k}, i64 %{p}.offset",
            f"%{p}.count = mul i64 %rows, %size0",
            f"%{p}.address = ptrtoint ptr %{p}.target to i64",
            f"%{p}.negated = sub i64 0, %{p}.address",
            f"%{p}.ahead = and i64 %{p}.negated, {size - 1}",
            f"%{p}.ahead.n = lshr i64 %{p}.ahead, {SIZE[dtype].bit_length() - 1}",
            f"%{p}.head = call i64 @llvm.umin.i64(i64 %{p}.ahead.n, i64 %{p}.count)",
            f"%{p}.rest = sub i64 %{p}.count, %{p}.head",
            f"%{p}.whole = and i64 %{p}.rest, {-lanes}",
            f"%{p}.end = add i64 %{p}.head, %{p}.whole",
            f"%{p}.left = sub i64 %{p}.count, %{p}.end",
        )
        end("first", "0", f"%{p}.head")
        self.emit_lines(
            f"%{p}.any = icmp ne i64 %{p}.whole, 0",
            f"br label %{p}.pre",
            f"{p}.pre:",
            f"br i1 %{p}.any, label %{p}, label %{p}.done",
            f"{p}:",
            f"%{p}.j = phi i64 [ %{p}.head, %{p}.pre ], [ %{p}.next, %{p} ]",
            *places("each", f"%{p}.j"),
            f"store {kind} %{p}.each.x, ptr %{p}.each.t, align {size}, !nontemporal !0",
            f"%{p}.next = add i64 %{p}.j, {lanes}",
            f"%{p}.more = icmp slt i64 %{p}.next, %{p}.end",
            f"br i1 %{p}.more, label %{p}, label %{p}.done",
            f"{p}.done:",
        )
        end("last", f"%{p}.end", f"%{p}.left")

    def _sums_apart(self, stage: Sequence[Reduction], keep: Expr) -> bool:
        return self.sums_apart and all(r.argument is keep and r.expr.opcode == "row_sum" for r in stage)

    def _vector(self, r: Reduction) -> str:
        return value_type(r.dtype, self.joined_lanes(r))

    def _element(self, r: Reduction) -> str:
        return element_type(r.expr.dtype)

    def _pass(
        self,
        pointers: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        reductions: Sequence[tuple[Reduction, str]],
        keep: Expr | None,
        kept: Expr | None = None,
        d: int = 0,
        index: str = "0",
    ) -> list[str]:
        """Over one row, dimension by dimension; see `blocks`. `keep` is to be held, `kept` is."""
        if d == 0:
            known = self._with_constants(
                known, [*outputs, *(r.expr.args[0] for r, _ in reductions), *([keep] if keep else [])]
            )
        if d == self.rank - 1:
            strides = [self._step(d, k) for k in range(len(pointers))]
            row = (index, keep, kept)
            return self.along(f"%size{d}", pointers, strides, known, outputs, row, reductions)
        b = self.label()
        self.emit_lines(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.last ]")
        here = len(self.lines)  # the accumulators so far are written when it is known what they become
        inner = []
        for k in range(len(pointers)):
            self.emit_lines(f"%{b}.o{k} = mul i64 %{b}.i, {self._step(d, k)}")
            self.emit_lines(f"%{b}.p{k} = getelementptr i8, ptr {pointers[k]}, i64 %{b}.o{k}")
            inner.append(f"%{b}.p{k}")
        self.emit_lines(f"%{b}.x = add i64 {index}, %{b}.i", f"%{b}.x1 = mul i64 %{b}.x, %size{d + 1}")
        so_far = [(r, f"%{b}.so{j}") for j, (r, _) in enumerate(reductions)]
        ends = self._pass(inner, known, outputs, so_far, keep, kept, d + 1, f"%{b}.x1")
        self.lines[here:here] = [
            f"  {name} = phi {self._vector(r)} [ {start}, %{b}.pre ], [ {end}, %{b}.last ]"
            for (r, start), (_, name), end in zip(reductions, so_far, ends, strict=True)
        ]
        self.emit_lines(f"br label %{b}.last", f"{b}.last:")
        self.emit_lines(f"%{b}.next = add i64 %{b}.i, 1", f"%{b}.more = icmp slt i64 %{b}.next, %size{d}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        return ends

    def _step(self, d: int, k: int) -> str:
        return f"%step{d}.{self.count if k == self.hold else k}"

    def _with_constants(self, known: Mapping[Expr, str], wanted: Sequence[Expr]) -> dict[Expr, str]:
        """`known`, and what can be computed from it once for the whole row."""
        constant = same_for_a_row(known, wanted)
        emitter = self.emitter(known)
        result = {**known, **{e: emitter.value(e) for e in constant}}
        self.some |= {e: emitter.any_lane(result[e]) for e in constant if e.dtype is BOOL}
        self.flush(emitter)
        return result
