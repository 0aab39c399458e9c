"""DxDispatch JSON models: buffers, operators, commands, and what is said when they are wrong."""

import json
import re

import numpy as np
import onnx
import pytest

from anydml.dxdispatch.json_text import parse_json
from anydml.dxdispatch.model import DispatchModel
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import (
    AnyDMLError,
    ExecutionFailed,
    InvalidInput,
    InvalidModel,
    InvalidOperator,
    UnknownFieldWarning,
    Unsupported,
)


def model(**changes):
    tensor = {"DataType": "FLOAT32", "Sizes": [2, 2]}
    parts = {
        "resources": {
            "C": {"initialValuesDataType": "UINT8", "initialValues": [1, 0, 255, 0]},
            "A": {
                "initialValuesDataType": "FLOAT32",
                "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 0.5},
            },
            "B": {"initialValuesDataType": "FLOAT32", "initialValues": ["inf", "-inf", 7, "nan"]},
            "Out": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
        },
        "dispatchables": {
            "if": {
                "type": "DML_OPERATOR_ELEMENT_WISE_IF",
                "desc": {
                    "ConditionTensor": {"DataType": "UINT8", "Sizes": [2, 2]},
                    "ATensor": tensor,
                    "BTensor": tensor,
                    "OutputTensor": tensor,
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "if",
                "bindings": {"ConditionTensor": "C", "ATensor": "A", "BTensor": "B", "OutputTensor": "Out"},
            },
            {"type": "print", "resource": "Out"},
        ],
    }
    return parts | changes


def written(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def lines(path, **options):
    said = []
    DispatchModel(path, **options).run(said.append)
    return said


def test_run(tmp_path):
    said = lines(written(tmp_path, model()))
    assert said[0] == "Running on 'anydml, feature level 6_4'"
    assert said[1].startswith("Dispatch 'if': 1 iterations, ")
    assert said[2] == "Resource 'Out': 1, -inf, 2, nan"


def test_comments_and_trailing_commas(tmp_path):
    text = json.dumps(model(), indent=1).replace(
        '"nan"', '"nan", // the last, "really"\n /* and\n more, ] */'
    )
    assert lines(written(tmp_path, text))[2] == "Resource 'Out': 1, -inf, 2, nan"
    assert parse_json(b'{"a // b": "/* c */,]"}', "x") == {"a // b": "/* c */,]"}


def test_is_infinity_and_integers_print_whole(tmp_path):
    tensors = {
        "InputTensor": {"DataType": "FLOAT16", "Sizes": [3]},
        "OutputTensor": {"DataType": "UINT8", "Sizes": [3]},
        "InfinityMode": "NEGATIVE",
    }
    parts = {
        "resources": {
            "X": {"initialValuesDataType": "FLOAT16", "initialValues": [1, "inf", "-inf"]},
            "Y": {"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 3, "value": 9}},
            "Big": {"initialValuesDataType": "INT64", "initialValues": [9007199254740993]},
        },
        "dispatchables": {"inf": {"type": "ELEMENT_WISE_IS_INFINITY", "desc": tensors}},
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "inf",
                "bindings": {"InputTensor": ["X"], "OutputTensor": {"name": "Y"}},
            },
            {"type": "print", "resource": "Y"},
            {"type": "print", "resource": "Big"},
        ],
    }
    said = lines(written(tmp_path, parts))
    assert said[2:] == ["Resource 'Y': 0, 0, 1", "Resource 'Big': 9007199254740993"]


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.float32([[5, 6], [7, 8]]))
    (tmp_path / "b.bin").write_bytes(np.float32([1, 2, 3, 4]).tobytes())
    parts = model()
    parts["resources"]["A"] = {"initialValues": {"sourcePath": "a.npy"}}
    parts["resources"]["B"] = {"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": "b.bin"}}
    parts["commands"] += [
        {"type": "writeFile", "resource": "Out", "targetPath": "out.npy"},
        {"type": "writeFile", "resource": "A", "targetPath": "a-again.npy"},
        {"type": "writeFile", "resource": "Out", "targetPath": "out.bin"},
    ]
    lines(written(tmp_path, parts))
    assert np.load("out.npy").tolist() == [5, 2, 7, 4]
    assert np.load("a-again.npy").tolist() == [[5, 6], [7, 8]]
    assert np.fromfile("out.bin", np.float32).tolist() == [5, 2, 7, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a-again.npy",
        "a.npy",
        "b.bin",
        "m.json",
        "out.bin",
        "out.npy",
    ]


def test_size_in_bytes_offset_and_other_types(tmp_path):
    """A buffer is bytes: it may be larger than its values, bound in part, and read as another type."""
    parts = model()
    parts["resources"]["A"] = {
        "initialValuesDataType": "UINT32",
        "initialValues": [0, 0, 0, 0, 0x3F800000, 0x40000000, 0x40400000, 0x40800000],
        "sizeInBytes": 40,
    }
    parts["commands"][0]["bindings"]["ATensor"] = {"name": "A", "elementOffset": 4, "elementCount": 4}
    assert lines(written(tmp_path, parts))[2] == "Resource 'Out': 1, -inf, 3, nan"


def test_owned_tensor_is_given_at_initialization(tmp_path):
    parts = model()
    parts["dispatchables"]["if"]["desc"]["ATensor"] = {
        "DataType": "FLOAT32",
        "Sizes": [2, 2],
        "Flags": "OWNED_BY_DML",
    }
    assert lines(written(tmp_path, parts))[2] == "Resource 'Out': 1, -inf, 2, nan"


def test_malformed_json_tells_the_place(tmp_path):
    with pytest.raises(InvalidModel, match=r"m\.json: expected JSON, but line 2, column 9 is not"):
        lines(written(tmp_path, '{"a": 1,\n "b": 2 "c"}'))
    with pytest.raises(InvalidModel, match="expected an object"):
        lines(written(tmp_path, "[]"))
    with pytest.raises(InvalidModel, match="too deeply"):
        lines(written(tmp_path, "[" * 100_000))


def test_all_problems_at_once(tmp_path):
    parts = model()
    parts["resources"]["A"]["initialValues"] = {"valueCount": -1, "value": 0}
    parts["resources"]["C"]["initialValues"] = [300]
    parts["commands"][0]["bindings"]["BTensor"] = "BB"
    parts["commands"] += [{"type": "print", "resource": "Nope"}, {"type": "sing"}]
    with pytest.raises(InvalidModel) as caught:
        DispatchModel(written(tmp_path, parts))
    assert [str(p).split(": ")[1] for p in caught.value.problems] == [
        "resources.C",
        "resources.A",
        "commands[0].bindings.BTensor.name",
        "commands[2].resource",
        "commands[3]",
    ]


def test_a_buffer_of_values_of_several_types(tmp_path):
    """One after the other; a part of it can be bound as any type."""
    parts = model()
    values = [
        ("FLOAT32", 1.5),
        ("UINT8", 7),
        ("INT8", -1),
        ("UINT16", 513),
        ("FLOAT32", "inf"),
        ("INT32", -2),
        ("FLOAT32", 4),
    ]
    parts["resources"]["A"] = {
        "initialValuesDataType": "UNKNOWN",
        "initialValues": [{"name": "one of them", "type": t, "value": v} for t, v in values],
        "sizeInBytes": 64,
    }
    (resource,) = [r for n, r in DispatchModel(written(tmp_path, parts)).resources.items() if n == "A"]
    assert resource.data.size == 64
    expected = b"".join(
        np.array(
            v, np.dtype({"FLOAT32": "f4", "UINT8": "u1", "INT8": "i1", "UINT16": "u2", "INT32": "i4"}[t])
        ).tobytes()
        for t, v in values
    )
    assert resource.data.tobytes()[: len(expected)] == expected
    parts["commands"][0]["bindings"]["ATensor"] = [
        {"name": "A", "elementStride": 4, "elementOffset": 0, "elementCount": 4}
    ]
    assert lines(written(tmp_path, parts))[-1].startswith("Resource 'Out': 1.5, -inf, inf")


def test_operator_rules_hold(tmp_path):
    with pytest.raises(InvalidOperator, match=r"dispatchables\.if: .*expected rank 4 at feature level 2_0"):
        DispatchModel(written(tmp_path, model()), "2_0")


def test_a_failing_command_says_which(tmp_path):
    parts = model()
    parts["resources"]["Out"]["initialValues"]["valueCount"] = 2
    with pytest.raises(
        AnyDMLError, match=r"commands\[0\]\.bindings\.OutputTensor: expected at least 16 bytes, but got 8"
    ):
        lines(written(tmp_path, parts))


@pytest.mark.parametrize(
    "part",
    [
        {"dispatchables": {"x": {"type": "hlsl", "sourcePath": "x.hlsl"}}},
    ],
)
def test_what_is_not_here_yet_says_so(tmp_path, part):
    with pytest.raises(Unsupported):
        DispatchModel(written(tmp_path, model(**part)))


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (7, "expected an object, but got 7"),
        ({"initialValues": [1]}, "initialValuesDataType: expected a data type"),
        ({"initialValuesDataType": "FLOAT32", "initialValues": []}, "expected an array of values"),
        ({"initialValuesDataType": "FLOAT32", "initialValues": ["wide"]}, r"initialValues\[0\]: .*'wide'"),
        ({"initialValuesDataType": "FLOAT32", "initialValues": [True]}, r"initialValues\[0\]: .*True"),
        ({"initialValuesDataType": "INT8", "initialValues": ["inf"]}, r"initialValues\[0\]: .*'inf'"),
        ({"initialValuesDataType": "INT8", "initialValues": [1.5]}, r"initialValues\[0\]: .*1.5"),
        ({"initialValuesDataType": "UNKNOWN", "initialValues": []}, "expected values with their types"),
        (
            {"initialValuesDataType": "UNKNOWN", "initialValues": [1]},
            r'initialValues\[0\]: expected "type" and "value"',
        ),
        (
            {"initialValuesDataType": "UNKNOWN", "initialValues": [{"type": "INT8", "value": 300}]},
            r"initialValues\[0\].value: expected a value of int8, but got 300",
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": [1], "sizeInBytes": 0},
            "sizeInBytes: .*from 1 on",
        ),
        ({"initialValuesDataType": "INT8", "initialValues": {"valueCount": 2}}, 'expected "value", or'),
        (
            {
                "initialValuesDataType": "INT8",
                "initialValues": {"valueCount": 2, "valueStart": "a", "valueDelta": 1},
            },
            "valueStart: expected a value of int8, but got 'a'",
        ),
        ({"initialValues": {"sourcePath": "nowhere.npy"}}, "sourcePath: expected a file"),
        ({"initialValues": {"sourcePath": "bad.npy"}}, "sourcePath: expected a NumPy file"),
        ({"initialValues": {"sourcePath": "complex.npy"}}, "sourcePath: expected a DirectML type"),
        ({"initialValues": {"sourcePath": "odd.bin"}}, "expected the data type of 'odd.bin'"),
        ({"initialValues": {"sourcePath": "odd.weights"}}, "expected the data type of 'odd.weights'"),
        (
            {"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": "none.bin"}},
            "sourcePath: expected at most .* bytes, but got none",
        ),
    ],
)
def test_buffers_that_do_not_hold_together(tmp_path, resource, message):
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "odd.weights").write_bytes(b"abc")
    (tmp_path / "none.bin").write_bytes(b"")
    np.save(tmp_path / "complex.npy", np.zeros(2, np.complex64))
    parts = model()
    parts["resources"]["X"] = resource
    with pytest.raises(InvalidModel, match=rf"resources\.X: .*{message}|resources\.X: {message}"):
        DispatchModel(written(tmp_path, parts))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"type": "print"}, r"commands\[0\]\.resource: expected the name"),
        ({"type": "writeFile", "resource": "A"}, "targetPath: expected a file name"),
        ({"type": "dispatch", "dispatchable": "if"}, "bindings: expected an object"),
        ({"type": "dispatch", "dispatchable": "fi", "bindings": {}}, "got 'fi'; did you mean 'if'"),
        (
            {"type": "dispatch", "dispatchable": "if", "bindings": {"A": "A"}},
            "known: ATensor, BTensor, ConditionTensor",
        ),
        (
            {"type": "dispatch", "dispatchable": "if", "bindings": {"ATensor": 5}},
            "expected a resource's name",
        ),
        (
            {
                "type": "dispatch",
                "dispatchable": "if",
                "bindings": {"ATensor": {"name": "A", "elementOffset": 9}},
            },
            "expected a part of the buffer's 16 bytes",
        ),
        (
            {
                "type": "dispatch",
                "dispatchable": "if",
                "bindings": {"ATensor": {"name": "A", "elementCount": -1}},
            },
            "elementCount: expected a non-negative integer",
        ),
    ],
)
def test_commands_that_do_not_hold_together(tmp_path, command, message):
    with pytest.raises(InvalidModel, match=message):
        DispatchModel(written(tmp_path, model(commands=[command])))


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = model(commands=[{"type": "writeFile", "resource": "A", "targetPath": "folder.npy"}])
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(OSError, match=r"folder\.npy"):
        lines(written(tmp_path, parts))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.npy", "m.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff\xfe", "expected text in UTF-8, but byte 0 is not"),
        (b"[" + b"1" * 5000 + b"]", "thousands of digits"),
        (b'{"a": NaN}', "expected a number, but got NaN"),
        (b'{"a": -Infinity}', "expected a number, but got -Infinity"),
        (b"\xef\xbb\xbf[]", "expected an object, but got an array"),
    ],
)
def test_text_that_is_no_model(tmp_path, text, message):
    (tmp_path / "m.json").write_bytes(text)
    with pytest.raises(InvalidModel, match=message):
        DispatchModel(tmp_path / "m.json")


@pytest.mark.parametrize("value", [1e300, 10**400, -1e39])
def test_numbers_that_the_type_cannot_hold(tmp_path, value):
    for dtype in ("FLOAT32", "UINT8"):
        parts = model()
        parts["resources"]["X"] = {"initialValuesDataType": dtype, "initialValues": [value]}
        with pytest.raises(InvalidModel, match=r"resources\.X: initialValues\[0\]: expected a value of"):
            DispatchModel(written(tmp_path, parts))


@pytest.mark.parametrize(
    ("dtype", "start", "delta", "values"),
    [
        ("UINT8", 9, -3, [9, 6, 3, 0]),
        ("INT8", -128, 85, [-128, -43, 42, 127]),
        ("UINT64", 2**64 - 4, 1, [2**64 - 4, 2**64 - 3, 2**64 - 2, 2**64 - 1]),
        ("FLOAT32", 1, 0.5, [1, 1.5, 2, 2.5]),
    ],
)
def test_sequences(tmp_path, dtype, start, delta, values):
    parts = model()
    initial = {"valueCount": 4, "valueStart": start, "valueDelta": delta}
    parts["resources"]["X"] = {"initialValuesDataType": dtype, "initialValues": initial}
    assert DispatchModel(written(tmp_path, parts)).resources["X"].values.tolist() == values


def test_unknown_fields(tmp_path):
    """They are ignored; one warning tells them."""
    parts = model(resource={})
    parts["resources"]["A"]["sizeInBytess"] = 64
    parts["commands"][1]["verbos"] = True
    with pytest.warns(UnknownFieldWarning, match=r"'resources'.*'sizeInBytes'.*'verbose'") as caught:
        assert lines(written(tmp_path, parts))[2] == "Resource 'Out': 1, -inf, 2, nan"
    assert len(caught) == 1


def test_nothing_is_written_when_a_later_command_cannot_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = model()
    parts["commands"] += [
        {"type": "writeFile", "resource": "Out", "targetPath": "out.npy"},
        {"type": "dispatch", "dispatchable": "if", "bindings": {"ConditionTensor": "C"}},
    ]
    with pytest.raises(InvalidModel, match=r"commands\[3\]: ELEMENT_WISE_IF: ATensor: expected an array"):
        lines(written(tmp_path, parts))
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_the_problems_of_all_operators(tmp_path):
    parts = model()
    wrong = {"type": "ELEMENT_WISE_FI", "desc": {}}
    parts["dispatchables"] |= {"one": wrong, "two": wrong}
    with pytest.raises(InvalidOperator) as caught:
        DispatchModel(written(tmp_path, parts))
    assert [str(p).split(": ")[:2] for p in caught.value.problems] == [
        ["m.json", "dispatchables.one"],
        ["m.json", "dispatchables.two"],
    ]


# ---- ONNX models, and timing -------------------------------------------------------------------------


def with_onnx(tmp_path, bindings, **dispatchable):
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[N, 2] a, float[N, 2] b, bool c) => (float[N, 2] y, float[M, 2] z) {
        y = If (c) <then_branch = t () => (float[N, 2] p) { p = Add (a, b) }, else_branch = e () => (float[N, 2] q) { q = Sub (a, b) }>
        z = Concat <axis = 0> (a, b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    parts = {
        "resources": {
            "A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]},
            "B": {"initialValuesDataType": "FLOAT32", "initialValues": [10, 20, 30, 40]},
            "Y": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
        },
        "dispatchables": {"net": {"type": "onnx", "sourcePath": "model.onnx", **dispatchable}},
        "commands": [
            {"type": "dispatch", "dispatchable": "net", "bindings": bindings},
            {"type": "print", "resource": "Y"},
        ],
    }
    return written(tmp_path, parts)


def test_an_onnx_model(tmp_path):
    """Free dimensions are given by name, by a binding's shape, or are 1; what is not bound is zeros."""
    fixed = {"freeDimensionNameOverrides": {"N": 2}}
    assert (
        lines(with_onnx(tmp_path, {"a": "A", "b": "B", "y": "Y"}, **fixed))[-1]
        == "Resource 'Y': -9, -18, -27, -36"
    )
    shaped = {n: {"name": r, "shape": [2, 2]} for n, r in (("a", "A"), ("b", "B"))}
    assert lines(with_onnx(tmp_path, {**shaped, "y": ["Y"]}))[-1] == "Resource 'Y': -9, -18, -27, -36"
    assert lines(with_onnx(tmp_path, {"a": "A", "b": "B", "y": "Y"}))[-1] == "Resource 'Y': -9, -18, 0, 0"
    assert lines(with_onnx(tmp_path, {"b": "B", "y": "Y"}))[-1] == "Resource 'Y': -10, -20, 0, 0"
    assert lines(with_onnx(tmp_path, {}))[1].startswith("Dispatch 'net': 1 iterations, ")


@pytest.mark.parametrize(
    ("bindings", "dispatchable", "message"),
    [
        ({"x": "A"}, {}, r"commands\[0\].bindings: x: expected an input or output"),
        ({"a": "Q"}, {}, r"bindings\.a\.name: expected the name of one of the 3"),
        ({"a": {"name": "A", "shape": [9, 2]}}, {}, "expected 72 bytes for float32"),
        ({"a": {"name": "A", "shape": "wide"}}, {}, "shape: expected sizes"),
        ({}, {"sourcePath": "none.onnx"}, "expected a file, but there is none"),
        ({}, {"sourcePath": 5}, "sourcePath: expected a file name"),
        ({}, {"freeDimensionNameOverrides": {"K": 2}}, "expected a symbol of an input"),
        ({}, {"freeDimensionNameOverrides": 3}, "expected an object"),
        ({}, {"sourcePath": None, "sourcPath": "x"}, "(?s)expected a file name.*did you mean 'sourcePath'"),
        ({}, {"sourcePath": "."}, "expected a file, but '.' is a folder"),
        ({}, {"sourcePath": "/dev/zero"}, "expected a file, but '/dev/zero' is a device"),
    ],
)
def test_onnx_models_that_do_not_hold_together(tmp_path, bindings, dispatchable, message):
    with pytest.raises(InvalidModel, match=message):
        DispatchModel(with_onnx(tmp_path, bindings, **dispatchable))


def test_a_result_that_does_not_fit_its_buffer(tmp_path):
    path = with_onnx(tmp_path, {"z": "Y"}, freeDimensionNameOverrides={"N": 2})
    with pytest.raises(
        ExecutionFailed, match="output 'z': expected a buffer of at least 32 bytes, but it has 16"
    ):
        lines(path)


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_timing(tmp_path, verbosity):
    timing = DispatchTiming(
        dispatch_iterations=5, dispatch_repeat=3, warmup_samples=2, timing_verbosity=verbosity
    )
    said = lines(written(tmp_path, model()), timing=timing)
    number = r"\d+\.\d{4} ms"
    kinds = "average", "min", "median", "max"
    figures = ", ".join(f"{number} {kind}" for kind in kinds)
    expected = {
        0: [rf"Dispatch 'if': 5 iterations, {number} median \(CPU\)"],
        1: [
            f"Initialize 'if': {number}",
            "Dispatch 'if': 5 iterations",
            rf"CPU Timings \(Cold\) : 2 samples, {figures}",
            rf"CPU Timings \(Hot\)  : 3 samples, {figures}",
        ],
    }
    expected[2] = [
        *expected[1],
        "The timings of each iteration:",
        *(rf"iteration {k}: {number} \(CPU\)" for k in range(5)),
    ]
    assert len(said) == len(expected[verbosity]) + 2
    for line, pattern in zip(said[1:], expected[verbosity], strict=False):
        assert re.fullmatch(pattern, line), line


def test_time_to_run(tmp_path):
    said = lines(written(tmp_path, model()), timing=DispatchTiming(milliseconds_to_run=20))
    assert int(re.search(r"(\d+) iterations", said[1])[1]) > 5


def clip(**changes):
    tensor = {"DataType": "FLOAT16", "Sizes": [4], "Strides": [], "TotalTensorSizeInBytes": 0}
    fields = {"InputTensor": tensor, "OutputTensor": tensor, "MinMaxDataType": "FLOAT16"}
    desc = {
        "Type": "ELEMENT_WISE_CLIP1",
        **fields,
        "Min": {"UInt16": 0xBC00},
        "Max": {"UInt16": 0x3C00},
    } | changes
    buffers = {
        "A": {"initialValuesDataType": "FLOAT16", "initialValues": [-3, -0.5, 0.5, 3]},
        "B": {"initialValuesDataType": "FLOAT16", "initialValues": {"valueCount": 4, "value": 0}},
    }
    commands = [
        {"type": "dispatch", "dispatchable": "clip", "bindings": {"InputTensor": "A", "OutputTensor": "B"}},
        {"type": "print", "resource": "B"},
    ]
    return {"resources": buffers, "dispatchables": {"clip": desc}, "commands": commands}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"executionFlags": ["DML_EXECUTION_FLAG_DISABLE_META_COMMANDS"], "dmlCompileType": "DmlCompileGraph"},
        {"executionFlags": 3, "Min": -1, "Max": 1},
    ],
)
def test_how_dxdispatch_writes_descriptions(tmp_path, changes):
    """Members of a union are bytes; sizes of 0 and no strides are left to be found."""
    assert lines(written(tmp_path, clip(**changes)))[-1] == "Resource 'B': -1, -0.5, 0.5, 1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"executionFlags": "cat"}, "clip: executionFlags: expected execution flags, but got 'cat'"),
        ({"dmlCompileType": "DmlCompileOps"}, "dmlCompileType: .*; did you mean 'DmlCompileOp'"),
        ({"Min": {"UInt16": -1}}, "clip: Min: expected a value of uint16, but got -1"),
        ({"Min": {"UInt15": 1}}, "Min: expected a number"),
    ],
)
def test_what_no_description_says(tmp_path, changes, message):
    with pytest.raises(AnyDMLError, match=message):
        DispatchModel(written(tmp_path, clip(**changes)))


@pytest.mark.parametrize("options", [{"dims": {"N": 2}}, {"shapes": {"A": [2, 2]}}])
def test_sizes_for_models_that_are_not_there(tmp_path, options):
    with pytest.raises(InvalidInput, match="expected an ONNX model for"):
        DispatchModel(written(tmp_path, clip()), **options)


def test_values_that_are_said_twice(tmp_path):
    both = {"valueCount": 4, "value": 1, "valueStart": 1, "valueDelta": 1}
    path = written(
        tmp_path, model(resources={"A": {"initialValuesDataType": "INT32", "initialValues": both}})
    )
    with pytest.raises(InvalidModel, match=r"either .*, but got both"):
        DispatchModel(path)
    np.save(tmp_path / "a.npy", np.float32([1, 2]))
    file = {"initialValuesDataType": "INT32", "initialValues": {"sourcePath": "a.npy"}}
    with pytest.raises(InvalidModel, match=r"expected float32, the type of 'a.npy', but got int32"):
        DispatchModel(written(tmp_path, model(resources={"A": file})))
