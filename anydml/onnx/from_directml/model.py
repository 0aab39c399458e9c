"""A DirectML graph as an ONNX model: a second opinion, and the way out of DirectML.

Tensors are written as what is seen of them: a stride of 0 becomes an Expand, exchanged strides a Transpose,
any other layout a Gather of the elements in the order in which they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from anydml.directml.fusion import dimensions
from anydml.errors import Problem, Unsupported, short_repr
from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.onnx.from_directml.expressions import nodes_of
from anydml.onnx.from_directml.nodes import IR_VERSION, OPSET, OnnxNodes, code_of
from anydml.onnx.from_directml.softmax import softmax
from anydml.onnx.from_directml.tensor_operators import LOWERINGS, OF_ONE_NODE, Lowering
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.directml import DirectMLForm, no_attributes
from anydml.onnx.protos import ModelProto, NodeProto, make_node, make_opsetid, make_tensor_value_info
from anydml.ops.attributes import Activation
from anydml.ops.call import Call, described, fields
from anydml.ops.dtypes import FLOAT16, FLOAT32
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import ONE, Operator
from anydml.ops.tensor_desc import TensorDesc, last_element


def to_model(graph: DirectMLGraph, inputs: Mapping[Value, str], outputs: Mapping[Value, str]) -> ModelProto:
    """The graph as a model; its inputs and outputs have these names.

    Raises:
        Unsupported: a node that ONNX has no words for, with its name.
    """
    writer = _Writer(graph, inputs, {*inputs.values(), *outputs.values()})
    for node in graph.nodes:
        assert isinstance(node, DirectMLNode)
        writer.node(node)
    o = writer.o
    for value, name in outputs.items():
        o.nodes.append(make_node("Identity", [writer.edges[value]], [name]))
    model = ModelProto(ir_version=IR_VERSION, producer_name="anydml")
    model.opset_import.append(make_opsetid("", OPSET))
    model.graph.name = graph.name
    model.graph.node.extend(o.nodes)
    model.graph.initializer.extend(o.constants)
    model.graph.input.extend(_declared(name, value) for value, name in inputs.items())
    model.graph.output.extend(_declared(name, value) for value, name in outputs.items())
    return model


def _declared(name: str, value: Value) -> Any:
    return make_tensor_value_info(name, code_of(value.data_type), value.tensor.static_sizes)


class _Writer:
    def __init__(self, graph: DirectMLGraph, inputs: Mapping[Value, str], names: set[str]) -> None:
        """`names`: of the graph's inputs and outputs, which nothing else may have."""
        self.o = OnnxNodes()
        self.o.taken = names
        self.edges: dict[Value, str] = dict(inputs)
        for value, constant in graph.constants.items():
            content = np.asarray(constant.content)
            if content.shape != value.tensor.static_sizes:  # flat memory, in which the tensor lies
                flat = np.ascontiguousarray(content).reshape(-1)
                strides = [s * flat.itemsize for s in value.tensor.element_strides]
                content = as_strided(flat, value.tensor.static_sizes, strides)
            self.edges[value] = self.o.constant(content, value.tensor.dtype)

    def node(self, node: DirectMLNode) -> None:
        assert isinstance(node.op, Operator)
        try:
            made = (
                self._tensors(node, node.op) if node.op.compute is not None else self._elements(node, node.op)
            )
        except Unsupported as error:
            problems = [
                Problem(f"node {node.name!r} ({node.op.name})", p.message, p.remedy) for p in error.problems
            ]
            raise Unsupported(*problems) from error
        for value, edge in zip(node.outputs, made, strict=True):
            if value is not None and edge is not None:
                self.edges[value] = edge

    # ---- nodes

    def _elements(self, node: DirectMLNode, operator: Operator) -> list[str]:
        (output,) = node.outputs
        assert output is not None
        rank = len(output.tensor.static_sizes)
        operands: list[str | None] = []
        for k, value in enumerate(node.inputs):
            if value is None:
                operands.append(None)
                continue
            view = node.views.get(k) or value.tensor
            if operator.inputs[k].sizes == ONE:
                operands.append(self.o.reshape(self._seen(value, value.tensor), (1,) * rank))
            else:
                operands.append(self._seen(value, view))
        types = tuple(None if v is None else node.read_type(k) for k, v in enumerate(node.inputs))
        given = [x for x in operands if x is not None]
        edge = self._same(node, operator, types, given)
        if edge is None:
            axes = node.attributes.get("Axes", (-1,))
            edge = softmax(operator.name, given[0], output.tensor.static_sizes, axes, self.o)
        if edge is None:
            edge = nodes_of(
                operator.expression(types, output.data_type, node.attributes, rank), given, self.o
            )
        return [edge]

    def _same(
        self, node: DirectMLNode, operator: Operator, types: Sequence[TensorDataType | None], given: list[str]
    ) -> str | None:
        """An operator that ONNX has, too."""
        found = _same_operators().get(operator.name)
        values = dict(node.attributes)
        scale_bias = values.pop("ScaleBias", None)
        if found is None or scale_bias is not None or any(v is not None for v in values.values()):
            return None
        name, form = found
        fits = all(t is not None and t.label in form.types for t in types) and len(given) in form.inputs
        return str(self.o(name, *given)) if fits else None

    def _tensors(self, node: DirectMLNode, operator: Operator) -> list[str | None]:
        names: dict[str, str] = {}
        tensors: dict[str, TensorDesc] = {}
        places = zip(fields(operator.inputs, len(node.inputs)), node.inputs, strict=True)
        for k, (field, value) in enumerate(places):
            if value is not None:
                view = node.views.get(k) or value.tensor
                tensors[field] = TensorDesc(view.data_type, view.static_sizes)
                names[field] = self._seen(value, view)
        for field, value in zip(fields(operator.outputs, len(node.outputs)), node.outputs, strict=True):
            if value is not None:
                tensors[field] = TensorDesc(value.data_type, value.tensor.static_sizes)
        made = lowered(operator, tensors, node.attributes, names, self.o)
        if made is None:
            if operator.name in LOWERINGS:
                values = [(a, node.attributes.get(a.name, a.default)) for a in operator.attributes]
                got = [f"{a.parameter}={short_repr(value)}" for a, value in values if value != a.default]
                got += [f"{n.removesuffix('Tensor')} {t.data_type.label}" for n, t in tensors.items()]
                message = "expected what ONNX can say, but not with these attributes, types and sizes"
                message += f": {', '.join(got)}"
            else:
                message = "expected an operator that ONNX can say, but it has no words for this one"
            raise Unsupported(Problem(operator.name, message))
        activation = node.attributes.get("FusedActivation")
        if isinstance(activation, Activation):
            (first, *_) = node.writes
            dtype, rank = first.data_type, len(first.tensor.static_sizes)
            meaning = activation.operator.expression((dtype,), dtype, activation.attributes, rank)
            made[0] = nodes_of(meaning, [str(made[0])], self.o)
        return made

    # ---- what is read

    def _seen(self, value: Value, view: TensorType) -> str:
        """The edge of a tensor as it is read: other sizes and strides, the same memory."""
        edge, type = self.edges[value], value.tensor
        if view.data_type != type.data_type:
            message = f"expected {type.dtype}, but its bits are read as {view.dtype}"
            raise Unsupported(Problem(value.name, message))
        sizes, seen = type.static_sizes, view.static_sizes
        if sizes == seen and _alike(type, view):
            return edge
        mapping = dimensions(sizes, type.element_strides, seen, view.element_strides)
        if mapping is not None:
            used = [d for d in mapping if d is not None]
            rest = [d for d in range(len(sizes)) if d not in used]  # of size 1
            turned = (
                edge
                if [*rest, *used] == [*range(len(sizes))]
                else self.o("Transpose", edge, perm=[*rest, *used])
            )
            flat = [1 if d is None else sizes[d] for d in mapping]
            placed = self.o.reshape(turned, flat) if flat != [sizes[d] for d in (*rest, *used)] else turned
            return str(placed if tuple(flat) == seen else self.o("Expand", placed, self.o.integers(seen)))
        return self._gathered(edge, type, view)

    def _gathered(self, edge: str, type: TensorType, view: TensorType) -> str:
        """Element by element, by where each lies in memory."""
        sizes, seen = type.static_sizes, view.static_sizes
        reach = last_element(sizes, type.element_strides) + 1
        if last_element(seen, view.element_strides) >= reach:
            raise Unsupported(Problem("", "expected memory of one tensor, but more is read"))
        number = np.full(reach, -1, np.int64)
        as_strided(number, sizes, [s * 8 for s in type.element_strides])[...] = np.arange(
            np.prod(sizes)
        ).reshape(sizes)
        indices = as_strided(number, seen, [s * 8 for s in view.element_strides])
        if (indices < 0).any():
            raise Unsupported(
                Problem("", "expected elements of a tensor, but what lies between them is read")
            )
        flat = self.o.reshape(edge, [-1])
        return str(self.o("Gather", flat, self.o.constant(indices.copy()), axis=0))


def lowered(
    operator: Operator,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, Any],
    names: Mapping[str, str],
    o: OnnxNodes,
) -> list[str | None] | None:
    """An operator of whole tensors as nodes on these edges (by field name); the edges of its outputs."""
    lowering = LOWERINGS.get(operator.name)
    if lowering is None:
        return None
    narrow = {n for n, t in tensors.items() if t.data_type is FLOAT16}
    if operator.moves or operator.name in OF_ONE_NODE:
        narrow = set()
    names = {n: o.cast(edge, FLOAT32) if n in narrow else edge for n, edge in names.items()}
    wide = {n: TensorDesc(FLOAT32, t.sizes) if n in narrow else t for n, t in tensors.items()}
    made = _written(operator, lowering, described(operator, wide, attributes), names, o)
    if made is None or not narrow:
        return made
    results = zip(made, fields(operator.outputs, len(made)), strict=True)
    return [o.cast(edge, FLOAT16) if edge and n in narrow else edge for edge, n in results]


def _written(
    operator: Operator, lowering: Lowering, call: Call, names: Mapping[str, str], o: OnnxNodes
) -> list[str | None] | None:
    """The nodes, which are on edges named like the parameters, on the edges that these are."""
    inner = OnnxNodes()
    inner.prefix, inner.taken = o.fresh("part") + "_", o.taken
    made = lowering(call, inner)
    if made is None:
        return None
    edges = {}
    for operand in operator.inputs:
        for name, edge in names.items():
            field, _, number = name.partition("[")
            if field == operand.name:
                edges[operand.parameter + number.removesuffix("]")] = edge
    for node in inner.nodes:
        renamed = NodeProto()
        renamed.CopyFrom(node)
        del renamed.input[:]
        renamed.input.extend(edges.get(x, x) for x in node.input)
        o.nodes.append(renamed)
    o.constants += inner.constants
    if operator.outputs[0].array:
        return list(made)
    parts = made if isinstance(made, tuple) else (made,)
    return [edges.get(p, p) for p in parts]


def _alike(type: TensorType, view: TensorType) -> bool:
    pairs = zip(type.static_sizes, type.element_strides, view.element_strides, strict=True)
    return all(n == 1 or a == b for n, a, b in pairs)


@cache
def _same_operators() -> dict[str, tuple[str, DirectMLForm]]:
    """DirectML's operator -> ONNX's that means the same, for these types."""
    found: dict[str, tuple[str, DirectMLForm]] = {}
    for name, info in OPS.items():
        forms = info.directml if isinstance(info.directml, tuple) else (info.directml,)
        for form in forms:
            # a Clip's bound is one number, where DirectML has a tensor of them
            if form is not None and form.attributes is no_attributes and name != "Clip":
                operator = form.operator
                if operator.outputs[0].dtype == operator.inputs[0].dtype:
                    found.setdefault(operator.name, (name, form))
    return found
