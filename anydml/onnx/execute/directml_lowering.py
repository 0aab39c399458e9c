"""ONNX nodes that are DirectML operators: of the same meaning, element by element, so that they fuse.

    Less(x, 0)  Mul(x, 0.1)  Where(l, m, x)     float32[2,3]
      ->  a DirectML graph of ELEMENT_WISE_LOGICAL_LESS_THAN, _MULTIPLY and _IF over the same sizes

A node is taken where its definition computes what ONNX says on its types, NaN, infinities and -0.0 included
(but for Gelu(-inf): its limit, where the formula has -inf * 0).
A truth is a UINT8; a bfloat16, of which kernels know how to compute with it, a UINT16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from anydml.errors import ExecutionFailed, Problem
from anydml.ir.graph import Constant, DirectMLGraph, DirectMLNode, Node, TensorType, Value
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.directml import Attributes, DirectMLForm, Shape
from anydml.onnx.ops.opinfo import KnownNode, NodeView, NotFoldable
from anydml.onnx.schema import INTERNAL_DOMAIN, wrong_type
from anydml.ops.bfloat16 import of_bfloat16
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import packed_strides
from anydml.runtime.launch import broadcast_shape
from anydml.runtime.memory import size_problem


@dataclass(frozen=True)
class DirectMLOp:
    """A definition, its attributes, and the ONNX type of what it computes."""

    operator: Operator
    attributes: Attributes
    result: str
    form: DirectMLForm

    def aligned(self, node: Node, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """The shapes in which a node's inputs broadcast, by those that they have. Raises ValueError."""
        return self.form.aligned(NodeView(node), shapes)


_FORMS: WeakKeyDictionary[Node, tuple[DirectMLOp, ...]] = WeakKeyDictionary()
"""What was found of a node. Lowering asks for each of them again and again."""
_NOTHING: Mapping[Value, Constant] = {}


def lower_to_directml(node: Node, constants: Mapping[Value, Constant] = _NOTHING) -> DirectMLOp | None:
    """The definition of an ONNX node, where there is one that computes the same.

    Args:
        constants: what is known of its inputs; some definitions compute the same only then.
    """
    return next((m for m in _forms(node) if m.form.known(KnownNode(node, constants))), None)


def may_have_form(node: Node) -> bool:
    """Whether there is a definition for it, if its inputs are known as they have to be."""
    return bool(_forms(node))


def _forms(node: Node) -> tuple[DirectMLOp, ...]:
    if node not in _FORMS:
        _FORMS[node] = tuple(_find_forms(node))
    return _FORMS[node]


def _find_forms(node: Node) -> Iterator[DirectMLOp]:
    info = OPS.get(node.op.name) if node.op.domain in ("", INTERNAL_DOMAIN) else None
    if info is None or len(node.outputs) != 1 or node.outputs[0] is None or node.bodies:
        return
    if wrong_type(node.op, node):
        return
    for form in info.forms:
        if (found := _as_form(node, form)) is not None:
            yield found


def _as_form(node: Node, form: DirectMLForm) -> DirectMLOp | None:
    if len(node.inputs) not in form.inputs or node.op.version < form.since:
        return None
    if {k for k, v in enumerate(node.inputs) if v is None} != form.left_out:
        return None
    types = [v.type for v in node.reads]
    dtypes = [t.dtype if isinstance(t, TensorType) else "" for t in types]
    about = dtypes[form.first :]
    alike = form.mixed or len(set(about)) == 1
    if about[0] not in form.types or not alike or any(d != "bool" for d in dtypes[: form.first]):
        return None
    view = KnownNode(node, _NOTHING)
    try:
        told, result = form.attributes(view), form.result(view, about[0])
    except NotFoldable:  # an attribute of another type
        return None
    if told is None or result is None:
        return None
    operator = form.operator
    result = "bool" if operator.outputs[0].dtype == "B" else result
    if not form.moves and "bfloat16" in (*dtypes, result):
        operator = of_bfloat16(operator, tuple(d == "bfloat16" for d in dtypes), result == "bfloat16")
    defaults = {a.name: a.default for a in operator.parameters}
    return DirectMLOp(operator, defaults | told, result, form)


def as_directml(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    shapes: Sequence[Shape],
    constants: Mapping[Value, Constant],
    outputs: Sequence[Value],
) -> tuple[DirectMLGraph, list[Shape]]:
    """Nodes that have meanings as a DirectML graph, for inputs of these shapes; and the outputs' shapes.

    Args:
        constants: what is known of what they read; what is no input has one element.

    Raises:
        ExecutionFailed: the shapes do not broadcast, or an output would be larger than the memory.
    """
    known = {v: _tensor(v, n or (1,)) for v, n in zip(inputs, shapes, strict=True)}
    shape_of = dict(zip(inputs, shapes, strict=True))
    contents = {}
    for value, constant in constants.items():
        if value in shape_of:
            continue
        known[value] = _tensor(value, (1,))
        shape_of[value] = constant.content.shape
        contents[known[value]] = Constant(constant.content.reshape(1).view(known[value].tensor.dtype))
    made = []
    for node in nodes:
        meaning = lower_to_directml(node, constants)
        (output,) = node.outputs
        assert meaning is not None
        assert output is not None
        read = [v for v in node.inputs if v is not None]
        seen, shape = _broadcast_shapes(node, meaning, [shape_of[v] for v in read])
        shape_of[output], sizes = shape, shape or (1,)  # DirectML has at least one dimension
        result = known[output] = Value(output.name, _packed_desc(_label(meaning.result), sizes))
        itemsize = np.dtype(result.tensor.dtype).itemsize
        if problem := size_problem(
            f"output {output.name!r} of {node.label}", meaning.result, sizes, itemsize
        ):
            raise ExecutionFailed(problem)
        views = {
            k: TensorType(known[v].tensor.dtype, sizes, _broadcast(own or (1,), sizes))
            for k, (v, own) in enumerate(zip(read, seen, strict=True))
        }
        given = tuple(known[v] for v in read)
        made.append(
            DirectMLNode(meaning.operator, given, (result,), meaning.attributes, node.name, views=views)
        )
    ends = tuple(known[v] for v in outputs)
    graph = DirectMLGraph("kernels", tuple(known[v] for v in inputs), ends, tuple(made), contents)
    return graph, [shape_of[v] for v in outputs]


def _broadcast_shapes(
    node: Node, meaning: DirectMLOp, given: Sequence[Shape]
) -> tuple[Sequence[Shape], Shape]:
    """The shapes in which the inputs of a node broadcast, and the one to which they do."""
    try:
        shapes = [*meaning.aligned(node, given)]
    except ValueError as error:
        raise ExecutionFailed(Problem(node.label, str(error))) from error
    shape = broadcast_shape(shapes)
    if shape is None:
        shown = ", ".join(map(str, given))
        raise ExecutionFailed(Problem(node.label, f"expected shapes that broadcast, but got {shown}"))
    return shapes, shape


# ---- types -------------------------------------------------------------------------------------------


def _label(dtype: str) -> str:
    """The data type as which kernels see an ONNX type."""
    return {"bool": "uint8", "bfloat16": "uint16"}.get(dtype, dtype)


def _tensor(value: Value, sizes: tuple[int, ...]) -> Value:
    assert isinstance(value.type, TensorType)
    return Value(value.name, _packed_desc(_label(value.type.dtype), sizes))


def _packed_desc(label: str, sizes: tuple[int, ...]) -> TensorType:
    return TensorType(label, sizes, packed_strides(sizes))


def _broadcast(sizes: tuple[int, ...], to: tuple[int, ...]) -> tuple[int, ...]:
    """The strides through which packed memory of `sizes` is read over the sizes `to`."""
    strides = [0 if n == 1 else s for n, s in zip(sizes, packed_strides(sizes), strict=True)]
    return (0,) * (len(to) - len(sizes)) + tuple(strides)
