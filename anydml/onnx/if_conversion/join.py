"""Two Ifs, one in the other, that give the same where either is not taken, are one.

If(%c) {If(%d) {%a} else {%b}} else {%b}   ->   If(And(%c, %d)) {%a} else {%b}
"""

from __future__ import annotations

from dataclasses import replace

from anydml.ir.graph import If
from anydml.onnx.if_conversion.predication import Predicate
from anydml.onnx.if_conversion.speculation import speculation_hazard
from anydml.onnx.node_builder import NodeBuilder


def join(node: If, made: NodeBuilder) -> If:
    """The If with those in it that can be joined with it; itself if none can. Adds what decides it."""
    for truth, (_, branch), (_, other) in zip((True, False), node.branches, node.branches[::-1], strict=True):
        inner = next((n for n in branch.nodes if isinstance(n, If) and n.outputs == branch.outputs), None)
        if inner is None or other.nodes:
            continue
        rest = [n for n in branch.nodes if n is not inner]
        known = {**made.constants, **branch.constants}
        if any(speculation_hazard(n, known) is not None for n in rest):
            continue
        for wanted, (_, taken), (_, instead) in zip(
            (True, False), inner.branches, inner.branches[::-1], strict=True
        ):
            if not instead.nodes and instead.outputs == other.outputs:
                made.splice(replace(branch, nodes=tuple(rest)))
                both = Predicate(((node.condition, truth), (inner.condition, wanted)))
                condition = both.value(made, inner.name or node.name or "If")
                return join(replace(node, condition=condition, then_branch=taken, else_branch=other), made)
    return node
