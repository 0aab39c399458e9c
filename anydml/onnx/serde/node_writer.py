"""Nodes as files have them, with their branches and bodies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from anydml.dataclass import dataclass, replace
from anydml.ir.graph import Body, Constant, Graph, If, Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.ir.names import Names
from anydml.ir.transforms import replace_uses
from anydml.onnx.arrays import from_array, zeros
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import Sizes
from anydml.onnx.protos import (
    AttributeProto,
    GraphProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    make_attribute,
)
from anydml.onnx.schema import is_foreign
from anydml.onnx.types import leaf, only_ranks, to_proto, with_sizes

IDENTITY = OnnxOp("", "Identity", 1)
LISTS_PASSED_ON = 14
"""The opset from which on Identity takes sequences."""


@dataclass(frozen=True)
class NodeWriter:
    """Writes the nodes of one file."""

    names: Names
    """Of values."""
    label: Callable[[Node | If], str]
    """What a node is called in the file."""
    type_proto: Callable[[Type], TypeProto] = to_proto
    initializer: Callable[[Constant, Value, str], TensorProto] = lambda c, v, name: tensor_proto(c, name)
    """A constant of a body, under a name."""
    sized: bool = True
    """Whether branches say what is known of the sizes of their outputs."""
    typed: bool = False
    """Whether branches and bodies say what is known of the types in them."""
    opset: int = LISTS_PASSED_ON
    """What the file is of."""
    around: Collection[Value] = frozenset()
    """The constants that the main graph has: bodies capture them, and have none of their own of that name."""

    inside: Collection[Value] = frozenset()
    """The constants of branches that stand in these, and not in the main graph."""

    as_nodes: bool = False
    """Whether bodies have constants as nodes: before IR 4 initializers are inputs, which bodies have not."""

    parts: Callable[[Node], list[Node]] = lambda node: [node]
    """What is written for a node."""

    def nodes(self, nodes: Iterable[Node | If]) -> Iterator[NodeProto]:
        for node in nodes:
            if isinstance(node, If):
                yield self.node(node)
                continue
            parts = self.parts(node)
            # one has its name, which two may not have: that which may fail
            named = next((p for p in parts if p.op == node.op), parts[0])
            for part in parts:
                copies = self._hidden(part) if part.bodies else {}
                yield from (self.node(Node(IDENTITY, (v,), (copy,), {}, "")) for v, copy in copies.items())
                proto = self.node(part, copies)
                if part is not node:
                    proto.name = self.label(node) if part is named else ""
                yield proto

    def node(self, node: Node | If, copies: Mapping[Value, Value] = MappingProxyType({})) -> NodeProto:
        """A node. `copies`: what its bodies read in the place of some values."""
        name = self.label(node)
        if isinstance(node, If):
            proto = NodeProto(op_type="If", name=name)
            proto.input.append(self.names.of(node.condition))
            proto.output.extend("" if v is None else self.names.of(v) for v in node.outputs)
            for word, branch in node.branches:
                self._fill(proto, f"{word}_branch", branch)
            return proto
        proto = NodeProto(op_type=node.op.name, domain=node.op.domain, name=name)
        proto.input.extend("" if v is None else self.names.of(v) for v in node.inputs)
        outputs = ["" if v is None else self.names.of(v) for v in node.outputs]
        proto.output.extend(part_names(outputs, self.names) if node.is_onnx("Split") else outputs)
        proto.attribute.extend(node.attributes.values())
        if not node.bodies:
            return proto
        for value in (v for body in _found_by_name(node) for v in (*body.parameters, *body.outputs)):
            self.names.fix(value, value.name)
        for word, body in node.bodies.items():
            body = replace_uses(body, copies, {}) if copies else body
            info = info_of(node.op)
            states = len(info.states(node)) if info is not None and node.is_onnx("Loop") else 0
            told = replace(body, returns=tuple(_returns(node, body)))
            self._fill(proto, word, told, body.conditions_of(node) + states)
        return proto

    def _hidden(self, node: Node | If) -> dict[Value, Value]:
        """What a node captures under a name that its bodies have for something of their own, with copies."""
        own = {v.name for body in _found_by_name(node) for v in (*body.parameters, *body.outputs)}
        captured = dict.fromkeys(v for body in _found_by_name(node) for v in body.inputs)
        return {v: Value(self.names.fresh(v.name), v.type) for v in captured if self.names.of(v) in own}

    def declared(self, value: Value) -> ValueInfoProto:
        return self._declare(value, value.type)

    def declared_by_rank(self, value: Value, told: Sizes | None = None) -> ValueInfoProto:
        """Without sizes, so that what is written serves every size. `told`: of a tensor whose rank is not
        inferred, what the file says of it."""
        known = value.type
        if isinstance(known, TensorType) and known.sizes is None:
            known = replace(known, sizes=told)
        return self._declare(value, None if known is None else only_ranks(known))

    def _declare(self, value: Value, type: Type | None) -> ValueInfoProto:
        return ValueInfoProto(name=self.names.of(value), type=None if type is None else self.type_proto(type))

    def _fill(self, node: NodeProto, attribute: str, graph: Graph, states: int = 0) -> None:
        proto = node.attribute.add(name=attribute, type=AttributeProto.GRAPH).g
        proto.name = graph.name
        graph = with_own_outputs(graph, self.opset, states)
        if isinstance(graph, Body):
            proto.input.extend(map(self._declare, graph.parameters, graph.takes))
        proto.node.extend(self.nodes(graph.nodes))
        if isinstance(graph, Body):
            proto.output.extend(map(self._declare, graph.outputs, graph.returns))
            self._initializers(proto, graph)
        else:
            proto.output.extend(map(self.declared if self.sized else self.declared_by_rank, graph.outputs))
            for value in dict.fromkeys(v for n in graph.nodes for v in n.reads if v in self.inside):
                proto.initializer.append(
                    self.initializer(graph.constants[value], value, self.names.of(value))
                )
        if self.typed:
            made = (v for n in graph.nodes for v in n.writes if v not in graph.outputs)
            proto.value_info.extend(self.declared(v) for v in made if v.type is not None)

    def _initializers(self, proto: GraphProto, body: Body) -> None:
        own = {v: c for v, c in used_constants(body) if v not in self.around}
        tensors = [self.initializer(constant, value, self.names.of(value)) for value, constant in own.items()]
        if self.as_nodes:
            nodes = [*map(constant_node, tensors), *proto.node]
            del proto.node[:]
            proto.node.extend(nodes)
        else:
            proto.initializer.extend(tensors)


def _found_by_name(node: Node | If) -> tuple[Body, ...]:
    """The bodies in which a library looks by name for what they take and give, as its beam search does."""
    return () if isinstance(node, If) or not is_foreign(node.op) else tuple(node.bodies.values())


def _returns(node: Node, body: Body) -> Iterator[Type | None]:
    """What a file says of the outputs of a body, with the sizes of rows that are known: where there is no
    iteration, runtimes take them from here, and 0 for others."""
    info = info_of(node.op)
    for k, (value, told) in enumerate(zip(body.outputs, body.returns, strict=True)):
        if node.is_onnx("Scan"):
            told = _with_rank(value, told)
        yield with_sizes(told, None if info is None else info.row(node, k))


def _with_rank(value: Value, told: Type | None) -> Type | None:
    """What a file says of an output of a Scan's body, with its rank, which onnxruntime asks for."""
    if not isinstance(told, TensorType) or told.sizes is not None or value.type is None:
        return told
    return only_ranks(value.type)


def used_constants(graph: Graph) -> Iterator[tuple[Value, Constant]]:
    """All constants that are used, those of branches too but not of bodies, in the order of their use."""

    def known(values: Iterable[Value]) -> Iterator[tuple[Value, Constant]]:
        yield from ((v, graph.constants[v]) for v in values if v in graph.constants)

    for node in graph.nodes:
        yield from known([node.condition] if isinstance(node, If) else node.reads)
        if isinstance(node, If):
            for _, branch in node.branches:
                yield from used_constants(branch)
    yield from known(graph.outputs)


def with_own_outputs(graph: Graph, opset: int, states: int = 0) -> Graph:
    """A branch or body with an Identity for each output that it does not compute, which runtimes insist on.

    Their names say where they stand, not what they pass on, which may get another name. The parameters of a
    Loop's body may be returned as they are as the next of its `states`, so many outputs, but for sequences:
    onnxruntime takes the items out of the one that they come from. As rows, or from a Scan's body, it then
    gives what was never written. The number of the iteration it counts on in the tensor that the body got,
    and would so change what the body returned.
    """
    written = {v for n in graph.nodes for v in n.writes}
    parameters: dict[Value, Type | None] = {}
    if isinstance(graph, Body) and states:
        given = zip(graph.parameters[1:], graph.takes[1:], strict=True)
        parameters = {v: v.type or t for v, t in given}
    extra: list[Node] = []
    outputs: list[Value] = []
    for k, value in enumerate(graph.outputs):
        type = parameters.get(value, value.type)
        passed_on = value in parameters and k < states and not isinstance(type, SequenceType)
        if not (value in written or passed_on) or value in outputs:
            result = Value(f"{graph.name}~output{k}", value.type)
            extra += _passed_on(value, type, result, opset)
            value = result
        outputs.append(value)
    return replace(graph, outputs=tuple(outputs), nodes=(*graph.nodes, *extra))


def _passed_on(value: Value, type: Type | None, result: Value, opset: int) -> Iterator[Node]:
    """Nodes that give a value as it is; to a sequence, before Identity takes one, an item that goes again."""
    if not isinstance(type, SequenceType) or opset >= LISTS_PASSED_ON:
        yield Node(IDENTITY, (value,), (result,), {}, result.name)
        return
    name, dtype = result.name, leaf(type).dtype
    item, place, longer = Value(f"{name}~item"), Value(f"{name}~place"), Value(f"{name}~longer")
    for constant, kind in ((item, dtype), (place, "int64")):
        told = {"value": make_attribute("value", zeros(kind))}
        yield Node(OnnxOp("", "Constant", opset), (), (constant,), told, constant.name)
    yield Node(OnnxOp("", "SequenceInsert", opset), (value, item, place), (longer,), {}, longer.name)
    yield Node(OnnxOp("", "SequenceErase", opset), (longer, place), (result,), {}, name)


def part_names(outputs: list[str], names: Names) -> list[str]:
    """Names for all results of a Split: onnxruntime ends the process if one has none."""
    stem = next((name for name in outputs if name), "split")
    return [name or names.fresh(stem) for name in outputs]


def tensor_proto(constant: Constant, name: str) -> TensorProto:
    """A constant as a tensor of the file, under a name."""
    proto = TensorProto()
    if isinstance(constant.source, TensorProto):
        proto.CopyFrom(constant.source)
    else:
        proto.CopyFrom(from_array(constant.content))
    proto.name = name
    return proto


def constant_node(tensor: TensorProto) -> NodeProto:
    """What gives a tensor under its name."""
    proto = NodeProto(op_type="Constant", output=[tensor.name])
    proto.attribute.add(name="value", type=AttributeProto.TENSOR).t.CopyFrom(tensor)
    return proto
