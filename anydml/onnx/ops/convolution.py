"""Convolutions, one position of the window after the other; summed in float64."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.onnx.ops import product_types
from anydml.onnx.ops.linalg import sum_products
from anydml.onnx.ops.native_convolution import native_conv, native_conv_transpose
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, OpInfo, Quirk
from anydml.onnx.ops.shared import assumed_sizes, both_zero
from anydml.onnx.ops.speculation import convolves, if_run, of_filters
from anydml.onnx.ops.windows import Index, check_groups, transposed, window_too_long, windows


def convolve(node: NodeView, x: Array, w: Array) -> Array:
    """x [N, C, ...] by filters w [M, C / group, ...], in their type."""
    groups = check_groups(node, x, w, w.shape[1] * node.int("group"))
    sizes = x.shape[2:]
    where = windows(node, sizes, w.shape[2:])
    padded = np.pad(x, [(0, 0), (0, 0), *where.needed(sizes)])
    parts = padded.reshape(x.shape[0], groups, w.shape[1], *padded.shape[2:])
    filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    result = np.zeros((x.shape[0], groups, filters.shape[1], *where.count), x.dtype)
    for position in where.positions():
        one: Index = (..., *position)
        result += np.einsum("ngc...,gmc->ngm...", parts[where.at(position)], filters[one])
    return result.reshape(x.shape[0], w.shape[0], *where.count)


def _with_bias(result: Array, bias: Array | None) -> Array:
    if bias is None:
        return result
    if bias.shape != (result.shape[1],):
        raise ValueError(f"expected a bias of [{result.shape[1]}], but got {list(bias.shape)}")
    return np.asarray(result + bias.reshape(-1, *[1] * (result.ndim - 2)))


def _conv(node: NodeView, x: Array, w: Array, bias: Array | None = None) -> Array:
    def compute(x: Array, w: Array, bias: Array | None = None) -> Array:
        return _with_bias(convolve(node, x, w), bias)

    return sum_products(compute, x, w, *([] if bias is None else [bias]))


def _conv_transpose(node: NodeView, x: Array, w: Array, bias: Array | None = None) -> Array:
    groups = check_groups(node, x, w, w.shape[0])
    sizes, kernel = x.shape[2:], w.shape[2:]
    strides, dilations, before, count, full = transposed(node, sizes, kernel)

    def compute(x: Array, w: Array, bias: Array | None = None) -> Array:
        parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *sizes)
        filters = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        result = np.zeros((x.shape[0], groups, w.shape[1], *full), x.dtype)
        for position in np.ndindex(*kernel):
            steps = zip(position, dilations, strides, sizes, strict=True)
            at: Index = (..., *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in steps))
            one: Index = (..., *position)
            result[at] += np.einsum("ngc...,gcm->ngm...", parts, filters[one])
        kept: Index = (..., *(slice(b, b + c) for b, c in zip(before, count, strict=True)))
        return _with_bias(result[kept].reshape(x.shape[0], groups * w.shape[1], *count), bias)

    return sum_products(compute, x, w, *([] if bias is None else [bias]))


NO_CHANNELS = Quirk(
    "onnxruntime answers with memory that nobody wrote, or never, where there are no channels",
    lambda n: both_zero(n.size(0, 1), n.size(1, 1)),  # with padding
    fatal=True,
    empty=True,
)


def conv_flops(n: KnownNode, results: int) -> int:
    weight = assumed_sizes(n, 1)
    return 2 * results * prod(weight[1:]) if len(weight) > 1 else results


OPS = (
    OpInfo(
        "Conv",
        keeps_weights=True,
        native=native_conv,
        result=product_types.convolved,
        fold=_conv,
        impossible=window_too_long,
        speculatable=lambda n: convolves(n) and of_filters(n, 2, 1, several=True),
        flops=conv_flops,
        quirks=(NO_CHANNELS,),
        minimums={"group": 1},
        never_empty=True,
        wrong_ranks=lambda n: None not in (n.rank(0), n.rank(1)) and n.rank(0) != n.rank(1),
    ),
    OpInfo(
        "ConvTranspose",
        result=product_types.convolved_backwards,
        keeps_weights=True,
        native=native_conv_transpose,
        any_batch=True,
        fold=_conv_transpose,
        speculatable=if_run,
        quirks=(
            Quirk(
                "onnxruntime ends the process on an empty tensor of three dimensions or more",
                lambda n: (n.rank(0) or 5) > 4 and n.may_be_empty(0, 2),
                fatal=True,
                empty=True,
            ),
        ),
        minimums={"group": 1},
        never_empty=True,
    ),
    OpInfo("DeformConv", minimums={"offset_group": 1, "group": 1}),
)
