"""Row functions of expensive expressions and of reduced rows: block by block (see codegen.rows)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from anydml.codegen.emit import Emitter, element_type, value_type
from anydml.codegen.group import Access, Group, Shape
from anydml.codegen.jit import Target
from anydml.codegen.stages import (
    Reduction,
    accumulator_of,
    kept_value,
    lanes_of,
    needed_for,
    stages_of,
)
from anydml.codegen.writer import Writer, stream_alignment
from anydml.spec.scalar import BOOL, Expr, convert, read, walk


class Blocks(Writer):
    def __init__(self, group: Group, shape: Shape, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = lanes_of(group, target)
        self.rank = shape.dims
        self.some: dict[Expr, str] = {}
        """Truths about a whole row: whether they are true."""

    def write(self) -> None:
        group, everything = self.group, range(len(self.group.operands))
        for k in everything:
            if not (k < self.count and self.is_(k, Access.SPLAT)):
                kind = element_type(group.operands[k])
                self.say(f"%block{k} = alloca [{self.lanes} x {kind}], align 64")
        self.operands(everything)
        for k in everything:
            self.word(f"s{k}", "%strides", k)
        if not self.rank:
            if self.shape.stream:
                self.until_aligned(self.lanes)
            pointers = [f"%p{k}" for k in everything]
            strides = [f"%s{k}" for k in everything]
            self.blocks("%n", pointers, strides, {}, group.outputs, None, ())
            return
        self.rows()

    # ---- rows

    def rows(self) -> None:
        """n rows, one after the other; each passed once for each stage."""
        count = len(self.group.operands)
        for d in range(self.rank):
            base = count + d * (1 + count)
            self.word(f"size{d}", "%operands", base)
            for k in range(count):
                self.word(f"step{d}.{k}", "%operands", base + 1 + k)
        b = self.label()
        stages = stages_of(self.group)
        reductions = [[Reduction(w, accumulator_of(w)) for w in stage] for stage in stages]
        for s, stage in enumerate(reductions):
            for j, r in enumerate(stage):
                self.say(f"%acc{s}.{j} = alloca {value_type(r.dtype, r.lanes(self.lanes))}, align 64")
        self.say(f"%{b}.any = icmp slt i64 0, %n", f"br i1 %{b}.any, label %{b}.pre, label %{b}.end")
        self.say(f"{b}.pre:", f"br label %{b}.row", f"{b}.row:")
        self.say(f"%{b}.r = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.last ]")
        pointers = []
        for k in range(count):
            self.say(
                f"%{b}.o{k} = mul i64 %{b}.r, %s{k}",
                f"%{b}.p{k} = getelementptr i8, ptr %p{k}, i64 %{b}.o{k}",
            )
            pointers.append(f"%{b}.p{k}")
        known: dict[Expr, str] = {}
        kept = kept_value(self.group, stages) if self.shape.keep else None
        for s, stage in enumerate(reductions):
            for j, r in enumerate(stage):
                kind, start = value_type(r.dtype, r.lanes(self.lanes)), r.start(r.dtype)
                self.say(f"store {kind} splat ({element_type(r.dtype)} {start}), ptr %acc{s}.{j}, align 64")
            keep = kept if kept and s == len(reductions) - 1 else None
            self.pass_(pointers, known, (), [(r, f"%acc{s}.{j}") for j, r in enumerate(stage)], keep)
            for j, r in enumerate(stage):
                known[r.word] = self.settled(r, f"%acc{s}.{j}")
        self.pass_(pointers, known, self.group.outputs, [], None, kept)
        self.say(f"br label %{b}.last", f"{b}.last:")
        self.say(f"%{b}.next = add i64 %{b}.r, 1", f"%{b}.more = icmp slt i64 %{b}.next, %n")
        self.say(f"br i1 %{b}.more, label %{b}.row, label %{b}.end", f"{b}.end:")

    def pass_(
        self,
        pointers: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        reductions: Sequence[tuple[Reduction, str]],
        keep: Expr | None,
        kept: Expr | None = None,
        d: int = 0,
        index: str = "0",
    ) -> None:
        """Over one row, dimension by dimension. `keep` goes to the first output's memory, `kept` is there."""
        count = len(self.group.operands)
        if d == 0:
            known = self.with_constants(known, [*outputs, *(r.word.args[0] for r, _ in reductions)])
        if d == self.rank - 1:
            strides = [f"%step{d}.{k}" for k in range(count)]
            self.blocks(f"%size{d}", pointers, strides, known, outputs, (index, keep, kept), reductions)
            return
        b = self.label()
        self.say(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.say(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.last ]")
        inner = []
        for k in range(count):
            self.say(f"%{b}.o{k} = mul i64 %{b}.i, %step{d}.{k}")
            self.say(f"%{b}.p{k} = getelementptr i8, ptr {pointers[k]}, i64 %{b}.o{k}")
            inner.append(f"%{b}.p{k}")
        self.say(f"%{b}.x = add i64 {index}, %{b}.i", f"%{b}.x1 = mul i64 %{b}.x, %size{d + 1}")
        self.pass_(inner, known, outputs, reductions, keep, kept, d + 1, f"%{b}.x1")
        self.say(f"br label %{b}.last", f"{b}.last:")
        self.say(f"%{b}.next = add i64 %{b}.i, 1", f"%{b}.more = icmp slt i64 %{b}.next, %size{d}")
        self.say(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")

    def with_constants(self, known: Mapping[Expr, str], wanted: Sequence[Expr]) -> dict[Expr, str]:
        """`known`, and what can be computed from it once for the whole row."""
        varying: set[Expr] = set()

        def varies(e: Expr) -> bool:
            """A call does if any of its arguments does; whatever else, `varying` tells."""
            return e in varying or (e.word == "call" and e not in known and any(map(varies, e.args)))

        words = [e for e in walk(*wanted, deep=True) if e not in known and e.word != "constant"]
        for e in words:
            if e.word in ("read", "row_index") or any(map(varies, e.args)):
                varying.add(e)
        constant = [
            a
            for e in words
            if e in varying
            for a in e.args
            if a not in known and a.word != "constant" and not varies(a)
        ]
        emitter = self.emitter(known)
        result = {**known, **{e: emitter.value(e) for e in dict.fromkeys(constant)}}
        self.some |= {e: emitter.any_lane(result[e]) for e in dict.fromkeys(constant) if e.dtype == BOOL}
        self.flush(emitter)
        return result

    def settled(self, r: Reduction, accumulator: str) -> str:
        """The lanes of an accumulator as one value, in every lane."""
        assert r.word.dtype != BOOL
        lanes, name = r.lanes(self.lanes), self.label()
        self.say(f"%{name}.all = load {value_type(r.dtype, r.lanes(lanes))}, ptr {accumulator}, align 64")
        value = self.folded(self.lines, r, f"%{name}.all", lanes, 1)
        emitter = self.emitter({read(-1, r.dtype): value}, 1)
        single = emitter.value(convert(read(-1, r.dtype), r.word.dtype))
        self.flush(emitter)
        return self.broadcast(single, r.word.dtype, f"{name}.row")

    def folded(self, lines: list[str], r: Reduction, value: str, lanes: int, to: int) -> str:
        """A vector's upper half combined with its lower one, until `to` lanes are left; adds to `lines`."""
        a, b = read(-1, r.dtype), read(-2, r.dtype)
        while lanes > to:
            half, whole, name = lanes // 2, value_type(r.dtype, lanes), self.label()
            if half == 1:
                lines += [f"  %{name}.{k} = extractelement {whole} {value}, i32 {k}" for k in (0, 1)]
            for k in (0, 1) if half > 1 else ():
                order = ", ".join(f"i32 {k * half + n}" for n in range(half))
                both = f"{whole} {value}, {whole} poison"
                lines.append(f"  %{name}.{k} = shufflevector {both}, <{half} x i32> <{order}>")
            emitter = self.emitter({a: f"%{name}.0", b: f"%{name}.1"}, half)
            value, lanes = emitter.value(r.combined(a, b)), half
            lines += emitter.lines
            self.declared |= emitter.declared
        return value

    # ---- blocks

    def blocks(
        self,
        size: str,
        pointers: Sequence[str],
        strides: Sequence[str],
        known: Mapping[Expr, str],
        outputs: Sequence[Expr],
        row: tuple[str, Expr | None, Expr | None] | None,
        reductions: Sequence[tuple[Reduction, str]],
    ) -> None:
        """`size` elements, block by block: loads, expressions, stores of the outputs, accumulators.

        A block that is not whole, or has strided operands, takes the way through the stack (from the label
        b); from one whole block to the next only the pointers move (the label b.fast).
        """
        group, lanes, b = self.group, self.lanes, self.label()
        index, keep, kept = row or ("0", None, None)
        given = dict(known)
        wanted = [*outputs, *(r.word.args[0] for r, _ in reductions), *([keep] if keep else [])]
        at_hand = {*known, kept} if kept else set(known)
        needed = {e for w in wanted for e in needed_for(w, at_hand)}
        used = {e.value for e in needed if e.word == "read"}
        stored = [self.count + j for j in range(len(outputs))] or ([self.count] if keep else [])
        loaded = sorted(used) + ([self.count] if kept is not None else [])
        moved = [k for k in dict.fromkeys([*loaded, *stored]) if not self._splat(k)]
        packed = [k for k in moved if self.is_(k, Access.PACKED)]
        strided_in = [k for k in loaded if self.is_(k, Access.STRIDED)]
        strided_out = [k for k in stored if self.is_(k, Access.STRIDED)]

        self.say(f"br label %{b}.pre", f"{b}.pre:")
        for j, (r, accumulator) in enumerate(reductions):
            self.say(
                f"%{b}.begin{j} = load {value_type(r.dtype, r.lanes(lanes))}, ptr {accumulator}, align 64"
            )
        first = str(lanes)
        if self.shape.stream:
            self.say(
                f"%{b}.ready = icmp eq i64 %head.n, 0",
                f"%{b}.first = select i1 %{b}.ready, i64 {lanes}, i64 %head.n",
            )
            first = f"%{b}.first"
        self.say(f"br label %{b}", f"{b}:")
        self.say(f"%{b}.i = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b}.latch ]")
        if self.shape.stream:
            self.say(f"%{b}.cap = phi i64 [ {first}, %{b}.pre ], [ {lanes}, %{b}.latch ]")
        for j, (r, _) in enumerate(reductions):
            kind = value_type(r.dtype, r.lanes(lanes))
            self.say(f"%{b}.so{j} = phi {kind} [ %{b}.begin{j}, %{b}.pre ], [ %{b}.after{j}, %{b}.latch ]")
        cap = f"%{b}.cap" if self.shape.stream else str(lanes)
        self.say(f"%{b}.left = sub i64 {size}, %{b}.i", f"%{b}.short = icmp slt i64 %{b}.left, {cap}")
        self.say(f"%{b}.m = select i1 %{b}.short, i64 %{b}.left, i64 {cap}")
        self.say(f"%{b}.whole = icmp eq i64 %{b}.m, {lanes}")
        for k in moved:
            if self.is_(k, Access.PACKED):
                kind = element_type(group.operands[k])
                self.say(f"%{b}.d{k} = getelementptr {kind}, ptr {pointers[k]}, i64 %{b}.i")
            else:
                self.say(f"%{b}.o{k} = mul i64 %{b}.i, {strides[k]}")
                self.say(f"%{b}.d{k} = getelementptr i8, ptr {pointers[k]}, i64 %{b}.o{k}")
        self._copies(f"{b}.gather", f"%{b}.m", strided_in, strides, lambda k: (f"%{b}.d{k}", f"%block{k}"))
        self.say(f"br i1 %{b}.whole, label %{b}.direct, label %{b}.part")
        self.say(f"{b}.direct:", f"br label %{b}.body", f"{b}.part:")
        self._moves(b, f"%{b}.m", [k for k in packed if k in loaded], inward=True)
        self.say(f"br label %{b}.body", f"{b}.body:")
        fast = len(packed) == len(moved)

        def either(name: str, kind: str, direct: str, part: str, next: str) -> str:
            edges = f"[ {direct}, %{b}.direct ], [ {part}, %{b}.part ]"
            self.say(f"{name} = phi {kind} {edges}" + (f", [ {next}, %{b}.fast ]" if fast else ""))
            return name

        at = {k: f"%block{k}" for k in moved}
        for k in packed:
            at[k] = either(f"%{b}.a{k}", "ptr", f"%{b}.d{k}", f"%block{k}", f"%{b}.f{k}")
        either(f"%{b}.at", "i64", f"%{b}.i", f"%{b}.i", f"%{b}.at1")
        either(f"%{b}.all", "i1", "true", "false", "true")
        for j, (r, _) in enumerate(reductions):
            kind = value_type(r.dtype, r.lanes(lanes))
            either(f"%{b}.acc{j}", kind, f"%{b}.so{j}", f"%{b}.so{j}", f"%{b}.after{j}")
        for k in loaded:
            dtype = group.operands[k]
            leaf = read(k, dtype) if k < self.count else kept
            assert leaf is not None
            if self._splat(k):
                self.say(f"%{b}.one{k} = load {element_type(dtype)}, ptr {pointers[k]}, align 1")
                given[leaf] = self.broadcast(f"%{b}.one{k}", dtype, f"{b}.x{k}")
            else:
                self.say(f"%{b}.x{k} = load {value_type(dtype, lanes)}, ptr {at[k]}, align 1")
                given[leaf] = f"%{b}.x{k}"
        self._positions(b, index, needed, given)
        emitter = self.emitter(given)
        emitter.some = self.some
        values = [emitter.value(e) for e in (outputs or ([keep] if keep else []))]
        for j, (r, _) in enumerate(reductions):
            self._accumulate(emitter, b, j, r)
        self.flush(emitter)
        for k, value in zip(stored, values, strict=True):
            dtype = group.operands[k]
            stream = self.shape.stream and self.is_(k, Access.PACKED)
            align = stream_alignment(dtype, lanes) if stream else 1
            mark = ", !nontemporal !0" if stream else ""
            self.say(f"store {value_type(dtype, lanes)} {value}, ptr {at[k]}, align {align}{mark}")
        if fast:
            self.say(f"%{b}.at1 = add i64 %{b}.at, {lanes}", f"%{b}.rest = sub i64 {size}, %{b}.at1")
            self.say(
                f"%{b}.again = icmp sge i64 %{b}.rest, {lanes}", f"%{b}.go = and i1 %{b}.all, %{b}.again"
            )
            self.say(f"br i1 %{b}.go, label %{b}.fast, label %{b}.slow", f"{b}.fast:")
            for k in packed:
                kind = element_type(group.operands[k])
                self.say(f"%{b}.f{k} = getelementptr {kind}, ptr {at[k]}, i64 {lanes}")
            self.say(f"br label %{b}.body", f"{b}.slow:")
        self._copies(
            f"{b}.scatter", f"%{b}.m", strided_out, strides, lambda k: (f"%block{k}", f"%{b}.d{k}"), out=True
        )
        self.say(f"br i1 %{b}.all, label %{b}.latch, label %{b}.out", f"{b}.out:")
        self._moves(b, f"%{b}.m", [k for k in packed if k in stored], inward=False)
        self.say(f"br label %{b}.latch", f"{b}.latch:")
        self.say(f"%{b}.next = add i64 %{b}.at, %{b}.m", f"%{b}.more = icmp slt i64 %{b}.next, {size}")
        self.say(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")
        for j, (r, accumulator) in enumerate(reductions):
            self.say(
                f"store {value_type(r.dtype, r.lanes(lanes))} %{b}.after{j}, ptr {accumulator}, align 64"
            )

    def _splat(self, k: int) -> bool:
        return k < self.count and self.is_(k, Access.SPLAT)

    def _positions(self, b: str, index: str, needed: set[Expr], given: dict[Expr, str]) -> None:
        """row_index, where it is used."""
        for word in (e for e in needed if e.word == "row_index"):
            assert word.dtype != BOOL
            self.say(f"%{b}.here = add i64 {index}, %{b}.at", f"%{b}.here32 = trunc i64 %{b}.here to i32")
            start = self.broadcast(f"%{b}.here32", word.dtype, f"{b}.start")
            kind = value_type(word.dtype, self.lanes)
            self.say(f"%{b}.index = add {kind} {start}, {self._iota()}")
            given[word] = f"%{b}.index"

    def _iota(self) -> str:
        return "<" + ", ".join(f"i32 {j}" for j in range(self.lanes)) + ">"

    def _accumulate(self, emitter: Emitter, b: str, j: int, r: Reduction) -> None:
        """The accumulator after this block; lanes beyond its end contribute nothing."""
        (given,) = r.word.args
        assert given.dtype != BOOL
        kind, truths = value_type(given.dtype, self.lanes), value_type(BOOL, self.lanes)
        argument = emitter.value(given)
        whole, p = f"<{self.lanes} x i32>", f"{b}.r{j}"
        nothing = f"splat ({element_type(given.dtype)} {r.start(given.dtype)})"
        emitter.lines += [
            f"  br label %{p}",
            f"{p}:",
            f"  br i1 %{b}.all, label %{p}.all, label %{p}.some",
            f"{p}.some:",
            f"  %{p}.m = trunc i64 %{b}.m to i32",
            f"  %{p}.i = insertelement {whole} poison, i32 %{p}.m, i32 0",
            f"  %{p}.ms = shufflevector {whole} %{p}.i, {whole} poison, {whole} zeroinitializer",
            f"  %{p}.mask = icmp ult {whole} {self._iota()}, %{p}.ms",
            f"  %{p}.x = select {truths} %{p}.mask, {kind} {argument}, {kind} {nothing}",
            f"  br label %{p}.all",
            f"{p}.all:",
            f"  %{p}.y = phi {kind} [ {argument}, %{p} ], [ %{p}.x, %{p}.some ]",
        ]
        masked = f"%{p}.y"
        wide = Emitter(self.target, self.lanes, {read(-1, given.dtype): masked}, f"{self.label()}.v")
        argument = wide.value(convert(read(-1, given.dtype), r.dtype))
        emitter.lines += wide.lines
        lanes = r.lanes(self.lanes)
        argument = self.folded(emitter.lines, r, argument, self.lanes, lanes)
        known = {r.leaf: f"%{b}.acc{j}", read(-2, r.dtype): argument}
        inner = Emitter(self.target, lanes, known, f"{self.label()}.v")
        combined = inner.value(r.combined(r.leaf, read(-2, r.dtype)))
        emitter.lines += inner.lines
        emitter.declared |= wide.declared | inner.declared
        accumulator = value_type(r.dtype, lanes)
        emitter.lines.append(f"  %{b}.after{j} = bitcast {accumulator} {combined} to {accumulator}")

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
        self.say(f"br label %{b}.pre", f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.say(f"%{b}.j = phi i64 [ 0, %{b}.pre ], [ %{b}.next, %{b} ]")
        for k in operands:
            kind, (source, target) = element_type(self.group.operands[k]), ends(k)
            block, far = (source, target) if out else (target, source)
            self.say(
                f"%{b}.o{k} = mul i64 %{b}.j, {strides[k]}",
                f"%{b}.f{k} = getelementptr i8, ptr {far}, i64 %{b}.o{k}",
            )
            self.say(f"%{b}.n{k} = getelementptr {kind}, ptr {block}, i64 %{b}.j")
            source, target = (f"%{b}.n{k}", f"%{b}.f{k}") if out else (f"%{b}.f{k}", f"%{b}.n{k}")
            self.say(
                f"%{b}.x{k} = load {kind}, ptr {source}, align 1",
                f"store {kind} %{b}.x{k}, ptr {target}, align 1",
            )
        self.say(f"%{b}.next = add i64 %{b}.j, 1", f"%{b}.more = icmp slt i64 %{b}.next, {size}")
        self.say(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")

    def _moves(self, b: str, size: str, operands: Sequence[int], *, inward: bool) -> None:
        """Packed memory between an operand and its block."""
        if operands:
            self.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        for k in operands:
            count = f"%{b}.{'in' if inward else 'out'}{k}"
            self.say(f"{count} = mul i64 {size}, {self.group.widths[k]}")
            source, target = (f"%{b}.d{k}", f"%block{k}") if inward else (f"%block{k}", f"%{b}.d{k}")
            self.say(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
