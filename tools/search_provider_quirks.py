"""What onnxruntime does otherwise than ONNX says, searched with generated nodes.

    python -m tools.search_provider_quirks REPORT.md [--only Op,Op] [--opsets 26,21,18,17,13] [--workers 1]

Examples of nearly all operators (quirk_table.txt) are varied: empty axes, edges of types, indices out of
range, inputs left out. Each case runs in onnxruntime with and without optimisation, fed and as constants, in
a child process that may die of it. What comes out is compared with the operator's rule in
`anydml.onnx.ops`, or where it has none with onnx.reference; and what onnx.shape_inference says with both.
Whether onnxruntime is wrong, or what it is compared with, the reader has to find out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.progress import Progress

from anydml.onnx.providers.onnxruntime import newest_opset
from tools.quirk_cases import DTYPES, Case, Example, cases, table
from tools.quirk_worker import WAYS, serve

SECONDS = 10.0
"""What a step of a case may take."""
MOST_HANGS = 2
"""Of one kind of case of an operator: further ones are left out."""
NOT_SEARCHED = frozenset(
    "If Loop Scan SequenceMap RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli "
    "Multinomial".split()
)
"""Control flow, and what has no one right answer."""


# ---- cases -------------------------------------------------------------------------------------------


def opsets_of(op: str, asked: list[int]) -> list[int]:
    """One opset for each revision among those asked for, the newest first."""
    found: dict[int, int] = {}
    for opset in sorted(asked, reverse=True):
        try:
            schema = onnx.defs.get_schema(op, opset, "")
        except onnx.defs.SchemaError:
            continue
        found.setdefault(schema.since_version, opset)
    return list(found.values())


def generated(examples: list[Example], asked: list[int]) -> Iterator[Case]:
    for example in examples:
        for age, opset in enumerate(opsets_of(example.op, asked)):
            if example.opsets[0] <= opset <= example.opsets[1]:
                dtypes = _dtypes(example, opset)
                most = 2 if age > 1 else len(dtypes) if example.first else 4
                for k, dtype in enumerate(dtypes[:most]):
                    yield from cases(example, opset, dtype, k)


def _dtypes(example: Example, opset: int) -> list[str]:
    """What T may be: all that every input of that letter takes."""
    schema = onnx.defs.get_schema(example.op, opset, "")
    allowed: set[str] | None = None
    for k, slot in enumerate(example.slots):
        if slot is not None and slot.letter == "T":
            formal = schema.inputs[min(k, len(schema.inputs) - 1)]
            types = {t for t in DTYPES if _written(t, slot.elements is not None) in formal.types}
            allowed = types if allowed is None else allowed & types
    if allowed is None:
        return [""]
    return [t for t in DTYPES if t in allowed]


def _written(dtype: str, sequence: bool) -> str:
    text = f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype, dtype) })"
    return f"seq({text})" if sequence else text


# ---- running -----------------------------------------------------------------------------------------


@dataclass
class Child:
    """A process that runs cases, and the case that it is at."""

    context: Any
    case: Case | None = None
    step: int = 0
    answers: list[tuple[str, Any]] = field(default_factory=list)
    since: float = 0.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self.process = self.context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, case: Case | None, step: int = 0) -> None:
        self.case, self.step, self.since = case, step, time.monotonic()
        if not step:
            self.answers = []
        self.connection.send(None if case is None else (case, step))

    def end(self) -> int:
        """End the process; its exit status."""
        self.process.kill()
        self.process.join()
        self.connection.close()
        return int(self.process.exitcode or 0)


STEPS = 2 + len(WAYS)
FATAL = ("crash", "hang", "unstable")
ODD = ("another attribute", "another control input", "indices out of range", "an empty control input")
"""Kinds of cases that may not be valid: onnx.reference answers many of them with something."""


def run(children: list[Child], todo: Iterator[Case], report: Report, progress: Any) -> None:
    """Have all cases run; the children are given the next as they finish."""
    for child in children:
        _next(child, todo, report)
    while busy := [c for c in children if c.case is not None]:
        for child in [c for c in busy if c.connection in wait([c.connection for c in busy], 0.5)]:
            try:
                step, answer = child.connection.recv()
            except (EOFError, ConnectionResetError):
                child.process.join(5)
                _replace(child, "crash", _signal(child.process.exitcode))
            else:
                child.answers.append(answer)
                child.step, child.since = step + 1, time.monotonic()
            _advance(child, todo, report, progress)
        for child in busy:
            if child.case is not None and time.monotonic() - child.since > SECONDS:
                _replace(child, "hang", f"more than {SECONDS:g} s")
                _advance(child, todo, report, progress)


def _signal(code: int | None) -> str:
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"


def _replace(child: Child, kind: str, why: str) -> None:
    """A new process in the place of one that is dead, or is to be."""
    child.end()
    child.answers.append((kind, why))
    child.start()
    if len(child.answers) < STEPS:
        child.ask(child.case, len(child.answers))


def _advance(child: Child, todo: Iterator[Case], report: Report, progress: Any) -> None:
    if len(child.answers) == STEPS:
        assert child.case is not None
        report.add(child.case, child.answers)
        progress()
        _next(child, todo, report)


def _next(child: Child, todo: Iterator[Case], report: Report) -> None:
    for case in todo:
        if report.wanted(case):
            child.ask(case)
            return
    child.case = None


# ---- comparing ---------------------------------------------------------------------------------------


def difference(got: list[Any], want: list[Any]) -> tuple[str, str] | None:
    """How outputs differ, in a word and in detail."""
    for k, (a, b) in enumerate(zip(got, want, strict=False)):
        if b is None and a is not None and len(want) > 1:
            continue  # an optional output that the oracle does not have
        found = _differs(a, b)
        if found is not None:
            return found[0], f"output {k}: {found[1]}"
    return None


def _differs(a: Any, b: Any) -> tuple[str, str] | None:
    if isinstance(a, list) or isinstance(b, list):
        if not (isinstance(a, list) and isinstance(b, list) and len(a) == len(b)):
            return "shape", f"{shown(a)} for {shown(b)}"
        return next((f for x, y in zip(a, b, strict=True) if (f := _differs(x, y))), None)
    if a is None or b is None:
        return None if a is b else ("shape", f"{shown(a)} for {shown(b)}")
    a, b = np.asarray(a), np.asarray(b)
    texts = f"{shown(a)} for {shown(b)}"
    if a.dtype.kind in "OU" or b.dtype.kind in "OU":
        return None if a.shape == b.shape and a.tolist() == b.tolist() else ("value", texts)
    if a.dtype != b.dtype:
        return "dtype", texts
    if a.shape != b.shape:
        return "shape", texts
    if a.dtype.kind != "f":
        return None if np.array_equal(a, b) else ("value", texts)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return "NaN", texts
    x, y = a.astype(np.float64), b.astype(np.float64)
    x, y = x[~np.isnan(x)], y[~np.isnan(y)]
    if not np.array_equal(np.isinf(x) * np.sign(x), np.isinf(y) * np.sign(y)):
        return "infinity", texts
    x, y = x[np.isfinite(x)], y[np.isfinite(y)]
    loose = 1e-2 if a.dtype.itemsize == 2 else 2e-4
    if not (
        np.abs(x - y) <= loose * np.abs(y) + loose * 0.1 * min(float(np.abs(y).max(initial=0)), 10)
    ).all():
        return "value", texts
    if not np.array_equal(np.signbit(x) & (x == 0), np.signbit(y) & (y == 0)):
        return "sign of zero", texts
    return None


def shown(x: Any) -> str:
    if isinstance(x, list):
        return f"({', '.join(map(shown, x))})"
    if x is None:
        return "nothing"
    x = np.asarray(x)
    text = (
        np.array2string(x.reshape(-1), max_line_width=10**6, threshold=24, separator=",") if x.size else "[]"
    )
    return f"{'string' if x.dtype == object else x.dtype.name}{list(x.shape)} {text}".replace(" ", "", 0)


# ---- the report --------------------------------------------------------------------------------------


@dataclass
class Finding:
    """Cases of an operator that differ in the same way."""

    opsets: set[int] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    ways: set[str] = field(default_factory=set)
    oracles: set[str] = field(default_factory=set)
    details: set[str] = field(default_factory=set)
    count: int = 0
    least: tuple[Any, ...] | None = None
    """The smallest case's rank among them, the case, and what came of it."""

    def add(self, case: Case, way: str, oracle: str, about: str) -> None:
        self.count += 1
        self.opsets.add(case.opset)
        self.dtypes.add(case.dtype)
        self.ways.add(way)
        self.oracles.add(oracle)
        self.details.add(case.detail)
        rank = (case.elements, -case.opset, case.dtype, case.detail, way)
        if self.least is None or rank < self.least[0]:
            self.least = (rank, case, about)


class Report:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Finding] = {}
        self.inference: dict[tuple[str, str, str], Finding] = {}
        self.ran: Counter[tuple[str, int]] = Counter()
        self.absent: set[tuple[Any, ...]] = set()
        """Operator, opset and types of inputs for which onnxruntime has no kernel."""
        self.hangs: Counter[tuple[str, str]] = Counter()

    def wanted(self, case: Case) -> bool:
        return _signature(case) not in self.absent and self.hangs[case.op, case.kind] < MOST_HANGS

    def add(self, case: Case, answers: list[tuple[str, Any]]) -> None:
        (oracle, want), (_, told), *ways = answers
        if case.kind == "plain" and all(kind in ("no kernel", "left out") for kind, _ in ways):
            self.absent.add(_signature(case))
            return
        self.ran[case.op, case.opset] += 1
        right = isinstance(want, list) and oracle not in ("refused", "crash", "hang")
        about = oracle if right else f"oracle: {oracle}"
        for way, (kind, got) in zip(WAYS, ways, strict=True):
            found: tuple[str, str] | None = None
            if kind in ("crash", "hang"):
                self.hangs[case.op, case.kind] += kind == "hang"
                found = kind, str(got)
            elif kind == "unstable":
                found = kind, shown(got)
            elif kind in ("refused", "not loaded"):
                found = (f"{kind} though valid", str(got)) if right and "NotFoldable" not in oracle else None
            elif kind == "ok":
                found = (
                    difference(got, want)
                    if right
                    else ("answers what the oracle refuses", f"{shown(got)}; {want}")
                )
                self._compare(case, told, got)
            if found is None or (kind not in FATAL and oracle != "rule" and case.kind in ODD):
                continue
            label = found[0] if right or kind == "ok" else f"{found[0]}, of what the oracle refuses"
            group = "contents" if "contents" in case.kind else case.kind
            self.found.setdefault((case.op, label, group), Finding()).add(case, way, about, found[1])

    def _compare(self, case: Case, told: Any, got: list[Any]) -> None:
        """What inference says, with what came out."""
        if not isinstance(told, list):
            self.inference.setdefault((case.op, "ends the process", case.kind), Finding()).add(
                case, "", "", ""
            )
            return
        for constants, said in zip(("", " with constants"), told, strict=True):
            if isinstance(said, str):
                key = case.op, "inference refuses", case.kind
                self.inference.setdefault(key, Finding()).add(case, constants, "", said)
                continue
            for k, (type_, x) in enumerate(zip(said, got, strict=True)):
                if type_ is None or not isinstance(x, np.ndarray):
                    continue
                code, dims = type_
                real = (
                    onnx.TensorProto.STRING
                    if x.dtype.kind in "OU"
                    else onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
                )
                kind = ""
                if code not in (real, 0):
                    kind = "dtype"
                elif dims is not None and len(dims) != x.ndim:
                    kind = "rank"
                elif dims is not None and any(n not in (None, m) for n, m in zip(dims, x.shape, strict=True)):
                    kind = "sizes"
                if kind:
                    about = f"output {k}: {code} {dims} for {real} {list(x.shape)}"
                    self.inference.setdefault((case.op, kind, case.kind), Finding()).add(
                        case, constants, "", about
                    )

    def text(self, examples: list[Example], asked: list[int]) -> str:
        lines = ["# What onnxruntime does otherwise", ""]
        total, ops = sum(self.ran.values()), sorted({op for op, _ in self.ran})
        lines += [f"{total} cases of {len(ops)} operators.", "", "## Not covered", ""]
        tabled = {e.op for e in examples}
        for op in sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}):
            if op in NOT_SEARCHED or op in ops:
                continue
            absent = any(key[0] == op for key in self.absent)
            why = "no kernel" if absent else "not reached" if opsets_of(op, asked) else "no such opset"
            lines.append(f"- {op}: {why if op in tabled else 'no example'}")
        for title, table_ in (("Differences", self.found), ("Inference", self.inference)):
            lines += ["", f"## {title}", ""]
            for key in sorted(table_):
                lines += _paragraph(key, table_[key])
        return "\n".join(lines) + "\n"


def _signature(case: Case) -> tuple[Any, ...]:
    """What decides whether there is a kernel."""
    types = tuple("" if x is None else "seq" if isinstance(x, list) else str(x.dtype) for x in case.inputs)
    return case.op, case.opset, types, case.attributes.get("to")


def _paragraph(key: tuple[str, str, str], found: Finding) -> list[str]:
    assert found.least is not None
    _, case, about = found.least
    details = sorted(found.details)
    inputs = [f"    i{k} = {shown(x)}" for k, x in enumerate(case.inputs)]
    return [
        f"### {key[0]}: {key[1]} ({key[2]})",
        "",
        f"{found.count} times; opsets {sorted(found.opsets)}; types {' '.join(sorted(found.dtypes)) or '-'}; "
        f"{', '.join(sorted(found.ways))}; {' / '.join(sorted(found.oracles))[:300]}",
        f"of: {'; '.join(details[:12])}{f' and {len(details) - 12} more' if len(details) > 12 else ''}",
        "",
        f"    {' '.join(onnx.printer.to_text(case.node()).split())}, opset {case.opset}",
        *inputs,
        f"    {about[:600]}",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("report", type=Path, help="Markdown that is written")
    parser.add_argument("--only", default="", help="operators, separated by commas")
    parser.add_argument("--opsets", default=f"{newest_opset()},21,18,17,13", help="opsets that are tried")
    parser.add_argument("--workers", type=int, default=1, help="processes that run cases")
    parser.add_argument("--most", type=int, default=10**9, help="cases at most")
    parser.add_argument("--minutes", type=float, default=1e9, help="after which it reports what it has")
    options = parser.parse_args()
    asked = [int(n) for n in options.opsets.split(",")]
    only = set(options.only.split(",")) if options.only else None
    examples = [e for e in table() if (only is None or e.op in only) and e.op not in NOT_SEARCHED]
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"  # whose memory would keep its old contents
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tools.quirk_worker"])
    report = Report()
    end = time.monotonic() + options.minutes * 60
    with Progress() as progress:
        bar = progress.add_task("cases", total=None)
        at = [""]

        def limited() -> Iterator[Case]:
            for n, case in enumerate(generated(examples, asked)):
                if n >= options.most or time.monotonic() > end:
                    return
                at[0] = case.op
                yield case

        children = [Child(context) for _ in range(options.workers)]
        try:
            run(
                children,
                limited(),
                report,
                lambda: progress.update(bar, advance=1, description=f"{at[0]:24}"),
            )
        finally:
            for child in children:
                child.end()
    options.report.write_text(report.text(table(), asked))


if __name__ == "__main__":
    main()
