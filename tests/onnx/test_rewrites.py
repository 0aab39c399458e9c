"""Every rule on random shapes: sizes of 0 and 1, all ranks, scalars of rank above 0. Nothing changes but time."""

from __future__ import annotations

import functools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, checker, helper, numpy_helper

import anydml
import anydml.flattening
import anydml.onnx.execute.specialization
from anydml.ir.graph import Constant, Graph, Node, OnnxOp, TensorType, Value
from anydml.ir.text import graph_text
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.rewrites.matcher import Rule, constant, node, rewrite, rules_by_root, value
from anydml.onnx.rewrites.pipeline import RULES, simplify
from anydml.onnx.serde.deserialize import read_proto

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64}


class Model:
    """One chain of nodes, written down as it is drawn."""

    def __init__(self, opset=17, has_open_sizes=False, open_axes=0):
        self.has_open_sizes, self.open_axes = has_open_sizes, open_axes
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

    def declared(self, x):
        return [f"n{k}" if k < self.open_axes else n for k, n in enumerate(x.shape)]

    def proto(self, *outputs):
        infos = [
            helper.make_tensor_value_info(
                n, TYPES[x.dtype.name], [None] * x.ndim if self.has_open_sizes else self.declared(x)
            )
            for n, x in self.inputs.items()
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


# ---- models in which a rule can be applied, more or less often ---------------------------------------


def norms(rng):
    model = Model(int(rng.choice([13, 17, 18])))
    rank = int(rng.integers(1, 4))
    axis = int(rng.integers(rank))
    sizes = list(shape(rng, rank))
    sizes[axis] = int(rng.choice([0, 2, 4, 6, 5]))
    x = model.input("x", values(rng, sizes))
    half = sizes[axis] // 2
    ax = model.const([axis - rank * int(rng.integers(2))])
    parts = []
    halves = [(0, half), (half, 2 * half)]
    for start, end in halves if rng.integers(4) else halves[:1] * 2:
        part = model.add("Slice", x, model.const([start]), model.const([end]), ax)
        if rng.integers(2):
            parts.append(model.add("Mul", part, part))
        else:
            two = model.const(
                np.full((1,) * int(rng.integers(0, rank + 2)), rng.choice([2, 2, 3])), np.float32
            )
            parts.append(model.add("Pow", part, two))
    return model, model.add("Sqrt", model.add("Add", *parts))


def chain(operators):
    """Models of one after the other of these, in any order, where they fit."""

    def made(rng):
        model = Model(int(rng.choice([15, 17, 18])))
        x = values(rng, shape(rng, int(rng.integers(0, 5))))
        name, sizes, every = model.input("x", x), list(x.shape), []
        for _ in range(int(rng.integers(1, 7))):
            name, sizes = add_link(model, rng, str(rng.choice(operators.split())), name, sizes)
            every.append(name)
        y = model.add("Neg", name)
        extra = [n for n in dict.fromkeys(every) if n != "x" and rng.integers(3) == 0]
        return model, y, *extra

    return made


def add_link(model, rng, op, name, sizes):
    """The output of one more node, and its sizes; what it was where the operator does not fit."""
    sizes = [int(n) for n in sizes]
    ones = [k for k, n in enumerate(sizes) if n == 1]
    if op == "Squeeze" and ones:
        axis = int(rng.choice(ones))
        return model.add(op, name, model.const([axis])), sizes[:axis] + sizes[axis + 1 :]
    if op == "Unsqueeze" and len(sizes) < 5:
        axis = int(rng.integers(len(sizes) + 1))
        return model.add(op, name, model.const([axis])), [*sizes[:axis], 1, *sizes[axis:]]
    if op == "Reshape":
        sizes = sizes if rng.integers(3) == 0 else rng.permutation([*sizes, 1]).tolist()
        if 0 in sizes:
            return model.add(op, name, model.const(sizes), allowzero=1), sizes
        free = int(rng.integers(len(sizes))) if sizes and rng.integers(2) else None
        return model.add(op, name, model.const([-1 if k == free else n for k, n in enumerate(sizes)])), sizes
    if op == "Flatten":
        axis = int(rng.integers(len(sizes) + 1))
        return model.add(op, name, axis=axis), [int(np.prod(s)) for s in (sizes[:axis], sizes[axis:])]
    if op == "Expand":
        more = [1] * int(rng.integers(0, 2)) + [1] * len(sizes)
        return model.add(op, name, model.const(more or np.zeros(0))), [1] * (len(more) - len(sizes)) + sizes
    if op == "Transpose" and sizes:
        perm = rng.permutation(len(sizes)).tolist()
        return model.add(op, name, perm=perm), [sizes[k] for k in perm]
    if op in ("Relu", "Tanh", "Sigmoid"):
        return model.add(op, name), sizes
    if op == "Slice" and sizes:
        axis, step = int(rng.integers(len(sizes))), int(rng.choice([1, 1, -1]))
        ends = ([0], [2**31], [axis], [1]) if step == 1 else ([-1], [-(2**31)], [axis], [-1])
        return model.add(op, name, *map(model.const, ends)), sizes
    if op == "Cast":
        name = model.add(op, name, to=TensorProto.BOOL) if rng.integers(3) == 0 else name
        return model.add(op, name, to=TensorProto.FLOAT), sizes
    if op == "CastLike":
        return model.add(op, name, model.const(0, np.float32)), sizes
    if op == "ReduceMean" and ones:
        keep, axis = int(rng.integers(2)), int(rng.choice(ones))
        if model.opset < 18:
            name = model.add(op, name, axes=[axis], keepdims=keep)
        else:
            name = model.add(op, name, model.const([axis]), keepdims=keep)
        return name, sizes if keep else sizes[:axis] + sizes[axis + 1 :]
    return name, sizes


def gathers(rng):
    model = Model()
    rank = int(rng.integers(1, 4))
    sizes = [max(n, 1) if k == 0 else n for k, n in enumerate(shape(rng, rank))]
    axis = int(rng.integers(rank))
    sizes[axis] = max(sizes[axis], 1)
    x = model.input("x", values(rng, sizes))
    place = int(rng.integers(-sizes[axis], sizes[axis]))
    index = np.full((1 + (0 in sizes),) * int(rng.integers(0, 3)), place)
    index = model.const(index) if rng.integers(4) else model.input("place", index)
    part = model.add("Gather", x, index, axis=axis - rank * int(rng.integers(2)))
    kept = [1 if k == axis else n for k, n in enumerate(sizes)]
    if rng.integers(3) == 0:
        kept = kept[::-1]
    y = model.add("Reshape", part, model.const(kept), allowzero=1)
    return model, model.add("Neg", y), *([y] if rng.integers(2) else [])


def convolutions(rng):
    model = Model(open_axes=int(rng.integers(2)))
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
    return model, model.add("Conv", *inputs, pads=pads, dilations=dilations, strides=strides)


REDUCTIONS = "ReduceSum ReduceMax ReduceMin ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp".split()


def reductions(rng):
    """Sizes are open, so that there may be nothing, where onnxruntime is wrong. See below where there is."""
    model, y, _ = reduction(rng, lambda rng, rank: [max(n, 1) for n in shape(rng, rank)])
    model.has_open_sizes = True
    return model, y


def reduction(rng, shape):
    """Over axes counted from the end, as input or attribute: the model, its output, and NumPy's sizes of that."""
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
    return model, y, np.zeros(sizes).sum(tuple(axes), keepdims=bool(keep)).shape


def arguments(rng):
    model = Model()
    rank = int(rng.integers(1, 4))
    x = model.input("x", values(rng, [max(n, 1) for n in shape(rng, rank)]))
    axis, keep = int(rng.integers(-rank, rank)), int(rng.integers(2))
    places = model.add(str(rng.choice(["ArgMax", "ArgMin"])), x, axis=axis, keepdims=keep)
    return model, model.add("Cast", places, to=TensorProto.FLOAT)


def identities(rng):
    model = Model()
    x = model.input("x", values(rng, shape(rng, int(rng.integers(4)))))
    a = model.add("Identity", x)
    b = model.add("Identity", a)
    return model, b, model.add("Neg", b), *([a] if rng.integers(2) else [])


def lines(rng):
    """Convolutions along a line whose weights are so large that windows of few positions are gathered,
    in blocks where taps, strides and the length have one."""
    model = Model(int(rng.choice([11, 13, 17, 22])), open_axes=int(rng.integers(2)))
    block = int(rng.choice([1, 1, 2, 6]))
    batch, channels = int(rng.integers(1, 4)), int(rng.choice([1, 2, 16, 40]))
    taps = block * int(rng.integers(1, 6))
    filters = -(-(1 << 13) // (channels * taps)) + int(rng.integers(-1, 3))
    attributes = {}
    if rng.integers(2):
        attributes["pads"] = [int(n) for n in rng.integers(0, 4, 2)]
    if rng.integers(2):
        attributes["strides"] = [block * int(rng.integers(1, 5))]
    if not rng.integers(2 * block):
        attributes["dilations"] = [int(rng.integers(1, 4))]
    if not rng.integers(6):
        attributes = {"auto_pad": "SAME_UPPER"}
    least = attributes.get("dilations", [1])[0] * (taps - 1) + 1
    x = model.input("x", values(rng, (batch, channels, least + block * int(rng.integers(0, 12)))))
    w = model.const(rng.standard_normal((filters, channels, taps)) / 8, np.float32)
    bias = [model.const(rng.standard_normal(filters), np.float32)] if rng.integers(2) else []
    y = model.add("Relu", model.add("Conv", x, w, *bias, **attributes))
    again = model.const(rng.standard_normal((3, filters, 1)) / filters, np.float32)
    return model, model.add("Conv", y, again)


def turned(rng):
    """A product whose rows are turned, and what is computed of that element by element."""
    model = Model(int(rng.choice([11, 17])))
    batch, rows, columns = (int(n) for n in rng.integers(1, 4, 3))
    x = model.input("x", values(rng, (batch * rows, 5)))
    y = model.add("Gemm", x, model.const(rng.standard_normal((5, columns)), np.float32))
    y = model.add("Reshape", y, model.const([batch, rows, columns]))
    y = model.add("Transpose", y, perm=[int(n) for n in rng.permutation(3)])
    return model, model.add(str(rng.choice(["Relu", "Sigmoid", "Tanh"])), y)


def splits(rng):
    """The last axis in two parts, the first being open, and to be found out."""
    model = Model(int(rng.choice([11, 17])), open_axes=1)
    sizes = [int(rng.integers(1, 4)), int(rng.integers(1, 4)), 6]
    x = model.input("x", values(rng, sizes))
    told = [int(rng.choice([-1, 0])), 0, *[[2, 3], [6, 1], [6]][rng.integers(3)]]
    if rng.integers(2):
        return model, model.add("Neg", model.add("Reshape", x, model.const(told)))
    second = model.add("Gather", model.add("Shape", x), model.const([1]), axis=0)
    shape = model.add("Concat", model.const([-1]), second, model.const(told[2:]), axis=0)
    return model, model.add("Neg", model.add("Reshape", x, shape))


def concats(rng):
    """Parts of which some have no elements, constants among them."""
    rank = int(rng.integers(1, 4))
    axis, sizes, parts = int(rng.integers(rank)), shape(rng, rank), []
    model = Model(int(rng.choice([11, 17])), open_axes=int(axis > 0 and rng.integers(2)))
    for k in range(int(rng.integers(1, 5))):
        own = values(rng, [int(rng.choice([0, 0, 2])) if k == axis else n for k, n in enumerate(sizes)])
        parts.append(model.const(own, np.float32) if rng.integers(2) else model.input(f"x{k}", own))
    return model, model.add("Neg", model.add("Concat", *parts, axis=axis - rank * int(rng.integers(2))))


def casts(rng):
    """To the type of another input, or of a constant."""
    model = Model(int(rng.choice([15, 19])))
    x = model.input("x", values(rng, shape(rng, int(rng.integers(0, 4)))))
    dtype = [np.float32, np.float64, np.float16][rng.integers(3)]
    y = model.input("y", values(rng, (2,)))
    like = model.const(np.zeros(1), dtype) if rng.integers(2) else y
    return model, model.add("Neg", model.add("CastLike", model.add("CastLike", x, like), y))


MODELS = {
    "identity": identities,
    "single_convolution": convolutions,
    "reshape_to_same_sizes": chain("Reshape Relu"),
    "reshape_of_reshape": chain("Reshape"),
    "reshape_to_known_sizes": splits,
    "squeeze": chain("Squeeze Unsqueeze Flatten"),
    "expand": chain("Expand"),
    "cast_to_same_type": chain("Cast CastLike"),
    "cast_like": casts,
    "reduction_of_one": chain("ReduceMean Unsqueeze"),
    "whole_slice": chain("Slice Tanh"),
    "concat_nothing": concats,
    "transpose_of_ones": chain("Transpose Unsqueeze"),
    "unary_of_reshape": chain("Reshape Relu Tanh Sigmoid"),
    "norm": norms,
    "gather_of_one": gathers,
    "arg_axis": arguments,
    "reduction_axes": reductions,
    "few_positions": lines,
    "unary_of_positions": turned,
}
SEEDS = 16


# ---- each rule alone ---------------------------------------------------------------------------------


def others(name):
    return [n for n in MODELS if n != name]


def test_every_rule_of_the_table_has_models_here():
    assert [rule.name for rules in RULES for rule in rules] == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_rule_alone(name, seed, monkeypatch):
    alone = functools.partial(simplify, without=others(name))
    for module in (anydml.flattening, anydml.onnx.execute.specialization):
        monkeypatch.setattr(module, "simplify", alone)
    agree(*MODELS[name](np.random.default_rng(1000 + seed)))


def applied(name, model, *outputs):
    """Whether the rule changes the model, as it does not when it is left out."""
    read = read_proto(model.proto(*outputs), None, "")
    graph = annotate_types(read.graph, read.opsets, OnnxRuntime())
    with_it = simplify(graph, others(name), on_processor=True)
    with_none = simplify(graph, MODELS, on_processor=True)
    assert graph_text(with_none) == graph_text(eliminate_dead_code(graph))
    return graph_text(with_it) != graph_text(with_none)


@pytest.mark.parametrize("name", MODELS)
def test_a_rule_is_applied(name):
    assert any(applied(name, *MODELS[name](np.random.default_rng(1000 + k))) for k in range(SEEDS))


# ---- all of them -------------------------------------------------------------------------------------

EVERY = chain("Squeeze Unsqueeze Reshape Flatten Expand Transpose Relu Tanh Slice Cast ReduceMean")


@pytest.mark.parametrize("seed", range(60))
def test_chains(seed):
    agree(*EVERY(np.random.default_rng(2000 + seed)))


@pytest.mark.parametrize("name", ["norm", "gather_of_one", "single_convolution", "few_positions"])
@pytest.mark.parametrize("seed", range(20))
def test_others_with_all_rules(name, seed):
    agree(*MODELS[name](np.random.default_rng(3000 + seed)))


@pytest.mark.parametrize("seed", range(40))
def test_reductions_of_nothing(seed):
    """Shapes as NumPy has them."""
    model, y, wanted = reduction(np.random.default_rng(4000 + seed), shape)
    session = anydml.load(model.proto(y), threads=1)
    for _ in range(2):
        (found,) = session.run(None, model.inputs)
        assert found.shape == wanted, session.explain()


# ---- patterns ----------------------------------------------------------------------------------------

x, a, b, y = (Value(n, TensorType("float32", (2,))) for n in "xaby")
two = Value("two", TensorType("float32", ()))


def op(name, inputs, output, domain=""):
    return Node(OnnxOp(domain, name, 17), inputs, (output,))


@pytest.mark.parametrize(
    ("pattern", "nodes", "is_found"),
    [
        (node("Neg Abs", value("p")), [op("Abs", (x,), y)], True),
        (node("Neg Abs", value("p")), [op("Sqrt", (x,), y)], False),
        (node("Neg", value("p")), [op("Neg", (x,), y, "other")], False),
        (node("Neg", node("Neg", value("p"))), [op("Neg", (x,), a), op("Neg", (a,), y)], True),
        (node("Neg", node("Abs")), [op("Abs", (x,), a, "other"), op("Neg", (a,), y)], False),
        (node("Mul", value("p"), value("p")), [op("Mul", (x, x), y)], True),
        (node("Mul", value("p"), value("p")), [op("Neg", (x,), a), op("Mul", (x, a), y)], False),
        (node("Mul", value("p"), value("q")), [op("Mul", (x, x), y)], True),
        (node("Mul", value("p"), value("q")), [op("Mul", (x,), y)], False),
        (node("Mul", value("p"), value("q")), [op("Mul", (None, x), y)], False),
        (node("Pow", value("p"), constant()), [op("Pow", (x, two), y)], True),
        (node("Pow", constant(), value("p")), [op("Pow", (x, two), y)], False),
        (node("Pow", value("p"), constant(number=2)), [op("Pow", (x, two), y)], True),
        (node("Pow", value("p"), constant(number=3)), [op("Pow", (x, two), y)], False),
        (node("Pow", constant(number=2), value("p")), [op("Pow", (x, two), y)], False),
        (node("Neg") | node("Pow", value("p"), constant()), [op("Pow", (x, two), y)], True),
        (node("Neg") | node("Pow", value("p"), constant()), [op("Neg", (x,), y)], True),
    ],
)
def test_a_pattern(pattern, nodes, is_found):
    graph = Graph("g", (x,), (y,), tuple(nodes), {two: Constant(np.float32(2))})
    found = rewrite(graph, rules_by_root([Rule("r", pattern, lambda m: [m.make("Found", [x], m.output)])]))
    assert (found is not graph) == is_found
    assert found.nodes[-1].is_onnx("Found") == is_found


def test_a_condition_an_opset_and_a_result_that_is_none():
    graph = Graph("g", (x,), (y,), (op("Neg", (x,), y),))
    for rule in (
        Rule("r", node("Neg", value("p")), lambda m: m["p"], lambda m: m.opset > 17),
        Rule("r", node("Neg", value("p")), lambda m: m["p"], since=18),
        Rule("r", node("Neg", value("p")), lambda m: None),
    ):
        assert rewrite(graph, rules_by_root([rule])) is graph


def test_rules_are_applied_to_what_they_make():
    rules = rules_by_root(
        [
            Rule("first", node("Abs", value("p")), lambda m: [m.make("Neg", [m["p"]], m.output)]),
            Rule("then", node("Neg", node("Neg", value("p"))), lambda m: m["p"]),
        ]
    )
    nodes = (op("Abs", (x,), a), op("Abs", (a,), b), op("Sqrt", (b,), y))
    assert graph_text(eliminate_dead_code(rewrite(Graph("g", (x,), (y,), nodes), rules))) == (
        "graph g(%x: float32[2]) -> (%y) {\n  %y = Sqrt(%x)\n}\n"
    )


def test_no_rule_of_such_a_name():
    with pytest.raises(AssertionError, match="no_such_rule"):
        simplify(Graph("g", (x,), (x,), ()), ["no_such_rule"])


def test_the_models_here_are_models():
    model = Model()
    x = model.input("x", np.ones((2, 4), np.float32))
    proto = model.proto(model.add("Neg", x))
    proto.graph.output[0].type.tensor_type.shape.SetInParent()
    checker.check_model(proto)
