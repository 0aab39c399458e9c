"""If, Loop and Scan, and what decides them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, TypeProto, helper

from tests.robustness import containers, elementwise, heavy, picking, shapes
from tests.robustness.building import Graph, Rejected, Value
from tests.robustness.oracles import all_names
from tests.robustness.shapes import ints, small
from tests.robustness.values import ABSENT, CODES, FLOATS, Kind, draw

Maker = Callable[[Graph], object]


class Menu:
    """Which makers are drawn how often; every model stresses other families."""

    def __init__(self, rng: np.random.Generator, control: float) -> None:
        groups: list[Sequence[tuple[float, Maker]]] = [
            elementwise.FAMILIES,
            shapes.FAMILIES,
            picking.FAMILIES,
            heavy.FAMILIES,
            containers.FAMILIES,
        ]
        usual = [1.0, 1.0, 0.8, 0.7, 0.35]
        self.makers: list[Maker] = []
        weights: list[float] = []
        for group, share in zip(groups, usual, strict=True):
            factor = share * float(rng.choice([0.2, 1.0, 1.0, 3.0]))
            self.makers += [m for _, m in group]
            weights += [w * factor for w, _ in group]
        total = sum(weights)
        self.makers += [self.if_, self.loop, self.scan]
        weights += [total * control * share for share in (0.65, 0.25, 0.1)]
        self.weights = np.array(weights) / sum(weights)

    def step(self, g: Graph, tries: int = 6) -> None:
        """Adds something, unless everything that is drawn is rejected."""
        for _ in range(tries):
            maker = self.makers[int(g.rng.choice(len(self.makers), p=self.weights))]
            before = len(g.nodes)
            try:
                maker(g)
                return
            except Rejected:
                if len(g.nodes) > before:
                    return

    def steps(self, g: Graph, count: int) -> None:
        for _ in range(count):
            if g.shared.budget > 0:
                self.step(g)

    # ---- If ------------------------------------------------------------------------------------------

    def if_(self, g: Graph) -> None:
        if g.level >= g.shared.depth:
            raise Rejected("deep enough")
        for _ in range(int(g.shared.pick([1, 1, 1, 2]))):
            self.choice(g, condition(g))

    def choice(self, g: Graph, decides: Value) -> None:
        taken = [d is not ABSENT and bool(np.all(d)) for d in decides.data]
        lenient = g.shared.chance(0.5)
        branches: list[GraphProto] = []
        kinds: list[Kind] | None = None
        for way in (True, False):
            live = [alive and (t == way) for alive, t in zip(g.live, taken, strict=True)]
            child = g.child(live if lenient and any(live) else g.live)
            self.steps(child, int(g.rng.integers(0, 5)))
            outputs = results(child, kinds)
            kinds = [v.kind for v in outputs]
            branches.append(finished(child, outputs))
        then, otherwise = branches
        g.nested |= all_names(then) | all_names(otherwise)
        g.add("If", [decides], len(kinds or []), then_branch=then, else_branch=otherwise)

    # ---- Loop ----------------------------------------------------------------------------------------

    def loop(self, g: Graph) -> None:
        if g.level >= g.shared.depth or g.level >= 3:
            raise Rejected("deep enough")
        trips = self.trips(g)
        start = g.shared.pick([None, None, g.const(True), g.const(bool(g.shared.chance(0.8)))])
        if g.shared.chance(0.15):
            start = g.choose(lambda v: single(g, v, "bool") and g.rank(v) == 0)
        states = [
            g.choose(lambda v: v.tensor or (v.kind.wraps == ("seq",) and g.shared.chance(0.5)))
            for _ in range(int(g.rng.integers(0, 4)))
        ]
        child = g.child()
        count = g.shared.count
        turn = bound(child, Kind("int64"), [np.array(0)] * count)
        going = bound(child, Kind("bool"), [np.array(True)] * count)
        inner = [bound(child, s.kind, s.data, s.twin) for s in states]
        self.steps(child, int(g.rng.integers(1, 5)))
        if g.shared.chance(0.25) and child.shared.budget > 0:
            with contextlib.suppress(Rejected):
                self.choice(child, condition(child))
        ends = True
        if trips is None or g.shared.chance(0.2):
            goes_on = child.one("Less", turn, ints(child, int(g.rng.integers(0, 4))))
        elif g.shared.chance(0.25):
            goes_on = condition(child, known=False)
        else:
            ends = False
            goes_on = child.one("Identity", going) if g.shared.chance(0.7) else going
        if goes_on.name not in child.values:
            goes_on = child.one("Identity", goes_on)
        updates = [self.update(child, v) for v in inner]
        scanned = own(child, lambda v: v.tensor)[: int(g.rng.integers(0 if states else 1, 3))]
        if not updates and not scanned:
            raise Rejected("no results")
        body = finished(child, [goes_on, *updates, *scanned], [turn, going, *inner], scalars=2)
        g.nested |= all_names(body)
        if start is None and ends:
            # ONNX says that the body's condition does not count where none is given; the oracles look at it.
            start = g.const(True)
        # Without a turn nothing tells the sizes of what is scanned.
        sized = [len(updates) + k for k, v in enumerate(scanned) if child.rank(v) != 0]
        g.add("Loop", [trips, start, *states], len(updates) + len(scanned), filled=sized, body=body)

    def trips(self, g: Graph) -> Value | None:
        choice = g.rng.random()
        if choice < 0.15:
            return None
        if choice < 0.5:
            found = [v for v in g.visible() if single(g, v, "int64") and small(g, v, 5)]
            if found:
                return g.shared.pick(found)  # type: ignore[no-any-return]
        return ints(g, g.shared.pick([0, 1, 2, 3, 4]) if g.shared.chance(0.9) else [2])

    def update(self, child: Graph, state: Value) -> Value:
        """The next value of a state: of its type, and mostly of its rank."""
        found = own(
            child, lambda v: v.kind == state.kind and v.volatile and child.rank(v) == child.rank(state)
        )
        if found and child.shared.chance(0.6):
            return found[0]
        if state.tensor and child.rank(state) > 0 and child.shared.chance(0.3):
            extra = child.one("Slice", state, ints(child, [0]), ints(child, [1]), ints(child, [0]))
            return child.add("Concat", [state, extra], axis=0)[0]
        if state.tensor and state.dtype in FLOATS and child.shared.chance(0.5):
            return child.one("Add", state, elementwise.known_like(child, state, 0.0))
        if state.kind.wraps == ("seq",) and child.shared.chance(0.6):
            return child.one("SequenceInsert", state, child.choose(lambda v: v.kind == Kind(state.dtype)))
        return child.one("Identity", state) if child.shared.chance(0.6) else state

    # ---- Scan ----------------------------------------------------------------------------------------

    def scan(self, g: Graph) -> None:
        if g.level >= g.shared.depth or g.level >= 2:
            raise Rejected("deep enough")
        first = g.tensor(["float32", "float32", "int64", "float64"], range(1, 4))
        sizes = [s[0] for s in g.shapes(first)]
        several = [first]
        if g.shared.chance(0.3):
            several.append(g.choose(lambda v: g.rank(v) > 0 and [s[0] for s in g.shapes(v)] == sizes))
        states = [g.tensor(["float32", "int64"], range(3)) for _ in range(int(g.rng.integers(0, 3)))]
        live = [a and d is not ABSENT and len(d) > 0 for a, d in zip(g.live, first.data, strict=True)]
        if not any(live):
            raise Rejected("nothing to scan")
        child = g.child(live)
        inner = [bound(child, s.kind, s.data, s.twin) for s in states]
        backwards = [int(g.shared.chance(0.15)) for _ in several]
        slices = [
            bound(child, s.kind, heads(s.data, -b), heads(s.twin, -b))
            for s, b in zip(several, backwards, strict=True)
        ]
        self.steps(child, int(g.rng.integers(1, 4)))
        updates: list[Value] = []
        for value in inner:
            updates.append(self.same(child, value, updates))
        # onnxruntime mixes up a value that is a state and is scanned.
        scanned = own(child, lambda v: v.tensor and v not in updates)[
            : int(g.rng.integers(0 if states else 1, 3))
        ]
        if not updates and not scanned:
            raise Rejected("no results")
        body = finished(child, [*updates, *scanned], [*inner, *slices], ranks=1.0)
        g.nested |= all_names(body)
        extra = {"scan_input_directions": backwards} if any(backwards) else {}
        g.add(
            "Scan",
            [*states, *several],
            len(updates) + len(scanned),
            body=body,
            num_scan_inputs=len(several),
            **extra,
        )

    def same(self, child: Graph, state: Value, others: Sequence[Value]) -> Value:
        """The next value of a state of Scan, whose sizes stay."""
        found = own(
            child,
            lambda v: v.kind == state.kind and child.shapes(v) == child.shapes(state) and v not in others,
        )
        if found and child.shared.chance(0.7):
            return found[0]
        return child.one("Add", state, child.const(1, state.dtype))


# ---- parts -------------------------------------------------------------------------------------------


def heads(data: Sequence[Any], at: int) -> list[Any]:
    return [ABSENT if d is ABSENT or not len(d) else np.asarray(d[at]) for d in data]


def bound(g: Graph, kind: Kind, data: list[Any], twin: list[Any] | None = None) -> Value:
    """An input of a body, which changes from turn to turn."""
    value = Value(g.name(), kind, data, data if twin is None else twin, volatile=True)
    g.values[value.name] = value
    return value


def single(g: Graph, v: Value, dtype: str) -> bool:
    """Whether it has one element on every feed."""
    return v.kind == Kind(dtype) and all(d is ABSENT or d.size == 1 for d in v.data) and bool(g.of(v))


def own(g: Graph, test: Callable[[Value], bool]) -> list[Value]:
    """Values that nodes of this very graph make on its live feeds, in a random order, unused ones first."""
    made = {o for n in g.nodes for o in n.output}
    found = [
        v
        for v in g.values.values()
        if v.name in made
        and test(v)
        and len(g.of(v)) == sum(g.live)
        and (not v.known or g.shared.chance(0.2))
    ]
    order = g.rng.permutation(len(found))
    return sorted((found[int(k)] for k in order), key=lambda v: v.used > 0)


def condition(g: Graph, known: bool = True) -> Value:
    """A truth of one element: known, from a shape, from integers or from data."""
    choice = g.rng.random()
    found = [v for v in g.visible() if single(g, v, "bool")]
    if choice < 0.35 and found:
        made: Value = g.shared.pick(found)
    elif choice < 0.45 and known:
        made = g.const(bool(g.rng.integers(2)))
    elif choice < 0.65:
        x = g.tensor(shapes.ANY, range(1, 5))
        index = shapes.axis_of(g, g.rank(x))
        size = g.one("Gather", g.one("Shape", x), ints(g, index))
        made = g.one(g.shared.pick(["Equal", "Greater", "Less"]), size, ints(g, int(g.rng.integers(0, 4))))
    elif choice < 0.72:
        rank = g.one("Size", g.one("Shape", g.tensor(shapes.ANY)))
        made = g.one("Equal", rank, ints(g, int(g.rng.integers(0, 4))))
    elif choice < 0.85:
        x = g.choose(lambda v: single(g, v, "int64") or single(g, v, "int32"))
        made = g.one("Equal", x, g.const(g.rng.integers(0, 3), x.dtype))
    else:
        x = g.tensor(["float32", "int64"])
        total = g.one("ReduceSum", x, keepdims=0)
        made = g.one("Greater", total, g.const(g.shared.pick([0, 1]), x.dtype))
    if g.shared.chance(0.15):
        made = g.one("Not", made)
    if found and g.shared.chance(0.1):
        made = g.one(g.shared.pick(["And", "Or"]), made, g.shared.pick(found))
    if g.shared.chance(0.2):
        made = g.one("Reshape", made, ints(g, [1]))
    if not single(g, made, "bool"):
        raise Rejected("not one truth")
    return made


def results(g: Graph, kinds: list[Kind] | None) -> list[Value]:
    """What a branch returns: values of these types, or of any."""
    chosen: list[Value] = []
    if kinds is None:
        chosen = own(g, lambda v: True)[: int(g.shared.pick([1, 1, 2, 3]))]
        kinds = [v.kind for v in chosen] or [g.choose(lambda v: v.tensor or g.shared.chance(0.3)).kind]
    for kind in kinds[len(chosen) :]:
        found = own(g, lambda v, kind=kind: v.kind == kind and v not in chosen)  # type: ignore[misc]
        chosen.append(found[0] if found and g.shared.chance(0.8) else of_kind(g, kind))
    return chosen


def of_kind(g: Graph, kind: Kind) -> Value:
    """A value of this type: one from outside, a conversion, or something made up."""
    found = [v for v in g.visible() if v.kind == kind and len(g.of(v)) == sum(g.live)]
    if found and g.shared.chance(0.6 if kind.tensor else 0.9):
        value: Value = g.shared.pick(found)
        outer = value.name not in g.values
        if outer and g.shared.direct and g.shared.chance(0.3):
            return value
        return g.one("Identity", value)
    if kind.wraps:
        inner = of_kind(g, Kind(kind.dtype, kind.wraps[1:]))
        return g.one("SequenceConstruct" if kind.wraps[0] == "seq" else "Optional", inner)
    if kind.dtype in FLOATS and g.shared.chance(0.5):
        return g.one("Cast", g.tensor(FLOATS), to=CODES[kind.dtype])
    sizes = tuple(
        int(k) for k in g.rng.integers(0 if g.shared.chance(0.1) else 1, 4, int(g.rng.integers(0, 3)))
    )
    return g.one("Identity", g.const(draw(g.rng, kind.dtype, sizes), kind.dtype))


def finished(
    g: Graph, outputs: Sequence[Value], inputs: Sequence[Value] = (), scalars: int = 0, ranks: float = 0.0
) -> GraphProto:
    """The graph as a message; types are declared, shapes hardly ever.

    Args:
        scalars: how many inputs are declared to be scalars: onnxruntime wants that of a Loop's first two.
        ranks: how likely the ranks of the others are declared, and of outputs that change between turns.
    """
    graph = helper.make_graph([], g.shared.names.loose() or "g", [], [])
    graph.node.extend(g.nodes)
    graph.initializer.extend(g.initializers)

    def declare(value: Value, likely: float) -> TypeProto:
        says = value.tensor and g.rank(value) >= 0 and g.shared.chance(likely)
        return value.kind.proto([None] * g.rank(value) if says else None)

    for k, value in enumerate(inputs):
        graph.input.add(name=value.name).type.CopyFrom(declare(value, 1.0 if k < scalars else ranks))
    for value in outputs:
        likely = ranks if value.volatile else max(ranks, 0.2)
        graph.output.add(name=value.name).type.CopyFrom(declare(value, likely))
    if not inputs and g.parent is not None:
        g.parent.nested |= all_names(graph)
    return graph
