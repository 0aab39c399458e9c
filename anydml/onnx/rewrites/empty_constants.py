"""Constants without elements become nodes that make them: some runtimes read such an initializer as a scalar.

    %e: float32[0,4] = constant; %y = Concat(%x, %e)    ->    %e = ConstantOfShape([0,4]); %y = Concat(%x, %e)

Only where such a constant is data, and not a list of axes or sizes that is to be a constant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.transforms import capture, replace_uses
from anydml.onnx.arrays import zeros
from anydml.onnx.protos import make_attribute

DATA = frozenset("Add Concat Identity Max Min Mul SequenceConstruct SequenceInsert Sub Where".split())
"""Operators all of whose inputs are data; of others, the first one is."""
TYPES = frozenset("bool float16 float32 float64 int16 int32 int64 int8 uint16 uint32 uint64 uint8".split())
"""What onnxruntime's ConstantOfShape makes."""


def make_empty_constants(graph: Graph, opset: int) -> Graph:
    """The graph with a node for each kind of constants without elements that are data."""
    if opset < 9:
        return graph
    read = {
        v
        for n in graph.walk(bodies=True)
        if isinstance(n, Node) and not n.op.domain and n.op.name != "ConstantOfShape"
        for v in (n.inputs if n.op.name in DATA else n.inputs[:1])
    } - set(graph.outputs)
    empty = [v for v in graph.constants if v in read and _is_empty(v)]
    if not empty:
        return graph
    constants = {v: c for v, c in graph.constants.items() if v not in empty}
    nodes: list[Node | If] = []
    made: dict[tuple[str, tuple[int, ...]], Value] = {}
    same: dict[Value, Value] = {}
    for value in empty:
        sizes = value.known_sizes or ()
        one = made.setdefault((value.tensor.dtype, sizes), value)
        if one is not value:
            same[value] = one
            continue
        shape = Value(f"{value.name}~sizes", TensorType("int64", (len(sizes),)))
        constants[shape] = Constant(np.array(sizes, np.int64))
        zero = make_attribute("value", zeros(value.tensor.dtype, (1,)))
        op = OnnxOp("", "ConstantOfShape", opset)
        nodes.append(Node(op, (shape,), (value,), {"value": zero}, value.name, nofail=True))
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (capture(b, set(empty)) for _, b in node.branches)
            node = replace(node, then_branch=then_branch, else_branch=else_branch)
        nodes.append(node)
    return replace_uses(replace(graph, nodes=tuple(nodes), constants=constants), same, {})


def _is_empty(value: Value) -> bool:
    return 0 in (value.known_sizes or ()) and value.tensor.dtype in TYPES
