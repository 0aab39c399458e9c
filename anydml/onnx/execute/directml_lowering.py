"""ONNX nodes that are DirectML operators: of the same meaning, element by element, so that they fuse.

    Less(x, 0)  Mul(x, 0.1)  Where(l, m, x)     float32[2,3]
      ->  a DirectML graph of ELEMENT_WISE_LOGICAL_LESS_THAN, _MULTIPLY and _IF over the same sizes

A node is taken where its record computes what ONNX says on its types, NaN, infinities and -0.0 included
(but for Gelu(-inf): its limit, where the formula has -inf * 0).
A truth is a UINT8; a bfloat16, which is only moved, a UINT16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from onnx import AttributeProto

from anydml.errors import ExecutionFailed, Problem
from anydml.ir.graph import Constant, Graph, Node, OnnxOp, TensorType, Value
from anydml.onnx.node_builder import OWN
from anydml.ops import activation, arithmetic, elementwise, unary
from anydml.ops.enums import IsInfinityMode
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import packed_strides
from anydml.runtime.launch import broadcast_shape
from anydml.runtime.memory import size_problem

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Meaning:
    """A record, its attributes, and the ONNX type of what it computes."""

    operator: Operator
    attributes: Attributes
    result: str


_MEANINGS: WeakKeyDictionary[Node, Meaning | None] = WeakKeyDictionary()
"""What was found of a node. Lowering asks for each of them again and again."""


def meaning_of(node: Node) -> Meaning | None:
    """The record of an ONNX node, where there is one that computes the same."""
    if node not in _MEANINGS:
        _MEANINGS[node] = _found(node)
    return _MEANINGS[node]


def _found(node: Node) -> Meaning | None:
    assert isinstance(node.op, OnnxOp)
    rule = _RULES.get(node.op.name) if node.op.domain in ("", OWN) else None
    types = [v.type for v in node.inputs if v is not None]
    if rule is None or len(types) not in rule.inputs or len(types) != len(node.inputs):
        return None
    if len(node.outputs) != 1 or node.outputs[0] is None or node.captures or node.op.version < rule.since:
        return None
    dtypes = [t.dtype if isinstance(t, TensorType) else "" for t in types]
    about = dtypes[rule.first :]
    if about[0] not in rule.types or len(set(about)) != 1 or any(d != "bool" for d in dtypes[: rule.first]):
        return None
    told = rule.attributes(node)
    if told is None:
        return None
    truth = rule.operator.outputs[0].dtype != rule.operator.inputs[-1].dtype
    return Meaning(
        rule.operator,
        {a.name: a.default for a in rule.operator.parameters} | told,
        "bool" if truth else about[0],
    )


def as_directml(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    shapes: Sequence[tuple[int, ...]],
    numbers: Mapping[Value, Constant],
    outputs: Sequence[Value],
) -> tuple[Graph, list[tuple[int, ...]]]:
    """Nodes that have meanings as a DirectML graph, for inputs of these shapes; and the outputs' shapes.

    Args:
        numbers: values of one element that are known.

    Raises:
        ExecutionFailed: the shapes do not broadcast, or an output would be larger than the memory.
    """
    known = {v: _tensor(v, n or (1,)) for v, n in zip(inputs, shapes, strict=True)}
    shape_of = dict(zip(inputs, shapes, strict=True))
    contents = {}
    for value, constant in numbers.items():
        known[value] = _tensor(value, (1,))
        shape_of[value] = constant.content.shape
        contents[known[value]] = Constant(constant.content.reshape(1).view(known[value].tensor.dtype))
    made = []
    for node in nodes:
        meaning = meaning_of(node)
        (output,) = node.outputs
        assert meaning is not None
        assert output is not None
        given = [known[v] for v in node.inputs if v is not None]
        shape = broadcast_shape([shape_of[v] for v in node.inputs if v is not None])
        if shape is None:
            shown = ", ".join(str(shape_of[v]) for v in node.inputs if v is not None)
            raise ExecutionFailed(Problem(node.label, f"expected shapes that broadcast, but got {shown}"))
        shape_of[output], sizes = shape, shape or (1,)  # DirectML has at least one dimension
        result = known[output] = Value(output.name, _packed(_label(meaning.result), sizes))
        itemsize = np.dtype(result.tensor.dtype).itemsize
        if problem := size_problem(
            f"output {output.name!r} of {node.label}", meaning.result, sizes, itemsize
        ):
            raise ExecutionFailed(problem)
        views = {
            k: TensorType(v.tensor.dtype, sizes, _broadcast(v.tensor.static_sizes, sizes))
            for k, v in enumerate(given)
        }
        attributes = meaning.attributes
        made.append(Node(meaning.operator, tuple(given), (result,), attributes, node.name, views=views))
    ends = tuple(known[v] for v in outputs)
    graph = Graph("kernels", tuple(known[v] for v in inputs), ends, tuple(made), contents)
    return graph, [shape_of[v] for v in outputs]


# ---- types -------------------------------------------------------------------------------------------


def _label(dtype: str) -> str:
    """The data type as which kernels see an ONNX type."""
    return {"bool": "uint8", "bfloat16": "uint16"}.get(dtype, dtype)


def _tensor(value: Value, sizes: tuple[int, ...]) -> Value:
    assert isinstance(value.type, TensorType)
    return Value(value.name, _packed(_label(value.type.dtype), sizes))


def _packed(label: str, sizes: tuple[int, ...]) -> TensorType:
    return TensorType(label, sizes, packed_strides(sizes))


def _broadcast(sizes: tuple[int, ...], to: tuple[int, ...]) -> tuple[int, ...]:
    """The strides through which packed memory of `sizes` is read over the sizes `to`."""
    strides = [0 if n == 1 else s for n, s in zip(sizes, packed_strides(sizes), strict=True)]
    return (0,) * (len(to) - len(sizes)) + tuple(strides)


# ---- rules -------------------------------------------------------------------------------------------

_FLOAT = frozenset({"float32"})
_SIGNED = frozenset("float32 int8 int16 int32 int64".split())
_NUMBERS = _SIGNED | frozenset("uint8 uint16 uint32 uint64".split())
_TRUTHS = frozenset({"bool"})
MOVED = _NUMBERS | _TRUTHS | frozenset("float16 float64 bfloat16".split())


@dataclass(frozen=True)
class _Rule:
    operator: Operator
    types: frozenset[str] = _FLOAT
    inputs: tuple[int, ...] = (1,)
    """How many the node may have."""
    attributes: Callable[[Node], Attributes | None] = lambda node: {}
    """The record's attributes; None where the record has no such meaning."""
    since: int = 7
    """Before opset 7, operators broadcast by an attribute."""
    first: int = 0
    """The first input that the types are about; before it stand truths."""


def _plain(node: Node) -> Attributes | None:
    return None if node.attributes else {}


def _floats(node: Node, **defaults: tuple[str, float]) -> Attributes | None:
    """Attributes that are floats: ONNX's name -> DirectML's, and ONNX's default."""
    if any(a.type != AttributeProto.FLOAT or n not in defaults for n, a in node.attributes.items()):
        return None
    return {
        name: node.attributes[theirs].f if theirs in node.attributes else default
        for theirs, (name, default) in defaults.items()
    }


def _infinity(node: Node) -> Attributes | None:
    """None when neither sign is to be detected: then nothing is infinite, which a library computes."""
    if any(a.type != AttributeProto.INT for a in node.attributes.values()):
        return None
    positive, negative = (
        "detect_" + w not in node.attributes or node.attributes["detect_" + w].i != 0
        for w in ("positive", "negative")
    )
    modes = {
        (True, True): IsInfinityMode.EITHER,
        (True, False): IsInfinityMode.POSITIVE,
        (False, True): IsInfinityMode.NEGATIVE,
    }
    mode = modes.get((positive, negative))
    return None if mode is None else {"InfinityMode": mode}


def _gelu(node: Node) -> Attributes | None:
    approximate = node.attributes.get("approximate")
    return {} if approximate is None or approximate.s == b"none" else None


_unary = partial(_Rule, attributes=_plain)
_binary = partial(_Rule, inputs=(2,), attributes=_plain)

_RULES: dict[str, _Rule] = {
    "Add": _binary(arithmetic.ELEMENT_WISE_ADD, _NUMBERS),
    "Sub": _binary(arithmetic.ELEMENT_WISE_SUBTRACT, _NUMBERS),
    "Mul": _binary(arithmetic.ELEMENT_WISE_MULTIPLY, _NUMBERS),
    "Div": _binary(arithmetic.ELEMENT_WISE_DIVIDE),
    "Max": _binary(arithmetic.ELEMENT_WISE_MAX, _NUMBERS - _FLOAT, since=8),  # of floats, zeros would differ
    "Min": _binary(arithmetic.ELEMENT_WISE_MIN, _NUMBERS - _FLOAT, since=8),
    "Neg": _unary(unary.ELEMENT_WISE_NEGATE, _SIGNED),
    "Abs": _unary(unary.ELEMENT_WISE_ABS, _SIGNED),
    "Sqrt": _unary(unary.ELEMENT_WISE_SQRT),
    "Exp": _unary(unary.ELEMENT_WISE_EXP),
    "Log": _unary(unary.ELEMENT_WISE_LOG),
    "Floor": _unary(unary.ELEMENT_WISE_FLOOR),
    "Ceil": _unary(unary.ELEMENT_WISE_CEIL),
    "Round": _unary(unary.ELEMENT_WISE_ROUND),
    "Reciprocal": _unary(unary.ELEMENT_WISE_RECIP),
    "Erf": _unary(unary.ELEMENT_WISE_ERF),
    "Tanh": _unary(unary.ELEMENT_WISE_TANH),
    "Sin": _unary(unary.ELEMENT_WISE_SIN),
    "Cos": _unary(unary.ELEMENT_WISE_COS),
    "Sigmoid": _unary(activation.ACTIVATION_SIGMOID),
    "Softplus": _unary(activation.ACTIVATION_SOFTPLUS),
    "Softsign": _unary(activation.ACTIVATION_SOFTSIGN),
    "Gelu": _Rule(activation.ACTIVATION_GELU, attributes=_gelu),
    "LeakyRelu": _Rule(activation.ACTIVATION_LEAKY_RELU, attributes=partial(_floats, alpha=("Alpha", 0.01))),
    "Elu": _Rule(activation.ACTIVATION_ELU, attributes=partial(_floats, alpha=("Alpha", 1.0))),
    "HardSigmoid": _Rule(
        activation.ACTIVATION_HARD_SIGMOID,
        attributes=partial(_floats, alpha=("Alpha", 0.2), beta=("Beta", 0.5)),
    ),
    "Equal": _binary(elementwise.ELEMENT_WISE_LOGICAL_EQUALS, _NUMBERS | _TRUTHS),
    "Greater": _binary(elementwise.ELEMENT_WISE_LOGICAL_GREATER_THAN, _NUMBERS),
    "Less": _binary(elementwise.ELEMENT_WISE_LOGICAL_LESS_THAN, _NUMBERS),
    "GreaterOrEqual": _binary(elementwise.ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL, _NUMBERS),
    "LessOrEqual": _binary(elementwise.ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL, _NUMBERS),
    "And": _binary(elementwise.ELEMENT_WISE_LOGICAL_AND, _TRUTHS),
    "Or": _binary(elementwise.ELEMENT_WISE_LOGICAL_OR, _TRUTHS),
    "Xor": _binary(elementwise.ELEMENT_WISE_LOGICAL_XOR, _TRUTHS),
    "Not": _unary(elementwise.ELEMENT_WISE_LOGICAL_NOT, _TRUTHS, since=1),
    "IsNaN": _unary(elementwise.ELEMENT_WISE_IS_NAN, frozenset({"float32", "float16"})),
    "IsInf": _Rule(
        elementwise.ELEMENT_WISE_IS_INFINITY, frozenset({"float32", "float16"}), attributes=_infinity
    ),
    "Identity": _unary(unary.ELEMENT_WISE_IDENTITY, MOVED, since=1),
    "Where": _Rule(elementwise.ELEMENT_WISE_IF, MOVED, (3,), _plain, first=1),
}
