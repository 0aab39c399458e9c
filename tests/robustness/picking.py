"""Nodes that pick elements by index, sort them, count them or write them."""

from __future__ import annotations

import numpy as np

from tests.robustness.building import Attributes, Graph, Rejected, Value
from tests.robustness.shapes import NUMBERS, axis_of, ints, some
from tests.robustness.values import draw


def index_type(g: Graph) -> str:
    return str(g.shared.pick(["int64", "int64", "int32"]))


def lowest(g: Graph, x: Value, axis: int) -> int:
    """The least size on the live feeds, so that indices below fit; Rejected where it is 0."""
    size = min(s[axis] for s in g.shapes(x))
    if size == 0:
        raise Rejected("nothing to pick from")
    return size


def gather(g: Graph) -> None:
    x = some(g, range(1, 5))
    axis = axis_of(g, g.rank(x))
    if g.shared.chance(0.25):
        index = g.tensor(["int64", "int32"], range(3))
    else:
        size = lowest(g, x, axis)
        sizes = g.shared.pick([(), (), (1,), (2,), (2, 2), (0,)])
        index = g.const(g.rng.integers(-size, size, sizes), index_type(g))
    g.one("Gather", x, index, **({"axis": axis} if axis != 0 or g.shared.chance(0.5) else {}))


def gather_elements(g: Graph) -> None:
    x = some(g, range(1, 4))
    rank = g.rank(x)
    axis = int(g.rng.integers(rank))
    size = lowest(g, x, axis)
    low = [lowest(g, x, k) for k in range(rank)]
    if g.fixed(x) is None or g.shared.chance(0.2):
        low = [int(g.rng.integers(1, s + 1)) for s in low]
    low[axis] = int(g.rng.integers(1, 4))
    index = g.const(g.rng.integers(-size, size, low), index_type(g))
    g.one("GatherElements", x, index, axis=axis - rank * g.shared.chance(0.3))


def places(g: Graph, x: Value, unique: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Indices as GatherND and ScatterND have them."""
    rank = g.rank(x)
    depth = int(g.rng.integers(1, rank + 1))
    sizes = [lowest(g, x, k) for k in range(depth)]
    every = np.stack([i.ravel() for i in np.indices(sizes)], -1)
    chosen = g.rng.choice(len(every), min(len(every), int(g.rng.integers(1, 4))), replace=not unique)
    return np.asarray(every[chosen], np.int64)


def gather_nd(g: Graph) -> None:
    x = some(g, range(1, 5))
    at = places(g, x, unique=False)
    if g.shared.chance(0.3):
        at = at[:, None, :]
    g.one("GatherND", x, ints(g, at))


def scatter_nd(g: Graph) -> None:
    x = some(g, range(1, 4))
    sizes = g.fixed(x)
    if sizes is None:
        raise Rejected("updates need sizes")
    at = places(g, x, unique=True)
    updates = g.const(draw(g.rng, x.dtype, (len(at), *sizes[at.shape[1] :])), x.dtype)
    extra = {}
    if x.dtype in NUMBERS and g.shared.chance(0.4) and g.opset >= 16:
        extra["reduction"] = g.shared.pick(["add", "mul"] + ["min", "max"] * (g.opset >= 18))
    g.one("ScatterND", x, ints(g, at), updates, **extra)


def scatter_elements(g: Graph) -> None:
    x = some(g, range(1, 4))
    rank = g.rank(x)
    axis = int(g.rng.integers(rank))
    size = lowest(g, x, axis)
    sizes = [1 if k == axis else int(g.rng.integers(1, lowest(g, x, k) + 1)) for k in range(rank)]
    index = g.const(g.rng.integers(-size, size, sizes), index_type(g))
    extra = {}
    if x.dtype in NUMBERS and g.shared.chance(0.4) and g.opset >= 16:
        extra["reduction"] = g.shared.pick(["add", "mul"] + ["min", "max"] * (g.opset >= 18))
    updates = g.const(draw(g.rng, x.dtype, tuple(sizes)), x.dtype)
    g.one("ScatterElements", x, index, updates, axis=axis - rank * g.shared.chance(0.3), **extra)


def one_hot(g: Graph) -> None:
    index = g.tensor(["int64", "int32", "float32"], range(3))
    rank = g.rank(index) + 1
    dtype = g.shared.pick(["float32", "float32", "int64", "int32"])
    deep = ints(g, g.shared.pick([1, 3, [4]]))
    g.one(
        "OneHot", index, deep, g.const(draw(g.rng, dtype, (2,)), dtype), axis=int(g.rng.integers(-rank, rank))
    )


def nonzero(g: Graph) -> None:
    g.one("NonZero", g.tensor(["float32", "int64", "bool", "int32", "uint8"], range(1, 4)))


def compress(g: Graph) -> None:
    x = some(g, range(1, 4))
    axis = axis_of(g, g.rank(x))
    if g.shared.chance(0.5):
        condition = g.tensor(["bool"], [1])
    else:
        condition = g.const(g.rng.random(lowest(g, x, axis)) < 0.6, "bool")
    g.one("Compress", x, condition, **({"axis": axis} if g.shared.chance(0.7) else {}))


def top(g: Graph) -> None:
    x = g.tensor(["float32", "float32", "float64", "int64", "int32"], range(1, 4))
    axis = axis_of(g, g.rank(x))
    k = int(g.rng.integers(0 if g.shared.chance(0.1) else 1, lowest(g, x, axis) + 1))
    largest = int(g.rng.integers(2))
    g.add("TopK", [x, ints(g, [k])], 2, axis=axis, largest=largest, sorted=1)


def unique(g: Graph) -> None:
    x = g.tensor(["float32", "int64", "string", "int8", "float64"], range(1, 3))
    wanted = g.shared.pick([[True], [True, True, True, True], [True, False, True, False]])
    axis: Attributes = {"sorted": 1}
    # Along an axis of a tensor without elements, onnxruntime ends the process.
    if (
        g.shared.chance(0.3)
        and x.dtype != "string"
        and all(0 not in d.shape for d in g.of(x))
        and not x.volatile
    ):
        axis["axis"] = axis_of(g, g.rank(x))
    g.add("Unique", [x], wanted, **axis)


def reverse(g: Graph) -> None:
    x = g.tensor(["float32", "int64", "string", "bool"], range(2, 5))
    if any(isinstance(d, np.ndarray) and d.ndim < 2 for d in x.data):
        raise Rejected("another rank ends the process in onnxruntime")
    batch = g.size(x, 1)
    if batch < 1:
        raise Rejected("as many lengths as batches")
    lengths = ints(g, g.rng.integers(1, lowest(g, x, 0) + 1, batch))
    g.one("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


def resize(g: Graph) -> None:
    x = g.tensor(["float32"], [4])
    if min(min(s) for s in g.shapes(x)) == 0:
        raise Rejected("nothing to resize")
    scales = g.const([1, 1, *g.rng.choice([1, 2, 0.5, 3], 2)], "float32")
    mode = g.shared.pick(["nearest", "linear"])
    how = g.shared.pick(["asymmetric", "half_pixel", "align_corners"])
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    g.one(
        "Resize",
        x,
        None if g.opset >= 13 else g.const(np.zeros(0, np.float32)),
        scales,
        mode=mode,
        coordinate_transformation_mode=how,
        **extra,
    )


def suppress(g: Graph) -> None:
    boxes = g.const(np.abs(draw(g.rng, "float32", (1, 5, 4))).cumsum(-1), "float32")
    scores = g.const(g.rng.permutation(10).reshape(1, 2, 5) / 8, "float32")
    g.one(
        "NonMaxSuppression",
        boxes,
        scores,
        ints(g, [2]),
        g.const([0.5], "float32"),
        g.const([0.25], "float32"),
    )


def strings(g: Graph) -> None:
    ops = ["Equal", "StringNormalizer", "Gather"] + ["StringConcat", "RegexFullMatch", "StringSplit"] * (
        g.opset >= 20
    )
    op = g.shared.pick(ops)
    x = g.tensor(["string"], [1] if op == "StringNormalizer" else range(4))
    if op == "Equal":
        g.one(op, x, g.const("a", "string"))
    elif op == "StringNormalizer":
        g.one(op, x, case_change_action=g.shared.pick(["UPPER", "LOWER", "NONE"]), is_case_sensitive=1)
    elif op == "StringConcat":
        g.one(op, x, g.const("-", "string"))
    elif op == "RegexFullMatch":
        g.one(op, x, pattern=g.shared.pick(["a*", "[a-z]+", ".*b.*"]))
    elif op == "StringSplit":
        g.add(op, [x], 2, delimiter=g.shared.pick([" ", "a"]))
    else:
        g.one("Identity", x)


FAMILIES = [
    (8, gather),
    (3, gather_elements),
    (3, gather_nd),
    (3, scatter_nd),
    (3, scatter_elements),
    (3, one_hot),
    (2, nonzero),
    (2, compress),
    (3, top),
    (2, unique),
    (1, reverse),
    (2, resize),
    (0.5, suppress),
    (3, strings),
]
