"""Graphs that grow node by node; each node is run on all feeds as it is added.

A value so has contents for every feed, and a twin of them with other roundings. A node on which the oracles
differ, which fails, or whose result another rounding would change, is mostly not added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from tests.robustness.names import Names
from tests.robustness.oracles import NodeOracle, attempt, needed
from tests.robustness.values import (
    ABSENT,
    FLOATS,
    Array,
    Kind,
    Rng,
    arrays,
    difference,
    kind_of,
    mirrored,
    noisy,
    same,
    scale,
    spread,
    steady,
)

LIMIT = 6000
"""Elements of a tensor; larger ones only take time."""

Attributes = dict[str, Any]


class Rejected(Exception):
    """What was to be added does not fit; something else is tried."""


@dataclass(eq=False)
class Value:
    """A value of a graph.

    Attributes:
        data: contents by feed; ABSENT where a node before failed.
        twin: the same with other roundings.
        known: an initializer or a constant.
        volatile: differs between iterations of a loop, so that its contents here are only the first ones.
    """

    name: str
    kind: Kind
    data: list[Any]
    twin: list[Any]
    known: bool = False
    volatile: bool = False
    used: int = 0

    @property
    def dtype(self) -> str:
        return self.kind.dtype

    @property
    def tensor(self) -> bool:
        return self.kind.tensor


@dataclass
class Shared:
    """What all graphs of a model share.

    Attributes:
        budget: nodes that may still be added.
        contested: operators in whose results the oracles differ.
        picky: how likely such a node is left out.
        failing: how likely a node that fails on some feeds is added.
        lone: whether nodes may be added that only onnx.reference runs.
    """

    rng: Rng
    opset: int
    count: int
    budget: int
    names: Names
    picky: float = 0.95
    failing: float = 0.0
    lone: bool = False
    contested: list[str] = field(default_factory=list)
    reuse: bool = False
    depth: int = 4
    direct: bool = False

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]


class Graph:
    """A graph that is being made; `live` tells on which feeds its nodes have to run."""

    def __init__(self, shared: Shared, parent: Graph | None = None, live: Sequence[bool] = ()) -> None:
        self.shared = shared
        self.parent = parent
        self.live = list(live) or [True] * shared.count
        self.nodes: list[NodeProto] = []
        self.initializers: list[Any] = []
        self.values: dict[str, Value] = {}
        self.nested: set[str] = set()
        self.must: list[Value] = []
        self.level: int = parent.level + 1 if parent else 0

    # ---- looking ---------------------------------------------------------------------------------

    @property
    def rng(self) -> Rng:
        return self.shared.rng

    @property
    def opset(self) -> int:
        return self.shared.opset

    def lineage(self) -> Iterator[Graph]:
        graph: Graph | None = self
        while graph is not None:
            yield graph
            graph = graph.parent

    def visible(self) -> list[Value]:
        """Values that a node here may read, own ones last."""
        return [v for g in reversed(list(self.lineage())) for v in g.values.values()]

    def find(self, name: str) -> Value:
        return next(g.values[name] for g in self.lineage() if name in g.values)

    def of(self, value: Value) -> list[Any]:
        """The contents on live feeds."""
        return [d for d, alive in zip(value.data, self.live, strict=True) if alive and d is not ABSENT]

    def shapes(self, value: Value) -> list[tuple[int, ...]]:
        return [d.shape for d in self.of(value)]

    def rank(self, value: Value) -> int:
        """The rank that it has on all live feeds, or -1."""
        ranks = {len(s) for s in self.shapes(value)} if value.tensor else set()
        return ranks.pop() if len(ranks) == 1 else -1

    def size(self, value: Value, axis: int) -> int:
        """The size that it has on all live feeds, or -1."""
        sizes = {s[axis] for s in self.shapes(value)}
        return sizes.pop() if len(sizes) == 1 else -1

    def fixed(self, value: Value) -> tuple[int, ...] | None:
        shapes = set(self.shapes(value))
        return shapes.pop() if len(shapes) == 1 else None

    def choose(self, test: Callable[[Value], bool]) -> Value:
        """One of the visible values that pass, rather a late one that nobody has used yet."""
        found = [v for v in self.visible() if self.of(v) and test(v)]
        if not found:
            raise Rejected("no value fits")
        k = int(len(found) * max(self.rng.random(), self.rng.random()))
        if found[k].used and self.shared.chance(0.4):
            found = [v for v in found if not v.used] or found[k : k + 1]
            k = len(found) - 1
        return found[k]

    def tensor(
        self,
        dtypes: Iterable[str] = FLOATS,
        ranks: Iterable[int] | None = None,
        test: Callable[[Value], bool] = lambda v: True,
    ) -> Value:
        """A visible tensor of these types and, on all live feeds, of one of these ranks."""
        types, allowed = set(dtypes), None if ranks is None else set(ranks)
        return self.choose(
            lambda v: (
                v.tensor and v.dtype in types and (allowed is None or self.rank(v) in allowed) and test(v)
            )
        )

    # ---- adding ----------------------------------------------------------------------------------

    def name(self, home: Graph | None = None, also: Sequence[str] = ()) -> str:
        """A name for a value; `home` is where it will be defined, if that is not by the next node here."""
        taken = {n for g in self.lineage() for n in g.values} | {"", *also}
        for g in self.lineage():
            if home is not None or not self.shared.reuse:
                taken |= g.nested
            if g is (home or self):
                break
        return self.shared.names.fresh(taken, len(self.nodes) + len(self.initializers))

    def label(self) -> str:
        """A name for a node; onnxruntime wants those of a graph to differ."""
        name = self.shared.names.loose()
        return "" if any(n.name == name for n in self.nodes) else name

    def const(self, content: Any, dtype: str | None = None) -> Value:
        """A known value: an initializer of this graph or of one around it, or a Constant node."""
        array = np.array(content, dtype=object if dtype == "string" else dtype)
        home = self.shared.pick(list(self.lineage())) if self.shared.chance(0.15) else self
        name = self.name(home)
        value = Value(name, kind_of(array), [array] * self.shared.count, [array] * self.shared.count, True)
        if home is self and self.shared.chance(0.4):
            home.nodes.append(self._constant(name, array))
        else:
            home.initializers.append(numpy_helper.from_array(array, name))
        home.values[name] = value
        return value

    def _constant(self, name: str, array: Array) -> NodeProto:
        label = self.label()
        plain = array.dtype in (np.int64, np.float32) and array.ndim < 2 and self.opset >= 12
        if plain and self.shared.chance(0.5):
            key = ("value_int" if array.dtype == np.int64 else "value_float") + "s" * array.ndim
            # An empty list leaves the attribute's type open.
            if array.size:
                return helper.make_node("Constant", [], [name], label, **{key: array.tolist()})
        return helper.make_node("Constant", [], [name], label, value=numpy_helper.from_array(array, ""))

    def add(
        self,
        op: str,
        inputs: Sequence[Value | None],
        outputs: int | Sequence[bool] = 1,
        filled: Sequence[int] = (),
        **attributes: Any,
    ) -> list[Value]:
        """A node, if it runs on the live feeds.

        Args:
            outputs: how many; or which, as in [True, False].
            filled: outputs, by number, that must not be of length 0.

        Raises:
            Rejected: it does not.
        """
        shape = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names: list[str] = []
        for wanted in shape:
            names.append(self.name(also=names) if wanted else "")
        while not names[-1]:
            names.pop()
        given = [v.name if v else "" for v in inputs]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(op, given, names, self.label(), **attributes)
        sources = {n: self.find(n) for n in needed(node)}
        made = Evaluation(self, node, sources).values()
        if any(d is not ABSENT and not len(d) for k in filled for d in made[k].data):
            raise Rejected("empty")
        self.shared.budget -= 1
        for value in sources.values():
            value.used += 1
        self.nodes.append(node)
        self.values.update({v.name: v for v in made})
        return made

    def one(self, op: str, *inputs: Value | None, **attributes: Any) -> Value:
        return self.add(op, inputs, 1, **attributes)[0]

    def child(self, live: Sequence[bool] = ()) -> Graph:
        return Graph(self.shared, self, live or self.live)


class Evaluation:
    """A node run on every feed, in both oracles, and on twins."""

    def __init__(self, graph: Graph, node: NodeProto, sources: dict[str, Value]) -> None:
        self.graph, self.node, self.sources = graph, node, sources
        self.shared = graph.shared
        self.oracle = NodeOracle(node, {n: v.kind for n, v in sources.items()}, graph.opset)
        self.run = self.oracle.first or (self.oracle.second if self.shared.lone else None)
        self.control = any(a.HasField("g") for a in node.attribute)
        # What onnx.reference makes of bodies is not what ONNX says: it joins what is to be stacked.
        if self.control and self.oracle.first is None:
            raise Rejected("no oracle for a body")
        if self.run is None or not (self.oracle.first or self.oracle.typed()):
            raise Rejected(getattr(self.oracle, "why", "no oracle"))

    def values(self) -> list[Value]:
        self.compared = set(self.shared.rng.permutation(self.shared.count)[:2].tolist())
        results = self._each(self._once)
        failed = [k for k, r in enumerate(results) if r is ABSENT and self.graph.live[k]]
        if failed and not self._may_fail(failed):
            raise Rejected(f"{self.node.op_type} fails")
        outputs = [o for o in self.node.output if o]
        columns = [[ABSENT if r is ABSENT else r[i] for r in results] for i in range(len(outputs))]
        kinds = self.oracle.kinds or [self._kind(c) for c in columns]
        twins = self._each(lambda k: self._twin(k, results[k]))
        volatile = any(v.volatile for v in self.sources.values())
        made = [
            Value(o, kind, column, [ABSENT if t is ABSENT else t[i] for t in twins], volatile=volatile)
            for i, (o, kind, column) in enumerate(zip(outputs, kinds, columns, strict=True))
        ]
        if failed:
            for k in failed:
                self.graph.live[k] = False
            self.graph.must.append(made[0])
        return made

    def _each(self, what: Callable[[int], Any]) -> list[Any]:
        """By feed, once for feeds that are the very same here, as where all inputs are constants."""
        made: dict[tuple[int, ...], Any] = {}
        order = []
        for k in range(self.shared.count):
            key = tuple(id(v.data[k]) for v in self.sources.values())
            if key not in made:
                made[key] = what(k)
            order.append(made[key])
        return order

    def _may_fail(self, failed: list[int]) -> bool:
        """One node of the main graph may fail on some feeds, never on all."""
        rest = sum(self.graph.live) - len(failed)
        return bool(rest) and self.graph.level == 0 and self.shared.chance(self.shared.failing)

    @staticmethod
    def _kind(column: list[Any]) -> Kind:
        present = [c for c in column if isinstance(c, np.ndarray) or (isinstance(c, list) and c)]
        if not present:
            raise Rejected("its type is not known")
        try:
            return kind_of(present[0])
        except KeyError as error:
            raise Rejected("a type that is not used here") from error

    def _feeds(self, k: int, twin: bool) -> dict[str, Any] | None:
        feeds = {n: (v.twin if twin else v.data)[k] for n, v in self.sources.items()}
        return None if any(f is ABSENT for f in feeds.values()) else feeds

    def _once(self, k: int) -> Any:
        feeds = self._feeds(k, twin=False)
        if feeds is None:
            return ABSENT
        result = attempt(self.run, feeds)
        if result is None:
            return ABSENT
        if self.control and not all(map(same, result, attempt(self.run, feeds) or [])):
            raise Rejected("onnxruntime gives what happens to lie in memory")
        if any(a.size > LIMIT for r in result for a in arrays(r)):
            raise Rejected("too large")
        empty = any(a.size == 0 for f in feeds.values() for a in arrays(f))
        if self.oracle.first and (empty or self.shared.lone or k in self.compared):
            self._compare(result, attempt(self.oracle.second, feeds), empty)
        return result

    def _compare(self, first: list[Any], second: list[Any] | None, empty: bool) -> None:
        if second is None:
            # onnxruntime takes operators that have no meaning without elements, such as the maximum.
            if empty or self.shared.chance(0.6):
                raise Rejected("onnx.reference fails")
            return
        for a, b in zip(first, second, strict=True):
            if difference(b, a, 1e-5 * scale(a)):
                # Where onnxruntime cannot run the model, nothing would tell that the reference is wrong.
                if self.shared.lone or self.shared.chance(self.shared.picky):
                    raise Rejected("the oracles differ")
                self.shared.contested.append(self.node.op_type)
                return

    def _twin(self, k: int, result: Any) -> Any:
        """The result of inputs with other roundings, itself rounded otherwise."""
        feeds = self._feeds(k, twin=True)
        if result is ABSENT or feeds is None:
            return result
        if any(feeds[n] is not v.data[k] for n, v in self.sources.items()):
            other = attempt(self.run, feeds)
            opposite = attempt(self.run, {n: mirrored(v.data[k], feeds[n]) for n, v in self.sources.items()})
            if other is None or opposite is None:
                raise Rejected("hangs on a rounding")
            if not all(steady(a, b) for a, b in zip(result, opposite, strict=True)):
                raise Rejected("hangs on a rounding")
        else:
            other = result
        twins = [self._rounded(o) for o in other]
        for a, b in zip(result, twins, strict=True):
            if not steady(a, b):
                raise Rejected("hangs on a rounding")
        return [a if spread(a, b) == 0 else b for a, b in zip(result, twins, strict=True)]

    def _rounded(self, value: Any) -> Any:
        """With noise where its elements are not small multiples of small powers of two, which are exact."""
        if isinstance(value, list):
            return [self._rounded(v) for v in value]
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            return value
        grid = 16.0 if value.dtype == np.float16 else 1024.0
        with np.errstate(all="ignore"):
            exact = (np.abs(value) < grid) & (value * grid == np.floor(value * grid)) | ~np.isfinite(value)
        return value if exact.all() else np.where(exact, value, noisy(self.shared.rng, value))
