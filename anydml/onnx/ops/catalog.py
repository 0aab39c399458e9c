"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops import (
    activation,
    arithmetic,
    cast,
    generator,
    indexing,
    logical,
    padding,
    sequence,
    shape,
    text,
)
from anydml.onnx.ops.opinfo import OpInfo

_FAMILIES = (
    activation.OPS,
    arithmetic.OPS,
    cast.OPS,
    generator.OPS,
    indexing.OPS,
    logical.OPS,
    padding.OPS,
    sequence.OPS,
    shape.OPS,
    text.OPS,
)
OPS: Mapping[str, OpInfo] = {info.name: info for family in _FAMILIES for info in family}
