"""A graph for what it is fed: evaluated as far as that goes, and simplified."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

from anydml.codegen.reading import read_module
from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Type, Value
from anydml.onnx.execute.directml_lowering import lower_to_directml
from anydml.onnx.ops.directml import MOVED
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.bodies import specialize_bodies
from anydml.onnx.partial_eval.evaluator import FoldedIf, specialize
from anydml.onnx.providers.provider import Provider
from anydml.onnx.rewrites.grown_sequences import lists_as_rows
from anydml.onnx.rewrites.pipeline import simplify
from anydml.onnx.rewrites.split_sequences import lists_as_tensors
from anydml.onnx.rewrites.trip_counts import with_trip_counts

if TYPE_CHECKING:
    from anydml.onnx.if_conversion.convert import Conversion, Decision

MAX_SELECTED_NODES = 32
"""Nodes up to which branches are looked at for whether both had better run."""
MAX_CHEAP_ELEMENTS = 1 << 12
"""Elements of a branch's values up to which computing both branches is less than choosing one."""


def specialized(
    graph: Graph,
    types: Mapping[Value, Type],
    known: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    provider: Provider,
    deep: bool = True,
    least: int = 0,
    likely: Mapping[Value, tuple[int, ...]] = MappingProxyType({}),
) -> tuple[Graph, list[FoldedIf]]:
    """A graph for inputs of these types and contents, bodies of loops included, simplified; and the Ifs that
    are not in it any more. Arguments as for `specialize`."""
    special = specialize(graph, types, known, opsets, provider, deep=deep, least=least, likely=likely)
    inner, folded = specialize_bodies(special.graph, opsets, provider)
    simple = with_trip_counts(simplify(inner, on_processor=provider.on_processor))

    def typed(node: Node, known: Mapping[Value, Constant]) -> Node:
        return with_typed_bodies(node, known, opsets, provider)

    rows = lists_as_rows(lists_as_tensors(simple, typed), typed)
    if rows is not simple:  # of which more is known than of lists
        anew = specialize(rows, {}, {}, opsets, provider, deep=deep, least=least)
        simple = simplify(anew.graph, on_processor=provider.on_processor)
    return simple, [*special.folded, *folded]


def selected(graph: Graph, opsets: Mapping[str, int]) -> tuple[Graph, list[Decision]]:
    """The graph with both branches of Ifs and a selection, where all of it is kernels then; and of which."""
    left = [n for n in graph.nodes if isinstance(n, If)]
    if left and sum(len(list(b.walk())) for n in left for _, b in n.branches) <= MAX_SELECTED_NODES:
        convert = read_module("anydml.onnx.if_conversion.convert")
        conversion: Conversion = convert.Conversion(opsets.get("", 1), worthwhile=_is_cheap, own=True)
        converted = simplify(conversion.converted(graph))
        if _is_elementwise(converted):
            return converted, [d for d in conversion.decisions if d.what != "kept"]
    return graph, []


def _is_cheap(branch: Graph) -> bool:
    """Whether a branch is a few element-wise nodes on small tensors, which a kernel does in passing."""
    sizes = [v.known_sizes for n in branch.nodes for v in n.writes]
    small = all(s is not None and prod(s) <= MAX_CHEAP_ELEMENTS for s in sizes)
    moved = all(isinstance(v.type, TensorType) and v.type.dtype in MOVED for v in branch.outputs)
    return small and moved and _is_elementwise(branch)


def _is_elementwise(graph: Graph) -> bool:
    """Whether all of it can be kernels."""
    return all(isinstance(n, Node) and lower_to_directml(n, graph.constants) for n in graph.nodes)


def weight_bytes(graph: Graph) -> int:
    """Bytes of the constants of a graph and its branches, about."""
    found = {v: v.known_sizes or () for v in graph.constants}
    for node in graph.walk():
        if isinstance(node, If):
            found |= {v: v.known_sizes or () for _, b in node.branches for v in b.constants}
    return sum(4 * prod(sizes) for sizes in found.values())


def count_ifs(graph: Graph) -> int:
    """The Ifs of a graph, branches and loops included."""
    return sum(isinstance(n, If) or n.contains_if for n in graph.walk())
