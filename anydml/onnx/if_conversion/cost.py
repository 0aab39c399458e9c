"""About how much work a node is: multiplications and additions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from onnx import GraphProto

from anydml.ir.graph import Graph, If, Node, OnnxOp, Value
from anydml.onnx.subgraphs import all_nodes, graphs_of

UNKNOWN_SIZE = 16
"""Elements that a size of unknown number counts for."""


def work(nodes: Sequence[Node | If]) -> int:
    """About how many multiplications and additions; of an If, those of its larger branch."""
    return sum(max(graph_work(b) for _, b in n.branches) if isinstance(n, If) else _work(n) for n in nodes)


def graph_work(graph: Graph) -> int:
    return work(graph.nodes)


def _numbers(value: Value | None) -> list[int]:
    return [n if isinstance(n, int) else UNKNOWN_SIZE for n in (value.sizes if value else None) or ()]


def _work(node: Node) -> int:
    assert isinstance(node.op, OnnxOp)
    results = sum(prod(_numbers(v)) for v in node.writes)
    given = [_numbers(v) for v in node.inputs] + [[]] * 3  # where ONNX has no such operator, any number
    match "" if node.op.domain else node.op.name:
        case "MatMul" | "Gemm" | "MatMulInteger" if given[0]:
            transposed = "transA" in node.attributes and node.attributes["transA"].i
            return 2 * results * given[0][0 if transposed else -1]
        case "Conv" | "ConvInteger" if len(given[1]) > 1:
            return 2 * results * prod(given[1][1:])
        case "LSTM" | "GRU" | "RNN" if len(given[0]) == 3 and len(given[1]) == 3:
            gates = sum(prod(w) for w in given[1:3])
            return 2 * given[0][0] * given[0][1] * gates
        case "Shape" | "Size" | "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" | "Constant" | "Flatten":
            return 0
    own = max([results, *map(prod, given)])
    return own + sum(_body_work(graph) for graph in graphs_of(node.attributes.values()))


def _body_work(graph: GraphProto) -> int:
    """That of a body, once; every node counting as one on a small tensor, whose types are not known here."""
    return UNKNOWN_SIZE * sum(1 for _ in all_nodes(graph.node))
