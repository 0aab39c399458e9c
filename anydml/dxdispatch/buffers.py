"""DxDispatch's buffers: values and files to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass
from anydml.dxdispatch import images
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import InvalidInput, InvalidModel, Problem, Unsupported, short_repr
from anydml.files import read_npy
from anydml.ir.dims import are_sizes
from anydml.ops.dtypes import FROM_NUMPY, NUMPY, native
from anydml.ops.enums import TensorDataType, parse
from anydml.runtime.addresses import address

MAX_BYTES = 1 << 30
"""Buffers larger than this are taken for a mistake: a few words can ask for any number."""
_CHUNK = 1 << 20


@dataclass
class Resource:
    """A buffer: `data` in bytes (padded to 4), of which the elements of `shape` and `dtype` were given.

    Attributes:
        size: in bytes, as Direct3D has it: what the file says, or padded to 4.
        offset: of these elements, in bytes.
        typed: they have one type; else they are values of several, and `dtype` is that of a byte.
        deferred: takes the size of what is written to it.
        written: not so before that.
    """

    data: NDArray[np.uint8]
    size: int
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int = 0
    typed: bool = True
    deferred: bool = False
    written: bool = True

    def align(self, alignment: int) -> None:
        """Move to an address that is a multiple of `alignment`, as Direct3D's buffers are at."""
        if address(self.data) % alignment:
            whole = np.empty(self.data.size + alignment, np.uint8)
            start = -address(whole) % alignment
            whole[start : start + self.data.size] = self.data
            self.data = whole[start : start + self.data.size]

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
    if item.get("initialValues") == "deferred":
        return Resource(np.zeros(0, np.uint8), 0, np.dtype(np.uint8), (0,), deferred=True, written=False)
    declared = _declared_type(item.get("initialValuesDataType"))
    values = _initial_values(item, declared, folder, unknown)
    dtype = values.dtype if declared is None else declared
    given = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    shape = values.shape if values.dtype == dtype else (given.size // dtype.itemsize,)
    offset = _byte_count(item, "initialValuesOffsetInBytes", 0, 0)
    size = _byte_count(item, "sizeInBytes", -(-(offset + given.size) // 4) * 4, offset + given.size)
    if given.size == size and size % 4 == 0 and given.flags.writeable:
        data = given
    else:
        data = np.zeros(-(-size // 4) * 4, np.uint8)
        data[offset : offset + given.size] = given
    typed = declared is not None or not isinstance(item["initialValues"], list)
    return Resource(data, size, dtype, shape, offset, typed)


def _declared_type(name: Any) -> np.dtype | None:
    """`initialValuesDataType`; None where it is unknown, or not said."""
    if name is None:
        return None
    data_type = parse(TensorDataType, name, "initialValuesDataType")
    if data_type is TensorDataType.UNKNOWN:
        return None
    if data_type not in NUMPY:
        raise Unsupported(Problem("initialValuesDataType", f"{name} buffers cannot be made yet"))
    return NUMPY[data_type]


def _initial_values(
    item: Mapping[str, Any], dtype: np.dtype | None, folder: Path, unknown: UnknownFields
) -> NDArray[Any]:
    """The values of a buffer: elements, or bytes, which are told apart by their type."""
    initial, declared = item.get("initialValues"), item.get("initialValuesDataType")
    if isinstance(initial, dict) and "sourcePath" in initial and not {"value", "valueStart"} & initial.keys():
        return _from_file(item, dtype, folder)
    if dtype is None:
        typed_each = isinstance(initial, list) and any(isinstance(x, dict) for x in initial)
        if isinstance(initial, dict) or (declared is None and not typed_each):
            message = f"expected a data type, but got {short_repr(declared)}"
            raise InvalidModel(Problem("initialValuesDataType", message))
        return _pack_values(initial, unknown.at("initialValues"))
    if isinstance(initial, list) and initial:
        return np.array([_number(v, dtype, f"initialValues[{k}]") for k, v in enumerate(initial)], dtype)
    if isinstance(initial, dict):
        return _generate(initial, dtype)
    raise InvalidModel(
        Problem(
            "initialValues",
            f"expected an array of values, or an object, but got {kind_of(initial)}",
            'such as {"valueCount": 4, "value": 0}, {"valueCount": 4, "valueStart": 0, "valueDelta": 1} '
            'or {"sourcePath": "x.npy"}',
        )
    )


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
    """One value again and again, or a sequence."""
    count = initial.get("valueCount")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_BYTES // dtype.itemsize:
        most = MAX_BYTES // dtype.itemsize
        message = f"expected a number from 1 to {most:,} (1 GiB), but got {short_repr(count)}"
        raise InvalidModel(Problem("initialValues.valueCount", message))
    if "value" in initial:
        if other := next((n for n in ("valueStart", "sourcePath") if n in initial), ""):
            message = f'expected either "value" or "{other}", but got both'
            raise InvalidModel(Problem("initialValues", message))
        return np.full(count, _number(initial["value"], dtype, "initialValues.value"), dtype)
    if "valueStart" in initial and "valueDelta" in initial:
        start = _number(initial["valueStart"], dtype, "initialValues.valueStart")
        return _sequence(count, start, _step(initial["valueDelta"], dtype), dtype)
    raise InvalidModel(Problem("initialValues", 'expected "value", or "valueStart" and "valueDelta"'))


def _sequence(count: int, start: Any, delta: Any, dtype: np.dtype) -> NDArray[Any]:
    """Sums in the element's own type, as the tool has them: they are rounded each time, and integers wrap."""
    values = np.full(count, delta, dtype)
    values[0] = start
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(0, count, _CHUNK):
            part = values[max(k - 1, 0) : k + _CHUNK]  # from the last sum on
            np.add.accumulate(part, out=part)
    return values


def _step(value: Any, dtype: np.dtype) -> Any:
    """`valueDelta`, which may be negative for unsigned integers, too: they wrap."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "u" and type(value) is int and -(2 ** (bits - 1)) <= value < 0:
        value += 2**bits
    return _number(value, dtype, "initialValues.valueDelta")


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
    """The elements of an array or a picture; the bytes of any other file."""
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
    if dtype is None:
        raise InvalidModel(Problem("initialValuesDataType", f"expected the data type of {source!r}"))
    if not 0 < path.stat().st_size <= MAX_BYTES:
        message = f"expected at most {MAX_BYTES:,} bytes, but got {path.stat().st_size or 'none'}"
        raise InvalidModel(Problem("initialValues.sourcePath", message))
    return np.fromfile(path, np.uint8)


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


def kind_of(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return names.get(type(value), short_repr(value))
