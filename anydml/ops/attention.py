"""Attention with many heads, one definition each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from anydml.errors import InvalidInput, Problem
from anydml.ops.attention_sizes import (
    BOOLEAN,
    FIELDS,
    KEY_END_START,
    KEY_LENGTH,
    NONE,
    SOURCES,
    Geometry,
    bias_place,
    geometry,
    of_presents,
    of_scores,
    output_sizes,
    past_lengths,
    rules_of,
    sized,
    sizes_of,
    source_of,
)
from anydml.ops.attributes import UINT
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOATS_UP_TO_32_BIT, INT32, NUMPY
from anydml.ops.enums import FeatureLevel, MultiheadAttentionMaskType
from anydml.ops.families import FL_6_1, FL_6_3
from anydml.ops.opdef import Asked, Operand, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.shapes import said

# ---- computation -----------------------------------------------------------------------------------------


def part_of(c: Call, part: str) -> Array:
    """Queries, keys, or values: {batch, sequence, heads, head size}."""
    source = source_of(c, part)
    x: Array = getattr(c, source)
    if source == part:
        return x.reshape(sizes_of(c, part))
    stacked: Array = x[:, :, :, SOURCES[part][source]]
    return stacked


def _biased(c: Call, g: Geometry) -> Iterator[Array]:
    """Queries, keys and values, biases added: {batch, heads, sequence, head size}."""
    for part, sizes in zip(SOURCES, g[:3], strict=True):
        x = part_of(c, part)
        if c.bias is not None:
            start, end = bias_place(g, part)
            x = x + c.bias.reshape(-1)[start:end].reshape(sizes.heads, sizes.head_size)
        yield x.transpose(0, 2, 1, 3)


def before_of(c: Call, g: Geometry) -> Array:
    """How many keys of each batch entry were there before."""
    if past_lengths(c) is None:
        return np.full(g.query.batch_size, g.past)
    lengths, most = past_lengths(c).reshape(-1), min(g.past, g.total - g.key.sequence_length)
    wrong = ~((lengths >= 0) & (lengths <= most) & (lengths == np.trunc(lengths)))
    if wrong.any():
        told = f"expected whole numbers from 0 to {most}, so that there is room for the new keys"
        entry = int(wrong.argmax())
        message = f"{told}, but got {lengths[entry]} for batch entry {entry}"
        raise InvalidInput(Problem(f"{c.operator.name}: PastSequenceLengthsTensor", message))
    return np.asarray(lengths, np.int64)


def joined(past: Array | None, x: Array, before: Array, total: int) -> Array:
    """What is new behind what was there before, by batch entry."""
    batch, heads, new, width = x.shape
    if past is None:
        return x
    past = past.reshape(batch, heads, -1, width)
    if (before == past.shape[2]).all() and total == past.shape[2] + new:
        return np.concatenate([past, x], axis=2)
    made = np.zeros((batch, heads, total, width), x.dtype)
    for entry, start in enumerate(before):
        made[entry, :, :start] = past[entry, :, :start]
        made[entry, :, start : start + new] = x[entry]
    return made


def _masked(c: Call, g: Geometry) -> Any:
    """Where the mask hides keys (the last dimension) from some queries."""
    if c.mask_type is BOOLEAN:
        return c.mask.reshape(of_scores(g)) == 0
    batch, keys = g.query.batch_size, np.arange(g.total)
    numbers = c.mask.astype(np.int64).reshape(-1, 1, 1, 1)
    if c.mask_type is KEY_LENGTH:
        return keys >= numbers
    if c.mask_type is KEY_END_START:
        return (keys >= numbers[:batch]) | (keys < numbers[batch:])
    lengths, queries, starts = np.split(numbers, [batch, 2 * batch + 1])
    entry = np.arange(batch).reshape(-1, 1, 1, 1)
    query = entry * g.query.sequence_length + np.arange(g.query.sequence_length)[:, np.newaxis]
    key = entry * g.total + keys
    ends = np.minimum(starts[:-1] + lengths, starts[1:])
    return (query < queries[:-1]) | (query >= queries[1:]) | (key < starts[:-1]) | (key >= ends)


def hidden_of(c: Call, g: Geometry, before: Array | None) -> Any:
    """Which keys queries must not look at; None: they may look at all."""
    masked = None if c.mask_type is NONE else _masked(c, g)
    if past_lengths(c) is None or before is None:
        return masked
    place = before.reshape(-1, 1, 1, 1) + np.arange(g.query.sequence_length)[:, np.newaxis]
    later = np.arange(g.total) > place
    return later if masked is None else masked | later


def _attention(c: Call) -> tuple[Array | None, ...]:
    g = geometry(c)
    batch, queries, width = g.query.batch_size, g.query.sequence_length, g.value.head_size
    query, key, value = _biased(c, g)
    before = before_of(c, g)
    key = joined(c.past_key, key, before, g.total)
    value = joined(c.past_value, value, before, g.total)
    weights, totals = _weights(c, g, query, key, before)
    # heads of queries that share keys and values are rows of one product
    grouped = weights.reshape(batch, g.value.heads, -1, g.total) @ value
    result = (grouped.reshape(batch, g.query.heads, queries, width) / totals).transpose(0, 2, 1, 3)
    sizes = (
        c.output.shape,
        *(None if x is None else x.shape for x in (c.output_present_key, c.output_present_value)),
    )
    return tuple(
        None if shape is None else x.reshape(shape)
        for x, shape in zip((result, key, value), sizes, strict=True)
    )


def _weights(c: Call, g: Geometry, query: Array, key: Array, before: Array) -> tuple[Array, Array]:
    """The exponentials of all scores, and their sums."""
    grouped = query.reshape(g.query.batch_size, g.key.heads, -1, g.query.head_size)
    scores = (grouped @ key.swapaxes(2, 3)).reshape(of_scores(g))
    scores *= np.float32(c.scale)
    if c.relative_position_bias is not None:
        scores += c.relative_position_bias.reshape(of_scores(g))
    hidden = hidden_of(c, g, before)
    if hidden is not None:
        scores += np.where(hidden, np.float32(c.mask_filter_value), np.float32(0))
    scores -= scores.max(axis=3, keepdims=True)
    np.exp(scores, out=scores)
    return scores, scores.sum(axis=3, keepdims=True)


# ---- definitions -----------------------------------------------------------------------------------------


def _inputs(level: FeatureLevel) -> tuple[Operand, ...]:
    names = (*FIELDS.values(), "BiasTensor", "MaskTensor", "RelativePositionBiasTensor")
    letters = {"MaskTensor": "M"}
    return tuple(
        inp(n, dtype=letters.get(n, "T"), optional=level)
        for n in (*names, "PastKeyTensor", "PastValueTensor")
    )


def _outputs(level: FeatureLevel) -> tuple[Operand, ...]:
    return (
        out("OutputTensor", dtype="T"),
        out("OutputPresentKeyTensor", dtype="T", optional=level),
        out("OutputPresentValueTensor", dtype="T", optional=level),
    )


_SCALES = (attr("Scale"), attr("MaskFilterValue", default=-10000.0))
_MASK_TYPE = attr("MaskType", MultiheadAttentionMaskType, NONE)
_RANKS = {
    **dict.fromkeys([field for field in FIELDS.values() if field.startswith("Stacked")], (5, 5)),
    "BiasTensor": (1, 5),
    "MaskTensor": (1, 5),
    "RelativePositionBiasTensor": (4, 5),
    "PastKeyTensor": (4, 5),
    "PastValueTensor": (4, 5),
    "OutputPresentKeyTensor": (4, 5),
    "OutputPresentValueTensor": (4, 5),
}


def _shapes(heads: str, others: str, total: str) -> dict[str, str]:
    """L queries beside S keys and values of E and V elements a head, and P that were there before."""
    return {
        "query": said(f"[1..., N, L, {heads} * E]"),
        "key": said(f"[1..., N, S, {others} * E]"),
        "value": said(f"[1..., N, S, {others} * V]"),
        "stacked_query_key": f"N L {heads} 2 E",
        "stacked_key_value": f"N S {others} 2 E",
        "stacked_query_key_value": f"N L {heads} 3 E",
        "bias": said(f"[1..., {heads} * E + {others} * E + {others} * V]"),
        "mask": said(
            f"BOOLEAN [1..., N, {heads}, L, T], KEY_SEQUENCE_LENGTH [1..., 1, N], KEY_SEQUENCE_END_START "
            "[1..., 2, N], KEY_QUERY_SEQUENCE_LENGTH_START_END [1..., 3 * N + 2]"
        ),
        "relative_position_bias": said(f"[1..., N, {heads}, L, T]"),
        "past_key": said(f"[1..., N, {others}, P, E]"),
        "past_value": said(f"[1..., N, {others}, P, V]"),
        "output": said(f"[1..., N, L, {heads} * V]"),
        "output_present_key": said(f"[1..., N, {others}, T, E], T = {total}"),
        "output_present_value": said(f"[1..., N, {others}, T, V], T = {total}"),
    }


_TEXT = (
    "output = softmax(scale * (query + bias) @ (past key, key + bias).T + relative_position_bias "
    "+ mask_filter_value where masked) @ (past value, value + bias), for each head"
)
_NOTES = (
    "Tensors may have sizes of 1 before those that are asked for. TotalSequenceLength is that of past and "
    "new keys together: masks are for all of them. A mask's filter value is added to scores, never put in "
    "their place. Present keys and values are those with biases. Where DirectML's pages say nothing: a "
    "boolean mask and relative position biases have the sizes of all scores (strides of 0 repeat them), and "
    "KEY_QUERY_SEQUENCE_LENGTH_START_END counts queries and keys through the whole batch, so that those of "
    "entry b see each other where they lie from start b up to start b + 1, keys up to their length."
)

MULTIHEAD_ATTENTION = of_tensors(
    name="MULTIHEAD_ATTENTION",
    doc="Each query's mean of the values, weighted by how well their keys fit, in each of several heads.",
    text=_TEXT,
    operands=(
        *_inputs(FL_6_1),
        *_outputs(FL_6_1),
        *_SCALES,
        attr("HeadCount", UINT),
        _MASK_TYPE,
    ),
    levels={
        FL_6_1: at(
            rank=(3, 5),
            T=FLOATS_UP_TO_32_BIT,
            M=INT32,
            ranks=_RANKS,
            rules=rules_of(
                "HeadCount",
                "HeadCount",
                holds("HeadCount of at least 1", lambda c: c.head_count >= 1, "head_count"),
            ),
        )
    },
    sizes=output_sizes,
    shapes=_shapes("head_count", "head_count", "P + S"),
    compute=_attention,
    example=example(
        *[None] * 5,
        [[[[[1, 2], [1, 0], [2, 4]]], [[[3, 4], [1, 0], [4, 8]]]]],
        None,
        [[[[1, 0], [1, 1]]]],
        *[None] * 3,
        ([[[2, 4], [3, 6]]], [[[[1, 0], [1, 0]]]], [[[[2, 4], [4, 8]]]]),
        scale=1.0,
        head_count=1,
        mask_type="BOOLEAN",
    ),
    notes=_NOTES,
)

MULTIHEAD_ATTENTION1 = of_tensors(
    name="MULTIHEAD_ATTENTION1",
    doc="MULTIHEAD_ATTENTION with groups of query heads that share keys and values, and a past in a buffer.",
    text=_TEXT,
    operands=(
        *_inputs(FL_6_3),
        inp("PastSequenceLengthsTensor", dtype="P", optional=FL_6_3),
        *_outputs(FL_6_3),
        *_SCALES,
        attr("QueryHeadCount", UINT),
        attr("KeyValueHeadCount", UINT),
        _MASK_TYPE,
    ),
    levels={
        FL_6_3: at(
            rank=(3, 5),
            T=FLOATS_UP_TO_32_BIT,
            M=INT32,
            P=(FLOAT32, FLOAT16, INT32),
            ranks=_RANKS | {"PastSequenceLengthsTensor": (1, 5)},
            rules=(
                *rules_of(
                    "QueryHeadCount",
                    "KeyValueHeadCount",
                    holds(
                        "KeyValueHeadCount of at least 1, and QueryHeadCount a multiple of it",
                        lambda c: (
                            min(c.key_value_head_count, c.query_head_count) >= 1
                            and c.query_head_count % c.key_value_head_count == 0
                        ),
                        lambda c: f"{c.key_value_head_count} and {c.query_head_count}",
                    ),
                ),
                holds(
                    "PastSequenceLengthsTensor of the type of OutputTensor, or INT32",
                    lambda c: (
                        past_lengths(c) is None or past_lengths(c).dtype in (c.output.dtype, NUMPY[INT32])
                    ),
                    lambda c: f"{past_lengths(c).dtype} beside {c.output.dtype}",
                ),
                sized(
                    "past_sequence_lengths",
                    "PastSequenceLengthsTensor {BatchSize}",
                    lambda c: (geometry(c).query.batch_size,),
                ),
                holds(
                    "PastKeyTensor beside PastSequenceLengthsTensor",
                    lambda c: past_lengths(c) is None or c.past_key is not None,
                ),
                holds(
                    "in OutputPresentKeyTensor and OutputPresentValueTensor room for all new keys",
                    lambda c: geometry(c).total >= geometry(c).key.sequence_length,
                    lambda c: f"{geometry(c).total} for {geometry(c).key.sequence_length}",
                ),
            ),
        )
    },
    asks=(
        Asked(
            "max_sequence_length",
            "int | None",
            "the size of the presents beside past_sequence_lengths; usually that of past and new keys",
            of_presents,
            None,
        ),
    ),
    sizes=output_sizes,
    shapes=_shapes("query_head_count", "key_value_head_count", "P + S or max_sequence_length")
    | {"past_sequence_lengths": said("[1..., N]")},
    compute=_attention,
    example=example(
        *[None] * 5,
        [[[[[1, 2], [1, 0], [4, 8]]]]],
        *[None] * 3,
        [[[[1, 0], [7, 7]]]],
        [[[[2, 4], [9, 9]]]],
        [1],
        ([[[3, 6]]], [[[[1, 0], [1, 0]]]], [[[[2, 4], [4, 8]]]]),
        types={"P": INT32},
        scale=1.0,
        query_head_count=1,
        key_value_head_count=1,
        max_sequence_length=2,
    ),
    notes=(
        _NOTES
        + " Of this version the pages describe nothing new; it is as onnxruntime's GroupQueryAttention "
        "uses it. Query head h has the keys and values of head h * KeyValueHeadCount / "
        "QueryHeadCount. With PastSequenceLengthsTensor (INT32 there, not of the pages' types; both "
        "are allowed here) the past is a buffer with as many keys and values of each batch entry: the "
        "new ones come behind those, query i is the one at that place + i, and later keys than it are "
        "masked. The presents may be of any size with room for the new keys, which is checked when "
        "they are computed; behind these they are 0. DirectML reads the past from the presents' own "
        "buffer if PastKeyTensor is left out; here outputs are only written, and it must be given."
    ),
)
