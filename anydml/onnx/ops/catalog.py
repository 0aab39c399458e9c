"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops import (
    arithmetic,
    convolution,
    linalg,
    normalization,
    pooling,
    quantization,
    reduction,
    resize,
    softmax,
)
from anydml.onnx.ops.opinfo import OpInfo

_FAMILIES = (
    arithmetic.OPS,
    convolution.OPS,
    linalg.OPS,
    normalization.OPS,
    pooling.OPS,
    quantization.OPS,
    reduction.OPS,
    resize.OPS,
    softmax.OPS,
)

OPS: Mapping[str, OpInfo] = {info.name: info for family in _FAMILIES for info in family}
