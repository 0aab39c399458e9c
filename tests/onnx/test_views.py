"""Nodes that only see memory otherwise, beside kernels: nothing is copied, and no library is called."""

import numpy as np
import onnx
import onnxruntime
import pytest

import anydml

CHAIN = (
    """{y}1 = Mul ({x}, h)  {y}2 = Abs ({y}1)  {y}3 = Add ({y}2, h)  {y}4 = Neg ({y}3)  {y} = Mul ({y}4, h)"""
)
HEAD = '<ir_version: 8, opset_import: ["": {opset}]> m '


def ran(text, *feeds, opset=17):
    """What explain() says, after the outputs were compared; the second run has kernels."""
    model = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    session = anydml.load(model, threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in feeds:
        wanted = theirs.run(None, {"x": x})
        found = [session.run(None, {"x": x}) for _ in range(3)]
        for results in found:
            for one, other in zip(results, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-6, strict=True)
        arrays = [x, *(y for results in found for y in results)]
        for k, one in enumerate(arrays):
            assert not any(np.shares_memory(one, other) for other in arrays[k + 1 :])
    return session.explain().split("\n  ")[1:]


def drawn(*sizes):
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)


VIEWS = {
    "Reshape": "<int64[3] s = {-1, 16, 512}> {{ v = Reshape (a, s)",
    "Reshape that copies sizes": "<int64[3] s = {0, 16, -1}> {{ v = Reshape (a, s)",
    "Flatten": "{{ v = Flatten <axis = 1> (a)",
    "Unsqueeze": "<int64[2] s = {0, -1}> {{ v = Unsqueeze (a, s)",
    "Squeeze and Reshape": "<int64[1] s = {1}, int64[1] t = {-1}> {{ u = Unsqueeze (a, s)  w = Abs (u)  "
    "v1 = Squeeze (w, s)  v = Reshape (v1, t)",
}


@pytest.mark.parametrize("view", VIEWS)
def test_between_kernels(view):
    ends, nodes = VIEWS[view].replace("{{", "|").split("|")
    constants = ends.strip().removeprefix("<").removesuffix(">")
    text = f"(float[N, 512, 512] x) => (float y) <float h = {{0.5}}{', ' * bool(constants)}{constants}> {{"
    text += CHAIN.format(x="x", y="a") + nodes + CHAIN.format(x="v", y="y") + "}"
    told = ran(text.replace("float y)", "y)"), drawn(2, 512, 512), drawn(3, 512, 512))
    assert any(line.startswith("view: ") for line in told), told
    assert not any(line.startswith("onnxruntime") for line in told), told


def test_at_the_end_of_a_region():
    """Its results are seen otherwise, and not copied by it; within one, nodes stay where they cost nothing."""
    text = f"""(float[N, 8, 256, 256] x, float[8, 8, 3, 3] w) => (y)
        <float h = {{0.5}}, int64[3] s = {{0, 8, -1}}, int64[4] t = {{0, 4, 512, -1}}> {{
        c = Conv <pads = [1, 1, 1, 1]> (x, w)  r = Reshape (c, t)  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
        v = Reshape (p, s) {CHAIN.format(x="v", y="y")} }}"""
    model = onnx.parser.parse_model(HEAD.format(opset=17) + text)
    feeds = {"x": drawn(4, 8, 256, 256), "w": drawn(8, 8, 3, 3)}
    session = anydml.load(model, threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        np.testing.assert_allclose(
            session.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-5, atol=1e-5
        )
    told = session.explain().split("\n  ")[1:]
    assert [line.split(":")[0] for line in told] == ["onnxruntime", "view", "kernels"], told
    assert "Reshape" in told[0]


def test_what_does_not_fit_is_told_by_name():
    text = f"""(float[N, 1024] x) => (y) <float h = {{0.5}}, int64[2] s = {{7, -1}}> {{
        {CHAIN.format(x="x", y="a")}  [here] v = Reshape (a, s)  {CHAIN.format(x="v", y="y")} }}"""
    session = anydml.load(onnx.parser.parse_model(HEAD.format(opset=17) + text), threads=1)
    good, bad = drawn(7 * 128, 1024), drawn(600, 1024)
    for x in (good, good, good):
        assert session.run(None, {"x": x})[0].shape == (7, 128 * 1024)
    for _ in range(2):
        with pytest.raises(anydml.AnyDMLError, match="here"):
            session.run(None, {"x": bad})
    assert session.run(None, {"x": good})[0].shape == (7, 128 * 1024)
