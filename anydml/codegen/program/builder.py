"""Programs are written with this: values, element by element and in memory; where they run; how they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.emit import value_type
from anydml.codegen.jit import Target
from anydml.codegen.program.function_writer import FunctionWriter
from anydml.codegen.program.geometry import (
    broadcast_strides,
    is_dense,
    loops,
    offsets_of,
    pieces,
    reshaped_strides,
    strides_like,
    strides_of,
)
from anydml.codegen.program.layout import MAX_BYTES, ArenaPlan, WeightBlock
from anydml.codegen.program.values import (
    MAX_REGISTER_ELEMENTS,
    Buffer,
    Known,
    Lazy,
    Memory,
    NotNative,
    Register,
    Tensor,
)
from anydml.directml.fusion import replace_reads
from anydml.ops.dtypes import BOOL, INT32, SIZE, ScalarType
from anydml.ops.expr import Expr, convert, ne, walk
from anydml.ops.tensor_desc import packed_strides

MAX_FUSED_OPS = 48
"""Ops of an expression beyond which what it reads is computed before."""
MAX_LANES = 16


@dataclass(frozen=True)
class Failure:
    """How a program may end before its end: who is to blame, and what to say of the number it leaves."""

    node: str
    message: str
    """With `{}` for the number."""


class ProgramBuilder:
    def __init__(self, target: Target, most: int, polls: bool = True) -> None:
        """Args:
        most: instructions that it may have.
        polls: whether it looks for Ctrl-C, in loops that may take long.
        """
        self.may_poll = polls
        self.target = target
        self.code = FunctionWriter(target, most)
        self.arena, self.weights = ArenaPlan(), WeightBlock()
        self.failures: list[Failure] = []
        self.polls = False
        """Whether it does so somewhere."""
        self.work = 0
        """About how many elements are computed, those of loops and branches once."""
        self.node = ""
        """For messages, whose code is being written."""
        self.held: list[Tensor] = []
        """Whose memory must not be given out again, whatever else is in use."""

    # ---- one form to another

    def use(self, tensor: Tensor) -> Tensor:
        """A tensor that is computed, for several readers: in a register if it is small."""
        if isinstance(tensor, Lazy):
            return self.register(tensor) if tensor.small else self.memory(tensor)
        return tensor

    def register(self, tensor: Tensor) -> Register:
        """A small tensor in a register."""
        if isinstance(tensor, Register):
            return tensor
        assert tensor.small
        dtype, sizes, count = tensor.dtype, tensor.sizes, tensor.count
        if isinstance(tensor, Known):
            return Register(dtype, sizes, self.code.constant(tensor.array, dtype))
        if isinstance(tensor, Memory):
            if tensor.packed:
                return Register(dtype, sizes, self.code.load(tensor.pointer, dtype, count))
            places = (int(np.dot(at, tensor.strides)) for at in np.ndindex(*sizes))
            parts = [self.code.load(self.code.at(tensor.pointer, p, dtype), dtype) for p in places]
            return Register(dtype, sizes, self.code.join(parts, dtype))
        assert isinstance(tensor, Lazy)
        known = {leaf.as_read: self._spread(self.register(leaf), sizes) for leaf in tensor.leaves.values()}
        (result,) = self.code.evaluate([tensor.expr], count, known)
        return Register(dtype, sizes, result)

    def _spread(self, leaf: Register, sizes: tuple[int, ...]) -> str:
        """A register broadcast to larger sizes."""
        places = np.broadcast_to(np.arange(leaf.count).reshape(leaf.sizes), sizes).reshape(-1)
        return self.code.shuffle(leaf.name, leaf.dtype, leaf.count, places.tolist())

    def scalar(self, tensor: Tensor) -> str:
        """The register or literal with a tensor's only element."""
        assert tensor.count == 1
        return self.register(tensor).name

    def memory(self, tensor: Tensor, into: Memory | None = None) -> Memory:
        """A tensor in memory: where it is, or a copy `into` a place of its sizes."""
        if into is None:
            if isinstance(tensor, Memory):
                return tensor
            if isinstance(tensor, Known):
                return self._weight(tensor)
        self.work += tensor.count
        if tensor.small and not isinstance(tensor, Memory):
            register = self.register(tensor)
            into = into or self.room(tensor.dtype, tensor.sizes)
            self._store(register, into)
            return into
        return self._compute(tensor, into)

    def settled(self, tensor: Tensor) -> Tensor:
        """What has been computed: in a register if it is small."""
        return self.register(tensor) if tensor.small else tensor

    def packed(self, tensor: Tensor) -> Memory:
        """In memory, row by row."""
        found = self.memory(tensor)
        if found.packed:
            return found
        return self.memory(found, self.room(found.dtype, found.sizes))

    def room(
        self, dtype: ScalarType, sizes: tuple[int, ...], strides: tuple[int, ...] | None = None
    ) -> Memory:
        """Memory for a tensor, row by row where no strides are told."""
        strides = packed_strides(sizes) if strides is None else strides
        reach = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        buffer = self.arena.allocate(reach * SIZE[dtype])
        return Memory(dtype, sizes, self.place(buffer), strides, (buffer,))

    def room_of_its_own(self, dtype: ScalarType, sizes: tuple[int, ...]) -> Memory:
        """Memory that nothing has been in so far, nor will be while it is in use."""
        buffer = self.arena.append(prod(sizes) * SIZE[dtype])
        return Memory(dtype, sizes, self.place(buffer), packed_strides(sizes), (buffer,))

    def here(self, memory: Memory) -> Memory:
        """The same with a pointer that is known in the block that is being written."""
        (buffer,) = memory.lies_in
        return replace(memory, pointer=self.place(buffer))

    def place(self, buffer: Buffer) -> str:
        """The pointer of a buffer, for the block that is being written."""
        return self.code.line(f"getelementptr i8, ptr %arena, i64 {buffer.offset}")

    def _weight(self, known: Known) -> Memory:
        offset = self.weights.add(np.ascontiguousarray(known.array))
        pointer = self.code.line(f"getelementptr i8, ptr %weights, i64 {offset}")
        return Memory(known.dtype, known.sizes, pointer, packed_strides(known.sizes))

    def _store(self, register: Register, into: Memory) -> None:
        if into.packed:
            self.code.store(register.name, into.pointer, register.dtype, register.count)
            return
        for k, at in enumerate(np.ndindex(*register.sizes)):
            one = self.code.shuffle(register.name, register.dtype, register.count, [k])
            place = self.code.at(into.pointer, int(np.dot(at, into.strides)), into.dtype)
            self.code.store(one, place, into.dtype)

    # ---- element by element

    def elementwise(self, meaning: Expr, operands: Sequence[Tensor], truth: bool = False) -> Tensor:
        """A tensor of what `meaning` makes of the elements of operands, which broadcast.

        Args:
            meaning: its reads are the operands' numbers; a bool is a number of its type there.
            truth: whether the number that it gives stands for a bool.
        """
        try:
            sizes = np.broadcast_shapes(*(o.sizes for o in operands))
        except ValueError:
            raise NotNative("shapes that do not broadcast") from None
        expr = _over(meaning, operands, truth)
        if sum(1 for _ in walk(expr)) > MAX_FUSED_OPS:
            operands = [self.use(o) for o in operands]
            expr = _over(meaning, operands, truth)
        leaves = {number: leaf for o in operands for number, leaf in o.leaves.items()}
        result = Lazy(expr.dtype, sizes, expr, leaves)
        return self.register(result) if result.small else result

    def _compute(self, tensor: Tensor, into: Memory | None) -> Memory:
        """A loop nest over a large tensor."""
        expr, leaves = tensor.as_read, tensor.leaves
        sources: dict[int, Memory] = {}
        scalars: dict[int, Register] = {}
        for number, leaf in leaves.items():
            if leaf.count == 1:
                scalars[number] = self.register(leaf)
            else:
                sources[number] = self.memory(leaf)
        if into is None:
            into = self.room(tensor.dtype, tensor.sizes, strides_like(tensor.sizes, _sources(tensor)))
        reads = {n: leaf.as_read for n, leaf in leaves.items()}
        strides = [into.strides, *(broadcast_strides(m, tensor.sizes) for m in sources.values())]
        widths = [SIZE[t.dtype] for t in (into, *sources.values())]

        def write(pointers: list[str], lanes: int, steps: tuple[int, ...]) -> None:
            known = {reads[n]: self.code.splat(r.name, r.dtype, lanes) for n, r in scalars.items()}
            for (n, m), pointer, step in zip(sources.items(), pointers[1:], steps[1:], strict=True):
                known[reads[n]] = self.lanes(pointer, m.dtype, lanes, step)
            (value,) = self.code.evaluate([expr], lanes, known)
            self.code.store(value, pointers[0], into.dtype, lanes)

        _, steps = loops(tensor.sizes, strides)[-1]
        if not set(steps) <= {0, 1}:
            self.work += 3 * tensor.count  # elements that do not lie side by side are fetched one by one
        types = [into.dtype, *(m.dtype for m in sources.values())]
        pointers = [into.pointer, *(m.pointer for m in sources.values())]
        self.nest(tensor.sizes, list(zip(types, pointers, strides, strict=True)), write, max(widths))
        return into

    def lanes(self, pointer: str, dtype: ScalarType, lanes: int, step: int) -> str:
        """So many elements, `step` apart."""
        if step == 1 or lanes == 1:
            return self.code.load(pointer, dtype, lanes)
        if step == 0:
            return self.code.splat(self.code.load(pointer, dtype), dtype, lanes)
        places = [self.code.at(pointer, k * step, dtype) for k in range(lanes)]
        return self.code.join([self.code.load(p, dtype) for p in places], dtype)

    def nest(
        self,
        sizes: Sequence[int],
        operands: Sequence[tuple[ScalarType, str, Sequence[int]]],
        write: Callable[[list[str], int, tuple[int, ...]], None],
        width: int,
    ) -> None:
        """Loops over a space: `write` is told pointers, lanes, and steps from lane to lane.

        The first operand is what is written; in vectors along the dimension in which its elements are
        neighbours. Where they do not fill the last vector, it begins earlier, and writes some again.

        Args:
            operands: type, pointer and strides of each.
            width: bytes of the widest element.
        """
        dims = loops(sizes, [strides for _, _, strides in operands])
        count, steps = dims[-1]
        lanes = min(self.vector_lanes(width), count) if steps[0] == 1 else 1

        def line(pointers: list[str]) -> None:
            def one(index: str, _: list[str]) -> list[str]:
                first = self.block_start(index, lanes, count)
                write(self._advanced(types, pointers, first, steps), lanes, steps)
                return []

            self.code.loop(-(-count // lanes), one)

        types = [dtype for dtype, _, _ in operands]
        self.over(dims[:-1], [(dtype, pointer) for dtype, pointer, _ in operands], line)

    def over(
        self,
        dims: Sequence[tuple[int, Sequence[int]]],
        operands: Sequence[tuple[ScalarType, str]],
        body: Callable[[list[str]], None],
    ) -> None:
        """Loops over dimensions, outermost first.

        Args:
            dims: the size of each, and the strides of the operands.
            operands: type and pointer of each.
            body: is told the pointers of an iteration.
        """
        pointers = [pointer for _, pointer in operands]
        if not dims:
            body(pointers)
            return
        (n, strides), *inner = dims
        types = [dtype for dtype, _ in operands]

        def one(index: str, _: list[str]) -> list[str]:
            advanced = self._advanced(types, pointers, index, strides)
            self.over(inner, list(zip(types, advanced, strict=True)), body)
            return []

        self.code.loop(n, one)

    def vector_lanes(self, width: int) -> int:
        """Elements of so many bytes in a vector."""
        return min(max(self.target.vector_bytes // width, 1), MAX_LANES)

    def block_start(self, index: str, lanes: int, count: int) -> str:
        """Where block `index` of so many lanes begins: the last one so that it ends with the whole."""
        first = self.code.times(index, lanes)
        if count % lanes == 0 or first == "0":
            return first
        return self.code.call("i64", "llvm.umin.i64", ("i64", first), ("i64", str(count - lanes)))

    def _advanced(
        self,
        types: Sequence[ScalarType],
        pointers: list[str],
        index: str,
        strides: Sequence[int],
    ) -> list[str]:
        return [
            p if s == 0 else self.code.at(p, self.code.times(index, s), dtype)
            for dtype, p, s in zip(types, pointers, strides, strict=True)
        ]

    # ---- the same elements in other sizes

    def reshape(self, tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """In the same order."""
        if prod(sizes) != tensor.count:
            raise NotNative(f"{tensor.count} elements as {list(sizes)}")
        if isinstance(tensor, Known):
            return Known(tensor.dtype, sizes, tensor.array.reshape(sizes))
        tensor = self.use(tensor)
        if isinstance(tensor, Register):
            return Register(tensor.dtype, sizes, tensor.name)
        assert isinstance(tensor, Memory)
        strides = reshaped_strides(tensor.sizes, tensor.strides, sizes)
        if strides is None:
            tensor = self.packed(tensor)
            strides = packed_strides(sizes)
        return replace(tensor, sizes=sizes, strides=strides)

    def rearrange(self, tensor: Tensor, places: NDArray[np.int64]) -> Tensor:
        """Elements of a tensor in an order of its own: an array of their places, counted row by row.

        Without a copy where strides lead to them.
        """
        sizes = places.shape
        if places.size * SIZE[tensor.dtype] > MAX_BYTES:
            raise NotNative("more memory than programs take")
        if places.size and not 0 <= places.min() <= places.max() < tensor.count:
            raise NotNative(f"places beyond the {tensor.count} elements that there are")
        if isinstance(tensor, Known):
            return Known(tensor.dtype, sizes, tensor.array.reshape(-1)[places])
        tensor = self.use(tensor)
        if isinstance(tensor, Register) or (tensor.small and places.size <= MAX_REGISTER_ELEMENTS):
            if places.size <= MAX_REGISTER_ELEMENTS:
                given = self.register(tensor)
                name = self.code.shuffle(given.name, given.dtype, given.count, places.reshape(-1).tolist())
                return Register(tensor.dtype, sizes, name)
            tensor = self.memory(tensor)
        assert isinstance(tensor, Memory)
        offsets = offsets_of(places, tensor.sizes, tensor.strides)
        view = self._view(tensor, offsets)
        if view is not None:
            return view
        result = self.room(tensor.dtype, sizes)
        parts = pieces(offsets)
        if parts is None:
            self._pick(tensor, offsets, result)
        for start, part in parts or ():
            found = self._view(tensor, part)
            assert found is not None
            self.memory(found, self.part_of(result, start, part.shape))
        return result

    def _pick(self, tensor: Memory, offsets: NDArray[np.int64], result: Memory) -> None:
        """Elements in an order that is none, one by one, by a table."""
        table = self._weight(Known.of(offsets.astype(np.int32)))
        self.work += 3 * result.count

        def one(index: str, _: list[str]) -> list[str]:
            offset = self.code.load(self.code.at(table.pointer, index, INT32), INT32)
            place = self.code.at(tensor.pointer, self.code.line(f"sext i32 {offset} to i64"), tensor.dtype)
            element = self.code.load(place, tensor.dtype)
            self.code.store(element, self.code.at(result.pointer, index, result.dtype), result.dtype)
            return []

        self.code.loop(result.count, one)

    def _view(self, tensor: Memory, offsets: NDArray[np.int64]) -> Memory | None:
        """The elements so many behind a pointer, if strides lead to them."""
        strides = strides_of(offsets)
        if strides is None:
            return None
        pointer = self.code.at(tensor.pointer, int(offsets.flat[0]), tensor.dtype)
        return Memory(tensor.dtype, offsets.shape, pointer, strides, tensor.lies_in)

    def part_of(self, whole: Memory, start: Sequence[int], sizes: tuple[int, ...]) -> Memory:
        """A block of a tensor in memory, which begins at `start`."""
        offset = int(np.dot(start, whole.strides)) if whole.sizes else 0
        pointer = self.code.at(whole.pointer, offset, whole.dtype)
        return replace(whole, sizes=sizes, pointer=pointer)

    def every(self, whole: Memory, start: Sequence[int], steps: Sequence[int]) -> Memory:
        """The elements of a tensor in memory from `start` on, so many steps apart."""
        axes = zip(whole.sizes, start, steps, strict=True)
        part = self.part_of(whole, start, tuple(-(-(n - first) // step) for n, first, step in axes))
        return replace(part, strides=tuple(s * n for s, n in zip(whole.strides, steps, strict=True)))

    def assemble(
        self, dtype: ScalarType, sizes: tuple[int, ...], parts: Sequence[tuple[Sequence[int], Tensor]]
    ) -> Tensor:
        """A tensor of blocks, each with where it begins; of two that overlap, the later one is on top."""
        if prod(sizes) <= MAX_REGISTER_ELEMENTS and all(part.small for _, part in parts):
            names = np.full(sizes, "", object)
            for start, part in parts:
                given = self.register(part)
                scalars = [self.code.shuffle(given.name, dtype, given.count, [k]) for k in range(given.count)]
                block = tuple(slice(a, a + n) for a, n in zip(start, part.sizes, strict=True))
                names[block] = np.array(scalars, object).reshape(part.sizes)
            return Register(dtype, sizes, self.code.join(names.reshape(-1).tolist(), dtype))
        largest = max((part for _, part in parts), key=lambda part: part.count)
        whole = self.room(dtype, sizes, strides_like(sizes, _sources(largest)))
        for start, part in parts:
            self.memory(part, self.part_of(whole, start, part.sizes))
        return whole

    # ---- failing

    def fail_unless(self, condition: str, message: str, number: str) -> None:
        """The program ends with an error where an i1 is not so; `message` has {} for the i64 `number`."""
        passed, failed = self.code.fresh("passed"), self.code.fresh("failed")
        self.code.effect(f"br i1 {condition}, label %{passed}, label %{failed}")
        self.code.begin(failed)
        self.failures.append(Failure(self.node, message))
        self.code.effect(f"store i64 {number}, ptr %detail, align 8")
        self.code.effect(f"ret i32 {len(self.failures)}")
        self.code.begin(passed)

    def phi(self, dtype: ScalarType, count: int, choices: Sequence[tuple[str, str]]) -> str:
        """One of several registers, by the block that was before."""
        arms = ", ".join(f"[ {register}, %{block} ]" for register, block in choices)
        return self.code.line(f"phi {value_type(dtype, count)} {arms}")


def _sources(tensor: Tensor) -> list[Memory]:
    """What of its sizes a tensor is computed from: first what lies without gaps."""
    found = [m for m in tensor.leaves.values() if isinstance(m, Memory) and m.sizes == tensor.sizes]
    return sorted(found, key=is_dense, reverse=True)


def _over(meaning: Expr, operands: Sequence[Tensor], truth: bool) -> Expr:
    """The meaning of what the operands are."""
    reads = {e.value: e.dtype for e in walk(meaning) if e.opcode == "read"}
    expr = replace_reads(meaning, {k: convert(operands[k].as_read, dtype) for k, dtype in reads.items()})
    return ne(expr, 0) if truth and expr.dtype is not BOOL else expr
