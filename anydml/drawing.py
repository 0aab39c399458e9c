"""A graph as one HTML page without network: what the page is told, and the page.

The scripts of `page/` and the layout of `vendor/` are written into it; what they read is a `Page`, as JSON.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, Value
from anydml.ir.names import Names
from anydml.onnx.conditions import origin
from anydml.onnx.protos import AttributeProto, TensorProto, attribute_value
from anydml.onnx.types import DTYPES, type_text

_HERE = Path(__file__).parent
_SCRIPTS = ("layout", "graph", "view", "details")
"""In this order: each uses those before it."""

Typed = tuple[str, str]
"""The name of a value, and its type; of a small constant its content, too."""


class DrawnNode(TypedDict):
    """A node: `reads` are the names of all values that it and its branches need."""

    op: str
    name: str
    way: str
    reads: list[str]
    inputs: list[Typed]
    outputs: list[Typed]
    attributes: dict[str, str]
    branches: dict[str, DrawnGraph]
    condition: str
    flatten: str


class DrawnGraph(TypedDict):
    """A graph; the inputs of a branch are what it uses from outside, with the names that they have there."""

    inputs: list[Typed]
    outputs: list[Typed]
    count: int
    nodes: list[DrawnNode]


class Page(TypedDict):
    """All that the page shows."""

    title: str
    facts: str
    graph: DrawnGraph


def written(page: Page) -> str:
    """The page as HTML."""
    data = json.dumps(page, separators=(",", ":")).replace("<", "\\u003c")  # or a name could end the script
    licence = _read("vendor/dagre.LICENSE")
    dagre = _read("vendor/dagre.min.js").partition("//# sourceMappingURL")[0]
    parts = {
        "title": html.escape(page["title"]),
        "style": _read("page/style.css"),
        "data": data,
        "dagre": f"/* dagre\n{licence}*/\n{dagre}",
        "script": "\n".join(_read(f"page/{name}.js") for name in _SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page/page.html"))


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


class Drawing:
    """Graphs as the page draws them; `fate` tells what `flatten` would do with an If."""

    def __init__(self, fate: Callable[[If], str]) -> None:
        self.fate = fate
        self.names = Names()  # two branches may call their values the same

    def graph(self, graph: Graph, around: Mapping[Value, Node]) -> DrawnGraph:
        """A graph; `around`: what the graphs around it compute."""
        makers = {**around, **{v: n for n in graph.nodes if isinstance(n, Node) for v in n.writes}}
        return {
            "inputs": [self._typed(v) for v in graph.inputs],
            "outputs": [self._typed(v) for v in graph.outputs],
            "count": len(list(graph.walk())),
            "nodes": [self._node(n, graph, makers) for n in graph.nodes],
        }

    def _node(self, node: Node | If, graph: Graph, makers: Mapping[Value, Node]) -> DrawnNode:
        drawn: DrawnNode = {
            "op": "If" if isinstance(node, If) else str(node.op),
            "name": node.name,
            "way": "/".join(node.path),
            "reads": [self.names.of(v) for v in node.reads],
            "inputs": [],
            "outputs": [self._typed(v) for v in node.writes],
            "attributes": {},
            "branches": {},
            "condition": "",
            "flatten": "",
        }
        if isinstance(node, If):
            drawn["inputs"] = [self._typed(node.condition)]
            drawn["branches"] = {word: self.graph(b, makers) for word, b in node.branches}
            drawn["condition"] = origin(node.condition, makers, graph.constants)
            drawn["flatten"] = self.fate(node)
            return drawn
        drawn["inputs"] = [self._input(v, graph.constants) for v in node.inputs if v is not None]
        drawn["attributes"] = {name: _attribute_text(a) for name, a in node.attributes.items()}
        drawn["branches"] = {name: self.graph(b.standalone, {}) for name, b in node.bodies.items()}
        return drawn

    def _typed(self, value: Value) -> Typed:
        return self.names.of(value), type_text(value.type)

    def _input(self, value: Value, constants: Mapping[Value, Constant]) -> Typed:
        name, type = self._typed(value)
        content = constants[value].content if value in constants else None
        if isinstance(content, np.ndarray) and content.size <= 8:
            type = f"{type} = {content.tolist()}"
        return name, type


def _attribute_text(attribute: AttributeProto) -> str:
    content = attribute_value(attribute)
    if isinstance(content, TensorProto):
        return f"{DTYPES.get(content.data_type, 'unknown')}{list(content.dims)}"
    text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
    return text if len(text) <= 200 else f"{text[:200]}..."
