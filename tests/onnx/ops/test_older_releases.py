"""What older releases of onnxruntime do wrong, up to the last onnxruntime-directml among them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import anydml as dml
from anydml.onnx.ops import releases
from anydml.session import _recent


@pytest.fixture
def release(monkeypatch):
    """`release(1, 24)`: onnxruntime is taken for that from here on."""

    def take(*numbers):
        monkeypatch.setattr(releases, "_release", lambda: numbers)
        _recent.clear()  # plans are another release's

    return take


def test_the_package_tells_its_release(monkeypatch, tmp_path):
    """Not the records of installed distributions: onnxruntime and onnxruntime-directml bring the same one."""
    file = tmp_path / "__init__.py"

    class Spec:
        origin = str(file)

    monkeypatch.setattr(releases, "find_spec", lambda name: Spec)
    for text, found in (
        ('"""Docs."""\n__version__ = "1.24.4"\n', (1, 24)),
        ('__version__ = "1.31.0.dev20260101"\nelse:\n    __version__ = version\n', (1, 31)),
        ("", (0, 0)),
    ):
        file.write_text(text)
        releases._release.cache_clear()
        assert releases._release() == found
        assert releases.onnxruntime_since(1, 25) is (found >= (1, 25))
    for unread in (lambda: file.write_bytes(b"\xff\xfe"), file.unlink):  # bytecode, and a packed program
        unread()
        releases._release.cache_clear()
        assert releases._release() == (0, 0)
    monkeypatch.setattr(releases, "find_spec", lambda name: None)
    releases._release.cache_clear()
    assert releases._release() == (0, 0)
    monkeypatch.undo()
    releases._release.cache_clear()
    import onnxruntime

    assert list(releases._release()) == [int(n) for n in onnxruntime.__version__.split(".")[:2]]


def test_the_best_of_nothing(release):
    """They divide by its size, and end the process."""
    release(1, 30)
    graph = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> m (float[2, 3] x, bool[2] c) => (float[n, k] y, int64[n, k] i) {
            k = Constant <value_ints = [2]> ()  a = Compress <axis = 0> (x, c)  y, i = TopK (a, k)
        }"""
    )
    session = dml.load(graph.SerializeToString(), native=False)
    x = np.float32([[1, 3, 2], [6, 5, 4]])
    for chosen, wanted in (([1, 1], [[3, 2], [6, 5]]), ([0, 0], np.zeros((0, 2))), ([0, 1], [[6, 5]])):
        y, places = session.run(None, {"x": x, "c": np.array(chosen, bool)})
        np.testing.assert_array_equal(y, wanted)
        assert places.shape == y.shape
    assert "without elements NumPy: TopK" in session.explain()


def test_what_is_wrapped_around_twice(release):
    """They read beyond its memory."""
    release(1, 30)
    graph = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 21]> m (float[n] x, int64[2] ends) => (float[k] y) {
            a = Relu (x)  y = Pad <mode = "wrap"> (a, ends)
        }"""
    )
    session = dml.load(graph.SerializeToString(), native=False)
    (y,) = session.run(None, {"x": np.float32([1, 2, 3]), "ends": np.array([4, 5])})
    np.testing.assert_array_equal(y, np.pad([1, 2, 3], (4, 5), "wrap"))
    assert "reads beyond the memory" in session.explain()


def one(op, inputs, outputs=1, opset=21, **attributes):
    """A model of one node, of which every input is fed."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    given = [(n, x) for n, x in zip(names, inputs, strict=True) if x is not None]
    fed = [helper.make_tensor_value_info(n, _code(x), [None] * x.ndim) for n, x in given]
    made = [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outputs)]
    node = helper.make_node(op, names, [o.name for o in made], **attributes)
    graph = helper.make_graph([node], "one", fed, made)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), dict(given)


def _code(x):
    return TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)


def attends(*others, outputs=1, **attributes):
    q, k, v = (np.random.default_rng(s).normal(size=(1, 2, 3, 4)).astype(np.float32) for s in range(3))
    return one("Attention", [q, k, v, *others], outputs, 24, **attributes)


def heads(x):
    return np.array(x).reshape(1, 1, 3, 3)


HIDDEN = heads([[True, True, False], [False] * 3, [True, False, True]])
FOUND = {
    "sequences of no length": (
        one("ReverseSequence", [np.float32([[1, 2], [3, 4]]), np.array([0, 2])], batch_axis=0, time_axis=1),
        (1, 28),
    ),
    "texts": (one("StringNormalizer", [np.array(["Ab", "c"], object)], case_change_action="LOWER"), (1, 27)),
    "a mean beyond the padding": (
        one("AveragePool", [np.ones((1, 1, 6), np.float32)], kernel_shape=[3], strides=[2], ceil_mode=1, count_include_pad=1),
        (1, 23),
    ),
    "a mean beyond the padding, as it was called before": (
        one("AveragePool", [np.ones((1, 1, 6), np.float32)], opset=17, kernel_shape=[3], strides=[2], ceil_mode=1, count_include_pad=1),
        (1, 29),
    ),
    "capped scores": (attends(heads(np.float32(np.eye(3))), softcap=2.0), (1, 27)),
    "hidden keys": (attends(HIDDEN), (1, 28)),
    "weights": (attends(None, None, None, outputs=4, qk_matmul_output_mode=3), (1, 28)),
    "padded keys": (attends(None, None, None, np.array([2]), is_causal=1), (1, 28)),
    "a zero point": (one("DequantizeLinear", [np.int32([1, 2]), np.float32(0.5), np.int32(3)]), (1, 24)),
    "no indices": (one("OneHot", [np.zeros((0, 3), np.int64), np.array(4), np.float32([0, 1])]), (1, 27)),
    "nothing to gather": (one("GatherND", [np.zeros((2, 0), np.float32), np.array([[1], [0]])]), (1, 26)),
    "one scale for all": (
        one("LayerNormalization", [np.float32([[1, 2, 4]]), np.float32([2]), np.float32([1])]),
        (1, 24),
    ),
    "the length of nothing": (one("LpNormalization", [np.zeros((3, 0), np.float32)], opset=17), (1, 30)),
    "the length of nothing, by columns": (one("LpNormalization", [np.zeros((0, 3), np.float32)], axis=0, opset=17), (1, 30)),
    "no matrices": (one("MatMul", [np.ones((4, 5), np.float32), np.zeros((0, 5, 2), np.float32)]), (1, 32)),
    "places of the largest": (
        one("MaxUnpool", [np.ones((1, 1, 1, 2), np.float32), np.array([[[[1, 6]]]])], kernel_shape=[2, 2], strides=[2, 2]),
        (1, 25),
    ),
    "the largest of nothing": (one("ReduceMax", [np.zeros((0, 3), np.int64)], opset=17, axes=[0]), (1, 27)),
    "nothing, not reduced": (one("ReduceSum", [np.zeros((2, 0), np.float32)], noop_with_empty_axes=1), (1, 30)),
    "something, not reduced": (one("ReduceMean", [np.ones((2, 3), np.float32), np.zeros(0, np.int64)], noop_with_empty_axes=1), (1, 24)),
    "the lowest diagonal": (one("Trilu", [np.ones((2, 3), np.float32), np.array(-(2**63))], upper=1), (1, 30)),
    "zero among divisors": (one("Div", [np.uint8([7, 8]), np.uint8([2, 3])]), (1, 25)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_something_else_runs_it(name, release):
    """And comes to what a newer onnxruntime does."""
    (model, feeds), (major, minor) = FOUND[name]
    if not releases.onnxruntime_since(major, minor):
        pytest.skip("the installed onnxruntime does it wrong itself")
    release(major, minor)
    newer = dml.load(model.SerializeToString(), native=False)
    wanted = newer.run(None, feeds)
    release(major, minor - 1)
    older = dml.load(model, native=False)  # another source: plans are not those of before
    for x, y in zip(older.run(None, feeds), wanted, strict=True):
        if x.dtype == object:
            assert x.tolist() == y.tolist()
        else:
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    assert "before" not in newer.explain()
    assert f"before {major}.{minor}" in older.explain()


def test_divisors_that_are_known(release):
    """Without zeros among them, onnxruntime divides."""
    release(1, 24)
    text = """<ir_version: 8, opset_import: ["": 17]> m (uint8[n] x) => (uint8[n] y) {
        d = Constant <value = uint8[2] {A, 3}> ()  e = Identity (x)  y = Div (e, d)
    }"""
    x = {"x": np.uint8([7, 9])}
    session = dml.load(parser.parse_model(text.replace("A", "2")).SerializeToString(), native=False)
    assert session.run(None, x)[0].tolist() == [3, 3]
    assert "NumPy" not in session.explain()
    session = dml.load(parser.parse_model(text.replace("A", "0")).SerializeToString(), native=False)
    with pytest.raises(dml.ExecutionFailed, match="zero"):
        session.run(None, x)


def test_nothing_to_convolve(release):
    """Nobody computes it there: a session says so, and goes on."""
    model, feeds = one("ConvTranspose", [np.zeros((2, 1, 0), np.float32), np.ones((1, 1, 3), np.float32)])
    release(1, 30)
    session = dml.load(model, native=False)
    with pytest.raises(dml.ExecutionFailed, match="ConvTranspose"):
        session.run(None, feeds)
    feeds["i0"] = np.ones((2, 1, 2), np.float32)
    assert session.run(None, feeds)[0].tolist() == [[[1, 2, 2, 1]]] * 2


@pytest.mark.parametrize("scales", [[0.6, 0.5], None])
def test_axes_from_the_end(scales, release):
    """They are counted from the front, where the rank is known; else onnxruntime does not get them."""
    x, sizes = np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6), np.array([3, 9])
    given = [x, None, np.float32(scales)] if scales else [x, None, None, sizes]
    release(1, 26)
    found = []
    for axes in ([-1, -2], [3, 2]):
        session = dml.load(one("Resize", given, axes=axes)[0], native=False)
        found += session.run(None, one("Resize", given)[1])
        assert "onnxruntime: Resize" in session.explain()
    np.testing.assert_array_equal(*found)
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "s"], ["y"], axes=[-1])],
        "any",
        [helper.make_tensor_value_info("x", 1, None), helper.make_tensor_value_info("s", 1, [1])],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = dml.load(model, native=False)
    for rank in (1, 3):  # of the file it is not known, but of what is fed
        (y,) = session.run(None, {"x": np.ones([4] * rank, np.float32), "s": np.float32([2])})
        assert y.shape == (*[4] * (rank - 1), 8)


@pytest.mark.parametrize(
    "text",
    [
        "y = SequenceErase (s, first)",
        "y = SequenceInsert (s, x)",
        "l = SequenceConstruct (x)  n = Neg (x)  y = SequenceInsert (l, n)",
        "y = Loop (m, t, s) <body = b (int64 i, bool q, seq(float[]) u) => (bool r, seq(float[]) v) {"
        " r = Identity (q)  v = SequenceInsert (u, x) }>",
    ],
)
def test_lists_of_what_others_have(text, release):
    """What a run gives is memory of nobody else's, and no later run's."""
    release(1, 25)
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 21]> m (seq(float[]) s, float[n] x) => (seq(float[]) y)
        <int64 first = {{0}}, int64 m = {{2}}, bool t = {{1}}> {{ {text} }}"""
    )
    session = dml.load(model, native=False)
    s, x = [np.float32([1, 2]), np.float32([3])], np.float32([4, 5])
    (first,) = session.run(None, {"s": s, "x": x})
    before = [a.copy() for a in first]
    session.run(None, {"s": [np.float32([7, 7]), np.float32([7])], "x": np.float32([8, 8])})
    for a in (*s, x):
        a[...] = 9
    for a, b in zip(first, before, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not any(np.shares_memory(a, given) for given in (*s, x))


def test_graphs_in_graphs(release):
    """Each one more doubles the time in which they are opened: with 30 of them, days."""
    text = "y = Neg (x)"
    for k in range(10):
        text = f"""n{k} = Constant <value_float = {k}.0> ()  c{k} = Greater (sum, n{k})  y = If (c{k}) <
            then_branch = t{k} () => (float[N] y{k}) {{ {text.replace("y =", f"y{k} =")} }},
            else_branch = e{k} () => (float[N] z{k}) {{ z{k} = Softmax (x) }}>"""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> m (float[N] x) => (float[N] y) {{
            sum = ReduceSum <keepdims = 0> (x)  {text}
        }}"""
    ).SerializeToString()
    deep, shallow = np.float32([10, 10]), np.float32([3, 1.5])
    for numbers, told in (((1, 28), True), ((1, 29), False)):
        release(*numbers)
        session = dml.load(model, native=False)
        np.testing.assert_array_equal(session.run(None, {"x": deep})[0], -deep)
        np.testing.assert_allclose(session.run(None, {"x": shallow})[0], [0.8175745, 0.1824255], 1e-6)
        assert ("takes twice as long to open it for each graph in another" in session.explain()) is told
        _, report = dml.flatten(model, convert="never")
        assert report.verified.provider == ("anydml" if told else "onnxruntime")
