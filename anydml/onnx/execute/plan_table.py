"""The plans of a program, by what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anydml.ir.graph import Graph, If
from anydml.onnx.execute.input_roles import InputRoles
from anydml.onnx.execute.plan_keys import (
    ANY,
    Key,
    fits,
    join,
    open_sizes,
    quick_key,
    quick_pattern,
    quickly_fits,
)
from anydml.onnx.execute.planned import Planned

MAX_PLANS = 32
"""Plans kept; the least recently used one goes."""
MAX_PLAN_KEYS = 4096
"""Keys that lead to a plan at once. Shapes may be far more than plans."""
MAX_SHAPES = 8
"""Combinations of shapes that get a plan of their own where that leaves fewer Ifs, or where they come again
and again; later ones share one that knows ranks."""
RUNS_ALIKE = 30
"""Until sizes that a plan leaves open are worth one of their own."""


class PlanTable:
    def __init__(self, graph: Graph, roles: InputRoles, own: bool) -> None:
        """`own`: whether inputs that come again and again have plans for themselves."""
        self._own, self._growing = own, bool(roles.growing)
        self.deciding = roles.deciding
        """The places of inputs whose contents a plan depends on."""
        conditions = {n.condition for n in graph.nodes if isinstance(n, If)}
        self._exact = {*self.deciding, *(k for k, v in enumerate(graph.inputs) if v in conditions)}
        """The places of inputs whose sizes are looked at anew when they differ."""
        self._plans: dict[Key, Planned] = {}
        """By shapes, of which some sizes may be open, and by deciding contents."""
        self._open: tuple[Planned, ...] = ()
        """Those that have open sizes, of the fewest first."""
        self._met: dict[Key, Planned] = {}
        """The plans by all that they may depend on, in the form that is quickest to make."""
        self._times: dict[Key, int] = {}
        """How often plans of open sizes were fed inputs like these."""

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[Planned]:
        return iter(self._plans.values())

    def items(self) -> Iterator[tuple[Key, Key, Planned]]:
        """Shapes, contents, and the plan for them."""
        return ((shapes, contents, planned) for (shapes, contents), planned in self._plans.items())

    def clear(self) -> None:
        self._plans.clear()
        self._met.clear()
        self._times.clear()
        self._open = ()

    # ---- by quick keys

    def key(self, values: Sequence[Any]) -> Key | None:
        """Types, sizes and deciding contents of the inputs; None if they are no arrays of native types."""
        key = quick_key(values, self.deciding)
        return None if key is None else tuple(key)

    def met(self, key: Key) -> Planned | None:
        """The plan of inputs that were met, unless there is a better one to make by now."""
        planned = self._met.get(key)
        if planned is None or not planned.stays():
            return None
        if self._own and planned.is_open and len(self._plans) < MAX_SHAPES:
            times = self._times.get(key, 0)
            if self._growing and not times:  # only what comes one after another counts
                self._times.clear()
            self._times[key] = times + 1
            return None if self.is_often(key) else planned
        return planned

    def similar(self, key: Key, values: Sequence[Any]) -> Planned | None:
        """The plan of inputs that were not met, but differ from others in open sizes only."""
        if key in self._met:  # and there is a better plan to make
            return None
        for planned in self._open:
            if quickly_fits(planned.pattern or (), key) and planned.has_room(values) and planned.stays():
                self.meet(key, planned)
                return planned
        return None

    def meet(self, key: Key, planned: Planned) -> None:
        """From here on, it is the plan of such inputs."""
        if len(self._met) >= MAX_PLAN_KEYS:
            self._met.clear()
            self._times.clear()
        self._met[key] = planned

    def is_often(self, key: Key | None) -> bool:
        """Whether such inputs came so many times that a plan for them alone is to be made."""
        return key is not None and self._times.get(key, 0) > RUNS_ALIKE

    # ---- by shapes and contents

    def fitting(self, shapes: Key, contents: Key) -> Planned | None:
        """The plan for these inputs: the one with the fewest open sizes."""
        if (found := self._plans.get((shapes, contents))) is not None:
            return found
        fit = [key for key in self._plans if key[1] == contents and fits(key[0], shapes)]
        return self._plans[min(fit, key=_open_sizes)] if fit else None

    def like(self, shapes: Key, contents: Key) -> dict[Key, Planned]:
        """The plans that are for the same contents, and for sizes that one plan could be for, too."""
        return {
            pattern: planned
            for pattern, known, planned in self.items()
            if known == contents and join(pattern, shapes) is not None
        }

    def add(self, pattern: Key, contents: Key, planned: Planned, values: Sequence[Any]) -> None:
        """Add a plan; `values`: some that it is for."""
        if open_sizes(pattern) and contents is not ANY:
            planned.pattern = quick_pattern(values, self.deciding, pattern, self._exact)
        self._plans[pattern, contents] = planned
        self._sort()

    def drop_rare(self, pattern: Key, contents: Key, ifs: int) -> None:
        """Drop plans for one combination of shapes each that one for a pattern is for, too, with no more Ifs,
        unless they ran often: threads and memory of two plans cost more than one of them gains."""

        def is_rare(key: Key, planned: Planned) -> bool:
            alike = key[1] == contents and not open_sizes(key[0]) and fits(pattern, key[0])
            return alike and planned.runs < RUNS_ALIKE and planned.ifs >= ifs and not planned.is_program

        rare = [key for key, planned in self._plans.items() if is_rare(key, planned)]
        for key in rare:
            del self._plans[key]
        if rare:
            self._forget_keys()

    def drop_one(self, *kept: Planned | None) -> bool:
        """Drop the plan that was not used for longest, if there are too many; whether there were."""
        if len(self._plans) <= MAX_PLANS:
            return False
        others = (key for key, planned in self._plans.items() if planned not in kept)
        del self._plans[min(others, key=lambda key: self._plans[key].used)]
        self._forget_keys()
        return True

    def _forget_keys(self) -> None:
        """Of plans, some of which are there no more."""
        self._met.clear()
        self._times.clear()
        self._sort()

    def _sort(self) -> None:
        keys = sorted(self._plans, key=_open_sizes)
        self._open = tuple([p for p in map(self._plans.__getitem__, keys) if p.pattern is not None])


def _open_sizes(key: Key) -> int:
    return open_sizes(key[0])
