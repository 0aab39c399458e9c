"""Minima and maxima of INT64 as comparisons and choices.

%y = Min(%a, %b)   ->   %l = Less(%a, %b); %y = Where(%l, %a, %b)

onnxruntime's vectors compare the lower halves of such integers as if they had a sign: its Min of 2^31 and 2
is 2^31. Its comparisons are right, and so are its reductions over first axes: what reduces a whole tensor
reduces a column. Other reductions find the least upper half first, then the least lower half among those
that have it, both as INT32, whose minimum of nothing makes INT64's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from anydml.ir.graph import Constant, Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.protos import AttributeProto, make_attribute
from anydml.onnx.serde.parts import PartWriter, part

OLDEST = 10
"""The opset from which on reductions can be written by halves: it brought Mod."""


def right_extremes(node: Node, constants: Mapping[Value, Constant]) -> list[Node]:
    """The node, or what stands for it where the library would be wrong."""
    first = node.inputs[0] if node.inputs else None
    if node.op.domain or first is None or not _is_int64(first):
        return [node]
    if node.op.name in ("ReduceMin", "ReduceMax"):
        return _reduction(node, first, constants)
    if node.op.version < 12:  # which has none of INT64
        return [node]
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
            part(node, word, (found, other), truth),
            part(node, "Where", (truth, found, other), chosen),
        ]
        found = chosen
    return made or [node]


def _reduction(node: Node, x: Value, constants: Mapping[Value, Constant]) -> list[Node]:
    if node.op.version < OLDEST:
        return [node]
    view = NodeView(node)
    axes = _axes(node, view, constants)
    if x.rank is None or axes is None:
        return _by_halves(node, x)
    if axes == list(range(len(axes))) and len(axes) < x.rank:
        return [node]
    every = len(axes) == x.rank and x.rank > 0
    return _of_column(node, x, bool(view.attribute("keepdims"))) if every else _by_halves(node, x)


def _axes(node: Node, view: NodeView, constants: Mapping[Value, Constant]) -> list[int] | None:
    """What is reduced, in order, counted from the first axis; None where that is not known."""
    x = node.inputs[0]
    assert x is not None
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        known = constants.get(node.inputs[1])
        told = None if known is None else known.content.ravel().tolist()
    else:
        told = view.ints("axes") or []
    if told is None or x.rank is None:
        return None
    if not told and not view.attribute("noop_with_empty_axes"):
        return list(range(x.rank))
    return sorted({a % max(x.rank, 1) for a in told})


def _of_column(node: Node, x: Value, keepdims: bool) -> list[Node]:
    """A whole tensor's extreme as that of a column, back to no dimensions, or as many of size 1."""
    assert x.rank is not None
    w = PartWriter(node)
    column = w.made("Reshape", "column", x, w.integers("pillar", [-1, 1]))
    first = {"axes": make_attribute("axes", [0])} if node.op.version < 18 else {}
    inputs = (column,) if first else (column, w.integers("axis", [0]))
    extreme = w.value("extreme", "int64")
    w.nodes.append(replace(node, inputs=inputs, outputs=(extreme,), attributes=first))
    sizes = w.integers("sizes", [1] * x.rank if keepdims else [])
    w.nodes.append(part(node, "Reshape", (extreme, sizes), w.output))
    return w.nodes


def _by_halves(node: Node, x: Value) -> list[Node]:
    """x = upper * 2^32 + lower + 2^31, both halves within INT32."""
    w = PartWriter(node)
    block, middle = w.integers("block", 1 << 32), w.integers("middle", 1 << 31)
    worst = np.iinfo(np.int32).max if node.op.name == "ReduceMin" else np.iinfo(np.int32).min
    keep = {**node.attributes, "keepdims": make_attribute("keepdims", 1)}

    def reduced(half: Value, word: str, attributes: Mapping[str, AttributeProto]) -> Value:
        extreme = w.value(word, "int32")
        inputs = (half, *node.inputs[1:])
        w.nodes.append(replace(node, inputs=inputs, outputs=(extreme,), attributes=attributes))
        return extreme

    rest = w.made("Mod", "rest", x, block)
    upper = w.cast("upper", w.made("Div", "blocks", w.made("Sub", "floor", x, rest), block), "int32")
    lower = w.cast("lower", w.made("Sub", "centred", rest, middle), "int32")
    here = w.made("Equal", "here", upper, reduced(upper, "extreme~kept", keep), dtype="bool")
    among = w.made("Where", "among", here, lower, w.integers("worst", worst, "int32"), dtype="int32")
    whole = w.cast("whole", reduced(upper, "extreme~upper", node.attributes), "int64")
    within = w.cast("part", reduced(among, "extreme~lower", node.attributes), "int64")
    start = w.made("Mul", "start", whole, block)
    inner = w.made("Add", "inner", within, middle)
    w.nodes.append(part(node, "Add", (start, inner), w.output))
    return w.nodes


def _is_int64(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == "int64"
