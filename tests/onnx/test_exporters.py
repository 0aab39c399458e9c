"""Models by other people's exporters: sessions and flat models compute what onnxruntime computes."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml as dml

MODELS = sorted((Path(__file__).parents[1] / "data" / "exporters").glob("*/model.onnx"))


def feeds(path):
    found = [dict(np.load(p)) for p in sorted(path.parent.glob("feed_*.npz"))]
    assert found, path
    return found


def expected(path, given):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in given]


def agree(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_they_are_there():
    assert len(MODELS) == 26


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parent.name)
def test_sessions(path):
    """At the default threads; each feed twice, in turns; bound, too."""
    given = feeds(path)
    wanted = expected(path, given)
    session = dml.load(path)
    for _ in range(2):
        for feed, results in zip(given, wanted, strict=True):
            agree(session.run(None, feed), results)
    for feed, results in zip(given, wanted, strict=True):
        outputs = {o.name: np.zeros_like(r) for o, r in zip(session.get_outputs(), results, strict=True)}
        bound = session.bind(feed, outputs)
        for _ in range(3):
            agree(bound.run(), results)


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parent.name)
def test_from_bytes_on_one_thread(path):
    given = feeds(path)
    session = dml.load(onnx.load(path).SerializeToString(), threads=1)
    for feed, results in zip(given, expected(path, given), strict=True):
        agree(session.run(None, feed), results)
