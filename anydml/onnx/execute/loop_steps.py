"""Loop, Scan and SequenceMap, whose bodies are programs: what a library cannot take, since an If is inside.

Their meaning is that of ONNX's text at every opset, but for loops that begin without a condition; states may
change their shapes from one iteration to the next.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any

import numpy as np

from anydml.dataclass import dataclass, field
from anydml.errors import ExecutionFailed, Problem
from anydml.ir.graph import Node
from anydml.onnx.execute.steps import single
from anydml.onnx.providers.provider import RegionEnded

Body = Callable[[list[Any]], list[Any]]
_until: ContextVar[float] = ContextVar("until", default=inf)
"""When loops end that still run, by time.monotonic."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Loops that run here for longer raise `RegionEnded`."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


@dataclass(frozen=True)
class _Iteration(ABC):
    """A body is called with what the operator hands it, and then with `captures` from outside."""

    node: Node
    body: Body
    inputs: tuple[int | None, ...]
    captures: tuple[int, ...]
    writes: tuple[int, ...]
    empty: Callable[[int, list[Any]], np.ndarray | None]
    """What an output is if no iteration adds to it, by what the body would have been called with first; None
    where that is not known."""
    explain: Callable[[], str] = field(repr=False)
    fresh: bool = False  # without an iteration, states are what they were

    @property
    def reads(self) -> tuple[int, ...]:
        return (*(k for k in self.inputs if k is not None), *self.captures)

    def describe(self) -> str:
        return self.explain()

    def run(self, slots: list[Any]) -> None:
        given = [None if k is None else slots[k] for k in self.inputs]
        results = self._iterate(given, [slots[k] for k in self.captures])
        for k, result in zip(self.writes, results, strict=True):
            slots[k] = result

    @abstractmethod
    def _iterate(self, given: list[Any], captured: list[Any]) -> list[Any]: ...

    def _failure(self, message: str) -> ExecutionFailed:
        return ExecutionFailed(Problem(self.node.label, message))

    def _stack(self, parts: Sequence[Any], first: list[Any], output: int, axis: int = 0) -> np.ndarray | None:
        """What the iterations gave for one output, side by side along a new axis; None if nobody wants it."""
        if self.node.outputs[output] is None:
            return None
        if not parts:
            nothing = self.empty(output, first)
            if nothing is None:
                raise self._failure(
                    f"expected a declared type of output {output}, which no iteration adds to"
                )
            return np.moveaxis(nothing, 0, self._within(axis, output, nothing.ndim))
        shapes = {p.shape for p in parts}
        if len(shapes) > 1:
            shown = ", ".join(map(str, sorted(shapes)))
            raise self._failure(
                f"expected equal shapes of output {output} in each iteration, but got {shown}"
            )
        return np.stack(parts, self._within(axis, output, parts[0].ndim + 1))

    def _within(self, axis: int, output: int, rank: int) -> int:
        if -rank <= axis < rank:
            return axis
        raise self._failure(f"expected an axis of output {output} of rank {rank}, but got {axis}")


class LoopStep(_Iteration):
    """Inputs: count, condition, states. Body: (number, condition, states) to (condition, states, rows).

    Without a condition it begins, and the body decides, as in onnxruntime.
    """

    def _iterate(self, given: list[Any], captured: list[Any]) -> list[Any]:
        trips, condition, *states = given
        most = None if trips is None else single(trips, "trip count", np.int64, self.node)
        # The body is handed the condition as it is, which may be of shape [1].
        handed = np.array(True) if condition is None else condition
        going = single(handed, "condition", np.bool_, self.node)
        rows: list[list[Any]] = [[] for _ in self.writes[len(states) :]]
        number, first, until = 0, [np.array(0), handed, *states, *captured], _until.get()
        while going and (most is None or number < most):
            if until < inf and time.monotonic() > until:
                raise RegionEnded(f"{number} iterations of {self.node.label} took too long")
            results = self.body([np.array(number), handed, *states, *captured])
            states = results[1 : 1 + len(states)]
            for row, result in zip(rows, results[1 + len(states) :], strict=True):
                row.append(result)
            handed = results[0]
            going = single(handed, "condition", np.bool_, self.node)
            number += 1
        return [*states, *(self._stack(row, first, len(states) + k) for k, row in enumerate(rows))]


@dataclass(frozen=True)
class ScanStep(_Iteration):
    """Inputs: states, then sequences to go through. Body: (states, elements) -> (states, rows)."""

    count: int = 1
    """Sequences, at the end of the inputs."""
    input_axes: tuple[int, ...] = ()
    output_axes: tuple[int, ...] = ()
    backward_inputs: tuple[bool, ...] = ()
    backward_outputs: tuple[bool, ...] = ()
    batched: bool = False
    """Version 8: everything has a batch in front, and the first input tells the lengths."""

    def _iterate(self, given: list[Any], captured: list[Any]) -> list[Any]:
        if not self.batched:
            return self._scan(given, captured)
        lengths, *given = given
        if any(not np.ndim(x) or len(x) != len(given[0]) for x in given):
            raise self._failure("expected inputs with one size of the batch in front")
        states = len(given) - self.count
        several = []
        for b in range(len(given[0])):
            items = [x[b] for x in given]
            if lengths is not None:
                items[states:] = [x[: int(lengths[b])] for x in items[states:]]
            several.append(self._scan(items, captured))
        padded = [_pad([result[k] for result in several], k >= states) for k in range(len(self.writes))]
        return [np.stack(p) for p in padded]

    def _scan(self, given: list[Any], captured: list[Any]) -> list[Any]:
        first = len(given) - self.count
        states, sequences = given[:first], given[first:]
        if not all(isinstance(x, np.ndarray) for x in given):
            raise self._failure("expected states and sequences that are tensors, but got nothing for one")
        turned = []
        for x, axis, backward in zip(sequences, self.input_axes, self.backward_inputs, strict=True):
            if not -x.ndim <= axis < x.ndim:
                raise self._failure(f"expected a scan axis of rank {x.ndim}, but got {axis}")
            moved = np.moveaxis(x, axis, 0)
            turned.append(moved[::-1] if backward else moved)
        lengths = {len(x) for x in turned}
        if len(lengths) != 1:
            raise self._failure(f"expected sequences of one length, but got {sorted(lengths)}")
        rows: list[list[Any]] = [[] for _ in self.writes[first:]]
        blank = [*states, *(np.zeros(x.shape[1:], x.dtype) for x in turned), *captured]
        for items in zip(*turned, strict=True):
            elements = [np.ascontiguousarray(i) if isinstance(i, np.ndarray) else np.array(i) for i in items]
            results = self.body([*states, *elements, *captured])
            states = results[:first]
            for row, result in zip(rows, results[first:], strict=True):
                row.append(result)
        stacked = []
        for k, row in enumerate(rows):
            parts = row[::-1] if self.backward_outputs[k] else row
            stacked.append(self._stack(parts, blank, first + k, self.output_axes[k]))
        return [*states, *stacked]


def _pad(parts: list[Any], ragged: bool) -> list[Any]:
    """Scan outputs of batches of unequal lengths: zeros behind the shorter ones."""
    most = max(len(p) for p in parts) if ragged else 0
    if not ragged or all(len(p) == most for p in parts):
        return parts
    return [np.concatenate([p, np.zeros((most - len(p), *p.shape[1:]), p.dtype)]) for p in parts]


class SequenceMapStep(_Iteration):
    """Inputs: a sequence, then sequences or tensors. Body: their elements (or the tensors) -> elements."""

    def _iterate(self, given: list[Any], captured: list[Any]) -> list[Any]:
        results: list[list[Any]] = [[] for _ in self.writes]
        if not isinstance(given[0], list):
            raise self._failure("expected a sequence as the first input")
        for k in range(len(given[0])):
            if any(isinstance(x, list) and len(x) <= k for x in given):
                raise self._failure("expected sequences of one length")
            items = [x[k] if isinstance(x, list) else x for x in given]
            for result, item in zip(results, self.body([*items, *captured]), strict=True):
                result.append(item)
        return results
