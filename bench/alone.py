"""Sessions against onnxruntime's, each alone in its process: `python -m bench.alone FOLDER [...]`.

A folder holds models, each in a folder of its own with model.onnx and feed_*.npz. What is told are ratios,
medians over pairs of processes: of a run once it is warm, and of loading and running once after imports
with no kernel on disk. `--threads 0` is the default of both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import geometric_mean

SLACK = 1e-6
"""Seconds that a run may take more before a ratio counts: a call that does nothing takes 1.7 us."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.alone", description=__doc__)
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
    models = [m for f in asked.folders for m in sorted(f.rglob("model.onnx")) if asked.only in str(m)]
    for threads in asked.threads:
        print(
            f"\n{'threads: ' + (str(threads) if threads else 'default'):40}{'anydml':>12}{'peer':>12}"
            f"{'run':>8}{'first':>8}"
        )
        runs, firsts = [], []
        for model in models:
            for feed in sorted(model.parent.glob("feed_*.npz")):
                ours, peer, run, first = compare(model, feed, threads, asked.pairs, asked.seconds)
                runs.append(run)
                firsts.append(first)
                what = f"{model.parent.name} {feed.stem.removeprefix('feed_')}"
                mark = " !" if run > 1.03 and ours - peer > SLACK else ""
                print(
                    f"{what:40}{ours * 1e6:12,.1f}{peer * 1e6:12,.1f}{run:8.2f}{first:8.2f}{mark}", flush=True
                )
        if runs:
            print(f"{'geometric mean':64}{geometric_mean(runs):8.2f}{geometric_mean(firsts):8.2f}")


def compare(
    model: Path, feed: Path, threads: int, pairs: int, seconds: float
) -> tuple[float, float, float, float]:
    """Our time and the peer's of a run, and the ratios of a run and of loading and running once."""
    found: dict[str, list[dict[str, float]]] = {"anydml": [], "onnxruntime": []}
    for _ in range(pairs):
        for name, results in found.items():
            results.append(alone(name, model, feed, threads, seconds))
    ours, peer = found["anydml"], found["onnxruntime"]

    def ratio(what: str) -> float:
        return median(a[what] / b[what] for a, b in zip(ours, peer, strict=True))

    times = [median(r["run"] for r in results) for results in (ours, peer)]
    return times[0], times[1], ratio("run"), ratio("first")


def alone(name: str, model: Path, feed: Path, threads: int, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "bench.alone", "--worker", name, str(model), str(feed)]
        command += ["--threads", str(threads), "--seconds", str(seconds)]
        environment = os.environ | {"ANYDML_CACHE_DIR": cache, "ORT_DISABLE_TELEMETRY": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result


def worker(name: str, model: Path, feed: Path, threads: int, seconds: float) -> dict[str, float]:
    import numpy as np

    feeds = dict(np.load(feed))
    load = loader(name, threads)
    start = time.perf_counter()
    run = load(str(model))
    run(feeds)
    first = time.perf_counter() - start
    return {"first": first, "run": median(warm_runs(lambda: run(feeds), seconds))}


def loader(name: str, threads: int) -> Callable[[str], Callable[[dict[str, Any]], object]]:
    """What loads a model; libraries are imported before."""
    if name == "anydml":
        import onnxruntime  # noqa: F401

        import anydml

        _ = anydml.load

        def ours(path: str) -> Callable[[dict[str, Any]], object]:
            session = anydml.load(path, threads=threads or None)
            return lambda feeds: session.run(None, feeds)

        return ours
    import onnxruntime as ort

    def theirs(path: str) -> Callable[[dict[str, Any]], object]:
        options = ort.SessionOptions()
        if threads:
            options.intra_op_num_threads = threads
        options.log_severity_level = 4
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda feeds: session.run(None, feeds)

    return theirs


def warm_runs(run: Callable[[], object], seconds: float) -> Iterator[float]:
    until = time.perf_counter() + seconds / 4
    while time.perf_counter() < until:
        run()
    until, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < until or count < 3:
        start = time.perf_counter()
        run()
        yield time.perf_counter() - start
        count += 1


if __name__ == "__main__":
    main()
