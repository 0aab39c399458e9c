"""QuantizeLinear and DequantizeLinear in kernels and programs, and where they stay with onnxruntime."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import anydml as dml

WHOLE = ("uint8", "int8", "uint16", "int16")
SPECIAL = [0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 127.5, 128.5, 255.5, -128.5, 32767.5, 1e-40, np.nan]
HUGE = [65535.5, 3e38, -3e38, 3e9, -3e9, np.inf, -np.inf]
SHAPES = [((), ()), ((7,), (1,)), ((3, 70), ()), ((3, 70), (3,)), ((2, 3, 5, 7), (3,)), ((4000,), ())]


def model_of(name, arrays, result, opset=21, **attributes):
    code = lambda dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # noqa: E731
    node = helper.make_node(name, [f"x{k}" for k in range(len(arrays))], ["y"], **attributes)
    inputs = [helper.make_tensor_value_info(f"x{k}", code(a.dtype), a.shape) for k, a in enumerate(arrays)]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", code(result), arrays[0].shape)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def oracle_of(model):
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), plain, providers=["CPUExecutionProvider"])


def agree(model, arrays, native):
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    session = dml.load(model, threads=1, native=native)
    (got,), (right,) = session.run(None, feeds), oracle_of(model).run(None, feeds)
    assert (got.dtype, got.shape) == (right.dtype, right.shape)
    np.testing.assert_array_equal(got, right)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(right))
    assert ("program: " if native else "kernels: ") + model.graph.node[0].op_type in session.explain()


def parameters(rng, shape, dtype, whole):
    """Scales and zero points, an axis that fits them, and whether to give the points."""
    info = np.iinfo(whole)
    scale = rng.choice([0.0123, 0.5, 1, 3.7], shape).astype(dtype)
    points = [0] if whole == "int32" else [info.min, info.max, 0, 3]
    return np.asarray(scale), np.asarray(rng.choice(points, shape).astype(whole))


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("whole", WHOLE)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.drawn
def test_quantize(dtype, whole, shapes, native):
    rng = np.random.default_rng(len(shapes[0]))
    for points in (True, False):
        x = rng.standard_normal(max(int(np.prod(shapes[0])), 1)) * 200
        special = SPECIAL + HUGE * (
            dtype == "float32"
        )  # of halves, onnxruntime takes the huge ones for the least
        x[: len(special)] = rng.permutation(special)[: x.size]
        scale, zero = parameters(rng, shapes[1], dtype, whole)
        if dtype == "float16":
            zero[...] = (
                np.abs(zero.astype(int)) % 100
            )  # where it adds a negative one to a NaN, its integers wrap
        told = {} if points else {"output_dtype": helper.np_dtype_to_tensor_dtype(np.dtype(whole))}
        arrays = [x.reshape(shapes[0]).astype(dtype), scale, zero][: 2 + points]
        axis = {"axis": arrays[0].shape.index(3)} if shapes[1] == (3,) else {}
        agree(model_of("QuantizeLinear", arrays, whole, **axis, **told), arrays, native)


@pytest.mark.parametrize(
    "scale", [1.0, 0.1, 0.3, 1 / 255, 3.0, 1e-40, 2.0**-126, 3e38, 2.0**120, 0.0, np.inf, np.nan]
)
def test_quotients_next_to_a_half(scale):
    half = np.arange(-300, 300, dtype=np.float64) + 0.5
    with np.errstate(all="ignore"):
        x = np.concatenate([half, half * 1000, np.arange(-300, 300)]).astype(np.float32) * np.float32(scale)
        for _ in range(3):
            x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])
    arrays = [x, np.array(scale, np.float32), np.array(7, np.int16)]
    for native in (False, True):
        agree(model_of("QuantizeLinear", arrays, "int16"), arrays, native)


def test_huge_halves_saturate():
    x, scale = np.float16([np.inf, -np.inf, 65504, -65504, np.nan]), np.array(1e-6, np.float16)
    for native in (False, True):
        for whole in WHOLE:
            info, arrays = np.iinfo(whole), [x, scale, np.array(3, whole)]
            session = dml.load(model_of("QuantizeLinear", arrays, whole), threads=1, native=native)
            (got,) = session.run(None, {f"x{k}": a for k, a in enumerate(arrays)})
            assert got.tolist() == [info.max, info.min, info.max, info.min, info.min]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("whole", [*WHOLE, "int32"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.drawn
def test_dequantize(dtype, whole, shapes, native):
    rng, info = np.random.default_rng(len(shapes[0])), np.iinfo(whole)
    for points in (True, False) if whole != "int32" else (False,):
        x = rng.integers(info.min, info.max, shapes[0], endpoint=True).astype(whole)
        arrays = [np.asarray(x), *parameters(rng, shapes[1], dtype, whole)][: 2 + points]
        axis = {"axis": x.shape.index(3)} if shapes[1] == (3,) else {}
        with np.errstate(over="ignore"):
            agree(model_of("DequantizeLinear", arrays, dtype, **axis), arrays, native)


@pytest.mark.parametrize("native", [False, True])
def test_there_and_back_with_what_is_between(native):
    text = """<ir_version: 9, opset_import: ["": 21]>
    m (float[a, b] x, float[a, b] z, float[b] s, uint8[b] p) => (float[a, b] y, uint8[a, b] q) {
      q = QuantizeLinear <axis = 1> (x, s, p)  d = DequantizeLinear <axis = 1> (q, s, p)
      e = Add (d, z)  r = QuantizeLinear <axis = 1> (e, s, p)  y = DequantizeLinear <axis = 1> (r, s, p) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    feeds = {name: rng.standard_normal((33, 7)).astype(np.float32) * 9 for name in "xz"}
    feeds |= {"s": rng.uniform(0.01, 2, 7).astype(np.float32), "p": rng.integers(0, 255, 7).astype(np.uint8)}
    session = dml.load(model, threads=1, native=native)
    for got, right in zip(session.run(None, feeds), oracle_of(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(got, right)
    assert "onnxruntime" not in session.explain()


def test_scales_that_do_not_fit():
    arrays = [np.ones((2, 1), np.float32), np.ones(5, np.float32)]
    for sizes in ([2, 1], ["a", "b"]):
        model = model_of("QuantizeLinear", arrays, "uint8", axis=1)
        for value in (model.graph.input[0], model.graph.output[0]):
            shape = helper.make_tensor_value_info("", 1, sizes).type.tensor_type.shape
            value.type.tensor_type.shape.CopyFrom(shape)
        with pytest.raises(dml.AnyDMLError):
            dml.load(model, threads=1).run(None, {"x0": arrays[0], "x1": arrays[1]})


def test_around_convolutions_they_stay_with_onnxruntime():
    text = """<ir_version: 9, opset_import: ["": 21]>
    m (float[1, 8, 128, 128] x) => (float[1, 8, 128, 128] y) <float s = {0.05}, uint8 p = {128}, int8 o = {0}> {
      q = QuantizeLinear (x, s, p)  d = DequantizeLinear (q, s, p)  wd = DequantizeLinear (w, s, o)
      c = Conv <pads = [1, 1, 1, 1]> (d, wd)  r = QuantizeLinear (c, s, p)  e = DequantizeLinear (r, s, p)
      v = Conv <pads = [1, 1, 1, 1]> (e, wd)  u = QuantizeLinear (v, s, p)  y = DequantizeLinear (u, s, p) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    weights = rng.integers(-127, 127, (8, 8, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = dml.load(model, threads=1)
    session.run(None, {"x": rng.standard_normal((1, 8, 128, 128)).astype(np.float32)})
    assert "kernels" not in session.explain()


@pytest.mark.parametrize("op", ["Add (d, e)", "Sigmoid (d)", "Relu (d)", "Add (d, x)"])
def test_what_onnxruntime_computes_with_integers_stays_with_it(op):
    text = f"""<ir_version: 9, opset_import: ["": 21]>
    m (uint8[n] a, uint8[n] b, float[n] x) => (uint8[n] y) <float s = {{0.05}}, uint8 p = {{128}}> {{
      d = DequantizeLinear (a, s, p)  e = DequantizeLinear (b, s, p)  r = {op}  y = QuantizeLinear (r, s, p) }}"""
    session, rng = dml.load(onnx.parser.parse_model(text), threads=1), np.random.default_rng(0)
    feeds = {name: rng.integers(0, 255, 100).astype(np.uint8) for name in "ab"}
    session.run(None, feeds | {"x": np.ones(100, np.float32)})
    assert ("kernels" in session.explain()) == (op in ("Relu (d)", "Add (d, x)"))
