"""Sequences and optionals."""

from __future__ import annotations

from tests.robustness.building import Attributes, Graph, Rejected, Value
from tests.robustness.shapes import axis_of, ints
from tests.robustness.values import CODES, Kind


def sequence(g: Graph) -> Value:
    return g.choose(lambda v: v.kind.wraps == ("seq",))


def fewest(g: Graph, s: Value) -> int:
    return min(len(d) for d in g.of(s))


def construct(g: Graph) -> None:
    x = g.tensor(["float32", "float32", "int64", "string", "bool"])
    several = [x, *(g.choose(lambda v: v.kind == x.kind) for _ in range(int(g.rng.integers(0, 3))))]
    g.add("SequenceConstruct", several)


def empty(g: Graph) -> None:
    dtype = g.shared.pick(["float32", "float32", "int64", "string"])
    g.one("SequenceEmpty", **({"dtype": CODES[dtype]} if dtype != "float32" or g.shared.chance(0.5) else {}))


def insert(g: Graph) -> None:
    s = sequence(g)
    x = g.choose(lambda v: v.kind == Kind(s.dtype))
    at = ints(g, int(g.rng.integers(-fewest(g, s), fewest(g, s) + 1))) if g.shared.chance(0.6) else None
    g.one("SequenceInsert", s, x, at)


def at(g: Graph) -> None:
    s = sequence(g)
    if not fewest(g, s):
        raise Rejected("nothing in it")
    g.one("SequenceAt", s, ints(g, int(g.rng.integers(-fewest(g, s), fewest(g, s)))))


def erase(g: Graph) -> None:
    s = sequence(g)
    if not fewest(g, s):
        raise Rejected("nothing in it")
    g.one(
        "SequenceErase",
        s,
        ints(g, int(g.rng.integers(-fewest(g, s), fewest(g, s)))) if g.shared.chance(0.6) else None,
    )


def length(g: Graph) -> None:
    g.one("SequenceLength", sequence(g))


def split_to(g: Graph) -> None:
    x = g.tensor(["float32", "int64"], range(1, 4))
    axis = axis_of(g, g.rank(x))
    parts = [ints(g, g.shared.pick([1, 2]))] if g.shared.chance(0.5) else []
    extra: Attributes = {"axis": axis} if parts else {"axis": axis, "keepdims": int(g.rng.integers(2))}
    g.add("SplitToSequence", [x, *parts], 1, **extra)


def concat_from(g: Graph) -> None:
    s = sequence(g)
    if not fewest(g, s):
        raise Rejected("nothing in it")
    if g.shared.chance(0.5):
        g.one("ConcatFromSequence", s, axis=0, new_axis=1)
    else:
        g.one("ConcatFromSequence", s, axis=0)


def optional(g: Graph) -> None:
    if g.opset < 15:
        raise Rejected("since 15")
    x = g.choose(lambda v: v.kind.wraps in {(), ("seq",)} and v.dtype in {"float32", "int64"})
    o = g.one("Optional", x)
    if g.shared.chance(0.3) or (g.opset < 18 and not o.kind.wraps):
        return
    g.one(g.shared.pick(["OptionalGetElement", "OptionalHasElement"]), o)


def from_optional(g: Graph) -> None:
    o = g.choose(lambda v: v.kind.wraps[:1] == ("optional",))
    g.one(g.shared.pick(["OptionalGetElement", "OptionalHasElement"]), o)


FAMILIES = [
    (4, construct),
    (1, empty),
    (4, insert),
    (6, at),
    (3, erase),
    (3, length),
    (3, split_to),
    (4, concat_from),
    (2, optional),
    (2, from_optional),
]
