"""DxDispatch JSON models: buffers, DirectML operators over them, and commands to run.

    {"resources":     {"A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3]}, ...},
     "dispatchables": {"if": {"type": "DML_OPERATOR_ELEMENT_WISE_IF", "desc": {...}}},
     "commands":      [{"type": "dispatch", "dispatchable": "if", "bindings": {"ATensor": "A", ...}},
                       {"type": "print", "resource": "Out"}]}

The format is that of microsoft/DirectML's DxDispatch tool. The whole model is read and checked before
its first command runs. Of that tool's features, DirectML operators with all buffer initializers but
images and lists are here; what is not says so.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.device import CompiledOperator, Device
from anydml.problems import AnyDMLError, InvalidModel, Problem, Unsupported, nearest
from anydml.spec.dtypes import FROM_NUMPY, NUMPY
from anydml.spec.enums import FeatureLevel, TensorDataType, TensorFlags, parse

MAX_BYTES = 1 << 36
"""A buffer larger than this is taken for a mistake."""


@dataclass
class Resource:
    """A buffer: `data` in bytes (padded to 4), the first `count` elements of `dtype` initialised."""

    data: NDArray[np.uint8]
    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def values(self) -> NDArray[Any]:
        count = int(np.prod(self.shape, dtype=np.int64))
        return self.data[: count * self.dtype.itemsize].view(self.dtype).reshape(self.shape)


Echo = Callable[[str], None]


class DispatchModel:
    """A DxDispatch model that was read and whose operators were accepted by the device."""

    def __init__(self, path: str | os.PathLike[str], feature_level: FeatureLevel | str | None = None) -> None:
        """Read `path`.

        Raises:
            InvalidModel: malformed JSON (with the place), or a model that does not hold together.
            InvalidOperator: an operator description that breaks DirectML's rules.
            Unsupported: a feature of DxDispatch that is not implemented here.
        """
        self.path = Path(path)
        self.device = Device(feature_level)
        root = parse_json(self.path.read_text(encoding="utf-8"), self.path.name)
        self._problems: list[Problem] = []
        self._declared: dict[str, Any] = self._section(root, "resources", dict)
        self.resources = dict(self._resources(self._declared))
        self.operators = dict(self._operators(self._section(root, "dispatchables", dict)))
        self.commands = list(self._commands(self._section(root, "commands", list)))
        if self._problems:
            raise InvalidModel(*(p.under(self.path.name) for p in self._problems))

    def run(self, echo: Echo = print) -> None:
        """Run the commands in order; `echo` receives what they print, a line at a time."""
        echo(f"Running on 'anydml, feature level {self.device.feature_level.label}'")
        for where, command in self.commands:
            try:
                command(echo)
            except AnyDMLError as error:
                raise type(error)(*(p.under(f"{self.path.name}: {where}") for p in error.problems)) from error

    # ---- reading

    def _broken(self, where: str, message: str, remedy: str = "") -> None:
        self._problems.append(Problem(where, message, remedy))

    def _section(self, root: Any, name: str, kind: type) -> Any:
        if not isinstance(root, dict):
            raise InvalidModel(Problem(self.path.name, f"expected an object, but got {_kind(root)}"))
        if name not in root:
            self._broken("", f'expected "{name}", but it is missing')
            return kind()
        if not isinstance(root[name], kind):
            wanted = "an object" if kind is dict else "an array"
            self._broken(name, f"expected {wanted}, but got {_kind(root[name])}")
            return kind()
        return root[name]

    def _resources(self, section: Mapping[str, Any]) -> Iterator[tuple[str, Resource]]:
        for name, item in section.items():
            where = f"resources.{name}"
            try:
                resource = _resource(item, self.path.parent)
            except AnyDMLError as error:
                if isinstance(error, Unsupported):
                    raise Unsupported(*(p.under(where) for p in error.problems)) from error
                self._problems += [p.under(where) for p in error.problems]
            else:
                yield name, resource

    def _operators(self, section: Mapping[str, Any]) -> Iterator[tuple[str, CompiledOperator]]:
        for name, item in section.items():
            where = f"dispatchables.{name}"
            kind = item.get("type", item.get("Type")) if isinstance(item, dict) else None
            if isinstance(kind, str) and kind.lower() in _ELSEWHERE:
                raise Unsupported(Problem(where, f"{kind} dispatchables: {_ELSEWHERE[kind.lower()]}"))
            try:
                yield name, self.device.compile_operator(self.device.create_operator(item))
            except AnyDMLError as error:
                raise type(error)(*(p.under(where) for p in error.problems)) from error

    def _commands(self, section: list[Any]) -> Iterator[tuple[str, Callable[[Echo], None]]]:
        readers = {"dispatch": self._dispatch, "print": self._print, "writefile": self._write_file}
        for k, item in enumerate(section):
            where = f"commands[{k}]"
            kind = item.get("type") if isinstance(item, dict) else None
            if not isinstance(kind, str) or kind.lower() not in readers:
                known = "dispatch, print or writeFile"
                self._broken(where, f'expected "type": {known}, but got {kind!r}')
                continue
            command = readers[kind.lower()](item, where)
            if command is not None:
                yield where, command

    def _named(self, item: Mapping[str, Any], field: str, known: Mapping[str, Any], where: str) -> str | None:
        name = item.get(field)
        if not isinstance(name, str) or name not in known:
            remedy = nearest(name, known) if isinstance(name, str) else f"known: {', '.join(known)}"
            self._broken(
                f"{where}.{field}", f"expected the name of one of the {len(known)}, but got {name!r}", remedy
            )
            return None
        return name

    def _dispatch(self, item: Mapping[str, Any], where: str) -> Callable[[Echo], None] | None:
        name = self._named(item, "dispatchable", self.operators, where)
        bindings = item.get("bindings")
        if not isinstance(bindings, dict):
            self._broken(f"{where}.bindings", f"expected an object, but got {_kind(bindings)}")
            return None
        if name is None:
            return None
        operator = self.operators[name]
        tensors = operator.tensors
        arrays: dict[str, NDArray[Any]] = {}
        for point, target in bindings.items():
            place = f"{where}.bindings.{point}"
            if point not in tensors:
                self._broken(place, "expected a tensor of the operator", nearest(point, tensors))
                continue
            single = target[0] if isinstance(target, list) and len(target) == 1 else target
            view = {"name": single} if isinstance(single, str) else single
            if not isinstance(view, dict):
                self._broken(place, f"expected a resource's name, but got {single!r}")
                continue
            resource = self._named(view, "name", self._declared, place)
            if resource in self.resources:
                try:
                    arrays[point] = _bound(self.resources[resource], view, tensors[point].data_type)
                except InvalidModel as error:
                    self._problems += [p.under(place) for p in error.problems]

        def command(echo: Echo) -> None:
            owned = {n for n, t in tensors.items() if t.flags & TensorFlags.OWNED_BY_DML}
            if owned:
                operator.initialize({n: a for n, a in arrays.items() if n in owned})
            bound = operator.bind(
                {n: a for n, a in arrays.items() if n not in owned and n not in operator.output_names},
                {n: a for n, a in arrays.items() if n in operator.output_names},
            )
            start = time.perf_counter()
            bound.dispatch()
            echo(
                f"Dispatch '{name}': 1 iterations, {(time.perf_counter() - start) * 1e3:.4f} ms median (CPU)"
            )

        return command

    def _print(self, item: Mapping[str, Any], where: str) -> Callable[[Echo], None] | None:
        name = self._named(item, "resource", self._declared, where)
        if name is None:
            return None

        def command(echo: Echo) -> None:
            values = self.resources[name].values.reshape(-1)
            shown = (f"{v:g}" if isinstance(v, float) else str(v) for v in values.tolist())
            echo(f"Resource '{name}': {', '.join(shown)}")

        return command

    def _write_file(self, item: Mapping[str, Any], where: str) -> Callable[[Echo], None] | None:
        name = self._named(item, "resource", self._declared, where)
        target = item.get("targetPath")
        if not isinstance(target, str) or not target:
            self._broken(f"{where}.targetPath", f"expected a file name, but got {target!r}")
            return None
        kind = Path(target).suffix.lower()
        if kind in (".png", ".jpg", ".jpeg"):
            raise Unsupported(
                Problem(f"{where}.targetPath", "images cannot be written yet; .npy, .bin and .dat can")
            )
        if kind not in (".npy", ".bin", ".dat"):
            self._broken(
                f"{where}.targetPath", f"expected a file of type .npy, .bin or .dat, but got {target!r}"
            )
            return None
        if name is None:
            return None

        def command(echo: Echo) -> None:
            resource = self.resources[name]
            write_atomically(
                Path(target),
                lambda file: (
                    np.save(file, resource.values) if kind == ".npy" else file.write(resource.data.tobytes())
                ),
            )
            echo(f"Resource '{name}' written to '{target}'")

        return command


_ELSEWHERE = {
    "hlsl": "compute shaders need Direct3D 12",
    "onnx": "run the ONNX file itself: anydml run model.onnx",
    "dmlserializedgraph": "serialized DirectML graphs cannot be read yet",
}


def write_atomically(path: Path, write: Callable[[Any], object]) -> None:
    """A file that is either written whole or left as it was."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---- buffers -----------------------------------------------------------------------------------------


def _resource(item: Any, folder: Path) -> Resource:
    if not isinstance(item, dict):
        raise InvalidModel(Problem("", f"expected an object, but got {_kind(item)}"))
    if "resampleSize" in item:
        raise Unsupported(Problem("", "images cannot be read yet"))
    initial = item.get("initialValues")
    declared = item.get("initialValuesDataType")
    dtype = None
    if declared is not None and declared != "UNKNOWN":
        dtype = NUMPY.get(parse(TensorDataType, declared, "initialValuesDataType"))
        if dtype is None:
            raise Unsupported(Problem("initialValuesDataType", f"{declared} buffers cannot be made yet"))
    if isinstance(initial, dict) and "sourcePath" in initial:
        values = _from_file(str(initial["sourcePath"]), dtype, folder)
    elif dtype is None:
        if isinstance(initial, list) and declared == "UNKNOWN":
            raise Unsupported(Problem("initialValues", "lists of values of mixed types cannot be read yet"))
        raise InvalidModel(Problem("initialValuesDataType", f"expected a data type, but got {declared!r}"))
    elif isinstance(initial, list) and initial:
        values = np.array([_number(v, dtype, f"initialValues[{k}]") for k, v in enumerate(initial)], dtype)
    elif isinstance(initial, dict):
        values = _generated(initial, dtype)
    else:
        raise InvalidModel(
            Problem(
                "initialValues",
                f"expected an array of values, or an object, but got {_kind(initial)}",
                'such as {"valueCount": 4, "value": 0}, {"valueCount": 4, "valueStart": 0, "valueDelta": 1} '
                'or {"sourcePath": "x.npy"}',
            )
        )
    size = item.get("sizeInBytes", values.nbytes)
    if not isinstance(size, int) or isinstance(size, bool) or not values.nbytes <= size <= MAX_BYTES:
        raise InvalidModel(
            Problem("sizeInBytes", f"expected a number from {values.nbytes} on, but got {size!r}")
        )
    data = np.zeros(-(-size // 4) * 4, np.uint8)
    data[: values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return Resource(data, values.dtype, values.shape)


def _generated(initial: Mapping[str, Any], dtype: np.dtype) -> NDArray[Any]:
    count = initial.get("valueCount")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MAX_BYTES // dtype.itemsize:
        raise InvalidModel(
            Problem("initialValues.valueCount", f"expected a positive number, but got {count!r}")
        )
    if "value" in initial:
        return np.full(count, _number(initial["value"], dtype, "initialValues.value"), dtype)
    if "valueStart" in initial and "valueDelta" in initial:
        start, delta = (_plain(initial[n], f"initialValues.{n}") for n in ("valueStart", "valueDelta"))
        if dtype.kind == "f":
            return (float(start) + np.arange(count) * float(delta)).astype(dtype)
        values = int(start) + np.arange(count, dtype=object) * int(delta)
        for end in (values[0], values[-1]):
            _number(end, dtype, "initialValues")
        return values.astype(dtype)
    raise InvalidModel(Problem("initialValues", 'expected "value", or "valueStart" and "valueDelta"'))


def _plain(value: Any, where: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidModel(Problem(where, f"expected a number, but got {value!r}"))
    return value


def _number(value: Any, dtype: np.dtype, where: str) -> Any:
    """A JSON value as an element: a number in range; "nan", "inf" and "-inf" for floats."""
    if isinstance(value, str) and dtype.kind == "f" and value.lower() in ("nan", "inf", "-inf"):
        return dtype.type(value.lower())
    if isinstance(value, int | float) and not isinstance(value, bool):
        if dtype.kind == "f":
            with np.errstate(over="ignore"):
                return dtype.type(value)
        limits = np.iinfo(dtype)
        if value == int(value) and limits.min <= value <= limits.max:
            return dtype.type(int(value))
    raise InvalidModel(Problem(where, f"expected a value of {dtype}, but got {value!r}"))


def _from_file(source: str, dtype: np.dtype | None, folder: Path) -> NDArray[Any]:
    path = next((p for p in (folder / source, Path(source)) if p.is_file()), None)
    if path is None:
        raise InvalidModel(
            Problem("initialValues.sourcePath", f"expected a file, but there is none at {source!r}")
        )
    kind = path.suffix.lower()
    if kind == ".npy":
        try:
            values = np.load(path, allow_pickle=False)
        except Exception as error:
            raise InvalidModel(
                Problem("initialValues.sourcePath", f"expected a NumPy file, but {source!r} is none: {error}")
            ) from error
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        native = native.view(np.uint8) if native.dtype == np.bool_ else native
        if native.dtype not in FROM_NUMPY:
            raise InvalidModel(
                Problem("initialValues.sourcePath", f"expected a DirectML type, but got {values.dtype}")
            )
        return np.asarray(native)
    if kind in (".bin", ".dat"):
        if dtype is None:
            raise InvalidModel(Problem("initialValuesDataType", f"expected the data type of {source!r}"))
        raw = np.fromfile(path, np.uint8)
        if raw.size == 0 or raw.size % dtype.itemsize:
            raise InvalidModel(
                Problem(
                    "initialValues.sourcePath",
                    f"expected whole elements of {dtype}, but got {raw.size} bytes",
                )
            )
        return raw.view(dtype)
    raise Unsupported(Problem("initialValues.sourcePath", f"files of type {kind!r} cannot be read yet"))


def _bound(resource: Resource, view: Mapping[str, Any], data_type: TensorDataType) -> NDArray[Any]:
    """The part of a buffer that a binding names, as elements of a tensor's type."""
    numbers = {}
    for field, default in (
        ("elementOffset", 0),
        ("elementStride", resource.dtype.itemsize),
        ("elementCount", None),
    ):
        numbers[field] = view.get(field, default)
        if numbers[field] is not None and not (isinstance(numbers[field], int) and numbers[field] >= 0):
            raise InvalidModel(Problem(field, f"expected a non-negative integer, but got {numbers[field]!r}"))
    start = numbers["elementOffset"] * numbers["elementStride"]
    count = numbers["elementCount"]
    end = resource.data.size if count is None else start + count * numbers["elementStride"]
    if end > resource.data.size or start > end:
        raise InvalidModel(
            Problem(
                "",
                f"expected a part of the buffer's {resource.data.size} bytes, but got bytes {start} to {end}",
            )
        )
    dtype = NUMPY[data_type]
    part = resource.data[start:end]
    return part[: part.size // dtype.itemsize * dtype.itemsize].view(dtype)


# ---- JSON --------------------------------------------------------------------------------------------

_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])', re.DOTALL)


def parse_json(text: str, where: str) -> Any:
    """JSON as DxDispatch takes it: with comments and trailing commas. Places in errors are the file's.

    Raises:
        InvalidModel: malformed, or a name twice in one object.
    """
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

    try:
        return json.loads(blank, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        message = f"expected JSON, but line {error.lineno}, column {error.colno} is not: {error.msg}"
        raise InvalidModel(Problem(where, message)) from error
    except RecursionError as error:
        raise InvalidModel(
            Problem(where, "expected JSON of reasonable depth, but it nests too deeply")
        ) from error


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return names.get(type(value), repr(value))
