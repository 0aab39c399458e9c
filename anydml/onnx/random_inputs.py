"""Random inputs for a model: sizes as models mostly see them, and among contents what it compares with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.errors import OutOfMemory
from anydml.ir.graph import Graph, MapType, Node, OnnxOp, OptionalType, SequenceType, TensorType, Type
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.types import dtype_name, leaf, numpy_type
from anydml.runtime.memory import size_problem

Feeds = dict[str, Any]
Sizes = dict[object, int]
"""A number for each symbol, and for each size without a name: (input, axis)."""
MAX_ELEMENTS = 1 << 24
"""Of all inputs together: more are not drawn."""


def compared_with(graph: Graph) -> list[int]:
    """The integers that the model compares something with."""
    constants = {v: c for inner in graph.graphs() for v, c in inner.constants.items()}
    found = {0, 1}
    for node in graph.walk():
        if isinstance(node, Node) and _compares(node.op):
            for value in node.reads:
                content = constants[value].content if value in constants else None
                if isinstance(content, np.ndarray) and content.size == 1 and content.dtype.kind in "iu":
                    found |= {int(content.item()) + d for d in (0, 1)}
    return sorted(n for n in found if n < 2**63)


def _compares(op: OnnxOp) -> bool:
    info = info_of(op)
    return info is not None and info.compare is not None


def guess_sizes(graph: Graph, sizes: Sequence[int], rng: np.random.Generator) -> Sizes:
    """Sizes as models mostly see them: one that varies, all others equal."""
    free: list[object] = []
    for value in graph.inputs:
        type = value.type
        if isinstance(type, TensorType):
            free += [n or (value.name, k) for k, n in enumerate(type.sizes or ()) if not isinstance(n, int)]
    found: Sizes = dict.fromkeys(free, int(rng.choice([1, 1, 1, 2, 3])))
    for _ in range(int(rng.choice([0, 1, 1, 1, 2]))):
        if free:
            found[free[rng.integers(len(free))]] = int(rng.choice(sizes))
    return found


def elements_of(graph: Graph, sizes: Sizes) -> int:
    """Elements of all inputs that are tensors of known rank; an empty axis counts as 1, as NumPy has it."""
    total = 0
    for v in graph.inputs:
        dims = v.sizes or ()
        if len(dims) > 64:  # axes, which NumPy has at most
            return MAX_ELEMENTS + 1
        known = (n if isinstance(n, int) else sizes.get(n or (v.name, k), 2) for k, n in enumerate(dims))
        total += prod(max(n, 1) for n in known)
    return total


def drawn(
    graph: Graph,
    fixed: Mapping[str, Any],
    numbers: Sequence[int],
    sizes: Sizes,
    rng: np.random.Generator,
    tame: bool = False,
) -> Feeds:
    """Random contents for a model's inputs, of which a third are wild, if they may be."""
    wild = bool(rng.integers(3) == 0) and not tame
    feeds: Feeds = {}
    for value in graph.inputs:
        known = value.name in fixed
        feeds[value.name] = (
            fixed[value.name] if known else _draw(value.name, value.type, sizes, numbers, wild, rng)
        )
    return feeds


def _draw(
    name: str, type: Type | None, sizes: Sizes, numbers: Sequence[int], wild: bool, rng: np.random.Generator
) -> Any:
    match type:
        case SequenceType(element):
            return [_draw(name, element, sizes, numbers, wild, rng) for _ in range(rng.integers(0, 4))]
        case OptionalType(element):
            none = type.empty or rng.integers(2)
            return None if none else _draw(name, element, sizes, numbers, wild, rng)
        case MapType(key, element):
            keys = _content(key, (int(rng.integers(0, 4)),), numbers, wild, rng).tolist()
            return {k: _content(leaf(element).dtype, (), numbers, wild, rng).item() for k in keys}
        case TensorType(dtype, dims):
            dims = dims if dims is not None else (None,) * int(rng.integers(0, 4))
            sized = [n if isinstance(n, int) else sizes.get(n or (name, k), 2) for k, n in enumerate(dims)]
            if problem := size_problem(f"input {name!r}", dtype, sized, DRAWN_BYTES):
                raise OutOfMemory(problem)
            return _content(dtype, tuple(sized), numbers, wild, rng)
    return np.zeros((), np.float32)


DRAWN_BYTES = 8
"""Of a random number, whatever it becomes."""
WILD_INTEGERS = (-1, -2, -7, 7, 100, 127)
WILD_FLOATS = (np.nan, np.inf, -np.inf, -0.0, 1e30, -1e-30)


def _content(
    dtype: str, shape: tuple[int, ...], numbers: Sequence[int], wild: bool, rng: np.random.Generator
) -> Any:
    if dtype == "string":
        return rng.choice(np.array(["", "a", "bc"], object), shape)
    wanted = numpy_type(dtype)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if "int" in dtype:
        odd = (*WILD_INTEGERS, _smallest(dtype)) if wild else ()
        return np.asarray(rng.choice([*numbers, *odd], shape)).astype(wanted)
    content = np.asarray(rng.standard_normal(shape) * rng.choice([0.1, 1, 3]))
    if wild:
        content = np.where(rng.random(shape) < 0.2, rng.choice(WILD_FLOATS, shape), content)
    with np.errstate(over="ignore"):
        return content.astype(wanted)


def _smallest(dtype: str) -> int:
    """The smallest integer of a type, which has no negative; 0 of one without a sign."""
    return 0 if dtype.startswith("u") else -(1 << int(dtype.removeprefix("int")) - 1)


def shown(feeds: Feeds) -> str:
    parts = []
    for name, x in feeds.items():
        if isinstance(x, np.ndarray) and x.size == 1:
            parts.append(f"{name} = {x.item()}")
        elif isinstance(x, np.ndarray):
            parts.append(f"{name} {dtype_name(x.dtype)}{list(x.shape)}")
        else:
            parts.append(name)
    return ", ".join(parts)
