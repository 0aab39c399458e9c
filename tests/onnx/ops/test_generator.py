"""Tensors out of sizes and numbers: rules against onnxruntime, or against arithmetic where it overflows."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.ops.checking import case, check, check_fails, check_open, strings, table

f4, f8, f2, bf = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
LOW, HIGH = -(2**63), 2**63 - 1
MATRIX = np.zeros((3, 4), f4)


def i(*numbers):
    return np.array(numbers, np.int64)


def ranged(dtype, *bounds, **how):
    return case("Range", *(np.array(x, dtype) for x in bounds), **how)


def proto(*numbers, dtype):
    return numpy_helper.from_array(np.array(numbers, dtype))


@table(
    [
        *(
            ranged(dtype, *bounds)
            for dtype in (np.int16, np.int32, np.int64)
            for bounds in ((0, 5, 1), (5, 0, -2), (0, 0, 1), (3, 1, 1), (1, 10, 3), (-5, 5, 4), (1, 3, -1))
        ),
        ranged(np.int32, -(2**31), 3 - 2**31, 1),
        ranged(np.int32, 2**31 - 4, 2**31 - 1, 2),
        *(
            ranged(dtype, *bounds)
            for dtype in (f4, f8)
            for bounds in ((0, 5, 1), (1, 0, -0.25), (0, 1, -1), (0, 0, 1), (1e8, 1e8 + 64, 8), (0, 1, 3), (-1, 0.6, 0.5))
        ),
        *(case("ConstantOfShape", shape) for shape in (i(2, 0), i(), i(2, 3))),
        *(
            case("ConstantOfShape", i(2), value=proto(1, dtype=dtype), version=version)
            for dtype in (np.int8, bool, f8, np.uint64, f2)
            for version in (9, 20, 21)
        ),
        *(case("EyeLike", MATRIX, k=k) for k in (0, 1, -1, 9, -9)),
        *(case("EyeLike", MATRIX, k=1, dtype=TensorProto.INT64, version=version) for version in (9, 22)),
        case("EyeLike", MATRIX[:, :0]),
        case("EyeLike", np.zeros((2, 2), np.int32)),
        case("Constant", value=numpy_helper.from_array(np.arange(4, dtype=f4).reshape(2, 2))),
        case("Constant", value=helper.make_tensor("s", TensorProto.STRING, [2], [b"a", "é".encode()])),
        case("Constant", value=numpy_helper.from_array(np.float64(3)), version=1),
        *(case("Constant", **{name: value}) for name, value in (
            ("value_int", 3), ("value_ints", [3, 4]), ("value_float", 3.5), ("value_floats", [3.5, 0.1]),
            ("value_string", "é"), ("value_strings", ["a", "b"]),
        )),
    ]
)  # fmt: skip
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        # onnxruntime counts in float64
        ranged(np.int64, LOW, LOW + 3, 1, expected=i(LOW, LOW + 1, LOW + 2)),
        ranged(np.int64, HIGH - 3, HIGH, 2, expected=i(HIGH - 3, HIGH - 1)),
        ranged(np.int64, 1, LOW, 2, expected=i()),
        ranged(np.int64, LOW, HIGH, 2**62, expected=i(LOW, -(2**62), 0, 2**62)),
        # onnxruntime adds up, and so its error grows; ONNX multiplies
        ranged(f4, 0, 1, 0.1, expected=f4(0.1) * np.arange(10, dtype=f4)),
        ranged(f8, 0, 1, 0.1, expected=0.1 * np.arange(10)),
        # no such type
        case("EyeLike", MATRIX[:2, :2], dtype=TensorProto.BOOL, expected=np.eye(2, dtype=bool)),
        case("EyeLike", MATRIX[:2, :2], dtype=TensorProto.BFLOAT16, version=22, expected=np.eye(2, dtype=bf)),
        case("ConstantOfShape", i(2), value=helper.make_tensor("v", TensorProto.BFLOAT16, [1], [1.5]), version=20,
             expected=np.array([1.5, 1.5], bf)),
    ]
)  # fmt: skip
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        ranged(f4, NAN, 1, 1),
        ranged(f4, 0, INF, 1),
        ranged(f4, 0, 1, NAN),
        ranged(f8, -1, 2**53, 2**53),  # the difference is rounded
        case("Range", i(0, 1), i(5), i(1)),
        case("Constant", sparse_value=onnx.SparseTensorProto()),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


@table(
    [
        *(ranged(dtype, 0, 5, 0) for dtype in (np.int32, np.int64, f4)),
        case("ConstantOfShape", i(-1)),
        case("ConstantOfShape", i(2), value=proto(3, 4, dtype=np.int8)),
        case("EyeLike", np.zeros((2, 2, 2), f4)),
        case("EyeLike", np.zeros(2, f4)),
    ]
)
def test_the_node_fails(op, inputs, how):
    check_fails(op, inputs, **how)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 27, reason="an older onnx")
@pytest.mark.parametrize("dtype", [f2, bf])
def test_a_range_of_halves_is_computed_in_float32(dtype):
    bounds = [np.array(x, dtype) for x in (1000, 1008, 1.5)]
    check("Range", bounds, 27, expected=(1000 + 1.5 * np.arange(6)).astype(dtype))
    check_open("Range", bounds, 27, stash_type=10)


def test_strings_of_a_constant_are_text():
    check("Constant", [], value_string="é", expected=np.array("é", object))
    check("Constant", [], value_strings=["a"], expected=strings("a"))
