"""Every rewrite on random shapes: sizes of 0 and 1, all ranks, scalars of rank above 0. Nothing changes but time."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, checker, helper, numpy_helper

import anydml
from anydml.onnx.rewrites.pipeline import PIPELINE

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}


class Model:
    """One chain of nodes, written down as it is drawn."""

    def __init__(self, opset=17):
        self.nodes, self.initializers, self.inputs, self.opset = [], [], {}, opset
        self.count = 0

    def input(self, name, array):
        self.inputs[name] = array
        return name

    def const(self, content, dtype=np.int64):
        self.count += 1
        name = f"c{self.count}"
        self.initializers.append(numpy_helper.from_array(np.asarray(content, dtype), name))
        return name

    def add(self, op, *inputs, **attributes):
        self.count += 1
        name = f"v{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def proto(self, *outputs):
        infos = [
            helper.make_tensor_value_info(n, TYPES[x.dtype.name], x.shape) for n, x in self.inputs.items()
        ]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        for end in ends:
            end.type.tensor_type.ClearField("shape")
        graph = helper.make_graph(self.nodes, "g", infos, ends, self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def agree(model, *outputs):
    """As onnxruntime without any optimisation: in a session, flattened, and flattened twice."""
    proto = model.proto(*outputs)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    truth = ort.InferenceSession(proto.SerializeToString(), options).run(None, model.inputs)
    session = anydml.load(proto, threads=1)
    for _ in range(2):
        for a, b in zip(session.run(None, model.inputs), truth, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), session.explain()
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6, err_msg=session.explain())
    flat, _ = anydml.flatten(proto, verify=False)
    for output in flat.graph.output:  # as the original has it: of no shape, which the checker asks for
        output.type.tensor_type.shape.SetInParent()
        output.type.tensor_type.ClearField("shape")
    again = ort.InferenceSession(flat.SerializeToString()).run(None, model.inputs)
    for a, b in zip(again, truth, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def shape(rng, rank):
    return tuple(int(n) for n in rng.choice([0, 1, 1, 2, 3, 4], rank))


def values(rng, sizes):
    x = rng.standard_normal(sizes).astype(np.float32)
    x.reshape(-1)[: x.size // 7] = np.float32([np.inf, -0.0, 0, 1])[rng.integers(4)]
    return x


def test_all_rewrites_are_tried_here():
    tried = {"drop_identities", "single_convolutions", "merge_reshapes", "merge_norms", "keep_gathered_axes"}
    tried |= {"count_axes_from_the_front"}
    assert {p.__name__ for p in PIPELINE} == tried | {"eliminate_dead_code"}


@pytest.mark.parametrize("seed", range(60))
def test_norms(seed):
    rng = np.random.default_rng(seed)
    model = Model(int(rng.choice([13, 17, 18])))
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(rank))
    sizes = list(shape(rng, rank))
    sizes[axis] = int(rng.choice([0, 2, 4, 6, 5]))
    x = model.input("x", values(rng, sizes))
    half = sizes[axis] // 2
    ax = model.const([axis - rank * int(rng.integers(2))])
    parts = []
    for start, end in ((0, half), (half, 2 * half)):
        part = model.add("Slice", x, model.const([start]), model.const([end]), ax)
        if rng.integers(2):
            parts.append(model.add("Mul", part, part))
        else:
            two = model.const(np.full((1,) * int(rng.integers(0, rank + 2)), 2), np.float32)
            parts.append(model.add("Pow", part, two))
    y = model.add("Sqrt", model.add("Add", *parts))
    agree(model, y)


@pytest.mark.parametrize("seed", range(80))
def test_reshapes(seed):
    rng = np.random.default_rng(1000 + seed)
    model = Model(int(rng.choice([14, 17, 18])))
    x = values(rng, shape(rng, int(rng.integers(0, 5))))
    name, sizes, made = model.input("x", x), list(x.shape), []
    for _ in range(int(rng.integers(1, 7))):
        ones = [k for k, n in enumerate(sizes) if n == 1]
        kind = rng.choice(
            "Squeeze Unsqueeze Reshape Flatten Expand Transpose Relu Tanh Slice Cast Mean".split()
        )
        if kind == "Squeeze" and ones:
            axis = int(rng.choice(ones))
            name = model.add("Squeeze", name, model.const([axis]))
            del sizes[axis]
        elif kind == "Unsqueeze" and len(sizes) < 5:
            axis = int(rng.integers(len(sizes) + 1))
            name = model.add("Unsqueeze", name, model.const([axis]))
            sizes.insert(axis, 1)
        elif kind == "Reshape":
            sizes = [*rng.permutation([*sizes, 1]).tolist()]
            if 0 in sizes:
                name = model.add("Reshape", name, model.const(sizes), allowzero=1)
            else:
                free = int(rng.integers(len(sizes)))
                told = [-1 if k == free and rng.integers(2) else n for k, n in enumerate(sizes)]
                name = model.add("Reshape", name, model.const(told))
        elif kind == "Flatten":
            axis = int(rng.integers(len(sizes) + 1))
            name = model.add("Flatten", name, axis=axis)
            sizes = [int(np.prod(sizes[:axis])), int(np.prod(sizes[axis:]))]
        elif kind == "Expand":
            more = [1] * int(rng.integers(0, 2)) + [1] * len(sizes)
            name = model.add("Expand", name, model.const(more or np.zeros(0)))
            sizes = [1] * (len(more) - len(sizes)) + sizes
        elif kind == "Transpose" and sizes:
            perm = rng.permutation(len(sizes)).tolist()
            name = model.add("Transpose", name, perm=perm)
            sizes = [sizes[k] for k in perm]
        elif kind in ("Relu", "Tanh"):
            name = model.add(str(kind), name)
        elif kind == "Slice" and sizes:
            axis, step = int(rng.integers(len(sizes))), int(rng.choice([1, 1, -1]))
            ends = ([0], [2**31], [axis], [1]) if step == 1 else ([-1], [-(2**31)], [axis], [-1])
            name = model.add("Slice", name, *map(model.const, ends))
        elif kind == "Cast":
            name = model.add("Cast", name, to=TensorProto.FLOAT)
        elif kind == "Mean" and ones:
            keep, axis = int(rng.integers(2)), int(rng.choice(ones))
            if model.opset < 18:
                name = model.add("ReduceMean", name, axes=[axis], keepdims=keep)
            else:
                name = model.add("ReduceMean", name, model.const([axis]), keepdims=keep)
            if not keep:
                del sizes[axis]
        made.append(name)
    y = model.add("Neg", name)
    extra = [n for n in dict.fromkeys(made) if n != "x" and rng.integers(3) == 0]
    agree(model, y, *extra)


@pytest.mark.parametrize("seed", range(60))
def test_gathers(seed):
    rng = np.random.default_rng(2000 + seed)
    model = Model()
    rank = int(rng.integers(1, 4))
    sizes = [max(n, 1) if k == 0 else n for k, n in enumerate(shape(rng, rank))]
    axis = int(rng.integers(rank))
    sizes[axis] = max(sizes[axis], 1)
    x = model.input("x", values(rng, sizes))
    place = int(rng.integers(-sizes[axis], sizes[axis]))
    index = model.const(np.full((1,) * int(rng.integers(0, 3)), place))
    part = model.add("Gather", x, index, axis=axis - rank * int(rng.integers(2)))
    kept = [1 if k == axis else n for k, n in enumerate(sizes)]
    if rng.integers(3) == 0:
        kept = kept[::-1]
    y = model.add("Reshape", part, model.const(kept), allowzero=1)
    agree(model, model.add("Neg", y), *([y] if rng.integers(2) else []))


@pytest.mark.parametrize("seed", range(60))
def test_convolutions(seed):
    rng = np.random.default_rng(3000 + seed)
    model = Model()
    axes = int(rng.integers(1, 3))
    batch, channels, made = int(rng.choice([0, 1, 2])), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    length = [int(n) for n in rng.integers(1, 4, axes)]
    kernel = [int(n) for n in rng.integers(1, 5, axes)]
    pads = [int(n) for n in rng.integers(0, 3, 2 * axes)]
    dilations = [int(n) for n in rng.choice([1, 1, 2], axes)]
    for k in range(axes):  # it fits at all
        short = dilations[k] * (kernel[k] - 1) + 1 - (length[k] + pads[k] + pads[k + axes])
        pads[k + axes] += max(short, 0)
    x = model.input("x", rng.standard_normal((batch, channels, *length)).astype(np.float32))
    inputs = [x, model.const(rng.standard_normal((made, channels, *kernel)), np.float32)]
    if rng.integers(2):
        inputs.append(model.const(rng.standard_normal(made), np.float32))
    strides = [int(n) for n in rng.integers(1, 6, axes)]
    agree(model, model.add("Conv", *inputs, pads=pads, dilations=dilations, strides=strides))


REDUCTIONS = "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp".split()


@pytest.mark.parametrize("seed", range(60))
def test_reductions(seed):
    """Over what may be nothing, counted from the end, as input or attribute: shapes as NumPy has them."""
    rng = np.random.default_rng(4000 + seed)
    model = Model(int(rng.choice([13, 17, 18])))
    rank = int(rng.integers(1, 4))
    sizes = shape(rng, rank)
    x = model.input("x", np.abs(values(rng, sizes)) + 1)
    op, keep = str(rng.choice(REDUCTIONS)), int(rng.integers(2))
    axes = [int(k) - rank for k in rng.permutation(rank)[: rng.integers(1, rank + 1)]]
    as_input = model.opset >= (13 if op == "ReduceSum" else 18)
    if as_input:
        y = model.add(op, x, model.const(axes), keepdims=keep)
    else:
        y = model.add(op, x, axes=axes, keepdims=keep)
    wanted = np.zeros(sizes).sum(tuple(axes), keepdims=bool(keep)).shape
    session = anydml.load(model.proto(y), threads=1)
    for _ in range(2):
        (found,) = session.run(None, model.inputs)
        assert found.shape == wanted, session.explain()
    if 0 not in sizes:
        agree(model, y)


@pytest.mark.parametrize(("rank", "twice"), [*itertools.product(range(4), (False, True))])
def test_identities(rank, twice):
    rng = np.random.default_rng(rank)
    model = Model()
    x = model.input("x", values(rng, shape(rng, rank)))
    a = model.add("Identity", x)
    b = model.add("Identity", a)
    agree(model, b, model.add("Neg", b), *([a] if twice else []))


def test_the_models_here_are_models():
    model = Model()
    x = model.input("x", np.ones((2, 4), np.float32))
    proto = model.proto(model.add("Neg", x))
    proto.graph.output[0].type.tensor_type.shape.SetInParent()
    checker.check_model(proto)
