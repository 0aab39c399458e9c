"""What writers of bodies over whole rows have in common: instructions, loops, words of launch descriptors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from anydml.codegen.compiling import compiling
from anydml.codegen.emit import Emitter
from anydml.codegen.jit import compile_body, host
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.target import Target
from anydml.ops.dtypes import SIGNED, SIZE, ScalarType
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr

Body = Callable[[str, list[str]], Sequence[str]]
"""(index, what is carried) -> what is carried on."""


class RowWriter(ABC):
    """Instructions, loops, and the words of a launch descriptor of which some advance from row to row."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self._count, self._block = 0, "entry"

    @abstractmethod
    def write(self) -> None:
        """Write the body."""

    def text(self) -> str:
        """The module with the body."""
        lines = ["define void @row(ptr %operands, ptr %strides, i64 %n) {", "entry:", *self.lines]
        return "\n".join([*lines, "  ret void", "}", *sorted(self.declared)]) + "\n"

    # ---- instructions

    def line(self, instruction: str) -> str:
        self._count += 1
        self.lines.append(f"  %v{self._count} = {instruction}")
        return f"%v{self._count}"

    def number(self, opcode: str, a: str, b: str | int) -> str:
        return self.line(f"{opcode} i64 {a}, {b}")

    def bounded(self, word: str, a: str, b: str | int) -> str:
        """The smaller (smin) or larger (smax) number."""
        self.declared.add(f"declare i64 @llvm.{word}.i64(i64, i64)")
        return self.line(f"call i64 @llvm.{word}.i64(i64 {a}, i64 {b})")

    def at(self, pointer: str, index: str | int, dtype: ScalarType | None = None) -> str:
        kind = "i8" if dtype is None else element_type(dtype)
        return self.line(f"getelementptr {kind}, ptr {pointer}, i64 {index}")

    def load(self, pointer: str, dtype: ScalarType, lanes: int) -> str:
        return self.line(f"load {value_type(dtype, lanes)}, ptr {pointer}, align 1")

    def store(self, value: str, pointer: str, dtype: ScalarType, lanes: int) -> None:
        self.lines.append(f"  store {value_type(dtype, lanes)} {value}, ptr {pointer}, align 1")

    def splat(self, scalar: str, dtype: ScalarType, lanes: int) -> str:
        """A scalar in every lane."""
        if lanes == 1:
            return scalar
        kind = value_type(dtype, lanes)
        one = self.line(f"insertelement {kind} poison, {element_type(dtype)} {scalar}, i32 0")
        return self.line(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def evaluate(self, expr: Expr, lanes: int, known: Mapping[Expr, str]) -> str:
        self._count += 1
        emitter = Emitter(self.target, lanes, known, f"e{self._count}.")
        value = emitter.value(expr)
        self.lines += emitter.lines
        self.declared |= emitter.declared
        return value

    def copy(self, source: str, target: str, count: str) -> None:
        """So many bytes from one array to another."""
        self.declared.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        ends = f"ptr {target}, ptr {source}, i64 {count}, i1 false"
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({ends})")

    def copy_elements(
        self, source: str, target: str, count: str, dtype: TensorDataType, steps: Sequence[int]
    ) -> None:
        """So many elements, of which few are copied most quickly without a call."""

        def some(index: str, lanes: int) -> None:
            value = self.load(self.at(source, index, dtype), dtype, lanes)
            self.store(value, self.at(target, index, dtype), dtype, lanes)

        self.all_of("0", count, steps, some)

    def place(self, pointer: str, dtype: TensorDataType, length: str) -> str:
        """The index there, from 0 on and below the length: a negative one counts from the end."""
        found = self.load(pointer, dtype, 1)
        if SIZE[dtype] == 4:
            found = self.line(f"{'sext' if dtype in SIGNED else 'zext'} i32 {found} to i64")
        elif dtype not in SIGNED:
            found = self.bounded("umin", found, length)
        if dtype in SIGNED:
            negative = self.line(f"icmp slt i64 {found}, 0")
            from_end = self.number("add", found, length)
            found = self.line(f"select i1 {negative}, i64 {from_end}, i64 {found}")
            found = self.bounded("smax", found, 0)
        return self.bounded("smin", found, self.number("sub", length, 1))

    def loop(
        self, first: str | int, end: str, step: int | str, body: Body, carried: Sequence[tuple[str, str]] = ()
    ) -> list[str]:
        """`for index in range(first, end, step)`; answers with what is carried in the end."""
        self._count += 1
        head, before = f"b{self._count}", self._block
        self.lines += [f"  br label %{head}", f"{head}:"]
        place, index = len(self.lines), f"%{head}.i"
        held = [f"%{head}.c{k}" for k in range(len(carried))]
        self.lines += [f"  %{head}.more = icmp slt i64 {index}, {end}"]
        self.lines += [f"  br i1 %{head}.more, label %{head}.do, label %{head}.end", f"{head}.do:"]
        self._block = f"{head}.do"
        results = list(body(index, held))
        following = self.number("add", index, step)
        phis = [("i64", index, first, following)]
        phis += [(t, h, v, new) for (t, v), h, new in zip(carried, held, results, strict=True)]
        self.lines[place:place] = [
            f"  {register} = phi {kind} [ {start}, %{before} ], [ {new}, %{self._block} ]"
            for kind, register, start, new in phis
        ]
        self.lines += [f"  br label %{head}", f"{head}.end:"]
        self._block = f"{head}.end"
        return held

    def all_of(self, first: str, end: str, steps: Sequence[int], body: Callable[[str, int], None]) -> None:
        """`body(index, lanes)` for all from `first` to `end`: as many at a time as fit, the last of which are
        those at the end, whether they have had their turn or not. `steps`: how many, from many to one; parts
        of a vector that has no so many are one."""
        for lanes in dict.fromkeys(max(n, 1) for n in steps):
            last = self.number("sub", end, lanes)
            fits = self.line(f"icmp sle i64 {first}, {last}")
            stop = self.line(f"select i1 {fits}, i64 {end}, i64 {first}")

            def some(index: str, _: list[str], lanes: int = lanes, last: str = last) -> list[str]:
                body(self.bounded("smin", index, last), lanes)
                return []

            self.loop(first, stop, lanes, some)
            first = stop

    # ---- words

    def words(self, names: Sequence[str], moving: int) -> tuple[dict[str, str], dict[str, str]]:
        """The words by name, and how far the first ones move from row to row."""
        bases, steps = {}, {}
        for k, name in enumerate(names):
            bases[name] = self.load(self.at("%operands", k, TensorDataType.INT64), TensorDataType.INT64, 1)
            if k < moving:
                steps[name] = self.load(self.at("%strides", k, TensorDataType.INT64), TensorDataType.INT64, 1)
        return bases, steps

    def here(self, row: str, bases: Mapping[str, str], steps: Mapping[str, str]) -> dict[str, str]:
        """The words that move, in a row."""
        return {n: self.number("add", bases[n], self.number("mul", row, step)) for n, step in steps.items()}

    def pointer(self, word: str) -> str:
        return self.line(f"inttoptr i64 {word} to ptr")


Writer = Callable[[Any, Target], RowWriter]
"""Of a kernel's spec, and of the machine that its body is for."""


def body_text(writer: Writer, spec: Hashable, target: Target) -> str:
    """LLVM IR of a module with the kernel body."""
    made = writer(spec, target)
    made.write()
    return made.text()


@lru_cache
def body_address(writer: Writer, spec: Hashable) -> int:
    """The compiled kernel body."""
    with compiling.lock:
        return compile_body(lambda: body_text(writer, spec, host()))
