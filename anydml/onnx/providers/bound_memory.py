"""Runs of onnxruntime on memory that is bound to it once, which takes less than to hand it over each time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from anydml.errors import by_a_handler
from anydml.onnx.providers.provider import Sizes
from anydml.runtime.process import Calls, leak, renew_after_fork


def _run_options() -> Any:
    options = ort.RunOptions()
    options.add_run_config_entry(
        "gpu_graph_id", "-1"
    )  # a binding's run asks for it, and lasts if it is absent
    return options


calls = Calls(_run_options)


class Bindable(Protocol):
    """A region in onnxruntime."""

    inputs: tuple[str, ...]
    outputs: list[str]
    bindings: weakref.WeakSet[Binding]

    @property
    def session(self) -> ort.InferenceSession: ...

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None: ...

    def run_in_place(self, values: list[Any], outputs: list[Any]) -> list[Any]: ...

    def __call__(self, values: list[Any]) -> list[Any]: ...


TRIES = 3
"""How often in a row a bound run may fail, as it also does for data that has no result."""


class Binding:
    """A session's inputs and outputs in arrays, bound once. Not for several threads at once."""

    def __init__(self, call: Bindable, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        """The arrays are in C's order, and not empty."""
        self._call, self._arrays = call, [*inputs, *outputs]
        self._bound: tuple[Any, Any, Any] | None = None
        """What runs, what it is given, and what that needs."""
        self._failures = 0
        call.bindings.add(self)
        renew_after_fork(self)

    def _bind(self) -> tuple[Any, Any, Any]:
        session, call = self._call.session, self._call
        kept = [ort.OrtValue.ortvalue_from_numpy(x) for x in self._arrays]
        binding = session.io_binding()
        for name, value in zip(call.inputs, kept, strict=False):
            binding.bind_ortvalue_input(name, value)
        for name, value in zip(call.outputs, kept[len(call.inputs) :], strict=True):
            binding.bind_ortvalue_output(name, value)
        if hasattr(session, "_sess") and hasattr(binding, "_iobinding"):  # without the wrapper, half a call
            return session._sess.run_with_iobinding, binding._iobinding, kept
        return session.run_with_iobinding, binding, kept

    def after_fork(self) -> None:
        leak(self._bound)
        self._bound = None

    def bind_again(self) -> None:
        """The next run shall: to a session that was opened again."""
        self._bound = None

    def __call__(self) -> bool:
        """Run, and tell whether that went well: an output may have other sizes than its array.

        What failed time after time is not tried again: its exceptions take longer than most runs.
        """
        if self._failures == TRIES:
            return False
        bound = self._bound
        if bound is None:
            bound = self._bound = self._bind()
        options = calls.options
        try:
            calls.enter(options)
            bound[0](bound[1], options)
            self._failures = 0
            return True
        except Exception as error:
            if by_a_handler(error):
                raise
            self._failures += 1
            return False
        finally:
            calls.leave(options)


class Fixed:
    """A region with memory of its own for inputs and outputs. Whoever comes while it is busy goes without."""

    def __init__(
        self, call: Bindable, inputs: list[tuple[np.dtype, Sizes]], outputs: list[tuple[np.dtype, Sizes]]
    ) -> None:
        self._call, self.bind, self.run_in_place = call, call.bind, call.run_in_place
        given, self._outputs = ([np.zeros(n, t) for t, n in ends] for ends in (inputs, outputs))
        self._given = [(x, x.dtype, x.shape) for x in given]
        self._run = Binding(call, given, self._outputs)
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, values: list[Any]) -> list[Any]:
        if not self._lock.acquire(False):  # its name would take a tenth of a microsecond
            return self._call(values)
        try:
            for value, (x, dtype, shape) in zip(values, self._given):  # noqa: B905  (as above)
                if value.shape != shape or value.dtype != dtype:  # not as the model declares
                    return self._call(values)
                x[...] = value
            return [y.copy() for y in self._outputs] if self._run() else self._call(values)
        finally:
            self._lock.release()
