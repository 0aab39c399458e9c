"""A graph whose values have the types that follow: by ONNX's own rules, node by node, and by symbols.

Nothing is taken away or put in. A node of which something is not known is not asked about, so that no
library meets what it may not expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from anydml.ir.dims import Affine, Dim, is_anonymous
from anydml.ir.graph import Body, Constant, Graph, If, Node, SequenceType, TensorType, Type, Value
from anydml.ir.transforms import read_values, replace_values
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.partial_eval.joined_types import common, either, with_fresh_symbols
from anydml.onnx.partial_eval.shape_inference import AbstractValue, ShapeInference
from anydml.onnx.protos import ModelProto
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import Provider
from anydml.onnx.serde.deserialize import Argument, Model, read_proto
from anydml.onnx.serde.local_functions import inline_functions
from anydml.onnx.serde.parse import ModelSource, parse
from anydml.onnx.subgraphs import in_order
from anydml.onnx.types import without_sizes, without_symbols


class TypedModel(NamedTuple):
    """A file, as it is and with its functions inlined; what was read of it; its graph with types."""

    proto: ModelProto
    inlined: ModelProto
    folder: Path | None
    read: Model
    graph: Graph


def read_typed(source: ModelSource, provider: Provider) -> TypedModel:
    """A model, read and typed.

    Raises:
        InvalidInput, InvalidModel, Unsupported, OSError: as `parse` and `read` do.
    """
    proto, folder, where = parse(source)
    proto = in_order(proto)
    inlined = inline_functions(proto, where)
    read = read_proto(inlined, folder, where)
    graph = annotate_types(read.graph, read.opsets, provider, read.declared)
    return TypedModel(proto, inlined, folder, read, graph)


def annotate_types(
    graph: Graph, opsets: Mapping[str, int], provider: Provider, declared: Mapping[Value, Type] | None = None
) -> Graph:
    """The graph with types. `provider` evaluates what follows from constants: sizes do.

    Args:
        declared: what a file says of values, for where less follows.
    """
    return replace_values(graph, _typed(graph, opsets, provider, declared or {}).values)


def typed_outputs(model: Model) -> tuple[Argument, ...]:
    """The outputs of the types that their file declares, with what follows where it does not say a size."""
    if all(is_fixed(o.type) for o in model.outputs):
        return model.outputs
    graph = annotate_types(model.graph, model.opsets, OnnxRuntime(), model.declared)
    pairs = zip(model.outputs, graph.outputs, strict=True)
    return tuple(replace(output, type=_merged(output.type, value.type)) for output, value in pairs)


def is_fixed(type: Type | None) -> bool:
    """Whether nothing can follow that a type does not say."""
    sizes = type.sizes if isinstance(type, TensorType) else ()
    return type is not None and sizes is not None and all(isinstance(n, int) for n in sizes)


def _merged(told: Type | None, follows: Type | None) -> Type | None:
    """What a file says, and what follows where it says nothing, or no number."""
    if told is None or follows is None or not isinstance(told, TensorType):
        return follows if told is None else told
    if not isinstance(follows, TensorType) or follows.dtype != told.dtype or follows.sizes is None:
        return told
    if told.sizes is None:
        return follows
    if len(told.sizes) != len(follows.sizes):
        return told
    pairs = zip(told.sizes, follows.sizes, strict=True)
    sizes = tuple(n if isinstance(n, int) or not (n is None or isinstance(m, int)) else m for n, m in pairs)
    return TensorType(told.dtype, sizes)


def _typed(
    graph: Graph, opsets: Mapping[str, int], provider: Provider, declared: Mapping[Value, Type]
) -> _Typing:
    symbols = {n for v in graph.inputs for n in v.sizes or ()}
    typing = _Typing(ShapeInference(opsets, provider), declared, symbols)
    for value in graph.inputs:
        typing.facts[value] = AbstractValue(Value(value.name, with_fresh_symbols(value.type)))
    typing.walk(graph)
    return typing


def refused_inside(graph: Graph, opsets: Mapping[str, int], provider: Provider) -> frozenset[Node]:
    """The nodes of branches and bodies whose sizes ONNX's inference refuses."""
    typing = _typed(graph, opsets, provider, {})
    return frozenset(typing.refused - set(graph.nodes))


def with_typed_bodies(
    node: Node, constants: Mapping[Value, Constant], opsets: Mapping[str, int], provider: Provider
) -> Node:
    """A node of a graph with types, its bodies typed, too. `constants`: those of the graph."""
    if not node.bodies:
        return node
    reads = tuple(dict.fromkeys(node.reads))
    known = {v: constants[v] for v in reads if v in constants}
    alone = Graph(node.name, tuple(v for v in reads if v not in known), (), (node,), known)
    (typed,) = annotate_types(alone, opsets, provider).nodes
    assert isinstance(typed, Node)
    return typed


def _says_more(type: Type, told: Type | None) -> bool:
    """Whether what a body says of an output is more than inference tells: of sequences and ranks, it is."""
    if not isinstance(type, TensorType) or type.sizes is None:
        return True
    return not isinstance(told, TensorType) or told.sizes is None


class _Typing:
    def __init__(self, oracle: ShapeInference, declared: Mapping[Value, Type], symbols: Set[Dim]) -> None:
        self.oracle, self.declared, self.symbols = oracle, declared, symbols
        self.facts: dict[Value, AbstractValue] = {}
        self.values: dict[Value, Value] = {}
        """For each value that a node makes, the one with its type."""
        self.refused: set[Node] = set()
        """Those whose sizes ONNX's inference refuses."""

    def walk(self, graph: Graph) -> None:
        for value, constant in graph.constants.items():
            self.facts[value] = AbstractValue(value, constant)
        for node in graph.nodes:
            if isinstance(node, If):
                self._if(node)
            else:
                self._node(node)

    def _if(self, node: If) -> None:
        for _, branch in node.branches:
            self.walk(branch)
        ends = zip(node.then_branch.outputs, node.else_branch.outputs, strict=True)
        for value, (a, b) in zip(node.outputs, ends, strict=True):
            if value is not None:
                type = either(self.facts[a].value.type, self.facts[b].value.type)
                self._know(value, AbstractValue(Value(value.name, type)))

    def _node(self, node: Node) -> None:
        inputs = [None if v is None else self.facts[v] for v in node.inputs]
        stood = read_values(node, {v: self.facts[v].value for v in node.reads})
        found: dict[int, Type] = {}
        typed = {}
        for name, body in node.bodies.items():
            resizes = self._with_resized_states(stood, body)
            found |= self._body(stood, body)
            typed[name] = resizes or replace_values(body, self.values)
        stood = stood.changed(bodies=typed) if typed else stood
        told, facts, _ = self.oracle.outputs(stood, inputs)
        if told.refused and not node.bodies:
            self.refused.add(node)
        else:
            self.refused.discard(node)  # as it may be in another round of a loop
        for k, (value, fact) in enumerate(zip(node.outputs, facts, strict=True)):
            if value is not None and fact is not None:
                if k in found and _says_more(found[k], fact.value.type):
                    fact = replace(fact, value=Value(value.name, found[k]))
                self._know(value, fact)

    def _with_resized_states(self, node: Node, body: Body) -> Body | None:
        """A body whose types follow not from the sizes that its states begin with, but from the file's word,
        where they may change and it gives rows: of these, libraries that give none tell the sizes by that."""
        info = info_of(node.op)
        states = {} if info is None else info.states(node)
        if info is None or not info.resizes_states or len(body.outputs) == len(states) + 1:
            return None
        for k, (value, told) in enumerate(zip(body.parameters, body.takes, strict=True)):
            type = info.parameter(node, k) or value.type
            if type is not None and k in states:
                type = without_sizes(type) if told is None else without_symbols(told)
            self._know(value, AbstractValue(Value(value.name, type)))
        self.walk(body)
        return replace_values(body, self.values)

    def _body(self, node: Node, body: Body) -> dict[int, Type]:
        """Type a body by what it is called with, in any iteration: sizes of states may change.

        `node`: with the types of its inputs. Answers with the types of its outputs that are states,
        or rows of any rank.
        """
        info = info_of(node.op)
        types = [None if v.type is None else without_sizes(v.type) for v in body.parameters]
        if info is not None:
            types = [info.parameter(node, k) or t for k, t in enumerate(types)]
        states = {} if info is None else info.states(node)
        while True:
            for parameter, type in zip(body.parameters, types, strict=True):
                self._know(parameter, AbstractValue(Value(parameter.name, type)))
            self.walk(body)
            later = {k: self.facts[body.outputs[j]].value.type for k, j in states.items()}
            wider = [common(t, later[k]) if k in later else t for k, t in enumerate(types)]
            if wider == types:
                if info is None:  # a library's own, whose outputs are something else
                    return {}
                first = body.conditions_of(node)
                found = {j - first: t for k, j in states.items() if (t := types[k]) is not None}
                rows = self._rows_of_any_rank(body, first, len(states))
                collects = info.makes_container
                return found | ({k: SequenceType(t) for k, t in rows.items()} if collects else rows)
            types = wider

    def _rows_of_any_rank(self, body: Body, first: int, states: int) -> dict[int, TensorType]:
        """Rows whose ranks an If leaves open; ONNX's inference may take that of one branch."""
        rows = enumerate((self.facts[v].value.type for v in body.outputs[first + states :]), states)
        return {k: t for k, t in rows if isinstance(t, TensorType) and t.sizes is None}

    def _know(self, value: Value, fact: AbstractValue) -> None:
        type = self._more(fact.value.type, self.declared.get(value))
        self.values[value] = Value(value.name, with_fresh_symbols(type))
        self.facts[value] = replace(fact, value=self.values[value])

    def _more(self, found: Type | None, declared: Type | None) -> Type | None:
        """What was found, and of what was declared that which is not known otherwise."""
        if isinstance(declared, TensorType) and declared.sizes is not None:
            declared = TensorType(declared.dtype, tuple(map(self._believe, declared.sizes)))
        if not isinstance(found, TensorType) or not isinstance(declared, TensorType):
            return found or declared
        if found.sizes is None or declared.sizes is None or len(found.sizes) != len(declared.sizes):
            return found if found.sizes is not None else TensorType(found.dtype, declared.sizes)
        pairs = zip(found.sizes, declared.sizes, strict=True)
        return TensorType(found.dtype, tuple(m if is_anonymous(n) and m is not None else n for n, m in pairs))

    def _believe(self, size: Dim) -> Dim:
        """A declared size, unless it is a symbol that no input has: exporters invent those."""
        return None if isinstance(size, Affine) and size not in self.symbols else size
