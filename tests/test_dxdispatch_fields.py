"""DxDispatch models with a schema, and with fields that nobody knows: they run, and one warning tells the fields."""

import json
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import anydml as dml
from anydml.cli.main import cli
from anydml.dxdispatch.model import DispatchModel
from anydml.dxdispatch.unknown_fields import MAX_SUGGESTED_FIELDS
from tests.test_dxdispatch import model, written

FLOATS = '"initialValuesDataType": "FLOAT32"'
THREE = '{"DataType": "FLOAT32", "Sizes": [3]}'
ZEROS = '{"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 3, "value": 0}}'

MODELS: dict[str, tuple[str, str, list[str]]] = {
    # name: (the file, what it prints last, its unknown fields as the warning tells them)
    "schema": (
        f"""{{
        "$schema": "https://raw.githubusercontent.com/microsoft/DirectML/master/DxDispatch/models/schema.json",
        "resources": {{
            "A": {{{FLOATS}, "initialValues": [1, 2, 3]}},
            "B": {{{FLOATS}, "initialValues": [6, 5, 4]}},
            "Out": {ZEROS}
        }},
        "dispatchables": {{
            "add": {{"type": "DML_OPERATOR_ELEMENT_WISE_ADD",
                     "desc": {{"ATensor": {THREE}, "BTensor": {THREE}, "OutputTensor": {THREE}}}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "add",
              "bindings": {{"ATensor": "A", "BTensor": "B", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 7, 7, 7",
        [],
    ),
    "notes everywhere": (
        f"""{{
        "$schema": "./_schema.json",
        "description": "Absolute values.", // what no schema knows
        "resources": {{
            "A": {{{FLOATS}, "initialValues": [-1, 2, -3], "comment": "any sign"}},
            "Out": {ZEROS},
        }},
        "dispatchables": {{
            "abs": {{
                "type": "DML_OPERATOR_ELEMENT_WISE_ABS",
                "notes": ["in place", "is fine"],
                "desc": {{"InputTensor": {THREE}, "OutputTensor": {THREE}, "author": {{"name": "somebody"}}}},
            }},
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "abs", "label": "first",
              "bindings": {{"InputTensor": "A", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out", "comment": "expect 1, 2, 3"}},
        ]}}""",
        "Resource 'Out': 1, 2, 3",
        [
            "description",
            "resources.A.comment",
            "dispatchables.abs.notes",
            "dispatchables.abs.desc.author",
            "commands[0].label",
            "commands[1].comment",
        ],
    ),
    "fields beside the type": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [1, 4, 9]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "root": {{"Type": "ELEMENT_WISE_SQRT", "InputTensor": {THREE}, "OutputTensor": {THREE},
                      "ScaleBais": null, "name": "root"}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "root", "bindings": {{"InputTensor": "A", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 1, 2, 3",
        ["dispatchables.root.ScaleBais (did you mean 'ScaleBias'?)", "dispatchables.root.name"],
    ),
    "a tensor's fields": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [1, -2, 3]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "negate": {{"type": "DML_OPERATOR_ELEMENT_WISE_NEGATE", "desc": {{
                "InputTensor": {{"DataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "Sizes": [3], "Layout": "C"}},
                "OutputTensor": {{"Type": "DML_TENSOR_TYPE_BUFFER", "note": "packed",
                                  "Desc": {{"DataType": "FLOAT32", "Sizes": [3], "Stride": [1]}}}}
            }}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "negate", "bindings": {{"InputTensor": "A", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': -1, 2, -3",
        [
            "dispatchables.negate.desc.InputTensor.Layout",
            "dispatchables.negate.desc.OutputTensor.note",
            "dispatchables.negate.desc.OutputTensor.Desc.Stride (did you mean 'Strides'?)",
        ],
    ),
    "a fused activation": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [1, -9, 3]}}, "B": {ZEROS}, "Out": {ZEROS}}},
        "dispatchables": {{
            "add": {{"type": "DML_OPERATOR_ELEMENT_WISE_ADD1", "desc": {{
                "ATensor": {THREE}, "BTensor": {THREE}, "OutputTensor": {THREE},
                "FusedActivation": {{"Type": "ACTIVATION_LEAKY_RELU", "why": "cheap",
                                     "Desc": {{"Alpha": 0.5, "Beta": 1}}}}
            }}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "add",
              "bindings": {{"ATensor": "A", "BTensor": "B", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 1, -4.5, 3",
        [
            "dispatchables.add.desc.FusedActivation.why",
            "dispatchables.add.desc.FusedActivation.Desc.Beta",
        ],
    ),
    "scale and bias": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [1, 2, 3]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "line": {{"type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY", "desc": {{
                "InputTensor": {THREE}, "OutputTensor": {THREE},
                "ScaleBias": {{"Scale": 2, "Bias": 1, "unit": "volts"}}
            }}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "line", "bindings": {{"InputTensor": "A", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 3, 5, 7",
        ["dispatchables.line.desc.ScaleBias.unit"],
    ),
    "a union": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [-9, 0.5, 9]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "clip": {{"type": "DML_OPERATOR_ELEMENT_WISE_CLIP1", "dmlCompileType": "DmlCompileGraph", "desc": {{
                "InputTensor": {THREE}, "OutputTensor": {THREE}, "MinMaxDataType": "FLOAT32",
                "Min": {{"Float32": -1, "comment": "inclusive"}}, "Max": {{"Float32": 1}}
            }}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "clip", "bindings": {{"InputTensor": "A", "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': -1, 0.5, 1",
        ["dispatchables.clip.desc.Min.comment"],
    ),
    "initial values": (
        """{
        "$schema": "./_schema.json",
        "resources": {
            "Sequence": {"initialValuesDataType": "INT32",
                         "initialValues": {"valueCount": 3, "valueStart": 5, "valueDelta": 2, "valueEnd": 9}},
            "Several": {"initialValuesDataType": "UNKNOWN",
                        "initialValues": [{"name": "alpha", "type": "UINT8", "value": 7, "unit": "dB"}]}
        },
        "dispatchables": {},
        "commands": [{"type": "print", "resource": "Several"}, {"type": "print", "resource": "Sequence"}]}""",
        "Resource 'Sequence': 5, 7, 9",
        [
            "resources.Sequence.initialValues.valueEnd (did you mean 'value'?)",
            "resources.Several.initialValues[0].unit",
        ],
    ),
    "a binding": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [0, 0, 0, 0, 1, 2, 3]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "copy": {{"type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
                      "desc": {{"InputTensor": {THREE}, "OutputTensor": {THREE}}}}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "copy", "bindings": {{
                "InputTensor": {{"name": "A", "elementOffset": 4, "elementCount": 3, "elementSize": 4}},
                "OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 1, 2, 3",
        [
            "commands[0].bindings.InputTensor.elementSize (did you mean 'elementSizeInBytes'?)",
        ],
    ),
    "typos that do no harm": (
        f"""{{
        "$schema": "./_schema.json",
        "resource": {{}},
        "resources": {{"A": {{{FLOATS}, "initialValues": [1.5], "sizeInBytess": 64}}}},
        "dispatchables": {{}},
        "commands": [{{"type": "print", "resource": "A", "verbos": true}}]}}""",
        "Resource 'A': 1.5",
        [
            "resource (did you mean 'resources'?)",
            "resources.A.sizeInBytess (did you mean 'sizeInBytes'?)",
            "commands[0].verbos (did you mean 'verbose'?)",
        ],
    ),
    "files": (
        """{
        "$schema": "./_schema.json",
        "resources": {"A": {"initialValues": {"sourcePath": "a.npy", "sha256": "not looked at"}}},
        "dispatchables": {},
        "commands": [
            {"type": "writeFile", "resource": "A", "targetPath": "b.npy", "overwrite": true},
            {"type": "print", "resource": "A"}
        ]}""",
        "Resource 'A': 1, 2",
        ["resources.A.initialValues.sha256", "commands[0].overwrite"],
    ),
    "an ONNX model": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"X": {{{FLOATS}, "initialValues": [1, 2, 3]}}, "Y": {{"initialValues": "deferred"}}}},
        "dispatchables": {{
            "net": {{"Type": "onnx", "sourcePath": "net.onnx", "graphOptimizationLevel": 99, "provider": "dml"}}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "net", "bindings": {{
                "x": {{"name": "X", "shape": [3], "elementCount": 3}}, "y": "Y"}}}},
            {{"type": "print", "resource": "Y"}}
        ]}}""",
        "Resource 'Y': -1, -2, -3",
        ["dispatchables.net.provider"],
    ),
    "a place for owned tensors": (
        f"""{{
        "$schema": "./_schema.json",
        "resources": {{"A": {{{FLOATS}, "initialValues": [1, 2, 3]}}, "Out": {ZEROS}}},
        "dispatchables": {{
            "copy": {{
                "type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
                "desc": {{"InputTensor": {{"DataType": "FLOAT32", "Sizes": [3], "Flags": "OWNED_BY_DML"}},
                          "OutputTensor": {THREE}}},
                "executionFlags": "NONE",
                "bindings": {{"InputTensor": {{"name": "A", "lifetime": "static"}}}}
            }}
        }},
        "commands": [
            {{"type": "dispatch", "dispatchable": "copy", "bindings": {{"OutputTensor": "Out"}}}},
            {{"type": "dispatch", "dispatchable": "copy", "bindings": {{"OutputTensor": "Out"}}}},
            {{"type": "print", "resource": "Out"}}
        ]}}""",
        "Resource 'Out': 1, 2, 3",
        ["dispatchables.copy.bindings.InputTensor.lifetime"],
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With the files that some of the models name."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.float32([1, 2]))
    text = '<ir_version: 8, opset_import: ["": 17]> m (float[N] x) => (float[N] y) { y = Neg (x) }'
    onnx.save(onnx.parser.parse_model(text), "net.onnx")
    return tmp_path


def told(fields):
    return f"m.json: fields that are not known were ignored: {', '.join(fields)}"


@pytest.mark.parametrize("name", MODELS)
def test_they_run(folder, name):
    """One warning for the file, at the line that asked for it; none where there is nothing to be told."""
    text, last, fields = MODELS[name]
    path = written(folder, text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = DispatchModel(path)
    assert [(w.category, str(w.message), w.filename) for w in caught] == [
        (dml.UnknownFieldWarning, told(fields), __file__) for _ in fields[:1]
    ]
    said = []
    made.run(said.append)
    assert [line for line in said if line.startswith("Resource")][-1] == last


@pytest.mark.parametrize("name", MODELS)
def test_in_the_shell(folder, name):
    """On standard error, so that what is printed stays the tool's."""
    text, last, fields = MODELS[name]
    done = CliRunner().invoke(cli, ["run", str(written(folder, text))], catch_exceptions=False)
    assert done.exit_code == 0
    assert last in done.stdout.splitlines()
    assert done.stderr == "".join(f"anydml: warning: {told(fields)}\n" for _ in fields[:1])


def test_a_process_of_its_own_warns_in_one_line(folder):
    path = written(folder, MODELS["notes everywhere"][0])
    done = subprocess.run(
        [sys.executable, "-m", "anydml", "run", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"anydml: warning: {told(MODELS['notes everywhere'][2])}"]


def test_an_error_tells_them_instead(folder):
    """They may be its cause; there is no warning beside it."""
    parts = model()
    parts["resources"]["A"] = {"initialValuesDataTyp": "FLOAT32", "initialValues": [1, 2, 3, 4]}
    with pytest.raises(dml.InvalidModel) as caught:
        DispatchModel(written(folder, parts))
    assert [str(p) for p in caught.value.problems] == [
        "m.json: resources.A: initialValuesDataType: expected a data type, but got None",
        "m.json: resources.A: field 'initialValuesDataTyp' is not known, and was ignored; "
        "did you mean 'initialValuesDataType'?",
    ]


@pytest.mark.parametrize(
    ("desc", "message"),
    [
        ({"ATensor": 5}, r"ELEMENT_WISE_IF: ATensor: expected a tensor description, but got int"),
        ({"ATensor": None}, r"expected field ATensor, but it is missing"),
        ({"ATensor": {"DataType": "FLOAT32", "Size": [2, 2]}}, r"(?s)field Sizes.*did you mean 'Sizes'"),
        ({"ATensor": {"DataType": "FLOAT32", "Sizes": "2"}}, r"Sizes: expected a list of integers"),
    ],
)
def test_what_is_missing_or_of_another_type_is_an_error(folder, desc, message):
    parts = model()
    parts["dispatchables"]["if"]["desc"] |= desc
    with pytest.raises(dml.InvalidOperator, match=message):
        DispatchModel(written(folder, parts))


@pytest.mark.parametrize("desc", [[], "x", 7])
def test_a_description_that_is_none(folder, desc):
    parts = model()
    parts["dispatchables"]["if"]["desc"] = desc
    with pytest.raises(dml.AnyDMLError, match="Desc: expected a dictionary"):
        DispatchModel(written(folder, parts))


def test_descriptions_in_python_are_strict():
    """Whoever writes Python sees the error at once, where a file may come from another version of the tool."""
    tensor = {"DataType": "FLOAT32", "Sizes": [3]}
    desc = {"InputTensor": tensor, "OutputTensor": tensor}
    device = dml.Device()
    for wrong, message in (
        ({"Type": "ELEMENT_WISE_ABS", "Desc": desc, "note": ""}, "beside them"),
        ({"Type": "ELEMENT_WISE_ABS", "Desc": {**desc, "ScaleBais": None}}, "did you mean 'ScaleBias'"),
        (
            {"Type": "ELEMENT_WISE_ABS", "Desc": {**desc, "InputTensor": {**tensor, "note": ""}}},
            "expected a tensor field",
        ),
    ):
        with pytest.raises(dml.InvalidOperator, match=message):
            device.create_operator(wrong)


def test_many_unknown_fields(folder):
    """Some are told, the others counted; names that cannot be printed do no harm to the terminal."""
    parts = model() | {f"note {k:04}": k for k in range(5000)} | {"\x1b[2J": 0}
    with pytest.warns(dml.UnknownFieldWarning) as caught:
        DispatchModel(written(folder, parts))
    (warning,) = caught
    expected = [f"note {k:04}" for k in range(MAX_SUGGESTED_FIELDS)] + [
        f"and {5001 - MAX_SUGGESTED_FIELDS:,} more"
    ]
    assert str(warning.message) == told(expected)
    with pytest.warns(dml.UnknownFieldWarning, match=r"ignored: '\\x1b\[2J'$"):
        DispatchModel(written(folder, model() | {"\x1b[2J": 0}))
    wrong = written(folder, json.dumps({f"note {k}": 0 for k in range(5000)}))
    with pytest.raises(dml.InvalidModel, match=rf"{5000 - MAX_SUGGESTED_FIELDS:,} more fields") as error:
        DispatchModel(wrong)
    assert len(error.value.problems) == 3 + MAX_SUGGESTED_FIELDS + 1


def test_warnings_can_be_errors(folder):
    path = written(folder, model(note=""))
    with warnings.catch_warnings():
        warnings.simplefilter("error", dml.UnknownFieldWarning)
        with pytest.raises(dml.UnknownFieldWarning, match=r"ignored: note$"):
            DispatchModel(path)
