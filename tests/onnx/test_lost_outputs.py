"""Outputs that onnxruntime's optimiser would take away: what it is given keeps them."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, parser

import anydml


def model(*, passed_on, second=False):
    """Turned tensors that a product reads, one of them an output, too."""

    def info(name, *sizes):
        return helper.make_tensor_value_info(name, 1, list(sizes))

    turned = "output" if passed_on else "a_turned"
    nodes = [
        helper.make_node("Transpose", ["a"], ["a_turned"]),
        helper.make_node("Transpose", ["b"], ["b_turned"]),
        helper.make_node("Gemm", ["a_turned", "b_turned"], ["product"], alpha=3.0, transA=1),
    ]
    outputs = [info("product", "m", "n"), info(turned, "k", "m")]
    if passed_on:
        nodes.append(helper.make_node("Identity", ["a_turned"], ["output"]))
    if second:
        nodes.append(helper.make_node("Gemm", ["b_turned", "c"], ["other"], transA=1))
        outputs.append(info("other", "n", "l"))
    inputs = [info("a", "m", "k"), info("b", "n", "k"), *([info("c", "k", "l")] if second else [])]
    graph = helper.make_graph(nodes, "products", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("passed_on", [False, True])
def test_a_transpose_that_a_product_reads_and_the_graph_gives(passed_on, second):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (5, 3), (3, 2)))
    feed = {"a": a, "b": b, **({"c": c} if second else {})}
    wanted = [3 * a @ b.T, a.T, *([b @ c] if second else [])]
    given = model(passed_on=passed_on, second=second)
    session = anydml.load(given)
    results = [session.run(None, feed) for _ in range(2)]
    if passed_on:  # otherwise onnxruntime refuses the source itself
        flat, _ = anydml.flatten(given)
        results.append(ort.InferenceSession(flat.SerializeToString()).run(None, feed))
    for made in results:
        for y, want in zip(made, wanted, strict=True):
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


def test_an_output_that_is_quantized_in_another_order():
    """onnxruntime would quantize before the Transpose, and give what that leaves."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    m (float[a,b,c] x) => (float[a,b,c] y, float[a,c,b] z) <float s = {0.5}>
    { y = Relu (x) t = Transpose <perm = [0, 2, 1]> (y) q = QuantizeLinear (t, s) z = DequantizeLinear (q, s) }"""
    session = anydml.load(parser.parse_model(text), native=False)
    for rows in (2, 3, 4, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 5, 3)).astype(np.float32)
        y, z = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        np.testing.assert_array_equal(z, np.rint(y / 0.5).swapaxes(1, 2) * np.float32(0.5))
