"""Graph descriptions as DirectML has them (DML_GRAPH_DESC): edges count inputs, outputs and nodes.

They become those of graph_desc.py, whose edges have names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anydml.directml.descriptions import read_desc
from anydml.directml.graph_desc import ConstantNode, GraphDesc, OperatorNode, description
from anydml.errors import InvalidOperator, Problem, counted, nearest, short_repr, type_name
from anydml.ops.call import names_of
from anydml.ops.enums import FeatureLevel

_LISTS = {
    "Nodes": "NodeCount",
    "InputEdges": "InputEdgeCount",
    "OutputEdges": "OutputEdgeCount",
    "IntermediateEdges": "IntermediateEdgeCount",
}
_ENDS = {"InputNames": "InputCount", "OutputNames": "OutputCount"}
_NODES = {"OPERATOR": ("Operator", "Name"), "CONSTANT": ("Data", "DataSize", "Name")}
_MAX_ENDS = 1 << 16


def read_graph_desc(desc: Mapping[str, Any], level: FeatureLevel) -> GraphDesc:
    """A DML_GRAPH_DESC as a dictionary of its fields.

    Inputs and outputs are named by "InputNames" and "OutputNames", else "input 0", "output 0", ...

    Raises:
        InvalidOperator: with everything that is wrong with its form.
    """
    return _Reader(desc, level).read()


class _Reader:
    def __init__(self, desc: Mapping[str, Any], level: FeatureLevel) -> None:
        self.desc, self.level = desc, level
        self.problems: list[Problem] = []
        self.edges: dict[tuple[int, str, int], str] = {}
        """The edge at each node's tensor: by node, direction and number."""
        self.ends: dict[int, list[tuple[str, str, int]]] = {}
        """Of each node, where the description says that an edge ends at one of its tensors, and at which."""

    def read(self) -> GraphDesc:
        self._only("", self.desc, (*_LISTS, *_LISTS.values(), *_ENDS, *_ENDS.values()))
        lists = {name: self._list(name, count) for name, count in _LISTS.items()}
        inputs, outputs = (self._names(names, count) for names, count in _ENDS.items())
        self._stop()
        nodes = [self._node(k, node) for k, node in enumerate(lists["Nodes"])]
        for where, source, target in self._ends("InputEdges", lists, (inputs, nodes)):
            self._connect(where, target, inputs[source[0]])
        for where, source, target in self._ends("OutputEdges", lists, (nodes, outputs)):
            if source in self.edges:
                at = f"{where}: node {source[0]}, output {source[2]}"
                self._report(at, "expected one edge from it to the graph's outputs, but got another one")
            self.edges[source] = outputs[target[0]]
        for where, source, target in self._ends("IntermediateEdges", lists, (nodes, nodes)):
            edge = self.edges.setdefault(source, f"node {source[0]} output {source[2]}")
            self._connect(where, target, edge)
        made = [self._with_edges(k, kind, inner) for k, (kind, inner) in enumerate(nodes)]
        self._stop()
        return GraphDesc([n for n in made if n is not None], inputs, outputs)

    def _report(self, where: str, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(f"graph: {where}" if where else "graph", message, remedy))

    def _stop(self) -> None:
        if self.problems:
            raise InvalidOperator(*self.problems)

    def _only(self, where: str, given: Mapping[Any, Any], allowed: Sequence[str]) -> None:
        """A structure has no fields but these."""
        for name in given:
            if name not in allowed:
                message = f"expected one of its fields, but got {short_repr(name)}"
                self._report(where, message, nearest(str(name), allowed))

    def _list(self, name: str, count: str) -> list[Any]:
        """A list, and a count of it that may as well be left out."""
        value = self.desc.get(name, [])
        if not isinstance(value, list | tuple):
            self._report(name, f"expected a list, but got {type_name(value)}")
            return []
        said = self.desc.get(count)
        if said is not None and not (_is_index(said) and said == len(value)):
            self._report(count, f"expected {len(value)}, the number of {name}, but got {short_repr(said)}")
        return list(value)

    def _names(self, names: str, count: str) -> list[str]:
        """Of the graph's inputs or outputs."""
        if self.desc.get(names) is not None:
            found = self._list(names, count)
            if not all(isinstance(name, str) and name for name in found):
                self._report(names, f"expected names, but got {short_repr(found)}")
            return found
        many = self.desc.get(count, 0)
        if not _is_index(many) or many >= _MAX_ENDS:
            self._report(count, f"expected a number below {_MAX_ENDS}, but got {short_repr(many)}")
            return []
        return [f"{count.removesuffix('Count').lower()} {k}" for k in range(many)]

    def _tagged(self, what: Any, prefix: str) -> tuple[str, Any]:
        """The type and the description in a structure of both, such as DML_GRAPH_NODE_DESC."""
        if not isinstance(what, Mapping):
            return "", None
        return str(what.get("Type", "")).upper().removeprefix(prefix), what.get("Desc")

    def _node(self, k: int, node: Any) -> tuple[str, Mapping[str, Any]]:
        where = f"Nodes[{k}]"
        kind, inner = self._tagged(node, "DML_GRAPH_NODE_TYPE_")
        if kind not in _NODES or not isinstance(inner, Mapping):
            form = '{"Type": "OPERATOR", "Desc": {"Operator": {...}}}'
            self._report(where, f"expected a node such as {form}, but got {short_repr(node)}")
            return "", {}
        self._only(where, node, ("Type", "Desc"))
        self._only(where, inner, _NODES[kind])
        if kind == "CONSTANT" and self.level < FeatureLevel.FL_6_2:
            message = f"expected no constant at feature level {self.level.label}, but got one"
            self._report(where, message, "allowed from 6_2; make it an input")
        return kind, inner

    def _ends(
        self, name: str, lists: Mapping[str, list[Any]], sides: tuple[Sequence[Any], Sequence[Any]]
    ) -> list[tuple[str, tuple[int, str, int], tuple[int, str, int]]]:
        """Where edges of one kind are told, come from and go to; of those that could be read."""
        from_graph, to_graph = name == "InputEdges", name == "OutputEdges"
        source = ["GraphInputIndex"] if from_graph else ["FromNodeIndex", "FromNodeOutputIndex"]
        target = ["GraphOutputIndex"] if to_graph else ["ToNodeIndex", "ToNodeInputIndex"]
        found = []
        for k, edge in enumerate(lists[name]):
            where = f"{name}[{k}]"
            kind, inner = self._tagged(edge, "DML_GRAPH_EDGE_TYPE_")
            if isinstance(inner, Mapping):  # as DML_GRAPH_EDGE_DESC
                wanted = name.removesuffix("Edges").upper()
                if kind != wanted:
                    self._report(f"{where}: Type", f"expected {wanted}, but got {short_repr(edge['Type'])}")
                self._only(where, edge, ("Type", "Desc"))
                edge = inner
            if not isinstance(edge, Mapping):
                form = ", ".join(f'"{n}": 0' for n in (*source, *target))
                self._report(where, f"expected an edge such as {{{form}}}, but got {short_repr(edge)}")
                continue
            self._only(where, edge, (*source, *target, "Name"))
            ends = []
            for (whole, *part), side, way in zip((source, target), sides, ("output", "input"), strict=True):
                index = self._index(edge, whole, where, len(side))
                point = self._index(edge, part[0], where) if part else 0
                if index is not None and point is not None:
                    ends.append((index, way, point))
                    if part:
                        self.ends.setdefault(index, []).append((f"{where}: {part[0]}", way, point))
            if len(ends) == 2:
                found.append((where, ends[0], ends[1]))
        return found

    def _index(self, edge: Mapping[str, Any], name: str, where: str, below: int | None = None) -> int | None:
        value = edge.get(name)
        if _is_index(value) and (below is None or value < below):  # type: ignore[operator]
            return value
        wanted = "a number from 0 on" if below is None else f"a number from 0 to {below - 1}"
        if below == 0:
            wanted = "no edge, as there is nothing that it could mean"
        self._report(f"{where}: {name}", f"expected {wanted}, but got {short_repr(value)}")
        return None

    def _connect(self, where: str, target: tuple[int, str, int], edge: str) -> None:
        if target in self.edges:
            at = f"{where}: node {target[0]}, input {target[2]}"
            self._report(at, "expected one edge to it, but got another one")
        self.edges[target] = edge

    def _with_edges(self, k: int, kind: str, inner: Mapping[str, Any]) -> OperatorNode | ConstantNode | None:
        name = str(inner.get("Name", ""))
        if kind == "CONSTANT":
            self._points(k, "a constant", [], ["Data"])
            data = inner.get("Data")
            if not isinstance(data, bytes | bytearray | np.ndarray):
                self._report(f"Nodes[{k}]: Data", f"expected bytes or an array, but got {type_name(data)}")
                return None
            size = data.nbytes if isinstance(data, np.ndarray) else len(data)
            said = inner.get("DataSize", size)
            if not _is_index(said) or said != size:
                message = f"expected {size}, the bytes of Data, but got {short_repr(said)}"
                self._report(f"Nodes[{k}]: DataSize", message, "it may be left out")
            return ConstantNode(
                data if isinstance(data, np.ndarray) else bytes(data),
                self.edges.get((k, "output", 0), f"node {k} output 0"),
                name,
            )
        if kind != "OPERATOR":
            return None
        desc = description(inner.get("Operator"))  # type: ignore[arg-type]  # what it is, is told below
        try:
            known, _ = read_desc(desc, self.level)
        except InvalidOperator as error:
            self.problems += [p.under(f"graph: Nodes[{k}]") for p in error.problems]
            return None
        if known is None:
            return OperatorNode(desc, (), (), name)  # told when it is checked
        inputs, outputs = (
            names_of(s, known.tensors) for s in (known.operator.inputs, known.operator.outputs)
        )
        self._points(k, known.operator.name, inputs, outputs)
        made = (f"node {k} output {j}" if point in known.tensors else "" for j, point in enumerate(outputs))
        return OperatorNode(
            desc,
            [self.edges.get((k, "input", j), "") for j in range(len(inputs))],
            [self.edges.get((k, "output", j), its) for j, its in enumerate(made)],
            name,
        )

    def _points(self, k: int, what: str, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Edges end at tensors that there are."""
        for where, way, point in self.ends.get(k, ()):
            there = inputs if way == "input" else outputs
            if point >= len(there):
                has = f"node {k}, {what}, has {counted(len(there), way)}"
                listed = f" ({', '.join(there)})" if there else ""
                wanted = f"a number from 0 to {len(there) - 1}" if there else "no edge"
                self._report(where, f"expected {wanted}, as {has}{listed}, but got {point}")


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
