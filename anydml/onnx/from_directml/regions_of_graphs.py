"""Parts of DirectML graphs that onnxruntime runs as a whole: convolutions with what is between them.

conv -> relu -> conv -> gelu -> conv    ->    [conv -> relu -> conv] by onnxruntime, gelu, conv
conv -> conv -> max -> conv -> conv     ->    [conv -> conv -> max -> conv -> conv], if inputs are small

A session for each convolution would copy every result and keep threads of its own. What is between is taken
along where its bits do not depend on who computes it, or where it is a sum of products like the convolution.
The library's maxima pass over NaN: they are taken along if it follows from the weights that inputs up to some
magnitude make none. Larger ones (and infinity and NaN) have the part run with its maxima outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace
from functools import cache
from math import inf
from typing import Any

import numpy as np

from anydml.errors import Unsupported
from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.onnx.from_directml.library import RunInto
from anydml.onnx.from_directml.magnitudes import largest_input
from anydml.onnx.from_directml.model import to_model
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import Region
from anydml.ops.attributes import Activation
from anydml.ops.call import Array, Call, empty
from anydml.ops.dtypes import FLOAT32
from anydml.ops.enums import FeatureLevel
from anydml.ops.opdef import Example, Operator, at, inp, out
from anydml.ops.tensor_desc import packed_strides

TAKEN_ALONG = frozenset(
    """
    CONVOLUTION GEMM BATCH_NORMALIZATION AVERAGE_POOLING AVERAGE_POOLING1 JOIN
    ELEMENT_WISE_IDENTITY ELEMENT_WISE_ADD ELEMENT_WISE_ADD1 ELEMENT_WISE_SUBTRACT ELEMENT_WISE_MULTIPLY
    ELEMENT_WISE_CLIP ACTIVATION_RELU ACTIVATION_LEAKY_RELU ACTIVATION_IDENTITY UPSAMPLE_2D
    MAX_POOLING MAX_POOLING1 MAX_POOLING2
    """.split()
)
_NAME = "onnxruntime"
"""Of the nodes that stand for parts."""
MAX_CONSTANTS = 1 << 30
"""Bytes of a region's constants: messages have at most 2 GB."""


Run = Callable[[list[Array], list[Array]], list[Array]]
"""A part on inputs, into outputs; or it gives others."""


def with_regions(
    graph: DirectMLGraph,
    is_heavy: Callable[[DirectMLNode], bool],
    threads: int,
    compiled: Callable[[DirectMLGraph], Run] | None,
) -> DirectMLGraph:
    """The graph with one node in the place of each part that a library is to run; little ones stay.

    `compiled`: makes what runs a part with its maxima outside; None: they are outside here.
    """
    tried = {n for n in graph.nodes if compiled is None and _is_maximum(n)}
    while part := _part(graph, tried):
        maxima = [n for n in part if _is_maximum(n)]
        if sum(map(is_heavy, part)) >= 2:
            inside = set(part)
            others = [n for n in graph.nodes if isinstance(n, DirectMLNode) and n not in inside]
            alone = not any(n.name == _NAME or is_heavy(n) for n in others)
            limit = largest_input(part, graph.constants, maxima) if maxima else inf
            made = _with_region(graph, part, threads, alone, limit, compiled) if limit else None
            if made is None and maxima:
                tried.update(maxima)
                continue
            graph = made or graph
        tried.update(part)
    return graph


def _with_region(
    graph: DirectMLGraph,
    part: list[DirectMLNode],
    threads: int,
    alone: bool,
    limit: float,
    compiled: Callable[[DirectMLGraph], Run] | None,
) -> DirectMLGraph | None:
    """`limit`: of the magnitude of inputs with which the library is right."""
    inside = set(part)
    made = {v for n in part for v in n.writes}
    read = {v for n in graph.nodes if n not in inside for v in n.reads}
    inputs = tuple(
        dict.fromkeys(v for n in part for v in n.reads if v not in made and v not in graph.constants)
    )
    outputs = tuple(v for v in dict.fromkeys(made) if v in read or v in graph.outputs)
    used = {v for n in part for v in n.reads}
    constants = {v: c for v, c in graph.constants.items() if v in used}
    if sum(c.content.nbytes for c in constants.values()) > MAX_CONSTANTS:
        return None
    whole = DirectMLGraph("region", inputs, outputs, tuple(part), constants)
    names = {v: f"i{k}" for k, v in enumerate(inputs)}
    results = {v: f"o{k}" for k, v in enumerate(outputs)}
    try:
        model = to_model(whole, names, results).SerializeToString()
        region = Region(model, tuple(names.values()), tuple(results.values()))
        run = OnnxRuntime().compile(region, threads, alone)
    except Unsupported:
        return None
    into: Run = RunInto(run)
    if compiled is not None and limit < inf:
        into = _UpTo(limit, into, lambda: compiled(whole))
    node = _node(part, inputs, outputs, into)
    last = max(k for k, n in enumerate(graph.nodes) if n in inside)
    before = [n for n in graph.nodes[:last] if n not in inside and not _depends(n, graph, made)]
    after = [n for n in graph.nodes if n not in inside and n not in before]
    return replace(graph, nodes=(*before, node, *after))


def _part(graph: DirectMLGraph, tried: Set[DirectMLNode]) -> list[DirectMLNode]:
    """More nodes that can run together: none needs what another node makes of their results."""
    part: list[DirectMLNode] = []
    made: set[Value] = set()
    beyond: set[Value] = set()
    """What others make of the part's results."""
    for node in graph.nodes:
        assert isinstance(node, DirectMLNode)
        reads = set(node.reads)
        if node not in tried and _can_go(node) and not reads & beyond:
            part.append(node)
            made.update(node.writes)
        elif reads & (made | beyond):
            beyond.update(node.writes)
    return part


def _can_go(node: DirectMLNode) -> bool:
    assert isinstance(node.op, Operator)
    if node.op.name not in TAKEN_ALONG or node.attributes.get("ScaleBias") is not None:
        return False
    activation = node.attributes.get("FusedActivation")
    if isinstance(activation, Activation) and activation.operator.name not in TAKEN_ALONG:
        return False
    values = [*node.reads, *node.writes]
    packed = all(v.tensor.element_strides == packed_strides(v.tensor.static_sizes) for v in values)
    return packed and all(v.data_type is FLOAT32 for v in values)


def _is_maximum(node: Any) -> bool:
    return isinstance(node.op, Operator) and node.op.name.startswith("MAX_POOLING")


class _UpTo:
    """A part by the library, and otherwise where an input is beyond a magnitude."""

    def __init__(self, limit: float, run: Run, otherwise: Callable[[], Run]) -> None:
        self._limit, self._run = np.float32(limit), run
        self._otherwise = cache(otherwise)

    def __call__(self, inputs: list[Array], outputs: list[Array]) -> list[Array]:
        small = all(-self._limit <= x.min() and x.max() <= self._limit for x in inputs)  # and no NaN
        return (self._run if small else self._otherwise())(inputs, outputs)


def _depends(node: Any, graph: DirectMLGraph, made: set[Value]) -> bool:
    """Whether a node needs, by whatever way, one of these values."""
    makers = {v: n for n in graph.nodes for v in n.writes}
    stack, seen = list(node.reads), set()
    while stack:
        value = stack.pop()
        if value in made:
            return True
        if value not in seen and value in makers:
            seen.add(value)
            stack += makers[value].reads
    return False


def _node(
    part: list[DirectMLNode],
    inputs: tuple[Value, ...],
    outputs: tuple[Value, ...],
    run: Run,
) -> DirectMLNode:
    """A node of an operator that exists here alone: all that the part does."""
    counts = Counter(n.op.name for n in part if isinstance(n.op, Operator))
    given = [f"input_{k}" for k in range(len(inputs))]
    made = [f"output_{k}" for k in range(len(outputs))]

    def compute(c: Call) -> Any:
        results = run(
            [np.ascontiguousarray(getattr(c, name)) for name in given],
            [empty(getattr(c, name), np.dtype(np.float32)) for name in made],
        )
        return tuple(results) if len(results) > 1 else results[0]

    compute.holds_session = True  # type: ignore[attr-defined]
    operator = Operator(
        _NAME,
        "Operators that a library runs.",
        (
            *(inp(name, dtype="T") for name in given),
            *(out(name, dtype="T") for name in made),
        ),
        {FeatureLevel.FL_1_0: at(rank=(1, 8), T=FLOAT32)},
        None,
        Example((), ()),
        compute=compute,
        text=", ".join(f"{name} x {count}" if count > 1 else name for name, count in counts.items()),
    )
    views = {k: TensorType(v.tensor.dtype, v.tensor.sizes, v.tensor.strides) for k, v in enumerate(inputs)}
    return DirectMLNode(operator, inputs, outputs, {}, name=_NAME, views=views)
