"""What onnxruntime does wrong with operators of its own, of which nothing else is known here."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.onnx.ops.opinfo import Quirk


def _dies(axis: int) -> Quirk:
    """`axis`: of its first input's, the one along which there is a batch."""
    return Quirk(
        "onnxruntime ends the process on an empty batch",
        lambda n: n.may_be_empty(0, axis, axis + 1),
        fatal=True,
        empty=True,
    )


FOREIGN: Mapping[tuple[str, str], tuple[Quirk, ...]] = {
    ("com.microsoft", "DynamicQuantizeLSTM"): (_dies(1),),
    ("com.microsoft", "QAttention"): (_dies(0),),
}
"""By domain and name."""
