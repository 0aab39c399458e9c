"""Nodes that onnxruntime computes otherwise than ONNX says, refuses while it runs, or ends the process on.

They go to onnx.reference. Seen with onnxruntime 1.31 and the test suite of the onnx package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import helper

from anydml.ir.graph import Node, OnnxOp, TensorType


def unfit(node: Node) -> bool:
    assert isinstance(node.op, OnnxOp)
    rule = _RULES.get(node.op.name) if node.op.domain == "" else None
    return rule is not None and rule(node)


def ends_the_process(node: Node) -> bool:
    """Whether onnxruntime, given this node, ends the process instead of answering with an error."""
    return isinstance(node.op, OnnxOp) and node.op.name in _FATAL and unfit(node)


def _empty(node: Node) -> bool:
    return any(0 in (_sizes(node, k) or ()) for k in range(len(node.inputs)))


def _sizes(node: Node, k: int) -> tuple[Any, ...] | None:
    """The sizes of input k, as far as known; None if it is not there, or of unknown rank."""
    value = node.inputs[k] if k < len(node.inputs) else None
    return None if value is None else value.sizes


def _dtype(node: Node) -> str | None:
    value = node.inputs[0] if node.inputs else None
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def _attribute(node: Node, name: str, default: Any) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else helper.get_attribute_value(attribute)


def _attention(node: Node) -> bool:
    """The scores output without the causal mask; a mask shorter than the keys, which stands for padding."""
    if len(node.outputs) > 3 and node.outputs[3] is not None and _attribute(node, "is_causal", 0):
        return True
    return len(node.inputs) > 6 and node.inputs[3] is not None


def _resize(node: Node) -> bool:
    """Align corners by scales: the sizes that the formula needs are not the rounded ones."""
    mode = _attribute(node, "coordinate_transformation_mode", b"half_pixel")
    return bool(mode == b"align_corners" and _attribute(node, "mode", b"nearest") in (b"linear", b"cubic"))


def _distribution(node: Node) -> bool:
    """A scale that is not positive, or a range that is none: onnxruntime ends the process."""
    low, high = (float(_attribute(node, *pair)) for pair in (("low", 0.0), ("high", 1.0)))
    return not (float(_attribute(node, "scale", 1.0)) > 0 and low <= high and high - low < float("inf"))


def _einsum(node: Node) -> bool:
    """Fewer dimensions than letters, or perhaps: onnxruntime ends the process."""
    equation = _attribute(node, "equation", b"")
    if not isinstance(equation, bytes):  # of an opset that has no Einsum
        return True
    terms = equation.replace(b"...", b"").replace(b" ", b"").split(b"->")[0].split(b",")
    sizes = [_sizes(node, k) for k in range(len(node.inputs))]
    return len(terms) != len(sizes) or any(
        s is None or len(s) < len(t) for s, t in zip(sizes, terms, strict=True)
    )


_RULES: dict[str, Callable[[Node], bool]] = {
    "Attention": _attention,
    "Bernoulli": lambda n: True,  # 1 with the probability of 0
    "ConvInteger": lambda n: _sizes(n, 3) not in (None, (), (1,)),  # a zero point for each channel
    "DFT": lambda n: True,  # a naive sum, whose error grows with the length
    "Dropout": lambda n: len(n.inputs) > 2,  # in training; another random generator than ONNX's
    "Einsum": _einsum,
    "GRU": _empty,  # onnxruntime aborts the process on an empty batch
    "LSTM": _empty,
    "MaxUnpool": lambda n: len(n.inputs) > 2,  # indices refer to the output shape, not to the pooled one
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _distribution
    ),
    "ReduceMax": lambda n: _dtype(n) == "bool" and _empty(n),
    "ReduceMin": lambda n: _dtype(n) == "bool" and _empty(n),
    "Resize": _resize,
    "RNN": _empty,
    "STFT": lambda n: True,  # as DFT
}
_FATAL = frozenset(
    "Einsum GRU LSTM RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike STFT".split()
)
