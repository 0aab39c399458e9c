"""Softmax and its kin as ONNX nodes, along several axes together, too."""

from __future__ import annotations

from collections.abc import Sequence

from anydml.onnx.from_directml.nodes import OnnxNodes

_NAMES = {
    "ACTIVATION_SOFTMAX": "Softmax",
    "ACTIVATION_LOG_SOFTMAX": "LogSoftmax",
    "ACTIVATION_HARDMAX": "Hardmax",
}


def softmax(operator: str, x: str, sizes: Sequence[int], axes: Sequence[int], o: OnnxNodes) -> str | None:
    """None of other operators. ONNX has one axis: several are moved to the end, and made one."""
    name = _NAMES.get(operator.removesuffix("1"))
    if name is None:
        return None
    if len(axes) == 1:
        return str(o(name, x, axis=axes[0]))
    rank = len(sizes)
    along = sorted(a % rank for a in axes)
    order = [*(k for k in range(rank) if k not in along), *along]
    back = sorted(range(rank), key=order.__getitem__)
    moved = [sizes[k] for k in order]
    rows = o.reshape(o.transpose(x, order), [*moved[: rank - len(along)], -1])
    return o.transpose(o.reshape(str(o(name, rows, axis=-1)), moved), back)
