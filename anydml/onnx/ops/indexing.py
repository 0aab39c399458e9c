"""Elements by their place."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.ir.dims import Affine, may_be_zero
from anydml.onnx.ops import native_indexing, result_types, safe
from anydml.onnx.ops.native import MOVING, Inputs, bounded, moves, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk, Symbols
from anydml.onnx.ops.precision import FLOATS, widen
from anydml.onnx.ops.shared import NEGATIVE_LENGTH, affordable, axis_in, flag, single
from anydml.onnx.ops.speculation import always, if_run
from anydml.onnx.ops.symbolic import numbers as integers
from anydml.ops.dtypes import BOOL, INT64

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _gather(node: NodeView, x: Array, indices: Array) -> Array:
    axis = axis_in(node.int("axis"), x.ndim)
    return np.take(x, check_indices(indices, x.shape[axis]), axis)


def along(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """For each of the indices along an axis the place of its element, as NumPy takes it.

    Raises:
        ValueError: the sizes do not fit.
        IndexError: there is no such place.
    """
    if indices.ndim != x.ndim:
        raise ValueError(f"expected indices of rank {x.ndim}, but got {indices.ndim}")
    for k, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if k != axis and n > m:
            raise ValueError(f"expected indices within {x.shape}, but got {indices.shape}")
    places: list[Array] = list(np.ogrid[tuple([slice(n) for n in indices.shape])])
    places[axis] = check_indices(indices, x.shape[axis])
    return tuple(np.broadcast_arrays(*places))


def check_indices(indices: Array, size: int) -> Array:
    """Indices counted from the front."""
    if ((indices < -size) | (indices >= size)).any():
        raise IndexError(f"expected indices into {size}, but got others")
    return np.where(indices < 0, indices + size, indices)


def _gather_elements(node: NodeView, x: Array, indices: Array) -> Array:
    axis = axis_in(node.int("axis"), x.ndim)
    return x[along(x, indices, axis)]


def tuples(x: Array, indices: Array, batch: int) -> tuple[Array, ...]:
    """The places that the rows of the indices name, behind the batch's own."""
    if not 0 <= batch < min(x.ndim, indices.ndim) or x.shape[:batch] != indices.shape[:batch]:
        raise ValueError(f"expected {batch} equal sizes, but got {x.shape} and {indices.shape}")
    count = indices.shape[-1]
    if not count:
        raise NotFoldable("indices of no axis")  # ONNX has none, and onnxruntime takes everything
    if not 1 <= count <= x.ndim - batch:
        raise ValueError(f"expected 1 to {x.ndim - batch} indices, but got {count}")
    rows = indices.shape[:-1]
    own = np.ogrid[tuple([slice(n) for n in rows])][:batch] if batch else ()
    named = [check_indices(indices[..., k], x.shape[batch + k]) for k in range(count)]
    return (*(np.broadcast_to(k, rows) for k in own), *named)


def _gather_nd(node: NodeView, x: Array, indices: Array) -> Array:
    return x[tuples(x, indices, node.int("batch_dims") if node.version >= 12 else 0)]


def _non_zero(node: NodeView, x: Array) -> Array:
    if x.dtype == object:
        raise NotFoldable("strings that are not zero")
    if not x.ndim:
        raise NotFoldable("NonZero of a scalar, whose places have no index or one")
    return np.stack(np.nonzero(x)).astype(np.int64)


def _compress(node: NodeView, x: Array, condition: Array) -> Array:
    axis = node.attribute("axis")
    if condition.ndim != 1:
        raise NotFoldable(f"rank {condition.ndim} for a list of conditions")
    along = None if axis is None else axis_in(axis, x.ndim)
    size = x.size if along is None else x.shape[along]
    if condition.size > size:
        raise NotFoldable("more conditions than elements")
    return np.take(x, np.flatnonzero(condition), along)


def _one_hot(node: NodeView, indices: Array, depth: Array, values: Array) -> Array:
    """Indices beyond the depth are nowhere on; those below 0 count from the end."""
    count = single(depth)
    if count < 0 or values.shape != (2,):
        raise ValueError(f"expected a depth and two values, but got {count} and {values.shape}")
    if not float(count).is_integer():
        raise NotFoldable("a depth that is no integer")
    if indices.dtype in FLOATS:
        if not (np.trunc(widen(indices)) == widen(indices)).all():
            raise NotFoldable("an index that is no integer")
        indices = widen(indices)
    axis = axis_in(node.int("axis"), indices.ndim + 1)
    affordable([*indices.shape, int(count)], values.dtype)
    depths = np.arange(int(count)).reshape([-1 if k == axis else 1 for k in range(indices.ndim + 1)])
    at = np.expand_dims(indices, axis)
    hot = np.equal(at, depths)
    if indices.dtype.kind != "u":
        hot |= np.equal(at, depths - int(count))
    result: Array = np.where(hot, values[1], values[0])
    return result.astype(values.dtype)


def _top_k(node: NodeView, x: Array, k: Array | None = None) -> tuple[Array, Array]:
    """Equal ones in their order; the order of what is not sorted is open."""
    axis = axis_in(node.int("axis"), x.ndim)
    count = node.int("k") if node.version < 10 else single(k) if k is not None else 0
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"expected a number up to {x.shape[axis]}, but got {count}")
    keys = np.moveaxis(widen(x), axis, -1)
    if x.dtype in FLOATS and np.isnan(keys).any():
        raise NotFoldable("the order of NaN")
    largest = node.version < 11 or flag(node, "largest")
    if node.version >= 11 and not flag(node, "sorted") and count > 1:
        raise NotFoldable("an order that is open")
    if largest:
        order = keys.shape[-1] - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(keys, axis=-1, kind="stable")
    chosen = order[..., :count].astype(np.int64)
    values = np.take_along_axis(np.moveaxis(x, axis, -1), chosen, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(chosen, -1, axis)


def _unique(node: NodeView, x: Array) -> tuple[Array, ...]:
    """Elements, or slices as lists of their elements, by their first appearance."""
    if x.dtype in FLOATS and np.isnan(widen(x)).any():
        raise NotFoldable("whether NaN is NaN")
    if x.dtype.kind == "c":
        raise NotFoldable("the order of complex numbers")
    axis = node.attribute("axis")
    along = None if axis is None else axis_in(axis, x.ndim)
    slices = x.reshape(-1) if along is None else np.moveaxis(x, along, 0)
    keys = [tuple(np.asarray(one).reshape(-1).tolist()) for one in slices]
    first: dict[tuple[object, ...], int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    order: list[tuple[object, ...]] = list(first)
    if flag(node, "sorted"):
        order.sort()
    number = {key: k for k, key in enumerate(order)}
    found = np.array([first[key] for key in order], np.int64)
    inverse = np.array([number[key] for key in keys], np.int64)
    counts = np.bincount(inverse, minlength=len(order)).astype(np.int64)
    return np.take(x, found, along), found, inverse, counts


def _top_k_sizes(
    node: NodeView, sizes: Sequence[Sequence[Affine] | None], contents: Sequence[Symbols | None]
) -> list[Affine] | None:
    """Of both outputs."""
    found, count = [*(sizes[0] or ())], contents[1] if len(contents) > 1 else None
    axis = node.int("axis")
    if count is None or count.size != 1 or not -len(found) <= axis < len(found):
        return None
    found[axis] = count.reshape(-1)[0]
    return found


def _gathered_symbols(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    x, places = given
    wanted = integers(places)
    if wanted is None or x.ndim != 1 or any(not -x.size <= k < x.size for k in wanted):
        return None
    return np.asarray(x[np.array(wanted, int)].reshape(places.shape), object)


def _within(n: KnownNode) -> bool:
    sizes, places, axis = n.sizes(0), n.integers(1), n.int("axis")
    if places is None:
        raise NotFoldable("indices that are not known")
    if sizes is None or not -len(sizes) <= axis < len(sizes):
        return False
    size = sizes[axis]
    return isinstance(size, int) and all(-size <= k < size for k in places)


def _strings_in_slices(n: KnownNode) -> bool:
    """Gather of texts, more than one at each index."""
    axis, sizes = n.attribute("axis"), n.sizes(0)
    if n.dtype() != "string" or not isinstance(axis, int):
        return False
    if sizes is None:
        return True
    after = sizes[axis % len(sizes) + 1 :] if sizes else ()
    return any(not isinstance(s, int) for s in after) or prod(s for s in after if isinstance(s, int)) > 1


def _empty_slices(n: KnownNode) -> bool:
    """Unique of slices that have no elements."""
    axis, sizes = n.attribute("axis"), n.sizes(0)
    if axis is None:
        return False
    if sizes is None:
        return True
    return any(may_be_zero(s) for k, s in enumerate(sizes) if k != axis % max(len(sizes), 1))


@bounded
def _native_top_k(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Best first, also where the order is open."""
    x = operand(inputs)
    axis = axis_in(n.int("axis"), len(x.sizes))
    length, count = b.length(x, axis), _count(b, n, inputs)
    if x.dtype is BOOL or (isinstance(count, int) and not 0 < count <= x.sizes[axis]):
        raise NotNative(f"TopK of {count}")
    if count != length and isinstance(count, str) | isinstance(length, str):
        enough = b.code.line(f"icmp ule i64 {count}, {length}")
        b.fail_unless(enough, "expected as many as there are, or fewer, but got {}", str(count))
    return list(program.best(b, x, axis, count, n.version < 11 or flag(n, "largest")))


def _count(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> int | str:
    """How many a TopK is to give."""
    if n.version < 10:
        return n.int("k")
    given = operand(inputs, 1)
    if isinstance(given, program.Known):
        return int(single(given.array))
    if isinstance(given, program.Bounded) or given.count != 1 or given.dtype is not INT64:
        raise NotNative("a number of the best that is none")
    return b.scalar(given)


@bounded
def _native_non_zero(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    if not x.sizes:
        raise NotNative("NonZero of a scalar")
    return [program.places_of_nonzero(b, x)]


_chosen_places = moves(_compress)


@bounded
def _native_compress(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
    """What stands where a condition holds; a list of them may be shorter than the axis."""
    x, condition = operand(inputs), operand(inputs, 1)
    if isinstance(condition, program.Known):
        return _chosen_places(b, n, inputs)
    if isinstance(x, program.Bounded) or len(condition.sizes) != 1:
        raise NotNative("Compress of rows of which it is not known how many there are")
    axis = n.attribute("axis")
    if axis is None:
        x = b.reshape(x, (x.count,))
    along = axis_in(axis or 0, len(x.sizes))
    if condition.count > x.sizes[along]:
        raise NotNative("more conditions than elements")
    found = program.places_of_nonzero(b, condition)
    places = program.Bounded.of(b.reshape(found.whole, (condition.count,)), 0, found.length)
    return [native_indexing.taken(b, x, places, along)]


MOVING.add(_native_compress)


def _classes_known(n: KnownNode) -> bool:
    """So many classes that there is one, and two values to tell them by."""
    classes, axis, rank = n.integers(1), n.attribute("axis"), n.rank(0)
    if rank is None or not isinstance(axis, int) or not -rank - 1 <= axis <= rank:
        return False
    return classes is not None and len(classes) == 1 and classes[0] > 0 and n.sizes(2) == (2,)


OPS = (
    OpInfo("Compress", counts=True, result=result_types.compressed, native=_native_compress, fold=_compress),
    OpInfo(
        "Gather",
        keeps_weights=True,
        safe=safe.gathered,
        native=native_indexing.by_known_places(_gather, native_indexing.gather),
        result=result_types.gathered,
        fold=_gather,
        symbols=_gathered_symbols,
        symbol_inputs=2,
        speculatable=_within,
        quirks=(Quirk("onnxruntime gathers the first text of each slice only", _strings_in_slices),),
    ),
    OpInfo(
        "GatherElements",
        native=native_indexing.by_known_places(_gather_elements, native_indexing.gather_elements),
        safe=safe.gathered_elements,
        result=result_types.like_places,
        fold=_gather_elements,
    ),
    OpInfo(
        "GatherND",
        result=result_types.gathered_nd,
        native=native_indexing.by_known_places(_gather_nd, native_indexing.gather_nd),
        safe=safe.gathered_places,
        fold=_gather_nd,
        minimums={"batch_dims": 0},
    ),
    OpInfo(
        "NonZero",
        counts=True,
        native=_native_non_zero,
        result=result_types.places_of_others,
        fold=_non_zero,
        speculatable=always,
        quirks=(Quirk("onnxruntime gives indices of one axis for a scalar", lambda n: n.rank(0) == 0),),
    ),
    OpInfo(
        "OneHot",
        result=result_types.one_hot,
        native=native_indexing.one_hot,
        safe=safe.one_hot,
        fold=_one_hot,
        speculatable=_classes_known,
        quirks=(NEGATIVE_LENGTH,),
    ),
    OpInfo(
        "TopK",
        result=result_types.best,
        sizes=_top_k_sizes,
        native=_native_top_k,
        safe=safe.best,
        fold=_top_k,
        speculatable=if_run,
        moves_first=True,
    ),
    OpInfo(
        "Unique",
        counts=True,
        fold=_unique,
        quirks=(
            Quirk(
                "onnxruntime ends the process on slices that are empty", _empty_slices, fatal=True, empty=True
            ),
        ),
        reference_error=("is wrong along an axis", lambda n: n.attribute("axis") is not None),
    ),
)
