"""Speculation safety: what may go wrong when a node runs whose branch was not taken.

A node can be speculated if the types, sizes and constants of its inputs prove that it cannot fail. Where
sizes are open, a rule of its operator proves it; where all are numbers, it is run once, on zeros. NaN and
infinities are no failures: they are never selected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from anydml.errors import Unsupported
from anydml.ir.dims import Affine
from anydml.ir.graph import Constant, If, Node, TensorType, Value
from anydml.onnx.ops.catalog import info_of, known_of
from anydml.onnx.ops.opinfo import KnownNode, NotFoldable
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.shape_errors import fails, impossible
from anydml.onnx.providers.onnxruntime import DTYPES, OnnxRuntime
from anydml.onnx.providers.provider import RegionFailed
from anydml.onnx.serde.region_model import region
from anydml.onnx.types import leaf, numpy_type

Constants = Mapping[Value, Constant]


def speculation_hazard(node: Node | If, constants: Constants) -> str | None:
    """Why a node cannot be executed speculatively; None if it can."""
    if isinstance(node, If):
        return "it contains an If"
    if node.nofail or node.predicated or node.sized:
        return None
    return _hazard_of_any_sizes(node, constants) or _hazard_of_sizes(node, constants)


def no_sizes_help(node: Node | If, constants: Constants) -> bool:
    """Whether a node cannot be executed speculatively, whatever the sizes of its inputs."""
    if isinstance(node, If) or node.nofail or node.predicated or node.sized:
        return False
    return _hazard_of_any_sizes(node, constants) is not None


def _hazard_of_any_sizes(node: Node, constants: Constants) -> str | None:
    op, info = node.op, known_of(node.op)
    if op.domain and (info is None or info.speculatable is None):
        return f"{op} is not an operator of ONNX"
    if info is not None and info.draws is not None and info.draws(KnownNode(node, constants)):
        return f"{op} draws random numbers"
    if node.is_onnx("OptionalGetElement"):
        return f"{op} fails on an optional without content, and no other operator takes one"
    if info is None or info.speculatable is None:
        return f"{op} may fail or be slow"
    try:
        info.speculatable(KnownNode(node, constants))
    except NotFoldable:
        return f"{op} may fail, depending on shapes or values that are not known"
    return None


def _hazard_of_sizes(node: Node, constants: Constants) -> str | None:
    op, info = node.op, known_of(node.op)
    assert info is not None
    assert info.speculatable is not None
    proven = info.speculatable(KnownNode(node, constants))
    if info.makes_container:
        return None if proven else f"{op} may fail, depending on values that are not known"
    if any(v.type is None or not isinstance(v.type, TensorType) for v in (*node.reads, *node.writes)):
        return f"{op} has an operand of unknown type"
    if node.fails or fails(node) or impossible(node, [None if v is None else v.type for v in node.outputs]):
        return f"{op} fails with these shapes"
    if proven or (proven is None and _runs_on_these_sizes(node, constants)):
        return None
    return f"{op} may fail, depending on shapes or values that are not known"


def body_cannot_fail(node: Node, constants: Constants) -> bool:
    """Whether no iteration of a Scan can: no node of its body, and its states and rows keep their sizes."""
    typed = with_typed_bodies(node, constants, {"": node.op.version}, OnnxRuntime())
    body = typed.bodies["body"]
    known = {**constants, **body.constants}
    if any(speculation_hazard(inner, known) is not None for inner in body.nodes):
        return False
    sizes = [v.sizes for v in body.outputs]
    if None in sizes:
        return False
    around = {n for v in node.reads for n in v.sizes or ()}
    if any(not isinstance(n, int) and n not in around for s in sizes for n in s or ()):
        return False
    info = info_of(node.op)
    states = {} if info is None else info.states(node)
    return all((v := node.inputs[k]) is not None and v.sizes == sizes[j] for k, j in states.items())


def _runs_on_these_sizes(node: Node, constants: Constants) -> bool:
    """All sizes are numbers, none of them 0, and it runs on zeros.

    Integers say where and how often; all of them must be constants, but for the data of what moves data.
    Where the number of samples is of no account, it may be open: then it has to run on none and on two.
    """
    info = info_of(node.op)
    first = node.inputs[0] if node.inputs else None
    samples = first.sizes[0] if first is not None and first.sizes else None
    if info is not None and info.any_batch and isinstance(samples, Affine):
        return all(_runs_on_these_sizes(_with_samples(node, samples, k), constants) for k in (0, 2))
    for value in (*node.reads, *node.writes):
        sizes = value.known_sizes
        if sizes is None or (0 in sizes and not (info is not None and info.any_batch and sizes[0] == 0)):
            return False
    told = node.inputs[1:] if info is not None and info.moves_first else node.inputs
    if any(v is not None and v not in constants and not _is_float(v) for v in told):
        return False
    return _runs_on_zeros(node, constants)


def _with_samples(node: Node, samples: Affine, count: int) -> Node:
    """The node on so many samples."""

    def now(value: Value | None) -> Value | None:
        if value is None or not isinstance(value.type, TensorType) or value.sizes is None:
            return value
        sizes = tuple(count if n == samples else n for n in value.sizes)
        return value if sizes == value.sizes else Value(value.name, TensorType(value.type.dtype, sizes))

    return replace(node, inputs=tuple(map(now, node.inputs)), outputs=tuple(map(now, node.outputs)))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and "float" in value.type.dtype


MAX_TRIED_ELEMENTS = 1 << 24
"""Of all tensors of a node that is run to see whether it fails."""


def _runs_on_zeros(node: Node, constants: Constants) -> bool:
    """Whether a node whose sizes and integers are all known runs: then it does so on any numbers."""
    given = list(dict.fromkeys(node.reads))
    if sum(prod(v.known_sizes or ()) for v in (*given, *node.writes)) > MAX_TRIED_ELEMENTS:
        return False
    if quirk_of(node, constants) is not None or any(
        leaf(v.type).dtype not in DTYPES for v in node.reads if v.type
    ):
        return False
    contents = [constants[v].content if v in constants else _zeros(v) for v in given]
    alone = region([node], given, node.writes, {}, {"": node.op.version})
    try:
        OnnxRuntime().compile(alone, 1)(contents)
    except (Unsupported, RegionFailed):
        return False
    return True


def _zeros(value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    return np.zeros(value.known_sizes or (), numpy_type(value.type.dtype))
