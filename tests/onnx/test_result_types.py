"""The types that operators' own rules tell are those that ONNX's inference tells, or say more."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import anydml as dml
from anydml.ir.graph import TensorType
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.partial_eval.shape_inference import ShapeInference
from tests.robustness.random_models import random_case

EXPORTERS = sorted((Path(__file__).parents[1] / "data" / "exporters").glob("*/model.onnx"))
SEEDS = 120


@pytest.fixture
def compared(monkeypatch):
    """How many nodes were compared, each with what ONNX's inference says."""
    count = [0]
    whole = ShapeInference.types

    def types(self, node, inputs):
        own = self._own_types(node, inputs)
        if any(v.type is None for body in node.bodies.values() for v in body.outputs):
            own = None  # is told again when the body has types
        if own is not None:
            told, why, _ = self._infer(node, inputs)
            assert not why
            for mine, its in zip(self._believed(node, inputs, own, ""), told, strict=True):
                assert says_no_less(mine, its), f"{node.op}: {mine}, but ONNX: {its}"
            count[0] += 1
        return whole(self, node, inputs)

    monkeypatch.setattr(ShapeInference, "types", types)
    return count


def says_no_less(mine, its):
    if its is None or (mine == its and not isinstance(its, TensorType)):
        return True
    if not isinstance(mine, TensorType) or not isinstance(its, TensorType) or mine.dtype != its.dtype:
        return False
    if its.sizes is None:
        return True
    if mine.sizes is None or len(mine.sizes) != len(its.sizes):
        return False
    return all(m is None or n == m for n, m in zip(mine.sizes, its.sizes, strict=True))


@pytest.mark.parametrize("path", EXPORTERS, ids=lambda p: p.parent.name)
def test_in_models_of_exporters(path, compared):
    session = dml.load(path, threads=1)
    for feed in sorted(path.parent.glob("feed_*.npz")):
        session.run(None, dict(np.load(feed)))
    assert compared[0]


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
@pytest.mark.drawn
def test_in_random_models(first, compared):
    for seed in range(first, first + 10):
        case = random_case(seed)
        try:
            session = dml.load(case.model, threads=1)
            for feed in case.feeds:
                session.run(None, feed)
        except dml.AnyDMLError:  # which runs on other inputs only
            continue
    assert compared[0] > 20


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [("<keepdims = 0>", "float32[]"), ("", "float32[...]"), ("<axes = [0], keepdims = 0>", "float32[...]")],
)
def test_all_axes_of_any_rank(attributes, wanted):
    """Ranks that differ between branches: over all axes it is one element."""
    text = f"""<ir_version: 8, opset_import: ["": 13]> m (bool c, float[4, 3] x) => (y) {{
        a = If (c) <then_branch = t () => (p) {{ p = Neg (x) }},
                    else_branch = e () => (q) {{ two = Constant <value_ints = [1]> () q = Unsqueeze (x, two) }}>
        y = ReduceMax {attributes} (a) }}"""
    assert dml.inspect(onnx.parser.parse_model(text)).outputs == {"y": wanted}


def test_a_rank_that_only_the_file_tells():
    """Of an output, which onnxruntime takes for the Scan behind it, and refuses without."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[1, 3] x) => (float y, float[k] sums)
        <int64[1] once = {1}, float half = {0.5}, float init = {1}> {
        last, rows = Loop (once, "", x) <body = b (int64 i, bool c, float[] s) => (bool c, float[] s, float[] t) {
            t = Neg (s) }>
        sums = ReduceMean <axes = [1, 2], keepdims = 0> (rows)
        y, products = Scan <num_scan_inputs = 1, body = p (float[] a, float[] b) => (float[] d, float[] e) {
            d = Mul (b, half) e = Neg (b) }> (init, sums) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    feed = {"x": np.array([[1, 2, 3]], np.float32)}
    for native in (False, None):
        for got in (dml.load(model, threads=1, native=native).run(None, feed) for _ in range(2)):
            np.testing.assert_array_equal(got[0], np.float32(-1))
            np.testing.assert_array_equal(got[1], np.float32([-2]))


AS_DYNAMO_WRITES = """<ir_version: 10, opset_import: ["": 20]> m (float[n, m, 6] x, float[1, 1, a, b] image)
    => (float[n, m, 2, 3] split, float[k, 6] flat, float[1, 1, 4, 6] resized, int64[1] batch, int64[0] nothing) {
    batch = Shape <start = 0, end = 1> (x)
    length = Shape <start = -2, end = 2> (x)
    nothing = Shape <start = 2, end = 1> (x)
    two = Constant <value_ints = [2]> ()
    three = Constant <value_ints = [3]> ()
    shape = Concat <axis = 0> (batch, length, two, three)
    split = Reshape <allowzero = 1> (x, shape)
    rest = Constant <value_ints = [-1, 6]> ()
    flat = Reshape <allowzero = 1> (x, rest)
    sizes = Constant <value_ints = [1, 1, 4, 6]> ()
    resized = Resize <keep_aspect_ratio_policy = "stretch", mode = "nearest"> (image, , , sizes)
}"""


def test_in_what_dynamo_writes(compared):
    """Attributes that say what is so anyway; symbols are followed through them, and the package is not asked."""
    session = dml.load(onnx.parser.parse_model(AS_DYNAMO_WRITES).SerializeToString(), threads=1)
    types = {i.name: i.type for i in session._program.graph.inputs}
    found = session._program.output_types(
        [np.zeros((2, 3, 6), np.float32), np.zeros((1, 1, 2, 3), np.float32)]
    )
    assert [t.sizes for t in found] == [(2, 3, 2, 3), (6, 6), (1, 1, 4, 6), (1,), (0,)]
    assert compared[0] == 7
    (n, m, _) = types["x"].sizes
    assert specialized_sizes(session) == [(n, m, 2, 3), None, (1, 1, 4, 6), (1,), (0,)]
    peer = onnxruntime.InferenceSession(onnx.parser.parse_model(AS_DYNAMO_WRITES).SerializeToString())
    rng, image = np.random.default_rng(0), np.ones((1, 1, 2, 3), np.float32)
    for sizes in ((2, 3), (1, 4), (5, 1), (2, 7), (2, 3), (0, 3), (3, 0)):
        feed = {"x": rng.random((*sizes, 6), np.float32), "image": image}
        for mine, theirs in zip(session.run(None, feed), peer.run(None, feed), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def specialized_sizes(session):
    """Of the outputs, in terms of the file's symbols; None where a size is computed of several."""
    graph, libraries = session._program.graph, session._program.libraries
    special = specialize(graph, {}, {}, libraries.opsets, libraries.fast)
    symbols = {n for i in graph.inputs for n in i.sizes if not isinstance(n, int)}
    outputs = [v.type.sizes for v in special.graph.outputs]
    return [s if all(isinstance(n, int) or n in symbols for n in s) else None for s in outputs]
