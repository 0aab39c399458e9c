"""Elements that are put, by their place, over those of another tensor."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.onnx.ops import native_indexing, result_types, safe
from anydml.onnx.ops.indexing import along, tuples
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, widen
from anydml.onnx.ops.shared import axis_in, numbers, scatter_reduction


def _scatter_elements(node: NodeView, x: Array, indices: Array, updates: Array) -> Array:
    if indices.shape != updates.shape:
        raise ValueError(f"expected updates of sizes {indices.shape}, but got {updates.shape}")
    axis = axis_in(node.int("axis"), x.ndim)
    return _scatter(node, x, along(x, indices, axis), updates)


def _scatter(node: NodeView, x: Array, places: tuple[Array, ...], updates: Array) -> Array:
    """A copy in which updates are put, or reduced with what is there, one after the other."""
    how, result = scatter_reduction(node), x.copy()
    shape, none = x.shape[: len(places)], np.zeros(0, np.int64)
    flat = np.ravel_multi_index(places, shape) if places[0].size else none
    if how == "none":
        if len(np.unique(flat)) < flat.size:
            raise NotFoldable("two updates of one place")
        result[places] = updates
        return result
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if how not in functions or (how in ("max", "min") and node.version < 18):
        raise NotFoldable(f"reduction {how}")
    if x.dtype.kind in "bO" or (x.dtype not in FLOATS and x.dtype.kind not in "iu"):
        raise NotFoldable(f"reduction of {x.dtype}")
    if x.dtype in FLOATS and widen(x).dtype != x.dtype:
        raise NotFoldable("a reduction of halves, which may be rounded at each step or once")
    if how in ("max", "min") and x.dtype in FLOATS and (np.isnan(x).any() or np.isnan(updates).any()):
        raise NotFoldable("the larger one of a number and NaN")
    inner = prod(x.shape[len(places) :])
    each = flat.reshape(-1, 1) * inner + np.arange(inner)  # NumPy is much quicker with one element a place
    functions[how].at(result.reshape(-1), each.ravel(), updates.ravel())
    return result


def _scatter_nd(node: NodeView, x: Array, indices: Array, updates: Array) -> Array:
    places = tuples(x, indices, 0)
    wanted = (*indices.shape[:-1], *x.shape[len(places) :])
    if updates.shape != wanted:
        raise ValueError(f"expected updates of sizes {wanted}, but got {updates.shape}")
    return _scatter(node, x, places, updates)


def _tensor_scatter(node: NodeView, x: Array, update: Array, starts: Array | None = None) -> Array:
    axis = axis_in(node.int("axis"), x.ndim)
    others = [(n, m) for k, (n, m) in enumerate(zip(x.shape, update.shape, strict=True)) if k != axis]
    size, count = x.shape[axis], update.shape[axis]
    begin = [0] * x.shape[0] if starts is None else numbers(starts)
    if axis == 0 or any(n != m for n, m in others) or count > size or len(begin) != x.shape[0]:
        raise ValueError(f"expected an update within {x.shape}, but got {update.shape}")
    circular = node.text("mode") == "circular"
    if any(n < 0 or (not circular and n + count > size) for n in begin):
        raise ValueError(f"expected writing to begin within {size}, but got {begin}")
    result = x.copy()
    for k, first in enumerate(begin):
        places = (first % max(size, 1) + np.arange(count)) % max(size, 1)
        np.moveaxis(result[k], axis - 1, 0)[places] = np.moveaxis(update[k], axis - 1, 0)
    return result


_FEW_UPDATES = 4096
"""Elements that onnxruntime does not share among threads: it does from some 40,000 on."""


def _may_share_updates(n: KnownNode) -> bool:
    sizes = n.sizes(2) or (None,)
    known = [k for k in sizes if isinstance(k, int)]
    few = len(known) == len(sizes) and prod(known) <= _FEW_UPDATES
    return scatter_reduction(n) != "none" and not few


_RACE_OF_UPDATES = Quirk(
    "onnxruntime loses updates of places that are named twice, if there are many, on several threads",
    _may_share_updates,
)
_EXTREME_OF_BOOL = Quirk(
    "onnxruntime has no largest or smallest of bool",
    lambda n: n.dtype() == "bool" and n.mode("reduction") in ("max", "min"),
)


OPS = (
    OpInfo(
        "Scatter",
        native=native_indexing.scatter_elements,
        result=result_types.same,
        fold=_scatter_elements,
    ),
    OpInfo(
        "ScatterElements",
        native=native_indexing.scatter_elements,
        result=result_types.same,
        fold=_scatter_elements,
        quirks=(_EXTREME_OF_BOOL,),
    ),
    OpInfo(
        "ScatterND",
        native=native_indexing.scatter_nd,
        safe=safe.scattered_places,
        result=result_types.same,
        fold=_scatter_nd,
        quirks=(_EXTREME_OF_BOOL, _RACE_OF_UPDATES),
    ),
    OpInfo("TensorScatter", fold=_tensor_scatter),
)
