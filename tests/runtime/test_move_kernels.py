"""Operators that move elements: by kernels the same bytes as by their definitions."""

import numpy as np
import pytest

import anydml as dml
from anydml.runtime import move_kernels


@pytest.fixture
def both(by_both, same_bytes, monkeypatch):
    monkeypatch.setattr(move_kernels, "MIN_RUN_BYTES", 1)

    def run(function, *args, by_kernel=True, **kwargs):
        def call():
            made = function(*args, **kwargs)
            return made if isinstance(made, tuple) else (made,)

        same_bytes(*by_both(call, by_kernel))

    return run


def numbers(rng, dtype, *sizes):
    return rng.integers(0, 256, (*sizes, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]


@pytest.mark.parametrize("dtype", "uint8 float16 float32 float64 int64".split())
@pytest.mark.parametrize("index", "int32 int64 uint32 uint64".split())
def test_gather(both, dtype, index):
    rng = np.random.default_rng(len(dtype + index))
    for sizes, axis in [((7, 5, 33), 0), ((7, 5, 33), 1), ((3, 4, 90), 2), ((300,), 0), ((2, 1, 5), 1)]:
        x, n = numbers(rng, dtype, *sizes), sizes[axis]
        least = 0 if index.startswith("u") else -n - 2
        for count in (1, 6, 70):
            places = rng.integers(least, n + 2, count).astype(index)
            places[-1] = np.iinfo(index).max
            given = places.reshape([1] * (len(sizes) - 1) + [-1])
            both(dml.gather, x, given, axis=axis, index_dimensions=1)
            places[-1] = np.iinfo(index).min
            both(dml.gather, x, given, axis=axis, index_dimensions=1)


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
@pytest.mark.parametrize("index", "int32 int64 uint32 uint64".split())
def test_gather_elements(both, dtype, index):
    rng = np.random.default_rng(len(dtype + index))
    for sizes in ((7, 5, 33), (3, 1, 90), (4, 20, 1)):
        for axis in range(3):
            x, n = numbers(rng, dtype, *sizes), sizes[axis]
            for count in (1, 6, 70):
                shape = [*sizes[:axis], count, *sizes[axis + 1 :]]
                places = rng.integers(0 if index.startswith("u") else -n - 2, n + 2, shape).astype(index)
                places[0, 0, 0], places[-1, -1, -1] = np.iinfo(index).max, np.iinfo(index).min
                both(dml.gather_elements, x, places, axis=axis)
                both(dml.gather_elements, x, places[..., ::-1], axis=axis, by_kernel=shape[2] == 1)


def test_gather_of_what_is_not_packed(both):
    rng = np.random.default_rng(0)
    x, places = numbers(rng, "float32", 40, 30), rng.integers(0, 30, (1, 20)).astype(np.int32)
    both(dml.gather, x.T, places, axis=0, index_dimensions=1, by_kernel=False)
    both(dml.gather, x, np.broadcast_to(places[:, :1], (1, 9)), axis=0, index_dimensions=1, by_kernel=False)


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
def test_joins_and_splits(both, dtype):
    rng = np.random.default_rng(1)
    for axis in range(3):
        for lengths in ([3, 3], [1, 4, 1, 70], [5] * 37):
            sizes = [4, 3, 19]
            parts = []
            for n in lengths:
                sizes[axis] = n
                parts.append(numbers(rng, dtype, *sizes))
            both(dml.join, parts, axis=axis)
            both(dml.join, [p[::-1] for p in parts], axis=axis)
            whole = np.concatenate(parts, axis)
            both(dml.split, whole, lengths, axis=axis)
            both(dml.split, np.asfortranarray(whole), lengths, axis=axis)


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
@pytest.mark.parametrize("mode", "CONSTANT EDGE REFLECTION SYMMETRIC WRAP".split())
def test_padding(both, monkeypatch, dtype, mode):
    monkeypatch.setattr(move_kernels, "MIN_PADDED_BYTES", 1)
    rng = np.random.default_rng(len(dtype + mode))
    words = {"CONSTANT": "constant", "EDGE": "edge", "REFLECTION": "reflect", "WRAP": "wrap"}
    for sizes in ((2, 3, 5, 70), (3, 1, 4, 1), (1, 2, 2, 17)):
        x = numbers(rng, dtype, *sizes)
        for padded in ([3], [2], [2, 3], [0, 1, 2, 3], [1], [0, 3]):
            ends = rng.integers(0, 9, (2, 4)) * np.isin(np.arange(4), padded)
            ends[0, padded[-1]] += 1
            args = {"start_padding": ends[0].tolist(), "end_padding": ends[1].tolist(), "padding_value": 0}
            if mode == "CONSTANT":
                args["padding_value"] = -3.5 if dtype.startswith("float") else 77
            both(dml.padding, x, padding_mode=mode, **args)
            both(dml.padding, x[..., ::-1], padding_mode=mode, **args)
            if mode in words:
                got = dml.padding(x, padding_mode=mode, **args)
                value = {"constant_values": args["padding_value"]} if mode == "CONSTANT" else {}
                wanted = np.pad(x, [*zip(*ends, strict=True)], words[mode], **value)
                assert got.tobytes() == wanted.tobytes()


def test_what_padding_leaves_to_the_definition(both):
    x = np.zeros((3, 7), np.float32)
    args = {"padding_mode": "WRAP", "padding_value": 0}
    both(dml.padding, x, **args, start_padding=[0, 0], end_padding=[0, 0], by_kernel=False)
    both(
        dml.padding, x, **args, start_padding=[0, 0], end_padding=[move_kernels.MAX_ROWS, 1], by_kernel=False
    )


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
@pytest.mark.parametrize("index", "int32 int64 uint32 uint64".split())
def test_scatter(both, dtype, index):
    rng = np.random.default_rng(len(dtype + index))
    for sizes, axis in (((7, 5, 33), 2), ((3, 1, 90), 2), ((40, 9, 1), 1), ((7, 5, 33), 0)):
        x, n = numbers(rng, dtype, *sizes), sizes[axis]
        for count in (1, 6, 70):
            shape = [*sizes[:axis], count, *sizes[axis + 1 :]]
            places = rng.integers(0 if index.startswith("u") else -n - 2, n + 2, shape).astype(index)
            places[0, 0, 0], places[-1, -1, -1] = np.iinfo(index).max, np.iinfo(index).min
            updates = numbers(rng, dtype, *shape)
            both(dml.scatter, x, places, updates, axis=axis, by_kernel=axis > 0)
            both(dml.scatter, x[:, ::-1], places[:, ::-1], updates[::-1], axis=axis, by_kernel=axis > 0)


TUPLES = [
    # sizes, of which so many are batches, and indices in a tuple
    ((7, 5, 33), 0, 1),
    ((7, 5, 33), 0, 2),
    ((7, 5, 3), 0, 3),
    ((4, 6, 5, 2), 1, 2),
    ((2, 3, 6), 2, 1),
    ((9,), 0, 1),
]


def tuples(rng, index, sizes, batches, count, many):
    """Of places of which some are out of range."""
    ends = sizes[batches : batches + count]
    least = 0 if index.startswith("u") else -max(ends) - 2
    places = rng.integers(least, max(ends) + 2, (*sizes[:batches], many, count)).astype(index)
    places[..., -1, -1], places[..., 0, 0] = np.iinfo(index).max, np.iinfo(index).min
    return places


def aligned(x, rank):
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
@pytest.mark.parametrize("index", "int32 int64 uint32 uint64".split())
@pytest.mark.parametrize(("sizes", "batches", "count"), TUPLES)
def test_by_tuples(both, dtype, index, sizes, batches, count):
    rng = np.random.default_rng(len(dtype + index))
    x = numbers(rng, dtype, *sizes)
    for many in (1, 6, 70):
        places = tuples(rng, index, sizes, batches, count, many)
        rank = max(x.ndim, places.ndim, places.ndim - 1 + x.ndim - batches - count)
        counts = {"input_dimension_count": x.ndim, "indices_dimension_count": places.ndim}
        given, there = aligned(x, rank), aligned(places, rank)
        both(dml.gather_nd1, given, there, **counts, batch_dimension_count=batches)
        if batches:
            continue
        both(dml.gather_nd, given, there, **counts)
        both(dml.gather_nd, given[..., ::-1], np.repeat(there, 2, -2)[..., ::2, :], **counts)
        updates = aligned(numbers(rng, dtype, many, *sizes[count:]), rank)
        both(dml.scatter_nd, given, there, updates, **counts)  # several tuples say the same place
        both(dml.scatter_nd, given[..., ::-1], there, updates[..., ::-1], **counts)


def test_of_updates_of_one_element_the_last_stays(both):
    updates = np.arange(5000, dtype=np.float32).reshape(5, 1000)
    places = np.random.default_rng(0).integers(-3, 3, (5, 1000), np.int32)
    x = np.zeros((5, 3), np.float32)
    both(dml.scatter, x, places, updates, axis=1)
    wanted = [[max(row[p % 3 == k]) for k in range(3)] for p, row in zip(places, updates, strict=True)]
    assert dml.scatter(x, places, updates, axis=1).tolist() == wanted


@pytest.mark.parametrize("dtype", "uint8 float16 float32 int64".split())
def test_reversed_subsequences(both, dtype):
    rng = np.random.default_rng(3)
    for sizes in ((2, 7, 3, 33), (1, 9, 1, 1), (3, 2, 4, 5)):
        x = numbers(rng, dtype, *sizes)
        for axis in range(4):
            of = [1 if k == axis else n for k, n in enumerate(sizes)]
            for lengths in (
                rng.integers(0, sizes[axis] + 3, of).astype(np.uint32),
                np.full(of, 4, np.uint64),
                np.broadcast_to(rng.integers(0, sizes[axis] + 3, (of[0], 1, 1, 1)).astype(np.uint32), of),
                np.moveaxis(rng.integers(0, sizes[axis] + 3, [of[3], *of[:3]], np.uint32), 0, 3),
            ):
                both(dml.reverse_subsequences, x, lengths, axis=axis)
                both(dml.reverse_subsequences, x[:, ::-1], lengths, axis=axis)


RNG = np.random.default_rng(0)
MOVED = {
    "slice": lambda x: dml.slice(x, offsets=[1, 0, 2, 1], sizes=[1, 3, 4, 5], strides=[1, 2, 3, 1]),
    "repeated": lambda x: dml.slice(x, offsets=[0, 0, 0, 0], sizes=[2, 6, 16, 3], strides=[1, 1, 0, 0]),
    "window": lambda x: dml.slice1(
        x,
        input_window_offsets=[0, 1, 2, 3],
        input_window_sizes=[2, 4, 9, 8],
        input_window_strides=[1, 3, 2, 4],
    ),
    "tile": lambda x: dml.tile(x, repeats=[2, 1, 3, 2]),
    "tile rows": lambda x: dml.tile(x, repeats=[1, 4, 1, 1]),
    "to depth": lambda x: dml.space_to_depth(x, block_size=2),
    "to depth, columns first": lambda x: dml.space_to_depth1(x, block_size=4, order="COLUMN_ROW_DEPTH"),
    "to space": lambda x: dml.depth_to_space(np.concatenate([x, x], 1)[:, :8], block_size=2),
    "to space, columns first": lambda x: dml.depth_to_space1(
        np.concatenate([x, x], 1)[:, :9], block_size=3, order="COLUMN_ROW_DEPTH"
    ),
}


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
@pytest.mark.parametrize("name", MOVED)
def test_operators_that_only_move(by_both, same_bytes, name, dtype):
    x = RNG.integers(0, 100, (2, 6, 16, 20)).astype(dtype)
    for layout in (x, np.ascontiguousarray(x.T).T, np.repeat(x, 2, axis=3)[..., ::2]):
        same_bytes(*by_both(lambda layout=layout: MOVED[name](layout)))


def test_backwards_is_left_to_the_definition(by_both, same_bytes):
    x = RNG.standard_normal((30, 40)).astype(np.float32)
    windows = {
        "input_window_offsets": [0, 0],
        "input_window_sizes": [30, 40],
        "input_window_strides": [1, -1],
    }
    same_bytes(*by_both(lambda: dml.slice1(x, **windows), by_kernel=False))


@pytest.mark.parametrize("dtype", "uint8 int16 float16 float32 float64 uint64".split())
def test_diagonals(both, dtype):
    rng, far = np.random.default_rng(len(dtype)), 2**31
    for sizes in ((30, 41), (5, 33, 7), (2, 3, 1, 90), (64, 1)):
        x = numbers(rng, dtype, *sizes)
        turned = np.swapaxes(np.ascontiguousarray(np.swapaxes(x, -1, -2)), -1, -2)
        for begin, end in [
            (-far, 3),
            (-4, far - 1),
            (-2, 5),
            (5, -2),
            (far - 1, -far),
            (-far, far - 1),
            (1, 1),
        ]:
            for given in (x, turned, x[..., ::-1]):
                fill = {"diagonal_fill_begin": begin, "diagonal_fill_end": end}
                both(dml.diagonal_matrix1, given, value=7 if dtype != "float32" else -0.0, **fill)


def test_triangles_as_numpy_cuts_them():
    x = np.random.default_rng(0).standard_normal((3, 150, 170)).astype(np.float32)
    for k in (-200, -3, 0, 2, 200):
        upper = dml.diagonal_matrix1(x, value=0, diagonal_fill_begin=-(2**31), diagonal_fill_end=k)
        np.testing.assert_array_equal(upper, np.triu(x, k))
        lower = dml.diagonal_matrix1(x, value=0, diagonal_fill_begin=k + 1, diagonal_fill_end=2**31 - 1)
        np.testing.assert_array_equal(lower, np.tril(x, k))
