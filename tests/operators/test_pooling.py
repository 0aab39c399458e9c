"""Pooling against loops over windows, onnxruntime, and, of gradients, numerical derivatives."""

from fractions import Fraction
from math import prod

import numpy as np
import pytest

import anydml as dml

from ..onnx.ops.checking import computed
from .tensors import BYTES, anything, check_floats, derivative, layouts, scales

NAN, INF = float("nan"), float("inf")
ATTRIBUTES = ("window_size", "strides", "dilations", "start_padding", "end_padding")
INTEGERS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()


def places_of(shape, a):
    """How many windows there are along each axis."""
    sizes = zip(shape[2:], *(a[n] for n in ATTRIBUTES), strict=True)
    return [(n + b + e - (k - 1) * d - 1) // s + 1 for n, k, s, d, b, e in sizes]


def windows_of(shape, a):
    """What each window sees: flat places in a plane, padding left out."""
    found = {}
    for p in np.ndindex(*places_of(shape, a)):
        found[p] = []
        for k in np.ndindex(*a["window_size"]):
            places = zip(p, k, *(a[n] for n in ATTRIBUTES[1:4]), strict=True)
            at = [i * s + j * d - b for i, j, s, d, b in places]
            if all(0 <= i < n for i, n in zip(at, shape[2:], strict=True)):
                found[p].append(int(np.ravel_multi_index(at, shape[2:])))
    return found


def pooled(x, a, function, dtype=np.float64):
    """A function of what each window sees: a list of numbers, and their places in the flat tensor."""
    places, found = places_of(x.shape, a), windows_of(x.shape, a)
    planes = x.reshape(-1, prod(x.shape[2:]))
    made = np.zeros((len(planes), *places), dtype)
    for k, plane in enumerate(planes):
        for p, seen in found.items():
            made[(k, *p)] = function(plane[seen], [k * plane.size + i for i in seen])
    return made.reshape(*x.shape[:2], *places)


def configuration(rng, rank, dilated=True):
    """Sizes of an input and attributes of windows that fit in; some see nothing but padding."""
    spatial = rank - 2
    while True:
        shape = tuple(rng.integers(1, 9 if rank == 4 else 6, rank).tolist())
        a = {"window_size": (1, 5), "strides": (1, 4), "dilations": (1, 4 if dilated else 2)}
        a |= {"start_padding": (0, 5), "end_padding": (0, 5)}
        a = {n: rng.integers(*limits, spatial).tolist() for n, limits in a.items()}
        if min(places_of(shape, a)) >= 1:
            return (min(shape[0], 3), min(shape[1], 3), *shape[2:]), a


def undilated(a):
    return {n: v for n, v in a.items() if n != "dilations"}


def known_to_onnx(a):
    """It allows no window to see nothing but padding."""
    padding = [max(p) for p in zip(a["start_padding"], a["end_padding"], strict=True)]
    return all(p < k for p, k in zip(padding, a["window_size"], strict=True))


def in_onnx(a):
    given = {"pads": [*a["start_padding"], *a["end_padding"]], "kernel_shape": a["window_size"]}
    return given | {"strides": a["strides"], "dilations": a["dilations"]}


LONG = [
    ((1, 2, 24, 3), ([20, 2], [3, 1], [1, 1], [4, 0], [9, 1])),
    ((1, 1, 5, 70), ([2, 68], [1, 9], [1, 1], [0, 1], [1, 3])),
]


def configurations(seed, count=10, dilated=True):
    rng = np.random.default_rng(seed)
    for trial in range(count):
        yield trial, rng, *configuration(rng, 4 + trial % 2, dilated)
    for k, (shape, values) in enumerate(LONG):
        yield count + k, rng, shape, dict(zip(ATTRIBUTES, values, strict=True))


# ---- averages and norms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("include_padding", [True, False])
@pytest.mark.parametrize("dilated", [True, False])
def test_averages(dtype, include_padding, dilated):
    function = dml.average_pooling1 if dilated else dml.average_pooling
    for _, rng, shape, a in configurations([include_padding, len(dtype)], dilated=dilated):
        x = rng.standard_normal(shape).astype(dtype)
        size = prod(a["window_size"])
        wanted = pooled(
            x.astype(np.float64), a, lambda v, _, n=size: v.sum() / (n if include_padding else max(len(v), 1))
        )
        given = (a if dilated else undilated(a)) | {"include_padding": include_padding}
        for other in (x, *layouts(x)):
            check_floats(function(other, **given), dtype, wanted, 3e-6)
        if dtype == "float32" and known_to_onnx(a):
            (theirs,) = computed("AveragePool", [x], count_include_pad=int(include_padding), **in_onnx(a))
            check_floats(theirs, dtype, wanted, 3e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dilated", [True, False])
def test_norms(dtype, dilated):
    function = dml.lp_pooling1 if dilated else dml.lp_pooling
    for trial, rng, shape, a in configurations([dilated, len(dtype), 1], dilated=dilated):
        p, x = (1, 2, 3, 7)[trial % 4], rng.standard_normal(shape).astype(dtype)
        wanted = pooled(x.astype(np.float64), a, lambda v, _, p=p: (np.abs(v) ** p).sum() ** (1 / p))
        for other in (x, *layouts(x)):
            check_floats(function(other, p=p, **(a if dilated else undilated(a))), dtype, wanted, 1e-5)
        if dtype == "float32" and known_to_onnx(a):
            (theirs,) = computed("LpPool", [x], p=p, **in_onnx(a))
            check_floats(theirs, dtype, wanted, 1e-4)


def test_norms_of_large_numbers_and_of_great_p():
    y = dml.lp_pooling(np.float32([[[[3e30, -4e30, 0, 1e-30]]]]), [1, 2])
    np.testing.assert_allclose(y, [[[[5e30, 4e30, 1e-30]]]], rtol=1e-6)
    y = dml.lp_pooling(np.float32([[[[3, -4, 2]]]]), [1, 3], p=200)
    np.testing.assert_allclose(y, [[[[4]]]], rtol=1e-6)


@pytest.mark.parametrize("types", [(a, q) for a in BYTES for q in BYTES], ids="-".join)
@pytest.mark.parametrize("include_padding", [True, False])
def test_quantized_averages(types, include_padding):
    first, last = types
    least, most = np.iinfo(last).min, np.iinfo(last).max
    for trial, rng, shape, a in configurations([BYTES.index(t) for t in types], 8):
        x = anything(rng, first, shape)
        rest = (1,) * (len(shape) - 2)
        forms = [(1,), (1, 1, *rest), (1, shape[1], *rest), (shape[1], *rest)]
        form = [forms[k] for k in rng.integers(0, 4, 4)]
        s, t = (scales(rng, trial % 2, n) for n in form[:2])
        p, q = (anything(rng, u, n) if trial % 3 else None for u, n in zip(types, form[2:], strict=True))

        def of_channel(v, k):
            return Fraction(0) if v is None else Fraction(v.flat[k % v.size].item())

        def average(v, _, size=prod(a["window_size"])):  # noqa: B008
            return Fraction(int(v.sum()), size if include_padding else max(len(v), 1))

        points = np.int64([int(of_channel(p, k)) for k in range(shape[1])]).reshape(-1, *rest)
        real = pooled(x.astype(np.int64) - points, a, average, object)
        wanted = np.empty(real.shape, last)
        for place, v in np.ndenumerate(real):
            v = round(v * of_channel(s, place[1]) / of_channel(t, place[1])) + int(of_channel(q, place[1]))
            wanted[place] = min(max(v, least), most)
        given = a | {"include_padding": include_padding, "output_data_type": last}
        for other in (x, *layouts(x)):
            y = dml.quantized_linear_average_pooling(other, s, p, t, q, **given)
            np.testing.assert_array_equal(y, wanted, strict=True)


def test_quantized_averages_as_in_onnxruntime():
    rng = np.random.default_rng(2)
    x = anything(rng, "uint8", (2, 3, 9, 8))
    s, p, t, q = np.float32([[[[0.3]]]]), np.uint8([[[[77]]]]), np.float32([[[[0.21]]]]), np.uint8([[[[9]]]])
    a = dict(zip(ATTRIBUTES, ([3, 2], [2, 1], [1, 1], [1, 0], [1, 1]), strict=True))
    given = [x, *(v.reshape(()) for v in (s, p, t, q))]
    same = {n: v for n, v in in_onnx(a).items() if n != "dilations"}
    (theirs,) = computed("QLinearAveragePool", given, domain="com.microsoft", count_include_pad=0, **same)
    y = dml.quantized_linear_average_pooling(x, s, p, t, q, include_padding=False, **a)
    assert np.abs(theirs.astype(int) - y).max() <= 1


# ---- maxima ------------------------------------------------------------------------------------------------


def largest(numbers, places):
    """Where the first maximum is; the first NaN is one."""
    best = max(range(len(numbers)), key=lambda k: (numbers[k] != numbers[k], numbers[k], -k))
    return numbers[best], places[best]


def odd(rng, dtype, shape):
    """Few values, so that some are equal; of floats infinities and NaN, too."""
    if dtype in INTEGERS:
        some = [*anything(rng, dtype, 4), np.iinfo(dtype).min]
        return rng.choice(np.array(some, dtype), shape)
    return rng.choice(np.array([0, 0, -1, -1, 2, 1.5, 1.5, -INF, -INF, INF, NAN], dtype), shape)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", ["float32", "float16", *INTEGERS])
def test_maxima_and_where_they_are(dtype):
    for trial, rng, shape, a in configurations([len(dtype)], 8, dilated=True):
        a = a if trial % 4 < 2 else a | {"dilations": [1] * len(a["strides"])}
        x = odd(rng, dtype, shape)
        least = -INF if x.dtype.kind == "f" else np.iinfo(dtype).min
        wanted = pooled(x, a, lambda v, at: largest(v, at)[0] if at else least, dtype)  # noqa: B023
        places = pooled(x, a, lambda v, at: largest(v.tolist(), at)[1] if at else -1, np.int64)
        for other in (x, *layouts(x)):
            for label in ("uint32", "uint64"):
                y, index = dml.max_pooling2(other, output_data_type=label, **a)
                np.testing.assert_array_equal(y, wanted, strict=True)
                assert index.dtype == label
                np.testing.assert_array_equal(np.where(places < 0, -1, index.astype(np.int64)), places)
                assert (index < x.size).all()
            if max(a["dilations"]) == 1:
                np.testing.assert_array_equal(dml.max_pooling(other, **undilated(a)), wanted, strict=True)
                for got, right in zip(dml.max_pooling1(other, **undilated(a)), (y, index), strict=True):
                    np.testing.assert_array_equal(got, right)
        if dtype in ("float32", *BYTES) and known_to_onnx(a) and not (x != x).any():
            theirs = computed("MaxPool", [x], outputs=2, **in_onnx(a))
            np.testing.assert_array_equal(theirs[0], wanted)
            np.testing.assert_array_equal(theirs[1], places)


@pytest.mark.parametrize("function", ["max_pooling", "average_pooling", "lp_pooling"])
def test_as_many_outputs_as_kernels_take(function):
    """Against the same for each plane and each half of it, which are too few for a kernel."""
    x = np.random.default_rng(4).standard_normal((2, 4, 120, 70)).astype(np.float32)
    a = {"window_size": [3, 2], "strides": [1, 2], "start_padding": [0, 1], "end_padding": [0, 1]}
    a |= {"include_padding": True} if function == "average_pooling" else {}
    y = getattr(dml, function)(x, **a)
    assert y.shape == (2, 4, 118, 36)
    for plane in np.ndindex(2, 4):
        parts = [getattr(dml, function)(x[plane][None, None, k : k + 61], **a) for k in (0, 59)]
        joined = np.concatenate(parts, axis=2)[0, 0]
        np.testing.assert_allclose(y[plane], joined, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float16", *INTEGERS])
@pytest.mark.parametrize("label", ["uint32", "uint64"])
def test_unpooling(dtype, label):
    rng = np.random.default_rng(len(dtype))
    x = odd(rng, dtype, (2, 3, 4, 5))
    index = rng.permutation(300)[:120].reshape(x.shape).astype(label)  # some are beyond the output
    index[0, 0, 0, :2] = np.iinfo(label).max, 7
    index[1, 2, 3, 4] = 7  # the last one stays
    wanted = np.zeros(240, dtype)
    for place, i in np.ndenumerate(index):
        if i < 240:
            wanted[i] = x[place]
    for v, i in zip((x, *layouts(x)), (index, *layouts(index)), strict=True):
        y = dml.max_unpooling(v, i, [2, 3, 5, 8])
        np.testing.assert_array_equal(y, wanted.reshape(2, 3, 5, 8), strict=True)


def test_unpooling_is_the_reverse_of_pooling_as_in_onnxruntime():
    x = np.random.default_rng(6).standard_normal((2, 3, 6, 8)).astype(np.float32)
    y, index = dml.max_pooling1(x, [2, 2], strides=2)
    back = dml.max_unpooling(y, index, x.shape)
    assert np.count_nonzero(back) == y.size
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    given = [y, index.astype(np.int64), np.int64(x.shape)]
    np.testing.assert_array_equal(computed("MaxUnpool", given, kernel_shape=[2, 2], strides=[2, 2])[0], back)


# ---- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradient_of_averages(dtype):
    for trial, rng, shape, a in configurations([len(dtype), 8], 4, dilated=False):
        a = undilated(a) | {"include_padding": bool(trial % 2)}
        function = lambda x, a=a: dml.average_pooling(x, **a)  # noqa: E731
        g = rng.standard_normal(function(np.zeros(shape, np.float32)).shape).astype(dtype)
        wanted = derivative(function, np.zeros(shape, np.float32), g, 1)
        for other in (g, *layouts(g)):
            check_floats(dml.average_pooling_grad(other, shape, **a), dtype, wanted, 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradient_of_maxima(dtype):
    """Of numbers more than a step apart; then of equal ones, where the first one gets it all."""
    for _, rng, shape, a in configurations([len(dtype), 9], 4):
        x = rng.permutation(prod(shape)).reshape(shape).astype(dtype)
        function = lambda v, a=a: np.maximum(dml.max_pooling2(v, **a)[0], -1000)  # noqa: E731
        g = rng.standard_normal(function(x).shape).astype(dtype)
        wanted = derivative(function, x, g, 0.5)
        for v, other in zip((x, *layouts(x)), (g, *layouts(g)), strict=True):
            check_floats(dml.max_pooling_grad(v, other, **a), dtype, wanted, 1e-5)
        x, wanted = odd(rng, dtype, shape), np.zeros(x.size)
        places = pooled(x, a, lambda v, at: largest(v.tolist(), at)[1] if at else -1, np.int64)
        for place, i in np.ndenumerate(places):
            wanted[i] += g[place] if i >= 0 else 0
        check_floats(dml.max_pooling_grad(x, g, **a), dtype, wanted.reshape(shape), 1e-5)
