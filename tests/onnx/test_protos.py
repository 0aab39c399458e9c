"""ONNX's protos and arrays without the onnx package: as that makes them, and without it in a session."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import AttributeProto, SparseTensorProto, TensorProto, TypeProto, helper, numpy_helper

from anydml.onnx import protos
from anydml.onnx.arrays import from_array, to_array, zeros
from anydml.onnx.types import DTYPES, code_of, numpy_type

DATA = Path(__file__).parent.parent / "data"
RUNS = """
import pickle, sys
import numpy as np
import anydml

for folder in sys.argv[1:]:
    session = anydml.load(f"{folder}/model.onnx")
    with np.load(f"{folder}/feed_a.npz") as feed:
        for _ in range(3):
            session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})
imported = "onnx" in sys.modules
from anydml.onnx import protos
import onnx
same = all(getattr(onnx, n) is getattr(protos, n) for n in protos.__all__ if n.endswith("Proto"))
read = pickle.loads(pickle.dumps(onnx.load(f"{folder}/model.onnx")))
anydml.load(read)
onnx.checker.check_model(read)
print(imported, same, isinstance(read, protos.ModelProto))
"""


def ran(implementation="upb"):
    """Other libraries that tests have imported may have set the variable."""
    folders = [str(DATA / "exporters" / name) for name in ("ts_while", "tf_keras_gru", "dy_scan_cond")]
    process = subprocess.run(
        [sys.executable, "-c", RUNS, *folders],
        capture_output=True,
        text=True,
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation},
        check=True,
    )
    return process.stdout.split()


def test_a_session_does_not_import_onnx_and_who_does_later_finds_the_same_classes():
    assert ran() == ["False", "True", "True"]


def test_where_protobuf_makes_classes_anew_onnx_is_imported():
    assert ran("python") == ["True", "True", "True"]


VALUES = [
    1,
    np.int32(-3),
    True,
    0.5,
    np.float32(0.1),
    "text",
    b"bytes",
    "ö",
    [1, 2],
    (np.int64(7),),
    [1, 2.5],
    np.array([1.5, 2.5]),
    ["a", b"b"],
    helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0]),
    [helper.make_tensor("t", TensorProto.FLOAT, [1], [2.0])],
    helper.make_graph([], "g", [], []),
    helper.make_tensor_type_proto(TensorProto.FLOAT, [1]),
    [helper.make_tensor_type_proto(TensorProto.FLOAT, None)],
    SparseTensorProto(dims=[3]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda v: str(v)[:20])
def test_attributes_are_those_of_onnx(value):
    made = protos.make_attribute("name", value)
    assert made == helper.make_attribute("name", value)
    assert protos.attribute_value(made) == helper.get_attribute_value(made)


@pytest.mark.parametrize("value", [[], [1, "a"], None, 1j], ids=repr)
def test_what_is_no_attribute(value):
    with pytest.raises((TypeError, ValueError)) as theirs:
        helper.make_attribute("name", value)
    with pytest.raises(theirs.type, match="expected"):
        protos.make_attribute("name", value)


def test_a_reference_has_no_value():
    with pytest.raises(ValueError, match="reference to attribute 'outer'"):
        protos.attribute_value(AttributeProto(name="alpha", ref_attr_name="outer"))


def test_nodes_are_those_of_onnx():
    given = {"name": "n", "domain": "d", "beta": 1, "alpha": [0.5], "none": None}
    assert protos.make_node("Op", ["a", ""], ["b"], **given) == helper.make_node(
        "Op", ["a", ""], ["b"], **given
    )
    assert protos.make_node("Op", [], ["b"]) == helper.make_node("Op", [], ["b"])


@pytest.mark.parametrize("sizes", [None, [], [2, "n", None], [0]], ids=str)
def test_types_are_those_of_onnx(sizes):
    made = protos.make_tensor_value_info("x", TensorProto.INT8, sizes)
    assert made == helper.make_tensor_value_info("x", TensorProto.INT8, sizes)
    assert made.type.tensor_type.HasField("shape") == (sizes is not None)
    assert isinstance(made.type, TypeProto)


def numbers(name: str) -> np.ndarray:
    if name == "string":
        return np.array([["a", "", "öü"]], object)
    if name == "bool":
        return np.array([[True, False, True]])
    return np.array([[1, 0, -1 if name.startswith(("int", "float", "bf", "complex")) else 1]]).astype(
        numpy_type(name)
    )


@pytest.mark.parametrize("name", [n for n in DTYPES.values() if n != "float8e8m0"])
def test_every_type_there_and_back_as_in_onnx(name):
    x = numbers(name)
    made = from_array(x, "x")
    assert made == numpy_helper.from_array(x, "x")
    assert from_array(x) == numpy_helper.from_array(x)
    y = to_array(made)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)
    assert code_of(x.dtype) == made.data_type


@pytest.mark.parametrize("name", DTYPES.values())
def test_every_type_is_numpys_as_in_onnx(name):
    code = TensorProto.DataType.Value({"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper()))
    assert numpy_type(name) == helper.tensor_dtype_to_np_dtype(code)


@pytest.mark.parametrize("name", [n for n in DTYPES.values() if not n.startswith(("float6", "float8e8"))])
def test_numbers_that_are_no_raw_bytes(name):
    x = numbers(name)
    values = x.reshape(-1).tolist() if name == "string" else x.reshape(-1)
    typed = helper.make_tensor("x", code_of(x.dtype), x.shape, values)
    assert not typed.HasField("raw_data")
    np.testing.assert_array_equal(to_array(typed), numpy_helper.to_array(typed))
    np.testing.assert_array_equal(to_array(typed), x)


def test_zeros():
    np.testing.assert_array_equal(to_array(zeros("float16", (2,))), np.zeros(2, np.float16))
    assert to_array(zeros("string")) == ""


@pytest.mark.parametrize("dtype", [">f4", "datetime64[s]", "f16", [("a", "f4")]], ids=str)
def test_types_that_onnx_does_not_have(dtype):
    with pytest.raises(ValueError, match="expected a type of ONNX's tensors"):
        code_of(np.dtype(dtype))


def test_objects_that_are_no_texts():
    with pytest.raises(ValueError, match="expected an array of texts"):
        from_array(np.array(["a", 1], object))


def test_data_that_is_elsewhere():
    tensor = TensorProto(
        data_type=TensorProto.FLOAT, dims=[1], raw_data=b"1234", data_location=TensorProto.EXTERNAL
    )
    with pytest.raises(Exception, match="should not be empty"):
        to_array(tensor)


def test_sizes_that_do_not_fit():
    for bad in (
        TensorProto(data_type=TensorProto.FLOAT, dims=[3], raw_data=b"12345678"),
        TensorProto(data_type=TensorProto.FLOAT, dims=[3], float_data=[1]),
        TensorProto(data_type=TensorProto.INT8, dims=[2], int32_data=[1]),
    ):
        with pytest.raises(ValueError, match=r"reshape|size"):
            to_array(bad)
