"""Buffers meet tensors: which bytes a binding gives, and what Direct3D's buffers ask of them.

    {"name": "A", "elementOffset": 4, "elementSizeInBytes": 4}      A, from byte 16 to its end

Relaxed, NumPy's rules hold alone: the elements that are reached must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

from numpy.typing import NDArray

from anydml.dataclass import dataclass
from anydml.device import Binding
from anydml.dxdispatch.buffers import Resource
from anydml.errors import InvalidModel, Problem, short_repr
from anydml.ops.dtypes import IN_BUFFERS
from anydml.ops.enums import TensorFlags
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.bind import Compiled

ALIGNMENT = 16
"""Of what is bound, in bytes within its buffer (DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT)."""
MAX_ALIGNMENT = 1 << 16
"""Direct3D's buffers begin at multiples of it."""
VIEW_FIELDS = (
    "name",
    "format",
    "elementCount",
    "elementStride",
    "elementSizeInBytes",
    "elementOffset",
    "counter",
    "counterOffsetBytes",
    "shape",
)
_NUMBERS = ("elementCount", "elementSizeInBytes", "elementOffset", "counterOffsetBytes")
_RELAXED = "--relaxed (in Python relaxed=True)"


@dataclass(frozen=True)
class BoundRange:
    """What is bound as a tensor: `size` bytes of a buffer, from byte `offset` on."""

    place: str
    name: str
    resource: Resource
    offset: int
    size: int
    tensor: TensorDesc

    @property
    def needed(self) -> int:
        """The tensor's TotalTensorSizeInBytes."""
        return self.tensor.total_tensor_size_in_bytes or self.tensor.minimum_size

    @property
    def used(self) -> range:
        """The bytes of the buffer that the tensor has for itself."""
        return range(self.offset, self.offset + self.needed)

    def array(self) -> NDArray[Any]:
        """The memory, as elements of the tensor's type."""
        dtype = IN_BUFFERS[self.tensor.data_type]
        part = self.resource.data[self.offset :]
        return part[: part.size // dtype.itemsize * dtype.itemsize].view(dtype)

    def problems(self) -> Iterator[Problem]:
        """What Direct3D and DirectML would refuse."""
        if self.offset % ALIGNMENT:
            message = f"expected an offset that is a multiple of {ALIGNMENT} bytes, but got {self.offset}"
            yield Problem(self.place, message, f"{_RELAXED} takes any")
        if self.size < self.needed:
            where = f" from byte {self.offset} of {self.name!r} on" if self.offset else ""
            message = f"expected at least {self.needed} bytes, but got {self.size}{where}"
            sizes = f"{self.tensor.data_type.label} {list(self.tensor.sizes)}"
            fewer = (
                f"TotalTensorSizeInBytes asks for them; {_RELAXED} asks for the {self.tensor.reach} in use"
            )
            helps = self.tensor.reach <= self.size
            yield Problem(self.place, message, fewer if helps else f"the tensor is {sizes}")


def check_view(view: Mapping[str, Any]) -> None:
    """Raises InvalidModel unless the numbers of a binding are such."""
    problems = []
    for field in _NUMBERS:
        value = view.get(field, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            message = f"expected a non-negative integer, but got {short_repr(value)}"
            problems.append(Problem(field, message))
    if problems:
        raise InvalidModel(*problems)


def operator_range(place: str, resource: Resource, view: Mapping[str, Any], tensor: TensorDesc) -> BoundRange:
    """What a binding gives an operator: all from its offset on, however many elements it tells.

    Elements are as large as the binding says, or as those that the buffer was made of; values of several
    types have no size, and an offset of such elements is none.

    Raises:
        InvalidModel: the offset is behind the buffer.
    """
    offset = view.get("elementOffset", 0) * _width(resource, view)
    if offset > resource.size:
        got = f"those from {short_repr(offset)} on"
        message = f"expected a part of the buffer's {resource.size} bytes, but got {got}"
        raise InvalidModel(Problem("", message))
    return BoundRange(place, view["name"], resource, offset, resource.size - offset, tensor)


def graph_range(place: str, resource: Resource, view: Mapping[str, Any], tensor: TensorDesc) -> BoundRange:
    """What a binding gives a serialized graph: as many elements as it tells, or as the buffer was made of.

    Raises:
        InvalidModel: the buffer has not as many, or they do not begin where it begins.
    """
    width = _width(resource, view)
    given = prod(resource.shape) * resource.dtype.itemsize
    count = view.get("elementCount", 0) or (given // width if width else 0)
    offset, size = view.get("elementOffset", 0) * width, -(-count * width // 4) * 4
    if offset + count * width > size:
        remedy = f"a serialized graph takes a buffer from its beginning; {_RELAXED} takes any part"
        message = f"expected an offset of 0, but got {short_repr(offset)}"
        raise InvalidModel(Problem("elementOffset", message, remedy))
    if size > resource.data.size:
        message = f"expected at most the buffer's {resource.size} bytes, but got {short_repr(size)}"
        raise InvalidModel(Problem("elementCount", message))
    return BoundRange(place, view["name"], resource, offset, size - offset, tensor)


def _width(resource: Resource, view: Mapping[str, Any]) -> int:
    width: int = view.get("elementSizeInBytes", 0)
    return width or (resource.dtype.itemsize if resource.typed else 0)


def strict_problems(operator: Compiled, ranges: Mapping[str, BoundRange]) -> Iterator[Problem]:
    """What is wrong with the ranges of a dispatch, by tensor, if they are parts of Direct3D's buffers."""
    yield from chain.from_iterable(one.problems() for one in ranges.values())
    owned = owned_tensors(operator)
    others = [n for n in ranges if n not in operator.output_names and n not in owned]
    for output in (n for n in operator.output_names if n in ranges):
        for other in others:
            yield from _overlap(operator, output, other, ranges)
        others.append(output)


def _overlap(
    operator: Compiled, output: str, other: str, ranges: Mapping[str, BoundRange]
) -> Iterator[Problem]:
    one, two = ranges[output], ranges[other]
    both = range(max(one.offset, two.offset), min(one.used.stop, two.used.stop))
    if one.resource is not two.resource or not both:
        return
    if one.used == two.used and operator.may_share(output, other):
        return
    got = f"bytes {both.start} to {both.stop} of {one.name!r} are in both"
    message = f"expected memory apart from {other}'s, but {got}"
    remedy = f"TotalTensorSizeInBytes counts; {_RELAXED} counts the bytes in use"
    yield Problem(one.place, message, remedy)


def owned_tensors(operator: Compiled) -> set[str]:
    """What an operator is given once, before its first dispatch."""
    return {n for n, t in operator.tensors.items() if t.flags & TensorFlags.OWNED_BY_DML}


def bind(operator: Compiled, ranges: Mapping[str, BoundRange]) -> Binding:
    """The operator with its memory; what it is to own is given to it now, as the tool does at its start."""
    arrays = {name: one.array() for name, one in ranges.items()}
    owned = owned_tensors(operator)
    if owned:
        operator.initialize({n: a for n, a in arrays.items() if n in owned})
    outputs = {n: a for n, a in arrays.items() if n in operator.output_names}
    return operator.bind({n: a for n, a in arrays.items() if n not in owned and n not in outputs}, outputs)


def separate(operator: Compiled, bindings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Bind points with what is bound there; a list at a field of several tensors gives each one its own."""
    for point, target in bindings.items():
        if f"{point}[0]" in operator.tensors:
            for k, one in enumerate(target if isinstance(target, list) else [target]):
                yield f"{point}[{k}]", one
        else:
            yield point, target


def declared_alignment(operators: Mapping[str, Compiled]) -> int:
    """The largest that a tensor promises its address, as far as Direct3D's buffers can keep it."""
    all_tensors = chain.from_iterable(o.tensors.values() for o in operators.values())
    return min(MAX_ALIGNMENT, max((t.guaranteed_base_offset_alignment for t in all_tensors), default=0))
