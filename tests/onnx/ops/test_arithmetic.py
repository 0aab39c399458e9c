"""Calculation: rules against onnxruntime, or against what ONNX says where onnxruntime is wrong."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.onnx.ops.checking import case, check, check_fails, check_open, computed, folded, table

f4, f8, f2 = np.float32, np.float64, np.float16
i8, i4, i1, u1, u8 = np.int64, np.int32, np.int8, np.uint8, np.uint64
bf = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
EDGES = [0.0, -0.0, NAN, INF, -INF, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1.5, -7.25, 3.0]
LOW, HIGH = np.iinfo(i4).min, np.iinfo(i4).max
EMPTY = np.zeros((0, 2), f4)


def edges(dtype):
    return np.array(EDGES, dtype)


PAIRS = [np.array(EDGES, f4).reshape(-1, 1), np.array(EDGES, f4)]


@table(
    [
        *(case(op, *PAIRS) for op in ("Add", "Sub", "Mul", "Div")),
        *(case(op, *(x.astype(f8) for x in PAIRS)) for op in ("Add", "Sub", "Mul", "Div")),
        *(case(op, *(x.astype(f2) for x in PAIRS)) for op in ("Add", "Sub", "Mul", "Div")),
        *(case(op, i4([LOW, HIGH, 7]), i4([[2], [HIGH]])) for op in ("Add", "Sub", "Mul", "Div")),
        *(case(op, i8([-(2**63), 2**63 - 1, 7]), i8(3)) for op in ("Add", "Sub", "Mul", "Div")),
        *(case(op, EMPTY, f4([1, 2])) for op in ("Add", "Sub", "Mul", "Div", "Max", "Pow")),
        *(case(op, f4(1.5), f4(-2)) for op in ("Add", "Sub", "Mul", "Div", "Min", "Pow")),
        *(case(op, f4([1, 2]), f4([3, 4]), version=7) for op in ("Add", "Sub", "Mul", "Div", "Pow")),
        *(case(op, f4([1, 2]), f4([3, 4]), version=6) for op in ("Sum", "Mean", "Max", "Min")),
        case("Div", i4([7, -7, 7, -7, 1, 0]), i4([2, 2, -2, -2, -3, 5])),
        case("Div", u1([255, 7]), u1([2, 8])),
        case("Mod", i1([-7, 7, -128, 127, 0]), i1([3, -3, 3, -128, 5])),
        case("Mod", i1([-7, 7, -128, 127, 0]), i1([3, -3, 3, -128, 5]), fmod=1),
        case("Mod", u8([2**64 - 1]), u8([10])),
        case("Mod", f4([5.3, -5.3, INF, NAN, 1, 2]), f4([2, 2, 3, 1, INF, 0]), fmod=1),
        case("Mod", f2([5.3, -5.3]), f2([2, 0.7]), fmod=1),
        case("Mod", f8([1e300, -7.5]), f8([0.3, 2]), fmod=1),
        case("Pow", i4([2, -3, 1, -1, 0, 5, 0]), i4([3, 3, 1000, 1001, 0, 0, 9])),
        case("Pow", i4([2, 1, -1, -1, 3]), i4([-1, -3, -3, -4, 2])),
        case("Pow", i8([2, 1, -1, -1, 3]), f4([-1, -3, -3, -4, 2])),
        case("Pow", i8([2, 3]), f4([62, 33])),
        case("Pow", f4([2, -2, 0, INF, 1, NAN, -8]), f4([-1, 3, 0, 0, NAN, 0, 0.5])),
        case("Pow", f4([2, -2]), i8([-1, 3])),
        case("Pow", f4([2, -2]), f4([0.5, 2]), version=7),
        case("Neg", i4([LOW, HIGH, 0])),
        case("Abs", i4([LOW, HIGH, 0])),
        case("Abs", u1([255])),
        case("Sign", i8([-(2**63), 0, 5])),
        case("Sign", u8([2**64 - 1, 0])),
        case("Sign", f4([INF, -INF, 0, -3])),
        *(case(op, edges(t)) for op in ("Neg", "Abs", "Floor", "Ceil", "Round") for t in (f4, f8)),
        *(case(op, edges(f4)) for op in ("Sqrt", "Reciprocal")),
        *(case(op, edges(f2)) for op in ("Floor", "Ceil", "Round", "Reciprocal", "Sqrt", "Neg", "Abs")),
        *(case(op, EMPTY) for op in ("Neg", "Abs", "Floor", "Ceil", "Round", "Sqrt", "Reciprocal", "Exp")),
        *(case(op, f4([1, -2]), version=6) for op in ("Neg", "Abs", "Floor", "Ceil", "Sqrt", "Exp")),
        case("Sum", f4([1, 2])),
        case("Sum", f4([1, NAN]), f4([[1], [INF]]), f4(3)),
        case("Sum", f2([1, 2048]), f2([1, 1]), f2([1, 1])),
        case("Mean", f4([1, 2]), f4([[3], [6]])),
        case("Mean", f2([1, 2]), f2([[3], [6]]), f2(7)),
        *(case(op, f4([1, NAN, INF]), f4([[NAN], [2]]), f4(-INF)) for op in ("Max", "Min")),
        *(case(op, i8([-(2**63), 5]), i8([2**63 - 1, 4])) for op in ("Max", "Min")),
        *(case(op, u8([2**64 - 1, 5]), u8([1, 4])) for op in ("Max", "Min")),
        *(case(op, i1([-128, 5]), i1([[127], [4]])) for op in ("Max", "Min")),
        *(case(op, f2([1, NAN]), f2([2, 1])) for op in ("Max", "Min")),
        *(case(op, f4([[3.5]]), version=version) for op in ("Max", "Min") for version in (6, 8, 12)),
        case("Clip", f4([-3, NAN, 0.5, 9, INF, -INF]), f4(-1), f4(2)),
        case("Clip", f4([-3, NAN, 0.5, 9, INF]), None, f4(2)),
        case("Clip", f4([-3, NAN, 0.5, 9, -INF]), f4(-1)),
        case("Clip", f4([-3, 9]), f4([-1]), f4(2)),
        case("Clip", f4([-3, 9]), f4(3), f4(1.5)),
        case("Clip", f4([-3, 9])),
        case("Clip", i4([-3, 9]), i4(-1), i4(LOW), version=13),
        case("Clip", i8([-3, 9]), None, i8(4)),
        case("Clip", f4([-INF, INF, NAN, 1]), version=6, max=2.0),
        case("Clip", f4([-INF, 1]), f4(-2), version=11),
        case("Clip", EMPTY, f4(0)),
        *(case("BitShift", u1([1, 255, 7]), u1([7, 1, 0]), direction=to) for to in ("LEFT", "RIGHT")),
        case("BitShift", u8([1]), u8([[63], [0]]), direction="LEFT"),
        *(case(op, i1([-128, 5, 3]), i1([[127], [4]])) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
        *(case("BitwiseNot", np.array([0, 5], t)) for t in (i1, u1, i8, u8)),
        *(
            case("CumSum", x, i8(axis), exclusive=exclusive, reverse=reverse)
            for x in (f4([[-0.0, 2, NAN], [4, 5, 6]]), i4([[1, 2, HIGH], [4, 5, 6]]))
            for axis in (0, -1)
            for exclusive in (0, 1)
            for reverse in (0, 1)
        ),
        *(case("CumSum", EMPTY, i4(axis), exclusive=1) for axis in (0, 1)),
        case("CumSum", f8([[1, 2]]), i4([1]), version=11),
        *(
            case("CumProd", f4([[-0.0, 2, 3], [4, 5, 6]]), i8(1), exclusive=e, reverse=1, version=26)
            for e in (0, 1)
        ),
        case("CumProd", i8([2**40, 2**40, 3]), i4(0), version=26),
    ]
)
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        *(case("Exp", np.array([0, 1, -1, 80, -80, INF, -INF, NAN], t)) for t in (f4, f8)),
        case("Exp", f2([0, 1, -1, 10, 12, -10])),
        *(case("Log", np.array([0, 1, -1, 80, 1e-3, INF, NAN], t)) for t in (f4, f8, f2)),
        case("Pow", f4([2, 3, 0.1]), f4([0.5, 0.25, -7])),
        case("Pow", f8([2, 3, 0.1]), f8([0.5, 0.25, -7])),
        case("Mean", f4([1, 2]), f4([[3], [0.1]]), f4(7)),  # by the reciprocal in onnxruntime
        case("Exp", f4(1)),
    ]
)
def test_a_few_units_in_the_last_place(op, inputs, how):
    check(op, inputs, tolerance=2, **how)


@table(
    [
        # onnxruntime ends the process on these; by ONNX they wrap around, as all integers do
        case("Div", i4([LOW]), i4([-1]), expected=i4([LOW])),
        case("Mod", i4([LOW]), i4([-1]), expected=i4([0])),
        case("Mod", i4([LOW]), i4([-1]), fmod=1, expected=i4([0])),
        # onnxruntime goes by way of float64
        case("Pow", i8([3, -7]), i8([39, 22]), expected=i8([3**39, 7**22])),
        case("Mod", u8([2**64 - 1]), u8([4]), fmod=1, expected=u8([3])),
        # types that onnxruntime does not have
        case("Add", i1([127]), i1([1]), expected=i1([-128])),
        case("Add", np.array([1, 2.0**-9], bf), np.array([2.0**-9, 1], bf), expected=np.array([1, 1], bf)),
        case("Div", np.array([1], bf), np.array([3], bf), expected=np.array([1 / 3], bf)),
        case("Mul", np.array(3, bf), np.array(0.5, bf), expected=np.array(1.5, bf)),
        case("Neg", np.array([0.0, -1], bf), expected=np.array([-0.0, 1], bf)),
        case("Exp", np.array([0, 1], bf), expected=np.array([1, np.e], bf)),
        case("Sum", *[np.array([256, 1], bf)] * 3, expected=np.array([768, 3], bf)),
        case("Max", np.array([1, NAN], bf), np.array([2, 1], bf), expected=np.array([2, NAN], bf)),
        case("Mod", np.array([5.5], bf), np.array([2], bf), fmod=1, expected=np.array([1.5], bf)),
        case("Pow", np.array([3], bf), i8([2]), expected=np.array([9], bf)),
        case(
            "Clip", np.array([3, -3], bf), np.array(-1, bf), np.array(2, bf), expected=np.array([2, -1], bf)
        ),
        case("CumSum", np.array([256, 1, 1], bf), i8(0), expected=np.array([256, 256, 258], bf)),
        case("Sign", np.array([-3, 0], bf), expected=np.array([-1, 0], bf)),
        case("CumSum", f2([2048, 1, 1]), i8(0), expected=f2([2048, 2048, 2050])),
    ]
)
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        case("Mod", f4([1]), f4([2]), version=13),  # before opset 28 only fmod is for floats
        case("Add", f4([[1, 2]]), f4([1]), version=6, broadcast=1),
        case("Pow", f4([[1, 2]]), f4([1]), version=1, broadcast=1),
        case("Max", f4([[1, 2]]), f4([1]), version=6),
        case("Sum", f4([[1, 2]]), f4([1]), version=6),
        case("Pow", i4([0]), i4([-1])),
        case("Pow", i4([2]), i4([31])),
        case("Pow", i8([2]), f4([0.5])),
        case("Pow", i8([2]), f4([NAN])),
        case("Pow", f8([-1]), i8([2**53 + 1])),
        case("Max", f4([0.0]), f4([-0.0])),
        case("Clip", f4([-0.0]), f4(0.0)),
        case("Clip", f4([1]), f4(NAN)),
        case("Clip", f4([1]), f4(3), f4(2), version=12),
        case("Clip", f4([1]), min=3.0, max=2.0, version=6),
        case("Clip", f4([-INF]), None, f4(1)),
        case("Clip", f4([INF]), f4(1)),
        case("Clip", f4([1, 2]), f4([1, 2])),
        case("CumSum", f4([1, 2]), i8([0, 0])),
        case("Sign", f4([NAN])),
        case("Mod", i4([1]), i4([2]), fmod=2),
        case("CumSum", f4([1, 2]), i8(0), reverse=-1),
        case("BitShift", u1([1]), u1([8]), version=11, direction="LEFT"),
        case("BitShift", u1([1]), u1([1]), direction="UP"),
        case("Add", np.array([True]), np.array([True])),  # no type of Add
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


@table(
    [
        case("Add", f4([1, 2]), f4([1, 2, 3])),
        case("Mean", f4([1, 2]), f4([1, 2, 3])),
        case("CumSum", f4([1, 2]), i8(1)),
        case("CumSum", f4([1, 2]), i8(2**40)),
        case("Div", i4([1]), i4([0]), alone=True),
        case("Mod", i4([1]), i4([0]), alone=True),
        case("Mod", i4([1]), i4([0]), fmod=1, alone=True),
    ]
)
def test_the_node_fails(op, inputs, how):
    check_fails(op, inputs, **how)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="an older onnx")
def test_from_opset_28_on():
    """Shifts of signed types, and by more bits than there are; floats with the divisor's sign."""
    x, y = i1([-128, 127, -1, 3]), i1([1, 9, -1, 2])
    for to, expected in (("RIGHT", [-64, 0, -1, 0]), ("LEFT", [0, 0, 0, 12])):
        check("BitShift", [x, y], 28, direction=to, expected=i1(expected))
    x, y = f4([-5.5, 5.5, -0.0, 1, -1, 1]), f4([2, -2, 3, INF, INF, 0])
    check("Mod", [x, y], 28, expected=f4([0.5, -0.5, 0, 1, INF, NAN]))


def test_the_sign_of_what_is_zero_in_both_is_kept():
    for op in ("Max", "Min"):
        check(op, [f4([-0.0, 0.0]), f4([-0.0, 0.0])], expected=f4([-0.0, 0.0]))


def test_the_remainder_of_a_negative_zero_is_a_zero():
    """ONNX leaves its sign open."""
    (found,), (other,) = (ask("Mod", [f4([-0.0]), f4([1])], fmod=1) for ask in (folded, computed))
    assert found == other == 0
