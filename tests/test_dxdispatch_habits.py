"""How DxDispatch reads its files: what its parser takes, and what it makes of it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import anydml as dml
from anydml.dxdispatch.json_text import entries, parse_json
from anydml.dxdispatch.model import DispatchModel
from anydml.errors import AnyDMLError, InvalidInput, InvalidModel
from tests.test_dxdispatch import clip, lines, model, written
from tests.test_dxdispatch_files import identity, run


def floats(*values, **more):
    return {"initialValuesDataType": "FLOAT32", "initialValues": list(values), **more}


def copy(**bindings):
    return {"type": "dispatch", "dispatchable": "copy", "bindings": bindings}


class TestText:
    def test_a_name_twice(self):
        """Of fields the first counts, of what has names of its own the last."""
        value = parse_json(b'{"a": 1, "b": 5, "a": 2, "a": 3}', "x")
        assert value == {"a": 1, "b": 5}
        assert list(value) == ["a", "b"]
        assert dict(entries(value)) == {"a": 3, "b": 5}
        assert parse_json(b'{"a": {"c": 1, "c": 2}}', "x") == {"a": {"c": 1}}

    def test_a_name_twice_in_a_model(self, tmp_path):
        text = json.dumps(model(commands=[{"type": "print", "resource": "A"}]))
        first = text.replace('"valueStart": 1', '"valueStart": 5, "valueStart": 1')
        assert lines(written(tmp_path, first))[-1] == "Resource 'A': 5, 5.5, 6, 6.5"
        first = text.replace('"commands":', '"commands": [{"type": "print", "resource": "C"}], "commands":')
        assert lines(written(tmp_path, first))[1:] == ["Resource 'C': 1, 0, 255, 0"]
        last = text.replace('"Out": {', f'"A": {json.dumps(floats(9, 8, 7, 6))}, "Out": {{')
        assert lines(written(tmp_path, last))[-1] == "Resource 'A': 9, 8, 7, 6"

    def test_a_bind_point_twice(self, tmp_path):
        text = json.dumps(model()).replace('"ATensor": "A"', '"ATensor": "B", "ATensor": "A"')
        assert lines(written(tmp_path, text))[2] == "Resource 'Out': 1, -inf, 2, nan"

    @pytest.mark.parametrize("rest", ["}", " and so on", '\n{"more": 1}', '"', "/* open", "\0", "\n\n// x"])
    def test_text_after_the_value(self, tmp_path, rest):
        said = lines(written(tmp_path, json.dumps(model()) + rest))
        assert said[2] == "Resource 'Out': 1, -inf, 2, nan"

    def test_comments_in_any_encoding(self, tmp_path):
        """Of old editors; and what follows the value is not even text."""
        path = tmp_path / "m.json"
        path.write_bytes(b"\xef\xbb\xbf// gr\xf6\xdfe\n" + json.dumps(model()).encode() + b"\xff\xfe")
        assert lines(path)[2] == "Resource 'Out': 1, -inf, 2, nan"
        path.write_bytes(b'\xef\xbb\xbf{"resources": "\xf6"}')
        with pytest.raises(InvalidModel, match="expected text in UTF-8, but byte 18 is not"):
            DispatchModel(path)


class TestValues:
    @pytest.mark.parametrize("declared", [{}, *({"initialValuesDataType": n} for n in ("UNKNOWN", "DML_TENSOR_DATA_TYPE_UNKNOWN"))])  # fmt: skip
    def test_of_several_types(self, tmp_path, declared):
        values = [{"type": "UINT8", "value": 7}, {"name": "x", "type": "FLOAT32", "value": "inf"}]
        made, _ = run(tmp_path, resources={"A": {"initialValues": values, **declared}})
        assert made.resources["A"].data.tobytes() == b"\x07" + np.float32(np.inf).tobytes() + bytes(3)

    @pytest.mark.parametrize(
        ("dtype", "start", "delta", "count", "at"),
        [
            ("FLOAT16", 0, 1, 3000, {0: 0, 2047: 2047, 2048: 2048, 2999: 2048}),
            ("FLOAT32", 16777214, 1, 6, {1: 16777215, 5: 16777216}),
            ("FLOAT16", 65000, 500, 3, {1: 65504, 2: np.inf}),
            ("FLOAT32", "-inf", 1, 3, {2: -np.inf}),
            ("INT8", 0, 99, 9, {1: 99, 2: -58, 8: 24}),
            ("UINT8", 250, 5, 3, {1: 255, 2: 4}),
            ("UINT8", 1, -1, 3, {1: 0, 2: 255}),
            ("INT64", 2**63 - 1, 1, 2, {1: -(2**63)}),
            ("UINT16", 0, 1, 2**20 + 2**17, {2**16: 0, 2**20 - 1: 65535, 2**20: 0, 2**20 + 1: 1}),
        ],
    )
    def test_sequences_add_up_in_their_own_type(self, tmp_path, dtype, start, delta, count, at):
        initial = {"valueCount": count, "valueStart": start, "valueDelta": delta}
        made, _ = run(tmp_path, resources={"X": {"initialValuesDataType": dtype, "initialValues": initial}})
        values = made.resources["X"].values
        assert {k: values[k].item() for k in at} == at
        assert values.size == count

    def test_sums_are_rounded_each_time(self, tmp_path):
        initial = {"valueCount": 1000, "valueStart": 0.3, "valueDelta": 0.1}
        for dtype in (np.float32, np.float16):
            resource = {"initialValuesDataType": dtype.__name__.upper(), "initialValues": initial}
            made, _ = run(tmp_path, resources={"X": resource})
            sums, one = [dtype(0.3)], dtype(0.1)
            while len(sums) < 1000:
                sums.append(dtype(sums[-1] + one))
            assert made.resources["X"].values.tolist() == [s.item() for s in sums]

    @pytest.mark.parametrize(
        ("initial", "message"),
        [
            ({"valueStart": 300, "valueDelta": 1}, "valueStart: expected a value of int8, but got 300"),
            ({"valueStart": 0, "valueDelta": -129}, "valueDelta: expected a value of int8, but got -129"),
            ({"valueStart": 0}, 'expected "value", or "valueStart" and "valueDelta"'),
            ({"value": 0, "sourcePath": "x"}, 'either "value" or "sourcePath", but got both'),
        ],
    )
    def test_sequences_that_are_none(self, tmp_path, initial, message):
        resource = {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 3, **initial}}
        with pytest.raises(InvalidModel, match=message):
            run(tmp_path, resources={"X": resource})

    @pytest.mark.parametrize("name", ["a.weights", "a", "a.BIN", "a.txt", "a.dat"])
    def test_any_file_is_bytes(self, tmp_path, name):
        """Whole elements are printed; those that are begun are in the buffer."""
        (tmp_path / name).write_bytes(np.float32([1, 2]).tobytes() + b"\x01\x02")
        resource = {"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": name}}
        made, said = run(tmp_path, resources={"A": resource}, commands=[{"type": "print", "resource": "A"}])
        assert said == ["Resource 'A': 1, 2"]
        assert made.resources["A"].data.tobytes()[8:] == b"\x01\x02\0\0"

    @pytest.mark.parametrize("name", ["a.weights", "a", "a.txt"])
    def test_any_file_is_written(self, tmp_path, name):
        command = {"type": "writeFile", "resource": "A", "targetPath": name}
        run(tmp_path, resources={"A": floats(1, 2)}, commands=[command], output_path=tmp_path / "new")
        assert (tmp_path / "new" / name).read_bytes() == np.float32([1, 2]).tobytes()


class TestDescriptions:
    @pytest.mark.parametrize(
        "flags", ["OWNED_BY_DML", ["DML_TENSOR_FLAG_OWNED_BY_DML"], ["NONE", "OWNED_BY_DML"]]
    )
    def test_flags(self, tmp_path, flags):
        operator = identity(3)
        tensor = operator["desc"]["InputTensor"]
        operator["desc"]["InputTensor"] = tensor | {"Flags": flags}
        operator["desc"]["OutputTensor"] = tensor | {"Flags": []}
        operator["bindings"] = {"InputTensor": "A"}
        resources = {"A": floats(1, 2, 3), "Out": floats(0, 0, 0)}
        commands = [copy(OutputTensor="Out"), {"type": "print", "resource": "Out"}]
        _, said = run(tmp_path, resources=resources, dispatchables={"copy": operator}, commands=commands)
        assert said[-1] == "Resource 'Out': 1, 2, 3"

    @pytest.mark.parametrize("flags", [["OWNED"], [1.5], [[]]])
    def test_flags_that_there_are_not(self, tmp_path, flags):
        operator = identity(3)
        operator["desc"]["InputTensor"] = operator["desc"]["InputTensor"] | {"Flags": flags}
        with pytest.raises(AnyDMLError, match="Flags: expected"):
            run(tmp_path, dispatchables={"copy": operator})

    def test_members_of_a_union(self, tmp_path):
        """That of the declared type is looked up; the others are not known."""
        both = {"Int32": 7, "UInt16": 0xBC00}
        with pytest.warns(dml.UnknownFieldWarning, match=r"clip\.Min\.Int32"):
            said = lines(written(tmp_path, clip(Min=both)))
        assert said[-1] == "Resource 'B': -1, -0.5, 0.5, 1"


class TestBindings:
    """The range begins at elementOffset elements; operators have all that follows."""

    @pytest.mark.parametrize(
        ("view", "expected"),
        [
            ({}, [1, 2, 3]),
            ({"elementCount": 1}, [1, 2, 3]),
            ({"elementCount": 10**9, "elementStride": 999, "format": "R32_FLOAT"}, [1, 2, 3]),
            ({"elementOffset": 4}, [5, 6, 7]),
            ({"elementOffset": 1, "elementSizeInBytes": 16}, [5, 6, 7]),
            ({"elementOffset": 4, "elementSizeInBytes": 0}, [5, 6, 7]),
            ({"elementOffset": 2, "elementSizeInBytes": 8, "elementCount": 0}, [5, 6, 7]),
            ({"counter": "Out", "counterOffsetBytes": 4}, [1, 2, 3]),
        ],
    )
    @pytest.mark.parametrize("relaxed", [False, True])
    def test_of_operators(self, tmp_path, view, expected, relaxed):
        resources = {"A": floats(*range(1, 9)), "Out": floats(0, 0, 0)}
        commands = [copy(InputTensor={"name": "A", **view}, OutputTensor="Out")]
        parts = {"resources": resources, "dispatchables": {"copy": identity(3)}, "commands": commands}
        made, _ = run(tmp_path, **parts, relaxed=relaxed)
        assert made.resources["Out"].values.tolist() == expected

    def test_values_of_several_types_have_no_size(self, tmp_path):
        values = [{"type": "FLOAT32", "value": k} for k in range(8)]
        resources = {"A": {"initialValues": values}, "Out": floats(0, 0, 0)}
        for view, first in (({}, 0), ({"elementSizeInBytes": 4}, 4)):
            commands = [copy(InputTensor={"name": "A", "elementOffset": 4, **view}, OutputTensor="Out")]
            parts = {"resources": resources, "dispatchables": {"copy": identity(3)}, "commands": commands}
            made, _ = run(tmp_path, **parts)
            assert made.resources["Out"].values.tolist() == [first, first + 1, first + 2]

    @pytest.mark.parametrize(
        ("view", "message"),
        [
            ({"elementCount": "3"}, "elementCount: expected a non-negative integer, but got '3'"),
            ({"elementSizeInBytes": -4}, "elementSizeInBytes: expected a non-negative integer"),
            ({"counterOffsetBytes": 1.5}, "counterOffsetBytes: expected a non-negative integer"),
            ({"counter": "Count"}, r"bindings\.InputTensor\.counter: expected the name of one of the 2"),
            ({"elementOffset": 9}, "expected a part of the buffer's 32 bytes, but got those from 36 on"),
        ],
    )
    def test_that_do_not_hold_together(self, tmp_path, view, message):
        resources = {"A": floats(*range(8)), "Out": floats(0, 0, 0)}
        commands = [copy(InputTensor={"name": "A", **view}, OutputTensor="Out")]
        with pytest.raises(InvalidModel, match=message):
            run(tmp_path, resources=resources, dispatchables={"copy": identity(3)}, commands=commands)

    def test_four_bits(self, tmp_path):
        """Two elements share a byte."""
        desc = {
            "type": "DML_OPERATOR_DEQUANTIZE",
            "desc": {
                "QuantizationType": "SCALE",
                "InputTensor": {"DataType": "UINT4", "Sizes": [1, 1, 1, 4]},
                "QuantizationTensorCount": 1,
                "QuantizationTensors": [{"DataType": "FLOAT32", "Sizes": [1, 1, 1, 1]}],
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 1, 4]},
            },
        }
        packed = {"initialValuesDataType": "UINT8", "initialValues": [0x21, 0x43]}
        bindings = {"InputTensor": "A", "QuantizationTensors": ["S"], "OutputTensor": "Out"}
        made, _ = run(
            tmp_path,
            resources={"A": packed, "S": floats(0.5), "Out": floats(0, 0, 0, 0)},
            dispatchables={"d": desc},
            commands=[{"type": "dispatch", "dispatchable": "d", "bindings": bindings}],
        )
        assert made.resources["Out"].values.tolist() == [0.5, 1, 1.5, 2]


class TestDenotations:
    """Dimensions of ONNX models by what they denote."""

    @pytest.fixture
    def network(self, tmp_path):
        text = """<ir_version: 8, opset_import: ["": 17]> m (float[N, 2, M] x, float[3] w) => (float[A, B, C] y) {
            y = Identity (x) }"""
        proto = onnx.parser.parse_model(text)
        batch, two, free = proto.graph.input[0].type.tensor_type.shape.dim
        batch.denotation, two.denotation, free.denotation = "DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE"
        free.ClearField("dim_param")
        onnx.save(proto, tmp_path / "net.onnx")
        return {"type": "onnx", "sourcePath": "net.onnx"}

    def shape(self, tmp_path, network, **options):
        made, _ = run(
            tmp_path,
            resources={"Y": {"initialValues": "deferred"}},
            dispatchables={"net": network},
            commands=[{"type": "dispatch", "dispatchable": "net", "bindings": {"y": "Y"}}],
            **options,
        )
        return made.resources["Y"].shape

    def test_they_are_sizes(self, tmp_path, network):
        """With a symbol, and without one; those that are fixed stay; names come before them."""
        sizes = {"data_batch": 4, "DATA_FEATURE": 5}
        denoted = network | {"freeDimensionDenotationOverrides": sizes}
        assert self.shape(tmp_path, network) == (1, 2, 1)
        assert self.shape(tmp_path, denoted) == (4, 2, 5)
        assert self.shape(tmp_path, denoted, denotations={"DATA_BATCH": 6}) == (6, 2, 5)
        assert self.shape(tmp_path, denoted, dims={"N": 7}) == (7, 2, 5)
        assert self.shape(tmp_path, denoted, shapes={"x": [4, 2, 1]}) == (4, 2, 1)

    def test_what_nothing_denotes(self, tmp_path, network):
        denoted = network | {"freeDimensionDenotationOverrides": {"DATA_CHANNEL": 8, "DATA_BATCH": 3}}
        with pytest.warns(dml.UnknownFieldWarning) as caught:
            assert self.shape(tmp_path, denoted, denotations={"DATA": 9}) == (3, 2, 1)
        (warning,) = caught
        assert "net.freeDimensionDenotationOverrides.DATA_CHANNEL" in str(warning.message)
        assert "-F.DATA" in str(warning.message)

    @pytest.mark.parametrize("sizes", [3, {"DATA_BATCH": "4"}, {"DATA_BATCH": True}, {"DATA_BATCH": -1}])
    def test_what_is_no_size(self, tmp_path, network, sizes):
        with pytest.raises(InvalidModel, match=r"freeDimensionDenotationOverrides.*: expected"):
            self.shape(tmp_path, network | {"freeDimensionDenotationOverrides": sizes})

    def test_without_a_model(self, tmp_path):
        with pytest.raises(InvalidInput, match=r"free dimensions \(-F\), but there is none"):
            run(tmp_path, denotations={"DATA_BATCH": 3})

    @pytest.mark.parametrize(
        ("view", "message"),
        [
            ({"elementOffset": 4}, "elementOffset: expected 0 for an ONNX model, but got 4"),
            ({"counter": "X"}, "counter: expected none for an ONNX model"),
        ],
    )
    def test_bindings_that_models_cannot_have(self, tmp_path, network, view, message):
        bindings = {"w": {"name": "X", "elementCount": 1, **view}}
        with pytest.raises(InvalidModel, match=message):
            run(
                tmp_path,
                resources={"X": floats(1, 2, 3)},
                dispatchables={"net": network},
                commands=[{"type": "dispatch", "dispatchable": "net", "bindings": bindings}],
            )


def test_folders(tmp_path, monkeypatch):
    """Files are read from one, written to another; the model may lie in the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    np.save("in/a.npy", np.float32([1, 2]))
    parts = {
        "resources": {"A": {"initialValues": {"sourcePath": "a.npy"}}},
        "dispatchables": {},
        "commands": [{"type": "writeFile", "resource": "A", "targetPath": "deep/b.npy"}],
    }
    for place in ("here.json", "in/there.json"):
        (tmp_path / place).write_text(json.dumps(parts))
    for name in ("here.json", "there.json"):
        said = lines(name, input_path="in", output_path="out")
        assert said[-1] == f"Resource 'A' written to '{Path('out/deep/b.npy')}'"
        assert np.load("out/deep/b.npy").tolist() == [1, 2]
        (tmp_path / "out/deep/b.npy").unlink()
    with pytest.raises(InvalidModel, match=r"there is none at 'a\.npy'"):
        lines("here.json")


def test_printed_commands(tmp_path):
    commands = [{"type": "print", "resource": "A"}, {"type": "writeFile", "resource": "A", "targetPath": "x"}]
    (tmp_path / "x").mkdir()
    path = written(tmp_path, model(commands=commands))
    said = []
    with pytest.raises(OSError, match="x"):
        DispatchModel(path, output_path=tmp_path).run(said.append, print_commands=True)
    assert said[1:5] == [
        '[StartCmd][0000]\t: {"type":"print","resource":"A"}',
        "Resource 'A': 1, 1.5, 2, 2.5",
        "[EndCmd][0000]\t: hr=0x00000000 \n",
        '[StartCmd][0001]\t: {"type":"writeFile","resource":"A","targetPath":"x"}',
    ]
    assert said[5].startswith("[EndCmd][0001]\t: hr=0x80004005 ")
