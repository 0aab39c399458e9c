"""What attention asks of its many tensors: where queries, keys and values are, and the sizes of all."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from anydml.ops.call import Call
from anydml.ops.enums import MultiheadAttentionMaskType
from anydml.ops.opdef import Rule
from anydml.ops.rules import holds

NONE, BOOLEAN = MultiheadAttentionMaskType.NONE, MultiheadAttentionMaskType.BOOLEAN
KEY_LENGTH = MultiheadAttentionMaskType.KEY_SEQUENCE_LENGTH
KEY_END_START = MultiheadAttentionMaskType.KEY_SEQUENCE_END_START
BOUNDS = MultiheadAttentionMaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END

Sizes = Callable[[Call], tuple[int, ...]]

# ---- where queries, keys and values are ------------------------------------------------------------------

SOURCES = {
    "query": {"query": 0, "stacked_query_key": 0, "stacked_query_key_value": 0},
    "key": {"key": 0, "stacked_query_key": 1, "stacked_key_value": 0, "stacked_query_key_value": 1},
    "value": {"value": 0, "stacked_key_value": 1, "stacked_query_key_value": 2},
}
"""The tensors that may hold each, and which part of a stack it is there."""

FIELDS = {
    "query": "QueryTensor",
    "key": "KeyTensor",
    "value": "ValueTensor",
    "stacked_query_key": "StackedQueryKeyTensor",
    "stacked_key_value": "StackedKeyValueTensor",
    "stacked_query_key_value": "StackedQueryKeyValueTensor",
}


class Heads(NamedTuple):
    """The sizes of queries, keys, or values."""

    batch_size: int
    sequence_length: int
    heads: int
    head_size: int


class Geometry(NamedTuple):
    """All sizes: of queries, keys and values, of keys that were there before, and of them all."""

    query: Heads
    key: Heads
    value: Heads
    past: int
    total: int


def head_counts(c: Call) -> tuple[int, int]:
    """How many heads queries have, and keys and values."""
    both = getattr(c, "head_count", None)
    return (c.query_head_count, c.key_value_head_count) if both is None else (both, both)


def source_of(c: Call, part: str) -> str:
    """The tensor that holds queries, keys, or values."""
    found, *_ = [name for name in SOURCES[part] if getattr(c, name) is not None]
    return found


def sizes_of(c: Call, part: str) -> Heads:
    source = source_of(c, part)
    shape = getattr(c, source).shape
    if source != part:
        return Heads(shape[0], shape[1], shape[2], shape[4])
    heads = head_counts(c)[part != "query"]
    return Heads(shape[-3], shape[-2], heads, shape[-1] // heads)


def past_lengths(c: Call) -> Any:
    """The tensor of past lengths, which only the newer operator has."""
    return getattr(c, "past_sequence_lengths", None)


def geometry(c: Call) -> Geometry:
    query, key, value = (sizes_of(c, part) for part in SOURCES)
    past = 0 if c.past_key is None else c.past_key.shape[-2]
    total = past + key.sequence_length
    if past_lengths(c) is not None and c.max_sequence_length is not None:
        total = c.max_sequence_length
    return Geometry(query, key, value, past, total)


def of_scores(g: Geometry) -> tuple[int, int, int, int]:
    return g.query.batch_size, g.query.heads, g.query.sequence_length, g.total


def bias_place(g: Geometry, part: str) -> tuple[int, int]:
    """Where in a bias that of queries, keys, or values begins and ends."""
    k, widths = list(SOURCES).index(part), [s.heads * s.head_size for s in g[:3]]
    return sum(widths[:k]), sum(widths[: k + 1])


# ---- sizes -----------------------------------------------------------------------------------------------


def _led(core: tuple[int, ...], described: Any, rank: int) -> tuple[int, ...]:
    """Sizes with as many sizes of 1 before them as the description has, or the inputs."""
    return (1,) * ((rank if described is None else described.ndim) - len(core)) + core


def output_sizes(c: Call) -> tuple[tuple[int, ...], ...]:
    g = geometry(c)
    batch, heads = g.query.batch_size, g.key.heads
    rank, past_rank = 3 if c.query is None else c.query.ndim, 4 if c.past_key is None else c.past_key.ndim
    key, value = c.output_present_key, c.output_present_value
    return (
        _led((batch, g.query.sequence_length, g.query.heads * g.value.head_size), c.output, rank),
        _led((batch, heads, g.total, g.key.head_size), key, past_rank),
        _led((batch, heads, g.total, g.value.head_size), value, past_rank),
    )


def of_presents(c: Call) -> int | None:
    """The sequence size that a description's present tensors have."""
    for present in (c.output_present_key, c.output_present_value):
        if present is not None:
            return int(present.shape[-2])
    return None


# ---- rules -----------------------------------------------------------------------------------------------


def _one_source(part: str) -> Rule:
    names = list(SOURCES[part])
    fields = ", ".join(FIELDS[n] for n in names[:-1]) + " and " + FIELDS[names[-1]]
    return holds(
        f"exactly one of {fields}",
        lambda c: sum(getattr(c, n) is not None for n in names) == 1,
        lambda c: " and ".join(FIELDS[n] for n in names if getattr(c, n) is not None) or "none",
    )


def sized(parameter: str, text: str, wanted: Sizes) -> Rule:
    """A tensor, if it is there, has sizes that others decide, perhaps with sizes of 1 before them."""

    def fits(c: Call) -> bool:
        x = getattr(c, parameter)
        if x is None:
            return True
        sizes = wanted(c)
        return bool(x.shape == _led(sizes, x, 0))

    return holds(text, fits, lambda c: f"{getattr(c, parameter).shape} where that is {wanted(c)}")


def _divides(part: str, count: str) -> Rule:
    """Hidden sizes are whole heads, behind three dimensions at most."""

    def fits(c: Call) -> bool:
        x = getattr(c, part)
        heads = head_counts(c)[part != "query"]
        return x is None or (prod(x.shape[:-3]) == 1 and x.shape[-1] % heads == 0)

    sequence = "SequenceLength" if part == "query" else "KeyValueSequenceLength"
    return holds(
        f"{FIELDS[part]} {{[1], [1], BatchSize, {sequence}, {count} * a head's size}}",
        fits,
        lambda c: f"{getattr(c, part).shape} with {head_counts(c)[part != 'query']} heads",
    )


def _stack(name: str, parts: int, count: str) -> Rule:
    """The fourth dimension is the stack, the third the heads of all that is stacked."""

    def fits(c: Call) -> bool:
        x = getattr(c, name)
        queries, others = head_counts(c)
        heads = {others} if name == "stacked_key_value" else {queries, others}
        return x is None or (x.shape[3] == parts and heads == {x.shape[2]})

    sequence = "KeyValueSequenceLength" if name == "stacked_key_value" else "SequenceLength"
    return holds(
        f"{FIELDS[name]} {{BatchSize, {sequence}, {count}, {parts}, HeadSize}}",
        fits,
        lambda c: (
            f"{getattr(c, name).shape} with {' and '.join(map(str, dict.fromkeys(head_counts(c))))} heads"
        ),
    )


def _mask(kind: MultiheadAttentionMaskType, text: str, wanted: Sizes) -> Rule:
    return holds(
        f"MaskTensor {{{text}}} with {kind.name}",
        lambda c: c.mask is None or c.mask_type is not kind or c.mask.shape == _led(wanted(c), c.mask, 0),
        lambda c: f"{c.mask.shape} where that is {wanted(c)}",
    )


def _batch(c: Call) -> int:
    return sizes_of(c, "query").batch_size


def _past_sizes(part: str) -> Sizes:
    def sizes(c: Call) -> tuple[int, ...]:
        g = geometry(c)
        return g.query.batch_size, g.key.heads, g.past, (g.key if part == "key" else g.value).head_size

    return sizes


def _one(size: str, *parts: str) -> Rule:
    """Queries, keys, or values share a size."""
    name = "".join(word.capitalize() for word in size.split("_"))
    return holds(
        f"one {name} of {', '.join(parts[:-1])} and {parts[-1]}",
        lambda c: len({getattr(sizes_of(c, part), size) for part in parts}) == 1,
        lambda c: ", ".join(f"{part} {getattr(sizes_of(c, part), size)}" for part in parts),
    )


def rules_of(query_count: str, key_count: str, *counts: Rule) -> tuple[Rule, ...]:
    """What is asked of both versions; `counts`: of the numbers of heads."""
    both = query_count if query_count == key_count else f"{query_count} and {key_count}"
    return (
        *counts,
        *map(_one_source, SOURCES),
        _divides("query", query_count),
        _divides("key", key_count),
        _divides("value", key_count),
        _stack("stacked_query_key", 2, both),
        _stack("stacked_key_value", 2, key_count),
        _stack("stacked_query_key_value", 3, both),
        _one("batch_size", *SOURCES),
        _one("head_size", "query", "key"),
        _one("sequence_length", "key", "value"),
        holds(
            "PastKeyTensor and PastValueTensor, or neither",
            lambda c: (c.past_key is None) == (c.past_value is None),
            lambda c: "PastValueTensor" if c.past_key is None else "PastKeyTensor",
        ),
        sized(
            "past_key",
            f"PastKeyTensor {{BatchSize, {key_count}, PastSequenceLength, HeadSize}}",
            _past_sizes("key"),
        ),
        sized(
            "past_value",
            f"PastValueTensor {{BatchSize, {key_count}, PastSequenceLength, ValueHeadSize}}",
            _past_sizes("value"),
        ),
        sized(
            "bias",
            "BiasTensor {HiddenSize of query + of key + of value}",
            lambda c: (sum(h.heads * h.head_size for h in geometry(c)[:3]),),
        ),
        sized(
            "relative_position_bias",
            f"RelativePositionBiasTensor {{BatchSize, {query_count}, SequenceLength, TotalSequenceLength}}",
            lambda c: of_scores(geometry(c)),
        ),
        holds(
            "MaskTensor just where MaskType is not NONE",
            lambda c: (c.mask is None) == (c.mask_type is NONE),
            lambda c: f"{'none' if c.mask is None else 'one'} with {c.mask_type.name}",
        ),
        _mask(KEY_LENGTH, "1, BatchSize", lambda c: (1, _batch(c))),
        _mask(KEY_END_START, "2, BatchSize", lambda c: (2, _batch(c))),
        _mask(BOUNDS, "3 * BatchSize + 2", lambda c: (3 * _batch(c) + 2,)),
        _mask(
            BOOLEAN,
            f"BatchSize, {query_count}, SequenceLength, TotalSequenceLength",
            lambda c: of_scores(geometry(c)),
        ),
    )
