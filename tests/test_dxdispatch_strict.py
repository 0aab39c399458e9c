"""What Direct3D's buffers ask of bindings: sizes, offsets, ranges apart; and what NumPy's rules take instead."""

import json

import numpy as np
import pytest

import anydml as dml
from anydml.dxdispatch.model import DispatchModel
from anydml.errors import InvalidInput, InvalidModel
from anydml.runtime.addresses import address
from tests.test_dxdispatch_files import run
from tests.test_serialized_graphs import BIAS, matmul_add


def zeros(count, dtype="FLOAT32", **more):
    return {"initialValuesDataType": dtype, "initialValues": {"valueCount": count, "value": 0}, **more}


def numbers(count, dtype="FLOAT32"):
    initial = {"valueCount": count, "valueStart": 1, "valueDelta": 1}
    return {"initialValuesDataType": dtype, "initialValues": initial}


def operator(kind, **tensors):
    """Of tensors of FLOAT32, as their sizes or as what else there is to be said of them."""
    described = {
        f"{name}Tensor": {"DataType": "FLOAT32", **(t if isinstance(t, dict) else {"Sizes": t})}
        for name, t in tensors.items()
    }
    return {"type": kind, "desc": described}


def dispatched(tmp_path, desc, resources, bindings, **options):
    command = {"type": "dispatch", "dispatchable": "op", "bindings": bindings}
    made, _ = run(tmp_path, resources=resources, dispatchables={"op": desc}, commands=[command], **options)
    return made


def refused(tmp_path, message, *parts):
    """Strictly; relaxed it runs."""
    with pytest.raises(InvalidModel, match=message) as caught:
        dispatched(tmp_path, *parts)
    assert "--relaxed" in str(caught.value)
    return dispatched(tmp_path, *parts, relaxed=True)


NEGATE = operator("ELEMENT_WISE_NEGATE", Input=[3], Output=[3])
ADD = operator("ELEMENT_WISE_ADD", A=[3], B=[3], Output=[3])


class TestSizes:
    def test_total_tensor_size(self, tmp_path):
        """Which a description may give; it is more than its elements reach."""
        desc = operator("ELEMENT_WISE_NEGATE", Input={"Sizes": [3], "TotalTensorSizeInBytes": 32}, Output=[3])
        parts = desc, {"A": numbers(3), "Out": zeros(3)}, {"InputTensor": "A", "OutputTensor": "Out"}
        message = r"m\.json: commands\[0\]\.bindings\.InputTensor: expected at least 32 bytes, but got 12; .*12 in use"
        made = refused(tmp_path, message, *parts)
        assert made.resources["Out"].values.tolist() == [-1, -2, -3]
        dispatched(tmp_path, desc, {"A": numbers(8), "Out": zeros(3)}, parts[2])

    def test_what_is_not_said_is_rounded_up(self, tmp_path):
        """Five halves have 10 bytes, and need 12, which buffers have unless they are told otherwise."""
        half = {"DataType": "FLOAT16", "Sizes": [5]}
        desc = operator("ELEMENT_WISE_NEGATE", Input=half, Output=half)
        bindings = {"InputTensor": "A", "OutputTensor": "Out"}
        dispatched(tmp_path, desc, {"A": numbers(5, "FLOAT16"), "Out": zeros(5, "FLOAT16")}, bindings)
        exact = zeros(5, "FLOAT16", sizeInBytes=10)
        message = r"bindings\.OutputTensor: expected at least 12 bytes, but got 10"
        made = refused(tmp_path, message, desc, {"A": numbers(5, "FLOAT16"), "Out": exact}, bindings)
        assert made.resources["Out"].values.tolist() == [-1, -2, -3, -4, -5]

    def test_behind_an_offset(self, tmp_path):
        bindings = {"InputTensor": {"name": "A", "elementOffset": 4}, "OutputTensor": "Out"}
        resources = {"A": numbers(6), "Out": zeros(3)}
        with pytest.raises(
            InvalidModel,
            match=r"at least 12 bytes, but got 8 from byte 16 of 'A' on; the tensor is float32 \[3\]",
        ):
            dispatched(tmp_path, NEGATE, resources, bindings)
        with pytest.raises(InvalidModel, match="expected at least 12 bytes, but got 8"):
            dispatched(tmp_path, NEGATE, resources, bindings, relaxed=True)

    def test_all_at_once(self, tmp_path):
        resources = {"A": numbers(1), "B": numbers(2), "Out": zeros(2)}
        bindings = {"ATensor": "A", "BTensor": "B", "OutputTensor": "Out"}
        with pytest.raises(InvalidModel) as caught:
            dispatched(tmp_path, ADD, resources, bindings)
        assert [str(p).split(": ")[1].rpartition(".")[2] for p in caught.value.problems] == list(bindings)

    def test_owned_tensors(self, tmp_path):
        given = {"Sizes": [3], "Flags": "OWNED_BY_DML", "TotalTensorSizeInBytes": 16}
        desc = operator("ELEMENT_WISE_NEGATE", Input=given, Output=[3]) | {"bindings": {"InputTensor": "A"}}
        message = r"dispatchables\.op\.bindings\.InputTensor: expected at least 16 bytes, but got 12"
        parts = desc, {"A": numbers(3), "Out": zeros(3)}, {"OutputTensor": "Out"}
        assert refused(tmp_path, message, *parts).resources["Out"].values.tolist() == [-1, -2, -3]


class TestOffsets:
    @pytest.mark.parametrize("offset", [1, 2, 3, 5])
    def test_multiples_of_16_bytes(self, tmp_path, offset):
        bindings = {"InputTensor": {"name": "A", "elementOffset": offset}, "OutputTensor": "Out"}
        parts = NEGATE, {"A": numbers(8), "Out": zeros(3)}, bindings
        message = (
            rf"bindings\.InputTensor: expected an offset that is a multiple of 16 bytes, but got {4 * offset}"
        )
        made = refused(tmp_path, message, *parts)
        assert made.resources["Out"].values.tolist() == [-offset - 1, -offset - 2, -offset - 3]

    @pytest.mark.parametrize("alignment", [16, 256, 65536])
    def test_promised_alignment(self, tmp_path, alignment):
        """Of the offset: buffers begin where Direct3D's do."""
        given = {"Sizes": [3], "GuaranteedBaseOffsetAlignment": alignment}
        desc = operator("ELEMENT_WISE_NEGATE", Input=given, Output=given)
        resources = {"A": numbers(3 + alignment // 4), "Out": zeros(3)}
        bindings = {"InputTensor": {"name": "A", "elementOffset": alignment // 4}, "OutputTensor": "Out"}
        made = dispatched(tmp_path, desc, resources, bindings)
        assert made.resources["Out"].values[0] == -alignment // 4 - 1
        assert address(made.resources["A"].data) % alignment == 0
        bindings["InputTensor"]["elementOffset"] = alignment // 8 // 4 * 4
        if alignment > 16:
            with pytest.raises(InvalidModel, match=rf"expected an address that is a multiple of {alignment}"):
                dispatched(tmp_path, desc, resources, bindings)


class TestRangesApart:
    def view(self, name, offset):
        return {"name": name, "elementOffset": offset}

    def test_one_buffer_for_all(self, tmp_path):
        """Bound ranges end where the buffer does; what counts is how much of them a tensor has."""
        bindings = {
            "ATensor": self.view("A", 0),
            "BTensor": self.view("A", 4),
            "OutputTensor": self.view("A", 8),
        }
        made = dispatched(tmp_path, ADD, {"A": numbers(12)}, bindings)
        assert made.resources["A"].values[8:].tolist() == [6, 8, 10, 12]

    def test_written_bytes_of_another(self, tmp_path):
        """By TotalTensorSizeInBytes, though no element is in both."""
        given = {"Sizes": [3], "TotalTensorSizeInBytes": 20}
        desc = operator("ELEMENT_WISE_NEGATE", Input=given, Output=[3])
        bindings = {"InputTensor": "A", "OutputTensor": self.view("A", 4)}
        message = r"bindings\.OutputTensor: expected memory apart from InputTensor's, but bytes 16 to 20 of 'A' are in both"
        made = refused(tmp_path, message, desc, {"A": numbers(8)}, bindings)
        assert made.resources["A"].values[4:7].tolist() == [-1, -2, -3]

    def test_what_is_read_twice(self, tmp_path):
        bindings = {"ATensor": "A", "BTensor": "A", "OutputTensor": "Out"}
        made = dispatched(tmp_path, ADD, {"A": numbers(3), "Out": zeros(3)}, bindings)
        assert made.resources["Out"].values.tolist() == [2, 4, 6]

    def test_in_place(self, tmp_path):
        made = dispatched(tmp_path, NEGATE, {"A": numbers(3)}, {"InputTensor": "A", "OutputTensor": "A"})
        assert made.resources["A"].values.tolist() == [-1, -2, -3]

    def test_in_place_of_another_size(self, tmp_path):
        """Exactly the same range is asked for, to the last byte that is nobody's."""
        given = {"Sizes": [3], "TotalTensorSizeInBytes": 16}
        desc = operator("ELEMENT_WISE_NEGATE", Input=given, Output=[3])
        bindings = {"InputTensor": "A", "OutputTensor": "A"}
        made = refused(tmp_path, "bytes 0 to 12 of 'A' are in both", desc, {"A": numbers(4)}, bindings)
        assert made.resources["A"].values.tolist() == [-1, -2, -3, 4]

    def test_in_place_where_it_is_not_allowed(self, tmp_path):
        desc = operator("DML_OPERATOR_REDUCE", Input=[1, 1, 1, 4], Output=[1, 1, 1, 1])
        desc["desc"] |= {"Function": "SUM", "Axes": [3]}
        bindings = {"InputTensor": "A", "OutputTensor": "A"}
        for relaxed in (False, True):
            with pytest.raises(InvalidModel, match="apart from InputTensor"):
                dispatched(tmp_path, desc, {"A": numbers(4)}, bindings, relaxed=relaxed)

    def test_two_outputs(self, tmp_path):
        tensor = {"DataType": "FLOAT32", "Sizes": [2]}
        desc = operator("DML_OPERATOR_SPLIT", Input=[4])
        desc["desc"] |= {"Axis": 0, "OutputCount": 2, "OutputTensors": [tensor, tensor]}
        resources = {"A": numbers(4), "Out": zeros(6)}
        bindings = {"InputTensor": "A", "OutputTensors": ["Out", self.view("Out", 4)]}
        made = dispatched(tmp_path, desc, resources, bindings)
        assert made.resources["Out"].values.tolist() == [1, 2, 0, 0, 3, 4]
        bindings["OutputTensors"][1] = "Out"
        with pytest.raises(
            InvalidModel, match=r"OutputTensors\[1\]: expected memory apart from OutputTensors\[0\]'s"
        ):
            dispatched(tmp_path, desc, resources, bindings)


class TestSerializedGraphs:
    """They have as many elements as their bindings tell, from a buffer's beginning."""

    @pytest.fixture
    def graph(self, tmp_path):
        (tmp_path / "graph.bin").write_bytes(matmul_add())
        (tmp_path / "bias.bin").write_bytes(BIAS.tobytes())
        return {"type": "dmlSerializedGraph", "sourcePath": "graph.bin", "executionFlags": "NONE"}

    def dispatched(self, tmp_path, graph, view, **options):
        resources = {"in": numbers(10), "out": zeros(6)}
        return dispatched(tmp_path, graph, resources, {"x": {"name": "in", **view}, "y": "out"}, **options)

    @pytest.mark.parametrize("view", [{}, {"elementCount": 6}, {"elementCount": 3, "elementSizeInBytes": 8}])
    def test_they_run(self, tmp_path, graph, view):
        made = self.dispatched(tmp_path, graph, view)
        assert made.resources["out"].values.tolist() == [14, 21, 7, -10, -19.5, 7]

    @pytest.mark.parametrize(
        ("view", "message"),
        [
            ({"elementCount": 5}, r"bindings\.x: expected at least 24 bytes, but got 20"),
            (
                {"elementOffset": 4, "elementCount": 6},
                "x: elementOffset: expected an offset of 0, but got 16",
            ),
            ({"elementCount": 11}, "x: elementCount: expected at most the buffer's 40 bytes, but got 44"),
        ],
    )
    def test_bindings_that_do_not_fit(self, tmp_path, graph, view, message):
        with pytest.raises(InvalidModel, match=message):
            self.dispatched(tmp_path, graph, view)
        self.dispatched(tmp_path, graph, view, relaxed=True)


def test_arrays_from_python_keep_numpys_rules():
    """Here, where nobody has Direct3D's buffers, what is reached must be there."""
    tensor = {"DataType": "FLOAT32", "Sizes": [3]}
    device = dml.Device()
    desc = {"InputTensor": {**tensor, "TotalTensorSizeInBytes": 32}, "OutputTensor": tensor}
    compiled = device.compile_operator(device.create_operator({"Type": "ELEMENT_WISE_NEGATE", "Desc": desc}))
    memory = np.float32([1, 2, 3, 0, 0, 0, 0])
    compiled.bind({"InputTensor": memory[:3]}, {"OutputTensor": memory[3:6]}).dispatch()
    assert memory.tolist() == [1, 2, 3, -1, -2, -3, 0]
    with pytest.raises(InvalidInput, match="expected at least 12 bytes, but got 8"):
        compiled.bind({"InputTensor": memory[:2]}, {"OutputTensor": memory[3:6]})


def test_what_is_relaxed_is_said_once(tmp_path):
    """Models are strict unless they are asked not to be."""
    given = {"Sizes": [3], "TotalTensorSizeInBytes": 32}
    parts = {
        "resources": {"A": numbers(3), "Out": zeros(3)},
        "dispatchables": {"op": operator("ELEMENT_WISE_NEGATE", Input=given, Output=[3])},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "op",
                "bindings": {"InputTensor": "A", "OutputTensor": "Out"},
            }
        ],
    }
    path = tmp_path / "m.json"
    path.write_text(json.dumps(parts))
    with pytest.raises(InvalidModel, match=r"--relaxed \(in Python relaxed=True\)"):
        DispatchModel(path)
    DispatchModel(path, relaxed=True).run(lambda line: None)
