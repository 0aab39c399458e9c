"""The types of nodes' outputs, as ONNX's own inference tells them, for operators that are everywhere.

That inference takes ten times as long for each node, and a registry of all operators before the first. Each
function answers with the types, or with None where ONNX has to be asked: the node has inputs of unknown rank,
attributes that are not usual, or it fails. A size that is not known stays so, or is the symbol that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from anydml.ir.dims import Affine, Dim, as_dim
from anydml.ir.graph import TensorType, Type
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.shared import slice_range
from anydml.onnx.types import DTYPES

Types = Sequence[Type | None] | None
Sizes = tuple[Dim, ...]


def only(n: KnownNode, dtype: str | None, sizes: Sequence[Dim] | None) -> Types:
    """The only output; sizes below 0, which ONNX makes something of, are its own affair."""
    if dtype is None or sizes is None or len(n.outputs) != 1:
        return None
    if any(isinstance(size, int) and size < 0 for size in sizes):
        return None
    return [TensorType(dtype, tuple(sizes))]


def same(n: KnownNode) -> Types:
    """The type of the first input."""
    return only(n, n.dtype(), n.sizes(0))


def moved(n: KnownNode) -> Types:
    """The first input's elements in other sizes, which follow from contents: `OpInfo.sizes` tells them."""
    dtype = n.dtype()
    return None if dtype is None or len(n.outputs) != 1 else [TensorType(dtype)]


def filled(n: KnownNode) -> Types:
    """Of its attribute's type, in sizes that are its input's content."""
    value = n.attribute("value")
    dtype = "float32" if value is None else DTYPES.get(getattr(value, "data_type", 0))
    return None if dtype is None else [TensorType(dtype)]


def sliced(n: KnownNode) -> Types:
    """A part of each axis."""
    sizes, starts, ends = n.sizes(0), n.integers(1), n.integers(2)
    if n.version < 10 or sizes is None:
        return None
    if starts is None or ends is None:
        return _sliced_somewhere(n, sizes)
    axes = n.integers(3) if n.value(3) is not None else [*range(len(starts))]
    steps = n.integers(4) if n.value(4) is not None else [1] * len(starts)
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    result = list(sizes)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not step or not -len(sizes) <= axis < len(sizes):
            return None
        size = sizes[axis]
        if isinstance(size, int):
            result[axis] = len(range(size)[slice_range(size, start, end, step)])
        elif (start, step) != (0, 1) or end < (1 << 31) - 1:
            result[axis] = None
    return only(n, n.dtype(), result) if len({k % len(sizes) for k in axes}) == len(axes) else None


def _sliced_somewhere(n: KnownNode, sizes: Sizes) -> Types:
    """From or to a place that is not known: the axes that are told are of any size."""
    told = n.integers(3) if n.value(3) is not None else None
    if told is None or any(not -len(sizes) <= k < len(sizes) for k in told):
        return only(n, n.dtype(), [None] * len(sizes))
    axes = {k % len(sizes) for k in told}
    return only(n, n.dtype(), [None if k in axes else size for k, size in enumerate(sizes)])


def resized(n: KnownNode) -> Types:
    """In sizes that are told, or by factors, in the arithmetic that ONNX's inference has."""
    sizes = n.sizes(0)
    kept = "keep_aspect_ratio_policy" in n.given and n.mode("keep_aspect_ratio_policy") != "stretch"
    if sizes is None or n.version < 11 or "axes" in n.given or kept:
        return None
    told, factors = n.integers(3), n.content(2)
    if told is not None and len(told) == len(sizes) and (factors is None or not factors.size):
        return only(n, n.dtype(), told)
    if (
        factors is None
        or factors.dtype != np.float32
        or factors.shape != (len(sizes),)
        or n.value(3) is not None
    ):
        return None
    if not (np.isfinite(factors) & (factors > 0)).all():
        return None
    return only(
        n,
        n.dtype(),
        [
            int(np.floor(np.float32(size) * factor)) if isinstance(size, int) else _times(size, factor)
            for size, factor in zip(sizes, factors, strict=True)
        ],
    )


def _times(size: Dim, factor: float) -> Dim:
    """A size that is not known by a factor; None where what is cut off is not known."""
    return as_dim(size.scaled(int(factor))) if isinstance(size, Affine) and factor % 1 == 0 else None


def passed(n: KnownNode) -> Types:
    """What the first input is, be it a tensor or not."""
    value = n.value(0)
    return None if value is None or value.type is None or len(n.outputs) != 1 else [value.type]


def like(n: KnownNode) -> Types:
    """In the sizes of the first input, of the type that an attribute says, or of its own."""
    code = n.attribute("dtype")
    return only(n, n.dtype() if code is None else DTYPES.get(code), n.sizes(0))


def like_second(n: KnownNode) -> Types:
    """The first input's sizes, of the second one's type."""
    return only(n, n.dtype(1), n.sizes(0))


def cast(n: KnownNode) -> Types:
    return only(n, DTYPES.get(n.int("to")), n.sizes(0))


def bools(n: KnownNode) -> Types:
    """A bool for each element of the first input."""
    return only(n, "bool", n.sizes(0))


def broadcast_sizes(all_sizes: Sequence[Sizes]) -> Sizes | None:
    """The sizes that several broadcast to; None where they do not."""
    result: list[Dim] = []
    for k in range(1, max(map(len, all_sizes)) + 1):
        dims = [sizes[-k] for sizes in all_sizes if len(sizes) >= k]
        numbers = {n for n in dims if isinstance(n, int) and n != 1}
        symbols = [n for n in dims if not isinstance(n, int)]
        if len(numbers) > 1:
            return None
        if numbers:
            result.append(numbers.pop())
        elif symbols:
            result.append(symbols[0] if all(s == symbols[0] for s in symbols) else None)
        else:
            result.append(1)
    return tuple(reversed(result))


def _broadcast(n: KnownNode) -> Sizes | None:
    sizes = n.input_sizes()
    return broadcast_sizes(sizes) if sizes and n.version >= 7 else None


def broadcast(n: KnownNode) -> Types:
    """All inputs broadcast, in the type of the first."""
    return only(n, n.dtype(), _broadcast(n))


def compared(n: KnownNode) -> Types:
    """All inputs broadcast, a bool for each element."""
    return only(n, "bool", _broadcast(n))


def chosen(n: KnownNode) -> Types:
    """All inputs broadcast, in the type of the second."""
    return only(n, n.dtype(1), _broadcast(n))


def measured(n: KnownNode) -> Types:
    """The sizes of the input, or of some of its axes."""
    rank, start, end = n.rank(0), n.attribute("start") or 0, n.attribute("end")
    if rank is None:
        return None
    return only(n, "int64", (len(range(rank)[start:end]),))


def counted(n: KnownNode) -> Types:
    return only(n, "int64", ())


def transposed(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    if sizes is None:
        return None
    perm = n.ints("perm") if "perm" in n.given else [*reversed(range(len(sizes)))]
    if perm is None or sorted(perm) != [*range(len(sizes))]:
        return None
    return only(n, n.dtype(), [sizes[k] for k in perm])


def _axes(n: KnownNode, rank: int) -> list[int] | None:
    """Axes that are told, counted from the front, each once."""
    told = n.axes()
    if told is None or any(not -rank <= k < rank for k in told):
        return None
    axes = [k % rank for k in told]
    return axes if len(set(axes)) == len(axes) else None


def unsqueezed(n: KnownNode) -> Types:
    sizes, told = n.sizes(0), n.axes()
    axes = None if sizes is None or told is None else _axes(n, len(sizes) + len(told))
    if sizes is None or axes is None:
        return None
    left = iter(sizes)
    return only(n, n.dtype(), [1 if k in axes else next(left) for k in range(len(sizes) + len(axes))])


def squeezed(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    if sizes is None:
        return None
    if n.value(1) is None and "axes" not in n.given:  # all axes of one element
        known = all(isinstance(size, int) for size in sizes)
        return only(n, n.dtype(), [size for size in sizes if size != 1]) if known else None
    axes = _axes(n, len(sizes))
    if not axes or any(isinstance(sizes[k], int) and sizes[k] != 1 for k in axes):
        return None
    return only(n, n.dtype(), [size for k, size in enumerate(sizes) if k not in axes])


def flattened(n: KnownNode) -> Types:
    sizes, axis = n.sizes(0), n.int("axis")
    if sizes is None or not 0 <= axis <= len(sizes):
        return None
    parts = [[size for size in part if size != 1] for part in (sizes[:axis], sizes[axis:])]
    result: list[Dim] = []
    for part in parts:
        numbers = [size for size in part if isinstance(size, int)]
        if len(part) > 1 and len(numbers) < len(part):
            return None
        result.append(part[0] if len(part) == 1 else prod(numbers))
    return only(n, n.dtype(), result)


def gathered(n: KnownNode) -> Types:
    sizes, places, axis = n.sizes(0), n.sizes(1), n.int("axis")
    if sizes is None or places is None or not -len(sizes) <= axis < len(sizes):
        return None
    axis %= len(sizes)
    return only(n, n.dtype(), [*sizes[:axis], *places, *sizes[axis + 1 :]])


def like_places(n: KnownNode) -> Types:
    """The first input's elements in the sizes of the second."""
    return only(n, n.dtype(), n.sizes(1)) if n.rank(0) is not None else None


def reduced(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    given = n.value(1) is not None and "axes" not in n.given
    if given and n.content(1) is None:
        return None
    told = n.axes()
    if not told and n.attribute("noop_with_empty_axes"):
        return None
    if sizes is None:  # over all axes, however many there are, it is one element
        return None if told or n.int("keepdims") else only(n, n.dtype(), [])
    axes = _axes(n, len(sizes)) if told else [*range(len(sizes))]
    return None if axes is None else only(n, n.dtype(), _without(n, sizes, axes))


def found_along(n: KnownNode) -> Types:
    """The place of an element along an axis."""
    sizes, axis = n.sizes(0), n.int("axis")
    if sizes is None or not -len(sizes) <= axis < len(sizes):
        return None
    return only(n, "int64", _without(n, sizes, [axis % len(sizes)]))


def _without(n: KnownNode, sizes: Sizes, axes: Sequence[int]) -> list[Dim]:
    if n.int("keepdims"):
        return [1 if k in axes else size for k, size in enumerate(sizes)]
    return [size for k, size in enumerate(sizes) if k not in axes]


def split(n: KnownNode) -> Types:
    """Into parts whose sizes are told, or equal ones."""
    sizes, axis, dtype = n.sizes(0), n.int("axis"), n.dtype()
    if sizes is None or dtype is None or not -len(sizes) <= axis < len(sizes):
        return None
    axis %= len(sizes)
    told = n.ints("split") if "split" in n.given else n.integers(1)
    size, count = sizes[axis], len(n.outputs)
    if told is None and n.value(1) is None and isinstance(size, int) and size % count == 0 and size:
        told = [size // count] * count
    if told is None or len(told) != count or not isinstance(size, int) or sum(told) != size or min(told) < 0:
        return None
    return [TensorType(dtype, (*sizes[:axis], part, *sizes[axis + 1 :])) for part in told]


def places_of_others(n: KnownNode) -> Types:
    """So many places as there are elements other than 0, a row for each axis; of a scalar, onnxruntime gives
    one."""
    rank = n.rank(0)
    return None if rank is None else only(n, "int64", (rank or None, None))


def best(n: KnownNode) -> Types:
    """So many along an axis, and their places."""
    sizes, dtype, axis = n.sizes(0), n.dtype(), n.int("axis")
    if sizes is None or dtype is None or not -len(sizes) <= axis < len(sizes):
        return None
    told = [n.int("k")] if n.version < 10 else n.integers(1)
    count, size = told[0] if told else None, sizes[axis]
    if count is not None and (count < 0 or (isinstance(size, int) and size < count)):
        return None
    axis %= len(sizes)
    found = (*sizes[:axis], count, *sizes[axis + 1 :])
    return [TensorType(dtype, found), TensorType("int64", found)][: len(n.outputs)]


def selected_boxes(n: KnownNode) -> Types:
    """Batch, class and box of each."""
    return only(n, "int64", (None, 3))


def gathered_nd(n: KnownNode) -> Types:
    sizes, places = n.sizes(0), n.sizes(1)
    if sizes is None or not places or not isinstance(places[-1], int):
        return None
    inner = (n.attribute("batch_dims") or 0) + places[-1]
    return only(n, n.dtype(), [*places[:-1], *sizes[inner:]]) if inner <= len(sizes) else None


def one_hot(n: KnownNode) -> Types:
    """With an axis more, of as many places as there may be; onnxruntime and ONNX want that as one number."""
    sizes, depth, axis = n.sizes(0), n.integers(1), n.int("axis")
    if sizes is None or not -len(sizes) <= axis + 1 <= len(sizes) + 1 or n.rank(1) not in (0, 1):
        return None
    place = axis % (len(sizes) + 1)
    count = depth[0] if depth is not None and len(depth) == 1 and depth[0] > 0 else None
    return only(n, n.dtype(2), [*sizes[:place], count, *sizes[place:]])


def repeated(n: KnownNode) -> Types:
    """Each axis as often as is told."""
    sizes, times = n.sizes(0), n.integers(1)
    if n.version < 6 or sizes is None or (times is not None and len(times) != len(sizes)):
        return None
    if times is None:
        return only(n, n.dtype(), [None] * len(sizes))
    return only(n, n.dtype(), [_repeated(size, k) for size, k in zip(sizes, times, strict=True)])


def _repeated(size: Dim, times: int | None) -> Dim:
    if times is None or size is None:
        return None
    return size * times if isinstance(size, int) else as_dim(size.scaled(times))


def compressed(n: KnownNode) -> Types:
    """As many of an axis, or of all elements, as are wanted."""
    sizes, axis = n.sizes(0), n.attribute("axis")
    if axis is None:
        return only(n, n.dtype(), (None,))
    if sizes is None or not -len(sizes) <= axis < len(sizes):
        return None
    axis %= len(sizes)
    return only(n, n.dtype(), (*sizes[:axis], None, *sizes[axis + 1 :]))


def blocks_of_depth(n: KnownNode) -> Types:
    """Channels as places beside each other."""
    return _blocks(n, lambda c, b: _parts(c, b * b), lambda size, b: _repeated(size, b))


def blocks_of_space(n: KnownNode) -> Types:
    """Places beside each other as channels."""
    return _blocks(n, lambda c, b: _repeated(c, b * b), _parts)


def _blocks(n: KnownNode, channels: Callable[[Dim, int], Dim], places: Callable[[Dim, int], Dim]) -> Types:
    sizes, b = n.sizes(0), n.int("blocksize")
    if sizes is None or len(sizes) != 4 or b < 1:
        return None
    found = [sizes[0], channels(sizes[1], b), places(sizes[2], b), places(sizes[3], b)]
    given = [sizes[0], sizes[1], sizes[2], sizes[3]]
    if any(isinstance(a, int) and m is None for a, m in zip(given, found, strict=True)):
        return None  # which does not go
    return only(n, n.dtype(), found)


def _parts(size: Dim, count: int) -> Dim:
    if not isinstance(size, int):
        return None if size is None else as_dim(size.divided(count))
    return size // count if size % count == 0 else None
