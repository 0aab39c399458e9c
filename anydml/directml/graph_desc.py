"""Graph descriptions: operators, constants, and the edges between them (DML_GRAPH_DESC).

GraphDesc(
    nodes=[OperatorNode(gemm, ["x", "w", ""], ["h"]), OperatorNode(relu, ["h"], ["y"]), ConstantNode(b, "w")],
    inputs=["x"],
    outputs=["y"],
)

Edges have names; where a description counts inputs and nodes, as DirectML's own does, `read_graph_desc` makes
them. The two ends of an edge may differ in sizes and type: what is read are the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anydml.directml.descriptions import Checked, Description, OperatorDesc, read_desc
from anydml.errors import InvalidOperator, Problem, nearest, short_repr, type_name
from anydml.ir.graph import Constant, DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.call import names_of
from anydml.ops.dtypes import BITS, IN_BUFFERS
from anydml.ops.enums import FeatureLevel
from anydml.ops.tensor_desc import TensorDesc


class Created(Protocol):
    """An operator that a device created."""

    @property
    def desc(self) -> OperatorDesc: ...


def _description(operator: Description | Created) -> Description:
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
        self.values: dict[str, Value] = {}
        self.ends: dict[str, TensorDesc] = {}
        """What gives an edge says of its tensor."""
        self.constants: dict[Value, Constant] = {}

    def read(self) -> ReadGraph:
        nodes = [(k, n) for k, n in enumerate(self.desc.nodes) if isinstance(n, OperatorNode)]
        read = [(self._where(k, n), n, self._check(self._where(k, n), n)) for k, n in nodes]
        self._names()
        self._stop()
        checked = [(where, node, known) for where, node, known in read if known is not None]
        for where, node, known in checked:
            for point, edge in _points(known, "output", node.outputs):
                if edge:
                    self._give(where, edge, known.tensors[point])
        for constant in self.desc.nodes:
            if isinstance(constant, ConstantNode):
                self._constant(constant, checked)
        ordered = self._order(checked)
        result = ReadGraph(DirectMLGraph("graph", (), (), ()))
        for where, node, known in ordered:
            for point, edge in _points(known, "input", node.inputs):
                if edge in self.desc.inputs and edge not in self.values:
                    result.inputs[edge] = known.tensors[point]
                    self._give(where, edge, known.tensors[point])
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

    def _where(self, k: int, node: OperatorNode) -> str:
        return f"node {node.name!r}" if node.name else f"node {k}"

    def _check(self, where: str, node: OperatorNode) -> Checked | None:
        known, problems = read_desc(_description(node.desc), self.level)
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
        for name in sorted({n for n in given if given.count(n) > 1}):
            self._report(f"edge {name!r}", "expected one node or input that gives it, but got several")

    def _give(self, where: str, edge: str, desc: TensorDesc) -> None:
        self.ends[edge] = desc
        self.values[edge] = Value(edge, TensorType(desc.data_type.label, desc.sizes, desc.effective_strides))

    def _constant(self, node: ConstantNode, checked: Sequence[tuple[str, OperatorNode, Checked]]) -> None:
        """Its bytes, as the first that reads them sees them."""
        data = node.data.tobytes() if isinstance(node.data, np.ndarray) else bytes(node.data)
        for where, reader, known in checked:
            for point, edge in _points(known, "input", reader.inputs):
                if edge == node.output:
                    desc = known.tensors[point]
                    if len(data) < desc.reach:
                        self._report(
                            f"constant {edge!r}",
                            f"expected at least {desc.reach} bytes for {where}: {point}, but got {len(data)}",
                        )
                        return
                    self._give(where, edge, desc)
                    dtype = IN_BUFFERS[desc.data_type]
                    content = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
                    self.constants[self.values[edge]] = Constant(content)
                    return

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
            self._report(where, message, "reinterpreting as another width is not supported here")


def _points(known: Checked, kind: str, edges: Sequence[str]) -> list[tuple[str, str]]:
    """A node's tensors with their edges."""
    operands = known.operator.inputs if kind == "input" else known.operator.outputs
    return list(zip(names_of(operands, known.tensors), edges, strict=True))


def _total(desc: TensorDesc) -> int:
    total = desc.total_tensor_size_in_bytes
    return desc.minimum_size if total is None else total


# ---- descriptions that count -------------------------------------------------------------------------------

_FIELDS = ("Nodes", "InputEdges", "OutputEdges", "IntermediateEdges")
_COUNTS = (
    "InputCount",
    "OutputCount",
    "NodeCount",
    "InputEdgeCount",
    "OutputEdgeCount",
    "IntermediateEdgeCount",
)


def read_graph_desc(desc: Mapping[str, Any], level: FeatureLevel) -> GraphDesc:
    """A DML_GRAPH_DESC as a dictionary of its fields, with edges by index.

    Inputs and outputs are named by "InputNames" and "OutputNames", else "input 0", "output 0", ...

    Raises:
        InvalidOperator: with everything that is wrong with its form.
    """
    problems: list[Problem] = []
    allowed = (*_FIELDS, *_COUNTS, "InputNames", "OutputNames")
    for name in desc:
        if name not in allowed:
            message = f"expected a field of a graph, but got {short_repr(name)}"
            problems.append(Problem("graph", message, nearest(str(name), allowed)))
    lists: dict[str, list[Any]] = {}
    for name in _FIELDS:
        value = desc.get(name, [])
        if not isinstance(value, list | tuple):
            problems.append(Problem(f"graph: {name}", f"expected a list, but got {type_name(value)}"))
            value = []
        lists[name] = list(value)
    if problems:
        raise InvalidOperator(*problems)
    return _Indexed(desc, lists, level).read()


class _Indexed:
    def __init__(self, desc: Mapping[str, Any], lists: Mapping[str, list[Any]], level: FeatureLevel) -> None:
        self.desc, self.lists, self.level = desc, lists, level
        self.problems: list[Problem] = []
        self.inputs = self._named("Input")
        self.outputs = self._named("Output")
        self.edges: dict[tuple[int, str, int], str] = {}
        """The edge at each node's tensor: by node, direction and number."""

    def read(self) -> GraphDesc:
        nodes = [self._inner(k, n) for k, n in enumerate(self.lists["Nodes"])]
        for k, e in enumerate(self.lists["InputEdges"]):
            where = f"InputEdges[{k}]"
            source = self._number(e, "GraphInputIndex", len(self.inputs), where)
            target = self._number(e, "ToNodeIndex", len(nodes), where)
            point = self._number(e, "ToNodeInputIndex", 64, where)
            if None not in (source, target, point):
                self.edges[target, "input", point] = self.inputs[source]  # type: ignore[index]
        for k, e in enumerate(self.lists["OutputEdges"]):
            where = f"OutputEdges[{k}]"
            source = self._number(e, "FromNodeIndex", len(nodes), where)
            point = self._number(e, "FromNodeOutputIndex", 64, where)
            target = self._number(e, "GraphOutputIndex", len(self.outputs), where)
            if source is None or point is None or target is None:
                continue
            if (source, "output", point) in self.edges:
                where = f"{where}: node {source}, output {point}"
                self._report(where, "expected one edge from it to the graph's outputs, but got another one")
            self.edges[source, "output", point] = self.outputs[target]
        for k, e in enumerate(self.lists["IntermediateEdges"]):
            where = f"IntermediateEdges[{k}]"
            source = self._number(e, "FromNodeIndex", len(nodes), where)
            start = self._number(e, "FromNodeOutputIndex", 64, where)
            target = self._number(e, "ToNodeIndex", len(nodes), where)
            point = self._number(e, "ToNodeInputIndex", 64, where)
            if source is None or start is None or target is None or point is None:
                continue
            name = self.edges.setdefault((source, "output", start), f"node {source} output {start}")
            self.edges[target, "input", point] = name
        made = [self._with_edges(k, kind, inner) for k, (kind, inner) in enumerate(nodes)]
        if self.problems:
            raise InvalidOperator(*self.problems)
        return GraphDesc([n for n in made if n is not None], self.inputs, self.outputs)

    def _report(self, where: str, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(f"graph: {where}", message, remedy))

    def _named(self, side: str) -> list[str]:
        names = self.desc.get(f"{side}Names")
        if names is not None:
            return [str(n) for n in names]
        count = self.desc.get(f"{side}Count", 0)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**16:
            self._report(f"{side}Count", f"expected a number, but got {short_repr(count)}")
            return []
        return [f"{side.lower()} {k}" for k in range(count)]

    def _inner(self, k: int, node: Any) -> tuple[str, Mapping[str, Any]]:
        kind = (
            str(node.get("Type", "")).upper().removeprefix("DML_GRAPH_NODE_TYPE_")
            if isinstance(node, Mapping)
            else ""
        )
        inner = node.get("Desc") if isinstance(node, Mapping) else None
        if kind not in ("OPERATOR", "CONSTANT") or not isinstance(inner, Mapping):
            form = '{"Type": "OPERATOR", "Desc": {"Operator": {...}}}'
            self._report(f"Nodes[{k}]", f"expected a node such as {form}, but got {short_repr(node)}")
            return "", {}
        if kind == "CONSTANT" and self.level < FeatureLevel.FL_6_2:
            message = f"expected no constant at feature level {self.level.label}, but got one"
            self._report(f"Nodes[{k}]", message, "allowed from 6_2; make it an input")
        return kind, inner

    def _number(self, edge: Any, name: str, below: int, where: str) -> int | None:
        value = edge.get(name) if isinstance(edge, Mapping) else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
            self._report(
                f"{where}: {name}", f"expected a number from 0 to {below - 1}, but got {short_repr(value)}"
            )
            return None
        return value

    def _with_edges(self, k: int, kind: str, inner: Mapping[str, Any]) -> OperatorNode | ConstantNode | None:
        name = str(inner.get("Name", ""))
        if kind == "CONSTANT":
            data = inner.get("Data")
            if not isinstance(data, bytes | bytearray | np.ndarray):
                self._report(f"Nodes[{k}]: Data", f"expected bytes or an array, but got {type_name(data)}")
                return None
            return ConstantNode(
                data if isinstance(data, np.ndarray) else bytes(data),
                self.edges.get((k, "output", 0), f"node {k} output 0"),
                name,
            )
        if kind != "OPERATOR":
            return None
        desc = _description(inner.get("Operator"))  # type: ignore[arg-type]  # what it is, is told below
        try:
            known, _ = read_desc(desc, self.level)
        except InvalidOperator as error:
            self.problems += [p.under(f"graph: Nodes[{k}]") for p in error.problems]
            return None
        if known is None:
            return OperatorNode(desc, (), (), name)  # told when it is checked
        sides = []
        for side, operands in (("input", known.operator.inputs), ("output", known.operator.outputs)):
            points = names_of(operands, known.tensors)
            there = [point in known.tensors for point in points]
            made = f"node {k} output "
            sides.append(
                [
                    self.edges.get((k, side, j), f"{made}{j}" if side == "output" and there[j] else "")
                    for j in range(len(points))
                ]
            )
        return OperatorNode(desc, sides[0], sides[1], name)
