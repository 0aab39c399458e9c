"""A graph that runs: specialised for what it is fed, planned once for each kind of input.

A program keeps a plan for every combination of input shapes, and of the contents of the small inputs
that decide branches; these guards are compared at each run. The branches of an `If` that stays are
programs themselves, so they specialise by what reaches them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.onnx.evaluate import specialise
from anydml.onnx.lower import Libraries, lower
from anydml.onnx.types import dtype_name, of_content, only_ranks
from anydml.passes.pipeline import simplified
from anydml.runtime.run import Plan

MAX_SHAPES = 8
"""Combinations of shapes that get a plan of their own; later ones share a plan that knows only ranks."""
MAX_CONTENTS = 8
"""Combinations of deciding contents that get plans of their own; later ones are looked at as they come."""
MAX_PLANS = 32
"""Plans kept; the least recently used one goes."""
MAX_MET = 4096
"""Keys that lead to a plan at once. Shapes may be far more than plans."""
MAX_DECIDING = 16
"""Elements up to which an input may be a guard. A rate or a flag is one; data is larger."""

Key = tuple[Any, ...]


class Program:
    def __init__(self, graph: Graph, libraries: Libraries) -> None:
        self.graph, self.libraries = graph, libraries
        self._deciding = deciding_inputs(graph)
        self._plans: OrderedDict[Key, Plan] = OrderedDict()
        self._shapes: set[Key] = set()
        self._contents: set[Key] = set()
        self._met: dict[Key, Plan] = {}
        """The plans by all that they may depend on, in the form that is quickest to make."""
        self._lock = threading.RLock()

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for the inputs' contents."""
        key = self.key(values)
        plan = None if key is None else self._met.get(key)
        if plan is None:
            plan = self._planned(values)
            if key is not None:
                if len(self._met) >= MAX_MET:
                    self._met.clear()
                self._met[key] = plan
        return plan.run(values)

    def met(self, values: Sequence[Any]) -> Plan | None:
        """The plan of arrays of which the like was run before."""
        key = self.key(values)
        return None if key is None else self._met.get(key)

    def key(self, values: Sequence[Any]) -> Key | None:
        """Types, sizes and deciding contents of the inputs; None if one is no array of a native type."""
        key: list[Any] = []
        for value in values:
            if type(value) is not np.ndarray or not value.dtype.isnative or value.dtype.num in _UNSPECIFIC:
                return None
            key += (value.dtype.num, value.shape)
        for k in self._deciding:
            value = values[k]
            key.append(value.tobytes() if value.size <= MAX_DECIDING else None)
        return tuple(key)

    def _planned(self, values: Sequence[Any]) -> Plan:
        shapes = tuple([_shape_key(v) for v in values])
        contents = tuple([_content_key(values[k]) for k in self._deciding])
        with self._lock:
            if (shapes, contents) in self._plans:
                self._plans.move_to_end((shapes, contents))
                return self._plans[shapes, contents]
            by_shape = _admitted(shapes, self._shapes, MAX_SHAPES)
            by_content = _admitted(contents, self._contents, MAX_CONTENTS)
            if not by_shape:
                shapes = tuple(_rank_key(k) for k in shapes)
            if not by_content:
                contents = ("any",)
            key = (shapes, contents)
            if key in self._plans:
                self._plans.move_to_end(key)
                return self._plans[key]
            types: dict[Value, Type] = {}
            for value, given in zip(self.graph.inputs, values, strict=True):
                known = of_content(given, value.type)
                if known is not None:
                    types[value] = known if by_shape else only_ranks(known)
            guards = {self.graph.inputs[k]: values[k] for k in self._deciding} if by_content else {}
            plan = self._plan(types, {v: np.array(c) for v, c in guards.items() if _can_decide(c)})
            self._plans[key] = plan
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
                self._met.clear()  # it may be there, too
            return plan

    def _plan(self, types: dict[Value, Type], guards: dict[Value, Any]) -> Plan:
        contents = {v: Constant(c) for v, c in guards.items()}
        special = specialise(self.graph, types, contents, self.libraries.opsets, self.libraries.complete)
        special = simplified(special)
        plan = lower(special, self.libraries, self._branch)
        # A guarded input is a constant of the plan, but still arrives with every run.
        slots = iter(plan.inputs)
        ignored = len(plan.template)
        inputs = tuple(ignored if v in guards else next(slots) for v in self.graph.inputs)
        return replace(plan, template=[*plan.template, None], inputs=inputs)

    def _branch(self, graph: Graph) -> Program:
        return Program(graph, self.libraries)

    def explain(self) -> str:
        """The plans made so far: their guards, and what runs where."""
        if not self._plans:
            return "not run yet"
        lines = []
        for (shapes, contents), plan in self._plans.items():
            lines.append(f"plan for {self._guards(shapes, contents)}")
            lines += ["  " + line for step in plan.describe() for line in step.splitlines()]
            if not plan.steps:
                lines.append("  nothing to run")
        return "\n".join(lines)

    def _guards(self, shapes: Key, contents: Key) -> str:
        parts = [f"{v.name} {_key_text(k)}" for v, k in zip(self.graph.inputs, shapes, strict=True)]
        if contents != ("any",):
            for k, content in zip(self._deciding, contents, strict=True):
                if content is not None:
                    parts.append(f"{self.graph.inputs[k].name} = {_content_text(content)}")
        return ", ".join(parts) or "no input"


# ---- keys --------------------------------------------------------------------------------------------


_UNSPECIFIC = frozenset(np.dtype(kind).num for kind in "OSUVmM")
"""NumPy's types whose number alone does not say what an element is."""


def _shape_key(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape)
    if isinstance(value, list):
        return ("seq", _shape_key(value[0])[0] if value else None)
    return None


def _rank_key(key: Any) -> Any:
    if key is not None and isinstance(key[1], tuple):
        return (key[0], len(key[1]))
    return key


def _key_text(key: Any) -> str:
    if key is None:
        return "none"
    if key[0] == "seq":
        return "sequence"
    dtype = dtype_name(key[0])
    sizes = ",".join(map(str, key[1])) if isinstance(key[1], tuple) else ",".join("?" * key[1])
    return f"{dtype}[{sizes}]"


def _can_decide(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size <= MAX_DECIDING


def _content_key(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if _can_decide(value) else None


def _content_text(key: Any) -> str:
    found = np.frombuffer(key[2], key[0]).tolist()
    return str(found[0] if len(found) == 1 else found)


def _admitted(key: Key, seen: set[Key], limit: int) -> bool:
    """Whether a combination is among the first few; those are remembered."""
    if key in seen:
        return True
    if len(seen) >= limit:
        return False
    seen.add(key)
    return True


# ---- which inputs decide ------------------------------------------------------------------------------


def deciding_inputs(graph: Graph) -> tuple[int, ...]:
    """The inputs, by place, whose contents a condition is computed from.

    Sizes do not count as contents, so the search stops at `Shape` and `Size`; and only tensors of
    integers or truths can be guards.
    """
    makers = {v: node for node in graph.walk() for v in node.writes}
    outer = {v: w for node in graph.walk() for v, w in _results(node)}
    wanted = [node.condition for node in graph.walk() if isinstance(node, If)]
    seen: set[Value] = set()
    while wanted:
        value = wanted.pop()
        if value in seen:
            continue
        seen.add(value)
        wanted += outer.get(value, ())
        node = makers.get(value)
        if isinstance(node, Node) and not (isinstance(node.op, OnnxOp) and node.op.name in ("Shape", "Size")):
            wanted += node.reads
        elif isinstance(node, If):
            wanted.append(node.condition)
    return tuple(k for k, v in enumerate(graph.inputs) if v in seen and _may_guard(v.type))


def _results(node: Node | If) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """An If's output and the branches' outputs that it can be."""
    if isinstance(node, If):
        for k, output in enumerate(node.outputs):
            if output is not None:
                yield output, (node.then_branch.outputs[k], node.else_branch.outputs[k])


def _may_guard(type: Type | None) -> bool:
    if isinstance(type, SequenceType):
        return False
    return (
        not isinstance(type, TensorType) or type.dtype == "bool" or type.dtype.lstrip("u").startswith("int")
    )
