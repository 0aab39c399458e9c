"""LSTM and GRU of doubles, for which onnxruntime has kernels that only fail."""

import numpy as np
import pytest
from onnx import parser

import anydml


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3)])
@pytest.mark.parametrize("native", [False, True])
def test_doubles(op, gates, native):
    rng = np.random.default_rng(0)
    shapes = {"x": (3, 2, 3), "w": (1, 4 * gates, 3), "r": (1, 4 * gates, 4)}
    feeds = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found = []
    for type in ("float", "double"):
        inputs = ", ".join(f"{type}[{', '.join(map(str, s))}] {name}" for name, s in shapes.items())
        text = f"""<ir_version: 8, opset_import: ["": 17]> m ({inputs}) => ({type}[3, 1, 2, 4] y) {{
            y = {op} <hidden_size = 4> (x, w, r) }}"""
        session = anydml.load(parser.parse_model(text), native=native)
        dtype = np.float32 if type == "float" else np.float64
        for _ in range(3):
            (y,) = session.run(None, {name: x.astype(dtype) for name, x in feeds.items()})
            assert y.dtype == dtype
        found.append(y)
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
