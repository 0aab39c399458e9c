"""Comparison, truths, choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anydml.onnx.ops.opinfo import Array, Fold, NodeView, OpInfo
from anydml.onnx.ops.shared import like, without_old_broadcast


def _truth(formula: Callable[[Array, Array], Any]) -> Fold:
    """A comparison; NumPy's of strings are of the type object, or no array at all."""

    def rule(node: NodeView, a: Array, b: Array) -> Array:
        without_old_broadcast(node, a, b)
        return np.asarray(formula(a, b)).astype(np.bool_)

    return rule


OPS = (
    OpInfo("And", fold=_truth(np.logical_and)),
    OpInfo("Equal", fold=_truth(np.equal)),
    OpInfo("Greater", fold=_truth(np.greater)),
    OpInfo("GreaterOrEqual", fold=_truth(np.greater_equal)),
    OpInfo("Less", fold=_truth(np.less)),
    OpInfo("LessOrEqual", fold=_truth(np.less_equal)),
    OpInfo("Not", fold=like(np.logical_not)),
    OpInfo("Or", fold=_truth(np.logical_or)),
    OpInfo("Where", fold=like(np.where)),
    OpInfo("Xor", fold=_truth(np.logical_xor)),
)
