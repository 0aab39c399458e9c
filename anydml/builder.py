"""Graphs of operators, compiled into few kernels (DirectMLX's way of working).

g = dml.GraphBuilder(dml.Device())
x = g.input("x", "FLOAT32", [64, 1024])
y = dml.if_(dml.less_than(x, 0.0), x * 0.01, x)
compiled = g.compile({"y": y})
compiled({"x": array})["y"]                           arrays in, arrays out
compiled.bind({"x": array}, {"y": out}).dispatch()    the same memory again and again
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.compiled_graph import CompiledGraph
from anydml.device import Device
from anydml.directml.arguments import attributes_of, do_not_go_together, outputs_of, repeated, types_of
from anydml.directml.descriptions import read_attribute
from anydml.directml.tensor_policy import TensorPolicy, read_policy
from anydml.directml.type_inference import as_number, infer_types
from anydml.directml.validation import check, check_tensor
from anydml.eager import asked_type
from anydml.errors import InvalidInput, InvalidOperator, Problem, counted, short_repr, type_name
from anydml.expression import ANY_TENSOR, Expression
from anydml.ir.graph import Constant, DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code
from anydml.ops.attributes import AxesKind
from anydml.ops.call import field as field_name
from anydml.ops.call import names_of
from anydml.ops.catalog import BY_NAME
from anydml.ops.dtypes import BITS, FROM_NUMPY, native
from anydml.ops.enums import FeatureLevel, TensorDataType, TensorFlags
from anydml.ops.opdef import ONE, Operand, Operator
from anydml.ops.tensor_desc import TensorDesc, packed_strides
from anydml.runtime.threads import check_threads

Array = NDArray[Any]


class GraphBuilder:
    """Records operators on expressions, and compiles them together. Pickled and deeply copied together with
    its expressions, it can go on elsewhere.

    Args:
        device: whose feature level the graph is checked against; default the newest. Graphs exist from
            feature level 2_1 on.
        tensor_policy: how the tensors that nodes make lie in memory: "DEFAULT", packed; or
            "INTERLEAVED_CHANNEL", N, C, H, W as N, H, W, C; or a function of data type and sizes that gives
            strides in elements. It can be set anew between nodes.

    Raises:
        InvalidOperator: the device's feature level has no graphs.
    """

    def __init__(
        self, device: Device | None = None, *, tensor_policy: TensorPolicy | str = "DEFAULT"
    ) -> None:
        self.tensor_policy = tensor_policy
        self.device = Device() if device is None else device
        if not isinstance(self.device, Device):
            raise InvalidInput(Problem("GraphBuilder", f"expected a Device, but got {type_name(device)}"))
        level = self.device.feature_level
        if level < FeatureLevel.FL_2_1:
            message = f"expected a feature level of 2_1 or newer, but got {level.label}"
            raise InvalidOperator(Problem("GraphBuilder", message, "graphs exist from 2_1 on"))
        self._inputs: dict[str, Expression] = {}
        self._nodes: list[DirectMLNode] = []
        self._problems: dict[Value, list[Problem]] = {}
        """What nodes break, by their outputs."""
        self._right: set[Hashable] = set()
        """Kinds of nodes that break no rule."""
        self._constants: dict[Value, Constant] = {}
        self._counts: dict[str, int] = {}

    def input(
        self,
        name: str,
        data_type: TensorDataType | str,
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        *,
        flags: TensorFlags | str | int = TensorFlags.NONE,
    ) -> Expression:
        """A tensor that is given when the graph runs.

        Args:
            name: under which it is given.
            data_type: a `TensorDataType` or its name.
            sizes: elements along each dimension.
            strides: elements between neighbours; None: packed.
            flags: OWNED_BY_DML for a tensor that `initialize` takes, once.

        Raises:
            InvalidOperator: the description breaks DirectML's rules, or the name is taken.
        """
        desc = TensorDesc(data_type, sizes, strides, flags)
        where = f"input {name!r}"
        problems = [Problem(where, p.message, p.remedy) for p in check_tensor(ANY_TENSOR, desc)]
        if not isinstance(name, str) or not name or name in self._inputs:
            problems.append(Problem(where, "expected a name that no other input has"))
        if desc.data_type not in BITS:
            problems.append(
                Problem(where, f"expected a type that operators take, but got {desc.data_type.label}")
            )
        if problems:
            raise InvalidOperator(*problems)
        value = Value(f"%input {name}", TensorType(desc.data_type.label, desc.sizes, desc.effective_strides))
        expression = self._inputs[name] = Expression(self, value, desc)
        return expression

    def compile(self, outputs: Mapping[str, Expression], *, threads: int | None = None) -> CompiledGraph:
        """Check the graph against the device's feature level, fuse it, and make its kernels.

        Args:
            outputs: expressions by the names under which their contents are given out.
            threads: of one dispatch at most; default the device's.

        Raises:
            InvalidOperator: with every rule that any node breaks, one line each, naming the node.
            InvalidInput: an output that is not an expression of this graph.
        """
        wrong = []
        if not isinstance(outputs, Mapping) or not outputs:
            raise InvalidInput(Problem("compile", "expected a dictionary of expressions by name"))
        for name, e in outputs.items():
            if not isinstance(e, Expression) or e._builder is not self:
                wrong.append(
                    Problem(
                        f"output {name!r}", f"expected an expression of this graph, but got {short_repr(e)}"
                    )
                )
            elif name in self._inputs:
                wrong.append(Problem(f"output {name!r}", "expected a name that no input has"))
        if wrong:
            raise InvalidInput(*wrong)
        nodes, results, values = list(self._nodes), [], {}
        made = {v for n in nodes for v in n.writes}
        for name, e in outputs.items():
            value = e._value
            is_view = value.tensor != TensorType(e.data_type.label, e.sizes, e.desc.effective_strides)
            if value not in made or is_view:
                value = Value(f"%copy of {value.name} as {name}", self._type(e.data_type, e.sizes))
                views = {0: TensorType(e.data_type.label, e.sizes, e.desc.effective_strides)}
                copy = BY_NAME["ELEMENT_WISE_IDENTITY"]
                nodes.append(
                    DirectMLNode(copy, (e._value,), (value,), {"ScaleBias": None}, name=name, views=views)
                )
            made.discard(value)  # what is given out twice is copied, too
            results.append(value)
            values[name] = value
        values |= {name: e._value for name, e in self._inputs.items()}
        inputs = tuple(e._value for e in self._inputs.values())
        graph = eliminate_dead_code(
            DirectMLGraph("graph", inputs, tuple(results), tuple(nodes), dict(self._constants))
        )
        broken = [p for n in graph.nodes for v in n.writes for p in self._problems.get(v, ())]
        if broken:
            raise InvalidOperator(*broken)
        read = {v for n in graph.nodes for v in n.reads}
        return CompiledGraph(
            graph,
            {name: e.desc for name, e in self._inputs.items() if e._value in read},
            {name for name, e in self._inputs.items() if e._value not in read},
            {name: _desc(values[name].tensor) for name in outputs},
            self.device._threads if threads is None else check_threads(threads),
            values,
        )

    # ---- recording

    def _type(self, data_type: TensorDataType, sizes: tuple[int, ...]) -> TensorType:
        """Of a tensor that a node makes."""
        strides = read_policy(self.tensor_policy)(data_type, sizes)
        return TensorType(
            data_type.label, sizes, packed_strides(sizes) if strides is None else tuple(map(int, strides))
        )

    def record(
        self, operator: Operator, arguments: Sequence[Any], attributes: Sequence[Any], output: Any = None
    ) -> Expression:
        """A node. What breaks DirectML's rules is kept for `compile`; what has no meaning is told now."""
        count = self._counts[operator.function] = self._counts.get(operator.function, 0) + 1
        name = f"{operator.function.rstrip('_')}_{count}"
        where = f"node {name!r} ({operator.name})"
        operands = operator.inputs
        arguments = [self._constant(x) if isinstance(x, np.ndarray) else x for x in arguments]
        numbers = [
            self._number_or_none(x, s, f"{where}: {s.parameter}")
            for s, x in zip(operands, arguments, strict=True)
        ]
        typed = {k: x.data_type for k, x in enumerate(arguments) if isinstance(x, Expression)}
        types, result, problems = infer_types(operator, typed, numbers, asked_type(operator, output))
        if operator.told and output is None:
            raise InvalidOperator(*(Problem(where, p.message, p.remedy) for p in problems))
        sizes = _common_sizes(operator, arguments, where)
        values: list[Value | None] = []
        views: dict[int, TensorType] = {}
        tensors: dict[str, TensorDesc] = {}
        for k, (operand, x) in enumerate(zip(operands, arguments, strict=True)):
            number = numbers[k]
            if number is not None:
                dtype = types[k] or next(iter(typed.values()))
                x = self._constant(as_number(number, dtype, f"{where}: {operand.parameter}"))
            if x is None:
                values.append(None)
                continue
            if operand.sizes != ONE:
                x = x.broadcast_to(sizes)
            elif prod(x.sizes) == 1:
                x = x._view_as((1,) * len(sizes), (0,) * len(sizes))
            values.append(x._value)
            views[k] = TensorType(x.data_type.label, x.sizes, x.desc.effective_strides)
            tensors[operand.name] = x.desc
        given = self._attributes(operator, attributes, where, len(sizes), result)
        (out,) = operator.outputs
        tied = [dtype for k, dtype in typed.items() if operands[k].dtype == out.dtype]
        result = tied[0] if tied else result  # whatever is wrong with it, `compile` tells
        value = Value(f"%{name}", self._type(result, sizes))
        tensors[out.name] = _desc(value.tensor)
        self._problems[value] = self._broken_rules(operator, tensors, given, where)
        self._nodes.append(DirectMLNode(operator, tuple(values), (value,), given, name=name, views=views))
        return Expression(self, value, tensors[out.name], _is_truth(operator, arguments))

    def __repr__(self) -> str:
        inputs = ", ".join(map(repr, self._inputs.values()))
        return f"<GraphBuilder: {counted(len(self._nodes), 'node')} on {inputs}>"

    def record_tensors(
        self, operator: Operator, given: Mapping[str, Any], output_data_type: Any = None
    ) -> Any:
        """A node of an operator of whole tensors, from its function's arguments by name."""
        count = self._counts[operator.function] = self._counts.get(operator.function, 0) + 1
        name = f"{operator.function}_{count}"
        where = f"node {name!r} ({operator.name})"
        level = self.device.feature_level
        inputs, numbers = self._expressions(operator, given, where)
        wanted = asked_type(operator, output_data_type)
        types = types_of(operator, {n: x.data_type for n, x in inputs.items()}, wanted, given)
        rank = max((len(x.sizes) for x in inputs.values()), default=1)
        for field, (operand, number) in numbers.items():
            one = as_number(number, types[operand.dtype], f"{where}: {operand.parameter}")
            inputs[field] = self._constant(one.reshape((1,) * rank))
        tensors = {n: x.desc for n, x in inputs.items()}
        attributes = attributes_of(operator, given, tensors, types, level)
        outputs = outputs_of(operator, given, tensors, attributes, types)
        for field, sizes in repeated(operator, tensors, outputs):
            inputs[field] = inputs[field].broadcast_to(sizes)
            tensors[field] = inputs[field].desc
        problems = self._broken_rules(operator, tensors | outputs, attributes, where)
        problems += do_not_go_together(operator, given, tensors, outputs) if not problems else ()
        if not outputs or (problems and any(s.name not in outputs for s in operator.outputs if not s.array)):
            raise InvalidOperator(*problems)
        values: list[Value | None] = []
        views: dict[int, TensorType] = {}
        for k, field in enumerate(names_of(operator.inputs, tensors)):
            x = inputs.get(field)
            values.append(None if x is None else x._value)
            if x is not None:
                views[k] = TensorType(x.data_type.label, x.sizes, x.desc.effective_strides)
        made = [
            Value(f"%{name}" if len(outputs) == 1 else f"%{name}.{n}", self._type(d.data_type, d.sizes))
            for n, d in outputs.items()
        ]
        outputs = {n: _desc(v.tensor) for n, v in zip(outputs, made, strict=True)}
        for value in made:
            self._problems[value] = problems
        there = dict(zip(outputs, made, strict=True))
        ends = tuple(there.get(n) for n in names_of(operator.outputs, outputs))
        node = DirectMLNode(operator, tuple(values), ends, attributes, name=name, views=views)
        self._nodes.append(node)
        results = tuple(
            None if v is None else Expression(self, v, outputs[n])
            for n, v in zip(names_of(operator.outputs, outputs), ends, strict=True)
        )
        return results if operator.gives_several else results[0]

    def _expressions(
        self, operator: Operator, given: Mapping[str, Any], where: str
    ) -> tuple[dict[str, Expression], dict[str, tuple[Operand, bool | int | float]]]:
        """The tensors among a function's arguments, by field name, of which arrays become constants; and the
        numbers, whose types others decide."""
        found: dict[str, Expression] = {}
        numbers: dict[str, tuple[Operand, bool | int | float]] = {}
        for operand in operator.inputs:
            x = given[operand.parameter]
            if x is None and operand.optional is not None:
                continue
            several = list(x) if operand.array and isinstance(x, list | tuple) else [x]
            for k, one in enumerate(several):
                field = field_name(operand.name, k) if operand.array else operand.name
                if isinstance(one, bool | int | float) and not isinstance(one, np.generic):
                    numbers[field] = operand, one
                    continue
                if isinstance(one, np.ndarray | np.generic):
                    one = self._constant(np.atleast_1d(np.asarray(one)))
                if not isinstance(one, Expression) or one._builder is not self:
                    message = f"expected an expression of this graph or an array, but got {type_name(one)}"
                    raise InvalidInput(Problem(f"{where}: {operand.parameter}", message))
                found[field] = one
        return found, numbers

    def _number_or_none(self, x: Any, operand: Operand, where: str) -> bool | int | float | None:
        """An argument that is a number; None for an expression, or where nothing is given."""
        if isinstance(x, Expression):
            if x._builder is not self:
                raise InvalidInput(Problem(where, "expected an expression of the same graph"))
            return None
        if x is None and operand.optional is not None:
            return None
        if isinstance(x, np.generic):
            x = x.item()
        if not isinstance(x, bool | int | float):
            message = f"expected an expression, an array or a number, but got {type_name(x)}"
            raise InvalidInput(Problem(where, message))
        return x

    def _constant(self, content: Array) -> Expression:
        """A number, or an array: as it is now."""
        content = np.array(content, native(content.dtype), ndmin=1)
        if content.dtype == np.bool_:
            content = content.view(np.uint8)
        if content.dtype not in FROM_NUMPY:
            message = f"expected elements of a type of DirectML's, but got {content.dtype}"
            raise InvalidInput(Problem("a constant", message, "convert it with .astype"))
        if not content.size:
            raise InvalidInput(Problem("a constant", f"expected elements, but got shape {content.shape}"))
        desc = TensorDesc(FROM_NUMPY[content.dtype], content.shape)
        value = Value(f"%constant {len(self._constants)}", _packed(desc))
        self._constants[value] = Constant(content)
        return Expression(self, value, desc)

    def _attributes(
        self, operator: Operator, attributes: Sequence[Any], where: str, rank: int, result: TensorDataType
    ) -> dict[str, Any]:
        values: dict[str, Any] = {a.name: result for a in operator.attributes if a.implied}
        level = self.device.feature_level
        for attribute, value in zip(operator.parameters, attributes, strict=True):
            if value is None and attribute.optional:
                values[attribute.name] = None
                continue
            read = read_attribute(attribute, value, f"{where}: {attribute.parameter}", level)
            if isinstance(attribute.kind, AxesKind):
                read = tuple(a + rank if -rank <= a < 0 else a for a in read)
            values[attribute.name] = read
        return values

    def _broken_rules(
        self, operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], where: str
    ) -> list[Problem]:
        """As `_find_broken_rules`. A graph has many nodes of a kind: the rules are asked once for those that
        break none."""
        kind = operator.name, *tensors.items(), *((n, type(x), x) for n, x in attributes.items())
        if kind in self._right:
            return []
        problems = list(self._find_broken_rules(operator, tensors, attributes, where))
        if not problems:
            self._right.add(kind)
        return problems

    def _find_broken_rules(
        self, operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], where: str
    ) -> Iterator[Problem]:
        """What a node breaks at the device's feature level."""
        level = self.device.feature_level
        for p in check(operator, tensors, attributes, level):
            inner = p.where.removeprefix(operator.name).removeprefix(": ")
            yield Problem(f"{where}: {inner}" if inner else where, p.message, p.remedy)
        for operand in operator.inputs:
            if operand.name not in tensors and operand.optional is not None and level < operand.optional:
                later = f"it may be left out from {operand.optional.label}"
                yield Problem(where, f"expected {operand.name}, but it is missing", later)


def _common_sizes(operator: Operator, arguments: Sequence[Any], where: str) -> tuple[int, ...]:
    given = [(s, x) for s, x in zip(operator.inputs, arguments, strict=True) if isinstance(x, Expression)]
    try:
        several = [x.sizes for s, x in given if s.sizes != ONE]
        return tuple(np.broadcast_shapes(*several)) if several else (1,)
    except ValueError:
        got = "; ".join(f"{s.parameter} {x.sizes}" for s, x in given)
        raise InvalidOperator(Problem(where, f"expected sizes that broadcast, but got {got}")) from None


def _packed(desc: TensorDesc) -> TensorType:
    return TensorType(desc.data_type.label, desc.sizes, packed_strides(desc.sizes))


def _is_truth(operator: Operator, arguments: Sequence[Any]) -> bool:
    """Whether all elements of the result are 0 or 1 by what the operator means."""
    word = operator.name.removeprefix("ELEMENT_WISE_")
    if word in ("BIT_AND", "BIT_OR", "BIT_XOR"):
        return all(isinstance(x, Expression) and x._is_truth for x in arguments)
    return word.startswith(("LOGICAL_", "IS_"))


def _desc(type: TensorType) -> TensorDesc:
    """As a description: without strides where they are the packed ones."""
    sizes, strides = type.static_sizes, type.element_strides
    return TensorDesc(type.data_type, sizes, None if strides == packed_strides(sizes) else strides)
