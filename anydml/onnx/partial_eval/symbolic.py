"""Symbolic sizes through nodes, and the integers that are computed from them.

    x: float32[n,64]      Shape(x) -> [n, 64]      Shape(x)[0] + 1 -> n+1      Range(n, n+1, 1) -> one element

What is known of integers is said in terms of the symbols of sizes (`ir/dims.py`), of which none is negative.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from anydml.ir.dims import UNKNOWN, Affine
from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import NodeView, Symbols


def compute_symbols(
    node: Node, inputs: Sequence[Symbols | None], sizes: tuple[int, ...] | None
) -> Symbols | None:
    """What is known of the only output's integers; `sizes` are the output's, where they are known."""
    info = info_of(node.op)
    if info is None or info.symbols is None or not inputs:
        return None
    if any(x is None for x in inputs[: info.symbol_inputs]):
        return None
    result = info.symbols(NodeView(node), list(inputs), sizes)
    if result is None or (result.size and all(x is UNKNOWN for x in result.reshape(-1))):
        return None
    return result


def compare_symbols(node: Node, inputs: Sequence[Symbols | None]) -> NDArray[np.bool_] | None:
    """The truths of a comparison, if they are the same whatever the symbols are."""
    info = info_of(node.op)
    if info is None or info.compare is None or len(inputs) != 2 or inputs[0] is None or inputs[1] is None:
        return None
    difference = np.asarray(inputs[0] - inputs[1], object)
    truths = [info.compare(d) for d in difference.reshape(-1)]
    if any(t is None for t in truths):
        return None
    return np.array(truths, np.bool_).reshape(difference.shape)


def decide(node: Node, inputs: Sequence[bool | None], sizes: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """The result of an And or Or of which one operand decides."""
    info = info_of(node.op)
    absorbing = None if info is None else info.absorbing
    return None if absorbing is None or absorbing not in inputs else np.full(sizes, absorbing)


def measure(node: Node, sizes: Sequence[Affine] | None) -> Symbols | None:
    """What Shape and its like compute of a tensor of these sizes."""
    info = info_of(node.op)
    if sizes is None or info is None or info.measures is None:
        return None
    return info.measures(NodeView(node), sizes)


def measures(node: Node) -> bool:
    """Whether a node's result follows from the sizes of its input alone."""
    info = info_of(node.op)
    return info is not None and info.measures is not None


def sized(
    node: Node, sizes: Sequence[Sequence[Affine] | None], contents: Sequence[Symbols | None]
) -> list[Affine] | None:
    """The sizes of each output, as far as ONNX's own inference does not say them.

    Args:
        sizes: of each input, where its rank is known.
        contents: of each input, as far as it is known.
    """
    info = info_of(node.op)
    if info is None or info.sizes is None or not sizes or sizes[0] is None:
        return None
    return info.sizes(NodeView(node), sizes, contents)


def is_followed(op: OnnxOp) -> bool:
    """Whether its results may be known where its inputs' contents are not."""
    info = info_of(op)
    if info is None or op.domain:
        return False
    return bool(info.symbols or info.compare or info.measures or info.absorbing is not None)
