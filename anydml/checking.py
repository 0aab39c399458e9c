"""Which nodes of a model another runtime takes, and what to do about the rest.

report = check_model("model.onnx", target="directml:6_2")
print(report.verdict)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from anydml.check_report import CONTROL_FLOW, CheckReport, NodeCheck, Where
from anydml.errors import AnyDMLError, InvalidInput, Problem, nearest, translate_memory_error
from anydml.flatten_report import path_to
from anydml.flattening import flatten
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, OptionalType, TensorType, Value
from anydml.onnx.if_conversion.convert import Convert
from anydml.onnx.input_shapes import Shapes, check_request
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.schema import form_of, schema_of
from anydml.onnx.serde.deserialize import read as read_model
from anydml.onnx.serde.parse import ModelSource, parse_light
from anydml.onnx.targets.tables import (
    BRANCHES,
    NAMES,
    Registration,
    registered,
    registrations,
    source,
    supported,
)
from anydml.onnx.types import onnx_name, type_text
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import FeatureLevel, TensorDataType

LEAST_LEVEL = FeatureLevel.FL_5_0
"""What onnxruntime's DirectML provider asks of a device."""


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
    folded = graph
    if name in BRANCHES:  # runtimes that look at branches fold first, too: an If on a known size is none
        folded = specialize(graph, {}, {}, read.opsets, provider, deep=True, by_failure=False).graph
    undecided = {n.origin: n for n in folded.walk(bodies=True) if isinstance(n, If)}
    nodes = []
    for within, constants in _with_constants(graph, {}):
        for node in within.nodes:
            if name == "directml":
                nodes.append(_on_directml(node, constants, level, id(within) in flow, opset))
            else:
                nodes.append(_elsewhere(node, name, opset, undecided))
    if name == "openvino":
        nodes += _functions(model)
    in_the_way = any(node.kind == "control flow" for node in nodes)
    return CheckReport(
        name,
        NAMES[name],
        tuple(nodes),
        opset,
        source(name),
        level.label if name == "directml" else "",
        _flattening(model, fixed, shapes) if in_the_way else None,
        {v.name: _sizes_text(v) for v in graph.inputs if v.sizes is not None and v.known_sizes is None},
    )


def _flattening(
    model: ModelSource, fixed: Mapping[str, Any] | None, shapes: Shapes | None
) -> tuple[str, ...] | None:
    """The fewest options with which `flatten` removes control flow; None where it removes none."""
    ways: tuple[Convert, ...] = ("auto", "always")
    for convert in ways:
        try:
            _, report = flatten(model, fixed=fixed, shapes=shapes, convert=convert, verify=False)
        except AnyDMLError:
            return None
        before, after = (
            sum(size.operators.get(name, 0) for name in CONTROL_FLOW)
            for size in (report.before, report.after)
        )
        if after < before:
            return ("--convert always",) if convert == "always" else ()
    remedies = [f"--unroll {report.unroll}"] if report.unroll else []
    remedies += [remedy for one in report.ifs for remedy in one.remedies]
    return tuple(remedies[:1]) or None


def _sizes_text(value: Value) -> str:
    return type_text(value.type).partition("[")[2].removesuffix("]")


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
    rows = registrations().get(name)
    if not rows:
        return at("cpu", "operator", "DirectML's provider does not have it")
    row = registered(op)
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


def _elsewhere(node: Node | If, target: str, opset: int, undecided: Mapping[object, If]) -> NodeCheck:
    """`undecided`: Ifs whose conditions do not follow, by origin, with what is known of what they give."""
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
    if isinstance(node, If) and target in BRANCHES and node.origin in undecided:
        apart = _apart(undecided[node.origin], BRANCHES[target])
        if apart is not None:
            return NodeCheck(path, name, since, where if apart[0] else "unknown", "control flow", apart[1])
    return NodeCheck(path, name, since, "device", "", row.note)


def _functions(model: ModelSource) -> Iterator[NodeCheck]:
    """A file's own functions, for a runtime that does not put them in the place of what calls them."""
    proto, *_ = parse_light(model, mapped=False)
    for function in proto.functions:
        because = "a function of the model's own; onnx.inliner puts it in the place of what calls it"
        operator = f"{function.domain}.{function.name}".strip(".")
        yield NodeCheck(f"function {function.name!r}", operator, 1, "refused", "operator", because)


def _apart(node: If, equal: Literal["ranks", "sizes"]) -> tuple[bool, str] | None:
    """Why the results of an If's branches are not what a runtime takes, and whether that is sure."""
    doubt = None
    for a, b in zip(node.then_branch.outputs, node.else_branch.outputs, strict=True):
        told = f"the branches give {type_text(a.type)} and {type_text(b.type)}: expected"
        if isinstance(a.type, OptionalType) or isinstance(b.type, OptionalType):
            return True, f"{told} tensors"
        if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
            continue
        if a.sizes is None or b.sizes is None:
            doubt = False, f"{told} ranks that are known before the run"
        elif len(a.sizes) != len(b.sizes):
            return True, f"{told} equal {equal}"
        elif equal == "sizes" and (a.known_sizes is None or a.sizes != b.sizes):
            if a.known_sizes is not None and b.known_sizes is not None:
                return True, f"{told} equal sizes"
            doubt = False, f"{told} equal sizes that are known before the run"
    return doubt


def _types_outside(node: Node | If, types: frozenset[str]) -> str:
    """A first input of a type that a page does not list; pages mean the data by what they list."""
    first = next(iter(node.reads), None) if isinstance(node, Node) else None
    if not types or first is None or first.type is None or _type_name(first) in types:
        return ""
    return f"{_type_name(first)}: expected {', '.join(sorted(types))}"
