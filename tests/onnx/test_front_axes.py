"""Reductions over axes that are counted from the end, of what may have no elements, in onnxruntime's regions."""

import numpy as np
import pytest
from onnx import parser

import anydml

RULES = {
    "ReduceSum": np.sum,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceL2": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis, keepdims=keepdims)),
    "ArgMax": lambda x, axis, keepdims: np.expand_dims(x.argmax(axis), axis) if keepdims else x.argmax(axis),
}


def model(name, opset, keepdims, dtype="float"):
    """The reduction of a Loop's state, of which each iteration takes a row away."""
    given = "int64" if name == "ArgMax" else dtype
    if name == "ArgMax":
        reduced = f"row = ArgMax <axis = -1, keepdims = {keepdims}> (v)"
    elif opset >= 18 or (name == "ReduceSum" and opset >= 13):
        reduced = f"a = Constant <value = int64[1] {{-1}}> ()  row = {name} <keepdims = {keepdims}> (v, a)"
    else:
        reduced = f"row = {name} <axes = [-1], keepdims = {keepdims}> (v)"
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
        g (int64 m, {dtype}[r, s] x) => ({dtype}[p, q] y, {given}[t, w] last) {{
            zero = Constant <value = int64[1] {{0}}> ()
            y, last = Loop (m, , x, start) <body = f (int64 i, bool c, {dtype}[h, s] u, {given}[k, l] d)
                => (bool on, {dtype}[h2, s] v, {given}[k2, l2] row2) {{
                one = Constant <value = int64[1] {{1}}> ()  many = Constant <value = int64[1] {{1000}}> ()
                axis = Constant <value = int64[1] {{0}}> ()
                v = Slice (u, one, many, axis)
                {reduced}
                as = Constant <value = int64[2] {{-1, 1}}> ()
                row2 = Reshape <allowzero = 1> (row, as)
                on = Identity (c)
            }}> }}"""
    made = parser.parse_model(text.replace("<allowzero = 1>", "" if opset < 14 else "<allowzero = 0>"))
    kind = {"int64": 7, "float": 1}[given]
    start = made.graph.initializer.add(name="start", data_type=kind)
    start.dims.extend([1, 1])
    start.raw_data = bytes(8 if kind == 7 else 4)
    return made.SerializeToString()


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("name", RULES)
def test_in_a_loop(name, opset, keepdims):
    session = anydml.load(model(name, opset, keepdims), threads=1, native=False)
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    for m in (1, 3):
        y, last = session.run(None, {"m": np.array(m), "x": x})
        assert y.tolist() == x[m:].tolist()
        wanted = np.asarray(RULES[name](x[m:], axis=-1, keepdims=bool(keepdims))).reshape(-1, 1)
        assert np.allclose(last, wanted, rtol=1e-6)
    assert "an iteration at a time" not in session.explain()


@pytest.mark.parametrize("dtype", ["float", "int64"])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_of_nothing(name, opset, dtype):
    reduced = f"y = {name} <axes = [-1], keepdims = 0> (x)"
    if opset >= 18 or (name == "ReduceSum" and opset >= 13):
        reduced = f"a = Constant <value = int64[1] {{-1}}> ()  y = {name} <keepdims = 0> (x, a)"
    text = f"""<ir_version: 8, opset_import: ["": {opset}]> g ({dtype}[r, s] x) => ({dtype}[t] y) {{ {reduced} }}"""
    session = anydml.load(parser.parse_model(text).SerializeToString(), threads=1, native=False)
    kind = np.float32 if dtype == "float" else np.int64
    for shape in ((3, 4), (0, 4), (2, 5), (0, 2)):
        x = np.arange(np.prod(shape)).reshape(shape).astype(kind)
        (y,) = session.run(None, {"x": x})
        assert y.dtype == kind
        assert y.tolist() == RULES[name](x, axis=-1).tolist()
