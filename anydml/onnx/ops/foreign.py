"""What onnxruntime does wrong with operators of its own, of which nothing else is known here."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops.opinfo import Quirk
from anydml.onnx.ops.shared import NOTHING_TO_SUM, nothing_inside


def _dies(axis: int) -> Quirk:
    """`axis`: of its first input's, the one along which there is a batch."""
    return Quirk(
        "onnxruntime ends the process on an empty batch",
        lambda n: n.may_be_empty(0, axis, axis + 1),
        fatal=True,
        empty=True,
    )


def _sums_nothing(first: int, second: int) -> Quirk:
    """`first`, `second`: the places of a product's factors."""
    return Quirk(NOTHING_TO_SUM, lambda n: nothing_inside(n, first, second), empty=True)


FOREIGN: Mapping[tuple[str, str], tuple[Quirk, ...]] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): (_dies(1),),
    ("com.microsoft", "DynamicQuantizeMatMul"): (_sums_nothing(0, 1),),
    ("com.microsoft", "MatMulIntegerToFloat"): (_sums_nothing(0, 1),),
    ("com.microsoft", "QGemm"): (_sums_nothing(0, 3),),
    ("com.microsoft", "QAttention"): (_dies(0),),
}
"""By domain and name."""
