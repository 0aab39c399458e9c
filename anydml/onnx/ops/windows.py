"""Where the windows of convolutions and pooling lie: strides, dilations, padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from types import EllipsisType

from anydml.dataclass import dataclass
from anydml.ir.dims import Dim
from anydml.ir.graph import Type
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable

Index = tuple[EllipsisType | slice | int, ...]
"""Of NumPy: the last axes."""
_IGNORED_SINCE = 22
"""The opset whose text says that windows which would start in the padding at the end are left out."""


def numbers(node: NodeView, name: str, count: int, default: int) -> list[int]:
    """An attribute with a number for each axis.

    Raises:
        ValueError: there are more or fewer.
    """
    found = node.ints(name) or [default] * count
    if len(found) != count:
        raise ValueError(f"expected {count} {name}, but got {len(found)}")
    return [int(n) for n in found]


@dataclass(frozen=True)
class Windows:
    """For each spatial axis: the window's size, its steps, and how many there are."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """What is added in front."""
    after: tuple[int, ...]
    """And at the end; `count` windows may need more or less than that."""
    count: tuple[int, ...]

    def positions(self) -> Iterator[tuple[int, ...]]:
        """The places in a window, row by row."""
        return product(*(range(k) for k in self.kernel))

    def needed(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """The padding in front and at the end that all windows fit in."""
        ends = (
            (c - 1) * s + (k - 1) * d + 1 - p - n
            for c, s, k, d, p, n in zip(
                self.count, self.strides, self.kernel, self.dilations, self.before, sizes, strict=True
            )
        )
        return [(p, max(end, 0)) for p, end in zip(self.before, ends, strict=True)]

    def at(self, position: Sequence[int]) -> Index:
        """In a padded tensor, the elements that are at one position of each window."""
        return ..., *(
            slice(k * d, k * d + (c - 1) * s + 1, s)
            for k, d, s, c in zip(position, self.dilations, self.strides, self.count, strict=True)
        )


def windows(node: NodeView, sizes: Sequence[int], kernel: Sequence[int]) -> Windows:
    """The windows over spatial axes of these sizes.

    Raises:
        ValueError: attributes of another number of axes.
        NotFoldable: no window fits; negative padding; ceil_mode, auto_pad where texts or libraries differ.
    """
    rank = len(sizes)
    strides, dilations = numbers(node, "strides", rank, 1), numbers(node, "dilations", rank, 1)
    if min((*kernel, *strides, *dilations), default=1) < 1:
        raise ValueError("expected kernels, strides and dilations of at least 1")
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto = node.text("auto_pad")
    up = bool(node.attribute("ceil_mode"))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        count = [-(-n // s) for n, s in zip(sizes, strides, strict=True)]
        each = zip(count, strides, extents, sizes, strict=True)
        totals = [(c - 1) * s + e - n for c, s, e, n in each]
        if min(totals) < 0 or max(dilations) > 1:
            raise NotFoldable("padding by itself with steps beyond the kernel, or with dilations")
        before = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
        after = [t - b for t, b in zip(totals, before, strict=True)]
    else:
        pads = [0] * 2 * rank if auto == "VALID" else numbers(node, "pads", 2 * rank, 0)
        before, after = pads[:rank], pads[rank:]
        axes = zip(sizes, before, after, extents, strides, strict=True)
        count = [_count(node, n, b, a, e, s, up) for n, b, a, e, s in axes]
    if min((*count, *sizes), default=1) < 1 or min((*before, *after), default=0) < 0:
        raise NotFoldable("no window, or negative padding")
    return Windows(*map(tuple, (kernel, strides, dilations, before, after, count)))


def _count(node: NodeView, size: int, before: int, after: int, extent: int, stride: int, up: bool) -> int:
    free = size + before + after - extent
    if free < 0:
        raise NotFoldable("a window that is larger than the padded input")
    count = free // stride + 1
    if up and free % stride:
        if node.text("auto_pad") == "VALID":
            raise NotFoldable("ceil_mode without padding, of which ONNX says two things")
        if count * stride < size + before:
            return count + 1
        if node.version < _IGNORED_SINCE or node.op.name == "LpPool":
            raise NotFoldable("a window that would start in the padding")
    return count


def transposed(
    node: NodeView, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides and dilations; how many elements go in front, how many stay, and how many there are."""
    rank = len(sizes)
    if 0 in sizes or 0 in kernel:
        raise NotFoldable("a convolution of nothing")
    strides, dilations = numbers(node, "strides", rank, 1), numbers(node, "dilations", rank, 1)
    if min(*strides, *dilations) < 1:
        raise ValueError("expected strides and dilations of at least 1")
    extra = numbers(node, "output_padding", rank, 0)
    if any(not 0 <= e < s for e, s in zip(extra, strides, strict=True)):
        raise NotFoldable("as much padding of the output as steps, which libraries refuse")
    each = zip(sizes, kernel, strides, dilations, extra, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + e for n, k, s, d, e in each]
    return strides, dilations, *_crop(node, sizes, strides, full), full


def _crop(
    node: NodeView, sizes: tuple[int, ...], strides: list[int], full: list[int]
) -> tuple[list[int], list[int]]:
    """How many elements go in front, and how many stay.

    Raises:
        NotFoldable: an odd number goes, of which ONNX's versions and libraries say on which side the odd
            one is in different ways; more stay than there are.
    """
    rank, auto = len(sizes), node.text("auto_pad")
    wanted = node.ints("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads = [0] * 2 * rank if auto == "VALID" else numbers(node, "pads", 2 * rank, 0)
        before = pads[:rank]
        count = [f - b - a for f, b, a in zip(full, before, pads[rank:], strict=True)]
    else:
        count = [n * s for n, s in zip(sizes, strides, strict=True)]
        if wanted is not None:
            count = numbers(node, "output_shape", rank, 0)
        totals = [f - c for f, c in zip(full, count, strict=True)]
        if any(t % 2 for t in totals):
            raise NotFoldable("padding that is odd")
        before = [t // 2 for t in totals]
    fits = all(b >= 0 and b + c <= f for b, c, f in zip(before, count, full, strict=True))
    if not fits or min(count) < 1:
        raise NotFoldable("an output of nothing, or negative padding")
    return before, count


def check_groups(node: NodeView, x: Array, w: Array, ingoing: int) -> int:
    """The number of groups, for an input with so many channels as x should have."""
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"expected inputs of one rank, 3 or more, but got {x.ndim} and {w.ndim}")
    groups = node.int("group")
    if x.shape[1] != ingoing or groups < 1 or w.shape[0] % groups:
        raise ValueError(f"expected {ingoing} channels in {groups} groups, but got {x.shape[1]}")
    kernel = node.ints("kernel_shape") or list(w.shape[2:])
    if tuple(kernel) != w.shape[2:]:
        raise ValueError(f"expected a kernel of {kernel}, but got {list(w.shape[2:])}")
    return groups


def window_fits(n: NodeView, sizes: Sequence[Dim], kernel: Sequence[int]) -> bool:
    """Whether the kernel is no longer than the padded input, along every axis whose size is a number."""
    axes, automatic = len(kernel), n.attribute("auto_pad") or b"NOTSET"
    if automatic not in (b"NOTSET", b"VALID"):
        return True
    pads = (n.ints("pads") if automatic == b"NOTSET" else None) or [0] * 2 * axes
    dilations = n.ints("dilations") or [1] * axes
    if len(pads) != 2 * axes or len(dilations) != axes:
        return False
    return all(
        not isinstance(size, int) or size + pads[k] + pads[k + axes] >= dilations[k] * (kernel[k] - 1) + 1
        for k, size in enumerate(sizes[2:])
    )


def window_too_long(
    n: KnownNode, outputs: Sequence[Type | None], pads: Sequence[int] | None, weight: int = 1
) -> bool:
    """Whether a window is longer than its padded input, or of another rank."""
    sizes, kernel = n.sizes(0), n.ints("kernel_shape")
    if kernel is None:
        weights = n.sizes(weight) or ()
        kernel = [size for size in weights[2:] if isinstance(size, int)]
        if len(weights) < 2 or len(kernel) != len(weights) - 2:
            return False
    if sizes is None:
        return False
    return len(kernel) != len(sizes) - 2 or not window_fits(n, sizes, kernel)
