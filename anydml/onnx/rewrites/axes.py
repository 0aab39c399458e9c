"""Axes that are counted from the end are counted from the front, where they may have no elements.

%y = ReduceMax(%x: [3,n], axes [-1])   ->   %y = ReduceMax(%x, axes [1])

onnxruntime keeps an empty axis that is counted from the end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anydml.ir.dims import may_be_zero
from anydml.onnx.ops.opinfo import KnownNode, NodeView
from anydml.onnx.protos import make_attribute
from anydml.onnx.rewrites.matcher import Match, Result


def count_axis_from_the_front(match: Match) -> Result:
    node, sizes = match.root, match["x"].sizes
    axis = NodeView(node).attribute("axis")
    if sizes is None or not -len(sizes) <= axis < 0:
        return None
    counted = make_attribute("axis", axis % len(sizes))
    return [replace(node, attributes={**node.attributes, "axis": counted})]


def count_axes_from_the_front(match: Match) -> Result:
    node, sizes = match.root, match["x"].sizes
    if sizes is None or not any(map(may_be_zero, sizes)):
        return None
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes, rank = KnownNode(node, match.constants).axes() or [], len(sizes)
    if not any(k < 0 for k in axes) or any(not -rank <= k < rank for k in axes):
        return None
    axes = [k % rank for k in axes]
    if given is None:
        return [replace(node, attributes={**node.attributes, "axes": make_attribute("axes", axes)})]
    counted = match.make_constant(given.name, np.array(axes, np.int64))
    return [replace(node, inputs=(match["x"], counted))]
