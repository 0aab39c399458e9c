"""Pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen.program.refusal import NotNative
from anydml.ir.dims import Affine, whole
from anydml.ir.graph import Type
from anydml.onnx.ops import result_types, safe
from anydml.onnx.ops.native import Inputs, known, operand, padded
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo
from anydml.onnx.ops.shared import affordable, axis_in, numbers, zero_of

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _pad(
    node: NodeView, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Array:
    """Where less than nothing is added, elements go; then the others come."""
    mode = node.text("mode")
    before, after = _amounts(node, x.ndim, pads, axes)
    for n, a, b in zip(x.shape, before, after, strict=True):
        if n + a + b < 0 or n + min(a, 0) + min(b, 0) < 0:
            raise NotFoldable("more taken away than there is")
    cut = tuple([slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(x.shape, before, after, strict=True)])
    inner = x[cut]
    more = [(max(a, 0), max(b, 0)) for a, b in zip(before, after, strict=True)]
    sizes = affordable([n + a + b for n, (a, b) in zip(inner.shape, more, strict=True)], x.dtype)
    if mode == "constant":
        result = np.empty(sizes, x.dtype)
        result[...] = _value(node, x, value)
        result[tuple([slice(a, a + n) for n, (a, _) in zip(inner.shape, more, strict=True)])] = inner
        return result
    if mode not in ("edge", "reflect", "wrap"):
        raise NotFoldable(f"mode {mode}")
    for n, (a, b) in zip(inner.shape, more, strict=True):
        if (a or b) and (not n or (mode == "reflect" and max(a, b) >= n)):
            raise NotFoldable(f"more than there is to {mode}")
    where = [_source(mode, n, a, b) for n, (a, b) in zip(inner.shape, more, strict=True)]
    return inner[np.ix_(*where)] if where else inner


def _source(mode: str, size: int, before: int, after: int) -> Array:
    """For each place along an axis the element that stands there."""
    place = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(place, 0, max(size - 1, 0))
    if mode == "wrap":
        return place % size if size else place
    return np.where(place < 0, -place, np.where(place >= size, 2 * (size - 1) - place, place))


def _amounts(
    node: NodeView, rank: int, pads: Array | None, axes: Array | None
) -> tuple[list[int], list[int]]:
    """What is added at the beginning and the end of every axis."""
    given = node.ints("paddings" if node.version < 2 else "pads") if node.version < 11 else None
    if pads is not None and node.version >= 11:
        given = numbers(pads)
    if given is None:
        raise NotFoldable("no pads")
    along = [axis_in(k, rank) for k in (range(rank) if axes is None else numbers(axes))]
    if len(set(along)) < len(along):
        raise NotFoldable("an axis that comes twice")
    if len(given) != 2 * len(along):
        raise ValueError(f"expected {2 * len(along)} pads, but got {len(given)}")
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(along):
        before[axis], after[axis] = given[k], given[k + len(along)]
    return before, after


def _value(node: NodeView, x: Array, value: Array | None) -> object:
    if node.version < 11:
        return np.array(node.float("value")).astype(x.dtype)
    if value is None:
        return zero_of(x.dtype)
    if value.size != 1:
        raise ValueError(f"expected a scalar, but got sizes {value.shape}")
    return value.reshape(-1)[0]


def _known_pads(n: KnownNode) -> list[int] | None:
    return n.ints("pads") if "pads" in n.given else n.integers(1)


def _pads_known(n: KnownNode) -> bool | None:
    pads, sizes, mode = _known_pads(n), n.sizes(0), n.mode("mode")
    if pads is None or sizes is None or len(pads) != 2 * len(sizes) or n.count > 3:
        return False
    if n.value(2) is not None and n.sizes(2) != ():
        return False
    if mode == "constant" and min(pads, default=0) >= 0:
        return True
    return None if mode == "reflect" and not _reflects_too_much(n, (), pads) else False


def _reflects_too_much(n: KnownNode, outputs: Sequence[Type | None], pads: Sequence[int] | None) -> bool:
    """A reflection of more elements than there are; `pads`: the content of the second input, if known."""
    sizes = n.sizes(0)
    pads = n.ints("pads") if "pads" in n.given else pads
    if n.mode("mode") != "reflect" or sizes is None or pads is None or len(pads) != 2 * len(sizes):
        return False
    return any(
        isinstance(size, int) and max(pads[k], pads[k + len(sizes)]) >= max(size, 1)
        for k, size in enumerate(sizes)
    )


def _pad_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    told = node.ints("pads") if "pads" in node.given else None
    pads = contents[1] if told is None and len(contents) > 1 else told and [whole(n) for n in told]
    rank = len(sizes[0])
    if pads is None or len(pads) != 2 * rank or len(contents) > 3:
        return None
    return [n + pads[k] + pads[k + rank] for k, n in enumerate(sizes[0])]


def _native_pad(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, told, value, axes = operand(inputs), known(inputs, 1), known(inputs, 2), known(inputs, 3)
    pads = n.ints("pads") if told is None else told.integers
    rank = len(x.sizes)
    if pads is None or axes is not None or len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise NotNative("pads of some axes, or that take away")
    mode = n.text("mode")
    widths = list(zip(pads[:rank], pads[rank:], strict=True))
    if mode != "constant":
        places = np.arange(x.count).reshape(x.sizes)
        if mode == "reflect" and any(p >= m for w, m in zip(widths, x.sizes, strict=True) for p in w):
            raise NotNative("reflections of reflections")
        if mode not in ("reflect", "edge", "wrap"):
            raise NotNative(f"mode {mode}")
        return [b.rearrange(x, np.pad(places, widths, mode=mode))]  # type: ignore[call-overload]
    fill = n.attribute("value") or 0.0 if value is None else value.array.item()
    return [padded(b, x, widths, fill)]


OPS = (
    OpInfo(
        "Pad",
        safe=safe.padded,
        native=_native_pad,
        result=result_types.moved,
        fold=_pad,
        sizes=_pad_sizes,
        impossible=_reflects_too_much,
        speculatable=_pads_known,
        moves_first=True,
    ),
)
