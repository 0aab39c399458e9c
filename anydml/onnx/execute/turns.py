"""Transposes that our kernels run: read through other strides, fused with what is element-wise around."""

from __future__ import annotations

from anydml.dataclass import dataclass
from anydml.ir.graph import Node, TensorType
from anydml.onnx.ops.directml import MOVED
from anydml.onnx.ops.opinfo import NodeView, NotFoldable

TURN_SECONDS = 3.3e-9
"""Of an element, that a library takes longer where it moves elements one by one."""


@dataclass(frozen=True)
class Turn:
    """A Transpose."""

    order: tuple[int, ...]
    """The axes of the input, as the output has them."""
    result_type: str

    @property
    def is_slow(self) -> bool:
        """Whether a library moves elements one by one: neither rows nor a single axis move."""
        count = len(self.order)
        one_moves = any(
            [a for a in self.order if a != k] == [*range(k), *range(k + 1, count)] for k in self.order
        )
        return self.order[-1] != count - 1 and not one_moves


def turn_of(node: Node) -> Turn | None:
    """What a node turns, where a kernel does the same."""
    if not node.is_onnx("Transpose") or len(node.inputs) != 1 or None in (*node.inputs, *node.outputs):
        return None
    (source,) = node.reads
    if not isinstance(source.type, TensorType) or source.type.dtype not in MOVED or not source.rank:
        return None
    rank = source.rank
    try:
        order = tuple(NodeView(node).ints("perm") or reversed(range(rank)))
    except NotFoldable:  # an attribute of another type
        return None
    return Turn(order, source.type.dtype) if sorted(order) == [*range(rank)] else None
