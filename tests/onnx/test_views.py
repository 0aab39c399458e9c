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


class Drawn:
    """A graph of views between what regions and what kernels run."""

    def __init__(self, seed):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], []
        self.values = [("x", (2, 6, 8, 10))]
        for _ in range(int(self.rng.integers(6, 20))):
            name, sizes = self.values[int(self.rng.integers(max(0, len(self.values) - 4), len(self.values)))]
            kinds = [self.elementwise, self.reshape, self.reshape, self.turn, self.axis, self.region]
            kinds[int(self.rng.integers(len(kinds)))](name, sizes)
        outputs = {self.values[-1][0], self.values[len(self.values) // 2][0]} - {"x"}
        graph = onnx.helper.make_graph(
            self.nodes,
            "drawn",
            [onnx.helper.make_tensor_value_info("x", 1, ["N", 6, 8, 10] if seed % 2 else [2, 6, 8, 10])],
            [onnx.helper.make_tensor_value_info(n, 1, None) for n in sorted(outputs)],
            self.weights,
        )
        self.model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
        )

    def add(self, op, name, sizes, *constants, **attributes):
        names = [f"c{len(self.weights) + k}" for k in range(len(constants))]
        self.weights += [
            onnx.numpy_helper.from_array(np.asarray(c), n) for c, n in zip(constants, names, strict=True)
        ]
        made = f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, [name, *names], [made], **attributes))
        self.values.append((made, tuple(sizes)))

    def elementwise(self, name, sizes):
        self.add(str(self.rng.choice(["Abs", "Neg", "Tanh", "Relu"])), name, sizes)

    def turn(self, name, sizes):
        order = [int(k) for k in self.rng.permutation(len(sizes))]
        self.add("Transpose", name, [sizes[k] for k in order], perm=order)

    def region(self, name, sizes):
        if len(sizes) > 1 and sizes[-1] < 200:
            weights = self.rng.standard_normal((sizes[-1], 5)).astype(np.float32) / 4
            self.add("MatMul", name, [*sizes[:-1], 5], weights)
        else:
            self.add("Softmax", name, sizes, axis=-1)

    def axis(self, name, sizes):
        k = int(self.rng.integers(len(sizes)))
        if sizes[k] == 1 and len(sizes) > 1:
            self.add("Squeeze", name, [*sizes[:k], *sizes[k + 1 :]], np.int64([k]))
        elif len(sizes) < 5:
            self.add("Unsqueeze", name, [*sizes[:k], 1, *sizes[k:]], np.int64([k]))
        else:
            self.add("Flatten", name, [np.prod(sizes[:k], dtype=int), np.prod(sizes[k:], dtype=int)], axis=k)

    def reshape(self, name, sizes):
        left, made = int(np.prod(sizes)), []
        for _ in range(int(self.rng.integers(4))):
            made.append(int(self.rng.choice([n for n in (1, 2, 3, 4, 6, 8) if left % n == 0])))
            left //= made[-1]
        told = [*made, left]
        if self.rng.random() < 0.5:
            told[int(self.rng.integers(len(told)))] = -1
        told = [0 if k < len(sizes) and n == sizes[k] and n % 2 else n for k, n in enumerate(told)]
        self.add("Reshape", name, [*made, left], np.int64(told))


@pytest.mark.parametrize("seeds", [range(k, 60, 6) for k in range(6)])
def test_drawn_graphs(seeds, monkeypatch):
    """However little kernels save."""
    monkeypatch.setattr("anydml.onnx.execute.partition.CALL_SECONDS", 0.0)
    monkeypatch.setattr("anydml.onnx.execute.partition.MIN_GAIN", 0.0)
    x, views = drawn(2, 6, 8, 10), 0
    for seed in seeds:
        model = Drawn(seed).model
        theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        wanted = theirs.run(None, {"x": x})
        session = anydml.load(model, threads=1, native=False)
        arrays = [x]
        for _ in range(3):
            found = session.run(None, {"x": x})
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, strict=True, err_msg=str(seed))
            arrays += found
        for k, one in enumerate(arrays):
            assert not any(np.shares_memory(one, other) for other in arrays[k + 1 :]), seed
        views += "view: " in session.explain()
    assert views
