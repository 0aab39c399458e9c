"""Attention and its kin, which have no rule of ours."""

from __future__ import annotations

from anydml.ir.dims import Dim, may_be_zero
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk, Safe, SafeOperands


def _no_heads(n: KnownNode) -> bool:
    return any(n.rank(k) == 4 and may_be_zero(n.size(k, 1)) for k in (0, 1)) or (
        0 in (n.attribute("q_num_heads"), n.attribute("kv_num_heads"))
    )


def _too_few_angles(n: KnownNode) -> bool:
    """Fewer rows of angles than positions, which are numbered."""
    rows, length = n.size(1, 0), n.size(0, 1 if n.rank(0) == 3 else 2)
    return n.value(3) is not None and isinstance(rows, int) and isinstance(length, int) and rows < length


def _fits(n: KnownNode) -> bool:
    """Queries, keys and values of equal batches, of widths that the heads divide; no mask, and no past."""
    q, k, v = n.sizes(0), n.sizes(1), n.sizes(2)
    heads, others = n.attribute("q_num_heads"), n.attribute("kv_num_heads")
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) or n.count > 3:
        return False
    if len(q) == 4:
        heads, others, length, widths = q[1], k[1], 2, [q[3], k[3], v[3]]
        if v[1] != others:
            return False
    elif len(q) == 3 and heads and others:
        length, widths = 1, [_part(q[2], heads), _part(k[2], others), _part(v[2], others)]
    else:
        return False
    if not isinstance(heads, int) or not isinstance(others, int) or not others or heads % others:
        return False
    if not all(isinstance(width, int) and width for width in widths) or widths[0] != widths[1]:
        return False
    return q[0] is not None and q[0] == k[0] == v[0] and k[length] is not None and k[length] == v[length]


def _part(width: Dim, heads: int) -> int | None:
    return width // heads if isinstance(width, int) and width % heads == 0 else None


def _of_something(n: KnownNode) -> bool:
    """What fits, and is not empty, which onnxruntime refuses."""
    return _fits(n) and not any(n.may_be_empty(k) for k in range(3))


def _safe(n: KnownNode, o: SafeOperands) -> Safe | None:
    """One sample of one position at least."""
    if not _fits(n):
        return None
    axes = [k for k in range((n.rank(0) or 0) - 1) if any(may_be_zero(n.size(i, k)) for i in range(3))]
    return Safe({i: o.nonempty(i, axes) for i in range(3)})


OPS = (
    OpInfo(
        "Attention",
        sizes_told=True,
        safe=_safe,
        speculatable=_of_something,
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
