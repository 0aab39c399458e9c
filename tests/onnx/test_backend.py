"""The test suite of the onnx package, run on us; and the backend's own interface."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import TensorProto, helper
from onnx.backend.test.loader import load_model_tests

import anydml as dml
from anydml import backend

LEFT_OUT = dict(
    re.fullmatch(r"(\w+): (.+)", line).groups()
    for line in Path(__file__).with_name("left_out.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
RANDOM = re.compile(r"test_bernoulli(_double|_seed)?(_expanded)?_cpu")
"""What has no one right answer; below."""


@cache
def suite():
    with np.errstate(all="ignore"):
        items = onnx.backend.test.BackendTest(backend.AnyDML, __name__)._test_items
    return {
        name: item.func
        for category, tests in items.items()
        if category != "RealModel"  # whose models would have to be downloaded
        for name, item in tests.items()
        if name.endswith("_cpu") and not RANDOM.fullmatch(name)
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(suite()))
def test_suite(name, request):
    if name in LEFT_OUT:
        request.applymarker(pytest.mark.xfail(reason=LEFT_OUT[name], strict=True))
    suite()[name](None)


def test_nothing_is_left_out_without_need():
    assert set(LEFT_OUT) <= set(suite())
    assert len(LEFT_OUT) <= 5
    assert len(suite()) > 1900


@cache
def cases():
    with np.errstate(all="ignore"):
        return {case.name: case for case in load_model_tests(kind="node")}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bernoulli", "bernoulli_double", "bernoulli_seed"])
@pytest.mark.parametrize("expanded", ["", "_expanded"])
def test_random(name, expanded):
    """Truths with the probabilities that are given; the same for the same seed."""
    model = onnx.ModelProto()
    model.CopyFrom(cases()[f"test_{name}{expanded}"].model)
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "n"
    wanted = helper.tensor_dtype_to_np_dtype(model.graph.output[0].type.tensor_type.elem_type)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    p = np.linspace(0, 1, 11).repeat(4000)
    given = p.astype(helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type))
    rank = len(model.graph.input[0].type.tensor_type.shape.dim)
    given = given.reshape((-1,) + (1,) * (rank - 1))
    first, second = (dml.load(model).run(None, {model.graph.input[0].name: given})[0] for _ in range(2))
    assert first.dtype == wanted
    assert set(np.unique(first).tolist()) == {0, 1}
    share = first.reshape(11, 4000).mean(1)  # ONNX's expansion compares the wrong way around
    np.testing.assert_allclose(1 - share if expanded else share, np.linspace(0, 1, 11), atol=0.04)
    if name == "bernoulli_seed":
        np.testing.assert_array_equal(first, second)


@pytest.mark.filterwarnings("ignore")
def test_a_loop_over_an_optional_sequence_with_an_if_inside():
    case = cases()["test_loop16_seq_none"]
    for inputs, (wanted,) in case.data_sets:
        (got,) = backend.run_model(case.model, inputs)
        assert [x.tolist() for x in got] == [x.tolist() for x in wanted]
        assert all(x.dtype == np.float32 for x in got)


# ---- the interface -----------------------------------------------------------------------------------


def add_model():
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        m (float[n] a, float[n] b) => (float[n] c) <float[1] b = {5}> { c = Add (a, b) }"""
    )


def test_inputs_come_in_order_or_by_name():
    x, y = np.float32([1, 2]), np.float32([10, 20])
    prepared = backend.prepare(add_model(), "CPU")
    assert prepared.run([x, y])[0].tolist() == [11, 22]
    assert prepared.run([x])[0].tolist() == [6, 7]
    assert prepared.run({"b": y, "a": x})[0].tolist() == [11, 22]
    assert backend.run_model(add_model(), [x], "CPU:0")[0].tolist() == [6, 7]


def test_too_many_inputs():
    with pytest.raises(dml.InvalidInput, match="at most 2 inputs, but got 3"):
        backend.run_model(add_model(), [np.float32([1])] * 3)


def test_a_node_alone():
    node = helper.make_node("Where", ["c", "a", "b"], ["y"])
    given = [np.array([True, False]), np.int64([1, 2]), np.int64([3, 4])]
    assert backend.run_node(node, given)[0].tolist() == [1, 4]
    clip = helper.make_node("Clip", ["x"], ["y"], max=2.0)
    assert backend.run_node(clip, [np.float32([1, 9])], opset_version=6)[0].tolist() == [1, 2]


def test_devices():
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(add_model())
    assert not backend.is_compatible(add_model(), "CUDA")
    with pytest.raises(dml.Unsupported, match="CUDA"):
        backend.prepare(add_model(), "CUDA")


def test_element_types_have_onnx_names():
    x = np.array([1, 2], helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT4E2M1))
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    assert backend.run_node(node, [x])[0].tolist() == [1, 2]
