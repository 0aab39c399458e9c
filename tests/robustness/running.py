"""Many seeds in child processes, so that a crash or a hang is found and names its seed."""

from __future__ import annotations

import collections
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.robustness.differential import FLAT, Checks, Finding, Outcome, check_case, flat_alone
from tests.robustness.judging import Oracles
from tests.robustness.processes import Ended, Limits, Tell, all_ended, alone
from tests.robustness.random_models import Case, random_case
from tests.robustness.values import arrays

LIMITS = Limits(seconds=60)
EARLY = {"", "ready", "generate", "oracle"}
"""Phases in which nothing of ours runs."""


def checker(checks: Checks, folder: Path | None) -> Callable[[int | Case, Tell], Outcome]:
    """What a child does with seeds or cases."""

    def checked(task: int | Case, tell: Tell) -> Outcome:
        start = time.process_time()
        tell("generate")
        case = task if isinstance(task, Case) else random_case(task)
        spent = time.process_time() - start
        outcome = check_case(case, checks, tell)
        outcome.times["generate"] = spent
        if outcome.findings and folder is not None:
            keep(case, outcome.findings, folder)
        return outcome

    return checked


def _oracles_alone(seed: int) -> None:
    """Nothing of ours."""
    oracles = Oracles(random_case(seed))
    for k in range(len(oracles.case.feeds)):
        oracles.second(k)
        oracles.optimised(k)


def _flat_alone(seed: int) -> None:
    """onnxruntime optimises nothing."""
    flat_alone(random_case(seed))


def _keep_seed(seed: int, folder: Path, findings: list[Finding]) -> None:
    keep(random_case(seed), findings, folder)


def _survives(function: Callable[..., None], *arguments: Any) -> bool:
    return alone(function, *arguments, limits=LIMITS).how == "done"


def outcome_of(ended: Ended, folder: Path | None = None) -> Outcome:
    """What a child has found, or of what it died."""
    if ended.how == "done":
        return ended.value  # type: ignore[no-any-return]
    seed = ended.task.seed if isinstance(ended.task, Case) else ended.task
    kind = "crash" if ended.how == "error" else ended.how
    reason = f"{ended.error} in phase {ended.phase!r}"
    outcome = Outcome(seed)
    if ended.phase in EARLY or not _survives(_oracles_alone, seed):
        outcome.notes.append(f"a {kind} of an oracle: {reason}")
    elif ended.phase == FLAT and _survives(_flat_alone, seed):
        outcome.notes.append(f"a {kind} of onnxruntime's optimisations: {reason}")
    else:
        outcome.findings.append(Finding(seed, kind, reason))
        if folder is not None:
            _survives(_keep_seed, seed, folder, outcome.findings)
    return outcome


def outcomes(
    tasks: Iterable[int | Case], processes: int | None, checks: Checks, folder: Path | None = None
) -> Iterator[Outcome]:
    """The outcome of every task, as they come."""
    for ended in all_ended(partial(checker, checks, folder), tasks, processes, LIMITS):
        yield outcome_of(ended, folder)


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
