"""The tools that write files of the project can still do so."""

import numpy as np

from tests.operators.cases import CASES
from tools import fit_math, measure_accuracy


def test_accuracy_is_measured(monkeypatch):
    monkeypatch.setattr(measure_accuracy, "COUNT", 2000)
    case = CASES["ELEMENT_WISE_TANH"]
    name, dtype, worst, _ = measure_accuracy._row(case, {k: np.dtype("float32") for k in case.types})
    assert (name, dtype) == ("TANH", "float32")
    assert 0.5 <= float(worst) <= 2
    assert measure_accuracy.TARGET.is_file()


def test_coefficients_are_fitted(monkeypatch):
    monkeypatch.setattr(fit_math, "COEFFICIENTS", {})
    fit_math.odd_f32("SINH", fit_math.mp.sinh, 1.0, 4)
    assert np.allclose(fit_math.COEFFICIENTS["SINH"], [1 / 6, 1 / 120, 1 / 5040, 1 / 362880], rtol=0.02)
    assert fit_math.TARGET.is_file()
