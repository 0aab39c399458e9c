"""Scans whose attributes do not fit: each is told, before or when it runs, as onnxruntime refuses it."""

import random

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import anydml

LISTS = "scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions"


def scan(count: int = 2, condition: str = "", **lists: list[int]):
    """A state, two sequences and two outputs of rows."""

    def infos(names, *sizes):
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, sizes) for n in names]

    inner = [
        helper.make_node("Add", ["s", "p"], ["t"]),
        helper.make_node("Mul", ["p", "q"], ["u"]),
        helper.make_node("Neg", ["q"], ["v"]),
    ]
    body = helper.make_graph(inner, "body", infos("spq", 3), infos("tuv", 3))
    outer = helper.make_node(
        "Scan", ["a", "x", "y"], ["b", "z", "w"], body=body, num_scan_inputs=count, **lists
    )
    unknown = [helper.make_empty_tensor_value_info(n) for n in "bzw"]
    inputs = [*infos("a", 3), *infos("xy", None, None)]
    graph = helper.make_graph([outer], "g", inputs, unknown)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEEDS = {
    "a": np.float32([1, 2, 3]),
    "x": np.arange(12, dtype=np.float32).reshape(4, 3),
    "y": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3),
}


def by_onnxruntime(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), options).run(None, FEEDS)
    except Exception:
        return None


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_any_length_and_numbers(name):
    """Both agree on what is refused, and on results."""
    draw, refused = random.Random(name), 0
    for length in range(1, 4):
        for _ in range(6):
            model = scan(**{name: [draw.randint(-3, 3) for _ in range(length)]})
            wanted = by_onnxruntime(model)
            for flat in (False, True):
                try:
                    own = anydml.flatten(model, shapes={"x": (4, 3), "y": (4, 3)})[0] if flat else model
                    found = anydml.load(own).run(None, FEEDS)
                except anydml.AnyDMLError:
                    refused += 1
                    assert wanted is None
                else:
                    assert wanted is not None
                    for a, b in zip(found, wanted, strict=True):
                        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert refused


def test_what_is_told():
    cases = {
        "expected 2 numbers in scan_input_axes of Scan, but got 1": {"scan_input_axes": [0]},
        "expected 0 (forwards) or 1 (backwards) in scan_output_directions of Scan, but got [0, 2]": {
            "scan_output_directions": [0, 2]
        },
    }
    for message, lists in cases.items():
        with pytest.raises(anydml.InvalidModel) as caught:
            anydml.load(scan(**lists))
        assert message in str(caught.value)
