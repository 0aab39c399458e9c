"""Nodes that ask for shapes, change them, and move elements about."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.robustness.building import Graph, Rejected, Value
from tests.robustness.elementwise import axes_of
from tests.robustness.values import DTYPES, FLOATS, draw

ANY = DTYPES
NUMBERS = [d for d in DTYPES if d not in {"bool", "string"}]


def ints(g: Graph, content: object) -> Value:
    return g.const(content, "int64")


def some(g: Graph, ranks: range) -> Value:
    """A tensor, mostly a float one."""
    return g.tensor(FLOATS if g.shared.chance(0.6) else ANY, ranks)


def axis_of(g: Graph, rank: int) -> int:
    return int(g.rng.integers(-rank, rank))


def shape(g: Graph) -> None:
    x = g.tensor(ANY)
    if g.shared.chance(0.25):
        g.one("Size", x)
    elif g.opset >= 15 and g.shared.chance(0.3):
        g.one(
            "Shape",
            x,
            start=int(g.rng.integers(-2, 3)),
            **({"end": int(g.rng.integers(-2, 4))} if g.shared.chance(0.5) else {}),
        )
    else:
        g.one("Shape", x)


def dimension(g: Graph) -> None:
    """A size as a scalar, or as one element, and perhaps arithmetic on it."""
    x = g.tensor(ANY, range(1, 5))
    sizes = g.one("Shape", x)
    index = axis_of(g, g.rank(x))
    size = g.one("Gather", sizes, ints(g, index if g.shared.chance(0.6) else [index]))
    if g.shared.chance(0.5):
        g.one(g.shared.pick(["Add", "Mul", "Sub"]), size, ints(g, g.shared.pick([1, 2])))


def reshape(g: Graph) -> None:
    x = some(g, range(5))
    shapes = g.shapes(x)
    choice = g.rng.random()
    if choice < 0.3:
        target = [-1]
    elif choice < 0.5:
        target = [*([0] * (g.rank(x) - 1)), -1, *([1] * int(g.rng.integers(0, 2)))]
    else:
        sizes = {int(np.prod(s)) for s in shapes}
        unit = int(np.gcd.reduce(list(sizes))) or 1
        divisors = [d for d in range(1, 9) if unit % d == 0]
        first = g.shared.pick(divisors)
        rest = [d for d in divisors if unit % (d * first) == 0]
        target = g.shared.pick([[first, -1], [-1, first], [first, g.shared.pick(rest), -1]])
    extra = {"allowzero": 1} if g.opset >= 14 and g.shared.chance(0.1) and 0 not in target else {}
    g.one("Reshape", x, ints(g, target), **extra)


def reshape_by_shape(g: Graph) -> None:
    """What exporters write: sizes taken from a shape, put together anew."""
    x = some(g, range(2, 5))
    rank = g.rank(x)
    sizes = g.one("Shape", x)
    axis = int(g.rng.integers(0, rank))
    part = g.one("Slice", sizes, ints(g, [axis]), ints(g, [axis + 1]), ints(g, [0]))
    pieces = [part, ints(g, [-1])]
    if g.shared.chance(0.3):
        pieces.insert(int(g.rng.integers(3)), ints(g, [1]))
    if g.shared.chance(0.5):
        pieces.reverse()
    g.one("Reshape", x, g.add("Concat", pieces, axis=0)[0])


def flatten(g: Graph) -> None:
    x = some(g, range(5))
    g.one("Flatten", x, axis=int(g.rng.integers(0, g.rank(x) + 1)))


def squeeze(g: Graph) -> None:
    x = some(g, range(1, 6))
    ones = [k for k in range(g.rank(x)) if all(s[k] == 1 for s in g.shapes(x))]
    if not ones:
        return unsqueeze(g)
    axes = [k - g.rank(x) * g.shared.chance(0.3) for k in ones if g.shared.chance(0.7)] or ones[:1]
    if g.shared.chance(0.1) and all(sum(d == 1 for d in s) == len(ones) for s in g.shapes(x)):
        g.one("Squeeze", x)
    elif g.opset >= 13:
        g.one("Squeeze", x, ints(g, axes))
    else:
        g.one("Squeeze", x, axes=axes)
    return None


def unsqueeze(g: Graph) -> None:
    x = some(g, range(4))
    count = g.shared.pick([1, 1, 2])
    rank = g.rank(x) + count
    axes = [int(k) - rank * g.shared.chance(0.3) for k in g.rng.permutation(rank)[:count]]
    if g.opset >= 13:
        g.one("Unsqueeze", x, ints(g, axes))
    else:
        g.one("Unsqueeze", x, axes=sorted(k % rank for k in axes))


def transpose(g: Graph) -> None:
    x = some(g, range(5))
    g.one(
        "Transpose",
        x,
        **(
            {"perm": [int(k) for k in g.rng.permutation(g.rank(x))]}
            if g.shared.chance(0.8) and g.rank(x)
            else {}
        ),
    )


def concat(g: Graph) -> None:
    x = some(g, range(1, 5))
    rank = g.rank(x)
    axis = int(g.rng.integers(rank))

    def fits(v: Value) -> bool:
        return (
            v.kind == x.kind
            and g.rank(v) == rank
            and all(
                a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]
                for a, b in zip(g.shapes(x), g.shapes(v), strict=True)
            )
        )

    several = [x, *(g.choose(fits) for _ in range(int(g.rng.integers(0, 3))))]
    if (sizes := g.fixed(x)) and g.shared.chance(0.3):
        sizes = (*sizes[:axis], int(g.rng.integers(0, 3)), *sizes[axis + 1 :])
        several.append(g.const(draw(g.rng, x.dtype, sizes), x.dtype))
    g.add(
        "Concat",
        [several[int(k)] for k in g.rng.permutation(len(several))],
        axis=axis - rank * g.shared.chance(0.3),
    )


def split(g: Graph) -> None:
    x = some(g, range(1, 5))
    axis = axis_of(g, g.rank(x))
    size = g.size(x, axis)
    if size >= 1 and g.shared.chance(0.6):
        cuts = sorted(int(k) for k in g.rng.integers(0, size + 1, int(g.rng.integers(1, 3))))
        parts = np.diff([0, *cuts, size]).tolist()
        wanted = [True] * len(parts)
        if g.opset >= 13:
            g.add("Split", [x, ints(g, parts)], wanted, axis=axis)
        else:
            g.add("Split", [x], wanted, axis=axis, split=parts)
    else:
        count = g.shared.pick([1, 2, 3])
        g.add("Split", [x], count, axis=axis, **({"num_outputs": count} if g.opset >= 18 else {}))


def slice_(g: Graph) -> None:
    x = some(g, range(1, 5))
    rank = g.rank(x)
    count = int(g.rng.integers(1, min(rank, 2) + 1))
    axes = [int(k) - rank * g.shared.chance(0.3) for k in g.rng.permutation(rank)[:count]]
    steps = [int(g.shared.pick([1, 1, 1, 2, -1, -2])) for _ in axes]
    starts = [int(g.rng.integers(-4, 4)) if s > 0 else int(g.shared.pick([-1, 3, 2**31])) for s in steps]
    ends = [
        int(g.shared.pick([1, 2, 5, -1, 2**31, 2**63 - 1]))
        if s > 0
        else int(g.shared.pick([0, -(2**31), -(2**63)]))
        for s in steps
    ]
    kind = "int64" if g.shared.chance(0.8) or max(map(abs, starts + ends)) >= 2**31 else "int32"
    parameters: list[Value | None] = [g.const(starts, kind), g.const(ends, kind), g.const(axes, kind)]
    if steps != [1] * count or g.shared.chance(0.4):
        parameters.append(g.const(steps, kind))
    if axes == [0] and len(parameters) == 3 and g.shared.chance(0.5):
        parameters.pop()
    g.one("Slice", x, *parameters)


def slice_by_value(g: Graph) -> None:
    x = some(g, range(1, 4))
    bound = g.tensor(["int64"], [0, 1], lambda v: g.fixed(v) in {(), (1,)})
    if g.rank(bound) == 0:
        bound = g.one("Reshape", bound, ints(g, [1]))
    pair = [bound, ints(g, [2**31 - 1])] if g.shared.chance(0.5) else [ints(g, [0]), bound]
    g.one("Slice", x, *pair, ints(g, [int(g.rng.integers(g.rank(x)))]))


def pad(g: Graph) -> None:
    x = g.tensor(
        FLOATS if g.shared.chance(0.8) or g.opset < 13 else ["int64", "int32", "uint8", "int8", "bool"],
        range(1, 5),
    )
    rank = g.rank(x)
    mode = g.shared.pick(["constant"] * 4 + ["reflect", "edge"] + ["wrap"] * (g.opset >= 19))
    low = -1 if mode == "constant" and g.shared.chance(0.15) else 0
    pads = [int(k) for k in g.rng.integers(low, 3, 2 * rank) * (g.rng.random(2 * rank) < 0.5)]
    if mode in {"reflect", "wrap"} and any(min(s) < 3 for s in g.shapes(x)):
        raise Rejected("too small to be mirrored")
    value = (
        g.const(draw(g.rng, x.dtype, ()), x.dtype) if mode == "constant" and g.shared.chance(0.6) else None
    )
    g.one(
        "Pad",
        x,
        ints(g, pads),
        value,
        **({"mode": mode} if mode != "constant" or g.shared.chance(0.3) else {}),
    )


def tile(g: Graph) -> None:
    x = some(g, range(1, 4))
    g.one("Tile", x, ints(g, g.rng.integers(0 if g.shared.chance(0.1) else 1, 3, g.rank(x))))


def small(g: Graph, v: Value, top: int = 6) -> bool:
    """Whether it may be used as sizes: integers from 0 on, known for all iterations."""
    return not v.volatile and all(
        not isinstance(d, np.ndarray) or bool(((d >= 0) & (d <= top)).all() and d.size <= 4) for d in v.data
    )


def expand(g: Graph) -> None:
    x = some(g, range(4))
    if g.shared.chance(0.5):
        target = g.tensor(["int64"], [1], lambda v: small(g, v))
    else:
        target = ints(g, g.rng.integers(1, 4, int(g.rng.integers(0, 4))))
    g.one("Expand", x, target)


def filled(g: Graph) -> None:
    sizes = (
        g.tensor(["int64"], [1], lambda v: small(g, v))
        if g.shared.chance(0.6)
        else ints(g, g.rng.integers(0, 4, int(g.rng.integers(0, 4))))
    )
    dtype = g.shared.pick(["float32", "float32", "int64", "bool", "int32", "float64"])
    g.one(
        "ConstantOfShape",
        sizes,
        **({"value": numpy_helper.from_array(draw(g.rng, dtype, (1,)), "")} if g.shared.chance(0.7) else {}),
    )


def range_(g: Graph) -> None:
    if g.shared.chance(0.6):
        limit = g.tensor(["int64"], [0], lambda v: small(g, v, 12))
        start = ints(g, g.shared.pick([0, 0, 1, -2]))
        g.one("Range", start, limit, ints(g, g.shared.pick([1, 1, 2])))
    else:
        dtype = g.shared.pick(["float32", "int32", "int64"])
        start, limit, delta = g.shared.pick([(0, 4, 1), (5, 0, -2), (3, 3, 1), (0, 3, -1)])
        g.one("Range", *(g.const(k, dtype) for k in (start, limit, delta)))


def depth(g: Graph) -> None:
    x = g.tensor(FLOATS, [4])
    b = 2
    op = g.shared.pick(["DepthToSpace", "SpaceToDepth"])
    g.one(
        op,
        x,
        blocksize=b,
        **({"mode": g.shared.pick(["DCR", "CRD"])} if op == "DepthToSpace" and g.shared.chance(0.7) else {}),
    )


def trilu(g: Graph) -> None:
    if g.opset < 14:
        raise Rejected("since 14")
    x = g.tensor(["float32", "float32", "int64", "float64"], range(2, 5))
    k = ints(g, int(g.rng.integers(-2, 3))) if g.shared.chance(0.5) else None
    g.one("Trilu", x, k, upper=int(g.rng.integers(2)))


def cumsum(g: Graph) -> None:
    x = g.tensor(["float32", "float64", "int64", "int32"], range(1, 5))
    axis = g.const(axis_of(g, g.rank(x)), g.shared.pick(["int64", "int32"]))
    g.one(
        "CumSum",
        x,
        axis,
        **(
            {"exclusive": int(g.rng.integers(2)), "reverse": int(g.rng.integers(2))}
            if g.shared.chance(0.6)
            else {}
        ),
    )


def eye(g: Graph) -> None:
    x = g.tensor(["float32", "int64", "int32", "float64"], [2])
    g.one("EyeLike", x, k=int(g.rng.integers(-2, 3)))


def center(g: Graph) -> None:
    if g.opset < 18:
        raise Rejected("since 18")
    x = g.tensor(["float32", "int64"], range(1, 4))
    axes = axes_of(g, g.rank(x)) or [0]
    g.one("CenterCropPad", x, ints(g, g.rng.integers(1, 5, len(axes))), axes=axes)


FAMILIES = [
    (4, shape),
    (6, dimension),
    (7, reshape),
    (3, reshape_by_shape),
    (2, flatten),
    (5, squeeze),
    (5, unsqueeze),
    (6, transpose),
    (6, concat),
    (5, split),
    (7, slice_),
    (2, slice_by_value),
    (4, pad),
    (3, tile),
    (5, expand),
    (3, filled),
    (4, range_),
    (2, depth),
    (2, trilu),
    (3, cumsum),
    (1, eye),
    (1, center),
]
