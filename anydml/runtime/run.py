"""Plans and their steps: what one run of a graph does, in order, over numbered slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from anydml.codegen.group import Group
from anydml.ir.graph import If, Node
from anydml.ir.provider import Call, RegionFailed
from anydml.problems import ExecutionFailed, Problem
from anydml.runtime.launch import broadcast_shape, empty_like_inputs, launch
from anydml.spec.dtypes import NUMPY


class Step(Protocol):
    @property
    def reads(self) -> tuple[int, ...]: ...

    @property
    def writes(self) -> tuple[int, ...]: ...

    def run(self, slots: list[Any]) -> None: ...

    def describe(self) -> str:
        """One line for `explain()`."""
        ...


@dataclass(frozen=True)
class RegionStep:
    """Nodes that a library runs."""

    provider: str
    call: Call
    nodes: tuple[Node, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def run(self, slots: list[Any]) -> None:
        try:
            results = self.call([slots[k] for k in self.reads])
        except RegionFailed as failure:
            raise ExecutionFailed(Problem(self._place(failure.node), failure.message)) from failure
        for k, result in zip(self.writes, results, strict=True):
            slots[k] = result

    def _place(self, node: int | None) -> str:
        if node is not None and node < len(self.nodes):
            return self.nodes[node].label
        return (
            "one of " + ", ".join(n.label for n in self.nodes[:8]) + (", ..." if len(self.nodes) > 8 else "")
        )

    def describe(self) -> str:
        names = [str(n.op) for n in self.nodes]
        shown = ", ".join(names[:6]) + (f", ... ({len(names)} nodes)" if len(names) > 6 else "")
        return f"{self.provider}: {shown}"


@dataclass(frozen=True)
class KernelStep:
    """An element-wise group over whole arrays, which broadcast against each other."""

    group: Group
    node: Node
    given: tuple[np.dtype, ...]
    result: np.dtype
    """As which type the output is seen: bool where the kernel writes 0 and 1."""
    threads: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def run(self, slots: list[Any]) -> None:
        inputs = [slots[k] for k in self.reads]
        if any(
            x.dtype != t for x, t in zip(inputs, self.given, strict=True)
        ):  # a model that lied about a type
            expected, got = (", ".join(map(str, types)) for types in (self.given, [x.dtype for x in inputs]))
            raise ExecutionFailed(Problem(self.node.label, f"expected {expected}, but got {got}"))
        shape = broadcast_shape([x.shape for x in inputs])
        if shape is None:
            shapes = ", ".join(str(x.shape) for x in inputs)
            raise ExecutionFailed(
                Problem(self.node.label, f"expected shapes that broadcast, but got {shapes}")
            )
        output = empty_like_inputs(shape, NUMPY[self.group.operands[-1]], inputs)
        # A truth or a bfloat16 has the bits of an integer of its width, which is what the kernel moves.
        wanted = [NUMPY[t] for t in self.group.inputs]
        arrays = [x if x.dtype == w else x.view(w) for x, w in zip(inputs, wanted, strict=True)]
        launch(self.group, [*(np.broadcast_to(x, shape) for x in arrays), output], self.threads)
        (slots[self.writes[0]],) = (output.view(self.result),)

    def describe(self) -> str:
        return f"kernel: {self.node.op}"


@dataclass(frozen=True)
class BranchStep:
    """An `If` whose condition is not known before: runs the program of one branch."""

    node: If
    condition: int
    then_call: Callable[[list[Any]], list[Any]]
    else_call: Callable[[list[Any]], list[Any]]
    then_reads: tuple[int, ...]
    else_reads: tuple[int, ...]
    writes: tuple[int, ...]
    explain: Callable[[], str]

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.condition, *self.then_reads, *self.else_reads)

    def run(self, slots: list[Any]) -> None:
        if truth(slots[self.condition], self.node):
            results = self.then_call([slots[k] for k in self.then_reads])
        else:
            results = self.else_call([slots[k] for k in self.else_reads])
        for k, result in zip(self.writes, results, strict=True):
            slots[k] = result

    def describe(self) -> str:
        return self.explain()


def truth(condition: Any, node: If) -> bool:
    """The one truth in a condition.

    Raises:
        ExecutionFailed: it is not a bool, or not exactly one.
    """
    if not isinstance(condition, np.ndarray) or condition.dtype != np.bool_ or condition.size != 1:
        got = (
            f"{condition.dtype} of shape {condition.shape}"
            if isinstance(condition, np.ndarray)
            else repr(condition)
        )
        raise ExecutionFailed(Problem(node.label, f"expected a condition of one bool, but got {got}"))
    return bool(condition.item())


def _copied(content: Any) -> Any:
    if isinstance(content, list):
        return [_copied(item) for item in content]
    return content.copy() if isinstance(content, np.ndarray) else content


@dataclass(frozen=True)
class Plan:
    """Steps over slots. `template` holds the constants in their slots, and None in all others."""

    template: Sequence[Any]
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    drops: tuple[tuple[int, ...], ...]
    """For each step, the slots that nobody reads after it: their memory can go."""
    shared: frozenset[int]
    """The outputs, by place, that may be memory of an input or a constant: they are returned as copies."""

    def run(self, values: Sequence[Any]) -> list[Any]:
        slots = list(self.template)
        for k, value in zip(self.inputs, values, strict=True):
            slots[k] = value
        for step, drops in zip(self.steps, self.drops, strict=True):
            step.run(slots)
            for k in drops:
                slots[k] = None
        results = [slots[k] for k in self.outputs]
        for place in self.shared:
            results[place] = _copied(results[place])
        return results

    def describe(self) -> list[str]:
        return [step.describe() for step in self.steps]
