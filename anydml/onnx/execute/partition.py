"""Who runs a node: kernels of ours, the fast library, or a step of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from weakref import WeakValueDictionary

from anydml.ir.graph import Graph, If, Node, Value
from anydml.ir.names import Names
from anydml.onnx.execute.directml_lowering import lower_to_directml
from anydml.onnx.execute.quirk_search import quirk_in_subgraphs
from anydml.onnx.node_builder import INTERNAL_DOMAIN
from anydml.onnx.ops.opinfo import Quirk
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.ops.revisions import alike
from anydml.onnx.providers.onnxruntime import DTYPES, OnnxRuntime, Reference, newest_opset
from anydml.onnx.providers.provider import Call, Provider, Region
from anydml.onnx.serde.region_model import node_proto
from anydml.onnx.types import leaf, onnx_name

PLACES = ("region", "single", "kernels")
MIN_KERNEL_NODES, MIN_KERNEL_ELEMENTS = 3, 1 << 15
"""Of a group of element-wise nodes beside others: from there on, fused kernels repay the detour."""


@dataclass
class ProviderRegistry:
    """The providers, and what one model's plans have had compiled or refused by them."""

    opsets: Mapping[str, int]
    threads: int
    fast: Provider = field(default_factory=OnnxRuntime)
    complete: Provider = field(default_factory=Reference)
    regions: WeakValueDictionary[tuple[str, Region], Call] = field(default_factory=WeakValueDictionary)
    refused: dict[object, str] = field(default_factory=dict)
    """Kinds of nodes that the fast library was asked about alone, and why it refused ("": it did not)."""

    def compiled(self, provider: Provider, region: Region) -> Call:
        """The region from an earlier plan, or compiled now."""
        key = (provider.name, region)
        call = self.regions.get(key)
        if call is None:
            call = self.regions[key] = provider.compile(region, self.threads)
        return call


class Partition:
    """The places of a graph's nodes, by what is known of the libraries so far."""

    def __init__(self, graph: Graph, libraries: ProviderRegistry) -> None:
        self.graph, self.libraries = graph, libraries
        self._quirks: dict[Node, Quirk | None] = {}
        self.elementwise = self._profitable_kernels()

    def quirk(self, node: Node) -> Quirk | None:
        """What the fast library does wrong with a node, or with one in its bodies."""
        if node not in self._quirks:
            constants = self.graph.constants
            found = quirk_of(node, constants) or quirk_in_subgraphs(node, constants, self.libraries.opsets)
            self._quirks[node] = found
        return self._quirks[node]

    def place(self, node: Node | If) -> str:
        """Who runs a node: the fast library's "region", our "kernels", or a "single" step."""
        if isinstance(node, If):
            return "single"
        if node in self.elementwise:
            return "kernels"
        return "region" if self._primary_takes(node) else "single"

    def _profitable_kernels(self) -> set[Node]:
        """The element-wise nodes that our kernels shall run.

        All of them where nothing else is left for a library but its call. Else whole groups over large
        tensors; a cheap node between two convolutions stays in their region.
        """
        nodes = [n for n in self.graph.nodes if isinstance(n, Node)]
        able = {n: None for n in nodes if lower_to_directml(n) is not None}
        if not any(self._primary_takes(n) for n in nodes if n not in able):
            return set(able)
        chosen: set[Node] = set()
        for group in _connect(list(able)):
            largest = max(_elements(v) for n in group for v in n.writes)
            if len(group) >= MIN_KERNEL_NODES and largest >= MIN_KERNEL_ELEMENTS:
                chosen.update(group)
        return chosen | {n for n in able if not self._primary_takes(n)}

    def _primary_takes(self, node: Node) -> bool:
        if node.op.domain == INTERNAL_DOMAIN or node.fails:  # onnxruntime's inference would end the process
            return False
        if any(v.type is None or leaf(v.type).dtype not in DTYPES for v in node.reads):
            return False
        if any(v.type is not None and leaf(v.type).dtype not in DTYPES for v in node.writes):
            return False
        newest = newest_opset()
        if not node.op.domain and node.op.version > newest and not alike(node, newest):
            return False
        if self.quirk(node) is not None:
            return False
        refused = self.libraries.refused
        return not node.contains_if and not (refused and refused.get(kind_of(node)))


def _connect(nodes: Sequence[Node]) -> list[list[Node]]:
    """Groups of nodes of which each reads or writes what another one of the group does."""
    above = list(range(len(nodes)))
    """For each node, one nearer to the first of its group."""

    def first(k: int) -> int:
        while above[k] != k:
            above[k] = above[above[k]]
            k = above[k]
        return k

    seen: dict[Value, int] = {}
    for k, node in enumerate(nodes):
        for value in (*node.reads, *node.writes):
            above[first(k)] = first(seen.setdefault(value, k))
    groups: dict[int, list[Node]] = {}
    for k, node in enumerate(nodes):
        groups.setdefault(first(k), []).append(node)
    return list(groups.values())


def _elements(value: Value) -> int:
    """How many elements a value has; 0 where that is not known."""
    return 0 if value.known_sizes is None else prod(value.known_sizes)


def kind_of(node: Node) -> object:
    """What decides whether a library takes a node: operator, attributes, types and ranks of its inputs."""
    types = tuple(None if v is None or v.type is None else onnx_name(v.type) for v in node.inputs)
    ranks = tuple(None if v is None else v.rank for v in node.inputs)
    attributes = tuple(a.SerializeToString() for a in node.attributes.values())
    bodies = node_proto(node, Names()).SerializeToString() if node.bodies else b""
    return node.op, attributes, bodies, types, ranks
