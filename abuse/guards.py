"""Does any kernel read or write outside the memory it was given? Random work between guard pages.

    python -m abuse.guards                         3,000 cases, then the mutations
    python -m abuse.guards --seed 7 --case 1234    one case again

Every case runs in a child process. A child that a signal ends has found a fault; the next one goes on
behind it. To show that the check is not blind, it is repeated with mistakes put into the library
(guard_mutations.py), each of which must be found. It needs mprotect, which Windows has not.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from abuse import guard_draw as draw
from abuse.figures import Figure
from abuse.guard_cases import Case, Wrong, function_case, operator_case
from abuse.guard_graphs import graph_case
from abuse.guard_memory import Memory
from abuse.guard_mutations import MUTATIONS
from anydml.codegen import jit
from anydml.codegen.group import KernelSpec
from anydml.codegen.jit import Target

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
"""Seconds after which a child hangs."""
FAULTS = 20
"""Faults after which a block is given up."""
KINDS = {"operator": operator_case, "function": function_case, "graph": graph_case}


# ---- the child ---------------------------------------------------------------------------------------


def target_of(block: int) -> Target:
    """The machine that a block makes code for: every other time this one, else one of other vectors."""
    native = jit.host()
    others = (
        Target(16, native.converts_half, native.streams, masks=False, scratch=native.scratch),
        Target(32, native.converts_half, native.streams, masks=native.masks, scratch=0),
        Target(64, native.converts_half, native.streams, masks=native.masks, scratch=native.scratch),
    )
    return native if block % 2 == 0 else others[block // 2 % len(others)]


def run_case(seed: int, number: int, memory: Memory) -> tuple[list[str], str]:
    """One case: what it was about, and what went wrong, if anything did."""
    recipe = np.random.default_rng([seed, number // RECIPE, 1])
    own = np.random.default_rng([seed, number, 2])
    kind = draw.choice(recipe, ("operator",) * 10 + ("function",) * 7 + ("graph",) * 3)
    streams = (1 << 14, 1 << 14, 1 << 18, 1 << 25)  # from how many bytes on outputs pass the caches
    kernel.MIN_STREAMED_BYTES = draw.choice(recipe, streams)
    kernel.MIN_SPLIT_ELEMENTS = draw.choice(recipe, (1 << 12, 1 << 15))
    operator = draw.operator_for(seed, number // RECIPE)
    case, wrong = Case(recipe, own, memory, operator), ""
    case.facts |= {kind, f"operator {operator.name}"}
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


def work(first: int, last: int, seed: int, mutation: str) -> None:
    """Run cases, and tell about each on a line, before and after: the last line is what a crash leaves."""
    faulthandler.enable()
    target = target_of(first // BLOCK)
    kernel.host = lambda: target
    memory = Memory()
    bind.np, repeat.np = _Guarded(memory, aligned=True), _Guarded(memory, aligned=False)
    if mutation:
        MUTATIONS[mutation]()
    _watch_jobs()
    for number in range(first, last):
        print(json.dumps({"case": number}), flush=True)
        facts, wrong = run_case(seed, number, memory)
        print(json.dumps({"facts": facts, "wrong": wrong}), flush=True)
    print(json.dumps({"end": True}), flush=True)


# ---- the parent --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """A case in which something went wrong."""

    seed: int
    case: int
    what: str

    def __str__(self) -> str:
        return f"python -m abuse.guards --seed {self.seed} --case {self.case}: {self.what}"


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
    while first < last and len(found.faults) < faults:
        command = [sys.executable, "-m", "abuse.guards", "--seed", str(seed), "--mutation", mutation]
        command += ["--range", str(first), str(last)]
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(
                command,
                env=os.environ | {"ANYDML_CACHE_DIR": cache},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            watch = threading.Timer(PATIENCE, child.kill)
            watch.start()
            at, ended = _listen(child, found, seed, faults)
            watch.cancel()
            if ended:
                break
            errors.seek(0)
            if at is None:
                raise RuntimeError(f"{mutation or 'the child'} cannot begin: {errors.read()}")
            found.faults.append(Fault(seed, at, _how_it_ended(child.returncode, errors.read())))
            first = at + 1
    return found


def _listen(child: subprocess.Popen[str], found: Found, seed: int, faults: int) -> tuple[int | None, bool]:
    """Take down what a child says. The case it was at, and whether no more are to come."""
    at: int | None = None
    ended = False
    assert child.stdout is not None
    for line in child.stdout:
        told = json.loads(line)
        if "case" in told:
            at = told["case"]
            found.cases += 1
        elif "end" in told:
            ended = True
        else:
            found.facts.update(told["facts"])
            if told["wrong"]:
                assert at is not None
                found.faults.append(Fault(seed, at, told["wrong"]))
                if len(found.faults) >= faults:
                    child.kill()
                    ended = True
    child.wait()
    child.stdout.close()
    return at, ended


def _how_it_ended(code: int, errors: str) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    current = [k for k, line in enumerate(lines) if line.startswith("Current thread")]
    frames = lines[current[0] + 1 :] if current else lines[-1:]
    last = frames[0] if frames and not frames[0].startswith(("<", "Thread")) else ""
    name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    if code == -signal.SIGKILL:
        return f"{name}: out of memory, or not ready after {PATIENCE:.0f} s"
    return f"{name} ({last})" if last else name


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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m abuse.guards", description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=3000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--mutation", default="", help=f"put in a mistake: {', '.join(MUTATIONS)}")
    parser.add_argument("--range", type=int, nargs=2, help=argparse.SUPPRESS)  # what a child is told
    parser.add_argument("--no-mutations", action="store_true", help="only the library as it is")
    given = parser.parse_args(arguments)
    if given.range:
        first, last = given.range
        work(first, last, given.seed, given.mutation)
        return 0
    start = time.perf_counter()
    if given.case is not None:
        with tempfile.TemporaryDirectory() as cache:
            case = _block(given.case, given.case + 1, given.seed, cache=cache, mutation=given.mutation)
        print(case.faults[0] if case.faults else "nothing went wrong")
        return bool(case.faults)
    found = run(
        given.size,
        given.seed,
        lambda part: print(f"\r{part:.0%}", end="", flush=True),
        lambda fault: print(f"\r{fault}", flush=True),
    )
    took = time.perf_counter() - start
    print(f"\r{found.cases:,} cases in {took:.0f} s ({found.cases / took:.0f} a second)")
    print(found.note, f"{len(found.faults)} faults", sep="\n")
    missed = []
    if not given.no_mutations:
        for name, fault in mutations(given.seed, lambda part: None).items():
            print(
                f"{name}: {fault.what if fault else 'NOT FOUND'}" + (f" (case {fault.case})" if fault else "")
            )
            missed += [] if fault else [name]
    return bool(found.faults or missed)


if __name__ == "__main__":
    sys.exit(main())
