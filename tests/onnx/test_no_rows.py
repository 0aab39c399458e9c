"""What loops gather that have no iteration: rows of the sizes that follow, as in onnxruntime."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import anydml

HEAD = '<ir_version: 10, opset_import: ["" : 18]>\n'
LOOP = """g (int64 n, bool go, {given} x) => (float[a] s, float[b, e] y) {{
    s, y = Loop (n, go, x) <body = b (int64 i, bool c, float[?] p) => (bool d, float[?] q, {told} row) {{
        d = Identity (c) q = Neg (p) {nodes} }}> }}"""
SCAN = """g (float[t, 4] rows, {given} x) => (float[a] s, float[b, e] y) {{
    s, y = Scan <num_scan_inputs = 1, scan_output_axes = [{axis}],
        body = b (float[?] p, float[?] r) => (float[?] q, {told} row) {{ q = Neg (p) {nodes} }}> (x, rows) }}"""
NODES = {
    "all of x": "row = Abs (x)",
    "a part": "one = Constant <value_ints = [1]> () three = Constant <value_ints = [3]> () "
    "row = Slice (x, one, three)",
    "a state": "row = Abs (p)",
    "by an If": """total = ReduceSum <keepdims = 0> (x) k = Constant <value_float = 0.0> ()
    high = Greater (total, k)
    row = If (high) <then_branch = t () => (float[?] u) { u = Abs (x) },
                     else_branch = e () => (float[?] v) { v = Neg (x) }>""",
}
SIZES = {"all of x": 3, "a part": 2, "a state": 3, "by an If": 3}
"""Of a row. That states keep theirs follows for nobody."""
TOLD = {"that size": "float[{}]", "any": "float[?]", "a name": "float[m]"}
"""What the file says of it."""
FEEDS = {
    "n": np.array(0),
    "go": np.array(True),
    "x": np.float32([1, 2, 3]),
    "rows": np.zeros((0, 4), np.float32),
}


def feeds_of(model):
    return {i.name: FEEDS[i.name] for i in model.graph.input}


def computed(model):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds_of(model))


def loop(kind, given, told):
    row = TOLD[told].format(SIZES[kind])
    return parser.parse_model(HEAD + LOOP.format(given=given, told=row, nodes=NODES[kind]))


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("given", ["float[3]", "float[k]"])
@pytest.mark.parametrize("kind", NODES)
def test_loops(kind, given, told, native):
    model = loop(kind, given, told)
    _, right = computed(model)
    _, y = anydml.load(model, native=native).run(None, feeds_of(model))
    if given == "float[3]" or kind == "a state":
        assert y.shape == right.shape
    else:  # more is known when it runs
        assert y.shape == (0, SIZES[kind])
    assert y.dtype == right.dtype


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", ["all of x", "a part", "by an If"])
def test_scans(kind, axis, native):
    """onnxruntime refuses to go over nothing, or ends the process."""
    text = SCAN.format(given="float[3]", told="float[?]", nodes=NODES[kind], axis=axis)
    model = parser.parse_model(HEAD + text)
    s, y = anydml.load(model, native=native).run(None, feeds_of(model))
    np.testing.assert_array_equal(s, FEEDS["x"])
    assert y.shape == ((0, SIZES[kind]) if axis == 0 else (SIZES[kind], 0))


@pytest.mark.parametrize("told", ["float[3]", "float[?]"])
def test_an_iteration_at_a_time(told):
    """A body that onnxruntime does not run: what is known of its rows, and what the file says of the rest."""
    nodes = "small = Cast <to = 22> (p) back = Cast <to = 1> (small) row = Abs (back)"
    model = parser.parse_model(
        HEAD.replace("18", "21") + LOOP.format(given="float[3]", told=told, nodes=nodes)
    )
    session = anydml.load(model)
    _, y = session.run(None, feeds_of(model))
    assert "an iteration at a time" in session.explain()
    assert y.shape == (0, 3)


@pytest.mark.parametrize("convert", ["auto", "always"])
@pytest.mark.parametrize("sizes", [{}, {"x": (3,)}])
@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("kind", NODES)
def test_flat_files(kind, told, sizes, convert):
    """Sizes that were given are known in the flat file; the original is compared with those known, too."""
    model = loop(kind, "float[k]", told)
    flat, report = anydml.flatten(model, shapes=sizes, convert=convert)
    assert report.verified.agreed
    _, y = computed(flat)
    known = told == "that size" or (sizes and kind != "a state")
    assert y.shape == (0, SIZES[kind] if known else 0)
