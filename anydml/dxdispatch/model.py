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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anydml.device import Device
from anydml.directml.serialized import read_serialized_graph
from anydml.dxdispatch.bindings import declared_alignment
from anydml.dxdispatch.buffers import MAX_BYTES, Resource, find_file, kind_of, read_resource
from anydml.dxdispatch.commands import Command, CommandReader, Dispatchables, Echo, run_told
from anydml.dxdispatch.dialect import description
from anydml.dxdispatch.json_text import MAX_TEXT, entries, parse_json
from anydml.dxdispatch.onnx_models import OnnxDispatchable
from anydml.dxdispatch.report import Report
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import (
    AnyDMLError,
    InvalidInput,
    InvalidModel,
    InvalidOperator,
    Problem,
    translate_memory_error,
)
from anydml.files import read_file
from anydml.ops.enums import FeatureLevel
from anydml.runtime.bind import Compiled

MOST_ENTRIES = 100_000
_SECTIONS: dict[str, type] = {"resources": dict, "dispatchables": dict, "commands": list}
_ELSEWHERE = {"hlsl": "compute shaders need Direct3D 12"}


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
        denotations: Mapping[str, int] | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        input_path: str | os.PathLike[str] | None = None,
        output_path: str | os.PathLike[str] | None = None,
        relaxed: bool = False,
    ) -> None:
        """Read `path`: a model, or an ONNX model that is to run once on zeros.

        Args:
            path: .json or .onnx; where it is not, it is looked for in `input_path`.
            feature_level: of the device.
            timing: how often dispatches run.
            dims: free dimensions of ONNX models by name, before those that the model gives.
            denotations: the same by what they denote, such as DATA_BATCH.
            shapes: of inputs and outputs of ONNX models, before those of its bindings.
            input_path: the folder of the files that the model names; default the model's own.
            output_path: the folder of the files that it writes; default the current one.
            relaxed: what is bound to operators need not be what Direct3D asks for, of TotalTensorSizeInBytes
                and at offsets of 16 bytes; the elements that are reached must be there.

        Raises:
            InvalidModel: malformed JSON (with the place), or a model that does not hold together.
            InvalidOperator: nothing is wrong but operator descriptions that break DirectML's rules.
            Unsupported: a feature of DxDispatch that is not implemented here.
            InvalidInput: sizes for ONNX models, but no such model.
            OSError: the file cannot be read.

        Warns:
            UnknownFieldWarning: fields that are not known, once for the file. An error lists them instead.
        """
        self.path = find_model(path, input_path)
        self.device = Device(feature_level)
        self.timing = timing or DispatchTiming()
        self._dims, self._denotations = dict(dims or {}), dict(denotations or {})
        self._shapes = {n: list(s) for n, s in (shapes or {}).items()}
        alone = self.path.suffix.lower() == ".onnx"
        self._folder = self.path.parent if alone or input_path is None else Path(input_path)
        self._report = Report(self.path.name)
        sections = self._sections(alone)
        self._report.raise_problems(InvalidModel)
        declared = entries(sections["resources"])
        self.resources = dict(self._resources(declared))
        self._only_operators = not self._report.problems
        self._dispatchables = Dispatchables(entries(sections["dispatchables"]))
        self._read_dispatchables()
        self._check_options()
        if (alignment := declared_alignment(self.operators)) > 1:
            for resource in self.resources.values():
                resource.align(alignment)
        before = len(self._report.problems)
        reader = CommandReader(
            self._report,
            declared,
            self.resources,
            self._dispatchables,
            self.timing,
            self._shapes,
            None if output_path is None else Path(output_path),
            relaxed,
        )
        self.commands: list[Command] = list(reader.read(sections["commands"]))
        self._texts: list[Any] = sections["commands"]
        only_operators = self._only_operators and len(self._report.problems) == before
        self._report.raise_problems(InvalidOperator if only_operators else InvalidModel)
        self._report.unknown.warn(self.path.name, stacklevel=3)  # behind the wrapper is who asked for it

    @property
    def operators(self) -> dict[str, Compiled]:
        """DirectML's operators and graphs, by name."""
        return self._dispatchables.operators

    @property
    def models(self) -> dict[str, OnnxDispatchable]:
        """ONNX models, by name."""
        return self._dispatchables.models

    @translate_memory_error
    def run(self, echo: Echo = print, *, print_commands: bool = False) -> None:
        """Run the commands in order; `echo` receives what they print, a line at a time.

        `print_commands`: with a line before each command, and one after it.
        """
        echo(f"Running on 'anydml, feature level {self.device.feature_level.label}'")
        for k, (item, command) in enumerate(zip(self._texts, self.commands, strict=True)):
            if print_commands:
                run_told(k, item, command, echo)
            else:
                command(echo)

    # ---- reading

    def _sections(self, alone: bool) -> dict[str, Any]:
        """The three parts of the file, empty where they are wrong."""
        if alone:
            root: Any = _alone(self.path.name)
        else:
            root = parse_json(read_file(self.path, MAX_TEXT), self.path.name)
        if not isinstance(root, dict):
            raise InvalidModel(Problem(self.path.name, f"expected an object, but got {kind_of(root)}"))
        sections = {name: self._section(root, name, k) for name, k in _SECTIONS.items()}
        self._report.unknown.drop(root, ("$schema", *_SECTIONS))
        return sections

    def _section(self, root: Mapping[str, Any], name: str, kind: type) -> Any:
        if name not in root:
            self._report.add("", f'expected "{name}", but it is missing')
        elif not isinstance(root[name], kind):
            wanted = "an object" if kind is dict else "an array"
            self._report.add(name, f"expected {wanted}, but got {kind_of(root[name])}")
        elif len(root[name]) > MOST_ENTRIES:
            self._report.add(name, f"expected at most {MOST_ENTRIES:,} entries, but got {len(root[name]):,}")
        else:
            return root[name]
        return kind()

    def _resources(self, section: Mapping[str, Any]) -> Iterator[tuple[str, Resource]]:
        total = 0
        for name, item in section.items():
            if self._report.is_full():
                return
            where = f"resources.{name}"
            with self._report.under(where):
                resource = read_resource(item, self._folder, self._report.unknown.at(where))
                total += resource.data.size
                if total > MAX_BYTES:
                    self._report.add(
                        where, f"expected at most {MAX_BYTES:,} bytes in all buffers, but got more"
                    )
                    return
                yield name, resource

    def _read_dispatchables(self) -> None:
        for name, item in self._dispatchables.declared.items():
            if self._report.is_full():
                return
            where = f"dispatchables.{name}"
            kind = item.get("type", item.get("Type")) if isinstance(item, dict) else None
            kind = kind.lower() if isinstance(kind, str) else ""
            if kind in _ELSEWHERE:
                raise self._report.unsupported(where, f"{kind} dispatchables: {_ELSEWHERE[kind]}")
            if not isinstance(item, dict):
                self._report.add(where, f"expected an object, but got {kind_of(item)}")
                continue
            start, before = time.perf_counter(), len(self._report.problems)
            with self._report.under(where):
                self._read_dispatchable(name, kind, item, where)
            self._only_operators &= kind != "onnx" or len(self._report.problems) == before
            self._dispatchables.initialized[name] = (time.perf_counter() - start) * 1e3

    def _read_dispatchable(self, name: str, kind: str, item: Mapping[str, Any], where: str) -> None:
        made, unknown = self._dispatchables, self._report.unknown.at(where)
        if kind == "onnx":
            given = self._dims, self._denotations
            made.models[name] = OnnxDispatchable(item, self._folder, *given, unknown)
        elif kind == "dmlserializedgraph":
            made.graphs.add(name)
            made.owned[name] = {}
            made.operators[name] = self._serialized_graph(item, where)
        else:
            made.owned[name] = self._report.dictionary(item.get("bindings", {}), f"{where}.bindings")
            operator = self.device.create_operator(description(item, unknown))
            made.operators[name] = self.device.compile_operator(operator)

    def _serialized_graph(self, item: Mapping[str, Any], where: str) -> Compiled:
        """A graph that another program wrote; files of its constants lie beside it."""
        known = ("type", "Type", "sourcePath", "executionFlags", "bindings")
        self._report.unknown.at(where).drop(item, known)
        path = find_file(item.get("sourcePath"), self._folder, "sourcePath")

        def constant(name: str) -> bytes:
            return read_file(find_file(f"{name}.bin", path.parent, f"constant {name!r}"), MAX_BYTES)

        try:
            desc = read_serialized_graph(read_file(path, MAX_BYTES), constant)
        except AnyDMLError as error:
            raise InvalidModel(*(p.under(path.name) for p in error.problems)) from error
        return self.device.compile_graph(desc)

    def _check_options(self) -> None:
        """Raises InvalidInput for sizes of ONNX models where there is none; notes denotations of nothing."""
        if self._report.problems:
            return
        words = {
            "free dimensions (-f)": self._dims,
            "free dimensions (-F)": self._denotations,
            "shapes of bindings (-b)": self._shapes,
        }
        for word, given in words.items():
            if given and not self.models:
                message = f"expected an ONNX model for {word}, but there is none"
                raise InvalidInput(Problem(self.path.name, message))
        used = {n for model in self.models.values() for n in model.denoted}
        self._report.unknown.at("-F").drop(self._denotations, used)


def find_model(path: str | os.PathLike[str], input_path: str | os.PathLike[str] | None) -> Path:
    """The model's file: as it is named, or in the folder that inputs come from."""
    if input_path is None or Path(path).exists():
        return Path(path)
    return Path(input_path, path)


def _alone(name: str) -> dict[str, Any]:
    """The model that runs an ONNX model once, on nothing that would be given."""
    return {
        "resources": {},
        "dispatchables": {name: {"type": "onnx", "sourcePath": name}},
        "commands": [{"type": "dispatch", "dispatchable": name, "bindings": {}}],
    }
