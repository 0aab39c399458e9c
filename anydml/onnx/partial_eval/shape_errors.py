"""What ONNX's shape inference lets pass though it cannot run: then nothing may be concluded from its sizes.

A convolution longer than its padded input; a reflection of more elements than there are; a Reshape to
another number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from anydml.ir.graph import Node, Type
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, NodeView


def impossible(node: Node, outputs: Sequence[Type | None], pads: Sequence[int] | None = None) -> bool:
    """Whether the sizes prove that the node fails when it runs.

    Args:
        outputs: the inferred types.
        pads: the content of a Pad's second input, if it is known.
    """
    info = info_of(node.op)
    return (
        info is not None
        and info.impossible is not None
        and info.impossible(KnownNode(node, {}), outputs, pads)
    )


def fails(node: Node) -> bool:
    """Whether the ranks of its inputs prove that a node fails, whatever the sizes turn out to be."""
    info, given = info_of(node.op), node.inputs[0].sizes if node.inputs and node.inputs[0] else None
    if info is None or given is None:
        return False
    if info.name == "Conv":
        weight = node.inputs[1].sizes if node.inputs[1] else None
        return weight is not None and len(given) != len(weight)
    return bool(info.ranks) and len(given) not in info.ranks


def rank_unsure(node: Node) -> bool:
    """Whether libraries give another rank than ONNX's inference says.

    SplitToSequence with lengths and without keepdims: onnxruntime and torch, which exports it, drop the axis
    of parts of length 1; inference says that it stays. Squeeze of no axes: onnxruntime squeezes all.
    """
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return False
    if node.is_onnx("SplitToSequence"):
        return bool(NodeView(node).int("keepdims") == 0)
    return node.is_onnx("Squeeze") and node.inputs[1].known_sizes in (None, (0,))


def unsure_axes(node: Node, rank: int) -> range:
    """The axes of a node's output whose sizes inference tells otherwise than libraries compute them.

    Pools with ceil_mode: whether the last window may start in the padding. STFT of one side only.
    """
    if node.op.name in ("MaxPool", "AveragePool", "LpPool") and "ceil_mode" in node.attributes:
        return range(2 if node.attributes["ceil_mode"].i else rank, rank)
    return range(1, rank) if node.is_onnx("STFT") else range(0)
