"""Files that refer to others, and DxDispatch models and descriptions that are absurd."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import anydml
from anydml.dxdispatch.model import DispatchModel
from tests.robustness.hostile import ANY_ERROR, EITHER, X, built, limited, run

# ---- external data -----------------------------------------------------------------------------------


def _external(location: str, entries: dict[str, object] | None = None, sizes: tuple[int, ...] = (3,)) -> Any:
    """Run a model in a folder of its own, whose weight lies elsewhere."""
    weight = TensorProto(name="w", data_type=1, dims=sizes, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **(entries or {})}.items():
        weight.external_data.add(key=key, value=str(value))
    model = built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight])
    Path("here").mkdir(exist_ok=True)
    Path("here/model.onnx").write_bytes(model.SerializeToString())
    return run("here/model.onnx", x=X)


def _secret() -> str:
    Path("secret.bin").write_bytes(X.tobytes())
    return str(Path("secret.bin").resolve())


def _linked(target: str, name: str = "w") -> str:
    Path("here", name).symlink_to(target)
    return "w"


def _circle() -> str:
    _linked("w", "v")
    return _linked("v")


def _pipe() -> str:
    os.mkfifo("here/w")
    return "w"


LOCATIONS: dict[str, Callable[[], str]] = {
    "outside the folder": lambda: _secret() and "../secret.bin",
    "an absolute path": _secret,
    "a link": lambda: _linked(_secret()),
    "a linked folder": lambda: _secret() and _linked(str(Path().resolve())) + "/secret.bin",
    "links in a circle": _circle,
    "a folder": lambda: os.mkdir("here/w") or "w",  # type: ignore[func-returns-value]
    "a pipe": _pipe,
    "a device": lambda: "/dev/zero",
    "a link to a device": lambda: _linked("/dev/zero"),
    "a name of zeros": lambda: "a\0b",
    "a long name": lambda: "x" * 5000,
}


@pytest.mark.parametrize("where", LOCATIONS)
@limited("InvalidModel")
def test_data_elsewhere(where: str) -> None:
    Path("here").mkdir()
    _external(LOCATIONS[where]())


NUMBERS = {
    **{n: n for n in ("-4", "1e3", "²", "x", " ", "0x4", "13")},
    "30 digits": "9" * 30,
    "5000 digits": "9" * 5000,
    "2^63": str(2**63),
    "2^64": str(2**64 - 12),
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("key", ["offset", "length"])
@limited("InvalidModel")
def test_data_at_absurd_offsets(key: str, number: str) -> None:
    Path("here").mkdir()
    Path("here/w").write_bytes(X.tobytes())
    _external("w", {key: NUMBERS[number]})


@limited("InvalidModel")
def test_data_at_an_offset_that_leaves_too_little() -> None:
    Path("here").mkdir()
    Path("here/w").write_bytes(X.tobytes())
    _external("w", {"offset": 4})


@limited("InvalidModel")
def test_data_of_absurd_sizes() -> None:
    """A file with a hole as large as the weight, which is larger than any memory."""
    Path("here").mkdir()
    with open("here/w", "wb") as file:
        file.truncate(1 << 40)
    try:
        _external("w", sizes=(1 << 38,))
    except (anydml.ExecutionFailed, anydml.Unsupported) as error:
        raise anydml.InvalidModel(str(error)) from error


@limited()
def test_data_in_the_model_file_itself() -> None:
    """Odd, and harmless."""
    assert _external("model.onnx", {"offset": 0})[0].shape == X.shape


@limited("IsADirectoryError")
def test_a_model_that_is_a_folder() -> None:
    anydml.load(".")


# ---- DxDispatch --------------------------------------------------------------------------------------

_OUT = {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}}


def _dispatched(text: str) -> None:
    Path("m.json").write_text(text)
    DispatchModel("m.json").run(lambda line: None)


def _resource(**resource: object) -> None:
    _dispatched(_whole({"A": resource}))


def _whole(resources: Any = None, commands: Sequence[object] = ()) -> str:
    return json.dumps({"resources": resources or {}, "dispatchables": {}, "commands": commands})


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


_SMALL = {"initialValuesDataType": "UINT8", "initialValues": [1]}
_DEEP = {"initialValuesDataType": "FLOAT32", "initialValues": _nested(900)}
_MISSPELT = [{"type": "print", "resource": f"resuorce{k}"} for k in range(2000)]
TEXTS: dict[str, Callable[[], str]] = {
    "deep lists": lambda: '{"resources": ' + "[" * 1_000_000 + "]" * 1_000_000 + "}",
    "deep objects": lambda: '{"a":' * 300_000 + "0" + "}" * 300_000,
    "as deep as Python reads": lambda: _whole({"A": _DEEP}),
    "300,000 resources": lambda: _whole({f"r{k}": _SMALL for k in range(300_000)}),
    "unknown fields": lambda: json.dumps({f"field{k}": 0 for k in range(100_000)}),
    "a long unknown field": lambda: json.dumps({"resources" * 100_000: 0}),
    "misspelt names of resources": lambda: _whole({f"resource{k}": _OUT for k in range(2000)}, _MISSPELT),
}


@pytest.mark.parametrize("text", TEXTS)
@limited("InvalidModel", seconds=30)
def test_texts(text: str) -> None:
    _dispatched(TEXTS[text]())


@limited("OSError", seconds=20)
def test_a_file_that_is_too_large_to_be_read() -> None:
    _dispatched(_whole({f"r{k}": _SMALL for k in range(1_000_000)}))


@pytest.mark.parametrize(
    "resource",
    [
        {"initialValues": {"valueCount": 2**33, "value": 0}},
        {"initialValues": {"valueCount": 2**33, "valueStart": 0, "valueDelta": 1}},
        {"initialValues": [1], "sizeInBytes": 2**36},
    ],
    ids=["a value", "a sequence", "padding"],
)
@limited("InvalidModel")
def test_buffers_larger_than_memory(resource: dict[str, Any]) -> None:
    _resource(initialValuesDataType="FLOAT32", **resource)


@limited("InvalidModel", seconds=30, megabytes=2048)
def test_many_buffers_that_are_large_together() -> None:
    """Each is within what is allowed for one."""
    large = {"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 2**28, "value": 1}}
    _dispatched(_whole({f"r{k}": large for k in range(100)}))


def _sourced(path: str) -> None:
    _resource(initialValuesDataType="UINT8", initialValues={"sourcePath": path})


def _truncated(path: str) -> str:
    with open(path, "wb") as file:
        file.truncate(1 << 36)
    return path


def _piped(path: str) -> str:
    os.mkfifo(path)
    return path


SOURCES: dict[str, Callable[[], str]] = {
    "a device": lambda: "/dev/zero",
    "a pipe": lambda: _piped("pipe.bin"),
    "a folder": lambda: ".",
    "a file larger than memory": lambda: _truncated("huge.bin"),
}


@pytest.mark.parametrize("source", SOURCES)
@limited("InvalidModel", "OSError", "IsADirectoryError")
def test_a_buffer_from(source: str) -> None:
    _sourced(SOURCES[source]())


HEADERS = {
    "a terabyte": "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
    "a negative size": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    "a size that is a float": "{'descr': '<f4', 'fortran_order': False, 'shape': (1e3,), }",
    "records": "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
    "long strings": "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (1,), }",
    "a hundred axes": "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 100 + "), }",
    "deep tuples": "(" * 5000,
    "deep lists": "[" * 100 + "]" * 100,
    "nothing": "",
}


@pytest.mark.parametrize("header", HEADERS)
@limited("InvalidModel")
def test_numpy_files_that_lie(header: str) -> None:
    data = HEADERS[header].encode().ljust(118) + b"\n"
    Path("a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + b"\0" * 8)
    _resource(initialValues={"sourcePath": "a.npy"})


@limited("InvalidModel")
def test_a_numpy_file_that_is_cut_off() -> None:
    plain = io.BytesIO()
    np.save(plain, X)
    Path("a.npy").write_bytes(plain.getvalue()[:-1])
    _resource(initialValues={"sourcePath": "a.npy"})


def _onnx(path: str) -> None:
    net = {"type": "onnx", "sourcePath": path}
    command = {"type": "dispatch", "dispatchable": "net", "bindings": {}}
    _dispatched(json.dumps({"resources": {}, "dispatchables": {"net": net}, "commands": [command]}))


@pytest.mark.parametrize("source", ["a device", "a pipe"])
@limited("InvalidModel")
def test_an_onnx_model_from(source: str) -> None:
    _onnx("/dev/zero" if source == "a device" else _piped("pipe.onnx"))


@limited(*ANY_ERROR)
def test_an_onnx_model_of_huge_inputs() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 40])
    onnx.save(built([helper.make_node("Neg", ["x"], ["y"])], [info]), "m.onnx")
    _onnx("m.onnx")


# ---- descriptions ------------------------------------------------------------------------------------

_TENSOR = {"DataType": "FLOAT32", "Sizes": [2, 2]}
_ADD = {"Type": "ELEMENT_WISE_ADD1", "ATensor": _TENSOR, "BTensor": _TENSOR, "OutputTensor": _TENSOR}


def _in_itself() -> dict[str, Any]:
    desc: dict[str, Any] = {**_ADD}
    desc["FusedActivation"] = desc
    return desc


def _list_in_itself() -> list[Any]:
    sizes: list[Any] = [2]
    sizes.append(sizes)
    return sizes


def _deep(depth: int) -> Any:
    desc: Any = "ACTIVATION_RELU"
    for _ in range(depth):
        desc = {"Type": "ACTIVATION_RELU", "FusedActivation": desc}
    return desc


def _overlapping() -> dict[str, Any]:
    """Whether elements of the output meet is a hard question in general."""
    sizes, strides = [3, 5, 7, 11, 13, 17, 19, 23], [9699690, 1939938, 646646, 277134, 131, 11, 7, 5]
    tensor = {"DataType": "UINT8", "Sizes": sizes}
    return {
        "Type": "ELEMENT_WISE_IDENTITY",
        "InputTensor": tensor,
        "OutputTensor": {**tensor, "Strides": strides},
    }


def _added(**tensor: Any) -> dict[str, Any]:
    return {**_ADD, "ATensor": {**_TENSOR, **tensor}}


DESCRIPTIONS: dict[str, Callable[[], Any]] = {
    "in itself": _in_itself,
    "a list in itself": lambda: _added(Sizes=_list_in_itself()),
    "great depth": lambda: {**_ADD, "FusedActivation": _deep(100_000)},
    "a type of great length": lambda: {**_ADD, "Type": "ELEMENT_WISE_ADD1" * 100_000},
    "a million axes": lambda: (
        {**_ADD, "ATensor": (t := {**_TENSOR, "Sizes": [1] * 1_000_000}), "BTensor": t, "OutputTensor": t}
    ),
    "a million digits": lambda: _added(Sizes=[10**1_000_000, 2], Strides=[10**1_000_000, 1]),
    "ten thousand unknown fields": lambda: {**_ADD, **{f"OutputTensr{k}": 0 for k in range(10_000)}},
    "strides that overlap in every way": _overlapping,
}


@pytest.mark.parametrize("which", DESCRIPTIONS)
@limited("InvalidOperator", seconds=30)
def test_descriptions(which: str) -> None:
    """Validate and create agree."""
    desc = DESCRIPTIONS[which]()
    assert anydml.validate(desc)
    anydml.Device().create_operator(desc)


@limited(*EITHER)
def test_an_operator_of_the_largest_tensors() -> None:
    """It is made, and there is no array to run it on."""
    tensor = {"DataType": "UINT8", "Sizes": [2**32 - 1]}
    desc = {"Type": "ELEMENT_WISE_IDENTITY", "InputTensor": tensor, "OutputTensor": tensor}
    device = anydml.Device()
    compiled = device.compile_operator(device.create_operator(desc))
    compiled.dispatch({"InputTensor": np.zeros(4, np.uint8)}, {"OutputTensor": np.zeros(4, np.uint8)})
