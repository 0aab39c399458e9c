"""The partial evaluator: from what is known of a graph's inputs to a graph that knows it.

It walks forward and keeps for every value what is known: its type with sizes, and its content. A node
whose inputs' contents are known (and small) is evaluated; `Shape` and `Size` need only sizes; an `If` on
a known condition becomes its branch, an `If` on an unknown one tells its branches what the condition is.
Sizes that are not known are symbols, and what is computed from them is known in terms of them.

    x: float32[2,3]                            x: float32[2,3]
    %s = Shape(%x)                             %y = Relu(%x)
    %c = Equal(%s, [2, 3]) ...          ->     return %y
    %y = If(%c) {then Relu(%x), else ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from anydml.ir.graph import Constant, Dim, Graph, If, Node, OnnxOp, TensorType, Type, Value
from anydml.ir.provider import Provider, Region, RegionFailed
from anydml.onnx.sizes import impossible
from anydml.onnx.symbols import (
    FOLLOWED,
    Affine,
    Content,
    Symbols,
    compared,
    computed,
    decided,
    measured,
    numbers,
    of_array,
    sized,
)
from anydml.onnx.types import from_proto, of_content, to_proto, without_sizes
from anydml.onnx.write import node_proto, region_proto, tensor_proto
from anydml.passes.substitute import substituted
from anydml.problems import InvalidModel, Unsupported

SMALL = 1024
"""Elements up to which contents are followed. Shape arithmetic is far smaller; weights are far larger."""

_RANDOM = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli Dropout".split(" ")
)


@dataclass(frozen=True)
class Fact:
    """What is known of a value: its stand-in in the new graph (with its type), and its content.

    `integers`: its content in terms of symbols, where it is no constant.
    """

    value: Value
    constant: Constant | None = None
    integers: Content | None = None


def specialise(
    graph: Graph,
    types: Mapping[Value, Type],
    contents: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    provider: Provider,
) -> Graph:
    """The graph for inputs of these types, of which some have these contents.

    Inputs whose content is given are no longer inputs of the result; all others stay, in order.
    `provider` evaluates the nodes whose inputs are known.
    """
    evaluator = _Evaluator(opsets, provider)
    inputs = []
    for value in graph.inputs:
        known = Value(value.name, named_sizes(value.name, types.get(value, value.type)))
        evaluator.facts[value] = Fact(known, contents.get(value))
        if value not in contents:
            inputs.append(known)
    outputs = evaluator.walk(graph)
    constants = {f.value: f.constant for f in evaluator.facts.values() if f.constant is not None}
    return Graph(graph.name, tuple(inputs), outputs, tuple(evaluator.nodes), constants)


class _Evaluator:
    def __init__(self, opsets: Mapping[str, int], provider: Provider) -> None:
        self.opsets, self.provider = opsets, provider
        self.facts: dict[Value, Fact] = {}
        self.nodes: list[Node | If] = []
        self.symbols = Symbols()

    def walk(self, graph: Graph) -> tuple[Value, ...]:
        """Add the graph's nodes to the result, and answer with its outputs' stand-ins."""
        for value, constant in graph.constants.items():
            self.facts.setdefault(value, Fact(value, constant))
        for node in graph.nodes:
            if isinstance(node, If):
                self._if(node)
            else:
                self._node(node)
        return tuple(self.facts[v].value for v in graph.outputs)

    def _if(self, node: If) -> None:
        condition = self.facts[node.condition].constant
        if condition is not None and condition.content.size == 1 and condition.content.dtype == np.bool_:
            branch = node.then_branch if condition.content.item() else node.else_branch
            self.walk(branch)
            for output, inner in zip(node.outputs, branch.outputs, strict=True):
                if output is not None:
                    self.facts[output] = self.facts[inner]
            return
        outputs = tuple(None if v is None else Value(v.name, v.type) for v in node.outputs)
        self.nodes.append(
            replace(
                node,
                condition=self.facts[node.condition].value,
                then_branch=self._told(node.then_branch, node.condition, True),
                else_branch=self._told(node.else_branch, node.condition, False),
                outputs=outputs,
            )
        )
        for old, new in zip(node.outputs, outputs, strict=True):
            if old is not None and new is not None:
                self.facts[old] = Fact(new)

    def _told(self, branch: Graph, condition: Value, truth: bool) -> Graph:
        """A branch in terms of the new graph, with what is known of its captures."""
        facts = {v: f for v, f in self.facts.items() if v is not condition}
        values = {v: f.value for v, f in facts.items()}
        known = {f.value: f.constant for f in facts.values() if f.constant is not None}
        type = self.facts[condition].value.type
        sizes = type.known_sizes if isinstance(type, TensorType) else None
        if condition in branch.inputs and sizes is not None:
            stand_in = values[condition] = Value(f"{condition.name}~{truth}", type)
            known[stand_in] = Constant(np.full(sizes, truth))
        else:
            values[condition] = self.facts[condition].value
        return substituted(branch, values, known)

    def _node(self, node: Node) -> None:
        assert isinstance(node.op, OnnxOp)
        inputs = [None if v is None else self.facts[v] for v in node.inputs]
        stood = replace(
            node,
            inputs=tuple(None if f is None else f.value for f in inputs),
            captures={n: self.facts[v].value for n, v in node.captures.items()},
        )
        types = self._infer(stood, inputs)
        if any(isinstance(t, TensorType) and t.known_sizes is None for t in types):
            types = self._refined(stood, inputs, types)
        outputs = tuple(
            None if v is None else Value(v.name, t) for v, t in zip(node.outputs, types, strict=True)
        )
        stood = replace(stood, outputs=outputs)
        contents, integers = self._fold(stood, inputs), None
        if contents is None:
            contents, integers = self._follow(stood, inputs)
        for k, (old, new) in enumerate(zip(node.outputs, outputs, strict=True)):
            if old is None or new is None:
                continue
            if contents is None:
                self.facts[old] = Fact(new, integers=integers)
            else:
                known = Constant(contents[k])
                self.facts[old] = Fact(Value(old.name, of_content(contents[k])), known)
        if contents is None:
            self.nodes.append(stood)

    # ---- types

    def _infer(self, node: Node, inputs: list[Fact | None]) -> list[Type | None]:
        """The outputs' types by ONNX's own rules; None where they do not tell."""
        unknown: list[Type | None] = [None] * len(node.outputs)
        assert isinstance(node.op, OnnxOp)
        schema = schema_of(node.op)
        if schema is None:
            return unknown
        protos: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for fact in inputs:
            if fact is None:
                continue
            if fact.value.type is None:
                return unknown
            protos[fact.value.name] = to_proto(fact.value.type)
            if fact.constant is not None and is_small(fact.value.type):
                data[fact.value.name] = self._tensor(fact)
        for value in node.captures.values():
            if value.type is not None:
                protos[value.name] = to_proto(value.type)
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, node_proto(node), protos, data, opset_imports=_imports(tuple(self.opsets.items()))
            )
        except Exception:  # the node will fail when it runs, and then say how
            return unknown
        types = [
            None if v is None or v.name not in found else from_proto(found[v.name]) for v in node.outputs
        ]
        pads = numbers(self._integers(inputs[1])) if node.op.name == "Pad" and len(inputs) > 1 else None
        if impossible(node, types, pads):
            return [t if t is None else without_sizes(t) for t in types]
        return types

    def _tensor(self, fact: Fact) -> TensorProto:
        constant = fact.constant
        assert constant is not None
        if not isinstance(constant.source, TensorProto):
            constant.source = tensor_proto(constant, fact.value.name)
        return constant.source

    def _refined(self, node: Node, inputs: list[Fact | None], types: list[Type | None]) -> list[Type | None]:
        """The types with more sizes known, in terms of symbols; those that stay unknown are new symbols."""
        own = None
        if len(types) == 1:
            own = sized(node, [self._sizes(f) for f in inputs], [self._integers(f) for f in inputs])
        used = {n for f in inputs for n in (_dims(f) or ()) if isinstance(n, str)}
        refined: list[Type | None] = []
        for value, type in zip(node.outputs, types, strict=True):
            if not isinstance(type, TensorType) or value is None or (type.sizes is None and own is None):
                refined.append(type)
                continue
            told = type.sizes
            if told is None or (own is not None and len(own) != len(told)):
                told = (None,) * len(own or ())
            sizes: list[Dim] = []
            for k, n in enumerate(told):
                better = None if isinstance(n, int) or own is None else self.symbols.dim(own[k])
                kept = n if isinstance(n, int) or n in used else None
                sizes.append(next((x for x in (better, kept) if x is not None), None))
            refined.append(named_sizes(value.name, TensorType(type.dtype, tuple(sizes))))
        return refined

    def _sizes(self, fact: Fact | None) -> list[Affine] | None:
        dims = _dims(fact)
        return None if dims is None else [self.symbols.affine(n) for n in dims]

    def _integers(self, fact: Fact | None) -> Content | None:
        """What is known of an input's integers."""
        if fact is None or fact.constant is None:
            return None if fact is None else fact.integers
        known = is_small(fact.value.type) and isinstance(fact.constant.content, np.ndarray)
        content = fact.constant.content if known else None
        return None if content is None or content.dtype.kind not in "biu" else of_array(content)

    # ---- contents

    def _follow(
        self, node: Node, inputs: list[Fact | None]
    ) -> tuple[list[np.ndarray] | None, Content | None]:
        """The only output's content if it follows from symbols; else what is known of its integers."""
        value = node.outputs[0] if len(node.outputs) == 1 else None
        type = None if value is None else value.type
        if not isinstance(type, TensorType) or node.op.name not in FOLLOWED or not is_small(type):
            return None, None
        sizes = type.known_sizes or ()
        given = [self._integers(f) for f in inputs]
        if type.dtype == "bool":
            truths = compared(node, given)
            if truths is None:
                truths = decided(node, [_truth(f) for f in inputs], sizes)
            return (None if truths is None or truths.shape != sizes else [truths]), None
        if type.dtype not in ("int32", "int64"):
            return None, None
        found = computed(node, given, sizes)
        if node.op.name in ("Shape", "Size") and inputs:
            found = measured(node, self._sizes(inputs[0]))
        if found is None or found.shape != sizes:
            return None, None
        known = numbers(found)
        return (None, found) if known is None else ([np.array(known, type.dtype).reshape(sizes)], None)

    def _fold(self, node: Node, inputs: list[Fact | None]) -> list[np.ndarray] | None:
        """The outputs' contents if they follow from what is known, and are small."""
        op = node.op
        assert isinstance(op, OnnxOp)
        if op.domain or op.name in _RANDOM or node.captures or (not inputs and op.name != "Constant"):
            return None
        if any(v is not None and not (v.type is not None and is_small(v.type)) for v in node.outputs):
            return None
        if op.name in ("Shape", "Size"):
            (only,) = inputs
            type = None if only is None else only.value.type
            sizes = type.known_sizes if isinstance(type, TensorType) else None
            if sizes is None or only is None:
                return None
            contents = [np.broadcast_to(np.zeros((), np.bool_), sizes)]
        else:
            contents = []
            for fact in inputs:
                if fact is None:
                    continue
                if fact.constant is None or fact.value.type is None or not is_small(fact.value.type):
                    return None
                contents.append(fact.constant.content)
        return self._evaluate(node, contents)

    def _evaluate(self, node: Node, contents: list[np.ndarray]) -> list[np.ndarray] | None:
        values = tuple(dict.fromkeys(v for v in node.inputs if v is not None))
        given = dict(zip((v for v in node.inputs if v is not None), contents, strict=True))
        outputs = tuple(v for v in node.outputs if v is not None)
        model = region_proto([node], values, outputs, {}, self.opsets).SerializeToString()
        region = Region(model, tuple(v.name for v in values), tuple(v.name for v in outputs))
        try:
            results = self.provider.compile(region, 1)([given[v] for v in values])
        except (Unsupported, RegionFailed, InvalidModel):
            return None  # left to run, and to fail there if it must
        if not all(isinstance(r, np.ndarray) for r in results):
            return None
        found = iter(results)
        return [np.zeros(0) if v is None else next(found) for v in node.outputs]


def named_sizes(name: str, type: Type | None) -> Type | None:
    """The type with a symbol for each size that is not known, which no other value has."""
    if not isinstance(type, TensorType) or type.sizes is None:
        return type
    sizes = tuple(f"{{{name}.{k}}}" if n is None else n for k, n in enumerate(type.sizes))
    return TensorType(type.dtype, sizes)


def _dims(fact: Fact | None) -> tuple[Dim, ...] | None:
    type = None if fact is None else fact.value.type
    return type.sizes if isinstance(type, TensorType) else None


def _truth(fact: Fact | None) -> bool | None:
    """The one truth that a value is all over, if it is known."""
    if fact is None or fact.constant is None or fact.constant.content.dtype != np.bool_:
        return None
    found = set(fact.constant.content.reshape(-1).tolist())
    return found.pop() if len(found) == 1 else None


def is_small(type: Type | None) -> bool:
    """A tensor of known sizes whose content is worth following."""
    if not isinstance(type, TensorType):
        return False
    sizes = type.known_sizes
    return sizes is not None and prod(sizes) <= SMALL


@cache
def schema_of(op: OnnxOp) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op.name, op.version, op.domain)
    except onnx.defs.SchemaError:  # an operator that ONNX does not know
        return None


@cache
def _imports(opsets: tuple[tuple[str, int], ...]) -> list[onnx.OperatorSetIdProto]:
    return [onnx.helper.make_opsetid(domain, version) for domain, version in opsets]
