"""Other opsets at which an operator means the same, for a library that has it only there.

RoiAlign of opset 22   is   RoiAlign of opset 16, with more types
"""

from __future__ import annotations

from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.schema import schema_of, signature_of, wrong_type


def alike(node: Node, opset: int) -> bool:
    """Whether a node of one of ONNX's own operators means the same at another opset."""
    other = OnnxOp(node.op.domain, node.op.name, opset)
    ours, theirs = schema_of(node.op), schema_of(other)
    if ours is None or theirs is None or ours.since_version == theirs.since_version:
        return ours is not None and theirs is not None
    info = info_of(node.op)
    if (info is not None and info.changed) or node.bodies:
        return False
    if signature_of(node.op) != signature_of(other):
        return False
    return wrong_type(other, node) is None


def others(node: Node) -> list[int]:
    """The opsets of a node's earlier revisions that it could as well be of, the newest first."""
    found: list[int] = []
    schema = None if node.op.domain else schema_of(node.op)
    info = info_of(node.op)
    if schema is not None and info is not None and schema.since_version in info.extends:
        found.append(info.extends[schema.since_version])
    while schema is not None and schema.since_version > 1:
        opset = schema.since_version - 1
        if not alike(node, opset):
            break
        found.append(opset)
        schema = schema_of(OnnxOp(node.op.domain, node.op.name, opset))
    return found
