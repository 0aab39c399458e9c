"""What `flatten` did: of each If, and of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from onnx import ModelProto

from anydml.ir.graph import If, Node
from anydml.onnx.if_conversion.convert import Decision
from anydml.onnx.partial_eval.evaluator import FoldedIf
from anydml.onnx.rewrites.unroll import Unrolled
from anydml.onnx.serde.local_functions import called
from anydml.onnx.verification import Verified


@dataclass(frozen=True)
class IfReport:
    """What became of one If, or of a loop that was unrolled.

    Attributes:
        path: the way through the branches to it, and its name.
        decision: `folded`, `merged`, `converted`, `guarded` or `kept`; of a loop, `unrolled`.
        because: why.
        extra_work: multiplications and additions that now run speculatively, about and at most.
        nodes: how many there are more than before, or fewer; those of Ifs in it are told with them.
    """

    path: str
    decision: str
    because: str
    extra_work: int = 0
    nodes: int = 0


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


@dataclass(frozen=True)
class Report:
    """What `flatten` did."""

    ifs: tuple[IfReport, ...]
    before: Size
    after: Size
    verified: Verified | None

    @property
    def left(self) -> int:
        """Ifs that are still there, in bodies of loops too."""
        return self.after.ifs

    @property
    def loops_left(self) -> int:
        """Loops and Scans that are still there, in branches too."""
        return sum(self.after.operators.get(name, 0) for name in ("Loop", "Scan"))

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return asdict(self)


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


def size_of(proto: ModelProto, work: int) -> Size:
    operators = Counter(name for _, name in called(proto.graph))
    nodes = sum(operators.values())
    return Size(operators["If"], nodes, proto.ByteSize(), work, dict(sorted(operators.items())))


def report_unrolled(unrolled: Unrolled) -> IfReport:
    inside = sum(1 for body in unrolled.node.bodies.values() for _ in body.walk(bodies=True))
    times = f"{unrolled.count} iterations" if unrolled.count > 1 else "one iteration"
    return IfReport(path_to(unrolled.node), "unrolled", times, nodes=(unrolled.count - 1) * inside - 1)
