"""Integers: every result is exact. Types of 8 bits are tried whole, the others at their edges."""

import numpy as np
import pytest

import anydml as dml

from .cases import CASES
from .checking import apply, check, edges, random_bits

BYTES = ["int8", "uint8"]
WIDE = ["int64", "int32", "int16", "uint64", "uint32", "uint16"]
EVERY = WIDE + BYTES


def takes(name, dtype):
    case = CASES[name]
    return dtype in case.types.get("T", "").split() and {s.type_variable for s in case.inputs} <= {"T", "E"}


def choices(count, dtypes):
    found = [(n, d) for n, c in CASES.items() if len(c.inputs) == count for d in dtypes if takes(n, d)]
    return pytest.mark.parametrize(("name", "dtype"), found)


def attempt(name, inputs):
    case, dtype = CASES[name], inputs[0].dtype
    types = {
        type_variable: dtype if type_variable in "TE" else np.dtype(np.uint8) for type_variable in case.types
    }
    for attributes in case.attributes:
        check(case, apply(case, inputs, attributes, types), inputs, attributes)


@choices(1, BYTES)
def test_every_byte(name, dtype):
    attempt(name, [np.arange(256, dtype=np.uint8).view(dtype)])


@choices(2, BYTES)
def test_every_pair_of_bytes(name, dtype):
    a, b = np.divmod(np.arange(1 << 16), 256)
    attempt(name, [a.astype(np.uint8).view(dtype), b.astype(np.uint8).view(dtype)])


@choices(1, ["int16", "uint16"])
def test_every_16_bits(name, dtype):
    attempt(name, [np.arange(1 << 16, dtype=np.uint16).view(dtype)])


@choices(1, WIDE)
def test_edges(name, dtype):
    attempt(name, [edges(dtype)])


@choices(2, WIDE)
def test_pairs_of_edges(name, dtype):
    """Vectors as long as one thread's work, so that the vectorised loop meets every edge too."""
    rng = np.random.default_rng(41)
    grid = np.array(np.meshgrid(edges(dtype), edges(dtype)), dtype).reshape(2, -1)
    attempt(name, list(grid))
    attempt(name, [random_bits(rng, dtype, 3001), random_bits(rng, dtype, 3001)])
    shifted = random_bits(rng, dtype, 3001) >> rng.integers(0, np.iinfo(dtype).bits, 3001).astype(dtype)
    attempt(name, [random_bits(rng, dtype, 3001), shifted])


# ---- by hand -----------------------------------------------------------------------------------------


def same(got, wanted, dtype):
    assert got.dtype == dtype
    assert got.tolist() == wanted


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8"])
def test_the_least_number_wraps(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([low, low, high], dtype)
    minus = np.array([-1, 1, -1], dtype)
    same(dml.divide(x, minus), [low, low, -high], dtype)
    same(dml.modulus_truncate(x, minus), [0, 0, 0], dtype)
    same(dml.modulus_floor(x, minus), [0, 0, 0], dtype)
    same(dml.abs(x), [low, low, high], dtype)
    same(dml.negate(x), [low, low, -high], dtype)
    same(dml.add(x, minus), [high, low + 1, high - 1], dtype)
    same(dml.subtract(x, minus), [low + 1, high, low], dtype)
    same(dml.multiply(x, minus), [low, low, -high], dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_division_by_zero_is_zero(dtype):
    x, zero = edges(dtype), np.zeros(1, dtype)
    for f in (dml.divide, dml.modulus_truncate, dml.modulus_floor):
        same(f(x, zero), [0] * len(x), dtype)
        same(f(np.tile(x, 50), np.zeros(50 * len(x), dtype)), [0] * 50 * len(x), dtype)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8"])
def test_signs_of_quotients_and_remainders(dtype):
    a, b = np.array([7, -7, 7, -7, 6, -6], dtype), np.array([2, 2, -2, -2, 3, -3], dtype)
    same(dml.divide(a, b), [3, -3, -3, 3, 2, 2], dtype)
    same(dml.modulus_truncate(a, b), [1, -1, 1, -1, 0, 0], dtype)
    same(dml.modulus_floor(a, b), [1, 1, -1, -1, 0, 0], dtype)


def test_means_go_toward_zero_and_do_not_overflow():
    low, high = -(2**31), 2**31 - 1
    a, b = np.int32([low, high, low, -1, 1, -3, 3, low]), np.int32([low, high, high, 0, 0, 0, 0, low + 1])
    same(dml.mean(a, b), [low, high, 0, 0, 0, -1, 1, low + 1], "int32")
    a, b = np.uint32([2**32 - 1, 2**32 - 1, 1]), np.uint32([2**32 - 1, 2**32 - 2, 0])
    same(dml.mean(a, b), [2**32 - 1, 2**32 - 2, 0], "uint32")


@pytest.mark.parametrize("dtype", ["uint64", "uint32", "uint16", "uint8"])
def test_shifts_by_the_width_and_more_give_zero(dtype):
    bits, top = np.iinfo(dtype).bits, np.iinfo(dtype).max
    counts = np.array([0, 1, bits - 1, bits, bits + 1, 2 * bits, top], dtype)
    ones = np.full(len(counts), top, dtype)
    same(dml.bit_shift_left(ones, counts), [top, top - 1, 1 << bits - 1, 0, 0, 0, 0], dtype)
    same(dml.bit_shift_right(ones, counts), [top, top >> 1, 1, 0, 0, 0, 0], dtype)


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8"])
def test_integer_powers(dtype):
    bits, low = np.iinfo(dtype).bits, np.iinfo(dtype).min
    x = np.array([3, -3, 0, 0, 0, 1, -1, -1, 2, -2, 2, 2, -2, 5], dtype)
    n = np.array([3, 3, 0, 5, -1, -7, -7, -8, -1, -1, bits - 1, bits, bits - 1, -3], dtype)
    same(dml.pow(x, n), [27, -27, 1, 0, 0, 1, -1, 1, 0, 0, low, 0, low, 0], dtype)
    modulus = np.array([7], dtype)
    wanted = (7**99 + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    same(dml.pow(modulus, np.array([99], dtype)), [wanted], dtype)


def test_powers_of_mixed_integers():
    """The result has the input's type; the exponent's signedness is its own."""
    same(dml.pow(np.uint8([3, 2, 7, 1, 0]), np.int32([5, 8, -1, -5, -5])), [243, 0, 0, 1, 0], "uint8")
    same(dml.pow(np.int8([-1, -1, 3]), np.uint32([2**32 - 1, 2**32 - 2, 2**31])), [-1, 1, 1], "int8")
    same(dml.pow(np.uint32([65537]), np.int8([3])), [65537**3 % 2**32], "uint32")


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint32", "uint16", "uint8"])
def test_integers_to_float_powers_truncate_and_saturate(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([2, 9, 4, 0, 0, 1, 100, 2, 3], dtype)
    n = np.float32([1.5, 0.5, -0.5, 0.0, -1.0, np.nan, 30.0, np.inf, -np.inf])
    same(dml.pow(x, n), [2, 3, 0, 1, high, 1, high, high, 0], dtype)
    if low < 0:
        x, n = np.array([-2, -2, -100, -1], dtype), np.float32([0.5, 3.0, 31.0, np.inf])
        same(dml.pow(x, n), [0, -8, low, 1], dtype)


@pytest.mark.parametrize("exponent", [np.float32, np.float16])
def test_integers_to_whole_float_powers_are_exact(exponent):
    """A result just below a whole number would lose 1 when it is truncated."""
    x, n = np.meshgrid(np.arange(-40, 41, dtype=np.int32), np.arange(0, 5).astype(exponent))
    assert np.array_equal(dml.pow(x, n), x.astype(np.int64) ** n.astype(np.int64))


@pytest.mark.parametrize("dtype", EVERY)
def test_bounds_of_clips_are_converted_first(dtype):
    """Toward zero and saturated: -2.9 is -2, or 0 where there are no signs; 1e30 is the greatest number."""
    x, low, high = edges(dtype), np.iinfo(dtype).min, np.iinfo(dtype).max
    for least, greatest, a, b in (
        (-2.9, 2.9, max(low, -2), 2),
        (-1e30, 1e30, low, high),
        (-np.inf, np.inf, low, high),
        (0.99, 1e30, 0, high),
    ):
        wanted = [max(a, min(v, b)) for v in x.tolist()]
        same(dml.clip(x, min=least, max=greatest), wanted, dtype)
        wanted = [0 if v <= a or v >= b else 1 for v in x.tolist()]
        same(dml.clip_grad(x, np.ones_like(x), min=least, max=greatest), wanted, dtype)
        if "64" not in dtype:
            same(dml.threshold(x, min=least), [max(v, a) for v in x.tolist()], dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_bounds_of_clip1_have_the_tensors_type(dtype):
    x, low, high = edges(dtype), np.iinfo(dtype).min, np.iinfo(dtype).max
    for a, b in ((low, high), (low + 1, high - 1), (high, high), (high, low), (low, low)):
        same(dml.clip1(x, min=a, max=b), [max(a, min(v, b)) for v in x.tolist()], dtype)
        wanted = [0 if v <= a or v >= b else 1 for v in x.tolist()]
        same(dml.clip_grad1(x, np.ones_like(x), min=a, max=b), wanted, dtype)


@pytest.mark.parametrize("dtype", ["uint32", "uint16", "uint8"])
def test_shrink_of_unsigned_integers_has_no_lower_side(dtype):
    x = np.array([0, 1, 3, 4, 5, 200, np.iinfo(dtype).max], dtype)
    same(
        dml.activation_shrink(x, bias=2.0, threshold=3.0),
        [0, 0, 0, 2, 3, 198, np.iinfo(dtype).max - 2],
        dtype,
    )


@pytest.mark.parametrize("dtype", [*EVERY, "float16", "float32", "float64"])
@pytest.mark.parametrize("counted", ["UINT8", "UINT32"])
def test_bit_counts(dtype, counted):
    x = random_bits(np.random.default_rng(42), dtype, 999)
    wanted = [int.from_bytes(v.tobytes(), "little").bit_count() for v in x]
    same(dml.bit_count(x, output_data_type=counted), wanted, counted.lower())


def test_comparisons_of_64_bits_are_exact():
    a = np.int64([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**63 - 1])
    b = np.int64([2**53 + 1, 2**53, 2**63 - 1, -(2**63), 2**63 - 2])
    same(dml.equals(a, b), [0] * 5, "uint8")
    same(dml.less_than(a, b), [1, 0, 1, 0, 0], "uint8")
    same(dml.greater_than(a.view(np.uint64), b.view(np.uint64)), [0, 1, 1, 0, 1], "uint8")
    same(dml.max(a, b), [2**53 + 1, 2**53 + 1, 2**63 - 1, 2**63 - 1, 2**63 - 1], "int64")


def test_logic_takes_every_number_but_zero_as_true():
    a, b = np.uint32([0, 2, 256, 2**31, 1]), np.uint32([0, 1, 0, 65536, 2])
    same(dml.logical_and(a, b), [0, 1, 0, 1, 1], "uint32")
    same(dml.logical_or(a, b), [0, 1, 1, 1, 1], "uint32")
    same(dml.logical_xor(a, b), [0, 0, 1, 0, 0], "uint32")
    same(dml.logical_not(a), [1, 0, 0, 0, 0], "uint32")


# ---- quantization ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_quantization_rounds_halves_to_even_and_saturates(dtype):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.49, 1000, -1000, np.inf, -np.inf], dtype)
    scale = np.ones(1, dtype)
    signed, unsigned = np.int8([0]), np.uint8([10])
    same(dml.quantize_linear(x, scale, signed), [0, 2, 2, 0, -2, -2, 3, 127, -128, 127, -128], "int8")
    same(dml.quantize_linear(x, scale, unsigned), [10, 12, 12, 10, 8, 8, 13, 255, 0, 255, 0], "uint8")
    halves = np.array([0.25, 0.75, -0.25], dtype)
    same(dml.quantize_linear(halves, np.array([0.5], dtype), np.int8([-128])), [-128, -126, -128], "int8")


def test_zero_points_are_added_after_rounding():
    """An odd zero point does not turn the halves the other way."""
    x = np.float32([0.5, 1.5, -0.5, -1.5])
    same(dml.quantize_linear(x, np.float32([1]), np.int8([1])), [1, 3, 1, -1], "int8")


def test_quantization_of_integers():
    x = np.int32([2**31 - 1, -(2**31), 100, 7, -7])
    scale = np.float32([2.0])
    same(dml.quantize_linear(x, scale, np.int8([0])), [127, -128, 50, 4, -4], "int8")
    same(dml.quantize_linear(x[2:], np.float32([2.0**23]), output_data_type="INT8"), [0, 0, 0], "int8")


def test_zero_points_are_subtracted_exactly():
    """The difference of two 32-bit integers needs 33 bits; the one of large ones may be small."""
    x, zero = (
        np.int32([2**31 - 1, 2**31 - 1, -(2**31), 2**24 + 1]),
        np.int32([-(2**31), 2**31 - 2, 2**31 - 1, 2**24]),
    )
    y = dml.dequantize_linear(x, np.float32([0.5]), zero)
    assert y.tolist() == [2.0**31, 0.5, -(2.0**31), 0.5]
    x, zero = np.uint32([0, 2**32 - 1, 5]), np.uint32([2**32 - 1, 0, 7])
    assert dml.dequantize_linear(x, np.float32([1]), zero).tolist() == [-(2.0**32), 2.0**32, -2]
    assert dml.dequantize_linear(np.uint8([0, 255]), np.float16([1]), np.uint8([255])).tolist() == [-255, 0]


@pytest.mark.parametrize("dtype", ["int16", "int8", "uint16", "uint8"])
def test_dequantized_small_integers_are_rounded_once(dtype):
    rng = np.random.default_rng(43)
    x, zero = random_bits(rng, dtype, 5000), random_bits(rng, dtype, 5000)
    scale = rng.uniform(1e-3, 10, 5000).astype(np.float32)
    wanted = (x.astype(np.float64) - zero) * scale
    assert np.array_equal(dml.dequantize_linear(x, scale, zero), wanted.astype(np.float32))


def test_dequantization_with_scales_that_ieee_defines():
    x, scale = np.int8([0, 5, 5, -5]), np.float32([np.inf, np.inf, 0, -np.inf])
    assert np.array_equal(dml.dequantize_linear(x, scale), np.float32([np.nan, np.inf, 0, np.inf]), True)


def test_quantized_sums():
    one, half, two = np.float32([1]), np.float32([0.5]), np.float32([2])
    a, b = np.int8([100, -100, 2, 3, -1]), np.uint8([200, 0, 0, 0, 0])
    zero = np.int8([0])
    y = dml.quantized_linear_add(a, one, zero, b, one, np.uint8([0]), one, zero)
    same(y, [127, -100, 2, 3, -1], "int8")
    y = dml.quantized_linear_add(a, half, np.int8([1]), b, half, np.uint8([2]), two, np.uint8([9]))
    same(y, [83, 0, 9, 9, 8], "uint8")
    y = dml.quantized_linear_add(a, one, None, b, one, None, one, output_data_type="UINT8")
    same(y, [255, 0, 2, 3, 0], "uint8")


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("size", [1, 3, 40])
def test_nothing_is_less_than_zero(dtype, size):
    """LLVM makes one integer of no bits of a float as an integer and the smaller of it and 0."""
    x = np.arange(size).astype(dtype)
    for low, high in ((0, 0.7), (0, 0), (-1, 0), (0, 3)):
        y = dml.clip(x, min=low, max=high, scale_bias=(3.0, 0.5))
        assert y.tolist() == [min(3 * k, int(high)) for k in range(size)]
    g = dml.GraphBuilder()
    made = dml.cast(g.input("x", "FLOAT64", [size]), output_data_type=dtype.upper())
    graph = g.compile(
        {"least": dml.clip(made, min=0, max=0), "none": made < 0, "all": made >= 0, "zero": made <= 0}
    )
    found = graph({"x": np.arange(size) - 0.5})
    assert found["least"].tolist() == found["none"].tolist() == [0] * size
    assert found["all"].tolist() == [1] * size
    assert found["zero"].tolist() == [int(k <= 1) for k in range(size)]
