"""What ONNX's shape inference lets pass though it cannot run: then nothing may be concluded from its sizes.

A convolution longer than its padded input; a reflection of more elements than there are; a Reshape to
another number of elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from onnx import helper

from anydml.ir.dims import Dim
from anydml.ir.graph import Node, OnnxOp, TensorType, Type


def impossible(node: Node, outputs: Sequence[Type | None], pads: Sequence[int] | None = None) -> bool:
    """Whether the sizes prove that the node fails when it runs.

    Args:
        outputs: the inferred types.
        pads: the content of a Pad's second input, if it is known.
    """
    assert isinstance(node.op, OnnxOp)
    rule = _RULES.get(node.op.name) if not node.op.domain else None
    return rule is not None and rule(node, outputs, pads)


def fails(node: Node) -> bool:
    """Whether the ranks of its inputs prove that a node fails, whatever the sizes turn out to be."""
    assert isinstance(node.op, OnnxOp)
    wanted = _RANKS.get(node.op.name) if not node.op.domain else None
    given = _input(node, 0)
    if node.op.name == "Conv" and not node.op.domain:
        weight = _input(node, 1)
        return given is not None and weight is not None and len(given) != len(weight)
    return wanted is not None and given is not None and len(given) != wanted


def rank_unsure(node: Node) -> bool:
    """Whether libraries give another rank than ONNX's inference says.

    SplitToSequence with lengths and without keepdims: onnxruntime and torch, which exports it, drop the axis
    of parts of length 1; inference says that it stays. Squeeze of no axes: onnxruntime squeezes all.
    """
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return False
    if node.is_onnx("SplitToSequence"):
        return bool(node.attributes.get("keepdims", _ONE).i == 0)
    return node.is_onnx("Squeeze") and node.inputs[1].known_sizes in (None, (0,))


def unsure_axes(node: Node, rank: int) -> range:
    """The axes of a node's output whose sizes inference tells otherwise than libraries compute them.

    Pools with ceil_mode: whether the last window may start in the padding. STFT of one side only.
    """
    if node.op.name in ("MaxPool", "AveragePool", "LpPool") and "ceil_mode" in node.attributes:
        return range(2 if node.attributes["ceil_mode"].i else rank, rank)
    return range(1, rank) if node.is_onnx("STFT") else range(0)


_ONE = helper.make_attribute("keepdims", 1)
_RANKS = {"LSTM": 3, "GRU": 3, "RNN": 3}


def window_fits(node: Node, sizes: Sequence[Dim], kernel: Sequence[int]) -> bool:
    """Whether the kernel is no longer than the padded input, along every axis whose size is a number."""
    told = {n: list(a.ints) for n, a in node.attributes.items() if n in ("pads", "dilations")}
    axes = len(kernel)
    pads, dilations = told.get("pads") or [0] * 2 * axes, told.get("dilations") or [1] * axes
    automatic = node.attributes["auto_pad"].s if "auto_pad" in node.attributes else b"NOTSET"
    if automatic not in (b"", b"NOTSET", b"VALID"):
        return True
    if automatic == b"VALID":
        pads = [0] * 2 * axes
    if len(pads) != 2 * axes or len(dilations) != axes:
        return False
    return all(
        not isinstance(n, int) or n + pads[k] + pads[k + axes] >= dilations[k] * (kernel[k] - 1) + 1
        for k, n in enumerate(sizes[2:])
    )


def _input(node: Node, k: int) -> tuple[Dim, ...] | None:
    value = node.inputs[k] if k < len(node.inputs) else None
    return None if value is None else value.sizes


def _kernel(node: Node) -> list[int] | None:
    """The kernel's sizes: an attribute's, or a weight's."""
    if "kernel_shape" in node.attributes:
        return list(node.attributes["kernel_shape"].ints)
    assert isinstance(node.op, OnnxOp)
    weight = _input(node, 3 if node.op.name == "QLinearConv" else 1)
    sizes = [n for n in (weight or ())[2:] if isinstance(n, int)]
    return sizes if weight is not None and len(sizes) == len(weight) - 2 else None


def _window(node: Node, outputs: Sequence[Type | None], pads: Sequence[int] | None) -> bool:
    given, kernel = _input(node, 0), _kernel(node)
    if given is None or kernel is None:
        return False
    return len(kernel) != len(given) - 2 or not window_fits(node, given, kernel)


def _reflection(node: Node, outputs: Sequence[Type | None], pads: Sequence[int] | None) -> bool:
    mode = node.attributes["mode"].s if "mode" in node.attributes else b"constant"
    given = _input(node, 0)
    if mode != b"reflect" or given is None:
        return False
    told = list(node.attributes["pads"].ints) if "pads" in node.attributes else pads
    if told is None or len(told) != 2 * len(given):
        return False
    rank = len(given)
    return any(isinstance(n, int) and max(told[k], told[k + rank]) >= max(n, 1) for k, n in enumerate(given))


def _count(node: Node, outputs: Sequence[Type | None], pads: Sequence[int] | None) -> bool:
    before = node.inputs[0].known_sizes if node.inputs and node.inputs[0] else None
    after = outputs[0].known_sizes if isinstance(outputs[0], TensorType) else None
    return before is not None and after is not None and prod(before) != prod(after)


_RULES: Mapping[str, Callable[[Node, Sequence[Type | None], Sequence[int] | None], bool]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool"), _window),
    "Pad": _reflection,
    "Reshape": _count,
}
