"""Models of an older opset, where every node means the same there.

Reshape of opset 23   is   Reshape of opset 21, with more types      Relu (x)   is what it was
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anydml.ir.graph import Body, Constant, Graph, If, Node, OnnxOp, Value
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.protos import AttributeProto, attribute_value, make_attribute
from anydml.onnx.schema import form_of, signature_of, wrong_type

OLDEST = 13
"""What is lowered to: before, a dozen operators had their axes and sizes elsewhere."""


def lower_opset(
    graph: Graph, opset: int, outer: Mapping[Value, Constant] | None = None
) -> tuple[Graph, list[Node]]:
    """The graph with nodes of an older opset, branches and bodies too; and those that mean others there.

    Args:
        outer: constants of the graphs around.
    """
    constants = {**(outer or {}), **graph.constants}
    nodes: list[Node | If] = []
    refused: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, If):
            (first, a), (second, b) = (lower_opset(branch, opset, constants) for _, branch in node.branches)
            refused += [*a, *b]
            nodes.append(replace(node, then_branch=first, else_branch=second))
            continue
        bodies = {}
        for name, body in node.bodies.items():
            flat, inner = lower_opset(body, opset, constants)
            assert isinstance(flat, Body)
            bodies[name] = flat
            refused += inner
        if node.op.domain:
            nodes.append(replace(node, bodies=bodies))
            continue
        op = OnnxOp("", node.op.name, opset)
        older = _in_older_form(node, op, constants)
        if older is None:
            refused.append(node)
        nodes.append(replace(older or node, op=op, bodies=bodies))
    return replace(graph, nodes=tuple(nodes)), refused


def _in_older_form(node: Node, older: OnnxOp, constants: Mapping[Value, Constant]) -> Node | None:
    """A node as its operator's older revision would say it; None where that says something else."""
    now, then = form_of(node.op), form_of(older)
    if now is None or then is None or now.since == then.since:
        return node if now is not None and then is not None else None
    info = info_of(node.op)
    if info is not None and info.changed:
        return None
    kept = {n: a for n, a in node.attributes.items() if not _is_default(a, now.defaults.get(n))}
    if node.op.name.startswith("Reduce") and "axes" in then.attributes and "axes" not in now.attributes:
        given = node.inputs[1] if len(node.inputs) > 1 else None
        if (given is not None and given not in constants) or "noop_with_empty_axes" in kept:
            return None
        axes = [] if given is None else constants[given].content.reshape(-1).tolist()
        kept |= {"axes": make_attribute("axes", axes)} if axes else {}
        return replace(node, inputs=node.inputs[:1], attributes=kept)
    if not signature_of(node.op).extends(signature_of(older)):
        return None
    if len(node.inputs) > then.inputs[1] or len(node.outputs) > then.outputs[1]:
        return None
    if any(name not in then.attributes for name in kept) or wrong_type(older, node) is not None:
        return None
    return replace(node, attributes={n: a for n, a in node.attributes.items() if n in then.attributes})


def _is_default(attribute: AttributeProto, default: object) -> bool:
    return default is not None and attribute_value(attribute) == default
