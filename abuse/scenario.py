"""Scenarios: small programs that put load or faults on the library, each in a process of its own.

    @scenario("what is tried, in words", bounded=1000, long=100_000)
    def name(count: int) -> Found: ...

A scenario tries something `count` times and tells how often it went wrong. A process that a signal ends has
gone wrong once more.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from abuse.figures import Figure

PATIENCE = 1800
"""Seconds after which a scenario hangs."""


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

    module: str
    name: str
    what: str
    run: Run
    bounded: int
    long: int


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    what: str, *, bounded: int, long: int
) -> Callable[[Callable[[int], Found]], Callable[[int], Found]]:
    """Make a function a scenario."""

    def kept(function: Callable[[int], Found]) -> Callable[[int], Found]:
        name = getattr(function, "__name__", "scenario")
        SCENARIOS[name] = Scenario(function.__module__, name, what, function, bounded, long)
        return function

    return kept


def check(module: str, long: bool, progress: Callable[[float], object]) -> list[Figure]:
    """The figures of all scenarios of a module."""
    importlib.import_module(module)
    chosen = [s for s in SCENARIOS.values() if s.module == module]
    figures = []
    for k, one in enumerate(chosen):
        figures.append(in_a_child(one, one.long if long else one.bounded))
        progress((k + 1) / len(chosen))
    return figures


def in_a_child(one: Scenario, count: int) -> Figure:
    """Run a scenario in a process of its own, with a kernel cache of its own."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="abuse-") as cache:
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "abuse.scenario",
            one.module,
            one.name,
            str(count),
        ]
        env = {**os.environ, "ANYDML_CACHE_DIR": cache}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)
        except subprocess.TimeoutExpired:
            return Figure(one.what, count, 1, f"hangs: still runs after {PATIENCE} s")
    took = time.perf_counter() - start
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode or not lines:
        how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit {done.returncode}"
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return Figure(one.what, count, 1, f"the process ended: {how}, {last}")
    tried, bad, note = json.loads(lines[-1])
    return Figure(one.what, tried, bad, f"{note}; {took:.0f} s" if note else f"{took:.0f} s")


if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    from abuse import scenario as here  # this file as the scenarios know it, not as __main__

    found = here.SCENARIOS[sys.argv[2]].run(int(sys.argv[3]))
    print(json.dumps([found.count, found.bad, found.note]), flush=True)
