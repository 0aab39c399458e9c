"""What is known of a node's outputs from what is known of its inputs: types with sizes, and contents.

Shape(%x: float32[2,n])  ->  int64[2], of content [2, n]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.errors import InvalidModel, Unsupported
from anydml.ir.dims import Affine, Dim, as_affine, as_dim
from anydml.ir.graph import Constant, Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.ir.names import Names
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.opinfo import KnownNode, NodeFailed, NodeView, NotFoldable, Symbols
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.ops.symbolic import numbers, of_array
from anydml.onnx.partial_eval.joined_types import with_fresh_symbols
from anydml.onnx.partial_eval.others_inference import by_library, by_onnx, has_elements
from anydml.onnx.partial_eval.shape_errors import impossible, negative_sizes, rank_unsure, without_unsure
from anydml.onnx.partial_eval.symbolic import (
    compare_symbols,
    compute_symbols,
    decide,
    is_followed,
    measure,
    measures,
    sized,
)
from anydml.onnx.protos import OperatorSetIdProto, TensorProto, TypeProto, make_opsetid
from anydml.onnx.providers.onnxruntime import DTYPES
from anydml.onnx.providers.provider import Provider, RegionEnded, RegionFailed
from anydml.onnx.schema import INTERNAL_DOMAIN, is_custom, is_foreign, schema_of
from anydml.onnx.serde.node_writer import tensor_proto
from anydml.onnx.serde.region_model import node_proto, region
from anydml.onnx.types import dtype_name, from_proto, of_content, to_proto, without_sizes

MAX_FOLLOWED_ELEMENTS = 1024
"""Elements up to which contents are followed. Shape arithmetic is far smaller; weights are far larger."""

MAX_FOLDED_CHARACTERS = 1 << 16
"""Characters of strings that are worth following."""
_LEFT = frozenset({"RegexFullMatch", "DequantizeLinear"})
"""What is left to run: a pattern can keep Python's matcher busy for ever, and onnxruntime's not; libraries
know an operator of quantized tensors by the DequantizeLinear before each input, constants included."""


@dataclass(frozen=True)
class AbstractValue:
    """What is known of a value: its stand-in in the new graph (with its type), and its content.

    `integers`: its content in terms of symbols, where it is no constant.
    """

    value: Value
    constant: Constant | None = None
    integers: Symbols | None = None


class ShapeInference:
    """Types and contents of nodes' outputs. `provider` evaluates nodes that have no rule."""

    def __init__(self, opsets: Mapping[str, int], provider: Provider) -> None:
        self.opsets, self.provider = opsets, provider
        self._dim_names: dict[Affine, str] = {}
        self._dims: dict[str, Affine] = {}
        """What ONNX's inference is told that sizes are called, and back."""
        self._inferred: dict[object, tuple[tuple[Type | None, ...], str, bool]] = {}

    def outputs(
        self, node: Node, inputs: list[AbstractValue | None]
    ) -> tuple[Node, list[AbstractValue | None], bool]:
        """The node with types of its outputs, what is known of these, and whether they follow without it."""
        types, why, refused = self.types(node, inputs)
        outputs = tuple(
            None if v is None else Value(v.name, t) for v, t in zip(node.outputs, types, strict=True)
        )
        node = node.changed(outputs=outputs, fails=why, refused=refused)
        info = info_of(node.op)
        if info is not None and info.safe_if_sized is not None:
            node = node.changed(sized=self._is_sized(node, inputs))
        contents, integers = self.contents(node, inputs)
        facts: list[AbstractValue | None] = []
        for k, value in enumerate(outputs):
            if value is None or contents is None:
                facts.append(None if value is None else AbstractValue(value, integers=integers))
            else:
                facts.append(AbstractValue(Value(value.name, of_content(contents[k])), Constant(contents[k])))
        return node, facts, contents is not None

    def types(self, node: Node, inputs: list[AbstractValue | None]) -> tuple[list[Type | None], str, bool]:
        """The outputs' types with symbols, why the node surely fails, whether inference refuses its sizes."""
        own, why, refused = self._own_types(node, inputs), "", False
        if own is None:
            types, why, refused = self._infer(node, inputs)
        else:
            types = self._believed(node, inputs, own, "")
        if any(isinstance(t, TensorType) and t.known_sizes is None for t in types):
            types = self._refine(node, inputs, types)
        return types, why, refused

    def contents(
        self, node: Node, inputs: list[AbstractValue | None]
    ) -> tuple[list[np.ndarray] | None, Symbols | None]:
        """The outputs' contents if they follow from what is known; else what is known of the integers."""
        contents = self._fold(node, inputs)
        return (contents, None) if contents is not None else self._follow(node, inputs)

    def _is_sized(self, node: Node, inputs: list[AbstractValue | None]) -> bool:
        """Whether it cannot fail since the sizes of its output follow from those of others."""
        info, integers = info_of(node.op), [self.integers(f) for f in inputs]
        sizes = sized(node, [self.sizes(f) for f in inputs], integers)
        if sizes is None or not all(n.least is not None and n.least >= 0 for n in sizes):
            return False
        follows = None if info is None else info.safe_if_sized
        return follows is not None and follows(KnownNode(node, {}), sizes, integers)

    # ---- types

    def _infer(self, node: Node, inputs: list[AbstractValue | None]) -> tuple[list[Type | None], str, bool]:
        """The outputs' types by ONNX's own rules, None where they do not tell; and what `types` tells."""
        schema = schema_of(node.op)
        told = [None if v is None or schema is not None else v.type for v in node.outputs]
        unknown = told, "", False
        if schema is None and node.op.domain == INTERNAL_DOMAIN:
            return unknown
        key = _inference_key(node, inputs)
        if key is not None and key in self._inferred:
            known, why, refused = self._inferred[key]
            return list(known), why, refused
        names = Names()
        protos: dict[str, TypeProto] = {}
        data: dict[str, TensorProto] = {}
        for fact in inputs:
            if fact is None:
                continue
            if fact.value.type is None:
                return unknown
            name = names.of(fact.value)
            protos[name] = to_proto(fact.value.type, self._dim_name)
            if fact.constant is not None and is_small(fact.value.type):
                data[name] = self._tensor(fact)
        for value in (v for body in node.bodies.values() for v in body.inputs):
            if value.type is not None:
                protos[names.of(value)] = to_proto(value.type, self._dim_name)
        proto = node_proto(node, names)
        imports = _imports(tuple(self.opsets.items()))
        shape = _dims(inputs[1]) if node.op.name == "Expand" and len(inputs) > 1 else None
        if any(isinstance(n, int) and n > MAX_FOLLOWED_ELEMENTS for n in shape or ()):
            return unknown  # before opset 13, inference makes a list of so many sizes
        if schema is None:
            asked = imports, self.provider, is_custom(node.op)
            found, refused = by_library(proto, protos, data, {}, *asked), False
            made = ((v, v.type) for v in node.writes if v.type is not None)
            declared = {names.of(v): to_proto(without_sizes(t)) for v, t in made}
            if declared and not found:
                key = None  # another one of its kind may be declared otherwise
                found = by_library(proto, protos, data, declared, *asked)
        else:
            found, refused = by_onnx(schema, proto, protos, data, imports)
        why = negative_sizes(found.values())
        types = [
            known if v is None or (t := found.get(names.of(v))) is None else from_proto(t, self._dims.get)
            for v, known in zip(node.outputs, told, strict=True)
        ]

        types = self._believed(node, inputs, types, why)
        if key is not None:
            self._inferred[key] = tuple(types), why, refused
        return types, why, refused

    def _own_types(self, node: Node, inputs: list[AbstractValue | None]) -> list[Type | None] | None:
        """The outputs' types by our own rules, where these tell all that ONNX's would."""
        info = info_of(node.op)
        if info is None or info.result is None:
            return None
        known = {f.value: f.constant for f in inputs if f is not None and f.constant is not None}
        try:
            types = info.result(KnownNode(node, known))
        except NotFoldable:  # an attribute of another type
            return None
        if types is None:
            return None
        if info.sizes is None or any(not isinstance(t, TensorType) or t.sizes is not None for t in types):
            return list(types)
        own = sized(node, [self.sizes(f) for f in inputs], [self.integers(f) for f in inputs])
        sizes = None if own is None else tuple(map(as_dim, own))
        (type,) = types
        if sizes is None or not isinstance(type, TensorType):
            return None
        if None in sizes and any(f is not None and f.constant is not None for f in inputs[1:]):
            return None  # ONNX may make more of a content
        return [TensorType(type.dtype, sizes)]

    def _believed(
        self, node: Node, inputs: list[AbstractValue | None], types: list[Type | None], why: str
    ) -> list[Type | None]:
        """The types, without what libraries are known to see otherwise."""

        def second() -> list[int] | None:
            return numbers(self.integers(inputs[1])) if len(inputs) > 1 else None

        unbelieved, info = node.op in self.provider.unbelieved, info_of(node.op)
        if info is not None and info.seen_alike and not (why or unbelieved or node.bodies):
            return types
        if why or unbelieved or rank_unsure(node) or impossible(node, types, second):
            types = [t if t is None else without_sizes(t) for t in types]
            types = [self._part(node, inputs) or t for t in types]
        types = [without_unsure(node, t) for t in types]
        if info is not None and info.sequence is not None:
            types = [info.sequence(KnownNode(node, {})) or t for t in types]
        return types

    def _part(self, node: Node, inputs: list[AbstractValue | None]) -> Type | None:
        """The type of parts of length 1 without the axis that is split, as libraries give them."""
        told = node.is_onnx("SplitToSequence") and len(inputs) > 1 and numbers(self.integers(inputs[1]))
        whole = None if inputs[0] is None else inputs[0].value.type
        if told != [1] or not isinstance(whole, TensorType) or whole.sizes is None:
            return None
        axis = NodeView(node).int("axis")
        if _dims(inputs[1]) != () or not -len(whole.sizes) <= axis < len(whole.sizes):
            return None
        kept = tuple(n for k, n in enumerate(whole.sizes) if k != axis % len(whole.sizes))
        return SequenceType(TensorType(whole.dtype, kept))

    def _dim_name(self, size: Affine) -> str:
        name = self._dim_names.get(size)
        if name is None:
            name = self._dim_names[size] = f"d{len(self._dim_names)}"
            self._dims[name] = size
        return name

    def _tensor(self, fact: AbstractValue) -> TensorProto:
        constant = fact.constant
        assert constant is not None
        if not isinstance(constant.source, TensorProto):
            constant.source = tensor_proto(constant, fact.value.name)
        return constant.source

    def _refine(
        self, node: Node, inputs: list[AbstractValue | None], types: list[Type | None]
    ) -> list[Type | None]:
        """The types with more sizes known, in terms of symbols; those that stay unknown are new symbols."""
        info = info_of(node.op)
        own = sized(node, [self.sizes(f) for f in inputs], [self.integers(f) for f in inputs])
        refined: list[Type | None] = []
        for value, type in zip(node.outputs, types, strict=True):
            if not isinstance(type, TensorType) or value is None or (type.sizes is None and own is None):
                refined.append(type)
                continue
            told = type.sizes
            if told is None or (own is not None and len(own) != len(told)):
                told = (None,) * len(own or ())
            sizes: list[Dim] = []
            for k, n in enumerate(told):
                better = None if isinstance(n, int) or own is None else as_dim(own[k])
                sizes.append(n if better is None else better)
            given = [(f.value.sizes, self.integers(f)) for f in inputs if f is not None]
            least = int((info is not None and info.never_empty) or has_elements(node, given))
            refined.append(with_fresh_symbols(TensorType(type.dtype, tuple(sizes)), least))
        return refined

    def sizes(self, fact: AbstractValue | None) -> list[Affine] | None:
        dims = _dims(fact)
        return None if dims is None else [as_affine(n) for n in dims]

    def integers(self, fact: AbstractValue | None) -> Symbols | None:
        """What is known of an input's integers."""
        if fact is None or fact.constant is None:
            return None if fact is None else fact.integers
        content = small_content(fact.value, fact.constant)
        return None if content is None or content.dtype.kind not in "biu" else of_array(content)

    # ---- contents

    def _follow(
        self, node: Node, inputs: list[AbstractValue | None]
    ) -> tuple[list[np.ndarray] | None, Symbols | None]:
        """The only output's content if it follows from symbols; else what is known of its integers."""
        value = node.outputs[0] if len(node.outputs) == 1 else None
        type = None if value is None else value.type
        if not isinstance(type, TensorType) or not is_followed(node.op) or not is_small(type):
            return None, None
        sizes = type.known_sizes or ()
        given = [self.integers(f) for f in inputs]
        # what is only chosen, or decided by one operand, must still fit what the others turn out to be
        fits = all(f is None or f.value.known_sizes is not None for f in inputs)
        if type.dtype == "bool":
            truths = compare_symbols(node, given)
            if truths is None and fits:
                truths = decide(node, [_truth(f) for f in inputs], sizes)
            return (None if truths is None or truths.shape != sizes else [truths]), None
        if type.dtype not in ("int32", "int64"):
            return None, None
        if measures(node) and inputs:
            found = measure(node, self.sizes(inputs[0]))
        else:
            found = compute_symbols(node, given, sizes) if fits or all(g is not None for g in given) else None
        if found is None or found.shape != sizes:
            return None, None
        known = numbers(found)
        if known is None:
            return None, found
        limits = np.iinfo(type.dtype)
        if any(not limits.min <= n <= limits.max for n in known):  # which wraps around when it runs
            return None, None
        return [np.array(known, type.dtype).reshape(sizes)], None

    def _fold(self, node: Node, inputs: list[AbstractValue | None]) -> list[np.ndarray] | None:
        """The outputs' contents if they follow from what is known, and are small."""
        op = node.op
        if _is_left(op) or node.bodies:
            return None
        by_sizes = measures(node)
        if not by_sizes and any(f is not None and f.constant is None for f in inputs):
            return None
        if any(v is not None and not (v.type is not None and is_small(v.type)) for v in node.outputs):
            return None
        if by_sizes:
            (only,) = inputs
            type = None if only is None else only.value.type
            sizes = type.known_sizes if isinstance(type, TensorType) else None
            if sizes is None or only is None:
                return None
            try:
                contents = [np.broadcast_to(np.zeros((), np.bool_), sizes)]
            except ValueError:  # beyond what NumPy can tell the shape of
                return None
        else:
            contents = []
            for fact in inputs:
                if fact is None:
                    continue
                if fact.constant is None or fact.value.type is None or not is_small(fact.value.type):
                    return None
                contents.append(fact.constant.content)
        return self.evaluate(node, contents)

    def evaluate(self, node: Node, contents: list[np.ndarray]) -> list[np.ndarray] | None:
        """The outputs' contents for these contents of its inputs; None where it has none of its own.

        The contents are in the order of the inputs that are there.
        """
        op = node.op
        if _is_left(op) or node.bodies:
            return None
        results = self._by_rule(node, contents) if has_rule(op) else self._by_library(node, contents)
        if results is None:
            return None  # left to run, and to fail there if it must
        if not all(isinstance(r, np.ndarray) and _length(r) <= MAX_FOLDED_CHARACTERS for r in results):
            return None
        found = iter(results)
        return [np.zeros(0) if v is None else next(found) for v in node.outputs]

    def _by_rule(self, node: Node, contents: list[np.ndarray]) -> list[Any] | None:
        found = iter(contents)
        try:
            results = fold(node, [None if v is None else next(found) for v in node.inputs])
        except (NotFoldable, NodeFailed):
            return None
        return [r for r, v in zip(results, node.outputs, strict=True) if v is not None]

    def _by_library(self, node: Node, contents: list[np.ndarray]) -> list[Any] | None:
        """What has no rule of ours, if the provider has it, and does it right."""
        if quirk_of(node, {}) is not None or any(dtype_name(c.dtype) not in DTYPES for c in contents):
            return None
        values = tuple(dict.fromkeys(v for v in node.inputs if v is not None))
        given = dict(zip((v for v in node.inputs if v is not None), contents, strict=True))
        outputs = tuple(v for v in node.outputs if v is not None)
        alone = region([node], values, outputs, {}, self.opsets)
        try:
            return self.provider.compile(alone, 1)([given[v] for v in values])
        except (Unsupported, RegionEnded, RegionFailed, InvalidModel):
            return None


def _inference_key(node: Node, inputs: list[AbstractValue | None]) -> object:
    """What decides the types of the outputs; None where contents or bodies do, too."""
    info = info_of(node.op)
    element_by_element = info is not None and bool(info.directml)
    foreign = is_foreign(node.op)
    if node.bodies or not (foreign or element_by_element or all(map(_says_nothing, inputs))):
        return None
    told = tuple(map(_axes_or_sizes, inputs)) if foreign else ()
    attributes = node.attributes and tuple((n, a.SerializeToString()) for n, a in node.attributes.items())
    given = tuple(None if f is None else f.value.type for f in inputs)
    return node.op, attributes or (), given, told, tuple(v is None for v in node.outputs)


def _axes_or_sizes(fact: AbstractValue | None) -> bytes | None:
    """The content of what may be axes or sizes. Scales and zero points, which are many, decide no type."""
    content = None if fact is None else small_content(fact.value, fact.constant)
    return None if content is None or content.dtype not in (np.int32, np.int64) else content.tobytes()


def _says_nothing(fact: AbstractValue | None) -> bool:
    """Whether nothing of its content is known that inference is told."""
    if fact is None or (fact.constant is None and fact.integers is None):
        return True
    return fact.constant is not None and not is_small(fact.value.type)


def _length(content: np.ndarray) -> int:
    """Characters of all strings: a few elements may have any number of them."""
    return sum(map(len, map(str, content.reshape(-1)))) if content.dtype.kind == "O" else 0


def _dims(fact: AbstractValue | None) -> tuple[Dim, ...] | None:
    return None if fact is None else fact.value.sizes


def _truth(fact: AbstractValue | None) -> bool | None:
    """The one truth that a value is all over, if it is known."""
    if fact is None or fact.constant is None or fact.constant.content.dtype != np.bool_:
        return None
    found = set(fact.constant.content.reshape(-1).tolist())
    return found.pop() if len(found) == 1 else None


def _is_left(op: OnnxOp) -> bool:
    """Whether it is not folded: as above, or because it draws random numbers, or is not ONNX's."""
    info = info_of(op)
    return bool(op.domain) or op.name in _LEFT or (info is not None and bool(info.draws))


def is_small(type: Type | None) -> bool:
    """A tensor of known sizes whose content is worth following."""
    if not isinstance(type, TensorType):
        return False
    sizes = type.known_sizes
    return sizes is not None and prod(sizes) <= MAX_FOLLOWED_ELEMENTS


def small_content(value: Value, constant: Constant | None) -> np.ndarray | None:
    """The content of a small constant whose elements are numbers or truths."""
    content = constant.content if constant is not None and is_small(value.type) else None
    return content if isinstance(content, np.ndarray) and content.dtype.kind != "O" else None


@cache
def _imports(opsets: tuple[tuple[str, int], ...]) -> list[OperatorSetIdProto]:
    return [make_opsetid(domain, version) for domain, version in opsets]
