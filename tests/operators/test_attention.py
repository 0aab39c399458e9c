"""Attention against a loop over queries and keys, and onnxruntime's operators where they mean the same."""

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors

from ..onnx.ops.checking import computed
from .tensors import check_floats, layouts

MASKS = (
    "NONE",
    "KEY_SEQUENCE_LENGTH",
    "KEY_SEQUENCE_END_START",
    "KEY_QUERY_SEQUENCE_LENGTH_START_END",
    "BOOLEAN",
)
SOURCES = ("separate", "query_key", "key_value", "all")


# ---- the loop ----------------------------------------------------------------------------------------------


def is_masked(t, o, b, h, q, k):
    """Whether a mask hides key k of entry b from its query q, in head h."""
    mask = t["mask"]
    if o["mask_type"] == "NONE":
        return False
    if o["mask_type"] == "BOOLEAN":
        return mask[b, h, q, k] == 0
    if o["mask_type"] == "KEY_SEQUENCE_LENGTH":
        return k >= mask[0, b]
    if o["mask_type"] == "KEY_SEQUENCE_END_START":
        return not mask[1, b] <= k < mask[0, b]
    batch, query, key = o["batch"], b * o["queries"] + q, b * o["total"] + k
    starts = mask[batch:]
    first, end = mask[2 * batch + 1 :][b : b + 2]
    return not (starts[b] <= query < starts[b + 1] and first <= key < min(end, first + mask[b]))


def plain(t, o):
    """Output, present keys and present values, in float64; and how far off float32 may be.

    `t`: queries, keys, values of {batch, sequence, heads, size} each. Where all keys are hidden, the filter's
    value in float32 leaves little of what tells them apart.
    """
    t = {n: x.astype(np.float64) if x is not None and x.dtype.kind == "f" else x for n, x in t.items()}
    query, key, value = (t[n] for n in ("query", "key", "value"))
    if t["bias"] is not None:
        ends = np.cumsum([x.shape[2] * x.shape[3] for x in (query, key)])
        parts = zip((query, key, value), np.split(t["bias"], ends), strict=True)
        query, key, value = (x + b.reshape(x.shape[2:]) for x, b in parts)
    batch, queries, heads, _ = query.shape
    shared = heads // key.shape[2]
    keys, values = (np.zeros((batch, key.shape[2], o["total"], x.shape[3])) for x in (key, value))
    made, slack = np.zeros((batch, queries, heads, value.shape[3])), 5e-6
    for b in range(batch):
        before = o["past"] if t["lengths"] is None else int(t["lengths"][b])
        for all_, past, new in ((keys, t["past_key"], key), (values, t["past_value"], value)):
            if before:
                all_[b, :, :before] = past[b, :, :before]
            all_[b, :, before : before + key.shape[1]] = new[b].swapaxes(0, 1)
        for h, q in np.ndindex(heads, queries):
            scores, hidden = np.zeros(o["total"]), []
            for k in range(o["total"]):
                scores[k] = o["scale"] * (query[b, q, h] @ keys[b, h // shared, k])
                scores[k] += 0 if t["relative"] is None else t["relative"][b, h, q, k]
                later = t["lengths"] is not None and k > before + q
                hidden.append(bool(later or is_masked(t, o, b, h, q, k)))
                scores[k] += o["filter"] * hidden[-1]
            weights = np.exp(scores - scores.max())
            slack = max(slack, 2.0**-22 * abs(o["filter"]) * all(hidden))
            made[b, q, h] = weights @ values[b, h // shared] / weights.sum()
    return (made.reshape(batch, queries, -1), keys, values), slack


def drawn(rng, dtype, mask_type, source, newer, buffered=False):
    """Tensors and options, of which those that may be are there or not."""
    batch, queries, count, shared, size, width = rng.integers(1, 5, 6).tolist()
    keys = int(rng.integers(1, 6))
    if source in ("query_key", "all") or buffered:
        keys = queries
    shared = shared if newer and source in ("separate", "key_value") else 1
    heads, width = count * shared, width if source in ("separate", "query_key") else size

    def tensor(*shape):
        return rng.standard_normal(shape).astype(dtype)

    past = int(rng.integers(1, 5)) if buffered or rng.integers(2) else 0
    total = past + keys + int(rng.integers(0, 3)) * buffered
    t = {"query": tensor(batch, queries, heads, size), "key": tensor(batch, keys, count, size)}
    t["value"] = tensor(batch, keys, count, width)
    t["bias"] = tensor(heads * size + count * (size + width)) if rng.integers(2) else None
    t["relative"] = tensor(batch, heads, queries, total) if rng.integers(2) else None
    t["past_key"] = tensor(batch, count, past, size) if past else None
    t["past_value"] = tensor(batch, count, past, width) if past else None
    t["lengths"] = rng.integers(0, past + 1, batch).astype(np.int32) if buffered else None
    masks = {
        "NONE": None,
        "BOOLEAN": rng.integers(0, 2, (batch, heads, queries, total)) * 7,
        "KEY_SEQUENCE_LENGTH": rng.integers(0, total + 2, (1, batch)),
        "KEY_SEQUENCE_END_START": np.sort(rng.integers(0, total + 1, (2, batch)), axis=0)[::-1],
    }
    starts = [np.cumsum([0, *rng.integers(1, n + 1, batch)]) for n in (queries, total)]
    masks["KEY_QUERY_SEQUENCE_LENGTH_START_END"] = np.concatenate(
        [rng.integers(1, total + 1, batch), *starts]
    )
    t["mask"] = None if masks[mask_type] is None else masks[mask_type].astype(np.int32)
    o = {"batch": batch, "queries": queries, "total": total, "past": past, "mask_type": mask_type}
    return t, o | {
        "scale": float(rng.uniform(0.2, 1.5)),
        "filter": float(rng.choice([-10000.0, -20.0, -2.5])),
    }


def arguments(t, o, source, newer):
    """As the functions have them: queries, keys and values apart or stacked."""
    query, key, value = (t[n] for n in ("query", "key", "value"))
    apart = {n: t[n].reshape(*t[n].shape[:2], -1) for n in ("query", "key", "value")}
    given = {
        "separate": apart,
        "query_key": {"stacked_query_key": (query, key), "value": apart["value"]},
        "key_value": {"query": apart["query"], "stacked_key_value": (key, value)},
        "all": {"stacked_query_key_value": (query, key, value)},
    }[source]
    given = {n: np.stack(x, axis=3) if isinstance(x, tuple) else x for n, x in given.items()}
    given |= {n: t[n] for n in ("bias", "mask", "past_key", "past_value")}
    given |= {"relative_position_bias": t["relative"], "mask_type": o["mask_type"]}
    given |= {"scale": o["scale"], "mask_filter_value": o["filter"]}
    if not newer:
        return given | {"head_count": query.shape[2]}
    given |= {"query_head_count": query.shape[2], "key_value_head_count": key.shape[2]}
    if t["lengths"] is not None:
        given |= {"past_sequence_lengths": t["lengths"], "max_sequence_length": o["total"]}
    return given


def check(made, wanted, dtype, slack):
    assert len(made) == 3
    for y, right in zip(made, wanted, strict=True):
        check_floats(y, dtype, right, slack)


# ---- tests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mask_type", MASKS)
@pytest.mark.parametrize("newer", [False, True])
def test_from_every_source_with_every_mask(newer, mask_type, dtype):
    rng = np.random.default_rng([newer, MASKS.index(mask_type), len(dtype)])
    function = dml.multihead_attention1 if newer else dml.multihead_attention
    for trial in range(16):
        source = SOURCES[trial % 4]
        t, o = drawn(rng, dtype, mask_type, source, newer)
        (wanted, slack), given = plain(t, o), arguments(t, o, source, newer)
        check(function(**given), wanted, dtype, slack)
        tensors = [n for n, x in given.items() if isinstance(x, np.ndarray)]
        elsewhere = {n: list(layouts(given[n]))[trial % 3] for n in tensors if given[n].ndim > 1}
        check(function(**given | elsewhere), wanted, dtype, slack)
        given |= {n: given[n].reshape((1,) * (5 - given[n].ndim) + given[n].shape) for n in tensors}
        led = function(**given)
        check([y.reshape(right.shape) for y, right in zip(led, wanted, strict=True)], wanted, dtype, slack)
        assert led[0].ndim == (5 if "query" in given else 3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("mask_type", MASKS)
def test_a_past_in_a_buffer(mask_type, dtype):
    rng = np.random.default_rng([MASKS.index(mask_type), len(dtype)])
    for trial in range(12):
        source = SOURCES[trial % 4]
        t, o = drawn(rng, dtype, mask_type, source, newer=True, buffered=True)
        (wanted, slack), given = plain(t, o), arguments(t, o, source, newer=True)
        for lengths in (t["lengths"], t["lengths"].astype(dtype)):
            check(
                dml.multihead_attention1(**given | {"past_sequence_lengths": lengths}), wanted, dtype, slack
            )


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("mask_type", MASKS)
def test_scores_are_looked_at_in_blocks(mask_type, buffered, monkeypatch):
    """In calls that are known, too, and whether keys are turned round first or not."""
    rng = np.random.default_rng([MASKS.index(mask_type), buffered])
    for trial, block in enumerate([1, 2, 7, 20, 50, 1000] * 2):
        source = SOURCES[trial % 4]
        t, o = drawn(rng, "float32", mask_type, source, newer=True, buffered=buffered)
        (wanted, slack), given = plain(t, o), arguments(t, o, source, newer=True)
        eager_tensors.forget()
        monkeypatch.setattr("anydml.runtime.attention_kernels.BLOCK", block)
        monkeypatch.setattr("anydml.runtime.attention_kernels.MIN_TURNED_QUERIES", 1000 * (trial % 2))
        for _ in range(4):
            check(dml.multihead_attention1(**given), wanted, "float32", slack)


def test_the_definition_is_what_kernels_compute(monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr(eager_tensors, "implementation_of", lambda *given: None)
    for trial in range(20):
        source, mask_type = SOURCES[trial % 4], MASKS[trial % 5]
        t, o = drawn(rng, "float32", mask_type, source, newer=True, buffered=trial % 3 == 0)
        (wanted, slack), given = plain(t, o), arguments(t, o, source, newer=True)
        eager_tensors.forget()
        check(dml.multihead_attention1(**given), wanted, "float32", slack)
    eager_tensors.forget()


def test_great_scores_and_masks_of_everything():
    """The greatest score is taken off first; what a mask hides from all is weighed as if there were none."""
    query, key = np.float32([[[1e4, 0]]]), np.float32([[[1e4, 0], [0, 1e4]]])
    value = np.float32([[[1, 2], [3, 4]]])
    y, _, _ = dml.multihead_attention(query, key, value, scale=1.0, head_count=1)
    assert y.tolist() == [[[1, 2]]]
    mask = np.zeros((1, 1, 1, 2), np.int32)
    given = {"scale": 0.0, "head_count": 1, "mask": mask, "mask_type": "BOOLEAN"}
    for value_ in (-10000.0, -3e38):
        y, _, _ = dml.multihead_attention(query, key, value, mask_filter_value=value_, **given)
        assert y.tolist() == [[[2, 3]]]


@pytest.mark.parametrize("trial", range(8))
def test_as_onnxruntimes_multi_head_attention(trial):
    rng = np.random.default_rng(trial)
    mask_type = ("NONE", "KEY_SEQUENCE_LENGTH")[trial % 2]
    t, o = drawn(rng, "float32", mask_type, "separate", newer=False)
    heads, size = t["query"].shape[2:]
    t["value"] = rng.standard_normal(t["key"].shape).astype(np.float32)
    t["past_value"] = (
        None if t["past_key"] is None else rng.standard_normal(t["past_key"].shape).astype(np.float32)
    )
    t["bias"] = None if t["bias"] is None else rng.standard_normal(3 * heads * size).astype(np.float32)
    o["filter"] = -10000.0
    given = arguments(t, o, "separate", newer=False)
    seen = None
    if mask_type != "NONE":  # of each key, so that past ones count
        seen = (np.arange(o["total"]) < t["mask"].reshape(-1, 1)).astype(np.int32)
    names = {
        "num_heads": heads,
        "scale": o["scale"],
        "mask_filter_value": -10000.0,
        "domain": "com.microsoft",
    }
    inputs = [
        given["query"],
        given["key"],
        given["value"],
        t["bias"],
        seen,
        t["relative"],
        t["past_key"],
        t["past_value"],
    ]
    theirs = computed("MultiHeadAttention", inputs, outputs=3, **names)
    for y, right in zip(dml.multihead_attention(**given), theirs, strict=True):
        np.testing.assert_allclose(y, right, rtol=1e-5, atol=1e-5, strict=True)


@pytest.mark.parametrize("trial", range(8))
def test_as_onnxruntimes_group_query_attention(trial):
    """One query for each entry behind a past of its own length, in a buffer with room for it."""
    rng = np.random.default_rng(trial)
    batch, count, shared, room, size = *rng.integers(1, 4, 3).tolist(), int(rng.integers(2, 9)), 8
    heads = count * shared
    lengths = rng.integers(0, room, batch).astype(np.int32)
    lengths[0] = room - 1

    def tensor(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    query, key, value = (
        tensor(batch, 1, heads * size),
        tensor(batch, 1, count * size),
        tensor(batch, 1, count * size),
    )
    past = [tensor(batch, count, room, size) for _ in range(2)]
    names = {"num_heads": heads, "kv_num_heads": count, "scale": 0.4, "domain": "com.microsoft"}
    theirs = computed(
        "GroupQueryAttention",
        [query, key, value, *past, lengths, np.int32([room]).reshape(())],
        outputs=3,
        **names,
    )
    made = dml.multihead_attention1(
        query, key, value, past_key=past[0], past_value=past[1], past_sequence_lengths=lengths,
        max_sequence_length=room, mask_filter_value=-1e30, scale=0.4, query_head_count=heads, key_value_head_count=count,
    )  # fmt: skip
    np.testing.assert_allclose(made[0], theirs[0], rtol=1e-5, atol=1e-5, strict=True)
    for y, right in zip(made[1:], theirs[1:], strict=True):
        for b, n in enumerate(lengths):  # behind the new ones there is anything in theirs
            np.testing.assert_array_equal(y[b, :, : n + 1], right[b, :, : n + 1], strict=True)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
@pytest.mark.parametrize("length", [2, 3, 7, -1])
def test_a_past_without_room_is_told(length, dtype):
    floats = np.float16 if dtype == "float16" else np.float32
    new, past = np.ones((2, 2, 4), floats), np.ones((2, 1, 3, 4), floats)
    given = {"scale": 1.0, "query_head_count": 1, "key_value_head_count": 1, "max_sequence_length": 3}
    lengths = np.array([1, length], dtype)
    with pytest.raises(
        dml.InvalidInput, match=r"PastSequenceLengthsTensor: expected .* 0 to 1.*batch entry 1"
    ):
        dml.multihead_attention1(
            new, new, new, past_key=past, past_value=past, past_sequence_lengths=lengths, **given
        )


@pytest.mark.parametrize("heads", [3, 5, 8])
def test_heads_that_do_not_divide_are_told_so(heads):
    x = np.ones((1, 2, 4), np.float32)
    counts = {"query_head_count": heads, "key_value_head_count": heads}
    for function, given in (
        (dml.multihead_attention, {"head_count": heads}),
        (dml.multihead_attention1, counts),
    ):
        with pytest.raises(dml.InvalidOperator) as raised:
            function(x, x, x, scale=1.0, **given)
        told = [str(p) for p in raised.value.problems]
        assert len(told) == 3
        assert all("head_count * a head's size" in t and f"{heads} heads" in t for t in told)
