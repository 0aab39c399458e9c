"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from anydml.ir.graph import Graph
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.rewrites.axes import count_axes_from_the_front
from anydml.onnx.rewrites.convolution import single_convolutions
from anydml.onnx.rewrites.gather import keep_gathered_axes
from anydml.onnx.rewrites.identity import drop_identities
from anydml.onnx.rewrites.norm import merge_norms
from anydml.onnx.rewrites.reshape import merge_reshapes

PIPELINE: tuple[Callable[[Graph], Graph], ...] = (
    drop_identities,
    single_convolutions,
    merge_reshapes,
    merge_norms,
    keep_gathered_axes,
    count_axes_from_the_front,
    eliminate_dead_code,
)


def simplify(graph: Graph) -> Graph:
    for apply in PIPELINE:
        graph = apply(graph)
    return graph
