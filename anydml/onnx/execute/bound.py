"""A session with the arrays it runs on, again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.errors import ExecutionFailed, Problem, cannot_leave
from anydml.onnx.execute.program import Program
from anydml.onnx.execute.steps import Plan
from anydml.onnx.providers.provider import RanksDiffer
from anydml.runtime.memory import is_memory_of, kept_in_place


class Bound:
    """Made by `Session.bind`; not for several threads at once."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise cannot_leave("session")

    def __init__(
        self,
        session: object,
        program: Program,
        feed: dict[str, Any],
        places: Mapping[int, np.ndarray],
        outputs: Sequence[str],
    ) -> None:
        """`session` stays as long as this does; `places`: the arrays of those outputs that have one."""
        self._session, self._program, self._places, self._outputs = session, program, places, outputs
        self._feed, self._values = feed, list(feed.values())
        self._all = [places[k] for k in sorted(places)] if len(places) == len(outputs) else None
        """The arrays of all outputs, if each has one."""
        self._met: Plan | None = None
        """What ran last: prepared when it runs again, for some bind memory anew for each run."""
        self._plan: Plan | None = None
        self._direct: Callable[[], bool] | None = None
        self._entry: Callable[..., list[Any] | None] | None = None
        """Of that plan, if it is a program: takes the feed, and the arrays of all outputs."""
        self._in_place = any(is_memory_of(y, x) for y in places.values() for x in self._values)
        """Whether an output is written to where an input is read."""
        self._held = [kept_in_place(x) for x in (*self._values, *places.values())]

    def run(self) -> list[Any]:
        """All outputs, for what the inputs contain now; those with an array of their own are that array.

        Raises:
            ExecutionFailed: a node failed; or an output does not fit its array.
        """
        if self._entry is not None and self._entry(self._feed, self._all) is not None:
            return [*(self._all or ())]
        program = self._program
        if self._all is None and (entry := program.entry) is not None:
            results = entry(self._feed)
            if results is not None:
                return self._placed(results)
        plan = program.plan(self._values)
        if self._in_place and (written := plan.in_place(self._values, self._places)) is not None:
            return written
        if plan is self._plan and self._direct is not None and self._direct():
            return [*(self._all or ())]
        try:
            results = plan.run_owned(self._values)
        except RanksDiffer as differ:
            program.forget_sizes_of(differ)
            results = program.run(self._values)
        self._placed(results)
        if self._all is not None and plan is not self._plan:  # they fit
            if plan is self._met:
                self._plan, self._direct = plan, plan.bound(self._values, self._all)
                self._entry = None if self._direct is None else plan.entry
            self._met = plan
        return results

    def _placed(self, results: list[Any]) -> list[Any]:
        """The results, in the arrays of those that have one."""
        for place, y in self._places.items():
            result = results[place]
            if not isinstance(result, np.ndarray) or (result.shape, result.dtype) != (y.shape, y.dtype):
                got = f"{result.dtype} of shape {result.shape}" if isinstance(result, np.ndarray) else "none"
                message = f"expected {y.dtype} of shape {y.shape}, the array bound to it, but got {got}"
                raise ExecutionFailed(Problem(f"output {self._outputs[place]!r}", message))
            y[...] = result
            results[place] = y
        return results
