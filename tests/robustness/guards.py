"""Does any kernel read or write outside the memory it was given? Random work between guard pages.

    python -m tests.robustness.guards --seed 7                3,000 cases
    python -m tests.robustness.guards --seed 7 --case 1234    one of them again

Every case runs in a child process. A child that a signal ends has found a fault; the next one goes on
behind it. To show that the check is not blind, it is repeated with mistakes put into the library
(guard_mutations.py), each of which must be found. It needs mprotect, which Windows has not.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from anydml.codegen import jit
from anydml.codegen.group import KernelSpec
from anydml.codegen.target import Target
from tests.robustness import guard_draw as draw
from tests.robustness.guard_cases import Case, Wrong, function_case, operator_case
from tests.robustness.guard_graphs import graph_case
from tests.robustness.guard_memory import Memory
from tests.robustness.guard_mutations import MUTATIONS
from tests.robustness.guard_tensors import tensor_case
from tests.robustness.processes import Limits, Tell, Worker
from tests.robustness.scenarios import Figure

# As Any: the children exchange some of what they contain.
kernel: Any = import_module("anydml.codegen.kernel")
bind: Any = import_module("anydml.runtime.bind")
repeat: Any = import_module("anydml.runtime.prepared")

RECIPE = 10
"""Cases that share a recipe."""
BLOCK = 400
"""Cases of one child, if nothing goes wrong. A block has one machine to make code for."""
MUTATED = 4000
"""Cases in which a mutation must be found."""
PATIENCE = 300.0
"""Seconds after which a case hangs."""
FAULTS = 20
"""Faults after which a block is given up."""
KINDS = {"operator": operator_case, "function": function_case, "graph": graph_case, "tensors": tensor_case}


# ---- the child ---------------------------------------------------------------------------------------


def target_of(block: int) -> Target:
    """The machine that a block makes code for: every other time this one, else one of other vectors."""
    native = jit.host()
    others = (
        replace(native, vector_bytes=16, masks=False, ends=False),
        replace(native, vector_bytes=32, scratch=0, ends=False),
        replace(native, vector_bytes=64, ends=True),
    )
    return native if block % 2 == 0 else others[block // 2 % len(others)]


def run_case(seed: int, number: int, memory: Memory) -> tuple[list[str], str]:
    """One case: what it was about, and what went wrong, if anything did."""
    recipe = np.random.default_rng([seed, number // RECIPE, 1])
    own = np.random.default_rng([seed, number, 2])
    kind = draw.choice(recipe, ("operator",) * 9 + ("function",) * 6 + ("graph",) * 3 + ("tensors",) * 2)
    streams = (1 << 14, 1 << 14, 1 << 18, 1 << 25)  # from how many bytes on outputs pass the caches
    kernel.MIN_STREAMED_BYTES = draw.choice(recipe, streams)
    kernel.MIN_SPLIT_BYTES = draw.choice(recipe, (1 << 12, 1 << 15))
    operator = draw.operator_for(seed, number // RECIPE)
    case, wrong = Case(recipe, own, memory, operator), ""
    case.facts |= {kind} if kind == "tensors" else {kind, f"operator {operator.name}"}
    _jobs_seen.clear()
    try:
        KINDS[kind](case)
    except Wrong as error:
        wrong = str(error)
    except Exception as error:  # whatever the library does not expect itself
        wrong = f"{type(error).__name__}: {error}"
    memory.take_back()
    return sorted(case.facts | _jobs_seen), wrong


_jobs_seen: set[str] = set()


def _watch_jobs() -> None:
    """Note in `_jobs_seen` which kinds of jobs there are."""
    make = kernel._words

    def noted(group: KernelSpec, layout: Any, **rest: Any) -> Any:
        words = make(group, layout, **rest)
        if min(layout.addresses[: len(group.operands)]) > 0:  # else only compiled, not run
            kinds = {"rows": group.axes, "streamed": layout.shape.stream, "in chunks": words[0] > 1}
            kinds |= {"in tiles": bool(layout.shape.turned), "in columns": bool(layout.shape.columns)}
            kinds |= {"staged": layout.shape.staged, "in registers": bool(layout.shape.registers)}
            _jobs_seen.update(kind for kind, is_so in kinds.items() if is_so)
        return words

    kernel._words = noted


class _Guarded:
    """NumPy for bind.py and repeat.py, whose intermediate values lie in guarded memory, too."""

    def __init__(self, memory: Memory, *, aligned: bool) -> None:
        self._memory, self._aligned = memory, aligned

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, size: int, dtype: Any) -> Any:
        assert dtype is np.uint8
        if self._aligned:
            return self._memory.scratch(size)
        place = self._memory.take(size, at_end=True)
        return place.window[place.start :]


def _in_a_child(block: int, seed: int, mutation: str) -> Callable[[int, Tell], tuple[list[str], str]]:
    """What a child does with the numbers of cases."""
    target = target_of(block)
    kernel.host = lambda: target
    memory = Memory()
    bind.np, repeat.np = _Guarded(memory, aligned=True), _Guarded(memory, aligned=False)
    if mutation:
        MUTATIONS[mutation]()
    _watch_jobs()
    return lambda number, tell: run_case(seed, number, memory)


# ---- the parent --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A case in which something went wrong."""

    seed: int
    case: int
    what: str

    def __str__(self) -> str:
        return f"python -m tests.robustness.guards --seed {self.seed} --case {self.case}: {self.what}"


_MANY = ("operator", "type")
"""Facts that come with names."""


@dataclass
class Found:
    """What children told."""

    cases: int = 0
    faults: list[Fault] = field(default_factory=list)
    facts: Counter[str] = field(default_factory=Counter)
    """How many cases each thing is true of."""

    def add(self, other: Found) -> None:
        self.cases += other.cases
        self.faults += other.faults
        self.facts += other.facts

    @property
    def note(self) -> str:
        operators, types = (sum(f.startswith(what) for f in self.facts) for what in ("operator ", "type "))
        parts = [f"{n:,} {fact}" for fact, n in sorted(self.facts.items()) if fact.split()[0] not in _MANY]
        return f"{operators} operators, {types} data types; " + ", ".join(parts)


def _blocks(size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, size, BLOCK):
        yield first, min(first + BLOCK, size)


def _block(
    first: int, last: int, seed: int, *, cache: str, mutation: str = "", faults: int = FAULTS
) -> Found:
    """The cases of a block, in as many children as it takes.

    Raises:
        RuntimeError: a child did not come to its first case.
    """
    found = Found()
    limits = Limits(PATIENCE, tasks=BLOCK, environment={"ANYDML_CACHE_DIR": cache})
    make = partial(_in_a_child, first // BLOCK, seed, mutation)
    worker: Worker | None = None
    for number in range(first, last):
        worker = worker or Worker(make, limits)
        ended = worker.ask(number)
        if not ended.phase:
            raise RuntimeError(f"{mutation or 'the child'} cannot begin: {ended.about}")
        found.cases += 1
        if ended.how == "done":
            facts, wrong = ended.value
            found.facts.update(facts)
        else:
            wrong = ended.about
            worker = None
        if wrong:
            found.faults.append(Fault(seed, number, wrong))
            if len(found.faults) >= faults:
                break
    if worker is not None:
        worker.stop()
    return found


def _jobs() -> int:
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)


def run(
    size: int, seed: int, progress: Callable[[float], object], tell: Callable[[Fault], object] = repr
) -> Found:
    """`size` cases, on all cores. `tell` is told each fault at once."""
    found, done = Found(), 0
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(_jobs()) as pool:

        def one(block: tuple[int, int]) -> Found:
            return _block(*block, seed, cache=cache)

        for (first, last), part in zip(_blocks(size), pool.map(one, _blocks(size)), strict=True):
            found.add(part)
            for fault in part.faults:
                tell(fault)
            done += last - first
            progress(done / size)
    return found


def mutations(seed: int, progress: Callable[[float], object]) -> dict[str, Fault | None]:
    """Of each mutation, the first case that went wrong because of it."""
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(_jobs()) as pool:

        def one(name: str) -> Fault | None:
            for first, last in _blocks(MUTATED):
                while first < last:
                    found = _block(first, last, seed, cache=cache, mutation=name, faults=1)
                    if not found.faults:
                        break
                    (fault,) = found.faults
                    if not _block(fault.case, fault.case + 1, seed, cache=cache).faults:
                        return fault
                    first = fault.case + 1  # this one goes wrong anyway
            return None

        result = {}
        for name, fault in zip(MUTATIONS, pool.map(one, MUTATIONS), strict=True):
            result[name] = fault
            progress(len(result) / len(MUTATIONS))
    return result


def check(size: int, seed: int, progress: Callable[[float], object]) -> list[Figure]:
    """Both figures: `size` cases as the library is, and how many mutations are found.

    Args:
        size: the number of cases.
        seed: what they are drawn from.
        progress: is told the fraction that is done.
    """
    start = time.perf_counter()
    found = run(size, seed, lambda part: progress(0.75 * part))
    took = time.perf_counter() - start
    note = f"{found.note}; {took:.0f} s"
    if found.faults:
        note += f"; first: {found.faults[0]}"
    caught = mutations(seed, lambda part: progress(0.75 + 0.25 * part))
    missed = [name for name, fault in caught.items() if fault is None]
    names = "not found: " + ", ".join(missed) if missed else "all found"
    return [
        Figure("operators, functions and graphs between guard pages", found.cases, len(found.faults), note),
        Figure("mistakes put in, that the guard pages must find", len(caught), len(missed), names),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.guards", description=__doc__)
    parser.add_argument("--size", type=int, default=3000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--mutation", default="", help=f"put in a mistake: {', '.join(MUTATIONS)}")
    given = parser.parse_args()
    if given.mutation and given.mutation not in MUTATIONS:
        parser.error(f"expected a mutation, one of {', '.join(MUTATIONS)}, but got {given.mutation}")
    if given.mutation and given.case is None:
        parser.error("expected --case beside --mutation")
    if given.case is not None:
        with tempfile.TemporaryDirectory() as cache:
            case = _block(given.case, given.case + 1, given.seed, cache=cache, mutation=given.mutation)
        print(case.faults[0] if case.faults else "nothing went wrong")
        return bool(case.faults)
    found = run(given.size, given.seed, lambda part: None, lambda fault: print(fault, flush=True))
    print(found.note, f"{len(found.faults)} faults", sep="\n")
    return bool(found.faults)


if __name__ == "__main__":
    sys.exit(main())
