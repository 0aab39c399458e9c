"""Operators of whole tensors: each one's example at once, in a graph, on a device, and in a DirectML graph."""

import pickle

import numpy as np
import pytest

import anydml as dml
from anydml.ops.call import field
from anydml.ops.catalog import CATALOG
from anydml.ops.dtypes import FROM_NUMPY
from anydml.ops.row_expressions import OF_ROWS

OPERATORS = [o for o in CATALOG if o.scalar is None]
every_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)


def arguments(operator):
    """The example's arguments by name: arrays of its types."""
    found = {}
    for operand, content in zip(operator.inputs, operator.example.inputs, strict=True):
        label = operator.example_type(operand.dtype).label
        label = {"int4": "int8", "uint4": "uint8"}.get(label, label)
        several = operand.array and content is not None
        found[operand.parameter] = (
            [np.array(x, label) for x in content]
            if several
            else None
            if content is None
            else np.array(content, label)
        )
    return found | dict(operator.example.attributes)


def results(operator, given):
    made = getattr(dml, operator.function)(**given)
    return list(made) if operator.gives_several else [made]


def tensors(operands, arrays):
    """Arrays by field name."""
    found = {}
    for operand, x in zip(operands, arrays, strict=True):
        if operand.array:
            found |= {field(operand.name, k): y for k, y in enumerate(x)}
        elif x is not None:
            found[operand.name] = x
    return found


def example_desc(operator, given, made):
    """The example as a description, and its arrays by field name."""
    inputs = tensors(operator.inputs, [given.get(s.parameter) for s in operator.inputs])
    outputs = tensors(operator.outputs, [made] if operator.outputs[0].array else made)
    fields = {}
    for name, x in (inputs | outputs).items():
        desc = dml.TensorDesc(FROM_NUMPY[x.dtype], x.shape)
        if "[" in name:
            fields.setdefault(name.partition("[")[0], []).append(desc)
        else:
            fields[name] = desc
    rank = max(x.ndim for x in (inputs or outputs).values())
    for a in operator.attributes:
        value = FROM_NUMPY[made[0].dtype] if a.implied else given.get(a.parameter, a.default)
        if isinstance(value, int | float) and a.per:
            value = [value] * (rank if a.per == "dimension" else rank - 2)
        if value is not None:
            fields[a.name] = value
    return {"Type": operator.name, "Desc": fields}, inputs, outputs


@every_operator
def test_results_are_owned_and_can_be_written_to(operator):
    given = arguments(operator)
    for x in results(operator, given):
        assert x.flags.c_contiguous
        assert x.flags.writeable
        for y in given.values():
            for z in y if isinstance(y, list) else [y]:
                assert not isinstance(z, np.ndarray) or not np.shares_memory(x, z)


@every_operator
def test_out(operator):
    given = arguments(operator)
    wanted = results(operator, given)
    out = [np.zeros_like(x) for x in wanted]
    target = tuple(out) if operator.gives_several else out[0]
    assert getattr(dml, operator.function)(**given, out=target) is target
    for x, y in zip(out, wanted, strict=True):
        np.testing.assert_array_equal(x, y)
    wrong = np.zeros((*wanted[0].shape, 2), wanted[0].dtype)
    with pytest.raises(dml.InvalidInput, match="out"):
        getattr(dml, operator.function)(**given, out=(wrong, *out[1:]) if operator.gives_several else wrong)


@every_operator
def test_a_device_computes_what_the_function_does(operator):
    given = arguments(operator)
    made = results(operator, given)
    desc, inputs, outputs = example_desc(operator, given, made)
    device = dml.Device()
    compiled = device.compile_operator(device.create_operator(desc))
    for way in (compiled, pickle.loads(pickle.dumps(compiled))):
        targets = {name: np.zeros_like(x) for name, x in outputs.items()}
        way.dispatch(inputs, targets)
        for name, x in outputs.items():
            np.testing.assert_array_equal(targets[name], x)
    assert operator.name in compiled.explain() or operator.name in OF_ROWS  # which are formulas


@every_operator
def test_a_device_reads_and_writes_through_strides(operator):
    """Each tensor in every second element of its memory; what lies between stays."""
    given = arguments(operator)
    made = results(operator, given)
    desc, inputs, outputs = example_desc(operator, given, made)

    def spread(tensor):
        strides = [2 * s for s in tensor.effective_strides]
        return dml.TensorDesc(tensor.data_type, tensor.sizes, strides)

    for name, value in desc["Desc"].items():
        if isinstance(value, dml.TensorDesc):
            desc["Desc"][name] = spread(value)
        elif isinstance(value, list) and value and isinstance(value[0], dml.TensorDesc):
            desc["Desc"][name] = [spread(v) for v in value]
    apart = {}
    for name, x in inputs.items():
        apart[name] = np.zeros(2 * x.size, x.dtype)
        apart[name][::2] = x.ravel()
    targets = {name: np.full(2 * x.size, 77, x.dtype) for name, x in outputs.items()}
    device = dml.Device()
    device.compile_operator(device.create_operator(desc)).dispatch(apart, targets)
    for name, x in outputs.items():
        np.testing.assert_array_equal(targets[name][::2], x.ravel())
        assert (targets[name][1::2] == 77).all()


@every_operator
def test_a_graph_computes_what_the_function_does(operator):
    """With every tensor an input of the graph, and with arrays as constants beside the first."""
    given = arguments(operator)
    wanted = results(operator, given)
    operands = [s for s in operator.inputs if given[s.parameter] is not None]
    if not operands:
        return
    for constants in (False, True):
        g, feeds, args = dml.GraphBuilder(), {}, dict(given)
        for operand in operands[: 1 if constants else None]:
            several = given[operand.parameter] if operand.array else [given[operand.parameter]]
            made = []
            for k, x in enumerate(several):
                name = f"{operand.parameter}{k}"
                made.append(g.input(name, FROM_NUMPY[x.dtype], x.shape))
                feeds[name] = x
            args[operand.parameter] = made if operand.array else made[0]
        nodes = getattr(dml, operator.function)(**args)
        nodes = nodes if operator.gives_several else (nodes,)
        compiled = g.compile({f"y{k}": node for k, node in enumerate(nodes)})
        got = compiled(feeds)
        for k, x in enumerate(wanted):
            np.testing.assert_array_equal(got[f"y{k}"], x)


@every_operator
def test_a_device_of_each_level_takes_the_example_or_tells_why_not(operator):
    given = arguments(operator)
    desc, _, _ = example_desc(operator, given, results(operator, given))
    for level in dml.FeatureLevel:
        problems = dml.validate(desc, feature_level=level)
        if level < operator.introduced:
            assert any(operator.introduced.label in p.message or p.remedy for p in problems)
        elif problems:
            assert all("expected" in p.message for p in problems)
    assert not dml.validate(desc)


def test_a_directml_graph_of_several():
    """y = relu(gemm(x, w) + b), the weights as a constant, the edges by index."""
    x = np.float32([[1, -2], [3, 4]])
    w = np.float32([[1, 0], [0, 1]])
    t = {"DataType": "FLOAT32", "Sizes": [2, 2]}
    gemm = {
        "Type": "GEMM",
        "Desc": {
            "ATensor": t,
            "BTensor": t,
            "OutputTensor": t,
            "TransA": 0,
            "TransB": 0,
            "Alpha": 1,
            "Beta": 0,
        },
    }
    relu = {"Type": "ACTIVATION_RELU", "Desc": {"InputTensor": t, "OutputTensor": t}}
    device = dml.Device()
    compiled = device.compile_graph(
        {
            "InputCount": 1,
            "OutputCount": 1,
            "Nodes": [
                {"Type": "OPERATOR", "Desc": {"Operator": device.create_operator(gemm), "Name": "product"}},
                {"Type": "OPERATOR", "Desc": {"Operator": relu}},
                {"Type": "CONSTANT", "Desc": {"Data": w}},
            ],
            "InputEdges": [{"GraphInputIndex": 0, "ToNodeIndex": 0, "ToNodeInputIndex": 0}],
            "OutputEdges": [{"FromNodeIndex": 1, "FromNodeOutputIndex": 0, "GraphOutputIndex": 0}],
            "IntermediateEdges": [
                {"FromNodeIndex": 2, "FromNodeOutputIndex": 0, "ToNodeIndex": 0, "ToNodeInputIndex": 1},
                {"FromNodeIndex": 0, "FromNodeOutputIndex": 0, "ToNodeIndex": 1, "ToNodeInputIndex": 0},
            ],
        }
    )
    np.testing.assert_array_equal(compiled({"input 0": x})["output 0"], np.maximum(x, 0))


# ---- where to write ----------------------------------------------------------------------------------------


def test_results_are_all_computed_before_the_first_is_written():
    """SPLIT's results are parts of its input: one written at once would change the other."""
    x = np.arange(4, dtype=np.float32)
    dml.split(x, [2, 2], 0, out=(x[2:], x[:2]))
    assert x.tolist() == [2, 3, 0, 1]
    grid = np.arange(9, dtype=np.float32).reshape(3, 3)
    dml.gather(grid, np.uint32([[2, 1, 0]]), 1, 1, out=grid)
    assert grid.tolist() == [[2, 1, 0], [5, 4, 3], [8, 7, 6]]


def test_targets_that_overlap_are_refused():
    x, y = np.zeros(4, np.float32), np.full(3, 7, np.float32)
    with pytest.raises(dml.InvalidInput, match="arrays apart"):
        dml.split(x, [2, 2], 0, out=(y[:2], y[1:]))
    twice = np.lib.stride_tricks.as_strided(y, (2, 2), (4, 4))
    with pytest.raises(dml.InvalidInput, match="overlaps itself"):
        dml.reduce(np.zeros((2, 2, 1), np.float32), "SUM", [2], out=twice[..., None])
    assert y.tolist() == [7, 7, 7]


def test_out_decides_a_type_that_is_free():
    x = np.float32([[3, 1, 2]])
    indices = np.zeros((1, 1), np.uint64)
    assert dml.argmax(x, [1], out=indices) is indices
    assert dml.argmax(x, [1]).dtype == np.uint32
    matrix = np.zeros((2, 2), np.int16)
    dml.diagonal_matrix1(None, [2, 2], value=3, diagonal_fill_begin=0, diagonal_fill_end=1, out=matrix)
    assert matrix.tolist() == [[3, 0], [0, 3]]


def test_a_number_alone_is_no_tensor():
    with pytest.raises(dml.InvalidInput, match="expected an array, but got a number"):
        dml.reduce(2.5, "SUM", [0])


def test_sizes_beyond_all_bounds_are_refused():
    with pytest.raises(dml.InvalidOperator, match="Sizes"):
        dml.resample(np.float32([1, 2]), interpolation_mode="LINEAR", scales=[3e38])


def test_calls_that_look_alike_are_told_apart():
    """Again and again in turns: types, attributes, ways to write them, layouts."""
    x = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    rows = np.int32([[2, -3]])
    calls = [
        lambda: dml.gather(x, rows, axis=0, index_dimensions=1),
        lambda: dml.gather(x.astype(np.float16), rows, axis=0, index_dimensions=1),
        lambda: dml.gather(x > 0, rows, axis=0, index_dimensions=1),
        lambda: dml.gather(x.astype(">f4"), rows, 0, 1),
        lambda: dml.gather(x, rows, index_dimensions=1, axis=1),
        lambda: dml.gather(x.T, rows, 0, 1),
        lambda: dml.split(x, [1, 3], axis=1),
        lambda: dml.split(x, (3, 1), axis=1),
        lambda: dml.join([x, x[:, 1:]], axis=1),
        lambda: dml.join((x[:, 1:], x), axis=1),
        lambda: dml.reduce(x, "SUM", [1]),
        lambda: dml.reduce(x, dml.ReduceFunction.SUM, [0]),
        lambda: dml.reduce(x.astype(np.float16), "SUM", [1]),
        lambda: dml.mean_variance_normalization1(x, axes=[1], normalize_variance=True, epsilon=0.0),
        lambda: dml.mean_variance_normalization1(x, axes=[1], normalize_variance=False, epsilon=0.0),
        lambda: dml.mean_variance_normalization1(x, None, x[:1], axes=[1], normalize_variance=True),
        lambda: dml.mean_variance_normalization1(x, x[:1], axes=[1], normalize_variance=True),
        lambda: dml.mean_variance_normalization1(x, x[:1], None, axes=[1], normalize_variance=True),
    ]
    first = [call() for call in calls]
    for _ in range(3):
        for call, wanted in zip(calls, first, strict=True):
            got = call()
            assert type(got) is type(wanted)
            pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
            for y, z in pairs:
                assert y.dtype == z.dtype
                assert y.tobytes() == z.tobytes()
                assert y.flags.writeable
                y[...] = 0  # it is the caller's: no later call shows it
    assert not np.array_equal(first[4], first[5])
    assert first[1].dtype == np.float16


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            lambda z: dml.gemm(z, z, 1.0),
            r"GEMM: a: expected float16 \| float32, but got complex64; convert it",
        ),
        (lambda z: dml.reduce(z.astype(object), "SUM", [0]), "REDUCE: input: expected .*, but got object"),
        (
            lambda z: dml.fill_value_constant([2, [3]], 1.0),
            r"output_sizes: expected whole numbers, but got \[2,",
        ),
        (lambda z: dml.fill_value_constant([2, np.ones(2)], 1.0), "output_sizes: expected whole numbers"),
    ],
)
def test_what_numpy_cannot_say_better(call, told):
    with pytest.raises(dml.AnyDMLError, match=told):
        call(np.zeros((2, 2), np.complex64))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("depth", [33_000, 33_100, 70_001])
def test_sums_that_int32_has_not(dtype, depth):
    """Are exact where they are scaled, and modulo 2^32 where INT32 is the result."""
    value, zero = (255, 0) if dtype is np.uint8 else (-128, 127)
    a, one, z = np.full((1, depth), value, dtype), np.float32([[1]]), np.full((1, 1), zero, dtype)
    exact = depth * (value - zero) ** 2
    found = dml.matrix_multiply_integer_to_float(a, one, z, a.T, one, z)
    assert found[0, 0] == np.float32(exact)
    whole = dml.matrix_multiply_integer(a, z, a.T, z)[0, 0]
    assert whole == (exact + 2**31) % 2**32 - 2**31
    scale, named = np.float32([[1e8]]), np.dtype(dtype).name.upper()
    scaled = dml.quantized_linear_matrix_multiply(a, one, z, a.T, one, z, scale, output_data_type=named)
    assert scaled[0, 0] == np.rint(exact / 1e8)
    x, ones, zeros = a.reshape(1, 1, 1, depth), np.ones((1, 1, 1, 1), np.float32), z.reshape(1, 1, 1, 1)
    scaled = dml.quantized_linear_convolution(
        x, ones, zeros, x, ones, zeros, None, ones * np.float32(1e8), output_data_type=named
    )
    assert scaled.ravel()[0] == np.rint(exact / 1e8)
