"""Nodes in the form that libraries and ONNX's inference understand alike, once sizes are known.

MaxPool(%x: [1,1,4]) {kernel 1, strides 2, pads [0,1], ceil_mode 1}   ->   the same with ceil_mode 0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnx import AttributeProto, helper

from anydml.ir.graph import Node


def agreed(node: Node) -> Node:
    """The node in this form, if it has another one."""
    if node.op.domain:
        return node
    if node.op.name == "Scan":
        return _without_false_sizes(node)
    if "ceil_mode" in node.attributes and node.attributes["ceil_mode"].i:
        return _without_ceil_mode(node)
    return node


def _ints(node: Node, name: str, default: Sequence[int]) -> list[int]:
    return list(node.attributes[name].ints) if name in node.attributes else list(default)


def _without_ceil_mode(node: Node) -> Node:
    """A pool whose end pads say how many windows it has.

    A last window that would begin in the padding is none, for libraries; for ONNX's inference it is one.
    """
    sizes = node.inputs[0].known_sizes if node.inputs[0] else None
    kernel = _ints(node, "kernel_shape", ())
    axes = len(kernel)
    ones, zeros = [1] * axes, [0] * axes
    strides, dilations = _ints(node, "strides", ones), _ints(node, "dilations", ones)
    pads = _ints(node, "pads", zeros + zeros)
    automatic = node.attributes["auto_pad"].s if "auto_pad" in node.attributes else b"NOTSET"
    if sizes is None or len(sizes) != axes + 2 or automatic not in (b"", b"NOTSET"):
        return node
    if (len(strides), len(dilations), len(pads)) != (axes, axes, 2 * axes) or min(strides) < 1:
        return node
    ends = []
    for k, size in enumerate(sizes[2:]):
        begin, end, reach = pads[k], pads[k + axes], dilations[k] * (kernel[k] - 1) + 1
        room = begin + size + end - reach
        windows = -(-room // strides[k]) + 1
        if (windows - 1) * strides[k] >= begin + size:
            windows -= 1
        if windows < 1:
            return node
        ends.append(max(end, (windows - 1) * strides[k] + reach - begin - size))
    changed = ends != pads[axes:]
    counted = "count_include_pad" in node.attributes and node.attributes["count_include_pad"].i
    if changed and (counted or any(end >= n for end, n in zip(ends, kernel, strict=True))):
        return node  # pads would count as elements, or be more than libraries take
    attributes = {n: a for n, a in node.attributes.items() if n != "ceil_mode"}
    if changed:
        attributes["pads"] = helper.make_attribute("pads", pads[:axes] + ends)
    return replace(node, attributes=attributes)


def _without_false_sizes(node: Node) -> Node:
    """A Scan whose body says nothing of its inputs' sizes that those of the node's inputs contradict.

    Libraries run such a Scan where they do not know, and refuse it where they do.
    """
    if node.op.version < 9 or "body" not in node.attributes or "num_scan_inputs" not in node.attributes:
        return node
    first = len(node.inputs) - node.attributes["num_scan_inputs"].i
    axes = _ints(node, "scan_input_axes", ())
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
