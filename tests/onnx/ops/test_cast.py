"""Conversion of types: rules against onnxruntime, or against ONNX's tables."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.onnx.ops.checking import case, check, check_fails, check_open, folded, strings, table

f4, f8, f2, bf = np.float32, np.float64, np.float16, ml_dtypes.bfloat16
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [f2, f4, f8]
NAN, INF = np.nan, np.inf


def code(dtype):
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def ends(dtype):
    limits = np.iinfo(dtype)
    return np.array([0, 1, 100, limits.min, limits.max, limits.max // 2, limits.max - 1], dtype)


FRACTIONS = [0.0, -0.0, 0.5, -0.5, -0.99, 1.5, 99.99, 2.0**-20, 127]


@table(
    [
        *(case("Cast", ends(a), to=code(b)) for a in INTEGERS for b in [*INTEGERS, *FLOATS, bool]),
        *(
            case("Cast", np.array(FRACTIONS, a), to=code(b))
            for a in FLOATS
            for b in [*INTEGERS, *FLOATS, bool]
        ),
        *(case("Cast", np.array([True, False]), to=code(b)) for b in [*INTEGERS, *FLOATS, bool]),
        *(case("Cast", np.zeros((0, 2), a), to=code(b)) for a in (f4, np.int8) for b in (f2, bool, np.int64)),
        *(case("Cast", np.array(3, a), to=code(b)) for a in (f4, np.int8) for b in (f2, bool, np.int64)),
        *(case("Cast", f4([1.5, -2]), to=code(np.int32), version=version) for version in (6, 9, 13, 19, 21)),
        *(case("CastLike", f4([1.5, 2]), np.zeros(0, b)) for b in (np.int32, f8, bool, f2)),
        case("Cast", np.array([NAN, INF, -INF, 1e300, -1e300, 5e-324, 1 + 2**-24 + 2**-50]), to=code(f4)),
        case("Cast", f4([NAN, INF, -INF, 1e30, 65519, 65520, 1e-8, 1 + 2**-11]), to=code(f2)),
        case("Cast", np.array([NAN, INF, 65519, 65520, 1e-8, 1 + 2**-11]), to=code(f2)),
        case("Cast", np.int64([2**53 + 1, 2**63 - 1, 2**24 + 1, -(2**63)]), to=code(f4)),
        case("Cast", np.int64([2049, 2050, 2051, 65519, 65520, 2**63 - 1]), to=code(f2)),
        case("Cast", f8([9223372036854774784, -9223372036854775808]), to=code(np.int64)),
        case("Cast", f4([NAN, INF, -0.0]), to=code(bool)),
        # strings
        *(case("Cast", np.array([0, 1, 3], a), to=8) for a in [*INTEGERS, *FLOATS, bool]),
        case("Cast", f4([0.1, -1.5, 1e10, 1e-5, 123456789, NAN, INF, -INF, -0.0, 1 / 3]), to=8),
        case("Cast", f8([0.1, -1.5, 1e10, 1e-5, NAN, INF, -INF, -0.0]), to=8),
        case("Cast", f2([0.1, -1.5, 1e-5, 65504]), to=8),
        *(
            case("Cast", strings("1", "-0.0", "1e-5", "5.", ".5", "+5", "0.1", "1E8"), to=code(b))
            for b in (f4, f8)
        ),
        case("Cast", strings("1", "-0.0", "1e-5", "0.1", "+100.5"), to=code(f2)),
        *(case("Cast", strings("inf", "+INF", "-inf", "nan"), to=code(b)) for b in FLOATS),
        *(case("Cast", strings("1", "+5", "127", "0"), to=code(b)) for b in INTEGERS),
        case("Cast", strings("-9223372036854775808", "9223372036854775807"), to=code(np.int64)),
        case("Cast", strings("a", ""), to=8),
        case("Cast", strings(), to=code(f4)),
        case("Cast", np.array("1", object), to=code(f4)),
    ]
)
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        # undefined, says ONNX; processors differ
        *(case("Cast", f4([x]), to=code(t)) for t in INTEGERS for x in (NAN, INF, -INF, 1e30, -1e30)),
        *(case("Cast", f4([-1]), to=code(t)) for t in (np.uint8, np.uint32, np.uint64)),
        case("Cast", f4([128]), to=code(np.int8)),
        case("Cast", f4([2.0**31]), to=code(np.int32)),
        case("Cast", f8([2.0**63]), to=code(np.int64)),
        # rounded twice by onnxruntime
        case("Cast", f8([1 + 2**-11 + 2**-40]), to=code(f2)),
        case("Cast", f8([1 + 2**-8 + 2**-40]), to=code(bf)),
        case("Cast", np.int64([2**53 + 1]), to=code(bf)),
        # no numbers, or such of which libraries make something else
        *(
            case("Cast", strings(t), to=code(f4))
            for t in ("", "x", " 1", "0x10", "1_0", "1e400", "1e-400", "-nan")
        ),
        *(case("Cast", strings(t), to=code(np.int8)) for t in ("", "1.0", "128", " 1", "1e1")),
        case("Cast", strings("1"), to=code(bool)),
        case("Cast", f8([1 / 3]), to=8),
        # small types
        case("Cast", f4([8]), to=TensorProto.INT4, version=21),
        case("Cast", f4([-1]), to=TensorProto.UINT4, version=21),
        case("Cast", f4([7]), to=TensorProto.FLOAT4E2M1, version=23),
        case("Cast", f4([NAN]), to=TensorProto.FLOAT4E2M1, version=23),
        case("Cast", f4([1]), version=1, to="FLOAT"),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


SMALL = {
    "INT4": (ml_dtypes.int4, [1, -7, 7, -8]),
    "UINT4": (ml_dtypes.uint4, [1, 9, 7, 8]),
}


@pytest.mark.parametrize("name", SMALL)
def test_integers_below_a_byte_have_the_low_bits(name):
    dtype, expected = SMALL[name]
    x = np.int32([17, 9, -9, 200])
    check("Cast", [x], 21, to=getattr(TensorProto, name), expected=np.array(expected, dtype))
    check("Cast", [np.array(expected, dtype)], 21, to=TensorProto.FLOAT, expected=f4(expected))
    check("Cast", [np.array(expected, dtype)], 21, to=TensorProto.INT64, expected=np.int64(expected))
    check("Cast", [f4([3, 0])], 21, to=getattr(TensorProto, name), expected=np.array([3, 0], dtype))


@pytest.mark.parametrize("given", [np.float16, f4, f8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["INT4", "UINT4", "INT2", "UINT2"])
def test_fractions_are_truncated(name, given):
    dtype = np.dtype(getattr(ml_dtypes, name.lower()))
    low, high = ml_dtypes.iinfo(dtype).min, ml_dtypes.iinfo(dtype).max
    x = np.arange(low, high + 0.75, 0.25)
    x = np.array([*x, -0.5, 0.5, 0.75], given)
    version = 25 if name.endswith("2") else 21
    expected = np.array([int(v) for v in x], dtype)
    check("Cast", [x], version, to=getattr(TensorProto, name), expected=expected)
    check("CastLike", [x, np.array([1], dtype)], version, expected=expected)


def test_small_floats_of_parts_of_a_byte():
    x = f4([0, -0.0, 1.25, 2.5, -6, 0.25])
    expected = np.array([0, -0.0, 1, 2, -6, 0], ml_dtypes.float4_e2m1fn)
    check("Cast", [x], 23, to=TensorProto.FLOAT4E2M1, expected=expected)
    check("Cast", [expected], 23, to=TensorProto.FLOAT, expected=f4([0, -0.0, 1, 2, -6, 0]))


def both_ways(x, to, **attributes):
    """To a small type and back again in onnxruntime, which gives NumPy no small types."""
    import onnxruntime as ort

    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["s"], to=to, **attributes),
            helper.make_node("Cast", ["s"], ["y"], to=1),
        ],
        "both ways",
        [helper.make_tensor_value_info("x", code(x.dtype), [None])],
        [onnx.ValueInfoProto(name="y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


ALL_HALVES = np.arange(1 << 16, dtype=np.uint16).view(f2).astype(f4)
SMALL_FLOATS = "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ".split()


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "BFLOAT16"])
@pytest.mark.parametrize("saturate", [1, 0])
def test_floats_of_a_byte(name, saturate):
    """All halves. Where nothing saturates, onnxruntime makes 448 of 480 and NaN of 61440 to 65504."""
    to = getattr(TensorProto, name)
    how = {"saturate": saturate} if name in SMALL_FLOATS else {}
    x = ALL_HALVES
    if not saturate:
        limit = {"FLOAT8E4M3FN": 480, "FLOAT8E5M2": 61440}.get(name, INF)
        x = x[~(np.abs(x) >= limit) | np.isinf(x)]
    (found,) = folded("Cast", [x], 19, to=to, **how)
    check("Cast", [found], 19, to=1, expected=both_ways(x, to, **how))


def test_what_is_too_large_for_a_byte_and_does_not_saturate():
    x = f4([448, 464, 465, 480, -1e30, INF])
    expected = np.array([448, 448, NAN, NAN, NAN, NAN], ml_dtypes.float8_e4m3fn)
    check("Cast", [x], 19, to=TensorProto.FLOAT8E4M3FN, saturate=0, expected=expected)
    x = f4([57344, 61439, 61440, -1e30, INF])
    expected = np.array([57344, 57344, INF, -INF, INF], ml_dtypes.float8_e5m2)
    check("Cast", [x], 19, to=TensorProto.FLOAT8E5M2, saturate=0, expected=expected)


def test_bfloat16():
    x = f8([1.5, -INF, NAN, 2.0**-140, 3])
    check("Cast", [f8([1e39])], to=TensorProto.BFLOAT16, expected=np.array([INF], bf))
    check("Cast", [x], to=TensorProto.BFLOAT16, expected=x.astype(bf))
    check("Cast", [x.astype(bf)], to=TensorProto.DOUBLE, expected=x.astype(bf).astype(f8))
    check("Cast", [np.array([-2.5], bf)], to=TensorProto.INT32, expected=np.int32([-2]))
    check("CastLike", [np.int64([257, 3]), np.zeros(1, bf)], expected=np.array([256, 3], bf))
    check("Cast", [np.array([1.5, NAN], bf)], to=TensorProto.STRING, expected=strings("1.5", "NaN"))


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 26, reason="an older onnx")
def test_bits():
    x = f4([1, -0.0, NAN])
    check("BitCast", [x], 26, to=TensorProto.INT32, expected=x.view(np.int32))
    check("BitCast", [np.int8([-1, 1])], 26, to=TensorProto.UINT8, expected=np.uint8([255, 1]))
    check("BitCast", [np.uint16(0x3F80)], 26, to=TensorProto.BFLOAT16, expected=np.array(1, bf))
    check("BitCast", [np.uint8([0, 1])], 26, to=TensorProto.BOOL, expected=np.array([False, True]))
    check("BitCast", [x[:0]], 26, to=TensorProto.FLOAT, expected=x[:0])
    check_fails("BitCast", [x], 26, to=TensorProto.INT64, alone=True)
    check_open("BitCast", [np.uint8([2])], 26, to=TensorProto.BOOL)


def test_a_type_that_is_none():
    check_fails("Cast", [f4([1])], to=99)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 24, reason="an older onnx")
def test_powers_of_two():
    x = f4([1, 0.25, 2.0**100])
    check("Cast", [x], 24, to=TensorProto.FLOAT8E8M0, expected=x.astype(ml_dtypes.float8_e8m0fnu))
    check_open("Cast", [f4([3])], 24, to=TensorProto.FLOAT8E8M0)
