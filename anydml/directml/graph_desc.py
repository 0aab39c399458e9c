"""Graph descriptions: operators, constants, and the edges between them (DML_GRAPH_DESC).

GraphDesc(
    nodes=[OperatorNode(gemm, ["x", "w", ""], ["h"]), OperatorNode(relu, ["h"], ["y"]), ConstantNode(b, "w")],
    inputs=["x"],
    outputs=["y"],
)

Edges have names; where a description counts inputs and nodes, as DirectML's own does, counted_graph.py makes
them. The two ends of an edge may differ in sizes and type: what is read are the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass, field
from anydml.directml.descriptions import Checked, Description, OperatorDesc, read_desc
from anydml.errors import InvalidOperator, Problem, Unsupported, nearest, short_repr, type_name
from anydml.ir.graph import Constant, DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.call import names_of
from anydml.ops.dtypes import BITS, IN_BUFFERS, is_masked
from anydml.ops.enums import FeatureLevel, TensorFlags
from anydml.ops.tensor_desc import TensorDesc


class Created(Protocol):
    """An operator that a device created."""

    @property
    def desc(self) -> OperatorDesc: ...


def description(operator: Description | Created) -> Description:
    if isinstance(operator, Mapping | OperatorDesc) or not hasattr(operator, "desc"):
        return operator  # type: ignore[return-value]  # what it is instead, is told by whoever reads it
    return operator.desc


@dataclass(frozen=True)
class OperatorNode:
    """An operator (DML_OPERATOR_GRAPH_NODE_DESC).

    Args:
        desc: what `Device.create_operator` takes, or what it gave.
        inputs, outputs: the edge at each of its tensors, in the order of its fields; "": it is left out.
        name: for messages.
    """

    desc: Description | Created
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = ""


@dataclass(frozen=True)
class ConstantNode:
    """Bytes that are known (DML_CONSTANT_DATA_GRAPH_NODE_DESC), and the edge that gives them."""

    data: bytes | NDArray[Any]
    output: str
    name: str = ""


@dataclass(frozen=True)
class GraphDesc:
    """A graph (DML_GRAPH_DESC)."""

    nodes: Sequence[OperatorNode | ConstantNode]
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass
class ReadGraph:
    """A graph whose nodes and edges hold."""

    graph: DirectMLGraph
    inputs: dict[str, TensorDesc] = field(default_factory=dict)
    outputs: dict[str, TensorDesc] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


def to_directml_graph(desc: GraphDesc, level: FeatureLevel) -> ReadGraph:
    """The graph, checked.

    Raises:
        InvalidOperator: with everything that is wrong with its nodes and edges.
    """
    return _Reader(desc, level).read()


class _Reader:
    def __init__(self, desc: GraphDesc, level: FeatureLevel) -> None:
        self.desc, self.level = desc, level
        self.problems: list[Problem] = []
        self.unsupported: list[Problem] = []
        """What DirectML allows."""
        self.values: dict[str, Value] = {}
        self.ends: dict[str, TensorDesc] = {}
        """What gives an edge says of its tensor."""
        self.constants: dict[Value, Constant] = {}
        self.readers: dict[str, list[tuple[str, TensorDesc]]] = {}
        """Who reads an edge, and as what: it may be more than whoever gives it writes."""

    def read(self) -> ReadGraph:
        self._form()
        nodes = [(k, n) for k, n in enumerate(self.desc.nodes) if isinstance(n, OperatorNode)]
        read = [(self._where(k, n), n, self._check(self._where(k, n), n)) for k, n in nodes]
        self._names()
        self._stop()
        checked = [(where, node, known) for where, node, known in read if known is not None]
        for where, node, known in checked:
            for point, edge in _points(known, "input", node.inputs):
                if edge:
                    self.readers.setdefault(edge, []).append((f"{where}: {point}", known.tensors[point]))
        for _, node, known in checked:
            for point, edge in _points(known, "output", node.outputs):
                if edge:
                    self._give(edge, known.tensors[point])
        for constant in self.desc.nodes:
            if isinstance(constant, ConstantNode):
                self._constant(constant)
        ordered = self._order(checked)
        result = ReadGraph(DirectMLGraph("graph", (), (), ()))
        for _, node, known in ordered:
            for point, edge in _points(known, "input", node.inputs):
                if edge in self.desc.inputs and edge not in self.values:
                    result.inputs[edge] = known.tensors[point]
                    self._give(edge, known.tensors[point])
        for name in self.desc.inputs:
            if name not in self.values:
                self._report(f"input {name!r}", "expected an edge from it to a node, but there is none")
        for name in self.desc.outputs:
            if name in self.ends and name not in self.desc.inputs:
                result.outputs[name] = self.ends[name]
            else:
                self._report(f"output {name!r}", "expected an edge to it from a node, but there is none")
        made = [self._node(where, node, known) for where, node, known in ordered]
        self._stop()
        result.values = {n: self.values[n] for n in (*self.desc.inputs, *self.desc.outputs)}
        result.graph = DirectMLGraph(
            "graph",
            tuple(self.values[n] for n in self.desc.inputs),
            tuple(self.values[n] for n in self.desc.outputs),
            tuple(made),
            self.constants,
        )
        return result

    def _report(self, where: str, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(where, message, remedy))

    def _stop(self) -> None:
        if self.problems:
            raise InvalidOperator(*self.problems)
        if self.unsupported:
            raise Unsupported(*self.unsupported)

    def _form(self) -> None:
        """Nodes are nodes, edges have names, constants are bytes."""
        for side, names in (("inputs", self.desc.inputs), ("outputs", self.desc.outputs)):
            self._edges("graph", side, names)
        if not isinstance(self.desc.nodes, list | tuple):
            self._report("graph: nodes", f"expected a list, but got {type_name(self.desc.nodes)}")
            self._stop()
        for k, node in enumerate(self.desc.nodes):
            if isinstance(node, OperatorNode):
                self._edges(self._where(k, node), "inputs", node.inputs)
                self._edges(self._where(k, node), "outputs", node.outputs)
            elif not isinstance(node, ConstantNode):
                self._report(
                    f"node {k}", f"expected an OperatorNode or a ConstantNode, but got {type_name(node)}"
                )
            elif not _has_bytes(node.data):
                self._report(f"node {k}: data", f"expected bytes or an array, but got {_shown(node.data)}")
            else:
                self._edges(f"node {k}", "output", [node.output])
        self._stop()

    def _edges(self, where: str, side: str, names: Any) -> None:
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            self._report(f"{where}: {side}", f"expected names of edges, but got {short_repr(names)}")

    def _where(self, k: int, node: OperatorNode) -> str:
        return f"node {node.name!r}" if node.name else f"node {k}"

    def _check(self, where: str, node: OperatorNode) -> Checked | None:
        known, problems = read_desc(description(node.desc), self.level)
        self.problems += [p.under(where) for p in problems]
        if known is None or problems:
            return None
        for kind, edges in (("input", node.inputs), ("output", node.outputs)):
            operands = known.operator.inputs if kind == "input" else known.operator.outputs
            names = names_of(operands, known.tensors)
            if len(edges) != len(names):
                message = f"expected {len(names)} {kind} edges ({', '.join(names)}), but got {len(edges)}"
                self._report(where, message, 'give "" for a tensor that is left out')
                continue
            for name, edge in zip(names, edges, strict=True):
                if bool(edge) != (name in known.tensors):
                    got = "an edge, but the operator has no such tensor" if edge else "none"
                    self._report(f"{where}: {name}", f"expected an edge for each tensor, but got {got}")
        return known

    def _names(self) -> None:
        """Each name is given once."""
        given = [*self.desc.inputs]
        for node in self.desc.nodes:
            given += [e for e in node.outputs if e] if isinstance(node, OperatorNode) else [node.output]
        for name in sorted(n for n, count in Counter(given).items() if count > 1):
            self._report(f"edge {name!r}", "expected one node or input that gives it, but got several")

    def _give(self, edge: str, desc: TensorDesc) -> None:
        self.ends[edge] = desc
        reach = max(d.reach for d in (desc, *(read for _, read in self.readers.get(edge, ()))))
        label, strides = desc.data_type.label, desc.effective_strides
        self.values[edge] = Value(edge, TensorType(label, desc.sizes, strides, reach))

    def _constant(self, node: ConstantNode) -> None:
        """Its bytes, as the first that reads them sees them."""
        data = node.data.tobytes() if isinstance(node.data, np.ndarray) else bytes(node.data)
        edge, readers = node.output, self.readers.get(node.output)
        for where, desc in readers or ():
            if len(data) < desc.reach:
                message = f"expected at least {desc.reach} bytes for {where}, but got {len(data)}"
                self._report(f"constant {edge!r}", message)
                return
        if readers:
            _, desc = readers[0]
            self._give(edge, desc)
            dtype = IN_BUFFERS[desc.data_type]
            self.constants[self.values[edge]] = Constant(
                np.frombuffer(data + bytes(-len(data) % dtype.itemsize), dtype)
            )

    def _order(
        self, nodes: Sequence[tuple[str, OperatorNode, Checked]]
    ) -> list[tuple[str, OperatorNode, Checked]]:
        """The nodes in an order that runs."""
        makers = {e: k for k, (_, node, _) in enumerate(nodes) for e in node.outputs if e}
        constants = {n.output for n in self.desc.nodes if isinstance(n, ConstantNode)}
        state: dict[int, bool] = {}
        ordered: list[tuple[str, OperatorNode, Checked]] = []
        for first in range(len(nodes)):
            stack = [first]
            while stack:
                k = stack[-1]
                where, node, _ = nodes[k]
                if state.get(k):
                    stack.pop()
                    continue
                waiting = []
                for edge in filter(None, node.inputs):
                    if edge in makers and not state.get(makers[edge]):
                        waiting.append(makers[edge])
                    elif edge not in makers and edge not in constants and edge not in self.desc.inputs:
                        guess = nearest(edge, [*makers, *constants, *self.desc.inputs])
                        self._report(where, f"expected something that gives edge {edge!r}", guess)
                self._stop()
                if waiting and state.get(k) is False:
                    raise InvalidOperator(Problem(where, "expected a graph without cycles, but it is in one"))
                if waiting:
                    state[k] = False
                    stack += waiting
                else:
                    state[k] = True
                    ordered.append(nodes[k])
                    stack.pop()
        return ordered

    def _node(self, where: str, node: OperatorNode, known: Checked) -> DirectMLNode:
        inputs: list[Value | None] = []
        views: dict[int, TensorType] = {}
        for k, (point, edge) in enumerate(_points(known, "input", node.inputs)):
            inputs.append(self.values.get(edge) if edge else None)
            if edge and edge in self.ends:
                desc, given = known.tensors[point], self.ends[edge]
                self._meet(f"{where}: {point}", edge, given, desc, known)
                self._owned(f"{where}: {point}", edge, given, desc)
                views[k] = TensorType(desc.data_type.label, desc.sizes, desc.effective_strides)
        outputs = tuple(self.values.get(e) if e else None for e in node.outputs)
        return DirectMLNode(known.operator, tuple(inputs), outputs, known.attributes, name=where, views=views)

    def _meet(self, where: str, edge: str, given: TensorDesc, read: TensorDesc, known: Checked) -> None:
        """The two ends of an edge are as many bytes."""
        if _total(given) != _total(read):
            message = f"expected TotalTensorSizeInBytes of {_total(given)}, as edge {edge!r} gives it"
            self._report(where, f"{message}, but got {_total(read)}")
        elif known.operator.compute is None and BITS[given.data_type] != BITS[read.data_type]:
            message = f"expected a type as wide as {given.data_type.label}, but got {read.data_type.label}"
            remedy = "DirectML takes it, but reinterpreting as another width is not supported here"
            self.unsupported.append(Problem(where, message, remedy))

    def _owned(self, where: str, edge: str, given: TensorDesc, read: TensorDesc) -> None:
        """What DirectML keeps comes from outside, and is kept for whoever reads it."""
        flag = TensorFlags.OWNED_BY_DML
        if edge not in self.desc.inputs:
            if read.flags & flag:
                message = f"expected an input of the graph, as it is OWNED_BY_DML, but got edge {edge!r}"
                self._report(where, message, "leave the flag out")
        elif (read.flags ^ given.flags) & flag:
            theirs, its = ("OWNED_BY_DML" if d.flags & flag else "NONE" for d in (given, read))
            message = f"expected flags {theirs}, as others that read input {edge!r} have, but got {its}"
            self._report(where, message)


def _has_bytes(data: object) -> bool:
    """Whether it is bytes, or an array whose bytes say all of it."""
    if isinstance(data, np.ndarray):
        return not data.dtype.hasobject and not is_masked(data)
    return isinstance(data, bytes | bytearray | memoryview)


def _shown(data: object) -> str:
    return f"an array of {data.dtype}" if type(data) is np.ndarray else type_name(data)


def _points(known: Checked, kind: str, edges: Sequence[str]) -> list[tuple[str, str]]:
    """A node's tensors with their edges."""
    operands = known.operator.inputs if kind == "input" else known.operator.outputs
    return list(zip(names_of(operands, known.tensors), edges, strict=True))


def _total(desc: TensorDesc) -> int:
    total = desc.total_tensor_size_in_bytes
    return desc.minimum_size if total is None else total
