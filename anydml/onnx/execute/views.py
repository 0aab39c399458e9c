"""Nodes that give the same elements in other sizes, beside kernels: steps that copy nothing.

Within a library's region they cost nothing, either; where one begins or ends with them, it copies what goes
through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from anydml.dataclass import dataclass, field
from anydml.ir.graph import Graph, If, Node, TensorType, Value
from anydml.onnx.execute.steps import MAX_KERNEL_SHAPES, Shape
from anydml.onnx.providers.provider import RegionFailed

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


@dataclass(frozen=True)
class ViewStep:
    node: Node
    sizes: Callable[[Any], Shape]
    """What it makes of an input. Raises RegionFailed."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    fresh: bool = False
    _known: dict[Shape, Shape] = field(default_factory=dict)

    def run(self, slots: list[Any]) -> None:
        x = slots[self.reads[0]]
        sizes = self._known.get(x.shape)
        slots[self.writes[0]] = x.reshape(self._found(x) if sizes is None else sizes)

    def _found(self, x: Any) -> Shape:
        try:
            sizes = self.sizes(x)
        except RegionFailed as failure:
            raise failure.told_of(self.node.label) from failure
        if len(self._known) >= MAX_KERNEL_SHAPES:
            self._known.clear()
        self._known[x.shape] = sizes
        return sizes

    def describe(self) -> str:
        return f"view: {self.node.op}"


class ViewFinder:
    """Which nodes of a graph are to be views."""

    def __init__(
        self,
        graph: Graph,
        makers: Mapping[Value, Node | If],
        readers: Mapping[Value, Sequence[Node | If]],
        in_region: Callable[[Node | If], bool],
    ) -> None:
        """`in_region`: whether a library runs a node that no kernel does."""
        self._makers, self._readers = makers, readers
        given, constants = {*graph.outputs}, graph.constants
        self._able = [
            n
            for n in graph.nodes
            if isinstance(n, Node)
            and not n.op.domain
            and n.op.name in VIEWS
            and isinstance(n.reads[0].type, TensorType)
            and n.reads[0] not in constants
            and all(v in constants for v in n.reads[1:])
            and not given.intersection(n.writes)
            and in_region(n)
        ]
        near = [n for able in self._able for n in self._around(able)]
        self._inside = {n for n in near if in_region(n)}
        """Those that a library runs, as far as it matters."""

    def _around(self, node: Node) -> Sequence[Node | If]:
        """Who makes what a node reads, and who reads what it makes."""
        maker, readers = self._makers.get(node.reads[0]), self._readers.get(node.writes[0], ())
        return [*readers] if maker is None else [maker, *readers]

    def beside(self, kernels: Set[Node | If]) -> Set[Node | If]:
        """Those beside nodes that kernels run, or beside other views, that do not stand in a region."""
        found: set[Node | If] = set()
        rest: Sequence[Node] = self._able if kernels else ()
        while rest:
            more = [n for n in rest if self._is_view(n, kernels | found)]
            if not more:
                break
            found.update(more)
            rest = [n for n in rest if n not in found]
        return found

    def _is_view(self, node: Node, others: Set[Node | If]) -> bool:
        maker, readers = self._makers.get(node.reads[0]), self._readers.get(node.writes[0], ())
        inside = self._inside - others
        within = maker in inside and not inside.isdisjoint(readers)
        return not within and not others.isdisjoint(self._around(node))
