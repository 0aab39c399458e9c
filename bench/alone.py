"""Sessions against onnxruntime's, each alone in its process: `python -m bench.alone FOLDER [...]`.

A folder holds models, each in a folder of its own with model.onnx and feed_*.npz (`bench.families` makes
some, `bench.products` others). With a varied.json, a run is one of twenty pictures or the like, each of other
sizes, and the first run is the first twenty. What is told are ratios, medians over pairs of processes: of a
run once it is warm, and of loading and running once after imports (of all operators, and of what makes
kernels and programs, too: `bench.start` counts imports) with no kernel on disk; and how much more
memory there is in the end than onnxruntime's process has, imports and kernels included. `--threads 0` is the
default of both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import geometric_mean, middle
from bench.processes import told_by

VARIED_RUNS = 20
"""Of sizes that vary, which count as one."""
SLACK = 1e-6
"""Seconds that a run may take more before a ratio counts: a call that does nothing takes 1.7 us."""


@dataclass(frozen=True)
class Compared:
    """A model on one feed. Seconds of a run, in the pair of processes with the median ratio; ratios to
    onnxruntime, and MiB above its process.
    """

    name: str
    ours: float
    peer: float
    run: float
    first: float
    memory: float

    @property
    def slower(self) -> bool:
        return self.run > 1.03 and self.ours - self.peer > SLACK


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.alone", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 0])
    parser.add_argument("--pairs", type=int, default=3, help="of processes (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of warm runs in each process")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        model, feed = asked.folders
        print(json.dumps(worker(asked.worker, model, feed, asked.threads[0], asked.seconds)))
        return
    for threads in asked.threads:
        heads = f"{'anydml':>12}{'peer':>12}{'run':>8}{'first':>8}{'MiB':>8}"
        print(f"\n{'threads: ' + (str(threads) if threads else 'default'):40}{heads}")
        found = []
        for model, feed in cases(asked.folders, asked.only):
            found.append(one := compare(model, feed, threads, asked.pairs, asked.seconds))
            mark = " !" if one.slower else ""
            times = f"{one.ours * 1e6:12,.1f}{one.peer * 1e6:12,.1f}"
            print(f"{one.name:40}{times}{one.run:8.2f}{one.first:8.2f}{one.memory:8.0f}{mark}", flush=True)
        if found:
            run, first = (geometric_mean([getattr(c, n) for c in found]) for n in ("run", "first"))
            print(f"{'geometric mean':64}{run:8.2f}{first:8.2f}")


def cases(folders: Sequence[Path], only: str = "") -> list[tuple[Path, Path]]:
    """Models with what they are fed, of all folders in these."""
    models = [m for f in folders for m in sorted(f.rglob("model.onnx")) if only in str(m)]
    return [
        (m, f)
        for m in models
        for pattern in ("feed_*.npz", "generate", "varied.json")
        for f in sorted(m.parent.glob(pattern))
    ]


def compare(model: Path, feed: Path, threads: int, pairs: int = 3, seconds: float = 0.4) -> Compared:
    found: dict[str, list[dict[str, float]]] = {"anydml": [], "onnxruntime": []}
    for _ in range(pairs):
        for name, results in found.items():
            results.append(alone(name, model, feed, threads, seconds))
    ours, peer = found["anydml"], found["onnxruntime"]

    def ratio(what: str) -> float:
        return median(a[what] / b[what] for a, b in zip(ours, peer, strict=True))

    own, other = middle([(a["run"], b["run"]) for a, b in zip(ours, peer, strict=True)])
    memory = median(a["memory"] - b["memory"] for a, b in zip(ours, peer, strict=True))
    name = f"{model.parent.name} {feed.stem.removeprefix('feed_')}"
    return Compared(name, own, other, own / other, ratio("first"), memory)


def alone(name: str, model: Path, feed: Path, threads: int, seconds: float) -> dict[str, float]:
    found: dict[str, float] = told_by(
        *("bench.alone", "--worker", name, str(model), str(feed)),
        *("--threads", str(threads), "--seconds", str(seconds)),
    )
    return found


def worker(name: str, model: Path, feed: Path, threads: int, seconds: float) -> dict[str, float]:
    load, work = loader(name, threads), work_of(feed)
    start = time.perf_counter()
    run = load(str(model)).run
    work(run)
    first = time.perf_counter() - start
    warm = median(warm_runs(lambda: work(run), seconds))
    return {"first": first, "memory": resident(), "run": warm}


Run = Callable[[None, dict[str, Any]], Any]


def work_of(feed: Path) -> Callable[[Run], object]:
    """What is done with a session's run."""
    if feed.name == "generate":
        from bench.decoder import generate

        return lambda run: generate(run, tokens=30)
    if feed.suffix == ".json":
        from bench.products import feeds_of

        varied = feeds_of(feed)
        return lambda run: [run(None, x) for x in islice(varied, VARIED_RUNS)]
    import numpy as np

    feeds = dict(np.load(feed))
    return lambda run: run(None, feeds)


def resident() -> float:
    """MiB that this process has in memory; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def loader(name: str, threads: int) -> Callable[[str], Any]:
    """What makes a session of a model; libraries are imported before."""
    if name == "anydml":
        import onnxruntime  # noqa: F401

        import anydml
        import anydml.codegen.program.module
        import anydml.onnx.if_conversion.convert
        import anydml.runtime.prepared
        from anydml.onnx.ops.catalog import OPS

        _ = anydml.load, [*OPS.values()]
        return lambda path: anydml.load(path, threads=threads or None)
    import onnxruntime as ort

    def theirs(path: str) -> Any:
        options = ort.SessionOptions()
        if threads:
            options.intra_op_num_threads = threads
        options.log_severity_level = 4
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    return theirs


AT_ONCE = 1e-4
"""Seconds that are measured at once: looking at the clock takes a tenth of a microsecond."""


def warm_runs(run: Callable[[], object], seconds: float) -> Iterator[float]:
    """What one run takes, again and again."""
    until, count = time.perf_counter() + seconds / 4, 0
    begin = time.perf_counter()
    while time.perf_counter() < until:
        run()
        count += 1
    together = max(int(AT_ONCE * count / (time.perf_counter() - begin)), 1)
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until or count < 3:
        start = time.perf_counter()
        for _ in range(together):
            run()
        yield (time.perf_counter() - start) / together
        count += 1


if __name__ == "__main__":
    main()
