"""Reductions of what may be empty, over axes counted from the end, over the same ones counted from the front.

onnxruntime does not reduce an empty tensor over the former.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anydml.ir.graph import Constant, Node, Value
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.protos import make_attribute
from anydml.onnx.serde.parts import PartWriter


def with_front_axes(
    node: Node, constants: Mapping[Value, Constant]
) -> tuple[list[Node], Node, Mapping[Value, Constant]]:
    """What makes the axes, if that is needed; the node that reduces over them; and what is known then."""
    if node.op.domain or not node.op.name.startswith(("Reduce", "ArgMax", "ArgMin")):
        return [], node, constants
    from anydml.onnx.ops.reduction import front_axes  # which other models do not need

    n = KnownNode(node, constants)
    front = front_axes(n)
    if front is None:
        return [], node, constants
    if node.op.name in ("ArgMax", "ArgMin"):
        told = {**node.attributes, "axis": make_attribute("axis", front[0])}
        return [], replace(node, attributes=told), constants
    if n.value(1) is None:
        told = {**node.attributes, "axes": make_attribute("axes", front)}
        return [], replace(node, attributes=told), constants
    w = PartWriter(node)
    made = w.integers("axes", front)
    inputs = (node.inputs[0], made, *node.inputs[2:])
    return w.nodes, replace(node, inputs=inputs), {**constants, made: Constant(np.array(front, np.int64))}
