"""The length of complex numbers whose parts stand one after the other is one reduction.

%a = Slice(%x: [1,258,4], 0:129); %b = Slice(%x, 129:258); %y = Sqrt(Add(Pow(%a, 2), Pow(%b, 2)))
    ->   %p = Reshape(%x, [1,2,129,4]); %y = ReduceL2(%p, axis 1)
"""

from __future__ import annotations

import numpy as np

from anydml.ir.graph import TensorType, Value
from anydml.onnx.rewrites.matcher import Match, Result


def reduce_parts(match: Match) -> Result:
    x, y = match["x"], match.output
    (axis, first), (other, second) = (_half(match, name) or (None, 0) for name in ("first", "second"))
    sizes = x.known_sizes
    if axis is None or axis != other or {first, second} != {0, 1} or sizes is None or 0 in sizes:
        return None
    if y.known_sizes != (*sizes[:axis], sizes[axis] // 2, *sizes[axis + 1 :]):  # an exponent of rank above it
        return None
    halves = (*sizes[:axis], 2, sizes[axis] // 2, *sizes[axis + 1 :])
    pair = Value(f"{y.name}~pair", TensorType(y.tensor.dtype, halves))
    rows = match.make_reshape(x, pair)
    if match.opset < 18:
        return [rows, match.make("ReduceL2", [pair], y, keepdims=0, axes=[axis])]
    axes = match.make_constant(f"{y.name}~axes", np.array([axis]))
    return [rows, match.make("ReduceL2", [pair, axes], y, keepdims=0)]


def _half(match: Match, name: str) -> tuple[int, int] | None:
    """Along which axis a Slice is a half of x, and which of the two: 0 or 1."""
    told, sizes = match.producers[match[name]].inputs[1:], match["x"].known_sizes
    numbers = [match.constants[v].content.reshape(-1).tolist() for v in told if v in match.constants]
    if sizes is None or len(numbers) != len(told) or any(len(n) != 1 for n in numbers):
        return None
    start, end, axis, step = [n for (n,) in numbers] + [1] * (4 - len(numbers))
    axis %= len(sizes)
    size = sizes[axis]
    places = slice(start, end, step).indices(size)
    halves = {(0, size // 2, 1): 0, (size // 2, size, 1): 1}
    return None if size % 2 or places not in halves else (axis, halves[places])
