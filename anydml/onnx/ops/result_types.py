"""The types of nodes' outputs, as ONNX's own inference tells them, for operators that are everywhere.

That inference takes ten times as long for each node, and a registry of all operators before the first. Each
function answers with the types, or with None where ONNX has to be asked: the node has inputs of unknown rank,
attributes that are not usual, or it fails. A size that is not known stays so, or is the symbol that it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from anydml.ir.dims import Affine, Dim, as_dim
from anydml.ir.graph import TensorType, Type
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.types import DTYPES

Types = Sequence[Type | None] | None
Sizes = tuple[Dim, ...]


def _one(n: KnownNode, dtype: str | None, sizes: Sequence[Dim] | None) -> Types:
    """The only output; sizes below 0, which ONNX makes something of, are its own affair."""
    if dtype is None or sizes is None or len(n.outputs) != 1:
        return None
    if any(isinstance(size, int) and size < 0 for size in sizes):
        return None
    return [TensorType(dtype, tuple(sizes))]


def same(n: KnownNode) -> Types:
    """The type of the first input."""
    return _one(n, n.dtype(), n.sizes(0))


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
    """A part of each axis, forwards."""
    sizes, starts, ends = n.sizes(0), n.integers(1), n.integers(2)
    if n.version < 10 or sizes is None or starts is None or ends is None:
        return None
    axes = n.integers(3) if n.value(3) is not None else [*range(len(starts))]
    steps = n.integers(4) if n.value(4) is not None else [1] * len(starts)
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    result = list(sizes)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1 or not -len(sizes) <= axis < len(sizes):
            return None
        size = sizes[axis]
        if isinstance(size, int):
            result[axis] = len(range(*slice(start, end, step).indices(size)))
        elif (start, step) != (0, 1) or end < (1 << 31) - 1:
            result[axis] = None
    return _one(n, n.dtype(), result) if len({k % len(sizes) for k in axes}) == len(axes) else None


def recurrent(n: KnownNode) -> Types:
    """Of each step, and of the last one, for each direction; of an LSTM, its cells, too."""
    x, dtype, hidden = n.sizes(0), n.dtype(), n.attribute("hidden_size")
    if x is None or len(x) != 3 or dtype is None or not isinstance(hidden, int) or n.attribute("layout"):
        return None
    ways = 2 if n.mode("direction") == "bidirectional" else 1
    last = TensorType(dtype, (ways, x[1], hidden))
    return [TensorType(dtype, (x[0], ways, x[1], hidden)), last, last][: len(n.outputs)]


def resized(n: KnownNode) -> Types:
    """In sizes that are told, or by factors, in the arithmetic that ONNX's inference has."""
    sizes = n.sizes(0)
    if sizes is None or n.version < 11 or {"axes", "keep_aspect_ratio_policy"} & n.given:
        return None
    told, factors = n.integers(3), n.content(2)
    if told is not None and len(told) == len(sizes) and (factors is None or not factors.size):
        return _one(n, n.dtype(), told)
    if (
        factors is None
        or factors.dtype != np.float32
        or factors.shape != (len(sizes),)
        or n.value(3) is not None
    ):
        return None
    if not (np.isfinite(factors) & (factors > 0)).all():
        return None
    return _one(
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


def cast(n: KnownNode) -> Types:
    return _one(n, DTYPES.get(n.int("to")), n.sizes(0))


def bools(n: KnownNode) -> Types:
    """A bool for each element of the first input."""
    return _one(n, "bool", n.sizes(0))


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
    return _one(n, n.dtype(), _broadcast(n))


def compared(n: KnownNode) -> Types:
    """All inputs broadcast, a bool for each element."""
    return _one(n, "bool", _broadcast(n))


def chosen(n: KnownNode) -> Types:
    """All inputs broadcast, in the type of the second."""
    return _one(n, n.dtype(1), _broadcast(n))


def measured(n: KnownNode) -> Types:
    """The sizes of the input, or of some of its axes."""
    rank = n.rank(0)
    if rank is None or n.given:
        return None
    return _one(n, "int64", (rank,))


def counted(n: KnownNode) -> Types:
    return _one(n, "int64", ())


def transposed(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    if sizes is None:
        return None
    perm = n.ints("perm") if "perm" in n.given else [*reversed(range(len(sizes)))]
    if perm is None or sorted(perm) != [*range(len(sizes))]:
        return None
    return _one(n, n.dtype(), [sizes[k] for k in perm])


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
    return _one(n, n.dtype(), [1 if k in axes else next(left) for k in range(len(sizes) + len(axes))])


def squeezed(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    axes = None if sizes is None else _axes(n, len(sizes))
    if sizes is None or not axes or any(sizes[k] != 1 for k in axes):
        return None
    return _one(n, n.dtype(), [size for k, size in enumerate(sizes) if k not in axes])


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
    return _one(n, n.dtype(), result)


def gathered(n: KnownNode) -> Types:
    sizes, places, axis = n.sizes(0), n.sizes(1), n.int("axis")
    if sizes is None or places is None or not -len(sizes) <= axis < len(sizes):
        return None
    axis %= len(sizes)
    return _one(n, n.dtype(), [*sizes[:axis], *places, *sizes[axis + 1 :]])


def like_places(n: KnownNode) -> Types:
    """The first input's elements in the sizes of the second."""
    return _one(n, n.dtype(), n.sizes(1)) if n.rank(0) is not None else None


def multiplied(n: KnownNode) -> Types:
    """Of matrices, and of vectors as NumPy has them."""
    a, b = n.sizes(0), n.sizes(1)
    if not a or not b:
        return None
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    inner, other = a[-1], b[-2] if len(b) > 1 else b[0]
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        return None
    batch = broadcast_sizes([a[:-2], b[:-2]]) if len(a) > 2 or len(b) > 2 else ()
    return None if batch is None else _one(n, n.dtype(), [*batch, *rows, *columns])


def gemm(n: KnownNode) -> Types:
    a, b = n.sizes(0), n.sizes(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return _one(n, n.dtype(), [a[1] if n.int("transA") else a[0], b[0] if n.int("transB") else b[1]])


def convolved(n: KnownNode) -> Types:
    x, w = n.sizes(0), n.sizes(1)
    if x is None or w is None or len(x) != len(w) or len(x) < 3:
        return None
    kernel = n.ints("kernel_shape") or list(w[2:])
    places = _windows(n, x[2:], kernel)
    return None if places is None else _one(n, n.dtype(), [x[0], w[0], *places])


def pooled(n: KnownNode) -> Types:
    x, kernel = n.sizes(0), n.ints("kernel_shape")
    if x is None or len(x) < 3 or kernel is None or ("ceil_mode" in n.given and n.int("ceil_mode")):
        return None
    places = _windows(n, x[2:], kernel)
    return None if places is None else _one(n, n.dtype(), [*x[:2], *places])


def _windows(n: KnownNode, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> list[Dim] | None:
    """How many windows there are along each axis."""
    axes = len(sizes)
    pads, strides = n.ints("pads") or [0] * 2 * axes, n.ints("strides") or [1] * axes
    dilations = (n.ints("dilations") if "dilations" in n.given else None) or [1] * axes
    if n.mode("auto_pad") not in ("", "NOTSET") or len(pads) != 2 * axes:
        return None
    if not len(kernel) == len(strides) == len(dilations) == axes or min(strides) < 1:
        return None
    found: list[Dim] = []
    for k, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        if not isinstance(taps, int):
            return None
        if not isinstance(size, int):
            found.append(None)
            continue
        left = size + pads[k] + pads[k + axes] - (dilations[k] * (taps - 1) + 1)
        if left < 0:
            return None
        found.append(left // strides[k] + 1)
    return found


def pooled_as_a_whole(n: KnownNode) -> Types:
    x = n.sizes(0)
    return None if x is None or len(x) < 3 else _one(n, n.dtype(), [*x[:2], *[1] * (len(x) - 2)])


def reduced(n: KnownNode) -> Types:
    sizes = n.sizes(0)
    given = n.value(1) is not None and "axes" not in n.given
    if given and n.content(1) is None:
        return None
    told = n.axes()
    if not told and n.attribute("noop_with_empty_axes"):
        return None
    if sizes is None:  # over all axes, however many there are, it is one element
        return None if told or n.int("keepdims") else _one(n, n.dtype(), [])
    axes = _axes(n, len(sizes)) if told else [*range(len(sizes))]
    return None if axes is None else _one(n, n.dtype(), _without(n, sizes, axes))


def found_along(n: KnownNode) -> Types:
    """The place of an element along an axis."""
    sizes, axis = n.sizes(0), n.int("axis")
    if sizes is None or not -len(sizes) <= axis < len(sizes):
        return None
    return _one(n, "int64", _without(n, sizes, [axis % len(sizes)]))


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
    return None if rank is None else _one(n, "int64", (rank or None, None))
