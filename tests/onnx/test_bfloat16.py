"""bfloat16 in kernels and programs: computed in float32, and rounded after each operator."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import anydml as dml
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.directml import DirectMLForm
from anydml.ops import bfloat16
from anydml.ops.dtypes import FLOAT32, UINT16
from anydml.ops.expr import read
from anydml.ops.interpret import evaluate
from tests.onnx.test_elementwise import attributes_of

B = np.dtype(ml_dtypes.bfloat16)
ALL = np.arange(1 << 16, dtype=np.uint16).view(B)
FORMS = [
    (name, form)
    for name, info in OPS.items()
    for form in info.forms
    if "bfloat16" in form.types and form.known is DirectMLForm.known and not form.left_out and not form.mixed
]
FUNCTIONS = [
    (name, attributes)
    for name, form in FORMS
    if 1 in form.inputs
    and "tensor(bfloat16)" in onnx.defs.get_schema(name, 24).inputs[0].types
    and name not in ("Cast", "Identity", "Sum", "Max", "Min", "Mean")
    for attributes in attributes_of(name, "bfloat16")
    if form.operator.name != "ELEMENT_WISE_CLIP"
]


def model_of(name, types, result, shapes=None, opset=24, **attributes):
    code = helper.np_dtype_to_tensor_dtype
    node = helper.make_node(name, [f"x{k}" for k in range(len(types))], ["y"], **attributes)
    shapes = shapes or [["n"]] * len(types)
    inputs = [
        helper.make_tensor_value_info(f"x{k}", code(np.dtype(t)), s)
        for k, (t, s) in enumerate(zip(types, shapes, strict=True))
    ]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", code(np.dtype(result)), None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(model, arrays, native):
    session = dml.load(model, threads=1, native=native)
    (got,) = session.run(None, {f"x{k}": a for k, a in enumerate(arrays)})
    assert ("program: " if native else "kernels: ") + model.graph.node[0].op_type in session.explain()
    return got


def same(got, wanted):
    """The same bits, but for NaN."""
    assert got.dtype == wanted.dtype
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    kind = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(got[~nan].view(kind), wanted[~nan].view(kind))


def test_all_numbers_widen_and_come_back():
    bits = ALL.view(np.uint16)
    wide = evaluate(bfloat16.widen(read(0, UINT16)), [bits])
    np.testing.assert_array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)
    back = evaluate(bfloat16.narrow(read(0, FLOAT32)), [wide])
    nan = np.isnan(wide)
    np.testing.assert_array_equal(back[~nan], bits[~nan])
    assert np.isnan(back[nan].view(B).astype(np.float32)).all()


@pytest.mark.parametrize("native", [False, True])
def test_rounding(native):
    """To nearest, halves to even, of what lies around every number and every middle of two."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.uint32([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    x = (high[:, None] | low).reshape(-1).view(np.float32)
    got = run(model_of("Cast", [np.float32], B, to=TensorProto.BFLOAT16, shapes=[[x.size]]), [x], native)
    with np.errstate(all="ignore"):
        same(got, x.astype(B))
    quiet = got[np.isnan(x)].view(np.uint16) & 0x40
    assert quiet.all()


@pytest.mark.drawn
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(("name", "attributes"), FUNCTIONS)
def test_functions_of_all_numbers(name, attributes, native):
    """What float32 gives, rounded."""
    result = bool if name in ("IsNaN", "IsInf") else B
    model = model_of(name, [B], result, [[ALL.size]], **attributes)
    single = model_of(
        name, [np.float32], result if result is bool else np.float32, [[ALL.size]], **attributes
    )
    with np.errstate(all="ignore"):
        wanted = run(single, [ALL.astype(np.float32)], native)
        same(run(model, [ALL], native), wanted.astype(result))


EXACT = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
    "Less": np.less, "Greater": np.greater, "Equal": np.equal, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal, "Sum": np.add, "PRelu": lambda x, s: np.where(x >= 0, x, x * s),
}  # fmt: skip


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_operators_of_two(name, native):
    rng = np.random.default_rng(0)
    special = ALL[[0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 1, 0x8001, 0x7F7F, 0x3F80, 0x3F81]]
    x = np.concatenate([np.repeat(special, len(special)), rng.choice(ALL, 5000)])
    y = np.concatenate([np.tile(special, len(special)), rng.choice(ALL, 5000)])
    with np.errstate(all="ignore"):
        wanted = np.asarray(EXACT[name](x.astype(np.float32), y.astype(np.float32)))
        wanted = wanted if wanted.dtype == bool else wanted.astype(B)
    got = run(model_of(name, [B, B], wanted.dtype, [[x.size]] * 2), [x, y], native)
    zeros = (x.astype(np.float32) == 0) & (y.astype(np.float32) == 0) & np.isin(name, ["Max", "Min"])
    same(got[~zeros], wanted[~zeros])
    assert not got[zeros].astype(np.float32).any()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("to", "float16 float32 float64 int8 uint8 int16 int32 int64 uint64 bool".split())
def test_casts(to, native):
    finite = ALL[np.abs(ALL.astype(np.float32)) < (128 if to == "int8" else 2.0**31)]
    x = finite if "int" in to else ALL
    x = x[x.astype(np.float32) >= 0] if "uint" in to else x
    x = x[x.astype(np.float32) < 2.0 ** min(8 * np.dtype(to).itemsize - 1, 31)] if "int" in to else x
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    got = run(model_of("Cast", [B], to, [[x.size]], to=code), [x], native)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32).astype(to)
    same(got, wanted) if "float" in to else np.testing.assert_array_equal(got, wanted)
    back = run(model_of("Cast", [to], B, [[x.size]], to=TensorProto.BFLOAT16), [wanted], native)
    with np.errstate(all="ignore"):
        same(back, wanted.astype(np.float32).astype(B))


@pytest.mark.parametrize("native", [False, True])
def test_each_operator_rounds(native):
    text = """<ir_version: 10, opset_import: ["": 22]>
    m (bfloat16[300] x, bfloat16[2, 1] w, bool[300] c) => (bfloat16[2, 300] y, float[2, 300] z, bool[2, 300] t) {
      a = Mul (x, w)  b = Exp (a)  d = Where (c, b, x)  e = Mul (d, half)  y = Add (e, w)
      z = Cast <to = 1> (y)  t = Greater (y, x) }"""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.37, B), "half"))
    x, w = rng.standard_normal(300).astype(B), rng.standard_normal((2, 1)).astype(B)
    c = rng.integers(0, 2, 300).astype(bool)
    session = dml.load(model, threads=1, native=native)
    y, z, t = session.run(None, {"x": x, "w": w, "c": c})
    a = (x.astype(np.float32) * w.astype(np.float32)).astype(B)
    d = np.where(c, np.exp(a.astype(np.float64)).astype(np.float32).astype(B), x)
    e = (d.astype(np.float32) * np.array(0.37, B).astype(np.float32)).astype(B)
    right = (e.astype(np.float32) + w.astype(np.float32)).astype(B)
    same(y, right)
    same(z, right.astype(np.float32))
    np.testing.assert_array_equal(t, right.astype(np.float32) > x.astype(np.float32))
    assert ("program" if native else "kernels") in session.explain()
    assert "onnx" not in session.explain()


def test_in_branches_and_loops_of_a_program():
    text = """<ir_version: 10, opset_import: ["": 22]>
    m (bfloat16[3, 20] x, int64 n) => (bfloat16[20, 3] y) <bool on = {1}> {
      z = Loop (n, on, x) <body = b (int64 i, bool c, bfloat16[3, 20] s) => (bool go, bfloat16[3, 20] r) {
        go = Identity (c)  m = Mul (s, s)  total = Greater (m, s)  r = Where (total, m, s) }>
      y = Transpose (z) }"""
    session, x = (
        dml.load(onnx.parser.parse_model(text), threads=1, native=True),
        np.linspace(-2, 2, 60).astype(B).reshape(3, 20),
    )
    wanted = x
    for _ in range(3):
        square = (wanted.astype(np.float32) ** 2).astype(B)
        wanted = np.where(square.astype(np.float32) > wanted.astype(np.float32), square, wanted)
    (got,) = session.run(None, {"x": x, "n": np.array(3)})
    same(got, np.ascontiguousarray(wanted.T))
    assert "program" in session.explain()


def test_what_computes_with_bfloat16_otherwise_is_no_program():
    model = model_of("CumSum", [B, np.int64], B, [[5], []], opset=14)
    session = dml.load(model, threads=1, native=True)
    try:
        (got,) = session.run(None, {"x0": np.ones(5, B), "x1": np.array(0)})
    except dml.AnyDMLError:
        return  # which no library has
    assert "program" not in session.explain()
    same(got, np.arange(1, 6).astype(B))
