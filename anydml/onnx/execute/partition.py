"""Who runs a node: kernels of ours, the fast library, or a step of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from math import prod
from types import MappingProxyType
from weakref import WeakSet, WeakValueDictionary

from anydml.cached import cached_property
from anydml.dataclass import dataclass, field
from anydml.ir.graph import Constant, Graph, If, Node, Value
from anydml.ir.names import Names
from anydml.onnx.execute.cost_model import (
    CALL_SECONDS,
    MIN_GAIN,
    connected,
    copied_out,
    elements,
    in_blocks,
    integers_pay,
    may_leave,
    out_of_blocks,
    seconds,
    seconds_saved,
)
from anydml.onnx.execute.directml_lowering import lower_to_directml
from anydml.onnx.execute.reductions import Reduction, goes_well, reduction_of
from anydml.onnx.execute.turns import Turn, turn_of
from anydml.onnx.execute.views import ViewFinder
from anydml.onnx.ops.older_releases import nests_too_deep
from anydml.onnx.ops.opinfo import Quirk
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.ops.revisions import alike
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.shape_inference import small_content
from anydml.onnx.providers.onnxruntime import DTYPES, OnnxRuntime, knows_opset, newest_opset
from anydml.onnx.providers.provider import Call, Provider, Region
from anydml.onnx.providers.reference import Reference
from anydml.onnx.rewrites.fold_weights import settled
from anydml.onnx.schema import INTERNAL_DOMAIN
from anydml.onnx.serde.region_model import node_proto
from anydml.onnx.types import leaf, onnx_name
from anydml.runtime.arena import Arena
from anydml.runtime.mapped_file import MappedFile

PLACES = ("region", "single", "kernels")
MIN_OPEN_TURN = 1 << 18
"""Elements of a Transpose whose sizes are open."""


@dataclass
class ProviderRegistry:
    """The providers, and what one model's plans have had compiled or refused by them."""

    opsets: Mapping[str, int]
    threads: int
    """Of our kernels."""
    asked_threads: int | None = None
    """What the user wants; None: what each library takes by default."""
    fast: Provider = field(default_factory=OnnxRuntime)
    complete: Provider = field(default_factory=Reference)
    native: bool | None = False
    """Whether whole plans become machine code where they can; None: those of models with control flow, where
    that is quickly done."""
    at_once: bool = True
    """Whether code is made before the first run of a plan; else the library runs first, and code is made from
    the second run on, unless it is on disk."""
    files: tuple[MappedFile, ...] = ()
    """Where the model's weights are, if they are not in memory."""
    regions: WeakValueDictionary[object, Call] = field(default_factory=WeakValueDictionary)
    arenas: WeakSet[Arena] = field(default_factory=WeakSet)
    """What plans have for their kernels' results."""
    shared: bool = False
    """Whether plans take turns."""
    refused: dict[object, str] = field(default_factory=dict)
    """Kinds of nodes that the fast library was asked about alone, and why it refused ("": it did not)."""

    def compile(self, provider: Provider, region: Region, threads: int, alone: bool) -> Call:
        """The region from an earlier plan, or compiled now."""
        key = (provider.name, region, threads, alone)
        call = self.regions.get(key)
        if call is None:
            call = self.regions[key] = provider.compile(region, threads, alone and not self.shared)
        return call

    def rest(self) -> None:
        """Nobody runs anything for now: memory that the libraries and kernels have is given back."""
        for call in list(self.regions.values()):
            if hasattr(call, "rest"):
                call.rest()
        for arena in list(self.arenas):
            arena.clear()

    def share(self) -> None:
        """Plans take turns: no threads of the one shall spin while another runs."""
        if not self.shared:
            self.shared = True
            for call in list(self.regions.values()):
                if hasattr(call, "share"):
                    call.share()


class Partition:
    """The places of a graph's nodes, by what is known of the libraries so far.

    The floor is one region with everything that the fast library takes, Ifs and loops included. What it does
    not take, or does wrong, are single steps; kernels of ours stand where the whole gets faster by them.
    """

    def __init__(
        self,
        graph: Graph,
        libraries: ProviderRegistry,
        apart: Mapping[Node | If, str] = MappingProxyType({}),
        code: bool = True,
    ) -> None:
        """`apart`: nodes that the fast library takes alone, but not with others, and why: sizes of this graph
        that do not fit each other. `code`: whether code may be made of what that library takes; else nobody
        asks whether that would pay, which takes longer than all the rest."""
        self.graph, self.libraries, self.apart = graph, libraries, apart
        self._constants = dict(graph.constants)
        """Those of branches and bodies that were looked into, too."""
        self._quirks: dict[Node, Quirk | None] = {}
        self._obstacles: dict[Node | If, str] = {}
        read = {v for n in graph.nodes for v in n.reads}
        self._last = {v for v in graph.outputs if v not in read}
        """What the graph gives, and none of its nodes reads."""
        self.own_ifs: set[Node | If] = set()
        self.moved: dict[Node | If, Reduction | Turn] = {}
        """The nodes that our kernels can run, though they are not element-wise."""
        if code:
            self.own_ifs |= {n for n in graph.nodes if isinstance(n, If) and self._gains_by_kernels(n)}
            self.moved = self._able_to_move()
        self.kernels = self._profitable_kernels() if code else self._needed_kernels()
        """The nodes that they shall run."""
        self.views = self._finder.beside(self.kernels) if self.kernels else frozenset()
        """The nodes that only see memory otherwise, beside kernels."""

    @property
    def gains_by_code(self) -> bool:
        """Whether code is made of what the fast library takes, too."""
        return bool(self.own_ifs) or any(map(self._primary_takes, self.kernels))

    def quirk(self, node: Node) -> Quirk | None:
        """What the fast library does wrong with a node; bodies do not count."""
        if node not in self._quirks:
            self._quirks[node] = quirk_of(node, self._constants)
        return self._quirks[node]

    def place(self, node: Node | If) -> str:
        """Who runs a node: the fast library's "region", our "kernels", or a "single" step."""
        return self._place_beside(node, self.kernels, self.views)

    def _able_to_move(self) -> dict[Node | If, Reduction | Turn]:
        found: dict[Node | If, Reduction | Turn] = {}
        for node in self.graph.nodes:
            if not isinstance(node, Node):
                continue
            reduction, turn = reduction_of(node, self.graph.constants), turn_of(node)
            if reduction is not None and goes_well(node, reduction):
                found[node] = reduction
            elif turn is not None:
                found[node] = turn
        return {n: m for n, m in found.items() if self._primary_takes(n)}

    def _needed_kernels(self) -> Set[Node | If]:
        """The nodes that only our kernels can run."""
        others = [n for n in self.graph.nodes if isinstance(n, Node) and not self._primary_takes(n)]
        return {n for n in others if lower_to_directml(n, self.graph.constants) is not None}

    def _profitable_kernels(self) -> Set[Node | If]:
        """The nodes that our kernels shall run: element-wise ones, reductions and Transposes.

        All of them where nothing is left for a library but its call, or what it does with integers. Else all
        groups that save time, if they save more than the cuts cost; a cheap node between two convolutions
        stays in their region, as do quantization and what goes with it. What is not element-wise has kernels
        made for each shape, and so is among all of them only where there is one.
        """
        nodes = [n for n in self.graph.nodes if isinstance(n, Node)]
        able = {n: None for n in nodes if lower_to_directml(n, self.graph.constants) is not None}
        moved = [n for n in nodes if n in self.moved]
        fixed = {n for n in moved if all(v.known_sizes is not None for v in n.reads[:1])}
        every = {*able, *fixed}
        views = self._finder.beside(every)
        rest = [n for n in self.graph.nodes if n not in every and n not in views and self._in_region(n)]
        if able and not rest and not integers_pay(able):
            return every
        left = {n for n in able if not self._primary_takes(n)}
        chosen: set[Node | If] = {*left}
        saved = 0.0
        for group in connected([n for n in (*able, *moved) if may_leave(n) and self._may_gain(n)]):
            own, members = self._best_of(group)
            chosen, saved = chosen | members, saved + own
        if not saved:
            return left
        least = MIN_GAIN * seconds(self.graph.nodes) / self.libraries.threads
        if not left and saved <= least:  # before any cut is counted
            return left
        return chosen if saved - self._cut_seconds(chosen) + self._cut_seconds(left) > least else left

    def _best_of(self, group: Sequence[Node]) -> tuple[float, Set[Node]]:
        """Seconds saved by kernels for nodes that are connected, and for which: all, or those that are not
        element-wise apart from the others."""
        apart = [[n] for n in group if n in self.moved]
        parts = [*apart, *connected([n for n in group if n not in self.moved])]
        best: tuple[float, Set[Node]] = 0.0, frozenset()
        for ways in ([group], parts) if apart else ([group],):
            worth = [(g, s) for g in ways if (s := self._saved(g)) > 0]
            total = sum(s for _, s in worth)
            if total > best[0]:
                best = total, {n for g, _ in worth for n in g}
        return best

    def _may_gain(self, node: Node) -> bool:
        """Whether a library does a Transpose badly. Others it may do together with a product behind; where
        calls have other shapes, only large ones are worth what it takes to prepare for these."""
        turn, source = self.moved.get(node), node.inputs[0] if node.inputs else None
        if not isinstance(turn, Turn) or source is None:
            return True
        return turn.is_slow and (source.known_sizes is not None or elements(source) >= MIN_OPEN_TURN)

    def _saved(self, group: Sequence[Node]) -> float:
        return seconds_saved(group, self.moved, self._settled) / self.libraries.threads - CALL_SECONDS

    @cached_property
    def _settled(self) -> Collection[Node | If]:
        return settled(self.graph)

    def _place_beside(self, node: Node | If, kernels: Set[Node | If], views: Set[Node | If]) -> str:
        if node in kernels:
            return "kernels"
        return "single" if node in views else self._place_without_kernels(node)

    def _in_region(self, node: Node | If) -> bool:
        return self._place_without_kernels(node) == "region"

    def _place_without_kernels(self, node: Node | If) -> str:
        if node in self.own_ifs:
            return "single"
        return "region" if self._primary_takes(node) else "single"

    def _cut_seconds(self, kernels: Set[Node | If]) -> float:
        """What several regions cost more than one would."""

        views = self._finder.beside(kernels)

        def place(node: Node | If) -> str:
            return self._place_beside(node, kernels, views)

        regions = [level for level in levels(self.graph.nodes, place) if place(level[0]) == "region"]
        times = sorted(map(seconds, regions))
        others = sum(times[:-1]) * (1 - 1 / self.libraries.threads)
        blocked = {n for n in self.graph.nodes if in_blocks(n)} - kernels
        unblocked = {v for n in kernels for v in n.reads if self._makers.get(v) in blocked}
        unblocked |= {v for n in kernels for v in n.writes if blocked.intersection(self._readers.get(v, ()))}
        inside = {v for region in regions for n in region for v in n.writes}
        handed = {v for n in kernels for v in n.reads if v in inside} - unblocked
        passed_on = sum(map(out_of_blocks, unblocked)) + sum(map(copied_out, handed))
        return others + CALL_SECONDS * max(len(regions) - 1, 0) + passed_on

    @cached_property
    def _finder(self) -> ViewFinder:
        return ViewFinder(self.graph, self._makers, self._readers, self._in_region)

    @cached_property
    def _makers(self) -> Mapping[Value, Node | If]:
        return {v: n for n in self.graph.nodes for v in n.writes}

    @cached_property
    def _readers(self) -> Mapping[Value, Sequence[Node | If]]:
        found: dict[Value, list[Node | If]] = {}
        for node in self.graph.nodes:
            for value in node.reads:
                found.setdefault(value, []).append(node)
        return found

    def _gains_by_kernels(self, node: If) -> bool:
        """Whether branches have groups of element-wise nodes over tensors so large that kernels pay."""
        saved = []
        for _, branch in node.branches:
            able = [n for n in branch.nodes if isinstance(n, Node) and may_leave(n) and lower_to_directml(n)]
            saved.append(sum(max(seconds_saved(g) - CALL_SECONDS, 0) for g in connected(able)))
        return max(saved) / self.libraries.threads > 4 * CALL_SECONDS

    def _primary_takes(self, node: Node | If) -> bool:
        return not self.obstacle(node)

    def obstacle(self, node: Node | If) -> str:
        """Why the fast library cannot run a node, or does it wrong; "" where nothing is known of that."""
        if node not in self._obstacles:
            unknown = any(v.type is None for v in node.reads)
            self._obstacles[node] = "an input is of unknown type" if unknown else self._obstacle(node, False)
        return self._obstacles[node] or self.apart.get(node, "") or self.refusal(node)

    def refusal(self, node: Node | If) -> str:
        """Why the fast library was found not to take nodes like this one."""
        refused = self.libraries.refused
        return refused.get(self.kind(node), "") if refused else ""

    def kind(self, node: Node | If) -> object:
        return _kind_of(node, self._constants)

    def _obstacle(self, node: Node | If, typed: bool) -> str:
        """Of a node whose types are known as far as may be, or of one in its branches or bodies.

        `typed`: bodies have types, too, as those that stand in others have then.
        """
        passed = (v.type for v in (*node.reads, *node.writes) if v not in self._constants)
        for type in passed:  # constants are written into the region's model
            if type is not None and leaf(type).dtype not in DTYPES:
                return f"onnxruntime has no {leaf(type).dtype} here"
        if node.subgraphs and nests_too_deep(node):
            return "onnxruntime before 1.29 takes twice as long to open it for each graph in another"
        if isinstance(node, If):
            sizes = node.condition.known_sizes
            if sizes is not None and prod(sizes) != 1:
                return "its condition is not one bool"
            if self._misleads(node):
                return "onnxruntime takes one branch's rank for that of the other"
            return self._obstacle_in((b for _, b in node.branches), typed)
        if node.op.domain == INTERNAL_DOMAIN:
            return "onnxruntime does not know it"
        if node.fails:  # onnxruntime's inference would end the process
            return node.fails
        if not (node.op.domain or knows_opset(node.op.version) or alike(node, newest_opset())):
            return f"onnxruntime knows opsets up to {newest_opset()}"
        if (quirk := self.quirk(node)) is not None:
            return quirk.told
        if not typed:
            node = with_typed_bodies(node, self._constants, self.libraries.opsets, self.libraries.fast)
        return self._obstacle_in(node.bodies.values(), True)

    def _misleads(self, node: If) -> bool:
        """Whether nodes behind an If may be folded by the rank of a branch not taken: before opset 13."""
        return self.libraries.opsets.get("", 1) < 13 and any(
            output is not None
            and output not in self._last
            and output.rank is None
            and any(b.outputs[k].rank is not None for _, b in node.branches)
            for k, output in enumerate(node.outputs)
        )

    def _obstacle_in(self, graphs: Iterable[Graph], typed: bool) -> str:
        for graph in graphs:
            self._constants |= graph.constants
            for node in graph.nodes:
                if obstacle := self._obstacle(node, typed):
                    return obstacle if isinstance(node, If) or node.bodies else f"{node.op} in it: {obstacle}"
        return ""


def levels(nodes: Iterable[Node | If], place: Callable[[Node | If], str]) -> list[list[Node | If]]:
    """The nodes by level. The level's remainder by the number of kinds tells who runs them."""
    at: dict[Value, int] = {}
    found: dict[int, list[Node | If]] = {}
    for node in nodes:
        level = max((at.get(v, 0) for v in node.reads), default=0)
        level += (PLACES.index(place(node)) - level) % len(PLACES)
        found.setdefault(level, []).append(node)
        for value in node.writes:
            at[value] = level
    return [found[k] for k in sorted(found)]


def _kind_of(node: Node | If, constants: Mapping[Value, Constant]) -> object:
    """What decides whether a library takes a node: operator, attributes, types and ranks of its inputs, and
    what is known of them, for it looks at axes and sizes."""
    inputs = node.reads if isinstance(node, If) else node.inputs
    types = tuple(None if v is None or v.type is None else onnx_name(v.type) for v in inputs)
    ranks = tuple(None if v is None else v.rank for v in inputs)
    if isinstance(node, If) or node.bodies:
        return node_proto(node, Names()).SerializeToString(), types, ranks
    contents = [small_content(v, constants.get(v)) for v in node.reads]
    told = tuple([None if c is None else c.tobytes() for c in contents])
    return node.op, tuple(a.SerializeToString() for a in node.attributes.values()), types, ranks, told
