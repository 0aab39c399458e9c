"""ONNX files to graphs. Captures become inputs of branches here, and no later layer sees a scope.

    file, bytes or ModelProto --parse--> ModelProto --read--> Model (graph, signature, opsets)

The graph's structure is checked while it is read, and all its problems are told at once. Types are not
taken from the file's value_info, which exporters get wrong; the evaluator infers them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anydml.dataclass import dataclass, field
from anydml.errors import InvalidModel, Problem, counted
from anydml.ir.graph import Body, Constant, Graph, If, Node, OnnxOp, TensorType, Type, Value
from anydml.onnx import node_validation
from anydml.onnx.protos import AttributeProto, GraphProto, ModelProto, NodeProto
from anydml.onnx.schema import is_foreign
from anydml.onnx.serde.local_functions import inline_functions
from anydml.onnx.serde.loop_parameters import with_scalars
from anydml.onnx.serde.parse import (
    TOO_DEEP,
    Meta,
    ModelSource,
    domain_of,
    fixed_weights,
    meta_of,
    opsets_of,
    parse_light,
    with_sizes,
)
from anydml.onnx.serde.raw_data import RawData
from anydml.onnx.serde.tensors import ConstantReader
from anydml.onnx.subgraphs import in_order, with_constants_once
from anydml.onnx.types import FileSymbols, from_proto, onnx_name, without_sizes
from anydml.runtime.collector import collector_paused
from anydml.runtime.mapped_file import InFile, MappedFile, owned


@dataclass(frozen=True)
class Argument:
    """An input or output as the file declares it."""

    name: str
    type: Type | None
    optional: bool = False
    """An input that has an initializer, its default."""


@dataclass(frozen=True)
class Model:
    """A model that was read."""

    graph: Graph
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    opsets: Mapping[str, int]
    meta: Meta
    defaults: Mapping[Value, Constant] = field(default_factory=dict)
    """Contents of the graph's inputs that need not be fed."""
    overridable: tuple[Argument, ...] = ()
    """Inputs of the file that need not be fed, and are constants of the graph."""
    declared: Mapping[Value, Type] = field(default_factory=dict)
    """What the file says of the types of what nodes make; often wrong, so that only people are told."""
    files: Mapping[Path, os.stat_result] = field(default_factory=dict)
    """External data, as it was found."""
    mapped: tuple[MappedFile, ...] = ()
    """The file, if large initializers are still there only, and those with external data."""


@collector_paused()
def read(
    source: ModelSource, dims: Mapping[str, int] | None = None, mapped: bool = False, fixed: bool = False
) -> Model:
    """The model of a path, of a file's bytes or of a ModelProto; `dims` are sizes for symbols of its inputs.

    Local functions are inlined. `mapped`: weights may stay in the file. `fixed`: what need not be fed is none
    of the graph's inputs, but a constant.

    Raises:
        InvalidModel: not an ONNX model, or its graph is not well formed.
        Unsupported: a newer opset than the installed onnx package knows.
        OSError: the file cannot be read.
    """
    proto, folder, where, raw = parse_light(source, mapped)
    opsets_of(proto, where)  # before anything is made of it
    proto = inline_functions(proto, where)
    if dims:
        proto = with_sizes(proto, dims)
    return read_proto(proto, folder, where, raw, fixed)


def read_proto(
    proto: ModelProto, folder: Path | None, where: str, raw: RawData | None = None, fixed: bool = False
) -> Model:
    """The model of a parsed file, with calls of local functions. `raw`: what is not in it."""
    opsets = opsets_of(proto, where)
    reader = _Reader(opsets, folder, raw)
    scope = _Scope(reader, None, (), reader.symbols)
    try:
        graph, defaults = reader.main(proto.graph, scope, fixed or fixed_weights(proto))
    except RecursionError as error:
        raise InvalidModel(Problem(where, TOO_DEEP)) from error
    if reader.disordered and (ordered := in_order(proto)) is not proto:
        return read_proto(ordered, folder, where, raw, fixed)
    if reader.defined_twice and (once := with_constants_once(proto)) is not proto:
        return read_proto(once, folder, where, raw, fixed)
    if reader.problems:
        raise InvalidModel(*(p.under(where) if where else p for p in reader.problems))
    return Model(
        graph,
        tuple(Argument(v.name, v.type, v in defaults) for v in graph.inputs),
        tuple(Argument(o.name, from_proto(o.type, reader.symbols)) for o in proto.graph.output),
        opsets,
        meta_of(proto),
        defaults,
        _overridable(proto, reader.symbols) if fixed else (),
        reader.declared,
        reader.constants.files,
        tuple(f for f in (raw and raw.data, *reader.constants.mapped.values()) if isinstance(f, MappedFile)),
    )


def _overridable(proto: ModelProto, symbols: FileSymbols) -> tuple[Argument, ...]:
    """Inputs that are initializers, too."""
    if fixed_weights(proto):
        return ()
    known = {t.name for t in proto.graph.initializer}
    known |= {t.values.name for t in proto.graph.sparse_initializer}
    found = [i for i in proto.graph.input if i.name in known]
    return tuple(Argument(i.name, from_proto(i.type, symbols), True) for i in found)


class _Scope:
    """The names that one graph defines, and what it takes from the graphs around it."""

    def __init__(
        self, reader: _Reader, outer: _Scope | None, path: tuple[str, ...], symbols: FileSymbols
    ) -> None:
        self.reader, self.outer, self.path, self.symbols = reader, outer, path, symbols
        self.captures_constants = False
        """Else constants from around become its own, too."""
        self.values: dict[str, Value] = {}
        self.constants: dict[Value, Constant] = {}
        self.captures: dict[Value, None] = {}
        self.told: Mapping[str, Type] = {}
        """What the file says of types of results."""

    def define(self, name: str, type: Type | None = None) -> Value:
        if name in self.values:
            self.reader.twice(self.path, repr(name))
        value = self.values[name] = Value(name, type)
        return value

    def define_constant(self, name: str, constant: Constant, type: Type | None) -> Value:
        value = self.define(name, type)
        self.constants[value] = constant
        return value

    def find(self, name: str) -> Value | None:
        """The value of a name, without taking it."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def take(self, name: str) -> Value | None:
        """The value of a name, from here or from around; what comes from around is a capture."""
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            return None
        value = self.outer.take(name)
        if value is not None and value not in self.constants:
            if value in self.outer.constants and not self.captures_constants:
                self.constants[value] = self.outer.constants[value]
            else:
                self.captures[value] = None
        return value


class _Reader:
    def __init__(self, opsets: Mapping[str, int], folder: Path | None, raw: RawData | None) -> None:
        self.opsets = opsets
        self._ops: dict[tuple[str, str], OnnxOp] = {}
        self.problems: list[Problem] = []
        self.constants = ConstantReader(folder, self.problem, raw)
        self.symbols = FileSymbols()
        self.declared: dict[Value, Type] = {}
        self.disordered = False
        """Whether a node reads what is not defined before."""
        self.defined_twice = False
        """Whether two have one name."""

    def twice(self, path: tuple[str, ...], what: str) -> None:
        self.defined_twice = True
        self.problem(path, f"expected every name to be defined once, but got {what} twice")

    def problem(self, path: tuple[str, ...], message: str, remedy: str = "") -> None:
        self.problems.append(Problem("/".join(path), message, remedy))

    def main(
        self, proto: GraphProto, scope: _Scope, fixed: bool = False
    ) -> tuple[Graph, dict[Value, Constant]]:
        """The graph, and what its inputs are if they are not fed.

        `fixed`: what has contents is no input.
        """
        initial = self._initial(proto, scope)
        inputs, defaults = [], {}
        for info in proto.input:
            if fixed and info.name in initial:
                continue
            value = scope.define(info.name, from_proto(info.type, self.symbols))
            inputs.append(value)
            if info.name in initial:
                default = self.constants.initializer(initial.pop(info.name), scope.path)[0]
                in_file = isinstance(default.source, InFile)
                defaults[value] = Constant(owned(default.content)) if in_file else default
        self._initializers(initial, scope)
        return self._finish(proto, scope, tuple(inputs)), defaults

    def _body(self, proto: GraphProto, outer: _Scope, path: tuple[str, ...]) -> Body:
        """A body, whose names of sizes are its own: they may change from one iteration to the next."""
        name = proto.name or "body"
        self._texts(path, name)
        scope = _Scope(self, outer, (*path, str(name)), FileSymbols())
        scope.captures_constants = True
        initial = self._initial(proto, scope)
        parameters = []
        for info in proto.input:
            self._texts(scope.path, info.name)
            if initial.pop(info.name, None) is not None:
                self.problem(scope.path, f"expected a body whose inputs have no initializers: {info.name!r}")
            parameters.append(scope.define(info.name, from_proto(info.type, scope.symbols)))
        self._initializers(initial, scope)
        graph = self._finish(proto, scope, None)
        returns = tuple(from_proto(o.type, scope.symbols) for o in proto.output)
        takes = tuple(v.type for v in parameters)
        return Body(
            name,
            graph.inputs,
            graph.outputs,
            graph.nodes,
            graph.constants,
            tuple(parameters),
            takes,
            returns,
        )

    def _branch(self, proto: GraphProto, outer: _Scope, path: tuple[str, ...]) -> Graph:
        scope = _Scope(self, outer, path, outer.symbols)
        if proto.input:
            self.problem(path, f"expected a branch without inputs, but got {proto.input[0].name!r}")
        initial = self._initial(proto, scope)
        self._initializers(initial, scope)
        return self._finish(proto, scope, None)

    def _finish(self, proto: GraphProto, scope: _Scope, inputs: tuple[Value, ...] | None) -> Graph:
        self._texts(scope.path, proto.name, *(o.name for o in proto.output))
        declared = ((i.name, from_proto(i.type, scope.symbols)) for i in (*proto.value_info, *proto.output))
        scope.told = {name: type for name, type in declared if type is not None}
        nodes = [n for node in proto.node if (n := self._node(node, scope)) is not None]
        for name, type in scope.told.items():
            made = scope.values.get(name)
            if made is not None:
                self.declared[made] = type
        outputs = []
        for info in proto.output:
            value = scope.take(info.name)
            if value is None:
                self.problem(
                    scope.path, f"expected output {info.name!r} to be computed, but nothing defines it"
                )
            else:
                outputs.append(value)
        captures = tuple(scope.captures) if inputs is None else inputs
        return Graph(proto.name or "main", captures, tuple(outputs), tuple(nodes), scope.constants)

    def _node(self, proto: NodeProto, scope: _Scope) -> Node | If | None:
        own_name, given, made = proto.name, list(proto.input), list(proto.output)
        kind = proto.domain, proto.op_type
        if {*map(type, (own_name, *kind, *given, *made))} != {str}:
            self.problem(scope.path, "expected names in UTF-8, but got other bytes", "damaged?")
            return None
        op = self._ops.get(kind) or self._op(*kind)
        label = own_name or next(filter(None, made), "") or op.name
        is_if = op.domain == "" and op.name == "If"
        names, attributes = node_validation.inputs_given(given, op), list(proto.attribute)
        for message in () if is_if else node_validation.problems(attributes, op, names, len(made)):
            self.problem((*scope.path, label), message)
        inputs: list[Value | None] = []
        own = scope.values
        for name in names:
            value = own.get(name) if name else None
            if name and value is None:
                value = scope.take(name)
            if name and value is None:
                self.disordered = True
                self.problem(
                    (*scope.path, label),
                    f"expected inputs that are defined before, but got {name!r}",
                    "nodes must stand in an order that runs",
                )
            inputs.append(value)
        if (
            op.domain == ""
            and op.name == "Constant"
            and (known := self.constants.constant_node(proto, scope.path)) is not None
        ):
            scope.define_constant(made[0], *known)
            return None
        if is_if:
            return self._if(proto, scope, inputs, label)
        own_attributes, bodies = self._attributes(attributes, scope, label)
        if op.domain == "" and op.name == "Loop":
            bodies = {name: with_scalars(body, op.version) for name, body in bodies.items()}
        told = scope.told if is_foreign(op) else {}  # from which such a type may not follow
        outputs = tuple(
            [
                scope.define(name, without_sizes(told[name]) if name in told else None) if name else None
                for name in made
            ]
        )
        return Node(op, tuple(inputs), outputs, own_attributes, label, scope.path, bodies)

    def _if(self, proto: NodeProto, scope: _Scope, inputs: list[Value | None], label: str) -> If | None:
        path = (*scope.path, label)
        graphs = {a.name: a.g for a in proto.attribute if a.type == AttributeProto.GRAPH}
        missing = [name for name in ("then_branch", "else_branch") if name not in graphs]
        for name in missing:
            self.problem(path, f"expected attribute {name}: a graph, but it is missing")
        condition = inputs[0] if inputs else None
        if len(inputs) != 1 or condition is None:
            self.problem(path, f"expected one input, the condition, but got {len(inputs)}")
        elif isinstance(condition.type, TensorType) and condition.type.dtype != "bool":
            self.problem(path, f"expected a condition of type bool, but got {condition.type.dtype}")
        branches = {
            name: self._branch(graph, scope, (*path, name.removesuffix("_branch")))
            for name, graph in graphs.items()
            if name in ("then_branch", "else_branch")
        }
        declared = [[from_proto(o.type) for o in g.output] for name, g in graphs.items() if name in branches]
        outputs = tuple(
            scope.define(name, _common_type([types[k] for types in declared if k < len(types)]))
            if name
            else None
            for k, name in enumerate(proto.output)
        )
        for k, types in enumerate(zip(*declared, strict=False)):
            if len({without_sizes(t) for t in types if t is not None}) > 1:
                got = " and ".join(onnx_name(t) for t in types)
                self.problem(path, f"expected branches that give one type for output {k}, but got {got}")
        for name, graph in graphs.items():
            if name in branches and len(graph.output) != len(outputs):
                wanted = counted(len(outputs), "output")
                self.problem(
                    path,
                    f"expected {wanted} of {name}, like the node, but got {len(graph.output)}",
                )
        if missing or condition is None:
            return None
        return If(condition, branches["then_branch"], branches["else_branch"], outputs, label, scope.path)

    def _op(self, domain: str, name: str) -> OnnxOp:
        """One object for each operator of the file, which dictionaries find at once."""
        its = domain_of(domain)
        found = self._ops[domain, name] = OnnxOp(its, name, self.opsets.get(its, 1))
        return found

    def _attributes(
        self, given: Iterable[AttributeProto], scope: _Scope, label: str
    ) -> tuple[dict[str, Any], dict[str, Body]]:
        """A node's attributes as the file has them, and its bodies."""
        attributes: dict[str, Any] = {}
        bodies: dict[str, Body] = {}
        for attribute in given:
            name, kind = attribute.name, attribute.type
            if not isinstance(name, str):
                self.problem(
                    scope.path, "expected names of attributes in UTF-8, but got other bytes", "damaged?"
                )
            elif kind == AttributeProto.GRAPH:
                bodies[name] = self._body(attribute.g, scope, (*scope.path, label))
            elif kind == AttributeProto.GRAPHS or attribute.graphs:
                message = f"expected single graphs, but attribute {name!r} is a list of them"
                self.problem((*scope.path, label), message)
            else:
                attributes[name] = _own(attribute)
        return attributes, bodies

    def _texts(self, path: tuple[str, ...], *texts: object) -> None:
        if not all(isinstance(text, str) for text in texts):
            self.problem(path, "expected names in UTF-8, but got other bytes", "damaged?")

    def _initial(self, proto: GraphProto, scope: _Scope) -> dict[str, Any]:
        """The initializers by name."""
        named = [
            *((t.name, t) for t in proto.initializer),
            *((t.values.name, t) for t in proto.sparse_initializer),
        ]
        self._texts(scope.path, *(name for name, _ in named))
        for name, count in Counter(name for name, _ in named).items():
            if count > 1:
                self.twice(scope.path, f"initializer {name!r}")
        return dict(named)

    def _initializers(self, initial: Mapping[str, Any], scope: _Scope) -> None:
        for name, tensor in initial.items():
            if (
                scope.outer is not None
                and not scope.captures_constants
                and scope.outer.find(name) is not None
            ):
                message = f"expected initializers of new names, but got {name!r} of an outer graph again"
                self.problem(scope.path, message, "runtimes disagree on which is meant: rename one")
            scope.define_constant(name, *self.constants.initializer(tensor, scope.path))


def _own(attribute: AttributeProto) -> AttributeProto:
    """A copy, which does not keep the memory of the whole file."""
    own = AttributeProto()
    own.CopyFrom(attribute)
    return own


def _common_type(types: list[Type | None]) -> Type | None:
    """What the branches' declarations of one output agree on; sizes may differ, so none are kept."""
    known = {without_sizes(t) for t in types if t is not None}
    return known.pop() if len(known) == 1 else None
