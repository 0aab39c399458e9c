"""About how much work a node is: multiplications and additions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anydml.ir.graph import Body, Graph, If, Node
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, Sizes
from anydml.onnx.ops.shared import UNKNOWN_SIZE, assumed, assumed_sizes


def work(nodes: Sequence[Node | If]) -> int:
    """About how many multiplications and additions; of an If, those of its larger branch."""
    return sum(max(graph_flops(b) for _, b in n.branches) if isinstance(n, If) else _work(n) for n in nodes)


def graph_flops(graph: Graph) -> int:
    return work(graph.nodes)


def _work(node: Node) -> int:
    known, info = KnownNode(node, {}), info_of(node.op)
    results = sum(prod(_assume_sizes(sizes)) for sizes in known.output_sizes())
    if info is not None and info.flops is not None:
        return info.flops(known, results)
    own = max([results, *(prod(assumed_sizes(known, k)) for k in range(known.count))])
    return own + sum(map(_body_flops, node.bodies.values()))


def _assume_sizes(sizes: Sizes | None) -> list[int]:
    return [assumed(n) for n in sizes or ()]


def _body_flops(body: Body) -> int:
    """That of a body, once; every node counting as one on a small tensor, whose types are not known here."""
    return UNKNOWN_SIZE * sum(1 for _ in body.walk(bodies=True))
