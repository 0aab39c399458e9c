"""Running sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.foldings import PRODUCT, TOTAL, Folding
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops import result_types
from anydml.onnx.ops.native import Inputs, Native, each_by_itself, known, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, OpInfo
from anydml.onnx.ops.precision import round_to, widen
from anydml.onnx.ops.shared import axis_in, flag, single

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _running(name: str, neutral: int) -> Any:
    """CumSum and CumProd, one after the other."""
    function = getattr(np, name)

    def rule(node: NodeView, x: Array, axis: Array) -> Array:
        along = axis_in(single(axis), x.ndim)
        moved = np.moveaxis(widen(x), along, -1)
        moved = moved[..., ::-1] if flag(node, "reverse") else moved
        if flag(node, "exclusive"):
            first = np.full((*moved.shape[:-1], min(1, moved.shape[-1])), neutral, moved.dtype)
            moved = np.concatenate([first, moved[..., :-1]], -1)
        moved = function(moved, axis=-1, dtype=moved.dtype)
        moved = moved[..., ::-1] if flag(node, "reverse") else moved
        return round_to(np.moveaxis(moved, -1, along), x.dtype)

    return rule


def _along_axis(n: KnownNode) -> bool:
    axis, rank = n.integers(1), n.rank(0)
    return rank is not None and axis is not None and len(axis) == 1 and -rank <= axis[0] < rank


def _native(folding: Folding) -> Native:
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x, axis = operand(inputs), known(inputs, 1)
        if axis is None:
            raise NotNative("an axis that is left out")
        along = axis_in(int(single(axis.array)), len(x.sizes))
        return [program.running(b, x, along, folding, not flag(n, "exclusive"), flag(n, "reverse"))]

    return each_by_itself(rule, _forward)


def _forward(n: KnownNode, inputs: Inputs, k: int) -> int | None:
    """What is behind the end is nothing to what is before."""
    x = inputs[0]
    return x.axis if isinstance(x, program.Bounded) and not flag(n, "reverse") else None


OPS = (
    OpInfo("CumProd", native=_native(PRODUCT), fold=_running("cumprod", 1)),
    OpInfo(
        "CumSum",
        native=_native(TOTAL),
        result=result_types.same,
        fold=_running("cumsum", 0),
        speculatable=_along_axis,
    ),
)
