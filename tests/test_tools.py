"""The tools that write files of the project can still do so."""

import numpy as np

from tests.operators.cases import CASES
from tools import claims, fit_math, measure_accuracy


def test_accuracy_is_measured(monkeypatch):
    monkeypatch.setattr(measure_accuracy, "COUNT", 2000)
    case = CASES["ELEMENT_WISE_TANH"]
    name, dtype, worst, *_ = measure_accuracy._row(case, {k: np.dtype("float32") for k in case.types})
    assert (name, dtype) == ("TANH", "float32")
    assert 0.5 <= float(worst) <= 2
    assert measure_accuracy.TARGET.is_file()


def test_coefficients_are_fitted(monkeypatch):
    monkeypatch.setattr(fit_math, "COEFFICIENTS", {})
    fit_math.odd_f32("SINH", fit_math.mp.sinh, 1.0, 4)
    assert np.allclose(fit_math.COEFFICIENTS["SINH"], [1 / 6, 1 / 120, 1 / 5040, 1 / 362880], rtol=0.02)
    assert fit_math.TARGET.is_file()


def test_every_figure_says_what_measured_it_and_when():
    """In the README and the pages; and that command is there."""
    found = list(claims.claims())
    assert len(found) >= 15
    assert [c for c in found if c.measured is None] == []
    assert [c.command for c in found if not claims.exists(c.command)] == []


def test_claims_are_found():
    page = "# A\n\n| a |\n| --- |\n| 1.5 |\n\n## B\n\n<!-- measured 2026-01-02 by make bench -->\n\n| a |\n| --- |\n| 3 ms |\n"
    page += "\n## C\n\n<!-- not measured -->\n\n| a |\n| --- |\n| 1.5 |\n"
    first, second = claims._of_page("page", page)
    assert (first.section, first.measured, second.section, second.command) == ("A", None, "B", "make bench")
    assert not claims.exists("make nothing")
    assert not claims.exists("python -m tools.nothing")
