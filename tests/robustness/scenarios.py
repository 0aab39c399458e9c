"""Scenarios: small programs that put load or faults on the library, each in a process of its own.

    @scenario("what is tried, in words", bounded=1000, long=100_000)
    def name(count: int) -> Found: ...

A scenario tries something `count` times and tells how often it went wrong; if it ends its process, that is
wrong, too.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from tests.robustness.processes import Limits, alone

PATIENCE = 1800
"""Seconds after which a scenario hangs."""


@dataclass(frozen=True)
class Figure:
    """A line of the table: what was tried, how often, and how often it went wrong."""

    what: str
    count: int
    bad: int
    note: str


@dataclass(frozen=True)
class Found:
    """How often something was tried, how often it went wrong, and what there is to say."""

    count: int
    bad: int
    note: str = ""


Run = Callable[[int], Found]


@dataclass(frozen=True)
class Scenario:
    """A function, and how often it is to try: in the bounded version, and in the long one."""

    what: str
    run: Run
    bounded: int
    long: int

    def figure(self, count: int) -> Figure:
        """Of a process of its own, with a kernel cache of its own."""
        with tempfile.TemporaryDirectory(prefix="scenario-") as cache:
            ended = alone(self.run, count, limits=Limits(PATIENCE, environment={"ANYDML_CACHE_DIR": cache}))
        if ended.how != "done":
            return Figure(self.what, count, 1, ended.about)
        found: Found = ended.value
        took = f"{ended.seconds:.0f} s"
        return Figure(self.what, found.count, found.bad, f"{found.note}; {took}" if found.note else took)


SCENARIOS: dict[str, Scenario] = {}


def scenario(what: str, *, bounded: int, long: int) -> Callable[[Run], Run]:
    """Make a function a scenario."""

    def kept(function: Run) -> Run:
        SCENARIOS[f"{function.__module__}.{function.__qualname__}"] = Scenario(what, function, bounded, long)
        return function

    return kept


def check(module: str, long: bool, progress: Callable[[float], object]) -> list[Figure]:
    """The figures of all scenarios of a module."""
    importlib.import_module(module)
    chosen = [s for name, s in SCENARIOS.items() if name.startswith(f"{module}.")]
    figures = []
    for k, one in enumerate(chosen):
        figures.append(one.figure(one.long if long else one.bounded))
        progress((k + 1) / len(chosen))
    return figures
