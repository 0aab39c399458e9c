"""Models written at an older opset: by our own rules, or by onnx's converter where these do not reach."""

from __future__ import annotations

from anydml.errors import InvalidInput, Problem, Unsupported, by_a_handler
from anydml.ir.graph import Graph, OnnxOp
from anydml.onnx.protos import ModelProto
from anydml.onnx.rewrites.opset import OLDEST, lower_opset
from anydml.onnx.schema import schema_of
from anydml.onnx.serde.serialize import model_proto

MAX_TOLD = 5
"""Nodes that an error names."""


def at_opset(graph: Graph, original: ModelProto, opset: int) -> ModelProto:
    """The model of a graph, at an older opset of ONNX's own operators.

    Raises:
        InvalidInput: no older opset, or one before 13.
        Unsupported: a node means something else there.
    """
    now = next((o.version for o in original.opset_import if not o.domain), 1)
    if not OLDEST <= opset <= now:
        message = f"expected {OLDEST} to {now}, the model's, but got {opset}"
        raise InvalidInput(Problem("opset", message if now >= OLDEST else f"the model is of opset {now}"))
    if opset == now:
        return model_proto(graph, original)
    lower, refused = lower_opset(graph, opset)
    if not refused:
        return model_proto(lower, original, opset)
    from onnx import version_converter

    try:
        converted: ModelProto = version_converter.convert_version(model_proto(graph, original), opset)
        return converted
    except Exception as error:  # whatever it does not know
        if by_a_handler(error):
            raise
        problems = [
            Problem(node.label, f"{node.op} {_lack(node.op, opset)} opset {opset}")
            for node in refused[:MAX_TOLD]
        ]
        raise Unsupported(*problems) from None


def _lack(op: OnnxOp, opset: int) -> str:
    exists = schema_of(OnnxOp(op.domain, op.name, opset)) is not None
    return "means something else at" if exists else "does not exist at"
