"""`make bench`: our operators, graphs and sessions against other libraries and memmove, as ratios."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import llvmlite
import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import anydml as dml
from anydml.runtime.threads import default_threads
from bench import alone, rows
from bench.calls import calls_between_work, pairs_of_calls
from bench.decoder import generate, merged_decoder
from bench.families import FAMILIES
from bench.functions import pairs_of_functions
from bench.layouts import pairs_of_layouts
from bench.measure import geometric_mean, medians, middle, rounds
from bench.models import cases
from bench.operators import ALL, WAYS, contenders
from bench.peers import PEERS, calls, versions
from bench.small import small_models
from bench.tensors import tensors_alone

Row = list[str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument(
        "--sizes", default="16,20,24", help="powers of two, as in 16,20 (default: %(default)s)"
    )
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--models", action="store_true", help="only models")
    parser.add_argument("--tensors", action="store_true", help="only the larger operators of DirectML")
    parser.add_argument("--functions", action="store_true", help="only functions and casts beside NumPy's")
    parser.add_argument("--operators", action="store_true", help="only every operator in every type")
    asked = parser.parse_args()
    sizes = [int(p) for p in asked.sizes.split(",")]
    print(
        f"{processor()}, {default_threads()} cores; Python {platform.python_version()}, "
        f"llvmlite {llvmlite.__version__}, {versions()}"
    )
    print("Operators: medians of one process. Models: the round whose ratio is the median of all rounds.")
    print("A ratio below 1 means that anydml is faster.")
    one_table = asked.models or asked.tensors or asked.functions or asked.operators
    all_rows = () if one_table else (*rows.SINGLE, *rows.FUSED)
    chosen = [r for r in all_rows if asked.only.lower() in r.name.lower()]
    jobs = [(r, p) for r in chosen for p in sizes]
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for job in progress.track(jobs, description="operators"):
            results.append(measured(*job))
    heads = ["operator", "elements", "anydml", *PEERS, "/ fastest peer", "/ memmove"]
    single, fused = ([r for r in results if r.row in some] for some in (rows.SINGLE, rows.FUSED))
    for title, some in (("Single operators, float32", single), ("Fused groups, float32", fused)):
        if some:
            show(title, heads, operator_table(some), asked.markdown)
    heads = ["what", "anydml", "peer", "ratio"]
    if asked.models:
        show("Models: run / onnxruntime, one thread", heads, models(), asked.markdown)
        for title, table in alone_tables():
            show(
                title,
                ["what", "anydml", "onnxruntime", "run", "load and run once", "MiB more"],
                table,
                asked.markdown,
            )
    if asked.tensors:
        show(LARGER, heads, larger_operators(asked.only), asked.markdown)
    if asked.operators:
        heads = ["what", "rows", "mean", "above 1.1", "above 1.2", "worst"]
        show(
            "Every operator in every type, 2^20 elements: ours / the fastest peer's",
            heads,
            operators(),
            asked.markdown,
        )
    if asked.functions or not (one_table or asked.only):
        functions = [compared(n, *pair, seconds=0.2) for n, pair in pairs_of_functions().items()]
        show("Functions and casts, 2^16 elements: ours / NumPy's", heads, functions, asked.markdown)
    if asked.only or one_table:
        return
    show("In short", ["what", ""], summary(single, fused), asked.markdown)
    layouts = [compared(*pair) for pair in pairs_of_layouts()]
    show("Layouts, all threads: ours / NumPy's one", heads, layouts, asked.markdown)
    show(LARGER, heads, larger_operators(), asked.markdown)
    show("Calls and kernels", heads, [*call_rows(), *compile_times()], asked.markdown)
    show("Models: run / onnxruntime, one thread", heads, models(), asked.markdown)


LARGER = "Larger operators, each library alone: ours / onnxruntime's, bound"


def larger_operators(only: str = "") -> list[Row]:
    found = tensors_alone(default_threads(), only)
    return [[n, microseconds(own), microseconds(its), f"{own / its:.2f}"] for n, own, its in found]


def operators() -> list[Row]:
    """By type, and of all."""
    by_type: dict[str, list[tuple[float, str]]] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress, np.errstate(all="ignore"):
        for name, calls in progress.track(contenders(), total=len(WAYS) * len(ALL), description="operators"):
            times = medians(calls, 0.1)
            own = times.pop("anydml")
            if times:
                operator, dtype = name.split(", ")
                by_type.setdefault(dtype, []).append((own / min(times.values()), operator))
    by_type["all"] = [row for found in by_type.values() for row in found]
    table = []
    for dtype, found in by_type.items():
        ratios = [ratio for ratio, _ in found]
        worst = ", ".join(f"{operator} {ratio:.2f}" for ratio, operator in sorted(found)[:-4:-1])
        above = (str(sum(ratio > limit for ratio in ratios)) for limit in (1.1, 1.2))
        table.append([dtype, str(len(found)), f"{geometric_mean(ratios):.2f}", *above, worst])
    return table


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show(title: str, heads: list[str], rows: list[Row], markdown: bool) -> None:
    if markdown:
        print(f"\n### {title}\n")
        print("| " + " | ".join(heads) + " |")
        print("|" + " --- |" * len(heads))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=max(100, Console().width)).print(table)


def microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} µs"


# ---- operators ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    row: rows.Row
    power: int
    seconds: dict[str, float]
    moved: int

    @property
    def peers(self) -> dict[str, float]:
        return {n: s for n, s in self.seconds.items() if n in PEERS}

    @property
    def ratio(self) -> float:
        """Our time by the fastest peer's."""
        return self.seconds["anydml"] / min(self.peers.values())

    @property
    def to_memmove(self) -> float:
        return self.seconds["anydml"] / self.seconds["memmove"]


def measured(row: rows.Row, power: int) -> Result:
    """One row at one size: everybody in turns in this process, ours by a bound dispatch."""
    arrays = row.arrays(power)
    shape = ((1 << power) // row.row, row.row)
    graph = dml.GraphBuilder()
    inputs = [graph.input(n, str(a.dtype).upper(), a.shape) for n, a in arrays.items()]
    compiled = graph.compile({"out": row.ours(*inputs)})
    assert compiled.kernels == 1, row.name
    out = np.zeros(shape, row.result)
    contenders: dict[str, Callable[[], object]] = {"anydml": compiled.bind(arrays, {"out": out}).dispatch}
    contenders |= calls(row, arrays, np.zeros(shape, row.result))
    moved = row.bytes_moved(arrays, power)
    contenders["memmove"] = moving(moved)
    with np.errstate(all="ignore"):
        return Result(row, power, medians(contenders, 0.2), moved)


def moving(count: int) -> Callable[[], None]:
    """A memmove that reads and writes `count` bytes in all."""
    source, target = np.ones(count // 2, np.uint8), np.zeros(count // 2, np.uint8)
    return lambda: np.copyto(target, source)


def operator_table(results: list[Result]) -> list[Row]:
    return [
        [
            r.row.name,
            f"2^{r.power}",
            microseconds(r.seconds["anydml"]),
            *(microseconds(r.peers.get(n)) for n in PEERS),
            f"{r.ratio:.2f}",
            f"{r.to_memmove:.2f}" if r.row.bound == "memory" else "-",
        ]
        for r in results
    ]


def summary(single: list[Result], fused: list[Result]) -> list[Row]:
    """What the tables come to."""

    def mean(results: list[Result]) -> str:
        return f"{geometric_mean([r.ratio for r in results]):.2f}"

    compute = [*fused, *(r for r in single if r.row.bound == "compute")]
    memory = [r for r in single if r.row.bound == "memory"]
    large = [r for r in (*single, *fused) if r.row.bound == "memory" and r.power == 24]
    rows = [
        ["fused and compute-bound: geometric mean of our time / fastest peer", mean(compute)],
        ["fused and compute-bound: worst", _worst(compute)],
        ["single, memory-bound: geometric mean", mean(memory)],
        ["single, memory-bound: worst", _worst(memory)],
    ]
    if large:
        worst = max(large, key=lambda r: r.to_memmove)
        rows.append(
            [
                "memory-bound at 2^24: worst of our time / memmove",
                f"{worst.to_memmove:.2f} ({worst.row.name})",
            ]
        )
    return rows


def _worst(results: list[Result]) -> str:
    worst = max(results, key=lambda r: r.ratio)
    return f"{worst.ratio:.2f} ({worst.row.name}, 2^{worst.power})"


# ---- calls and models --------------------------------------------------------------------------------


def call_rows() -> Iterator[Row]:
    for what, pair in pairs_of_calls().items():
        yield compared(f"16 elements: {what}", *pair)
    for what, own, its in calls_between_work():
        yield [what, microseconds(own), microseconds(its), f"{own / its:.2f}"]


def compared(what: str, ours: Callable[[], object], peer: Callable[[], object], seconds: float = 0.5) -> Row:
    """The round with the median of the ratios: a machine has slow seconds and quick ones."""
    times = rounds({"anydml": ours, "peer": peer}, seconds, 15)
    own, other = middle(list(zip(times["anydml"], times["peer"], strict=True)))
    return [what, microseconds(own), microseconds(other), f"{own / other:.2f}"]


def models() -> list[Row]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def pair(what: str, model: bytes, feeds: dict[str, Any], native: bool | None = None) -> Row | None:
        """None: programs are not wanted, and it is none anyway."""
        ours = dml.load(model, threads=1, native=native)
        theirs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for mine, its in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert np.allclose(mine, its, atol=1e-5), what
        if native is False:
            programs = dml.load(model, threads=1)
            programs.run(None, feeds)
            if "program: " not in programs.explain():
                return None
            what += ", native=False"
        if native:
            assert "program: " in ours.explain(), what
            what += ", native=True"
        return compared(what, lambda: ours.run(None, feeds), lambda: theirs.run(None, feeds), 1.0)

    def decoding() -> Row:
        model = merged_decoder()
        ours = dml.load(model, threads=1)
        theirs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        assert generate(ours.run) == generate(theirs.run)
        what = "a merged decoder: a prompt of 8, then 24 tokens"
        return compared(what, lambda: generate(ours.run), lambda: generate(theirs.run), 2.0)

    made = list(cases())
    pairs = [row for case in made for n in (None, False) if (row := pair(*case, native=n)) is not None]
    small = [row for case in small_models() if (row := pair(*case, native=True)) is not None]
    return [*pairs, *small, decoding(), *_loading(*made[0], options)]


def alone_tables() -> Iterator[tuple[str, list[Row]]]:
    """A table for each family of models and number of threads: each library alone in its process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, make in FAMILIES.items():
            place = make(Path(folder) / name)
            if place is None:
                continue
            for threads in (1, 0):
                with Progress(console=Console(stderr=True), transient=True) as progress:
                    every = progress.track(alone.cases([place]), description=name)
                    found = [alone.compare(model, feed, threads) for model, feed in every]
                table = [
                    [
                        c.name,
                        microseconds(c.ours),
                        microseconds(c.peer),
                        f"{c.run:.2f}",
                        f"{c.first:.2f}",
                        f"{c.memory:.0f}",
                    ]
                    for c in found
                ]
                means = (geometric_mean([getattr(c, n) for c in found]) for n in ("run", "first"))
                table.append(["geometric mean", "", "", *(f"{m:.2f}" for m in means), ""])
                yield f"{name}, {'one thread' if threads else 'default threads'}, each library alone", table


def _loading(what: str, model: bytes, feeds: dict[str, Any], options: Any) -> Iterator[Row]:
    """Until a model is loaded, and until it has run once."""

    def ours(first_run: bool) -> None:
        session = dml.load(model, threads=1)
        if first_run:
            session.run(None, feeds)

    def theirs(first_run: bool) -> None:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        if first_run:
            session.run(None, feeds)

    name = what.split(",")[0]
    yield compared(f"{name}: load", lambda: ours(False), lambda: theirs(False), 1.0)
    yield compared(f"{name}: load and run once", lambda: ours(True), lambda: theirs(True), 1.0)


def compile_times() -> list[Row]:
    """Every function's kernel for a large float32 array: made anew, and found on disk by another process."""
    anew, again = (_kernel_times(folder) for folder in _twice())
    return [
        ["first kernel of a process, compiled", f"{anew[0]:.1f} ms", "-", "-"],
        [f"{len(anew) - 1} further kernels, compiled: median", f"{median(anew[1:]):.1f} ms", "-", "-"],
        ["worst", f"{max(anew[1:]):.1f} ms", "-", "-"],
        ["first kernel of a second process, from disk", f"{again[0]:.1f} ms", "-", "-"],
        ["further kernels, from disk: median", f"{median(again[1:]):.1f} ms", "-", "-"],
        ["worst", f"{max(again[1:]):.1f} ms", "-", "-"],
    ]


def _twice() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield folder
        yield folder


def _kernel_times(folder: str) -> list[float]:
    """Milliseconds of each kernel in a process of its own that keeps its code in `folder`."""
    program = (
        "import time, numpy as np, anydml as dml\n"
        "from anydml.ops.catalog import ELEMENT_WISE\n"
        "x = np.ones((4, 64), np.float32)\n"
        "dml.if_\n"
        "for o in ELEMENT_WISE:\n"
        "    if len(o.inputs) < 3 and o.example_type(o.inputs[0].dtype).label == 'float32':\n"
        "        f, given = getattr(dml, o.function), [x] * len(o.inputs)\n"
        "        start = time.perf_counter()\n"
        "        f(*given, **o.example.attributes)\n"
        "        print((time.perf_counter() - start) * 1e3)\n"
    )
    environment = os.environ | {"ANYDML_CACHE_DIR": folder}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return [float(line) for line in done.stdout.split()]


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    main()
