"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops import (
    activation,
    arithmetic,
    cast,
    convolution,
    generator,
    indexing,
    linalg,
    logical,
    normalization,
    padding,
    pooling,
    quantization,
    reduction,
    resize,
    sequence,
    shape,
    softmax,
    text,
)
from anydml.onnx.ops.opinfo import OpInfo

_FAMILIES = (
    activation.OPS,
    arithmetic.OPS,
    cast.OPS,
    convolution.OPS,
    generator.OPS,
    indexing.OPS,
    linalg.OPS,
    logical.OPS,
    normalization.OPS,
    padding.OPS,
    pooling.OPS,
    quantization.OPS,
    reduction.OPS,
    resize.OPS,
    sequence.OPS,
    shape.OPS,
    softmax.OPS,
    text.OPS,
)
OPS: Mapping[str, OpInfo] = {info.name: info for family in _FAMILIES for info in family}
