"""What the conditions of a graph's Ifs are computed from, and which inputs of the model decide them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from anydml.dataclass import dataclass
from anydml.ir.dims import Affine, Dim, Symbol
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, OptionalType, TensorType, Value
from anydml.onnx.ops.catalog import info_of

DEPTH = 4
"""How far back the origin of a condition is written out."""
MAX_SET_ELEMENTS = 4
"""Of an input that somebody would type the content of."""
HANDING_ON = ("Cast", "Flatten", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators behind which a number is what it was before them."""
Makers = Mapping[Value, Node] | Mapping[Value, Node | If]
Constants = Mapping[Value, Constant]


@dataclass(frozen=True)
class Condition:
    """What an If decides by.

    `text`: as a nest of operators. `fixes`: inputs of few elements whose content decides, with one that would
    (`sr=16000`). `sized`: inputs whose sizes decide. `data`: inputs whose data does. `optional`: optional
    inputs that do. `carried`: whether what a loop carries does.
    """

    text: str
    fixes: tuple[str, ...] = ()
    sized: tuple[Value, ...] = ()
    data: tuple[str, ...] = ()
    carried: bool = False
    optional: tuple[Value, ...] = ()


def origin(value: Value, makers: Makers, constants: Constants, depth: int = DEPTH) -> str:
    """What a value is computed from, as a nest of operators: `Equal(Gather(Shape(x), 0), 1)`."""
    if value in constants:
        content = constants[value].content
        small = isinstance(content, np.ndarray) and content.size <= 4
        return str(content.tolist()) if small else value.name
    node = makers.get(value)
    if not isinstance(node, Node) or not isinstance(node.op, OnnxOp):
        return value.name
    if depth == 0:
        return f"{node.op}(...)"
    inputs = (origin(v, makers, constants, depth - 1) if v is not None else "" for v in node.inputs)
    return f"{node.op}({', '.join(inputs)})"


def conditions(graph: Graph) -> dict[object, Condition]:
    """For each If, by its origin, what it decides by."""
    makers: dict[Value, Node | If] = {}
    constants: dict[Value, Constant] = {}
    ifs = []
    for inside in graph.graphs():
        makers |= {v: n for n in inside.nodes for v in n.writes}
        constants |= inside.constants
        ifs += [node for node in inside.nodes if isinstance(node, If)]
    inputs, counted = frozenset(graph.inputs), _counted(graph) if ifs else frozenset()
    return {node.origin: _condition(node.condition, makers, constants, inputs, counted) for node in ifs}


def _condition(
    value: Value, makers: Makers, constants: Constants, inputs: frozenset[Value], counted: frozenset[Value]
) -> Condition:
    """`counted`: values of sizes that inputs' sizes do not decide."""
    fixes: dict[str, str] = {}
    sized: dict[Value, None] = {}
    data: dict[str, None] = {}
    optional: dict[Value, None] = {}
    carried = False
    waiting, seen = [(value, False, "true")], set()
    while waiting:
        found, measured, guess = waiting.pop()
        if found in seen or found in constants:
            continue
        seen.add(found)
        if found in inputs:
            if isinstance(found.type, OptionalType):
                optional[found] = None
            elif measured and found.known_sizes is None:  # sizes that are known decide nothing
                sized[found] = None
            elif _is_typed(found):
                fixes.setdefault(found.name, guess)
            else:
                data[found.name] = None
            continue
        node = makers.get(found)
        if node is None:
            carried = True
            continue
        if isinstance(node, If):
            results = [b.outputs[node.outputs.index(found)] for _, b in node.branches]
            waiting += [(v, measured, guess) for v in (node.condition, *results)]
            continue
        info = info_of(node.op)
        measures = info is not None and info.measures is not None
        measured = measured or (measures and counted.isdisjoint(node.reads))
        told = next((_text(constants[v]) for v in node.reads if v in constants), "")
        if info is not None and info.equates and told:
            guess = told
        elif guess == "true" or str(node.op) not in HANDING_ON:
            guess = "..."
        waiting += [(v, measured, guess) for v in node.reads]
    given = tuple(f"{name}={_guess(name, guess, inputs)}" for name, guess in fixes.items())
    text = origin(value, makers, constants)
    return Condition(text, given, tuple(sized), tuple(data), carried, tuple(optional))


def _counted(graph: Graph) -> frozenset[Value]:
    """Values whose sizes follow from data on the way, as far as is known, whatever those of inputs are."""
    sizes_of_inputs = {s for v in graph.inputs for n in v.sizes or () for s in _symbols(n)}
    behind: set[Value] = set()
    for inside in graph.graphs():
        for node in inside.nodes:
            own = [node] if isinstance(node, Node) else []
            own += [n for b in node.subgraphs for n in b.walk(bodies=True) if isinstance(n, Node)]
            counts = any((info := info_of(n.op)) is not None and info.counts for n in own)
            if counts or not behind.isdisjoint(node.reads):
                behind.update(node.writes)
    return frozenset(
        v
        for v in behind
        if v.sizes is None or any(n is None or not sizes_of_inputs.issuperset(_symbols(n)) for n in v.sizes)
    )


def _symbols(size: Dim) -> Iterable[Symbol]:
    return [symbol for symbol, _ in size.terms or ()] if isinstance(size, Affine) else ()


def _is_typed(value: Value) -> bool:
    """Whether somebody would type its content: a few integers or bools."""
    type, sizes = value.type, value.known_sizes
    if not isinstance(type, TensorType) or "float" in type.dtype or sizes is None:
        return False
    return int(np.prod(sizes)) <= MAX_SET_ELEMENTS


def _guess(name: str, guess: str, inputs: frozenset[Value]) -> str:
    (value,) = (v for v in inputs if v.name == name)
    if isinstance(value.type, TensorType) and value.type.dtype == "bool":
        return "true"
    return "..." if guess == "true" else guess


def _text(constant: Constant) -> str:
    content = constant.content
    if not isinstance(content, np.ndarray) or content.size != 1:
        return ""
    return str(content.reshape(-1).tolist()[0])
