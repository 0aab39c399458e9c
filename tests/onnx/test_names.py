"""Names are for people and files: a model may call its values and sizes anything, and nothing is mixed up."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import parser

import anydml
from anydml.ir.dims import Affine, Symbol, as_dim, may_be_zero, whole
from anydml.ir.graph import Value
from anydml.ir.names import Names

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
SUFFIXES = (
    "early 2 sizes matrix rows flat pair axes index condition scalar part0 both all inner output".split()
)
ODD = [f"{stem}~{suffix}" for stem in "qz" for suffix in SUFFIXES]
ODD += [f"{stem}_1" for stem in "qzs"] + ["0", "0.0", "region", "value", "d0", "{x.0}", "a b", "ä", "%q", '"']


def model(text, **names):
    """A model of this text, in which names that ONNX's text cannot have are put in the place of others."""
    proto = parser.parse_model(HEAD + text)
    rename(proto.graph, names)
    onnx.checker.check_model(proto)
    return proto


def rename(graph, names):
    for info in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        for ends in (node.input, node.output):
            for k, name in enumerate(ends):
                ends[k] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                rename(attribute.g, names)


def agree(proto, *feeds, **options):
    """The model, and what flatten makes of it, do as onnxruntime does."""
    truth = ort.InferenceSession(proto.SerializeToString())
    session = anydml.load(proto, threads=1)
    for feed in (*feeds, *feeds):
        for a, b in zip(session.run(None, feed), truth.run(None, feed), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    for convert in ("auto", "always"):
        flat, _ = anydml.flatten(proto, convert=convert, **options)
        onnx.checker.check_model(flat, full_check=True)
        names = [t.name for t in flat.graph.initializer] + [o for n in flat.graph.node for o in n.output if o]
        assert len(set(names)) == len(names)
        again = ort.InferenceSession(flat.SerializeToString())
        for feed in feeds:
            for a, b in zip(again.run(None, feed), truth.run(None, feed), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("size", [8, 100_000])
def test_a_result_with_the_name_of_one_of_ours(odd, size):
    proto = model(
        f"""m (float[{size},1] x, float[1] v) => (float[{size}] q, float[1] odd) <int64[1] ax = {{1}}> {{
            s = Squeeze (x, ax)  q = Sigmoid (s)  odd = Neg (v) }}""",
        odd=odd,
    )
    q, n = anydml.load(proto, threads=1).run(
        None, {"x": np.ones((size, 1), np.float32), "v": np.float32([7])}
    )
    assert np.allclose(q, 1 / (1 + np.exp(-1)))
    assert n == [-7]


@pytest.mark.parametrize("odd", ODD[::2])
def test_a_branch_beside_the_name_of_one_of_ours(odd):
    proto = model(
        """m (float x, float[3] v) => (float w) <int64 k = {0}, float zero = {0}> {
            g = Gather (v, k)  c = Greater (g, zero)
            z = If (c) <then_branch = a () => (float t) { t = Neg (x) },
                        else_branch = b () => (float e) { e = Abs (x) }>
            odd = ReduceMax <keepdims = 0> (v)
            w = Add (z, odd) }""",
        odd=odd,
    )
    agree(proto, *({"x": np.array(5, np.float32), "v": np.float32([n, 2, 3])} for n in (1, -1)))


@pytest.mark.parametrize("odd", ODD[1::2])
def test_a_branch_whose_result_has_the_name_of_one_of_ours(odd):
    proto = model(
        """m (bool[k] c, float[4] x) => (float[4] w) {
            z = If (c) <then_branch = a () => (float[4] t) { t = Neg (x) },
                        else_branch = b () => (float[4] e) { e = Abs (x) }>
            odd = Exp (x)
            w = Add (z, odd) }""",
        odd=odd,
    )
    agree(proto, *({"c": np.array([c]), "x": np.float32([-1, 0, 1, 2])} for c in (True, False)))


def test_branches_that_call_their_values_the_same():
    proto = model(
        """m (bool c, int64 k) => (int64 y) <int64 one = {1}, int64 two = {2}, int64 three = {3}> {
            y = If (c) <then_branch = t () => (int64 yt) {
                m = Add (k, one)
                e = Equal (m, two)
                yt = If (e) <then_branch = tt () => (int64 a) { p = Mul (m, k) a = Add (p, three) },
                             else_branch = te () => (int64 b) { b = Sub (m, three) }>
            }, else_branch = el () => (int64 ye) {
                m = Sub (k, three)
                ye = Mul (m, k) }> }"""
    )
    agree(proto, *({"c": np.array(c), "k": np.array(k)} for c in (True, False) for k in (0, 1, 2, 5)))


LOOP = """m (bool c, int64 n, float[2] x, float[2] w) => (float[2] y, float[2] odd) <bool t = {1}> {
    odd = Mul (x, w)
    y = Loop (n, t, x) <body = b (int64 i, bool go, float[2] st) => (bool more, float[2] out) {
        more = Identity (go)
        twice = Add (st, odd)
        out = If (c) <then_branch = g () => (float[2] q) { INNER = Neg (twice) q = Add (INNER, w) },
                      else_branch = h () => (float[2] r) { INNER = Abs (st) r = Mul (INNER, odd) }> }> }"""


@pytest.mark.parametrize("odd", ["odd", *ODD[:8], "st_1", "out_1", "x_1", "inner_1"])
def test_loops_whose_bodies_see_odd_names(odd):
    proto = model(LOOP.replace("INNER", "inner"), odd=odd)
    x, w = np.float32([1, -2]), np.float32([3, 0.5])
    feeds = [{"c": np.array(c), "n": np.array(n), "x": x, "w": w} for c in (True, False) for n in (0, 1, 3)]
    agree(proto, *feeds)
    agree(proto, *({**f, "c": np.array(True)} for f in feeds[:3]))


@pytest.mark.parametrize("name", ["m", "{x.0}", "{y.0}", "d0", "d1", "0.0", "2*n", "n+1", "?", " "])
@pytest.mark.parametrize("verify", [True, False])
def test_sizes_with_names_of_ours(name, verify):
    """That two sizes are equal is never concluded from what a file calls one of them."""
    proto = model(
        """m (float[k] x, float[m] y) => (float[j] z) {
            sx = Shape (x)  sy = Shape (y)  eq = Equal (sx, sy)  c = Squeeze (eq)
            z = If (c) <then_branch = a () => (float[k] t) { t = Neg (x) }, else_branch = b () => (float[k] e) { e = Abs (x) }> }""".replace(
            "float[] x", "float[k] x"
        )
    )
    for dim, value in zip(
        (i.type.tensor_type.shape.dim[0] for i in proto.graph.input), ("", name), strict=True
    ):
        dim.dim_param = value
    feeds = [{"x": np.ones(n, np.float32), "y": np.ones(m, np.float32)} for n, m in ((2, 2), (2, 3), (3, 3))]
    agree(proto, *feeds, verify=verify)


def test_names_are_given_once():
    values = [Value("x"), Value("x"), Value(""), Value("y"), Value("x_1")]
    names = Names({"y"})
    found = [names.of(v) for v in values]
    assert found == [names.of(v) for v in values]
    assert len(set(found)) == len(found)
    assert found[0] == "x"
    assert "y" not in found
    assert names.fresh("x") not in found


def test_sums_of_symbols():
    n, m = Affine.of(Symbol("n", least=1)), Affine.of(Symbol("n"))
    assert n != m, "symbols are not known by name"
    assert n + m - n == m
    assert (n + whole(2) - n).number == 2
    assert (n * whole(2) + whole(1)).least == 3
    assert not may_be_zero(n)
    assert may_be_zero(m)
    assert may_be_zero(as_dim(n - m))
    assert as_dim(whole(-1)) is None
    assert str(n.scaled(2) + whole(1)) == "2*n+1"
    assert n.name == "n"
    assert not (n + m).name


def test_nodes_in_any_order():
    """ONNX asks for one that runs, and onnxruntime does not."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[3] x, bool c) => (float[3] y) {
      y = If (c) <then_branch = t () => (float[3] p) { p = Neg (q) q = Mul (b, b) },
                  else_branch = e () => (float[3] r) { r = Add (b, x) }>
      b = Exp (a)
      a = Abs (x)
    }"""
    model = onnx.parser.parse_model(text)
    x = np.float32([1, -2, 0.5])
    b = np.exp(np.abs(x))
    for given in (model, model.SerializeToString()):
        session = anydml.load(given)
        for c, expected in ((True, -b * b), (False, b + x)):
            (found,) = session.run(None, {"x": x, "c": np.array(c)})
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    flat, report = anydml.flatten(model)
    assert report.left == 0
    onnx.checker.check_model(flat)


def test_nodes_in_a_circle():
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[3] x) => (float[3] y) {
      y = Add (x, b)  b = Abs (a)  a = Neg (b)
    }"""
    with pytest.raises(anydml.InvalidModel, match="expected inputs that are defined before, but got 'b'"):
        anydml.load(onnx.parser.parse_model(text))
