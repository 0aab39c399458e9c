"""Row functions of cheap expressions: loops over ever fewer elements at a time."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.target import Target
from anydml.codegen.writer import LoopEmitter, stream_alignment
from anydml.ops.expr import Expr, read


class VectorLoopEmitter(LoopEmitter):
    """Scalar until the output is aligned; four vectors at a time; fewer elements, as rows are often short;
    scalar to the end, and all along if outputs are strided."""

    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        super().__init__(group, shape, target)
        self.lanes = 4 * target.vector_bytes // max(group.widths)

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
        first = "0"
        if Access.STRIDED not in self.shape.access:
            self.until_aligned(self.lanes)
            first = "%head.n"
            if not self.shape.stream:
                # A store over two cache lines takes twice as long, which does not show in few.
                self.emit_lines(
                    f"%long = icmp sge i64 %n, {8 * self.lanes}",
                    "%begin = select i1 %long, i64 %head.n, i64 0",
                )
                first = "%begin"
            self.loop("0", first, 1, ones)
        for lanes in self._steps():
            wide = {
                e: self.broadcast(one, e.dtype, f"wide{lanes}.{k}", lanes)
                for k, (e, one) in enumerate(ones.items())
            }
            self.emit_lines(
                f"%span{lanes} = sub i64 %n, {first}",
                f"%full{lanes} = and i64 %span{lanes}, {-lanes}",
                f"%end{lanes} = add i64 %full{lanes}, {first}",
            )
            self.loop(first, f"%end{lanes}", lanes, wide)
            first = f"%end{lanes}"
        self.loop(first, "%n", 1, ones)

    def _steps(self) -> list[int]:
        """How many elements loops compute at a time, one after the other: streams have long rows. Of strided
        inputs they are read one by one, to be computed and stored together."""
        if Access.STRIDED in self.shape.access[self.count :]:
            return []
        if Access.STRIDED in self.shape.access:
            return [8]
        steps = [self.lanes]
        while not self.shape.stream and steps[-1] > 8:
            steps.append(max(steps[-1] // 8, 4))
        return steps

    def loop(self, first: str, end: str, lanes: int, splats: Mapping[Expr, str]) -> None:
        """`for i in range(first, end, lanes)`."""
        group, at, b = self.group, {}, self.label()
        streamed = self.shape.stream and lanes == self.lanes
        self.emit_lines(
            f"%{b}.any = icmp slt i64 {first}, {end}", f"br i1 %{b}.any, label %{b}.pre, label %{b}.end"
        )
        self.emit_lines(f"{b}.pre:", f"br label %{b}", f"{b}:")
        self.emit_lines(f"%{b}.i = phi i64 [ {first}, %{b}.pre ], [ %{b}.next, %{b} ]")
        for k, dtype in enumerate(group.operands):
            at[k] = f"%{b}.a{k}"
            if self.is_(k, Access.STRIDED):
                self.emit_lines(
                    f"%{b}.o{k} = mul i64 %{b}.i, %s{k}",
                    f"{at[k]} = getelementptr i8, ptr %p{k}, i64 %{b}.o{k}",
                )
            elif self.is_(k, Access.PACKED):
                self.emit_lines(f"{at[k]} = getelementptr {element_type(dtype)}, ptr %p{k}, i64 %{b}.i")
        known = dict(splats)
        for k, dtype in enumerate(group.inputs):
            if self.is_(k, Access.SPLAT):
                continue
            known[read(k, dtype)] = f"%{b}.x{k}"
            if lanes > 1 and self.is_(k, Access.STRIDED):
                self._gather(f"%{b}.x{k}", at[k], k, lanes)
            else:
                self.emit_lines(f"%{b}.x{k} = load {value_type(dtype, lanes)}, ptr {at[k]}, align 1")
        emitter = self.emitter(known, lanes)
        values = [emitter.value(e) for e in group.outputs]
        self.flush(emitter)
        for k, value in enumerate(values, start=self.count):
            dtype = group.operands[k]
            align = stream_alignment(dtype, lanes) if streamed else 1
            mark = ", !nontemporal !0" if streamed else ""
            self.emit_lines(f"store {value_type(dtype, lanes)} {value}, ptr {at[k]}, align {align}{mark}")
        self.emit_lines(f"%{b}.next = add i64 %{b}.i, {lanes}", f"%{b}.more = icmp slt i64 %{b}.next, {end}")
        self.emit_lines(f"br i1 %{b}.more, label %{b}, label %{b}.end", f"{b}.end:")

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
