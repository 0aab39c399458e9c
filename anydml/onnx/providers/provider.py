"""What a library must be able to do that runs the operators anydml does not exist for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from anydml.dataclass import dataclass
from anydml.errors import ExecutionFailed, OutOfMemory, Problem
from anydml.ir.graph import Constant, Node, OnnxOp
from anydml.onnx.protos import TypeProto

Call = Callable[[list[Any]], list[Any]]
"""A compiled region: contents of its inputs to contents of its outputs. What has threads can be told to
`share()` the processor with others; some can `bind(inputs, outputs)` arrays, which gives a run without
arguments that tells whether it went well, or None."""
Sizes = tuple[int, ...]
GIVEN = "given with the model"
"""The place of weights that are in memory, or in the mapped file of a model."""
MADE = "made of what is given"
"""The place of weights that are made when a region is opened, and then nobody's but the library's."""


@dataclass(frozen=True)
class Made:
    """Where a weight begins among those that are made, and what of."""

    offset: int
    source: Constant
    make: Callable[[Any], Any]


def copied(value: Any) -> Any:
    """An input, a constant or a result, as nobody else has it."""
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value.copy() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Region:
    """Nodes for a library, as a model file of their own; each node's name is its place among them."""

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[tuple[str, Constant], ...] = ()
    """Large constants by name. The model has only their types, sizes, and places of `ExternalData`."""
    without: tuple[str, ...] = ()
    """onnxruntime's optimisations that would go wrong with these nodes."""
    unchanged: frozenset[str] = frozenset()
    """Weights that no optimisation turns or reshapes, so that they can be read where they are."""
    quantized: bool = False
    """Whether factors of products are quantized already, and not to be rounded once more."""
    rewritten: int = 0
    """How many nodes are written otherwise, so that products of 8-bit integers are exact, and fast."""
    custom: bool = False
    """Whether some of its operators are of a library that people register; its weights are in the model."""


class RegionFailed(Exception):
    """A node of a region failed while it ran: its place, if the library tells it."""

    def __init__(self, node: int | None, message: str, memory: bool = False) -> None:
        """`memory`: there was not as much as it needed."""
        super().__init__(node, message, memory)
        self.node, self.message, self._error = node, message, OutOfMemory if memory else ExecutionFailed

    def told_of(self, where: str) -> ExecutionFailed:
        """The error for whoever ran the model; `where` names the node."""
        return self._error(Problem(where, self.message))


class RegionEnded(Exception):
    """A run that was ended, since it took too long."""


class RanksDiffer(Exception):
    """A region gave a result of another rank than was inferred. What was concluded from it does not hold."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.nodes = nodes


class Provider(Protocol):
    name: str
    on_processor: bool
    """Whether all that it runs runs on the processor, and nothing on a device."""
    exact: bool
    """Whether products of 8-bit integers are written so that they are exact, and fast, on the processor."""
    unbelieved: set[OnnxOp]
    """Operators of which sizes are not inferred, since this provider was seen to give others."""

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        """A region that this provider compiled, for arrays of these types and sizes only."""
        ...

    def result_types(self, model: bytes, custom: bool = False) -> dict[str, TypeProto]:
        """The types of a model's outputs by their names, as far as this provider infers them. Of operators
        of its own, for the most part: ONNX's are inferred without it. `custom`: as a region's."""
        ...

    def compile(self, region: Region, threads: int, alone: bool = True) -> Call:
        """The region ready to run, from several threads at once. Calls raise RegionFailed.

        Args:
            threads: of one call; 0: the library's default.
            alone: whether nobody else computes between two calls.

        Raises:
            Unsupported: the library cannot run it.
        """
        ...
