"""Where the functions write: `out`, and what it may share with the inputs."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import anydml as dml

C, A, B = (
    np.array([1, 0, 2, 0, 0, 255], np.uint8),
    np.arange(6).astype(np.float32),
    -np.arange(6.0, dtype="f4"),
)
WANTED = np.where(C != 0, A, B)


def reshaped(x, shape):
    return np.ascontiguousarray(x).reshape(shape)


def refused(out, c=C, a=A, b=B, match="out"):
    """`out` must be refused, and stay as it was."""
    before = out.tobytes()
    with pytest.raises(dml.InvalidInput, match=match) as raised:
        dml.if_(c, a, b, out=out)
    assert out.tobytes() == before
    return raised.value.problems


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda m: m[:6], (6,)),
        (lambda m: m[:12:2], (6,)),
        (lambda m: m[6:0:-1], (6,)),
        (lambda m: m[20:2:-3], (6,)),
        (lambda m: m[:6].reshape(3, 2).T, (2, 3)),
        (lambda m: m[:24].reshape(4, 6)[1:3, 1:4], (2, 3)),
        (lambda m: m[:24].reshape(4, 6)[::-2, ::2], (2, 3)),
        (lambda m: m[:6].reshape(1, 2, 1, 3).transpose(3, 0, 1, 2), (3, 1, 2, 1)),
        (lambda m: as_strided(m, (2, 3), (12, 8)), (2, 3)),
        (lambda m: m.view(np.uint8)[1:25].view(np.float32), (6,)),
        (lambda m: m.view(">f4")[3:9], (6,)),
        (lambda m: m.view(">f4")[:12:2], (6,)),
    ],
    ids=[
        "packed",
        "every second",
        "reversed",
        "every third, reversed",
        "transposed",
        "window",
        "steps",
        "four axes",
        "interleaved rows",
        "unaligned",
        "big-endian",
        "big-endian sliced",
    ],
)
def test_out_may_have_any_layout_and_nothing_else_is_written(make, shape):
    memory, expected = (np.full(40, 77, np.float32) for _ in range(2))
    out, model = make(memory), make(expected)
    model[...] = WANTED.reshape(shape)
    assert dml.if_(*(reshaped(x, shape) for x in (C, A, B)), out=out) is out
    assert memory.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_big_endian_out_gets_the_bits_of_nans(dtype):
    width = np.dtype(dtype).itemsize
    one = np.array(1, f"u{width}")
    signalling = (np.array([np.inf], dtype).view(one.dtype) | one).view(dtype)
    out = np.zeros(1, np.dtype(dtype).newbyteorder(">"))
    dml.if_(True, signalling, np.zeros(1, dtype), out=out)
    assert out.tobytes() == signalling.tobytes()[::-1]


@pytest.mark.parametrize("n", [6, 5000, 300_001])
@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x[:], lambda x: x[::-1]], ids=["same", "view", "reversed"]
)
def test_out_may_be_exactly_one_of_the_inputs(n, which, view):
    rng = np.random.default_rng(3)
    c = rng.integers(0, 2, n, np.uint8)
    given = {"a": rng.random(n, np.float32), "b": rng.random(n, np.float32)}
    given[which] = view(given[which])
    expected = np.where(c != 0, given["a"], given["b"])
    out = given[which][:]  # another array object on the same memory
    assert dml.if_(c, given["a"], given["b"], out=out) is out
    assert np.array_equal(out, expected)


def test_out_may_be_all_inputs_at_once():
    x = np.array([0, 1, 2, 0, 255], np.uint8)
    assert dml.if_(x, x, x, out=x) is x
    assert x.tolist() == [0, 1, 2, 0, 255]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool"])
def test_out_may_be_the_condition_if_elements_are_as_large(dtype):
    c = np.array([1, 0, 1, 0, 0, 1], np.uint8)
    a, b = np.array([0, 0, 1, 1, 0, 0]).astype(dtype), np.array([1, 1, 0, 1, 0, 1]).astype(dtype)
    expected = np.where(c != 0, a, b)
    dml.if_(c, a, b, out=c.view(dtype))
    assert np.array_equal(c.view(dtype), expected)


def test_out_with_other_strides_along_an_axis_of_one_is_still_that_input():
    """Strides of an axis of size 1 lead nowhere: element upon element the memory is the same."""
    x = A.copy()
    rows, out = x.reshape(1, 6), as_strided(x, (1, 6), (400, 4))
    dml.if_(C.reshape(1, 6), rows, B.reshape(1, 6), out=out)
    assert np.array_equal(x, WANTED)


@pytest.mark.parametrize("order", ["=", ">"])
@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.parametrize("shift", [-5, -1, 1, 5])
def test_an_out_that_overlaps_an_input_elsewhere_is_refused(order, which, shift):
    memory = np.arange(24).astype(np.dtype(np.float32).newbyteorder(order))
    refused(memory[8 + shift : 14 + shift], **{which: memory[8:14]}, match=f"apart from {which}")
    dml.if_(C, **{"a": A, "b": B} | {which: memory[:6]}, out=memory[6:12])  # neighbours


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (lambda m: m[:6], lambda m: m[5::-1]),
        (lambda m: m[:12:2], lambda m: m[:18:3]),
        (lambda m: m[:12:2], lambda m: m[:6]),
        (lambda m: np.broadcast_to(m[:1], 6), lambda m: m[:6]),
    ],
    ids=["reversed", "other steps", "denser", "broadcast"],
)
def test_an_out_that_meets_an_input_under_other_strides_is_refused(x, y):
    memory = np.arange(24).astype(np.float32)
    refused(y(memory), a=x(memory), match="apart from a")
    refused(y(memory), b=x(memory), match="apart from b")


def test_an_out_that_overlaps_two_inputs_names_both():
    memory = np.arange(24).astype(np.float32)
    problems = refused(memory[2:8], a=memory[:6], b=memory[4:10])
    assert [name in str(problems) for name in ("from a", "from b")] == [True, True]


def test_an_out_of_other_element_size_on_an_input_is_refused():
    c = np.zeros(6 * 4, np.uint8)
    refused(c.view(np.float32), c=c[:6], match="apart from condition")
    x = np.zeros(6, np.float16)
    with pytest.raises(dml.InvalidInput, match="apart from input"):
        dml.is_infinity(x, out=x.view(np.uint8)[:6])


def test_interleaved_memory_is_not_shared():
    memory = np.arange(12).astype(np.float32)
    memory[1::2] = 0
    out, a = memory[1::2], memory[::2]
    expected = np.where(C != 0, a, B)
    assert dml.if_(C, a, B, out=out) is out
    assert np.array_equal(memory[1::2], expected)
    assert np.array_equal(memory[::2], np.arange(12)[::2])


def test_a_read_only_out_is_refused():
    out = np.zeros(6, np.float32)
    out.flags.writeable = False
    refused(out, match="out: expected a writable array")
    refused(np.frombuffer(bytes(24), np.float32), match="writable")


@pytest.mark.parametrize("shape", [(5,), (7,), (1, 6), (6, 1), (2, 6), (), (0,)])
def test_an_out_of_another_shape_is_refused(shape):
    refused(np.zeros(shape, np.float32), match=r"out: expected shape \(6,\), but got")


def test_inputs_do_not_stretch_to_out():
    refused(np.zeros((2, 6), np.float32), match="expected shape")
    with pytest.raises(dml.InvalidInput, match="expected shape"):
        dml.is_infinity(A, out=np.zeros((2, 6), np.uint8))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint32", "bool", "complex64", "O"])
def test_an_out_of_another_type_is_refused(dtype):
    refused(np.zeros(6, dtype), match="out: expected float32, but got")


def test_is_infinity_writes_uint8_or_bool_only():
    for dtype in ("int8", "float32", "uint16"):
        with pytest.raises(dml.InvalidInput, match="out: expected uint8"):
            dml.is_infinity(A, out=np.zeros(6, dtype))
    out = np.full(12, 9, np.uint8)
    assert dml.is_infinity(np.float32([1, np.inf, 2, -np.inf, np.nan, 0]), out=out[::-2]).base is out
    assert out.tolist() == [9, 0, 9, 0, 9, 1, 9, 0, 9, 1, 9, 0]


@pytest.mark.parametrize("strides", [(0, 4), (4, 0), (4, 4), (8, 4), (2, 4), (12, 3), (0, 0)])
def test_an_out_that_overlaps_itself_is_refused(strides):
    out = as_strided(np.zeros(24, np.float32), (2, 3), strides)
    refused(out, *(x.reshape(2, 3) for x in (C, A, B)), match="overlaps itself")


def test_all_that_is_wrong_with_out_is_told_at_once():
    out = np.broadcast_to(np.float64(0), (3, 3))
    problems = refused(out)
    assert len(problems) == 4
    for word in ("float64", "shape", "read-only", "overlaps itself"):
        assert sum(word in str(p) for p in problems) == 1, word


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 0)])
def test_an_empty_out(shape):
    empty = np.zeros(shape, np.float32)
    assert dml.if_(np.zeros(shape, np.uint8), empty, empty, out=empty) is empty


@pytest.mark.parametrize("n", [1, 63, 64, 65, 4096, 300_001])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64"])
def test_guard_bytes_around_out_stay(n, dtype):
    width = np.dtype(dtype).itemsize
    for offset in (0, 1, width, 33):
        memory = np.full(n * width + 256, 0xA5, np.uint8)
        out = memory[64 + offset : 64 + offset + n * width].view(dtype)
        dml.if_(np.arange(n) % 2 == 0, np.full(n, 1, dtype), np.full(n, 2, dtype), out=out)
        assert np.array_equal(out, np.resize(np.array([1, 2], dtype), n))
        assert (memory[: 64 + offset] == 0xA5).all()
        assert (memory[64 + offset + n * width :] == 0xA5).all()


@pytest.mark.parametrize("seed", range(20))
def test_new_arrays_lie_as_those_of_numpy(seed):
    """Turned, backwards, and repeated along axes, which say nothing of an order."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        x = np.zeros(rng.integers(2, 5, rng.integers(1, 5)), np.float32)
        x = x.transpose(rng.permutation(x.ndim))
        x = x[tuple(slice(None, None, -1 if rng.random() < 0.3 else None) for _ in x.shape)]
        for d in rng.integers(0, x.ndim + 1, rng.integers(0, 3)):
            x = as_strided(x, (*x.shape[:d], 3, *x.shape[d:]), (*x.strides[:d], 0, *x.strides[d:]))
        assert dml.abs(x).strides == np.abs(x).strides
