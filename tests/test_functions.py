"""`if_` and `is_infinity` on NumPy arrays of every type and layout, bit for bit."""

import threading

import numpy as np
import pytest

import anydml as dml

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
TYPES = INTEGERS + FLOATS
SHAPES = [(), (0,), (1,), (3,), (31,), (1000,), (3, 0), (1, 1), (7, 11), (2, 3, 5), (33, 1, 65)]
SHAPES += [(2, 1, 3, 1, 2, 1, 2, 1, 2, 3), (70001,), (3, 100_001)]
SPECIAL = {  # bit patterns: infinities, zeros, quiet and signalling NaNs with payloads, denormals
    "float16": [0x7C00, 0xFC00, 0x0000, 0x8000, 0x7E00, 0xFE01, 0x7C01, 0xFD55, 0x0001, 0x7BFF],
    "float32": [0x7F800000, 0xFF800000, 0, 1 << 31, 0x7FC00001, 0xFFC12345, 0x7F800001, 0xFFA00000, 1],
    "float64": [0x7FF << 52, 0xFFF << 52, 0, 1 << 63, (0x7FF8 << 48) + 5, (0x7FF << 52) + 1, 0xFFF4 << 48, 1],
}


def bits(x):
    """The elements as native unsigned integers, whatever the layout and byte order."""
    unsigned = np.dtype(f"u{x.itemsize}")
    return np.asarray(x).view(unsigned.newbyteorder(x.dtype.byteorder)).astype(unsigned)


def random_array(rng, dtype, shape):
    """Random bytes, so that floats have every kind of value, with the special ones strewn in."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    x = rng.integers(0, 256, count * dtype.itemsize, np.uint8).view(f"u{dtype.itemsize}")
    special = np.array(SPECIAL.get(dtype.name, [0, 1]), x.dtype)
    x[::3] = np.resize(special, len(x[::3]))
    return rng.permutation(x).view(dtype).reshape(shape)


def random_condition(rng, shape):
    return rng.choice(np.array([0, 0, 0, 1, 2, 128, 255], np.uint8), shape)


def unaligned(x):
    y = np.ndarray(x.shape, x.dtype, buffer=bytearray(x.nbytes + 1), offset=1)
    y.view(f"u{x.itemsize}")[...] = bits(x)
    return y


def read_only(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def sliced(x):
    if x.ndim == 0:
        return np.stack([x, x])[1]
    return np.repeat(x, 2, axis=-1)[..., ::2]


def reversed_axes(x):
    back = (slice(None, None, -1),) * x.ndim
    return x[back].copy()[back]


def big_endian(x):
    return bits(x).astype(f">u{x.itemsize}").view(x.dtype.newbyteorder(">"))


def shuffled_axes(x):
    """The axes lie in memory in another order, neither C's nor Fortran's."""
    order = np.roll(np.arange(x.ndim), 1)
    return np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if x.ndim else x


def padded(x):
    """A window in a larger array, every axis with its own step."""
    if x.ndim == 0:
        return x
    big = np.zeros([2 * n + 3 for n in x.shape], x.dtype)
    window = big[tuple(slice(1, 1 + 2 * n, 2) for n in x.shape)]
    window[...] = x
    return window


def broadcast(x):
    return np.broadcast_to(x[:1] if x.ndim else x, x.shape) if x.size else x


LAYOUTS = {
    "C": lambda x: x,
    "Fortran": lambda x: x.copy("F"),
    "sliced": sliced,
    "negative": reversed_axes,
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": big_endian,
    "shuffled axes": shuffled_axes,
    "padded": padded,
    "broadcast": broadcast,
}


def check_if(c, a, b, shape, dtype):
    expected = np.where(bits(c) != 0, bits(a), bits(b))
    result = dml.if_(c, a, b)
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype) == (shape, np.dtype(dtype))
    assert result.dtype.isnative
    assert np.array_equal(bits(result), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_if_selects_bits_from_any_layout(dtype, layout):
    rng, lay = np.random.default_rng(7), LAYOUTS[layout]
    for shape in SHAPES:
        a, b = (random_array(rng, dtype, shape) for _ in range(2))
        c = random_condition(rng, shape)
        check_if(c, lay(a), b, shape, dtype)
        check_if(lay(c), a, lay(b), shape, dtype)
        check_if(lay(c), lay(a), lay(b), shape, dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_is_infinity_reads_any_layout(dtype, layout):
    rng = np.random.default_rng(8)
    for shape in SHAPES:
        x = LAYOUTS[layout](random_array(rng, dtype, shape))
        sign = 1 << (8 * x.itemsize - 1)
        infinity = SPECIAL[dtype][0]
        expected = {"either": bits(x) & (sign - 1) == infinity, "positive": bits(x) == infinity}
        expected["negative"] = bits(x) == infinity + sign
        for mode, wanted in expected.items():
            result = dml.is_infinity(x, mode=mode)
            assert (result.shape, result.dtype) == (shape, np.uint8)
            assert np.array_equal(result, wanted.astype(np.uint8))


def test_all_float16_patterns_of_is_infinity():
    x = np.arange(65536).astype(np.uint16).view(np.float16)
    for mode, wanted in (("either", [0x7C00, 0xFC00]), ("positive", [0x7C00]), ("negative", [0xFC00])):
        for form in (mode, mode.upper(), f"DML_IS_INFINITY_MODE_{mode}", dml.IsInfinityMode[mode.upper()]):
            result = dml.is_infinity(x, form)
            assert np.flatnonzero(result).tolist() == wanted
            assert set(result.tolist()) == {0, 1}
    assert np.array_equal(dml.is_infinity(x), dml.is_infinity(x, mode="either"))


@pytest.mark.parametrize("shape", [(300_001,), (1000, 301), (3, 5, 20_001)])
@pytest.mark.parametrize("dtype", TYPES)
def test_large_arrays_with_small_ones_beside(dtype, shape):
    """Enough work for several threads; the arguments broadcast against each other as NumPy's do."""
    rng = np.random.default_rng(9)
    a, c = random_array(rng, dtype, shape), random_condition(rng, shape[1:])
    for b in (
        random_array(rng, dtype, shape),
        random_array(rng, dtype, shape[-1:]),
        random_array(rng, dtype, ()),
    ):
        check_if(c, a, b, shape, dtype)
    column = random_condition(rng, (shape[0],) + (1,) * (len(shape) - 1))
    check_if(column, random_array(rng, dtype, (1,)), a, shape, dtype)


@pytest.mark.parametrize("value", [0, 1, 2, 128, 255])
def test_any_non_zero_byte_is_true(value):
    result = dml.if_(np.full(100, value, np.uint8), np.full(100, 7, np.int8), np.full(100, -7, np.int8))
    assert (result == (7 if value else -7)).all()
    raw = np.full(100, value, np.uint8).view(np.bool_)
    assert (dml.if_(raw, np.full(100, 7, np.int8), np.full(100, -7, np.int8)) == (7 if value else -7)).all()


def test_bool_stands_where_uint8_is():
    c = np.array([True, False, True])
    assert dml.if_(c, np.float32([1, 2, 3]), np.float32([9, 8, 7])).tolist() == [1, 8, 3]
    a, b = np.array([True, True, False]), np.array([False, False, True])
    result = dml.if_(c, a, b)
    assert result.dtype == np.bool_
    assert result.tolist() == [True, False, False]
    out = np.zeros(3, np.bool_)
    assert dml.is_infinity(np.float32([np.inf, 1, -np.inf]), out=out) is out
    assert out.tolist() == [True, False, True]
    assert dml.if_(c, a, b, out=out) is out
    assert out.tolist() == [True, False, False]


@pytest.mark.parametrize("number", [2, 255, True, False, 0, 1])
def test_a_result_of_bool_holds_only_0_and_1(number):
    """A number that bool cannot hold is refused, not written as an impossible bool."""
    c, a = np.array([0, 1, 0], np.uint8), np.array([True, False, True])
    try:
        result = dml.if_(c, a, number)
    except dml.InvalidInput:
        assert number not in (0, 1)
        return
    if result.dtype == np.bool_:
        assert result.view(np.uint8).tolist() == [bool(number), 0, bool(number)]
    else:
        assert result.tolist() == [number, 0, number]


def test_the_example_of_the_documents():
    c, a = np.array([[1, 0], [1, 1]], np.uint8), np.array([[1, 2], [3, 4]], np.float32)
    b = np.array([[9, 8], [7, 6]], np.float32)
    assert dml.if_(c, a, b).tolist() == [[1, 8], [3, 4]]
    assert dml.if_(condition=c, a=a, b=b).tolist() == [[1, 8], [3, 4]]
    assert dml.is_infinity(input=a, mode="either").tolist() == [[0, 0], [0, 0]]


# ---- numbers and other libraries' tensors beside arrays ----------------------------------------------


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_python_integer_takes_the_arrays_type_if_it_fits(dtype):
    c, info = np.array([1, 0], np.uint8), np.iinfo(dtype)
    x = np.array([3, 4], dtype)
    for value in (info.min, info.max, 0, 1):
        result = dml.if_(c, x, value)
        assert result.dtype == dtype
        assert result.tolist() == [3, value]
        assert dml.if_(c, value, x).tolist() == [value, 4]
    for value in (info.min - 1, info.max + 1, 2**64, -(2**64), 10**400, 0.5, float("inf"), float("nan")):
        with pytest.raises(dml.InvalidInput, match=r"ELEMENT_WISE_IF: b: expected a value"):
            dml.if_(c, x, value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_python_number_beside_floats(dtype):
    c, x = np.array([1, 0], np.uint8), np.array([3, 4], dtype)
    for value in (0, -7, 0.1, -0.0, float("inf"), -float("inf"), float("nan")):
        result = dml.if_(c, value, x)
        assert result.dtype == dtype
        assert np.array_equal(bits(result), bits(np.array([value, 4], dtype)))


@pytest.mark.parametrize(("condition", "wanted"), [(True, 3), (False, 4), (2, 3), (255, 3), (0, 4)])
def test_a_python_number_as_condition(condition, wanted):
    assert dml.if_(condition, np.int16(3), np.int16(4)) == wanted


@pytest.mark.parametrize("condition", [256, -1, 0.5, float("nan"), 10**400])
def test_a_condition_that_uint8_cannot_hold(condition):
    with pytest.raises(dml.InvalidInput, match="condition"):
        dml.if_(condition, np.int16(3), np.int16(4))


def test_numbers_alone_have_no_type():
    with pytest.raises(dml.InvalidOperator, match="only Python numbers"):
        dml.if_(True, 1, 2)
    with pytest.raises(dml.InvalidOperator, match="only Python numbers"):
        dml.is_infinity(float("inf"))


def test_numpy_scalars_have_their_type():
    assert dml.if_(np.True_, np.float16(1), np.float16(2)).dtype == np.float16
    assert dml.is_infinity(np.float32("inf")).tolist() == 1
    with pytest.raises(dml.InvalidOperator, match="equal data types"):
        dml.if_(True, np.float16(1), np.float32(2))


class Tensor:
    """Another library's tensor, as far as DLPack shows it."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        if self.device != (1, 0):
            raise BufferError("on another device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def test_dlpack_tensors_are_read_and_written_in_place():
    c, a, b = np.array([1, 0, 1], np.bool_), np.arange(6, dtype=np.float32)[::2], np.zeros(3, np.float32)
    assert dml.if_(Tensor(c), Tensor(a), Tensor(b)).tolist() == [0, 0, 4]
    assert dml.is_infinity(Tensor(np.float32([1, np.inf]))).tolist() == [0, 1]
    memory = np.full(3, 9, np.float32)
    out = Tensor(memory)
    assert dml.if_(c, a, b, out=out) is out
    assert memory.tolist() == [0, 0, 4]
    with pytest.raises(dml.InvalidInput, match="overlap"):
        dml.if_(c, Tensor(np.ndarray(3, np.float32, a.base, 4)), b, out=Tensor(a.base[:3]))


def test_a_dlpack_tensor_elsewhere_is_refused():
    with pytest.raises(dml.InvalidInput, match=r"ELEMENT_WISE_IF: a: .*CPU"):
        dml.if_(True, Tensor(np.float32([1]), device=(2, 0)), np.float32([1]))


# ---- what is refused ---------------------------------------------------------------------------------

C, X = np.array([1, 0], np.uint8), np.array([1, 2], np.float32)


@pytest.mark.parametrize(
    "thing", [[1.0, 2.0], (1.0, 2.0), "12", b"12", None, 1j, {}, object(), memoryview(b"12"), range(2)]
)
def test_what_is_neither_array_nor_number_is_refused(thing):
    for arguments in ((thing, X, X), (C, thing, X), (C, X, thing)):
        with pytest.raises(dml.InvalidInput):
            dml.if_(*arguments)
    with pytest.raises(dml.InvalidInput):
        dml.is_infinity(thing)
    if thing is not None:
        with pytest.raises(dml.InvalidInput, match="out"):
            dml.if_(C, X, X, out=thing)


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(X, [True, False])
    for arguments in ((np.ma.masked_array(C), X, X), (C, masked, X), (C, X, masked)):
        with pytest.raises(dml.InvalidInput, match="mask"):
            dml.if_(*arguments)
    with pytest.raises(dml.InvalidInput, match="mask"):
        dml.if_(C, X, X, out=masked)


OTHER_TYPES = ["complex64", "complex128", "O", "S4", "U4", "M8[s]", "m8[s]", "V4", "i4,f4"]
OTHER_TYPES += ["longdouble"] if np.longdouble(0).itemsize > 8 else []  # a float64 on Windows


@pytest.mark.parametrize("dtype", [*OTHER_TYPES, np.dtypes.StringDType()])
def test_types_that_directml_does_not_have_are_refused(dtype):
    x = np.empty(2, dtype)
    with pytest.raises(dml.InvalidOperator):
        dml.if_(C, x, x)
    with pytest.raises(dml.InvalidOperator):
        dml.if_(x, X, X)
    with pytest.raises(dml.InvalidOperator):
        dml.is_infinity(x)
    with pytest.raises(dml.InvalidInput, match="out"):
        dml.if_(C, X, X, out=x)


def test_nothing_is_converted():
    for one in TYPES:
        for other in TYPES:
            if one != other:
                with pytest.raises(dml.InvalidOperator, match="expected equal data types"):
                    dml.if_(C, np.zeros(2, one), np.zeros(2, other))
        if one != "uint8":
            with pytest.raises(dml.InvalidOperator, match=r"condition: expected uint8 \(or bool\), but got"):
                dml.if_(np.zeros(2, one), X, X)
        if one not in ("float16", "float32"):
            with pytest.raises(dml.InvalidOperator, match=rf"input: expected .*but got {one}"):
                dml.is_infinity(np.zeros(2, one))


def test_all_wrong_types_are_told_at_once():
    with pytest.raises(dml.InvalidOperator) as raised:
        dml.if_(X, np.zeros(2, "c8"), np.zeros(2, "c8"))
    assert raised.value.hresult == 0x80070057
    assert [str(p).split(": expected")[0] for p in raised.value.problems] == [
        "ELEMENT_WISE_IF: condition",
        "ELEMENT_WISE_IF: a, b",
    ]


@pytest.mark.parametrize("mode", ["", "both", None, 3, -1, True, 1.0, ["either"]])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(dml.InvalidOperator, match="mode"):
        dml.is_infinity(X, mode=mode)


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(dml.InvalidInput, match=r"condition \(2,\); a \(3,\); b \(2,\)"):
        dml.if_(C, np.zeros(3, np.float32), X)
    with pytest.raises(dml.InvalidInput):
        dml.if_(np.zeros((2, 3), np.uint8), np.zeros((3, 2), np.float32), X[:1])


def test_many_python_threads_at_once():
    """Small and large calls, several first compilations among them."""
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for k in range(12):
            dtype, shape = TYPES[(seed + k) % len(TYPES)], SHAPES[(seed + 5 * k) % len(SHAPES)]
            a, b = (random_array(rng, dtype, shape) for _ in range(2))
            c = random_condition(rng, shape)
            if not np.array_equal(bits(dml.if_(c, a, b)), np.where(c != 0, bits(a), bits(b))):
                failures.append((dtype, shape))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
