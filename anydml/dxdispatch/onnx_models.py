"""ONNX models as dispatchables of a DxDispatch model: their inputs and outputs are its buffers.

    {"type": "onnx", "sourcePath": "gemm.onnx", "freeDimensionNameOverrides": {"N": 2}}

What is not bound is made: inputs of zeros, of the declared sizes, free ones being 1. Dimensions can be given
by what they denote, too: {"freeDimensionDenotationOverrides": {"DATA_BATCH": 8}}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass
from anydml.dxdispatch.buffers import MAX_BYTES, Resource, find_file
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import ExecutionFailed, InvalidModel, Problem, nearest, short_repr
from anydml.ops.dtypes import FROM_NUMPY

if TYPE_CHECKING:
    from anydml.onnx.inference_session import NodeArg
    from anydml.onnx.serde.parse import ModelSource


_FIELDS = (
    "type",
    "Type",
    "sourcePath",
    "freeDimensionNameOverrides",
    "freeDimensionDenotationOverrides",
    # onnxruntime's own, which have no meaning here:
    "graphOptimizationLevel",
    "loggingLevel",
    "sessionOptionsConfigEntries",
)
_RENAMED = {"float": "float32", "double": "float64"}


@dataclass(frozen=True)
class DenotedDims:
    """Free dimensions of a model's inputs that were given by what they denote.

    Attributes:
        symbols: their sizes by symbol.
        places: those without a symbol, by input and axis.
        names: as they were given.
    """

    symbols: dict[str, int]
    places: dict[tuple[str, int], int]
    names: set[str]


def denoted_dims(source: ModelSource, sizes: Mapping[str, int]) -> DenotedDims:
    """The free dimensions that `sizes` is for; case does not matter, and the first of equal names counts."""
    from anydml.onnx.serde.parse import parse_light  # which loads onnx

    found = DenotedDims({}, {}, set())
    names: dict[str, str] = {}
    for name in sizes:
        names.setdefault(name.lower(), name)
    if not names:
        return found
    for given in parse_light(source, mapped=False)[0].graph.input:
        for axis, dim in enumerate(given.type.tensor_type.shape.dim):
            name = names.get(dim.denotation.lower(), "")
            if not name or dim.HasField("dim_value"):
                continue
            found.names.add(name)
            if dim.dim_param:
                found.symbols[dim.dim_param] = sizes[name]
            else:
                found.places[given.name, axis] = sizes[name]
    return found


class OnnxDispatchable:
    """A model that was loaded."""

    def __init__(
        self,
        item: Mapping[str, Any],
        folder: Path,
        overrides: Mapping[str, int],
        denotations: Mapping[str, int],
        unknown: UnknownFields,
    ) -> None:
        """Read what the JSON says, and load the model.

        Args:
            item: the JSON.
            folder: where the model lies.
            overrides: free dimensions by name, before those that the JSON gives.
            denotations: the same by what they denote; names come first.
            unknown: is told what means nothing.

        Raises:
            InvalidModel: a field of a wrong type, or no such file; and whatever `load` raises.
        """
        from anydml.session import load  # which loads onnx: only models that have one wait for it

        unknown.drop(item, _FIELDS)
        problems = []
        fields = "freeDimensionNameOverrides", "freeDimensionDenotationOverrides"
        for field in fields:
            problems += _size_problems(field, item.get(field, {}))
        try:
            path = find_file(item.get("sourcePath"), folder, "sourcePath")
        except InvalidModel as error:
            problems += error.problems
        if problems:
            raise InvalidModel(*problems)
        dims, said = (item.get(field, {}) for field in fields)
        found = denoted_dims(path, {**denotations, **{n: k for n, k in said.items() if n not in denotations}})
        used = {n.lower() for n in found.names}
        unknown.at(fields[1]).drop(said, [n for n in said if n.lower() in used])
        self.denoted = found.names
        self._places = found.places
        self.session = load(path, dims={**found.symbols, **dims, **overrides} or None)
        self.inputs = {a.name: a for a in self.session.get_inputs()}
        self.outputs = {a.name: a for a in self.session.get_outputs()}

    def bound(self, views: Mapping[str, tuple[Resource | None, list[int] | None]]) -> Callable[[], None]:
        """What runs the model on buffers, each with the shape that it is to be seen in.

        Raises:
            InvalidModel: no such input or output, or a buffer too small for it.
        """
        problems = [
            Problem(
                name, "expected an input or output of the model", nearest(name, [*self.inputs, *self.outputs])
            )
            for name in views
            if name not in self.inputs and name not in self.outputs
        ]
        feeds: dict[str, NDArray[Any]] = {}
        for name, argument in self.inputs.items():
            try:
                feeds[name] = _tensor(argument, self._sizes(argument), *views.get(name, (None, None)))
            except InvalidModel as error:
                problems += [p.under(name) for p in error.problems]
        if problems:
            raise InvalidModel(*problems)
        targets = {name: view[0] for name, view in views.items() if name in self.outputs}

        def run() -> None:
            results = self.session.run(None, feeds)
            for name, result in zip(self.outputs, results, strict=True):
                target = targets.get(name)
                if target is not None:
                    _store(name, result, target)

        return run

    def _sizes(self, argument: NodeArg) -> list[int]:
        """An input's sizes where nothing else is said."""
        declared = enumerate(argument.shape or [])
        return [n if isinstance(n, int) else self._places.get((argument.name, k), 1) for k, n in declared]


def _size_problems(field: str, sizes: Any) -> list[Problem]:
    """What is wrong with sizes by name; whether there are such names is asked elsewhere."""
    if not isinstance(sizes, dict):
        return [Problem(field, f"expected an object, but got {short_repr(sizes)}")]
    return [
        Problem(f"{field}.{name}", f"expected a size, but got {short_repr(size)}")
        for name, size in sizes.items()
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**32
    ]


def _tensor(
    argument: NodeArg, declared: list[int], resource: Resource | None, shape: list[int] | None
) -> NDArray[Any]:
    """An input's array: a view of a buffer, or zeros."""
    name = argument.type.removeprefix("tensor(").removesuffix(")")
    try:
        dtype = np.dtype(_RENAMED.get(name, name))
    except TypeError as error:
        raise InvalidModel(Problem("", f"expected a tensor of numbers, but it is {argument.type}")) from error
    sizes = declared if shape is None else shape
    if prod(sizes) * dtype.itemsize > MAX_BYTES:
        message = f"expected at most {MAX_BYTES:,} bytes, but got {dtype}{list(sizes)}"
        raise InvalidModel(Problem("", message))
    if resource is None:
        return np.zeros(sizes, dtype)
    if resource.deferred:
        raise InvalidModel(Problem("", "expected a buffer, but it is deferred, which is for results"))
    needed = prod(sizes) * dtype.itemsize
    if needed > resource.data.size:
        message = f"expected {needed} bytes for {dtype}{list(sizes)}, but the buffer has {resource.data.size}"
        raise InvalidModel(Problem("", message, 'its shape can be given: {"name": ..., "shape": [...]}'))
    return resource.data[:needed].view(dtype).reshape(sizes)


def _store(name: str, result: Any, resource: Resource) -> None:
    """Put a result into a buffer."""
    if isinstance(result, np.ndarray) and result.dtype == bool:
        result = result.view(np.uint8)
    if not isinstance(result, np.ndarray) or result.dtype not in FROM_NUMPY:
        message = "expected a tensor of a DirectML type for a buffer, but the model returned something else"
        raise ExecutionFailed(Problem(f"output {name!r}", message))
    data = np.ascontiguousarray(result).reshape(-1).view(np.uint8)
    if resource.deferred:
        resource.data, resource.shape, resource.dtype = data.copy(), result.shape, result.dtype
        resource.written = True
        return
    if data.size > resource.data.size:
        message = f"expected a buffer of at least {data.size} bytes, but it has {resource.data.size}"
        raise ExecutionFailed(Problem(f"output {name!r}", message))
    resource.data[: data.size] = data
