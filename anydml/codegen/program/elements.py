"""Values of programs: in registers and in memory, and what is computed of them element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from anydml.codegen.program.function_writer import MAX_NEAR, FunctionWriter
from anydml.codegen.program.geometry import broadcast_strides, is_dense, loops, strides_like
from anydml.codegen.program.layout import ArenaPlan, WeightBlock
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Bounded, Buffer, Known, Lazy, Memory, Pending, Register, Tensor
from anydml.codegen.target import Target
from anydml.directml.weights import replace_reads
from anydml.ops.dtypes import BOOL, INT64, SIZE, ScalarType
from anydml.ops.expr import Expr, convert, ne, read, walk
from anydml.ops.tensor_desc import packed_strides

MAX_FUSED_OPS = 48
"""Ops of an expression beyond which what it reads is computed before."""
MAX_LANES = 16
LINE = 64
"""Bytes that memory is read and written in."""
NEAR_BYTES = 1 << 14
"""That are gone through several times without loss."""
MAX_STEADY_VECTORS = 8
Filled = tuple[int, str]
"""An axis, and the register with how far along it there is something."""


class ElementWriter:
    def __init__(self, target: Target, most: int, polls: bool = True) -> None:
        """Args:
        most: instructions that it may have.
        polls: whether it looks for Ctrl-C, in loops that may take long.
        """
        self.may_poll = polls
        self.target = target
        self.code = FunctionWriter(target, most)
        self.arena, self.weights = ArenaPlan(), WeightBlock()
        self.polls = False
        """Whether it does so somewhere."""
        self.work = 0
        """About how many elements are computed, those of loops and branches once."""
        self.node = ""
        """For messages, whose code is being written."""
        self.most: dict[str, int] = {}
        """Registers with lengths that somebody asked for, and how much they are at most."""
        self.held: list[Tensor] = []
        """Whose memory must not be given out again, whatever else is in use."""
        self._begins: dict[str, Buffer] = {}
        """Registers with the pointers of buffers."""

    # ---- one form to another

    def use(self, tensor: Tensor) -> Tensor:
        """A tensor that is computed, for several readers: in a register if it is small."""
        if isinstance(tensor, Bounded):
            return replace(tensor, whole=self.register(tensor) if tensor.small else self.memory(tensor))
        if isinstance(tensor, Lazy | Pending):
            return self.register(tensor) if tensor.small else self.memory(tensor)
        return tensor

    def later(self, product: Pending) -> Tensor:
        """A product that waits for who reads it; a small one does not."""
        if not product.small:
            return product
        found = product.write(read(0, product.dtype), ())
        assert found is not None, "to do nothing is always done"
        return self.settled(found)

    def with_products(self, tensor: Tensor, alone: bool = False) -> Tensor:
        """The same, with the products that it is computed of in memory. One of them may be written with what
        is done to it on its way out, so that this is all; `alone`: not so."""
        products = [t for t in tensor.leaves.values() if isinstance(t, Pending)]
        whole = [t for t in products if (t.sizes, t.dtype) == (tensor.sizes, tensor.dtype)]
        last = whole[-1] if whole and not alone else None
        tensor = self._in_memory(tensor, [t for t in products if t is not last])
        if last is None:
            return tensor
        others = [t for t in tensor.leaves.values() if t is not last]
        reads = {t.number: read(k, t.dtype) for k, t in enumerate((last, *others))}
        found = last.write(replace_reads(tensor.as_read, reads), others)
        return self._in_memory(tensor, [last]) if found is None else found

    def _in_memory(self, tensor: Tensor, products: Sequence[Tensor]) -> Tensor:
        """The same, computed of these products' memory."""
        if not products:
            return tensor
        made: dict[int, Tensor] = {t.number: self.memory(t) for t in products}
        leaves = {n: made.get(n, t) for n, t in tensor.leaves.items()}
        expr = replace_reads(tensor.as_read, {n: t.as_read for n, t in leaves.items()})
        return Lazy(tensor.dtype, tensor.sizes, expr, {t.number: t for t in leaves.values()})

    def whole(self, tensor: Tensor) -> Tensor:
        """As much as there may be, once it is computed."""
        found = self.use(tensor)
        return found.whole if isinstance(found, Bounded) else found

    def length(self, tensor: Tensor, axis: int) -> int | str:
        """How many there are along an axis: a number, or the register with it."""
        if isinstance(tensor, Bounded) and axis == tensor.axis:
            return tensor.length
        return tensor.sizes[axis]

    def register(self, tensor: Tensor) -> Register:
        """A small tensor in a register."""
        if isinstance(tensor, Bounded):
            return self.register(tensor.whole)
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
        if isinstance(tensor, Bounded):
            raise NotNative("one number that may be none")
        assert tensor.count == 1
        return self.register(tensor).name

    def scalars(self, tensor: Tensor) -> list[str]:
        """The registers or literals with the elements of a small tensor."""
        if isinstance(tensor, Known):
            flat = tensor.array.reshape(-1)
            return [self.code.constant(flat[k : k + 1], tensor.dtype) for k in range(tensor.count)]
        name = self.register(tensor).name
        return [self.code.shuffle(name, tensor.dtype, tensor.count, [k]) for k in range(tensor.count)]

    def lengths(self, tensor: Tensor) -> list[int | str]:
        """What is known of sizes that a program has computed: numbers, and registers with lengths."""
        if isinstance(tensor, Known):
            return [*tensor.integers]
        if isinstance(tensor, Bounded) or not tensor.small or tensor.dtype is not INT64:
            raise NotNative("sizes that are computed")
        found = self.scalars(tensor)
        if any(n not in self.most and n.startswith("%") for n in found):
            raise NotNative("sizes that are computed")
        return [n if n in self.most else int(n) for n in found]

    def memory(self, tensor: Tensor, into: Memory | None = None) -> Memory:
        """A tensor in memory: where it is, or a copy `into` a place of its sizes, which has room for all that
        there may be."""
        if isinstance(tensor, Bounded):
            whole, filled = tensor.whole, (tensor.axis, tensor.length)
        else:
            whole, filled = tensor, None
        return self._memory(whole, into, filled)

    def _memory(self, tensor: Tensor, into: Memory | None, filled: Filled | None) -> Memory:
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
        return self._compute(tensor, into, filled)

    def settled(self, tensor: Tensor) -> Tensor:
        """What has been computed: in a register if it is small."""
        return (
            self.use(tensor)
            if isinstance(tensor, Bounded)
            else self.register(tensor)
            if tensor.small
            else tensor
        )

    def packed(self, tensor: Tensor) -> Memory:
        """In memory, row by row."""
        found = self.memory(tensor)
        if found.packed:
            return found
        whole = replace(tensor, whole=found) if isinstance(tensor, Bounded) else found
        return self.memory(whole, self.room(found.dtype, found.sizes))

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
        found = self.code.line(f"getelementptr i8, ptr %arena, i64 {buffer.offset}")
        self._begins[found] = buffer
        return found

    def computed_there(self, tensor: Memory, home: str) -> bool:
        """Have all that is written to a tensor's memory written to other memory, `home`, from the beginning;
        False where there is more or less in it than the tensor."""
        buffer = self._begins.get(tensor.pointer)
        if buffer is None or tensor.lies_in != (buffer,):
            return False
        if not tensor.packed or buffer.used != tensor.count * SIZE[tensor.dtype]:
            return False
        for pointer in [p for p, other in self._begins.items() if other is buffer]:
            del self._begins[pointer]
            self.code.renew(pointer, f"getelementptr i8, ptr {home}, i64 0")
        return True

    def _weight(self, known: Known) -> Memory:
        """What an array repeats is there once."""
        repeated = [n > 1 and s == 0 for n, s in zip(known.sizes, known.array.strides, strict=True)]
        once = known.array[tuple(slice(1) if r else slice(None) for r in repeated)]
        offset = self.weights.add(np.ascontiguousarray(once))
        pointer = self.code.line(f"getelementptr i8, ptr %weights, i64 {offset}")
        strides = (0 if r else s for r, s in zip(repeated, packed_strides(once.shape), strict=True))
        return Memory(known.dtype, known.sizes, pointer, tuple(strides))

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

    def _compute(self, tensor: Tensor, into: Memory | None, filled: Filled | None) -> Memory:
        """A loop nest over a large tensor."""
        tensor = self.with_products(tensor, alone=into is not None or filled is not None)
        if into is None and isinstance(tensor, Memory):
            return tensor
        expr, leaves = tensor.as_read, tensor.leaves
        sources: dict[int, Memory] = {}
        scalars: dict[int, Register] = {}
        for number, leaf in leaves.items():
            if leaf.count == 1:
                scalars[number] = self.register(leaf)
            else:
                sources[number] = self.memory(leaf)
        if into is None:
            into = self.room(tensor.dtype, tensor.sizes, strides_like(tensor.sizes, sources_of(tensor)))
        reads = {n: leaf.as_read for n, leaf in leaves.items()}
        strides = [into.strides, *(broadcast_strides(m, tensor.sizes) for m in sources.values())]
        widths = [SIZE[t.dtype] for t in (into, *sources.values())]

        def write(pointers: list[str], lanes: int, steps: tuple[int, ...], held: Mapping[int, str]) -> None:
            known = {reads[n]: self.code.splat(r.name, r.dtype, lanes) for n, r in scalars.items()}
            for k, (n, m) in enumerate(sources.items(), start=1):
                known[reads[n]] = held.get(k) or self.lanes(pointers[k], m.dtype, lanes, steps[k])
            (value,) = self.code.evaluate([expr], lanes, known)
            self.code.store(value, pointers[0], into.dtype, lanes)

        if max(map(abs, loops(tensor.sizes, strides)[-1].steps)) > MAX_NEAR:
            self.work += 3 * tensor.count  # elements that do not lie side by side are fetched one by one
        types = [into.dtype, *(m.dtype for m in sources.values())]
        pointers = [into.pointer, *(m.pointer for m in sources.values())]
        self.nest(tensor.sizes, list(zip(types, pointers, strides, strict=True)), write, max(widths), filled)
        return into

    def lanes(self, pointer: str, dtype: ScalarType, lanes: int, step: int) -> str:
        """So many elements, `step` apart."""
        if step == 1 or lanes == 1:
            return self.code.load(pointer, dtype, lanes)
        if step == 0:
            return self.code.splat(self.code.load(pointer, dtype), dtype, lanes)
        found = self.code.near(pointer, [k * step for k in range(lanes)], dtype)
        if found is not None:
            return found
        places = [self.code.at(pointer, k * step, dtype) for k in range(lanes)]
        return self.code.join([self.code.load(p, dtype) for p in places], dtype)

    def nest(
        self,
        sizes: Sequence[int],
        operands: Sequence[tuple[ScalarType, str, Sequence[int]]],
        write: Callable[[list[str], int, tuple[int, ...], Mapping[int, str]], None],
        width: int,
        filled: Filled | None = None,
    ) -> None:
        """Loops over a space: `write` is told pointers, lanes, steps from lane to lane, and the registers of
        operands that it need not load.

        The first operand is what is written; in vectors along the dimension in which its elements are
        neighbours. Where they do not fill the last vector, it begins earlier, and writes some again. Where
        several operands change along that dimension alone, as filters for each channel do, each of its few
        vectors goes through all the rest with these in registers.

        Args:
            operands: type, pointer and strides of each.
            width: bytes of the widest element.
            filled: how far along an axis. The last vector may reach further.
        """
        axis, length = filled or (None, "0")
        dims = loops(sizes, [strides for _, _, strides in operands], axis)
        counts = [d.size if d.each is None else self.code.times(length, d.each) for d in dims]
        count, steps = dims[-1].size, dims[-1].steps
        lanes = min(self.vector_lanes(width), count) if steps[0] == 1 else 1

        def line(pointers: list[str]) -> None:
            def one(index: str, _: list[str]) -> list[str]:
                first = self.block_start(index, lanes, count)
                write(self.code.all_at(pointers, first, steps, types), lanes, steps, {})
                return []

            last = counts[-1]
            self.code.loop(self.code.blocks(last, lanes) if isinstance(last, str) else -(-last // lanes), one)

        types = [dtype for dtype, _, _ in operands]
        outer = [(n, d.steps) for n, d in zip(counts[:-1], dims[:-1], strict=True)]
        begins = [pointer for _, pointer, _ in operands]
        steady = [k for k, s in enumerate(steps) if s and not any(d.steps[k] for d in dims[:-1])]
        apart = lanes * width == LINE or prod(sizes) * width <= NEAR_BYTES
        few = -(-count // lanes) <= MAX_STEADY_VECTORS and 1 < len(steady) <= self.target.vector_bytes // 4
        if filled is None and outer and few and apart and lanes > 1:

            def steady_vectors(index: str, _: list[str]) -> list[str]:
                at = self.code.all_at(begins, self.block_start(index, lanes, count), steps, types)
                held = {k: self.lanes(at[k], types[k], lanes, steps[k]) for k in steady}
                self.over(outer, list(zip(types, at, strict=True)), lambda p: write(p, lanes, steps, held))
                return []

            self.code.loop(-(-count // lanes), steady_vectors)
            return
        self.over(outer, list(zip(types, begins, strict=True)), line)

    def over(
        self,
        dims: Sequence[tuple[int | str, Sequence[int]]],
        operands: Sequence[tuple[ScalarType, str]],
        body: Callable[[list[str]], None],
    ) -> None:
        """Loops over dimensions, outermost first.

        Args:
            dims: the size of each, or the register with it, and the strides of the operands.
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
            advanced = self.code.all_at(pointers, index, strides, types)
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
        return self.code.shorter(first, str(count - lanes))


def sources_of(tensor: Tensor) -> list[Memory]:
    """What of its sizes a tensor is computed from: first what lies without gaps."""
    found = [m for m in tensor.leaves.values() if isinstance(m, Memory) and m.sizes == tensor.sizes]
    return sorted(found, key=is_dense, reverse=True)


def _over(meaning: Expr, operands: Sequence[Tensor], truth: bool) -> Expr:
    """The meaning of what the operands are."""
    reads = {e.value: e.dtype for e in walk(meaning) if e.opcode == "read"}
    expr = replace_reads(meaning, {k: convert(operands[k].as_read, dtype) for k, dtype in reads.items()})
    return ne(expr, 0) if truth and expr.dtype is not BOOL else expr
