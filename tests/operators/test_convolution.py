"""Convolutions against plain loops and onnxruntime, by NumPy, kernels and the library; FOLD and UNFOLD by
loops."""

from math import prod

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy
from anydml.onnx.from_directml import library
from anydml.runtime import integer_kernels

from ..onnx.ops.checking import computed
from .tensors import BYTES, anything, check_floats, exact, layouts, quantized, scales


@pytest.fixture
def routes(monkeypatch):
    """The same call by NumPy, by kernels where there are such, and by the library where that has it, which
    all are seen to compute; worth None: of its usual work."""
    made, original, usual = [], library.implementation, heavy.WORTH
    kernels = []
    monkeypatch.setattr(library, "implementation", lambda *a: made.append(original(*a)) or made[-1])
    monkeypatch.setattr(heavy, "best_by_kernels", lambda *_: False)
    noted = [
        k._replace(make=lambda *a, by=k.make: kernels.append(by(*a)) or kernels[-1]) for k in heavy.KERNELS
    ]
    monkeypatch.setattr(heavy, "KERNELS", noted)
    never = 1 << 60

    def run(function, *args, worth=1, **kwargs):
        found = []
        forward = kwargs.get("direction") != "BACKWARD" and not any(kwargs.get("output_padding", ()))
        able = function is not dml.convolution or (forward and kwargs.get("mode") != "CONVOLUTION")
        ways = [(never, never), (worth or usual, 1)]
        if function in (dml.convolution, dml.convolution_integer):
            ways.insert(1, (never, 1))
        for least, elements in ways:
            most = 1 << 26 if least == never else 0  # integers have kernels where columns are not too many
            monkeypatch.setattr(integer_kernels, "MAX_COLUMNS_BYTES", most)
            monkeypatch.setattr(heavy, "WORTH", least)
            monkeypatch.setattr(heavy, "MIN_ELEMENTS", elements)
            eager_tensors.forget()
            made.clear()
            kernels.clear()
            found.append(function(*args, **kwargs))
            assert [m is not None for m in made] == ([] if least == never else [True])
            if kwargs.get("mode") != "CONVOLUTION":
                assert any(kernels) == (least == never and elements == 1 and able)
        return found

    return run


def pairs(places, window, a):
    """Each window, each of its elements, and where that is in what has no padding (or beyond it)."""
    attributes = a["strides"], a["dilations"], a["start_padding"]
    for p in np.ndindex(*places):
        for k in np.ndindex(*window):
            yield p, k, tuple(i * s + j * d - e for i, j, s, d, e in zip(p, k, *attributes, strict=True))


ALL = slice(None)


def inside(place, sizes):
    return all(0 <= i < n for i, n in zip(place, sizes, strict=True))


def at(channels, place):
    return (ALL, channels, *place)


def plain(x, w, a, places):
    """A cross-correlation, window by window, in the type of `x`."""
    each, ins = w.shape[0] // a["group_count"], w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *places), x.dtype)
    for p, k, place in pairs(places, w.shape[2:], a):
        for o in range(w.shape[0]) if inside(place, x.shape[2:]) else ():
            group = slice(o // each * ins, (o // each + 1) * ins)
            y[at(o, p)] += x[at(group, place)] @ w[(o, ALL, *k)]
    return y


def plain_backward(x, w, a, sizes):
    """Each element of `x`, times the filters of its channel, is added to what those see of the result."""
    each, ins = x.shape[1] // a["group_count"], w.shape[1]
    y = np.zeros((x.shape[0], a["group_count"] * ins, *sizes), x.dtype)
    for p, k, place in pairs(x.shape[2:], w.shape[2:], a):
        for i in range(x.shape[1]) if inside(place, sizes) else ():
            group = slice(i // each * ins, (i // each + 1) * ins)
            y[at(group, place)] += np.multiply.outer(x[at(i, p)], w[(i, ALL, *k)])
    return y


def configuration(rng, rank, backward=False):
    """Attributes, the sizes of an input and a filter for which they leave an output, and its sizes."""
    spatial = rank - 2
    limits = {"strides": (1, 4), "dilations": (1, 4), "start_padding": (0, 4), "end_padding": (0, 4)}
    while True:
        a = {n: rng.integers(*limit, spatial).tolist() for n, limit in limits.items()}
        window, sizes = rng.integers(1, 4, spatial).tolist(), rng.integers(1, 8, spatial).tolist()
        groups, ins, outs = rng.integers(1, 4, 3).tolist()
        left = []
        for n, k, stride, dilation, start, end in zip(sizes, window, *a.values(), strict=True):
            span, padding = (k - 1) * dilation + 1, start + end
            left.append((n - 1) * stride + span - padding if backward else (n + padding - span) // stride + 1)
        if min(left) >= 1:
            break
    shape = (int(rng.integers(1, 4)), groups * ins, *sizes)
    filters = (groups * ins, outs, *window) if backward else (groups * outs, ins, *window)
    return a | {"group_count": groups}, shape, filters, left


def in_onnx(a):
    given = {"pads": [*a["start_padding"], *a["end_padding"]], "group": a["group_count"]}
    return given | {"strides": a["strides"], "dilations": a["dilations"]}


def normal(rng, *shapes, dtype="float32"):
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


# ---- of floats ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("mode", ["CROSS_CORRELATION", "CONVOLUTION"])
@pytest.mark.parametrize("direction", ["FORWARD", "BACKWARD"])
def test_convolution(routes, rank, mode, direction, dtype):
    """In the last trials output padding is that of strides or more, of which ONNX knows nothing."""
    rng = np.random.default_rng([rank, len(mode), len(direction), len(dtype)])
    backward = direction == "BACKWARD"
    for trial in range(6):
        a, shape, filters, left = configuration(rng, rank, backward)
        most = [1] * (rank - 2) if trial < 2 else a["strides"] if trial < 4 else [6] * (rank - 2)
        more = [int(rng.integers(0, n)) for n in most]
        sizes = [n + m for n, m in zip(left, more, strict=True)]
        channels = filters[1] * a["group_count"] if backward else filters[0]
        x, w, bias = normal(rng, shape, filters, (1, channels, *(1,) * (rank - 2)), dtype=dtype)
        x64, turned = (v.astype(np.float64) for v in (x, w))
        turned = np.flip(turned, range(2, rank)) if mode == "CONVOLUTION" else turned
        wanted = plain_backward(x64, turned, a, sizes) if backward else plain(x64, turned, a, left)
        wanted = wanted if backward else np.pad(wanted, [(0, 0), (0, 0), *((0, n) for n in more)])
        given = a | {"mode": mode, "direction": direction, "output_padding": more}
        slack = 1e-6 + 2e-7 * (filters[0] // a["group_count"] if backward else filters[1]) * prod(filters[2:])
        total = wanted + bias
        cases = [(*both, bias, total) for both in zip((x, *layouts(x)), (w, *layouts(w)), strict=True)]
        cases.append((x, w, None, wanted))
        for *tensors, right in cases:
            for y in routes(dml.convolution, *tensors, **given):
                check_floats(y, dtype, right, slack)
        if dtype == "float32" and mode == "CROSS_CORRELATION" and trial < (4 if backward else 2):
            op, padding = ("ConvTranspose", {"output_padding": more}) if backward else ("Conv", {})
            (theirs,) = computed(op, [x, w, bias.reshape(-1)], **in_onnx(a), **padding)
            check_floats(theirs, dtype, total, slack)


LARGE = [
    ((2, 16, 700), (32, 16, 5), [1], [2], 1),
    ((1, 16, 40, 41), (32, 8, 3, 3), [1, 2], [2, 1], 2),
    ((1, 4, 24, 20, 22), (12, 4, 3, 2, 3), [1, 1, 2], [1, 2, 1], 1),
    ((1, 512, 14, 14), (512, 1, 5, 5), [1, 1], [1, 1], 512),
]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "filters", "strides", "dilations", "groups"), LARGE)
def test_as_large_as_the_library_takes_by_itself(routes, shape, filters, strides, dilations, groups, dtype):
    """BACKWARD is the adjoint of FORWARD: <convolution(x), g> = <x, transposed(g)>."""
    rng = np.random.default_rng(len(shape))
    spatial = len(shape) - 2
    a = {"start_padding": [2] + [0] * (spatial - 1), "end_padding": [1] * spatial, "group_count": groups}
    a |= {"strides": strides, "dilations": dilations, "worth": None}
    x, w = normal(rng, shape, filters, dtype=dtype)
    usual, by_kernels, large = routes(dml.convolution, x, w, **a)
    np.testing.assert_allclose(by_kernels, usual, rtol=2e-3, atol=2e-3 if dtype == "float16" else 1e-4)
    close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-4}
    np.testing.assert_allclose(large, usual, **close, strict=True)
    (g,) = normal(rng, usual.shape, dtype=dtype)
    reached = zip(shape[2:], usual.shape[2:], filters[2:], strides, dilations, strict=True)
    more = [size - ((n - 1) * s + (k - 1) * d) for size, n, k, s, d in reached]
    more[0] += 2  # as much as is cut off at the start
    back, _, large = routes(dml.convolution, g, w, direction="BACKWARD", output_padding=more, **a)
    np.testing.assert_allclose(large, back, **close, strict=True)
    x, w, g, usual, back = (v.astype(np.float64) for v in (x, w, g, usual, back))
    size = np.linalg.norm(usual) * np.linalg.norm(g)
    assert abs((usual * g).sum() - (x * back).sum()) <= (1e-4 if dtype == "float16" else 1e-6) * size


def test_an_activation_behind_a_bias_behind_output_padding(routes):
    x, w = np.float32([[[[1, 2, -5]]]]), np.float32([[[[2, 1]]]])
    given = {"output_padding": [0, 1], "fused_activation": {"Type": "ACTIVATION_ELU", "Desc": {"Alpha": 2}}}
    for y in routes(dml.convolution, x, w, np.float32([[[[-1]]]]), **given):
        np.testing.assert_allclose(y, [[[[3, 2 * np.expm1(-2), 2 * np.expm1(-1)]]]], rtol=1e-6)
    given = {"fused_activation": {"Type": "ELEMENT_WISE_CLIP", "Desc": {"Min": -0.5, "Max": 2}}}
    for y in routes(dml.convolution, x, w, **given):
        assert y.tolist() == [[[[2, -0.5]]]]


def test_windows_of_nothing_but_padding(routes):
    x, w = np.float32([[[[3]]]]), np.float32([[[[2]]]])
    given = {"start_padding": [7, 0], "end_padding": [0, 9], "strides": [4, 5], "dilations": [100, 1]}
    for y in routes(dml.convolution, x, w, np.float32([[[[0.5]]]]), **given):
        assert y.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]]]
    for y in routes(dml.convolution, x, w, direction="BACKWARD", strides=[99, 3], output_padding=[2, 1]):
        assert y.tolist() == [[[[6, 0], [0, 0], [0, 0]]]]


# ---- of whole numbers --------------------------------------------------------------------------------------


def whole(x, zero_point, axes=0):
    """Exact differences."""
    zero_point = np.zeros(1, np.int64) if zero_point is None else zero_point.astype(np.int64)
    return x.astype(np.int64) - zero_point.reshape(-1, *(1,) * axes)


def drawn(rng, rank, first, second):
    """A configuration with an input, filters, and the sizes of zero points: of one, and of each filter's."""
    a, shape, filters, left = configuration(rng, rank)
    more = int(rng.integers(1, 5))
    each = [1] * more
    each[more > 1] = filters[0] if rng.integers(2) else 1
    return a, anything(rng, first, shape), anything(rng, second, filters), left, (1,) * more, tuple(each)


@pytest.mark.parametrize("first", BYTES)
@pytest.mark.parametrize("second", BYTES)
def test_convolution_integer(routes, first, second):
    rng = np.random.default_rng([BYTES.index(first), BYTES.index(second)])
    for trial in range(8):
        a, x, w, left, one, each = drawn(rng, 3 + trial % 2, first, second)
        p = anything(rng, first, one) if trial % 3 else None
        q = anything(rng, second, each) if trial % 4 else None
        wanted = plain(whole(x, p), whole(w, q, w.ndim - 1), a, left)
        for given in zip((x, *layouts(x)), (w, *layouts(w)), strict=True):
            for y in routes(dml.convolution_integer, given[0], p, given[1], q, **a):
                np.testing.assert_array_equal(y, wanted.astype(np.int32), strict=True)


@pytest.mark.parametrize("count", [64, 300, 70_000])
def test_long_sums_are_exact_and_taken_modulo_2_to_32(routes, count):
    rng = np.random.default_rng(count)
    x, w = rng.integers(250, 256, (1, 1, count + 1)), rng.integers(250, 256, (2, 1, count))
    wanted = np.int64([[[(x[0, 0, k : k + count] * f[0]).sum() for k in (0, 1)] for f in w]]).astype(np.int32)
    for y in routes(dml.convolution_integer, x.astype(np.uint8), None, w.astype(np.uint8)):
        np.testing.assert_array_equal(y, wanted, strict=True)
    lowest, point = np.full((1, 1, count), -128, np.int8), np.int8([127])  # -255 * -255 each
    for y in routes(dml.convolution_integer, lowest, point, lowest, point):
        np.testing.assert_array_equal(y, np.full((1, 1, 1), 255 * 255 * count).astype(np.int32))


def test_larger_convolutions_of_integers(routes):
    rng = np.random.default_rng(8)
    x, w = anything(rng, "uint8", (2, 12, 20, 21)), anything(rng, "int8", (32, 6, 3, 3))
    p, q = np.full((1, 1, 1, 1), 200, np.uint8), anything(rng, "int8", (1, 32, 1, 1))
    names = ("strides", "dilations", "start_padding", "end_padding", "group_count")
    a = dict(zip(names, ([1, 1], [1, 2], [1, 0], [0, 2], 2), strict=True))
    wanted = plain(whole(x, p), whole(w, q, 3), a, (19, 19))
    for y in routes(dml.convolution_integer, x, p, w, q, **a):
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("types", [(a, b, q) for a in BYTES for b in BYTES for q in BYTES], ids="-".join)
def test_quantized_linear_convolution(types):
    rng = np.random.default_rng([BYTES.index(t) for t in types])
    for trial in range(6):
        a, x, w, left, one, each = drawn(rng, 3 + trial % 2, *types[:2])
        p, q, r = (anything(rng, t, shape) for t, shape in zip(types, (one, each, one), strict=True))
        s, t, u = (scales(rng, trial % 2, shape) for shape in (one, each, one))
        u *= np.float32(2.0**10)
        bias = rng.integers(-50_000, 50_000, (1, w.shape[0], *(1,) * (w.ndim - 2)), np.int32)
        p, q, r, bias = (v if trial != 3 else None for v in (p, q, r, bias))
        total = plain(whole(x, p), whole(w, q, w.ndim - 1), a, left) + (0 if bias is None else bias)
        each_scale = exact(t).reshape(-1, *(1,) * (w.ndim - 2))
        real = total.astype(object) * exact(s).item() * each_scale / exact(u).item()
        wanted = quantized(real, 0 if r is None else r.item(), types[2])
        y = dml.quantized_linear_convolution(x, s, p, w, t, q, bias, u, r, output_data_type=types[2], **a)
        np.testing.assert_array_equal(y, wanted, strict=True)
        if len(set(types)) == 1 and r is not None:  # theirs is scaled in float32
            given = [x, *(v.reshape(-1) for v in (s, p)), w, *(v.reshape(-1) for v in (t, q, u, r, bias))]
            (theirs,) = computed("QLinearConv", given, **in_onnx(a))
            assert np.abs(theirs.astype(int) - y).max() <= 1


# ---- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [3, 4, 5, 8])
def test_unfold_and_fold(rank):
    """UNFOLD moves, of every type; FOLD adds, integers modulo their width."""
    rng = np.random.default_rng(rank)
    for dtype in "float32 float16 float64 int8 uint16 int32 uint64 int64 uint8 int16 uint32".split():
        a, shape, filters, blocks = configuration(rng, min(rank, 5))
        more = [1] * (rank - len(shape))
        shape, window, blocks = (*shape, *more), [*filters[2:], *more], blocks + more
        given = {n: v + ([0] * len(more) if "pad" in n else more) for n, v in a.items() if n != "group_count"}
        x, y = np.zeros(shape, dtype), np.zeros((*shape[:2], *window, *blocks), dtype)
        for v in (x, y):
            v[...] = anything(rng, dtype, v.shape) if v.dtype.kind in "iu" else rng.integers(-9, 9, v.shape)
        columns, sums = np.zeros_like(y), np.zeros_like(x)
        for p, k, place in pairs(blocks, window, given):
            if inside(place, shape[2:]):
                columns[at(ALL, k + p)] = x[at(ALL, place)]
                sums[at(ALL, place)] += y[at(ALL, k + p)]
        columns, y = (v.reshape(shape[0], shape[1] * prod(window), prod(blocks)) for v in (columns, y))
        for other in (x, *layouts(x)):
            np.testing.assert_array_equal(dml.unfold(other, window, **given), columns, strict=True)
        for other in (y, *layouts(y), y.reshape((1,) * (rank - 3) + y.shape)):
            np.testing.assert_array_equal(dml.fold(other, shape, window, **given), sums, strict=True)
        if dtype == "float32" and rank < 5:  # onnxruntime is wrong about more dimensions
            same = {n: v for n, v in in_onnx(a).items() if n != "group"}
            (theirs,) = computed("Col2Im", [y, np.int64(shape[2:]), np.int64(window)], **same)
            np.testing.assert_array_equal(theirs, sums)
