"""Branches of quantized models: what a device without control flow is given is quantized more often than not."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import anydml
from anydml.onnx.closeness import Tolerance, how_far, one_overflows
from tests.models import computed_or_given, content_of

HEAD = '<ir_version: 9, opset_import: ["" : 19]> main '
RNG = np.random.default_rng(2)
CONSTANTS = {
    "w": RNG.integers(-60, 61, (8, 5)).astype(np.int8),
    "f": RNG.integers(-60, 61, (4, 2, 3, 3)).astype(np.int8),
    "xs": np.float32(0.1),
    "ws": np.float32(0.2),
    "columns": np.full(5, 0.2, np.float32),
    "filters": np.full(4, 0.2, np.float32),
    "zeros5": np.zeros(5, np.int8),
    "zeros4": np.zeros(4, np.int8),
    "ys": np.float32(40),
    "x0": np.uint8(128),
    "w0": np.int8(0),
    "c": np.arange(4, dtype=np.int32),
}
BRANCHES = {
    "MatMulInteger": ("uint8[n,8]", "int32[n,5]", "MatMulInteger (x, w, x0, w0)"),
    "without zero points": ("uint8[n,8]", "int32[n,5]", "MatMulInteger (x, w)"),
    "of columns": ("uint8[n,8]", "int32[n,5]", "MatMulInteger (x, w, x0, zeros5)"),
    "QLinearMatMul": ("uint8[n,8]", "uint8[n,5]", "QLinearMatMul (x, xs, x0, w, ws, w0, ys, x0)"),
    "scaled columns": ("uint8[n,8]", "uint8[n,5]", "QLinearMatMul (x, xs, x0, w, columns, zeros5, ys, x0)"),
    "ConvInteger": ("uint8[n,2,5,5]", "int32[n,4,3,3]", "ConvInteger (x, f, x0, w0)"),
    "QLinearConv": ("uint8[n,2,5,5]", "uint8[n,4,3,3]", "QLinearConv (x, xs, x0, f, ws, w0, ys, x0, c)"),
    "scaled filters": (
        "uint8[n,2,5,5]",
        "uint8[n,4,3,3]",
        "QLinearConv (x, xs, x0, f, filters, zeros4, ys, x0)",
    ),
}


def model(x, y, node):
    made = onnx.parser.parse_model(HEAD + computed_or_given(x, y, node))
    constants = {n: c for n, c in CONSTANTS.items() if n in node}
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items())
    return made


@pytest.mark.parametrize("name", BRANCHES)
def test_they_are_computed_whatever_is_taken(name):
    x, y, node = BRANCHES[name]
    given = model(x, y, node)
    flat, report = anydml.flatten(given, convert="always")
    assert not any(n.op_type == "If" for n in flat.graph.node), str(report)
    session = onnxruntime.InferenceSession(flat.SerializeToString())
    original = onnxruntime.InferenceSession(given.SerializeToString())
    for yes in (True, False):
        feeds = {"x": RNG.integers(0, 256, content_of(x, RNG, n=3).shape).astype(np.uint8)}
        feeds |= {"yes": np.array(yes), "z": content_of(y, RNG, n=3)}
        (wanted,) = original.run(None, feeds)
        np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
        np.testing.assert_array_equal(anydml.load(given).run(None, feeds)[0], wanted)


@pytest.mark.parametrize(
    ("x", "node"),
    [
        ("uint8[n,8]", "MatMulInteger (x, w, zeros5)"),
        ("uint8[n,3,5,5]", "ConvInteger (x, f)"),
        ("uint8[n,8]", "QLinearMatMul (x, xs, x0, w, filters, zeros4, ys, x0)"),
        ("uint8[n,2,5,5]", "QLinearConv (x, xs, x0, f, columns, zeros5, ys, x0)"),
    ],
)
def test_what_may_fail_is_not(x, node):
    """Only the branch that is taken may."""
    kind = "int32" if "Integer" in node else "uint8"
    given = model(x, f"{kind}[n,k]" if "Conv" not in node else f"{kind}[n,4,3,3]", node)
    try:
        flat, _ = anydml.flatten(given, convert="always", verify=False)
    except anydml.AnyDMLError:  # it can be seen to fail
        return
    assert any(n.op_type == "If" for n in flat.graph.node)


def test_branches_that_a_tool_quantized(tmp_path):
    """As onnxruntime's does by default: products in branches, weights of INT8."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[n,16] x) => (float[n,8] y) {
        s = ReduceSum <keepdims = 0> (x)  yes = Greater (s, zero)
        y = If (yes) <then_branch = t () => (float[n,8] a) { p = MatMul (x, v)  a = Relu (p) },
            else_branch = e () => (float[n,8] b) { q = MatMul (x, w)  b = Neg (q) }> }"""
    made = onnx.parser.parse_model(text)
    weights = {"v": RNG.standard_normal((16, 8)), "w": RNG.standard_normal((16, 8)), "zero": np.zeros(())}
    for name, content in weights.items():
        made.graph.initializer.append(numpy_helper.from_array(content.astype(np.float32), name))
    onnx.save(made, str(tmp_path / "floats.onnx"))
    quantize_dynamic(
        str(tmp_path / "floats.onnx"),
        str(tmp_path / "bytes.onnx"),
        weight_type=QuantType.QInt8,
        extra_options={"EnableSubgraph": True},
    )
    flat, _ = anydml.flatten(str(tmp_path / "bytes.onnx"), convert="always")
    kinds = [n.op_type for n in flat.graph.node]
    assert "If" not in kinds
    assert kinds.count("MatMulInteger") == 2
    session, original = anydml.load(flat), anydml.load(str(tmp_path / "bytes.onnx"))
    for sign in (1, -1):
        x = sign * RNG.uniform(0, 1, (3, 16)).astype(np.float32)
        exact = np.maximum(x @ weights["v"], 0) if sign > 0 else -(x @ weights["w"])
        for s in (session, original):
            np.testing.assert_allclose(s.run(None, {"x": x})[0], exact, atol=0.1)


def test_halves_of_which_one_overflows_tell_nothing():
    a, inf = np.float16([1, 2]), np.float16([1, np.inf])
    assert one_overflows([a], [inf])
    assert not one_overflows([inf], [inf])
    assert not one_overflows([a], [a + 1])
    assert one_overflows([a.astype(np.float32)], [inf.astype(np.float32)])
    assert not one_overflows([[a]], [[inf]])


def test_a_float_that_a_half_has_not():
    """onnxruntime takes two Casts away that round, if nothing stands between them any more."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[n,4] x) => (float[n,1] y) {
        h = Cast <to = 10> (x)  s = Shape (h)  zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()  r = Gather (s, zero)  c = Greater (r, one)
        t = If (c) <then_branch = a () => (float16[n,4] p) { p = Neg (h) },
            else_branch = b () => (float16[n,4] q) { q = Identity (h) }>
        u = ReduceMax <axes = [1]> (t)  y = Cast <to = 1> (u) }"""
    flat, report = anydml.flatten(onnx.parser.parse_model(text), shapes={"x": (1, 4)})
    assert not any(n.op_type == "If" for n in flat.graph.node)
    assert report.verified is not None
    assert report.verified.agreed > 0


def test_how_far_results_are_apart_is_told():
    a = np.float32([1, 2, 4])
    told = how_far(a, a + np.float32(0.5), Tolerance())
    assert told == ": up to 0.5 apart, of up to 4 (1e-05 of that is allowed)"
    assert "and 1 are not finite in both" in how_far(a, np.float32([1, 2, np.inf]), Tolerance())
    assert how_far(a, a[:2], Tolerance()) == ": float32[3] and float32[2]"
    assert how_far(np.array([1, 2]), np.array([1, 3]), Tolerance()) == ": 1 of 2 elements"
    assert how_far(None, a, Tolerance()) == ""


def test_weights_of_a_branch_that_stays_are_where_onnxruntime_looks_for_them():
    """It makes one operator of DequantizeLinear and MatMul, and looks for weights and scales beside these."""
    text = """<ir_version: 9, opset_import: ["": 20]> m (float[n,2,4] x, bool c, bool d) => (float[] y, float[] z) {
      y = If (c) <then_branch = t () => (float[] a) {
          w = Constant <value = int8[4,2] {-5, 7, -2, 4, 3, -5, 7, 1}> ()  s = Constant <value = float[2] {0.5, 0.25}> ()
          q = DequantizeLinear <axis = 1> (w, s)  a = MatMul (x, q) },
        else_branch = e () => (float[] b) { b = Identity (x) }>
      z = If (d) <then_branch = t2 () => (float[] f) {
          i = If (c) <then_branch = t3 () => (float[] g) {
              u = Constant <value = int8[4,1] {1, 2, 3, 4}> ()  r = Constant <value = float {0.5}> ()
              p = DequantizeLinear (u, r)  k = MatMul (x, p)  g = Add (k, r) }, else_branch = e3 () => (float[] h) { h = Abs (x) }>
          f = Neg (i) }, else_branch = e2 () => (float[] j) { j = Identity (x) }> }"""
    model = onnx.parser.parse_model(text)
    flat, report = anydml.flatten(model, convert="never")
    assert report.verified is not None
    assert report.after.ifs == 3
    sessions = [
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        for m in (model, flat)
    ]
    x = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)
    for c in (False, True):
        for d in (False, True):
            one, other = (s.run(None, {"x": x, "c": np.array(c), "d": np.array(d)}) for s in sessions)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)
