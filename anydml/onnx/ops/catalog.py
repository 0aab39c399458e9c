"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops import activation, arithmetic, cast, logical
from anydml.onnx.ops.opinfo import OpInfo

_FAMILIES = (
    activation.OPS,
    arithmetic.OPS,
    cast.OPS,
    logical.OPS,
)
OPS: Mapping[str, OpInfo] = {info.name: info for family in _FAMILIES for info in family}
