"""ONNX nodes that are DirectML operators: of the same meaning, so that they fuse.

    Less(x, 0)  Mul(x, 0.1)  Where(l, m, x)     float32[2,3]
      ->  a DirectML graph of ELEMENT_WISE_LOGICAL_LESS_THAN, _MULTIPLY and _IF over the same sizes

A node is taken where its definition computes what ONNX says on its types, NaN, infinities and -0.0 included
(but for Gelu(-inf): its limit, where the formula has -inf * 0).
A truth is a UINT8; a bfloat16, of which kernels know how to compute with it, a UINT16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from weakref import WeakKeyDictionary

import numpy as np

from anydml.dataclass import dataclass
from anydml.errors import ExecutionFailed, OutOfMemory, Problem
from anydml.ir.graph import Constant, DirectMLGraph, DirectMLNode, If, Node, TensorType, Value
from anydml.onnx.execute.reductions import Reduction
from anydml.onnx.execute.turns import Turn
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.directml import Attributes, DirectMLForm, Shape
from anydml.onnx.ops.opinfo import KnownNode, NodeView, NotFoldable
from anydml.onnx.schema import INTERNAL_DOMAIN, wrong_type
from anydml.ops.bfloat16 import of_bfloat16
from anydml.ops.opdef import Operator
from anydml.ops.reduction import REDUCE
from anydml.ops.tensor_desc import broadcast_shape, packed_strides
from anydml.ops.unary import ELEMENT_WISE_IDENTITY, ELEMENT_WISE_SQRT
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
    except (NotFoldable, ValueError):  # an attribute of another type, or an axis that is not there
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
    moved: Mapping[Node | If, Reduction | Turn] = MappingProxyType({}),
) -> tuple[DirectMLGraph, list[Shape]]:
    """Nodes that have meanings as a DirectML graph, for inputs of these shapes; and the outputs' shapes.

    Args:
        constants: what is known of what they read; what is no input has one element.
        moved: the nodes that are not element-wise.

    Raises:
        ExecutionFailed: the shapes do not broadcast, or an output would be larger than the memory.
    """
    lowering = _Lowering(inputs, shapes, constants)
    for node in nodes:
        match moved.get(node):
            case Reduction() as reduction:
                lowering.reduce(node, reduction)
            case Turn() as turn:
                lowering.turn(node, turn)
            case None:
                lowering.elementwise(node)
    return lowering.graph(inputs, outputs), [lowering.shapes[v] for v in outputs]


class _Lowering:
    """Of nodes, one by one. A value is a tensor of at least one dimension, as DirectML has them; that is
    packed, and so the same memory whatever shape a reader sees."""

    def __init__(
        self, inputs: Sequence[Value], shapes: Sequence[Shape], constants: Mapping[Value, Constant]
    ) -> None:
        self._constants = constants
        self._tensors = {v: _tensor(v, n or (1,)) for v, n in zip(inputs, shapes, strict=True)}
        self.shapes = dict(zip(inputs, shapes, strict=True))
        self._contents: dict[Value, Constant] = {}
        self._nodes: list[DirectMLNode] = []
        for value, constant in constants.items():
            if value not in self.shapes and constant.content.size == 1:
                tensor = self._tensors[value] = _tensor(value, (1,))
                self.shapes[value] = constant.content.shape
                self._contents[tensor] = Constant(constant.content.reshape(1).view(tensor.tensor.dtype))

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> DirectMLGraph:
        given, made = (tuple(self._tensors[v] for v in values) for values in (inputs, outputs))
        return DirectMLGraph("kernels", given, made, tuple(self._nodes), self._contents)

    def elementwise(self, node: Node) -> None:
        meaning = lower_to_directml(node, self._constants)
        assert meaning is not None
        read = [v for v in node.inputs if v is not None]
        seen, shape = _broadcast_shapes(node, meaning, [self.shapes[v] for v in read])
        sizes = shape or (1,)
        views = {
            k: TensorType(self._tensors[v].tensor.dtype, sizes, _broadcast(own or (1,), sizes))
            for k, (v, own) in enumerate(zip(read, seen, strict=True))
        }
        given = tuple(self._tensors[v] for v in read)
        result = _result(node, meaning.result, sizes)
        self._nodes.append(
            DirectMLNode(meaning.operator, given, (result,), meaning.attributes, node.name, views=views)
        )
        self._give(node, result, shape)

    def reduce(self, node: Node, reduction: Reduction) -> None:
        (source, *_) = node.reads
        given = self.shapes[source]
        kept = reduction.kept(given)
        result = _result(node, reduction.result_type, kept)
        attributes = {"Function": reduction.function, "Axes": reduction.axes}
        views = {0: _packed_desc("float32", given)}
        made = DirectMLNode(REDUCE, (self._tensors[source],), (result,), attributes, node.name, views=views)
        self._nodes.append(made)
        if reduction.root:
            square, result = result, _result(node, "float32", kept)
            root = DirectMLNode(ELEMENT_WISE_SQRT, (square,), (result,), {"ScaleBias": None}, node.name)
            self._nodes.append(root)
        self._give(node, result, reduction.result(given))

    def turn(self, node: Node, turn: Turn) -> None:
        (source,) = node.reads
        given = self.shapes[source]
        strides = packed_strides(given)
        sizes = tuple(given[a] for a in turn.order)
        result = _result(node, turn.result_type, sizes)
        seen = TensorType(result.tensor.dtype, sizes, tuple(strides[a] for a in turn.order))
        read = (self._tensors[source],)
        self._nodes.append(
            DirectMLNode(
                ELEMENT_WISE_IDENTITY, read, (result,), {"ScaleBias": None}, node.name, views={0: seen}
            )
        )
        self._give(node, result, sizes)

    def _give(self, node: Node, result: Value, shape: Shape) -> None:
        (output,) = node.writes
        self._tensors[output], self.shapes[output] = result, shape


def _result(node: Node, dtype: str, sizes: Shape) -> Value:
    """What a node makes. Raises OutOfMemory if that is larger than there is."""
    (output,) = node.writes
    result = Value(output.name, _packed_desc(_label(dtype), sizes))
    itemsize = np.dtype(result.tensor.dtype).itemsize
    if problem := size_problem(f"output {output.name!r} of {node.label}", dtype, sizes, itemsize):
        raise OutOfMemory(problem)
    return result


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
