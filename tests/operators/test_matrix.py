"""Matrix products against sums of exact numbers, onnxruntime, and ONNX's published examples."""

from math import fsum

import numpy as np
import pytest

import anydml as dml

from ..onnx.ops.checking import computed
from .tensors import BYTES, anything, check_floats, exact, layouts, quantized, scales


def batches(shape):
    return np.ndindex(shape[:-2])


# ---- floats ------------------------------------------------------------------------------------------------


def plain_gemm(a, b, c, trans_a, trans_b, alpha, beta):
    """Sums rounded once, and how far off float32 may be for their lengths."""
    a, b = (x.astype(np.float64) for x in (a, b))
    a, b = np.swapaxes(a, -1, -2) if trans_a else a, np.swapaxes(b, -1, -2) if trans_b else b
    shape = (*a.shape[:-1], b.shape[-1])
    made, size = np.zeros(shape), np.zeros(shape)
    for place in np.ndindex(shape):
        terms = a[place[:-1]] * b[(*place[:-2], slice(None), place[-1])]
        made[place], size[place] = alpha * fsum(terms), abs(alpha) * fsum(np.abs(terms))
    if c is not None:
        made, size = made + beta * c.astype(np.float64), size + np.abs(beta * c.astype(np.float64))
    return made, size * (a.shape[-1] + 3) * np.finfo(np.float32).eps


def gemm_case(seed):
    rng = np.random.default_rng(seed)
    front = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
    m, k, n = rng.integers(1, 9, 3).tolist()
    trans_a, trans_b = rng.integers(0, 2, 2).tolist()
    dtype = ("float32", "float16")[seed % 2]
    a = rng.standard_normal((*front, k, m) if trans_a else (*front, m, k)).astype(dtype)
    b = rng.standard_normal((*front, n, k) if trans_b else (*front, k, n)).astype(dtype)
    c = [None, rng.standard_normal((*front, m, n)), rng.standard_normal((*(1,) * len(front), 1, n))][seed % 3]
    alpha, beta = rng.choice([1.0, 0.0, -2.5, 0.1], 2).tolist()
    return a, b, None if c is None else c.astype(dtype), trans_a, trans_b, alpha, beta


@pytest.mark.parametrize("seed", range(36))
def test_gemm(seed):
    a, b, c, trans_a, trans_b, alpha, beta = gemm_case(seed)
    names = {"trans_a": ("NONE", "TRANSPOSE")[trans_a], "trans_b": trans_b, "alpha": alpha, "beta": beta}
    wanted, slack = plain_gemm(a, b, c, trans_a, trans_b, alpha, beta)
    y = dml.gemm(a, b, c, **names)
    check_floats(y, a.dtype, wanted, slack)
    for left, right in zip(layouts(a), layouts(b), strict=True):
        check_floats(dml.gemm(left, right, c, **names), a.dtype, wanted, slack)
    if a.ndim == 2 and a.dtype == np.float32:
        given = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
        (theirs,) = computed("Gemm", [x for x in (a, b, c) if x is not None], **given)
        assert (np.abs(y - theirs) <= 2 * slack).all()


def test_gemm_of_one_row_and_of_repeated_ones():
    rng = np.random.default_rng(5)
    row = rng.standard_normal((1, 7)).astype(np.float32)
    a, b = np.broadcast_to(row, (5, 7)), np.broadcast_to(row.T, (7, 3))
    wanted, slack = plain_gemm(a, b, None, 0, 0, 1, 1)
    check_floats(dml.gemm(a, b), np.float32, wanted, slack)
    check_floats(dml.gemm(row, row, trans_b="TRANSPOSE"), np.float32, *plain_gemm(row, row, None, 0, 1, 1, 1))
    long = rng.standard_normal((2, 3000)).astype(np.float32)
    check_floats(dml.gemm(long, long, trans_b=1), np.float32, *plain_gemm(long, long, None, 0, 1, 1, 1))


def test_gemm_keeps_what_float16_cannot_until_the_end():
    a = np.full((1, 2), 300, np.float16)
    b = np.float16([[300], [-300]])
    assert dml.gemm(a, b).tolist() == [[0]]
    assert dml.gemm(a, np.abs(b), alpha=0.125).tolist() == [[22500 - 4]]  # halves to even: steps of 16
    assert np.isposinf(dml.gemm(a, np.abs(b))).all()


def test_gemm_puts_the_sum_through_an_activation():
    rng = np.random.default_rng(6)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 5), (2, 5, 4), (1, 1, 4)))
    x, slack = plain_gemm(a, b, c, 0, 0, -0.5, 2)
    fused = [
        ("RELU", np.maximum(x, 0)),
        ("SIGMOID", 1 / (1 + np.exp(-x))),
        ({"Type": "ACTIVATION_LEAKY_RELU", "Desc": {"Alpha": 0.25}}, np.where(x < 0, x / 4, x)),
        ({"Type": "ELEMENT_WISE_CLIP", "Desc": {"Min": -0.5, "Max": 1.5}}, np.clip(x, -0.5, 1.5)),
        ("SOFTMAX", np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)),
        (
            {"Type": "ACTIVATION_SOFTMAX1", "Desc": {"AxisCount": 1, "Axes": [1]}},
            np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
        ),
    ]
    for activation, wanted in fused:
        y = dml.gemm(a, b, c, alpha=-0.5, beta=2, fused_activation=activation)
        check_floats(y, np.float32, wanted, slack + 1e-6)


# ---- whole numbers -----------------------------------------------------------------------------------------


def factor(rng, rank, size, axis):
    """The sizes of one number in all, or of one for each row or column."""
    wide = [1] * rank
    if (rank > 1 or axis == -1) and rng.integers(2):
        wide[axis] = size
    return tuple(wide)


def along(x, axis):
    """As a row or a column of exact numbers."""
    return 0 if x is None else exact(x).reshape((-1, 1) if axis == -2 else (1, -1))


def sizes(rng):
    front = tuple(rng.integers(1, 4, rng.integers(0, 3)).tolist())
    return front, *rng.integers(1, 12, 3).tolist()


@pytest.mark.parametrize("first", BYTES)
@pytest.mark.parametrize("second", BYTES)
def test_matrix_multiply_integer(first, second):
    rng = np.random.default_rng([BYTES.index(first), BYTES.index(second)])
    for _ in range(12):
        front, m, k, n = sizes(rng)
        a, b = anything(rng, first, (*front, m, k)), anything(rng, second, (*front, k, n))
        p = anything(rng, first, factor(rng, rng.integers(1, 5), m, -2)) if rng.integers(3) else None
        q = anything(rng, second, factor(rng, rng.integers(1, 5), n, -1)) if rng.integers(3) else None
        wanted = (exact(a) - along(p, -2)) @ (exact(b) - along(q, -1))
        y = dml.matrix_multiply_integer(a, p, b, q)
        assert y.dtype == np.int32
        np.testing.assert_array_equal(y, wanted.astype(np.int64))
        for left, right in zip(layouts(a), layouts(b), strict=True):
            np.testing.assert_array_equal(dml.matrix_multiply_integer(left, p, right, q), y)
        saturates = (first, second) == ("uint8", "int8")  # in onnxruntime, on processors without VNNI
        if not front and (p is None or p.size == 1) and not saturates:
            given = [a, b, None if p is None else p.reshape(()), None if q is None else q.reshape(-1)]
            if q is not None and q.size == 1:
                given[3] = q.reshape(())
            np.testing.assert_array_equal(computed("MatMulInteger", given)[0], y)


def test_matrix_multiply_integer_published():
    """The example of ONNX's MatMulInteger."""
    a = np.uint8([[11, 7, 3], [10, 6, 2], [9, 5, 1], [8, 4, 0]])
    b = np.uint8([[1, 4], [2, 5], [3, 6]])
    y = dml.matrix_multiply_integer(a, np.uint8([12]), b, np.uint8([0]))
    assert y.tolist() == [[-38, -83], [-44, -98], [-50, -113], [-56, -128]]


@pytest.mark.parametrize("length", [65, 258, 259, 1000, 66_051, 140_000])
def test_long_sums_are_exact_and_taken_modulo_2_to_32(length):
    rng = np.random.default_rng(length)
    a, b = rng.integers(250, 256, (2, length), np.uint8), rng.integers(250, 256, (length, 3), np.uint8)
    whole = a.astype(np.int64) @ b.astype(np.int64)
    assert (whole.max() > 2**32) == (length > 100_000)
    y = dml.matrix_multiply_integer(a, None, b)
    np.testing.assert_array_equal(y, whole.astype(np.int32))
    lowest = np.full((1, length), -128, np.int8)  # -255 * -255 each
    y = dml.matrix_multiply_integer(lowest, np.int8([127]), lowest.T, np.int8([127]))
    np.testing.assert_array_equal(y, np.full((1, 1), 255 * 255 * length).astype(np.int32))


@pytest.mark.parametrize("types", [(a, b, q) for a in BYTES for b in BYTES for q in BYTES], ids="-".join)
def test_quantized_linear_matrix_multiply(types):
    first, second, last = types
    rng = np.random.default_rng([BYTES.index(t) for t in types])
    for trial in range(8):
        front, m, k, n = sizes(rng)
        a, b = anything(rng, first, (*front, m, k)), anything(rng, second, (*front, k, n))
        ranks = [int(rng.integers(1, 5))] * 6
        shapes = [
            factor(rng, rank, *of) for rank, of in zip(ranks, [(m, -2), (n, -1), (m, -2)] * 2, strict=True)
        ]
        p, q, r = (anything(rng, t, shape) for t, shape in zip(types, shapes[:3], strict=True))
        s, t, u = (scales(rng, trial % 2, shape) for shape in shapes[3:])
        u *= np.float32(2.0**10)
        real = (exact(a) - along(p, -2)) @ (exact(b) - along(q, -1)) * along(s, -2) * along(t, -1)
        wanted = quantized(real / along(u, -2), along(r, -2), last)
        y = dml.quantized_linear_matrix_multiply(a, s, p, b, t, q, u, r)
        assert y.dtype == last
        np.testing.assert_array_equal(y, wanted)
        none = dml.quantized_linear_matrix_multiply(a, s, None, b, t, None, u, None, output_data_type=last)
        real = exact(a) @ exact(b) * along(s, -2) * along(t, -1)
        np.testing.assert_array_equal(none, quantized(real / along(u, -2), 0, last))


def test_quantized_linear_matrix_multiply_published():
    """The example of ONNX's QLinearMatMul."""
    a = np.uint8([[208, 236, 0, 238], [3, 214, 255, 29]])
    b = np.uint8([[152, 51, 244], [60, 26, 255], [0, 127, 246], [127, 254, 247]])
    given = [a, *_pair(0.0066, 113), b, *_pair(0.00705, 114), *_pair(0.0107, 118)]
    y = dml.quantized_linear_matrix_multiply(*given)
    assert y.tolist() == [[168, 115, 255], [1, 66, 151]]
    theirs = computed("QLinearMatMul", [x.reshape(()) if x.size == 1 else x for x in given])
    np.testing.assert_array_equal(y, theirs[0])


def _pair(scale, zero_point):
    return np.float32([scale]), np.uint8([zero_point])


def test_quantized_linear_matrix_multiply_by_scales_of_zero():
    a, b, zero = np.int8([[1, -1, 0]]), np.int8([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), np.float32([0])
    one = np.float32([1])
    y = dml.quantized_linear_matrix_multiply(a, one, None, b, one, None, zero, np.int8([5]))
    assert y.tolist() == [[127, -128, 0]]  # of infinities, and of NaN


INTEGERS = "int8 uint8 int16 uint16 int32 uint32".split()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("integer", INTEGERS)
def test_matrix_multiply_integer_to_float(integer, dtype):
    rng = np.random.default_rng([INTEGERS.index(integer), len(dtype)])
    bits = np.iinfo(integer).bits
    narrow = np.array(2**16 if dtype == "float16" and bits == 32 else 1, integer)
    small = 2.0 ** -min(bits, 12 if dtype == "float16" else 32)
    for trial in range(8):
        front, m, k, n = sizes(rng)
        a, b = (anything(rng, integer, (*front, *last)) // narrow for last in ((m, k), (k, n)))

        rank = int(rng.integers(1, 5))
        shapes = [factor(rng, rank, *of) for of in [(m, -2), (n, -1)] * 2]
        s, t = ((rng.uniform(0.5, 2, shape) * small).astype(dtype) for shape in shapes[:2])
        p, q = (anything(rng, integer, shape) // narrow if trial % 4 else None for shape in shapes[2:])
        bias = rng.standard_normal((*front, m, n)).astype(dtype) if trial % 2 else None
        whole = (exact(a) - along(p, -2)) @ (exact(b) - along(q, -1))
        wanted = (whole * along(s, -2) * along(t, -1)).astype(np.float64)
        wanted = wanted if bias is None else wanted + bias
        y = dml.matrix_multiply_integer_to_float(a, s, p, b, t, q, bias)
        slack = np.abs(wanted) * np.finfo(np.float32).eps
        if bits == 32:  # sums beyond 2^53
            size = np.abs(exact(a) - along(p, -2)) @ np.abs(exact(b) - along(q, -1))
            slack = slack + (size * along(s, -2) * along(t, -1)).astype(np.float64) * k * 2.0**-53
        check_floats(y, dtype, wanted, slack)


def test_matrix_multiply_integer_to_float_as_in_onnxruntime():
    rng = np.random.default_rng(9)
    a, b = anything(rng, "int8", (6, 20)), anything(rng, "int8", (20, 5))
    s, t = np.float32([0.02]), np.float32(rng.uniform(0.01, 0.1, 5))
    p, q = np.int8([3]), anything(rng, "int8", 5)
    bias = np.float32(rng.standard_normal((1, 5)))
    (theirs,) = computed("MatMulIntegerToFloat", [a, b, s, t, p, q, bias[0]], domain="com.microsoft")
    y = dml.matrix_multiply_integer_to_float(a, s, p, b, t, q, bias)
    np.testing.assert_allclose(y, theirs, rtol=1e-5, atol=1e-4)
