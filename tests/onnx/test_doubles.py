"""Functions of float64 in kernels and programs, to 2 ULP of mpmath."""

import mpmath
import numpy as np
import onnx
import pytest

import anydml as dml

COUNT = 1500
EXACT = {
    "Exp": mpmath.exp,
    "Log": mpmath.log,
    "Tanh": mpmath.tanh,
    "Sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "Softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
}
INF, NAN = np.inf, np.nan
ENDS = {  # of infinity, minus infinity, NaN, 0, -0
    "Exp": [INF, 0, NAN, 1, 1],
    "Log": [INF, NAN, NAN, -INF, -INF],
    "Tanh": [1, -1, NAN, 0, -0.0],
    "Sigmoid": [1, 0, NAN, 0.5, 0.5],
    "Softplus": [INF, 0, NAN, np.log(2), np.log(2)],
}


def arguments(name):
    rng = np.random.default_rng(1)
    x = [rng.uniform(-a, a, COUNT) for a in (1, 2, 20)] + [rng.uniform(-750, 715, COUNT)]
    x += [rng.standard_normal(COUNT) * 2.0 ** rng.integers(-1070, 10, COUNT), [5e-324, -5e-324, 2.0**-1022]]
    if name == "Log":
        positive = rng.integers(1, 0x7FF << 52, COUNT).view(np.float64)
        x += [positive, rng.integers(1, 1 << 52, COUNT).view(np.float64), rng.uniform(0.99, 1.01, COUNT)]
        x = [np.abs(a) for a in x]
    return np.concatenate(x)


def errors(name, x, got):
    """In units of the last place. Powers of e beyond what float64 has are infinite, or 0."""
    with mpmath.workprec(1200):
        for a, y in zip(x.tolist(), got.tolist(), strict=True):
            exact = EXACT[name](mpmath.mpf(a))
            if exact > mpmath.mpf(np.finfo(np.float64).max):
                assert y == INF
                continue
            unit = mpmath.mpf(np.spacing(abs(float(exact))))
            yield float(abs(mpmath.mpf(y) - exact) / unit)


@pytest.mark.drawn
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_against_mpmath(name, native):
    text = (
        f"""<ir_version: 8, opset_import: ["": 18]> m (double[n] x) => (double[n] y) {{ y = {name} (x) }}"""
    )
    session = dml.load(onnx.parser.parse_model(text), threads=1, native=native)
    x = arguments(name)
    (got,) = session.run(None, {"x": x})
    assert (("program" if native else "kernels") + f": {name}") in session.explain()
    assert max(errors(name, x, got)) <= 2
    (ends,) = session.run(None, {"x": np.array([INF, -INF, NAN, 0.0, -0.0])})
    np.testing.assert_array_equal(ends, ENDS[name])
    assert np.signbit(ends[4]) == (np.signbit(ENDS[name][4]))
