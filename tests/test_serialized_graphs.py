"""Serialized DirectML graphs: files made here by the flatbuffers package, read, run, and broken."""

import random
import struct

import flatbuffers
import numpy as np
import pytest

import anydml as dml
from anydml.directml.flatbuffer import root

UINT32, FLOAT32, UINTS, UNION, ACTIVATION, BOOL = 3, 6, 7, 12, 1, 13


class Writer:
    """The tables of DirectML's schema."""

    def __init__(self):
        self.b = flatbuffers.Builder(1024)

    def table(self, *fields):
        """Fields as (slot, kind, value); offsets are made before."""
        self.b.StartObject(max(slot for slot, _, _ in fields) + 1)
        for slot, kind, value in fields:
            if kind == "offset":
                self.b.PrependUOffsetTRelativeSlot(slot, value, 0)
            elif kind == "u8":
                self.b.PrependUint8Slot(slot, value, 0)
            elif kind == "u64":
                self.b.PrependUint64Slot(slot, value, 0)
        return self.b.EndObject()

    def offsets(self, items):
        self.b.StartVector(4, len(items), 4)
        for item in reversed(items):
            self.b.PrependUOffsetTRelative(item)
        return self.b.EndVector()

    def text(self, value):
        return self.b.CreateString(value)

    def texts(self, values):
        return self.offsets([self.text(v) for v in values])

    def numbers(self, values):
        return self.b.CreateNumpyVector(np.asarray(values))

    def tensor(self, sizes, strides=None, kind="FLOAT32", total=0):
        fields = [
            (0, "offset", self.text(f"DML_TENSOR_DATA_TYPE_{kind}")),
            (1, "offset", self.numbers(np.uint32(sizes))),
        ]
        if strides is not None:
            fields.append((2, "offset", self.numbers(np.uint32(strides))))
        return self.table(*fields, (3, "u64", total))

    def struct(self, form, *values):
        data = struct.pack(form, *values)
        self.b.Prep(8, len(data))
        self.b.head -= len(data)
        self.b.Bytes[self.b.head : self.b.head + len(data)] = data
        return self.b.Offset()

    def attribute(self, name, kind, value):
        if kind == UINTS:
            value = self.table((0, "offset", self.numbers(np.uint32(value))))
        elif kind == UNION:
            raw = self.table((0, "offset", self.numbers(np.frombuffer(value, np.uint8))))
            value = self.table((0, "u8", 1), (1, "offset", raw))
        elif kind == ACTIVATION:
            type, attributes = value
            parts = self.offsets([self.attribute(*a) for a in attributes])
            value = self.table((0, "offset", self.text(f"DML_OPERATOR_{type}")), (1, "offset", parts))
        else:
            value = self.struct({UINT32: "<I", FLOAT32: "<f", BOOL: "<?"}[kind], value)
        return self.table((0, "offset", self.text(name)), (1, "u8", kind), (2, "offset", value))

    def node(self, kind, desc, inputs, outputs, name):
        return self.table(
            (0, "u8", kind),
            (1, "offset", desc),
            (2, "offset", self.text(name)),
            (3, "offset", self.texts(inputs)),
            (4, "offset", self.texts(outputs)),
        )

    def operator(self, type, inputs, outputs, attributes=()):
        return self.table(
            (0, "offset", self.text(f"DML_OPERATOR_{type}")),
            (1, "offset", self.offsets(inputs)),
            (2, "offset", self.offsets(outputs)),
            (3, "offset", self.offsets([self.attribute(*a) for a in attributes])),
        )

    def constant(self, data=None, name=None):
        if data is None:
            return self.table((0, "u8", 1), (1, "offset", self.table((0, "offset", self.text(name)))))
        raw = self.table((0, "offset", self.numbers(np.frombuffer(data, np.uint8))))
        return self.table((0, "u8", 2), (1, "offset", raw))

    def graph(self, nodes, inputs, outputs):
        self.b.Finish(
            self.table(
                (0, "offset", self.offsets(nodes)),
                (1, "offset", self.texts(inputs)),
                (2, "offset", self.texts(outputs)),
            )
        )
        return bytes(self.b.Output())


def matmul_add():
    """y = relu(x @ w + b), w in the file and b beside it; then joined with a filled tensor."""
    w = Writer()
    t = lambda *sizes: w.tensor(sizes)  # noqa: E731
    gemm = w.operator(
        "GEMM",
        [t(2, 3), t(3, 2), t(2, 2)],
        [t(2, 2)],
        [
            ("TransA", UINT32, 0),
            ("TransB", UINT32, 0),
            ("Alpha", FLOAT32, 1.0),
            ("Beta", FLOAT32, 1.0),
            ("FusedActivation", ACTIVATION, ("ACTIVATION_LEAKY_RELU", [("Alpha", FLOAT32, 0.5)])),
        ],
    )
    fill = w.operator(
        "FILL_VALUE_CONSTANT",
        [],
        [t(2, 1)],
        [("ValueDataType", UINT32, 1), ("Value", UNION, struct.pack("<f", 7).ljust(8, b"\0"))],
    )
    join = w.operator("JOIN", [t(2, 2), t(2, 1)], [t(2, 3)], [("InputCount", UINT32, 2), ("Axis", UINT32, 1)])
    weights = np.float32([[1, 0], [0, -1], [1, 1]]).tobytes()
    nodes = [
        w.node(1, join, ["h", "seven"], ["y"], "join"),
        w.node(1, gemm, ["x", "w", "b"], ["h"], "product"),
        w.node(1, fill, [], ["seven"], "fill"),
        w.node(2, w.constant(weights), [], ["w"], "weights"),
        w.node(2, w.constant(name="bias"), [], ["b"], "bias"),
    ]
    return w.graph(nodes, ["x"], ["y"])


BIAS = np.float32([[10, 20], [-30, -40]])


def read(data):
    return dml.read_serialized_graph(data, lambda name: {"bias": BIAS.tobytes()}[name])


def test_a_graph_is_read_and_run():
    desc = read(matmul_add())
    assert desc.inputs == ["x"]
    assert [n.name for n in desc.nodes] == ["join", "product", "fill", "weights", "bias"]
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    h = x @ np.float32([[1, 0], [0, -1], [1, 1]]) + BIAS
    got = dml.Device().compile_graph(desc)({"x": x})["y"]
    assert got.tolist() == np.concatenate([np.where(h < 0, h / 2, h), [[7], [7]]], axis=1).tolist()


def test_dxdispatch_runs_it(tmp_path):
    from anydml.dxdispatch import DispatchModel

    (tmp_path / "graph.bin").write_bytes(matmul_add())
    (tmp_path / "bias.bin").write_bytes(BIAS.tobytes())
    (tmp_path / "model.json").write_text(
        """{"resources": {
            "in": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4, 5, 6]},
            "out": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 6, "value": 0}}},
          "dispatchables": {"g": {"type": "dmlSerializedGraph", "sourcePath": "graph.bin"}},
          "commands": [{"type": "dispatch", "dispatchable": "g", "bindings": {"x": "in", "y": "out"}},
                       {"type": "print", "resource": "out"}]}"""
    )
    lines = []
    DispatchModel(tmp_path / "model.json").run(lines.append)
    assert lines[-1] == "Resource 'out': 14, 21, 7, -10, -19.5, 7"


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 20, 100, 500])
def test_a_file_that_ends_early_is_told(length):
    with pytest.raises(dml.InvalidModel, match=r"byte|no nodes"):
        read(matmul_add()[:length])


def test_broken_files_never_do_more_than_be_refused():
    """Bytes and words of a good file replaced, one to four at a time."""
    good, rng = matmul_add(), random.Random(0)
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) - 4)
            if rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                word = rng.choice(
                    [0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, len(data), rng.randrange(1 << 32)]
                )
                data[at : at + 4] = struct.pack("<I", word)
        try:
            dml.Device().compile_graph(read(bytes(data)))
        except (dml.InvalidModel, dml.InvalidOperator, dml.Unsupported, KeyError):
            refused += 1
        except dml.OutOfMemory:
            refused += 1
    assert 500 < refused < 3000


def test_many_tables_behind_one_another_are_told():
    data = bytearray(16 + 8 * 40 + 8)
    struct.pack_into("<I", data, 0, 16)
    struct.pack_into("<HHHH", data, 4, 8, 8, 0, 4)
    for k in range(40):
        struct.pack_into("<iI", data, 16 + 8 * k, 12 + 8 * k, 4)
    table = root(bytes(data))
    assert table.text(5) == ""
    for _ in range(32):
        table = table.table(1)
    with pytest.raises(dml.InvalidModel, match="tables behind one another"):
        table.table(1)


def test_tables_that_share_others_again_and_again_are_told():
    """Each of a few tables, eight times in each of the next: 750 bytes, and 16 million tables to read."""
    w = Writer()
    act = w.table((0, "offset", w.text("ACTIVATION_RELU")))
    for _ in range(4):
        inner = w.table((0, "offset", w.offsets([act] * 8)))
        attribute = w.table((0, "offset", w.text("a")), (1, "u8", 2), (2, "offset", inner))
        act = w.table((0, "offset", w.text("ACTIVATION_RELU")), (1, "offset", w.offsets([attribute] * 8)))
    fused = w.table((0, "offset", w.text("a")), (1, "u8", ACTIVATION), (2, "offset", act))
    tensors = [w.offsets([w.tensor([4])]) for _ in "io"]
    operator = w.table(
        (0, "offset", w.text("ELEMENT_WISE_IDENTITY")),
        (1, "offset", tensors[0]),
        (2, "offset", tensors[1]),
        (3, "offset", w.offsets([fused])),
    )
    ends = [w.texts(["x"]), w.texts(["y"])]
    node = w.table((0, "u8", 1), (1, "offset", operator), (3, "offset", ends[0]), (4, "offset", ends[1]))
    w.b.Finish(w.table((0, "offset", w.offsets([node])), (1, "offset", ends[0]), (2, "offset", ends[1])))
    with pytest.raises(dml.InvalidModel, match="many share them"):
        dml.read_serialized_graph(bytes(w.b.Output()), constants=lambda name: b"")


# ---- descriptions of graphs ------------------------------------------------------------------------------

T = {"DataType": "FLOAT32", "Sizes": [2, 2]}
FIVE = {"DataType": "FLOAT32", "Sizes": [5]}
ADD = {"Type": "ELEMENT_WISE_ADD", "Desc": {"ATensor": T, "BTensor": T, "OutputTensor": T}}
NEGATE = {"Type": "ELEMENT_WISE_NEGATE", "Desc": {"InputTensor": T, "OutputTensor": T}}
X = np.float32([[1, 2], [3, 4]])


def test_edges_by_name():
    desc = dml.GraphDesc(
        [
            dml.OperatorNode(NEGATE, ["sum"], ["y"]),
            dml.OperatorNode(ADD, ["x", "c"], ["sum"], "add"),
            dml.ConstantNode(np.float32([[10, 20], [30, 40]]), "c"),
        ],
        ["x"],
        ["y", "sum"],
    )
    got = dml.Device().compile_graph(desc)({"x": X})
    assert got["sum"].tolist() == [[11, 22], [33, 44]]
    assert got["y"].tolist() == [[-11, -22], [-33, -44]]


def test_an_edge_reads_the_same_bytes_otherwise():
    """As another type of the same width, transposed, and by an operator of whole tensors with other sizes."""
    bits = {"DataType": "UINT32", "Sizes": [4]}
    count = {"Type": "ELEMENT_WISE_BIT_COUNT", "Desc": {"InputTensor": bits, "OutputTensor": bits}}
    turned = {**T, "Strides": [1, 2]}
    flip = {"Type": "ELEMENT_WISE_NEGATE", "Desc": {"InputTensor": turned, "OutputTensor": T}}
    bytes_ = {"DataType": "UINT8", "Sizes": [16]}
    part = {"DataType": "UINT8", "Sizes": [4]}
    slice_ = {
        "Type": "SLICE",
        "Desc": {"InputTensor": bytes_, "OutputTensor": part, "Offsets": [4], "Sizes": [4], "Strides": [1]},
    }
    nodes = [
        dml.OperatorNode(NEGATE, ["x"], ["n"]),
        dml.OperatorNode(count, ["n"], ["bits"]),
        dml.OperatorNode(flip, ["n"], ["turned"]),
        dml.OperatorNode(slice_, ["n"], ["bytes"]),
    ]
    got = dml.Device().compile_graph(dml.GraphDesc(nodes, ["x"], ["bits", "turned", "bytes"]))({"x": X})
    assert got["turned"].tolist() == X.T.tolist()
    assert got["bits"].tolist() == [bin(n).count("1") for n in (-X).view(np.uint32).ravel().tolist()]
    assert got["bytes"].tobytes() == (-X).ravel()[1:2].tobytes()


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "told"),
    [
        ([dml.OperatorNode(NEGATE, ["x"], ["y"])], ["x", "z"], ["y"], "input 'z': expected an edge from it"),
        ([dml.OperatorNode(NEGATE, ["x"], ["y"])], ["x"], ["z"], "output 'z': expected an edge to it"),
        ([dml.OperatorNode(NEGATE, ["z"], ["y"])], ["x"], ["y"], "something that gives edge 'z'"),
        ([dml.OperatorNode(NEGATE, ["x", "x"], ["y"])], ["x"], ["y"], "expected 1 input edges"),
        ([dml.OperatorNode(NEGATE, [""], ["y"])], ["x"], ["y"], "InputTensor: expected an edge"),
        ([dml.OperatorNode(NEGATE, ["y"], ["y"])], [], ["y"], "without cycles"),
        (
            [dml.OperatorNode(NEGATE, ["b"], ["a"]), dml.OperatorNode(NEGATE, ["a"], ["b"])],
            [],
            ["b"],
            "without cycles",
        ),
        (
            [dml.OperatorNode(NEGATE, ["x"], ["y"]), dml.OperatorNode(NEGATE, ["x"], ["y"])],
            ["x"],
            ["y"],
            "edge 'y': expected one node or input that gives it",
        ),
        (
            [dml.OperatorNode(NEGATE, ["c"], ["y"]), dml.ConstantNode(b"abc", "c")],
            [],
            ["y"],
            "constant 'c': expected at least 16 bytes",
        ),
        ([dml.OperatorNode({"Type": "NONSENSE"}, ["x"], ["y"], "odd")], ["x"], ["y"], "node 'odd'"),
        (
            [
                dml.OperatorNode(NEGATE, ["x"], ["n"]),
                dml.OperatorNode(
                    {
                        "Type": "ELEMENT_WISE_NEGATE",
                        "Desc": {"InputTensor": FIVE, "OutputTensor": FIVE},
                    },
                    ["n"],
                    ["y"],
                ),
            ],
            ["x"],
            ["y"],
            "expected TotalTensorSizeInBytes of 16",
        ),
    ],
)
def test_what_does_not_hold_together_is_told(nodes, inputs, outputs, told):
    with pytest.raises(dml.InvalidOperator, match=told):
        dml.Device().compile_graph(dml.GraphDesc(nodes, inputs, outputs))


def test_graphs_and_constants_have_their_levels():
    desc = {
        "InputCount": 0,
        "OutputCount": 1,
        "Nodes": [
            {"Type": "OPERATOR", "Desc": {"Operator": NEGATE}},
            {"Type": "CONSTANT", "Desc": {"Data": X}},
        ],
        "IntermediateEdges": [
            {"FromNodeIndex": 1, "FromNodeOutputIndex": 0, "ToNodeIndex": 0, "ToNodeInputIndex": 0}
        ],
        "OutputEdges": [{"FromNodeIndex": 0, "FromNodeOutputIndex": 0, "GraphOutputIndex": 0}],
    }
    assert dml.Device("6_2").compile_graph(desc)({})["output 0"].tolist() == (-X).tolist()
    with pytest.raises(dml.InvalidOperator, match="allowed from 6_2"):
        dml.Device("6_1").compile_graph(desc)
    with pytest.raises(dml.InvalidOperator, match="graphs exist from 2_1 on"):
        dml.Device("2_0").compile_graph(desc)
    for wrong in (
        {**desc, "Nodes": 7},
        {**desc, "Edges": []},
        {**desc, "OutputEdges": [{"FromNodeIndex": 9, "FromNodeOutputIndex": 0, "GraphOutputIndex": 0}]},
        {**desc, "Nodes": [{"Type": "THING"}]},
    ):
        with pytest.raises(dml.InvalidOperator, match="graph: "):
            dml.Device().compile_graph(wrong)
