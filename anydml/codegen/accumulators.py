"""Accumulators of reductions: vectors that become fewer lanes, and wider ones, on their way to one number."""

from __future__ import annotations

from anydml.codegen.emit import Emitter
from anydml.codegen.llvm_types import value_type
from anydml.codegen.stages import Reduction, accumulator_of
from anydml.codegen.writer import LoopEmitter
from anydml.ops.dtypes import FLOAT32, FLOAT64
from anydml.ops.expr import Expr, convert, read


class AccumulatorEmitter(LoopEmitter):
    stages: list[list[Expr]]
    most: int
    """Lanes of whole blocks; `lanes` are those of the blocks at hand."""

    def held_lanes(self, r: Reduction) -> int:
        """Of an accumulator."""
        return min(r.lanes(self.most), self.lanes)

    def narrow(self, lanes: int) -> None:
        """Memory for what becomes wide on its way from there."""
        every = [Reduction(e, accumulator_of(e)) for stage in self.stages for e in stage]
        if any(self.by_memory(r) for r in every):
            self.emit_lines(f"%narrow = alloca {value_type(FLOAT32, lanes)}, align 64")

    def combine(
        self,
        emitter: Emitter,
        r: Reduction,
        accumulator: str,
        argument: str,
        at: str | None = None,
    ) -> str:
        """The accumulator with a block's values; adds to the emitter's lines.

        `at`: the memory with the argument, if it stands somewhere.
        """
        lanes = self.held_lanes(r)
        value = self.widened(emitter.lines, r, argument, self.lanes, lanes, at)
        other = read(-2, r.dtype)
        inner = Emitter(self.target, lanes, {r.leaf: accumulator, other: value}, f"{self.label()}.v")
        combined = inner.value(r.combined(r.leaf, other))
        emitter.lines += inner.lines
        emitter.declared |= inner.declared
        return combined

    def widened(
        self, lines: list[str], r: Reduction, value: str, lanes: int, to: int, at: str | None = None
    ) -> str:
        """A vector of the argument as the accumulator's type, folded to so many lanes; adds to `lines`."""
        given, piece = r.argument, self.target.vector_bytes // 8
        if self.by_memory(r) and to % piece == 0 and (at or given.opcode != "read"):
            if not at:
                at = "%narrow"
                lines.append(f"  store {value_type(FLOAT32, lanes)} {value}, ptr {at}, align 64")
            return self._widened_by_memory(lines, r, at, lanes, to)
        wide = Emitter(self.target, lanes, {read(-1, given.dtype): value}, f"{self.label()}.v")
        value = wide.value(convert(read(-1, given.dtype), r.dtype))
        lines += wide.lines
        self.declared |= wide.declared
        return self.folded(lines, r, value, lanes, to)

    def by_memory(self, r: Reduction) -> bool:
        """Whether what is summed up becomes FLOAT64 on its way from memory, where it is put for that:
        conversions of registers take the room of arithmetic. With vectors of 64 bytes nothing is won."""
        return r.expr.opcode == "row_sum" and r.argument.dtype is FLOAT32 and self.target.vector_bytes == 32

    def _widened_by_memory(self, lines: list[str], r: Reduction, source: str, lanes: int, to: int) -> str:
        p, piece, x, y = self.label(), self.target.vector_bytes // 8, read(-1, FLOAT64), read(-2, FLOAT64)
        given, wide = value_type(FLOAT32, piece), value_type(FLOAT64, piece)
        sums = []
        for first in range(0, to, piece):
            parts = []
            for at in range(first, lanes, to):
                lines += [
                    f"  %{p}.{at}.p = getelementptr float, ptr {source}, i64 {at}",
                    f"  %{p}.{at}.n = load {given}, ptr %{p}.{at}.p, align 1",
                    f"  %{p}.{at} = fpext {given} %{p}.{at}.n to {wide}",
                ]
                parts.append(f"%{p}.{at}")
            while len(parts) > 1:
                half = len(parts) // 2
                for k in range(half):
                    emitter = self.emitter({x: parts[k], y: parts[half + k]}, piece)
                    parts[k] = emitter.value(r.combined(x, y))
                    lines += emitter.lines
                del parts[half:]
            sums += parts
        while len(sums) > 1:
            kind, places = value_type(FLOAT64, piece), ", ".join(f"i32 {k}" for k in range(2 * piece))
            for k in range(0, len(sums), 2):
                both = f"{kind} {sums[k]}, {kind} {sums[k + 1]}"
                lines.append(f"  %{p}.both.{k} = shufflevector {both}, <{2 * piece} x i32> <{places}>")
            sums, piece = [f"%{p}.both.{k}" for k in range(0, len(sums), 2)], 2 * piece
        return sums[0]

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

    def reduce_lanes(self, r: Reduction, accumulator: str, lanes: int) -> str:
        """The lanes of an accumulator as one number."""
        value = self.folded(self.lines, r, accumulator, lanes, 1)
        emitter = self.emitter({read(-1, r.dtype): value}, 1)
        single = emitter.value(convert(read(-1, r.dtype), r.expr.dtype))
        self.flush(emitter)
        return single
