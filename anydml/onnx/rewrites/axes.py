"""Axes that are counted from the end are counted from the front, where they may have no elements.

%y = ReduceMax(%x: [3,n], axes [-1])   ->   %y = ReduceMax(%x, axes [1])

onnxruntime keeps an empty axis that is counted from the end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import helper

from anydml.ir.dims import may_be_zero
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value


def count_axes_from_the_front(graph: Graph) -> Graph:
    constants = dict(graph.constants)
    nodes = [_counted(n, constants) if isinstance(n, Node) else n for n in graph.nodes]
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)


def _counted(node: Node, constants: dict[Value, Constant]) -> Node | If:
    if not isinstance(node.op, OnnxOp) or node.op.domain or not node.op.name.startswith(("Reduce", "Arg")):
        return node
    sizes = node.inputs[0].sizes if node.inputs and node.inputs[0] is not None else None
    if node.op.name.startswith("Arg"):
        axis = node.attributes["axis"].i if "axis" in node.attributes else 0
        if sizes is None or not -len(sizes) <= axis < 0:
            return node
        counted = helper.make_attribute("axis", axis % len(sizes))
        return replace(node, attributes={**node.attributes, "axis": counted})
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if sizes is None or not any(map(may_be_zero, sizes)):
        return node
    if given is not None:
        known = constants[given].content if given in constants else np.zeros(0, np.int64)
        axes = known.reshape(-1).tolist()
    else:
        axes = list(node.attributes["axes"].ints) if "axes" in node.attributes else []
    rank = len(sizes)
    if not any(k < 0 for k in axes) or any(not -rank <= k < rank for k in axes):
        return node
    axes = [k % rank for k in axes]
    if given is None:
        return replace(node, attributes={**node.attributes, "axes": helper.make_attribute("axes", axes)})
    value = Value(given.name, TensorType("int64", (len(axes),)))
    constants[value] = Constant(np.array(axes, np.int64))
    return replace(node, inputs=(node.inputs[0], value))
