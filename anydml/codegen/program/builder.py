"""Programs are written with this: values, the same elements in other sizes and orders, and how they fail."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.llvm_types import value_type
from anydml.codegen.program.elements import ElementWriter, sources_of
from anydml.codegen.program.function_writer import MAX_NEAR
from anydml.codegen.program.geometry import (
    lines_of,
    nested,
    offsets_of,
    pieces,
    reshaped,
    starts,
    strides_in,
    strides_like,
    strides_of,
)
from anydml.codegen.program.layout import MAX_BYTES
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import MAX_REGISTER_ELEMENTS, Bounded, Known, Memory, Register, Tensor
from anydml.codegen.target import Target
from anydml.dataclass import dataclass, replace
from anydml.ops.dtypes import BOOL, INT32, SIZE, UINT8, ScalarType
from anydml.ops.tensor_desc import packed_strides

MAX_PARTS = 4
"""Copies of parts that are no slower than rows."""
MAX_ROW_VECTORS = 16
"""Of a row of elements in an order of its own."""


@dataclass(frozen=True)
class Failure:
    """How a program may end before its end: who is to blame, and what to say of the number it leaves."""

    node: str
    message: str
    """With `{}` for the number."""
    left: bool = False
    """Whether nothing is wrong, and others compute what this program does not."""


class ProgramBuilder(ElementWriter):
    def __init__(self, target: Target, most: int, polls: bool = True) -> None:
        """As of an `ElementWriter`."""
        super().__init__(target, most, polls)
        self.failures: list[Failure] = []

    # ---- the same elements in other sizes

    def reshape(self, tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """In the same order."""
        if isinstance(tensor, Bounded):
            raise NotNative("other sizes of what is as long as the data decides")
        if prod(sizes) != tensor.count:
            raise NotNative(f"{tensor.count} elements as {list(sizes)}")
        if isinstance(tensor, Known):
            return Known(tensor.dtype, sizes, tensor.array.reshape(sizes))
        tensor = self.use(tensor)
        if isinstance(tensor, Register):
            return Register(tensor.dtype, sizes, tensor.name)
        assert isinstance(tensor, Memory)
        found = reshaped(tensor, sizes)
        if found is None:
            found = replace(self.packed(tensor), sizes=sizes, strides=packed_strides(sizes))
        return found

    def rearrange(self, tensor: Tensor, places: NDArray[np.int64]) -> Tensor:
        """Elements of a tensor in an order of its own: an array of their places, counted row by row.

        Without a copy where strides lead to them.
        """
        sizes = places.shape
        if places.size * SIZE[tensor.dtype] > MAX_BYTES:
            raise NotNative("more memory than programs take")
        if places.size and not 0 <= places.min() <= places.max() < tensor.count:
            raise NotNative(f"places beyond the {tensor.count} elements that there are")
        if isinstance(tensor, Bounded):
            raise NotNative("places in what is as long as the data decides")
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
        parts = pieces(offsets)
        if (parts is None or len(parts) > MAX_PARTS) and (rows := self._by_rows(tensor, offsets)) is not None:
            return rows
        result = self.room(tensor.dtype, sizes)
        if parts is None:
            self._pick(tensor, offsets, result)
        for start, part in parts or ():
            found = self._view(tensor, part)
            assert found is not None
            self.memory(found, self.part_of(result, start, part.shape))
        return result

    def _by_rows(self, tensor: Memory, offsets: NDArray[np.int64]) -> Memory | None:
        """Row after row along the axis whose elements are nearest to each other, where all rows take theirs
        in the same order: vectors of it of what lies around them, as in (a a b b c c) of (a b c). Rows that
        are repeated are made once."""
        lines = lines_of(offsets)
        if lines is None:
            return None
        order = sorted(range(offsets.ndim), key=lambda k: -float(np.ptp(lines[k])) / len(lines[k]))
        *outer, axis = order
        line, dtype = lines[axis], UINT8 if tensor.dtype is BOOL else tensor.dtype
        found = self.near_vectors([line], dtype)
        every = [nested(lines[k]) for k in outer]
        if found is None or None in every:
            return None
        lanes, vectors = found
        steps = strides_in(order, offsets.shape)
        result = self.room(tensor.dtype, offsets.shape, steps)
        dims: list[tuple[int, tuple[int, int]]] = []
        for k, axes in zip(outer, every, strict=True):
            sizes = [n for n, _ in axes or ()]
            for at, (n, stride) in enumerate(axes or ()):
                dims.append((n, (stride, steps[k] * prod(sizes[at + 1 :]))))
        self.work += result.count
        repeated = [(n, (to,)) for n, (step, to) in dims if step == 0]

        def row(pointers: list[str]) -> None:
            loaded = [(start, self.near(pointers[0], line, dtype)) for start, (line,) in vectors]

            def store(pointers: list[str]) -> None:
                for start, vector in loaded:
                    self.code.store(vector, self.code.at(pointers[0], start, dtype), dtype, lanes)

            self.over(repeated, [(dtype, pointers[1])], store)

        begin = self.code.at(tensor.pointer, int(offsets.flat[0]), dtype)
        self.over([d for d in dims if d[1][0]], [(dtype, begin), (dtype, result.pointer)], row)
        return result

    def near_vectors(
        self, lines: Sequence[NDArray[np.int64]], dtype: ScalarType
    ) -> tuple[int, list[tuple[int, list[list[int]]]]] | None:
        """Lanes of vectors of a row of elements, which lines tell the places of; and of each vector where it
        begins and the places, line by line. None where too many elements lie between them."""
        count = len(lines[0])
        lanes = min(self.vector_lanes(SIZE[dtype]), count)
        begins = starts(count, lanes)
        parts = [[line[k : k + lanes] for line in lines] for k in begins]
        reach = max(int(np.ptp(part)) for every in parts for part in every)
        if lanes < 4 or len(begins) > MAX_ROW_VECTORS or reach >= MAX_NEAR * lanes:
            return None
        return lanes, [(k, [part.tolist() for part in every]) for k, every in zip(begins, parts, strict=True)]

    def near(self, pointer: str, places: list[int], dtype: ScalarType) -> str:
        """A vector of those."""
        found = self.code.near(pointer, places, dtype)
        assert found is not None, "they are near"
        return found

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
                scalars = self.scalars(part)
                block = tuple(slice(a, a + n) for a, n in zip(start, part.sizes, strict=True))
                names[block] = np.array(scalars, object).reshape(part.sizes)
            return Register(dtype, sizes, self.code.join(names.reshape(-1).tolist(), dtype))
        largest = max((part for _, part in parts), key=lambda part: part.count)
        whole = self.room(dtype, sizes, strides_like(sizes, sources_of(largest)))
        for start, part in parts:
            self.memory(part, self.part_of(whole, start, part.sizes))
        return whole

    # ---- failing

    def fail_unless(self, condition: str, message: str, number: str, left: bool = False) -> None:
        """The program ends with an error where an i1 is not so; `message` has {} for the i64 `number`.

        Args:
            left: whether it is no error, but something that others compute.
        """
        passed, failed = self.code.fresh("passed"), self.code.fresh("failed")
        self.code.effect(f"br i1 {condition}, label %{passed}, label %{failed}")
        self.code.begin(failed)
        self.failures.append(Failure(self.node, message, left))
        self.code.effect(f"store i64 {number}, ptr %detail, align 8")
        self.code.effect(f"ret i32 {len(self.failures)}")
        self.code.begin(passed)

    def leave_unless(self, condition: str, message: str, number: str) -> None:
        """The program ends, and others compute all of it, where an i1 is not so."""
        self.fail_unless(condition, message, number, left=True)

    def phi(self, dtype: ScalarType, count: int, choices: Sequence[tuple[str, str]]) -> str:
        """One of several registers, by the block that was before."""
        arms = ", ".join(f"[ {register}, %{block} ]" for register, block in choices)
        return self.code.line(f"phi {value_type(dtype, count)} {arms}")
