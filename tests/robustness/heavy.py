"""Matrix products, convolutions, pooling, normalisations and quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.robustness.building import Graph, Rejected, Value
from tests.robustness.elementwise import known_like
from tests.robustness.shapes import axis_of, ints
from tests.robustness.values import draw

REAL = ["float32", "float32", "float64"]


def full(g: Graph, v: Value) -> bool:
    """Without sizes of 0, on which onnxruntime's products give garbage."""
    return all(0 not in d.shape for d in v.data if isinstance(d, np.ndarray)) and not v.volatile


def weights(g: Graph, sizes: tuple[int, ...], dtype: str = "float32") -> Value:
    return g.const(draw(g.rng, dtype, sizes), dtype)


def matmul(g: Graph) -> None:
    a = g.tensor(REAL, range(1, 5), lambda v: full(g, v))
    inner = g.size(a, -1)
    if g.shared.chance(0.4):

        def fits(v: Value) -> bool:
            return (
                v.kind == a.kind
                and g.rank(v) >= 1
                and full(g, v)
                and all(s[-1] == t[max(len(t) - 2, 0)] for s, t in zip(g.shapes(a), g.shapes(v), strict=True))
            )

        g.one("MatMul", a, g.choose(fits))
    elif inner > 0:
        columns = int(g.rng.integers(1, 5))
        g.one(
            "MatMul", a, weights(g, g.shared.pick([(inner, columns), (inner,), (2, inner, columns)]), a.dtype)
        )
    else:
        turned = (
            g.one("Transpose", a, perm=[*range(g.rank(a) - 2), g.rank(a) - 1, g.rank(a) - 2])
            if g.rank(a) > 1
            else a
        )
        g.one("MatMul", a, turned)


def gemm(g: Graph) -> None:
    a = g.tensor(REAL, [2], lambda v: full(g, v))
    by = g.shared.chance(0.3)
    inner = g.size(a, 0 if by else 1)
    if inner < 1:
        raise Rejected("a size that changes")
    columns, turned = int(g.rng.integers(1, 5)), g.shared.chance(0.5)
    b = weights(g, (columns, inner) if turned else (inner, columns), a.dtype)
    c = weights(g, g.shared.pick([(columns,), (1, columns), ()]), a.dtype) if g.shared.chance(0.7) else None
    extra: dict[str, Any] = {"transA": int(by), "transB": int(turned)}
    if g.shared.chance(0.4):
        extra |= {"alpha": 0.5, "beta": 2.0}
    g.one("Gemm", a, b, c, **extra)


def einsum(g: Graph) -> None:
    if g.opset < 12:
        raise Rejected("since 12")
    a = g.tensor(["float32"], [2, 3], lambda v: full(g, v))
    if any(isinstance(d, np.ndarray) and d.ndim != g.rank(a) for d in a.data):
        raise Rejected("another rank ends the process in onnxruntime")
    if g.rank(a) == 2:
        g.one("Einsum", a, a, equation=g.shared.pick(["ij,kj->ik", "ij,ij->ij", "ij,ij->", "ij,ik->jk"]))
    else:
        g.one("Einsum", a, a, equation=g.shared.pick(["bij,bkj->bik", "...ij,...ij->...i", "bij,bij->b"]))


def integer_product(g: Graph) -> None:
    a = g.tensor(["uint8", "int8"], [2], lambda v: full(g, v))
    inner = g.size(a, 1)
    if inner < 1:
        raise Rejected("a size that changes")
    b = g.const(draw(g.rng, "uint8", (inner, 3)), "uint8")
    points = [g.const(1, a.dtype), g.const(2, "uint8")] if g.shared.chance(0.6) else []
    g.one("MatMulInteger", a, b, *points)


def picture(g: Graph, rank: int) -> Value:
    """A tensor of the rank with a fixed number of channels and sizes that are not 0; made if need be."""
    found = [
        v
        for v in g.visible()
        if v.tensor and v.dtype == "float32" and g.rank(v) == rank and full(g, v) and g.size(v, 1) > 0
    ]
    if found:
        return g.shared.pick(found)  # type: ignore[no-any-return]
    x = g.tensor(["float32"], range(1, rank), lambda v: full(g, v))
    missing = rank - g.rank(x)
    axes = list(range(missing)) if missing > 1 else [1]
    return g.one("Unsqueeze", x, ints(g, axes)) if g.opset >= 13 else g.one("Unsqueeze", x, axes=axes)


def convolution(g: Graph) -> None:
    rank = g.shared.pick([3, 4, 4])
    x = picture(g, rank)
    channels = g.size(x, 1)
    if channels < 1 or channels > 8:
        raise Rejected("channels that change")
    kernel = [int(k) for k in g.rng.integers(1, 4, rank - 2)]
    turned = g.shared.chance(0.25)
    group = channels if g.shared.chance(0.2) else 1
    out = int(g.rng.integers(1, 4))
    sizes = (channels, out, *kernel) if turned else (out * group, channels // group, *kernel)
    bias = weights(g, (out * group,)) if g.shared.chance(0.6) else None
    extra: dict[str, Any] = {"group": group} if group > 1 or g.shared.chance(0.2) else {}
    if g.shared.chance(0.5):
        extra["strides"] = [int(k) for k in g.rng.integers(1, 3, rank - 2)]
    if g.shared.chance(0.5):
        extra["pads"] = [int(k) for k in g.rng.integers(0, 2, 2 * (rank - 2))]
    elif g.shared.chance(0.2):
        extra["auto_pad"] = g.shared.pick(["SAME_UPPER", "VALID"])
    elif g.shared.chance(0.2):
        extra["dilations"] = [int(k) for k in g.rng.integers(1, 3, rank - 2)]
    if g.shared.chance(0.5):
        extra["kernel_shape"] = kernel
    if turned:
        extra.pop("auto_pad", None)
    g.one("ConvTranspose" if turned else "Conv", x, weights(g, sizes), bias, **extra)


def pool(g: Graph) -> None:
    rank = g.shared.pick([3, 4, 4])
    x = picture(g, rank)
    op = g.shared.pick(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool"])
    if op.startswith("Global"):
        g.one(op, x)
        return
    kernel = [int(k) for k in g.rng.integers(1, 4, rank - 2)]
    extra: dict[str, Any] = {"kernel_shape": kernel}
    if g.shared.chance(0.6):
        extra["strides"] = [int(k) for k in g.rng.integers(1, 3, rank - 2)]
    if g.shared.chance(0.4) and min(kernel) > 1:
        extra["pads"] = [int(k) for k in g.rng.integers(0, 2, 2 * (rank - 2))]
    if op == "AveragePool" and g.shared.chance(0.5):
        extra["count_include_pad"] = 1
    if op != "LpPool" and g.shared.chance(0.2):
        extra["ceil_mode"] = 1
    g.add(op, [x], [True, True] if op == "MaxPool" and g.shared.chance(0.2) else [True], **extra)


def layer_norm(g: Graph) -> None:
    op = g.shared.pick(
        ["LayerNormalization"] * (g.opset >= 17) + ["RMSNormalization"] * (g.opset >= 23) or ["Softplus"]
    )
    x = g.tensor(REAL, range(1, 4), lambda v: full(g, v))
    size = g.size(x, -1)
    if size < 1 or op == "Softplus":
        raise Rejected("not here")
    bias = [weights(g, (size,), x.dtype)] if op == "LayerNormalization" and g.shared.chance(0.7) else []
    g.add(op, [x, weights(g, (size,), x.dtype), *bias], 1, axis=-1, epsilon=0.01)


def channel_norm(g: Graph) -> None:
    x = picture(g, g.shared.pick([3, 4]))
    channels = g.size(x, 1)
    if channels < 1:
        raise Rejected("channels that change")
    op = g.shared.pick(["BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN"])
    scale, bias = weights(g, (channels,)), weights(g, (channels,))
    if op == "BatchNormalization":
        variance = g.const(np.abs(draw(g.rng, "float32", (channels,))) + 0.5, "float32")
        g.one(op, x, scale, bias, weights(g, (channels,)), variance, epsilon=0.01)
    elif op == "InstanceNormalization":
        g.one(op, x, scale, bias, epsilon=0.01)
    elif op == "GroupNormalization" and g.opset >= 21:
        g.one(op, x, scale, bias, num_groups=1 if g.shared.chance(0.5) else channels, epsilon=0.01)
    else:
        g.one("LRN", x, size=3)


def norm(g: Graph) -> None:
    x = g.tensor(["float32"], range(1, 5), lambda v: full(g, v))
    if g.shared.chance(0.7):
        g.one("LpNormalization", x, axis=axis_of(g, g.rank(x)), p=int(g.rng.integers(1, 3)))
    else:
        g.one("MeanVarianceNormalization", x, axes=[axis_of(g, g.rank(x))])


def quantize(g: Graph) -> None:
    x = g.tensor(["float32"])
    dtype = g.shared.pick(["uint8", "int8"])
    rank = g.rank(x)
    axis = int(g.rng.integers(rank)) if rank > 0 else 0
    each = g.opset >= 13 and rank > 0 and g.size(x, axis) > 0 and g.shared.chance(0.3)
    sizes = (g.size(x, axis),) if each else ()
    scale = g.const(g.rng.choice([0.125, 0.25, 0.5], sizes), "float32")
    point = g.const(draw(g.rng, dtype, sizes), dtype) if g.shared.chance(0.7) else None
    extra = {"axis": axis} if each else {}
    q = g.one("QuantizeLinear", x, scale, point, **extra)
    if g.shared.chance(0.6):
        g.one("DequantizeLinear", q, scale, point, **extra)


def dynamic(g: Graph) -> None:
    g.add("DynamicQuantizeLinear", [g.tensor(["float32"], range(1, 4), lambda v: full(g, v))], 3)


def bias(g: Graph) -> None:
    """A product, a bias and an activation, as they stand in networks."""
    a = g.tensor(["float32"], [2, 3], lambda v: full(g, v))
    inner = g.size(a, -1)
    if inner < 1:
        raise Rejected("a size that changes")
    y = g.one("MatMul", a, weights(g, (inner, 3)))
    y = g.one("Add", y, known_like(g, y, 0.0))
    g.one(g.shared.pick(["Relu", "Tanh", "Sigmoid"]), y)


def recurrent(g: Graph) -> None:
    x = g.tensor(["float32"], [3], lambda v: full(g, v))
    size, hidden = g.size(x, 2), 2
    if size < 1:
        raise Rejected("a size that changes")
    op, gates = g.shared.pick([("GRU", 3), ("LSTM", 4), ("RNN", 1)])
    w, r = weights(g, (1, gates * hidden, size)), weights(g, (1, gates * hidden, hidden))
    b = weights(g, (1, 2 * gates * hidden)) if g.shared.chance(0.6) else None
    g.add(op, [x, w, r, b], g.shared.pick([[True, True], [True], [False, True]]), hidden_size=hidden)


def dropout(g: Graph) -> None:
    x = g.tensor(["float32"])
    g.add("Dropout", [x], [True, True] if g.shared.chance(0.3) else [True])


FAMILIES = [
    (8, matmul),
    (4, gemm),
    (3, einsum),
    (2, integer_product),
    (6, convolution),
    (5, pool),
    (3, layer_norm),
    (3, channel_norm),
    (3, norm),
    (4, quantize),
    (1, dynamic),
    (3, bias),
    (2, recurrent),
    (2, dropout),
]
