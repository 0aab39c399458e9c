"""The tools that write files of the project can still do so."""

from collections import Counter

import numpy as np
import onnx

import anydml
from demo.speech import model_path
from tests.operators.cases import CASES
from tools import claims, draw_flatten, draw_speech, fit_math, generate_docs, measure_accuracy


def test_accuracy_is_measured(monkeypatch):
    monkeypatch.setattr(measure_accuracy, "SAMPLES", 64)
    monkeypatch.setattr(measure_accuracy, "MOST", 1)
    case = CASES["ELEMENT_WISE_TANH"]
    name, dtype, worst, _, other = measure_accuracy._row(case, {k: np.dtype("float32") for k in case.types})
    assert (name, dtype, other) == ("TANH", "float32", "")
    assert 0.5 <= float(worst) <= 2
    *_, other = measure_accuracy._row(CASES["ELEMENT_WISE_EXP"], {"T": np.dtype("float16")})
    assert 0 < int(other) < 10  # e to 0.0073 and to 0.0227 lie next to the middle of two float16
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


def test_flatten_is_drawn(monkeypatch, tmp_path):
    """Every node that is no constant once, and every If with its branches; in the branch that it is in."""
    drawn = Counter()
    boxes = []
    box = draw_flatten._box

    def counted(axes, x, y, width, height, color, edge="none"):
        drawn[color] += 1
        boxes.append((x, y, x + width, y + height))
        box(axes, x, y, width, height, color, edge)

    monkeypatch.setattr(draw_flatten, "_box", counted)
    draw_flatten.main(tmp_path / "flatten.png")
    before = anydml.inspect(model_path())
    after = anydml.inspect(anydml.flatten(model_path(), fixed=draw_flatten.FIXED, verify=False)[0])
    nodes = before.nodes - before.operators["Constant"]
    assert draw_flatten.counted(onnx.load(model_path()).graph) == (nodes, before.ifs)
    squares = nodes - before.ifs + after.nodes
    assert drawn == {draw_flatten.NODE: squares + 1, "white": 25} | dict.fromkeys(
        draw_flatten.BRANCHES.values(), 26
    )  # one more of each in the legend
    left, top, right, bottom = np.array(boxes).T
    apart = (
        (right[:, None] <= left)
        | (left[:, None] >= right)
        | (bottom[:, None] <= top)
        | (top[:, None] >= bottom)
    )
    within = (
        (left[:, None] >= left)
        & (right[:, None] <= right)
        & (top[:, None] >= top)
        & (bottom[:, None] <= bottom)
    )
    assert (apart | within | within.T).all()
    for picture in (tmp_path / "flatten.png", draw_flatten.TARGET):
        content = picture.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20]) == 1600
        assert len(content) < 150_000


def test_types_in_brief():
    brief = generate_docs.in_brief
    assert brief("float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint32") == (
        "float16, float32, int8..64, uint8, uint32"
    )
    assert brief("uint8") == "uint8"
    assert brief("int4 | int8 | int16 | uint8 | uint16 | uint32") == "int4..16, uint8..32"


def test_speech_is_drawn(tmp_path):
    draw_speech.main(tmp_path / "speech.png")
    for picture in (tmp_path / "speech.png", draw_speech.TARGET):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size < 200_000
