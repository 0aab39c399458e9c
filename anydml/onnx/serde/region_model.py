"""Parts of graphs as ONNX models, for the libraries that run them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np

from anydml.ir.dims import as_affine
from anydml.ir.graph import Constant, ExternalData, If, Node, TensorType, Value, walk
from anydml.ir.names import Names
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, NodeView, Sizes
from anydml.onnx.ops.shared import nothing_inside
from anydml.onnx.protos import ModelProto, NodeProto, TensorProto, ValueInfoProto, make_opsetid
from anydml.onnx.providers.provider import GIVEN, MADE, Made, Region
from anydml.onnx.schema import is_custom, is_foreign
from anydml.onnx.serde.blocked_layout import blocks_in_vain
from anydml.onnx.serde.byte_products import moves, right_byte_products
from anydml.onnx.serde.divisions import right_divisions
from anydml.onnx.serde.extremes import right_extremes
from anydml.onnx.serde.front_axes import with_front_axes
from anydml.onnx.serde.node_writer import LISTS_PASSED_ON, NodeWriter, tensor_proto
from anydml.onnx.serde.variance import right_normalization
from anydml.onnx.types import CODES
from anydml.runtime.mapped_file import InFile

IR_VERSION = 10
"""Old enough for every onnxruntime that is supported, new enough for every type that is handed to one."""


def node_proto(node: Node | If, names: Names) -> NodeProto:
    """The node as a model for a library has it, without a name: nothing says how sizes are called."""
    opset = node.op.version if isinstance(node, Node) else LISTS_PASSED_ON
    return NodeWriter(names, lambda n: "", sized=False, opset=opset).node(node)


def every_node(nodes: Sequence[Node | If]) -> list[Node | If]:
    """The nodes of a region, and those in their branches and bodies, in the order of their numbers."""
    return list(walk(nodes, bodies=True))


def region(
    nodes: Sequence[Node | If],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    weights: Mapping[Value, Constant] = MappingProxyType({}),
    declared: Mapping[Value, Sizes] = MappingProxyType({}),
    exact: bool = False,
) -> Region:
    """Nodes for a library. They are named by their number, so that an error message leads back to one.

    Inputs are declared by type and rank, not by size: one region serves all sizes, but for those that are
    told, and those `declared` by the model, which also tells ranks that nothing infers. Weights are
    declared only, but beside custom operators. `exact`: whether products of 8-bit integers are written so
    that onnxruntime has them exact on this processor, and fast.
    """
    nodes, constants = _with_sizes_kept(nodes, constants)
    every = every_node(nodes)
    custom = any(isinstance(n, Node) and is_custom(n.op) for n in every)
    if custom:  # nothing can be added to the options that know them
        constants, weights = {**constants, **weights}, {}
    instead: Mapping[Node | If, list[Node]] = {}
    if exact:
        instead, constants, weights = right_byte_products(every, outputs, constants, weights)
    lengths = {v for n in _all(nodes) if n.is_onnx("Resize") for v in n.inputs[2:]}
    model, names = ModelProto(ir_version=IR_VERSION), Names()
    graph = model.graph  # messages are copied where they are put together
    graph.name = "region"
    places = {n: str(k) for k, n in enumerate(every)}
    written = [part for n in every for part in instead.get(n, [n])]

    def parts(node: Node) -> list[Node]:
        return [p for n in instead.get(node, [node]) for p in _right(n, constants)]

    opset = opsets.get("", 1)
    around = {*constants, *weights}
    writer = NodeWriter(
        names, lambda n: places.get(n, ""), sized=False, parts=parts, opset=opset, around=around
    )
    told = partial(_input, writer, *_told(nodes))
    graph.input.extend(told(k, v, v in lengths, declared.get(v)) for k, v in enumerate(inputs))
    graph.node.extend(writer.nodes(nodes))
    graph.output.extend(writer.declared_by_rank(v, declared.get(v)) for v in outputs)
    for value, constant in constants.items():
        graph.initializer.append(tensor_proto(constant, names.of(value)))
    for value, constant in weights.items():
        assert isinstance(value.type, TensorType)
        weight = graph.initializer.add(name=names.of(value), data_type=CODES[value.type.dtype])
        weight.dims.extend(value.type.known_sizes or ())
        weight.data_location = TensorProto.EXTERNAL
        entries = {"location": GIVEN}
        if isinstance(constant.source, ExternalData):
            entries = {"location": constant.source.location, "offset": str(constant.source.offset)}
        elif isinstance(constant.source, Made):
            entries = {"location": MADE, "offset": str(constant.source.offset)}
        elif isinstance(constant.source, InFile):
            entries["offset"] = str(constant.source.offset)
        for key, entry in entries.items():
            weight.external_data.add(key=key, value=entry)
    model.opset_import.extend(make_opsetid(domain, version) for domain, version in opsets.items())
    return Region(
        model.SerializeToString(deterministic=True),
        tuple(map(names.of, inputs)),
        tuple(map(names.of, outputs)),
        tuple((names.of(v), c) for v, c in weights.items()),
        (
            *wrong_optimisations(nodes, {**constants, **weights}),
            *_losing(nodes, outputs),
            *(["NchwcTransformer"] if blocks_in_vain(nodes) else ()),
        ),
        frozenset(map(names.of, _unchanged(written, weights))),
        _dequantizes_activations(every, {*constants, *weights}),
        len(instead),
        custom,
    )


def _dequantizes_activations(nodes: Iterable[Node | If], constants: Container[Value | None]) -> bool:
    dequantizing = (n for n in nodes if isinstance(n, Node) and n.is_onnx("DequantizeLinear"))
    return any(n.inputs[0] not in constants for n in dequantizing)


def _right(node: Node, constants: Mapping[Value, Constant]) -> list[Node]:
    """The node, or what stands for it where the library would be wrong."""
    parts = right_divisions(node, constants)
    if parts != [node]:
        return parts
    parts = right_normalization(node)
    if parts != [node]:
        return parts
    before, node, constants = with_front_axes(node, constants)
    return [*before, *right_extremes(node, constants)]


def _unchanged(nodes: Iterable[Node | If], weights: Iterable[Value]) -> set[Value]:
    """The weights that only operators read which onnxruntime does not turn them for."""
    read: set[Value | None] = set()
    for node in nodes:
        info = info_of(node.op) if isinstance(node, Node) else None
        if isinstance(node, Node) and (info is None or not info.keeps_weights):
            read.update(node.inputs)
        for inner in node.subgraphs:
            read.update(inner.outputs)
    return {v for v in weights if v not in read}


def _all(nodes: Sequence[Node | If]) -> list[Node]:
    """The nodes, and those of branches: all of whose types are known."""
    return [n for n in walk(nodes) if isinstance(n, Node)]


def _has_halves(product: Node) -> bool:
    factors = [v.type for v in product.reads]
    return any(isinstance(t, TensorType) and t.dtype == "float16" for t in factors)


def _multiplies_vector(product: Node) -> bool:
    """Whether its second factor may be a vector, which onnxruntime multiplies by a matrix, and not by its
    transpose, if that is what stands before it."""
    return product.inputs[1] is None or product.inputs[1].rank in (None, 1)


def _losing(nodes: Sequence[Node | If], outputs: Sequence[Value]) -> Iterator[str]:
    """Optimisations that take away what makes outputs."""
    if not {*outputs}.isdisjoint(turned_for_products(nodes)):
        yield "GemmTransposeFusion"
    if not {*outputs}.isdisjoint(_turned_for_quantization(nodes)):
        yield from ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider")


def _turned_for_quantization(nodes: Sequence[Node | If]) -> set[Value]:
    """What a QuantizeLinear reads in another order: onnxruntime quantizes before the Transpose, and gives out
    what that leaves of it."""
    found: set[Value] = set()
    for node in reversed([n for n in nodes if isinstance(n, Node)]):
        passes_on = moves(node) and not found.isdisjoint(node.writes)
        if (passes_on or node.is_onnx("QuantizeLinear")) and node.inputs[0] is not None:
            found.add(node.inputs[0])
    return found


def turned_for_products(nodes: Iterable[Node | If]) -> Iterator[Value]:
    """What a Gemm reads of a Transpose: onnxruntime takes that away, also if its result is given out."""
    own = [n for n in nodes if isinstance(n, Node)]
    turned = {v for n in own if n.is_onnx("Transpose") for v in n.writes}
    products = (n for n in own if n.is_onnx("Gemm"))
    return (v for n in products for v in n.reads if v in turned)


def fatal_optimisations(nodes: Sequence[Node | If], constants: Iterable[Value]) -> Iterator[str]:
    """onnxruntime's optimisations that may end the process. `constants`: of the graph of the nodes."""
    inside = (n for m in nodes for body in m.subgraphs for n in body.walk(bodies=True))
    if any(isinstance(n, If) for n in inside) and _folds_nested_ifs(nodes, constants):
        yield "ConstantFolding"  # reads names that it has freed
    if any(n.is_onnx("MatMul") and _has_halves(n) for n in _all(nodes)):
        yield "MatmulTransposeFusion"  # with weights


def wrong_optimisations(given: Sequence[Node | If], constants: Iterable[Value]) -> Iterator[str]:
    """onnxruntime's optimisations that go wrong with some of the nodes, or may with those in bodies."""
    yield from fatal_optimisations(given, constants)
    nodes = _all(given)
    inside = (n for m in nodes for body in m.subgraphs for n in body.walk(bodies=True))
    inner = {n.op.name for n in inside if isinstance(n, Node)}
    products = [n for n in nodes if n.is_onnx("MatMul")]
    if "MatMul" in inner or any(map(_multiplies_vector, products)):
        yield "MatmulTransposeFusion"
    scaled = {n.outputs[0]: n.inputs[1] for n in nodes if n.is_onnx("DequantizeLinear")}
    if "DequantizeLinear" in inner or any(map(partial(_goes_wrong_quantized, scaled), products)):
        yield "QDQSelectorActionTransformer"
    weighted = [n for n in nodes if any(map(n.is_onnx, ("Conv", "ConvTranspose", "Gemm")))]
    if "DequantizeLinear" in inner or any(
        n.inputs[0] in scaled and n.inputs[1] not in scaled for n in weighted
    ):
        yield "WeightBiasQuantization"  # rounds weights that are floats to 8 bits


def _goes_wrong_quantized(scaled: Mapping[Value | None, Value | None], product: Node) -> bool:
    """Whether onnxruntime computes a product of dequantized factors otherwise than ONNX says, or fails: it
    has one scale for the first, no scales for columns of several matrices, and no sums of nothing.

    `scaled`: what is dequantized, with its scale.
    """
    a, b = product.inputs[:2]
    if a not in scaled or a is None or b is None:
        return False
    first, second = scaled[a], scaled.get(b)
    several = second is not None and second.known_sizes not in ((), (1,))
    return (
        (first is not None and first.known_sizes not in ((), (1,)))
        or (several and b.rank not in (1, 2))
        or (b in scaled and nothing_inside(KnownNode(product, {}), 0, 1))
    )


def _folds_nested_ifs(nodes: Sequence[Node | If], constants: Iterable[Value], inside: bool = False) -> bool:
    """Whether an If stands in another one, and the conditions of both follow from constants and known sizes.

    `inside`: in an If whose condition does.
    """
    known = set(constants)
    for node in nodes:
        folded = isinstance(node, If) and node.condition in known
        if folded and inside:
            return True
        if any(
            _folds_nested_ifs(g.nodes, known | set(g.constants), inside or folded) for g in node.subgraphs
        ):
            return True
        if all(v in known for v in node.reads) or _measures_known_sizes(node):
            known.update(node.writes)
    return False


def _measures_known_sizes(node: Node | If) -> bool:
    info = info_of(node.op) if isinstance(node, Node) else None
    sizes = node.reads[0].sizes if node.reads else None
    if info is None or info.measures is None or sizes is None or not isinstance(node, Node):
        return False
    measured = info.measures(NodeView(node), [as_affine(n) for n in sizes])
    return all(n.number is not None for n in measured.reshape(-1))


def _with_sizes_kept(
    nodes: Sequence[Node | If], constants: Mapping[Value, Constant]
) -> tuple[Sequence[Node | If], Mapping[Value, Constant]]:
    """Reshapes to sizes that begin as those of the input do say so, by 0: then they do for other sizes, too,
    and onnxruntime finds attention by them."""
    changed: dict[Node | If, Node] = {}
    made: dict[Value, Constant] = {}
    replaced: set[Value] = set()
    for node in nodes:
        if not isinstance(node, Node) or not node.is_onnx("Reshape") or len(node.inputs) < 2:
            continue  # before opset 5, sizes are an attribute
        told = node.inputs[1]
        if told is None or told not in constants or "allowzero" in node.attributes:
            continue
        before, wanted = node.inputs[0] and node.inputs[0].known_sizes, constants[told].content.tolist()
        same = [n == m and n > 0 for n, m in zip(before or (), wanted, strict=False)]
        kept = same.index(False) if False in same else len(same)
        if kept:
            sizes = Value(f"{told.name}~{len(made)}", told.type)
            made[sizes] = Constant(np.array([0] * kept + wanted[kept:], np.int64))
            changed[node] = replace(node, inputs=(node.inputs[0], sizes))
            replaced.add(told)
    if not changed:
        return nodes, constants
    nodes = [changed.get(n, n) for n in nodes]
    for node in walk(nodes, bodies=True):
        replaced.difference_update(node.reads, *(inner.outputs for inner in node.subgraphs))
    return nodes, {v: c for v, c in {**constants, **made}.items() if v not in replaced}


def _told(nodes: Sequence[Node | If]) -> tuple[bool, bool, bool]:
    """What is told of inputs beside their ranks: all sizes that are known, how many channels they have, names
    of the others.

    Some operators of libraries' own are refused without sizes, of others wrong ones are inferred; channels
    decide how onnxruntime computes pools. Names that it makes itself cost it the square of their number. But
    Slice of opset 10 keeps them, so that it takes a part for as large as the whole.
    """
    inside = [n for n in every_node(nodes) if isinstance(n, Node)]
    infos = [info for n in inside if (info := info_of(n.op)) is not None]
    sized = any(is_foreign(n.op) for n in inside) or any(info.sizes_told for info in infos)
    named = not any(n.is_onnx("Slice") and n.op.version == 10 for n in inside)
    return sized, any(info.channels_told for info in infos), named


def _input(
    writer: NodeWriter,
    sized: bool,
    channels: bool,
    named: bool,
    number: int,
    value: Value,
    length: bool,
    declared: Sizes | None,
) -> ValueInfoProto:
    """An input. `length`: ONNX's inference takes it for 0 where it is not told."""
    info, sizes = writer.declared_by_rank(value, declared), value.sizes or ()
    every = sized or length
    for axis, (dim, size) in enumerate(zip(info.type.tensor_type.shape.dim, sizes, strict=bool(sizes))):
        fixed = declared is not None and len(declared) == len(sizes) and declared[axis] == size
        if isinstance(size, int) and (every or fixed or (channels and axis == 1 and len(sizes) > 2)):
            dim.dim_value = size
        elif named:
            dim.dim_param = f"{number}.{axis}"
    return info
