"""Sizes that are open are none of them 0, and so is what follows: what libraries do wrong with nothing only is
left to them."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import anydml as dml

HEAD = '<ir_version: 8, opset_import: ["": 17]> m '
BROADCAST = """(float[a,b] x, float[c,d] y) => (float[e] best) { z = Add(x, y) best = Einsum<equation="ij,kj->i">(z, z) }"""
EXPANDED = """(float[a,1] x, float[c,d] y) => (float[e] best) {
    sizes = Shape(y) z = Expand(x, sizes) best = Einsum<equation="ij,kj->i">(z, z) }"""
SORTED = """(float[a] x, float[c,d] y) => (float[e] best) {
    sizes = Shape(x) values, places = TopK(x, sizes) z = Unsqueeze(values, last) w = Add(z, y)
    best = Einsum<equation="ij,kj->i">(w, w) }"""
RESHAPED = """(float[a,b] x, float[c,d] y) => (float[e] best) {
    z = Mul(x, y) t = Transpose<perm=[1,0]>(z) s = Reshape(t, flat) best = Einsum<equation="ij,kj->i">(s, s) }"""


def made(text):
    model = parser.parse_model(HEAD + text)
    for name, content in (("last", [1]), ("flat", [1, -1])):
        if f", {name})" in text:
            node = parser.parse_model(
                HEAD
                + f"() => (int64[n] k) {{ {name} = Constant<value_ints={content}>() k = Identity({name}) }}"
            )
            model.graph.node.insert(0, node.graph.node[0])
    return model.SerializeToString()


@pytest.mark.parametrize(
    "text", [BROADCAST, EXPANDED, SORTED, RESHAPED], ids=["broadcast", "expanded", "sorted", "reshaped"]
)
def test_one_region_for_all_sizes(text):
    model = made(text)
    session, theirs = (
        dml.load(model, native=False),
        ort.InferenceSession(model, providers=["CPUExecutionProvider"]),
    )
    rng = np.random.default_rng(2)
    for n in range(1, 6):
        feeds = {
            i.name: rng.standard_normal([1 if k == 1 else n + 1 for k in i.shape]).astype(np.float32)
            for i in session.get_inputs()
        }
        np.testing.assert_allclose(
            session.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-4, atol=1e-4
        )
    last = session.explain().split("plan for")[-1]
    assert "?" in last
    assert "without elements" not in last
    assert last.count("onnxruntime: ") == 1


@pytest.mark.parametrize("text", [BROADCAST, RESHAPED], ids=["broadcast", "reshaped"])
def test_nothing_may_still_come(text):
    """Where a size is 0 there is a plan of its own."""
    session = dml.load(made(text), native=False)
    for n in (2, 3, 4, 5):
        session.run(None, {name: np.ones((n, n), np.float32) for name in ("x", "y")})
    nothing = {name: np.ones((0, 4), np.float32) for name in ("x", "y")}
    assert session.run(None, nothing)[0].shape == ((0,) if text is BROADCAST else (1,))


@pytest.mark.parametrize(
    "body",
    [
        "y = Where (c, ab, ab)",
        "y = Where (c, none, one)",
        "y = Where (c, one, none)",
        "no = Constant <value = bool[2] {0, 0}> ()  b = And (c, no)  y = Cast <to = 7> (b)",
        "yes = Constant <value = bool[2] {1, 1}> ()  b = Or (yes, c)  y = Cast <to = 7> (b)",
    ],
)
@pytest.mark.parametrize("native", [None, False, True])
def test_what_does_not_fit_fails_whoever_decides(body, native):
    """What is chosen is the same either way; of how many there may be one, or as many."""
    text = f"""<ir_version: 8, opset_import: ["": 17]> m (bool[n] c) => (int64[k] y)
        <int64[2] ab = {{3, 4}}, int64[0] none = {{}}, int64 one = {{1}}> {{ {body} }}"""
    file = parser.parse_model(text).SerializeToString()
    session, peer = dml.load(file, native=native, threads=1), ort.InferenceSession(file)
    for n in (1, 2, 7, 1, 7, 5, 2, 1):
        c = np.ones(n, bool)
        try:
            (wanted,) = peer.run(None, {"c": c})
        except Exception:
            with pytest.raises(dml.ExecutionFailed):
                session.run(None, {"c": c})
        else:
            np.testing.assert_array_equal(session.run(None, {"c": c})[0], wanted)


@pytest.mark.parametrize("op", ["Mul", "Add", "Div", "Equal", "Less"])
def test_known_numbers_beside_those_of_open_number(op):
    """How many indices NonZero gives is open, while what they meet is known."""
    made = "bool" if op in ("Equal", "Less") else "int64"
    model = parser.parse_model(
        f"""{HEAD}(int64[1] x) => ({made}[a, b] z) <int64[3] y = {{1, 3, 4}}> {{
        k = NonZero (x)  one = Mul (k, k)  j = Add (one, x)  z = {op} (y, j) }}"""
    ).SerializeToString()
    session = dml.load(model)
    theirs = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for x in (np.int64([2]), np.int64([5]), np.int64([2])):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], theirs.run(None, {"x": x})[0])
