"""Integers divided by what the data decides: in programs, in onnxruntime's regions and by rules, all the same."""

import numpy as np
import pytest
from onnx import parser

import anydml

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
WAYS = {None: "by default", True: "programs", False: "no programs"}


def model(dtype, node):
    text = f"""<ir_version: 8, opset_import: ["": 17]> g ({dtype}[n] x, {dtype}[m] d, bool c) => ({dtype}[o] y) {{
        y = If(c) <then_branch = t () => ({dtype}[o] p) {{ p = {node}(x, d) }},
                   else_branch = e () => ({dtype}[o] q) {{ q = Add(x, d) }}> }}"""
    return parser.parse_model(text).SerializeToString()


def exact(node, x, d):
    quotient = abs(x) // abs(d) * (1 if (x < 0) == (d < 0) else -1)
    return quotient if node == "Div" else x % d if node == "Mod" else x - d * quotient


def wrapped(value, info):
    return (value - int(info.min)) % (1 << info.bits) + int(info.min)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("node", ["Div", "Mod", "Mod <fmod = 1>"])
@pytest.mark.parametrize("native", WAYS, ids=WAYS.values())
def test_division_by_data(dtype, node, native):
    session, info = anydml.load(model(dtype, node), threads=1, native=native), np.iinfo(dtype)
    for size in (1, 3, 40):
        rng = np.random.default_rng(size)
        x, d = (rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True) for _ in range(2))
        x[0], d[d == 0] = info.min, 1
        d[0] = -1 if info.min else 3  # the smallest integer by -1 wraps around
        d[5:9] = [1, 2, 7, info.max][: len(d[5:9])]
        wanted = [wrapped(exact(node, int(a), int(b)), info) for a, b in zip(x, d, strict=True)]
        for _ in range(3):
            (y,) = session.run(None, {"x": x, "d": d, "c": np.array(True)})
            assert y.dtype == dtype
            assert [int(v) for v in y] == wanted
        d[size // 2] = 0
        for _ in range(2):
            with pytest.raises(anydml.ExecutionFailed, match=r"node 'p' .*zero"):
                session.run(None, {"x": x, "d": d, "c": np.array(True)})


def test_greatest_common_divisors_are_a_program():
    text = """<ir_version: 8, opset_import: ["": 17]> gcd (int64 a, int64 b) => (int64 g) {
        zero = Constant <value = int64 {0}> ()
        go = Greater (b, zero)
        m = Constant <value = int64 {64}> ()
        g, last = Loop (m, go, a, b) <body = f (int64 i, bool c, int64 x, int64 y) => (bool on, int64 y1, int64 r) {
            r = Mod (x, y)
            y1 = Identity (y)
            on = Greater (r, zero)
        }> }"""
    session = anydml.load(parser.parse_model(text).SerializeToString(), threads=1)
    for _ in range(3):
        for a, b in ((48, 18), (987, 610), (7, 0), (2**62, 2**40)):
            assert session.run(None, {"a": np.array(a), "b": np.array(b)})[0] == np.gcd(a, b)
    assert "program: Greater, Loop" in session.explain()
