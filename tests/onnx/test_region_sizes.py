"""What regions tell onnxruntime of sizes, and how they are computed by what it makes of that."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import anydml
from anydml.onnx.providers.bound_memory import TRIES, Fixed
from anydml.onnx.providers.onnxruntime import Asked, _Session
from anydml.onnx.providers.provider import Region
from anydml.onnx.providers.session_options import CPU
from anydml.onnx.serde import blocked_layout


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 23]> {text}')


def test_attention_is_told_its_sizes():
    """Its heads follow from them, and so what a product behind it multiplies."""
    model = parsed("""m (float[1, n, 8] x, float[8, 4] w) => (float[a, b, c] y) {
        o = Attention <q_num_heads: int = 2, kv_num_heads: int = 2> (x, x, x)
        y = MatMul (o, w)
    }""")
    session = anydml.load(model, native=False)
    x, w = np.ones((1, 5, 8), np.float32), np.ones((8, 4), np.float32)
    for _ in range(3):
        (y,) = session.run(None, {"x": x, "w": w})
    np.testing.assert_allclose(y, np.full((1, 5, 4), 8))
    assert "onnxruntime: Attention, MatMul" in session.explain()


def test_what_cannot_be_bound_is_not_bound_for_ever(monkeypatch):
    """An output of other sizes than were told fails when it is bound, and is right when it is not."""
    model = parsed("m (float[a] x) => (float[b] y) { y = Abs (x) }")
    session = _Session(Region(model.SerializeToString(), ("x",), ("y",)), Asked(1, True, CPU), None)
    ends = [(np.dtype(np.float32), (3,))], [(np.dtype(np.float32), (2,))]
    fixed = Fixed(session, *ends)
    tried = []
    bound = type(fixed._run)._bind
    monkeypatch.setattr(type(fixed._run), "_bind", lambda self: failing(bound(self), tried))
    for _ in range(3 * TRIES):
        (y,) = fixed([np.float32([-1, 2, -3])])
        np.testing.assert_array_equal(y, [1, 2, 3])
    assert len(tried) == TRIES


def failing(bound, tried):
    run, binding, kept = bound

    def counted(*arguments):
        tried.append(1)
        run(*arguments)

    return counted, binding, kept


def test_sizes_of_1_broadcast_in_equations():
    """ONNX's inference takes the first operand's, and so the wrong branch."""
    model = parsed("""m (float[n, 3, 4] a, float[m, 4, 5] b) => (float[p, q, r] z) {
        y = Einsum <equation = "bij,bjk->bik"> (a, b)
        batch = Shape <start = 0, end = 1> (y)
        one = Constant <value_ints = [1]> ()
        alone = Equal (batch, one)
        z = If (alone) <then_branch = t () => (float[p, q, r] u) { u = Neg (y) },
                        else_branch = e () => (float[p, q, r] v) { v = Identity (y) }>
    }""")
    draw = np.random.default_rng(0)
    a, b = (draw.standard_normal(n).astype(np.float32) for n in ((1, 3, 4), (2, 4, 5)))
    (z,) = anydml.load(model).run(None, {"a": a, "b": b})
    np.testing.assert_allclose(z, np.matmul(a, b), rtol=1e-5)
    flat, _ = anydml.flatten(model, shapes={"a": (1, 3, 4), "b": (2, 4, 5)})
    assert [n.op_type for n in flat.graph.node if n.op_type != "Identity"] == ["Einsum"]


CONVOLUTIONS = {
    "1x1 to a few": ([8, 8, 3], 1, True),
    "1x1 to blocks": ([16, 32, 16], 1, False),
    "3x3": ([8, 8, 8], 3, False),
    "3x3 to blocks": ([16, 16], 3, False),
    "3x3 to just more than a block": ([20, 20, 20], 3, True),
}
"""By what they are: channels, the window, and whether they take longer in blocks of 16, as measured."""


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("avx512", [False, True])
def test_convolutions_in_blocks_where_these_pay(name, avx512, monkeypatch):
    monkeypatch.setattr(blocked_layout, "_AVX512", avx512)
    asked = Asking(blocked_layout.blocks_in_vain)
    monkeypatch.setattr("anydml.onnx.serde.region_model.blocks_in_vain", asked)
    channels, window, in_vain = CONVOLUTIONS[name]
    draw, nodes, weights = np.random.default_rng(0), [], []
    for k, (read, made) in enumerate(pairwise(channels)):
        weight = draw.standard_normal((made, read, window, window)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{k}"))
        nodes.append(onnx.helper.make_node("Conv", [f"x{k}", f"w{k}"], [f"x{k + 1}"]))
    ends = [
        [onnx.helper.make_tensor_value_info(n, 1, ["n", c, "h", "w"])]
        for n, c in (("x0", channels[0]), (f"x{len(nodes)}", channels[-1]))
    ]
    graph = onnx.helper.make_graph(nodes, "g", *ends, weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = draw.standard_normal((1, channels[0], 9, 9)).astype(np.float32)
    (y,) = anydml.load(model, native=False).run(None, {"x0": x})
    wanted = ReferenceEvaluator(model).run(None, {"x0": x})[0]
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)
    assert asked.answers
    assert set(asked.answers) == {in_vain and avx512}


class Asking:
    """A function that keeps what it answered."""

    def __init__(self, function):
        self.function, self.answers = function, []

    def __call__(self, *arguments):
        self.answers.append(self.function(*arguments))
        return self.answers[-1]


@pytest.fixture
def regions(monkeypatch):
    """What onnxruntime is given, as models; not those of one node by which it is asked what it has."""
    seen = []

    class Seen(_Session):
        def __init__(self, region, *rest):
            model = onnx.load_from_string(region.model)
            if model.graph.name != "one":
                seen.append(model)
            super().__init__(region, *rest)

    monkeypatch.setattr("anydml.onnx.providers.onnxruntime._Session", Seen)
    return seen


@pytest.mark.parametrize("pool", ["AveragePool <kernel_shape = [2, 2]>", "GlobalMaxPool"])
def test_pools_are_told_their_channels(pool, regions):
    """Without, onnxruntime does not compute them in blocks."""
    model = parsed(f"m (float[n, 32, h, w] x) => (float[a, b, c, d] y) {{ y = {pool} (x) }}")
    session = anydml.load(model, native=False)
    x = np.random.default_rng(0).standard_normal((2, 32, 7, 9)).astype(np.float32)
    (y,) = session.run(None, {"x": x})
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
    told = [region.graph.input[0].type.tensor_type.shape.dim for region in regions]
    assert told
    assert all(dim[1].dim_value == 32 and dim[0].dim_param for dim in told)


def test_sizes_that_the_model_declares_are_told(regions):
    """Some of onnxruntime's optimisations need them; those that are fed are left open."""
    model = parsed("m (float[n, 3, m] x, float[m, k] y) => (float[a, b, c] z) { z = MatMul (x, y) }")
    feed = {"x": np.ones((2, 3, 4), np.float32), "y": np.ones((4, 5), np.float32)}
    anydml.load(model, native=False).run(None, feed)
    (dim,) = [region.graph.input[0].type.tensor_type.shape.dim for region in regions]
    assert [bool(d.dim_param) for d in dim] == [True, False, True]
    assert dim[1].dim_value == 3


def test_masks_stay_as_libraries_know_them(regions):
    """Attention is found by the Unsqueezes of its mask; others are Reshapes, of which chains are one."""
    model = parsed("""m (int64[n, m] mask, float[n, m] x) => (float[a, b, c, d] y, float[e, f, g, h] z) {
        one = Constant <value_ints = [1]> ()
        two = Constant <value_ints = [2]> ()
        a = Unsqueeze (mask, one)
        b = Unsqueeze (a, two)
        y = Cast <to = 1> (b)
        c = Unsqueeze (x, one)
        d = Unsqueeze (c, two)
        z = Hardmax (d)
    }""")
    mask, x = np.ones((2, 3), np.int64), np.ones((2, 3), np.float32)
    y, z = anydml.load(model, native=False).run(None, {"mask": mask, "x": x})
    assert y.shape == z.shape == (2, 1, 1, 3)
    (nodes,) = [[n.op_type for n in region.graph.node] for region in regions]
    assert sorted(nodes) == ["Cast", "Hardmax", "Reshape", "Unsqueeze", "Unsqueeze"]


def test_parts_are_not_as_large_as_the_whole():
    """Inference of Slice of opset 10 keeps names of sizes, so that memory of one part was used for another."""
    weights = {"zero": [0], "six": [6], "eight": [8], "one": [1], "axis": [1]}
    nodes = [
        onnx.helper.make_node("Slice", ["x", "zero", "six", "axis", "one"], ["p"]),
        onnx.helper.make_node("Sigmoid", ["p"], ["q"]),
        onnx.helper.make_node("ReduceMax", ["q"], ["r"], keepdims=0),
        onnx.helper.make_node("Mul", ["x", "r"], ["x2"]),
        onnx.helper.make_node("Slice", ["x2", "six", "eight", "axis", "one"], ["p2"]),
        onnx.helper.make_node("Tanh", ["p2"], ["y"]),
    ]
    ends = [
        [onnx.helper.make_tensor_value_info(n, 1, sizes)] for n, sizes in (("x", ["n", 11, 14]), ("y", None))
    ]
    given = [onnx.numpy_helper.from_array(np.int64(v), n) for n, v in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", *ends, given)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 10)], ir_version=8)
    x = np.random.default_rng(0).standard_normal((2, 11, 14)).astype(np.float32)
    session, wanted = anydml.load(model, native=False), ReferenceEvaluator(model).run(None, {"x": x})[0]
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5)


def test_attention_of_open_sizes_is_told_the_others():
    model = parsed("""m (float[n, m, 8] x, float[8, 4] w) => (float[a, b, c] y) {
        o = Attention <q_num_heads: int = 2, kv_num_heads: int = 2> (x, x, x)
        y = MatMul (o, w)
    }""")
    session, w = anydml.load(model, native=False), np.ones((8, 4), np.float32)
    for n in range(1, 6):
        (y,) = session.run(None, {"x": np.ones((n, n + 2, 8), np.float32), "w": w})
        np.testing.assert_allclose(y, np.full((n, n + 2, 4), 8))
    assert session.explain().count("onnxruntime: Attention, MatMul") == session.explain().count("plan for")


def test_old_reshapes_have_their_sizes_as_attributes():
    text = (
        '<ir_version: 3, opset_import: ["": 1]> m (float[2,6] x) => (float[2,3,2] y) { y = Reshape <%s> (x) }'
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    model = onnx.parser.parse_model(text % "shape = [2, 3, 2]")
    for native in (False, None):
        (y,) = anydml.load(model, native=native).run(None, {"x": x})
        np.testing.assert_array_equal(y, x.reshape(2, 3, 2))


def test_reshapes_that_keep_the_first_sizes_say_so(regions):
    """So regions serve other sizes, too, and onnxruntime knows attention by them."""
    model = parsed("""m (float[n, m, 8] x) => (float[a, b, c, d] y) {
        sizes = Shape <start = 0, end = 2> (x)
        rest = Constant <value_ints = [2, 4]> ()
        all = Concat <axis = 0> (sizes, rest)
        h = Reshape (x, all)
        y = Transpose <perm = [0, 2, 1, 3]> (h)
    }""")
    session = anydml.load(model, native=False)
    for n, m in ((3, 5), (2, 7), (4, 4), (0, 3), (1, 1)):
        x = np.random.default_rng(n).standard_normal((n, m, 8)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, x.reshape(n, m, 2, 4).transpose(0, 2, 1, 3))
    told = [onnx.numpy_helper.to_array(i).tolist() for region in regions for i in region.graph.initializer]
    assert [0, 0, 2, 4] in told
    assert [3, 5, 2, 4] not in told
