"""A model's local functions, put in the place of the nodes that call them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from anydml.errors import InvalidModel, Problem, by_a_handler
from anydml.ir.graph import OnnxOp
from anydml.onnx.protos import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
)
from anydml.onnx.schema import form_of
from anydml.onnx.subgraphs import all_graphs, all_nodes, graphs_of

MAX_NODES = 1_000_000
"""More than this, when all calls are replaced, is taken for an attack."""
_Name = tuple[str, str, str]


def inline_functions(
    proto: ModelProto, where: str, selected: Sequence[tuple[str, str]] | None = None
) -> ModelProto:
    """The model without its functions, or without those named (domain, name).

    Raises:
        InvalidModel: functions that call themselves or are absurdly many nodes; calls that do not fit.
    """
    if not proto.functions:
        return proto
    _check_calls(proto, where)
    proto = _with_one_opset(_with_defaults(_with_given_passed_on(proto)))
    from onnx import inliner

    try:
        if selected is None:
            return inliner.inline_local_functions(proto, convert_version=True)
        return inliner.inline_selected_functions(proto, list(selected))
    except Exception as error:  # of C++, whose types are many
        if by_a_handler(error):
            raise
        first = (str(error).splitlines() or [""])[0]
        _, _, told = first.rpartition("Assertion `false` failed: ")  # behind a place in its source
        message = f"expected calls that fit the model's functions, but got: {told}"
        raise InvalidModel(Problem(where, message, _converted(proto))) from error


def _converted(proto: ModelProto) -> str:
    """Which functions onnx had to convert to the model's opset, which it cannot always."""
    own = _opsets(proto.opset_import).get("", 1)
    others = {f.name: v for f in proto.functions if (v := _opsets(f.opset_import).get("", own)) != own}
    listed = ", ".join(f"{name!r} imports opset {version}" for name, version in [*others.items()][:3])
    return f"the model imports opset {own}, but {listed}" if others else ""


def _with_defaults(proto: ModelProto) -> ModelProto:
    """The model with functions' default attributes at calls without them: onnx's inliner drops them."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in proto.functions}
    if not any(defaults.values()):
        return proto
    changed = ModelProto()
    changed.CopyFrom(proto)
    for nodes in (changed.graph.node, *(f.node for f in changed.functions)):
        for node in all_nodes(nodes):
            told = {a.name for a in node.attribute}
            missing = defaults.get((node.domain, node.op_type, node.overload), ())
            node.attribute.extend(a for a in missing if a.name not in told)
    return changed


def _with_one_opset(proto: ModelProto) -> ModelProto:
    """The model with functions at its own opset where they mean the same: onnx's inliner converts others.

    What functions say of domains that they do not use goes: the inliner leaves alone what says anything else
    than the model, which nobody runs then. So does what they say of domains of functions, which jax2onnx
    gives the version of ONNX's.
    """
    own, local = _opsets(proto.opset_import), {f.domain for f in proto.functions}
    changed = ModelProto()
    changed.CopyFrom(proto)
    for function in changed.functions:
        its, used = _opsets(function.opset_import), {"", *(n.domain for n in all_nodes(function.node))}
        said = {d: own.get(d, v) if d in local else v for d, v in its.items() if d in used}
        names = {n.op_type for n in all_nodes(function.node) if n.domain in ("", "ai.onnx")}
        if "" in own and all(_since(name, its.get("", 1)) == _since(name, own[""]) for name in names):
            said[""] = own[""]
        del function.opset_import[:]
        function.opset_import.extend(OperatorSetIdProto(domain=d, version=v) for d, v in said.items())
    return changed


def _opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}


def _since(name: str, version: int) -> int | None:
    """The opset at which an operator got the meaning that it has at a version; None: there is none."""
    form = form_of(OnnxOp("", name, version))
    return None if form is None else form.since


def _with_given_passed_on(proto: ModelProto) -> ModelProto:
    """The model with an Identity for each input or initializer that a graph in a function gives.

    onnx's inliner renames one that is given, and not the other.
    """
    if not any(_gives_its_own(g) for f in proto.functions for g in _graphs_in(f)):
        return proto
    changed = ModelProto()
    changed.CopyFrom(proto)
    for function in changed.functions:
        for graph in filter(_gives_its_own, _graphs_in(function)):
            own = _own(graph)
            for k, output in enumerate(graph.output):
                if output.name in own:
                    passed = f"{output.name}~given{k}"
                    graph.node.append(NodeProto(op_type="Identity", input=[output.name], output=[passed]))
                    output.name = passed
    return changed


def _graphs_in(function: FunctionProto) -> list[GraphProto]:
    return [g for n in function.node for a in graphs_of(n.attribute) for g in all_graphs(a)]


def _own(graph: GraphProto) -> set[str]:
    """The names of inputs and initializers."""
    return {x.name for x in (*graph.input, *graph.initializer)}


def _gives_its_own(graph: GraphProto) -> bool:
    own = _own(graph)
    return any(o.name in own for o in graph.output)


def _check_calls(proto: ModelProto, where: str) -> None:
    functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
    sizes: dict[_Name, int] = {}
    open_calls: set[_Name] = set()

    def size(nodes: Iterator[NodeProto]) -> int:
        total = 0
        for node in nodes:
            name = node.domain, node.op_type, node.overload
            total += of(name, functions[name]) if name in functions else 1
        return total

    def of(name: _Name, function: FunctionProto) -> int:
        if name in open_calls:
            message = f"expected functions that do not call themselves, but {name[1]!r} does"
            raise InvalidModel(Problem(where, message))
        if name not in sizes:
            open_calls.add(name)
            sizes[name] = min(size(all_nodes(function.node)), MAX_NODES + 1)
            open_calls.remove(name)
        return sizes[name]

    try:
        total = size(all_nodes(proto.graph.node))
        for name, function in functions.items():
            of(name, function)
    except RecursionError as error:
        message = "expected functions of reasonable depth, but they nest too deeply"
        raise InvalidModel(Problem(where, message)) from error
    if total > MAX_NODES:
        message = f"expected at most {MAX_NODES:,} nodes when functions are put in their places"
        raise InvalidModel(Problem(where, f"{message}, but got more"))


def functions_with_if(proto: ModelProto) -> list[tuple[str, str]]:
    """The local functions that hold an If, or call one that does."""
    bodies = {(f.domain, f.name): GraphProto(node=f.node) for f in proto.functions}
    calls = {key: set(called(body)) for key, body in bodies.items()}
    found: set[tuple[str, str]] = set()
    while more := {key for key, its in calls.items() if its & (found | _IF)} - found:
        found |= more
    return sorted(found)


def functions_about_ifs(proto: ModelProto) -> list[tuple[str, str]]:
    """The local functions that branches call, or that compute what Ifs read, whose types nobody infers."""
    local = {(f.domain, f.name) for f in proto.functions}
    makers: dict[str, NodeProto] = {}
    found: set[tuple[str, str]] = set()
    open_names: list[str] = []
    for node in all_nodes(proto.graph.node):
        makers |= dict.fromkeys(node.output, node)
        if (node.domain, node.op_type) in _IF:
            open_names += node.input
            for branch in graphs_of(node.attribute):
                open_names += (n for inner in all_nodes(branch.node) for n in inner.input)
                open_names += (o.name for o in branch.output)
                found |= set(called(branch)) & local
    seen: set[str] = set()
    while open_names:
        name = open_names.pop()
        if name in makers and name not in seen:
            maker = makers[name]
            found |= {(maker.domain, maker.op_type)} & local
            open_names += maker.input
        seen.add(name)
    return sorted(found)


_IF = {("", "If"), ("ai.onnx", "If")}


def called(graph: GraphProto) -> list[tuple[str, str]]:
    """Domain and name of every node's operator, those of branches and bodies too."""
    return [(n.domain, n.op_type) for n in all_nodes(graph.node)]
