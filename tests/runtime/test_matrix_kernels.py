"""Products of matrices by kernels: against float64, against the definition, and the same on any number of threads."""

import numpy as np
import pytest

import anydml as dml
from anydml.runtime import matrix_kernels

RNG = np.random.default_rng(0)
SHAPES = [
    ((1, 1, 1), ()),
    ((1, 1, 130), ()),
    ((2, 3, 1), ()),
    ((5, 17, 3), ()),
    ((6, 16, 64), ()),
    ((7, 20, 65), ()),
    ((13, 33, 100), ()),
    ((1, 70, 333), ()),
    ((1, 333, 70), ()),
    ((33, 40, 1), ()),
    ((9, 15, 2), ()),
    ((65, 100, 31), ()),
    ((4, 8, 5), (2, 3)),
    ((19, 21, 23), (3, 1)),
]
LAYOUTS = {
    "packed": lambda x: x,
    "turned": lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2),
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[..., ::-1, :].copy()[..., ::-1, :],
}


def drawn(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def product(a, b):
    return np.matmul(a.astype(np.float64), b.astype(np.float64))


def near(got, wanted, a, b):
    """Within what sums of so many rounded products may err."""
    most = np.matmul(abs(a).astype(np.float64), abs(b).astype(np.float64))
    bound = (a.shape[-1] + 4) * 2.0**-24 * (most + abs(wanted)) + 1e-37
    assert (abs(got - wanted) <= bound).all(), abs(got - wanted).max()


def turned(x, whether):
    return np.ascontiguousarray(np.swapaxes(x, -1, -2)) if whether else x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("sizes", "stack"), SHAPES)
def test_products(by_both, sizes, stack, layout):
    m, k, n = sizes
    a, b = drawn(*stack, m, k), drawn(*stack, k, n)
    wanted = product(a, b)
    for trans_a in (False, True):
        for trans_b in (False, True):
            x, y = (LAYOUTS[layout](turned(z, t)) for z, t in ((a, trans_a), (b, trans_b)))
            words = {f"trans_{n}": "TRANSPOSE" if t else "NONE" for n, t in (("a", trans_a), ("b", trans_b))}
            for got in by_both(lambda x=x, y=y, words=words: dml.gemm(x, y, **words)):
                near(got, wanted, a, b)


@pytest.mark.parametrize(("sizes", "stack"), [s for s in SHAPES if s[0][0] > 1])
def test_columns_that_are_copied_first(by_both, monkeypatch, sizes, stack):
    """As those of a large second matrix are, of which the last tile begins earlier."""
    for name, least in {"MIN_PANELS_ROWS": 2, "MIN_PANELS_DEPTH": 1, "PAGE": 4}.items():
        monkeypatch.setattr(matrix_kernels, name, least)
    m, k, n = sizes
    a, b, c = drawn(*stack, m, k), drawn(*stack, k, n), drawn(*stack, m, n)
    for x, y in ((a, b), (LAYOUTS["turned"](a), LAYOUTS["every other"](b))):
        for got in by_both(lambda x=x, y=y: dml.gemm(x, y, c)):
            near(got, product(a, b) + c, a, b)


@pytest.mark.parametrize(
    "sizes", [(64, 600, 450), (130, 1030, 1024), (129, 1024, 2048), (65, 2100, 130), (3, 3000, 400)]
)
def test_large_matrices(by_both, sizes, monkeypatch):
    monkeypatch.setattr(matrix_kernels, "_is_for_blas", lambda *sizes: False)
    m, k, n = sizes
    a, b = drawn(m, k), drawn(k, n)
    for got in by_both(lambda: dml.gemm(a, b)):
        near(got, product(a, b), a, b)


@pytest.mark.parametrize("sizes", [(64, 600, 450), (1, 1030, 1024), (8, 800, 1400)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_large_matrices_by_whatever_is_best(sizes, dtype):
    m, k, n = sizes
    a, b, c = (x.astype(dtype) for x in (drawn(m, k), drawn(k, n), drawn(m, n)))
    for _ in range(3):
        got = dml.gemm(a, b, c, alpha=0.5, fused_activation="RELU")
        wanted = np.maximum(0.5 * product(a, b) + c, 0)
        if dtype == "float16":
            np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
        else:
            near(got, wanted, a, b)
        assert got.dtype == dtype


def test_a_matrix_that_is_far_from_a_core_is_left_to_others(by_both):
    a, b = drawn(2100, 2100), drawn(2100, 8)
    for got in by_both(lambda: dml.gemm(a, b), by_kernel=False):
        near(got, product(a, b), a, b)


@pytest.mark.parametrize("sizes", [(1, 20, 70), (7, 33, 65), (30, 12, 1), (5, 9, 3)])
@pytest.mark.parametrize("c", ["whole", "row", "column", "number", "turned"])
def test_what_is_added(by_both, sizes, c):
    m, k, n = sizes
    a, b = drawn(m, k), drawn(k, n)
    beside = {
        "whole": drawn(m, n),
        "row": drawn(1, n),
        "column": drawn(m, 1),
        "number": drawn(1, 1),
        "turned": drawn(n, m).T,
    }[c]
    for alpha, beta in ((1, 1), (0.5, 1), (1, -2), (-1.5, 0.25), (0, 1)):
        wanted = alpha * product(a, b) + beta * beside.astype(float)
        for trans_b in ("NONE", "TRANSPOSE"):
            y = turned(b, trans_b == "TRANSPOSE")
            call = lambda y=y, t=trans_b: dml.gemm(a, y, beside, trans_b=t, alpha=alpha, beta=beta)  # noqa: E731, B023
            for got in by_both(call):
                assert (abs(got - wanted) <= 1e-5 * (1 + abs(wanted) + k)).all()


@pytest.mark.parametrize(
    "activation",
    [
        "RELU",
        "SIGMOID",
        dml.OperatorDesc("ACTIVATION_LEAKY_RELU", {"Alpha": 0.1}),
        dml.OperatorDesc("ELEMENT_WISE_CLIP", {"Min": -1.0, "Max": 1.0}),
        "SOFTMAX",
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(1, 20, 70), (7, 33, 65), (30, 12, 1)])
def test_activations(by_both, activation, sizes):
    m, k, n = sizes
    a, b, c = drawn(m, k), drawn(k, n), drawn(1, n)
    kernel, definition = by_both(lambda: dml.gemm(a, b, c, fused_activation=activation))
    np.testing.assert_allclose(kernel, definition, rtol=2e-4, atol=2e-5)
    assert kernel.std() > 0 or n == 1


def test_numbers_that_are_none(by_both):
    a, b = drawn(7, 19), drawn(19, 40)
    a[1, 3], a[2, 5], b[4, 7], b[6, 9] = np.nan, np.inf, -np.inf, np.nan
    for y, trans_b in ((b, "NONE"), (turned(b, True), "TRANSPOSE")):
        kernel, definition = by_both(lambda y=y, t=trans_b: dml.gemm(a, y, trans_b=t))
        assert np.array_equal(np.isnan(kernel), np.isnan(definition))
        assert np.array_equal(np.isinf(kernel), np.isinf(definition))
        assert np.isnan(kernel).any()
        assert np.isinf(kernel).any()


def test_half_floats(by_both):
    a, b = drawn(9, 33).astype(np.float16), drawn(33, 20).astype(np.float16)
    for got in by_both(lambda: dml.gemm(a, b)):
        assert got.dtype == np.float16
        assert abs(got - product(a, b)).max() < 0.02


def test_sums_go_in_order(by_both):
    """Each is a chain over k, wherever its tile begins: the same number for every column and row."""
    k, n = 50, 150
    x, y = drawn(k), drawn(k)
    exact = np.float32(0)
    for p, q in zip(x.astype(np.float64), y.astype(np.float64), strict=True):
        exact = np.float32(p * q + exact)  # a float64 has all of it but for a double rounding, which is rare
    for rows in (1, 2, 8):
        a, b = np.tile(x, (rows, 1)), np.tile(y[:, np.newaxis], (1, n))
        kernel, _ = by_both(lambda a=a, b=b: dml.gemm(a, b))
        assert len(np.unique(kernel)) == 1
        assert abs(kernel.ravel()[0] - exact) <= np.spacing(abs(exact))


def test_out(by_both):
    a, b = drawn(40, 40), drawn(40, 40)
    wanted = dml.gemm(a, b)
    out = np.empty((40, 40), np.float32)
    assert dml.gemm(a, b, out=out) is out
    assert out.tobytes() == wanted.tobytes()
    inside = a.copy()
    dml.gemm(inside, b, out=inside)
    assert inside.tobytes() == wanted.tobytes()
