"""Products of 8-bit integers by kernels: what their definitions give, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import anydml as dml
from anydml.codegen.jit import host
from anydml.runtime import integer_convolutions, integer_products

RNG = np.random.default_rng(11)
TYPES = [(a, b) for a in (np.int8, np.uint8) for b in (np.int8, np.uint8)]
SIZES = [((40, 33), (33, 50)), ((1, 300), (300, 17)), ((70, 64), (64, 1)), ((2, 3, 9, 31), (2, 3, 31, 20)),
         ((64, 1), (1, 64)), ((5, 2), (2, 500)), ((3, 7, 40), (3, 40, 5))]  # fmt: skip


@pytest.fixture(params=[2, 4])
def parts(request, monkeypatch):
    """How many are multiplied at once, whatever the processor has an instruction for."""
    for module in (integer_products, integer_convolutions):
        monkeypatch.setattr(module, "host", lambda: replace(host(), fours=request.param == 4))
    monkeypatch.setattr(integer_products, "is_small", lambda *sizes: False)


def drawn(sizes, dtype):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, sizes).astype(dtype)


def positive(*sizes):
    return (RNG.random(sizes) + 0.01).astype(np.float32)


def forms(rank, rows, columns):
    """Zero points or scales: none, one, one for each row or column, by lists and beside the matrix."""
    front = (1,) * (rank - 2)
    return [(None, None), ((1,) * rank, (1,) * rank), ((*front, rows, 1), (*front, 1, columns)),
            ((rows,), (columns,))]  # fmt: skip


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize(("one", "other"), TYPES)
@pytest.mark.parametrize(("left", "right"), SIZES)
@pytest.mark.usefixtures("parts")
@pytest.mark.drawn
def test_products(by_both, same_bytes, left, right, one, other, form):
    a, b = drawn(left, one), drawn(right, other)
    points = forms(len(left), left[-2], right[-1])[form]
    zero, zero_too = (None if p is None else drawn(p, t) for p, t in zip(points, (one, other), strict=True))
    found = by_both(lambda: dml.matrix_multiply_integer(a, zero, b, zero_too))
    same_bytes(*[[y] for y in found])


@pytest.mark.drawn
@pytest.mark.parametrize("form", [1, 2, 3])
@pytest.mark.parametrize(("left", "right"), SIZES)
@pytest.mark.parametrize("made", [np.int8, np.uint8])
@pytest.mark.usefixtures("parts")
def test_scaled_products(by_both, same_bytes, left, right, made, form):
    a, b = drawn(left, np.uint8), drawn(right, np.int8)
    points, rank = forms(len(left), left[-2], right[-1]), len(left)
    a_scale, b_scale = (positive(*p) for p in points[form])
    y_scale, y_zero = positive(*points[form][0]) * 100, drawn(points[form][0], made)
    zero, zero_too = (drawn(p, t) for p, t in zip(points[form], (np.uint8, np.int8), strict=True))
    found = by_both(
        lambda: dml.quantized_linear_matrix_multiply(a, a_scale, zero, b, b_scale, zero_too, y_scale, y_zero)
    )
    same_bytes(*[[y] for y in found])
    bias = positive(*found[0].shape)
    a = a.astype(np.int8)
    zero = zero.astype(np.int8)
    for beside in (None, bias):
        made = by_both(
            lambda beside=beside: dml.matrix_multiply_integer_to_float(
                a, a_scale, zero, b, b_scale, zero_too, beside
            )
        )
        same_bytes(*[[y] for y in made])
    assert rank == found[0].ndim


def test_scales_that_make_no_number(by_both, same_bytes):
    a, b = drawn((40, 40), np.uint8), drawn((40, 40), np.uint8)
    scales = np.float32([0, np.inf, np.nan, -1, 1e-38] * 8)
    one = np.float32([1])
    for point in (None, np.uint8([7])):

        def run(point=point):
            return dml.quantized_linear_matrix_multiply(
                a, scales, None, b, one, None, scales[::-1].copy(), point
            )

        same_bytes(*[[y] for y in by_both(run)])


def test_sums_that_lie_in_the_middle(by_both, same_bytes):
    """And near it, on either side, as far as FLOAT32 goes; and beside a bias with which they wrap around."""
    a, b = np.uint8(RNG.integers(0, 256, (64, 64))), np.int8(RNG.integers(-8, 8, (64, 64)))
    for scale in (0.5, 0.25, 1 / 3, 1.5, 0.1, 2.0**-110, 2.0**120):
        for factor in (1, 1 - 2**-23, 1 + 2**-22):
            scales = np.float32([scale]), np.float32([factor]), np.float32([64.0 * scale])
            found = by_both(
                lambda s=scales: dml.quantized_linear_matrix_multiply(
                    a, s[0], None, b, s[1], None, s[2], None
                )
            )
            same_bytes(*[[y] for y in found])
    x, f = drawn((1, 4, 8, 8), np.uint8), drawn((6, 4, 3, 3), np.int8)
    bias = np.int32([2**31 - 1, -(2**31), 2**31 - 20000, 5, -(2**31) + 9, 0]).reshape(1, 6, 1, 1)
    scale, made = np.full((1, 1, 1, 1), 1, np.float32), np.full((1, 1, 1, 1), 2**24, np.float32)
    scales = np.ones((1, 6, 1, 1), np.float32)
    found = by_both(
        lambda: dml.quantized_linear_convolution(x, scale, None, f, scales, None, bias, made, None)
    )
    same_bytes(*[[y] for y in found])


CONVOLUTIONS = [
    ((1, 8, 14, 14), (16, 8, 3, 3), {"start_padding": [1, 1], "end_padding": [1, 1]}),
    ((2, 3, 20, 21), (5, 3, 3, 2), {"strides": [2, 1], "end_padding": [0, 2]}),
    ((1, 12, 16, 16), (12, 1, 3, 3), {"group_count": 12, "dilations": [2, 1]}),
    ((3, 10, 12, 12), (4, 5, 1, 1), {"group_count": 2}),
    ((1, 6, 90), (7, 6, 5), {"start_padding": [4]}),
    ((1, 1, 40, 40), (1, 1, 7, 7), {}),
    ((2, 6, 9, 12), (6, 3, 2, 3), {"start_padding": [0, 2], "end_padding": [1, 1], "strides": [1, 2], "group_count": 2}),
    ((2, 6, 9, 9), (6, 1, 3, 3), {"group_count": 6, "strides": [2, 2], "start_padding": [1, 1], "end_padding": [1, 1]}),
    ((2, 6, 9, 9), (12, 1, 3, 3), {"group_count": 6, "start_padding": [1, 1]}),
]  # fmt: skip


@pytest.mark.parametrize("points", [None, "one", "filter"])
@pytest.mark.parametrize(("one", "other"), TYPES)
@pytest.mark.parametrize(("sizes", "filters", "told"), CONVOLUTIONS)
@pytest.mark.usefixtures("parts")
@pytest.mark.drawn
def test_convolutions(by_both, same_bytes, sizes, filters, told, one, other, points):
    rank = len(sizes)
    x, f = drawn(sizes, one), drawn(filters, other)
    zero = drawn((1,) * rank, one) if points else None
    count = filters[0] if points == "filter" else 1
    zero_too = drawn((1, count, *(1,) * (rank - 2)), other) if points else None
    found = by_both(lambda: dml.convolution_integer(x, zero, f, zero_too, **told))
    same_bytes(*[[y] for y in found])
    scale, scales, made = (
        positive(*(1,) * rank),
        positive(1, filters[0], *(1,) * (rank - 2)),
        positive(*(1,) * rank),
    )
    bias = drawn((1, filters[0], *(1,) * (rank - 2)), np.int8).astype(np.int32) * 50
    for beside in (None, bias):
        found = by_both(
            lambda beside=beside: dml.quantized_linear_convolution(
                x, scale, zero, f, scales, zero_too, beside, made * 300, zero, **told
            )
        )
        same_bytes(*[[y] for y in found])


@pytest.mark.usefixtures("parts")
def test_other_layouts(by_both, same_bytes):
    a, b = drawn((50, 60), np.int8), drawn((80, 120), np.uint8)
    for left, right in (
        (a.T, b[:50, ::2]),
        (a[::-1, ::2], b.T[:30, :70]),
        (a[:, 1:], b[:59]),
        (a[:, 1::3], b[:20, ::-1]),
    ):
        found = by_both(lambda left=left, right=right: dml.matrix_multiply_integer(left, None, right, None))
        same_bytes(*[[y] for y in found])
        assert (found[0] == left.astype(int) @ right.astype(int)).all()


@pytest.mark.usefixtures("parts")
def test_sums_that_wrap_around(by_both, same_bytes):
    """2^32 is what INT32 is counted modulo."""
    a, b = np.full((1, 1 << 16), 255, np.uint8), np.full((1 << 16, 2), 255, np.uint8)
    found = by_both(lambda: dml.matrix_multiply_integer(a, None, b, None))
    same_bytes(*[[y] for y in found])
    assert found[0][0, 0] == (255 * 255 << 16) - (1 << 32)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("depth", [32, 33])
def test_compiled(depth):
    """Dispatches of a graph, again and again, on other contents: zero points and scales, too."""
    builder = dml.GraphBuilder()
    feeds = {
        "a": drawn((30, depth), np.uint8), "az": drawn((30, 1), np.uint8), "b": drawn((depth, 40), np.int8),
        "bz": drawn((1, 40), np.int8), "as": positive(30, 1), "bs": positive(1, 40), "ys": positive(30, 1),
        "x": drawn((1, 6, 14, 14), np.uint8), "f": drawn((8, 3, 3, 3), np.int8), "xz": drawn((1, 1, 1, 1), np.uint8),
    }  # fmt: skip
    i = {n: builder.input(n, x.dtype.name, x.shape) for n, x in feeds.items()}

    def made(i):
        return {
            "sums": dml.matrix_multiply_integer(i["a"], i["az"], i["b"], i["bz"]),
            "bytes": dml.quantized_linear_matrix_multiply(
                i["a"], i["as"], i["az"], i["b"], i["bs"], i["bz"], i["ys"], i["az"]
            ),
            "seen": dml.convolution_integer(
                i["x"], i["xz"], i["f"], None, start_padding=[1, 1], end_padding=[1, 1], group_count=2
            ),
        }

    compiled = builder.compile(made(i))
    results = {n: np.empty_like(y) for n, y in made(feeds).items()}
    binding = compiled.bind(feeds, results)
    for _ in range(3):
        for x in feeds.values():
            x[...] = positive(*x.shape) if x.dtype == np.float32 else drawn(x.shape, x.dtype)
        binding.dispatch()
        for name, wanted in made(feeds).items():
            np.testing.assert_array_equal(results[name], wanted, name)


@pytest.mark.usefixtures("parts")
def test_memory_that_others_may_not_read():
    from tests.robustness.guard_memory import Memory

    memory = Memory()
    a, b = drawn((40, 36), np.uint8), drawn((36, 50), np.int8)
    wanted = dml.matrix_multiply_integer(a, None, b, None)
    for at_end in (True, False):
        held = []
        for array in (a, b, wanted):
            place = memory.take(array.nbytes, at_end=at_end)
            one = (
                place.window[place.start : place.start + array.nbytes].view(array.dtype).reshape(array.shape)
            )
            one[...] = array
            held.append(one)
        held[2][...] = 0
        dml.matrix_multiply_integer(held[0], None, held[1], None, out=held[2])
        np.testing.assert_array_equal(held[2], wanted)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(("one", "other"), TYPES)
def test_calls_that_are_known(one, other):
    """The next call of a kind goes another way, with other contents."""
    for _ in range(4):
        a, b = drawn((2, 20, 37), one), drawn((2, 37, 30), other)
        zero, zero_too = drawn((1, 20, 1), one), drawn((1, 1, 30), other)
        found = dml.matrix_multiply_integer(a, zero, b, zero_too)
        np.testing.assert_array_equal(
            found, (a.astype(int) - zero) @ (b.astype(int) - zero_too.astype(int)), strict=False
        )
        found = dml.matrix_multiply_integer(a, None, b, None)
        np.testing.assert_array_equal(found, a.astype(int) @ b.astype(int), strict=False)
