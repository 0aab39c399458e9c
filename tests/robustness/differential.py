"""anydml against the oracles on one model: `check_model(seed)`."""

from __future__ import annotations

import contextlib
import pickle
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, numpy_helper

import anydml
from tests.robustness.judging import KNOWN, Oracles
from tests.robustness.oracles import attempt, by_onnxruntime, by_reference
from tests.robustness.random_models import Case, random_case
from tests.robustness.rules import Unknown, by_rules
from tests.robustness.values import Array, Rng, arrays, copied, same

Progress = Callable[[str], None]

CONVERT = ("never", "auto", "always")
FLAT = "flat model in onnxruntime"
"""The phase in which onnxruntime optimises and runs what `flatten` made."""


@dataclass(frozen=True)
class Finding:
    """Something wrong: `kind` says what, `reason` how it shows."""

    seed: int
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.kind}: {self.reason}"


@dataclass
class Outcome:
    """Of the checks of one model. `times` are seconds of processors by phase."""

    seed: int
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    runs: int = 0
    ran: int = 0


@dataclass(frozen=True)
class Checks:
    """Which checks are made."""

    idempotent: bool = True
    flatten: bool = True
    constants: bool = True


def check_model(seed: int, checks: Checks = Checks()) -> list[str]:
    """What is wrong with anydml on the model of this seed; empty if nothing."""
    return [str(f) for f in check_case(random_case(seed), checks).findings]


def check_case(case: Case, checks: Checks = Checks(), progress: Progress = lambda phase: None) -> Outcome:
    """All checks of one case; `progress` is told what is about to be done."""
    return Check(case, checks, progress).all()


class Check:
    """The checks of one case."""

    def __init__(self, case: Case, checks: Checks, progress: Progress) -> None:
        self.case, self.checks, self.progress = case, checks, progress
        self.rng = np.random.default_rng(case.seed + 1)
        self.outcome = Outcome(case.seed)
        self.native = case.seed % 4 < 2  # programs, where there are some, in half of the cases
        self.count = len(case.feeds)
        self.seen: list[bytes] = []

    def all(self) -> Outcome:
        with self.phase("oracle"):
            if self.case.valid and (why := refusal(self.case.model)):
                self.outcome.notes.append(f"the generator's fault: {why}")
                return self.outcome
            self.oracles = Oracles(self.case)
            self.failing = [self.oracles.fails(k) for k in range(self.count)]
            if not all(self.oracles.knows(k) for k in range(self.count)):
                self.outcome.notes.append("no oracle runs the model")
                return self.outcome
            self.outcome.runs, self.outcome.ran = self.count, self.count - sum(self.failing)
        with self.phase("run"):
            self.run()
        if self.checks.constants:
            with self.phase("constants"):
                self.constants()
        if self.checks.flatten:
            for convert in CONVERT if ifs(self.case.model.graph) else CONVERT[:1]:
                with self.phase(f"flatten {convert}"):
                    self.flatten(convert)
        self.outcome.notes += self.oracles.notes
        return self.outcome

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.progress(name)
        start = time.process_time()
        yield
        self.outcome.times[name] = time.process_time() - start

    def found(self, kind: str, reason: str) -> None:
        again = any(f.kind == kind for f in self.outcome.findings)
        if not again and not any(k.kind == kind and k.contains in reason for k in KNOWN):
            self.outcome.findings.append(Finding(self.case.seed, kind, reason))

    def ours(self, what: str, call: Callable[[], Any]) -> Any:
        """The result of something of anydml's, an AnyDMLError, or None: anything else is a finding."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = call()
            except anydml.AnyDMLError as error:
                result = error
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{place.filename.rpartition('/anydml/')[2]}:{place.lineno}"
                self.found("foreign exception", f"{what}: {type(error).__name__}: {short(error)} at {where}")
                result = None
        for warning in caught:
            self.found("warning", f"{what}: {warning.category.__name__}: {warning.message}")
        return result

    # ---- running -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Every feed several times, in changing order, with garbage written to what was given and returned."""
        session = self.ours(
            "load", lambda: anydml.load(self.case.model, threads=1 + self.case.seed % 2, native=self.native)
        )
        if session is None or self.refused(session):
            return None
        if self.case.seed % 16 == 0:
            session = self.ours("pickle", lambda: pickle.loads(pickle.dumps(session)))
            if isinstance(session, anydml.AnyDMLError) or session is None:
                return self.found("refused", f"pickle: {session}")
        order = [*range(self.count), *self.rng.permutation(self.count), *self.rng.permutation(self.count)]
        kept: list[tuple[int, Any, Any]] = []
        for turn, k in enumerate(int(k) for k in order):
            if self.outcome.findings:
                break
            self.once(session, k, turn, kept)
        for k, result, copy in kept:
            if not same(result, copy):
                return self.found("changed later", f"a result of feed {k} changed after it was returned")
        return None

    def refused(self, session: Any) -> bool:
        if not isinstance(session, anydml.AnyDMLError):
            return False
        if not all(self.failing):
            self.found("refused", f"load: {type(session).__name__}: {short(session)}")
        return True

    def once(self, session: Any, k: int, turn: int, kept: list[tuple[int, Any, Any]]) -> None:
        feeds = {n: laid_out(self.rng, v, turn) for n, v in self.case.feeds[k].items()}
        names = [o.name for o in self.case.model.graph.output]
        backwards = turn == self.count and len(set(names)) == len(names)
        wanted = names[::-1] if backwards else None
        got = self.ours("run", lambda: session.run(wanted, feeds))
        if got is None:
            return None
        if isinstance(got, anydml.AnyDMLError):
            self.failed(k, "run", got)
            return None
        if self.failing[k]:
            self.runs("runs", "", k)
            return None
        if backwards:
            got = got[::-1]
        if any(not same(v, self.case.feeds[k][n]) for n, v in feeds.items()):
            return self.found("input changed", f"feed {k}")
        if reason := self.oracles.against(k, got):
            again = "" if turn < self.count else f" in run {turn} of {order_note(self.count)}"
            return self.found("wrong result", reason + again)
        self.memory(got, feeds, [r for _, r, _ in kept])
        for value in [*feeds.values(), *(got if turn % 2 else [])]:
            self.garbage(value, turn)
        if turn % 2 == 0:
            kept.append((k, got, copied(got)))
        return None

    def runs(self, kind: str, what: str, k: int) -> None:
        """A run where no oracle does: wrong, unless onnxruntime's optimisations take away what fails."""
        if self.oracles.optimised(k) is None:
            return self.found(kind, f"{what}both oracles fail on this feed: {self.oracles.why(k)}")
        self.outcome.notes.append("onnxruntime's optimisations run what fails without")
        return None

    def failed(self, k: int, what: str, error: anydml.AnyDMLError) -> None:
        """A run that failed: wrong where onnxruntime runs, or where nothing but onnx.reference can."""
        lenient = isinstance(error, anydml.ExecutionFailed) and self.oracles.first[k] is None
        if self.oracles.runs(k) and not lenient:
            self.found("fails", f"{what}: {type(error).__name__}: {short(error)}")
        elif self.oracles.runs(k):
            self.outcome.notes.append(f"fails where only onnx.reference runs: {short(error)}")

    def memory(self, got: list[Any], feeds: dict[str, Any], kept: list[Any]) -> None:
        own = [a for v in got for a in arrays(v) if a.size and a.dtype != object]
        for i, a in enumerate(own):
            for label, others in (
                ("an input", arrays(list(feeds.values()))),
                ("another output", own[:i]),
                ("an earlier result", arrays(kept)),
            ):
                if any(np.may_share_memory(a, b) and np.shares_memory(a, b) for b in others):
                    self.found("shared memory", f"an output shares memory with {label}")
                    return

    def garbage(self, value: Any, turn: int) -> None:
        for a in arrays(value):
            if not a.flags.writeable:
                self.found("read-only", "a result cannot be written to")
            elif a.dtype == object:
                a[...] = "garbage"
            else:
                a[...] = (np.nan if a.dtype.kind == "f" else 1) if turn % 4 < 2 else 77

    # ---- variants ------------------------------------------------------------------------------------

    def constants(self) -> None:
        """The same with all inputs in the file."""
        k = int(self.rng.integers(self.count))
        feeds = self.case.feeds[k]
        if any(isinstance(v, list) for v in feeds.values()):
            return
        model = ModelProto()
        model.CopyFrom(self.case.model)
        del model.graph.input[:]
        defaults = [i for i in model.graph.initializer if i.name not in feeds]
        del model.graph.initializer[:]
        model.graph.initializer.extend(defaults)
        model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in feeds.items())
        session = self.ours("load of constants", lambda: anydml.load(model, threads=1, native=self.native))
        if session is None:
            return
        got = session
        if not isinstance(session, anydml.AnyDMLError):
            got = self.ours("run of constants", lambda: session.run(None, {}))
        if isinstance(got, anydml.AnyDMLError):
            self.failed(k, "as constants", got)
        elif got is not None and self.failing[k]:
            self.found("runs", f"as constants: both oracles fail on this feed: {self.oracles.why(k)}")
        elif got is not None and (reason := self.oracles.against(k, got)):
            self.found("wrong result", f"as constants: {reason}")

    def flatten(self, convert: str) -> None:
        kind = f"flatten {convert}"
        done = self.ours(kind, lambda: anydml.flatten(self.case.model, convert=convert, verify=False))  # type: ignore[arg-type]
        if done is None:
            return None
        if isinstance(done, anydml.AnyDMLError):
            if not all(self.failing):
                self.found("flatten refuses", f"{convert}: {type(done).__name__}: {short(done)}")
            return None
        flat, report = done
        if self.case.valid and (why := refusal(flat)):
            return self.found("flatten invalid", f"{convert}: onnx.checker: {why}")
        if report.left != ifs(flat.graph):
            self.found("flatten report", f"{convert}: {report.left} left are reported, {ifs(flat.graph)} are")
        if flat.SerializeToString() in self.seen:
            return None
        self.seen.append(flat.SerializeToString())
        self.flat_runs(convert, flat)
        if self.checks.idempotent:
            self.progress(kind + " again")
            again = self.ours(kind + " again", lambda: anydml.flatten(flat, convert=convert, verify=False))  # type: ignore[arg-type]
            if isinstance(again, anydml.AnyDMLError):
                self.found("flatten again", f"{convert}: {type(again).__name__}: {short(again)}")
            elif again is not None and again[0].SerializeToString() != flat.SerializeToString():
                self.found("flatten not idempotent", f"{convert}: {changes(flat, again[0])}")
        return None

    def flat_runs(self, convert: str, flat: ModelProto) -> None:
        self.progress(FLAT)
        content = flat.SerializeToString()
        try:
            runner = by_onnxruntime(content, optimised=True)
        except Exception as error:
            if self.oracles.loads and loads(content) and not self.oracles.loads_optimised:
                self.outcome.notes.append("onnxruntime's optimisations refuse a model")
                return None
            if self.oracles.loads:
                plain = "" if loads(content) else ", nor without optimisation"
                return self.found("flatten does not load", f"{convert}: onnxruntime{plain}: {short(error)}")
            try:
                runner = by_reference(flat)
            except Exception as second:
                return self.found("flatten does not load", f"{convert}: onnx.reference: {short(second)}")
        for k in range(self.count):
            got = attempt(runner, {n: copied(v) for n, v in self.case.feeds[k].items()})
            if got is None and self.oracles.runs(k):
                if self.oracles.first[k] is not None and self.oracles.optimised(k) is not None:
                    if self.blames_onnxruntime(k, content):
                        self.outcome.notes.append("onnxruntime's optimisations make a flat model fail")
                        continue
                    why = self.why(runner, k)
                    return self.found("flatten fails", f"{convert}: {why}")
            elif got is not None and self.failing[k]:
                return self.runs("flatten runs", f"{convert}: ", k)
            elif got is not None and (reason := self.oracles.against(k, got)):
                if self.blames_onnxruntime(k, content):
                    self.outcome.notes.append("onnxruntime gets a flat model wrong")
                    continue
                return self.found("flatten wrong", f"{convert}: {reason}")
        return None

    def blames_onnxruntime(self, k: int, content: bytes) -> bool:
        """Whether the flat model is right where onnxruntime leaves it alone, or by the operators' rules."""
        plain = attempt(by_onnxruntime(content) if loads(content) else None, self.case.feeds[k])
        if plain is not None and self.oracles.against(k, plain) is None:
            return True
        ruled = by_rules(onnx.load_from_string(content), self.case.feeds[k])
        whole = ruled is not None and not any(isinstance(x, Unknown) for x in ruled)
        return whole and ruled is not None and self.oracles.against(k, ruled) is None

    def why(self, runner: Any, k: int) -> str:
        try:
            runner(self.case.feeds[k])
        except Exception as error:
            return short(error)
        return "now and then"


def flat_alone(case: Case) -> None:
    """The flat models in onnxruntime without optimisation."""
    for convert in CONVERT:
        with contextlib.suppress(anydml.AnyDMLError):
            flat, _ = anydml.flatten(case.model, convert=convert, verify=False)  # type: ignore[arg-type]
            content = flat.SerializeToString()
            for feeds in case.feeds if loads(content) else ():
                attempt(by_onnxruntime(content), {n: copied(v) for n, v in feeds.items()})


# ---- parts -------------------------------------------------------------------------------------------


def order_note(count: int) -> str:
    return str(3 * count)


def short(error: object) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 400 else text[:397] + "..."


def refusal(model: ModelProto) -> str | None:
    """What onnx.checker has against a model."""
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        return short(error)
    return None


def loads(content: bytes) -> bool:
    try:
        by_onnxruntime(content)
    except Exception:
        return False
    return True


def ifs(graph: GraphProto) -> int:
    inner = sum(ifs(a.g) for n in graph.node for a in n.attribute if a.HasField("g"))
    return inner + len([n for n in graph.node if n.op_type == "If"])


def changes(a: ModelProto, b: ModelProto) -> str:
    """What came and went, in short."""
    first, second = ([n.op_type for n in m.graph.node] for m in (a, b))
    if first != second:
        gone = [o for o in sorted(set(first)) if first.count(o) > second.count(o)]
        come = [o for o in sorted(set(second)) if second.count(o) > first.count(o)]
        if not gone and not come:
            return f"the order of {len(first)} nodes"
        return f"nodes: less {', '.join(gone) or 'none'}; more {', '.join(come) or 'none'}"
    for x, y in zip(a.graph.node, b.graph.node, strict=True):
        parts = [f.name for f in x.DESCRIPTOR.fields if getattr(x, f.name) != getattr(y, f.name)]
        if parts:
            return f"{', '.join(parts)} of {'a node' if parts == ['name'] else x.op_type}"
    parts = [
        f.name for f in a.graph.DESCRIPTOR.fields if getattr(a.graph, f.name) != getattr(b.graph, f.name)
    ]
    parts += [
        f.name for f in a.DESCRIPTOR.fields if f.name != "graph" and getattr(a, f.name) != getattr(b, f.name)
    ]
    return ", ".join(parts) or "bytes only"


def laid_out(rng: Rng, value: Any, turn: int) -> Any:
    """A copy, in the last turns with a memory layout of its own."""
    if not isinstance(value, np.ndarray) or turn < 8 or value.ndim == 0:
        return copied(value)
    if rng.random() < 0.5:
        return value.copy(order="F")
    wide = np.empty((*value.shape[:-1], 2 * value.shape[-1]), value.dtype)
    strided: Array = wide[..., ::2]
    strided[...] = value
    return strided
