"""All operators that something is known of."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.ir.graph import OnnxOp
from anydml.onnx.ops import (
    activation,
    arithmetic,
    attention,
    cast,
    control_flow,
    convolution,
    cumulative,
    detection,
    generator,
    indexing,
    layout,
    linalg,
    logical,
    machine_learning,
    normalization,
    padding,
    pooling,
    quantization,
    recurrent,
    reduction,
    resize,
    sequence,
    several,
    shape,
    signal,
    slicing,
    softmax,
    text,
)
from anydml.onnx.ops.opinfo import OpInfo
from anydml.onnx.schema import ML_DOMAIN

_FAMILIES = (
    activation.OPS,
    arithmetic.OPS,
    attention.OPS,
    cast.OPS,
    control_flow.OPS,
    convolution.OPS,
    cumulative.OPS,
    detection.OPS,
    generator.OPS,
    indexing.OPS,
    layout.OPS,
    linalg.OPS,
    logical.OPS,
    normalization.OPS,
    padding.OPS,
    pooling.OPS,
    quantization.OPS,
    recurrent.OPS,
    reduction.OPS,
    resize.OPS,
    sequence.OPS,
    several.OPS,
    shape.OPS,
    signal.OPS,
    slicing.OPS,
    softmax.OPS,
    text.OPS,
)
OPS: Mapping[str, OpInfo] = {info.name: info for family in _FAMILIES for info in family}
_OF_MACHINE_LEARNING: Mapping[str, OpInfo] = {info.name: info for info in machine_learning.OPS}


def info_of(op: OnnxOp) -> OpInfo | None:
    """What is known of an operator; None for those of other domains than ONNX's own two."""
    if op.domain:
        return _OF_MACHINE_LEARNING.get(op.name) if op.domain == ML_DOMAIN else None
    return OPS.get(op.name)
