"""NonMaxSuppression in programs: the same boxes in the same order as onnxruntime, whatever is fed."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import anydml as dml
from tests.onnx.native_bounded import check
from tests.onnx.test_native import model, native

SHAPES = [(1, 1, 1), (1, 1, 9), (2, 3, 5), (1, 4, 17), (2, 1, 40), (3, 2, 16), (1, 2, 70)]
"""Batches, classes, boxes."""


def suppression(shape, centered, limited=True, limits="int64 k, float overlap"):
    batches, classes, boxes = shape
    least = ", float least" if limited else ""
    return model(
        f"m (float[{batches},{boxes},4] x, float[{batches},{classes},{boxes}] s, {limits}{least}) => (int64[n,3] y) {{"
        f" y = NonMaxSuppression <center_point_box = {centered}> (x, s, k, overlap{', least' if limited else ''}) }}"
    )


def drawn(rng, shape, limited):
    """Boxes that are equal, have no area, lie far away, are turned round, or are NaN or infinite; scores of
    which many are equal; and limits at which something changes."""
    batches, classes, boxes = shape
    x = rng.random((batches, boxes, 4))
    match rng.integers(6):
        case 0:
            x = np.round(x * 4) / 4
        case 1:
            x = x * 10 - 5
        case 2:
            x[rng.random(x.shape) < 0.1] = np.nan
        case 3:
            x[rng.random(x.shape) < 0.1] = np.inf * rng.choice([-1, 1])
        case 4:
            x = np.round(x * 2)
    s = rng.random((batches, classes, boxes))
    if rng.random() < 0.5:
        s = np.round(s * 5) / 5 - rng.choice([0, 0.4])
    for content in (-0.0, np.inf, -np.inf, *([np.nan] if limited else [])):
        if rng.random() < 0.2:
            s[rng.random(s.shape) < 0.2] = content
    feeds = {
        "x": x.astype(np.float32),
        "s": s.astype(np.float32),
        "k": np.array(rng.choice([0, 1, 3, boxes, 100, -1, 2**62])),
        "overlap": np.array(rng.choice([0, 0.25, 0.5, 1, 0.3]), np.float32),
    }
    if limited:
        feeds["least"] = np.array(rng.choice([-1, 0, 0.4, 0.2, np.nan, -np.inf]), np.float32)
    return feeds


def oracle(made):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.drawn
@pytest.mark.parametrize("limited", [True, False], ids=["limited", "all"])
@pytest.mark.parametrize("centered", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_drawn_boxes(shape, centered, limited):
    made, rng = suppression(shape, centered, limited), np.random.default_rng([*shape, centered, limited])
    session, wanted = native(made), oracle(made)
    selected = 0
    for k in range(120):
        feeds = drawn(rng, shape, limited)
        (found,) = session.run(None, feeds)
        np.testing.assert_array_equal(found, *wanted.run(None, feeds), strict=True)
        selected += len(found)
        if k < 2:
            check(session, made, feeds)
    assert selected > 40
    assert "program: " in session.explain()


def test_limits_that_are_known():
    """So there is room for less."""
    made = suppression((2, 2, 30), 0, limits="int64 q")
    for name, content in (("k", np.int64(3)), ("overlap", np.float32(0.5))):
        made.graph.initializer.append(numpy_helper.from_array(np.array(content), name))
    made.graph.input.pop(2)
    session, wanted, rng = native(made), oracle(made), np.random.default_rng(0)
    for _ in range(50):
        feeds = {name: x for name, x in drawn(rng, (2, 2, 30), True).items() if name in ("x", "s", "least")}
        np.testing.assert_array_equal(session.run(None, feeds)[0], *wanted.run(None, feeds), strict=True)
    check(session, made, feeds)
    (planned,) = session._program._plans
    assert planned.plan.steps[0].program._outputs[0].count == 2 * 2 * 3 * 3


def test_scores_that_are_nan_without_a_limit():
    """Their order is onnxruntime's, and none that programs have."""
    made, rng = suppression((1, 1, 12), 0, False), np.random.default_rng(1)
    session, wanted = native(made), oracle(made)
    for _ in range(20):
        feeds = drawn(rng, (1, 1, 12), False)
        feeds["s"][0, 0, rng.integers(12)] = np.nan
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, feeds)[0], *wanted.run(None, feeds), strict=True)
    assert "program: " in session.explain()


@pytest.mark.parametrize("overlap", [1.5, -0.25, np.nan])
def test_an_overlap_that_is_none(overlap):
    made = suppression((1, 1, 12), 0)
    session, feeds = native(made), drawn(np.random.default_rng(2), (1, 1, 12), True)
    wanted = oracle(made).run(None, feeds)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, feeds), wanted)
        with pytest.raises(dml.ExecutionFailed, match="iou_threshold"):
            session.run(None, feeds | {"overlap": np.array(overlap, np.float32)})
    assert "program: " in session.explain()


@pytest.mark.parametrize("size", [6, 50])
def test_boxes_of_which_there_are_as_many_as_the_data_decides(size):
    """Those whose score is high, of several kinds, as torchvision selects them."""
    made = model(
        f"m (float[{size},4] boxes, float[{size}] scores, int64[{size}] kinds) => (float[n,4] b, float[n] s, int64[n] k)"
        " <int64 most = {5}, float overlap = {0.5}, float low = {0.4}, int64[1] z = {0}, int64[1] one = {1},"
        " int64[2] both = {0, 1}, float big = {2}, int64 last = {2}> {"
        " good = Greater (scores, low) at = NonZero (good) i = Squeeze (at, z)"
        " b1 = Gather <axis = 0> (boxes, i) s1 = Gather <axis = 0> (scores, i) k1 = Gather <axis = 0> (kinds, i)"
        " f = Cast <to = 1> (k1) g = Mul (f, big) h = Unsqueeze (g, one) moved = Add (b1, h)"
        " b3 = Unsqueeze (moved, z) s3 = Unsqueeze (s1, both)"
        " found = NonMaxSuppression (b3, s3, most, overlap) column = Gather <axis = 1> (found, last)"
        " b = Gather <axis = 0> (b1, column) s = Gather <axis = 0> (s1, column) k = Gather <axis = 0> (k1, column) }"
    )
    session, rng = native(made), np.random.default_rng(3)
    for part in (0, 0.2, 1, 0.5):
        corner = rng.random((size, 2))
        feeds = {
            "boxes": np.concatenate([corner, corner + rng.random((size, 2))], 1).astype(np.float32),
            "scores": np.where(rng.random(size) < part, 0.41 + rng.random(size), 0.3).astype(np.float32),
            "kinds": rng.integers(0, 3, size),
        }
        check(session, made, feeds)
    assert "program: " in session.explain()
