"""Random whole models, which run on most of their feeds: `random_model(seed)`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from tests.robustness.building import Graph, Rejected, Shared, Value
from tests.robustness.control import Menu, own
from tests.robustness.names import SYMBOLS, Names
from tests.robustness.oracles import prune
from tests.robustness.values import ABSENT, Kind, Rng, draw, scale, spread

Feeds = dict[str, Any]
OLDEST, NEWEST = 11, 26
"""Opsets; the newest is the newest that onnxruntime 1.31 takes, older ones take fewer."""
IR = {
    **dict.fromkeys(range(11, 15), 7),
    **dict.fromkeys(range(15, 19), 8),
    19: 9,
    20: 9,
    21: 10,
    22: 10,
    23: 11,
    24: 12,
}
COUNT = 4
"""Feeds of a model. The first two have equal shapes."""


@dataclass
class Case:
    """A model with feeds.

    Attributes:
        tolerances: by feed and output: how far apart right results may lie, beside their own rounding.
        contested: operators in it on which the oracles differ.
        valid: False where onnx.checker refuses it, though ONNX's documents do not.
    """

    seed: int
    model: ModelProto
    feeds: list[Feeds]
    tolerances: list[list[float]]
    contested: list[str] = field(default_factory=list)
    valid: bool = True


def random_model(seed: int) -> tuple[ModelProto, list[Feeds]]:
    """A model and feeds of changing shapes and values, always the same ones for a seed."""
    case = random_case(seed)
    return case.model, case.feeds


def random_case(seed: int) -> Case:
    """The same, with what else is known of it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return _case(seed)


def _case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    shared = _shared(rng)
    graph = Graph(shared)
    inputs = Inputs(graph)
    inputs.draw()
    menu = Menu(rng, float(rng.choice([0.0, 0.1, 0.2, 0.4])))
    goal = shared.budget
    for _ in range(3 * goal):
        if shared.budget <= 0:
            break
        menu.step(graph)
    outputs = _outputs(graph)
    model = _model(graph, inputs, outputs)
    return Case(
        seed,
        model,
        inputs.feeds(),
        [[_tolerance(v, k) for v in outputs] for k in range(shared.count)],
        shared.contested,
        not shared.direct,
    )


def _shared(rng: Rng) -> Shared:
    newest = int(rng.choice([NEWEST, 23, 21, 18]))
    return Shared(
        rng,
        int(rng.integers(OLDEST, newest + 1)),
        COUNT,
        budget=int(rng.choice([8, 12, 18, 25, 40])),
        names=Names(rng),
        picky=float(rng.choice([0.9, 1.0, 1.0])),
        failing=float(rng.choice([0.0, 0.0, 0.0, 0.4])),
        lone=bool(rng.random() < 0.15),
        reuse=bool(rng.random() < 0.1),
        direct=bool(rng.random() < 0.03),
    )


# ---- inputs ------------------------------------------------------------------------------------------


class Inputs:
    """The inputs of a model, their symbols and defaults."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.rng = graph, graph.rng
        self.values: list[Value] = []
        self.types: list[Any] = []
        self.defaults: dict[str, Any] = {}
        self.special = [float(p) for p in self.rng.choice([0.0, 0.0, 0.4], COUNT)]
        self.symbols: dict[str, list[int]] = {}
        for name in self.rng.permutation(SYMBOLS)[: int(self.rng.integers(1, 4))]:
            self.symbols[str(name)] = self._sizes()

    def _sizes(self) -> list[int]:
        base = int(self.rng.choice([1, 2, 2, 3, 3, 4, 5]))
        other, last = (int(k) for k in self.rng.choice([1, 2, 3, 4, 5, 6], 2))
        if self.rng.random() < 0.12:
            last = 0
        return [base, base, other, last]

    def draw(self) -> None:
        self._tensor("float32", int(self.rng.choice([1, 2, 2, 3, 3, 4])))
        for _ in range(int(self.rng.integers(0, 3))):
            self._tensor("float32", int(self.rng.integers(0, 5)))
        chance = self.graph.shared.chance
        if chance(0.5):
            self._tensor("int64", 0 if chance(0.6) else 1, few=True)
        if chance(0.4):
            self._tensor("bool", 0 if chance(0.5) else 1, few=True)
        if chance(0.45):
            types = [
                "int64",
                "int32",
                "uint8",
                "int8",
                "bool",
                "float64",
                "float16",
                "int64",
                "uint64",
                "int16",
            ]
            self._tensor(str(self.rng.choice(types)), int(self.rng.integers(0, 4)))
        if chance(0.1):
            self._tensor("string", int(self.rng.integers(0, 3)))
        if chance(0.05):
            self._sequence()

    def _tensor(self, dtype: str, rank: int, few: bool = False) -> None:
        """An input; `few` for one of one element that decides something."""
        sizes: list[int | str | None] = []
        columns: list[list[int]] = []
        for _ in range(rank):
            size, column = (1, [1] * COUNT) if few else self._size()
            sizes.append(size)
            columns.append(column)
        shapes = list(zip(*columns, strict=True)) if columns else [()] * COUNT
        data = [self._content(dtype, s, k, few) for k, s in enumerate(shapes)]
        name = self._add(Kind(dtype), data, sizes)
        if len(set(shapes)) == 1 and self.rng.random() < 0.06:
            self.defaults[name] = data[-1]

    def _size(self) -> tuple[int | str | None, list[int]]:
        choice = self.rng.random()
        if choice < 0.6:
            name = str(self.rng.choice(list(self.symbols)))
            return name, self.symbols[name]
        if choice < 0.9:
            size = int(self.rng.choice([1, 2, 3, 4, 5]))
            return size, [size] * COUNT
        return ("" if choice < 0.93 else None), self._sizes()

    def _content(self, dtype: str, sizes: tuple[int, ...], k: int, few: bool) -> Any:
        if few and dtype == "int64":
            return self.rng.integers(0, 4, sizes)
        if few:
            return np.asarray(self.rng.random(sizes) < 0.5)
        return draw(self.rng, dtype, sizes, self.special[k])

    def _sequence(self) -> None:
        data = [
            [
                draw(self.rng, "float32", (2, int(self.rng.integers(1, 4))))
                for _ in range(int(self.rng.integers(1, 4)))
            ]
            for _ in range(COUNT)
        ]
        self._add(Kind("float32", ("seq",)), data, [])

    def _add(self, kind: Kind, data: list[Any], sizes: list[int | str | None]) -> str:
        name = self.graph.name()
        value = Value(name, kind, data, data)
        self.graph.values[name] = value
        self.values.append(value)
        declared = kind.proto(sizes) if kind.tensor else kind.proto()
        self.types.append(helper.make_value_info(name, declared))
        return name

    def feeds(self) -> list[Feeds]:
        """By feed; an input whose default it is to have is left out."""
        return [
            {v.name: v.data[k] for v in self.values if self.defaults.get(v.name) is not v.data[k]}
            for k in range(COUNT)
        ]


# ---- outputs -----------------------------------------------------------------------------------------


def _outputs(graph: Graph) -> list[Value]:
    """Values that nobody uses, a few others, and now and then an input or an initializer."""
    found = own(graph, lambda v: v.kind.wraps[:1] != ("optional",))
    count = int(graph.rng.choice([1, 2, 4, 6, 10]))
    chosen = [*graph.must, *(v for v in found[:count] if v not in graph.must)]
    if graph.shared.chance(0.15):
        chosen.append(graph.shared.pick(chosen or list(graph.values.values())))
    outputs: list[Value] = []
    for value in chosen:
        outputs += _declarable(graph, value, value in outputs)
    made = {o for n in graph.nodes for o in n.output}
    others = [v for v in graph.values.values() if v.name not in made and v.tensor]
    if others and (not outputs or graph.shared.chance(0.08)):
        outputs.append(graph.shared.pick(others))
    return [outputs[int(k)] for k in graph.rng.permutation(len(outputs))]


def _declarable(graph: Graph, value: Value, again: bool) -> list[Value]:
    """The value, or it and its shape, flat, where its rank differs between feeds: an output must declare one."""
    try:
        if value.tensor and graph.rank(value) < 0:
            flat = graph.one("Reshape", value, graph.const([-1], "int64"))
            return [flat, graph.one("Size", graph.one("Shape", value))]
        return [graph.one("Identity", value) if again and graph.shared.chance(0.7) else value]
    except Rejected:
        return []


def _tolerance(value: Value, k: int) -> float:
    if value.data[k] is ABSENT:
        return 0.0
    size = scale(value.data[k])
    return 30 * spread(value.data[k], value.twin[k]) + (1e-6 * size if np.isfinite(size) else 0.0)


def _model(graph: Graph, inputs: Inputs, outputs: Sequence[Value]) -> ModelProto:
    rng = graph.rng
    model = ModelProto(producer_name="random")
    least = IR.get(graph.opset, 13)
    model.ir_version = int(rng.integers(least, 14))
    model.opset_import.add(domain="", version=graph.opset)
    body = model.graph
    body.name = graph.shared.names.loose() or "g"
    body.node.extend(graph.nodes)
    body.initializer.extend(graph.initializers)
    body.input.extend(inputs.types)
    for number, value in enumerate(outputs):
        sizes: list[int | str | None] = []
        for axis in range(max(graph.rank(value), 0)):
            sizes.append(f"out{number}_{axis}" if rng.random() < 0.3 else None)
        body.output.add(name=value.name).type.CopyFrom(value.kind.proto(sizes if value.tensor else None))
    if rng.random() < 0.9:
        prune(body)
    for name, content in inputs.defaults.items():
        body.initializer.append(numpy_helper.from_array(content, name))
    if rng.random() < 0.2:
        model = _inferred(model)
    return model


def _inferred(model: ModelProto) -> ModelProto:
    """With the types that onnx's own inference finds, as exporters leave them in files."""
    try:
        return onnx.shape_inference.infer_shapes(model)
    except Exception:
        return model
