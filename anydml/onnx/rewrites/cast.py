"""A cast to another tensor's type is one to that type, which more runtimes have.

%y: int64 = CastLike(%x, %like)   ->   %y = Cast(%x, to INT64)
"""

from __future__ import annotations

from dataclasses import replace

from anydml.ir.graph import TensorType
from anydml.onnx.protos import make_attribute
from anydml.onnx.rewrites.matcher import Match, Result
from anydml.onnx.types import to_proto


def cast(match: Match) -> Result:
    node, type = match.root, match.output.type
    if not isinstance(type, TensorType):
        return None
    to = make_attribute("to", to_proto(type).tensor_type.elem_type)
    op = node.op._replace(name="Cast")
    return [replace(node, op=op, inputs=(match["x"],), attributes={**node.attributes, "to": to})]
