"""A convolution that fits into its input once is a matrix product, without the taps that meet only padding.

%y = Conv(%x: [1,64,2], %w: [128,64,3]), pads 1, strides 2: one position, where taps 1 and 2 meet %x
    ->   %a = Reshape(%x, [1,128]); %b = Gemm(%a, %w[:,:,1:3] as [128,128], transposed); %y = Reshape(%b, ...)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ir.graph import Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.ops.windows import window_fits
from anydml.onnx.rewrites.matcher import Match, Result

MAX_WEIGHT = 1 << 22
"""Elements of a weight that is copied for this."""


def multiply_matrices(match: Match) -> Result:
    x, w, y, bias = match["x"], match["weight"], match.output, match.root.inputs[2:]
    given, weight, result = x.known_sizes, w.known_sizes, y.known_sizes
    if given is None or weight is None or result is None:
        return None
    taps = _taps(match.root, given, weight, result)
    if taps is None or prod(weight) > MAX_WEIGHT:
        return None
    columns, dtype = prod(given[1:]), x.tensor.dtype

    def product(content: NDArray[Any]) -> NDArray[Any]:
        used = content[np.ix_(range(weight[0]), range(weight[1]), *taps)]
        return np.ascontiguousarray(used.reshape(weight[0], columns))

    matrix = Value(f"{y.name}~matrix", TensorType(dtype, (weight[0], columns)))
    match.constants[matrix] = match.constants[w].derive(("taps", *map(tuple, taps)), product)
    rows = Value(f"{y.name}~rows", TensorType(dtype, (given[0], columns)))
    flat = Value(f"{y.name}~flat", TensorType(dtype, (given[0], weight[0])))
    return [
        match.make_reshape(x, rows),
        match.make("Gemm", (rows, matrix, *bias), flat, transB=1),
        match.make_reshape(flat, y),
    ]


def _taps(
    node: Node, given: Sequence[int], weight: Sequence[int], result: Sequence[int]
) -> list[list[int]] | None:
    """Along each axis the taps that meet the input, if there is one position and they meet all of it."""
    axes = len(given) - 2
    if axes < 1 or len(weight) != len(given) or weight[1] != given[1]:  # in groups
        return None
    view = NodeView(node)
    pads, dilations = view.ints("pads") or [0] * 2 * axes, view.ints("dilations") or [1] * axes
    if view.text("auto_pad") != "NOTSET" or 0 in (*given, *weight) or any(n != 1 for n in result[2:]):
        return None
    if not window_fits(view, given, weight[2:]):
        return None
    taps = []
    for k in range(axes):
        places = [t * dilations[k] - pads[k] for t in range(weight[k + 2])]
        meeting = [t for t, place in enumerate(places) if 0 <= place < given[k + 2]]
        if len(meeting) != given[k + 2]:
            return None
        taps.append(meeting)
    return taps
