"""Every layer once, on the smallest of examples."""

import numpy as np
import onnx

import anydml as dml

CONDITION = np.array([[1, 0], [1, 1]], np.uint8)
A = np.array([[1, 2], [3, 4]], np.float32)
B = np.array([[9, 8], [7, 6]], np.float32)
CHOSEN = np.array([[1, 8], [3, 4]], np.float32)


def test_function():
    assert (dml.if_(CONDITION, A, B) == CHOSEN).all()
    assert dml.is_infinity(np.float32([1, np.inf, -np.inf])).tolist() == [0, 1, 1]


def test_device():
    tensor = {"DataType": "FLOAT32", "Sizes": [2, 2]}
    operator = dml.Device("5_0").create_operator(
        {
            "Type": "DML_OPERATOR_ELEMENT_WISE_IF",
            "Desc": {
                "ConditionTensor": {"DataType": "UINT8", "Sizes": [2, 2]},
                "ATensor": tensor,
                "BTensor": tensor,
                "OutputTensor": tensor,
            },
        }
    )
    y = np.zeros((2, 2), np.float32)
    compiled = dml.Device("5_0").compile_operator(operator)
    compiled.dispatch({"ConditionTensor": CONDITION, "ATensor": A, "BTensor": B}, {"OutputTensor": y})
    assert (y == CHOSEN).all()


def test_error_tells_what_is_allowed_and_since_when():
    wrong = {"DataType": "INT64", "Sizes": [2, 2]}
    (problem,) = dml.validate(
        {
            "Type": "ELEMENT_WISE_IF",
            "ConditionTensor": {"DataType": "UINT8", "Sizes": [2, 2]},
            "ATensor": wrong,
            "BTensor": wrong,
            "OutputTensor": wrong,
        },
        feature_level="3_0",
    )
    assert "expected float16 | float32 | int8 | " in str(problem)
    assert "at feature level 3_0, but got int64 (allowed from 5_0)" in str(problem)


def test_session():
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["": 17]>
        m (bool cond) => (float[2] y) {
            y = If (cond) <then_branch = t () => (float[2] a) { a = Constant <value_floats = [1.0, 2.0]> () },
                           else_branch = e () => (float[2] b) { b = Constant <value_floats = [3.0, 4.0]> () }>
        }"""
    )
    session = dml.load(model)
    assert session.run(None, {"cond": np.array(True)})[0].tolist() == [1, 2]
    assert session.run(None, {"cond": np.array(False)})[0].tolist() == [3, 4]
