"""`If`s that stop people: how many go, and that the models do the same without."""

import numpy as np
import onnxruntime as ort
import pytest

import anydml
from tests.onnx.patterns import FOLDER, PATTERNS


def test_all_of_them_are_told():
    assert sorted(p.stem for p in FOLDER.glob("*.onnx")) == sorted(p.name for p in PATTERNS)


def runs(content, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runner = ort.InferenceSession(content, options)
    wanted = {i.name for i in runner.get_inputs()}
    return [runner.run(None, {n: x for n, x in feed.items() if n in wanted}) for feed in feeds]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
@pytest.mark.parametrize("convert", ["auto", "always"])
def test_a_flat_model_does_the_same(pattern, convert):
    flat, report = anydml.flatten(pattern.path, convert=convert)
    assert report.left == pattern.left[convert == "always"], report.verdict
    assert report.left or not any(t.dims and 0 in t.dims for t in flat.graph.initializer)
    truth = runs(pattern.path.read_bytes(), pattern.feeds)
    for a, b in zip(truth, runs(flat.SerializeToString(), pattern.feeds), strict=True):
        for x, y in zip(a, b, strict=True):
            assert x.shape == y.shape
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_with_what_users_know(pattern):
    _, report = anydml.flatten(pattern.path, shapes=pattern.shapes, fixed=pattern.fixed)
    assert report.left == pattern.left[2], report.verdict


def test_a_loop_of_known_length_goes():
    (pattern,) = (p for p in PATTERNS if p.name == "unbind_loop")
    flat, report = anydml.flatten(pattern.path, shapes=pattern.shapes)
    assert report.loops_left == 0
    assert not any("Sequence" in n.op_type for n in flat.graph.node)
