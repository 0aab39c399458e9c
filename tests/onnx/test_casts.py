"""Floats as integers, in kernels and programs: bit by bit what onnxruntime gives, whatever the float is."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import anydml as dml
from anydml.onnx.ops import meanings

FLOATS = ("float16", "float32", "float64")
WHOLE = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 bool".split()
EDGES = [0.5, 0.99, 1, 1.5, 100.7, 127, 127.5, 128, 129, 255, 255.5, 256, 300, 32767.5, 32768, 65535.5, 65536]
EDGES += [
    2.0**n + d for n in (24, 31, 32, 33, 53, 62, 63, 64, 65) for d in (-2048, -1, 0, 0.5, 1, 2.0 ** (n - 9))
]
EDGES += [3e9, 5e9, 1e12 + 7, 1e19, 1e38, 1e300, 1e-40, 5e-324, 0.0, np.inf, np.nan]


def numbers(dtype, count):
    rng = np.random.default_rng(count)
    x = rng.standard_normal(count) * 2.0 ** rng.integers(-2, 70, count)
    x[: 2 * len(EDGES)] = rng.permutation([s * e for e in EDGES for s in (1, -1)])[:count]
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def model_of(given, wanted):
    code = helper.np_dtype_to_tensor_dtype(np.dtype(wanted))
    of = helper.np_dtype_to_tensor_dtype(np.dtype(given))
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=code)],
        "g",
        [helper.make_tensor_value_info("x", of, ["n"])],
        [helper.make_tensor_value_info("y", code, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def oracle_of(model):
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), plain, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("wanted", WHOLE)
@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.skipif(not meanings.X86, reason="libraries give other numbers on other processors")
def test_against_onnxruntime(given, wanted, native):
    model = model_of(given, wanted)
    oracle = oracle_of(model)
    session = dml.load(model, threads=1, native=native)
    for count in (1, 7, 67, 1000, 20_000):
        feeds = {"x": numbers(given, count)}
        (got,), (right,) = session.run(None, feeds), oracle.run(None, feeds)
        assert got.dtype == right.dtype
        np.testing.assert_array_equal(got, right)
    ours = "program: Cast" if native else "kernels: Cast"
    # of uint32, onnxruntime gives one number in the middle of an array, and another one at its end
    left = wanted == "uint32" and given != "float16"
    assert ("onnxruntime: Cast" if left else ours) in session.explain()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("given", "wanted"), [("float16", "float64"), ("float64", "float16")])
def test_between_halves_and_doubles(given, wanted, native):
    """By way of float32, which rounds twice, as onnxruntime does."""
    halves = np.sort(np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64))
    middle = (halves[1:] + halves[:-1]) / 2
    around = [np.nextafter(middle, to) for to in (np.inf, -np.inf)]
    feeds = {"x": np.concatenate([halves, -middle, *around, [np.inf, -np.inf, np.nan]]).astype(given)}
    session = dml.load(model_of(given, wanted), threads=1, native=native)
    (got,), (right,) = session.run(None, feeds), oracle_of(model_of(given, wanted)).run(None, feeds)
    np.testing.assert_array_equal(got, right)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(right))
    assert ("program: Cast" if native else "kernels: Cast") in session.explain()
