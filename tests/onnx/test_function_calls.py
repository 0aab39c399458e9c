"""Local functions with default attributes, and at another opset than the model, as onnxruntime calls them."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml

DEFAULTS = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
g (float[n,3] x) => (float[n,3] y, float[n,3] z, float[n,3] w) {
    y = my.f (x)  z = my.f <alpha = 0.7> (x)  w = my.g (x) }
<domain: "my", opset_import: ["" : 18]> f <alpha : float = 0.25> (a) => (b) {
    b = LeakyRelu <alpha : float = @alpha> (a) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> g (a) => (b) { c = my.f (a)  b = Neg (c) }"""

OTHER_OPSET = """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[n,3] x, int64 k) => (float[n,3] y) {
    t = Constant <value_int = 1> ()  c = Cast <to = 9> (t)
    y = Loop (k, c, x) <body = b (int64 i, bool d, float[n,3] s) => (bool e, float[n,3] r) {
        e = Identity (d)  r = my.f (s) }> }
<domain: "my", opset_import: ["" : 16, "my" : 1]> f (a) => (b) { m = my.h (a)  b = Add (m, a) }
<domain: "my", opset_import: ["" : 13]> h (a) => (b) { b = Tanh (a) }"""

OTHER_MEANING = """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (float[n,3] x) => (float[n,1] y) { y = my.f (x) }
<domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = ReduceMean <axes = [1]> (a) }"""


def agree(text, **others):
    data = onnx.parser.parse_model(text).SerializeToString()
    sessions = [anydml.load(data, native=native) for native in (None, True, False)]
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    for n in (2, 3, 1, 4):
        feeds = {"x": np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32), **others}
        expected = theirs.run(None, feeds)
        for session in sessions:
            for a, b in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_default_attributes():
    agree(DEFAULTS)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_function_at_another_opset_that_means_the_same(count):
    agree(OTHER_OPSET, k=np.array(count))


def test_a_function_at_another_opset_that_is_converted():
    """onnxruntime takes its nodes for those of the model's opset, and refuses them."""
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    (y,) = anydml.load(onnx.parser.parse_model(OTHER_MEANING)).run(None, {"x": x})
    np.testing.assert_allclose(y, x.mean(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    "imports",
    [
        '"" : 18, "my" : 18',  # jax2onnx gives its own domain the version of ONNX's
        '"" : 18, "my" : 1, "unused" : 7',
    ],
)
def test_what_a_function_says_of_its_own_domain_and_of_others(imports):
    agree(f"""<ir_version: 10, opset_import: ["" : 18, "my" : 1, "unused" : 1]>
g (float[n,3] x) => (float[n,3] y) {{ y = my.f (x) }}
<domain: "my", opset_import: [{imports}]> f (a) => (b) {{ m = my.h (a)  b = Add (m, a) }}
<domain: "my", opset_import: ["" : 18]> h (a) => (b) {{ b = Tanh (a) }}""")


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (
            "b = Loop (t, , a) <body = g (int64 i, bool c, float[2] p) => (bool c, float[2] q) { q = Add (p, p) }>",
            [8, 16],
        ),
        (
            "b = Loop (t, , a) <body = g (int64 i, bool c, float[2] p) => (bool d, float[2] p) { d = Identity (c) }>",
            [1, 2],
        ),
        (
            "z, b = Scan <num_scan_inputs = 1, body = g (float p, float s) => (float p, float q) { q = Add (p, s) }> (o, a)",
            [2, 3],
        ),
        (
            "z, b = Scan <num_scan_inputs = 1, body = g (float p, float s) => (float s, float s) { }> (o, a)",
            [1, 2],
        ),
    ],
    ids=["condition", "carried", "state", "an input twice"],
)
def test_bodies_in_functions_that_hand_an_input_on(node, wanted):
    """onnx's inliner gives the two another name each."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "my": 1]> m (float[2] x) => (float[2] y) {{ y = my.f (x) }}
        <domain: "my", opset_import: ["": 17]> f (a) => (b) {{
          t = Constant <value = int64 {{3}}> ()  o = Constant <value = float {{1}}> ()  {node} }}"""
    for native in (None, True, False):
        session = anydml.load(onnx.parser.parse_model(text), native=native)
        for _ in range(2):
            assert session.run(None, {"x": np.float32([1, 2])})[0].tolist() == wanted
