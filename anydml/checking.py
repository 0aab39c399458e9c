"""Which nodes of a model another runtime takes, and what to do about the rest.

report = check_model("model.onnx", target="directml:6_2")
print(report.verdict)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from textwrap import wrap
from typing import Any, Literal

from anydml.display import page, table, text
from anydml.errors import InvalidInput, Problem, counted, nearest, translate_memory_error
from anydml.flatten_report import path_to
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.onnx.input_shapes import Shapes, check_request
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.schema import form_of, schema_of
from anydml.onnx.serde.deserialize import read as read_model
from anydml.onnx.serde.parse import ModelSource
from anydml.onnx.targets.tables import NAMES, Registration, registrations, source, supported
from anydml.onnx.types import onnx_name
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import FeatureLevel, TensorDataType

Where = Literal["graph", "device", "cpu", "refused", "unknown"]
LEAST_LEVEL = FeatureLevel.FL_5_0
"""What onnxruntime's DirectML provider asks of a device."""
CONTROL_FLOW = frozenset(["If", "Loop", "Scan", "SequenceMap"])
ON_HOST = frozenset(["Constant", "Shape", "Size", "Identity"])
"""What costs nothing wherever it runs: a constant, or a few integers on the processor."""


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
    """What a runtime takes of a model. `source`: what that was read from."""

    target: str
    name: str
    nodes: tuple[NodeCheck, ...]
    opset: int
    source: str

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
        """The one command that repairs most."""
        counts = Counter(node.kind for node in self.nodes if node.kind)
        control = [node for node in self.nodes if node.operator in CONTROL_FLOW]
        if control:
            return "anydml flatten MODEL FLAT" if self.opset <= self._lower else self._lowered
        if counts["revision"] and self._lower < self.opset:
            return self._lowered
        if counts["sizes"] + counts["constants"]:
            return "anydml check MODEL --shape NAME=N,N,... (sizes that never change)"
        return ""

    @cached_property
    def _lower(self) -> int:
        """The newest opset of which the target has the revisions of all operators here that it has at all."""
        if self.target != "directml":
            return self.opset
        best, most = self.opset, -1
        for opset in range(self.opset, 12, -1):
            names = Counter(n.operator for n in self.nodes if n.operator in registrations())
            taken = sum(c for name, c in names.items() if _registered(OnnxOp("", name, opset)) is not None)
            if taken > most:
                best, most = opset, taken
        return best

    @property
    def _lowered(self) -> str:
        return f"anydml flatten MODEL FLAT --opset {self._lower}"

    @property
    def verdict(self) -> str:
        """How much of the model runs there, and what to do next, in lines of at most 80 characters."""
        total, lines = len(self.nodes), []
        flow = self.control_flow
        words = sorted({node.operator for node in self.nodes} & CONTROL_FLOW)
        lines.append(f"control flow: {flow} ({', '.join(words)})" if flow else "control flow: none")
        if self.target == "directml":
            lines.append(
                f"{self.count('graph', 'device')} of {total} nodes run on DirectML, "
                f"{self.count('graph')} of them in a compiled graph"
            )
        else:
            lines.append(f"{self.count('graph', 'device')} of {total} nodes are taken by {self.name}")
        if cpu := self.count("cpu"):
            lines.append(f"{cpu} run on the processor instead")
        if refused := self.count("refused"):
            lines.append(f"{refused} are refused, and with them the model")
        if unknown := self.count("unknown"):
            lines.append(f"of {unknown} nothing is known")
        if self.remedy:
            lines.append(f"next: {self.remedy}")
        return "\n".join(part for line in lines for part in wrap(line, 80, break_long_words=False))

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


@translate_memory_error
def check_model(
    model: ModelSource,
    target: str = "directml:5_0",
    *,
    fixed: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
) -> CheckReport:
    """Which nodes another runtime takes, by the tables of its makers: nothing is run.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        target: `directml`, `directml:LEVEL` (5_0 or more), `tensorrt`, `openvino`, `qnn`, `coreml`, `webnn`.
        fixed: contents of inputs, by name, to see what fixing them would mend.
        shapes: sizes of inputs, by name.

    Raises:
        InvalidInput: no such target or level; an unknown input, a value or a shape that does not fit it.
        InvalidModel, Unsupported, OSError: as `load` does.
    """
    name, level = _target(target)
    read = read_model(model)
    contents, types = check_request(read, fixed or {}, shapes or {}, {}, "never")
    provider = OnnxRuntime()
    graph = read.graph
    if contents or shapes:
        graph = specialize(graph, types, contents, read.opsets, provider, deep=True).graph
    else:
        graph = annotate_types(graph, read.opsets, provider, read.declared)
    opset = read.opsets.get("", 1)
    flow = {id(g) for g in graph.graphs() if _has_control_flow(g)}
    nodes = []
    for within, constants in _with_constants(graph, {}):
        for node in within.nodes:
            if name == "directml":
                nodes.append(_on_directml(node, constants, level, id(within) in flow, opset))
            else:
                nodes.append(_elsewhere(node, name, opset))
    return CheckReport(name, NAMES[name], tuple(nodes), opset, source(name))


def _target(target: str) -> tuple[str, FeatureLevel]:
    name, _, told = target.partition(":")
    if name not in NAMES:
        message = f"expected {' | '.join(NAMES)}, but got {name!r}"
        raise InvalidInput(Problem("target", message, nearest(name, NAMES)))
    levels = {level.label: level for level in FeatureLevel if level >= LEAST_LEVEL}
    if told and name != "directml":
        raise InvalidInput(Problem("target", f"only DirectML has feature levels, but got {target!r}"))
    if told and told not in levels:
        message = f"expected {' | '.join(levels)}, but got {told!r}"
        known = told in {level.label for level in FeatureLevel}
        hint = f"onnxruntime's provider asks for {LEAST_LEVEL.label} at least" if known else ""
        raise InvalidInput(Problem("target", message, hint))
    return name, levels[told or LEAST_LEVEL.label]


# ---- graphs ------------------------------------------------------------------------------------------


def _with_constants(
    graph: Graph, outer: Mapping[Value, Constant]
) -> Iterator[tuple[Graph, Mapping[Value, Constant]]]:
    constants = {**outer, **graph.constants}
    yield graph, constants
    for node in graph.nodes:
        for inner in node.subgraphs:
            yield from _with_constants(inner, constants)


def _has_control_flow(graph: Graph) -> bool:
    return any(isinstance(n, If) or n.bodies for n in graph.nodes)


# ---- DirectML ----------------------------------------------------------------------------------------


def _registered(op: OnnxOp) -> Registration | None:
    """The registration of exactly the revision that an operator has at an opset."""
    form = form_of(op)
    rows = registrations().get(str(op), ())
    return next((r for r in rows if form is None or r.since == form.since), None)


def _on_directml(
    node: Node | If,
    constants: Mapping[Value, Constant],
    level: FeatureLevel,
    beside_control_flow: bool,
    opset: int,
) -> NodeCheck:
    op = node.op if isinstance(node, Node) else OnnxOp("", "If", opset)
    form = form_of(op)
    since = op.version if form is None else form.since
    path, name = path_to(node), str(op)

    def at(where: Where, kind: str = "", because: str = "", becomes: tuple[str, ...] = ()) -> NodeCheck:
        return NodeCheck(path, name, since, where, kind, because, becomes)

    if isinstance(node, If) or node.bodies:
        because = "the processor runs it, and nothing beside it is compiled as a graph"
        return at("cpu", "control flow", because)
    if name == "Constant":
        return at("graph")
    rows = registrations().get(name)
    if not rows:
        return at("cpu", "operator", "DirectML's provider does not have it")
    row = _registered(op)
    if row is None:
        listed = ", ".join(str(r.since) for r in rows)
        return at("cpu", "revision", f"revision {since} is not registered, but {listed}")
    wrong = _wrong_type(node, row)
    if wrong:
        return at("cpu", "type", wrong)
    refused = _wrong_level(node, row, level)
    if refused:
        return at("refused", "level", refused, row.directml)
    if not row.compiled:
        return at("device", "", row.note, row.directml)
    open_inputs = [k for k in row.constants if k < len(node.inputs) and _is_open(node.inputs[k], constants)]
    if open_inputs:
        formals = () if form is None else form.names
        words = ", ".join(formals[k] if k < len(formals) else str(k) for k in open_inputs)
        return at("device", "constants", f"{words} would have to be constant to be compiled", row.directml)
    if any(v.known_sizes is None for v in (*node.reads, *node.writes)):
        return at("device", "sizes", "its sizes are not all known", row.directml)
    if beside_control_flow:
        return at(
            "device", "control flow", "beside control flow nothing is compiled as a graph", row.directml
        )
    return at("graph", "", "", row.directml)


def _is_open(value: Value | None, constants: Mapping[Value, Constant]) -> bool:
    return value is not None and value not in constants


def _wrong_type(node: Node, row: Registration) -> str:
    """An operand of a type that is not registered."""
    schema = schema_of(node.op)
    if schema is None:
        return ""
    for formals, values in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for k, value in enumerate(values):
            if value is None or value.type is None or not formals:
                continue
            formal = formals[min(k, len(formals) - 1)]
            allowed, found = row.types.get(formal.type_str), _type_name(value)
            if allowed is not None and found not in allowed:
                return f"{formal.name} of {found}: expected {', '.join(sorted(allowed))}"
    return ""


def _type_name(value: Value) -> str:
    name = onnx_name(value.type)
    return name.removeprefix("tensor(").removesuffix(")") if name.startswith("tensor(") else name


def _wrong_level(node: Node, row: Registration, level: FeatureLevel) -> str:
    """What the DirectML operators that it may become lack at a feature level."""
    reasons = [_lacks(name, node, level) for name in row.directml]
    return reasons[0] if reasons and all(reasons) else ""


def _lacks(name: str, node: Node, level: FeatureLevel) -> str:
    operator = BY_NAME.get(name)
    if operator is None:
        return ""
    if operator.introduced > level:
        return f"{name} exists from feature level {operator.introduced.label} on"
    data = next((v for v in node.reads if isinstance(v.type, TensorType)), None)
    first = operator.inputs[0] if operator.inputs else None
    if data is None or first is None or first.array:
        return ""
    assert isinstance(data.type, TensorType)
    dtype = "uint8" if data.type.dtype == "bool" else data.type.dtype
    try:
        since = operator.allowed_from(first.dtype, TensorDataType[dtype.upper()])
    except KeyError:  # a type that DirectML does not have, or several
        return ""
    if since is None:
        return f"{name} does not take {data.type.dtype}"
    return f"{name} takes {data.type.dtype} from feature level {since.label} on" if since > level else ""


# ---- others ------------------------------------------------------------------------------------------


def _elsewhere(node: Node | If, target: str, opset: int) -> NodeCheck:
    op = node.op if isinstance(node, Node) else OnnxOp("", "If", opset)
    form = form_of(op)
    where: Where = "refused" if target in ("tensorrt", "openvino") else "cpu"
    path, name, since = path_to(node), str(op), op.version if form is None else form.since
    row = supported(target).get(name)
    if op.domain:
        return NodeCheck(path, name, since, "unknown", "operator", "the table is of ONNX's own operators")
    if row is None or not row.taken:
        kind = "control flow" if name in CONTROL_FLOW else "operator"
        because = row.note if row is not None and row.note else "not among its operators"
        return NodeCheck(path, name, since, where, kind, because)
    if (row.first is not None and opset < row.first) or (row.last is not None and opset > row.last):
        span = f"{row.first} to {row.last}" if row.last is not None else f"{row.first} on"
        return NodeCheck(path, name, since, where, "revision", f"taken from opset {span}")
    wrong = _types_outside(node, row.types)
    if wrong:
        return NodeCheck(path, name, since, where, "type", wrong)
    return NodeCheck(path, name, since, "device", "", row.note)


def _types_outside(node: Node | If, types: frozenset[str]) -> str:
    """A first input of a type that a page does not list; pages mean the data by what they list."""
    first = next(iter(node.reads), None) if isinstance(node, Node) else None
    if not types or first is None or first.type is None or _type_name(first) in types:
        return ""
    return f"{_type_name(first)}: expected {', '.join(sorted(types))}"


def kinds(report: CheckReport) -> Sequence[tuple[NodeCheck, int]]:
    """One node of each operator and reason, and how many there are like it; the most frequent first."""
    counts = Counter((n.operator, n.since, n.where, n.kind, n.because, n.becomes) for n in report.nodes)
    firsts = {(n.operator, n.since, n.where, n.kind, n.because, n.becomes): n for n in reversed(report.nodes)}
    order = {"refused": 0, "cpu": 1, "unknown": 2, "device": 3, "graph": 4}
    pairs = ((firsts[k], count) for k, count in counts.items())
    return sorted(pairs, key=lambda pair: (order[pair[0].where], -pair[1], pair[0].operator))
