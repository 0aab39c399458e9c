"""ONNX nodes that run as DirectML operators: they compute what onnx.reference computes."""

from functools import reduce

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import anydml as dml
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.directml import DirectMLForm

_FORMS = [(name, form) for name, info in OPS.items() for form in info.forms]

OPSET = 18
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    3e38,
    88.0,
    -104.0,
]
ATTRIBUTES = {
    "Softmax": [{"axis": 0}, {"axis": -2}],
    "LogSoftmax": [{"axis": 0}, {"axis": -2}],
    "LeakyRelu": [{"alpha": 0.3}],
    "Elu": [{"alpha": 0.7}],
    "HardSigmoid": [{"alpha": 0.3, "beta": 0.4}],
    "IsInf": [{"detect_positive": 0}, {"detect_negative": 0}],
    "Celu": [{"alpha": 0.7}],
    "Selu": [{"alpha": 0.7, "gamma": 1.5}],
    "ThresholdedRelu": [{"alpha": 0.3}],
    "BitShift": [{"direction": "LEFT"}, {"direction": "RIGHT"}],
    "Mod": [{"fmod": 1}],
    "Swish": [{"alpha": 0.7}],
    "Gelu": [{"approximate": "tanh"}],
}
CASTS = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()
OPSETS = {"Gelu": 20, "IsInf": 20, "Swish": 24}
SHAPES = {
    1: [((3, 70),), ((),)],
    2: [((3, 70), (70,)), ((3, 1), (1, 70)), ((), ())],
    **{n: [((3, 1), (70,), (), *[(3, 70)] * (n - 3))] for n in (3, 5, 16)},
}


def attributes_of(name, dtype):
    if name == "Cast":
        codes = [helper.np_dtype_to_tensor_dtype(np.dtype(to)) for to in CASTS if casts(dtype, to)]
        return [{"to": code} for code in codes]
    return [*([{}] if name not in ("BitShift", "Mod", *ALONG) else []), *ATTRIBUTES.get(name, [])]


ALONG = ("Softmax", "LogSoftmax")
"""Another axis than the last, which libraries turn tensors for."""


def casts(given, wanted):
    """Not of floats to integers, whose range they may leave; nor what rounds twice."""
    floats = (given.startswith("float"), wanted.startswith("float"))
    return (
        given != wanted
        and (floats != (True, False) or wanted == "bool")
        and {
            given,
            wanted,
        }
        != {"float16", "float64"}
    )


def shapes_of(name, count):
    if name in ALONG:
        return [((3, 70),), ((5, 3, 70),)]
    if name == "Clip":
        return [((3, 70), *[()] * (count - 1))]
    if name == "PRelu":
        return [((3, 70), (70,)), ((3, 70), (3, 1)), ((), ())]
    return SHAPES[count]


CASES = [
    (name, dtype, attributes, shapes)
    for name, form in _FORMS
    if not (form.left_out or form.mixed or form.operator.name == "ELEMENT_WISE_CLIP")
    and form.known is DirectMLForm.known  # see test_quantized_kernels, test_known_operands
    for dtype in sorted(form.types - {"bfloat16"})
    for attributes in attributes_of(name, dtype)
    for count in form.inputs
    if count in SHAPES
    for shapes in shapes_of(name, count)
]


def contents(rng, dtype, shape):
    count = int(np.prod(shape))
    if dtype == "bool":
        x = rng.integers(0, 2, count)
    elif dtype.startswith("float"):
        x = rng.standard_normal(count) * 3
        with np.errstate(all="ignore"):
            x[: len(SPECIAL)] = rng.permutation(SPECIAL)[:count]
    else:
        info = np.iinfo(dtype)
        x = rng.choice([info.min, info.max, 0, 1, 2, 7, 100], count)
    with np.errstate(all="ignore"):
        return x.reshape(shape).astype(dtype)


def model_of(name, arrays, attributes, opset):
    node = helper.make_node(name, [f"x{k}" for k in range(len(arrays))], ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim)
        for k, a in enumerate(arrays)
    ]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def evaluated(model, arrays):
    return np.asarray(ReferenceEvaluator(model).run(None, {f"x{k}": a for k, a in enumerate(arrays)})[0])


@pytest.mark.parametrize(("name", "dtype", "attributes", "shapes"), CASES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.drawn
def test_against_the_reference(name, dtype, attributes, shapes):
    rng = np.random.default_rng(len(name))
    first = max(form.first for other, form in _FORMS if other == name)
    arrays = [contents(rng, "bool" if k < first else dtype, s) for k, s in enumerate(shapes)]
    if name == "Clip":
        arrays[1:] = [np.sort(np.array([1, 5], dtype))[k] for k in range(len(arrays) - 1)]
        arrays[1:] = [np.asarray(a) for a in arrays[1:]]
    model = model_of(name, arrays, attributes, OPSETS.get(name, OPSET))
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    session = dml.load(model, threads=1)
    (got,) = session.run(None, feeds)
    assert f"kernels: {name}" in session.explain() or name == "Identity"  # which goes
    with np.errstate(all="ignore"):
        if name == "Softsign":  # onnx.reference stumbles over a scalar
            wanted = arrays[0] / (1 + abs(arrays[0]))
        elif name == "LogSoftmax":  # the reference takes logarithms of what underflows
            wide, axis = arrays[0].astype(float), attributes["axis"]
            wide = wide - wide.max(axis, keepdims=True)
            wanted = (wide - np.log(np.exp(wide).sum(axis, keepdims=True))).astype(dtype)
        elif name == "Mean":  # nor does the reference broadcast
            wide = np.float32 if dtype == "float16" else arrays[0].dtype.type
            wanted = (reduce(np.add, [a.astype(wide) for a in arrays]) / wide(len(arrays))).astype(dtype)
        elif dtype == "float16" and name != "Cast":  # of which the reference rounds the steps between
            wide = [a if a.dtype == bool else a.astype(np.float32) for a in arrays]
            wanted = evaluated(model_of(name, wide, attributes, OPSETS.get(name, OPSET)), wide)
            wanted = wanted.astype(dtype) if wanted.dtype == np.float32 else wanted
        else:
            wanted = evaluated(model, arrays)
    if name == "PRelu":  # the reference multiplies a zero, too
        wanted = np.where(arrays[0] == 0, arrays[0], wanted)
    if name == "Gelu":  # the formula's -inf * 0; ours is the limit
        limit = np.array(np.nan if attributes else -0.0, dtype)
        wanted = np.where(arrays[0] == -np.inf, limit, wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if got.dtype.kind == "f" and name not in ("Identity", "Where", "Neg", "Abs"):
        np.testing.assert_allclose(
            got,
            wanted,
            rtol=1e-3 if dtype == "float16" else 1e-5 if name == "Swish" else 2e-6,
            atol=1e-6
            if name in ("Sum", "Mean")
            else 1e-7
            if name in ("HardSigmoid", "HardSwish", "Gelu")
            else 1e-37,
        )
        kept = ~np.isnan(wanted) & (wanted != 0)
        np.testing.assert_array_equal(np.signbit(got)[kept], np.signbit(wanted)[kept])
    else:
        np.testing.assert_array_equal(got, wanted)


def test_a_group_with_several_outputs_and_constants():
    text = """<ir_version: 8, opset_import: ["": 18]>
    m (float[a, b] x, float[b] r, bool[a, 1] c) => (float[a, b] y, bool[a, b] t, float[b] s, float u)
    <float h = {0.5}, float[1, 2] w = {1, 2}> {
      a1 = Mul (x, h)  a2 = Add (a1, r)  t = Greater (a2, w)  n = Not (t)  both = And (n, c)
      y = Where (both, a2, x)  s = Abs (r)  u = Neg (h)
    }"""
    model = onnx.parser.parse_model(text)
    session = dml.load(model, threads=1)
    rng = np.random.default_rng(0)
    for rows in (1, 5, 0, 5):
        feeds = {
            "x": rng.standard_normal((rows, 2)).astype(np.float32),
            "r": rng.standard_normal(2).astype(np.float32),
            "c": rng.integers(0, 2, (rows, 1)).astype(bool),
        }
        for a, b in zip(session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, b)
            assert np.shape(a) == np.shape(b)


def test_where_groups_go():
    """Small ones stay beside what a library runs; large ones do not."""
    text = """<ir_version: 8, opset_import: ["": 18]>
    m (float[n, 64] x) => (float[n, 64] y) <float h = {0.5}> {
      a = MatMul (x, w)  b = Mul (a, h)  c = Add (b, x)  d = Sigmoid (c)  y = MatMul (d, w)
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    session = dml.load(model, threads=1)
    session.run(None, {"x": np.ones((2, 64), np.float32)})
    assert "onnxruntime: MatMul, Mul, Add, Sigmoid, MatMul" in session.explain()
    session.run(None, {"x": np.ones((1 << 17, 64), np.float32)})
    assert "kernels: Mul, Add, Sigmoid" in session.explain()
    x = np.random.default_rng(0).standard_normal((1 << 17, 64)).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], 1 / (1 + np.exp(-1.5 * x)), rtol=1e-5)


def test_arrays_that_are_not_packed():
    text = """<ir_version: 8, opset_import: ["": 18]>
    m (float[a, b] x, float[a, b] z) => (float[a, b] y) { t = Mul (x, z)  y = Sub (t, x) }"""
    session = dml.load(onnx.parser.parse_model(text))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = {"x": x.T[::-1], "z": np.broadcast_to(np.float32(3), (4, 3))}
    np.testing.assert_array_equal(session.run(None, given)[0], 2 * x.T[::-1])


def test_shapes_that_do_not_broadcast():
    text = """<ir_version: 8, opset_import: ["": 18]>
    m (float[a] x, float[b] z) => (float[c] y) { t = Neg (x)  y = Add (t, z) }"""
    session = dml.load(onnx.parser.parse_model(text))
    with pytest.raises(dml.ExecutionFailed, match=r"'y' \(Add\).*broadcast.*\(2,\), \(3,\)|\(2,\), \(3,\)"):
        session.run(None, {"x": np.float32([1, 2]), "z": np.float32([1, 2, 3])})


def test_a_bfloat16_is_moved_bit_by_bit():
    text = """<ir_version: 8, opset_import: ["": 18]>
    m (bool[n] c, bfloat16[n] x) => (bfloat16[n] y, bool[n] t) <bool no = {0}> {
      y = Where (c, x, h)  t = Or (c, no) }"""
    model = onnx.parser.parse_model(text)
    bfloat16 = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1.5, bfloat16), "h"))
    session = dml.load(model)
    c, x = np.array([True, False]), np.array([2, 3], bfloat16)
    y, t = session.run(None, {"c": c, "x": x})
    assert y.dtype == bfloat16
    assert y.astype(np.float32).tolist() == [2, 1.5]
    assert t.tolist() == [True, False]
    assert "kernels" in session.explain()


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (6, "Clip <min = -1.5, max = 2.0> (x)"),
        (10, "Clip <max = 2.0> (x)"),
        (13, "Clip (x, , two)"),
        (13, "Clip (x, one, two)"),
        (13, "Clip (x, one)"),
    ],
)
@pytest.mark.parametrize("shape", [(), (3, 70)])
def test_bounds(shape, opset, node, native):
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    m (float{list(shape) if shape else ""} x) => (float{list(shape) if shape else ""} y)
    <float[1] one = {{-1}}, float two = {{2}}> {{ y = {node} }}"""
    model = onnx.parser.parse_model(text)
    x = contents(np.random.default_rng(0), "float32", shape)
    session = dml.load(model, threads=1, native=native)
    (got,) = session.run(None, {"x": x})
    least = (
        -1.5 if "min" in node else -1 if "one" in node else -3.4028234663852886e38 if opset < 11 else -np.inf
    )
    most = 2 if "two" in node or "max" in node else np.inf
    np.testing.assert_array_equal(got, np.minimum(np.maximum(x, np.float32(least)), np.float32(most)))
    assert got.shape == shape
    assert (("program" if native else "kernels") + ": Clip") in session.explain()


def test_bounds_of_several_numbers():
    text = """<ir_version: 8, opset_import: ["": 13]>
    m (float[n] x, float[k] b) => (float[n] y) { a = Neg (x)  y = Clip (a, b) }"""
    session = dml.load(onnx.parser.parse_model(text), threads=1)
    with pytest.raises(dml.ExecutionFailed):
        session.run(None, {"x": np.ones(3, np.float32), "b": np.ones(3, np.float32)})


def test_what_stands_between_convolutions_stays():
    """Libraries compute these on blocks of channels: each cut takes more than kernels save."""
    rng = np.random.default_rng(1)
    nodes, weights, x = [], {"three": 3.0, "six": 6.0, "nothing": 0.0}, "x"
    for k in range(4):
        weights[f"w{k}"] = rng.standard_normal((88, 1 if k % 2 else 88, 3, 3)) / 30
        nodes += [
            onnx.helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], pads=[1] * 4, group=88 if k % 2 else 1),
            onnx.helper.make_node("Add", [f"c{k}", "three"], [f"a{k}"]),
            onnx.helper.make_node("Clip", [f"a{k}", "nothing", "six"], [f"r{k}"]),
            onnx.helper.make_node("Mul", [f"c{k}", f"r{k}"], [f"m{k}"]),
            onnx.helper.make_node("Div", [f"m{k}", "six"], [f"h{k}"]),
        ]
        x = f"h{k}"
    ends = [onnx.helper.make_tensor_value_info(n, 1, ["n", 88, 4, 96]) for n in ("x", x)]
    initializers = [onnx.numpy_helper.from_array(np.float32(w), n) for n, w in weights.items()]
    graph = onnx.helper.make_graph(nodes, "swishes", ends[:1], ends[1:], initializers)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    session = dml.load(model, threads=1)
    for n in (4, 4, 8):
        session.run(None, {"x": rng.standard_normal((n, 88, 4, 96)).astype(np.float32)})
    assert "kernels" not in session.explain()
