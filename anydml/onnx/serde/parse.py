"""Files, bytes and messages to a ModelProto that has a graph, an opset and readable names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.message import DecodeError

from anydml.dataclass import dataclass
from anydml.errors import InvalidInput, InvalidModel, Problem, Unsupported, nearest, short_repr
from anydml.files import MAX_MODEL, read_file
from anydml.onnx.protos import ModelProto
from anydml.onnx.serde.external_data import home_of
from anydml.onnx.serde.raw_data import RawData
from anydml.runtime.mapped_file import MIN_FILE_BYTES, MappedFile, can_map

ModelSource = str | os.PathLike[str] | bytes | ModelProto


def parse(source: ModelSource) -> tuple[ModelProto, Path | None, str]:
    """The ModelProto, the folder that its external data must lie in, and how messages call the file.

    Raises:
        InvalidInput: no source of a model.
        InvalidModel: not an ONNX model.
        OSError: the file cannot be read, is a folder or a device, or larger than a model can be.
    """
    if isinstance(source, ModelProto):
        try:
            size = source.ByteSize()
        except RecursionError as error:  # of protobuf in Python
            raise InvalidModel(Problem("", TOO_DEEP)) from error
        return _whole(source, size, ""), None, ""
    data, path = _bytes_of(source, mapped=False)
    assert isinstance(data, bytes)
    return _placed(path, data, len(data))


def parse_light(source: ModelSource, mapped: bool) -> tuple[ModelProto, Path | None, str, RawData | None]:
    """As `parse`, but large initializers are where `RawData` says, and the message has tokens for them.

    `mapped`: a file may be mapped.
    """
    if isinstance(source, ModelProto):
        return (*parse(source), None)
    data, path = _bytes_of(source, mapped and can_map())
    raw = RawData(data)
    return (*_placed(path, raw.without(), len(raw)), raw)


def _placed(path: Path | None, data: bytes, size: int) -> tuple[ModelProto, Path | None, str]:
    """A message, with the folder and the name of the file that it is from."""
    if path is None:
        return _parsed(data, size, ""), None, ""
    proto = _parsed(data, size, path.name)
    return proto, home_of(path, proto), path.name


def _bytes_of(source: ModelSource, mapped: bool) -> tuple[bytes | MappedFile, Path | None]:
    """A file's content, or `mapped`, and its path."""
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        message = f"expected a path, bytes or an onnx.ModelProto, but got {type(source).__name__}"
        raise InvalidInput(Problem("model", message))
    if isinstance(source, str) and "\0" in source:
        raise InvalidInput(Problem("model", f"expected a path, but got {short_repr(source)}"))
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), None
    path = Path(source)
    if mapped and path.is_file() and MIN_FILE_BYTES <= path.stat().st_size <= MAX_MODEL:
        return MappedFile(path), path
    return read_file(path, MAX_MODEL), path


def _parsed(data: bytes, size: int, where: str) -> ModelProto:
    """The message; `size`: of the file."""
    try:
        proto = ModelProto.FromString(data)
    except UnicodeDecodeError as error:  # of protobuf in Python; in C it leaves them bytes
        raise InvalidModel(Problem(where, *_NO_TEXT)) from error
    except (DecodeError, RecursionError) as error:
        message = f"expected an ONNX model, but got {size} bytes that do not parse"
        remedy = "damaged, truncated, or nested deeper than protobuf reads (about 30 Ifs)?"
        if data[4:8] == b"ORTM":  # as FlatBuffers has the names of formats
            message = "expected an ONNX model, but got one in onnxruntime's own format (.ort)"
            remedy = "the model that it was made from is taken"
        raise InvalidModel(Problem(where, message, remedy)) from error
    return _whole(proto, size, where)


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
            raise InvalidModel(Problem(where, *_NO_TEXT))
    return proto


TOO_DEEP = "expected graphs of reasonable depth, but they nest too deeply"
_NO_TEXT = "expected text in UTF-8, but got other bytes", "damaged?"


ASSUMED_OPSET = 23
"""Of files that import other domains only: onnxruntime takes the newest that it knows, at least this. Those
that import nothing are older than opsets."""
SURE_OPSET = 24
"""What every onnx package knows that is supported, so that it need not be asked."""


def opsets_of(proto: ModelProto, where: str) -> dict[str, int]:
    opsets = {domain_of(o.domain): int(o.version) for o in proto.opset_import}
    opsets.setdefault("", ASSUMED_OPSET if opsets else 1)
    for domain, version in opsets.items():
        if domain and not 0 <= version < 2**31:
            raise InvalidModel(
                Problem(
                    where, f"expected an opset of domain {short_repr(domain)}, but got {short_repr(version)}"
                )
            )
    if opsets[""] < 1:
        raise InvalidModel(Problem(where, f"expected opset 1 or newer, but got opset {opsets['']}"))
    if opsets[""] > SURE_OPSET:
        _check_known(opsets[""], where)
    return opsets


def _check_known(opset: int, where: str) -> None:
    import onnx  # which takes long, and only new opsets need

    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        message = f"expected opset {newest} or older, but got opset {opset}"
        raise Unsupported(
            Problem(where, message, f"onnx {onnx.__version__} is installed; a newer one may know it")
        )


def with_sizes(proto: ModelProto, dims: Mapping[str, int]) -> ModelProto:
    """The model with numbers in the place of symbols, in what its inputs and outputs declare.

    Raises:
        InvalidInput: a symbol that no input has, or a size that is none.
    """
    sized = ModelProto()
    sized.CopyFrom(proto)
    inputs = [d for i in sized.graph.input for d in i.type.tensor_type.shape.dim]
    symbols = sorted({d.dim_param for d in inputs} - {""})
    problems = []
    for name, size in dims.items():
        if name not in symbols:
            known = ", ".join(symbols) or "there is none"
            message = f"expected a symbol of an input ({known}), but got {short_repr(name)}"
            problems.append(Problem("dims", message, nearest(str(name), symbols)))
        elif isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**63:
            problems.append(Problem("dims", f"expected a size for {name!r}, but got {short_repr(size)}"))
    if problems:
        raise InvalidInput(*problems)
    for dim in (*inputs, *(d for o in sized.graph.output for d in o.type.tensor_type.shape.dim)):
        if dim.dim_param in dims:
            dim.dim_value = dims[dim.dim_param]
    return sized


def fixed_weights(proto: ModelProto) -> bool:
    """Whether initializers are constants although they stand among the inputs: so it was before IR 4."""
    return 0 < proto.ir_version < 4


def domain_of(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


@dataclass(frozen=True)
class Meta:
    """What a file says about itself, under the names of onnxruntime's ModelMetadata."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]


def meta_of(proto: ModelProto) -> Meta:
    return Meta(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version if proto.HasField("model_version") else (1 << 63) - 1,  # as in onnxruntime
        {p.key: p.value for p in proto.metadata_props},
    )
