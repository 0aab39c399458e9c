"""What is in an ONNX model, and what its control flow is made of.

report = inspect("model.onnx")
report.ifs[0].condition    ->    Equal(sr, 16000)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from anydml.dataclass import asdict, dataclass
from anydml.display import page, signature, table
from anydml.drawing import Drawing, written
from anydml.errors import AnyDMLError, counted, translate_memory_error
from anydml.flatten_report import IfReport, path_to
from anydml.flattening import flatten
from anydml.ir.graph import Graph, If, Node, Value
from anydml.onnx.conditions import Condition, conditions, origin
from anydml.onnx.if_conversion.cost import graph_flops
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.protos import GraphProto
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.serde.local_functions import called
from anydml.onnx.serde.parse import ModelSource
from anydml.onnx.serde.tensors import byte_count
from anydml.onnx.subgraphs import all_tensors
from anydml.onnx.types import DTYPES, type_text


@dataclass(frozen=True)
class Branch:
    """One branch of an If: what it uses from outside and returns, and how much is in it."""

    captures: tuple[str, ...]
    returns: tuple[str, ...]
    nodes: int
    work: int
    """Multiplications and additions, about; sizes that are not known count for 16."""
    inside: tuple[Control, ...]


@dataclass(frozen=True)
class Control:
    """An If, or a Loop or Scan or SequenceMap, and what is in it.

    Attributes:
        name: of the node.
        kind: its operator.
        condition: of an If: what it is computed from, as far back as four operators.
        branches: `then` and `else` of an If, `body` of the others.
        same_types: whether both branches of an If return the same types and sizes.
        flatten: what `flatten` would do with it, and why; nothing of a loop that it leaves.
    """

    name: str
    kind: str
    condition: str
    branches: Mapping[str, Branch]
    same_types: bool
    flatten: str


@dataclass(frozen=True, repr=False)
class Inspection:
    """What a model consists of. Types are written as in `float32[n,4]`."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    opsets: Mapping[str, int]
    producer: str
    nodes: int
    ifs: int
    bytes: int
    weights: int
    """Bytes of all constants, those in other files included."""
    operators: Mapping[str, int]
    """Operators by name, the most frequent first, those of branches and bodies too."""
    decided: Mapping[str, int]
    """Of the Ifs, how many are decided by what: `the content of sr`, `sizes of x`, `the data of x`."""
    control: tuple[Control, ...]

    @property
    def flattens(self) -> str:
        """How much of its control flow `flatten` removes by itself: `all`, `some` or `none`."""
        stays = [not c.flatten or c.flatten.startswith("kept:") for c in _all(self.control)]
        return "none" if all(stays) else "some" if any(stays) else "all"

    def as_dict(self) -> dict[str, Any]:
        """In types that JSON has."""
        return asdict(self)

    @property
    def _counts(self) -> str:
        return f"{counted(self.nodes, 'node')}, {counted(self.ifs, 'If')}"

    def __repr__(self) -> str:
        return f"<Inspection: {self._counts}, {signature(self.inputs, self.outputs)}>"

    def _repr_html_(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        rows = [("input", f"{n} {t}") for n, t in self.inputs.items()]
        rows += [("output", f"{n} {t}") for n, t in self.outputs.items()]
        rows += [("opset", opsets), ("weights", f"{self.weights:,} bytes")]
        rows += [("operators", ", ".join(f"{count} {name}" for name, count in self.operators.items()))]
        rows += [(f"{counted(count, 'If')} decided by", told) for told, count in self.decided.items()]
        return page(self._counts, table(("", ""), rows))


@translate_memory_error
def inspect(model: ModelSource) -> Inspection:
    """Look at a model without running it; local functions are inlined.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.

    Raises:
        InvalidModel, Unsupported, OSError: as `load` does.
    """
    return _Looked(model).inspection()


def drawn(model: ModelSource, title: str) -> tuple[Inspection, str]:
    """What `inspect` says, and the graph as one HTML page without network: branches open and close.

    Raises:
        InvalidModel, Unsupported, OSError: as `load` does.
    """
    looked = _Looked(model)
    return looked.inspection(), looked.page(title)


class _Looked:
    """A model that was read, typed and tried to flatten, once for all that is told of it."""

    def __init__(self, model: ModelSource) -> None:
        self.proto, _, _, self.read, self.graph = read_typed(model, OnnxRuntime())
        self.inspector = _Inspector(_decisions(model))
        self.operators = Counter(_operator_names(self.proto.graph))
        for function in self.proto.functions:
            self.operators.update(_operator_names(GraphProto(node=function.node)))
        self.opsets = {domain or "ai.onnx": version for domain, version in self.read.opsets.items()}

    def inspection(self) -> Inspection:
        proto, outputs = self.proto, zip(self.read.outputs, self.graph.outputs, strict=True)
        return Inspection(
            {a.name: type_text(a.type) for a in self.read.inputs},
            {a.name: type_text(v.type or a.type) for a, v in outputs},
            self.opsets,
            f"{proto.producer_name} {proto.producer_version}".strip(),
            sum(self.operators.values()),
            self.operators["If"],
            proto.ByteSize(),
            sum(byte_count(t) or 0 for t in all_tensors(proto.graph) if t.data_type in DTYPES),
            dict(self.operators.most_common()),
            dict(Counter(map(_decided, conditions(self.graph).values())).most_common()),
            self.inspector.controls(self.graph, {}),
        )

    def page(self, title: str) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        nodes, ifs = sum(self.operators.values()), self.operators["If"]
        facts = (
            f"{counted(nodes, 'node')}, {counted(ifs, 'If')}, opset {opsets}, {self.proto.ByteSize():,} bytes"
        )
        drawing = Drawing(self.inspector.fate)
        return written({"title": title, "facts": facts, "graph": drawing.graph(self.graph, {})})


def _all(controls: Iterable[Control]) -> Iterator[Control]:
    """With those inside."""
    for control in controls:
        yield control
        for branch in control.branches.values():
            yield from _all(branch.inside)


def _decided(condition: Condition) -> str:
    """What decides an If, in words."""
    fixes = [fix.partition("=")[0] for fix in condition.fixes]
    sized = [value.name for value in condition.sized]
    parts = [
        f"{word} {', '.join(names)}"
        for word, names in (("the content of", fixes), ("sizes of", sized), ("the data of", condition.data))
        if names
    ]
    parts += ["what a loop carries"] if condition.carried else []
    return " and ".join(parts) or "constants"


def _operator_names(graph: GraphProto) -> Iterator[str]:
    return (f"{domain}.{name}" if domain else name for domain, name in called(graph))


def _decisions(model: ModelSource) -> dict[str, IfReport]:
    """What `flatten` would do, by path."""
    try:
        _, report = flatten(model, verify=False)
    except AnyDMLError:
        return {}
    return {one.path: one for one in report.ifs}


class _Inspector:
    def __init__(self, decisions: Mapping[str, IfReport]) -> None:
        self.decisions = decisions

    def controls(self, graph: Graph, around: Mapping[Value, Node]) -> tuple[Control, ...]:
        """The control flow of a graph; `around`: what the graphs around it compute."""
        makers = {**around, **{v: n for n in graph.nodes if isinstance(n, Node) for v in n.writes}}
        found = []
        for node in graph.nodes:
            if isinstance(node, If):
                found.append(self._if(node, graph, makers))
            elif node.bodies:
                found.append(self._loop(node))
        return tuple(found)

    def fate(self, node: If) -> str:
        one = self.decisions.get(path_to(node))
        return "not looked at: the branch around it goes" if one is None else f"{one.decision}: {one.because}"

    def _if(self, node: If, graph: Graph, makers: Mapping[Value, Node]) -> Control:
        branches = {word: self._branch(b, makers) for word, b in node.branches}
        then_branch, else_branch = branches.values()
        known = all("?" not in t and "unknown" not in t and "..." not in t for t in then_branch.returns)
        same = known and _without_names(then_branch.returns) == _without_names(else_branch.returns)
        condition = origin(node.condition, makers, graph.constants)
        return Control(node.name or "If", "If", condition, branches, same, self.fate(node))

    def _loop(self, node: Node) -> Control:
        branches = {name: self._branch(body, {}) for name, body in node.bodies.items()}
        one = self.decisions.get(path_to(node))
        fate = "" if one is None else f"{one.decision}: {one.because}"
        return Control(node.name or str(node.op), str(node.op), "", branches, True, fate)

    def _branch(self, graph: Graph, makers: Mapping[Value, Node]) -> Branch:
        return Branch(
            tuple(_describe(v) for v in graph.inputs),
            tuple(_describe(v) for v in graph.outputs),
            len(list(graph.walk())),
            graph_flops(graph),
            self.controls(graph, makers),
        )


def _describe(value: Value) -> str:
    return f"{value.name}: {type_text(value.type)}"


def _without_names(values: tuple[str, ...]) -> list[str]:
    return [v.rsplit(": ", 1)[1] for v in values]
