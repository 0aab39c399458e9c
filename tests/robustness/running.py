"""Many seeds in child processes, so that a crash or a hang is found and names its seed."""

from __future__ import annotations

import collections
import json
import multiprocessing
import re
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.robustness.differential import FLAT, Checks, Finding, Outcome, check_case, flat_alone
from tests.robustness.judging import Oracles
from tests.robustness.random_models import Case, random_case
from tests.robustness.values import arrays

PATIENCE = 60.0
"""Seconds without a sign of life after which a process hangs."""
RECYCLE = 500
"""Models after which a process is replaced: what it leaks must not add up."""

EARLY = {"start", "generate", "oracle"}
"""Phases in which nothing of ours runs."""

_SPAWN = multiprocessing.get_context("spawn")


def _serve(channel: Connection, checks: Checks, folder: Path | None) -> None:
    """A child: is sent seeds or cases, tells its phases, and sends outcomes."""
    while True:
        try:
            task = channel.recv()
        except (EOFError, OSError):
            return
        start = time.process_time()
        if isinstance(task, Case):
            case = task
        else:
            channel.send("generate")
            case = random_case(task)
        spent = time.process_time() - start
        outcome = check_case(case, checks, channel.send)
        outcome.times["generate"] = spent
        if outcome.findings and folder is not None:
            keep(case, outcome.findings, folder)
        channel.send(outcome)


def _oracles_alone(seed: int) -> None:
    """A child that runs nothing of ours."""
    oracles = Oracles(random_case(seed))
    for k in range(len(oracles.case.feeds)):
        oracles.second(k)
        oracles.optimised(k)


def _flat_alone(seed: int) -> None:
    """A child in which onnxruntime optimises nothing."""
    flat_alone(random_case(seed))


def _keep_seed(seed: int, folder: Path, findings: list[Finding]) -> None:
    keep(random_case(seed), findings, folder)


def _survives(target: Callable[..., None], *arguments: Any) -> bool:
    process = _SPAWN.Process(target=target, args=arguments, daemon=True)
    process.start()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    return process.exitcode == 0


class Worker:
    """A child process, and what it is at."""

    def __init__(self, checks: Checks, folder: Path | None, patience: float = PATIENCE) -> None:
        self.patience = patience
        self.channel, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, checks, folder), daemon=True)
        self.process.start()
        theirs.close()
        self.seed, self.phase, self.since, self.done = -1, "", time.monotonic(), 0

    def send(self, task: int | Case) -> None:
        self.seed = task.seed if isinstance(task, Case) else task
        self.phase, self.since = "start", time.monotonic()
        self.channel.send(task)

    def receive(self) -> Outcome | None:
        """What it has to say: an outcome, or nothing yet. A dead or silent process is an outcome, too."""
        try:
            message = self.channel.recv() if self.channel.poll() else None
        except (EOFError, OSError):
            return self._ended("crash", f"exit code {self._code()} in phase {self.phase!r}")
        if message is None and time.monotonic() - self.since > self.patience:
            self.stop()
            return self._ended("hang", f"more than {self.patience:.0f} s in phase {self.phase!r}")
        if isinstance(message, str):
            self.phase, self.since = message, time.monotonic()
        elif message is not None:
            self.done += 1
            return message  # type: ignore[no-any-return]
        return None

    def _code(self) -> int | None:
        self.process.join(10)
        return self.process.exitcode

    def _ended(self, kind: str, reason: str) -> Outcome:
        self.done = RECYCLE
        outcome = Outcome(self.seed)
        if self.phase in EARLY or not _survives(_oracles_alone, self.seed):
            outcome.notes.append(f"a {kind} of an oracle: {reason}")
        elif self.phase == FLAT and _survives(_flat_alone, self.seed):
            outcome.notes.append(f"a {kind} of onnxruntime's optimisations: {reason}")
        else:
            outcome.findings.append(Finding(self.seed, kind, reason))
        return outcome

    def stop(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.join()


def outcomes(
    tasks: Iterable[int | Case], processes: int, checks: Checks, folder: Path | None = None
) -> Iterator[Outcome]:
    """The outcome of every task, as they come."""
    waiting = iter(tasks)
    workers: list[Worker] = []
    try:
        for _ in range(processes):
            _next(workers, waiting, checks, folder)
        while workers:
            wait([w.channel for w in workers], timeout=1.0)
            for worker in list(workers):
                outcome = worker.receive()
                if outcome is None:
                    continue
                if folder is not None and any(f.kind in {"crash", "hang"} for f in outcome.findings):
                    _survives(_keep_seed, worker.seed, folder, outcome.findings)
                workers.remove(worker)
                _next(workers, waiting, checks, folder, worker)
                yield outcome
    finally:
        for worker in workers:
            worker.stop()


def _next(
    workers: list[Worker],
    waiting: Iterator[int | Case],
    checks: Checks,
    folder: Path | None,
    old: Worker | None = None,
) -> None:
    task = next(waiting, None)
    if old is not None and (task is None or old.done >= RECYCLE):
        old.stop()
        old = None
    if task is not None:
        worker = old or Worker(checks, folder)
        worker.send(task)
        workers.append(worker)


def keep(case: Case, findings: list[Finding], folder: Path) -> None:
    """The model, its feeds (`.npz`: inputs by feed and number) and a `.json` of their names and what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{case.seed}.onnx").write_bytes(case.model.SerializeToString())
    stored = {}
    names = []
    for k, feeds in enumerate(case.feeds):
        names.append(list(feeds))
        for i, value in enumerate(feeds.values()):
            for j, array in enumerate(arrays(value)):
                key = f"feed{k}_input{i}" + (f"_item{j}" if isinstance(value, list) else "")
                stored[key] = array.astype(str) if array.dtype == object else array
    np.savez(folder / f"{case.seed}.npz", **stored)  # type: ignore[arg-type]
    about = {
        "seed": case.seed,
        "found": [f"{f.kind}: {f.reason}" for f in findings],
        "inputs": names,
        "tolerances": case.tolerances,
        "contested": case.contested,
        "valid": case.valid,
    }
    (folder / f"{case.seed}.json").write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n")


def kept(path: Path) -> Case:
    """A case that `keep` wrote, by its model's path."""
    about = json.loads(path.with_suffix(".json").read_text())
    stored = np.load(path.with_suffix(".npz"))
    feeds: list[dict[str, Any]] = []
    for k, names in enumerate(about["inputs"]):
        feeds.append({})
        for i, name in enumerate(names):
            arrays_of = [stored[key] for key in stored.files if key.startswith(f"feed{k}_input{i}_item")]
            one = arrays_of or stored[f"feed{k}_input{i}"]
            feeds[k][name] = one if isinstance(one, list) or one.dtype.kind != "U" else one.astype(object)
    model = onnx.load(path)
    return Case(about["seed"], model, feeds, about["tolerances"], about["contested"], about["valid"])


class Summary:
    """What was found, causes that look alike together."""

    def __init__(self) -> None:
        self.findings: dict[str, list[Finding]] = collections.defaultdict(list)
        self.notes: collections.Counter[str] = collections.Counter()
        self.times: collections.Counter[str] = collections.Counter()
        self.models = self.runs = self.ran = 0
        self.start = time.monotonic()

    def add(self, outcome: Outcome) -> None:
        self.models += 1
        self.runs += outcome.runs
        self.ran += outcome.ran
        self.notes.update(alike(n) for n in outcome.notes)
        self.times.update(outcome.times)
        for finding in outcome.findings:
            self.findings[f"{finding.kind}: {alike(finding.reason)}"].append(finding)

    def lines(self) -> Iterator[str]:
        seconds = time.monotonic() - self.start
        rate = self.models / max(seconds, 1e-9)
        yield f"{self.models} models in {seconds:.0f} s ({rate:.1f} a second); of {self.runs} feeds {self.ran} run"
        if self.models:
            means = sorted(self.times.items(), key=lambda item: -item[1])
            yield "mean ms of processors: " + ", ".join(f"{k} {v / self.models * 1000:.0f}" for k, v in means)
        for note, count in self.notes.most_common(30):
            yield f"note, {count} times: {note}"
        for found in sorted(self.findings.values(), key=lambda f: (f[0].kind, -len(f))):
            seeds = ", ".join(str(f.seed) for f in found[:6])
            yield f"{len(found)} times (seeds {seeds}): {found[0].kind}: {found[0].reason}"
        yield f"{sum(map(len, self.findings.values()))} findings, {len(self.findings)} of them look different"


def alike(reason: str) -> str:
    """A reason without what is by chance: names, numbers and sizes."""
    reason = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "'_'", reason)
    reason = re.sub(r"\([-\d, ]*\)|\[[-\d, ]*\]|np\.\w+\([^)]*\)|array\(.*", "#", reason)
    return re.sub(r"[-+]?\d[\d.e+-]*|\b(nan|inf)\b", "#", reason)[:160]
