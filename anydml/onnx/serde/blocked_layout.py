"""Whether onnxruntime's blocked layout pays for a region's convolutions.

Where processors have AVX-512, it keeps 16 channels together, and computes those that are missing: 1x1
convolutions to few channels take up to three times as long as products of matrices. The others, which would
first write every window down, gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy._core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]

from anydml.ir.graph import If, Node, TensorType
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.ops.shared import assumed

BLOCK = 16
"""Channels in a block."""
_GAINS = 1.25
"""How much longer the estimate of blocks has to be, as estimates go."""
_AVX512 = bool(__cpu_features__.get("AVX512F"))
_POOLS = "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"
"""They gain by blocks, too."""


def blocks_in_vain(nodes: Sequence[Node | If]) -> bool:
    """Whether the convolutions would take longer by blocks. Of grouped ones, and pools, it says no."""
    own = [n for n in nodes if isinstance(n, Node)]
    convolutions = [n for n in own if n.is_onnx("Conv")]
    if not convolutions or not _AVX512 or any(map(_is_pool, own)):
        return False
    estimates = [_estimate(n) for n in convolutions]
    if None in estimates:
        return False
    blocked, plain = np.sum([e for e in estimates if e is not None], axis=0)
    return bool(blocked > _GAINS * plain)


def _is_pool(node: Node) -> bool:
    return any(map(node.is_onnx, _POOLS))


def _estimate(node: Node) -> tuple[float, float] | None:
    """The times by blocks and without, of what a multiplication and addition takes; fitted to measurements.

    None where there is no telling: it is grouped, or no convolution of float32 with a weight of known sizes.
    """
    weight, result = node.inputs[1], node.outputs[0]
    if weight is None or result is None or not isinstance(weight.type, TensorType):
        return None
    sizes = weight.known_sizes
    if weight.type.dtype != "float32" or sizes is None or len(sizes) != 4:
        return None
    if NodeView(node).int("group") != 1:
        return None
    made, read, window = sizes[0], sizes[1], prod(sizes[2:])
    places = prod(assumed(n) for n in (result.sizes or ())[2:])
    few = read if window > 1 else 1.5 * read  # which are not in blocks yet, and are read as they come
    begun = few if read < BLOCK else _padded(read)
    blocked = (begun * window + 3.5) * _padded(made)  # the rest: what is written in the usual order again
    plain = 12.8 + 0.92 * made if window > 1 else max(4 + 0.75 * made, made)
    return places * blocked, places * read * window * plain


def _padded(channels: int) -> int:
    return -(-channels // BLOCK) * BLOCK
