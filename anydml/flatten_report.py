"""What `flatten` did: of each If, and of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from anydml.dataclass import asdict, dataclass, replace
from anydml.display import page, table, text
from anydml.errors import counted
from anydml.ir.graph import If, Node, TensorType
from anydml.onnx.conditions import Condition
from anydml.onnx.if_conversion.convert import Decision
from anydml.onnx.partial_eval.evaluator import FoldedIf
from anydml.onnx.protos import ModelProto
from anydml.onnx.rewrites.unroll import Unrolled
from anydml.onnx.serde.local_functions import called
from anydml.onnx.types import FileSymbols, from_proto, leaf, type_text
from anydml.onnx.verification import Verified

MAX_TOLD, MAX_NAME = 3, 40
"""Ifs and remedies of a verdict, and characters of a name in it."""


@dataclass(frozen=True)
class IfReport:
    """What became of one If, or of a loop that was unrolled.

    Attributes:
        path: the way through the branches to it, and its name.
        decision: `folded`, `merged`, `converted`, `guarded` or `kept`; of a loop, `unrolled`.
        because: why.
        extra_work: multiplications and additions that now run speculatively, about and at most.
        nodes: how many there are more than before, or fewer; those of Ifs in it are told with them.
        condition: of one that is kept: what it is computed from, as far back as four operators.
        remedies: of one that is kept: options of `anydml flatten` that may help.
    """

    path: str
    decision: str
    because: str
    extra_work: int = 0
    nodes: int = 0
    condition: str = ""
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Size:
    """What a model consists of. `work`: multiplications and additions of a run, about, once what is known is
    folded; of an If, those of its larger branch.
    """

    ifs: int
    nodes: int
    bytes: int
    work: int
    operators: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    """Types as in `float32[n,4]`, by name."""


@dataclass(frozen=True, repr=False)
class Report:
    """What `flatten` did.

    Attributes:
        ifs: what became of each If.
        before, after: what the model consisted of, and consists of.
        verified: on how many inputs both were run; None if they were not.
        unroll: iterations of the longest loop that is left and could be unrolled; 0 if there is none.
    """

    ifs: tuple[IfReport, ...]
    before: Size
    after: Size
    verified: Verified | None
    unroll: int = 0

    @property
    def left(self) -> int:
        """Ifs that are still there, in bodies of loops too."""
        return self.after.ifs

    @property
    def loops_left(self) -> int:
        """Loops and Scans that are still there, in branches too."""
        return sum(self.after.operators.get(name, 0) for name in ("Loop", "Scan"))

    @property
    def remains(self) -> str:
        """How many Ifs are left of how many, in words."""
        if self.before.ifs == 1:
            return "the If remains"
        return f"{self.left} of {self.before.ifs} Ifs {'remains' if self.left == 1 else 'remain'}"

    @property
    def verdict(self) -> str:
        """What is left, and what could be done about it, in lines of at most 80 characters."""
        total, loops = self.before.ifs, self.loops_left
        lines = []
        if not self.left and total:
            lines.append(f"no If remains of {total}" if total > 1 else "the If is gone")
        elif not total and not self.left:
            lines.append("the model has no If")
        elif self.left:
            kept = [one for one in self.ifs if one.decision == "kept"]
            kept.sort(key=lambda one: len(one.path))  # an outer If before those in it: its remedy helps more
            lines.append(f"{self.remains}:")
            lines += [_about(one) for one in kept[:MAX_TOLD]]
            if len(kept) > MAX_TOLD:
                lines.append(f"  and {len(kept) - MAX_TOLD} more")
            remedies = list(dict.fromkeys(r for one in kept for r in one.remedies))
            if remedies:
                lines += wrap("try " + ", or ".join(remedies[:MAX_TOLD]), 80, break_long_words=False)
        if loops:
            helps = f"; try --unroll {self.unroll}" if self.unroll else ", of no known count"
            lines.append(f"{counted(loops, 'loop')} {'remains' if loops == 1 else 'remain'}{helps}")
        if self.verified is not None and not self.verified.conclusive:
            open_inputs = {n: t for n, t in self.before.inputs.items() if n in self.after.inputs}
            lines += wrap(not_compared(self.verified, open_inputs), 80, break_long_words=False)
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return asdict(self)

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        nodes = f"{self.before.nodes:,} -> {counted(self.after.nodes, 'node')}"
        return f"<Report: {self.before.ifs} -> {counted(self.left, 'If')}, {nodes}>"

    def _repr_html_(self) -> str:
        rows = [(one.path, one.decision, one.because) for one in self.ifs]
        heads = "If", "what became of it", "why"
        return page(repr(self)[1:-1], table(heads, rows), text(self.verdict))


def path_to(node: Node | If) -> str:
    """How a report calls a node: the way through branches and bodies to it."""
    own = node.name or ("If" if isinstance(node, If) else str(node.op))
    return "/".join((*node.path, own))


def report_folded(folded: FoldedIf) -> IfReport:
    decision = "merged" if folded.taken is None else "folded"
    because = folded.because
    if folded.taken is not None:
        because = f"{'then' if folded.taken else 'else'}: {because}"
    gone = folded.node.branches if folded.taken is None else folded.node.branches[int(folded.taken) :][:1]
    saved = 1 + sum(len(list(b.walk())) for _, b in gone)
    return IfReport(path_to(folded.node), decision, because, nodes=-saved)


def report_decision(decision: Decision) -> IfReport:
    return IfReport(
        path_to(decision.node), decision.what, decision.because, decision.extra_work, decision.nodes
    )


def report_remaining(one: IfReport, condition: Condition, convert: str) -> IfReport:
    """What is said of an If that stays: what decides it, and what may help."""
    remedies = [f"--set {fix}" for fix in condition.fixes]
    for value in condition.sized:
        sizes = ",".join(str(n) if isinstance(n, int) else n.name if n else "?" for n in value.sizes or ())
        remedies.append(f"--shape {value.name}={sizes or '...'} (with numbers)")
    for value in condition.optional:
        type = leaf(value.type) if value.type is not None else TensorType("")
        sizes = ",".join(str(n) if isinstance(n, int) else "?" for n in type.sizes or ())
        remedies.append(f"--set {value.name}=null (never there)")
        remedies.append(f"--shape {value.name}={sizes or '...'} (always there)")
    if convert != "always" and "may differ in shape" not in one.because:
        remedies.append("--convert always")
    return replace(one, condition=condition.text, remedies=tuple(remedies))


def _about(one: IfReport) -> str:
    name = one.path if len(one.path) <= MAX_NAME else f"...{one.path[-MAX_NAME:]}"
    text = f"  {name} on {one.condition}" if one.condition else f"  {name}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def not_compared(verified: Verified, inputs: Mapping[str, str]) -> str:
    """What is said where no random input with elements was accepted, with the options that give sizes.

    inputs: types as in `float32[n,4]`, by name; those that have free sizes are told.
    """
    tried = counted(verified.refused + verified.agreed, "random input")
    which = f"the {verified.agreed} accepted have" if verified.agreed > 1 else "the one accepted has"
    found = f"{which} no elements" if verified.agreed else "none was accepted"
    said = f"nothing was compared: of {tried}, {found}"
    sizes = {name: type.partition("[")[2].removesuffix("]") for name, type in inputs.items()}
    free = [f"--shape {name}={n}" for name, n in sizes.items() if n and not n.replace(",", "").isdigit()]
    return f"{said}; give sizes that fit: {' '.join(free)} (with numbers)" if free else said


def size_of(proto: ModelProto, work: int) -> Size:
    operators = Counter(name for _, name in called(proto.graph))
    nodes = sum(operators.values())
    ends = [
        {v.name: type_text(from_proto(v.type, FileSymbols())) for v in values}
        for values in (proto.graph.input, proto.graph.output)
    ]
    listed = dict(sorted(operators.items()))
    return Size(operators["If"], nodes, proto.ByteSize(), work, listed, *ends)


def report_unrolled(unrolled: Unrolled) -> IfReport:
    inside = sum(1 for body in unrolled.node.bodies.values() for _ in body.walk(bodies=True))
    return IfReport(
        path_to(unrolled.node),
        "unrolled",
        ("at most " if unrolled.ifs else "") + counted(unrolled.count, "iteration"),
        nodes=(unrolled.count - 1) * inside - 1,
    )
