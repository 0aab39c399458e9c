"""Row functions of cheap expressions: loops over ever fewer elements at a time."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.masks import first_lanes, masked_load, masked_store
from anydml.codegen.target import Target
from anydml.codegen.writer import LoopEmitter, stream_alignment
from anydml.ops.expr import Expr, read


class VectorLoopEmitter(LoopEmitter):
    """Four vectors at a time from where the output is aligned; then fewer, as rows are often short. What is
    before and behind is one loop: over vectors of which only the first lanes are loaded and stored, where a
    processor has that, else over single elements. These all along if outputs are strided."""

    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = 4 * target.vector_bytes // max(group.widths)
        self.packed = Access.STRIDED not in shape.access
        self.masked = self.packed and target.ends

    def write(self) -> None:
        group, everything = self.group, range(len(self.group.operands))
        self.operands(everything)
        ones: dict[Expr, str] = {}
        for k in everything:
            if self.is_(k, Access.STRIDED):
                self.word(f"s{k}", "%strides", k)
            elif k < self.count and self.is_(k, Access.SPLAT):
                self.emit_lines(f"%one{k} = load {element_type(group.inputs[k])}, ptr %p{k}, align 1")
                ones[read(k, group.inputs[k])] = f"%one{k}"
        ones |= self.of_splats(lambda k: f"%one{k}")
        if Access.STRIDED in self.shape.access[self.count :]:
            self.loop("0", "%n", 1, ones)
        else:
            self._between_ends(self._begin(), ones)

    def _begin(self) -> str:
        """Up to which element all is computed as it is behind the last whole vector."""
        if not self.packed:
            return "0"
        self.until_aligned(self.lanes)
        if self.shape.stream:
            return "%head.n"
        # A store over two cache lines takes twice as long, which does not show in few.
        self.emit_lines(
            f"%long = icmp sge i64 %n, {8 * self.lanes}", "%begin = select i1 %long, i64 %head.n, i64 0"
        )
        return "%begin"

    def _between_ends(self, begin: str, ones: Mapping[Expr, str]) -> None:
        """Whole vectors from `begin` on, between two ends, which have one loop: it is entered twice."""
        lanes, first, steps = self.lanes // 4 if self.masked else 1, begin, []
        for step in self._steps():
            self.emit_lines(
                f"%span{step} = sub i64 %n, {first}",
                f"%full{step} = and i64 %span{step}, {-step}",
                f"%end{step} = add i64 %full{step}, {first}",
            )
            steps.append((step, first, f"%end{step}"))
            first = f"%end{step}"
        wide = {n: self._wide(ones, n) for n in (lanes, *(step for step, _, _ in steps))}
        self.emit_lines("br label %ends", "ends:")
        self.emit_lines(
            f"%ends.i = phi i64 [ 0, %entry ], [ {first}, %whole.end ], [ %ends.next, %ends.some ]",
            f"%ends.n = phi i64 [ {begin}, %entry ], [ %n, %whole.end ], [ %ends.n, %ends.some ]",
            "%ends.any = icmp slt i64 %ends.i, %ends.n",
            "br i1 %ends.any, label %ends.some, label %ends.none",
            "ends.some:",
        )
        if self.masked:
            self.emit_lines("%ends.left = sub i64 %ends.n, %ends.i")
            self.emit_lines(*first_lanes("ends.lanes", "%ends.left", lanes))
        self._elements("%ends.i", lanes, wide[lanes], "%ends.lanes" if self.masked else "")
        self.emit_lines(f"%ends.next = add i64 %ends.i, {lanes}", "br label %ends", "ends.none:")
        self.emit_lines(
            "%ends.all = icmp eq i64 %ends.n, %n", "br i1 %ends.all, label %done, label %whole", "whole:"
        )
        for step, start, end in steps:
            self.loop(start, end, step, wide[step])
        self.emit_lines("br label %whole.end", "whole.end:", "br label %ends", "done:")

    def _wide(self, ones: Mapping[Expr, str], lanes: int) -> Mapping[Expr, str]:
        """What is one element for all, in every lane."""
        if lanes == 1:
            return ones
        named = enumerate(ones.items())
        return {e: self.broadcast(one, e.dtype, f"wide{lanes}.{k}", lanes) for k, (e, one) in named}

    def _steps(self) -> list[int]:
        """How many elements loops compute at a time, one after the other: streams have long rows. Of strided
        inputs they are read one by one, to be computed and stored together."""
        if not self.packed:
            return [8]
        steps = [self.lanes]
        while not (self.shape.stream or self.masked) and steps[-1] > 8:
            steps.append(max(steps[-1] // 8, 4))
        return steps

    def loop(self, first: str, end: str, lanes: int, splats: Mapping[Expr, str]) -> None:
        """`for i in range(first, end, lanes)`."""
        b = self.label()
        self.emit_lines(
            f"%{b}.any = icmp slt i64 {first}, {end}", f"br i1 %{b}.any, label %{b}.pre, label %{b}.end"
        )
        self.emit_lines(f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ {first}, %{b}.pre ], [ %{b}.next, %{b} ]")
        self._elements(f"%{b}.i", lanes, splats)
        self.emit_lines(f"%{b}.next = add i64 %{b}.i, {lanes}", f"%{b}.more = icmp slt i64 %{b}.next, {end}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")

    def _elements(self, i: str, lanes: int, splats: Mapping[Expr, str], mask: str = "") -> None:
        """`lanes` elements from the i-th on; of these, only where the mask is true."""
        group, at, b = self.group, {}, self.label()
        for k, dtype in enumerate(group.operands):
            at[k] = f"%{b}.a{k}"
            if self.is_(k, Access.STRIDED):
                self.emit_lines(
                    f"%{b}.o{k} = mul i64 {i}, %s{k}",
                    f"{at[k]} = getelementptr i8, ptr %p{k}, i64 %{b}.o{k}",
                )
            elif self.is_(k, Access.PACKED):
                self.emit_lines(f"{at[k]} = getelementptr {element_type(dtype)}, ptr %p{k}, i64 {i}")
        known = dict(splats)
        for k, dtype in enumerate(group.inputs):
            name = f"%{b}.x{k}"
            if self.is_(k, Access.SPLAT):
                continue
            known[read(k, dtype)] = name
            if lanes > 1 and self.is_(k, Access.STRIDED):
                self._gather(name, at[k], k, lanes)
            elif mask:
                call, declared = masked_load(at[k], mask, dtype, lanes)
                self.emit_lines(f"{name} = {call}")
                self.declared.add(declared)
            else:
                self.emit_lines(f"{name} = load {value_type(dtype, lanes)}, ptr {at[k]}, align 1")
        emitter = self.emitter(known, lanes)
        values = [emitter.value(e) for e in group.outputs]
        self.flush(emitter)
        streamed = self.shape.stream and lanes == self.lanes
        for k, value in enumerate(values, start=self.count):
            dtype = group.operands[k]
            if mask:
                call, declared = masked_store(value, at[k], mask, dtype, lanes)
                self.emit_lines(call)
                self.declared.add(declared)
                continue
            align = stream_alignment(dtype, lanes) if streamed else 1
            mark = ", !nontemporal !0" if streamed else ""
            self.emit_lines(f"store {value_type(dtype, lanes)} {value}, ptr {at[k]}, align {align}{mark}")

    def _gather(self, name: str, at: str, k: int, lanes: int) -> None:
        """`lanes` elements of a strided operand as a vector."""
        element, kind = element_type(self.group.operands[k]), value_type(self.group.operands[k], lanes)
        vector = "poison"
        for j in range(lanes):
            if j:
                self.emit_lines(f"{name}.p{j} = getelementptr i8, ptr {at}, i64 %s{k}")
                at = f"{name}.p{j}"
            into = name if j == lanes - 1 else f"{name}.v{j}"
            self.emit_lines(
                f"{name}.e{j} = load {element}, ptr {at}, align 1",
                f"{into} = insertelement {kind} {vector}, {element} {name}.e{j}, i32 {j}",
            )
            vector = into
