"""The length of complex numbers whose parts stand one after the other is one reduction.

%a = Slice(%x: [1,258,4], 0:129); %b = Slice(%x, 129:258); %y = Sqrt(Add(Pow(%a, 2), Pow(%b, 2)))
    ->   %p = Reshape(%x, [1,2,129,4]); %y = ReduceL2(%p, axis 1)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import helper

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.onnx.rewrites.reshape import reshape_node


def merge_norms(graph: Graph) -> Graph:
    makers = {v: n for n in graph.nodes if isinstance(n, Node) for v in n.writes}
    nodes: list[Node | If] = []
    constants = dict(graph.constants)
    for node in graph.nodes:
        made = _as_norm(node, makers, constants) if isinstance(node, Node) else None
        nodes += [node] if made is None else made
    if len(nodes) == len(graph.nodes):
        return graph
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)


Makers = Mapping[Value, Node]


def _as_norm(node: Node, makers: Makers, constants: dict[Value, Constant]) -> list[Node] | None:
    if not node.is_onnx("Sqrt") or not isinstance(node.op, OnnxOp) or node.op.version < 13:
        return None
    total = makers.get(node.inputs[0]) if node.inputs[0] else None
    if total is None or not total.is_onnx("Add") or len(total.inputs) != 2:
        return None
    parts = [_half(_squared(v, makers, constants), makers, constants) for v in total.inputs]
    first, second = parts
    y = node.outputs[0]
    if first is None or second is None or y is None or not isinstance(y.type, TensorType):
        return None
    (x, axis, _), sizes = first, first[0].known_sizes
    if second[:2] != (x, axis) or {first[2], second[2]} != {0, 1} or sizes is None or 0 in sizes:
        return None
    if y.known_sizes != (*sizes[:axis], sizes[axis] // 2, *sizes[axis + 1 :]):  # an exponent of rank above it
        return None
    halves = (*sizes[:axis], 2, sizes[axis] // 2, *sizes[axis + 1 :])
    pair = Value(f"{y.name}~pair", TensorType(y.type.dtype, halves))
    attributes = {"keepdims": helper.make_attribute("keepdims", 0)}
    inputs = [pair]
    if node.op.version < 18:
        attributes["axes"] = helper.make_attribute("axes", [axis])
    else:
        axes = Value(f"{y.name}~axes", TensorType("int64", (1,)))
        constants[axes] = Constant(np.array([axis]))
        inputs.append(axes)
    norm = Node(
        OnnxOp("", "ReduceL2", node.op.version), tuple(inputs), (y,), attributes, node.name, node.path
    )
    return [reshape_node(x, pair, constants, node), norm]


def _squared(value: Value | None, makers: Makers, constants: Mapping[Value, Constant]) -> Value | None:
    """What a value is the square of."""
    node = makers.get(value) if value else None
    if node is None or len(node.inputs) != 2:
        return None
    base, other = node.inputs
    if node.is_onnx("Mul") and base is other:
        return base
    known = (
        constants[other].content if node.is_onnx("Pow") and other is not None and other in constants else None
    )
    return base if known is not None and known.size == 1 and known.item() == 2 else None


def _half(
    value: Value | None, makers: Makers, constants: Mapping[Value, Constant]
) -> tuple[Value, int, int] | None:
    """What a value is the first (0) or second (1) half of, and along which axis."""
    node = makers.get(value) if value else None
    if node is None or not node.is_onnx("Slice") or len(node.inputs) < 4:
        return None
    x, *told = node.inputs
    sizes = x.known_sizes if x else None
    numbers = [constants[v].content.reshape(-1).tolist() for v in told if v is not None and v in constants]
    if x is None or sizes is None or len(numbers) != len(told) or any(len(n) != 1 for n in numbers):
        return None
    start, end, axis, step = [n for (n,) in numbers] + [1] * (4 - len(numbers))
    axis %= len(sizes)
    size = sizes[axis]
    places = slice(start, end, step).indices(size)
    halves = {(0, size // 2, 1): 0, (size // 2, size, 1): 1}
    return None if size % 2 or places not in halves else (x, axis, halves[places])
