"""Softmax and its kin: along an axis since opset 13, before that over all axes from `axis` on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anydml.onnx.ops import native_normalization, result_types
from anydml.onnx.ops.directml import HALF_OR_FLOAT, Attributes, DirectMLForm
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import round_to, to_float64
from anydml.onnx.ops.reduction import extreme_index
from anydml.onnx.ops.shared import axis_in
from anydml.onnx.ops.speculation import has_ranks, if_run
from anydml.ops import activation

MAX_RANK = 8
"""Of DirectML's tensors."""
_ALONG_ONE_AXIS = 13
"""The opset since which it is that."""


def _rule(compute: Callable[[Array, int], Array]) -> Fold:
    def rule(node: NodeView, x: Array) -> Array:
        axis = axis_in(node.int("axis"), x.ndim)
        if x.size == 0:
            return x
        if node.version >= _ALONG_ONE_AXIS:
            return compute(x, axis)
        rows = x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1)
        return compute(rows, 1).reshape(x.shape)

    return rule


def _shift(x: Array, axis: int) -> Array:
    """The largest becomes 0, so that no exponential overflows."""
    wide = to_float64(x)
    return np.asarray(wide - wide.max(axis, keepdims=True))


def _softmax(x: Array, axis: int) -> Array:
    powers = np.exp(_shift(x, axis))
    return round_to(powers / powers.sum(axis, keepdims=True), x.dtype)


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = _shift(x, axis)
    return round_to(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)), x.dtype)


def _hardmax(x: Array, axis: int) -> Array:
    if np.isnan(to_float64(x)).any():
        raise NotFoldable("the extreme of NaN, even alone: onnxruntime marks none")
    result = np.zeros(x.shape, x.dtype)
    np.put_along_axis(result, extreme_index(x, axis, largest=True), np.ones((), x.dtype), axis)
    return result


def _before_the_last(node: KnownNode) -> Attributes | None:
    """The axis, if it is not the last one: along that a library is as fast, which fuses more around it."""
    x = node.value(0)
    if x is None or not x.rank or x.rank > MAX_RANK or not node.given <= {"axis"}:
        return None
    axis = axis_in(node.int("axis"), x.rank)
    return {"Axes": (axis,)} if axis < x.rank - 1 else None


OPS = (
    OpInfo(
        "Softmax",
        directml=DirectMLForm(
            activation.ACTIVATION_SOFTMAX1, HALF_OR_FLOAT - {"bfloat16"}, (1,), _before_the_last, since=13
        ),
        native=native_normalization.softmax,
        result=result_types.same,
        fold=_rule(_softmax),
        speculatable=has_ranks,
    ),
    OpInfo(
        "LogSoftmax",
        directml=DirectMLForm(
            activation.ACTIVATION_LOG_SOFTMAX1,
            HALF_OR_FLOAT - {"bfloat16"},
            (1,),
            _before_the_last,
            since=13,
        ),
        native=native_normalization.log_softmax,
        result=result_types.same,
        fold=_rule(_log_softmax),
        speculatable=has_ranks,
    ),
    OpInfo("Hardmax", result=result_types.same, fold=_rule(_hardmax), speculatable=if_run),
    OpInfo(
        "SoftmaxCrossEntropyLoss", quirks=(Quirk("onnxruntime refuses empty scores", lambda n: n.empty(0)),)
    ),
)
