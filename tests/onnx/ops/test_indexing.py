"""Elements by their place: rules against onnxruntime, or against ONNX's text where it has no such types."""

import ml_dtypes
import numpy as np
import pytest

from tests.onnx.ops.checking import case, check, check_fails, check_open, strings, table

f4, f8, f2, bf = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
i4 = np.int32
NAN, INF = np.nan, np.inf


def i(*numbers):
    return np.array(numbers, np.int64)


MATRIX = np.arange(12, dtype=f4).reshape(3, 4)
CUBE = np.arange(24, dtype=f4).reshape(2, 3, 4)
NONE = np.zeros((0, 2), f4)
ONE = f4(1)
MIXED = f4([[3, 1, 3, 2], [0, -0.0, 5, 5], [-1, INF, -INF, 2]])
FEW = f4([2, 1, 1, 3, 4, 3])
HOT = f4([7, 9])


@table(
    [
        *(case("Gather", MATRIX, at, axis=axis) for at in (i(0, -1), i(2), i(), i(-3), i(1)[0], i4([[0, 1], [1, 0]])) for axis in (0, 1, -1)),
        *(case("Gather", NONE, at) for at in (i(), i4([]))),
        case("Gather", NONE, i(1, 0), axis=1),
        *(case("Gather", strings("a", "b"), i(-1), version=version) for version in (1, 11, 13)),
        *(case("GatherElements", MATRIX, at, axis=1, version=v) for at in (i([0, -1], [2, 1]), i([3], [1], [2])) for v in (11, 13)),
        case("GatherElements", MATRIX, i([0, -1, 2, 1])),
        case("GatherElements", i(1, 2, 3), i4([-3, 2]), axis=-1),
        *(case("GatherElements", MATRIX, np.zeros(shape, np.int64)) for shape in ((0, 4), (3, 0))),
        case("GatherElements", NONE, np.zeros((0, 2), np.int64)),
        *(case("GatherND", MATRIX, at) for at in (i([0, 1], [2, -1]), i([0], [2]), i([[0, 0]]), i(1, 2))),
        case("GatherND", MATRIX, np.zeros((0, 2), np.int64)),
        case("GatherND", CUBE, i([1], [0]), batch_dims=1),
        case("GatherND", CUBE, i([[1, 2]], [[0, -1]]), batch_dims=1, version=12),
        case("GatherND", CUBE, np.ones((2, 3, 5, 1), np.int64), batch_dims=2),
        case("GatherND", CUBE, np.ones((2, 3, 1), np.int64), batch_dims=2),
        case("GatherND", strings("a", "b"), i([1]), version=11),
        *(
            case("ScatterElements" if v > 9 else "Scatter", MATRIX, at, new, axis=axis, version=v)
            for v in (9, 11, 13, 16, 18)
            for at, new, axis in (
                (i([0, 2, 1, -1]), f4([[9, 8, 7, 6]]), 0),
                (i([0, 2]), f4([[9, 8]]), 1),
                (np.zeros((0, 4), np.int64), np.zeros((0, 4), f4), -2),
            )
        ),
        case("ScatterElements", strings("a", "b"), i4([1]), strings("z")),
        *(
            case(op, data, at, new, reduction=how, version=version, **axis)
            for op, data, at, new, axis in (
                ("ScatterElements", MATRIX, i([0, 0, 1, -1]), f4([[9, 8, 7, 6]]), {"axis": 1}),
                ("ScatterElements", np.int8([[100, 2, 3, 4]]), i([0, 0, 1, -1]), np.int8([[99, 8, 2, 127]]), {"axis": 1}),
                ("ScatterND", MATRIX, i([0, 0], [0, 0], [1, 2]), f4([9, 8, 7]), {}),
                ("ScatterND", MATRIX.astype(np.int64), i([0], [2]), i([1, 2, 3, 4], [5, 6, 7, 8]), {}),
            )
            for how, version in (("add", 16), ("mul", 16), ("add", 18), ("mul", 18), ("max", 18), ("min", 18))
        ),
        *(case("ScatterND", MATRIX, i([-1], [0]), f4([[1, 2, 3, 4]] * 2), version=version) for version in (11, 13)),
        case("ScatterND", MATRIX, np.zeros((0, 1), np.int64), MATRIX[:0]),
        case("ScatterND", CUBE, i([[0, 1], [1, -1]]), f4([[[1, 2, 3, 4], [5, 6, 7, 8]]])),
        case("ScatterND", strings("a", "b"), i([1]), strings("z")),
        *(case("NonZero", x) for x in (MATRIX, MATRIX > 5, NONE, np.zeros((2, 2), f4), MATRIX.astype(i4), f4([NAN, -0.0]))),
        case("NonZero", MATRIX.astype(np.int64), version=9),
        case("Compress", MATRIX, np.array([True, False, True]), axis=0),
        case("Compress", MATRIX, np.array([False, True]), axis=-1),
        case("Compress", MATRIX, np.array([False, True, True])),
        case("Compress", MATRIX, np.zeros(0, bool), axis=0),
        case("Compress", strings("a", "b"), np.array([False, True]), version=9),
        *(case("OneHot", i([0, -1], [5, 2]), i(3)[0], HOT, axis=axis, version=v) for axis in (-1, 0, 1, -3, 2) for v in (9, 11)),
        case("OneHot", f4([0, 1, -1]), f4(3), HOT),
        case("OneHot", i(), i(3), HOT),
        case("OneHot", i(-3, -4, 3), i(3), i(0, 1)),
        case("OneHot", i(1), i(3), strings("n", "y")),
        *(case("TopK", MIXED, i(k), outputs=2, largest=largest) for k in (0, 1, 3, 4) for largest in (0, 1)),
        case("TopK", MIXED, outputs=2, version=1, k=3),
        case("TopK", MIXED, i(3), outputs=2, version=10, axis=0),
        case("TopK", MIXED, i(2), outputs=2, axis=0),
        *(case("TopK", i(-(2**63), 2**63 - 1, 0, 0), i(3), outputs=2, largest=largest) for largest in (0, 1)),
        case("TopK", MIXED, i(1), outputs=2, sorted=0),
        case("TopK", MIXED[:0], i(2), outputs=2),
        case("TopK", f8([1, 2, 2]), i(2), outputs=2),
        case("Unique", CUBE, axis=1),
        *(
            case("Unique", x, outputs=4, sorted=order, **axis)
            for order in (0, 1)
            for x, axis in (
                (FEW, {}),
                (f4([[1, 0, 0], [1, 0, 0], [2, 3, 4]]), {"axis": 0}),
                (f4([[1, 0, 1], [1, 0, 1], [2, 3, 2]]), {"axis": -1}),
                (f4([[2, 1], [0, 2]]), {}),
                (FEW[:0], {}),
                (strings("b", "a", "b", "é", "z", "Z"), {}),
                (f4([0, -0.0, 1]), {}),
                (f4([1, -0.0, 0]), {}),
                (f4(3), {}),
                (i(3, -1, 3), {}),
                (np.int8([3, -1, 3]), {}),
            )
        ),
    ]
)  # fmt: skip
def test_exact(op, inputs, how):
    check(op, inputs, **how)


CACHE, UPDATE = np.zeros((2, 4, 3), f4), np.arange(1, 13, dtype=f4).reshape(2, 2, 3)


def written(*starts):
    """The cache with the update at these places, which may go around."""
    result = CACHE.copy()
    for k, start in enumerate(starts):
        for n in range(2):
            result[k, (start + n) % 4] = UPDATE[k, n]
    return result


@table(
    [
        # types that onnxruntime does not have
        case("NonZero", f8([NAN, -0.0, 2]), expected=i([0, 2])),
        case("OneHot", i4([0, 1, -1]), f4([3]), i(7, 9), expected=i([9, 7, 7], [7, 9, 7], [7, 7, 9])),
        case("OneHot", np.uint8([0, 255]), i(2), HOT, expected=f4([[9, 7], [7, 7]])),
        case("OneHot", np.uint64([0, 2**63]), i(2), HOT, expected=f4([[9, 7], [7, 7]])),
        case("OneHot", i(1)[0], i(3), HOT, expected=f4([7, 9, 7])),
        case("OneHot", i(0, 1), i(0), HOT, expected=np.zeros((2, 0), f4)),
        case("TopK", np.uint8([1, 200, 200]), i(2), outputs=2, expected=(np.uint8([200, 200]), i(1, 2))),
        case("TopK", f2([2, 1, 2]), i(2), outputs=2, expected=(f2([2, 2]), i(0, 2))),
        case(
            "TopK",
            np.array([2, 1, 2], bf),
            i(2),
            outputs=2,
            version=24,
            expected=(np.array([2, 2], bf), i(0, 2)),
        ),
        case("Gather", np.array([1, 2], bf), i(1), expected=np.array([2], bf)),
        case("ScatterND", np.array([1, 2], bf), i([1]), np.array([3], bf), expected=np.array([1, 3], bf)),
        # onnxruntime ends the process on a slice without elements
        case(
            "Unique",
            np.zeros((2, 0), f4),
            axis=0,
            outputs=4,
            expected=(np.zeros((1, 0), f4), i(0), i(0, 0), i(2)),
        ),
        case(
            "Unique", np.zeros((0, 3), f4), axis=0, outputs=4, expected=(np.zeros((0, 3), f4), i(), i(), i())
        ),
    ]
)
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


def test_tensor_scatter():
    check("TensorScatter", [CACHE, UPDATE], 24, expected=written(0, 0))
    check("TensorScatter", [CACHE, UPDATE, i(0, 2)], 24, expected=written(0, 2))
    check("TensorScatter", [CACHE, UPDATE, i(3, 9)], 24, mode="circular", expected=written(3, 1))
    turned = [x.transpose(0, 2, 1) for x in (CACHE, UPDATE, written(1, 2))]
    check("TensorScatter", [*turned[:2], i(1, 2)], 24, axis=-1, expected=turned[2])
    check("TensorScatter", [CACHE, UPDATE[:, :0]], 24, expected=CACHE)
    for starts in (i(3, 0), i(-1, 0), i(0)):
        check_fails("TensorScatter", [CACHE, UPDATE, starts], 24, alone=True)
    check_fails("TensorScatter", [CACHE, UPDATE[:1]], 24, alone=True)


@table(
    [
        # two updates of one place: whichever comes last
        case("ScatterElements", MATRIX, i([0, 0]), f4([[9, 8]]), axis=1),
        case("ScatterND", MATRIX, i([1], [1]), MATRIX[:2]),
        # max and min came at opset 18
        case("ScatterElements", MATRIX, i([0, 1]), f4([[9, 8]]), axis=1, reduction="max", version=16),
        case("ScatterElements", f4([[1]]), i([0]), f4([[NAN]]), reduction="max"),
        case("ScatterElements", f2([[1]]), i([0]), f2([[2]]), reduction="add"),
        case("ScatterElements", np.array([[True]]), i([0]), np.array([[True]]), reduction="add"),
        case("GatherND", MATRIX, np.zeros((2, 0), np.int64)),
        case("NonZero", f4(3)),  # ONNX's own and onnxruntime's shapes differ
        case("NonZero", strings("a")),
        case("Compress", MATRIX, np.array([True] * 5), axis=1),
        case("OneHot", i(0, 1), i(1, 2), HOT),
        case("OneHot", f4([0.5]), i(3), HOT),
        case("Unique", FEW, sorted=2),
        case("Compress", MATRIX, np.array([[True, False]])),
        case("OneHot", i(1), f4(2.5), HOT),
        case("TopK", MIXED, i(2), outputs=2, sorted=0),
        case("TopK", f4([NAN, 1]), i(1), outputs=2),
        case("Unique", f4([NAN, 1, NAN])),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


@table(
    [
        *(case("Gather", MATRIX, at) for at in (i(3), i(-4), i4([[0], [5]]))),
        case("Gather", NONE, i(0)),
        case("Gather", NONE, i(2), axis=1),
        case("Gather", MATRIX, i(0), axis=2),
        case("Gather", ONE, i(0)),
        *(
            case("GatherElements", MATRIX, at, axis=1)
            for at in (i([4], [1], [2]), i([0], [1], [2], [0]), i(1))
        ),
        *(case("GatherND", MATRIX, at) for at in (i([3, 0]), i([-4, 0]), i([0, 0, 0]))),
        *(case("GatherND", CUBE, i([1], [0], [0])[:n], batch_dims=b) for n, b in ((3, 1), (2, 2))),
        *(case("ScatterElements", MATRIX, i([0, at]), f4([[9, 8]]), axis=1) for at in (4, -5)),
        case("ScatterElements", MATRIX, i([0]), f4([[1, 2]])),
        case("ScatterElements", MATRIX, i(0), f4([1])),
        *(case("ScatterND", MATRIX, i([at]), MATRIX[:1]) for at in (3, -4)),
        case("ScatterND", MATRIX, i([0], [2]), MATRIX[:1]),
        case("OneHot", i(0, 1), i(-1), HOT),
        case("OneHot", i(0, 1), i(2), f4([7, 9, 1])),
        *(case("TopK", MIXED, i(k), outputs=2) for k in (5, -1)),
        case("TopK", ONE, i(1), outputs=2),
    ]
)
def test_the_node_fails(op, inputs, how):
    check_fails(op, inputs, **how)


@pytest.mark.parametrize("count", [1, 5])
def test_outputs_that_are_left_out(count):
    """Unique with the inverse alone."""
    x = FEW[:count]
    check("Unique", [x], outputs=(True, False, True, False))
