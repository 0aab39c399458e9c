"""Graphs: recording, what becomes one kernel, how they are checked, bound and explained."""

import random

import numpy as np
import pytest

import anydml as dml
from anydml.ops.catalog import ELEMENT_WISE

RNG = np.random.default_rng(3)
X = RNG.standard_normal((4, 6)).astype(np.float32)
Y = RNG.standard_normal((4, 6)).astype(np.float32)


def graph(level=None):
    g = dml.GraphBuilder(dml.Device(level))
    return g, g.input("x", "FLOAT32", [4, 6]), g.input("y", "FLOAT32", [4, 6])


def run(g, outputs, **arrays):
    return g.compile(outputs)(arrays)


def test_the_documents_leaky_relu_is_one_kernel_without_intermediate_memory():
    g = dml.GraphBuilder(dml.Device())
    x = g.input("x", "FLOAT32", [64, 1024])
    compiled = g.compile({"y": dml.if_(dml.less_than(x, 0.0), x * 0.01, x)})
    array = RNG.standard_normal((64, 1024)).astype(np.float32)
    wanted = np.where(array < 0, array * np.float32(0.01), array)
    assert np.array_equal(compiled({"x": array})["y"], wanted)
    assert compiled.kernels == 1
    assert "1 kernel, 0 bytes of intermediate memory" in compiled.explain()
    out = np.zeros_like(array)
    compiled.bind({"x": array}, {"y": out}).dispatch()
    assert np.array_equal(out, wanted)


OPERATORS = {
    "+": (lambda a, b: a + b, "FLOAT32"),
    "-": (lambda a, b: a - b, "FLOAT32"),
    "*": (lambda a, b: a * b, "FLOAT32"),
    "/": (lambda a, b: a / b, "FLOAT32"),
    "%": (lambda a, b: a % b, "INT32"),
    "**": (lambda a, b: abs(a) ** b, "FLOAT32"),
    "neg": (lambda a, b: -a, "FLOAT32"),
    "abs": (lambda a, b: abs(a), "INT32"),
    "&": (lambda a, b: a & b, "UINT32"),
    "|": (lambda a, b: a | b, "UINT32"),
    "^": (lambda a, b: a ^ b, "UINT32"),
    "~": (lambda a, b: ~a, "UINT32"),
    "<<": (lambda a, b: a << b, "UINT32"),
    ">>": (lambda a, b: a >> b, "UINT32"),
    "number +": (lambda a, b: 2 + a, "FLOAT32"),
    "number -": (lambda a, b: 2 - a, "INT32"),
    "number *": (lambda a, b: 2 * a, "INT32"),
    "number /": (lambda a, b: 2 / a, "FLOAT32"),
    "number %": (lambda a, b: 7 % a, "INT32"),
    "number &": (lambda a, b: 7 & a, "UINT32"),
    "number |": (lambda a, b: 8 | a, "UINT32"),
    "number ^": (lambda a, b: 9 ^ a, "UINT32"),
    "number <<": (lambda a, b: 1 << a, "UINT32"),
    "number >>": (lambda a, b: 1024 >> a, "UINT32"),
    "** number": (lambda a, b: a**2, "FLOAT32"),
}
COMPARISONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "number <": lambda a, b: a > 1,
    "== number": lambda a, b: a == 1,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_pythons_operators(sign):
    function, dtype = OPERATORS[sign]
    a, b = (RNG.integers(1, 9, 50).astype(dtype.lower()) for _ in range(2))
    g = dml.GraphBuilder()
    result = function(g.input("a", dtype, [50]), g.input("b", dtype, [50]))
    assert result.data_type.name == dtype
    got, wanted = run(g, {"y": result}, a=a, b=b)["y"], function(a, b)
    assert np.allclose(got, wanted, rtol=1e-6) if dtype == "FLOAT32" else np.array_equal(got, wanted)


@pytest.mark.parametrize("sign", COMPARISONS)
def test_comparisons_give_uint8(sign):
    a, b = (RNG.integers(0, 3, 50).astype(np.int16) for _ in range(2))
    g = dml.GraphBuilder()
    result = COMPARISONS[sign](g.input("a", "INT16", [50]), g.input("b", "INT16", [50]))
    assert result.data_type.name == "UINT8"
    assert np.array_equal(run(g, {"y": result}, a=a, b=b)["y"], COMPARISONS[sign](a, b))


def test_an_expression_has_no_truth_value():
    _, x, _ = graph()
    with pytest.raises(TypeError, match="no value before its graph runs"):
        bool(x > 0)
    with pytest.raises(dml.InvalidInput, match="expected no `out` beside an expression"):
        dml.abs(x, out=X)


def test_several_outputs_share_a_kernel_and_their_subexpressions():
    g, x, y = graph()
    s = x * y
    compiled = g.compile({"s": s, "t": dml.exp(s) + s, "u": s > 0})
    got = compiled({"x": X, "y": Y})
    assert compiled.kernels == 1
    assert np.array_equal(got["s"], X * Y)
    assert np.allclose(got["t"], np.exp(X * Y) + X * Y, rtol=1e-6)
    assert np.array_equal(got["u"], (X * Y > 0).astype(np.uint8))


def test_inputs_views_and_repeated_expressions_may_be_outputs():
    g, x, y = graph()
    s = x + y
    got = run(g, {"a": x, "b": x.transpose(), "c": s, "d": s, "e": s.transpose()}, x=X, y=Y)
    assert np.array_equal(got["a"], X)
    assert np.array_equal(got["b"], X.T)
    assert np.array_equal(got["c"], X + Y)
    assert np.array_equal(got["d"], X + Y)
    assert np.array_equal(got["e"], (X + Y).T)


def test_broadcasts_and_transposes_are_strides():
    g = dml.GraphBuilder()
    x, row = g.input("x", "FLOAT32", [3, 4, 5]), g.input("row", "FLOAT16", [5])
    column, turned = g.input("column", "FLOAT32", [4, 1]), g.input("turned", "FLOAT32", [5, 4, 3])
    wide = dml.if_(dml.greater_than(row, 0.0), row, 1.0)
    y = x * column + turned.transpose() - dml.exp(column)
    compiled = g.compile({"y": y, "w": dml.if_(dml.greater_than(row, 0.5), y, 0.0), "r": wide})
    arrays = {
        n: RNG.standard_normal(s).astype(t)
        for n, s, t in (
            ("x", (3, 4, 5), "f4"),
            ("row", 5, "f2"),
            ("column", (4, 1), "f4"),
            ("turned", (5, 4, 3), "f4"),
        )
    }
    got = compiled(arrays)
    wanted = arrays["x"] * arrays["column"] + arrays["turned"].transpose(2, 1, 0) - np.exp(arrays["column"])
    assert np.allclose(got["y"], wanted, atol=1e-6)
    assert np.array_equal(got["w"], np.where(arrays["row"] > 0.5, got["y"], 0))
    assert compiled.kernels == 2  # r has sizes of its own
    assert "0 bytes of intermediate memory" in compiled.explain()


def test_transposed_and_reshaped_intermediates():
    g, x, y = graph()
    s = dml.exp(x)
    transposed = s.transpose() + y.transpose()
    reshaped = s.reinterpret([3, 8]) * 2.0
    bits = s.reinterpret(data_type="UINT32") & 0x7F800000
    compiled = g.compile({"t": transposed, "r": reshaped, "b": bits})
    got = compiled({"x": X, "y": Y})
    assert np.allclose(got["t"], np.exp(X).T + Y.T, rtol=1e-6)
    assert np.allclose(got["r"], np.exp(X).reshape(3, 8) * 2, rtol=1e-6)
    assert np.allclose((got["b"] >> 23).astype(int) - 127, np.floor(np.log2(np.exp(X))))
    assert compiled.kernels >= 2


def test_rows_fuse_with_their_neighbours():
    g, x, y = graph()
    compiled = g.compile({"z": dml.activation_softmax(x * 2 + y) * y})
    z = X * 2 + Y
    e = np.exp(z - z.max(-1, keepdims=True))
    assert np.allclose(compiled({"x": X, "y": Y})["z"], e / e.sum(-1, keepdims=True) * Y, rtol=1e-5)
    assert compiled.kernels == 1
    g, x, y = graph()
    twice = dml.activation_softmax1(dml.activation_softmax1(x, axes=[1]), axes=[0])
    compiled = g.compile({"z": twice})
    a = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    assert np.allclose(compiled({"x": X, "y": Y})["z"], np.exp(a) / np.exp(a).sum(0), rtol=1e-5)
    assert compiled.kernels == 2


def test_what_outgrows_a_kernel_is_split():
    g = dml.GraphBuilder()
    inputs = [g.input(f"x{k}", "FLOAT32", [100]) for k in range(60)]
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x * 0.5
    compiled = g.compile({"y": total})
    arrays = {f"x{k}": RNG.integers(-9, 9, 100).astype(np.float32) for k in range(60)}
    wanted = arrays["x0"] + sum(arrays[f"x{k}"] for k in range(1, 60)) * 0.5
    assert np.array_equal(compiled(arrays)["y"], wanted)
    assert compiled.kernels > 1
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [1000])
    y = x
    for _ in range(30):
        y = dml.sin(dml.pow(dml.abs(y) + 1.0, 1.5))
    z = np.linspace(-1, 1, 1000, dtype=np.float32)
    assert np.isfinite(g.compile({"y": y})({"x": z})["y"]).all()


@pytest.mark.parametrize("reach", [1, 8])
def test_large_graphs_compute_each_node_about_once(reach):
    """What one full kernel computes is read by the next ones, and not computed again for each of its uses."""
    rnd = random.Random(reach)
    operators = [
        lambda a, b: a + b,
        lambda a, b: a * b * 0.5 + 0.2,
        dml.max,
        lambda a, b: dml.tanh(a),
        lambda a, b: dml.if_(dml.less_than(a, b), a * 0.5 + 0.1, b),
        lambda a, b: dml.abs(a - b) + 0.1,
    ]
    chosen = [(rnd.randrange(len(operators)), rnd.randrange(reach)) for _ in range(400)]

    def build(x):
        values = [x]
        for k, back in chosen:
            values.append(operators[k](values[-1], values[max(-1 - back, -len(values))]))
        return values[-1]

    g = dml.GraphBuilder()
    compiled = g.compile({"y": build(g.input("x", "FLOAT32", [100]))})
    x = np.random.default_rng(0).uniform(0, 1, 100).astype(np.float32)
    np.testing.assert_array_equal(compiled({"x": x})["y"], build(x))
    assert 1 < compiled.kernels < 8
    assert compiled.explain().count("tanh(") <= 1.2 * sum(k == 3 for k, _ in chosen)


def test_numbers_take_the_type_beside_them():
    g = dml.GraphBuilder()
    h = g.input("h", "FLOAT16", [3])
    i = g.input("i", "INT8", [3])
    assert (h * 0.1).data_type.name == "FLOAT16"
    assert (1 - i).data_type.name == "INT8"
    with pytest.raises(dml.InvalidInput, match="int8 can hold, but got 300"):
        i + 300
    with pytest.raises(dml.InvalidInput, match="elements of a type of DirectML's, but got <U1"):
        i + np.array(["a"])
    got = run(g, {"a": h * 0.1, "b": 1 - i}, h=np.float16([1, 2, 3]), i=np.int8([1, 2, 3]))
    assert np.array_equal(got["a"], (np.float32([1, 2, 3]) * np.float32(np.float16(0.1))).astype(np.float16))
    assert got["b"].tolist() == [0, -1, -2]


# ---- checks ------------------------------------------------------------------------------------------


def test_arrays_are_constants():
    """As they are when the operator is recorded, also of one element, and read transposed."""
    g, x, _ = graph()
    row, one, turned = np.float32([1, 2, 3, 4, 5, 6]), np.float32([[10]]), np.ones((6, 4), np.float32).T
    y = (x + row) * one + turned
    row[:] = 0
    got = run(g, {"z": y}, x=X)["z"]
    assert np.array_equal(got, (X + np.float32([1, 2, 3, 4, 5, 6])) * 10 + 1)


def test_graphs_exist_from_2_1_on():
    with pytest.raises(dml.InvalidOperator, match="graphs exist from 2_1 on"):
        dml.GraphBuilder(dml.Device("2_0"))
    assert dml.GraphBuilder(dml.Device("2_1"))
    with pytest.raises(dml.InvalidInput, match="expected a Device"):
        dml.GraphBuilder("2_1")


def test_all_problems_are_told_at_once_and_name_their_nodes():
    g = dml.GraphBuilder(dml.Device("3_0"))
    a, b = g.input("a", "INT64", [2, 3]), g.input("b", "FLOAT32", [2, 3])
    y = dml.activation_gelu(b * 2)
    z = a + 1
    with pytest.raises(dml.InvalidOperator) as raised:
        g.compile({"y": y, "z": z})
    told = str(raised.value)
    assert (
        "node 'activation_gelu_1' (ACTIVATION_GELU): expected a feature level of 5_1 or newer, but got 3_0"
        in told
    )
    assert "node 'add_1' (ELEMENT_WISE_ADD): ATensor, BTensor, OutputTensor: expected" in told
    assert "at feature level 3_0, but got int64 (allowed from 4_1)" in told
    assert len(raised.value.problems) == 2


def test_scalars_work_at_every_level_that_has_graphs():
    for level in ("2_1", "3_0", "4_0", "5_1", "6_4"):
        g = dml.GraphBuilder(dml.Device(level))
        x = g.input("x", "FLOAT32", [1, 1, 4, 6])
        got = run(g, {"z": dml.max(x * 2.0, 0.5) - 1.0}, x=X.reshape(1, 1, 4, 6))["z"]
        assert np.array_equal(got[0, 0], np.maximum(X * 2, np.float32(0.5)) - 1)


def test_types_that_differ_are_told_when_compiled():
    g = dml.GraphBuilder()
    a, b = g.input("a", "FLOAT32", [2]), g.input("b", "INT32", [2])
    y = a + b
    with pytest.raises(dml.InvalidOperator, match=r"node 'add_1' .*expected equal data types"):
        g.compile({"y": y})


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        (lambda g, x: x + g.input("z", "FLOAT32", [5]), dml.InvalidOperator, "sizes that broadcast"),
        (lambda g, x: g.input("x", "FLOAT32", [5]), dml.InvalidOperator, "a name that no other input has"),
        (lambda g, x: g.input("z", "FLOAT33", [5]), dml.InvalidOperator, "FLOAT32"),
        (lambda g, x: g.input("z", "FLOAT32", [0]), dml.InvalidOperator, "Sizes between 1"),
        (lambda g, x: g.input("z", "UNKNOWN", [4]), dml.InvalidOperator, "a type that operators take"),
        (lambda g, x: x.transpose(0, 0), dml.InvalidOperator, "each of the 2 dimensions once"),
        (lambda g, x: x.broadcast_to([4, 7]), dml.InvalidOperator, "broadcasts to"),
        (lambda g, x: x.reinterpret([5, 5]), dml.InvalidOperator, "at most 96 bytes, but got 100"),
        (lambda g, x: x.reinterpret(data_type="FLOAT16"), dml.InvalidOperator, "a type as wide as float32"),
        (lambda g, x: dml.round(x, rounding_mode="UP"), dml.InvalidOperator, "rounding_mode"),
        (lambda g, x: dml.activation_softmax1(x, axes="0"), dml.InvalidOperator, "list of integers"),
        (lambda g, x: dml.clip(x, "low", 1), dml.InvalidOperator, "min: expected a number"),
        (
            lambda g, x: x + dml.GraphBuilder().input("x", "FLOAT32", [4, 6]),
            dml.InvalidInput,
            "the same graph",
        ),
        (lambda g, x: x + None, dml.InvalidInput, "an expression, an array or a number"),
        (lambda g, x: g.compile({}), dml.InvalidInput, "a dictionary of expressions"),
        (lambda g, x: g.compile({"y": X}), dml.InvalidInput, "an expression of this graph"),
        (lambda g, x: g.compile({"x": x + 1}), dml.InvalidInput, "a name that no input has"),
        (
            lambda g, x: g.compile({"z": dml.activation_softmax1(x, axes=[2])}),
            dml.InvalidOperator,
            "from 0 to 1",
        ),
        (lambda g, x: g.compile({"z": x + 1})({"y": X, "x": X}), dml.InvalidInput, "expected x"),
        (lambda g, x: g.compile({"z": x + 1})({}), dml.InvalidInput, "graph: x: expected an array"),
        (lambda g, x: g.compile({"z": x + 1})({"x": X.astype(int)}), dml.InvalidInput, "expected float32"),
        (lambda g, x: g.compile({"z": x + 1})({"x": X[:2]}), dml.InvalidInput, r"expected shape \(4, 6\)"),
        (lambda g, x: g.compile({"z": x + 1})({"x": X[0]}), dml.InvalidInput, "at least 96 bytes"),
        (lambda g, x: g.compile({"z": x + 1}).emit("c"), dml.InvalidInput, "text, llvm or asm"),
        (lambda g, x: g.compile({"z": x + 1}, threads=0), dml.InvalidInput, "a positive integer"),
    ],
)
def test_what_has_no_meaning_is_refused(wrong, error, told):
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [4, 6])
    with pytest.raises(error, match=told):
        wrong(g, x)


def test_an_output_must_not_overlap_an_input():
    g, x, y = graph()
    compiled = g.compile({"z": x + y})
    with pytest.raises(dml.InvalidInput, match="expected z apart from x"):
        compiled.bind({"x": X, "y": Y}, {"z": X})


def test_owned_inputs_are_given_once():
    g = dml.GraphBuilder()
    x, w = g.input("x", "FLOAT32", [4, 6]), g.input("w", "FLOAT32", [4, 6], flags="OWNED_BY_DML")
    compiled = g.compile({"y": x * w})
    with pytest.raises(dml.InvalidInput, match="initialize"):
        compiled({"x": X})
    compiled.initialize({"w": Y})
    assert np.array_equal(compiled({"x": X})["y"], X * Y)


def test_arrays_of_other_layouts():
    g, x, y = graph()
    compiled = g.compile({"z": x + y})
    got = compiled({"x": np.asfortranarray(X), "y": Y[:, ::-1]})["z"]
    assert np.array_equal(got, X + Y[:, ::-1])


# ---- to read -----------------------------------------------------------------------------------------


def test_explain_and_emit():
    g, x, y = graph()
    t = dml.exp(x)
    compiled = g.compile({"p": t * y, "q": t + 1})
    told = compiled.explain()
    assert told.splitlines()[0] == "1 kernel, 0 bytes of intermediate memory"
    assert "kernel 1: over [4, 6], 384 bytes moved" in told
    assert "  t0 = exp(x)" in told
    assert "  p = t0 * y" in told
    assert compiled.emit("text") == told
    assert "define void @row" in compiled.emit("llvm")
    assert "row:" in compiled.emit("asm")


@pytest.mark.parametrize("operator", ELEMENT_WISE, ids=lambda o: o.name)
def test_every_function_records(operator):
    """The record's example as a graph gives what the function gives at once."""
    example, g = operator.example, dml.GraphBuilder()
    arrays, expressions = [], []
    rank = max(np.ndim(x) for x in example.inputs if x is not None)
    for slot, content in zip(operator.inputs, example.inputs, strict=True):
        if content is None:
            arrays.append(None)
            expressions.append(None)
            continue
        dtype = operator.example_type(slot.dtype)
        array = np.array(content, dtype.label)
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        arrays.append(array)
        expressions.append(g.input(slot.parameter, dtype, array.shape))
    function = getattr(dml, operator.function)
    now, later = (function(*args, **example.attributes) for args in (arrays, expressions))
    feeds = {s.parameter: a for s, a in zip(operator.inputs, arrays, strict=True) if a is not None}
    got = g.compile({"result": later})(feeds)["result"]
    assert got.dtype == now.dtype
    assert np.array_equal(got, now, equal_nan=now.dtype.kind == "f")


def test_optional_outputs_that_nobody_reads_are_not_computed():
    """As if the description had left them out; GRU has two, one of which must be."""
    x = np.random.default_rng(8).standard_normal((1, 2, 6, 4)).astype(np.float32)
    g = dml.GraphBuilder()
    seen = g.input("x", "FLOAT32", x.shape)
    values, places = dml.max_pooling2(seen, [3, 2], strides=[3, 2])
    wanted = x.reshape(1, 2, 2, 3, 2, 2).max((3, 5))
    graph = g.compile({"y": values + 1})
    assert "OutputIndicesTensor" not in graph.explain()
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted + np.float32(1))
    both = g.compile({"y": values, "i": places})({"x": x})
    np.testing.assert_array_equal(both["y"], wanted)
    np.testing.assert_array_equal(x.ravel()[both["i"]], wanted)
    np.testing.assert_array_equal(g.compile({"i": places})({"x": x})["i"], both["i"])
    weights = [np.ones((1, 1, 3, n), np.float32) / 4 for n in (4, 1)]
    outputs = dml.gru(seen.reinterpret([1, 6, 2, 4]), *weights)
    eager = dml.gru(x.reshape(1, 6, 2, 4), *weights)
    for k, (output, right) in enumerate(zip(outputs, eager, strict=True)):
        graph = g.compile({"y": output})
        assert "OutputSequenceTensor" not in graph.explain()
        np.testing.assert_allclose(graph({"x": x})["y"], right, rtol=1e-6, err_msg=str(k))


def test_outputs_that_a_description_connects_to_nothing():
    def tensor(*sizes, type="FLOAT32"):
        return {"DataType": type, "Sizes": list(sizes)}

    small = tensor(1, 1, 2, 2)
    pool = {"InputTensor": tensor(1, 1, 4, 4), "OutputTensor": small, "Strides": [2, 2], "WindowSize": [2, 2]}
    pool |= {"OutputIndicesTensor": tensor(1, 1, 2, 2, type="UINT32"), "Dilations": [1, 1]}
    operator = {"Type": "MAX_POOLING2", "Desc": pool | {"StartPadding": [0, 0], "EndPadding": [0, 0]}}
    edges = {
        "InputEdges": [{"GraphInputIndex": 0, "ToNodeIndex": 0, "ToNodeInputIndex": 0}],
        "OutputEdges": [{"FromNodeIndex": 0, "FromNodeOutputIndex": 0, "GraphOutputIndex": 0}],
    }
    nodes = [{"Type": "OPERATOR", "Desc": {"Operator": operator, "Name": "pool"}}]
    graph = dml.Device().compile_graph({"InputCount": 1, "OutputCount": 1, "Nodes": nodes} | edges)
    assert "uint32" not in graph.explain()
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert graph({"input 0": x})["output 0"].tolist() == [[[[5, 7], [13, 15]]]]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: dml.gemm(x, y, 1.0),
        lambda x, y: dml.batch_normalization(x, 0.0, 1.0, 2.0, 0.5),
        lambda x, y: dml.mean_variance_normalization2(x, 2.0, axes=[1], use_mean=True, use_variance=True),
        lambda x, y: dml.gather(x, 1, axis=0, index_dimensions=1),
    ],
)
def test_numbers_beside_tensors_of_larger_operators(call):
    """Take the types of these, as in calls on arrays."""
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)
    g = dml.GraphBuilder()
    graph = g.compile({"made": call(g.input("x", "FLOAT32", [2, 3]), g.input("y", "FLOAT32", [3, 2]))})
    given = {name: v for name, v in (("x", x), ("y", y)) if name in graph.tensors}
    np.testing.assert_allclose(graph(given)["made"], call(x, y), rtol=1e-6)


def test_arrays_of_one_dimension_are_of_its_size():
    """Flat memory may be larger than a tensor of several dimensions needs, as on a device."""
    g = dml.GraphBuilder()
    a = g.input("a", "FLOAT32", [2])
    add = g.compile({"o": a + 1})
    for wrong in ([1, 2, 3], [1]):
        with pytest.raises(dml.InvalidInput, match="graph: a"):
            add({"a": np.float32(wrong)})
    bytes_ = g.compile({"o": g.input("b", "UINT8", [3]) + 1})
    assert bytes_({"b": np.uint8([1, 2, 3, 0])})["o"].tolist() == [2, 3, 4]  # rounded up to 4 bytes


def test_not_of_what_is_true():
    """~ of comparisons is theirs, of whatever layout; of numbers it is of their bits."""
    g = dml.GraphBuilder()
    a, b = g.input("a", "FLOAT32", [2, 2]), g.input("b", "UINT8", [2, 2])
    outputs = {
        "not": ~(a > 1),
        "chosen": dml.if_(~((a > 1) & (a < 3) | dml.is_infinity(a)), 100.0, a),
        "turned": ~(a > 1).transpose(),
        "twice": ~~(a > 1),
        "bits": ~((a > 1) & b),
        "of_numbers": ~((a > 1) ^ 1),
        "of_bytes": ~b,
    }
    x, y = np.float32([[0, 2], [3, np.inf]]), np.uint8([[1, 3], [3, 255]])
    made = g.compile(outputs)({"a": x, "b": y})
    truth = x > 1
    assert made["not"].tolist() == (~truth).tolist()
    assert made["chosen"].tolist() == [[100, 2], [100, np.inf]]
    assert made["turned"].tolist() == (~truth.T).tolist()
    assert made["twice"].tolist() == truth.tolist()
    assert made["bits"].tolist() == (~(truth & y)).tolist()
    assert made["of_numbers"].tolist() == (~(truth.astype(np.uint8) ^ 1)).tolist()
    assert made["of_bytes"].tolist() == (~y).tolist()
