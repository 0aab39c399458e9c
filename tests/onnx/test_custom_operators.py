"""Operators of libraries that people register with onnxruntime's options."""

import os
import pickle
import sys

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml

if sys.version_info >= (3, 14):
    pytest.skip("onnxruntime-extensions is not made for this Python yet", allow_module_level=True)
from onnxruntime_extensions import get_library_path

TEXT = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]>
main (string[n] s, bool b, float[m,64] x) => (float[n] y, string[n] u, float[m,64] z) {
  u = If (b) <
    then_branch = t () => (string[n] r) { r = ai.onnx.contrib.StringUpper (s) },
    else_branch = e () => (string[n] r) { r = ai.onnx.contrib.StringLower (s) }>
  l = ai.onnx.contrib.StringLength (u)
  y = Cast <to = 1> (l)
  h = MatMul (x, w)
  z = Relu (h)
}"""
WEIGHT = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)


@pytest.fixture
def options():
    made = ort.SessionOptions()
    made.register_custom_ops_library(get_library_path())
    return made


@pytest.fixture(scope="module")
def data():
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    return model.SerializeToString()


def feeds(taken):
    return {
        "s": np.array(["aB", "cDe"], object),
        "b": np.array(taken),
        "x": np.ones((3, 64), np.float32),
    }


@pytest.mark.parametrize("taken", [True, False])
def test_they_run_as_with_onnxruntime(data, options, taken):
    session, theirs = anydml.InferenceSession(data, options), ort.InferenceSession(data, options)
    for _ in range(3):
        for ours, other in zip(session.run(None, feeds(taken)), theirs.run(None, feeds(taken)), strict=True):
            if ours.dtype == object:
                assert ours.tolist() == other.tolist()
            else:
                np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-5)
    assert "folded: node 'u' (If)" in session.explain()


def test_a_user_s_options_stay_as_they_were(data, options):
    anydml.load(data, options, threads=1).run(None, feeds(True))
    assert (options.intra_op_num_threads, options.log_severity_level) == (0, -1)
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> main (float[2] w) => (float[2] y) { y = Neg (w) }'
    )
    theirs = ort.InferenceSession(plain.SerializeToString(), options)  # a weight of that name would be taken
    assert theirs.run(None, {"w": np.float32([1, 2])})[0].tolist() == [-1, -2]


def test_models_without_them_are_no_business_of_the_options(options):
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "ai.onnx.contrib": 1]> main (float[2] x) => (float[2] y) { y = Neg (x) }'
    )
    session = pickle.loads(pickle.dumps(anydml.load(plain, options)))
    assert session.run(None, {"x": np.float32([1, 2])})[0].tolist() == [-1, -2]


def test_without_their_library_the_error_tells_what_to_do(data):
    with pytest.raises(anydml.Unsupported, match="register_custom_ops_library"):
        anydml.load(data).run(None, feeds(True))


def test_sessions_with_them_cannot_be_pickled_and_say_so(data, options):
    with pytest.raises(TypeError, match="custom operators"):
        pickle.dumps(anydml.load(data, options))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_have_them(data, options):
    session = anydml.load(data, options, threads=1)
    session.run(None, feeds(True))
    child = os.fork()
    if not child:
        right = session.run(["u"], feeds(True))[0].tolist() == ["AB", "CDE"]
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
