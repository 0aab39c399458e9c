"""Products of 8-bit integers as onnxruntime computes them exactly, and fast.

MatMulInteger(%x: uint8, %w: int8)   ->   MatMulInteger(%x, %w + 128: uint8, zero point + 128)

On x86 processors without VNNI onnxruntime adds up pairs of products of UINT8 and INT8 in 16 bits, and cuts
off what does not fit: there second factors become UINT8, unless they have 7 bits, which fit. It has no
instructions for a first factor of INT8, and takes six to fifteen times as long: that becomes UINT8, too.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import replace
from anydml.ir.graph import Constant, If, Node, TensorType, Value
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.providers.products_of_bytes import cuts_sums_off
from anydml.onnx.providers.provider import Made
from anydml.onnx.serde.parts import PartWriter, part
from anydml.onnx.types import CODES

Constants = Mapping[Value, Constant]
MIDDLE = 128
FITS = 64
"""Two products of UINT8 and at most so much have a sum of 16 bits."""


class Factor(NamedTuple):
    """Its place among a node's inputs, and that of its zero point."""

    place: int
    zero: int


class Product(NamedTuple):
    """What is multiplied as onnxruntime does it: ConvInteger multiplies filters by windows."""

    second: tuple[Factor, ...]
    first: Factor | None = None
    """None: the operator makes it UINT8 itself."""
    zero: int | None = None
    """The place of the result's zero point, if it has one. Results are INT8 of first factors of INT8 only."""


PRODUCTS = {
    ("", "MatMulInteger"): Product((Factor(1, 3),), Factor(0, 2)),
    ("", "ConvInteger"): Product((Factor(0, 2),), Factor(1, 3)),
    ("", "QLinearMatMul"): Product((Factor(3, 5),), Factor(0, 2), 7),
    ("", "QLinearConv"): Product((Factor(3, 5),), Factor(0, 2), 7),
    ("com.microsoft", "MatMulIntegerToFloat"): Product((Factor(1, 5),), Factor(0, 4)),
    ("com.microsoft", "DynamicQuantizeMatMul"): Product((Factor(1, 3),)),
    ("com.microsoft", "QGemm"): Product((Factor(3, 5),), Factor(0, 2), 8),
    ("com.microsoft", "QAttention"): Product((Factor(1, 7),), Factor(0, 6)),
    ("com.microsoft", "DynamicQuantizeLSTM"): Product((Factor(1, 9), Factor(2, 11))),
}
_ALIGNED = 64
"""Bytes between places where weights may begin."""
_OF_FLOATS = "MatMul", "Gemm", "Conv"
"""What onnxruntime multiplies as integers, if both factors were dequantized."""
_MOVING = "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"
_SAID = {"block_size", "output_dtype", "precision"}
"""Attributes of what is left as it is."""


class Written(NamedTuple):
    """What is written instead of some nodes, and the constants and weights that are read then."""

    instead: Mapping[Node | If, list[Node]]
    constants: Constants
    weights: Constants


def right_byte_products(
    every: Sequence[Node | If], outputs: Sequence[Value], constants: Constants, weights: Constants
) -> Written:
    """`every`: the nodes of a region, and those in their branches and bodies."""
    nodes = [n for n in every if isinstance(n, Node)]
    products = [(n, p) for n in nodes if (p := PRODUCTS.get(n.op[:2])) is not None]
    pairs = _Pairs(every, outputs) if any(n.is_onnx("DequantizeLinear") for n in nodes) else None
    if not products and pairs is None:
        return Written({}, constants, weights)
    made = _Maker(constants, weights)
    for node, product in products:
        made.change(node, product)
    if pairs is not None:
        for node, dequantized in pairs.of_activations() if _slow() else ():
            made.quantize(node, dequantized)
        for node in pairs.of_weights():
            if made.cut_off(node, [Factor(0, 2)]):
                made.raise_factor(node, Factor(0, 2))
    if not made.instead:
        return Written({}, constants, weights)
    read: set[Value | None] = set()
    for node_or_if in every:
        read.update(v for n in made.instead.get(node_or_if, [node_or_if]) for v in n.reads)
        read.update(v for inner in node_or_if.subgraphs for v in inner.outputs)

    def kept(known: Constants) -> Constants:
        return {v: c for v, c in known.items() if v in read or v not in made.raised}

    return Written(made.instead, {**kept(constants), **made.constants}, {**kept(weights), **made.weights})


def _differs(n: KnownNode, factor: Factor) -> bool:
    """Whether a zero point is known to be of another type."""
    return n.dtype(factor.zero) not in (None, n.dtype(factor.place))


def multiplies_bytes(node: Node) -> bool:
    """Whether a body of it does."""
    inside = (n for body in node.subgraphs for n in body.walk(bodies=True))
    return any(isinstance(n, Node) and n.op[:2] in PRODUCTS for n in inside)


class _Maker:
    def __init__(self, constants: Constants, weights: Constants) -> None:
        self._known, self._large = {**constants, **weights}, weights.keys()
        self.instead: dict[Node | If, list[Node]] = {}
        self.constants: dict[Value, Constant] = {}
        self.weights: dict[Value, Constant] = {}
        self.raised: dict[Value, Value] = {}
        """Constants of INT8 with those that are 128 more."""
        self._end = 0
        """Of the large ones among them, if they lie one after the other."""

    def change(self, node: Node, product: Product) -> None:
        n = KnownNode(node, self._known)
        first = "uint8" if product.first is None else n.dtype(product.first.place)
        others = [f for f in product.second if n.dtype(f.place) == "int8"]
        if first is None or any(n.dtype(f.place) is None for f in product.second):
            return  # in a body, where types are not always known
        if any(_differs(n, f) for f in (*product.second, *([product.first] if product.first else ()))):
            return  # which is refused, as it stands
        exact = _by_channel(n) and bool(others) and n.dtype(7) == "int8"
        if product.first is not None and first == "int8" and _slow() and not exact:
            self.raise_factor(node, product.first)
            first = "uint8"
        if first == "uint8" and product.zero is not None and n.dtype(product.zero) == "int8":
            self._lower_result(node, product.zero)
        if first != "uint8" or not others:
            return
        if _zeros_differ(n) or (not _by_channel(n) and self.cut_off(node, others)):
            for factor in others:
                self.raise_factor(node, factor)

    def quantize(self, node: Node, dequantized: Sequence[Node]) -> None:
        """Have a QuantizeLinear give UINT8 to those that read it."""
        (result,) = node.writes
        zero, before = node.inputs[2], list[Node]()
        assert zero is not None, "it says the type"
        self.raised[result] = Value(f"{result.name}~unsigned", TensorType("uint8", result.sizes))
        inputs = (*node.inputs[:2], self._raised(zero, node, before))
        self.instead[node] = [*before, replace(node, inputs=inputs, outputs=(self.raised[result],))]
        for reader in dequantized:
            self.raise_factor(reader, Factor(0, 2))

    def cut_off(self, node: Node, factors: Sequence[Factor]) -> bool:
        """Whether sums of products with one of these factors of INT8 may be cut off. Contents are looked at
        last: they may be large."""
        n = KnownNode(node, self._known)
        return cuts_sums_off() and not all(_fits(n.content(f.place)) for f in factors)

    def raise_factor(self, node: Node, factor: Factor) -> None:
        """Have a node read UINT8 in the place of INT8."""
        n = KnownNode(node, self._known)
        value, zero = n.value(factor.place), n.value(factor.zero)
        assert value is not None, "its type is known"
        zero = self._middle(node) if zero is None else zero
        if zero is None:
            return
        before, root, after = self._parts(node)
        inputs = [*root.inputs, *[None] * (factor.zero + 1 - len(root.inputs))]
        inputs[factor.place] = self._raised(value, node, before)
        inputs[factor.zero] = self._raised(zero, node, before)
        self.instead[node] = [*before, replace(root, inputs=tuple(inputs)), *after]

    def _parts(self, node: Node) -> tuple[list[Node], Node, list[Node]]:
        """What goes before a node as it is written so far, it, and what follows."""
        parts = self.instead.get(node, [node])
        k = next(k for k, part in enumerate(parts) if part.op == node.op)
        return parts[:k], parts[k], parts[k + 1 :]

    def _lower_result(self, node: Node, place: int) -> None:
        """Have a node give UINT8, and what it gave by nodes that follow."""
        before, root, _ = self._parts(node)
        zero, w = node.inputs[place], PartWriter(node)
        assert zero is not None, "it has to have one"
        inputs = list(root.inputs)
        inputs[place] = self._raised(zero, node, before)
        result = w.value("unsigned", "uint8")
        wide = w.cast("wide", result, "int32")
        less = w.made("Sub", "less", wide, w.integers("middle", MIDDLE, "int32"), dtype="int32")
        after = [*w.nodes, part(node, "Cast", (less,), w.output, to=CODES["int8"])]
        self.instead[node] = [*before, replace(root, inputs=tuple(inputs), outputs=(result,)), *after]

    def _middle(self, node: Node) -> Value | None:
        """A zero point of INT8 for a node that has none: as many as scales, if it dequantizes."""
        sizes: tuple[int, ...] | None = ()
        if node.is_onnx("DequantizeLinear"):
            scale = node.inputs[1]
            sizes = None if scale is None else scale.known_sizes
        if sizes is None:
            return None
        zero = Value(f"{node.writes[0].name}~zero", TensorType("int8", sizes))
        self._known[zero] = Constant(np.zeros(sizes, np.int8))
        return zero

    def _raised(self, value: Value, node: Node, before: list[Node]) -> Value:
        """A value of INT8, 128 more: a constant, or by nodes that go before."""
        if value in self.raised or _is_unsigned(value):
            return self.raised.get(value, value)
        constant = self._known.get(value)
        if constant is None:
            w, name = PartWriter(node), value.name
            wide, middle = w.cast(f"{name}~wide", value, "int32"), w.integers("middle", MIDDLE, "int32")
            raised = w.cast(
                f"{name}~unsigned", w.made("Add", f"{name}~more", wide, middle, dtype="int32"), "uint8"
            )
            before += w.nodes
            return raised
        raised = Value(f"{value.name}~unsigned", TensorType("uint8", value.sizes))
        if value in self._large:  # whose memory nobody is to hold beside the library
            made = Made(self._end, constant, _raised)
            self.weights[raised] = Constant(decode=lambda: _raised(constant.content), source=made)
            self._end += -(-prod(value.known_sizes or ()) // _ALIGNED) * _ALIGNED
        else:
            self.constants[raised] = constant.derive("unsigned", _raised)
        self.raised[value] = raised
        return raised


def _raised(content: NDArray[Any]) -> NDArray[Any]:
    return content.view(np.uint8) ^ np.uint8(MIDDLE)


def _fits(content: NDArray[Any] | None) -> bool:
    """Whether no sum of two products with it is cut off; of what is not known, one may be."""
    return content is not None and bool(content.max(initial=0) <= FITS and content.min(initial=0) >= -FITS)


@cache
def _slow() -> bool:
    """Whether onnxruntime has no instructions for first factors of INT8 here."""
    return platform.machine().lower() in ("x86_64", "amd64")


def _by_channel(n: KnownNode) -> bool:
    """Whether each channel has filters of its own: those are exact, and fast."""
    return n.node.is_onnx("QLinearConv") and n.size(3, 1) == 1 and n.size(3, 0) == n.int("group") > 1


def _zeros_differ(n: KnownNode) -> bool:
    """Whether filters have zero points that differ: onnxruntime takes the first for all then, if each channel
    has filters of its own."""
    zeros = n.content(5) if n.node.is_onnx("QLinearConv") else None
    return zeros is not None and len(np.unique(zeros)) > 1


class _Pairs:
    """What is quantized and dequantized, which onnxruntime computes with integers then."""

    def __init__(self, every: Sequence[Node | If], outputs: Sequence[Value]) -> None:
        self._nodes = [n for n in every if isinstance(n, Node)]
        self._makers = {v: n for n in self._nodes for v in n.writes}
        self._readers: dict[Value, list[Node | None]] = {v: [None] for v in outputs}
        for node in every:
            for v in node.reads:
                self._readers.setdefault(v, []).append(node if isinstance(node, Node) else None)
            for v in (v for inner in node.subgraphs for v in inner.outputs):
                self._readers.setdefault(v, []).append(None)

    def of_activations(self) -> Iterator[tuple[Node, list[Node]]]:
        """What quantizes to INT8, with those that read it, which only dequantize: onnxruntime has them as
        UINT8 itself, but not all of them."""
        for node in self._nodes:
            if (
                node.is_onnx("QuantizeLinear")
                and _dtype(node, 2) == "int8"
                and not node.attributes.keys() & _SAID
            ):
                found = self._readers.get(node.writes[0], [])
                readers = [n for n in found if n is not None and n.is_onnx("DequantizeLinear")]
                zeros = all(_dtype(n, 2) == "int8" and not n.attributes.keys() & _SAID for n in readers)
                if readers and zeros and len(readers) == len(found):
                    yield node, list(dict.fromkeys(readers))

    def of_weights(self) -> Iterator[Node]:
        """What dequantizes INT8 for second factors of products alone, whose first ones come from UINT8."""
        for node in self._nodes:
            found = node.is_onnx("DequantizeLinear") and _dtype(node, 0) == "int8"
            if found and not node.attributes.keys() & _SAID and self._multiplied(node.writes[0]):
                yield node

    def _multiplied(self, value: Value) -> bool:
        """Whether products read it, turned or not, and nothing else."""
        waiting, seen = [value], set[Value]()
        while waiting:
            if (moved := waiting.pop()) in seen:
                continue
            seen.add(moved)
            readers = self._readers.get(moved, [])
            if not readers:
                return False
            for reader in readers:
                if reader is not None and moves(reader):
                    waiting += reader.writes
                elif not self._is_second(reader, moved):
                    return False
        return True

    def _is_second(self, reader: Node | None, value: Value) -> bool:
        if reader is None or not any(map(reader.is_onnx, _OF_FLOATS)):
            return False
        return reader.inputs[1] is value and self._of_unsigned(reader.inputs[0])

    def _of_unsigned(self, value: Value | None) -> bool:
        """Whether onnxruntime has it as UINT8: it makes that of what was quantized to INT8, and of what it
        turns, quantizes and dequantizes again."""
        maker, moved = self._maker(value), False
        while maker is not None and moves(maker):
            maker, moved = self._maker(maker.inputs[0]), True
        if maker is None or not maker.is_onnx("DequantizeLinear"):
            return False
        quantized = self._maker(maker.inputs[0])
        return (
            moved
            or _dtype(maker, 0) == "uint8"
            or (quantized is not None and quantized.is_onnx("QuantizeLinear"))
        )

    def _maker(self, value: Value | None) -> Node | None:
        return None if value is None else self._makers.get(value)


def moves(node: Node) -> bool:
    """Whether a node gives all elements of what it reads, in another order or of another shape."""
    return any(map(node.is_onnx, _MOVING))


def _dtype(node: Node, k: int) -> str | None:
    return KnownNode(node, {}).dtype(k)


def _is_unsigned(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == "uint8"
