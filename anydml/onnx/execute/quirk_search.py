"""What a library does wrong in the bodies of a loop, which it would run as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anydml.ir.graph import Constant, Graph, If, Node, Value
from anydml.onnx.ops.opinfo import Quirk
from anydml.onnx.ops.quirks import quirks_of
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.providers.onnxruntime import OnnxRuntime

Constants = Mapping[Value, Constant]


def quirk_in_subgraphs(node: Node, constants: Constants, opsets: Mapping[str, int]) -> Quirk | None:
    """The first quirk in the bodies of a node. `constants`: those of the graph that it stands in."""
    if not node.bodies:
        return None
    reads = tuple(dict.fromkeys(node.reads))
    known = {v: constants[v] for v in reads if v in constants}
    alone = Graph(node.name, tuple(v for v in reads if v not in known), (), (node,), known)
    typed = annotate_types(alone, opsets, OnnxRuntime()).nodes[0]
    return next(_inside(typed, known), None) if isinstance(typed, Node) else None


def _inside(node: Node, constants: Constants) -> Iterator[Quirk]:
    for body in node.bodies.values():
        yield from quirks(body, constants)


def quirks(graph: Graph, outer: Constants | None = None) -> Iterator[Quirk]:
    """Those of a graph with types, and of all graphs in it."""
    constants = {**(outer or {}), **graph.constants}
    for node in graph.nodes:
        if isinstance(node, If):
            for _, branch in node.branches:
                yield from quirks(branch, constants)
            continue
        yield from quirks_of(node, constants)
        yield from _inside(node, constants)
