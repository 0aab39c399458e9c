"""Rows of bodies in which a node has sizes that inference tells otherwise than libraries compute them."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import anydml as dml

SCAN = """<ir_version: 9, opset_import: ["" : 19]> g (float[T,3] a, float[N] b) => (float[M] y, float[P,Q,R,S,U] z) {
   y, z = Scan <num_scan_inputs = 1, body = bd (float[K] h, float[L] row) => (float[K] h2, float[P,Q,R,S] out)
      <int64[3] axes = {0,1,2}> {
      u = Unsqueeze (b, axes)
      out = MaxPool <ceil_mode = 1, kernel_shape = [2, 1], strides = [2, 2]> (u)
      h2 = Identity (h) }> (b, a) }"""
LOOP = """<ir_version: 9, opset_import: ["" : 19]> g (int64 n, bool yes, float[N] b) => (float[P,Q,R,S,U] z) {
   z = Loop <body = bd (int64 i, bool go) => (bool on, float[P,Q,R,S] out) <int64[3] axes = {0,1,2}> {
      u = Unsqueeze (b, axes)
      out = AveragePool <ceil_mode = 1, kernel_shape = [2, 1], strides = [2, 2]> (u)
      on = Identity (go) }> (n, yes) }"""


def unsized(text):
    """The model without the sizes that it says of what bodies and the graph give."""
    model = parser.parse_model(text)
    bodies = [a.g for node in model.graph.node for a in node.attribute if a.g.node]
    for value in (*model.graph.output, *(v for body in bodies for v in (*body.input, *body.output))):
        if not value.name.startswith(("i", "go", "on")):
            value.type.tensor_type.ClearField("shape")
    return model.SerializeToString()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("text", [SCAN, LOOP], ids=["Scan", "Loop"])
def test_a_last_window_that_begins_in_the_padding(text, size):
    feeds = {"b": np.arange(size, dtype=np.float32)}
    feeds |= (
        {"a": np.zeros((2, 3), np.float32)} if text is SCAN else {"n": np.array(2), "yes": np.array(True)}
    )
    model = unsized(text)
    wanted = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = dml.load(model)
    for _ in range(3):
        for x, y in zip(session.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(x, y)
