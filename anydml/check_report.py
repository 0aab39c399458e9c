"""What `check_model` found: of each node, and of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Literal

from anydml.cached import cached_property
from anydml.dataclass import asdict, dataclass, field
from anydml.display import page, table, text
from anydml.errors import counted
from anydml.ir.graph import OnnxOp
from anydml.onnx.targets.tables import registered, registrations

Where = Literal["graph", "device", "cpu", "refused", "unknown"]
CONTROL_FLOW = frozenset(["If", "Loop", "Scan", "SequenceMap"])


@dataclass(frozen=True)
class NodeCheck:
    """Where a node runs.

    Attributes:
        path: the way through branches and bodies to it, and its name.
        operator: with its domain, if it is not ONNX's own.
        since: the opset of its revision.
        where: `graph`: in a compiled graph of the device; `device`: there, but by itself; `cpu`: on the
            processor instead; `refused`: the runtime does not take the model; `unknown`: nobody says.
        kind: what kind of reason there is, in a word: `operator`, `revision`, `type`, `constants`, `sizes`,
            `level`, `control flow`; nothing where there is none.
        because: the reason.
        becomes: DirectML operators that it may become.
    """

    path: str
    operator: str
    since: int
    where: Where
    kind: str = ""
    because: str = ""
    becomes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class CheckReport:
    """What a runtime takes of a model.

    Attributes:
        target, name: the runtime.
        level: DirectML's feature level; nothing of others.
        nodes: all of them; a Constant is a weight, and none.
        source: what it was read from.
        flattening: options with which `anydml flatten` makes control flow less; None where it cannot.
        open_inputs: sizes of the inputs that have free ones, as in `n,3`.
    """

    target: str
    name: str
    nodes: tuple[NodeCheck, ...]
    opset: int
    source: str
    level: str = ""
    flattening: tuple[str, ...] | None = None
    open_inputs: Mapping[str, str] = field(default_factory=dict)

    def count(self, *where: Where) -> int:
        """How many nodes run there."""
        return sum(node.where in where for node in self.nodes)

    @property
    def ok(self) -> bool:
        """Whether the runtime takes every node."""
        return self.count("graph", "device") == len(self.nodes)

    @property
    def control_flow(self) -> int:
        """Ifs, Loops and Scans."""
        return sum(node.operator in CONTROL_FLOW for node in self.nodes)

    @property
    def remedy(self) -> str:
        """The one command that repairs most; nothing where none would."""
        found = Counter(node.kind for node in self.nodes if node.kind)
        older = f"--opset {self._lower}" if self._lower < self.opset else ""
        if found["control flow"] and self.flattening is not None:
            return " ".join(["anydml flatten MODEL FLAT", *self.flattening, *([older] if older else [])])
        if found["revision"] and older:
            return f"anydml flatten MODEL FLAT {older}"
        if found["sizes"] + found["constants"] and self.open_inputs:
            shapes = " ".join(f"--shape {name}={sizes}" for name, sizes in self.open_inputs.items())
            return f"anydml check MODEL {shapes} (numbers for sizes that never change)"
        return ""

    @cached_property
    def _lower(self) -> int:
        """The newest opset of which the target has the revisions of all operators here that it has at all."""
        if self.target != "directml":
            return self.opset
        best, most = self.opset, -1
        for opset in range(self.opset, 12, -1):
            names = Counter(n.operator for n in self.nodes if n.operator in registrations())
            taken = sum(c for name, c in names.items() if registered(OnnxOp("", name, opset)) is not None)
            if taken > most:
                best, most = opset, taken
        return best

    @property
    def summary(self) -> str:
        """How much of the model runs there, in lines of at most 80 characters."""
        flow = self.control_flow
        words = sorted({node.operator for node in self.nodes} & CONTROL_FLOW)
        in_the_way = any(node.kind == "control flow" for node in self.nodes)
        stays = ", which `anydml flatten` does not remove" if in_the_way and self.flattening is None else ""
        lines = [f"control flow: {flow} ({', '.join(words)}){stays}" if flow else "control flow: none"]
        nodes = f"{self.count('graph', 'device')} of {counted(len(self.nodes), 'node')} (without Constants)"
        if self.level:
            lines.append(f"{nodes} on DirectML {self.level}, {self.count('graph')} in a compiled graph")
        else:
            lines.append(f"{nodes} taken by {self.name}")
        told: tuple[tuple[Where, str], ...] = (
            ("cpu", "on the processor instead"),
            ("refused", "refused, and with that the model"),
            ("unknown", "of which nothing is known"),
        )
        lines += [f"{count} {words}" for where, words in told if (count := self.count(where))]
        return "\n".join(part for line in lines for part in wrap(line, 80, break_long_words=False))

    @property
    def verdict(self) -> str:
        """The summary, and what to do next, in lines of at most 80 characters."""
        following = wrap(f"next: {self.remedy}", 80, break_long_words=False) if self.remedy else []
        return "\n".join([self.summary, *following])

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return {**asdict(self), "verdict": self.verdict, "remedy": self.remedy}

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        taken = self.count("graph", "device")
        return f"<CheckReport: {self.target} takes {taken:,} of {counted(len(self.nodes), 'node')}>"

    def _repr_html_(self) -> str:
        rows = [(n.operator, count, n.where, n.because) for n, count in kinds(self)]
        heads = "operator", "nodes", "where", "why"
        return page(repr(self)[1:-1], table(heads, rows), text(self.verdict))


def kinds(report: CheckReport) -> Sequence[tuple[NodeCheck, int]]:
    """One node of each operator and reason, and how many there are like it; the most frequent first."""
    counts = Counter((n.operator, n.since, n.where, n.kind, n.because, n.becomes) for n in report.nodes)
    firsts = {(n.operator, n.since, n.where, n.kind, n.because, n.becomes): n for n in reversed(report.nodes)}
    order = {"refused": 0, "cpu": 1, "unknown": 2, "device": 3, "graph": 4}
    pairs = ((firsts[k], count) for k, count in counts.items())
    return sorted(pairs, key=lambda pair: (order[pair[0].where], -pair[1], pair[0].operator))
