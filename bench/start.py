"""From `python` to the first results, imports included: `python -m bench.start FOLDER [...]`.

A folder holds models as for `bench.alone`. Whole processes are timed, by turns: each loads a model and runs
it once, with the default threads. What is told are medians of milliseconds and of ratios: of processes that
find no kernel on disk, of those that find what earlier ones left there, and what NumPy alone takes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.alone import cases

READ = "import sys, numpy; feed = dict(numpy.load(sys.argv[2]));"
PROGRAMS = {
    "NumPy": READ,
    "onnxruntime": f"{READ} import onnxruntime; onnxruntime.InferenceSession(sys.argv[1]).run(None, feed)",
    "anydml": f"{READ} import anydml; anydml.load(sys.argv[1]).run(None, feed)",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.start", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=7, help="(default: %(default)s)")
    parser.add_argument("--only", default="", help="models whose name contains this")
    asked = parser.parse_args()
    table = Table("model", "NumPy", "onnxruntime", "anydml", "ratio", "kernels on disk", "ratio", title="ms")
    for model, feed in track([c for c in cases(asked.folders, asked.only) if c[1].suffix == ".npz"]):
        times = [one_of_each(model, feed) for _ in range(asked.rounds)]
        middle = {n: median(t[n] for t in times) * 1e3 for n in times[0]}
        anew, again = (median(t[n] / t["onnxruntime"] for t in times) for n in ("anydml", "again"))
        told = [f"{middle[n]:.0f}" for n in ("NumPy", "onnxruntime", "anydml", "again")]
        table.add_row(model.parent.name, *told[:3], f"{anew:.2f}", told[3], f"{again:.2f}")
    Console().print(table)


def one_of_each(model: Path, feed: Path) -> dict[str, float]:
    """Seconds of a process of each program; of ours a second one, too."""
    with tempfile.TemporaryDirectory() as cache:
        found = {name: seconds(PROGRAMS[name], model, feed, {"ANYDML_CACHE_DIR": cache}) for name in PROGRAMS}
        seconds(PROGRAMS["anydml"], model, feed, {"ANYDML_CACHE_DIR": cache})
        found["again"] = seconds(PROGRAMS["anydml"], model, feed, {"ANYDML_CACHE_DIR": cache})
    return found


def seconds(program: str, model: Path, feed: Path, environment: Mapping[str, str]) -> float:
    kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program, str(model), str(feed)]
    start = time.perf_counter()
    subprocess.run(command, env=kept | {"ORT_DISABLE_TELEMETRY": "1", **environment}, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
