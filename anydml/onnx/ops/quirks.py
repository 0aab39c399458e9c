"""What onnxruntime and onnx.reference do wrong with valid nodes: compute otherwise than ONNX says, refuse
while they run, or end the process. Something else has to run these nodes. Each `OpInfo` lists its own.

Found with `python -m tools.search_provider_quirks` and the test suite of the onnx package. Left out is what
nobody would notice as wrong: the sign of a NaN or of a zero, and what ONNX leaves undefined. What only
releases of before do wrong stands in `older_releases`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from anydml.ir.graph import Constant, Graph, Node, Value
from anydml.onnx.ops.catalog import info_of, known_of
from anydml.onnx.ops.older_releases import OLDER
from anydml.onnx.ops.opinfo import KnownNode, Quirk

SEEN = "1.31"
"""The onnxruntime that was searched. 1.32 was, too: of 113,679 cases it does none wrong that 1.31 does
right, and some 26 kinds right at last, mostly of empty tensors. They stay, since both are in use."""


def quirk_of(node: Node, constants: Mapping[Value, Constant] = MappingProxyType({})) -> Quirk | None:
    """What onnxruntime may do wrong with this node as it is written here: what is wrong whatever the sizes
    comes first."""
    found = (quirk for quirk in quirks_of(node, constants) if not quirk.mended)
    return min(found, key=lambda quirk: quirk.empty, default=None)


def has_empty_input(node: Node) -> bool:
    """Whether an input of a node is known to have no elements."""
    return any(0 in (v.sizes or ()) for v in node.reads)


def quirks_of(node: Node, constants: Mapping[Value, Constant]) -> list[Quirk]:
    """All that onnxruntime may do wrong with this node."""
    info = known_of(node.op)
    listed = () if info is None else info.quirks
    older = OLDER.get(node.op.name, ()) if not node.op.domain else ()
    if not listed and not older:
        return []
    known = KnownNode(node, constants)
    return [quirk for quirk in (*listed, *older) if quirk.holds(known)]


def reference_error(node: Node) -> str | None:
    """What onnx.reference is known to do wrong with a node; it is not asked then."""
    info = info_of(node.op)
    if info is None or info.reference_error is None:
        return None
    what, when = info.reference_error
    return f"onnx.reference {what}" if when(KnownNode(node, {})) else None


def quirks_in(graph: Graph, outer: Mapping[Value, Constant] = MappingProxyType({})) -> Iterator[Quirk]:
    """Those of the nodes of a graph with types, and of all graphs in it."""
    constants = {**outer, **graph.constants}
    for node in graph.nodes:
        if isinstance(node, Node):
            yield from quirks_of(node, constants)
        for inner in node.subgraphs:
            yield from quirks_in(inner, constants)
