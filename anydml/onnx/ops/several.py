"""The largest, the smallest, the sum and the mean of any number of tensors; what lies between two bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from anydml.onnx.ops import meanings, result_types
from anydml.onnx.ops.directml import (
    FLOATING,
    NUMBERS,
    Attributes,
    DirectMLForm,
    Shape,
    binary,
    no_attributes,
)
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo
from anydml.onnx.ops.precision import FLOATS, widen
from anydml.onnx.ops.shared import in_single, single
from anydml.onnx.ops.speculation import broadcasts, scalar_parameters
from anydml.ops import arithmetic
from anydml.ops.opdef import Operator


def _sum(*inputs: Array) -> Array:
    return reduce(np.add, inputs)


def _extreme(name: str) -> Any:
    """Max or Min: NaN wins. Which of 0 and -0 does is up to the processor."""
    chosen = getattr(np, name)

    def rule(node: NodeView, *inputs: Array) -> Array:
        if node.version < 8 and len({x.shape for x in inputs}) > 1:
            raise NotFoldable("broadcasting before opset 8")
        return reduce(lambda a, b: _unsigned_zero(chosen(a, b), a, b), inputs)

    return rule


def _unsigned_zero(result: Array, a: Array, b: Array) -> Array:
    if a.dtype in FLOATS:
        both = (a == 0) & (b == 0) & (np.signbit(widen(a)) != np.signbit(widen(b)))
        if both.any():
            raise NotFoldable("the larger one of 0 and -0")
    return result


def _clip(node: NodeView, x: Array, least: Array | None = None, most: Array | None = None) -> Array:
    """min(most, max(x, least)); NaN stays.

    A bound that is left out is the type's largest number, says ONNX's text; by its function body infinity
    stays. So that is left open.
    """
    bounds: list[Any] = [least, most]
    if node.version < 11:
        given = [node.attribute("min"), node.attribute("max")]
        bounds = [None if n is None else np.array(n).astype(x.dtype) for n in given]
    if node.version < 13 and all(x is not None for x in bounds) and bounds[0] > bounds[1]:
        raise NotFoldable("a lower bound above the upper one")
    for bound, chosen, end in zip(bounds, (np.maximum, np.minimum), (-np.inf, np.inf), strict=True):
        if bound is None and node.version >= 11 and x.dtype in FLOATS and (x == end).any():
            raise NotFoldable("an infinity without a bound")
        if bound is not None:
            bound = np.array(single(bound)).astype(x.dtype) if bound.ndim else bound
            if x.dtype in FLOATS and np.isnan(widen(bound)):
                raise NotFoldable("a bound of NaN")
            x = _unsigned_zero(chosen(x, bound), x, bound)
    return x


def _variadic(formula: Any) -> Any:
    """Sum and Mean, which broadcast from opset 8 on."""
    checked = in_single(lambda node, *inputs: formula(*inputs))

    def rule(node: NodeView, *inputs: Array) -> Any:
        if node.version < 8 and len({x.shape for x in inputs}) > 1:
            raise NotFoldable("broadcasting before opset 8")
        return checked(node, *inputs)

    return rule


def _forms(operators: Sequence[Operator], types: frozenset[str]) -> tuple[DirectMLForm, ...]:
    """Of one input, of two, and so on."""
    return tuple(
        DirectMLForm(operator, types, (count,), no_attributes, since=8)
        for count, operator in enumerate(operators, 1)
    )


def _one_bound(node: NodeView, shapes: Sequence[Shape]) -> list[Shape]:
    """Bounds are single numbers, whatever their rank."""
    x, *bounds = shapes
    if any(np.prod(bound) != 1 for bound in bounds):
        raise ValueError(f"expected bounds of one number, but got {', '.join(map(str, bounds))}")
    return [x, *[()] * len(bounds)]


_clip_form = partial(DirectMLForm, types=NUMBERS, attributes=no_attributes, since=11, aligned=_one_bound)


def _old_bounds(node: KnownNode) -> Attributes | None:
    """Before opset 11 they are attributes; where they are the wrong way round, libraries differ."""
    if node.version >= 11:
        return None
    least, most = node.float("min"), node.float("max")
    return {"Min": least, "Max": most} if least <= most else None


OPS = (
    OpInfo(
        "Clip",
        result=result_types.same,
        fold=_clip,
        speculatable=scalar_parameters,
        directml=(
            _clip_form(meanings.CLIP, inputs=(3,)),
            _clip_form(arithmetic.ELEMENT_WISE_MAX, inputs=(2,)),
            _clip_form(arithmetic.ELEMENT_WISE_MIN, inputs=(3,), left_out=frozenset({1})),
            DirectMLForm(
                arithmetic.ELEMENT_WISE_CLIP, frozenset({"float32"}), attributes=_old_bounds, since=6
            ),
        ),
    ),
    OpInfo(
        "Max",
        result=result_types.broadcast,
        fold=_extreme("maximum"),
        speculatable=broadcasts,
        directml=(binary(arithmetic.ELEMENT_WISE_MAX, NUMBERS, since=8), *_forms(meanings.MAX, NUMBERS)),
    ),
    OpInfo(
        "Mean",
        result=result_types.broadcast,
        fold=_variadic(lambda *inputs: _sum(*inputs) / len(inputs)),
        speculatable=broadcasts,
        directml=_forms(meanings.MEAN, FLOATING),
    ),
    OpInfo(
        "Min",
        result=result_types.broadcast,
        fold=_extreme("minimum"),
        speculatable=broadcasts,
        directml=(binary(arithmetic.ELEMENT_WISE_MIN, NUMBERS, since=8), *_forms(meanings.MIN, NUMBERS)),
    ),
    OpInfo(
        "Sum",
        result=result_types.broadcast,
        fold=_variadic(_sum),
        speculatable=broadcasts,
        directml=(binary(arithmetic.ELEMENT_WISE_ADD, FLOATING, since=8), *_forms(meanings.SUM, FLOATING)),
    ),
)
