"""Numbers, counts, diagonals and random bits: exact, against loops over Python numbers."""

import math
import struct

import numpy as np
import pytest

import anydml as dml
from tests.onnx.ops.checking import computed

FLOATS = "float16 float32 float64".split()
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
every_type = pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
SHAPES = [(1,), (7,), (3, 4), (2, 1, 3), (1, 1, 2, 3), (1, 2, 1, 2, 1, 2, 1, 3)]
NAN, INF = math.nan, math.inf


def limits(dtype):
    if dtype in INTEGERS:
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return float(np.finfo(dtype).min), float(np.finfo(dtype).max)


def wrapped(value, dtype):
    low, high = limits(dtype)
    return (value - low) % (high - low + 1) + low


def described(name, fields, attributes, out):
    """The operator's result by description, in `out`."""
    desc = {n: dml.TensorDesc(x.dtype.name.upper(), x.shape) for n, x in (fields | out).items()}
    device = dml.Device()
    compiled = device.compile_operator(device.create_operator({"Type": name, "Desc": desc | attributes}))
    compiled.dispatch(fields, out)
    return out


# ---- fills ---------------------------------------------------------------------------------------------


@every_type
def test_fill_with_a_constant(dtype):
    """Every number that the type has stays; others saturate or are rounded."""
    low, high = limits(dtype)
    values = [0, 1, low, high, 3]
    values += [-0.0, NAN, INF, -INF, 0.1] if dtype in FLOATS else [low + 1, high - 1]
    for k, value in enumerate(values):
        shape = SHAPES[k % len(SHAPES)]
        y = dml.fill_value_constant(shape, value, output_data_type=dtype.upper())
        wanted = np.array(value).astype(dtype) if dtype in FLOATS else np.full((), value, dtype)
        assert (y.dtype, y.shape) == (dtype, shape)
        assert y.tobytes() == np.full(shape, wanted).tobytes()
        attributes = {"ValueDataType": dtype.upper(), "Value": value}
        made = described("FILL_VALUE_CONSTANT", {}, attributes, {"OutputTensor": np.ones(shape, dtype)})
        assert made["OutputTensor"].tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", [t for t in FLOATS + INTEGERS if t != "float64"])
def test_fill_with_a_sequence(dtype):
    low, high = limits(dtype)
    pairs = [(0, 1), (5, 0), (1, 3), (high, 1), (low, high)]
    pairs += [(0.5, -0.25), (1, 0.1), (-2.5, 1e-3), (high, -high), (INF, -1)] if dtype in FLOATS else []
    pairs += [(low, -1), (7, -3)] if dtype.startswith("i") else []
    for k, (start, delta) in enumerate(pairs):
        for shape in (SHAPES[k % len(SHAPES)], (3, 700)):
            y = dml.fill_value_sequence(shape, start, delta, output_data_type=dtype.upper())
            assert (y.dtype, y.shape) == (dtype, shape)
            count = range(y.size)
            if dtype in INTEGERS:
                assert y.ravel().tolist() == [wrapped(start + i * delta, dtype) for i in count]
            else:
                a, b = (np.array(v, float).astype(dtype).item() for v in (start, delta))
                with np.errstate(over="ignore"):
                    wanted = np.array([a + i * b for i in count]).astype(dtype)
                np.testing.assert_array_equal(y.ravel(), wanted)
                if (start, delta) == (0, 1):
                    assert y.ravel()[-1] == y.size - 1  # also where 1 more is less than a unit: float16


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "int16"])
def test_sequences_are_those_of_onnxruntime(dtype):
    for start, end, delta in [(0, 9, 1), (3, 24, 4), (20, -5, -3)]:
        wanted = computed("Range", [np.array(v, dtype) for v in (start, end, delta)], 11)[0]
        y = dml.fill_value_sequence(wanted.shape, start, delta, output_data_type=dtype.upper())
        np.testing.assert_array_equal(y, wanted)


# ---- diagonals -----------------------------------------------------------------------------------------

MATRICES = [(1, 1), (3, 4), (5, 2), (1, 4), (3, 1), (2, 3, 4), (2, 2, 3, 3)]
FAR = [-(2**31), -5, -1, 0, 1, 2, 5, 2**31 - 1]


@every_type
def test_diagonal_matrix(dtype):
    for k, shape in enumerate(MATRICES):
        for offset in FAR:
            value = [1, 2.75, -3.5, 300.5][(k + offset) % 4]
            y = dml.diagonal_matrix(shape, offset, value, output_data_type=dtype.upper())
            assert (y.dtype, y.shape) == (dtype, shape)
            low, high = limits(dtype)
            there = value if dtype in FLOATS else min(max(math.trunc(value), low), high)
            for at in np.ndindex(*shape):
                assert y[at] == (there if at[-1] - at[-2] == offset else 0)


@every_type
def test_diagonal_matrix1(dtype):
    """Of begin and end every order; the largest numbers of the type; the input's bits elsewhere."""
    rng = np.random.default_rng([61, *dtype.encode()])
    low, high = limits(dtype)
    for shape in MATRICES:
        x = (
            rng.integers(0, 256, math.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
            .view(dtype)
            .reshape(shape)
        )
        for begin in FAR:
            end, value = int(rng.choice(FAR)), [low, high, 3, 1][begin % 4]
            how = {"value": value, "diagonal_fill_begin": begin, "diagonal_fill_end": end}
            y = dml.diagonal_matrix1(x[..., ::-1], **how)
            assert (y.dtype, y.shape) == (dtype, shape)
            where = range(begin, end) if begin <= end else None
            for at in np.ndindex(*shape):
                t = at[-1] - at[-2]
                filled = t in where if where is not None else t >= begin or t < end
                assert filled == ((end >= begin) ^ (t >= begin) ^ (t < end))
                wanted = np.array(value, dtype) if filled else x[(*at[:-1], shape[-1] - 1 - at[-1])]
                assert y[at].tobytes() == wanted.tobytes()
            attributes = {"ValueDataType": dtype.upper(), "Value": value}
            attributes |= {"DiagonalFillBegin": begin, "DiagonalFillEnd": end}
            out = {"OutputTensor": np.ones(shape, dtype)}
            made = described("DIAGONAL_MATRIX1", {}, attributes, out)["OutputTensor"]
            zeros = dml.diagonal_matrix1(np.zeros(shape, dtype), **how)
            assert made.tobytes() == zeros.tobytes()


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_diagonals_cut_triangles_as_onnxruntime_does(k, upper):
    x = np.random.default_rng(62).normal(size=(2, 4, 5)).astype(np.float32)
    begin, end = (-(2**31), k) if upper else (k + 1, 2**31 - 1)
    y = dml.diagonal_matrix1(x, value=0, diagonal_fill_begin=begin, diagonal_fill_end=end)
    np.testing.assert_array_equal(y, computed("Trilu", [x, np.array(k, np.int64)], 14, upper=upper)[0])


# ---- random bits ---------------------------------------------------------------------------------------

PUBLISHED = """
00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1
"""
"""Random123's known answers (kat_vectors) of philox4x32 with 10 rounds: counter, key, and what they give."""


def philox(counter, key):
    """One block of four words, round by round."""
    a, b, c, d = struct.unpack("<4I", (counter % 2**128).to_bytes(16, "little"))
    k, m = key
    for _ in range(10):
        high, low = divmod(a * 0xD2511F53, 2**32)
        above, below = divmod(c * 0xCD9E8D57, 2**32)
        a, b, c, d = above ^ b ^ k, below, high ^ d ^ m, low
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return [a, b, c, d]


@pytest.mark.parametrize("line", PUBLISHED.strip().split("\n"))
def test_random_bits_are_the_published_ones(line):
    words = [int(word, 16) for word in line.split()]
    state = np.array(words[:6], np.uint32)
    y, after = dml.random_generator(state, [4])
    assert y.tolist() == words[6:]
    counter = (int.from_bytes(state[:4].tobytes(), "little") + 1) % 2**128
    assert after.tolist() == [counter >> 32 * k & 0xFFFFFFFF for k in range(4)] + words[4:6]
    assert philox(counter - 1, words[4:6]) == words[6:]


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 4])
def test_the_counter_carries(kept):
    """Of 128 bits, from word to word and around its end, within a tensor and into the next state."""
    rng = np.random.default_rng([63, kept])
    for size in (1, 3, 4, 5, 8, 21):
        words = rng.integers(0, 2**32, 6, np.uint32)
        words[:kept] = 2**32 - 1
        words[0] -= np.uint32(rng.integers(0, 4)) if kept else np.uint32(0)
        counter, key = int.from_bytes(words[:4].tobytes(), "little"), words[4:].tolist()
        state = np.zeros((1, 1, 12), np.uint32)[..., ::-2]
        state[...] = words
        y, after = dml.random_generator(state, [1, size, 1])
        blocks = -(-size // 4)
        wanted = [word for k in range(blocks) for word in philox(counter + k, key)]
        assert y.ravel().tolist() == wanted[:size]
        assert after.tobytes() == (counter + blocks & 2**128 - 1).to_bytes(16, "little") + words[4:].tobytes()
        again, _ = dml.random_generator(after, [4])
        assert again.tolist() == philox(counter + blocks, key)


def test_many_random_bits():
    """More than are computed at once, by function and by description, without the next state, too."""
    state, size = np.uint32([[[[2**32 - 5000, 2**32 - 1, 7, 8, 9, 10]]]]), 40003
    y, after = dml.random_generator(state, [1, 1, 1, size])
    counter = int.from_bytes(state[..., :4].tobytes(), "little")
    for k in (0, 4999, 5000, 5001, 8191, 8192, 9999, 10000):
        assert y.ravel()[4 * k : 4 * k + 4].tolist() == philox(counter + k, [9, 10])[: size - 4 * k]
    out = {
        "OutputTensor": np.zeros(y.shape, np.uint32),
        "OutputStateTensor": np.zeros(state.shape, np.uint32),
    }
    rest = {"Type": "PHILOX_4X32_10"}
    assert (
        described("RANDOM_GENERATOR", {"InputStateTensor": state}, rest, out)["OutputTensor"].tolist()
        == y.tolist()
    )
    assert out["OutputStateTensor"].tolist() == after.tolist()
    alone = {"OutputTensor": np.zeros(y.shape, np.uint32)}
    described("RANDOM_GENERATOR", {"InputStateTensor": state}, rest, alone)
    assert alone["OutputTensor"].tolist() == y.tolist()
