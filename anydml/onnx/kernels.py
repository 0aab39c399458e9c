"""The ONNX operators that are DirectML operators, and so run in our kernels: Where and IsInf."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import AttributeProto

from anydml.codegen.group import Group
from anydml.codegen.kernel import group
from anydml.ir.graph import Node, OnnxOp, TensorType
from anydml.spec.dtypes import FLOATING, UINT8
from anydml.spec.elementwise import ELEMENT_WISE_IF, ELEMENT_WISE_IS_INFINITY
from anydml.spec.enums import IsInfinityMode, TensorDataType


@dataclass(frozen=True)
class Lowered:
    """A kernel for an ONNX node, and the NumPy types of what it takes and computes."""

    group: Group
    given: tuple[np.dtype, ...]
    result: np.dtype


def kernel_of(node: Node) -> Lowered | None:
    """The kernel of an element-wise selection or infinity test on types that kernels move; else None."""
    assert isinstance(node.op, OnnxOp)
    if node.op.domain or len(node.inputs) == 0 or None in node.inputs:
        return None
    types = [v.type.dtype for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    if len(types) != len(node.inputs):
        return None
    if any(t not in _MOVED for t in types) or len(node.outputs) != 1:
        return None
    given = tuple(np.dtype(t) for t in types)
    if node.op.name == "Where" and len(types) == 3:
        moved = _MOVED[types[1]]
        if types[0] != "bool" or types[1] != types[2]:
            return None
        expression = ELEMENT_WISE_IF.expression((UINT8, moved, moved), moved, {}, 1)
        return Lowered(group((UINT8, moved, moved), (expression,)), given, given[1])
    if node.op.name == "IsInf" and len(types) == 1:
        mode = _infinity_mode(node)
        source = _MOVED[types[0]]
        if mode is None or source not in FLOATING:
            return None
        expression = ELEMENT_WISE_IS_INFINITY.expression((source,), UINT8, {"InfinityMode": mode}, 1)
        return Lowered(group((source,), (expression,)), given, np.dtype(np.bool_))
    return None


_MOVED: dict[str, TensorDataType] = {
    t.label: t for t in ELEMENT_WISE_IF.levels[max(ELEMENT_WISE_IF.levels)].dtypes["T"]
}
_MOVED["bool"] = UINT8


def _infinity_mode(node: Node) -> IsInfinityMode | None:
    """None when neither sign is to be detected: then nothing is infinite, which the library computes."""

    def detects(name: str) -> bool:
        attribute = node.attributes.get(name)
        return attribute is None or attribute.i != 0

    if any(a.type != AttributeProto.INT for a in node.attributes.values()):
        return None  # damaged, which the library tells
    modes = {
        (True, True): IsInfinityMode.EITHER,
        (True, False): IsInfinityMode.POSITIVE,
        (False, True): IsInfinityMode.NEGATIVE,
    }
    return modes.get((detects("detect_positive"), detects("detect_negative")))
