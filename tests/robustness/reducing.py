"""A smaller model that fails in the same way: `reduce_seed(seed)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, helper

from tests.robustness.differential import Checks, Finding
from tests.robustness.judging import lazily
from tests.robustness.oracles import Runner, attempt, by_onnxruntime, by_reference, needed, prune, size_of
from tests.robustness.processes import Limits, Worker
from tests.robustness.random_models import Case, random_case
from tests.robustness.running import LIMITS, alike, checker, keep, kept, outcome_of
from tests.robustness.values import Kind, kind_of

SMALLER = Limits(seconds=12, tasks=200)
"""After 12 seconds a smaller model hangs, too."""


class Trial:
    """Whether a case still fails; asked in a child, as it may crash."""

    def __init__(self, checks: Checks, kind: str, reason: str) -> None:
        self.checks, self.kind, self.reason = checks, kind, reason
        self.worker: Worker | None = None
        self.last: list[Finding] = []

    def fails(self, case: Case) -> bool:
        self.worker = self.worker or Worker(partial(checker, self.checks, None), SMALLER)
        outcome = outcome_of(self.worker.ask(case))
        if self.worker.worn:
            self.worker.stop()
            self.worker = None
        found = [f for f in outcome.findings if f.kind == self.kind and self._like(f.reason)]
        self.last = found or self.last
        return bool(found)

    def _like(self, reason: str) -> bool:
        """Values may be wrong in many ways, errors have to be the same."""
        if "wrong" not in self.kind:
            return alike(reason)[:50] == alike(self.reason)[:50]
        words = (": values: ", ": shape: ", ": dtype: ", "as constants", "(both oracles agree)")
        return all((w in reason) == (w in self.reason) for w in words)

    def close(self) -> None:
        if self.worker is not None:
            self.worker.stop()


def reduce_seed(seed: int | Path, checks: Checks, kind: str | None, folder: Path | None) -> int:
    """Prints the reduced model and what is wrong with it; 1 if it fails at all."""
    case = kept(seed) if isinstance(seed, Path) else random_case(seed)
    found = _first(case, checks, kind)
    if found is None:
        print(f"nothing is wrong with seed {seed}")
        return 0
    only = Checks(
        idempotent=(checks.idempotent and "idempotent" in found.kind) or "again" in found.kind,
        flatten="flatten" in found.kind or found.kind in {"crash", "hang"},
        constants="constants" in found.reason,
    )
    trial = Trial(only, found.kind, found.reason)
    try:
        case = reduce_case(case, trial)
    finally:
        trial.close()
    findings = trial.last or [found]
    print(*map(str, findings), onnx.printer.to_text(case.model), sep="\n")
    for feeds in case.feeds:
        print(*(f"  {name}: {told(value)}" for name, value in feeds.items()), sep="\n")
    if folder is not None:
        keep(case, findings, folder)
    return 1


def told(value: Any) -> str:
    """A value in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(told, value))}]"
    content = f" {value.tolist()}" if value.size <= 24 else ""
    return f"{value.dtype}{list(value.shape)}{content}"


def _first(case: Case, checks: Checks, kind: str | None) -> Finding | None:
    worker = Worker(partial(checker, checks, None), LIMITS)
    try:
        outcome = outcome_of(worker.ask(case))
        return next((f for f in outcome.findings if kind in {None, f.kind}), None)
    finally:
        worker.stop()


def reduce_case(case: Case, trial: Trial) -> Case:
    """Takes away what can go, again and again, as long as the case fails."""
    progress = True
    while progress:
        progress = False
        for candidate in candidates(case):
            if worth(candidate, case) and trial.fails(candidate):
                case, progress = candidate, True
                break
    return case


def worth(candidate: Case, case: Case) -> bool:
    """Whether it is smaller, and a model."""
    try:
        onnx.checker.check_model(candidate.model)
    except Exception:
        if case.valid:
            return False
    return measure(candidate) < measure(case)


def measure(case: Case) -> tuple[int, ...]:
    graph = case.model.graph
    text = len(case.model.SerializeToString())
    return size_of(case.model) * 3 + len(graph.output) + len(graph.input) + len(case.feeds), text


def candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, the boldest first."""
    for k in range(len(case.feeds)):
        if len(case.feeds) > 1:
            yield replace(case, feeds=[case.feeds[k]], tolerances=[case.tolerances[k]])
    for keeping in range(len(case.model.graph.output)):
        yield _outputs(case, [keeping])
    for leaving in range(len(case.model.graph.output)):
        yield _outputs(case, [i for i in range(len(case.model.graph.output)) if i != leaving])
    yield from _cuts(case)
    count = sum(1 for _ in _nodes(case.model.graph))
    for number in range(count):
        yield from _inlined(case, number)
    for number in range(count):
        yield from _bypassed(case, number)


def _copy(case: Case) -> Case:
    model = ModelProto()
    model.CopyFrom(case.model)
    return replace(case, model=model, feeds=[dict(f) for f in case.feeds])


def _tidied(case: Case) -> Case:
    prune(case.model.graph)
    read = {n for node in case.model.graph.node for n in needed(node)}
    read |= {o.name for o in case.model.graph.output}
    inputs = [i for i in case.model.graph.input if i.name in read]
    del case.model.graph.input[:]
    case.model.graph.input.extend(inputs)
    del case.model.graph.value_info[:]
    names = {i.name for i in inputs}
    return replace(case, feeds=[{n: v for n, v in f.items() if n in names} for f in case.feeds])


def _outputs(case: Case, kept: list[int]) -> Case:
    new = _copy(case)
    outputs = [new.model.graph.output[i] for i in kept]
    del new.model.graph.output[:]
    new.model.graph.output.extend(outputs)
    new.tolerances = [[t[i] for i in kept] for t in new.tolerances]
    return _tidied(new)


def _cuts(case: Case) -> Iterator[Case]:
    """What a node makes becomes inputs of the model, with the contents that it had."""
    contents = _contents(case)
    for number, node in reversed(list(enumerate(case.model.graph.node))):
        values = {o: contents.get(o) for o in node.output if o}
        if node.op_type == "Constant" or None in values.values():
            continue
        new = _copy(case)
        del new.model.graph.node[number]
        for name, by_feed in values.items():
            assert by_feed is not None
            try:
                kind = kind_of(by_feed[0])
            except (KeyError, IndexError):
                break
            sizes: list[int | str | None] = [None] * by_feed[0].ndim if kind.tensor else []
            ranks = {v.ndim for v in by_feed} if kind.tensor else {0}
            if len(ranks) > 1:
                break
            new.model.graph.input.append(helper.make_value_info(name, _type(kind, sizes)))
            for feeds, value in zip(new.feeds, by_feed, strict=True):
                feeds[name] = value
        else:
            yield _tidied(new)


def _type(kind: Kind, sizes: list[int | str | None]) -> Any:
    return kind.proto(sizes) if kind.tensor else kind.proto()


def _contents(case: Case) -> dict[str, list[Any]]:
    """What every value of the main graph is, by feed, where an oracle tells."""
    names = [o for n in case.model.graph.node for o in n.output if o]
    model = ModelProto()
    model.CopyFrom(case.model)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    makers: list[Callable[[], Runner]] = [
        lambda: by_onnxruntime(model.SerializeToString()),
        lambda: by_reference(model),
    ]
    for make in makers:
        runner = lazily(make)()
        results = [attempt(runner, f) for f in case.feeds]
        if all(r is not None for r in results):
            return {n: [r[i] for r in results if r is not None] for i, n in enumerate(names)}
    return {}


def _nodes(graph: GraphProto) -> Iterator[tuple[GraphProto, NodeProto]]:
    for node in graph.node:
        yield graph, node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _nth(case: Case, number: int) -> tuple[Case, GraphProto, NodeProto]:
    new = _copy(case)
    graph, node = next(itertools.islice(_nodes(new.model.graph), number, None))
    return new, graph, node


def _inlined(case: Case, number: int) -> Iterator[Case]:
    """An If becomes one of its branches."""
    _, _, node = _nth(case, number)
    if node.op_type != "If":
        return
    for way in range(2):
        new, graph, node = _nth(case, number)
        branch = node.attribute[way].g
        at = list(graph.node).index(node)
        rest = list(graph.node)[at + 1 :]
        ends = [
            helper.make_node("Identity", [inner.name], [outer])
            for inner, outer in zip(branch.output, node.output, strict=True)
        ]
        taken = [*branch.node]
        graph.initializer.extend(branch.initializer)
        before = list(graph.node)[:at]
        fresh = [NodeProto.FromString(n.SerializeToString()) for n in [*before, *taken, *ends, *rest]]
        del graph.node[:]
        graph.node.extend(fresh)
        yield _tidied(new)


def _bypassed(case: Case, number: int) -> Iterator[Case]:
    """Whoever reads a node's first output reads one of its inputs instead."""
    _, _, node = _nth(case, number)
    for i in range(len(node.input)):
        new, graph, node = _nth(case, number)
        if not node.input[i] or not node.output or not node.output[0]:
            continue
        _rename(graph, node.output[0], node.input[i])
        yield _tidied(new)


def _rename(graph: GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        node.input[:] = [new if i == old else i for i in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename(attribute.g, old, new)
    for output in graph.output:
        if output.name == old:
            graph.node.append(helper.make_node("Identity", [new], [f"{old}_same"]))
            output.name = f"{old}_same"
