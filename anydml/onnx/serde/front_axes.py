"""Reductions over axes that are counted from the end, over the same ones counted from the front.

onnxruntime does not reduce an empty tensor over the former.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from onnx import helper

from anydml.ir.graph import Constant, Node, Value
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.reduction import OPS, axes_of, is_mended_reduction
from anydml.onnx.serde.parts import PartWriter

_NAMES = frozenset(op.name for op in OPS)


def with_front_axes(
    node: Node, constants: Mapping[Value, Constant]
) -> tuple[list[Node], Node, Mapping[Value, Constant]]:
    """What makes the axes, if that is needed; the node that reduces over them; and what is known then."""
    n = KnownNode(node, constants)
    info = info_of(node.op)
    if info is None or node.op.name not in _NAMES or not info.quirks or not is_mended_reduction(n):
        return [], node, constants
    axes, rank = axes_of(n), n.rank(0)
    assert axes is not None
    assert rank is not None
    front = [axis % rank for axis in axes]
    if node.op.name in ("ArgMax", "ArgMin"):
        told = {**node.attributes, "axis": helper.make_attribute("axis", front[0])}
        return [], replace(node, attributes=told), constants
    if n.value(1) is None:
        told = {**node.attributes, "axes": helper.make_attribute("axes", front)}
        return [], replace(node, attributes=told), constants
    w = PartWriter(node)
    made = w.integers("axes", front)
    inputs = (node.inputs[0], made, *node.inputs[2:])
    return w.nodes, replace(node, inputs=inputs), {**constants, made: Constant(np.array(front, np.int64))}
