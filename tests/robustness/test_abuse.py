"""The checks of `make abuse`, a little of each: they must find nothing, and be able to find something."""

import importlib
import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.robustness import fuzzing, guards
from tests.robustness.fuzz_cases import Case
from tests.robustness.processes import Ended, Function, Limits, Worker, alone
from tests.robustness.scenarios import SCENARIOS, Found, Scenario

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guard pages, limits and /proc are Linux's")


def nowhere(done: float) -> None:
    """Progress that nobody looks at."""


def test_no_kernel_leaves_its_buffers() -> None:
    found = guards.run(600, 99, nowhere)
    assert found.cases == 600
    assert not found.faults


MASKED = 5 * guards.BLOCK
"""The first case for a machine that has masks for elements of all sizes, whichever this one is."""


@pytest.mark.parametrize(
    ("mistake", "first"),
    [("one-element-more", 0), ("vectors-to-the-end", 0), ("ends-are-whole-vectors", MASKED)],
)
def test_a_mistake_in_a_kernels_loop_is_found(tmp_path: Path, mistake: str, first: int) -> None:
    """One element more than there are, or a few: the same cases do find that."""
    assert first != MASKED or guards.target_of(first // guards.BLOCK).ends
    cases = first, first + guards.BLOCK
    assert guards._block(*cases, 3, cache=str(tmp_path), mutation=mistake, faults=1).faults


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(99, 103))
def test_mutated_inputs_meet_our_errors_only(seed: int) -> None:
    figures = fuzzing.check(250, seed, nowhere)
    assert min(f.count for f in figures) > 10
    assert [f for f in figures if f.bad] == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("load.operator_from_threads", 300),
        ("load.session_from_threads", 200),
        ("load.interrupted", 4),
        ("load.pickles", 1),
        ("load.forks", 4),
        ("faults.memory", 1),
        ("faults.killed", 2),
        ("leaks.sessions", 200),
        ("leaks.dispatches", 10_000),
    ],
)
def test_scenarios(name: str, count: int) -> None:
    module = f"tests.robustness.{name.partition('.')[0]}"
    importlib.import_module(module)
    figure = SCENARIOS[f"tests.robustness.{name}"].figure(count)
    assert figure.bad == 0, figure


def crash(count: int) -> Found:
    os.abort()


def test_a_scenario_that_crashes_is_bad() -> None:
    figure = Scenario("it crashes", crash, 1, 1).figure(1)
    assert figure.bad == 1
    assert "SIGABRT" in figure.note


# ---- the harness -------------------------------------------------------------------------------------


def refuse() -> None:
    raise LookupError("not here")


def allocate(size: int) -> int:
    return len(b"x" * size)


@pytest.mark.parametrize(
    ("function", "arguments", "how", "error"),
    [
        (allocate, (7,), "done", ""),
        (refuse, (), "error", "LookupError"),
        (allocate, (3 << 30,), "error", "MemoryError"),
        (os.abort, (), "crash", "SIGABRT"),
        (os._exit, (3,), "crash", "exit code 3"),
        (time.sleep, (60,), "hang", "after 2 s"),
    ],
)
def test_how_a_task_ended_is_known(
    function: object, arguments: tuple[object, ...], how: str, error: str
) -> None:
    ended = alone(function, *arguments, limits=Limits(2, space=1 << 30))  # type: ignore[arg-type]
    assert (ended.how, ended.error) == (how, error)


def test_a_child_is_replaced_when_it_is_worn() -> None:
    worker = Worker(partial(_sizes, 0), Limits(memory=450 << 20))
    assert worker.ask(1).memory < 450 << 20
    assert not worker.worn
    assert worker.ask(600 << 20).memory > 600 << 20
    assert worker.worn
    worker.stop()


def _sizes(least: int) -> Function:
    return lambda task, tell: allocate(task + least)


def test_what_the_fuzzer_counts() -> None:
    case = Case("desc", "here", {}, 0)
    tally = fuzzing.Tally("desc")
    for how, memory in (("done", 1), ("error", 1), ("error", 1), ("hang", 1), ("done", 3 << 30)):
        tally.ended(Ended(case, how, value=True, error="E" * (how == "error"), memory=memory))
    assert (tally.count, tally.accepted, tally.bad) == (5, 2, 4)
    assert {k: f.count for k, f in tally.findings.items()} == {
        "E at ": 2,
        "hang  at ": 1,
        "memory of desc": 1,
    }
