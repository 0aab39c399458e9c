"""The graph that every pass reads and writes.

    Graph           inputs, outputs, nodes (Node | If) in an order that runs, constants: a model or branch
    Node            an ONNX operator; a Loop or Scan has a Body, which is a Graph with parameters
    If              a condition and two branches; a branch is a Graph
    DirectMLGraph   the same of DirectML operators; a DirectMLNode is one
    Value           what nodes make and read: defined once, and known by identity, not by name

What a branch or body uses of its surroundings stands in its `inputs`, as the very same `Value`s. So no layer
looks a name up through scopes, and a branch takes the place of its `If` by inlining its nodes.
Everything is frozen: a pass builds a new graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from anydml.cached import cached_property
from anydml.dataclass import dataclass, field
from anydml.ir.dims import Dim
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import packed_strides

_INTEGERS = frozenset({int})


@dataclass(frozen=True)
class TensorType:
    """An array type. `dtype` as NumPy and ONNX name it; `sizes` None: of unknown rank."""

    dtype: str
    sizes: tuple[Dim, ...] | None = None
    strides: tuple[int, ...] | None = None
    """In elements, of a bound buffer; None: wherever the runtime puts it."""
    extent: int = 0
    """Bytes that are read of it, where that is more than its elements are."""

    @cached_property
    def known_sizes(self) -> tuple[int, ...] | None:
        """The sizes, if every one is a number."""
        sizes: Any = self.sizes
        return sizes if sizes is not None and _INTEGERS.issuperset(map(type, sizes)) else None

    @property
    def static_sizes(self) -> tuple[int, ...]:
        """The sizes, of a tensor of a DirectML graph: every one is a number."""
        sizes = self.known_sizes
        assert sizes is not None
        return sizes

    @property
    def element_strides(self) -> tuple[int, ...]:
        """The strides, packed where nothing else is said."""
        return packed_strides(self.static_sizes) if self.strides is None else self.strides

    @property
    def data_type(self) -> TensorDataType:
        """DirectML's name of the dtype."""
        return TensorDataType[self.dtype.upper()]


@dataclass(frozen=True)
class SequenceType:
    element: Type
    empty: bool = False
    """Whether it is known to have no elements."""


@dataclass(frozen=True)
class OptionalType:
    element: Type
    empty: bool = False
    """Whether it is known to have no content."""


@dataclass(frozen=True)
class MapType:
    """A dictionary: `key` is the type of its keys, int64 or string, `element` that of its values."""

    key: str
    element: Type


Type = TensorType | SequenceType | OptionalType | MapType


@dataclass(frozen=True, eq=False)
class Value:
    """Something that flows, known by identity. `type` is what is known of it, or None.

    `name` is what people call it. Others may have the same one; `Names` tells them apart in files.
    """

    name: str
    type: Type | None = None

    @property
    def tensor(self) -> TensorType:
        """The type, of a value that is a tensor."""
        assert isinstance(self.type, TensorType)
        return self.type

    @property
    def data_type(self) -> TensorDataType:
        """Of a tensor, by DirectML's name."""
        return self.tensor.data_type

    @property
    def sizes(self) -> tuple[Dim, ...] | None:
        """Those of a tensor whose rank is known."""
        return self.type.sizes if isinstance(self.type, TensorType) else None

    @property
    def rank(self) -> int | None:
        """Of a tensor, if it is known."""
        return None if self.sizes is None else len(self.sizes)

    @property
    def known_sizes(self) -> tuple[int, ...] | None:
        """Those of a tensor, if every one is a number."""
        return self.type.known_sizes if isinstance(self.type, TensorType) else None


@dataclass(frozen=True)
class ExternalData:
    """Bytes in a file beside the model: its path below `folder`, and where they begin."""

    folder: Path
    location: str
    offset: int
    file: Any = field(default=None, compare=False, repr=False)
    """A `MappedFile`, where systems have such."""


class Constant:
    """A known content: a read-only array, or a list of such (a sequence). Decoded when first asked for.

    `source` is what the file holds, for writing it out again without a detour; or where it is `ExternalData`.
    """

    __slots__ = ("_content", "_decode", "_derived", "source")

    def __init__(
        self, content: Any = None, *, source: Any = None, decode: Callable[[], Any] | None = None
    ) -> None:
        self._content, self._decode, self.source = _read_only(content), decode, source
        self._derived: dict[Any, Constant] = {}

    @property
    def content(self) -> Any:
        decode = self._decode  # another thread may be done with it any time
        if decode is not None:
            self._content = _read_only(decode())
            self._decode = None
        return self._content

    def derive(self, key: Any, make: Callable[[Any], Any]) -> Constant:
        """What `make` makes of the content, when it is asked for; once for each key, and shared."""
        if key not in self._derived:
            self._derived[key] = Constant(decode=lambda: make(self.content))
        return self._derived[key]


def _read_only(content: Any) -> Any:
    """The content through arrays that nobody can write to, and whose views nobody can."""
    if isinstance(content, list):
        return [_read_only(item) for item in content]
    if isinstance(content, np.ndarray) and content.flags.writeable:
        content = content.view()
        content.flags.writeable = False
    return content


class OnnxOp(NamedTuple):
    """An ONNX operator: its domain ("" is ONNX's own), name, and the opset version of its meaning."""

    domain: str
    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


class _Named:
    """What nodes of both dialects have."""

    op: Operator | OnnxOp
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    name: str
    path: tuple[str, ...]

    @cached_property
    def writes(self) -> tuple[Value, ...]:
        return tuple([v for v in self.outputs if v is not None])

    @property
    def label(self) -> str:
        """How messages call it: name, operator and the way to it."""
        named = f"node {self.name!r} ({self.op})" if self.name else f"a node ({self.op})"
        return f"{named} in {'/'.join(self.path)}" if self.path else named


@dataclass(frozen=True, eq=False)
class Node(_Named):
    """An ONNX operator. A missing optional input or output is None. `path`: the graphs that lead to it."""

    op: OnnxOp
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    path: tuple[str, ...] = ()
    bodies: Mapping[str, Body] = field(default_factory=dict)
    """The graphs among its attributes."""
    nofail: bool = False
    """Whether it cannot fail, by the way in which it was made: what its inputs are need not be looked at."""
    fails: str = ""
    """Why it fails whenever it runs, where its sizes prove that."""
    refused: bool = False
    """Whether ONNX's inference refuses its sizes: then libraries do not load a file that declares them."""
    sized: bool = False
    """Whether the sizes of its result follow from those of others, so that none is too large or too small."""
    predicated: Literal["", "safe", "passes"] = ""
    """Whether it cannot fail while the branch that it is of is not taken, since its operands are others then;
    `passes`: and then gives its first input."""

    def changed(self, **fields: Any) -> Node:
        """With other fields. As `dataclasses.replace`, in a tenth of its time: passes do so for each node."""
        made = object.__new__(Node)
        kept = made.__dict__
        kept.update(self.__dict__)
        kept.pop("reads", None)
        kept.pop("writes", None)
        kept.update(fields)
        return made

    def is_onnx(self, name: str) -> bool:
        """Whether it is this operator of ONNX's own domain."""
        return self.op.name == name and not self.op.domain

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        captured = dict.fromkeys(v for body in self.subgraphs for v in body.inputs) if self.bodies else ()
        return (*[v for v in self.inputs if v is not None], *captured)

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        return tuple(self.bodies.values())

    @property
    def contains_if(self) -> bool:
        """Whether an If stands in its bodies, however deep."""
        return bool(self.bodies) and any(
            isinstance(n, If) for body in self.subgraphs for n in body.walk(bodies=True)
        )


@dataclass(frozen=True, eq=False)
class DirectMLNode(_Named):
    """A DirectML operator. A missing optional input is None."""

    op: Operator
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    path: tuple[str, ...] = ()
    views: Mapping[int, TensorType] = field(default_factory=dict)
    """Inputs whose memory is read with other sizes and strides than their value's type says, by number."""

    def read_type(self, k: int) -> TensorDataType:
        """The type that input k is read as: its value's, or another one of the same width."""
        value, view = self.inputs[k], self.views.get(k)
        assert value is not None
        return value.data_type if view is None else view.data_type

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        return tuple([v for v in self.inputs if v is not None])


@dataclass(frozen=True, eq=False)
class If:
    """Runs one of two branches, whose outputs become its own."""

    condition: Value
    then_branch: Graph
    else_branch: Graph
    outputs: tuple[Value | None, ...]
    name: str = ""
    path: tuple[str, ...] = ()
    origin: object = field(default_factory=object, repr=False)
    """Stays the same when a pass makes the node anew: reports tell by it what became of which."""

    @property
    def branches(self) -> tuple[tuple[str, Graph], tuple[str, Graph]]:
        return ("then", self.then_branch), ("else", self.else_branch)

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        return self.then_branch, self.else_branch

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        return (self.condition, *dict.fromkeys((*self.then_branch.inputs, *self.else_branch.inputs)))

    @cached_property
    def writes(self) -> tuple[Value, ...]:
        return tuple([v for v in self.outputs if v is not None])

    @property
    def label(self) -> str:
        named = f"node {self.name!r} (If)" if self.name else "a node (If)"
        return f"{named} in {'/'.join(self.path)}" if self.path else named


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order that runs. A branch's inputs are values of its surroundings: its captures."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node | If, ...]
    constants: Mapping[Value, Constant] = field(default_factory=dict)

    def walk(self, bodies: bool = False) -> Iterator[Node | If]:
        """Every node, branches included, and `bodies`; outer ones first."""
        return walk(self.nodes, bodies)

    def graphs(self) -> Iterator[Graph]:
        """The graph, its branches and bodies, and theirs; outer ones first."""
        yield self
        for node in self.nodes:
            for inner in node.subgraphs:
                yield from inner.graphs()


def walk(nodes: Iterable[Node | If], bodies: bool = False) -> Iterator[Node | If]:
    """The nodes, and those in their branches, and in their `bodies`; outer ones first."""
    for node in nodes:
        yield node
        if bodies or isinstance(node, If):
            for inner in node.subgraphs:
                yield from walk(inner.nodes, bodies)


@dataclass(frozen=True, eq=False)
class Body(Graph):
    """What a Loop or Scan runs any number of times. Its captures include constants of its surroundings."""

    parameters: tuple[Value, ...] = ()
    """What it is called with."""
    takes: tuple[Type | None, ...] = ()
    returns: tuple[Type | None, ...] = ()
    """What the file says of the types of its parameters and outputs, sometimes wrongly."""

    @property
    def standalone(self) -> Graph:
        """The same as a graph that is called with its captures, too, behind the parameters."""
        inputs = (*self.parameters, *self.inputs)
        return Graph(self.name, inputs, self.outputs, self.nodes, self.constants)

    def conditions_of(self, node: Node) -> int:
        """How many outputs it has before those that are its node's: a Loop's condition."""
        return len(self.outputs) - len(node.outputs)


@dataclass(frozen=True, eq=False)
class DirectMLGraph:
    """DirectML operators in an order that runs. All values are tensors of known sizes."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[DirectMLNode, ...]
    constants: Mapping[Value, Constant] = field(default_factory=dict)
