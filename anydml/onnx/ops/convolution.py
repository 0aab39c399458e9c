"""Convolutions, one position of the window after the other; summed in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from anydml.codegen.kernel import collapse
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.contraction import matrix_product
from anydml.codegen.program.values import Known, Memory, NotNative, Tensor
from anydml.onnx.ops import result_types
from anydml.onnx.ops.linalg import sum_products
from anydml.onnx.ops.native import Inputs, known, operand, padded, windowed
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.shared import assumed_sizes, both_zero
from anydml.onnx.ops.speculation import if_run
from anydml.onnx.ops.windows import Index, numbers, window_too_long, windows
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32


def _check_groups(node: NodeView, x: Array, w: Array, ingoing: int) -> int:
    """The number of groups, for an input with so many channels as x should have."""
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"expected inputs of one rank, 3 or more, but got {x.ndim} and {w.ndim}")
    groups = node.int("group")
    if x.shape[1] != ingoing or groups < 1 or w.shape[0] % groups:
        raise ValueError(f"expected {ingoing} channels in {groups} groups, but got {x.shape[1]}")
    kernel = node.ints("kernel_shape") or list(w.shape[2:])
    if tuple(kernel) != w.shape[2:]:
        raise ValueError(f"expected a kernel of {kernel}, but got {list(w.shape[2:])}")
    return groups


def convolve(node: NodeView, x: Array, w: Array) -> Array:
    """x [N, C, ...] by filters w [M, C / group, ...], in their type."""
    groups = _check_groups(node, x, w, w.shape[1] * node.int("group"))
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
    groups = _check_groups(node, x, w, w.shape[0])
    sizes, kernel = x.shape[2:], w.shape[2:]
    strides, dilations, before, count, full = _transposed(node, sizes, kernel)

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


def _transposed(
    node: NodeView, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides and dilations; how many elements go in front, how many stay, and how many there are."""
    rank = len(sizes)
    if 0 in sizes or 0 in kernel:
        raise NotFoldable("a convolution of nothing")
    strides, dilations = numbers(node, "strides", rank, 1), numbers(node, "dilations", rank, 1)
    if min(*strides, *dilations) < 1:
        raise ValueError("expected strides and dilations of at least 1")
    extra = numbers(node, "output_padding", rank, 0)
    if any(not 0 <= e < s for e, s in zip(extra, strides, strict=True)):
        raise NotFoldable("as much padding of the output as steps, which libraries refuse")
    each = zip(sizes, kernel, strides, dilations, extra, strict=True)
    full = [(n - 1) * s + (k - 1) * d + 1 + e for n, k, s, d, e in each]
    return strides, dilations, *_crop(node, sizes, strides, full), full


def _crop(
    node: NodeView, sizes: tuple[int, ...], strides: list[int], full: list[int]
) -> tuple[list[int], list[int]]:
    """How many elements go in front, and how many stay.

    Raises:
        NotFoldable: an odd number goes, of which ONNX's versions and libraries say on which side the odd
            one is in different ways; more stay than there are.
    """
    rank, auto = len(sizes), node.text("auto_pad")
    wanted = node.ints("output_shape")
    if wanted is None and auto in ("NOTSET", "VALID"):
        pads = [0] * 2 * rank if auto == "VALID" else numbers(node, "pads", 2 * rank, 0)
        before = pads[:rank]
        count = [f - b - a for f, b, a in zip(full, before, pads[rank:], strict=True)]
    else:
        count = [n * s for n, s in zip(sizes, strides, strict=True)]
        if wanted is not None:
            count = numbers(node, "output_shape", rank, 0)
        totals = [f - c for f, c in zip(full, count, strict=True)]
        if any(t % 2 for t in totals):
            raise NotFoldable("padding that is odd")
        before = [t // 2 for t in totals]
    fits = all(b >= 0 and b + c <= f for b, c, f in zip(before, count, full, strict=True))
    if not fits or min(count) < 1:
        raise NotFoldable("an output of nothing, or negative padding")
    return before, count


NO_CHANNELS = Quirk(
    "onnxruntime answers with memory that nobody wrote, or never, where there are no channels",
    lambda n: both_zero(n.size(0, 1), n.size(1, 1)),  # with padding
    fatal=True,
    empty=True,
)


def conv_flops(n: KnownNode, results: int) -> int:
    weight = assumed_sizes(n, 1)
    return 2 * results * prod(weight[1:]) if len(weight) > 1 else results


def _conv_fits(n: KnownNode) -> bool:
    x, w = n.sizes(0), n.sizes(1)
    if x is None or w is None or not 3 <= len(x) == len(w):
        return False
    if not all(isinstance(size, int) for size in (*x[1:], *w)):
        return False
    if n.value(2) is not None and n.sizes(2) != (w[0],):
        return False
    if tuple(n.ints("kernel_shape") or w[2:]) != w[2:]:
        return False
    groups = n.int("group")
    return x[1] == w[1] * groups and w[0] % groups == 0  # type: ignore[operator]


def _native_conv(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """By known filters: windows as rows of a matrix for each group; or one place of the window upon the
    other, where each channel is alone."""
    x, filters, bias = operand(inputs), known(inputs, 1), known(inputs, 2)
    if filters is None or len(x.sizes) < 3 or x.dtype is not FLOAT32:
        raise NotNative("Conv by what is computed, or not of float32")
    w, groups = filters.array, n.int("group")
    if x.sizes[1] != w.shape[1] * groups or (n.ints("kernel_shape") or list(w.shape[2:])) != list(
        w.shape[2:]
    ):
        raise NotNative("filters that do not fit")
    _check_bias(bias, len(w))
    where = windows(n, x.sizes[2:], w.shape[2:])
    seen = windowed(b, x, where, 0.0)
    if groups > 1 and w.shape[1] == 1 and len(w) == groups:
        return [_channel_by_channel(b, seen, w, bias)]
    samples, inner = x.sizes[0], len(where.kernel)
    parts = np.arange(seen.count).reshape(samples, groups, w.shape[1], *seen.sizes[2:])
    matrices = w.reshape(groups, len(w) // groups, *w.shape[1:])
    taps = list(range(3 + inner, 3 + 2 * inner))
    weighed, weights = [2, *taps], [2, *range(3, 3 + inner)]
    if isinstance(seen, Memory) and seen.strides[1] == 1:  # channels are neighbours, and stay so
        weighed, weights = [*weighed[1:], 2], [*weights[1:], 2]
    moved = b.rearrange(seen, parts.transpose([1, 0, *range(3, 3 + inner), *weighed]))
    rows = samples * prod(where.count)
    matrices = matrices.transpose([0, *weights, 1]).reshape(groups, -1, len(w) // groups)
    beside = [] if bias is None else [Known.of(bias.array.reshape(groups, 1, -1))]
    end = _SUM if beside else None
    lines = _as_lines(moved, 2 + inner)
    if lines is not None:
        front = (groups, *[1] * (len(lines.sizes) - 4))
        made = b.room(FLOAT32, (*lines.sizes[:-2], len(w) // groups))
        factors = Known.of(matrices.reshape(*front, *matrices.shape[1:]))
        beside = [Known.of(t.array.reshape(*front, 1, -1)) for t in beside]
        matrix_product(b, lines, factors, end, beside, made, in_two=True)
    else:
        columns = b.reshape(moved, (groups, rows, moved.count // rows // groups))
        made = matrix_product(b, columns, Known.of(matrices.copy()), end, beside)
    whole = b.reshape(made, (groups, samples, *where.count, len(w) // groups))
    places = np.arange(whole.count).reshape(whole.sizes)
    order = [1, 0, 2 + inner, *range(2, 2 + inner)]
    return [b.rearrange(whole, places.transpose(order).reshape(samples, len(w), *where.count))]


MIN_LINES = 4
"""Windows beside each other from which it is worth to go to the next ones in a loop of its own."""


def _as_lines(seen: Tensor, axes: int) -> Memory | None:
    """What windows see, [groups, windows..., places...], as [groups, ..., windows, places, places], if
    strides lead to that; None where a copy is needed, or better.

    `axes`: how many are not of places.
    """
    if not isinstance(seen, Memory):
        return None
    windows, places = (
        collapse(seen.sizes[part], [seen.strides[part]], reorder=False)
        for part in (slice(1, axes), slice(axes, None))
    )
    if len(places) > 2 or (len(windows) == len(places) == 1) or windows[-1][0] < MIN_LINES:
        return None
    every = [(seen.sizes[0], seen.strides[:1]), *windows, *[(1, (0,))] * (2 - len(places)), *places]
    return replace(seen, sizes=tuple(n for n, _ in every), strides=tuple(s for _, (s,) in every))


def _check_bias(bias: Known | None, channels: int) -> None:
    if bias is not None and bias.sizes != (channels,):
        raise NotNative(f"a bias of {list(bias.sizes)} for {channels} channels")


def _channel_by_channel(b: ProgramBuilder, seen: Tensor, w: Array, bias: Known | None) -> Tensor:
    """A filter for each channel, with windows [N, C, windows..., places in a window...]."""
    groups, axes = len(w), w.ndim - 2
    places = np.arange(seen.count).reshape(*seen.sizes[: 2 + axes], -1)
    taps = places.shape[-1]
    parts = [b.rearrange(seen, places[..., k]) for k in range(taps)]
    column = (groups, *[1] * axes)
    weights = [Known.of(w.reshape(groups, taps)[:, k].reshape(column)) for k in range(taps)]
    first = Known.of((np.zeros(groups, np.float32) if bias is None else bias.array).reshape(column))
    total = expr.read(2 * taps, FLOAT32)
    for k in range(taps):
        total = expr.fma(expr.read(k, FLOAT32), expr.read(taps + k, FLOAT32), total)
    b.work += 2 * seen.count
    return b.elementwise(total, [*parts, *weights, first])


def _native_conv_transpose(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """By known filters: each element times its filter, as one product of matrices for each group; then, for
    each remainder that a place of the output leaves by the strides, the sum of what falls there."""
    x, filters, bias = operand(inputs), known(inputs, 1), known(inputs, 2)
    if filters is None or x.dtype is not FLOAT32:
        raise NotNative("ConvTranspose by what is computed, or not of float32")
    w = filters.array
    groups = _check_groups(n, np.empty(x.sizes), w, len(w))
    sizes, kernel, samples, outgoing = x.sizes[2:], w.shape[2:], x.sizes[0], groups * w.shape[1]
    _check_bias(bias, outgoing)
    strides, dilations, before, count, _ = _transposed(n, sizes, kernel)
    inner, ingoing = prod(sizes), len(w) // groups
    places = np.arange(x.count).reshape(samples, groups, ingoing, inner)
    columns = b.rearrange(x, places.transpose(1, 0, 3, 2))
    rows = b.reshape(columns, (groups, samples * inner, ingoing))
    made = matrix_product(b, rows, Known.of(w.reshape(groups, ingoing, -1)))
    parts = np.arange(made.count).reshape(groups, samples, *sizes, w.shape[1], *kernel)
    order = (1, 0, len(sizes) + 2, *range(2, 2 + len(sizes)), *range(len(sizes) + 3, parts.ndim))
    moved = parts.transpose(order).reshape(samples, outgoing, *sizes, *kernel)
    shift = Known.of(np.zeros(outgoing, np.float32) if bias is None else bias.array)
    shift = Known.of(shift.array.reshape(outgoing, *[1] * len(sizes)))
    result = b.room(FLOAT32, (samples, outgoing, *count))
    for phase in np.ndindex(*(min(s, c) for s, c in zip(strides, count, strict=True))):
        home = b.every(result, (0, 0, *phase), (1, 1, *strides))
        fitting = []
        """For each axis: places of the filter, and which of the input fall on the first of this phase."""
        for r, p, k, d, s in zip(phase, before, kernel, dilations, strides, strict=True):
            fitting.append([(t, (r + p - t * d) // s) for t in range(k) if (r + p - t * d) % s == 0])
        terms: list[Tensor] = []
        for taps in product(*fitting):
            at: Index = (..., *(t for t, _ in taps))
            one = b.rearrange(made, moved[at])
            terms.append(_shifted(b, one, [first for _, first in taps], home.sizes[2:]))
        if not terms:
            terms = [Known.of(np.zeros(home.sizes, np.float32))]
        b.memory(_total(b, [shift, *terms]), home)
    return [b.settled(result)]


def _shifted(b: ProgramBuilder, x: Tensor, first: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """So many elements along each spatial axis, from `first` on; 0 where there are none."""
    ends = [(f, f + m, n) for f, m, n in zip(first, sizes, x.sizes[2:], strict=True)]
    widths = [(max(-f, 0), max(end - n, 0)) for f, end, n in ends]
    padded_x = padded(b, x, [(0, 0), (0, 0), *widths], 0.0)
    places = np.arange(padded_x.count).reshape(padded_x.sizes)
    kept: Index = (..., *(slice(max(f, 0), max(f, 0) + m) for f, m in zip(first, sizes, strict=True)))
    return b.rearrange(padded_x, places[kept])


def _total(b: ProgramBuilder, terms: Sequence[Tensor]) -> Tensor:
    total = expr.read(0, FLOAT32)
    for k in range(1, len(terms)):
        total = expr.add(total, expr.read(k, FLOAT32))
    return b.elementwise(total, terms)


_SUM = expr.add(expr.read(0, FLOAT32), expr.read(1, FLOAT32))
OPS = (
    OpInfo(
        "Conv",
        keeps_weights=True,
        native=_native_conv,
        result=result_types.convolved,
        fold=_conv,
        impossible=window_too_long,
        speculatable=_conv_fits,
        flops=conv_flops,
        quirks=(NO_CHANNELS,),
        minimums={"group": 1},
        never_empty=True,
        wrong_ranks=lambda n: None not in (n.rank(0), n.rank(1)) and n.rank(0) != n.rank(1),
    ),
    OpInfo(
        "ConvTranspose",
        keeps_weights=True,
        native=_native_conv_transpose,
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
