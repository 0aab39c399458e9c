"""Operators about sizes, and those that keep the elements and move or repeat them."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from anydml.onnx.ops.opinfo import Array, Content, NodeView, NotFoldable, OpInfo
from anydml.onnx.ops.shared import affordable, axes_in, axis_in, flag, numbers, single, sizes_in


def _shape(node: NodeView, x: Array) -> Array:
    first, last = node.attribute("start") or 0, node.attribute("end")
    rank = x.ndim
    begin = min(max(first + rank if first < 0 else first, 0), rank)
    end = rank if last is None else min(max(last + rank if last < 0 else last, 0), rank)
    return np.array(x.shape[begin:end], np.int64)


def _reshape(node: NodeView, x: Array, shape: Array | None = None) -> Array:
    given = node.ints("shape") if shape is None else numbers(shape)
    if given is None:
        raise NotFoldable("no shape")
    if any(n < -1 for n in given) or given.count(-1) > 1:
        raise ValueError(f"expected sizes of which one is -1 at most, but got {given}")
    literally = node.version >= 14 and flag(node, "allowzero")
    if literally and 0 in given and -1 in given:
        raise NotFoldable("a size of -1 beside 0, with allowzero")
    sizes = [x.shape[k] if n == 0 and not literally else n for k, n in enumerate(given)]
    return x.reshape(sizes)


def _flatten(node: NodeView, x: Array) -> Array:
    axis = node.int("axis")
    if not (-x.ndim if node.version >= 11 else 0) <= axis <= x.ndim:
        raise ValueError(f"expected an axis of {x.ndim}, but got {axis}")
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def _axes(node: NodeView, axes: Array | None) -> list[int] | None:
    """They are an attribute before opset 13."""
    return node.ints("axes") if node.version < 13 else None if axes is None else numbers(axes)


def _squeeze(node: NodeView, x: Array, axes: Array | None = None) -> Array:
    given = _axes(node, axes)
    if given is not None and not given:
        raise NotFoldable("axes that are none, which onnxruntime takes for all")
    if given is None:
        return x.reshape([n for n in x.shape if n != 1])
    return np.squeeze(x, tuple({axis_in(axis, x.ndim) for axis in given}))


def _unsqueeze(node: NodeView, x: Array, axes: Array | None = None) -> Array:
    given = _axes(node, axes)
    if given is None:
        raise NotFoldable("no axes")
    found = axes_in(given, x.ndim + len(given))
    old = iter(x.shape)
    return x.reshape([1 if k in found else next(old) for k in range(x.ndim + len(given))])


def _transpose(node: NodeView, x: Array) -> Array:
    order = node.ints("perm")
    if order is None:
        return x.transpose()
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"expected an order of {x.ndim} axes, but got {order}")
    return x.transpose(order)


def _expand(node: NodeView, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(sizes_in(shape))))


def _concat(node: NodeView, *inputs: Array) -> Array:
    axis = node.attribute("axis")
    rank = inputs[0].ndim
    if any(x.ndim != rank for x in inputs):
        raise ValueError(f"expected equal ranks, but got {[x.ndim for x in inputs]}")
    return np.concatenate(inputs, axis_in(1 if axis is None else axis, rank))


def _split(node: NodeView, x: Array, split: Array | None = None) -> tuple[Array, ...]:
    if node.version < 2:
        raise NotFoldable("Split of opset 1")
    axis, count = axis_in(node.int("axis"), x.ndim), len(node.outputs)
    size = x.shape[axis]
    given = node.ints("split") if node.version < 13 else None if split is None else numbers(split)
    if given == []:
        raise NotFoldable("no sizes")
    if given is None:
        given = _equal_parts(node, size, count)
    if len(given) != count or sum(given) != size or min(given) < 0:
        raise ValueError(f"expected {count} sizes that add up to {size}, but got {given}")
    ends = np.cumsum([0, *given]).tolist()
    along = (slice(None),) * axis
    return tuple([x[(*along, slice(a, b))] for a, b in pairwise(ends)])


def _equal_parts(node: NodeView, size: int, count: int) -> list[int]:
    """With num_outputs the last one is smaller; else there must be none such."""
    told = node.attribute("num_outputs") if node.version >= 18 else None
    if told is None:
        if size % count:
            raise ValueError(f"expected a size that {count} divides, but got {size}")
        return [size // count] * count
    if told != count:
        raise ValueError(f"expected {told} outputs, but got {count}")
    part = -(-size // count)
    last = size - part * (count - 1)
    if last < 0:
        raise NotFoldable(f"{size} in {count} equal parts")
    return [part] * (count - 1) + [last]


def _slice(
    node: NodeView,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    given: list[list[int] | None]
    if node.version < 10:
        given = [node.ints("starts"), node.ints("ends"), node.ints("axes"), None]
    else:
        given = [None if x is None else numbers(x) for x in (starts, ends, axes, steps)]
    first, last, along, by = given
    if first is None or last is None:
        raise NotFoldable("no starts or ends")
    along = list(range(len(first))) if along is None else along
    by = [1] * len(first) if by is None else by
    if not len(first) == len(last) == len(along) == len(by):
        raise ValueError("expected as many starts as ends, axes and steps")
    found = [slice(None)] * x.ndim
    for axis, a, b, step in zip(axes_in(along, x.ndim), first, last, by, strict=True):
        found[axis] = _range(x.shape[axis], a, b, step)
    return x[tuple(found)]


def _range(size: int, start: int, end: int, step: int) -> slice:
    """Backward, a start before the first element is the first; for Python there is nothing then."""
    if step == 0:
        raise ValueError("expected steps other than 0")
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    if not size:
        return slice(0, 0)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step)


def _tile(node: NodeView, x: Array, repeats: Array, axis: Array | None = None) -> Array:
    if node.version < 6:
        raise NotFoldable("Tile of opset 1")
    times = sizes_in(repeats)
    if len(times) != x.ndim:
        raise ValueError(f"expected {x.ndim} repeats, but got {len(times)}")
    affordable([n * m for n, m in zip(x.shape, times, strict=True)], x.dtype)
    return np.tile(x, times)


def _depth_to_space(node: NodeView, x: Array) -> Array:
    size, mode = node.int("blocksize"), node.text("mode") if node.version >= 11 else "DCR"
    n, c, h, w = _image(x, size)
    if c % (size * size):
        raise ValueError(f"expected channels that {size * size} divides, but got {c}")
    depth = c // (size * size)
    if mode == "DCR":
        y = x.reshape(n, size, size, depth, h, w).transpose(0, 3, 4, 1, 5, 2)
    elif mode == "CRD":
        y = x.reshape(n, depth, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        raise NotFoldable(f"mode {mode}")
    return y.reshape(n, depth, h * size, w * size)


def _space_to_depth(node: NodeView, x: Array) -> Array:
    size, mode = node.int("blocksize"), node.text("mode") if node.version >= 28 else "DCR"
    n, c, h, w = _image(x, size)
    if h % size or w % size:
        raise ValueError(f"expected sizes that {size} divides, but got {h} and {w}")
    y = x.reshape(n, c, h // size, size, w // size, size)
    if mode not in ("DCR", "CRD"):
        raise NotFoldable(f"mode {mode}")
    y = y.transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return y.reshape(n, c * size * size, h // size, w // size)


def _image(x: Array, size: int) -> tuple[int, ...]:
    if x.ndim != 4 or size < 1:
        raise ValueError(f"expected a tensor of rank 4 and blocks of 1 or more, but got {x.ndim} and {size}")
    return x.shape


def _reverse_sequence(node: NodeView, x: Array, lengths: Array) -> Array:
    batch, time = node.int("batch_axis"), node.int("time_axis")
    if x.ndim < 2 or {batch, time} != {0, 1}:
        raise ValueError(f"expected the axes 0 and 1, but got {batch} and {time} of {x.ndim}")
    wanted = sizes_in(lengths)
    if len(wanted) != x.shape[batch] or max(wanted, default=0) > x.shape[time]:
        raise ValueError(f"expected {x.shape[batch]} lengths up to {x.shape[time]}, but got {wanted}")
    result = x.copy()
    there, back = (np.moveaxis(y, (batch, time), (0, 1)) for y in (x, result))
    for k, length in enumerate(wanted):
        back[k, :length] = there[k, :length][::-1]
    return result


def _trilu(node: NodeView, x: Array, k: Array | None = None) -> Array:
    if x.ndim < 2:
        raise ValueError(f"expected a matrix, but got rank {x.ndim}")
    if x.dtype == object:
        raise NotFoldable("a triangle of strings")
    rows, columns = x.shape[-2:]
    offset = 0 if k is None else min(max(single(k), -rows), columns)
    distance = np.arange(columns) - np.arange(rows)[:, None]
    kept = distance >= offset if flag(node, "upper") else distance <= offset
    return np.where(kept, x, np.zeros((), x.dtype))


def _identity(node: NodeView, x: Content) -> Content:
    return x


def _size(node: NodeView, x: Array) -> Any:
    return np.array(x.size, np.int64)


OPS = (
    OpInfo("Concat", fold=_concat),
    OpInfo("DepthToSpace", fold=_depth_to_space),
    OpInfo("Expand", fold=_expand),
    OpInfo("Flatten", fold=_flatten),
    OpInfo("Identity", fold=_identity),
    OpInfo("Reshape", fold=_reshape),
    OpInfo("ReverseSequence", fold=_reverse_sequence),
    OpInfo("Shape", fold=_shape),
    OpInfo("Size", fold=_size),
    OpInfo("Slice", fold=_slice),
    OpInfo("SpaceToDepth", fold=_space_to_depth),
    OpInfo("Split", fold=_split),
    OpInfo("Squeeze", fold=_squeeze),
    OpInfo("Tile", fold=_tile),
    OpInfo("Transpose", fold=_transpose),
    OpInfo("Trilu", fold=_trilu),
    OpInfo("Unsqueeze", fold=_unsqueeze),
)
