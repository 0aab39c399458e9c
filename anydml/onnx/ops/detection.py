"""Boxes and regions: NonMaxSuppression, RoiAlign, GridSample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.ir.dims import may_be_zero
from anydml.onnx.ops import result_types
from anydml.onnx.ops.native import Inputs, bounded, operand
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk, Safe, SafeOperands
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32, UINT8

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _boxes_fit(n: KnownNode) -> bool:
    """As many scores as boxes."""
    return _are_boxes(n) and n.size(0, 1) is not None and n.size(0, 1) == n.size(1, 2)


def _no_boxes(n: KnownNode, o: SafeOperands) -> Safe | None:
    """None of either."""
    boxes, scores = n.value(0), n.value(1)
    if not _are_boxes(n) or boxes is None or scores is None:
        return None
    return Safe({0: o.at_most(boxes, [1], 0), 1: o.at_most(scores, [2], 0)})


def _are_boxes(n: KnownNode) -> bool:
    """Boxes and scores of equally many samples; the rest are scalars."""
    boxes, scores = n.sizes(0), n.sizes(1)
    if boxes is None or scores is None or len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4:
        return False
    if boxes[0] is None or boxes[0] != scores[0]:
        return False
    if any(n.value(k) is not None and n.sizes(k) not in ((), (1,)) for k in (2, 3, 4)):
        return False
    overlap = n.content(3)  # outside of 0 to 1 it fails
    return n.value(3) is None or (overlap is not None and bool(((overlap >= 0) & (overlap <= 1)).all()))


@bounded
def _native_suppression(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    boxes, scores = operand(inputs), operand(inputs, 1)
    given = [*inputs, None, None, None][2:5]
    most, overlap, least = given
    fits = [len(t.sizes) == 3 and t.dtype is FLOAT32 for t in (boxes, scores)]
    if not all(fits) or boxes.sizes[0] != scores.sizes[0] or boxes.sizes[2] != 4:
        raise NotNative("boxes and scores that do not fit")
    if any(t is not None and (isinstance(t, program.Bounded) or t.count != 1) for t in given):
        raise NotNative("thresholds that are not one number")
    if most is None or (isinstance(most, program.Known) and most.integers[0] <= 0):
        raise NotNative("no boxes at all")
    overlap = program.Known.of(np.zeros((), np.float32)) if overlap is None else overlap
    within = expr.and_(expr.ge(expr.read(0, FLOAT32), 0.0), expr.le(expr.read(0, FLOAT32), 1.0))
    inside = b.scalar(b.elementwise(expr.convert(within, UINT8), [overlap], truth=True))
    b.leave_unless(inside, "expected an overlap from 0 to 1", "0")
    return [
        program.suppressed(
            b, boxes, scores, program.Limits(most, overlap, least, bool(n.attribute("center_point_box")))
        )
    ]


def _regions_fit(n: KnownNode) -> bool:
    """Four coordinates and one sample for each region."""
    x, regions, samples = n.sizes(0), n.sizes(1), n.sizes(2)
    if x is None or regions is None or samples is None or len(x) != 4 or len(regions) != 2:
        return False
    return regions[1] == 4 and regions[0] is not None and samples == regions[:1]


def _safe_regions(n: KnownNode, o: SafeOperands) -> Safe | None:
    """All of the first sample."""
    if not _regions_fit(n):
        return None
    axes = [k for k in (0, 2, 3) if may_be_zero(n.size(0, k))]
    return Safe({2: o.number(2, 0), **({0: o.nonempty(0, axes)} if axes else {})})


def _points_fit(n: KnownNode) -> bool:
    """A point of as many coordinates as there are axes; of as many samples."""
    x, grid = n.sizes(0), n.sizes(1)
    if x is None or grid is None or len(x) != len(grid) or len(x) not in (4, 5):
        return False
    if n.mode("mode") in ("cubic", "bicubic") and len(x) != 4:
        return False
    return grid[-1] == len(x) - 2 and x[0] is not None and x[0] == grid[0]


def _can_sample(n: KnownNode) -> bool:
    return _points_fit(n) and not n.may_be_empty(0, 2)


def _safe_points(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Somewhere to sample."""
    if not _points_fit(n):
        return None
    return Safe({0: o.nonempty(0, [k for k in range(2, n.rank(0) or 0) if may_be_zero(n.size(0, k))])})


OPS = (
    OpInfo(
        "NonMaxSuppression",
        counts=True,
        result=result_types.selected_boxes,
        native=_native_suppression,
        safe=_no_boxes,
        speculatable=_boxes_fit,
    ),
    OpInfo(
        "RoiAlign",
        safe=_safe_regions,
        quirks=(
            Quirk(
                "onnxruntime ends the process on empty images",
                lambda n: n.may_be_empty(0, 2),
                fatal=True,
                empty=True,
            ),
        ),
        reference_error=("has another formula before opset 16", lambda n: n.version < 16),
    ),
    OpInfo("GridSample", safe=_safe_points, speculatable=_can_sample),
)
