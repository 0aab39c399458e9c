"""The rules as a table, and the order in which they are applied.

A result, and a condition where there is one, is given the match: `m["x"]` is what the pattern calls x.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from anydml.ir.graph import Graph
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.rewrites.axes import count_axes_from_the_front, count_axis_from_the_front
from anydml.onnx.rewrites.cast import cast
from anydml.onnx.rewrites.concat import concat_some
from anydml.onnx.rewrites.convolution import gather_windows, multiply_matrices, unary_before_turning
from anydml.onnx.rewrites.gather import keep_gathered_axis
from anydml.onnx.rewrites.matcher import (
    Pattern,
    Rule,
    RulesByRoot,
    constant,
    node,
    rewrite,
    rules_by_root,
    value,
)
from anydml.onnx.rewrites.norm import reduce_parts
from anydml.onnx.rewrites.reshape import (
    can_find_sizes,
    is_no_mask,
    is_whole_slice,
    keeps_elements,
    keeps_floats,
    keeps_order,
    keeps_sizes,
    reshape,
    reshape_afterwards,
    reshape_by_constants,
)

X = value("x")
RESHAPED = node("Reshape", X, name="reshaped")
GATHERED = node("Gather", X, constant("place"), name="gathered")
REDUCTIONS = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare"""


def square(name: str) -> Pattern:
    """The square of a part of x."""
    part = node("Slice", X, constant(), constant(), constant(), name=name)
    return node("Mul", part, part) | node("Pow", part, constant(number=2))


CHAINS = (
    Rule("identity", node("Identity", X), lambda m: m["x"]),
    Rule("single_convolution", node("Conv", X, constant("weight")), multiply_matrices, since=11),
    Rule("reshape_to_same_sizes", node("Reshape", X), lambda m: m["x"], keeps_sizes),
    Rule("reshape_of_reshape", node("Reshape", RESHAPED), reshape, keeps_elements),
    Rule("reshape_to_known_sizes", node("Reshape", X), reshape_by_constants, can_find_sizes, 5),
    Rule("squeeze", node("Squeeze Unsqueeze Flatten", X), reshape, is_no_mask),
    Rule("expand", node("Expand", X, constant()), reshape, keeps_elements),  # others may not fit
    Rule("cast_to_same_type", node("Cast CastLike", X), lambda m: m["x"], keeps_sizes),
    Rule("cast_like", node("CastLike", X), cast),
    Rule("reduction_of_one", node("ReduceMean ReduceSum ReduceMax ReduceMin", X), reshape, keeps_floats),
    Rule("whole_slice", node("Slice", X), lambda m: m["x"], is_whole_slice),
    Rule("concat_nothing", node("Concat"), concat_some, since=4),
    Rule("transpose_of_ones", node("Transpose", X), reshape, keeps_order),
    Rule("unary_of_reshape", node("Relu Sigmoid Tanh", RESHAPED), reshape_afterwards, keeps_elements, 6),
)
"""What goes, and what becomes a Reshape or can be moved past one: chains of them are one, or none."""

REST = (
    Rule("norm", node("Sqrt", node("Add", square("first"), square("second"))), reduce_parts, since=13),
    Rule("gather_of_one", node("Reshape", GATHERED), keep_gathered_axis),
)
"""What would end a chain, and so comes when all are merged."""

AROUND_QUIRKS = (
    Rule("arg_axis", node("ArgMax ArgMin", X), count_axis_from_the_front),
    Rule("reduction_axes", node(REDUCTIONS, X), count_axes_from_the_front),
)
"""What only avoids something that onnxruntime does wrong; a file that is written stays as it is there."""

PRODUCT = node("Gemm", name="product")
TURNED = node("Transpose", node("Reshape", PRODUCT, name="found"), name="turned")
ON_PROCESSORS = (
    Rule("few_positions", node("Conv", X, constant("weight")), gather_windows, since=11),
    Rule("unary_of_positions", node("Relu Sigmoid Tanh", TURNED), unary_before_turning, since=11),
)
"""What is faster on a processor; devices have units for what it replaces."""

RULES = (CHAINS, REST, AROUND_QUIRKS, ON_PROCESSORS)


_KNOWN_SHAPES = rules_by_root([Rule("", node("Reshape", X), reshape_by_constants, since=5)])


def with_known_shapes(graph: Graph) -> Graph:
    """The graph with Reshapes to known sizes, which do not fail on nothing as others of -1 do."""
    return eliminate_dead_code(rewrite(graph, _KNOWN_SHAPES))


_AROUND_QUIRKS = rules_by_root(AROUND_QUIRKS)


def around_quirks(graph: Graph) -> Graph:
    """A branch that will run in vain, too, and must not make of nothing what others do not expect."""
    return rewrite(graph, _AROUND_QUIRKS)


@cache
def _without(names: frozenset[str]) -> tuple[RulesByRoot, ...]:
    unknown = names - {rule.name for rules in RULES for rule in rules}
    assert not unknown, f"no rules: {unknown}"
    return tuple(rules_by_root(r for r in rules if r.name not in names) for rules in RULES)


def simplify(
    graph: Graph, without: Iterable[str] = (), *, in_file: bool = False, on_processor: bool = False
) -> Graph:
    """The graph after all rules but those of these names, without what nobody needs any more.

    `in_file`: it is to be written, and not to run here; `on_processor`: it is to run there, and on no device.
    """
    chains, rest, around_quirks, on_processors = _without(frozenset(without))
    kinds = [chains, rest]
    kinds += [] if in_file else [around_quirks]
    kinds += [on_processors] if on_processor else []
    for rules in kinds:
        graph = rewrite(graph, rules)
    return eliminate_dead_code(graph)
