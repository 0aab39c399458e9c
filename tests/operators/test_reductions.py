"""Reductions, positions, running sums, largest elements and coordinates against loops over Python numbers.

Python's integers have no limits and its fsum rounds once, so wanted values are exact before they are rounded.
"""

import math
import operator
from functools import cmp_to_key
from itertools import accumulate, product

import numpy as np
import pytest

import anydml as dml

from .checking import random_bits
from .tensors import scattered

FLOATS = "float16 float32".split()
WIDE = "int32 int64 uint32 uint64".split()
EVERY = [*FLOATS, *WIDE, *"int8 int16 uint8 uint16".split()]
UP_TO_32_BIT = [t for t in EVERY if "64" not in t]
POSITION_TYPES = "INT32 INT64 UINT32 UINT64".split()
TAKEN = dict.fromkeys("AVERAGE L2 LOG_SUM LOG_SUM_EXP".split(), FLOATS)
TAKEN |= dict.fromkeys("L1 MULTIPLY SUM SUM_SQUARE".split(), FLOATS + WIDE)
TAKEN |= dict.fromkeys("ARGMAX ARGMIN MAX MIN".split(), EVERY)
SHAPES = [((7,), [0]), ((1, 1, 1), [1]), ((3, 4, 5), [1]), ((3, 4, 5), [2, 0]), ((4, 3), [])]
SHAPES += [((2, 1, 3, 2, 1, 2, 1, 3), [3, 5, 7]), ((3, 2, 3), [0, 1, 2]), ((2, 37), [-1]), ((3, 5500), [1])]
"""The last one is large enough for a kernel, which products have not; they would overflow."""
NAN, INF = math.nan, math.inf


def drawn(rng, shape, dtype, positive=False):
    """Few different values, so that some are equal; integers also of any bits."""
    if dtype in FLOATS:
        x = np.round(rng.normal(size=shape) * 4) / 2 if rng.random() < 0.5 else rng.normal(size=shape) * 3
        return (abs(x) + 0.25 if positive else x).astype(dtype)
    if rng.random() < 0.5:
        return rng.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(dtype)
    return random_bits(rng, dtype, math.prod(shape)).reshape(shape)


def rows(x, axes):
    """Where each row's result goes, and its elements in row-major order of the axes, as Python numbers."""
    axes = {k % x.ndim for k in axes}
    flat, steps = x.ravel().tolist(), [math.prod(x.shape[k + 1 :]) for k in range(x.ndim)]

    def places(chosen):
        for at in np.ndindex(*(n if chosen(k) else 1 for k, n in enumerate(x.shape))):
            yield at, sum(i * step for i, step in zip(at, steps, strict=True))

    inner = [place for _, place in places(lambda k: k in axes)]
    for at, begin in places(lambda k: k not in axes):
        yield at, [flat[begin + place] for place in inner]


def wrapped(value, dtype):
    """An integer modulo the width of its type."""
    info = np.iinfo(dtype)
    return (value - info.min) % (1 << info.bits) + info.min


def near(y, wanted, dtype, slack):
    """Whether a float is the wanted one rounded, or next to that, beside what canceled out on the way."""
    with np.errstate(over="ignore"):
        rounded = np.float64(wanted).astype(dtype)
        low, high = (float(np.nextafter(rounded, rounded.dtype.type(end))) for end in (-INF, INF))
    return low - slack <= float(y) <= high + slack


def added(values):
    values = list(values)
    return sum(values) if isinstance(values[0], int) else math.fsum(values)


EXACT = {
    "AVERAGE": lambda row: math.fsum(row) / len(row),
    "L1": lambda row: added(map(abs, row)),
    "L2": lambda row: math.sqrt(math.fsum(v * v for v in row)),
    "LOG_SUM": lambda row: math.log(math.fsum(row)),
    "LOG_SUM_EXP": lambda row: math.log(math.fsum(map(math.exp, row))),
    "MAX": max,
    "MIN": min,
    "MULTIPLY": math.prod,
    "SUM": lambda row: added(row),
    "SUM_SQUARE": lambda row: added(v * v for v in row),
    "ARGMAX": lambda row: row.index(max(row)),
    "ARGMIN": lambda row: row.index(min(row)),
}
"""What each function makes of a row; positions are those of the first."""


@pytest.mark.drawn
@pytest.mark.parametrize(("function", "dtype"), [(f, d) for f, dtypes in TAKEN.items() for d in dtypes])
def test_reduce(function, dtype):
    rng = np.random.default_rng([11, *function.encode(), *dtype.encode()])
    for shape, axes in SHAPES[: -1 if function == "MULTIPLY" else None]:
        x = drawn(rng, shape, dtype, positive=function == "LOG_SUM")
        kinds = {"output_data_type": str(rng.choice(POSITION_TYPES))} if function.startswith("ARG") else {}
        y = dml.reduce(scattered(rng, x), function, axes, **kinds)
        assert y.shape == tuple(1 if k in {a % x.ndim for a in axes} else n for k, n in enumerate(shape))
        assert y.dtype == (kinds["output_data_type"].lower() if kinds else dtype)
        for at, row in rows(x, axes):
            wanted = EXACT[function](row)
            if kinds or function in ("MAX", "MIN"):
                assert y[at] == wanted
            elif dtype in WIDE:
                assert y[at] == wrapped(wanted, dtype)
            else:
                slack = 1e-14 * math.fsum(map(abs, row)) + (1e-6 if function.startswith("LOG") else 0)
                assert near(y[at], wanted, dtype, slack), (shape, axes, row, y[at], wanted)


KNOWN = """
SUM: inf 1 = inf, inf -inf = nan, nan 1 = nan, 60000 60000 -65504 = 54496
AVERAGE: 60000 60000 60000 60000 = 60000, -inf 2 = -inf
L2: 40000 30000 = 50000, 0 0 = 0, nan inf = nan
L1: -inf 3 = inf, -2 3 = 5
MULTIPLY: 0 inf = nan, -2 inf = -inf, 60000 60000 0.015625 0.0000152587890625 = 858.306884765625
SUM_SQUARE: inf 1 = inf, nan 1 = nan
LOG_SUM: 0 0 = -inf, -1 0 = nan, inf 1 = inf, 60000 60000 = 11.695247
LOG_SUM_EXP: -inf -inf = -inf, inf -inf = inf, nan 1 = nan, 60000 -1 = 60000, 89 89 = 89.693147
MAX: nan 1 = nan, 1 nan inf = nan, -inf -inf = -inf
MIN: nan 1 = nan, 1 nan -inf = nan, inf inf = inf
ARGMAX: 1 nan 5 nan = 1, 0 -0 0 = 0, -inf -inf = 0, 1 inf = 1
ARGMIN: 1 nan 0 nan = 1, 0 -0 = 0, inf inf = 0, 1 -inf = 1
"""
"""NaN counts as the extreme; infinities and the ends of the range go through every sum."""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("line", KNOWN.strip().split("\n"), ids=lambda line: line.split(":")[0])
def test_reduce_of_what_is_not_a_number(line, dtype):
    function, cases = line.split(": ")
    for case in cases.split(", "):
        row, wanted = (np.array(side.split(), float) for side in case.split(" = "))
        for many in (1, 8000):  # and by a kernel, where there is one
            y = dml.reduce(np.repeat(row.astype(dtype)[None], many, 0), function, [1])
            limit = {"rtol": 1e-3 if dtype == "float16" else 3e-7}
            np.testing.assert_allclose(y.astype(float), np.repeat(wanted[None], many, 0), **limit)


def test_every_function_is_known_here():
    assert set(TAKEN) == set(EXACT) == {line.split(":")[0] for line in KNOWN.split("\n") if line}
    assert set(TAKEN) == {f.name for f in dml.ReduceFunction}


def test_sums_do_not_lose_small_elements():
    x = np.r_[np.float32([2**26]), np.ones(40000, np.float32)]
    assert dml.reduce(x, "SUM", [0]) == dml.reduce(x, "L1", [0]) == 2**26 + 40000
    assert dml.reduce(np.ones((70, 1000), np.float16), "AVERAGE", [0, 1]) == 1
    assert dml.reduce(np.full((1, 20000), 3, np.float16), "SUM", [1]) == 60000


@pytest.mark.parametrize("axes", [[1, 1], [0, -2], [2]])
def test_axes_are_each_named_once(axes):
    with pytest.raises(dml.InvalidOperator, match="axes"):
        dml.reduce(np.ones((2, 3), np.float32), "SUM", axes)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("name", ["ARGMIN", "ARGMAX"])
def test_positions(name, dtype):
    rng = np.random.default_rng([12, *name.encode(), *dtype.encode()])
    extreme = min if name == "ARGMIN" else max
    for shape, axes in SHAPES:
        x = drawn(rng, shape, dtype)
        for direction in ("INCREASING", "DECREASING"):
            kind = str(rng.choice(POSITION_TYPES))
            y = getattr(dml, name.lower())(scattered(rng, x), axes, direction, output_data_type=kind)
            assert y.dtype == kind.lower()
            for at, row in rows(x, axes):
                edge = extreme(row)
                found = [k for k, v in enumerate(row) if v == edge]
                assert y[at] == found[0 if direction == "INCREASING" else -1]


# ---- running sums and products -------------------------------------------------------------------------


RUNNING = {dml.cumulative_summation: (0, operator.add), dml.cumulative_product: (1, operator.mul)}
WALKS = [((6,), 0), ((1, 1), 1), ((3, 4, 5), 1), ((3, 4, 5), 0), ((2, 1, 2, 3, 1, 2, 1, 2), 3)]
HOW = list(product(("INCREASING", "DECREASING"), (False, True)))
every_walk = pytest.mark.parametrize(("direction", "exclusive"), HOW)


@every_walk
@pytest.mark.parametrize("dtype", FLOATS + WIDE)
@pytest.mark.parametrize("function", RUNNING, ids=lambda f: f.__name__)
def test_running(function, dtype, direction, exclusive):
    rng = np.random.default_rng([13, *function.__name__.encode(), *dtype.encode(), exclusive])
    identity, step = RUNNING[function]
    backwards = slice(None, None, -1 if direction == "DECREASING" else 1)
    for shape, axis in WALKS:
        x = drawn(rng, shape, dtype)
        y = function(scattered(rng, x), axis, direction, exclusive)
        assert y.dtype == dtype
        for at, row in rows(x, [axis]):
            values = list(accumulate(row[backwards], step, initial=identity))
            wanted = (values[:-1] if exclusive else values[1:])[backwards]
            got = y[(*at[:axis], slice(None), *at[axis + 1 :])].tolist()
            if dtype in WIDE:
                assert got == [wrapped(v, dtype) for v in wanted]
            else:
                assert all(near(v, w, dtype, 1e-12) for v, w in zip(got, wanted, strict=True))


@every_walk
@pytest.mark.parametrize("function", RUNNING, ids=lambda f: f.__name__)
def test_running_along_any_axis_is_the_same(function, direction, exclusive):
    """Many elements behind the axis are computed as whole slices."""
    x = np.random.default_rng(16).uniform(-2, 2, (5, 300, 16)).astype(np.float32)
    y = function(x, 0, direction, exclusive)
    np.testing.assert_array_equal(y, function(x.T.copy(), 2, direction, exclusive).T)


def test_running_sums_round_once():
    """float16 reaches 2048 and goes on; what overflows in between comes back."""
    y = dml.cumulative_summation(np.ones(4096, np.float16), 0, "INCREASING", False)
    np.testing.assert_array_equal(y, np.arange(1, 4097).astype(np.float16))
    y = dml.cumulative_summation(np.float16([60000, 60000, -60000]), 0, "INCREASING", False)
    np.testing.assert_array_equal(y, np.float16([60000, INF, 60000]))


# ---- the largest ---------------------------------------------------------------------------------------


def first(row, k, largest):
    """Positions by comparing pairs: NaN is the largest, zeros are equal, equal ones stay in order."""

    def compare(i, j):
        a, b = ((math.isnan(row[n]), 0 if math.isnan(row[n]) else row[n]) for n in (i, j))
        return ((a > b) - (a < b)) * (-1 if largest else 1)

    return sorted(range(len(row)), key=cmp_to_key(compare))[:k]


@pytest.mark.parametrize("dtype", EVERY)
def test_top_k(dtype):
    rng = np.random.default_rng([14, *dtype.encode()])
    for shape, axis in [*WALKS, ((2, 1, 1, 2, 6), 4), ((2, 300), 1)]:
        x = drawn(rng, shape, dtype)
        if dtype in FLOATS:
            odd = np.array([NAN, -NAN, INF, -INF, 0.0, -0.0], dtype)
            x = np.where(rng.random(shape) < 0.4, rng.choice(odd, shape), x)
        for k in {1, shape[axis] // 2 or 1, shape[axis]}:
            for direction in (None, "INCREASING", "DECREASING"):
                kind = str(rng.choice(["UINT32", "UINT64"]))
                given, how = (scattered(rng, x), axis, k), {"output_data_type": kind}
                y, where = dml.top_k1(*given, direction, **how) if direction else dml.top_k(*given, **how)
                assert (y.dtype, where.dtype, y.shape) == (dtype, kind.lower(), where.shape)
                moved = [np.moveaxis(v, axis, -1) for v in (x, y, where)]
                for at in np.ndindex(*moved[0].shape[:-1]):
                    wanted = first(moved[0][at].tolist(), k, direction != "INCREASING")
                    assert moved[2][at].tolist() == wanted
                    np.testing.assert_array_equal(moved[1][at], moved[0][at][wanted])
                    if dtype in FLOATS:
                        assert not (np.signbit(moved[1][at]) ^ np.signbit(moved[0][at][wanted])).any()


@pytest.mark.parametrize("dtype", UP_TO_32_BIT)
def test_nonzero_coordinates(dtype):
    rng = np.random.default_rng([15, *dtype.encode()])
    for shape in [(1,), (9,), (3, 4), (1, 1, 5), (1, 2, 1, 3), (2, 1, 2, 1, 2, 1, 2, 3)]:
        for share in (0, 0.4, 1):
            x = np.where(rng.random(shape) < share, rng.choice([1, 5, 100], shape), 0).astype(dtype)
            if dtype in FLOATS:
                x[rng.random(shape) < 0.3] = -0.0
                x[rng.random(shape) < 0.1] = NAN
                x[rng.random(shape) < 0.1] = np.finfo(dtype).smallest_subnormal
            wanted = [list(at) for at in np.ndindex(*shape) if x[at] != 0]
            count, coordinates = dml.nonzero_coordinates(scattered(rng, x))
            assert (count.tolist(), count.dtype) == ([len(wanted)], np.uint32)
            assert coordinates.shape == (x.size, x.ndim)
            assert coordinates[: len(wanted)].tolist() == wanted
            assert not coordinates[len(wanted) :].any()


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_a_device_may_leave_out_coordinates_of_leading_sizes_of_1(columns):
    x = np.float32([[[[0, 1], [2, 0], [0, 3]]]])
    shapes = {"InputTensor": (1, 1, 3, 2), "OutputCountTensor": (1, 1, 1, 1)}
    shapes["OutputCoordinatesTensor"] = (1, 1, 6, columns)
    desc = {n: dml.TensorDesc("UINT32", s) for n, s in shapes.items()}
    desc["InputTensor"], device = dml.TensorDesc("FLOAT32", shapes.pop("InputTensor")), dml.Device()
    out = {n: np.zeros(s, np.uint32) for n, s in shapes.items()}
    made = device.create_operator({"Type": "NONZERO_COORDINATES", "Desc": desc})
    device.compile_operator(made).dispatch({"InputTensor": x}, out)
    assert out["OutputCountTensor"].item() == 3
    wanted = [[0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 2, 1]]
    assert out["OutputCoordinatesTensor"][0, 0, :3].tolist() == [row[4 - columns :] for row in wanted]


@pytest.mark.parametrize("k", [1, 2, 5, 8])
@pytest.mark.parametrize("direction", ["INCREASING", "DECREASING"])
def test_few_of_many_with_equal_infinite_and_missing_ones(direction, k):
    """Sorted by Python, which keeps the order of equal ones; NaN is the largest."""
    rng, down = np.random.default_rng([k, len(direction)]), direction == "DECREASING"
    for trial in range(20):
        choices = [0.0, -0.0, 1.0, -1.0, 2.0] + [np.inf, -np.inf, np.nan] * (trial % 2)
        x = rng.choice(np.array(choices, np.float32), (3, rng.integers(k, 14)))
        if trial % 4 == 1:
            x[0] = -np.inf if down else np.inf
        value, index = dml.top_k1(x, axis=1, k=k, axis_direction=direction)
        for row, got_value, got_index in zip(x, value, index, strict=True):
            keys = [(1, 0.0) if np.isnan(v) else (0, float(v)) for v in row]
            order = sorted(
                range(len(row)), key=lambda i: (tuple(-k for k in keys[i]) if down else keys[i], i)
            )
            assert got_index.tolist() == order[:k]
            np.testing.assert_array_equal(got_value, row[order[:k]])


@pytest.mark.parametrize("axes", [[0], [1], [0, 1], [1, 2], [2, 1, 0]])
@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "L1", "L2", "SUM_SQUARE", "LOG_SUM"])
def test_columns(function, axes):
    """Of so many elements that they are added up by kernels, some of them at a time."""
    x = np.random.default_rng(len(function)).uniform(0.1, 1, (19, 18, 17, 16)).astype(np.float32)
    x -= 0.5 * (function != "LOG_SUM")
    wide, along = x.astype(float), tuple(axes)
    terms = {"L1": abs(wide), "L2": wide**2, "SUM_SQUARE": wide**2}.get(function, wide)
    wanted = terms.sum(along, keepdims=True)
    if function == "AVERAGE":
        wanted /= np.prod([x.shape[a] for a in axes])
    elif function == "L2":
        wanted = wanted**0.5
    elif function == "LOG_SUM":
        wanted = np.log(wanted)
    for given in (x, np.asfortranarray(x)):
        np.testing.assert_allclose(dml.reduce(given, function, axes), wanted, rtol=1e-6, atol=1e-7)
