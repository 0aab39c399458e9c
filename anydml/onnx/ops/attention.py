"""Attention and its kin, which have no rule of ours."""

from __future__ import annotations

from anydml.ir.dims import may_be_zero
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk


def _no_heads(n: KnownNode) -> bool:
    return any(n.rank(k) == 4 and may_be_zero(n.size(k, 1)) for k in (0, 1)) or (
        0 in (n.attribute("q_num_heads"), n.attribute("kv_num_heads"))
    )


def _too_few_angles(n: KnownNode) -> bool:
    """Fewer rows of angles than positions, which are numbered."""
    rows, length = n.size(1, 0), n.size(0, 1 if n.rank(0) == 3 else 2)
    return n.value(3) is not None and isinstance(rows, int) and isinstance(length, int) and rows < length


OPS = (
    OpInfo(
        "Attention",
        quirks=(
            Quirk("onnxruntime ends the process where there are no heads", _no_heads, fatal=True, empty=True),
            Quirk("onnxruntime refuses attention to or by nothing", lambda n: n.empty(0, 1, 2)),
            Quirk(
                "onnxruntime gives scores without the causal mask",
                lambda n: n.outputs[3:4] == (True,) and bool(n.attribute("is_causal")),
            ),
            Quirk(
                "onnxruntime does not take a mask that is shorter than the keys, with padded keys",
                lambda n: n.value(6) is not None and n.value(3) is not None,
            ),
        ),
        minimums={"q_num_heads": 1, "kv_num_heads": 1},
    ),
    OpInfo(
        "RotaryEmbedding", quirks=(Quirk("onnxruntime refuses fewer angles than positions", _too_few_angles),)
    ),
)
