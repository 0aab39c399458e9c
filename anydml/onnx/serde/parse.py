"""Files, bytes and messages to a ModelProto that has a graph, an opset and readable names."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto

from anydml.errors import InvalidInput, InvalidModel, Problem, Unsupported, short_repr
from anydml.files import MAX_MODEL, read_file

ModelSource = str | os.PathLike[str] | bytes | ModelProto


def parse(source: ModelSource) -> tuple[ModelProto, Path | None, str]:
    """The ModelProto, the folder that its external data must lie in, and how messages call the file.

    Raises:
        InvalidInput: no source of a model.
        InvalidModel: not an ONNX model.
        OSError: the file cannot be read, is a folder or a device, or larger than a model can be.
    """
    if isinstance(source, ModelProto):
        return _whole(source, source.ByteSize(), ""), None, ""
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        message = f"expected a path, bytes or an onnx.ModelProto, but got {type(source).__name__}"
        raise InvalidInput(Problem("model", message))
    if isinstance(source, str) and "\0" in source:
        raise InvalidInput(Problem("model", f"expected a path, but got {short_repr(source)}"))
    if isinstance(source, bytes | bytearray | memoryview):
        data, folder, where = bytes(source), None, ""
    else:
        path = Path(source)
        data, folder, where = read_file(path, MAX_MODEL), path.resolve().parent, path.name
    try:
        proto = ModelProto.FromString(data)
    except DecodeError as error:
        message = f"expected an ONNX model, but got {len(data)} bytes that do not parse"
        remedy = "damaged, truncated, or nested deeper than protobuf reads (about 30 Ifs)?"
        raise InvalidModel(Problem(where, message, remedy)) from error
    return _whole(proto, len(data), where), folder, where


def _whole(proto: ModelProto, size: int, where: str) -> ModelProto:
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        message = f"expected an ONNX model, but got {size} bytes without a graph"
        raise InvalidModel(Problem(where, message))
    graph = proto.graph
    told = (proto.producer_name, proto.producer_version, proto.domain, proto.doc_string)
    names = (v.name for v in (*graph.input, *graph.output, *graph.initializer))
    domains = (o.domain for o in proto.opset_import)
    for text in (*told, graph.name, graph.doc_string, *names, *domains):
        if not isinstance(text, str):
            raise InvalidModel(Problem(where, "expected text in UTF-8, but got other bytes", "damaged?"))
    return proto


def opsets_of(proto: ModelProto, where: str) -> dict[str, int]:
    opsets = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    opsets.setdefault("", 1)
    for domain, version in opsets.items():
        if domain and not 0 <= version < 2**31:
            raise InvalidModel(
                Problem(
                    where, f"expected an opset of domain {short_repr(domain)}, but got {short_repr(version)}"
                )
            )
    if opsets[""] < 1:
        raise InvalidModel(Problem(where, f"expected opset 1 or newer, but got opset {opsets['']}"))
    newest = onnx.defs.onnx_opset_version()
    if opsets[""] > newest:
        raise Unsupported(
            Problem(
                where,
                f"expected opset {newest} or older, but got opset {opsets['']}",
                f"onnx {onnx.__version__} is installed; a newer one may know it",
            )
        )
    return opsets


def fixed_weights(proto: ModelProto) -> bool:
    """Whether initializers are constants although they stand among the inputs: so it was before IR 4."""
    return 0 < proto.ir_version < 4


def domain_of(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
