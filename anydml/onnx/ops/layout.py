"""Operators that keep the elements and move or repeat them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops import native, result_types, safe
from anydml.onnx.ops.native import Inputs, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo
from anydml.onnx.ops.shared import (
    NEGATIVE_LENGTH,
    affordable,
    flag,
    single,
    sizes_in,
)
from anydml.onnx.ops.speculation import has_ranks, if_run
from anydml.ops import expr
from anydml.ops.dtypes import INT64

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _transpose(node: NodeView, x: Array) -> Array:
    order = node.ints("perm")
    if order is None:
        return x.transpose()
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"expected an order of {x.ndim} axes, but got {order}")
    return x.transpose(order)


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


def _native_trilu(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, k = operand(inputs), inputs[1] if len(inputs) > 1 else None
    if len(x.sizes) < 2 or (k is not None and (k.dtype is not INT64 or k.count != 1)):
        raise NotNative("a triangle of no matrix")
    rows, columns = x.sizes[-2:]
    distance = program.Known.of(np.arange(columns) - np.arange(rows)[:, None])
    offset = program.Known.of(np.array(0)) if k is None else b.reshape(k, ())
    compare = expr.ge if flag(n, "upper") else expr.le
    kept = compare(expr.read(0, INT64), expr.read(1, INT64))
    zero = expr.constant(0, x.dtype)
    return [b.elementwise(expr.select(kept, expr.read(2, x.dtype), zero), [distance, offset, x])]


def _has_planes(n: KnownNode) -> bool:
    rank = n.rank(0)
    return rank is not None and rank > 1 and (n.value(1) is None or n.sizes(1) in ((), (1,)))


OPS = (
    OpInfo(
        "DepthToSpace",
        result=result_types.blocks_of_depth,
        any_batch=True,
        native=native.moves(_depth_to_space),
        fold=_depth_to_space,
        speculatable=if_run,
        moves_first=True,
        minimums={"blocksize": 1},
    ),
    OpInfo(
        "SpaceToDepth",
        result=result_types.blocks_of_space,
        any_batch=True,
        native=native.moves(_space_to_depth),
        fold=_space_to_depth,
        speculatable=if_run,
        moves_first=True,
        minimums={"blocksize": 1},
    ),
    OpInfo(
        "Tile",
        result=result_types.repeated,
        safe=safe.tiled,
        native=native.moves(_tile),
        fold=_tile,
        speculatable=if_run,
        quirks=(NEGATIVE_LENGTH,),
        moves_first=True,
    ),
    OpInfo(
        "Transpose",
        native=native.moves(_transpose),
        result=result_types.transposed,
        fold=_transpose,
        speculatable=has_ranks,
    ),
    OpInfo(
        "Trilu",
        native=_native_trilu,
        result=result_types.same,
        fold=_trilu,
        speculatable=_has_planes,
        moves_first=True,
    ),
)
