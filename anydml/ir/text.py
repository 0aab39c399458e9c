"""Graphs as text, for people and for the tests' expectations.

graph main(%c: bool[], %x: float32[2,N]) -> (%y) {
  const %two: float32[] = 2.0
  %y = If(%c) {
    then(%x) -> (%t) {
      %t = Mul(%x, %two)
    }
    else(%x) -> (%x) {
    }
  }
}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from anydml.ir.graph import (
    Constant,
    Graph,
    If,
    MapType,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    Value,
)


def type_text(type: Type | None) -> str:
    """`float32[2,N,?]`, `int64` of unknown rank, `sequence(string[])`, `?` for nothing known."""
    match type:
        case TensorType(dtype, None):
            return dtype
        case TensorType(dtype, sizes):
            assert sizes is not None
            return f"{dtype}[{','.join('?' if n is None else str(n) for n in sizes)}]"
        case SequenceType(element):
            return f"sequence({type_text(element)})"
        case OptionalType(element):
            return f"optional({type_text(element)})"
        case MapType(key, element):
            return f"map({key},{type_text(element)})"
    return "?"


def graph_text(graph: Graph, show_attribute: Callable[[object], str] = repr) -> str:
    """The whole graph; `show_attribute` writes the attributes that only their own format can."""
    head = ", ".join(_value_text(v) for v in graph.inputs)
    lines = [f"graph {graph.name}({head}) -> ({_names(graph.outputs)}) {{"]
    lines += _body(graph, "  ", show_attribute)
    return "\n".join([*lines, "}"]) + "\n"


def _body(graph: Graph, pad: str, show: Callable[[object], str]) -> Iterator[str]:
    for value, constant in graph.constants.items():
        yield f"{pad}const {_value_text(value)} = {_content(constant)}"
    for node in graph.nodes:
        if isinstance(node, If):
            yield f"{pad}{_names(node.outputs)} = If(%{node.condition.name}) {{"
            for word, branch in node.branches:
                yield f"{pad}  {word}({_names(branch.inputs)}) -> ({_names(branch.outputs)}) {{"
                yield from _body(branch, pad + "    ", show)
                yield f"{pad}  }}"
            yield f"{pad}}}"
        else:
            yield pad + _node(node, show)
            for name, body in node.bodies.items() if isinstance(node, Node) else ():
                head = f"{name}({_names(body.parameters)}; {_names(body.inputs)})"
                yield f"{pad}  {head} -> ({_names(body.outputs)}) {{"
                yield from _body(body, pad + "    ", show)
                yield f"{pad}  }}"


def _node(node: Node, show: Callable[[object], str]) -> str:
    shown = ", ".join(f"{k} = {show(v)}" for k, v in node.attributes.items())
    return f"{_names(node.outputs)} = {node.op}({_names(node.inputs)})" + (f" {{{shown}}}" if shown else "")


def _names(values: tuple[Value | None, ...]) -> str:
    return ", ".join("_" if v is None else f"%{v.name}" for v in values)


def _value_text(value: Value) -> str:
    return f"%{value.name}: {type_text(value.type)}"


def _content(constant: Constant) -> str:
    content = constant.content
    if isinstance(content, np.ndarray) and content.size <= 8:
        return str(content.tolist())
    return "..."
