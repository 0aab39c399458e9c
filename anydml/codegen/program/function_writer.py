"""Instructions of a program's function: blocks, loops, vectors in registers and in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.emit import Emitter
from anydml.codegen.llvm_types import element_type, literal, value_type, vector
from anydml.codegen.program.geometry import starts
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import memory_type
from anydml.codegen.target import Target
from anydml.ops.dtypes import BFLOAT16, BOOL, SIZE, UINT16, ScalarType
from anydml.ops.expr import Expr

Carried = Sequence[tuple[str, str]]
"""LLVM types and first values of what a loop hands from one iteration to the next."""
Body = Callable[[str, list[str]], Sequence[str]]
"""(index, what is carried) -> what is carried on."""

MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
MAX_NEAR = 4
"""Vectors that are loaded for the elements of one."""


class FunctionWriter:
    def __init__(self, target: Target, most: int) -> None:
        """`most`: instructions, beyond which there is none."""
        self.target, self.most = target, most
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.block = "entry"
        """The label of the block that is being written."""
        self._count = 0
        self._begins: dict[tuple[str, ScalarType], tuple[str, int]] = {}
        """Of places that are a number of elements behind another one, that and the number."""
        self._joined: dict[str, list[str]] = {}
        """Of registers that were made of scalars, these."""

    # ---- text

    def fresh(self, stem: str) -> str:
        """A name that is nobody's."""
        self._count += 1
        return f"{stem}{self._count}"

    def line(self, instruction: str) -> str:
        """An instruction, and the register with its result."""
        register = f"%{self.fresh('v')}"
        self.effect(f"{register} = {instruction}")
        return register

    def effect(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")
        if len(self.lines) > self.most:
            raise NotNative(f"more than {self.most} instructions, which take long to compile")

    def renew(self, register: str, instruction: str) -> None:
        """Another instruction, instead of that which gave a register."""
        start = f"  {register} = "
        place = next(k for k, line in enumerate(self.lines) if line.startswith(start))
        self.lines[place] = start + instruction

    def begin(self, label: str) -> None:
        """A block, to which somebody jumps."""
        self.lines.append(f"{label}:")
        self.block = label

    def fall_into(self, label: str) -> None:
        """A block, which follows the one before."""
        self.effect(f"br label %{label}")
        self.begin(label)

    def call(self, result: str, name: str, *args: tuple[str, str]) -> str:
        """Of a function outside, or an intrinsic, on (type, value) arguments."""
        self.declared.add(f"declare {result} @{name}({', '.join(kind for kind, _ in args)})")
        return self.line(f"call {result} @{name}({', '.join(map(' '.join, args))})")

    def evaluate(self, exprs: Sequence[Expr], lanes: int, known: Mapping[Expr, str]) -> list[str]:
        """Registers with the values of expressions, whose leaves are in registers."""
        emitter = Emitter(self.target, lanes, known, f"{self.fresh('e')}.")
        results = [emitter.value(e) for e in exprs]
        self.lines += emitter.lines
        self.declared |= emitter.declared
        labels = [line for line in emitter.lines if line.endswith(":")]
        if labels:
            self.block = labels[-1].removesuffix(":")
        return results

    # ---- arithmetic of places

    def times(self, index: str, factor: int) -> str:
        if factor == 1 or index == "0":
            return index
        return self.line(f"mul nsw i64 {index}, {factor}")

    def plus(self, index: str, more: int) -> str:
        if more == 0:
            return index
        return str(more) if index == "0" else self.line(f"add nuw nsw i64 {index}, {more}")

    def at(self, pointer: str, index: str | int, dtype: ScalarType) -> str:
        """The place of an element, so many behind a pointer."""
        if index in ("0", 0):
            return pointer
        place = self.line(f"getelementptr {memory_type(dtype)}, ptr {pointer}, i64 {index}")
        if isinstance(index, int):
            begin, offset = self._begins.get((pointer, dtype), (pointer, 0))
            self._begins[place, dtype] = begin, offset + index
        return place

    def all_at(
        self, pointers: Sequence[str], index: str, strides: Sequence[int], types: Sequence[ScalarType]
    ) -> list[str]:
        """The places of several elements, so many strides behind pointers. One register leads to all that go
        on side by side: what lies between them is written into the instructions that read there."""
        moved: dict[tuple[str, ScalarType, int], str] = {}
        found = []
        for pointer, stride, dtype in zip(pointers, strides, types, strict=True):
            begin, offset = self._begins.get((pointer, dtype), (pointer, 0))
            if stride == 0 or index == "0":
                found.append(pointer)
                continue
            key = begin, dtype, stride
            if key not in moved:
                moved[key] = self.at(begin, self.times(index, stride), dtype)
            found.append(self.at(moved[key], offset, dtype))
        return found

    def shorter(self, one: str, other: str) -> str:
        """The smaller one of two lengths."""
        return self.call("i64", "llvm.umin.i64", ("i64", one), ("i64", other))

    def blocks(self, count: str, lanes: int) -> str:
        """How many vectors so many elements begin."""
        if lanes == 1:
            return count
        return self.line(f"udiv i64 {self.line(f'add nuw nsw i64 {count}, {lanes - 1}')}, {lanes}")

    # ---- control flow

    def loop(self, count: int | str, body: Body, carried: Carried = ()) -> list[str]:
        """`for index in range(count)`; answers with what is carried in the end.

        Args:
            count: a number, of at least one; or the register with it.
        """
        if isinstance(count, str):
            return self._loop_while(count, body, carried)
        if count == 1:
            return list(body("0", [value for _, value in carried]))
        before, head = self.block, self.fresh("loop")
        self.fall_into(head)
        index, following = f"%{head}.i", f"%{head}.next"
        place = len(self.lines)
        registers = [f"%{head}.c{k}" for k in range(len(carried))]
        self.lines += [""] * (1 + len(carried))
        results = list(body(index, registers))
        self.effect(f"{following} = add nuw nsw i64 {index}, 1")
        self.effect(f"%{head}.more = icmp ult i64 {following}, {count}")
        phis = [("i64", index, "0", following)]
        phis += [(t, r, v, new) for (t, v), r, new in zip(carried, registers, results, strict=True)]
        self.enter(place, phis, before)
        self.effect(f"br i1 %{head}.more, label %{head}, label %{head}.end")
        self.begin(f"{head}.end")
        return results

    def _loop_while(self, count: str, body: Body, carried: Carried) -> list[str]:
        """As `loop`, perhaps not once."""

        def one(now: list[str]) -> list[str]:
            results = body(now[0], now[1:])
            return [self.line(f"add nuw nsw i64 {now[0]}, 1"), *results]

        def more(now: list[str]) -> str:
            return self.line(f"icmp ult i64 {now[0]}, {count}")

        return self.loop_while(more, one, [("i64", "0"), *carried])[1:]

    def loop_while(
        self, more: Callable[[list[str]], str], body: Callable[[list[str]], Sequence[str]], carried: Carried
    ) -> list[str]:
        """As long as an i1 of what is carried says so; answers with what is carried in the end."""
        before, head = self.block, self.fresh("while")
        self.fall_into(head)
        registers = [f"%{head}.c{k}" for k in range(len(carried))]
        place = len(self.lines)
        self.lines += [""] * len(carried)
        self.effect(f"br i1 {more(registers)}, label %{head}.body, label %{head}.end")
        self.begin(f"{head}.body")
        results = body(registers)
        phis = [(t, r, v, new) for (t, v), r, new in zip(carried, registers, results, strict=True)]
        self.enter(place, phis, before)
        self.effect(f"br label %{head}")
        self.begin(f"{head}.end")
        return registers

    def enter(self, place: int, phis: Sequence[tuple[str, str, str, str]], before: str) -> None:
        """At the head of a loop, whose last block is being written: type, register, first and next value."""
        self.lines[place : place + len(phis)] = [
            f"  {register} = phi {kind} [ {first}, %{before} ], [ {new}, %{self.block} ]"
            for kind, register, first, new in phis
        ]

    # ---- vectors

    def constant(self, array: NDArray[np.generic], dtype: ScalarType) -> str:
        """The elements as a literal."""
        element = element_type(dtype)
        if dtype is BFLOAT16:
            array, dtype = array.view(np.uint16), UINT16
        texts = [str(int(x)) if dtype is BOOL else literal(x, dtype) for x in array.reshape(-1).tolist()]
        return texts[0] if len(texts) == 1 else f"<{', '.join(f'{element} {t}' for t in texts)}>"

    def shuffle(self, register: str, dtype: ScalarType, count: int, places: Sequence[int]) -> str:
        """The elements at these places of a register of so many."""
        if list(places) == list(range(count)):
            return register
        if count == 1:
            return self.splat(register, dtype, len(places))
        kind = value_type(dtype, count)
        if len(places) == 1 and register in self._joined:
            return self._joined[register][places[0]]
        if len(places) == 1:
            return self.line(f"extractelement {kind} {register}, i32 {places[0]}")
        mask = ", ".join(f"i32 {p}" for p in places)
        return self.line(f"shufflevector {kind} {register}, {kind} poison, <{len(places)} x i32> <{mask}>")

    def splat(self, scalar: str, dtype: ScalarType, lanes: int) -> str:
        """A scalar in every lane."""
        if lanes == 1:
            return scalar
        kind = value_type(dtype, lanes)
        one = self.line(f"insertelement {kind} poison, {element_type(dtype)} {scalar}, i32 0")
        return self.line(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def join(self, scalars: Sequence[str], dtype: ScalarType) -> str:
        """Scalars as one register."""
        if len(scalars) == 1:
            return scalars[0]
        kind, result = value_type(dtype, len(scalars)), "poison"
        for k, scalar in enumerate(scalars):
            result = self.line(f"insertelement {kind} {result}, {element_type(dtype)} {scalar}, i32 {k}")
        self._joined[result] = [*scalars]
        return result

    def load(self, pointer: str, dtype: ScalarType, lanes: int = 1) -> str:
        """Neighbouring elements."""
        kind = vector(memory_type(dtype), lanes)
        found = self.line(f"load {kind}, ptr {pointer}, align {SIZE[dtype]}")
        if dtype is not BOOL:
            return found
        zero = "0" if lanes == 1 else "zeroinitializer"
        return self.line(f"icmp ne {kind} {found}, {zero}")

    def near(self, pointer: str, offsets: Sequence[int], dtype: ScalarType) -> str | None:
        """Elements so far from a pointer, by loading all between the first and the last; None where these are
        too many."""
        lanes, first, last = len(offsets), min(offsets), max(offsets)
        width = min(lanes, last - first + 1)
        begins = [first + k for k in starts(last - first + 1, width)]
        if len(begins) > MAX_NEAR:
            return None
        loaded = [self.load(self.at(pointer, b, dtype), dtype, width) for b in begins]
        if width == 1:
            return self.splat(loaded[0], dtype, lanes)
        found, kind = loaded[0], value_type(dtype, width)
        places: list[int | None] = [o - first if o < first + width else None for o in offsets]
        """Where in `found` each of them is; None: it is further on."""
        if len(loaded) == 1:
            return self.shuffle(found, dtype, width, [p for p in places if p is not None])
        for begin, more in zip(begins[1:], loaded[1:], strict=True):
            mask, there = [], [b is not None for b in places]
            for k, offset in enumerate(offsets):
                here = begin <= offset < begin + width
                place = places[k] if there[k] else width + offset - begin if here else None
                mask.append("i32 poison" if place is None else f"i32 {place}")
                places[k] = k if place is not None else None
            listed = f"<{lanes} x i32> <{', '.join(mask)}>"
            found = self.line(f"shufflevector {kind} {found}, {kind} {more}, {listed}")
        return found

    def copy(self, home: str, source: str, count: str) -> None:
        """So many bytes, which do not overlap."""
        self.declared.add(MEMCPY)
        self.effect(f"call void @llvm.memcpy.p0.p0.i64(ptr {home}, ptr {source}, i64 {count}, i1 false)")

    def store(self, register: str, pointer: str, dtype: ScalarType, lanes: int = 1) -> None:
        kind = vector(memory_type(dtype), lanes)
        if dtype is BOOL:
            register = self.line(f"zext {value_type(BOOL, lanes)} {register} to {kind}")
        self.effect(f"store {kind} {register}, ptr {pointer}, align {SIZE[dtype]}")
