"""A graph for what it is fed: evaluated as far as that goes, and simplified."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anydml.ir.graph import Constant, Graph, Type, Value
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.bodies import specialize_bodies
from anydml.onnx.partial_eval.evaluator import FoldedIf, specialize
from anydml.onnx.providers.provider import Provider
from anydml.onnx.rewrites.grown_sequences import lists_as_rows
from anydml.onnx.rewrites.pipeline import simplify
from anydml.onnx.rewrites.trip_counts import with_trip_counts


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
    rows = lists_as_rows(simple, lambda loop, known: with_typed_bodies(loop, known, opsets, provider))
    if rows is not simple:  # of which more is known than of lists
        typed = specialize(rows, {}, {}, opsets, provider, deep=deep, least=least)
        simple = simplify(typed.graph, on_processor=provider.on_processor)
    return simple, [*special.folded, *folded]
