"""What onnxruntime does wrong with valid input: one table, by operator. Such nodes run by another way.

Seen with onnxruntime 1.31, by `python -m tools.search_provider_quirks`, the onnx package's test suite and
random models. A reason is a sentence that `Session.explain()` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import helper

from anydml.ir.dims import Dim, may_be_zero
from anydml.ir.graph import Constant, Node, OnnxOp, TensorType
from anydml.onnx.types import leaf

Constants = Mapping[Any, Constant]


@dataclass(frozen=True)
class Quirk:
    """Something that a library does wrong, and when: decided by what is known of a node before it runs.

    `empty`: only where one of the inputs has no elements, which can be looked at when it runs.
    `fatal`: the library ends the process.
    """

    reason: str
    when: Callable[[Node, Constants], bool]
    empty: bool = False
    fatal: bool = False


def quirk_of(node: Node, constants: Constants) -> Quirk | None:
    """What onnxruntime does wrong with a node, or may do, for all that is known of it."""
    if not isinstance(node.op, OnnxOp) or node.op.domain:
        return None
    return next((q for q in QUIRKS.get(node.op.name, ()) if q.when(node, constants)), None)


# ---- what is known of a node -------------------------------------------------------------------------


def _sizes(node: Node, k: int) -> tuple[Dim, ...] | None:
    """The sizes of input k, as far as known; None if it is not there, or of unknown rank."""
    value = node.inputs[k] if k < len(node.inputs) else None
    return None if value is None else value.sizes


def _dtype(node: Node, k: int = 0) -> str:
    value = node.inputs[k] if k < len(node.inputs) else None
    return "" if value is None or value.type is None else leaf(value.type).dtype


def _attribute(node: Node, name: str, default: Any) -> Any:
    attribute = node.attributes.get(name)
    return default if attribute is None else helper.get_attribute_value(attribute)


def _numbers(node: Node, k: int, constants: Constants) -> list[Any] | None:
    """The content of input k, if it is known."""
    value = node.inputs[k] if k < len(node.inputs) else None
    return None if value is None or value not in constants else constants[value].content.reshape(-1).tolist()


def _always(node: Node, constants: Constants) -> bool:
    return True


def _may_be_empty(node: Node, constants: Constants) -> bool:
    """Whether an input of the node has no elements, or perhaps none."""
    return any(
        not isinstance(v.type, TensorType) or v.sizes is None or any(map(may_be_zero, v.sizes))
        for v in node.reads
    )


def _is_integer(node: Node) -> bool:
    return _dtype(node) == "" or "int" in _dtype(node)


# ---- rules -------------------------------------------------------------------------------------------


def _divisor(node: Node, constants: Constants) -> bool:
    """An integer by something that may be 0, or -1, by which the smallest integer cannot be divided."""
    divisors = _numbers(node, 1, constants)
    return _is_integer(node) and (divisors is None or any(n in (0, -1) for n in divisors))


def _empty_vector(node: Node, constants: Constants) -> bool:
    """A matrix by a vector that may have no elements."""
    vector = _sizes(node, 1)
    return vector is None or (len(vector) == 1 and may_be_zero(vector[0]))


def _axis_from_the_end(node: Node, constants: Constants) -> bool:
    """An axis that is counted from the end, and may have no elements."""
    sizes = _sizes(node, 0)
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    axes = _numbers(node, 1, constants) if given else list(_attribute(node, "axes", []))
    if sizes is None:
        return axes is None or any(axis < 0 for axis in axes)
    if axes is None:
        return any(map(may_be_zero, sizes))
    return any(-len(sizes) <= axis < 0 and may_be_zero(sizes[axis]) for axis in axes)


def _bool_of_nothing(node: Node, constants: Constants) -> bool:
    return _dtype(node) == "bool" and _may_be_empty(node, constants)


def _attention(node: Node, constants: Constants) -> bool:
    """The scores output without the causal mask; a mask shorter than the keys, which stands for padding."""
    if len(node.outputs) > 3 and node.outputs[3] is not None and _attribute(node, "is_causal", 0):
        return True
    return len(node.inputs) > 6 and node.inputs[3] is not None


def _aligned_corners(node: Node, constants: Constants) -> bool:
    mode = _attribute(node, "coordinate_transformation_mode", b"half_pixel")
    return bool(mode == b"align_corners" and _attribute(node, "mode", b"nearest") in (b"linear", b"cubic"))


def _no_distribution(node: Node, constants: Constants) -> bool:
    """A scale that is not positive, or a range that is none."""
    low, high = (float(_attribute(node, *pair)) for pair in (("low", 0.0), ("high", 1.0)))
    return not (float(_attribute(node, "scale", 1.0)) > 0 and low <= high and high - low < float("inf"))


def _too_few_dimensions(node: Node, constants: Constants) -> bool:
    """Fewer dimensions than letters, or perhaps."""
    equation = _attribute(node, "equation", b"")
    if not isinstance(equation, bytes):  # of an opset that has no Einsum
        return True
    terms = equation.replace(b"...", b"").replace(b" ", b"").split(b"->")[0].split(b",")
    sizes = [_sizes(node, k) for k in range(len(node.inputs))]
    return len(terms) != len(sizes) or any(
        s is None or len(s) < len(t) for s, t in zip(sizes, terms, strict=True)
    )


def _upper_case(node: Node, constants: Constants) -> bool:
    equation = _attribute(node, "equation", b"")
    return isinstance(equation, bytes) and equation != equation.lower()


def _elements_of_unknown_rank(node: Node, constants: Constants) -> bool:
    type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
    return type is None or leaf(type).sizes is None


def _empty_batch(node: Node, constants: Constants) -> bool:
    sizes = _sizes(node, 0)
    return sizes is None or len(sizes) != 3 or may_be_zero(sizes[1 - _attribute(node, "layout", 0)])


def has_empty_input(node: Node) -> bool:
    """Whether an input of a node is known to have no elements."""
    return any(0 in (v.sizes or ()) for v in node.reads)


_INTEGER_DIVISION = (
    Quirk("it ends the process on the smallest integer by -1, and on 0", _divisor, fatal=True),
)
_RANDOM = (Quirk("it ends the process on distributions that are none", _no_distribution, fatal=True),)
_REDUCED = Quirk("it keeps an empty axis that is counted from the end", _axis_from_the_end, empty=True)
_OF_BOOLS = Quirk("it takes the extreme of no bools for that of the other end", _bool_of_nothing, empty=True)

_REDUCTIONS = [f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Mean Prod Sum SumSquare".split()]

QUIRKS: Mapping[str, tuple[Quirk, ...]] = {
    "Attention": (Quirk("it masks otherwise", _attention),),
    "Bernoulli": (Quirk("it draws 1 with the probability of 0", _always),),
    "ConcatFromSequence": (
        Quirk("it ends the process on tensors of different ranks", _elements_of_unknown_rank, fatal=True),
    ),
    "ConvInteger": (
        Quirk("a zero point for each channel", lambda n, c: _sizes(n, 3) not in (None, (), (1,))),
    ),
    "DFT": (Quirk("a naive sum, whose error grows with the length", _always),),
    "Div": _INTEGER_DIVISION,
    "Dropout": (Quirk("in training it draws other numbers than ONNX's", lambda n, c: len(n.inputs) > 2),),
    "Einsum": (
        Quirk("it ends the process on fewer dimensions than letters", _too_few_dimensions, fatal=True),
        Quirk("it takes no letters of upper case", _upper_case),
        Quirk("it ends the process on tensors without elements", _may_be_empty, empty=True, fatal=True),
    ),
    "GRU": (Quirk("it ends the process on empty sequences", _may_be_empty, empty=True, fatal=True),),
    "LSTM": (Quirk("it ends the process on an empty batch", _empty_batch, empty=True, fatal=True),),
    "MatMul": (Quirk("a matrix by a vector without elements is what ran before", _empty_vector, empty=True),),
    "MatMulInteger": (Quirk("a product over nothing is what ran before", _may_be_empty, empty=True),),
    "MaxUnpool": (
        Quirk("indices refer to the output shape, not to the pooled one", lambda n, c: len(n.inputs) > 2),
    ),
    "Mod": _INTEGER_DIVISION,
    "Pow": (Quirk("it computes integers in float64", lambda n, c: _dtype(n) in ("int64", "uint64")),),
    "QuantizeLinear": (
        Quirk("it does not saturate in blocks", lambda n, c: bool(_attribute(n, "block_size", 0))),
    ),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), _RANDOM),
    **dict.fromkeys(_REDUCTIONS, (_REDUCED,)),
    "ReduceMax": (_REDUCED, _OF_BOOLS),
    "ReduceMin": (_REDUCED, _OF_BOOLS),
    "Resize": (Quirk("it rounds sizes before it aligns corners", _aligned_corners),),
    "Shrink": (Quirk("it computes in float32", lambda n, c: _dtype(n) not in ("float32", "float16")),),
    "STFT": (Quirk("a naive sum, and it ends the process without a step", _always, fatal=True),),
    "Unique": (
        Quirk(
            "it ends the process on slices without elements",
            lambda n, c: "axis" in n.attributes and _may_be_empty(n, c),
            empty=True,
            fatal=True,
        ),
    ),
}
