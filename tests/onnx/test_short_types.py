"""Models that round on the way: quantized ones, and those of 16 bits, as converters make them."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml
from anydml.onnx import closeness, model_pair
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import RegionFailed
from anydml.onnx.serde.deserialize import read

HEAD = '<ir_version: 8, opset_import: ["": 17]> main '
RNG = np.random.default_rng(0)


def model(text, **weights):
    made = onnx.parser.parse_model(HEAD + text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return made


def theirs(data, feeds):
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)


CONVOLUTION = """(float[b,3,h,w] x, bool wide) => (float[b,4,h,w] y) <float step = {0.05}, uint8 zero = {100}>
{
    q = QuantizeLinear (x, step, zero)
    d = DequantizeLinear (q, step, zero)
    weight = DequantizeLinear <axis = 0> (whole, each, none)
    bias = DequantizeLinear <axis = 0> (shift, small, whole_none)
    c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (d, weight, bias)
    r = Relu (c)
    k = QuantizeLinear (r, step, zero)
    m = DequantizeLinear (k, step, zero)
    shape = Shape (m)  four = Gather (shape, one)  is = Equal (four, other)
    y = If (is) <then_branch = a () => (float[b,4,h,w] t) { t = Relu (m) },
                 else_branch = e () => (float[b,4,h,w] u) { u = Neg (m) }>
}"""
WEIGHTS = {
    "whole": RNG.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
    "each": np.full(4, 0.01, np.float32),
    "none": np.zeros(4, np.int8),
    "shift": RNG.integers(-500, 500, 4).astype(np.int32),
    "small": np.full(4, 0.0005, np.float32),
    "whole_none": np.zeros(4, np.int32),
    "one": np.array(1),
    "other": np.array(4),
}


def quantized():
    return model(CONVOLUTION, **WEIGHTS)


def test_what_makes_an_operator_a_quantized_one_stays_in_the_file():
    """Libraries know it by the DequantizeLinear before each of its inputs, the bias included."""
    flat, _ = anydml.flatten(quantized())
    made = {o: n for n in flat.graph.node for o in n.output}
    (convolution,) = (n for n in flat.graph.node if n.op_type == "Conv")
    assert [made[i].op_type for i in convolution.input] == ["DequantizeLinear"] * 3
    assert all(n.op_type != "If" for n in flat.graph.node)


def test_sessions_let_the_library_find_quantized_operators(monkeypatch):
    regions = []
    inner = OnnxRuntime.compile

    def compile(self, region, *arguments, **more):
        regions.append(onnx.ModelProto.FromString(region.model))
        return inner(self, region, *arguments, **more)

    monkeypatch.setattr(OnnxRuntime, "compile", compile)
    data = quantized().SerializeToString()
    x = RNG.standard_normal((2, 3, 5, 6)).astype(np.float32)
    feeds = {"x": x, "wide": np.array(True)}
    found = anydml.load(data, native=False).run(None, feeds)
    np.testing.assert_array_equal(found[0], theirs(data, feeds)[0])
    (region,) = (r for r in regions if any(n.op_type == "Conv" for n in r.graph.node))
    made = {o: n.op_type for n in region.graph.node for o in n.output}
    (convolution,) = (n for n in region.graph.node if n.op_type == "Conv")
    assert [made.get(i) for i in convolution.input] == ["DequantizeLinear"] * 3


HALVES = (
    "(float16[a,b,8] x) => (float16[b,a,5] y) { t = Transpose <perm = [1, 0, 2]> (x)  y = MatMul (t, w) }"
)


def test_products_of_turned_halves():
    """onnxruntime ends the process while it makes a session of it."""
    w = RNG.standard_normal((8, 5)).astype(np.float16)
    x = RNG.standard_normal((2, 3, 8)).astype(np.float16)
    data = model(HALVES, w=w)
    wanted = np.matmul(x.transpose(1, 0, 2).astype(np.float32), w.astype(np.float32))
    for native in (None, False):
        (y,) = anydml.load(data, native=native).run(None, {"x": x})
        assert y.dtype == np.float16
        np.testing.assert_allclose(y, wanted, atol=0.01)
    flat, _ = anydml.flatten(data)
    assert len(flat.graph.node) == 2


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("(float[n] x) => (float[n] y) { y = Softmax (x) }", False),
        ("(float16[n] x) => (float16[n] y) { y = Softmax (x) }", True),
        ("(float[n] x) => (float[n] y) { h = Cast <to = 10> (x)  s = Exp (h)  y = Cast <to = 1> (s) }", True),
        ("(float[n] x) => (float[n] y) { a, s, z = DynamicQuantizeLinear (x)  y = DequantizeLinear (a, s, z) }", True),
    ],
)  # fmt: skip
def test_what_rounds_on_the_way_is_verified_node_by_node(monkeypatch, text, literal):
    """Where kernels are fused they round less often, in one of the two files and not in the other."""
    asked = []
    inner = model_pair.OnnxRuntime

    def provider(*arguments, **more):
        asked.append(more.get("literal"))
        return inner(*arguments, **more)

    monkeypatch.setattr(model_pair, "OnnxRuntime", provider)
    anydml.flatten(model(text))
    assert [a for a in asked if a is not None] == [literal]


def test_what_rounds_on_the_way_may_differ_by_a_rounding():
    x = np.linspace(-3, 3, 100).astype(np.float32)
    near = x + np.float32(0.005)
    rounded, exact = closeness.Tolerance(of_largest=1e-2), closeness.Tolerance()
    assert closeness.same(x, near, rounded)
    assert not closeness.same(x, near, exact)
    assert not closeness.same(x, x + np.float32(0.5), rounded)
    assert closeness.same([x, x], [near, x], rounded)


def test_what_is_drawn_anew_is_compared_by_its_kind(monkeypatch):
    """Where onnxruntime does not run a model, nothing has a seed for both files."""
    monkeypatch.setattr(model_pair, "_worst", lambda *given: "any")  # our own plans run both
    for seed in range(3):
        _, report = anydml.flatten(
            model("(float[n] x) => (float[n] y) { y = RandomNormalLike (x) }"), seed=seed
        )
        assert report.verified.provider == "anydml"
        assert report.verified.agreed > 2
    x = np.zeros(3, np.float32)
    assert closeness.same_kind(x, x + 1)
    assert not closeness.same_kind(x, x[:2])
    assert not closeness.same_kind(x, x.astype(np.float64))
    assert not closeness.same_kind(x, [x])


@pytest.mark.parametrize(
    ("text", "by_chance"),
    [
        ("r = RandomNormalLike (e)", {"y"}),
        ("r = RandomNormalLike <seed = 3.0> (e)", set()),
        ("ratio = Constant <value = float {0.5}> ()  r = Dropout (e, ratio, c)", {"y"}),
        (
            """r = If (c) <then_branch = a () => (float[n] u) { u = RandomUniformLike (e) },
                          else_branch = b () => (float[n] v) { v = Identity (e) }>""",
            {"y"},
        ),
    ],
)
def test_what_onnxruntime_draws_is_compared_by_its_kind(text, by_chance):
    """It draws others where a node has another number, as behind what was folded; the rest is compared."""
    proto = model(f"""(float[n] x) => (float[n] y, float[n] z) {{
        c = Constant <value = bool {{1}}> ()  one = Constant <value = float {{1}}> ()
        two = Add (one, one)  e = Mul (x, two)  {text}  y = Add (r, e)  z = Sub (e, one) }}""")
    for convert in ("auto", "always"):
        _, report = anydml.flatten(proto, convert=convert)
        assert report.verified.provider == "onnxruntime"
        assert report.verified.agreed > 2
    graph = read(proto).graph
    assert {v.name for v in model_pair._decided_by_chance(graph, seeds=True)} & {"y", "z"} == by_chance
    assert "y" in {v.name for v in model_pair._decided_by_chance(graph, seeds=False)}


@pytest.mark.parametrize(
    ("fused", "exact", "fine"), [(1e-4, 0, True), (0.5, 0, False), (1e-4, 1e-4, False), (None, 0, True)]
)
def test_what_onnxruntime_fuses_in_one_file_only_is_compared_node_by_node(fused, exact, fine, monkeypatch):
    """A fused operator rounds elsewhere, and takes fewer sizes; a model that differs does so there, too."""
    inner, count = OnnxRuntime.compile, []

    def compile(self, region, threads, alone=True):
        call = inner(self, region, threads, alone)
        count.append(self)
        off = 0 if len(count) % 2 else exact if self._literal else fused  # the second file is the new one

        def other(values):
            if off is None:
                raise RegionFailed(0, "sizes that a fused one does not take")
            return [y + np.float32(off) for y in call(values)]

        return other

    monkeypatch.setattr(OnnxRuntime, "compile", compile)
    proto = model("(float[n] x) => (float[n] y) { e = Tanh (x)  i = Identity (e)  y = Neg (i) }")
    if fine:
        assert anydml.flatten(proto)[1].verified.agreed > 2
    else:
        with pytest.raises(anydml.VerificationFailed):
            anydml.flatten(proto)
