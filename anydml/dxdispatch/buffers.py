"""DxDispatch's JSON and its buffers: text to values, values and files to memory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dxdispatch import images
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import InvalidInput, InvalidModel, Problem, Unsupported, short_repr
from anydml.files import read_npy
from anydml.ir.dims import are_sizes
from anydml.ops.dtypes import FROM_NUMPY, NUMPY, native
from anydml.ops.enums import TensorDataType, parse

MAX_BYTES = 1 << 30
"""Buffers larger than this are taken for a mistake: a few words can ask for any number."""
MAX_TEXT = 1 << 26
_CHUNK = 1 << 20


@dataclass
class Resource:
    """A buffer: `data` in bytes (padded to 4), of which the elements of `shape` and `dtype` were given.

    Attributes:
        offset: of these elements, in bytes.
        deferred: takes the size of what is written to it.
        written: not so before that.
    """

    data: NDArray[np.uint8]
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int = 0
    deferred: bool = False
    written: bool = True

    @property
    def values(self) -> NDArray[Any]:
        return self.view_as(self.shape)

    def view_as(self, shape: Sequence[int]) -> NDArray[Any]:
        """The elements in another shape, which may have fewer of them.

        Raises:
            InvalidModel: the buffer does not have as many.
        """
        count, size = prod(shape), self.dtype.itemsize
        if self.offset + count * size > self.data.size:
            message = f"expected at most {(self.data.size - self.offset) // size:,} elements of {self.dtype}"
            raise InvalidModel(Problem("", f"{message}, the buffer's, but got {short_repr(list(shape))}"))
        return self.data[self.offset : self.offset + count * size].view(self.dtype).reshape(shape)


_FIELDS = (
    "initialValues",
    "initialValuesDataType",
    "initialValuesOffsetInBytes",
    "sizeInBytes",
    "resampleSize",
    "resampleMode",
)


_INITIAL_FIELDS = ("sourcePath", "valueCount", "value", "valueStart", "valueDelta")


def read_resource(item: Any, folder: Path, unknown: UnknownFields) -> Resource:
    """A buffer as a file describes it; the files that it names are looked for in `folder`, too.

    Raises:
        InvalidModel: it does not hold together.
        Unsupported: a data type that cannot be made here.
    """
    if not isinstance(item, dict):
        raise InvalidModel(Problem("", f"expected an object, but got {kind_of(item)}"))
    item = unknown.drop(item, _FIELDS)
    if isinstance(item.get("initialValues"), dict):
        initial = unknown.at("initialValues").drop(item["initialValues"], _INITIAL_FIELDS)
        item["initialValues"] = initial
    initial = item.get("initialValues")
    if initial == "deferred":
        return Resource(np.zeros(0, np.uint8), np.dtype(np.uint8), (0,), deferred=True, written=False)
    declared = item.get("initialValuesDataType")
    dtype = None
    if declared is not None and declared != "UNKNOWN":
        dtype = NUMPY.get(parse(TensorDataType, declared, "initialValuesDataType"))
        if dtype is None:
            raise Unsupported(Problem("initialValuesDataType", f"{declared} buffers cannot be made yet"))
    if isinstance(initial, dict) and "sourcePath" in initial:
        values = _from_file(item, dtype, folder)
    elif dtype is None:
        if declared != "UNKNOWN":
            message = f"expected a data type, but got {short_repr(declared)}"
            raise InvalidModel(Problem("initialValuesDataType", message))
        values = _pack_values(initial, unknown.at("initialValues"))
    elif isinstance(initial, list) and initial:
        values = np.array([_number(v, dtype, f"initialValues[{k}]") for k, v in enumerate(initial)], dtype)
    elif isinstance(initial, dict):
        values = _generate(initial, dtype)
    else:
        raise InvalidModel(
            Problem(
                "initialValues",
                f"expected an array of values, or an object, but got {kind_of(initial)}",
                'such as {"valueCount": 4, "value": 0}, {"valueCount": 4, "valueStart": 0, "valueDelta": 1} '
                'or {"sourcePath": "x.npy"}',
            )
        )
    offset = _byte_count(item, "initialValuesOffsetInBytes", 0, 0)
    size = _byte_count(item, "sizeInBytes", offset + values.nbytes, offset + values.nbytes)
    given = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if given.size == size and size % 4 == 0 and given.flags.writeable:
        data = given
    else:
        data = np.zeros(-(-size // 4) * 4, np.uint8)
        data[offset : offset + values.nbytes] = given
    return Resource(data, values.dtype, values.shape, offset)


def _byte_count(item: Mapping[str, Any], field: str, default: int, least: int) -> int:
    size = item.get(field, default)
    if not isinstance(size, int) or isinstance(size, bool) or not least <= size <= MAX_BYTES:
        raise InvalidModel(Problem(field, f"expected a number from {least} on, but got {short_repr(size)}"))
    return size


def _pack_values(initial: Any, unknown: UnknownFields) -> NDArray[Any]:
    """Values of several types, one after the other, as bytes."""
    if not isinstance(initial, list) or not initial:
        got = kind_of(initial) if not isinstance(initial, list) else "none"
        remedy = 'such as [{"name": "alpha", "type": "FLOAT32", "value": 6}]'
        raise InvalidModel(
            Problem("initialValues", f"expected values with their types, but got {got}", remedy)
        )
    parts = []
    for k, item in enumerate(initial):
        where = f"initialValues[{k}]"
        if not isinstance(item, dict) or "type" not in item or "value" not in item:
            raise InvalidModel(Problem(where, 'expected "type" and "value"', "a name is optional"))
        unknown.at(f"[{k}]").drop(item, ("name", "type", "value"))
        dtype = NUMPY.get(parse(TensorDataType, item["type"], f"{where}.type"))
        if dtype is None:
            raise Unsupported(Problem(f"{where}.type", f"{item['type']} values cannot be made yet"))
        parts.append(np.array([_number(item["value"], dtype, f"{where}.value")], dtype).view(np.uint8))
    return np.concatenate(parts)


def _generate(initial: Mapping[str, Any], dtype: np.dtype) -> NDArray[Any]:
    count = initial.get("valueCount")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_BYTES // dtype.itemsize:
        most = MAX_BYTES // dtype.itemsize
        message = f"expected a number from 1 to {most:,} (1 GiB), but got {short_repr(count)}"
        raise InvalidModel(Problem("initialValues.valueCount", message))
    if "value" in initial and ("valueStart" in initial or "valueDelta" in initial):
        message = 'expected either "value", or "valueStart" and "valueDelta", but got both'
        raise InvalidModel(Problem("initialValues", message))
    if "value" in initial:
        return np.full(count, _number(initial["value"], dtype, "initialValues.value"), dtype)
    if "valueStart" in initial and "valueDelta" in initial:
        start, delta = (_plain(initial[n], dtype, f"initialValues.{n}") for n in ("valueStart", "valueDelta"))
        if dtype.kind != "f":
            for end in (start, start + (count - 1) * delta):
                _number(end, dtype, "initialValues")
        unsigned = np.dtype(f"u{dtype.itemsize}")  # whose arithmetic wraps, and so ends where it must
        values = np.empty(count, dtype)
        for k in range(0, count, _CHUNK):
            steps = np.arange(k, min(k + _CHUNK, count))
            if dtype.kind == "f":
                with np.errstate(over="ignore", invalid="ignore"):
                    values[k : k + _CHUNK] = start + steps * delta
            else:
                step, first = (np.array(n % 2 ** (8 * dtype.itemsize), unsigned) for n in (delta, start))
                values[k : k + _CHUNK] = (steps.astype(unsigned) * step + first).view(dtype)
        return values
    raise InvalidModel(Problem("initialValues", 'expected "value", or "valueStart" and "valueDelta"'))


def _plain(value: Any, dtype: np.dtype, where: str) -> Any:
    """A JSON number that sequences of a type are made with: an integer, for integers."""
    fits = isinstance(value, int) or (dtype.kind == "f" and isinstance(value, float))
    if isinstance(value, bool) or not fits or abs(value) >= 2**64:
        raise InvalidModel(Problem(where, f"expected a number for {dtype}, but got {short_repr(value)}"))
    return value


def _number(value: Any, dtype: np.dtype, where: str) -> Any:
    """A JSON value as an element: a number that the type can hold; "nan", "inf" and "-inf" for floats."""
    if isinstance(value, str) and dtype.kind == "f" and value.lower() in ("nan", "inf", "-inf"):
        return dtype.type(value.lower())
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            with np.errstate(over="ignore"):
                element = np.array(value, dtype)
            if element.item() == value or (dtype.kind == "f" and np.isfinite(element)):
                return element[()]
        except (OverflowError, ValueError):  # too large, or not a number
            pass
    raise InvalidModel(Problem(where, f"expected a value of {dtype}, but got {short_repr(value)}"))


def _from_file(item: Mapping[str, Any], dtype: np.dtype | None, folder: Path) -> NDArray[Any]:
    source = item["initialValues"]["sourcePath"]
    path = find_file(source, folder, "initialValues.sourcePath")
    kind = path.suffix.lower()
    if kind in images.SUFFIXES:
        return _from_image(item, dtype, path)
    if kind == ".npy":
        try:
            values = read_npy(path, MAX_BYTES)
        except InvalidInput as error:
            raise InvalidModel(*(p.under("initialValues.sourcePath") for p in error.problems)) from error
        ours = values.astype(native(values.dtype), copy=False)
        ours = ours.view(np.uint8) if ours.dtype == np.bool_ else ours
        if ours.dtype not in FROM_NUMPY:
            raise InvalidModel(
                Problem("initialValues.sourcePath", f"expected a DirectML type, but got {values.dtype}")
            )
        if dtype is not None and ours.dtype != dtype:
            message = f"expected {ours.dtype}, the type of {source!r}, but got {dtype}"
            raise InvalidModel(Problem("initialValuesDataType", message, "it may be left out"))
        return np.asarray(ours)
    if kind in (".bin", ".dat"):
        if dtype is None:
            raise InvalidModel(Problem("initialValuesDataType", f"expected the data type of {source!r}"))
        if path.stat().st_size > MAX_BYTES:
            message = f"expected at most {MAX_BYTES:,} bytes, but got {path.stat().st_size:,}"
            raise InvalidModel(Problem("initialValues.sourcePath", message))
        raw = np.fromfile(path, np.uint8)
        if raw.size == 0 or raw.size % dtype.itemsize:
            raise InvalidModel(
                Problem(
                    "initialValues.sourcePath",
                    f"expected whole elements of {dtype}, but got {raw.size} bytes",
                )
            )
        return raw.view(dtype)
    message = f"expected a file of type .npy, .bin, .dat, .png or .jpg, but got {short_repr(source)}"
    raise InvalidModel(Problem("initialValues.sourcePath", message))


def _from_image(item: Mapping[str, Any], dtype: np.dtype | None, path: Path) -> NDArray[Any]:
    if dtype is None:
        raise InvalidModel(Problem("initialValuesDataType", f"expected the data type of {path.name!r}"))
    if item.get("resampleMode", "scale") != "scale":
        message = f'expected "scale", but got {short_repr(item["resampleMode"])}'
        raise InvalidModel(Problem("resampleMode", message))
    sizes = item.get("resampleSize")
    if sizes is not None and not are_sizes(sizes):
        raise InvalidModel(Problem("resampleSize", f"expected four sizes, but got {short_repr(sizes)}"))
    if prod(sizes or (1,)) * dtype.itemsize > MAX_BYTES:
        raise InvalidModel(
            Problem("resampleSize", f"expected a reasonable size, but got {short_repr(sizes)}")
        )
    return images.read_image(path, dtype, sizes or None)


def find_file(source: Any, folder: Path, where: str) -> Path:
    """The file that a model names: in the model's folder, or in the current one.

    Raises:
        InvalidModel: there is none, or it is something else: a folder, a device, or a pipe, which would wait
            for somebody to write to it.
    """
    if not isinstance(source, str) or not source or "\0" in source:
        raise InvalidModel(Problem(where, f"expected a file name, but got {short_repr(source)}"))
    places = folder / source, Path(source)
    try:
        found = next((p for p in places if p.is_file()), None)
        other = next((p for p in places if p.exists()), None)
    except OSError:  # no name of a file, being too long
        found = other = None
    if found is not None:
        return found
    if other is None:
        raise InvalidModel(Problem(where, f"expected a file, but there is none at {short_repr(source)}"))
    kind = "folder" if other.is_dir() else "pipe" if other.is_fifo() else "device"
    raise InvalidModel(Problem(where, f"expected a file, but {short_repr(source)} is a {kind}"))


_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])', re.DOTALL)


def parse_json(data: bytes, where: str) -> Any:
    """JSON as DxDispatch takes it: with comments and trailing commas. Places in errors are the file's.

    Raises:
        InvalidModel: malformed, or a name twice in one object.
    """
    if len(data) > MAX_TEXT:
        message = f"expected at most {MAX_TEXT:,} bytes of JSON, but got {len(data):,}"
        raise InvalidModel(Problem(where, message, "larger arrays can be in files of their own, as .npy"))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"expected text in UTF-8, but byte {error.start} is not"
        raise InvalidModel(Problem(where, message)) from error
    blank = _TOKENS.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    blank = _COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", blank)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise InvalidModel(
                    Problem(where, f"expected every name once in an object, but got {key!r} twice")
                )
            result[key] = value
        return result

    def constant(word: str) -> Any:
        message = f'expected a number, but got {word}; write "nan", "inf" or "-inf"'
        raise InvalidModel(Problem(where, message))

    try:
        return json.loads(blank, object_pairs_hook=unique, parse_constant=constant)
    except InvalidModel:
        raise
    except json.JSONDecodeError as error:
        message = f"expected JSON, but line {error.lineno}, column {error.colno} is not: {error.msg}"
        raise InvalidModel(Problem(where, message)) from error
    except ValueError as error:  # of an integer of thousands of digits
        raise InvalidModel(Problem(where, "expected JSON, but a number has thousands of digits")) from error
    except RecursionError as error:
        raise InvalidModel(
            Problem(where, "expected JSON of reasonable depth, but it nests too deeply")
        ) from error


def kind_of(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return names.get(type(value), short_repr(value))
