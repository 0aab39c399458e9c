"""What flows through a program while its code is written.

    Known       an array that is known now
    Register    up to 16 elements in an LLVM value: a scalar, or a vector in row-major order
    Memory      elements at a pointer, with strides
    Lazy        an expression over others, element by element; computed where somebody needs it
    Pending     a product, or what is made of rows, computed where somebody needs it, with what is done to it
    Bounded     one of those, of which the data decides how much there is along an axis

All others have sizes that are numbers. A tensor is never written to once it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from math import prod

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.llvm_types import element_type
from anydml.codegen.program.types import array_type, scalar_type
from anydml.dataclass import dataclass, field, replace
from anydml.ops.dtypes import BFLOAT16, BOOL, ScalarType
from anydml.ops.expr import Expr, bitcast, constant, read, walk
from anydml.ops.tensor_desc import packed_strides

MAX_REGISTER_ELEMENTS = 16
"""Elements up to which a tensor lives in a register."""
_numbers = count()


@dataclass(eq=False)
class Buffer:
    """A part of a program's memory. It may be given out again once no tensor that is in use lies in it."""

    offset: int
    size: int
    used: int
    """Bytes that somebody asked for, of those that there are."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value with a type and sizes."""

    dtype: ScalarType
    sizes: tuple[int, ...]
    number: int = field(default_factory=_numbers.__next__, init=False)
    """By which expressions read it."""

    @property
    def count(self) -> int:
        return prod(self.sizes)

    @property
    def small(self) -> bool:
        return self.count <= MAX_REGISTER_ELEMENTS

    @property
    def as_read(self) -> Expr:
        """The expression of its element."""
        return read(self.number, self.dtype)

    @property
    def leaves(self) -> Mapping[int, Tensor]:
        """What its expression reads."""
        return {self.number: self}

    @property
    def buffers(self) -> Iterator[Buffer]:
        """The memory that it depends on."""
        yield from ()


@dataclass(frozen=True, eq=False)
class Known(Tensor):
    array: NDArray[np.generic]

    @staticmethod
    def of(array: NDArray[np.generic]) -> Known:
        """Raises: NotNative, for a type that programs have not."""
        return Known(scalar_type(array.dtype), array.shape, array)

    @property
    def as_read(self) -> Expr:
        return constant(self.array.item(), self.dtype) if self._written else super().as_read

    @property
    def leaves(self) -> Mapping[int, Tensor]:
        return {} if self._written else super().leaves

    @property
    def _written(self) -> bool:
        """Whether it is a number in expressions."""
        return self.count == 1 and self.dtype is not BFLOAT16

    @property
    def integers(self) -> list[int]:
        return [int(n) for n in self.array.reshape(-1)]


@dataclass(frozen=True, eq=False)
class Register(Tensor):
    name: str


@dataclass(frozen=True, eq=False)
class Memory(Tensor):
    pointer: str
    strides: tuple[int, ...]
    """In elements."""
    lies_in: tuple[Buffer, ...] = ()
    """None of them: memory of inputs, outputs or weights. A loop's state is in one of two."""

    @property
    def packed(self) -> bool:
        """Whether its elements lie row by row."""
        steps = zip(self.sizes, self.strides, packed_strides(self.sizes), strict=True)
        return all(n == 1 or own == packed for n, own, packed in steps)

    @property
    def buffers(self) -> Iterator[Buffer]:
        yield from self.lies_in


@dataclass(frozen=True, eq=False)
class Bounded(Tensor):
    """Along an axis as long as the data decides: `sizes` are those of `whole`, and the most.

    What is behind the end may be read and computed with, and is nothing: memory that nobody has written to.
    """

    whole: Tensor
    axis: int
    length: str
    """The register with how many there are."""

    @staticmethod
    def of(whole: Tensor, axis: int, length: str) -> Bounded:
        return Bounded(whole.dtype, whole.sizes, whole, axis, length)

    @property
    def buffers(self) -> Iterator[Buffer]:
        yield from self.whole.buffers


@dataclass(frozen=True, eq=False)
class Lazy(Tensor):
    expr: Expr
    over: Mapping[int, Tensor]

    @property
    def as_read(self) -> Expr:
        return self.expr

    @property
    def leaves(self) -> Mapping[int, Tensor]:
        return self.over

    @property
    def buffers(self) -> Iterator[Buffer]:
        for leaf in self.over.values():
            yield from leaf.buffers


@dataclass(frozen=True, eq=False)
class Pending(Tensor):
    """Each element takes long: a sum, or what its row's statistics make of it. One reader has it computed,
    and only once."""

    write: Callable[[Expr, Sequence[Tensor]], Memory | None]
    """(what is done to each element, read(0), with others, read(1) and so on, which broadcast to the sizes)
    -> where it is; None if that had better be done by itself. To do nothing, read(0), is always done."""
    given: tuple[Tensor, ...]
    """What it is computed of."""

    @property
    def buffers(self) -> Iterator[Buffer]:
        for tensor in self.given:
            yield from tensor.buffers


def work_of(end: Expr) -> int:
    """Operations of what is done to each element."""
    return sum(e.opcode not in ("read", "constant") for e in walk(end, deep=True))


def seen_as(tensor: Tensor, dtype: ScalarType) -> Tensor:
    """The same bits as another type of that width."""
    if tensor.dtype is dtype:
        return tensor
    if isinstance(tensor, Bounded):
        return replace(tensor, dtype=dtype, whole=seen_as(tensor.whole, dtype))
    if isinstance(tensor, Known):
        return Known(dtype, tensor.sizes, tensor.array.view(array_type(dtype)))
    if isinstance(tensor, Lazy):
        return replace(tensor, dtype=dtype, expr=bitcast(tensor.expr, dtype))
    return replace(tensor, dtype=dtype)


def memory_type(dtype: ScalarType) -> str:
    """The LLVM type of an element in memory: a bool is a byte there."""
    return "i8" if dtype is BOOL else element_type(dtype)
