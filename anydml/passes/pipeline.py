"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from anydml.ir.graph import Graph
from anydml.passes.dead import drop_dead
from anydml.passes.identity import drop_identities
from anydml.passes.reshape import merge_reshapes

PIPELINE: tuple[Callable[[Graph], Graph], ...] = (
    drop_identities,
    merge_reshapes,
    drop_dead,
)


def simplified(graph: Graph) -> Graph:
    for apply in PIPELINE:
        graph = apply(graph)
    return graph
