"""Quantization in blocks and of 4 bits, casts between all types, scaled images, and Adam's step.

Wanted values are of Python's exact numbers, of float32 step by step where that is what is promised, of
onnxruntime, or of formulas in float64.
"""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import anydml as dml
from tests.onnx.ops.checking import computed

from .checking import edges, random_bits
from .tensors import scattered

FLOATS = "float16 float32 float64".split()
TYPES = [*FLOATS, *"int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()]
RANGES = {"UINT8": (0, 255), "INT8": (-128, 127), "UINT4": (0, 15), "INT4": (-8, 7)}
NAN, INF = math.nan, math.inf
every_seed = pytest.mark.parametrize("seed", range(6))


def nearest(value, dtype):
    """An exact number as the nearest float, halves to even; beyond the last one it is infinite."""
    if value == 0 or not math.isfinite(value):
        return value
    info, size = np.finfo(dtype), abs(Fraction(value))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    found = round(size / unit) * unit
    return math.copysign(math.inf if found > float(info.max) else float(found), value)


def cast(value, source, target):
    """One element; a float64 becomes a float16 by way of a float32."""
    if target in FLOATS:
        by_way = (source, target) == ("float64", "float16")
        return nearest(nearest(value, "float32") if by_way else value, target)
    info = np.iinfo(target)
    low, high = int(info.min), int(info.max)
    if source not in FLOATS:
        return (value - low) % (high - low + 1) + low
    if math.isnan(value):
        return 0
    return (low if value < 0 else high) if math.isinf(value) else min(max(math.trunc(value), low), high)


@pytest.mark.parametrize(("source", "target"), list(product(TYPES, TYPES)))
def test_cast(source, target):
    rng = np.random.default_rng([71, *source.encode(), *target.encode()])
    x = [edges(source), random_bits(rng, source, 60), rng.integers(-128 if source[0] != "u" else 0, 128, 20)]
    if source in FLOATS:  # around the ends of all types, and between two float16
        ends = np.array([2.0**k + d for k in (7, 8, 15, 16, 31, 32, 63, 64) for d in (-1, -0.5, 0, 0.5)])
        x += [ends, -ends, 1 + np.arange(40) / 2**12, rng.normal(size=20) * 1e-7]
    with np.errstate(all="ignore"):
        x = np.concatenate([np.asarray(part).astype(source) for part in x])
        x = scattered(rng, np.resize(x, (7, -(-x.size // 7))))
        y = dml.cast(x, output_data_type=target.upper())
        wanted = [cast(v, source, target) for v in x.ravel().tolist()]
        assert (y.dtype, y.shape) == (target, x.shape)
        if target in FLOATS:
            wanted = np.array(wanted, float).astype(target)
            np.testing.assert_array_equal(y.ravel(), wanted)
            assert (np.signbit(y.ravel()) == np.signbit(wanted))[~np.isnan(wanted)].all()
        else:
            assert y.ravel().tolist() == wanted
    if source == target:
        assert y.tobytes() == x.tobytes()


def test_cast_must_be_told_the_type():
    x = np.float32([1.5, 300])
    with pytest.raises(dml.InvalidOperator, match="output_data_type: expected a data type"):
        dml.cast(x)
    assert dml.cast(x, out=np.zeros(2, np.int16)).tolist() == [1, 300]
    with pytest.raises(dml.InvalidOperator, match="expected a data type"):
        dml.cast(dml.GraphBuilder().input("x", "FLOAT32", (2,)))


@every_seed
@pytest.mark.parametrize("low", [-3, 0, 1, -900])
def test_dynamic_quantization(low, seed):
    rng = np.random.default_rng([72, seed, low + 900])
    shape = tuple(map(int, rng.integers(1, 6, rng.integers(1, 5))))
    x = rng.uniform(low, low + rng.choice([1, 4, 1000]), shape).astype(np.float32)
    y, scale, zero = dml.dynamic_quantize_linear(scattered(rng, x), output_data_type="UINT8")
    for got, exact in zip(
        (y, scale, zero), computed("DynamicQuantizeLinear", [x], 11, outputs=3), strict=True
    ):
        assert got.dtype == exact.dtype
        np.testing.assert_array_equal(got.reshape(exact.shape), exact)
    assert scale.shape == zero.shape == (1,) * x.ndim
    for dtype, given in product(("UINT8", "INT8"), (x, x.astype(np.float16))):
        y, scale, zero = dml.dynamic_quantize_linear(given, output_data_type=dtype)
        assert (y.dtype, zero.dtype, scale.dtype) == (dtype.lower(), dtype.lower(), np.float32)
        values = given.astype(float)
        span = max(values.max(), 0) - min(values.min(), 0)
        np.testing.assert_allclose(scale.item(), span / 255, rtol=1e-6)
        back = (y.astype(float) - float(zero.item())) * scale.item()
        assert (abs(back - values) <= scale.item() * 0.501).all()


def test_dynamic_quantization_of_nothing_but_zeros():
    y, scale, zero = dml.dynamic_quantize_linear(np.zeros((2, 3), np.float32), output_data_type="INT8")
    assert (scale.item(), zero.item(), set(y.ravel().tolist())) == (1, -128, {-128})


def blocks(rng, shape, whole):
    """Sizes that divide these: as many scales along each dimension."""
    return tuple(int(rng.choice([m for m in range(1, n + 1) if n % m == 0])) if whole else 1 for n in shape)


def spread(parameter, shape):
    """The parameter of each element."""
    lines = zip(shape, parameter.shape, strict=True)
    return parameter[np.ix_(*(np.arange(n) * m // n for n, m in lines))]


def quantized(x, scale, zero, dtype):
    """Element by element in float32: half a unit more or less is another integer."""
    low, high = RANGES[dtype]
    with np.errstate(all="ignore"):
        y = np.rint(x.astype(np.float32) / scale.astype(np.float32)).astype(float) + zero
    return np.where(np.isnan(y), 0, np.clip(y, low, high))


@every_seed
@pytest.mark.parametrize("float_type", ["float32", "float16"])
@pytest.mark.parametrize("dtype", ["UINT8", "INT8"])
def test_quantize_and_dequantize(dtype, float_type, seed):
    rng = np.random.default_rng([73, *dtype.encode(), *float_type.encode(), seed])
    shape = tuple(map(int, rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5))))
    x = rng.choice([-INF, INF, NAN, 0.5, 1.5, 2.5, 1e4, *rng.normal(size=40) * 90], shape).astype(float_type)
    count = blocks(rng, shape, seed % 2)
    scale = rng.choice([0.5, 0.1, 2, 1, -1, 0, 0.37], count).astype(float_type)
    low, high = RANGES[dtype]
    zero = rng.integers(low, high + 1, count).astype(dtype.lower())
    s, z = spread(scale, shape), spread(zero, shape).astype(float)
    for parameters, kind in (([scale], "SCALE"), ([scale, zero], "SCALE_ZERO_POINT")):
        offset = z if len(parameters) == 2 else 0
        given = [scattered(rng, p) for p in parameters]
        y = dml.quantize(scattered(rng, x), given, kind, output_data_type=dtype)
        assert (y.dtype, y.shape) == (dtype.lower(), shape)
        np.testing.assert_array_equal(y, quantized(x, s, offset, dtype))
        back = dml.dequantize(scattered(rng, y), given, kind)
        assert (back.dtype, back.shape) == (float_type, shape)
        exact = (y.astype(float) - offset) * s.astype(float)
        np.testing.assert_array_equal(back, exact.astype(np.float32).astype(float_type))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantization_is_that_of_onnxruntime(axis, dtype):
    """Blocks along one axis, and one scale for each index along it."""
    rng = np.random.default_rng([74, axis])
    x = (rng.normal(size=(4, 6, 8)) * 80).astype(np.float32)
    for size in (2, 1):
        count = [n // size if k == axis else n for k, n in enumerate(x.shape)]
        scale = rng.uniform(0.2, 2, count).astype(np.float32)
        zero = rng.integers(0, 100, count).astype(dtype)
        wanted = computed("QuantizeLinear", [x, scale, zero], 21, axis=axis, block_size=size)[0]
        kind = {"quantization_type": "SCALE_ZERO_POINT"}
        y = dml.quantize(x, [scale, zero], **kind, output_data_type=dtype.upper())
        np.testing.assert_array_equal(y, wanted)
        back = computed("DequantizeLinear", [wanted, scale, zero], 21, axis=axis, block_size=size)[0]
        np.testing.assert_array_equal(dml.dequantize(y, [scale, zero], **kind), back)


def nibble(memory, place, dtype):
    """The element at a place: of two in a byte the first is the lower half."""
    value = int(memory[place // 2]) >> 4 * (place % 2) & 15
    return value - 16 if dtype == "INT4" and value > 7 else value


def strided(rng, shape, repeats=False):
    """Strides of dimensions in some order with gaps, some of them 0 if elements may be repeated."""
    strides, reach = [0] * len(shape), int(rng.integers(1, 3))
    for k in rng.permutation(len(shape)):
        if not (repeats and rng.random() < 0.3):
            strides[k], reach = reach, reach * (shape[k] + int(rng.integers(2)))
    return strides


@pytest.mark.parametrize("dtype", ["INT4", "UINT4"])
@pytest.mark.parametrize("seed", range(12))
def test_four_bits(seed, dtype):
    """Two elements in a byte, odd counts, any strides; the halves of bytes between them stay."""
    rng = np.random.default_rng([75, seed, *dtype.encode()])
    shape = tuple(map(int, rng.choice([1, 3, 5, 2], rng.integers(1, 4)))) if seed else (1,)
    low, high = RANGES[dtype]
    count = blocks(rng, shape, seed % 2)
    with_zero, in_order = seed % 3 > 0, seed % 4 == 0
    layouts = {"whole": (shape, None if in_order else strided(rng, shape))}
    layouts["read"] = shape, None if in_order else strided(rng, shape, repeats=True)
    layouts["zero"] = count, None if in_order else strided(rng, count, repeats=True)
    descs = {n: dml.TensorDesc(dtype, *layout) for n, layout in layouts.items()}
    memory, places = {}, {}
    for name, (sizes, strides) in layouts.items():
        steps = strides or [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        places[name] = {at: sum(i * s for i, s in zip(at, steps, strict=True)) for at in np.ndindex(*sizes)}
        memory[name] = rng.integers(0, 256, max(places[name].values()) // 2 + 1, np.uint8)
    before = memory["whole"].copy()
    x = (rng.normal(size=shape) * 9).astype(np.float32)
    scale = rng.choice([0.5, 2, 1, 3], count).astype(np.float32)
    zeros = np.zeros(count)
    for at in np.ndindex(*count) if with_zero else ():
        zeros[at] = nibble(memory["zero"], places["zero"][at], dtype)
    floats = {n: dml.TensorDesc("FLOAT32", v.shape) for n, v in (("x", x), ("scale", scale))}
    parameters = [floats["scale"], descs["zero"]][: 1 + with_zero]
    bound = {f"QuantizationTensors[{k}]": x for k, x in enumerate([scale, memory["zero"]][: 1 + with_zero])}
    device = dml.Device()

    def dispatch(name, source, target, given, out):
        desc = {"InputTensor": source, "OutputTensor": target, "QuantizationTensors": parameters}
        desc["QuantizationType"] = "SCALE_ZERO_POINT" if with_zero else "SCALE"
        compiled = device.compile_operator(device.create_operator({"Type": name, "Desc": desc}))
        compiled.dispatch({"InputTensor": given, **bound}, {"OutputTensor": out})

    dispatch("QUANTIZE", floats["x"], descs["whole"], x, memory["whole"])
    s, z = spread(scale, shape), spread(zeros, shape)
    wanted = quantized(x, s, z, dtype)
    for at, place in places["whole"].items():
        assert nibble(memory["whole"], place, dtype) == wanted[at]
    for place in set(range(2 * before.size)) - set(places["whole"].values()):
        assert nibble(memory["whole"], place, dtype) == nibble(before, place, dtype)
    back = np.zeros(shape, np.float32)
    dispatch("DEQUANTIZE", descs["read"], floats["x"], memory["read"], back)
    for at, place in places["read"].items():
        value = nibble(memory["read"], place, dtype)
        assert low <= value <= high
        assert back[at] == (value - z[at]) * s[at]


def test_four_bits_in_arrays_have_a_byte_each():
    x = np.float32([7.5, -9, 3, 2.5, 200])
    for kind, dtype, wanted in (("INT4", np.int8, [7, -8, 3, 2, 7]), ("UINT4", np.uint8, [8, 0, 3, 2, 15])):
        y = dml.quantize(x, [np.float32([1])], "SCALE", output_data_type=kind)
        assert (y.dtype, y.tolist()) == (dtype, wanted)


# ---- images and Adam -----------------------------------------------------------------------------------


def close(y, exact):
    limit = 1e-3 if y.dtype == np.float16 else 2e-6
    assert y.shape == exact.shape
    np.testing.assert_allclose(y.astype(float), exact, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_value_scale_2d(channels, dtype):
    rng = np.random.default_rng([76, channels])
    for shape in [(1, channels, 1, 1), (2, channels, 3, 4)]:
        x = rng.normal(size=shape).astype(dtype)
        scale, bias = float(rng.normal()), rng.normal(size=channels).tolist()
        y = dml.value_scale_2d(scattered(rng, x), scale, bias)
        assert y.dtype == dtype
        close(y, x.astype(float) * scale + np.reshape(bias, (-1, 1, 1)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("step", [1, 2, 1000, 2**32 - 1])
def test_adam(step, dtype):
    rng = np.random.default_rng([77, step])
    x, m, g, v = (scattered(rng, rng.normal(size=(2, 1, 3, 4)).astype(dtype)) for _ in "xmgv")
    v, count = abs(v), np.full((1, 1, 1, 1), step, np.uint32)
    rate, beta1, beta2, epsilon = how = 0.02, 0.8, 0.95, 0.01
    made = dml.adam_optimizer(x, m, v, g, count, *how)
    a, b, c, d = (t.astype(float) for t in (x, m, v, g))
    first, second = beta1 * b + (1 - beta1) * d, beta2 * c + (1 - beta2) * d * d
    alpha = rate * math.sqrt(1 - beta2**step) / (1 - beta1**step)
    wanted = a - alpha * first / (np.sqrt(second) + epsilon), first, second
    for y, exact in zip(made, wanted, strict=True):
        assert y.dtype == dtype
        close(y, exact)


def test_adam_finds_a_minimum():
    """Of (x - 3)^2, in place on a device."""
    names, one = ["Parameters", "FirstMoment", "SecondMoment"], (1, 1, 1, 1)
    desc = {f"{way}{n}Tensor": dml.TensorDesc("FLOAT32", one) for n in names for way in ("Input", "Output")}
    desc["GradientTensor"] = desc["InputParametersTensor"]
    desc["TrainingStepTensor"] = dml.TensorDesc("UINT32", one)
    desc |= {"LearningRate": 0.1, "Beta1": 0.9, "Beta2": 0.999, "Epsilon": 1e-8}
    device = dml.Device()
    compiled = device.compile_operator(device.create_operator({"Type": "ADAM_OPTIMIZER", "Desc": desc}))
    state = {n: np.zeros(one, np.float32) for n in names}
    for step in range(1, 301):
        given = {f"Input{n}Tensor": x for n, x in state.items()}
        given["GradientTensor"] = 2 * (state["Parameters"] - 3)
        given["TrainingStepTensor"] = np.full(one, step, np.uint32)
        compiled.dispatch(given, {f"Output{n}Tensor": x for n, x in state.items()})
    np.testing.assert_allclose(state["Parameters"], 3, atol=0.02)


@pytest.mark.parametrize("dtype", ["INT4", "UINT4"])
@every_seed
def test_quantize_to_4_bits(dtype, seed):
    rng = np.random.default_rng([79, len(dtype), seed])
    shape = tuple(map(int, rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5))))
    x, count = rng.normal(size=shape).astype(np.float32) * 20, blocks(rng, shape, seed % 2)
    scale, (low, high) = rng.choice([0.5, 0.1, 2, -1], count).astype(np.float32), RANGES[dtype]
    zero = rng.integers(low, high + 1, count).astype(dtype.replace("4", "8").lower())
    y = dml.quantize(x, [scale, zero], "SCALE_ZERO_POINT", output_data_type=dtype)
    assert (y.dtype, y.shape) == (zero.dtype, shape)
    np.testing.assert_array_equal(
        y, quantized(x, spread(scale, shape), spread(zero, shape).astype(float), dtype)
    )


def test_zero_points_of_4_bits_are_in_their_range():
    x, scale = np.ones((1, 2), np.float32), np.ones((1, 1), np.float32)
    with pytest.raises(dml.InvalidInput, match="zero points from -8 to 7, as int4 has them, but got 8 to 8"):
        dml.quantize(x, [scale, np.int8([[8]])], "SCALE_ZERO_POINT", output_data_type="INT4")
    with pytest.raises(dml.InvalidOperator, match="uint8; output int4"):
        dml.quantize(x, [scale, np.uint8([[1]])], "SCALE_ZERO_POINT", output_data_type="INT4")
