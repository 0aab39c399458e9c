"""Mutated inputs against the whole library: only its own errors may come out, soon, and without a crash.

    python -m abuse.hostile --seed 1 --size 20000 --keep /tmp/found     many cases
    python -m abuse.hostile --seed 1 --case 4711                        one of them again

Cases run in batches in children (see worker.py), as many at once as there are cores. A child that dies, a
case of more than 10 seconds or 2 GiB, and an exception that is not of anydml's family are findings; what is
alike (exception and source line) is told once. Those of a library below anydml are told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anydml
from abuse.cases import case
from abuse.figures import Figure
from abuse.seeds import Corpus, corpus
from abuse.worker import SECONDS, kept, read_note

MAX_BATCH_ROWS = 1000
"""Cases of one child."""
GRACE = 20
"""Seconds beyond which a child that says nothing is ended from outside."""
WIDE = 5000
"""Cases from which the wide corpus is worth the time to make it."""
_HOME = str(Path(anydml.__file__).parent)
_KINDS = {
    "model": "mutated ONNX models, loaded and run",
    "flatten": "mutated ONNX models, flattened",
    "inspect": "mutated ONNX models, inspected",
    "json": "mutated DxDispatch models",
    "desc": "mutated operator descriptions",
}


@dataclass
class Kind:
    """What came of the cases of one kind."""

    count: int = 0
    accepted: int = 0
    bad: int = 0
    library: int = 0
    slowest: float = 0.0
    memory: int = 0


@dataclass
class Finding:
    """What went wrong, and where first."""

    key: str
    text: str
    case: int
    kind: str
    origin: str
    count: int = 1


@dataclass
class Hunt:
    """All cases of one seed."""

    seed: int
    folder: Path
    seeds: Corpus
    keep: Path | None
    told: Callable[[Finding], object]
    kinds: dict[str, Kind] = field(default_factory=lambda: {k: Kind() for k in _KINDS})
    findings: dict[str, Finding] = field(default_factory=dict)

    def run(self, first: int, last: int, progress: Callable[[float], object]) -> None:
        """Try the cases of these numbers."""
        waiting = [(k, min(k + MAX_BATCH_ROWS, last)) for k in range(first, last, MAX_BATCH_ROWS)][::-1]
        running: list[_Child] = []
        chooser = selectors.DefaultSelector()
        done = 0
        while waiting or running:
            while waiting and len(running) < (os.cpu_count() or 1):
                child = _Child(self, *waiting.pop())
                running.append(child)
                chooser.register(child.process.stdout, selectors.EVENT_READ, child)  # type: ignore[arg-type]
            for key, _ in chooser.select(1):
                key.data.read()
            for child in running[:]:
                for line in child.lines():
                    self._count(line)
                    done += 1
                if child.ended or time.monotonic() - child.heard > SECONDS + GRACE:
                    chooser.unregister(child.process.stdout)  # type: ignore[arg-type]
                    running.remove(child)
                    rest = child.end()
                    if rest is not None:
                        done += child.died
                        waiting.append(rest)
            progress(done / max(1, last - first))

    def _count(self, line: dict[str, Any]) -> None:
        kind = self.kinds[line["kind"]]
        kind.count += 1
        kind.accepted += line["outcome"] == "accepted"
        kind.slowest = max(kind.slowest, line["seconds"])
        kind.memory = max(kind.memory, line["memory"])
        if line["outcome"] == "wrong":
            kind.bad += 1
            self._found(Finding(line["key"], line["text"], line["case"], line["kind"], line["origin"]))

    def died(self, number: int, how: str, place: str, inside: str, note: str, log: str) -> None:
        """A child died of a case."""
        this = case(self.seed, number, self.seeds)
        kind = self.kinds[this.kind]
        kind.count += 1
        kind.bad += 1
        where = f"{how} at {place}"
        if inside:
            kind.library += 1
            where += f", in a provider library ({inside}), {note}"
        self._found(Finding(where, log, number, this.kind, this.origin))
        if self.keep is not None:
            kept(this, self.keep / f"{self.seed}-{number}", f"{where}\n{log}")

    def _found(self, finding: Finding) -> None:
        known = self.findings.get(finding.key)
        if known is None:
            self.findings[finding.key] = finding
            self.told(finding)
        else:
            known.count += 1


class _Child:
    """A process with a range of cases."""

    def __init__(self, hunt: Hunt, first: int, last: int) -> None:
        self.hunt, self.next, self.last = hunt, first, last
        self.folder = Path(tempfile.mkdtemp(dir=hunt.folder))
        os.link(hunt.folder / "corpus", self.folder / "corpus")
        command = [sys.executable, "-m", "abuse.worker", str(hunt.seed), str(first), str(last)]
        command += [str(self.folder), *(["--keep", str(hunt.keep)] if hunt.keep else [])]
        env = os.environ | {"ANYDML_CACHE_DIR": str(hunt.folder / "cache"), "MALLOC_ARENA_MAX": "2"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=env)
        self.heard = time.monotonic()
        self.ended, self.died = False, False
        self._text = b""

    def read(self) -> None:
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        self.ended = not data
        self._text += data
        self.heard = time.monotonic()

    def lines(self) -> list[dict[str, Any]]:
        *whole, self._text = self._text.split(b"\n")
        found = [json.loads(line) for line in whole]
        if found:
            self.next = found[-1]["case"] + 1
        return found

    def end(self) -> tuple[int, int] | None:
        """What is left to do."""
        if not self.ended:
            self.process.kill()
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if code or not self.ended:
            self.died = True
            self._tell(code)
            self.next += 1
        shutil.rmtree(self.folder, ignore_errors=True)
        return (self.next, self.last) if self.next < self.last else None

    def _tell(self, code: int) -> None:
        trace = (
            (self.folder / "trace").read_text(errors="replace") if (self.folder / "trace").exists() else ""
        )
        said = (
            (self.folder / "said").read_text(errors="replace")[-1000:]
            if (self.folder / "said").exists()
            else ""
        )
        how = signal.Signals(-code).name if code < 0 else "hang" if "Timeout" in trace else f"exit {code}"
        if not self.ended:
            how = "hang"
        place, inside = _place(trace)
        note = read_note(self.folder / "note")
        self.hunt.died(self.next, how, place, inside, note, f"{trace[-3000:]}\n{said}".strip())


def _place(trace: str) -> tuple[str, str]:
    """The last line of anydml in a trace of faulthandler's, and the library that it had called, if any."""
    threads = [t for t in re.split(r"\n(?=Current thread|Thread)", trace) if "/abuse/" in t]
    frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', threads[-1]) if threads else []
    own = next((k for k, f in enumerate(frames) if f[0].startswith(_HOME)), None)
    if own is None:
        return "nowhere", ""
    file, line, _ = frames[own]
    called = re.search(r"-packages/(\w+)", frames[0][0])
    inside = "" if own == 0 or called is None else called[1]
    if own == 0 and "onnx/partial_eval/shape_inference.py" in file:
        inside = "onnx"
    return f"{file.removeprefix(_HOME + '/')}:{line}", inside


def hunted(
    seed: int,
    first: int,
    last: int,
    wide: bool,
    keep: Path | None,
    told: Callable[[Finding], object],
    progress: Callable[[float], object],
) -> Hunt:
    """Try these cases."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        seeds = corpus(wide, folder / "corpus")
        (folder / "cache").mkdir(mode=0o700)
        hunt = Hunt(seed, folder, seeds, keep, told)
        with suppress(KeyboardInterrupt):  # what was found so far is told
            hunt.run(first, last, progress)
        return hunt


def check(size: int, seed: int, progress: Callable[[float], object]) -> list[Figure]:
    """Try `size` mutated inputs."""
    start = time.monotonic()
    hunt = hunted(seed, 0, size, size >= WIDE, None, lambda finding: None, progress)
    return figures(hunt, time.monotonic() - start)


def figures(hunt: Hunt, seconds: float) -> list[Figure]:
    found = []
    for name, what in _KINDS.items():
        kind = hunt.kinds[name]
        share = kind.accepted / kind.count if kind.count else 0.0
        note = f"{share:.0%} were accepted, peak {kind.memory >> 20} MB, slowest {kind.slowest:.1f} s"
        if kind.library:
            note += f"; {kind.library} of the bad ones in a library below"
        found.append(Figure(what, kind.count, kind.bad, note))
    total = sum(k.count for k in hunt.kinds.values())
    alike = Counter(f.kind for f in hunt.findings.values())
    different = ", ".join(f"{n} {k}" for k, n in sorted(alike.items())) or "none"
    note = f"{seconds:.0f} s, {total / max(seconds, 0.001):.0f} a second; different findings: {different}"
    return [*found, Figure("all mutated inputs", total, sum(k.bad for k in hunt.kinds.values()), note)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m abuse.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="only this one")
    parser.add_argument("--narrow", action="store_true", help="without the models of the onnx package")
    parser.add_argument("--keep", type=Path, help="folder for what went wrong")
    asked = parser.parse_args()
    first, last = asked.first, asked.first + asked.size
    if asked.case is not None:
        first, last = asked.case, asked.case + 1

    def told(finding: Finding) -> None:
        print(f"{asked.seed}:{finding.case} ({finding.kind} of {finding.origin}) {finding.key}", flush=True)
        print("    " + finding.text.replace("\n", "\n    ")[-1500:], flush=True)

    start = time.monotonic()
    keep = asked.keep.resolve() if asked.keep else None
    hunt = hunted(asked.seed, first, last, not asked.narrow, keep, told, lambda done: None)
    print("\ndifferent findings:")
    for f in sorted(hunt.findings.values(), key=lambda f: -f.count):
        print(f"{f.count:6} x {f.key}   first: {asked.seed}:{f.case}, {f.kind} of {f.origin}")
    for figure in figures(hunt, time.monotonic() - start):
        print(f"{figure.what}: {figure.count}, {figure.bad} bad; {figure.note}")


if __name__ == "__main__":
    main()
