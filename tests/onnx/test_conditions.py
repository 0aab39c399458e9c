"""What an If decides by: followed through the Ifs, loops and operators that its condition comes from."""

import onnx
import pytest

from anydml.onnx.conditions import conditions
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.providers.onnxruntime import OnnxRuntime

HEAD = '<ir_version: 8, opset_import: ["": 17]> m (bool c, int64 k, float[n] x) => (float[n] y) '
THROUGH_AN_IF = (
    HEAD
    + """{
    seven = Constant <value_int = 7> ()  one = Constant <value_float = 1.0> ()
    d = Equal (k, seven)
    p = If (d) <then_branch = t () => (float[n] a) { a = Neg (x) }, else_branch = e () => (float[n] b) { b = Abs (x) }>
    peak = ReduceMax <keepdims = 0> (p)  loud = Greater (peak, one)
    y = If (loud) <then_branch = t2 () => (float[n] f) { f = Neg (p) }, else_branch = e2 () => (float[n] g) { g = Abs (p) }>
}"""
)
IN_A_LOOP = (
    HEAD
    + """{
    y = Loop (k, c, x) <body = body (int64 i, bool go, float[n] s) => (bool go1, float[n] s1) {
        go1 = Identity (go)
        s1 = If (go) <then_branch = t () => (float[n] p) { p = Neg (s) }, else_branch = e () => (float[n] q) { q = Abs (s) }>
    }>
}"""
)
OF_A_LOOP = (
    HEAD
    + """{
    z = Loop (k, c, x) <body = body (int64 i, bool go, float[n] s) => (bool go1, float[n] s1) {
        go1 = Identity (go)  s1 = Neg (s)
    }>
    size = Size (z)  seven = Constant <value_int = 7> ()  d = Equal (size, seven)
    y = If (d) <then_branch = t () => (float[n] p) { p = Neg (x) }, else_branch = e () => (float[n] q) { q = Abs (x) }>
}"""
)


def decided(text):
    _, _, _, _, graph = read_typed(onnx.parser.parse_model(text), OnnxRuntime())
    return [(c.fixes, [v.name for v in c.sized], c.data, c.carried) for c in conditions(graph).values()]


def test_through_another_if():
    """By what decides that one, and by what its branches compute from."""
    first, second = decided(THROUGH_AN_IF)
    assert first == (("k=7",), [], (), False)
    assert second == (("k=7",), [], ("x",), False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(IN_A_LOOP, ((), [], (), True)), (OF_A_LOOP, (("c=true", "k=..."), ["x"], (), False))],
    ids=["in a loop", "of a loop"],
)
def test_loops(text, wanted):
    (found,) = decided(text)
    assert (tuple(sorted(found[0])), *found[1:]) == wanted
