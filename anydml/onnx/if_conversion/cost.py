"""About how much work a node is: multiplications and additions; and about how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from anydml.dataclass import dataclass
from anydml.ir.graph import Body, Graph, If, Node
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, Sizes
from anydml.onnx.ops.shared import UNKNOWN_SIZE, assumed, assumed_sizes


def work(nodes: Sequence[Node | If]) -> int:
    """About how many multiplications and additions; of an If, those of its larger branch."""
    return sum(max(graph_flops(b) for _, b in n.branches) if isinstance(n, If) else _work(n) for n in nodes)


def graph_flops(graph: Graph) -> int:
    return work(graph.nodes)


NODE_TIME = 1 << 14
"""Multiplications and additions that take as long as a node with nothing to do, on average:
some of those that are made here will be folded into others."""
IF_TIME = 6 * NODE_TIME
"""Likewise for an If, besides its branch, and for what it keeps from being folded."""


def time(nodes: Iterable[Node | If]) -> int:
    """About how long a run of nodes takes, in multiplications and additions; of an If, its shorter branch."""
    total = 0
    for n in nodes:
        if isinstance(n, If):
            total += IF_TIME + min(time(b.nodes) for _, b in n.branches)
        elif not (n.is_onnx("Constant") or n.is_onnx("Identity")):
            total += NODE_TIME + _work(n)
    return total


@dataclass
class Budget:
    """How much longer a model may take without its Ifs, in a run that takes their shorter branches.

    `now`: about how long it takes with them. `share`: of that, how much more is allowed. `spent`: the rest.
    """

    now: int
    share: float
    spent: int = 0

    def allows(self, more: int) -> bool:
        return self.spent + more <= self.share * self.now

    def ratio(self, more: int) -> float:
        """How many times as long it would take."""
        return 1 + (self.spent + more) / max(self.now, 1)


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
