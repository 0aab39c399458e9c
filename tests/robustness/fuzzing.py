"""Mutated inputs against the whole library: only its own errors may come out, soon, and without a crash.

    python -m tests.robustness.fuzzing --seed 1 --size 20000 --keep found     many cases, the finds made smaller
    python -m tests.robustness.fuzzing --case found/1-desc-0.pickle           one of them again
    python -m tests.robustness.fuzzing --atheris 600 --only model             guided by coverage, with atheris

hypothesis draws the cases in one process, a child of which tries them. A child that dies, a case of more than
10 seconds or 2 GiB, and an exception that is not of anydml's family are findings; what is alike (exception
and source line) is told once. Those of a library below anydml are told apart.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import onnx
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Flaky

import anydml
from anydml.onnx.providers import bound_memory
from anydml.onnx.providers import onnxruntime as library
from tests.robustness.fuzz_cases import KINDS, Case, cases, tried
from tests.robustness.fuzz_seeds import corpus
from tests.robustness.processes import Ended, Limits, Tell, Worker, all_ended, alone
from tests.robustness.scenarios import Figure

BATCH = 500
"""Cases of one process, of one kind."""
WIDE = 5000
"""Cases from which the wide corpus is worth the time to make it."""
SHARES = {"model": 42, "flatten": 12, "inspect": 6, "json": 20, "desc": 20}
"""Of a hundred cases."""
MOST_MEMORY = 2 << 30
"""Bytes that a case may take. Libraries reserve more than they touch, so address space is limited to more."""
LIMITS = Limits(10, 3 << 30, MOST_MEMORY // 2, tasks=1000, environment={"MALLOC_ARENA_MAX": "2"})
DRAWING = Limits(3600, environment={"MALLOC_ARENA_MAX": "2"})
ANY = hypothesis.settings(
    max_examples=BATCH, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


# ---- the child that tries cases ----------------------------------------------------------------------


def _in_a_child(folder: Path) -> Callable[[Case, Tell], bool]:
    os.chdir(tempfile.mkdtemp(dir=folder))
    warnings.simplefilter("ignore")
    told: list[Tell] = []
    _tell_of_libraries(told)

    def accepted(this: Case, tell: Tell) -> bool:
        told[:] = [tell]
        try:
            tried(this)
        except anydml.AnyDMLError:
            return False
        except OSError:
            if this.kind != "json":  # which says where it reads and writes
                raise
            return False
        return True

    return accepted


def _tell_of_libraries(told: list[Tell]) -> None:
    """Tell what libraries are asked to do, so that it is known when one of them ends the process."""
    compile_, run, bound = library.OnnxRuntime.compile, library._Session.__call__, bound_memory.Fixed.__call__
    infer = onnx.shape_inference.infer_node_outputs

    def compiled(self: Any, region: Any, threads: int, alone: bool = True) -> Any:
        operators = {n.op_type for n in onnx.ModelProto.FromString(region.model).graph.node}
        about = f"a region of {', '.join(sorted(operators)) or 'no nodes'}"[:300]
        told[0](about)
        call: Any = compile_(self, region, threads, alone)
        call.about = about
        return call

    def ran(self: Any, values: Any) -> Any:
        told[0](self.about)
        return run(self, values)

    def bound_ran(self: Any, values: Any) -> Any:
        told[0](self._call.about)
        return bound(self, values)

    def inferred(schema: Any, node: Any, *args: Any, **options: Any) -> Any:
        told[0](f"shape inference of {schema.name}")
        return infer(schema, node, *args, **options)

    library.OnnxRuntime.compile = compiled  # type: ignore[method-assign]
    library._Session.__call__ = ran  # type: ignore[method-assign]
    bound_memory.Fixed.__call__ = bound_ran  # type: ignore[method-assign]
    onnx.shape_inference.infer_node_outputs = inferred


# ---- the process that draws them ---------------------------------------------------------------------


@dataclass
class Finding:
    """What went wrong, and of what."""

    key: str
    text: str
    case: Case
    count: int = 1

    def keep(self, path: Path) -> None:
        """The case for `--case`, its content to look at, and what came of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        ending = {"json": ".json", "desc": ".desc.txt"}.get(self.case.kind, ".onnx")
        content = self.case.content
        shown = content if isinstance(content, bytes) else repr(content).encode(errors="replace")
        path.with_name(f"{path.name}.pickle").write_bytes(pickle.dumps(self.case))
        path.with_name(path.name + ending).write_bytes(shown)
        path.with_name(f"{path.name}.trace.txt").write_text(f"{self.key}\n{self.text}", errors="replace")


@dataclass
class Tally:
    """What came of the cases of one kind."""

    kind: str
    count: int = 0
    accepted: int = 0
    bad: int = 0
    library: int = 0
    slowest: float = 0.0
    memory: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        for name in ("count", "accepted", "bad", "library"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.memory = max(self.slowest, other.slowest), max(self.memory, other.memory)
        for key, finding in other.findings.items():
            known = self.findings.setdefault(key, finding)
            known.count += finding.count if known is not finding else 0

    def ended(self, ended: Ended) -> Finding | None:
        """Count a case; tells whether it went wrong."""
        self.count += 1
        self.accepted += ended.how == "done" and ended.value
        self.slowest, self.memory = max(self.slowest, ended.seconds), max(self.memory, ended.memory)
        if ended.how == "done" and ended.memory <= MOST_MEMORY:
            return None
        self.bad += 1
        self.library += bool(ended.library)
        key = f"memory of {self.kind}"
        if ended.how == "error":
            key = f"{ended.error} at {ended.place}"
        elif ended.how != "done":
            key = f"{ended.how} {ended.error} at {ended.place}"
            key += f", in a provider library ({ended.library}), {ended.phase}" if ended.library else ""
        found = Finding(key, f"{ended.text or ended.memory}\n{ended.trace}", ended.task)
        known = self.findings.setdefault(key, found)
        known.count += known is not found
        return known


class _Failed(Exception):
    """What hypothesis makes smaller."""


def _drawing(folder: Path, smaller: bool) -> Callable[[tuple[str, int, int], Tell], Tally]:
    """What a process does that draws batches: so many cases of a kind, from a seed."""
    seeds = corpus(False, folder / "corpus")
    make = partial(_in_a_child, folder)

    def drawn(batch: tuple[str, int, int], tell: Tell) -> Tally:
        kind, seed, count = batch
        tally = Tally(kind)
        workers: list[Worker] = []
        shrinking: list[str] = []

        def once(this: Case) -> None:
            if not workers:
                workers.append(Worker(make, LIMITS))
            ended = workers[0].ask(this)
            if workers[0].worn:
                workers.pop().stop()
            before = set(tally.findings)
            found = tally.ended(ended)
            if found is not None and smaller and ended.how != "hang":
                if not shrinking and found.key not in before:
                    shrinking.append(found.key)
                if [found.key] == shrinking:
                    found.case = this
                    raise _Failed

        turn = 0
        try:
            while tally.count < count:
                shrinking.clear()
                phases = (Phase.generate, Phase.shrink) if smaller else (Phase.generate,)
                settings = hypothesis.settings(ANY, max_examples=count - tally.count, phases=phases)
                test = hypothesis.given(cases(kind, seeds))(once)
                with contextlib.suppress(_Failed, Flaky):
                    hypothesis.seed(seed + turn)(settings(test))()
                turn += 1
        finally:
            for worker in workers:
                worker.stop()
        return tally

    return drawn


def hunted(
    seed: int, size: int, kinds: list[str], wide: bool, smaller: bool, progress: Callable[[float], object]
) -> dict[str, Tally]:
    """Try these many cases."""
    tallies = {k: Tally(k) for k in kinds}
    whole = sum(SHARES[k] for k in kinds)
    batches = [
        (kind, (seed << 32) + 1000 * first, min(BATCH, count - first))
        for kind in kinds
        for count in [size * SHARES[kind] // whole]
        for first in range(0, count, BATCH)
    ]
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as name:
        folder = Path(name)
        corpus(wide, folder / "corpus")
        with contextlib.suppress(KeyboardInterrupt):  # what was found so far is told
            for ended in all_ended(partial(_drawing, folder, smaller), batches, limits=DRAWING):
                if ended.how != "done":
                    raise RuntimeError(f"the fuzzer fails itself: {ended.about}\n{ended.trace}")
                tallies[ended.value.kind].add(ended.value)
                progress(sum(t.count for t in tallies.values()) / size)
    return tallies


def check(size: int, seed: int, progress: Callable[[float], object]) -> list[Figure]:
    """Try `size` mutated inputs."""
    start = time.monotonic()
    tallies = hunted(seed, size, list(KINDS), size >= WIDE, False, progress)
    return figures(tallies, time.monotonic() - start)


def figures(tallies: dict[str, Tally], seconds: float) -> list[Figure]:
    found = []
    for name, tally in tallies.items():
        share = tally.accepted / max(tally.count, 1)
        note = f"{share:.0%} were accepted, peak {tally.memory >> 20} MB, slowest {tally.slowest:.1f} s"
        if tally.library:
            note += f"; {tally.library} of the bad ones in a library below"
        found.append(Figure(KINDS[name], tally.count, tally.bad, note))
    total = sum(t.count for t in tallies.values())
    alike = Counter({name: len(t.findings) for name, t in tallies.items() if t.findings})
    different = ", ".join(f"{n} {k}" for k, n in sorted(alike.items())) or "none"
    note = f"{seconds:.0f} s, {total / max(seconds, 0.001):.0f} a second; different findings: {different}"
    return [*found, Figure("all mutated inputs", total, sum(t.bad for t in tallies.values()), note)]


# ---- by hand -----------------------------------------------------------------------------------------


def _with_atheris(kind: str, seconds: int, folder: Path) -> None:
    """In a child, which atheris ends: what hypothesis draws is guided by the coverage of anydml."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    atheris.instrument_all()
    accepted = _in_a_child(folder)

    def once(this: Case) -> None:
        accepted(this, lambda phase: None)

    test: Any = ANY(hypothesis.given(cases(kind, corpus(False, folder / "corpus")))(once))
    options = [f"-max_total_time={seconds}", f"-timeout={LIMITS.seconds:.0f}", "-rss_limit_mb=3072"]
    atheris.Setup(["atheris", *options], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


def _guided(kinds: list[str], seconds: int) -> int:
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris (it has wheels for Linux only)")
        return 1
    bad = 0
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
            corpus(True, Path(folder) / "corpus")
            limits = Limits(seconds + 600, environment={"MALLOC_ARENA_MAX": "2"})
            ended = alone(_with_atheris, kind, seconds, Path(folder), limits=limits)
        right = ended.how == "crash" and ended.error == "exit code 0"  # it does not return
        print(f"{kind}: {'nothing found' if right else ended.about}\n{ended.text}")
        bad += not right
    return int(bad > 0)


def _again(path: Path) -> int:
    """A kept case."""
    this: Case = pickle.loads(path.read_bytes())
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        worker = Worker(partial(_in_a_child, Path(folder)), LIMITS)
        ended = worker.ask(this)
        worker.stop()
    found = Tally(this.kind).ended(ended)
    print(f"{found.key}\n{found.text}" if found else "nothing went wrong")
    return int(found is not None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness.fuzzing", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--narrow", action="store_true", help="without the models of the onnx package")
    parser.add_argument("--keep", type=Path, help="folder for what went wrong")
    parser.add_argument("--case", type=Path, help="a case that was kept, again")
    parser.add_argument("--atheris", type=int, metavar="SECONDS", help="of each kind, guided by coverage")
    asked = parser.parse_args()
    if asked.case is not None:
        return _again(asked.case)
    if asked.atheris is not None:
        return _guided(asked.only, asked.atheris)
    start = time.monotonic()
    tallies = hunted(asked.seed, asked.size, asked.only, not asked.narrow, True, lambda done: None)
    bad = 0
    for tally in tallies.values():
        for k, found in enumerate(sorted(tally.findings.values(), key=lambda f: -f.count)):
            print(f"{found.count:6} x {found.key} ({tally.kind} of {found.case.origin})")
            print("    " + found.text.replace("\n", "\n    ")[-1500:])
            if asked.keep is not None:
                found.keep(asked.keep / f"{asked.seed}-{tally.kind}-{k}")
        bad += tally.bad
    for figure in figures(tallies, time.monotonic() - start):
        print(f"{figure.what}: {figure.count}, {figure.bad} bad; {figure.note}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
