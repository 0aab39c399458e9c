"""Comparison, truths, choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anydml.ir.dims import UNKNOWN
from anydml.onnx.ops import result_types
from anydml.onnx.ops.directml import BOOL, MOVED, NUMBERS, DirectMLForm, binary, no_attributes, unary
from anydml.onnx.ops.opinfo import Array, Fold, NodeView, OpInfo, Symbols
from anydml.onnx.ops.shared import like, without_old_broadcast
from anydml.onnx.ops.speculation import always, broadcasts
from anydml.onnx.ops.symbolic import at_least, is_zero, numbers, of_sizes
from anydml.ops import elementwise


def _truth(formula: Callable[[Array, Array], Any]) -> Fold:
    """A comparison; NumPy's of strings are of the type object, or no array at all."""

    def rule(node: NodeView, a: Array, b: Array) -> Array:
        without_old_broadcast(node, a, b)
        return np.asarray(formula(a, b)).astype(np.bool_)

    return rule


def _chosen_symbols(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    """Of what is chosen; where nobody knows which, what both are."""
    chosen, a, b = given
    if a is None or b is None:
        return None
    if chosen is not None and (truths := numbers(chosen)) is not None:
        return np.asarray(np.where(np.array(truths, bool).reshape(chosen.shape), a, b), object)
    if sizes is None:
        return None
    pairs = zip(np.broadcast_to(a, sizes).reshape(-1), np.broadcast_to(b, sizes).reshape(-1), strict=True)
    return of_sizes(x if x == y else UNKNOWN for x, y in pairs).reshape(sizes)


def _negate(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


OPS = (
    OpInfo(
        "And",
        result=result_types.broadcast,
        fold=_truth(np.logical_and),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_AND, BOOL),
        absorbing=False,
        implies=lambda n, truth: {0: True, 1: True} if truth else {},
    ),
    OpInfo(
        "Equal",
        result=result_types.compared,
        fold=_truth(np.equal),
        compare=is_zero,
        equates=True,
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_EQUALS, NUMBERS | BOOL),
    ),
    OpInfo(
        "Greater",
        result=result_types.compared,
        fold=_truth(np.greater),
        compare=lambda d: at_least(d, 1),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_GREATER_THAN, NUMBERS),
    ),
    OpInfo(
        "GreaterOrEqual",
        result=result_types.compared,
        fold=_truth(np.greater_equal),
        compare=lambda d: at_least(d, 0),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL, NUMBERS),
    ),
    OpInfo(
        "Less",
        result=result_types.compared,
        fold=_truth(np.less),
        compare=lambda d: _negate(at_least(d, 0)),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_LESS_THAN, NUMBERS),
    ),
    OpInfo(
        "LessOrEqual",
        result=result_types.compared,
        fold=_truth(np.less_equal),
        compare=lambda d: _negate(at_least(d, 1)),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL, NUMBERS),
    ),
    OpInfo(
        "Not",
        result=result_types.same,
        fold=like(np.logical_not),
        speculatable=always,
        directml=unary(elementwise.ELEMENT_WISE_LOGICAL_NOT, BOOL, since=1),
        implies=lambda n, truth: {0: not truth},
    ),
    OpInfo(
        "Or",
        result=result_types.broadcast,
        fold=_truth(np.logical_or),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_OR, BOOL),
        absorbing=True,
        implies=lambda n, truth: {} if truth else {0: False, 1: False},
    ),
    OpInfo(
        "Where",
        result=result_types.chosen,
        fold=like(np.where),
        symbols=_chosen_symbols,
        symbol_inputs=0,
        speculatable=broadcasts,
        directml=DirectMLForm(elementwise.ELEMENT_WISE_IF, MOVED, (3,), no_attributes, first=1, moves=True),
    ),
    OpInfo(
        "Xor",
        result=result_types.broadcast,
        fold=_truth(np.logical_xor),
        speculatable=broadcasts,
        directml=binary(elementwise.ELEMENT_WISE_LOGICAL_XOR, BOOL),
    ),
)
