"""What is in an ONNX model, and what its control flow is made of.

report = inspect("model.onnx")
report.ifs[0].condition    ->    Equal(sr, 16000)
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto

from anydml.display import page, signature, table
from anydml.errors import AnyDMLError, translate_memory_error
from anydml.flatten_report import IfReport, path_to
from anydml.flattening import flatten
from anydml.ir.graph import Constant, Graph, If, Node, Value
from anydml.ir.names import Names
from anydml.onnx.conditions import Condition, conditions, origin
from anydml.onnx.if_conversion.cost import graph_flops
from anydml.onnx.partial_eval.annotate import read_typed
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
        flatten: what `flatten` would do with an If, and why.
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

    def as_dict(self) -> dict[str, Any]:
        """In types that JSON has."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<Inspection: {self.nodes:,} nodes, {self.ifs} Ifs, {signature(self.inputs, self.outputs)}>"

    def _repr_html_(self) -> str:
        opsets = ", ".join(f"{domain} {version}" for domain, version in self.opsets.items())
        rows = [("input", f"{n} {t}") for n, t in self.inputs.items()]
        rows += [("output", f"{n} {t}") for n, t in self.outputs.items()]
        rows += [("opset", opsets), ("weights", f"{self.weights:,} bytes")]
        rows += [("operators", ", ".join(f"{count} {name}" for name, count in self.operators.items()))]
        rows += [(f"{count} Ifs decided by", told) for told, count in self.decided.items()]
        return page(f"{self.nodes:,} nodes, {self.ifs} Ifs", table(("", ""), rows))


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
        counts = f"{sum(self.operators.values()):,} nodes, {self.operators['If']} Ifs"
        facts = f"{counts}, opset {opsets}, {self.proto.ByteSize():,} bytes"
        data = json.dumps({"title": title, "facts": facts, "graph": self.inspector.drawing(self.graph, {})})
        template = (Path(__file__).parent / "inspect.html").read_text(encoding="utf-8")
        embedded = data.replace("<", "\\u003c")  # or a name could end the script
        return template.replace("TITLE", html.escape(title), 1).replace("DATA", embedded, 1)


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
        self.names = Names()  # two branches may call their values the same

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

    def drawing(self, graph: Graph, around: Mapping[Value, Node]) -> dict[str, Any]:
        """A graph as the page draws it."""
        makers = {**around, **{v: n for n in graph.nodes if isinstance(n, Node) for v in n.writes}}
        return {
            "inputs": [self._ends(v) for v in graph.inputs],
            "outputs": [self._ends(v) for v in graph.outputs],
            "count": len(list(graph.walk())),
            "nodes": [self._draw_node(n, graph, makers) for n in graph.nodes],
        }

    def _draw_node(self, node: Node | If, graph: Graph, makers: Mapping[Value, Node]) -> dict[str, Any]:
        drawn: dict[str, Any] = {
            "op": "If" if isinstance(node, If) else str(node.op),
            "name": node.name,
            "way": "/".join(node.path),
            "reads": [self.names.of(v) for v in node.reads],
            "outputs": [self._ends(v) for v in node.writes],
            "attributes": {},
            "branches": {},
        }
        if isinstance(node, If):
            drawn["inputs"] = [self._ends(node.condition)]
            drawn["branches"] = {word: self.drawing(b, makers) for word, b in node.branches}
            drawn["condition"] = origin(node.condition, makers, graph.constants)
            drawn["flatten"] = self._fate(node)
            return drawn
        drawn["inputs"] = [self._input_end(v, graph.constants) for v in node.inputs if v is not None]
        drawn["attributes"] = {name: _attribute_text(a) for name, a in node.attributes.items()}
        drawn["branches"] = {name: self.drawing(b.standalone, {}) for name, b in node.bodies.items()}
        return drawn

    def _ends(self, value: Value) -> list[str]:
        return [self.names.of(value), type_text(value.type)]

    def _input_end(self, value: Value, constants: Mapping[Value, Constant]) -> list[str]:
        """Name and type of an input; of a small constant, its content."""
        name, type = self._ends(value)
        content = constants[value].content if value in constants else None
        if isinstance(content, np.ndarray) and content.size <= 8:
            type = f"{type} = {content.tolist()}"
        return [name, type]

    def _fate(self, node: If) -> str:
        one = self.decisions.get(path_to(node))
        return "not looked at: the branch around it goes" if one is None else f"{one.decision}: {one.because}"

    def _if(self, node: If, graph: Graph, makers: Mapping[Value, Node]) -> Control:
        branches = {word: self._branch(b, makers) for word, b in node.branches}
        then_branch, else_branch = branches.values()
        known = all("?" not in t and "unknown" not in t and "..." not in t for t in then_branch.returns)
        same = known and _without_names(then_branch.returns) == _without_names(else_branch.returns)
        condition = origin(node.condition, makers, graph.constants)
        return Control(node.name or "If", "If", condition, branches, same, self._fate(node))

    def _loop(self, node: Node) -> Control:
        branches = {name: self._branch(body, {}) for name, body in node.bodies.items()}
        return Control(node.name or str(node.op), str(node.op), "", branches, True, "")

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


def _attribute_text(attribute: AttributeProto) -> str:
    content = onnx.helper.get_attribute_value(attribute)
    if isinstance(content, onnx.TensorProto):
        return f"{DTYPES.get(content.data_type, 'unknown')}{list(content.dims)}"
    text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _without_names(values: tuple[str, ...]) -> list[str]:
    return [v.rsplit(": ", 1)[1] for v in values]
