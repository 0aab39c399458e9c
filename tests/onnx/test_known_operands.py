"""Nodes that are kernels for some contents of what is known of their inputs: division, remainders, powers."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import anydml as dml

WHOLE = [f"{sign}int{width}" for width in (8, 16, 32, 64) for sign in ("", "u")]
SHAPES = [((), ()), ((3, 70), ()), ((3, 70), (70,)), ((3, 1), (1, 5)), ((5000,), (1,))]


def model_of(name, x, y, opset=18, **attributes):
    code = lambda dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))  # noqa: E731
    graph = helper.make_graph(
        [helper.make_node(name, ["x", "y"], ["z"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", code(x.dtype), x.shape)],
        [helper.make_tensor_value_info("z", code(x.dtype), np.broadcast_shapes(x.shape, y.shape))],
        [numpy_helper.from_array(y, "y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def contents(rng, dtype, shape):
    info = np.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7]
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return np.asarray(np.where(rng.random(shape) < 0.4, rng.choice(np.array(ends, dtype), shape), x))


def exactly(name, fmod, x, y):
    """By Python's integers."""

    def one(a, b):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if name == "Div" else a - quotient * b if fmod else a % b

    x, y = np.broadcast_arrays(x, y)
    width = 8 * x.dtype.itemsize
    found = [one(a, b) % 2**width for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    return np.array(found, f"uint{width}").view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize(("name", "fmod"), [("Div", None), ("Mod", 0), ("Mod", 1)])
@pytest.mark.drawn
def test_division_by_what_is_no_zero(name, fmod, dtype, native):
    rng = np.random.default_rng(0)
    for shapes in SHAPES:
        for _ in range(3):
            x, y = (contents(rng, dtype, shape) for shape in shapes)
            y = np.where(y == 0, rng.choice(np.array([1, 3, np.iinfo(dtype).max], dtype)), y).astype(dtype)
            if y.size == 1 and dtype[0] == "i" and rng.random() < 0.3:
                y = np.full_like(y, -1)
            session = dml.load(
                model_of(name, x, y, **({} if fmod is None else {"fmod": fmod})), threads=1, native=native
            )
            (got,) = session.run(None, {"x": x})
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got, exactly(name, fmod, x, y))
            assert (f"program: {name}" if native else f"kernels: {name}") in session.explain()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", ["Div", "Mod"])
def test_a_zero_is_told(name, native):
    x, y = np.array([1, 2, 3], np.int32), np.array([1, 0, 3], np.int32)
    session = dml.load(model_of(name, x, y), threads=1, native=native)
    with pytest.raises(dml.ExecutionFailed):
        session.run(None, {"x": x})
    assert "kernels" not in session.explain()


def test_whether_it_is_known_is_asked_for_each_plan():
    """The divisor decides an If, so plans know it; a later one must not rely on what an earlier one knew."""
    body = """<ir_version: 9, opset_import: ["": 18]>
    m (int32[n] x, int32 y) => (int32[n] z) <int32 two = {2}> {
      c = Equal (y, two)
      z = If (c) <then_branch = t () => (int32[n] a) { a = Div (x, y) }, else_branch = e () => (int32[n] b) { b = Div (x, y) }> }"""

    session = dml.load(onnx.parser.parse_model(body), threads=1, native=False)
    x = np.array([7, 8], np.int32)
    for y in (2, 3, 2):
        (z,) = session.run(None, {"x": x, "y": np.array(y, np.int32)})
        assert z.tolist() == [7 // y, 8 // y]
    with pytest.raises(dml.ExecutionFailed):
        session.run(None, {"x": x, "y": np.array(0, np.int32)})


@pytest.mark.drawn
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
@pytest.mark.parametrize("of", ["float32", "int64", "int32", "float16"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
def test_small_powers(dtype, of, exponent, native):
    rng = np.random.default_rng(0)
    if dtype[0] == "i":
        x = contents(rng, dtype, (3, 70))
    else:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 1.0]
        with np.errstate(over="ignore"):
            x = np.concatenate([rng.standard_normal(202), special]).astype(dtype).reshape(3, 70)
    y = np.array([exponent], of)
    session = dml.load(model_of("Pow", x, y), threads=1, native=native)
    (got,) = session.run(None, {"x": x})
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) if dtype != "float64" else x
        wanted = np.power(x, exponent) if dtype[0] == "i" else np.power(wide, exponent).astype(dtype)
    if dtype[0] == "i" or exponent < 3:
        np.testing.assert_array_equal(got, wanted)
    else:  # rounded twice
        np.testing.assert_allclose(
            got, wanted, rtol=np.finfo(dtype).eps, atol=np.finfo(dtype).smallest_subnormal
        )
    assert (("program" if native else "kernels") + ": Pow") in session.explain()


def test_squares_and_cubes_of_integers_wrap_as_in_onnxruntime():
    rng = np.random.default_rng(0)
    for exponent in (2, 3):
        x, y = contents(rng, "int32", (1000,)), np.array(exponent, np.int32)
        model = model_of("Pow", x, y)
        plain = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        session = dml.load(model, threads=1)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])


def test_other_powers_of_integers_stay_where_they_are():
    x = np.array([2, 3], np.int32)
    session = dml.load(model_of("Pow", x, np.array(5, np.int32)), threads=1)
    assert session.run(None, {"x": x})[0].tolist() == [32, 243]
    assert "kernels" not in session.explain()
