"""Launch descriptors: what a kernel is run with, as 64-bit words. Their layout is written here alone.

`Fields`, then
addresses[K]                of the operands; of a kernel with reductions, then the extents of its rows
inner strides[K]            bytes between neighbours along the innermost dimension
outer sizes[R]
outer strides[R][K]         bytes
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from anydml.dataclass import dataclass
from anydml.errors import require


class Fields(NamedTuple):
    """How a descriptor begins; IR that reads one names them."""

    chunks: int
    """Parts that threads take."""
    chunk: int
    """Elements of one."""
    elements: int
    """Of the iteration space."""
    inner: int
    """Size of the innermost dimension."""
    rank: int
    """Number R of outer dimensions."""
    operands: int
    """Number K of addresses."""
    kernel: int
    """Address of the kernel body: void body(ptr addresses, ptr strides, i64 n)."""
    pool: int
    """Address of the thread pool, or 0."""
    wake: int
    """Whether sleeping workers are woken: 2, or now and then: 1."""


ADDRESSES = len(Fields._fields)
"""Where the addresses begin."""
MAX_OPERANDS = 320
"""Of a descriptor: the loop nest keeps so many pointers on its stack."""
_PLACES = {**{name: str(k) for k, name in enumerate(Fields._fields)}, "addresses": str(ADDRESSES)}


def ir_file(name: str) -> str:
    """A file of IR that stands beside this one, with numbers for `FIELD(name)`."""
    ir = Path(__file__).with_name(name).read_text("utf-8")
    ir = re.sub(r"FIELD\((\w+)\)", lambda found: _PLACES[found[1]], ir)
    return ir.replace("MAX_OPERANDS", str(MAX_OPERANDS))


def write_descriptor(
    fields: Fields,
    addresses: Sequence[int],
    strides: Sequence[int],
    outer: Sequence[tuple[int, Sequence[int]]],
) -> array[int]:
    """The words; `outer`: sizes and strides of the outer dimensions."""
    require(len(addresses) <= MAX_OPERANDS)
    words = [*fields, *addresses, *strides, *(size for size, _ in outer)]
    for _, steps in outer:
        words += steps
    return array("q", words)


@dataclass(frozen=True)
class DescriptorTemplate:
    """A descriptor without its operands' addresses."""

    head: array[int]
    tail: array[int]

    @property
    def operands(self) -> int:
        """How many addresses a descriptor has, extents of rows included."""
        return Fields(*self.head).operands

    def at(self, addresses: Sequence[int]) -> array[int]:
        """The descriptor for operands at these addresses."""
        return self.head + array("q", addresses) + self.tail


def template_of(descriptor: array[int], operands: int) -> DescriptorTemplate:
    """What is left of a descriptor without the addresses of so many operands."""
    return DescriptorTemplate(descriptor[:ADDRESSES], descriptor[ADDRESSES + operands :])


def body_of(descriptor: array[int]) -> int:
    """The address of the kernel's body that it runs."""
    return Fields(*descriptor[:ADDRESSES]).kernel
