"""Convolutions in programs: as products of matrices, or channel by channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.loop_dims import collapse
from anydml.codegen.program.refusal import NotNative
from anydml.directml.weights import replace_reads
from anydml.onnx.ops.native import Inputs, known, operand, padded, windowed
from anydml.onnx.ops.opinfo import Array, KnownNode
from anydml.onnx.ops.windows import Index, Windows, check_groups, transposed, windows
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32, SIZE

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Known, Memory, Tensor


def native_conv(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
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
    if groups > 1 and w.shape[1] == 1 and len(w) == groups:
        return [_channel_by_channel(b, x, where, w, bias)]
    seen = windowed(b, x, where, 0.0)
    samples, inner = x.sizes[0], len(where.kernel)
    parts = np.arange(seen.count).reshape(samples, groups, w.shape[1], *seen.sizes[2:])
    matrices = w.reshape(groups, len(w) // groups, *w.shape[1:])
    taps = list(range(3 + inner, 3 + 2 * inner))
    weighed, weights = [2, *taps], [2, *range(3, 3 + inner)]
    if isinstance(seen, program.Memory) and seen.strides[1] == 1:  # channels are neighbours, and stay so
        weighed, weights = [*weighed[1:], 2], [*weights[1:], 2]
    moved = b.rearrange(seen, parts.transpose([1, 0, *range(3, 3 + inner), *weighed]))
    rows, outgoing = samples * prod(where.count), len(w) // groups
    matrices = matrices.transpose([0, *weights, 1]).reshape(groups, -1, outgoing)
    lines = _as_lines(moved, 2 + inner)
    one = b.reshape(moved, (groups, rows, moved.count // rows // groups)) if lines is None else lines
    front = (groups, *[1] * (len(one.sizes) - (3 if lines is None else 4)))
    factors = program.Known.of(matrices.reshape(*front, *matrices.shape[1:]))
    sizes = program.product_sizes(one, factors, lines is not None)

    def laid(t: Memory) -> Memory | None:
        """[N, groups * outgoing, ...] as [groups, N, ..., outgoing], and that as the product."""
        channels = program.reshaped(t, (samples, groups, outgoing, *where.count))
        order = [1, 0, *range(3, 3 + inner), 2]
        return None if channels is None else program.reshaped(_moved(channels, order), sizes)

    def product(end: expr.Expr | None, beside: Sequence[Tensor]) -> Memory:
        if bias is not None:
            beside = [*beside, program.Known.of(bias.array.reshape(*front, 1, outgoing))]
            biased = expr.add(expr.read(0, FLOAT32), expr.read(len(beside), FLOAT32))
            reads = {k: expr.read(k, t.dtype) for k, t in enumerate(beside, start=1)}
            end = biased if end is None else replace_reads(end, {0: biased, **reads})
        made = program.matrix_product(b, one, factors, end, beside, in_two=lines is not None)
        whole = program.reshaped(made, (groups, samples, *where.count, outgoing))
        assert whole is not None, "it is packed"
        channels = _moved(whole, [1, 0, 2 + inner, *range(2, 2 + inner)])
        return b.memory(b.reshape(channels, (samples, len(w), *where.count)))

    return [program.pending(b, [one], (samples, len(w), *where.count), product, laid)]


def _moved(tensor: Memory, axes: Sequence[int]) -> Memory:
    """Its axes in another order."""
    sizes, strides = (tuple(of[axis] for axis in axes) for of in (tensor.sizes, tensor.strides))
    return replace(tensor, sizes=sizes, strides=strides)


MIN_LINES = 4
"""Windows beside each other from which it is worth to go to the next ones in a loop of its own."""


def _as_lines(seen: Tensor, axes: int) -> Memory | None:
    """What windows see, [groups, windows..., places...], as [groups, ..., windows, places, places], if
    strides lead to that; None where a copy is needed, or better.

    `axes`: how many are not of places.
    """
    if not isinstance(seen, program.Memory):
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


MAX_TAPS = 256
"""Multiplications that are written for blocks of windows, of which those at the edges see less."""


def _channel_by_channel(b: ProgramBuilder, x: Tensor, where: Windows, w: Array, bias: Known | None) -> Tensor:
    """A filter for each channel: blocks of windows that see the same places of their filters, so that
    nothing is added around the input; or one block, around which there is, where these were many."""
    blocks = [*product(*(_alike(where, axis, n) for axis, n in enumerate(x.sizes[2:])))]
    x = _channels_last(b, b.memory(x))
    taps = sum(prod(len(taps) for _, _, taps in block) for block in blocks)
    if taps > MAX_TAPS or x.strides[1] != 1:
        x = padded(b, x, [(0, 0), (0, 0), *where.needed(x.sizes[2:])], 0.0)
        where = replace(where, before=(0,) * len(where.kernel), after=(0,) * len(where.kernel))
        blocks = [tuple((0, c, range(k)) for c, k in zip(where.count, where.kernel, strict=True))]
    x = b.memory(x)
    channels, sizes = len(w), (*x.sizes[:2], *where.count)
    column = (channels, *[1] * len(where.kernel))
    first = program.Known.of((np.zeros(channels, np.float32) if bias is None else bias.array).reshape(column))

    def sums(block: _Block, part: tuple[int, ...]) -> tuple[expr.Expr, list[Tensor]]:
        """What a block's windows see, as an expression; `part`: its sizes."""
        operands: list[Tensor] = [first]
        total = expr.read(0, FLOAT32)
        for taps in product(*(taps for _, _, taps in block)):
            begin = [
                i * s + k * d - p
                for (i, _, _), k, s, d, p in zip(
                    block, taps, where.strides, where.dilations, where.before, strict=True
                )
            ]
            seen = b.every(x, (0, 0, *begin), (1, 1, *where.strides))
            operands.append(b.part_of(seen, [0] * len(part), part))
            at: Index = (..., 0, *taps)
            operands.append(program.Known.of(w[at].reshape(column)))
            k = len(operands)
            total = expr.fma(expr.read(k - 2, FLOAT32), expr.read(k - 1, FLOAT32), total)
        return total, operands

    def write(end: expr.Expr, others: Sequence[Tensor]) -> Memory:
        result = b.room(FLOAT32, sizes, program.strides_like(sizes, [x]))
        beside = [program.over(b.memory(t), sizes) for t in others]
        for block in blocks:
            start, part = [0, 0, *(i for i, _, _ in block)], (*sizes[:2], *(n for _, n, _ in block))
            total, operands = sums(block, part)
            given = [*operands, *(b.part_of(t, start, part) for t in beside)]
            reads = {k: expr.read(len(operands) + k - 1, t.dtype) for k, t in enumerate(beside, start=1)}
            meaning = replace_reads(end, {0: total, **reads})
            b.memory(b.elementwise(meaning, given), b.part_of(result, start, part))
        b.work += 2 * prod(sizes) * prod(where.kernel)
        return result

    return b.later(program.Pending(FLOAT32, sizes, write, (x,)))


def _channels_last(b: ProgramBuilder, x: Memory) -> Memory:
    """With channels beside each other, where they fill vectors and rows do not."""
    lanes = b.vector_lanes(SIZE[x.dtype])
    if x.strides[1] == 1 or not x.sizes[-1] < lanes <= x.sizes[1]:
        return x
    order = [0, *range(2, len(x.sizes)), 1]
    into = b.room(x.dtype, tuple(x.sizes[axis] for axis in order))
    return b.memory(x, _moved(into, [0, len(order) - 1, *range(1, len(order) - 1)]))


_Run = tuple[int, int, range]
"""Windows along an axis: the first, how many, and the places of the filter that see something."""
_Block = tuple[_Run, ...]


def _alike(where: Windows, axis: int, size: int) -> list[_Run]:
    """Neighbours that see the same places of the filter."""
    k, s, d, p = (of[axis] for of in (where.kernel, where.strides, where.dilations, where.before))
    runs: list[_Run] = []
    for i in range(where.count[axis]):
        begin = i * s - p
        taps = range(min(max(-(begin // d), 0), k), max(min(-((begin - size) // d), k), 0))
        last = runs[-1] if runs else None
        if last is not None and last[2] == taps:
            runs[-1] = (last[0], last[1] + 1, taps)
        else:
            runs.append((i, 1, taps))
    return runs


def native_conv_transpose(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """By known filters: each element times its filter, as one product of matrices for each group; then, for
    each remainder that a place of the output leaves by the strides, the sum of what falls there."""
    x, filters, bias = operand(inputs), known(inputs, 1), known(inputs, 2)
    if filters is None or x.dtype is not FLOAT32:
        raise NotNative("ConvTranspose by what is computed, or not of float32")
    w = filters.array
    groups = check_groups(n, np.empty(x.sizes), w, len(w))
    sizes, kernel, samples, outgoing = x.sizes[2:], w.shape[2:], x.sizes[0], groups * w.shape[1]
    _check_bias(bias, outgoing)
    strides, dilations, before, count, _ = transposed(n, sizes, kernel)
    inner, ingoing = prod(sizes), len(w) // groups
    places = np.arange(x.count).reshape(samples, groups, ingoing, inner)
    columns = b.rearrange(x, places.transpose(1, 0, 3, 2))
    rows = b.reshape(columns, (groups, samples * inner, ingoing))
    made = program.matrix_product(b, rows, program.Known.of(w.reshape(groups, ingoing, -1)))
    parts = np.arange(made.count).reshape(groups, samples, *sizes, w.shape[1], *kernel)
    order = (1, 0, len(sizes) + 2, *range(2, 2 + len(sizes)), *range(len(sizes) + 3, parts.ndim))
    moved = parts.transpose(order).reshape(samples, outgoing, *sizes, *kernel)
    shift = program.Known.of(np.zeros(outgoing, np.float32) if bias is None else bias.array)
    shift = program.Known.of(shift.array.reshape(outgoing, *[1] * len(sizes)))
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
            terms = [program.Known.of(np.zeros(home.sizes, np.float32))]
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
