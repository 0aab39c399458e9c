"""The commands of a DxDispatch model: read, checked and bound, so that nothing is left but to run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anydml.dataclass import dataclass, field
from anydml.dxdispatch.bindings import (
    VIEW_FIELDS,
    BoundRange,
    bind,
    check_view,
    graph_range,
    operator_range,
    separate,
    strict_problems,
)
from anydml.dxdispatch.buffers import Resource
from anydml.dxdispatch.onnx_models import OnnxDispatchable
from anydml.dxdispatch.output import FileOutput, check_print, format_buffer
from anydml.dxdispatch.report import Report
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import InvalidModel, Problem, nearest, short_repr
from anydml.ir.dims import are_sizes
from anydml.runtime.bind import Compiled

Echo = Callable[[str], None]
Command = Callable[[Echo], None]
_FIELDS = {
    "dispatch": ("type", "dispatchable", "bindings", "threadGroupCount"),
    "print": ("type", "resource", "verbose"),
    "writefile": ("type", "resource", "targetPath", "dimensions"),
}


@dataclass
class Dispatchables:
    """What commands may dispatch, by name.

    Attributes:
        declared: as the file has them, those that cannot be made, too.
        operators: DirectML's, and graphs.
        graphs: the names of serialized graphs, which are among the operators.
        models: ONNX's.
        owned: bindings that belong to a dispatchable: of tensors that it owns.
        initialized: milliseconds that it took to make each.
    """

    declared: Mapping[str, Any]
    operators: dict[str, Compiled] = field(default_factory=dict)
    graphs: set[str] = field(default_factory=set)
    models: dict[str, OnnxDispatchable] = field(default_factory=dict)
    owned: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    initialized: dict[str, float] = field(default_factory=dict)


@dataclass
class CommandReader:
    """Reads commands; problems go to the report.

    Attributes:
        declared: the resources as the file has them, those that cannot be made, too.
        shapes: of inputs and outputs of ONNX models, before those of bindings.
        output_path: where files are written.
        relaxed: whether NumPy's rules hold for what is bound, instead of Direct3D's.
    """

    report: Report
    declared: Mapping[str, Any]
    resources: Mapping[str, Resource]
    dispatchables: Dispatchables
    timing: DispatchTiming
    shapes: Mapping[str, list[int]]
    output_path: Path | None
    relaxed: bool

    def read(self, section: Sequence[Any]) -> Iterator[Command]:
        readers = {"dispatch": self._dispatch, "print": self._print, "writefile": self._write_file}
        for k, item in enumerate(section):
            if self.report.is_full():
                return
            where = f"commands[{k}]"
            kind = item.get("type") if isinstance(item, dict) else None
            if not isinstance(kind, str) or kind.lower() not in readers:
                known = "dispatch, print or writeFile"
                self.report.add(where, f'expected "type": {known}, but got {short_repr(kind)}')
                continue
            self.report.unknown.at(where).drop(item, _FIELDS[kind.lower()])
            command = readers[kind.lower()](item, where)
            if command is not None:
                yield command

    # ---- dispatch

    def _dispatch(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self.report.find_named(item, "dispatchable", self.dispatchables.declared, where)
        before = len(self.report.problems)
        bindings = self.report.dictionary(item.get("bindings"), f"{where}.bindings")
        if len(self.report.problems) > before or name is None:
            return None
        if name in self.dispatchables.models:
            return self._dispatch_model(name, bindings, where)
        operator = self.dispatchables.operators.get(name)
        if operator is None:
            return None
        owned = self.dispatchables.owned[name]
        found = dict(self._ranges(name, operator, owned, f"dispatchables.{name}.bindings"))
        found |= self._ranges(name, operator, bindings, f"{where}.bindings")
        ranges = {point: one for point, one in found.items() if one is not None}
        if len(self.report.problems) > before or len(ranges) < len(found):
            return None
        if not self.relaxed:
            self.report.problems += strict_problems(operator, ranges)
        if len(self.report.problems) == before:
            with self.report.under(where):
                return self._timed(name, bind(operator, ranges).dispatch)
        return None

    def _timed(self, name: str, dispatch: Callable[[], object]) -> Command:
        def command(echo: Echo) -> None:
            samples = self.timing.samples(dispatch)
            for line in self.timing.told(name, samples, self.dispatchables.initialized[name]):
                echo(line)

        return command

    def _ranges(
        self, name: str, operator: Compiled, bindings: Mapping[str, Any], where: str
    ) -> Iterator[tuple[str, BoundRange | None]]:
        """The memory behind each bind point; None where that is known to be wrong."""
        for point, target in separate(operator, bindings):
            place = f"{where}.{point}"
            if point not in operator.tensors:
                points = {name.partition("[")[0] for name in operator.tensors}
                self.report.add(place, "expected a tensor of the operator", nearest(point, points))
                continue
            view = self._view(target, VIEW_FIELDS, place)
            if view is None:
                continue
            resource = self._resource(view, place)
            if resource is None:
                yield point, None  # its problems are told already
            elif resource.deferred:
                message = "expected a buffer, but it is deferred, which is for results of ONNX models"
                self.report.add(place, message)
            else:
                is_graph = name in self.dispatchables.graphs and not self.relaxed
                made = graph_range if is_graph else operator_range
                with self.report.under(place):
                    check_view(view)
                    yield point, made(place, resource, view, operator.tensors[point])

    def _view(self, target: Any, fields: Collection[str], place: str) -> Mapping[str, Any] | None:
        """What a binding says of its resource: a name alone, an object, or a list of one of them."""
        single = target[0] if isinstance(target, list) and len(target) == 1 else target
        view = {"name": single} if isinstance(single, str) else single
        if not isinstance(view, dict):
            self.report.add(place, f"expected a resource's name, but got {short_repr(single)}")
            return None
        return self.report.unknown.at(place).drop(view, fields)

    def _resource(self, view: Mapping[str, Any], place: str) -> Resource | None:
        """The resource that a binding names; its counter, which shaders have, must be there, too."""
        name = self.report.find_named(view, "name", self.declared, place)
        if "counter" in view:
            self.report.find_named(view, "counter", self.declared, place)
        return None if name is None else self.resources.get(name)

    # ---- ONNX models

    def _dispatch_model(self, name: str, bindings: Mapping[str, Any], where: str) -> Command | None:
        before = len(self.report.problems)
        views = dict(self._shape_bindings(bindings, f"{where}.bindings"))
        if len(self.report.problems) > before:
            return None
        with self.report.under(f"{where}.bindings"):
            return self._timed(name, self.dispatchables.models[name].bound(views))
        return None

    def _shape_bindings(
        self, bindings: Mapping[str, Any], where: str
    ) -> Iterator[tuple[str, tuple[Resource | None, list[int] | None]]]:
        """The buffer behind each input and output of a model, and the shape it is given."""
        for point, target in bindings.items():
            place = f"{where}.{point}"
            view = self._view(target, VIEW_FIELDS, place)
            if view is None:
                continue
            with self.report.under(place):
                _check_model_view(view)
            shape = self.shapes.get(point, view.get("shape"))
            if shape is not None and not are_sizes(shape):
                self.report.add(f"{place}.shape", f"expected sizes, but got {short_repr(shape)}")
                continue
            resource = self._resource(view, place)
            if resource is not None:
                yield point, (resource, shape)
        for point, shape in self.shapes.items():
            if point not in bindings:
                yield point, (None, shape)

    # ---- print and writeFile

    def _print(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self.report.find_named(item, "resource", self.declared, where)
        with self.report.under(where):
            check_print(item)
        if name is None:
            return None

        def command(echo: Echo) -> None:
            for line in format_buffer(name, self.resources[name], item.get("verbose", False)):
                echo(line)

        return command

    def _write_file(self, item: Mapping[str, Any], where: str) -> Command | None:
        name = self.report.find_named(item, "resource", self.declared, where)
        with self.report.under(where):
            output = FileOutput(item, self.resources.get(name or ""), self.output_path)
            return None if name is None else lambda echo: echo(output.write(name, self.resources[name]))
        return None


def _check_model_view(view: Mapping[str, Any]) -> None:
    """Raises InvalidModel for what bindings of ONNX models cannot have, there and here."""
    check_view(view)
    problems = []
    if offset := view.get("elementOffset", 0):
        message = f"expected 0 for an ONNX model, but got {short_repr(offset)}"
        problems.append(Problem("elementOffset", message))
    if "counter" in view:
        problems.append(Problem("counter", "expected none for an ONNX model, but got one"))
    if problems:
        raise InvalidModel(*problems)


def run_told(k: int, item: Any, command: Command, echo: Echo) -> None:
    """Run a command with a line before it, which repeats the file, and one after it: how it ended."""
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    echo(f"[StartCmd][{k:04}]\t: {text.encode(errors='replace').decode()}")
    try:
        command(echo)
    except Exception as error:
        echo(f"[EndCmd][{k:04}]\t: hr=0x80004005 {error}\n")
        raise
    echo(f"[EndCmd][{k:04}]\t: hr=0x00000000 \n")
