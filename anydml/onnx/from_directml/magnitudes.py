"""How large a graph's inputs may be, so that no value on the way can become infinite or NaN.

A library's maxima pass over NaN. Where weights are known, it follows from what is given whether there can be
any: a convolution's results are at most its input's largest element times what a filter's elements sum up to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from anydml.ir.graph import Constant, DirectMLNode, Value
from anydml.ops.attributes import Activation
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import packed_strides

LIMIT = 1e30
"""Of every value: far from where rounding, or another order of summation, could make it infinite."""
EXPONENTS = range(96, -8, -4)
"""Of the powers of two that inputs are tried with."""


def largest_input(
    nodes: Sequence[DirectMLNode], constants: Mapping[Value, Constant], read: Iterable[DirectMLNode]
) -> float:
    """The magnitude up to which inputs leave finite what these nodes read; 0 if nothing is known of it."""
    needed = {v for n in read for v in n.reads}
    before = []
    for node in reversed(nodes):
        if needed & {*node.writes}:
            before.append(node)
            needed.update(node.reads)
    rules = [(n, _rule(n, constants)) for n in reversed(before)]
    known = {v: _largest(c) for v, c in constants.items() if v in needed}
    return next((2.0**e for e in EXPONENTS if _is_finite(rules, known, needed, 2.0**e)), 0.0)


Rule = Callable[[list[float]], Any]
"""The magnitude of a node's result, of those of its inputs."""


def _is_finite(
    rules: Sequence[tuple[DirectMLNode, Rule]], known: dict[Value, Any], needed: set[Value], given: float
) -> bool:
    found = dict.fromkeys(needed, given) | known
    for node, rule in rules:
        largest = rule([0.0 if v is None else found[v] for v in node.inputs])
        found |= dict.fromkeys(node.writes, largest)
    return all(x <= LIMIT for x in found.values())


def _rule(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    assert isinstance(node.op, Operator)
    rule = RULES.get(node.op.name, _unknown)(node, constants)
    activation = node.attributes.get("FusedActivation")
    if not isinstance(activation, Activation):
        return rule
    name, factor = activation.operator.name, max(1.0, abs(activation.attributes.get("Alpha", 1.0)))
    if name == "ACTIVATION_LEAKY_RELU":
        return lambda given: rule(given) * factor
    return rule if name in ("ACTIVATION_RELU", "ACTIVATION_IDENTITY") else lambda given: inf


def _largest(constant: Constant) -> float:
    content = np.asarray(constant.content)
    return float(np.abs(content).max(initial=0))


def _unknown(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    return lambda given: inf


def _same(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    """Of operators that give elements of their inputs, or 0."""
    return np.max


def _sum(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    return sum


def _product(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    return prod


def _leaky(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    factor = max(1.0, abs(node.attributes["Alpha"]))
    return lambda given: given[0] * factor


def _clip(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    low, high = node.attributes["Min"], node.attributes["Max"]
    return lambda given: np.max([given[0], low, -high])


def _most(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    """Of windows that have each something beside padding."""
    (source, *_), (target, *_), given = node.inputs, node.outputs, node.attributes
    assert source is not None
    assert target is not None
    sizes, made = (t.static_sizes[2:] for t in (node.views.get(0) or source.tensor, target.tensor))
    axes = zip(sizes, made, given["WindowSize"], given["Strides"], given["StartPadding"], strict=True)
    dense = set(given.get("Dilations", [1])) == {1}
    full = all(start < w and (m - 1) * step - start < n for n, m, w, step, start in axes)
    return _same(node, constants) if dense and full else _unknown(node, constants)


def _convolution(node: DirectMLNode, constants: Mapping[Value, Constant]) -> Rule:
    filters = node.inputs[1]
    assert filters is not None
    seen = node.views.get(1) or filters.tensor
    if filters not in constants or seen.element_strides != packed_strides(seen.static_sizes):
        return _unknown(node, constants)
    weights = np.asarray(constants[filters].content).reshape(seen.static_sizes)
    channel = 0 if node.attributes["Direction"].name.endswith("FORWARD") else 1
    others = tuple(k for k in range(weights.ndim) if k != channel)
    weight = float(np.abs(weights).sum(others, np.float64).max())
    return lambda given: given[0] * weight + given[2]


RULES: Mapping[str, Callable[[DirectMLNode, Mapping[Value, Constant]], Rule]] = {
    "CONVOLUTION": _convolution,
    "ACTIVATION_LEAKY_RELU": _leaky,
    "ELEMENT_WISE_CLIP": _clip,
    "ELEMENT_WISE_MULTIPLY": _product,
    **dict.fromkeys(("MAX_POOLING", "MAX_POOLING1", "MAX_POOLING2"), _most),
    **dict.fromkeys(("ELEMENT_WISE_ADD", "ELEMENT_WISE_ADD1", "ELEMENT_WISE_SUBTRACT"), _sum),
    **dict.fromkeys(
        "ACTIVATION_RELU ACTIVATION_IDENTITY ELEMENT_WISE_IDENTITY JOIN UPSAMPLE_2D".split(), _same
    ),
}
