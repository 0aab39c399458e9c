"""What a DML_GRAPH_DESC may say: edges, counts, constants, flags, and tensors of which the ends differ in sizes."""

import threading

import numpy as np
import pytest

import anydml as dml

T = {"DataType": "FLOAT32", "Sizes": [2, 2]}
OWNED = {**T, "Flags": "OWNED_BY_DML"}
X = np.float32([[1, 2], [3, 4]])
CONSTANT = {"Type": "CONSTANT", "Desc": {"Data": X}}


def tensor(sizes, dtype="FLOAT32", **fields):
    return {"DataType": dtype, "Sizes": sizes, **fields}


def operator(name, given, made, **fields):
    desc = {"Type": name, "Desc": {"InputTensor": given, "OutputTensor": made, **fields}}
    return {"Type": "OPERATOR", "Desc": {"Operator": desc}}


def negate(given=T, made=T):
    return operator("ELEMENT_WISE_NEGATE", given, made)


def into(source, node, point=0):
    return {"GraphInputIndex": source, "ToNodeIndex": node, "ToNodeInputIndex": point}


def out(node, target, point=0):
    return {"FromNodeIndex": node, "FromNodeOutputIndex": point, "GraphOutputIndex": target}


def between(node, target, at=0, point=0):
    its = {"FromNodeIndex": node, "FromNodeOutputIndex": at}
    return {**its, "ToNodeIndex": target, "ToNodeInputIndex": point}


def graph(nodes, inputs=(), middle=(), outputs=(), **fields):
    ends = [e["GraphInputIndex"] for e in inputs if isinstance(e, dict)]
    desc = {"InputCount": max(ends, default=-1) + 1, "OutputCount": len(outputs), "Nodes": nodes}
    desc |= {"InputEdges": [*inputs], "IntermediateEdges": [*middle], "OutputEdges": [*outputs]}
    return dml.Device().compile_graph({**desc, **fields})


def test_counts_edge_structures_and_names_as_the_header_has_them():
    edges = {
        "InputEdges": [{"Type": "DML_GRAPH_EDGE_TYPE_INPUT", "Desc": {**into(0, 0), "Name": "in"}}],
        "IntermediateEdges": [{"Type": "INTERMEDIATE", "Desc": between(0, 1)}],
        "OutputEdges": [{"Type": "OUTPUT", "Desc": out(1, 0)}],
    }
    counts = {"NodeCount": 2, "InputEdgeCount": 1, "IntermediateEdgeCount": 1, "OutputEdgeCount": 1}
    made = graph([negate(), negate()], [], [], [], **edges, **counts, InputCount=1, OutputCount=1)
    assert made({"input 0": X})["output 0"].tolist() == X.tolist()
    sized = {"Type": "CONSTANT", "Desc": {"Data": X.tobytes(), "DataSize": 16, "Name": "c"}}
    made = graph([sized, negate()], middle=[between(0, 1)], outputs=[out(1, 0)])
    assert made({})["output 0"].tolist() == (-X).tolist()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            lambda: graph([negate()], [into(0, 0), into(1, 0)], outputs=[out(0, 0)]),
            "InputEdges[1]: node 0, input 0",
        ),
        (
            lambda: graph([negate(), negate()], [into(0, 0), into(0, 1)], [between(0, 1)], [out(1, 0)]),
            "IntermediateEdges[0]: node 1, input 0: expected one edge to it",
        ),
        (
            lambda: graph([negate()], [into(0, 0, 1)], outputs=[out(0, 0)]),
            "InputEdges[0]: ToNodeInputIndex: expected a number from 0 to 0, as node 0, ELEMENT_WISE_NEGATE, "
            "has 1 input (InputTensor), but got 1",
        ),
        (
            lambda: graph([negate()], [into(0, 0)], outputs=[out(0, 0, 7)]),
            "FromNodeOutputIndex: expected a number from 0 to 0, as node 0, ELEMENT_WISE_NEGATE, has 1 output",
        ),
        (
            lambda: graph([CONSTANT, negate()], [into(0, 0)], [between(0, 1)], [out(1, 0)]),
            "InputEdges[0]: ToNodeInputIndex: expected no edge, as node 0, a constant, has 0 inputs",
        ),
        (
            lambda: graph([negate()], [into(0, 3)], outputs=[out(0, 0)]),
            "ToNodeIndex: expected a number from 0 to 0",
        ),
        (
            lambda: graph([negate()], [5], outputs=[out(0, 0)], InputCount=1),
            'an edge such as {"GraphInputIndex": 0',
        ),
        (lambda: graph([negate()], [into(0, 0)], outputs=[out(0, 0)], NodeCount=2), "NodeCount: expected 1"),
        (lambda: graph([negate()], [into(0, 0)], outputs=[out(0, 0)], OutputCount="x"), "OutputCount"),
        (
            lambda: graph([negate()], [into(0, 0)], outputs=[out(0, 0)], InputNames=[3]),
            "InputNames: expected names",
        ),
        (
            lambda: graph([negate()], [{**into(0, 0), "ToNodeInputIndx": 0}], outputs=[out(0, 0)]),
            "did you mean 'ToNodeInputIndex'?",
        ),
        (
            lambda: graph([{**negate(), "Nme": ""}], [into(0, 0)], outputs=[out(0, 0)]),
            "Nodes[0]: expected one of",
        ),
        (
            lambda: graph(
                [{"Type": "CONSTANT", "Desc": {"Data": X, "DataSize": 8}}, negate()],
                middle=[between(0, 1)],
                outputs=[out(1, 0)],
            ),
            "DataSize: expected 16, the bytes of Data, but got 8",
        ),
        (
            lambda: graph([negate(), negate(OWNED)], [into(0, 0)], [between(0, 1)], [out(1, 0)]),
            "node 1: InputTensor: expected an input of the graph, as it is OWNED_BY_DML",
        ),
        (
            lambda: graph([CONSTANT, negate(OWNED)], middle=[between(0, 1)], outputs=[out(1, 0)]),
            "expected an input of the graph, as it is OWNED_BY_DML",
        ),
        (
            lambda: graph(
                [negate(OWNED), negate()], [into(0, 0), into(0, 1)], outputs=[out(0, 0), out(1, 1)]
            ),
            "expected flags OWNED_BY_DML, as others that read input 'input 0' have, but got NONE",
        ),
        (
            lambda: dml.Device().compile_graph(dml.GraphDesc([1], ["x"], ["y"])),
            "node 0: expected an OperatorNode",
        ),
        (lambda: dml.Device().compile_graph(dml.GraphDesc(None, ["x"], ["y"])), "nodes: expected a list"),
        (lambda: dml.Device().compile_graph(dml.GraphDesc([], None, "y")), "inputs: expected names of edges"),
        (
            lambda: dml.Device().compile_graph(dml.GraphDesc([dml.ConstantNode("abc", "c")], [], ["c"])),
            "node 0: data: expected bytes or an array, but got str",
        ),
    ],
)
def test_what_contradicts_itself_is_told(made, told):
    with pytest.raises(dml.InvalidOperator) as caught:
        made()
    assert told in str(caught.value)


def test_operators_of_many_tensors():
    count, one = 70, tensor([1])
    desc = {
        "Type": "JOIN",
        "Desc": {"InputTensors": [one] * count, "OutputTensor": tensor([count]), "Axis": 0},
    }
    node = {"Type": "OPERATOR", "Desc": {"Operator": desc}}
    made = graph([node], [into(k, 0, k) for k in range(count)], outputs=[out(0, 0)])
    given = {f"input {k}": np.float32([k]) for k in range(count)}
    assert made(given)["output 0"].tolist() == [*range(count)]


def test_another_width_is_not_supported_rather_than_wrong():
    halves = tensor([8], "INT16")
    with pytest.raises(dml.Unsupported, match="DirectML takes it"):
        graph([negate(), negate(halves, halves)], [into(0, 0)], [between(0, 1)], [out(1, 0)])


# ---- ends that differ in sizes: as many bytes by TotalTensorSizeInBytes, but not by elements ------------------

MANY = 50_000
SMALL, LARGE = tensor([3], TotalTensorSizeInBytes=4 * MANY), tensor([MANY])
LAST = {
    "kernel": negate(LARGE, LARGE),
    "tensors": operator("TILE", LARGE, LARGE, Repeats=[1]),
}


@pytest.mark.parametrize("last", LAST)
def test_an_input_that_is_read_twice_has_as_many_bytes_as_are_read(last):
    made = graph(
        [negate(SMALL, tensor([3])), LAST[last]], [into(0, 0), into(0, 1)], outputs=[out(0, 0), out(1, 1)]
    )
    with pytest.raises(dml.InvalidInput, match=f"input 0: expected at least {4 * MANY} bytes, but got 12"):
        made({"input 0": np.float32([1, 2, 3])})
    x = np.arange(MANY, dtype=np.float32)
    y = made({"input 0": x})
    assert y["output 0"].tolist() == [0, -1, -2]
    assert np.array_equal(y["output 1"], -x if last == "kernel" else x)


@pytest.mark.parametrize("last", LAST)
def test_what_is_read_behind_an_intermediate_tensor_is_its_own(last):
    """Its first elements are what was written; the rest is anything, from memory of the graph's."""
    made = graph([negate(tensor([3]), SMALL), LAST[last]], [into(0, 0)], [between(0, 1)], [out(1, 0)])
    assert made._plan.scratch >= 4 * MANY
    found = made({"input 0": np.float32([1, 2, 3])})["output 0"]
    assert found.shape == (MANY,)
    assert found[:3].tolist() == ([1, 2, 3] if last == "kernel" else [-1, -2, -3])


@pytest.mark.parametrize("last", LAST)
def test_an_output_that_is_read_beyond_what_is_written_has_as_many_bytes(last):
    nodes = [negate(tensor([3]), SMALL), LAST[last]]
    made = graph(nodes, [into(0, 0)], [between(0, 1)], [out(0, 0), out(1, 1)])
    y = made({"input 0": np.float32([1, 2, 3])})
    assert y["output 0"].tolist() == [-1, -2, -3]
    assert y["output 1"].shape == (MANY,)
    with pytest.raises(dml.InvalidInput, match=f"output 0: expected at least {4 * MANY} bytes, but got 12"):
        made.bind(
            {"input 0": np.zeros(3, np.float32)},
            {"output 0": np.zeros(3, np.float32), "output 1": y["output 1"]},
        )


def test_constants_have_as_many_bytes_as_anyone_reads():
    def made(data, first, second):
        nodes = [{"Type": "CONSTANT", "Desc": {"Data": data}}, negate(*first), negate(*second)]
        return graph(nodes, middle=[between(0, 1), between(0, 2)], outputs=[out(1, 0), out(2, 1)])

    with pytest.raises(dml.InvalidOperator, match=f"expected at least {4 * MANY} bytes for node 2"):
        made(np.float32([1, 2, 3]), (SMALL, tensor([3])), (LARGE, LARGE))
    one, three = tensor([1], "INT8"), tensor([3], "INT8")
    assert made(np.int8([1, 2, 3]), (one, one), (three, three))({})["output 1"].tolist() == [-1, -2, -3]


def test_sizes_are_rounded_up_to_four_bytes():
    """UINT8 [1] and [4] have one total size, so that an edge may join them."""
    one, four = tensor([1], "INT8"), tensor([4], "INT8")
    made = graph(
        [negate(one, one), negate(four, four)], [into(0, 0), into(0, 1)], outputs=[out(0, 0), out(1, 1)]
    )
    with pytest.raises(dml.InvalidInput, match="expected at least 4 bytes, but got 1"):
        made({"input 0": np.int8([7])})
    assert made({"input 0": np.int8([1, 2, 3, 4])})["output 1"].tolist() == [-1, -2, -3, -4]


def test_a_reduction_reads_another_width():
    """A kernel has no words for it, and so it is a step of its own."""
    four, two = tensor([4]), tensor([2], "INT64")
    total = operator("REDUCE", two, tensor([1], "INT64"), Function="SUM", Axes=[0])
    made = graph(
        [operator("ELEMENT_WISE_ABS", four, four), total], [into(0, 0)], [between(0, 1)], [out(1, 0)]
    )
    x = np.float32([1, -2, 3, 4])
    assert made({"input 0": x})["output 0"].tolist() == [int(abs(x).view(np.int64).sum())]


def test_elements_of_four_bits_are_checked():
    fields = {"QuantizationTensors": [tensor([1, 1])], "QuantizationType": "SCALE"}
    node = operator("DEQUANTIZE", tensor([2, 5], "INT4"), tensor([2, 5]), **fields)
    made = graph([node], [into(0, 0), into(1, 0, 1)], outputs=[out(0, 0)])
    scale, x = np.ones((1, 1), np.float32), np.int8([[-8, -1, 0, 1, 7]] * 2)
    assert made({"input 0": x, "input 1": scale})["output 0"].tolist() == x.tolist()
    for wrong in (x.astype(np.float32), x.astype(np.int64), x.astype(object), x * 2, [[1] * 5] * 2):
        with pytest.raises(dml.InvalidInput, match="input 0: expected"):
            made({"input 0": wrong, "input 1": scale})


def test_four_bits_leave_what_lies_behind_them():
    fields = {"QuantizationTensors": [tensor([1])], "QuantizationType": "SCALE"}
    node = operator("QUANTIZE", tensor([3]), tensor([3], "INT4"), **fields)
    made, y = graph([node], [into(0, 0), into(1, 0, 1)], outputs=[out(0, 0)]), np.full(1 << 20, 255, np.uint8)
    bound = made.bind({"input 0": np.float32([1, 2, 3]), "input 1": np.ones(1, np.float32)}, {"output 0": y})
    behind = y[2:]
    behind.flags.writeable = False
    bound.dispatch()
    assert y[:3].tolist() == [0x21, 0xF3, 255]
    assert (behind == 255).all()


def test_a_binding_in_several_threads():
    """Its intermediate memory is for one dispatch at a time."""
    n = 120
    g = dml.GraphBuilder(dml.Device(threads=1))
    v = g.input("x", "FLOAT32", [n, n])
    for k in range(6):
        v = (
            dml.cumulative_summation(v, axis=k % 2, axis_direction="INCREASING", has_exclusive_sum=False) / n
            - k
        )
    a, y = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32), np.zeros((n, n), np.float32)
    bound = g.compile({"y": v}).bind({"x": a}, {"y": y})
    bound.dispatch()
    wanted = y.copy()
    for _ in range(30):
        threads = [threading.Thread(target=lambda: [bound.dispatch() for _ in range(3)]) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert np.array_equal(y, wanted)


@pytest.mark.parametrize("data", [np.array([1.0], object), np.ma.masked_array([1.0], [True])])
def test_constants_that_bytes_do_not_say(data):
    with pytest.raises(dml.InvalidOperator, match="data: expected bytes or an array, but got"):
        dml.Device().compile_graph(dml.GraphDesc([dml.ConstantNode(data, "c")], [], []))


def test_what_was_checked_stays_so():
    made = dml.Device().create_operator(
        {"Type": "ELEMENT_WISE_NEGATE", "Desc": {"InputTensor": T, "OutputTensor": T}}
    )
    with pytest.raises(TypeError):
        made.tensors["InputTensor"] = None
    with pytest.raises(TypeError):
        made.attributes["ScaleBias"] = None


# ---- fused activations ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [[3, 3], [2, 3, 3], [4], [9], [-1], [2**32 - 1], []])
def test_axes_of_a_fused_activation_are_those_of_the_output(axes):
    sizes = {"ATensor": [1, 1, 2, 2], "BTensor": [1, 1, 2, 3], "OutputTensor": [1, 1, 2, 3]}
    fused = {"Type": "ACTIVATION_SOFTMAX1", "Desc": {"AxisCount": len(axes), "Axes": axes}}
    numbers = {"TransA": "NONE", "TransB": "NONE", "Alpha": 1, "Beta": 0, "FusedActivation": fused}
    desc = {"Type": "GEMM", "Desc": {**{n: tensor(s) for n, s in sizes.items()}, **numbers}}
    problems = dml.validate(desc)
    assert len(problems) == 1
    assert "GEMM: FusedActivation: ACTIVATION_SOFTMAX1: Axes: expected" in str(problems[0])


def test_axes_of_a_fused_activation_in_functions():
    def fused(*axes):
        return dml.gemm(X, X, fused_activation={"Type": "ACTIVATION_SOFTMAX1", "Desc": {"Axes": axes}})

    assert np.array_equal(fused(-1), fused(1))
    assert np.array_equal(fused(0, -1), fused(0, 1))
    for axes in ([1, -1], [2], [-3], []):
        with pytest.raises(
            dml.InvalidOperator, match="fused_activation: ACTIVATION_SOFTMAX1: Axes: expected"
        ):
            fused(*axes)
