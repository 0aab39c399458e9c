"""Minima and maxima of INT64 as comparisons and choices.

%y = Min(%a, %b)   ->   %l = Less(%a, %b); %y = Where(%l, %a, %b)

onnxruntime's vectors compare the lower halves of such integers as if they had a sign: its Min of 2^31 and 2
is 2^31. Its comparisons are right, and so are its reductions over first axes where one element is left: what
reduces a whole tensor reduces a column. Reductions over last axes alone are as it has them.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import TensorProto, helper

from anydml.ir.graph import Node, OnnxOp, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView


def right_extremes(node: Node) -> list[Node]:
    """The node, or what stands for it where the library would be wrong."""
    first = node.inputs[0] if node.inputs else None
    if node.op.domain or first is None or not _is_int64(first) or node.op.version < 12:
        return [node]
    if node.op.name in ("ReduceMin", "ReduceMax"):
        return _of_column(node, first)
    if node.op.name in ("Min", "Max"):
        word = "Less" if node.op.name == "Min" else "Greater"
        steps = [(word, x) for x in node.inputs[1:]]
    elif node.op.name == "Clip":
        steps = [(word, x) for word, x in zip(("Greater", "Less"), node.inputs[1:], strict=False) if x]
        if any(x.rank != 0 for _, x in steps if x is not None):  # another rank than the input's, perhaps
            return [node]
    else:
        return [node]
    made: list[Node] = []
    found = first
    for k, (word, other) in enumerate(steps):
        assert other is not None, "Min and Max have no optional inputs"
        last = k == len(steps) - 1
        chosen = node.outputs[0] if last else Value(f"{first.name}~extreme", TensorType("int64"))
        assert chosen is not None, "a node without results is not written"
        truth = Value(f"{first.name}~{word.lower()}", TensorType("bool"))
        made += [
            _node(node, word, (found, other), truth),
            _node(node, "Where", (truth, found, other), chosen),
        ]
        found = chosen
    return made or [node]


def _of_column(node: Node, x: Value) -> list[Node]:
    """A whole tensor's extreme as that of a column, back to no dimensions, or as many of size 1."""
    view = NodeView(node)
    every = view.attribute("axes") is None and len(node.inputs) == 1
    if x.rank is None or view.attribute("noop_with_empty_axes") or not (every or x.rank == 1):
        return [node]
    made: list[Node] = []

    def numbers(word: str, content: list[int]) -> Value:
        value = Value(f"{x.name}~{word}", TensorType("int64"))
        tensor = helper.make_tensor("", TensorProto.INT64, [len(content)], content)
        op, attribute = OnnxOp("", "Constant", node.op.version), helper.make_attribute("value", tensor)
        made.append(Node(op, (), (value,), {"value": attribute}, node.name, node.path))
        return value

    column, extreme = (Value(f"{x.name}~{word}", TensorType("int64")) for word in ("column", "extreme"))
    (output,) = node.writes
    made.append(_node(node, "Reshape", (x, numbers("pillar", [-1, 1])), column))
    first = {"axes": helper.make_attribute("axes", [0])} if node.op.version < 18 else {}
    inputs = (column,) if first else (column, numbers("axis", [0]))
    made.append(replace(node, inputs=inputs, outputs=(extreme,), attributes=first))
    sizes = [1] * x.rank if view.attribute("keepdims") else []
    made.append(_node(node, "Reshape", (extreme, numbers("sizes", sizes)), output))
    return made


def _is_int64(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == "int64"


def _node(root: Node, operator: str, inputs: tuple[Value, ...], output: Value) -> Node:
    return Node(OnnxOp("", operator, root.op.version), inputs, (output,), {}, root.name, root.path)
