"""Functions of one tensor: rules against onnxruntime, or against mathematics."""

import math

import ml_dtypes
import numpy as np
import pytest

from tests.onnx.ops.checking import case, check, check_fails, check_open, table

f4, f8, f2 = np.float32, np.float64, np.float16
bf = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
EDGES = [0.0, -0.0, NAN, INF, -INF, 1, -1, 0.5, -0.5, 2.5, -2.5, 3, -3, 7.25, 0.1, -0.3, 80, -80]
MODERATE = [0.0, -0.0, NAN, INF, -INF, 1, -1, 0.5, -0.5, 2.5, 3, 7.25, 0.1, -0.3, 20]
EMPTY = np.zeros((2, 0), f4)
SMOOTH = "Sin Cos Tan Atan Sinh Cosh Asinh Tanh Erf Softplus Softsign".split()
DOUBLE = "Sin Cos Tanh Sigmoid IsNaN IsInf Relu".split()
"""What onnxruntime has for float64."""


@table(
    [
        *(case(op, np.array(EDGES, f4)) for op in SMOOTH),
        *(case(op, np.array(EDGES, f2)) for op in SMOOTH),
        *(case(op, np.array(EDGES, f8)) for op in DOUBLE if op not in ("Sigmoid", "Sin", "Cos")),
        *(case(op, np.array([0.5, -0.5, 1, -0.0], f8)) for op in DOUBLE),
        *(
            case(op, np.array([-2, -1, -0.5, -0.0, 0.0, 0.3, 1, NAN, INF], f4))
            for op in ("Asin", "Acos", "Atanh")
        ),
        case("Acosh", f4([0.5, 1, 1.5, 100, INF, NAN])),
        *(case(op, np.array(MODERATE, t)) for op in ("Sigmoid", "Mish", "Gelu") for t in (f4, f2)),
        case("Gelu", np.array(MODERATE, f4), approximate="tanh"),
        *(case(op, np.array(EDGES, t)) for op in ("Elu", "Selu") for t in (f4, f2)),
        *(case("Elu", np.array(EDGES, f4), alpha=2.5, version=version) for version in (6, 22)),
        *(case("Selu", np.array(EDGES, f4), alpha=1.5, gamma=2.0, version=version) for version in (6, 22)),
        *(case("Celu", np.array(EDGES, f4), alpha=alpha) for alpha in (1.0, 0.5, 2.0)),
        *(case(op, EMPTY) for op in (*SMOOTH, "Sigmoid", "Elu", "Gelu", "Mish", "Acosh")),
        *(case(op, f4(0.5)) for op in (*SMOOTH, "Sigmoid", "Elu", "Gelu", "Mish", "Asin")),
        *(case(op, f4([0.5]), version=9) for op in ("Sin", "Erf", "Sinh", "Atanh", "Sigmoid", "Tanh")),
        case("HardSwish", np.array(EDGES, f4)),
        case("HardSigmoid", f4([-3, -2, 1.7, 0.3])),
    ]
)
def test_a_few_units_in_the_last_place(op, inputs, how):
    check(op, inputs, tolerance=4, **how)


@table(
    [
        *(case("Relu", np.array(EDGES, t)) for t in (f4, f8, f2)),
        case("Relu", np.int8([-128, 0, 5])),
        case("Relu", np.int32([-5, 5])),
        case("Relu", np.float32([-5, 5]), version=6),
        *(case("LeakyRelu", np.array(EDGES, t)) for t in (f4, f2)),
        *(case("LeakyRelu", np.array(EDGES, f4), alpha=alpha, version=6) for alpha in (0.0, -2.0)),
        case("PRelu", np.array(EDGES, f4).reshape(2, 9), f4([[3], [-0.5]])),
        case("PRelu", np.array(EDGES, f4), f4(0.1), version=7),
        case("PRelu", EMPTY, f4([[3], [1]])),
        *(
            case("HardSigmoid", np.array([-9, 9, -INF, INF, 0, 1, NAN], f4), version=version)
            for version in (6, 22)
        ),
        *(case("ThresholdedRelu", np.array(EDGES, f4), alpha=alpha) for alpha in (1.0, -0.7)),
        case("ThresholdedRelu", np.array(EDGES, f2)),
        *(case("Shrink", np.array(EDGES, t), lambd=0.7, bias=0.25) for t in (f4, f2)),
        case("Shrink", np.array([-2, 0, 2], f4)),
        case("Shrink", np.int8([-128, 5, -1, 0, 100]), bias=2.0, lambd=1.5),
        case("Shrink", np.uint8([255, 5, 1]), bias=2.0, lambd=1.5),
        *(case(op, np.array(EDGES, t)) for op in ("IsNaN", "IsInf") for t in (f4, f8)),
        case("IsNaN", np.array(EDGES, f2)),
        *(
            case("IsInf", np.array(EDGES, f4), detect_positive=positive, detect_negative=negative, version=10)
            for positive in (0, 1)
            for negative in (0, 1)
        ),
        *(case(op, EMPTY) for op in ("Relu", "LeakyRelu", "IsNaN", "IsInf", "Shrink", "HardSigmoid")),
        *(case(op, f4(-0.5)) for op in ("Relu", "LeakyRelu", "IsNaN", "IsInf", "Shrink", "ThresholdedRelu")),
    ]
)
def test_exact(op, inputs, how):
    check(op, inputs, **how)


def by(function, values, dtype=f8):
    """A function of Python, where its values are numbers."""
    return np.array([function(x) for x in values], dtype)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@table(
    [
        # types that onnxruntime does not have
        case("Erf", f8([0.5, -3]), expected=by(math.erf, [0.5, -3])),
        case("Tan", f8([0.5, -3]), expected=by(math.tan, [0.5, -3])),
        case("Asinh", f8([0.5, -3]), expected=by(math.asinh, [0.5, -3])),
        case("Softplus", f8([0.5, -3]), expected=by(lambda x: math.log1p(math.exp(x)), [0.5, -3])),
        case("Elu", f8([0.5, -3]), expected=by(lambda x: x if x > 0 else math.expm1(x), [0.5, -3])),
        case("Mish", f8([2.0]), expected=f8([2 * math.tanh(math.log1p(math.exp(2)))])),
        case("Swish", f4([0.5, -3, 0]), version=24, expected=by(lambda x: x * sigmoid(x), [0.5, -3, 0], f4)),
        case("Swish", f8([0.5]), version=24, alpha=2.0, expected=f8([0.5 * sigmoid(1)])),
        case("LeakyRelu", f8([-2, 3]), alpha=0.5, expected=f8([-1, 3])),
        case("HardSwish", f8([1.5]), expected=f8([1.5 * (1.5 * float(f4(1 / 6)) + 0.5)])),
        case("HardSigmoid", f8([0, 9]), expected=f8([0.5, 1])),
        case("ThresholdedRelu", f8([1, 2]), expected=f8([0, 2])),
        case("Softsign", f8([1, -3]), expected=f8([0.5, -0.75])),
        case("PRelu", np.int32([1, -2]), np.int32([3]), expected=np.int32([1, -6])),
        case("Sin", np.array([0.5], bf), version=22, expected=np.array([math.sin(0.5)], bf)),
        case("Tanh", np.array([0.5, -INF], bf), expected=np.array([math.tanh(0.5), -1], bf)),
        case("Relu", np.array([0.5, -2], bf), expected=np.array([0.5, 0], bf)),
        case("IsNaN", np.array([NAN, -2], bf), expected=np.array([True, False])),
        case("IsInf", np.array([-INF, -2], bf), version=20, expected=np.array([True, False])),
        case(
            "IsNaN", np.array([NAN, 2], ml_dtypes.float8_e4m3fn), version=20, expected=np.array([True, False])
        ),
        case(
            "IsInf", np.array([INF, 2], ml_dtypes.float8_e5m2), version=20, expected=np.array([True, False])
        ),
        # onnxruntime approximates, and has no digits left (Gelu), or 0 (Sigmoid)
        case("Sigmoid", f4([-7.25, -80]), expected=by(sigmoid, [-7.25, -80], f4)),
        case("Gelu", f4([-6]), expected=f4([-3 * math.erfc(6 / math.sqrt(2))])),
        # float64 is float32 to onnxruntime here
        case("Shrink", f8([1e30]), expected=f8([1e30])),
        # onnxruntime computes exp(x) - 1, which is 0 here
        case("Elu", f4([-1e-8]), expected=f4([-1e-8])),
    ]
)
def test_by_hand(op, inputs, how):
    check(op, inputs, tolerance=1, **how)


@table(
    [
        case("PRelu", f4([[[1], [2]]]), f4([1, 2]), version=6),
        case("PRelu", f4([[1, -2]]), f4([[1, 2], [1, 2]])),
        case("Celu", f4([1]), alpha=0.0),
        case("Gelu", f4([1]), approximate="half"),
        case("Shrink", np.int8([5]), bias=0.5),
        case("Shrink", np.int8([-128]), bias=-1.0),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


def test_a_slope_that_does_not_fit():
    check_fails("PRelu", [f4([[1, -2]]), f4([1, 2, 3])])


@pytest.mark.parametrize("dtype", [f2, bf])
def test_halves_are_rounded_once(dtype):
    """The nearest half to the exact value, for all of 0 to 1 in steps that it has."""
    x = np.linspace(0, 1, 129).astype(dtype)
    check("Exp", [x], expected=by(math.exp, x.astype(f8), f4).astype(dtype))
    check("Sigmoid", [x], expected=by(sigmoid, x.astype(f8), f4).astype(dtype))
