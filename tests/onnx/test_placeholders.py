"""Sizes on which a branch cannot fail: where none would help, none are tried in vain."""

import numpy as np
import pytest
from onnx import parser

import anydml
from anydml.onnx.if_conversion import placeholders

HEAD = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 8] x, float[8, k] w, int64[j] places, bool[n] wanted, bool c) => (float[a, b] y) {{
    y = If (c) <then_branch = t () => (float[d, e] p) {{ {nodes} }},
                else_branch = f () => (float[o, l] q) {{ q = Abs (x) }}> }}"""
PART = "z = Compress <axis = 0> (x, wanted)"
NEVER = {
    "a part": f"{PART} p = Neg (z)",
    "a part, and what it says": f"{PART} v = ReduceMax <keepdims = 0> (z) at = Cast <to = 7> (v) "
    "r = Gather (x, at) p = Mul (x, r)",
    "a part before an If": f"""{PART} v = ReduceSum <keepdims = 0> (z) o = CastLike (c, v)
        high = Greater (v, o) p = If (high) <then_branch = r () => (float[h, i] s) {{ s = Exp (x) }},
        else_branch = u () => (float[h, i] m) {{ m = Neg (x) }}>""",
}
SOMETIMES = {
    "sixteen": """k = Constant <value_ints = [2, 64]> () z = Reshape (x, k) p = Neg (z)""",
    "indices behind sizes": """k = Constant <value_ints = [2, 64]> () z = Reshape (x, k)
        at = Constant <value_ints = [1, 63]> () p = Gather <axis = 1> (z, at)""",
}


def guesses(monkeypatch, nodes):
    """How many sizes were tried for the branch, and the report."""
    count = 0
    specialize = placeholders.specialize

    def counted(*given, **named):
        nonlocal count
        count += 1
        return specialize(*given, **named)

    monkeypatch.setattr(placeholders, "specialize", counted)
    _, report = anydml.flatten(parser.parse_model(HEAD.format(nodes=nodes)), convert="always", verify=False)
    return count, report


@pytest.mark.parametrize("name", NEVER)
def test_no_sizes_help(name, monkeypatch):
    count, report = guesses(monkeypatch, NEVER[name])
    assert report.left
    assert 1 <= count <= 4  # for each branch, as it is and with other operands: once


@pytest.mark.parametrize("name", SOMETIMES)
def test_some_sizes_help(name):
    model = parser.parse_model(HEAD.format(nodes=SOMETIMES[name]))
    flat, report = anydml.flatten(model, convert="always")
    x = np.random.default_rng(2).normal(size=(16, 8)).astype(np.float32)
    feeds = {
        "x": x,
        "w": np.ones((8, 3), np.float32),
        "places": np.array([1]),
        "wanted": np.ones(16, bool),
    }
    assert report.left == 0
    for truth in (True, False):
        given = feeds | {"c": np.array(truth)}
        results = [
            anydml.load(each).run(None, {i.name: given[i.name] for i in each.graph.input})[0]
            for each in (model, flat)
        ]
        np.testing.assert_array_equal(*results)
