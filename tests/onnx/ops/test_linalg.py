"""Products of matrices."""

import ml_dtypes
import numpy as np
import pytest

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
B16 = ml_dtypes.bfloat16
R = np.random.default_rng(3)
INTEGERS = ("int32", "int64", "uint32", "uint64")


def grid(*shape, dtype="float32"):
    """Small integers, with which products are exact in every order."""
    return R.integers(-5, 5, shape).astype(dtype)


def f(*values):
    return np.array(values, F)


# ---- MatMul ------------------------------------------------------------------------------------------

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((4, 1, 2, 3), (5, 3, 2)),
    ((3,), (5, 3, 2)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((5, 2, 0), (0, 3)),
    ((0, 2, 3), (0, 3, 1)),
]


@pytest.mark.parametrize("version", [1, 9, 13])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_shapes(version, a, b):
    check("MatMul", [grid(*a), grid(*b)], version)
    check("MatMul", [grid(*a, dtype="float64"), grid(*b, dtype="float64")], version)


def test_vectors_of_nothing():
    """By hand: onnxruntime leaves the result as the memory was."""
    check("MatMul", [np.zeros((3, 0), F), np.zeros(0, F)], 13, expected=np.zeros(3, F))
    check("MatMul", [np.zeros(0, F), np.zeros(0, F)], 13, expected=np.array(0, F))
    check("MatMul", [np.zeros(0, F), np.zeros((0, 2), F)], 13, expected=np.zeros(2, F))


def test_shapes_that_do_not_fit():
    for a, b in [((2, 3), (2, 3)), ((), (3,)), ((3,), ()), ((2, 2, 3), (3, 3, 2))]:
        check_fails("MatMul", [grid(*a), grid(*b)], 13)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16"])
def test_types(dtype):
    check("MatMul", [np.abs(grid(2, 3)).astype(dtype), np.abs(grid(3, 4)).astype(dtype)], 13)


def test_integers_wrap():
    check("MatMul", [np.array([[2**31 - 1]], np.int32), np.array([[2]], np.int32)], 13)
    check("MatMul", [np.array([[2**62]], np.int64), np.array([[4]], np.int64)], 13)
    check("MatMul", [np.array([[2**53 + 1]], np.int64), np.array([[3]], np.int64)], 13)


def test_values():
    a, b = R.normal(size=(3, 7)).astype(F), R.normal(size=(7, 2)).astype(F)
    check("MatMul", [np.abs(a), np.abs(b)], 13, tolerance=4)
    check("MatMul", [f([NAN, 1], [INF, 2]), f([1, 0], [1, 1])], 13)
    check("MatMul", [f([3e38, 3e38]), f([1], [1])], 13)
    check("MatMul", [np.array([[300, 300]], np.float16), np.array([[300], [-300]], np.float16)], 13)
    with pytest.raises(NotFoldable):
        folded("MatMul", [f([3e38, 3e38, -3e38]), f([1], [1], [1])], 13)
    # By hand: onnxruntime has no bfloat16.
    check("MatMul", [np.array([256, 1, 1], B16), np.ones(3, B16)], 13, expected=np.array(258, B16))


# ---- Gemm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 9, 11, 13])
def test_gemm(version):
    a, b = grid(2, 3), grid(3, 4)
    for c in (grid(2, 4), grid(4), grid(1, 4), grid(2, 1), np.array(3, F), grid(1)):
        check("Gemm", [a, b, c], version)
        check("Gemm", [a, b, c], version, alpha=0.5, beta=2.0)
    c = grid(4)
    check("Gemm", [a.T.copy(), b, c], version, transA=1)
    check("Gemm", [a, b.T.copy(), c], version, transB=1)
    check("Gemm", [a.T.copy(), b.T.copy(), c], version, transA=1, transB=1, alpha=-1.0)
    check("Gemm", [np.zeros((2, 0), F), np.zeros((0, 4), F), c], version)
    check("Gemm", [np.zeros((0, 3), F), b, c], version)
    check("Gemm", [a, b, c], version, beta=0.0)
    doubles = [x.astype(np.float64) for x in (a, b, c)]
    check("Gemm", doubles, version, alpha=0.5)
    check_fails("Gemm", [a, a, c], version)
    check_fails("Gemm", [a, b, grid(3)], version)
    check_fails("Gemm", [a, b, grid(1, 2, 4)], version)
    check_fails("Gemm", [grid(3), b, c], version)


def test_gemm_without_c():
    for version in (11, 13):
        check("Gemm", [grid(2, 3), grid(3, 4)], version, alpha=2.0)
        check("Gemm", [np.zeros((2, 0), F), np.zeros((0, 4), F)], version)


def test_gemm_of_old():
    """By hand: onnxruntime begins with opset 7."""
    a, b, c = grid(2, 3), grid(3, 4), grid(4)
    for version in (1, 6):
        check("Gemm", [a, b, c], version, expected=a @ b + c, broadcast=1)
        check("Gemm", [a, b, np.tile(c, (2, 1))], version, expected=a @ b + c)
        with pytest.raises(NotFoldable):
            folded("Gemm", [a, b, c], version)


def test_gemm_types():
    a, b, c = grid(2, 3), grid(3, 4), grid(4)
    check("Gemm", [x.astype(np.float16) for x in (a, b, c)], 13, alpha=0.5)
    # By hand: onnxruntime has none of these.
    expected = 2 * (a @ b) + 3 * c
    for dtype in ("int32", "int64"):
        inputs = [x.astype(dtype) for x in (a, b, c)]
        check("Gemm", inputs, 13, expected=expected.astype(dtype), alpha=2.0, beta=3.0)
        check("Gemm", inputs[:2], 13, expected=(a @ b).astype(dtype))
    check("Gemm", [x.astype(B16) for x in (a, b, c)], 13, expected=expected.astype(B16), alpha=2.0, beta=3.0)
    with pytest.raises(NotFoldable):
        folded("Gemm", [x.astype("int32") for x in (a, b, c)], 13, alpha=0.5)


def test_nothing_of_what_is_not_finite():
    """Whether 0 * NaN is computed is up to the library."""
    for inputs, attributes in [
        ([grid(2, 2), grid(2, 2), f(NAN)], {"beta": 0.0}),
        ([f([INF, 1]), grid(2, 2)], {"alpha": 0.0}),
    ]:
        with pytest.raises(NotFoldable):
            folded("Gemm", inputs, 13, **attributes)
    check("Gemm", [f([INF, 1]), f([1], [1]), f(NAN)], 13)


# ---- MatMulInteger -----------------------------------------------------------------------------------


@pytest.mark.parametrize("a", ["uint8", "int8"])
@pytest.mark.parametrize("b", ["uint8", "int8"])
def test_matmul_integer(a, b):
    x, y = np.array([[1, 100], [3, 4]], a), np.array([[3, 1, 7], [4, 2, 127]], b)
    check("MatMulInteger", [x, y], 10)
    check("MatMulInteger", [x, y, np.array(1, a), np.array(2, b)], 10)
    check("MatMulInteger", [x, y, np.array([1], a), np.array([2, 1, 100], b)], 10)
    check("MatMulInteger", [x, y, None, np.array(2, b)], 10)
    check("MatMulInteger", [x[0], y[:, 0]], 10)
    # By hand: onnxruntime has no zero points of rows.
    rows = np.array([1, 2], a)
    expected = (x.astype(np.int32) - np.array([[1], [2]])) @ y.astype(np.int32)
    check("MatMulInteger", [x, y, rows], 10, expected=expected.astype(np.int32))
    check("MatMulInteger", [x, y, rows[:, None]], 10, expected=expected.astype(np.int32))


def test_matmul_integer_edges():
    x, y = np.full((1, 4), 255, np.uint8), np.full((4, 1), -128, np.int8)
    check("MatMulInteger", [x, y], 10, expected=np.array([[-130560]], np.int32))  # some processors saturate
    # By hand: onnxruntime leaves the result as the memory was.
    none = [np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.uint8)]
    check("MatMulInteger", none, 10, expected=np.zeros((2, 3), np.int32))
    check_fails("MatMulInteger", [x, x], 10)
    check_fails("MatMulInteger", [x, y, None, np.array([1, 2], np.int8)], 10)


# ---- Einsum ------------------------------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("ba", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (2, 2, 3)),
    ("ij->", (2, 3)),
    ("ij->ji", (2, 3)),
    ("i,j,k->", (2,), (3,), (4,)),
    ("ij,ij", (2, 3), (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...i,...i->...", (1, 3), (2, 3)),
    ("...i,...i", (2, 3), (2, 3)),
    ("i...->...", (2, 3, 4)),
    ("b...i,i->...b", (2, 4, 3), (3,)),
    ("->", ()),
    (",->", (), ()),
    ("i,i->i", (1,), (1,)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum(equation, shapes):
    for dtype in ("float32", "float64", "int32", "int64"):
        check("Einsum", [grid(*s, dtype=dtype) for s in shapes], 12, equation=equation)


def test_einsum_by_hand():
    """onnxruntime ends the process on empty tensors, and refuses some letters and types."""
    empty = np.zeros((2, 0), F)
    check("Einsum", [empty, empty.T.copy()], 12, expected=np.zeros((2, 2), F), equation="ij,jk->ik")
    check("Einsum", [empty], 12, expected=np.zeros(2, F), equation="ij->i")
    check("Einsum", [empty], 12, expected=np.zeros((0, 2), F), equation="ij->ji")
    check("Einsum", [empty], 12, expected=np.array(0, F), equation="ij->")
    x = grid(2, 3)
    check("Einsum", [x], 12, expected=x, equation="Ba")
    check("Einsum", [x], 12, expected=x.T, equation="aB")  # upper case letters come first
    top = np.array([[2**31 - 1]], np.int32)
    check("Einsum", [top, top], 12, expected=np.array([[1]], np.int32), equation="ij,jk->ik")
    for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "uint64"):
        y = np.array([[200, 100]], np.int64).astype(dtype)
        with np.errstate(over="ignore"):
            total = y.sum(1, dtype=dtype)
        check("Einsum", [y], 12, expected=total, equation="ij->i")
    check(
        "Einsum", [np.array([256, 1, 1], np.float16)], 12, expected=np.array(258, np.float16), equation="i->"
    )
    check("Einsum", [np.array([256, 1, 1], B16)], 28, expected=np.array(258, B16), equation="i->")


def test_einsum_fails():
    x = grid(2, 3)
    for inputs, equation in [
        ([x, x], "ij,jk->ik"),
        ([x], "ij->ijk"),
        ([x], "ij->ii"),
        ([x], "ij,jk->ik"),
    ]:
        check_fails("Einsum", inputs, 12, equation=equation)
    check_fails("Einsum", [x], 12, alone=True, equation="ijk->i")  # onnxruntime ends the process on some


def test_einsum_that_is_not_defined():
    for equation, *shapes in [
        ("i,i->i", (1,), (3,)),
        ("...i->i", (2, 3)),
        ("...i,...i->...", (2, 3), (3,)),
    ]:
        with pytest.raises(NotFoldable):
            folded("Einsum", [grid(*s) for s in shapes], 12, equation=equation)


# ---- Det ---------------------------------------------------------------------------------------------


def test_det():
    check("Det", [f([1, 2], [3, 4])], 11, tolerance=2)
    check("Det", [f([1, 2, 0], [3, 4, 5], [-1, 0, 2])], 22, tolerance=4)
    check("Det", [(R.normal(size=(2, 5, 3, 3)) + 4 * np.eye(3)).astype(F)], 11, tolerance=64)
    for shape in ((0, 0), (2, 0, 0), (0, 2, 2), (1, 1)):
        check("Det", [np.zeros(shape, F)], 11)
    for x in (grid(3), grid(2, 3), np.array(1, F)):
        check_fails("Det", [x], 11)
    for values in (([1, 2], [2, 4]), ([NAN, 1], [1, 1])):
        with pytest.raises(NotFoldable):
            folded("Det", [f(*values)], 11)
    check("Det", [f([1e30, 0], [0, 1e30])], 11)
    # By hand: onnxruntime has no float64, and no bfloat16.
    for dtype in (np.float64, B16):
        check("Det", [np.array([[4, 0], [1, 2]], dtype)], 22, tolerance=1, expected=np.array(8, dtype))
