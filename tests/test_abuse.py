"""The checks of `make abuse`, a little of each: they must find nothing, and be able to find something."""

import sys

import pytest

from abuse import guards, hostile, nasty, scenario
from abuse.scenario import SCENARIOS, Found

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="guard pages, limits and /proc are Linux's")


def nowhere(done):
    """Progress that nobody looks at."""


def test_no_kernel_leaves_its_buffers():
    found = guards.run(600, 99, nowhere)
    assert found.cases == 600
    assert not found.faults


def test_a_mistake_in_a_kernels_loop_is_found(tmp_path):
    """One element more than there are: the same cases do find that."""
    found = guards._block(0, 400, 3, cache=str(tmp_path), mutation="one-element-more", faults=1)
    assert found.faults


def test_mutated_inputs_meet_our_errors_only():
    figures = hostile.check(1500, 99, nowhere)
    assert min(f.count for f in figures) > 20
    assert [f for f in figures if f.bad] == []


QUICK = [
    e
    for e in nasty.ENTRIES
    if not e.interrupted and e.name.startswith(("data_", "function", "a_", "constant", "random"))
]


def test_some_of_the_hand_made_corpus():
    """Those that are small; `make abuse` tries all of them."""
    chosen = [e for e in QUICK if e.seconds <= 20][:24]
    wrong = {e.name: r["wrong"] for e, r in nasty.results(chosen, nowhere) if r["wrong"]}
    assert wrong == {}


@pytest.mark.parametrize(
    ("module", "name", "count"),
    [
        ("load", "operator_from_threads", 300),
        ("load", "session_from_threads", 200),
        ("load", "interrupted", 4),
        ("load", "pickles", 1),
        ("load", "forks", 4),
        ("faults", "memory", 1),
        ("faults", "killed", 2),
        ("leaks", "sessions", 200),
        ("leaks", "dispatches", 10_000),
    ],
)
def test_scenarios(module, name, count):
    scenario.importlib.import_module(f"abuse.{module}")
    figure = scenario.in_a_child(SCENARIOS[name], count)
    assert figure.bad == 0, figure


def test_a_scenario_that_crashes_is_bad():
    def crash(count: int) -> Found:
        raise NotImplementedError

    one = scenario.Scenario("abuse.load", "nothing_of_this_name", "it crashes", crash, 1, 1)
    figure = scenario.in_a_child(one, 1)
    assert figure.bad == 1
    assert "KeyError" in figure.note
