"""The buffer tensor description and what its sizes and strides imply (DML_BUFFER_TENSOR_DESC).

All arithmetic is on Python integers, so nothing wraps around.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from operator import index

from anydml.dataclass import dataclass
from anydml.errors import InvalidOperator, Problem, short_repr
from anydml.ops.dtypes import BITS
from anydml.ops.enums import TensorDataType, TensorFlags, parse

MAX_ELEMENTS = 2**32 - 1
MAX_RANK = 8


@dataclass(frozen=True, init=False)
class TensorDesc:
    """A tensor in a buffer."""

    data_type: TensorDataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None
    flags: TensorFlags
    total_tensor_size_in_bytes: int | None
    guaranteed_base_offset_alignment: int

    def __init__(
        self,
        data_type: TensorDataType | str | int,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        flags: TensorFlags | str | int = TensorFlags.NONE,
        total_tensor_size_in_bytes: int | None = None,
        guaranteed_base_offset_alignment: int | None = 0,
    ) -> None:
        """Describe a tensor.

        Args:
            data_type: a `TensorDataType` or its name.
            sizes: elements along each dimension.
            strides: elements between neighbours along each dimension; None is packed row-major, 0 repeats
                one element (broadcast), larger values skip memory (padding), any order permutes.
            flags: a `TensorFlags` or its name.
            total_tensor_size_in_bytes: None is the least that holds every element.
            guaranteed_base_offset_alignment: in bytes, a power of two; 0 promises nothing.

        Raises:
            InvalidOperator: an unknown name, or something that is not an integer. Whether the numbers
                are legal is told by whoever takes the description.
        """
        total, alignment = total_tensor_size_in_bytes, guaranteed_base_offset_alignment or 0

        def keep(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        keep("data_type", parse(TensorDataType, data_type, "DataType"))
        keep("sizes", _integers("Sizes", sizes))
        keep("strides", None if strides is None else _integers("Strides", strides))
        keep("flags", parse(TensorFlags, flags, "Flags"))
        keep(
            "total_tensor_size_in_bytes",
            None if total is None else _integers("TotalTensorSizeInBytes", [total])[0],
        )
        keep("guaranteed_base_offset_alignment", _integers("GuaranteedBaseOffsetAlignment", [alignment])[0])

    @property
    def effective_strides(self) -> tuple[int, ...]:
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @property
    def element_count(self) -> int:
        return prod(self.sizes)

    @property
    def reach(self) -> int:
        """Bytes from the start to the end of the last element that the description can reach."""
        return -(-(last_element(self.sizes, self.effective_strides) + 1) * BITS[self.data_type] // 8)

    @property
    def minimum_size(self) -> int:
        """The least `TotalTensorSizeInBytes`: `reach`, rounded up to 4."""
        return -(-self.reach // 4) * 4


def _integers(where: str, values: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(index(v) for v in values)
    except TypeError:
        raise InvalidOperator(Problem(where, f"expected integers, but got {short_repr(values)}")) from None


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements.

    >>> packed_strides((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def last_element(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


class TooIntricate(Exception):
    """`overlaps_itself` gave up: the layout is neither obviously free of overlap nor proved so."""


def overlaps_itself(
    sizes: Sequence[int], strides: Sequence[int], width: int = 1, *, work: int = 100_000
) -> bool:
    """Whether two different indices reach a common byte (elements `width` units wide, strides in units).

    Exact: two elements meet when some non-zero d with |d[k]| < sizes[k] has |sum d[k]*strides[k]| < width.
    Layouts that nest (each stride passes all that lies below it) are answered at once; others by a
    search, largest stride first, that follows only what the smaller strides can still cancel.

    >>> overlaps_itself((3, 3), (3, 2)), overlaps_itself((4, 3), (2, 3)), overlaps_itself((2,), (0,))
    (False, True, True)

    Raises:
        TooIntricate: the search outgrew `work` steps.
    """
    dims = sorted(((abs(s), n) for n, s in zip(sizes, strides, strict=True) if n > 1), reverse=True)
    if any(stride == 0 for stride, _ in dims):
        return True
    rest = [0]  # rest[k]: what the dims after the k-th can add up to, either way
    divisor = [0]
    for stride, n in reversed(dims):
        rest.append(rest[-1] + (n - 1) * stride)
        divisor.append(gcd(divisor[-1], stride))
    rest.reverse()
    divisor.reverse()
    if all(stride >= rest[k + 1] + width for k, (stride, _) in enumerate(dims)):
        return False

    steps = 0

    def meets(k: int, target: int, moved: bool) -> bool:
        """Can dims k.. bring `target` within `width` of 0 (and move at least once in all)?"""
        nonlocal steps
        steps += 1
        if steps > work:
            raise TooIntricate
        if k == len(dims):
            return moved and abs(target) < width
        if width == 1 and divisor[k] and target % divisor[k]:
            return False
        stride, n = dims[k]
        slack = rest[k + 1] + width - 1
        low = max(-(n - 1), -((target + slack) // stride))
        high = min(n - 1, (slack - target) // stride)
        if not moved:
            low = max(low, 0)  # d and -d are the same pair
        return any(meets(k + 1, target + d * stride, moved or d != 0) for d in range(low, high + 1))

    return meets(0, 0, False)


def broadcast_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """NumPy's broadcasting of shapes; None if they do not fit."""
    first = shapes[0]
    if shapes.count(first) == len(shapes):
        return first
    sizes = []
    for axis in range(-max(map(len, shapes)), 0):  # NumPy's own function knows 32 axes
        found = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(found) > 1:
            return None
        sizes.append(found.pop() if found else 1)
    return tuple(sizes)
