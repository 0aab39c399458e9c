"""DxDispatch JSON models: buffers, DirectML operators over them, and commands to run.

    {"resources":     {"A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3]}, ...},
     "dispatchables": {"if": {"type": "DML_OPERATOR_ELEMENT_WISE_IF", "desc": {...}}},
     "commands":      [{"type": "dispatch", "dispatchable": "if", "bindings": {"ATensor": "A", ...}},
                       {"type": "print", "resource": "Out"}]}

The format is that of microsoft/DirectML's DxDispatch tool. The whole model is read, checked and bound
before its first command runs. DirectML operators and ONNX models are here; what needs Direct3D 12 says so.
Fields that are not known are ignored, as that tool does, with one warning.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anydml.device import Binding, CompiledOperator, Device
from anydml.dxdispatch.buffers import (
    MAX_BYTES,
    MAX_TEXT,
    Resource,
    kind_of,
    parse_json,
    read_resource,
)
from anydml.dxdispatch.dialect import description
from anydml.dxdispatch.onnx_models import OnnxDispatchable
from anydml.dxdispatch.output import FileOutput, check_print, format_buffer
from anydml.dxdispatch.timing import DispatchTiming
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import (
    AnyDMLError,
    InvalidInput,
    InvalidModel,
    InvalidOperator,
    Problem,
    Unsupported,
    nearest,
    short_repr,
    translate_memory_error,
)
from anydml.files import read_file
from anydml.ir.dims import are_sizes
from anydml.ops.dtypes import NUMPY
from anydml.ops.enums import FeatureLevel, TensorDataType, TensorFlags

Echo = Callable[[str], None]
Command = Callable[[Echo], None]


class DispatchModel:
    """A DxDispatch model that was read, whose operators were accepted by the device, and that is bound."""

    @translate_memory_error
    def __init__(
        self,
        path: str | os.PathLike[str],
        feature_level: FeatureLevel | str | None = None,
        timing: DispatchTiming | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Read `path`: a model, or an ONNX model that is to run once on zeros.

        Args:
            path: .json or .onnx.
            feature_level: of the device.
            timing: how often dispatches run.
            dims: free dimensions of ONNX models by name, before those that the model gives.
            shapes: of inputs and outputs of ONNX models, before those of its bindings.

        Raises:
            InvalidModel: malformed JSON (with the place), or a model that does not hold together.
            InvalidOperator: nothing is wrong but operator descriptions that break DirectML's rules.
            Unsupported: a feature of DxDispatch that is not implemented here.
            InvalidInput: sizes for ONNX models, but no such model.
            OSError: the file cannot be read.

        Warns:
            UnknownFieldWarning: fields that are not known, once for the file. An error lists them instead.
        """
        self.path = Path(path)
        self.device = Device(feature_level)
        self.timing = timing or DispatchTiming()
        self._dims, self._shapes = dict(dims or {}), {n: list(s) for n, s in (shapes or {}).items()}
        self._initialized: dict[str, float] = {}
        """Milliseconds that it took to make each dispatchable."""
        if self.path.suffix.lower() == ".onnx":
            root = _alone(self.path.name)
        else:
            root = parse_json(read_file(self.path, MAX_TEXT), self.path.name)
        self._problems: list[Problem] = []
        self._unknown = UnknownFields()
        if not isinstance(root, dict):
            raise InvalidModel(Problem(self.path.name, f"expected an object, but got {kind_of(root)}"))
        sections = {name: self._section(root, name, k) for name, k in _SECTIONS.items()}
        self._unknown.drop(root, ("$schema", *_SECTIONS))
        self._raise(InvalidModel)
        self._declared: dict[str, Any] = sections["resources"]
        self.resources = dict(self._resources(self._declared))
        self._named_operators: dict[str, Any] = sections["dispatchables"]
        self._given_first: dict[str, Mapping[str, Any]] = {}
        """Bindings that belong to a dispatchable: of tensors that it owns."""
        self._only_operators = not self._problems
        self.models: dict[str, OnnxDispatchable] = {}
        self.operators = dict(self._operators(self._named_operators))
        for word, given in (("free dimensions (-f)", self._dims), ("shapes of bindings (-b)", self._shapes)):
            if given and not self.models and not self._problems:
                message = f"expected an ONNX model for {word}, but there is none"
                raise InvalidInput(Problem(self.path.name, message))
        before = len(self._problems)
        self.commands = list(self._commands(sections["commands"]))
        only_operators = self._only_operators and len(self._problems) == before
        self._raise(InvalidOperator if only_operators else InvalidModel)
        self._unknown.warn(self.path.name, stacklevel=3)  # behind the wrapper is who asked for the model

    @translate_memory_error
    def run(self, echo: Echo = print) -> None:
        """Run the commands in order; `echo` receives what they print, a line at a time."""
        echo(f"Running on 'anydml, feature level {self.device.feature_level.label}'")
        for command in self.commands:
            command(echo)

    # ---- reading

    def _raise(self, error: type[AnyDMLError]) -> None:
        if self._problems:
            found = (*self._problems, *self._unknown.problems())  # the latter may be the cause
            raise error(*(p.under(self.path.name) for p in found))

    def _report_problem(self, where: str, message: str, remedy: str = "") -> None:
        self._problems.append(Problem(where, message, remedy))

    def _enough(self) -> bool:
        """Whether so much is wrong that more would help nobody."""
        return len(self._problems) >= MOST_PROBLEMS

    @contextmanager
    def _under(self, where: str) -> Iterator[None]:
        """Collect what goes wrong meanwhile as problems of this place."""
        try:
            yield
        except Unsupported as error:
            raise self._report_unsupported(where, str(error)) from error
        except AnyDMLError as error:
            self._problems += [p.under(where) for p in error.problems]

    def _report_unsupported(self, where: str, message: str) -> Unsupported:
        return Unsupported(Problem(where, message).under(self.path.name))

    def _section(self, root: Mapping[str, Any], name: str, kind: type) -> Any:
        if name not in root:
            self._report_problem("", f'expected "{name}", but it is missing')
        elif not isinstance(root[name], kind):
            wanted = "an object" if kind is dict else "an array"
            self._report_problem(name, f"expected {wanted}, but got {kind_of(root[name])}")
        elif len(root[name]) > MOST_ENTRIES:
            self._report_problem(
                name, f"expected at most {MOST_ENTRIES:,} entries, but got {len(root[name]):,}"
            )
        else:
            return root[name]
        return kind()

    def _resources(self, section: Mapping[str, Any]) -> Iterator[tuple[str, Resource]]:
        total = 0
        for name, item in section.items():
            if self._enough():
                return
            where = f"resources.{name}"
            with self._under(where):
                resource = read_resource(item, self.path.parent, self._unknown.at(where))
                total += resource.data.size
                if total > MAX_BYTES:
                    self._report_problem(
                        where, f"expected at most {MAX_BYTES:,} bytes in all buffers, but got more"
                    )
                    return
                yield name, resource

    def _operators(self, section: Mapping[str, Any]) -> Iterator[tuple[str, CompiledOperator]]:
        for name, item in section.items():
            if self._enough():
                return
            where = f"dispatchables.{name}"
            kind = item.get("type", item.get("Type")) if isinstance(item, dict) else None
            if isinstance(kind, str) and kind.lower() in _ELSEWHERE:
                raise self._report_unsupported(where, f"{kind} dispatchables: {_ELSEWHERE[kind.lower()]}")
            if not isinstance(item, dict):
                self._report_problem(where, f"expected an object, but got {kind_of(item)}")
                continue
            start = time.perf_counter()
            is_model = isinstance(kind, str) and kind.lower() == "onnx"
            before = len(self._problems)
            with self._under(where):
                if is_model:
                    unknown = self._unknown.at(where)
                    self.models[name] = OnnxDispatchable(item, self.path.parent, self._dims, unknown)
                else:
                    self._given_first[name] = self._object(item.get("bindings", {}), f"{where}.bindings")
                    operator = self.device.create_operator(description(item, self._unknown.at(where)))
                    yield name, self.device.compile_operator(operator)
            self._only_operators &= not is_model or len(self._problems) == before
            self._initialized[name] = (time.perf_counter() - start) * 1e3

    def _commands(self, section: list[Any]) -> Iterator[Command]:
        readers = {"dispatch": self._dispatch, "print": self._print, "writefile": self._write_file}
        for k, item in enumerate(section):
            if self._enough():
                return
            where = f"commands[{k}]"
            kind = item.get("type") if isinstance(item, dict) else None
            if not isinstance(kind, str) or kind.lower() not in readers:
                known = "dispatch, print or writeFile"
                self._report_problem(where, f'expected "type": {known}, but got {short_repr(kind)}')
                continue
            self._unknown.at(where).drop(item, _COMMAND_FIELDS[kind.lower()])
            command = readers[kind.lower()](item, where)
            if command is not None:
                yield command

    def _find_named(
        self, item: Mapping[str, Any], field: str, known: Mapping[str, Any], where: str
    ) -> str | None:
        name = item.get(field)
        if not isinstance(name, str) or name not in known:
            message = f"expected the name of one of the {len(known)}, but got {short_repr(name)}"
            self._report_problem(f"{where}.{field}", message, nearest(name, known))
            return None
        return name

    def _object(self, value: Any, where: str) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._report_problem(where, f"expected an object, but got {kind_of(value)}")
        return {}

    def _dispatch(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self._find_named(item, "dispatchable", self._named_operators, where)
        before = len(self._problems)
        bindings = self._object(item.get("bindings"), f"{where}.bindings")
        if len(self._problems) > before:
            return None
        if name in self.models:
            return self._dispatch_onnx(name, bindings, where)
        operator = self.operators.get(name or "")
        if operator is None or name is None:
            return None
        found = dict(self._bindings(operator, self._given_first[name], f"dispatchables.{name}.bindings"))
        found |= self._bindings(operator, bindings, f"{where}.bindings")
        arrays = {point: array for point, array in found.items() if array is not None}
        if len(self._problems) > before or len(arrays) < len(found):
            return None
        with self._under(where):
            return self._time_dispatches(name, _bind(operator, arrays).dispatch)
        return None

    def _time_dispatches(self, name: str, dispatch: Callable[[], object]) -> Command:
        def command(echo: Echo) -> None:
            samples = self.timing.samples(dispatch)
            for line in self.timing.told(name, samples, self._initialized[name]):
                echo(line)

        return command

    def _dispatch_onnx(self, name: str, bindings: Mapping[str, Any], where: str) -> Command | None:
        before = len(self._problems)
        views = dict(self._shape_bindings(bindings, f"{where}.bindings"))
        if len(self._problems) > before:
            return None
        with self._under(f"{where}.bindings"):
            return self._time_dispatches(name, self.models[name].bound(views))
        return None

    def _view(self, target: Any, fields: Collection[str], place: str) -> Mapping[str, Any] | None:
        """What a binding says of its resource: a name alone, an object, or a list of one of them."""
        single = target[0] if isinstance(target, list) and len(target) == 1 else target
        view = {"name": single} if isinstance(single, str) else single
        if not isinstance(view, dict):
            self._report_problem(place, f"expected a resource's name, but got {short_repr(single)}")
            return None
        return self._unknown.at(place).drop(view, fields)

    def _shape_bindings(
        self, bindings: Mapping[str, Any], where: str
    ) -> Iterator[tuple[str, tuple[Resource | None, list[int] | None]]]:
        """The buffer behind each input and output of a model, and the shape it is given."""
        for point, target in bindings.items():
            place = f"{where}.{point}"
            view = self._view(target, ("name", "shape"), place)
            if view is None:
                continue
            shape = self._shapes.get(point, view.get("shape"))
            if shape is not None and not are_sizes(shape):
                self._report_problem(f"{place}.shape", f"expected sizes, but got {short_repr(shape)}")
                continue
            resource = self._find_named(view, "name", self._declared, place)
            if resource in self.resources:
                yield point, (self.resources[resource], shape)
        for point, shape in self._shapes.items():
            if point not in bindings:
                yield point, (None, shape)

    def _bindings(
        self, operator: CompiledOperator, bindings: Mapping[str, Any], where: str
    ) -> Iterator[tuple[str, NDArray[Any] | None]]:
        """The memory behind each bind point; None where that is known to be wrong."""
        for point, target in bindings.items():
            place = f"{where}.{point}"
            if point not in operator.tensors:
                self._report_problem(
                    place, "expected a tensor of the operator", nearest(point, operator.tensors)
                )
                continue
            view = self._view(target, _VIEW_FIELDS, place)
            if view is None:
                continue
            resource = self._find_named(view, "name", self._declared, place)
            if resource in self.resources and self.resources[resource].deferred:
                message = "expected a buffer, but it is deferred, which is for results of ONNX models"
                self._report_problem(place, message)
            elif resource in self.resources:
                with self._under(place):
                    yield point, _part(self.resources[resource], view, operator.tensors[point].data_type)
            else:
                yield point, None  # its resource's problems are told already

    def _print(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self._find_named(item, "resource", self._declared, where)
        with self._under(where):
            check_print(item)
        if name is None:
            return None

        def command(echo: Echo) -> None:
            for line in format_buffer(name, self.resources[name], item.get("verbose", False)):
                echo(line)

        return command

    def _write_file(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self._find_named(item, "resource", self._declared, where)
        with self._under(where):
            output = FileOutput(item, self.resources.get(name or ""))
            return None if name is None else lambda echo: echo(output.write(name, self.resources[name]))
        return None


def _alone(name: str) -> dict[str, Any]:
    """The model that runs an ONNX model once, on nothing that would be given."""
    return {
        "resources": {},
        "dispatchables": {name: {"type": "onnx", "sourcePath": name}},
        "commands": [{"type": "dispatch", "dispatchable": name, "bindings": {}}],
    }


MOST_PROBLEMS, MOST_ENTRIES = 100, 100_000
_SECTIONS: dict[str, type] = {"resources": dict, "dispatchables": dict, "commands": list}
_COMMAND_FIELDS = {
    "dispatch": ("type", "dispatchable", "bindings", "threadGroupCount"),
    "print": ("type", "resource", "verbose"),
    "writefile": ("type", "resource", "targetPath", "dimensions"),
}
_VIEW_FIELDS = (
    "name",
    "format",
    "elementCount",
    "elementStride",
    "elementSizeInBytes",
    "elementOffset",
    "shape",
)
_ELSEWHERE = {
    "hlsl": "compute shaders need Direct3D 12",
    "dmlserializedgraph": "serialized DirectML graphs cannot be read; give its operators, or the ONNX model",
}


def _bind(operator: CompiledOperator, arrays: Mapping[str, NDArray[Any]]) -> Binding:
    """The operator with its memory; what it is to own is given to it now, as the tool does at its start."""
    owned = {n for n, t in operator.tensors.items() if t.flags & TensorFlags.OWNED_BY_DML}
    if owned:
        operator.initialize({n: a for n, a in arrays.items() if n in owned})
    outputs = {n: a for n, a in arrays.items() if n in operator.output_names}
    return operator.bind({n: a for n, a in arrays.items() if n not in owned and n not in outputs}, outputs)


def _part(resource: Resource, view: Mapping[str, Any], data_type: TensorDataType) -> NDArray[Any]:
    """The part of a buffer that a binding names, as elements of a tensor's type."""
    width = view.get("elementSizeInBytes", resource.dtype.itemsize)  # the tool's other name for the stride
    numbers = {"elementOffset": 0, "elementStride": width, "elementCount": None}
    for field in numbers:
        value = view.get(field, numbers[field])
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise InvalidModel(
                Problem(field, f"expected a non-negative integer, but got {short_repr(value)}")
            )
        numbers[field] = value
    stride = numbers["elementStride"] or 0
    start = (numbers["elementOffset"] or 0) * stride
    count = numbers["elementCount"]
    size = resource.data.size
    end = size if count is None else start + count * stride
    if end > size or start > end:
        got = f"{short_repr(start)} to {short_repr(end)}"
        message = f"expected a part of the buffer's {size} bytes, but got bytes {got}"
        raise InvalidModel(Problem("", message))
    dtype = NUMPY[data_type]
    part = resource.data[start:end]
    return part[: part.size // dtype.itemsize * dtype.itemsize].view(dtype)
