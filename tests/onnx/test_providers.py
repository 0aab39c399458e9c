"""Sessions with the execution providers that are here, devices' or not, as onnxruntime's with the same ones."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import anydml
from anydml.onnx.providers import bound_memory
from tests.onnx.patterns import PATTERNS

EXPORTERS = sorted((Path(__file__).parents[1] / "data" / "exporters").glob("*/model.onnx"))
OTHERS = [p for p in ort.get_available_providers() if not p.startswith(("CPU", "Tensorrt"))]


def asked(provider):
    exact = {"use_tf32": "0"} if provider == "CUDAExecutionProvider" else {}
    return [(provider, exact), "CPUExecutionProvider"]


def as_theirs(path, feeds, provider):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    theirs = ort.InferenceSession(path, options, providers=asked(provider))
    ours = anydml.load(path, providers=asked(provider))
    names = {i.name for i in theirs.get_inputs()}
    for feed in feeds * 2:
        given = {n: x for n, x in feed.items() if n in names}
        for mine, its in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            if isinstance(its, np.ndarray):
                np.testing.assert_allclose(mine, its, rtol=1e-3, atol=1e-4, err_msg=ours.explain())


@pytest.mark.parametrize("provider", OTHERS)
@pytest.mark.parametrize("path", EXPORTERS, ids=lambda p: p.parent.name)
def test_models_of_exporters(path, provider):
    """All feeds by turns: what was fed before must not be seen again."""
    as_theirs(path, [dict(np.load(f)) for f in sorted(path.parent.glob("feed_*.npz"))], provider)


@pytest.mark.parametrize("provider", OTHERS)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_patterns(pattern, provider):
    as_theirs(pattern.path, list(pattern.feeds), provider)


@pytest.mark.parametrize("provider", OTHERS)
def test_nothing_is_bound_where_a_device_may_compute(provider, monkeypatch):
    """onnxruntime copies to a device when memory is bound, and not when it runs."""

    def bind(self):
        raise AssertionError("bound")

    monkeypatch.setattr(bound_memory.Binding, "_bind", bind)
    path = next(p for p in EXPORTERS if p.parent.name == "dy_cond_sum")
    session, x = anydml.load(path, providers=asked(provider)), np.ones((3, 4), np.float32)
    bound = session.bind({"x": x}, {"getitem": np.empty((3, 4), np.float32)})
    for scale in (1, 1, -1, 0.5):
        x[...] = scale
        wanted = 2 * np.sin(x) if x.sum() > 0 else np.cos(x) - 1
        for (y,) in (session.run(None, {"x": x}), bound.run()):
            np.testing.assert_allclose(y, wanted, rtol=1e-5)
