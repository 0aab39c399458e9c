"""Floats as integers, in kernels and programs: bit by bit what onnxruntime gives, whatever the float is."""

import os

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

import anydml as dml
from anydml.onnx.ops import meanings
from anydml.onnx.ops.quirks import SEEN

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


@pytest.mark.drawn
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
    # of uint32, onnxruntime gives one number in the middle of an array, and another one at its end; of
    # uint64, others where it is made for Windows
    left = (wanted == "uint32" and given != "float16") or (wanted == "uint64" and os.name == "nt")
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


PARTS = {"INT4": 23, "UINT4": 23, "INT2": 25, "UINT2": 25}
"""Integers below a byte, and an opset that has them."""
FRACTIONS = np.float32([0, 0.4, 0.5, 0.75, 1, 1.25, 1.5, 1.99])
THERE_AND_BACK = "q = Cast <to = {code}> ({x}) {y} = Cast <to = 1> (q)"
IN_A_LOOP = """two = Constant <value_int = 2> ()
    y = Loop (two, c, x) <body = b (int64 i, bool d, float[k] s) => (bool e, float[k] z) {{
        e = Identity (d) {nodes} }}>"""


def of_parts(name, where):
    code = getattr(TensorProto, name)
    if where == "at once":
        nodes = THERE_AND_BACK.format(code=code, x="x", y="y")
    else:
        nodes = IN_A_LOOP.format(nodes=THERE_AND_BACK.format(code=code, x="s", y="z"))
    text = f'<ir_version: 11, opset_import: ["": {PARTS[name]}]> g (float[n] x, bool c) => (float[m] y)'
    return parser.parse_model(f"{text} {{ {nodes} }}")


@pytest.mark.parametrize("where", ["at once", "in a loop"])
@pytest.mark.parametrize("name", PARTS)
def test_fractions_to_parts_of_a_byte(name, where):
    """As onnx.reference; onnxruntime rounds them."""
    model, feeds = of_parts(name, where), {"x": FRACTIONS, "c": np.array(True)}
    (right,) = ReferenceEvaluator(of_parts(name, "at once")).run(None, feeds)
    np.testing.assert_array_equal(right, np.trunc(FRACTIONS))
    for native in (True, False):
        (got,) = dml.load(model, native=native).run(None, feeds)
        np.testing.assert_array_equal(got, right)
    (rounded,) = oracle_of(model).run(None, feeds)
    assert not np.array_equal(rounded, right) or not ort.__version__.startswith(f"{SEEN}.")


@pytest.mark.parametrize("name", PARTS)
def test_files_with_fractions_to_parts_of_a_byte(name):
    """What is folded is compared with what runs: an If is kept for no difference between libraries."""
    known = "f = Constant <value_floats = [0.75, 1.5, 0.5]> ()"
    cast = THERE_AND_BACK.format(code=getattr(TensorProto, name), x="f", y="k")
    text = f'<ir_version: 11, opset_import: ["": {PARTS[name]}]> g (float[3] x, bool c) => (float[3] y)'
    branches = """then_branch = a () => (float[3] t) { t = Neg (k) },
        else_branch = b () => (float[3] u) { u = Mul (x, k) }"""
    model = parser.parse_model(f"{text} {{ {known} {cast} y = If (c) <{branches}> }}")
    flat, report = dml.flatten(model, convert="always")
    assert report.left == 0
    for truth in (True, False):
        feeds = {"x": np.float32([2, 3, 4]), "c": np.array(truth)}
        (got,) = dml.load(flat).run(None, feeds)
        np.testing.assert_array_equal(got, np.float32([-0.0, -1, -0.0] if truth else [0, 3, 0]))
