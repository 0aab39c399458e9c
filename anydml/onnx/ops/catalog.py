"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops import arithmetic
from anydml.onnx.ops.opinfo import OpInfo

OPS: Mapping[str, OpInfo] = {info.name: info for family in (arithmetic.OPS,) for info in family}
