"""What onnxruntime's InferenceSession has beside `run`: code that was written for it works with ours."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from anydml.cached import cached_property
from anydml.errors import InvalidInput, Problem, cannot_leave, short_repr, type_name
from anydml.ir.graph import OptionalType, TensorType
from anydml.onnx.partial_eval.annotate import is_fixed
from anydml.onnx.providers.ort_values import (
    OrtValue,
    array_at,
    array_over,
    as_ort_value,
    check_device,
    content_of,
    over_array,
)
from anydml.onnx.providers.session_options import check_run_options
from anydml.onnx.providers.their_errors import raises_theirs
from anydml.onnx.serde.deserialize import Argument
from anydml.onnx.types import onnx_name

Providers = Sequence[str | tuple[str, Mapping[str, Any]]]


class Runs(Protocol):
    """What has outputs."""

    def run(self) -> list[Any]: ...


class NodeArg:
    """An input or output: `name`, `type` as in `tensor(float)`, and `shape`.

    A shape lists a number, a symbol or None for each dimension; it is empty for what is no tensor, and where
    the rank is not known, as in onnxruntime: `rank` is None then. What follows of an output's, beyond what
    the file says, is found out when it is asked for.
    """

    def __init__(self, argument: Argument, followed: Callable[[], Argument] | None = None) -> None:
        """`followed`: the argument with what follows of its type."""
        self.name = argument.name
        self._argument = argument
        self._followed = None if is_fixed(argument.type) else followed

    @property
    def _told(self) -> Argument:
        return self._argument if self._followed is None else self._followed()

    @cached_property
    def type(self) -> str:
        return onnx_name(self._told.type)

    @cached_property
    def shape(self) -> list[int | str | None]:
        sizes = (self._tensor.sizes if self._tensor else None) or ()
        return [n if isinstance(n, int) else (n and n.name) or None for n in sizes]

    @property
    def rank(self) -> int | None:
        """The number of dimensions, if it is a tensor of which that is known."""
        return None if self._tensor is None or self._tensor.sizes is None else len(self._tensor.sizes)

    @cached_property
    def _tensor(self) -> TensorType | None:
        told = self._told.type
        type = told.element if isinstance(told, OptionalType) else told
        return type if isinstance(type, TensorType) else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeArg):
            return NotImplemented
        mine, its = ((arg.name, arg.type, arg.rank, arg.shape) for arg in (self, other))
        return mine == its

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class InferenceSessionMethods(ABC):
    """Of a session that has `run`, `bind` and `get_outputs`."""

    @abstractmethod
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]: ...

    @abstractmethod
    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Runs: ...

    @abstractmethod
    def get_inputs(self) -> list[NodeArg]: ...

    @abstractmethod
    def get_overridable_initializers(self) -> list[NodeArg]: ...

    @abstractmethod
    def get_outputs(self) -> list[NodeArg]: ...

    @property
    def _inputs_meta(self) -> list[NodeArg]:
        """As others' libraries read it, which onnxruntime has no other name for than the method's."""
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> list[NodeArg]:
        """As `_inputs_meta`."""
        return self.get_outputs()

    def io_binding(self) -> IOBinding:
        """Inputs and outputs on memory that is told piece by piece, as onnxruntime's: see `bind`, too."""
        return IOBinding(self)

    @raises_theirs
    def run_with_iobinding(self, iobinding: IOBinding, run_options: object = None) -> None:
        """Run on what is bound; `iobinding` has the outputs then.

        Raises:
            InvalidInput: as `run`; or the binding is another session's.
        """
        if not isinstance(iobinding, IOBinding):
            message = f"expected what io_binding() of an anydml session gives, but got {type_name(iobinding)}"
            raise InvalidInput(Problem("iobinding", message))
        if iobinding.session is not self:
            raise InvalidInput(Problem("iobinding", "expected one of this session, but got another's"))
        if run_options is not None:
            check_run_options(run_options)
        iobinding.run()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: object = None,
    ) -> list[OrtValue]:
        """As `run`, from and to onnxruntime's OrtValues on the host."""
        feed = {name: content_of(x) for name, x in dict(input_dict_ort_values).items()}
        results = self.run(output_names, feed, run_options)
        return [as_ort_value(x) for x in results]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: object = None,
    ) -> None:
        """As `run`, in a thread of its own, which calls `callback(results, user_data, error)`: `error` is
        empty, or says why there are no results."""

        def work() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # nobody else would be told of it
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        threading.Thread(target=work, name="anydml-run-async", daemon=True).start()

    def disable_fallback(self) -> None:  # noqa: B027  (it is to do nothing)
        """Nothing: what a provider cannot run is told by `explain`, and no session is made anew for it."""

    def enable_fallback(self) -> None:  # noqa: B027  (as above)
        """Nothing: see `disable_fallback`."""

    def end_profiling(self) -> str:
        """The name of a profile: empty, as there is none."""
        return ""


class IOBinding:
    """Inputs and outputs of a session on memory of the host. Made by `Session.io_binding`.

    Not for several threads at once. What is told by an address must stay as long as it is bound.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        raise cannot_leave("session")

    def __init__(self, session: InferenceSessionMethods) -> None:
        self.session = session
        self._places = {o.name: k for k, o in enumerate(session.get_outputs())}
        self._names = [i.name for i in (*session.get_inputs(), *session.get_overridable_initializers())]
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._held: dict[tuple[str, str], object] = {}
        """What lends its memory to an input, or an output."""
        self._bound: Runs | None = None
        self._ran = False
        """Whether it ran with what is bound now: who binds anew for each run is not helped by preparation."""
        self._wanted: list[int] = []
        """The places of bound outputs among all."""
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """An array, which is read at each run."""
        self._bind(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Memory of a type and shape, by its address, which is read at each run.

        Raises:
            InvalidInput: a device that is not the host; no type of tensors' elements.
        """
        check_device(f"input {name!r}", device_type)
        self._bind(name, array_at(buffer_ptr, element_type, shape, f"input {name!r}"))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """An OrtValue on the host, which is read at each run."""
        self._bind(name, array_over(ortvalue, f"input {name!r}"))
        self._held["input", name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Memory of a type and shape, by its address, which is written at each run; without an address each
        run gives new memory.

        Raises:
            InvalidInput: no output of this name; as `bind_input`.
        """
        where = f"output {name!r}"
        check_device(where, device_type)
        if buffer_ptr is None:
            self._bind_output(name, None)
            return
        if element_type is None or shape is None:
            raise InvalidInput(Problem(where, "expected element_type and shape beside buffer_ptr"))
        self._bind_output(name, array_at(buffer_ptr, element_type, shape, where))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An OrtValue on the host, which is written at each run."""
        self._bind_output(name, array_over(ortvalue, f"output {name!r}"))
        self._held["output", name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing: the host's memory is what it is."""

    def synchronize_outputs(self) -> None:
        """Nothing: a run is over when it returns."""

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run, in the order in which they were bound."""
        return [x.copy() if isinstance(x, np.ndarray) else x for x in self._results]

    def get_outputs(self) -> list[OrtValue]:
        """As `copy_outputs_to_cpu`, as OrtValues: over the memory that was bound, where some was."""

        def value(name: str, x: Any) -> OrtValue:
            bound = self._held.get(("output", name))
            if isinstance(bound, OrtValue):
                return bound
            return as_ort_value(x) if self._outputs[name] is None else over_array(x)

        return [value(name, x) for name, x in self._named_results()]

    def clear_binding_inputs(self) -> None:
        self._inputs, self._bound, self._ran = {}, None, False
        self._held = {key: kept for key, kept in self._held.items() if key[0] != "input"}

    def clear_binding_outputs(self) -> None:
        self._outputs, self._bound, self._ran, self._results = {}, None, False, []
        self._held = {key: kept for key, kept in self._held.items() if key[0] != "output"}

    def run(self) -> None:
        """See `Session.run_with_iobinding`."""
        if self._bound is None:
            given = {n: y for n, y in self._outputs.items() if y is not None}
            self._wanted = [self._places[name] for name in self._outputs]
            if not given and self._wanted and not self._ran:
                self._ran = True
                self._take(self.session.run(None, self._inputs))
                return
            bound = self.session.bind(self._inputs, given)
            if not self._outputs:
                raise InvalidInput(Problem("iobinding", "expected at least one output, but none is bound"))
            self._bound = bound
        self._take(self._bound.run())

    def _take(self, results: Sequence[Any]) -> None:
        self._results = [results[k] for k in self._wanted]

    def _bind(self, name: str, value: Any) -> None:
        _check_name("inputs", name, self._names)
        self._inputs[name], self._bound, self._ran = value, None, False
        self._held.pop(("input", name), None)

    def _bind_output(self, name: str, y: np.ndarray | None) -> None:
        _check_name("outputs", name, self._places)
        self._outputs[name], self._bound, self._ran = y, None, False
        self._results = []  # which may be over memory that goes
        self._held.pop(("output", name), None)

    def _named_results(self) -> list[tuple[str, Any]]:
        return list(zip(self._outputs, self._results, strict=True)) if self._results else []


def _check_name(where: str, name: str, names: Collection[str]) -> None:
    """Raises:
    InvalidInput: it is none of these names.
    """
    if name not in names:
        raise InvalidInput(Problem(where, f"expected {' | '.join(names)}, but got {short_repr(name)}"))
