"""What ONNX's shape inference lets pass though it cannot run: then nothing may be concluded from its sizes.

A convolution longer than its padded input; a reflection of more elements than there are; a Reshape to
another number of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from anydml.ir.graph import Node, TensorType, Type
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.protos import TypeProto

MAX_RANK = 8
"""What operators with axes of their own are asked about where ranks are not known."""


def impossible(
    node: Node,
    outputs: Sequence[Type | None],
    second: Callable[[], Sequence[int] | None] = lambda: None,
) -> bool:
    """Whether the sizes prove that the node fails when it runs.

    Args:
        outputs: the inferred types.
        second: gives the integers of its second input, if they are known.
    """
    info = info_of(node.op)
    return (
        info is not None
        and info.impossible is not None
        and info.impossible(KnownNode(node, {}), outputs, second())
    )


def fails(node: Node) -> bool:
    """Whether the ranks of its inputs prove that a node fails, whatever the sizes turn out to be."""
    info = info_of(node.op)
    return info is not None and info.wrong_ranks is not None and info.wrong_ranks(KnownNode(node, {}))


def rank_unsure(node: Node) -> bool:
    """Whether libraries give another rank than ONNX's inference says."""
    info = info_of(node.op)
    return info is not None and info.rank_unsure is not None and info.rank_unsure(KnownNode(node, {}))


def unsure_axes(node: Node, rank: int) -> range:
    """The axes of a node's output whose sizes inference tells otherwise than libraries compute them."""
    info = info_of(node.op)
    return (
        range(0) if info is None or info.unsure_axes is None else info.unsure_axes(KnownNode(node, {}), rank)
    )


def without_unsure(node: Node, type: Type | None) -> Type | None:
    """The type without sizes that libraries do not agree on: none of what a body makes that has such."""
    if not isinstance(type, TensorType) or type.sizes is None:
        return type
    rank = len(type.sizes)
    inside = (n for body in node.bodies.values() for n in body.walk(bodies=True))
    if any(isinstance(n, Node) and unsure_axes(n, MAX_RANK) for n in inside):
        return TensorType(type.dtype, (None,) * rank)
    if not (unsure := unsure_axes(node, rank)):
        return type
    return TensorType(type.dtype, tuple(None if k in unsure else n for k, n in enumerate(type.sizes)))


def negative_sizes(types: Iterable[TypeProto]) -> str:
    """Why a node fails that inference, which computes only, gives less than no elements."""
    for type in types:
        sizes = [d.dim_value for d in type.tensor_type.shape.dim]
        if any(n < 0 for n in sizes):
            return f"its result would have sizes {sizes}"
    return ""
