"""A plan of a program, and what may become of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anydml.dataclass import dataclass
from anydml.onnx.execute.native import NativeStep
from anydml.onnx.execute.plan_keys import Key
from anydml.onnx.execute.steps import Plan


@dataclass(eq=False)
class Planned:
    plan: Plan
    ifs: int = 0
    """How many are left in it, branches included."""
    folded: tuple[str, ...] = ()
    """Those that are not in it any more, and why."""
    kernels: Callable[[], Plan | None] | None = None
    """Makes the plan with kernels, if they gain something, once it ran before: the first run of all does not
    wait for them."""
    program: Callable[[], Plan | None] | None = None
    """Makes it as a program, if that is to be had."""
    waits: int = 0
    """How many runs more it is no program."""
    larger: Callable[[Sequence[Any]], Plan] | None = None
    """Makes it with room for inputs like these, if it is a program for sizes that are not fixed."""
    beyond: tuple[NativeStep, Plan] | None = None
    """The program, and the plan for what is longer than programs are for."""
    pattern: Key | None = None
    """What quick keys are like that it is for, if it is for more than one."""
    used: int = 0
    """When it ran last, counted in runs."""
    runs: int = 0
    """How often it ran, unless by its program's entry."""

    @property
    def is_due(self) -> bool:
        """Whether a better plan is to be made before the next run."""
        return self.kernels is not None or (self.program is not None and not self.waits)

    def stays(self) -> bool:
        """Whether it is the plan for one run more, which counts."""
        if self.is_due:
            return False
        self.runs += 1
        self.waits -= self.waits > 0
        return not self.is_due

    def settle(self) -> bool:
        """Become the better plan that is due; whether it is another one now."""
        before = self.plan
        if self.program is not None and not self.waits:
            found, self.program = self.program(), None
            if found is not None:
                self.plan, self.kernels = found, None
        if self.kernels is not None:
            found, self.kernels = self.kernels(), None
            self.plan = found or self.plan
        self.waits -= self.waits > 0
        return self.plan is not before

    @property
    def is_open(self) -> bool:
        """Whether it is for more than one combination of sizes, by others than a program."""
        return self.pattern is not None and not self.is_program

    @property
    def is_program(self) -> bool:
        return self._program_step is not None

    @property
    def _program_step(self) -> NativeStep | None:
        step = next(iter(self.plan.steps), None)
        return step if isinstance(step, NativeStep) else None

    def has_room(self, values: Sequence[Any]) -> bool:
        """Whether it is not a program that these are too long for."""
        step = self._program_step
        return self.larger is None or step is None or step.has_room(values)

    def make_room(self, values: Sequence[Any]) -> bool:
        """Make a program with more room, if these are longer than it has; whether it is another one now."""
        step = self._program_step
        if self.larger is None or step is None or step.has_room(values):
            return False
        found = self.larger(values)
        if not isinstance(next(iter(found.steps), None), NativeStep):
            self.larger, self.beyond = None, (step, found)  # this program stays for what it has room for
            return False
        self.plan = found
        return True

    def of(self, values: Sequence[Any]) -> Plan:
        """The plan for these."""
        if self.beyond is None:
            return self.plan
        step, other = self.beyond
        return self.plan if step.has_room(values) else other
