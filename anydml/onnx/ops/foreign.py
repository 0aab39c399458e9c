"""What is known of onnxruntime's own operators, which its optimiser and its tools write into files: what it
does wrong with them, and when they cannot fail."""

from __future__ import annotations

from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk
from anydml.onnx.ops.shared import NOTHING_TO_SUM, nothing_inside
from anydml.onnx.ops.speculation import (
    always,
    can_broadcast,
    convolves,
    gemm_fits,
    multiplies,
    of_columns,
    of_filters,
    one_number,
)


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


def _fused_multiplies(n: KnownNode) -> bool:
    a, b = n.sizes(0), n.sizes(1)
    if not a or not b or len(a) < 2 or len(b) < 2 or n.attribute("transBatchA") or n.attribute("transBatchB"):
        return False
    k_of_a, k_of_b = a[-2 if n.attribute("transA") else -1], b[-1 if n.attribute("transB") else -2]
    return k_of_a is not None and k_of_a == k_of_b and can_broadcast([a[:-2], b[:-2]])


def _adds_bias(n: KnownNode) -> bool:
    """An element for each of the last axis, if there are any."""
    x = n.sizes(0)
    return n.value(1) is None or (bool(x) and x[-1] is not None and n.sizes(1) == x[-1:])  # type: ignore[index]


def _multiplies_to_float(n: KnownNode) -> bool:
    numbers = one_number(n, 2, 4) and of_columns(n, 3, 1) and of_columns(n, 5, 1)
    return multiplies(n) and numbers and _is_row(n, 6)


def _multiplies_as_bytes(n: KnownNode) -> bool:
    return multiplies(n) and of_columns(n, 2, 1) and of_columns(n, 3, 1) and _is_row(n, 4)


def _is_row(n: KnownNode, k: int) -> bool:
    """Whether an input is left out, or has an element for each column of a product."""
    b = n.sizes(1)
    return n.value(k) is None or (b is not None and len(b) == 2 and n.sizes(k) == b[-1:])


OPS = (
    OpInfo("BiasGelu", speculatable=_adds_bias),
    OpInfo("DynamicQuantizeLSTM", quirks=(_dies(1),)),
    OpInfo("DynamicQuantizeMatMul", speculatable=_multiplies_as_bytes, quirks=(_sums_nothing(0, 1),)),
    OpInfo("FastGelu", speculatable=_adds_bias),
    OpInfo(
        "FusedConv",
        speculatable=lambda n: convolves(n) and of_filters(n, 2, 1, several=True) and n.value(3) is None,
    ),
    OpInfo("FusedGemm", speculatable=gemm_fits),
    OpInfo("FusedMatMul", speculatable=_fused_multiplies),
    OpInfo("Gelu", speculatable=always),
    OpInfo("MatMulIntegerToFloat", speculatable=_multiplies_to_float, quirks=(_sums_nothing(0, 1),)),
    OpInfo("QAttention", quirks=(_dies(0),)),
    OpInfo("QGemm", quirks=(_sums_nothing(0, 3),)),
    OpInfo("QuickGelu", speculatable=always),
)
