"""Products of 8-bit integers as onnxruntime computes them exactly, and fast.

MatMulInteger(%x: uint8, %w: int8)   ->   MatMulInteger(%x, %w + 128: uint8, zero point + 128)

On x86 processors without VNNI onnxruntime adds up pairs of products of UINT8 and INT8 in 16 bits, and cuts
off what does not fit: there second factors become UINT8, unless they have 7 bits, which fit. It has no
instructions for a first factor of INT8, and takes six to fifteen times as long: that becomes UINT8, too.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import replace
from anydml.ir.graph import Constant, If, Node, TensorType, Value, walk
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
    nodes: Sequence[Node | If],
    outputs: Sequence[Value],
    constants: Constants,
    weights: Constants,
    cut_off: Callable[[], bool],
) -> Written:
    """`cut_off`: whether the library cuts sums off, asked only where there are any."""
    every = [n for n in walk(nodes, bodies=True) if isinstance(n, Node)]
    products = [(n, p) for n in every if (p := PRODUCTS.get(n.op[:2])) is not None]
    pairs = _Pairs(nodes, every, outputs) if _has(every, "DequantizeLinear") else None
    if not products and pairs is None:
        return Written({}, constants, weights)
    made = _Maker(constants, weights)
    for node, product in products:
        made.change(node, product, cut_off)
    if pairs is not None:
        for node, dequantized in pairs.of_activations() if _slow() else ():
            made.quantize(node, dequantized)
        for node in pairs.of_weights():
            if not made.fits(node, Factor(0, 2)) and cut_off():
                made.raise_factor(node, Factor(0, 2))
    if not made.instead:
        return Written({}, constants, weights)
    read: set[Value | None] = set()
    for any_node in walk(nodes, bodies=True):
        read.update(v for n in made.instead.get(any_node, [any_node]) for v in n.reads)
        read.update(v for inner in any_node.subgraphs for v in inner.outputs)

    def kept(known: Constants) -> Constants:
        return {v: c for v, c in known.items() if v in read or v not in made.raised}

    return Written(made.instead, {**kept(constants), **made.constants}, {**kept(weights), **made.weights})


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

    def change(self, node: Node, product: Product, cut_off: Callable[[], bool]) -> None:
        first = "uint8" if product.first is None else _dtype(node, product.first.place)
        others = [f for f in product.second if _dtype(node, f.place) == "int8"]
        if first is None or any(_dtype(node, f.place) is None for f in product.second):
            return  # in a body, where types are not always known
        exact = _by_channel(node) and bool(others) and _dtype(node, 7) == "int8"
        if product.first is not None and first == "int8" and _slow() and not exact:
            self.raise_factor(node, product.first)
            first = "uint8"
        if first == "uint8" and product.zero is not None and _dtype(node, product.zero) == "int8":
            self._lower_result(node, product.zero)
        if first == "uint8" and others and (self._apart(node) or self._cut_off(node, others, cut_off)):
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

    def _cut_off(self, node: Node, others: Sequence[Factor], cut_off: Callable[[], bool]) -> bool:
        return not (_by_channel(node) or all(map(partial(self.fits, node), others))) and cut_off()

    def _apart(self, node: Node) -> bool:
        """Whether filters of INT8 have zero points that differ: onnxruntime takes the first for all then, if
        each channel has filters of its own."""
        zero = _input(node, 5) if node.is_onnx("QLinearConv") else None
        known = None if zero is None else self._known.get(zero)
        return known is not None and len(np.unique(known.content)) > 1

    def fits(self, node: Node, factor: Factor) -> bool:
        """Whether no sum of two products with it is cut off."""
        value = _input(node, factor.place)
        known = None if value is None else self._known.get(value)
        return known is not None and _fits(known.content)

    def raise_factor(self, node: Node, factor: Factor) -> None:
        """Have a node read UINT8 in the place of INT8."""
        value, zero = _input(node, factor.place), _input(node, factor.zero)
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
        zero, w = _input(node, place), PartWriter(node)
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


def _fits(content: NDArray[Any]) -> bool:
    return bool(content.max(initial=0) <= FITS and content.min(initial=0) >= -FITS)


@cache
def _slow() -> bool:
    """Whether onnxruntime has no instructions for first factors of INT8 here."""
    return platform.machine().lower() in ("x86_64", "amd64")


def _by_channel(node: Node) -> bool:
    """Whether each channel has filters of its own: those are exact, and fast."""
    weights = _input(node, 3) if node.is_onnx("QLinearConv") else None
    sizes = None if weights is None else weights.sizes
    group = node.attributes.get("group")
    return (
        sizes is not None and sizes[1:2] == (1,) and group is not None and group.i > 1 and group.i == sizes[0]
    )


class _Pairs:
    """What is quantized and dequantized, which onnxruntime computes with integers then."""

    def __init__(self, nodes: Sequence[Node | If], every: Sequence[Node], outputs: Sequence[Value]) -> None:
        self._every = every
        self._makers = {v: n for n in every for v in n.writes}
        self._readers: dict[Value, list[Node | None]] = {v: [None] for v in outputs}
        for node in walk(nodes, bodies=True):
            for v in node.reads:
                self._readers.setdefault(v, []).append(node if isinstance(node, Node) else None)
            for v in (v for inner in node.subgraphs for v in inner.outputs):
                self._readers.setdefault(v, []).append(None)

    def of_activations(self) -> Iterator[tuple[Node, list[Node]]]:
        """What quantizes to INT8, with those that read it, which only dequantize: onnxruntime has them as
        UINT8 itself, but not all of them."""
        for node in self._every:
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
        for node in self._every:
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
                if reader is not None and _has([reader], *_MOVING):
                    waiting += reader.writes
                elif not self._is_second(reader, moved):
                    return False
        return True

    def _is_second(self, reader: Node | None, value: Value) -> bool:
        takes = reader is not None and _has([reader], *_OF_FLOATS) and reader.inputs[1] is value
        return takes and reader is not None and self._of_unsigned(reader.inputs[0])

    def _of_unsigned(self, value: Value | None) -> bool:
        """Whether onnxruntime has it as UINT8: it makes that of what was quantized to INT8, and of what it
        turns, quantizes and dequantizes again."""
        maker, moved = self._maker(value), False
        while maker is not None and _has([maker], *_MOVING):
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


def _has(nodes: Sequence[Node], *names: str) -> bool:
    return any(node.is_onnx(name) for node in nodes for name in names)


def _input(node: Node, k: int) -> Value | None:
    return node.inputs[k] if k < len(node.inputs) else None


def _dtype(node: Node, k: int) -> str | None:
    value = _input(node, k)
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def _is_unsigned(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype == "uint8"
