"""Nodes as a branch: what they use of their surroundings becomes its inputs.

%b = Neg(%a); %c = Add(%b, %k)  with output %c and constant %k   ->   branch (%a) -> (%c) { const %k ... }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anydml.ir.graph import Constant, Graph, If, Node, Value


def enclosed(
    name: str, nodes: Iterable[Node | If], outputs: tuple[Value, ...], constants: Mapping[Value, Constant]
) -> Graph:
    """A branch of these nodes; `constants` may be more than it uses."""
    nodes = tuple(nodes)
    written = {v for node in nodes for v in node.writes}
    used = dict.fromkeys((*(v for node in nodes for v in node.reads), *outputs))
    own = {v: constants[v] for v in used if v in constants}
    return Graph(name, tuple(v for v in used if v not in written and v not in own), outputs, nodes, own)
