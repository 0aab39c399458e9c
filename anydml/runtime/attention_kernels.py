"""Attention by kernels: products of matrices, and a softmax between them, for a block of scores at a time.

Heads of queries that share keys and values make a dimension of their own: {batch, heads of keys, queries that
share one, sequence, head size}, along which keys and values are repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.matrix import SUM, C
from anydml.directml.weights import replace_reads
from anydml.ops.activation import ACTIVATION_SOFTMAX
from anydml.ops.attention import before_of, hidden_of, joined, part_of
from anydml.ops.attention_sizes import (
    BOOLEAN,
    BOUNDS,
    KEY_LENGTH,
    NONE,
    SOURCES,
    Geometry,
    bias_place,
    geometry,
    of_scores,
    past_lengths,
)
from anydml.ops.call import Call, Implementation, described, empty
from anydml.ops.dtypes import FLOAT32, INT32, NUMPY, UINT8
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, eq, ge, lt, mul, or_, read, select
from anydml.ops.families import number
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, copying, not_alone, packed, scratch
from anydml.runtime.matrix_kernels import MatrixLaunches, with_neighbours

ATTENTION = ("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1")
BLOCK = 1 << 17
"""How many scores are looked at together: they and their exponentials stay near."""
MIN_TURNED_QUERIES = 32
"""Of which products with keys are faster where the same number of neighbouring keys are neighbours."""
_SCORE = read(0, FLOAT32)


def attention_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of the operator by kernels; None where there is nothing to attend to."""
    c = described(operator, tensors, attributes)
    g = geometry(c)
    return None if 0 in (*g.query, *g.key, *g.value) else _Attention(c, g, threads)


class _Attention:
    def __init__(self, c: Call, g: Geometry, threads: int | None) -> None:
        """`c`: a call of these sizes, of stand-ins."""
        self._geometry, self._threads = g, threads
        end: Expr = mul(SUM, float(np.float32(c.scale)))
        if c.relative_position_bias is not None:
            end = add(end, C)
        self._products, self._sums = MatrixLaunches(end, threads), MatrixLaunches(SUM, threads)
        self._copy = copying(FLOAT32, threads)
        x, y = read(0, FLOAT32), read(1, FLOAT32)
        self._add = RepeatedLaunch(group((FLOAT32, FLOAT32), (add(x, y),)), threads)
        self._by_numpy = past_lengths(c) is not None or c.mask_type is BOUNDS
        """Whether more than kernels tells which scores are hidden."""
        self._softmax = self._softmax_of(c)

    def _softmax_of(self, c: Call) -> RepeatedLaunch:
        """Of scores, and of what hides some of them."""
        kind = c.mask_type
        tables: list[Array] = []
        types: tuple[TensorDataType, ...] = (FLOAT32,)
        hidden: Expr | None = None
        key, *numbers = (read(k, INT32) for k in range(1, 4))
        if self._by_numpy:
            types, hidden = (FLOAT32, UINT8), eq(read(1, UINT8), 1)
        elif kind is BOOLEAN:
            types, hidden = (FLOAT32, INT32), eq(key, 0)
        elif kind is not NONE:
            tables = [np.arange(self._geometry.total, dtype=np.int32)]
            hidden = ge(key, numbers[0])
            types = (FLOAT32, INT32, INT32)
            if kind is not KEY_LENGTH:
                hidden, types = or_(hidden, lt(key, numbers[1])), (*types, INT32)
        meaning = ACTIVATION_SOFTMAX.expression((FLOAT32,), FLOAT32, {}, 5)
        if hidden is not None:
            filtered = number(float(np.float32(c.mask_filter_value)), _SCORE)
            masked = add(_SCORE, select(hidden, filtered, number(0, _SCORE)))
            meaning = replace_reads(meaning, {0: masked})
        launch = RepeatedLaunch(group(types, (meaning,)), self._threads)
        launch.tables = tables
        return launch

    def __call__(self, c: Call) -> tuple[Array | None, ...]:
        g = self._geometry
        if self._by_numpy:
            not_alone()
        parts = [self._part(c, part) for part in SOURCES]
        query = self._with_bias(*parts[0])
        before = before_of(c, g) if past_lengths(c) is not None else None
        key, present_key = self._joined(parts[1], c.past_key, c.output_present_key, before)
        value, present_value = self._joined(parts[2], c.past_value, c.output_present_value, before)
        batch, heads, queries, _ = of_scores(g)
        shared = (batch, g.key.heads, heads // g.key.heads, queries)
        result = empty(c.output, NUMPY[FLOAT32])
        target = result.reshape(batch, queries, heads, -1).transpose(0, 2, 1, 3).reshape(*shared, -1)
        hiding = self._hiding(c, before, shared)
        bias = c.relative_position_bias
        if bias is not None:
            bias = with_neighbours(bias.reshape(*shared, g.total), self._threads)
        biases = [] if bias is None else [bias]
        self._attend(query.reshape(*shared, -1), key, value, biases, hiding, target)
        return result, present_key, present_value

    # ---- queries, keys, values

    def _part(self, c: Call, part: str) -> tuple[Array, Array | None]:
        """{batch, heads, sequence, head size}, and the bias that it has yet to get."""
        x = part_of(c, part)
        x = x if x.strides[-1] == x.itemsize or x.shape[-1] == 1 else packed(x, self._threads)
        bias = c.bias
        if bias is not None:
            start, end = bias_place(self._geometry, part)
            bias = bias.reshape(-1)[start:end].reshape(x.shape[2], 1, -1)
        return x.transpose(0, 2, 1, 3), bias

    def _with_bias(self, x: Array, bias: Array | None, into: Array | None = None) -> Array:
        """In this memory, or in such of its own if it has to be."""
        if bias is None and into is None:
            return x
        made = scratch(x.shape, x.dtype) if into is None else into
        if bias is None:
            self._copy.alone([x, made])
        else:
            self._add.alone([x, bias, made])
        return made

    def _joined(
        self, new: tuple[Array, Array | None], past: Array | None, present: Array | None, before: Array | None
    ) -> tuple[Array, Array | None]:
        """What is new behind what was there, repeated for all that share it; and as a present, if wanted."""
        g, (x, bias) = self._geometry, new
        batch, heads, _, width = x.shape
        result = None if present is None else empty(present, x.dtype)
        if before is not None:
            made = joined(past, self._with_bias(x, bias), before, g.total)
            if result is not None:
                result[...] = made.reshape(result.shape)
        elif past is None and result is None:
            made = self._with_bias(x, bias)
        else:
            sizes = (batch, heads, g.total, width)
            made = scratch(sizes, x.dtype) if result is None else result.reshape(sizes)
            if past is not None and g.past:
                self._copy.alone([past.reshape(batch, heads, -1, width), made[:, :, : g.past]])
            self._with_bias(x, bias, made[:, :, g.past :])
        made = made[:, :, np.newaxis]
        return np.broadcast_to(made, (batch, heads, g.query.heads // heads, *made.shape[3:])), result

    # ---- scores

    def _hiding(self, c: Call, before: Array | None, shared: tuple[int, ...]) -> list[Array]:
        """What tells which scores are hidden, in the order in which `_softmax` reads it."""
        sizes = (*shared, self._geometry.total)
        if self._by_numpy:
            hidden = hidden_of(c, self._geometry, before)
            return [np.broadcast_to(hidden, of_scores(self._geometry)).view(np.uint8).reshape(sizes)]
        if c.mask_type is NONE:
            return []
        if c.mask_type is BOOLEAN:
            return [c.mask.reshape(sizes)]
        return [*self._softmax.tables, *c.mask.reshape(-1, shared[0], 1, 1, 1, 1)]

    def _attend(
        self, query: Array, key: Array, value: Array, bias: list[Array], hiding: list[Array], target: Array
    ) -> None:
        *shared, _, total = (*query.shape[:-1], 0, key.shape[-2])
        blocks = list(_blocks(shared, total))
        most = max(prod(b.stop - b.start for b in block) for block in blocks) * shared[2] * total
        memory = [scratch((most,), query.dtype) for _ in range(2)]
        turned, dots = key.swapaxes(-1, -2), query.shape[-2] < MIN_TURNED_QUERIES
        if not dots:
            once = turned[:, :, :1]
            turned = np.broadcast_to(
                self._products.copied(once, scratch(once.shape, once.dtype)), turned.shape
            )
        for batches, heads, rows in blocks:
            some, queries = (batches, heads), (batches, heads, slice(None), rows)
            asked, hidden = query[queries], [_of_block(x, queries) for x in hiding]
            sizes = (*asked.shape[:-1], total)
            scores, weights = (x[: prod(sizes)].reshape(sizes) for x in memory)
            self._products.run([asked, turned[some], scores, *(x[queries] for x in bias)], dots)
            self._softmax.alone([scores, *hidden, weights])
            self._sums.run([weights, value[some], target[queries]])


def _of_block(x: Array, block: tuple[slice, ...]) -> Array:
    """What an array has of a block of scores: all of what is the same for every one of them."""
    if x.ndim == 1:
        return x
    sizes = zip(x.shape, block, strict=False)  # along the keys a block has all
    return x[tuple([slice(None) if n == 1 else part for n, part in sizes])]


def _blocks(shared: list[int], total: int) -> Iterator[tuple[slice, slice, slice]]:
    """Of batches, heads and queries, so that no block has more scores than `BLOCK`, if that can be."""
    batch, heads, group, queries = shared
    counts, left = [], max(BLOCK // (group * total), 1)
    for size in (queries, heads, batch):
        counts.append(min(size, max(left, 1)))
        left //= size
    sizes = (batch, heads, queries)
    yield from product(
        *(
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(sizes, reversed(counts), strict=True)
        )
    )
