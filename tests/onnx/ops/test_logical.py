"""Comparison, truths and choice: rules against onnxruntime."""

import ml_dtypes
import numpy as np

from tests.onnx.ops.checking import case, check, check_fails, check_open, strings, table

f4, f8, f2 = np.float32, np.float64, np.float16
i8, i4 = np.int64, np.int32
bf = ml_dtypes.bfloat16
NAN, INF = np.nan, np.inf
COMPARISONS = "Equal Less Greater LessOrEqual GreaterOrEqual".split()
NUMBERS = np.array([0.0, -0.0, NAN, INF, -INF, 1])
YES, NO = np.array(True), np.array(False)
TRUTHS = np.array([True, False])
EMPTY = np.zeros((0, 2), f4)


@table(
    [
        *(
            case(op, NUMBERS.astype(t).reshape(-1, 1), NUMBERS.astype(t))
            for op in COMPARISONS
            for t in (f4, f8)
        ),
        *(case(op, i8([-(2**63), 2**63 - 1]), i8([[0], [2**63 - 1]])) for op in COMPARISONS),
        *(case(op, i4([1, 2, 3]), i4(2)) for op in COMPARISONS),
        *(case(op, EMPTY, f4([1, 2])) for op in COMPARISONS),
        *(case(op, f4(1), f4(1)) for op in COMPARISONS),
        *(case(op, f4([1, 2]), f4([[1], [2]]), version=12) for op in COMPARISONS),
        *(case(op, f4([1, 2]), f4([2, 1]), version=7) for op in ("Less", "Greater")),
        case("Equal", i4([1, 2]), i4([2]), version=7),
        case("Equal", TRUTHS, NO),
        case("Equal", strings("a", "é"), strings("é")),
        case("Equal", np.array("a", object), np.array("b", object)),
        case("Equal", strings(), strings("a")),
        *(case(op, TRUTHS.reshape(2, 1), TRUTHS) for op in ("And", "Or", "Xor", "Equal")),
        *(case(op, YES, NO, version=7) for op in ("And", "Or", "Xor")),
        *(case(op, TRUTHS[:0], NO) for op in ("And", "Or", "Xor")),
        case("Not", TRUTHS),
        case("Not", YES),
        *(
            case("Where", TRUTHS, np.array([1, 2], t), np.array([[3], [4]], t))
            for t in (f4, i8, np.uint8, f8)
        ),
        case("Where", TRUTHS, strings("a", "b"), strings("c")),
        case("Where", YES, np.array("a", object), np.array("b", object)),
        case("Where", TRUTHS[:0], f4(1), f4([2])),
        case("Where", NO, f4(NAN), f4(-0.0), version=9),
    ]
)
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        # types that onnxruntime does not have
        *(case(op, np.uint16([1, 2]), np.uint16([2]), expected=np.array(e)) for op, e in
          (("Equal", [False, True]), ("Less", [True, False]), ("GreaterOrEqual", [False, True]))),
        case("Less", np.array([NAN, 1], bf), np.array([2], bf), expected=np.array([False, True])),
        case("Equal", f2([0.0, NAN]), f2([-0.0, NAN]), expected=np.array([True, False])),
        case("Where", TRUTHS, np.array([1], bf), np.array([2], bf), version=16, expected=np.array([1, 2], bf)),
        # onnxruntime adds the two, of which one is 0 instead, and so loses the sign
        case("Where", TRUTHS, f4([[-0.0]]), f4([1]), expected=f4([[-0.0, 1]])),
        case("Where", TRUTHS, np.array([True]), np.array([False]), expected=TRUTHS),
    ]
)  # fmt: skip
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


def test_old_broadcasting_is_left_open():
    check_open("Equal", [i4([[1, 2]]), i4([1])], version=6, broadcast=1)
    check_open("And", [TRUTHS.reshape(1, 2), TRUTHS[:1]], version=1, broadcast=1)


def test_sizes_that_do_not_fit():
    check_fails("Less", [f4([1, 2]), f4([1, 2, 3])])
    check_fails("Where", [TRUTHS, f4([1, 2, 3]), f4(1)])
