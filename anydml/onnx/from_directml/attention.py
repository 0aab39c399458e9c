"""Attention with many heads as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.attention_sizes import (
    BOOLEAN,
    KEY_END_START,
    KEY_LENGTH,
    NONE,
    SOURCES,
    Geometry,
    bias_place,
    geometry,
    of_scores,
    past_lengths,
    source_of,
)
from anydml.ops.call import Call
from anydml.ops.dtypes import INT64


def attention(c: Call, o: OnnxNodes) -> Any:
    g = geometry(c)
    batch, heads, queries, total = of_scores(g)
    query, key, value = (_part(c, o, g, part) for part in SOURCES)
    before = _before(c, o, g)
    key, value = _joined(c, o, g, key, "past_key", before), _joined(c, o, g, value, "past_value", before)
    # heads of queries that share keys and values are rows of one product
    shared = [batch, g.key.heads, -1]
    scores = o("MatMul", o.reshape(query, [*shared, g.query.head_size]), o.transpose(key, [0, 1, 3, 2]))
    scores = o("Mul", o.reshape(scores, [batch, heads, queries, total]), o.constant(c.scale, np.float32))
    weights = o("Softmax", _biased(c, o, g, scores, before), axis=3)
    found = o.reshape(o("MatMul", o.reshape(weights, [*shared, total]), value), [batch, heads, queries, -1])
    presents = ((key, c.output_present_key), (value, c.output_present_value))
    made = o.reshape(o.transpose(found, [0, 2, 1, 3]), c.output.shape)
    return (made, *(None if x is None else o.reshape(edge, x.shape) for edge, x in presents))


def _part(c: Call, o: OnnxNodes, g: Geometry, part: str) -> str:
    """Queries, keys or values, biases added: {batch, heads, sequence, head size}."""
    source, sizes = source_of(c, part), g[:3][list(SOURCES).index(part)]
    x = o.reshape(source, sizes) if source == part else o.take(source, SOURCES[part][source], 3)
    if c.bias is not None:
        bias = o.slice(o.reshape("bias", [-1]), 0, *bias_place(g, part))
        x = o("Add", x, o.reshape(bias, [sizes.heads, sizes.head_size]))
    return o.transpose(x, [0, 2, 1, 3])


# ---- what was there before ---------------------------------------------------------------------------------


def _before(c: Call, o: OnnxNodes, g: Geometry) -> str | None:
    """How many keys of each batch entry were there before, if that is told: {batch, 1}."""
    lengths = past_lengths(c)
    if lengths is None:
        return None
    dtype = lengths.dtype
    bounds = (o.constant(n, dtype) for n in (0, min(g.past, g.total)))
    return o.cast(o("Clip", o.reshape("past_sequence_lengths", [g.query.batch_size, 1]), *bounds), INT64)


def _joined(c: Call, o: OnnxNodes, g: Geometry, x: str, past: str, before: str | None) -> str:
    """What is new behind what was there; of a buffer, row by row, and a row of zeros for what is behind."""
    given = getattr(c, past)
    if given is None:
        return x
    batch, heads, new, width = g.query.batch_size, g.key.heads, g.key.sequence_length, given.shape[-1]
    there = o.reshape(past, [batch, heads, g.past, width])
    if before is None:
        return str(o("Concat", there, x, axis=2))
    rows = o("Concat", there, x, o.zeros([batch, heads, 1, width], given.dtype), axis=2)
    place = o.constant(np.arange(g.total))
    ours = o("Add", o("Sub", place, before), o.constant(np.int64(g.past)))
    end = o("Add", before, o.constant(np.int64(new)))
    filled = o("Where", o("Less", place, end), ours, o.constant(np.int64(g.past + new)))
    index = o("Unsqueeze", o("Where", o("Less", place, before), place, filled), o.integers([2]))
    found = o("GatherND", o.transpose(rows, [0, 2, 1, 3]), index, batch_dims=1)
    return o.transpose(found, [0, 2, 1, 3])


# ---- biases and masks --------------------------------------------------------------------------------------


def _biased(c: Call, o: OnnxNodes, g: Geometry, scores: str, before: str | None) -> str:
    if c.relative_position_bias is not None:
        scores = o("Add", scores, o.reshape("relative_position_bias", of_scores(g)))
    hidden = None if c.mask_type is NONE else _masked(c, o, g)
    if before is not None:
        steps = o.constant(np.arange(g.query.sequence_length)[:, np.newaxis])
        place = o("Add", o.reshape(before, [-1, 1, 1, 1]), steps)
        later = o("Greater", o.constant(np.arange(g.total)), place)
        hidden = later if hidden is None else o("Or", hidden, later)
    if hidden is None:
        return scores
    values = (o.constant(n, np.float32) for n in (c.mask_filter_value, 0))
    return str(o("Add", scores, o("Where", hidden, *values)))


def _masked(c: Call, o: OnnxNodes, g: Geometry) -> Any:
    """Where the mask hides keys (the last dimension) from queries."""
    batch = g.query.batch_size
    if c.mask_type is BOOLEAN:
        return o("Equal", o.reshape("mask", of_scores(g)), o.constant(0, np.int32))
    keys, numbers = o.constant(np.arange(g.total)), o.cast(o.reshape("mask", [-1, 1, 1, 1]), INT64)
    if c.mask_type is KEY_LENGTH:
        return o("GreaterOrEqual", keys, numbers)
    if c.mask_type is KEY_END_START:
        ends, starts = (o.slice(numbers, 0, n, n + batch) for n in (0, batch))
        return o("Or", o("GreaterOrEqual", keys, ends), o("Less", keys, starts))
    entry = np.arange(batch).reshape(-1, 1, 1, 1)
    rows = np.arange(g.query.sequence_length)[:, np.newaxis]
    query = o.constant(entry * g.query.sequence_length + rows)
    key = o.constant(entry * g.total + np.arange(g.total))
    lengths, *edges = (
        o.slice(numbers, 0, n, n + batch) for n in (0, batch, batch + 1, 2 * batch + 1, 2 * batch + 2)
    )
    first_query, last_query, first_key, last_key = edges
    end = o("Min", o("Add", first_key, lengths), last_key)
    of_queries = o("Or", o("Less", query, first_query), o("GreaterOrEqual", query, last_query))
    return o("Or", of_queries, o("Or", o("Less", key, first_key), o("GreaterOrEqual", key, end)))
