"""Convolutions as matrix products, whose matrix a library packs once.

One that fits into its input once is one, without the taps that meet only padding:

%y = Conv(%x: [1,64,2], %w: [128,64,3]), pads 1, strides 2: one position, where taps 1 and 2 meet %x
    ->   %a = Reshape(%x, [1,128]); %b = Gemm(%a, %w[:,:,1:3] as [128,128], transposed); %y = Reshape(%b, ...)

On a processor, so is one along a line that has a few positions only, of windows that are gathered:

%y = Conv(%x: [1,128,4], %w: [64,128,3]), pads 1: positions 0 to 3
    ->   %t = Pad(Transpose(%x)): [1,6,128]; %g = Gather(%t, [[0,1,2],[1,2,3],[2,3,4],[3,4,5]], axis 1)
         %y = Transpose(Gemm(Reshape(%g, [4,384]), %w as [64,384], transposed) as [1,4,64])

in blocks where windows lie apart by many: of 512 taps and strides of 160, in blocks of 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ir.dims import Dim, as_affine, as_dim
from anydml.ir.graph import Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.ops.windows import window_fits
from anydml.onnx.rewrites.matcher import Match, Result

MAX_WEIGHT = 1 << 22
"""Elements of a weight that is copied for this."""
MAX_POSITIONS, MIN_WEIGHT = 8, 1 << 13
"""Of windows that are gathered: measured with onnxruntime, a half to two thirds of the time."""
BLOCK_COST = 64
"""Elements of a weight that are multiplied while one block is copied, in what a convolution takes longer."""


def multiply_matrices(match: Match) -> Result:
    x, w, y, bias = match["x"], match["weight"], match.output, match.root.inputs[2:]
    given, weight, result = _of_each(x), w.known_sizes, _of_each(y)
    if given is None or weight is None or result is None:
        return None
    (batch, *_), columns, dtype = x.sizes or (), prod(given), x.tensor.dtype
    taps = None if batch == 0 else _taps(match.root, given, weight, result)
    if taps is None or prod(weight) > MAX_WEIGHT:
        return None

    def product(content: NDArray[Any]) -> NDArray[Any]:
        used = content[np.ix_(range(weight[0]), range(weight[1]), *taps)]
        return np.ascontiguousarray(used.reshape(weight[0], columns))

    matrix = Value(f"{y.name}~matrix", TensorType(dtype, (weight[0], columns)))
    match.constants[matrix] = match.constants[w].derive(("taps", *map(tuple, taps)), product)
    rows = Value(f"{y.name}~rows", TensorType(dtype, (batch, columns)))
    flat = Value(f"{y.name}~flat", TensorType(dtype, (batch, weight[0])))
    return [
        match.make_reshape(x, rows),
        match.make("Gemm", (rows, matrix, *bias), flat, transB=1),
        match.make_reshape(flat, y),
    ]


def gather_windows(match: Match) -> Result:
    """Of few positions along a line: libraries convolve for many, and pack the weights each time."""
    x, w, y, bias = match["x"], match["weight"], match.output, match.root.inputs[2:]
    given, weight, result = _of_each(x), w.known_sizes, _of_each(y)
    if given is None or weight is None or result is None or len(given) != 2 or x.tensor.dtype != "float32":
        return None
    view = NodeView(match.root)
    (batch, *_), (channels, length), (filters, _, taps), positions = x.sizes or (), given, weight, result[1]
    whole = weight[1] == channels and view.int("group") == 1 and 0 not in (batch, *given, *weight)
    if not whole or view.text("auto_pad") != "NOTSET" or not window_fits(view, (batch, *given), weight[2:]):
        return None
    if not 1 < positions <= MAX_POSITIONS or not MIN_WEIGHT <= prod(weight) <= MAX_WEIGHT:
        return None
    (before, after), (dilation,), (stride,) = (
        view.ints(name) or usual for name, usual in (("pads", [0, 0]), ("dilations", [1]), ("strides", [1]))
    )
    padded_length = before + length + after
    # what windows have in common is copied at once, a block of neighbours
    block = gcd(stride, taps, padded_length) if dilation == 1 else 1
    if positions * BLOCK_COST > block * channels * filters:
        return None
    if (before or after) and not np.isfinite(match.constants[w].content).all():
        return None  # libraries differ in whether they multiply them by padding
    nodes = []

    def value(word: str, *sizes: Dim) -> Value:
        return Value(f"{y.name}~{word}", TensorType("float32", sizes))

    last = value("channels_last", batch, length, channels)
    nodes.append(match.make_reshape(x, last) if channels == 1 else _transposed(match, x, last))
    if before or after:
        padded = value("padded", batch, padded_length, channels)
        ends = match.make_constant(f"{y.name}~pads", np.array([0, before, 0, 0, after, 0], np.int64))
        nodes.append(match.make("Pad", (last, ends), padded))
        last = padded
    if block > 1:
        blocks = value("blocks", batch, padded_length // block, block * channels)
        nodes.append(match.make_reshape(last, blocks))
        last = blocks
    places = stride // block * np.arange(positions)[:, None] + dilation * np.arange(taps // block)
    index = match.make_constant(f"{y.name}~places", places.astype(np.int64))
    windows = value("windows", batch, positions, taps // block, block * channels)
    count = as_dim(as_affine(batch).scaled(positions))
    rows, flat = value("rows", count, taps * channels), value("flat", count, filters)
    matrix = value("matrix", filters, taps * channels)
    match.constants[matrix] = match.constants[w].derive(
        "channels last", lambda content: np.ascontiguousarray(content.transpose(0, 2, 1)).reshape(filters, -1)
    )
    found = value("positions", batch, positions, filters)
    return [
        *nodes,
        match.make("Gather", (last, index), windows, axis=1),
        match.make_reshape(windows, rows),
        match.make("Gemm", (rows, matrix, *bias), flat, transB=1),
        match.make_reshape(flat, found),
        _transposed(match, found, y),
    ]


def unary_before_turning(match: Match) -> Result:
    """What is computed element by element comes right after the product, with which libraries fuse it."""
    product, found, turned, y = match["product"], match["found"], match["turned"], match.output
    early, places = (Value(f"{y.name}~{v.name}", v.type) for v in (product, found))
    nodes = [match.producers[found], match.producers[turned]]
    return [
        replace(match.root, inputs=(product,), outputs=(early,)),
        replace(nodes[0], inputs=(early, *nodes[0].inputs[1:]), outputs=(places,)),
        replace(nodes[1], inputs=(places,), outputs=(y,)),
    ]


def _of_each(images: Value) -> tuple[int, ...] | None:
    """The sizes of each of them, if they are known; how many there are may be open."""
    known = None if not images.sizes else [n for n in images.sizes[1:] if isinstance(n, int)]
    return tuple(known) if known is not None and len(known) + 1 == images.rank else None


def _transposed(match: Match, x: Value, y: Value) -> Node:
    """Channels behind the line, or before it."""
    return match.make("Transpose", (x,), y, perm=[0, 2, 1])


def _taps(
    node: Node, given: Sequence[int], weight: Sequence[int], result: Sequence[int]
) -> list[list[int]] | None:
    """Along each axis the taps that meet an input, if there is one position and they meet all of it."""
    axes = len(given) - 1
    if axes < 1 or len(weight) != len(given) + 1 or weight[1] != given[0]:  # in groups
        return None
    view = NodeView(node)
    pads, dilations = view.ints("pads") or [0] * 2 * axes, view.ints("dilations") or [1] * axes
    if view.text("auto_pad") != "NOTSET" or 0 in (*given, *weight) or any(n != 1 for n in result[1:]):
        return None
    if not window_fits(view, (None, *given), weight[2:]):
        return None
    taps = []
    for k in range(axes):
        places = [t * dilations[k] - pads[k] for t in range(weight[k + 2])]
        meeting = [t for t, place in enumerate(places) if 0 <= place < given[k + 1]]
        if len(meeting) != given[k + 1]:
            return None
        taps.append(meeting)
    return taps
