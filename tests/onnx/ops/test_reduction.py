"""ReduceSum and its kin, ArgMax and ArgMin."""

import ml_dtypes
import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml
from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
OPS = """ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceSumSquare""".split()
X = np.array([[[1.5, -2.0, 3.25], [0.5, 4.0, -1.0]], [[2.0, 2.5, 7.0], [-3.5, 1.0, 6.0]]], F)
AXES = [[0], [1], [-1], [0, 2], [-3, 1], [0, 1, 2]]
SINCE = {"ReduceSum": 13}
"""The opset at which axes became an input; 18 for all others."""
LOOSE = {"ReduceL2": 2, "ReduceLogSum": 2, "ReduceLogSumExp": 4, "ReduceMean": 2, "ReduceProd": 2}
OLDEST = 1
FLOATS = ["float16", "float32", "float64"]


def f(*values):
    return np.array(values, F)


def ints(*values):
    return np.array(values, np.int64)


def positive(op: str, x: np.ndarray) -> np.ndarray:
    """Logarithms are of sums above 0."""
    return np.abs(x) if op == "ReduceLogSum" else x


def reduce(op, data, axes, version, **attributes):
    """(inputs, attributes) of a node whose axes are where its opset has them."""
    if axes is None:
        return [data], attributes
    if version >= SINCE.get(op, 18):
        return [data, np.array(axes, np.int64)], attributes
    return [data], {"axes": axes, **attributes}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("version", [OLDEST, 11, 13, 18, 20])
def test_axes(op, version):
    """As attribute and as input, from the front and from the end, kept and not."""
    x = positive(op, X)
    for axes in [*AXES, None]:
        for keepdims in (0, 1):
            inputs, attributes = reduce(op, x, axes, version, keepdims=keepdims)
            check(op, inputs, version, tolerance=LOOSE.get(op, 0), **attributes)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64"])
def test_types(op, dtype):
    x = np.abs(X).astype(dtype)
    check(op, [x, ints(1)], 18, tolerance=LOOSE.get(op, 0)) if op != "ReduceSum" else check(
        op, [x, ints(1)], 13
    )


@pytest.mark.parametrize("op", OPS)
def test_no_axes_may_mean_none(op):
    x = positive(op, X)
    for inputs in ([x], [x, ints()]):
        check(op, inputs, 18, tolerance=LOOSE.get(op, 0), noop_with_empty_axes=0)
        check(op, inputs, 18, tolerance=LOOSE.get(op, 0), noop_with_empty_axes=1)


@pytest.mark.parametrize("op", OPS)
def test_scalars(op):
    check(op, [np.array(2.5, F)], 18, tolerance=LOOSE.get(op, 0))
    check(op, [np.array(2.5, F)], 11, tolerance=LOOSE.get(op, 0), keepdims=0)
    for axis in (0, -1):  # which torch's exporter writes
        check(op, [np.array(2.5, F), ints(axis)], 18, tolerance=LOOSE.get(op, 0))


@pytest.mark.parametrize("op", OPS)
def test_axes_that_are_not_there(op):
    check_fails(op, [X, ints(3)], 18)
    check_fails(op, [X, ints(-4)], 18)
    check_fails(op, [X, np.array(1)], 18)
    check_fails(op, [X], 11, axes=[3])
    with pytest.raises(NotFoldable):
        folded(op, [X, ints(1, -2)], 18)


NOTHING = {
    "ReduceMean": 0.0,
    "ReduceSum": 0.0,
    "ReduceProd": 1.0,
    "ReduceMax": -INF,
    "ReduceMin": INF,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceLogSum": -INF,
    "ReduceLogSumExp": -INF,
    "ReduceSumSquare": 0.0,
}


@pytest.mark.parametrize("op", NOTHING)
def test_nothing(op):
    """Over an empty axis; the last two by hand, as onnxruntime leaves an empty axis that is counted from
    the end as it is, of length 0."""
    check(op, [np.zeros((0, 3), F), ints(0)], 18)
    check(op, [np.zeros((3, 0), F), ints(1)], 18, keepdims=0)
    check(op, [np.zeros((3, 0), F)], 18, keepdims=0)
    check(op, [np.zeros((3, 0), F), ints(0)], 18)
    none = NOTHING[op]
    check(op, [np.zeros((0, 3), F), ints(-2)], 18, expected=np.full((1, 3), none, F))
    check(op, [np.zeros((3, 0), F), ints(-1)], 18, expected=np.full(3, none, F), keepdims=0)


@pytest.mark.parametrize(
    "op",
    [
        *("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"),
        *("ReduceL1", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"),
    ],
)
def test_nothing_of_integers(op):
    check(op, [np.zeros((0, 3), np.int32), ints(0)], 18)


def test_nothing_that_nothing_stands_for():
    for op in ("ReduceLogSum", "ReduceLogSumExp"):
        with pytest.raises(NotFoldable):
            folded(op, [np.zeros(0, np.uint32)], 18)
    check("ReduceMean", [np.zeros((2, 0), F), ints(0)], 18)


def test_booleans():
    x = np.array([[True, False], [True, True], [False, False]])
    for op in ("ReduceMax", "ReduceMin"):
        check(op, [x, ints(1)], 20)
        check(op, [x], 20, keepdims=0)
    # By hand: onnxruntime has True as the maximum of nothing.
    check("ReduceMax", [np.zeros((0, 2), bool), ints(0)], 20, expected=np.zeros((1, 2), bool))
    check("ReduceMin", [np.zeros((0, 2), bool), ints(0)], 20, expected=np.ones((1, 2), bool))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_small_integers(dtype):
    for op in ("ReduceMax", "ReduceMin"):
        check(op, [np.array([[3, 7], [100, 0]], dtype), ints(0)], 18)
        check(op, [np.zeros((0, 2), dtype), ints(0)], 18)


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_unsigned(dtype):
    """By hand: onnxruntime has none of these but ReduceLogSumExp."""
    x = np.array([[3, 4], [2**31, 0]], dtype)
    for op, expected in [
        ("ReduceSum", [7, 2**31]),
        ("ReduceMean", [3, 2**30]),
        ("ReduceProd", [12, 0]),
        ("ReduceMax", [4, 2**31]),
        ("ReduceMin", [3, 0]),
        ("ReduceL1", [7, 2**31]),
        ("ReduceLogSum", [1, 21]),
    ]:
        check(op, [x, ints(1)], 18, expected=np.array(expected, dtype), keepdims=0)
    check("ReduceL2", [x[:1]], 18, expected=np.array(5, dtype), keepdims=0)
    check("ReduceSumSquare", [x[:1]], 18, expected=np.array(25, dtype), keepdims=0)
    check("ReduceLogSumExp", [x[:1]], 18)


def test_bfloat16():
    """By hand: onnxruntime has none. 256 + 1 + 1 in bfloat16 alone would be 256."""
    b = ml_dtypes.bfloat16
    x = np.array([[256, 1, 1]], b)
    for op, expected in [
        ("ReduceSum", 258),
        ("ReduceMean", 86),
        ("ReduceProd", 256),
        ("ReduceMax", 256),
        ("ReduceMin", 1),
        ("ReduceL1", 258),
        ("ReduceL2", 256),
        ("ReduceLogSum", np.log(258)),
        ("ReduceLogSumExp", 256),
        ("ReduceSumSquare", 65538),
    ]:
        check(op, [x], 18, expected=np.array(expected).astype(b), keepdims=0)
    check("ArgMax", [x], 13, expected=ints([0, 0, 0]))
    check("ArgMax", [x], 13, expected=ints(0), axis=-1, keepdims=0)


def test_integers_beyond_their_type():
    """onnxruntime saturates, NumPy wraps around."""
    top, lowest = 2**31 - 1, -(2**31)
    for op, values in [
        ("ReduceSum", [top, 1]),
        ("ReduceProd", [65536, 65536]),
        ("ReduceL1", [lowest]),
        ("ReduceL1", [lowest, -1]),
        ("ReduceSumSquare", [65536, 1]),
        ("ReduceLogSum", [-1]),
    ]:
        with pytest.raises(NotFoldable):
            folded(op, [np.array(values, np.int32)], 18)
    check("ReduceSum", [np.array([top, 1, -2], np.int32)], 13)
    check("ReduceMean", [np.array([top, top], np.int32)], 18)
    check("ReduceL2", [np.array([46341, 46341], np.int32)], 18)
    check("ReduceSum", [ints(2**63 - 1)], 13)
    # By hand: onnxruntime adds int64 as float64, which has 53 bits.
    check("ReduceSum", [ints(2**53 + 1, 0, 1)], 13, expected=ints(2**53 + 2))
    check("ReduceMean", [ints(2**53 + 1, 2**53 + 1)], 18, expected=ints(2**53 + 1))
    check("ReduceProd", [ints(3**20, 3**19)], 18, expected=ints(3**39))
    with pytest.raises(NotFoldable):
        folded("ReduceMean", [ints(2**63 - 1, 2**63 - 1)], 18)
    with pytest.raises(NotFoldable):
        folded("ReduceSum", [ints(2**63 - 1, 2**63 - 1)], 13)


def test_means_of_integers_are_cut_off():
    check("ReduceMean", [np.array([[-3, -4], [3, 4], [-1, 0]], np.int32), ints(1)], 18)


def test_logarithms_of_integers():
    check("ReduceLogSum", [np.array([5, 5], np.int32)], 13)
    check("ReduceLogSumExp", [np.array([5, 6], np.int32)], 13)
    check("ReduceLogSumExp", [np.array([-5], np.int32)], 13)
    with pytest.raises(NotFoldable):  # 6.006, of which onnxruntime cuts off the share of the fours
        folded("ReduceLogSumExp", [np.array([5, 5, 4, 4], np.int32)], 13)
    with pytest.raises(NotFoldable):  # -4.69: -5 for onnxruntime, -4 for others
        folded("ReduceLogSumExp", [np.array([-5, -6], np.int32)], 13)


def test_sums_of_what_is_not_finite():
    for values in ((INF, 1), (-INF, 1), (INF, -INF), (NAN, 1)):
        for op in (
            "ReduceSum",
            "ReduceMean",
            "ReduceProd",
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceSumSquare",
        ):
            check(op, [f(*values)], 18)
    check("ReduceLogSumExp", [f(-INF, -INF)], 18)
    check("ReduceLogSumExp", [f(-INF, 1000)], 18)
    check("ReduceLogSumExp", [f(1000, 1000)], 18, tolerance=1)
    check("ReduceLogSumExp", [f(-1000, -1000)], 18, tolerance=1)


def test_sums_that_overflow():
    check("ReduceSum", [f(3e38, 3e38)], 18)
    check("ReduceL2", [f(1e30, 1e30)], 18)
    check("ReduceSum", [np.array([60000, 60000, -60000, 1], np.float16)], 18)
    check("ReduceMean", [np.array([65504, 65504], np.float16)], 18)
    for op, values in [
        ("ReduceSum", (3e38, 3e38, -3e38)),
        ("ReduceMean", (3e38, 3e38)),
        ("ReduceProd", (1e30, 1e30, 1e-30)),
    ]:
        with pytest.raises(NotFoldable):
            folded(op, [f(*values)], 18)


def test_signs_of_zero():
    for op in ("ReduceL1", "ReduceMax", "ReduceMin", "ReduceProd"):
        check(op, [f(-0.0, -0.0)], 18)
    for op in ("ReduceSum", "ReduceMean"):  # onnxruntime: -0 along the last axis, 0 along the first
        with pytest.raises(NotFoldable):
            folded(op, [f(-0.0, -0.0)], 18)
        check(op, [f(-0.0)], 18, noop_with_empty_axes=1)
        check(op, [f(0.0, -0.0)], 18)
    for op in ("ReduceMax", "ReduceMin"):
        check(op, [f(0.0, -0.0, 1.0 if op == "ReduceMax" else -1.0)], 18)
        with pytest.raises(NotFoldable):
            folded(op, [f(0.0, -0.0)], 18)


def test_extremes_with_nan():
    """Where a NaN stands tells whether onnxruntime passes it on."""
    for op in ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin"):
        with pytest.raises(NotFoldable):
            folded(op, [f(1, NAN, 3)], 18)
    check("ReduceMax", [f(NAN)], 18)
    check("ReduceMax", [f(INF, 1, -INF)], 18)
    check("ArgMax", [f(NAN)], 13)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("version", [1, 11, 12, 13])
def test_arg(op, version):
    x = np.array([[3, 1, 3, -1, 1], [0, 0, -1, -1, 2]], F)
    for axis in (0, 1, -1, -2):
        for keepdims in (0, 1):
            check(op, [x], version, axis=axis, keepdims=keepdims)
            if version >= 12:
                check(op, [x], version, axis=axis, keepdims=keepdims, select_last_index=1)
    check(op, [x], version)
    check(op, [np.zeros((0, 3), F)], version, axis=1)
    check_fails(op, [np.zeros((0, 3), F)], version)
    check_fails(op, [x], version, axis=2)
    check_fails(op, [x], version, axis=-3)
    for axis in (0, -1):  # onnxruntime's inference refuses what its kernels take
        (found,) = folded(op, [np.array(1, F)], version, axis=axis)
        assert (found.dtype, found.tolist()) == (np.int64, 0)


@pytest.mark.parametrize("op", [*OPS, "ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scalars_of_which_the_file_does_not_tell_the_rank(op, axis):
    """As torch's exporter writes `x.amax(0)` of a tensor without dimensions."""
    number = "int64" if op.startswith("Arg") else "float"
    how = f"{op} <axis = {axis}> (x)" if op.startswith("Arg") else f"{op} (x, a)"
    text = f"""<ir_version: 8, opset_import: ["": 18]> m (float[] x) => ({number}[] y)
        <int64[1] a = {{{axis}}}> {{ y = {how} }}"""
    data = onnx.parser.parse_model(text).SerializeToString()
    theirs, ours = (
        make(data).run(None, {"x": np.array(2.5, F)})[0] for make in (ort.InferenceSession, anydml.load)
    )
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_arg_types():
    x = [[5, 2, 5], [1, 7, 7]]
    for dtype in (*FLOATS, "int32", "int64", "int8", "uint8"):
        check("ArgMax", [np.array(x, dtype)], 13, axis=1)
        check("ArgMax", [np.array(x, dtype)], 13, axis=1, select_last_index=1)
    for dtype in ("uint16", "int16", "uint32", "uint64"):  # by hand: onnxruntime has none of these
        check("ArgMax", [np.array(x, dtype)], 13, expected=ints([0], [1]), axis=1)
        check("ArgMin", [np.array(x, dtype)], 13, expected=ints([1], [0]), axis=1)
    check("ArgMin", [f(-0.0, 0.0, INF, -INF)], 13)
