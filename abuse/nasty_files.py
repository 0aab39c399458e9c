"""Files that refer to others, and DxDispatch models and descriptions that are absurd."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import anydml
from abuse.nasty_entry import ANY_ERROR, EITHER, nasty
from abuse.nasty_models import X, built, run, same
from anydml.dxdispatch.model import DispatchModel

Make = Callable[[], object]


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


def _secret() -> Path:
    path = Path("secret.bin")
    path.write_bytes(X.tobytes())
    Path("here").mkdir(exist_ok=True)
    return path.resolve()


@nasty("InvalidModel", group="files")
def data_outside_the_folder() -> None:
    _secret()
    _external("../secret.bin")


@nasty("InvalidModel", group="files")
def data_at_an_absolute_path() -> None:
    _external(str(_secret()))


@nasty("InvalidModel", group="files")
def data_behind_a_link() -> None:
    Path("here").mkdir()
    Path("here/link").symlink_to(_secret())
    _external("link")


@nasty("InvalidModel", group="files")
def data_behind_a_linked_folder() -> None:
    _secret()
    Path("here/out").symlink_to(Path().resolve())
    _external("out/secret.bin")


@nasty("InvalidModel", group="files")
def data_behind_links_in_a_circle() -> None:
    Path("here").mkdir()
    Path("here/a").symlink_to("b")
    Path("here/b").symlink_to("a")
    _external("a")


@nasty("InvalidModel", group="files")
def data_in_a_folder() -> None:
    Path("here/w").mkdir(parents=True)
    _external("w")


@nasty("InvalidModel", group="files")
def data_in_a_pipe() -> None:
    Path("here").mkdir()
    os.mkfifo("here/w")
    _external("w")


@nasty("InvalidModel", group="files")
def data_in_a_device() -> None:
    _external("/dev/zero")


@nasty("InvalidModel", group="files")
def data_behind_a_link_to_a_device() -> None:
    Path("here").mkdir()
    Path("here/w").symlink_to("/dev/zero")
    _external("w")


@nasty("InvalidModel", group="files")
def data_under_a_name_of_zeros() -> None:
    _external("a\0b")


@nasty("InvalidModel", group="files")
def data_under_a_long_name() -> None:
    _external("x" * 5000)


@nasty("InvalidModel", group="files")
def data_at_absurd_offsets() -> None:
    """All are refused; the last one lets it through."""
    Path("here").mkdir()
    Path("here/w").write_bytes(X.tobytes())
    for number in (
        "9" * 30,
        "9" * 5000,
        str(2**63),
        str(2**64 - 12),
        "-4",
        "1e3",
        "²",
        "x",
        " ",
        "0x4",
        "13",
    ):
        for key in ("offset", "length"):
            try:
                _external("w", {key: number})
            except anydml.InvalidModel:
                continue
            raise AssertionError(f"{key} {number[:40]!r} is taken")
    _external("w", {"offset": 4})


@nasty("InvalidModel", group="files")
def data_of_absurd_sizes() -> None:
    """A file with a hole as large as the weight, which is larger than any memory."""
    Path("here").mkdir()
    with open("here/w", "wb") as file:
        file.truncate(1 << 40)
    try:
        _external("w", sizes=(1 << 38,))
    except (anydml.ExecutionFailed, anydml.Unsupported) as error:
        raise anydml.InvalidModel(str(error)) from error


@nasty(group="files")
def data_in_the_model_file_itself() -> None:
    """Odd, and harmless."""
    assert _external("model.onnx", {"offset": 0})[0].shape == X.shape


@nasty("IsADirectoryError", group="files")
def a_model_that_is_a_folder() -> None:
    anydml.load(".")


# ---- DxDispatch --------------------------------------------------------------------------------------

_OUT = {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}}


def _dispatched(text: str | bytes) -> None:
    Path("m.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    DispatchModel("m.json").run(lambda line: None)


def _resource(**resource: object) -> None:
    _dispatched(json.dumps({"resources": {"A": resource}, "dispatchables": {}, "commands": []}))


@nasty("InvalidModel", group="DxDispatch models")
def deep_json() -> None:
    _dispatched(b'{"resources": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}")


@nasty("InvalidModel", group="DxDispatch models")
def deep_json_objects() -> None:
    _dispatched(b'{"a":' * 300_000 + b"0" + b"}" * 300_000)


@nasty("InvalidModel", group="DxDispatch models")
def deep_json_within_what_python_reads() -> None:
    """Something below may recurse, too."""
    _resource(initialValuesDataType="FLOAT32", initialValues=_nested(900))


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@nasty("InvalidModel", group="DxDispatch models", seconds=20)
def a_million_resources() -> None:
    small = '{"initialValuesDataType": "UINT8", "initialValues": [1]}'
    _dispatched(
        '{"resources": {'
        + ", ".join(f'"r{k}": {small}' for k in range(1_000_000))
        + '}, "dispatchables": {}, "commands": []}'
    )


@nasty("InvalidModel", seconds=30, group="DxDispatch models")
def a_hundred_thousand_unknown_fields() -> None:
    """Each of them may have been meant to be another one."""
    _dispatched(json.dumps({f"field{k}": 0 for k in range(100_000)}))


@nasty("InvalidModel", seconds=30, group="DxDispatch models")
def a_long_unknown_field() -> None:
    _dispatched(json.dumps({"resources" * 100_000: 0}))


@nasty("InvalidModel", seconds=60, group="DxDispatch models")
def ten_thousand_misspelt_names_of_resources() -> None:
    resources = {f"resource{k}": _OUT for k in range(2000)}
    commands = [{"type": "print", "resource": f"resuorce{k}"} for k in range(2000)]
    _dispatched(json.dumps({"resources": resources, "dispatchables": {}, "commands": commands}))


@nasty("InvalidModel", group="DxDispatch models")
def buffers_larger_than_memory() -> None:
    _resource(initialValuesDataType="FLOAT32", initialValues={"valueCount": 2**33, "value": 0})


@nasty("InvalidModel", group="DxDispatch models")
def sequences_larger_than_memory() -> None:
    initial = {"valueCount": 2**33, "valueStart": 0, "valueDelta": 1}
    _resource(initialValuesDataType="FLOAT32", initialValues=initial)


@nasty("InvalidModel", group="DxDispatch models")
def padding_larger_than_memory() -> None:
    _resource(initialValuesDataType="FLOAT32", initialValues=[1], sizeInBytes=2**36)


@nasty("InvalidModel", group="DxDispatch models", megabytes=2048)
def many_buffers_that_are_large_together() -> None:
    """Each is within what is allowed for one."""
    large = {"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 2**28, "value": 1}}
    resources = {f"r{k}": large for k in range(100)}
    _dispatched(json.dumps({"resources": resources, "dispatchables": {}, "commands": []}))


def _sourced(path: str) -> None:
    _resource(initialValuesDataType="UINT8", initialValues={"sourcePath": path})


@nasty("InvalidModel", "OSError", group="DxDispatch models")
def a_buffer_from_a_device() -> None:
    _sourced("/dev/zero")


@nasty("InvalidModel", "OSError", group="DxDispatch models")
def a_buffer_from_a_pipe() -> None:
    os.mkfifo("pipe.bin")
    _sourced("pipe.bin")


@nasty("InvalidModel", "OSError", "IsADirectoryError", group="DxDispatch models")
def a_buffer_from_a_folder() -> None:
    _sourced(".")


@nasty("InvalidModel", "OSError", group="DxDispatch models")
def a_buffer_from_a_file_larger_than_memory() -> None:
    with open("huge.bin", "wb") as file:
        file.truncate(1 << 36)
    _sourced("huge.bin")


@nasty("InvalidModel", group="DxDispatch models")
def numpy_files_that_lie() -> None:
    """All are refused; the last one lets it through."""
    headers = [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1e3,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 100 + "), }",
        "(" * 5000,
        "[" * 100 + "]" * 100,
        "",
    ]
    for k, header in enumerate(headers):
        data = header.encode().ljust(118) + b"\n"
        Path("a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(data).to_bytes(2, "little") + data + b"\0" * 8)
        try:
            _resource(initialValues={"sourcePath": "a.npy"})
        except anydml.InvalidModel:
            continue
        raise AssertionError(f"header {k} is taken")
    plain = io.BytesIO()
    np.save(plain, X)
    Path("a.npy").write_bytes(plain.getvalue()[:-1])
    _resource(initialValues={"sourcePath": "a.npy"})


def _onnx(path: str) -> None:
    net = {"type": "onnx", "sourcePath": path}
    command = {"type": "dispatch", "dispatchable": "net", "bindings": {}}
    _dispatched(json.dumps({"resources": {}, "dispatchables": {"net": net}, "commands": [command]}))


@nasty("InvalidModel", group="DxDispatch models")
def an_onnx_model_from_a_device() -> None:
    _onnx("/dev/zero")


@nasty("InvalidModel", group="DxDispatch models")
def an_onnx_model_from_a_pipe() -> None:
    os.mkfifo("pipe.onnx")
    _onnx("pipe.onnx")


@nasty(*ANY_ERROR, group="DxDispatch models")
def an_onnx_model_of_huge_inputs() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 40])
    onnx.save(built([helper.make_node("Neg", ["x"], ["y"])], [info]), "m.onnx")
    _onnx("m.onnx")


# ---- descriptions ------------------------------------------------------------------------------------

_TENSOR = {"DataType": "FLOAT32", "Sizes": [2, 2]}
_ADD = {"Type": "ELEMENT_WISE_ADD1", "ATensor": _TENSOR, "BTensor": _TENSOR, "OutputTensor": _TENSOR}


def _made(desc: Any) -> None:
    """Validate and create agree."""
    problems = anydml.validate(desc)
    assert problems
    anydml.Device().create_operator(desc)


@nasty("InvalidOperator", group="operator descriptions")
def a_description_in_itself() -> None:
    desc: dict[str, Any] = {**_ADD}
    desc["FusedActivation"] = desc
    _made(desc)


@nasty("InvalidOperator", group="operator descriptions")
def a_list_in_itself() -> None:
    sizes: list[Any] = [2]
    sizes.append(sizes)
    _made({**_ADD, "ATensor": {"DataType": "FLOAT32", "Sizes": sizes}})


@nasty("InvalidOperator", group="operator descriptions")
def a_description_of_great_depth() -> None:
    desc: Any = "ACTIVATION_RELU"
    for _ in range(100_000):
        desc = {"Type": "ACTIVATION_RELU", "FusedActivation": desc}
    _made({**_ADD, "FusedActivation": desc})


@nasty("InvalidOperator", "Unsupported", group="operator descriptions")
def a_type_of_great_length() -> None:
    _made({**_ADD, "Type": "ELEMENT_WISE_ADD1" * 100_000})


@nasty("InvalidOperator", group="operator descriptions")
def sizes_of_a_million_axes() -> None:
    tensor = {"DataType": "FLOAT32", "Sizes": [1] * 1_000_000}
    _made({**_ADD, "ATensor": tensor, "BTensor": tensor, "OutputTensor": tensor})


@nasty("InvalidOperator", group="operator descriptions")
def numbers_of_a_million_digits() -> None:
    _made(
        {
            **_ADD,
            "ATensor": {"DataType": "FLOAT32", "Sizes": [10**1_000_000, 2], "Strides": [10**1_000_000, 1]},
        }
    )


@nasty("InvalidOperator", seconds=20, group="operator descriptions")
def ten_thousand_unknown_fields() -> None:
    _made({**_ADD, **{f"OutputTensr{k}": 0 for k in range(10_000)}})


@nasty("InvalidOperator", group="operator descriptions")
def strides_that_overlap_in_every_way() -> None:
    """Whether elements of the output meet is a hard question in general."""
    sizes, strides = [3, 5, 7, 11, 13, 17, 19, 23], [9699690, 1939938, 646646, 277134, 131, 11, 7, 5]
    tensor = {"DataType": "UINT8", "Sizes": sizes}
    _made(
        {
            "Type": "ELEMENT_WISE_IDENTITY",
            "InputTensor": tensor,
            "OutputTensor": {**tensor, "Strides": strides},
        }
    )


@nasty(*EITHER, group="operator descriptions")
def an_operator_of_the_largest_tensors() -> None:
    """It is made, and there is no array to run it on."""
    tensor = {"DataType": "UINT8", "Sizes": [2**32 - 1]}
    desc = {"Type": "ELEMENT_WISE_IDENTITY", "InputTensor": tensor, "OutputTensor": tensor}
    device = anydml.Device()
    compiled = device.compile_operator(device.create_operator(desc))
    same(np.zeros(1), np.zeros(1))
    compiled.dispatch({"InputTensor": np.zeros(4, np.uint8)}, {"OutputTensor": np.zeros(4, np.uint8)})
