"""Operators with bodies, which run them any number of times."""

from __future__ import annotations

from dataclasses import replace

from onnx import AttributeProto

from anydml.ir.graph import Node
from anydml.onnx.ops.opinfo import NodeView, OpInfo


def _without_false_sizes(node: Node) -> Node:
    """A Scan whose body says nothing of its inputs' sizes that those of the node's inputs contradict.

    Libraries run such a Scan where they do not know, and refuse it where they do.
    """
    if node.op.version < 9 or "body" not in node.attributes or "num_scan_inputs" not in node.attributes:
        return node
    first = len(node.inputs) - node.attributes["num_scan_inputs"].i
    axes = NodeView(node).ints("scan_input_axes") or []
    wrong = []
    for k, (value, info) in enumerate(zip(node.inputs, node.attributes["body"].g.input, strict=False)):
        sizes = None if value is None else value.sizes
        if sizes is None or not info.type.tensor_type.HasField("shape"):
            continue
        if k >= first and sizes:
            axis = axes[k - first] if k - first < len(axes) else 0
            sizes = tuple(n for j, n in enumerate(sizes) if j != axis % len(sizes))
        said = [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        if len(said) != len(sizes) or any(
            isinstance(n, int) and m is not None and m != n for n, m in zip(sizes, said, strict=True)
        ):
            wrong.append(k)
    if not wrong:
        return node
    body = AttributeProto()
    body.CopyFrom(node.attributes["body"])
    for k in wrong:
        body.g.input[k].type.tensor_type.ClearField("shape")
    return replace(node, attributes={**node.attributes, "body": body})


OPS = (
    OpInfo("Scan", agreed=_without_false_sizes),
    OpInfo("SequenceMap", makes_container=True),
)
