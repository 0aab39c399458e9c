"""One slice that is taken along an axis, and then gets that axis back, is taken with it.

%a: [1,128] = Gather(%x: [2,1,128], 0); %b: [1,1,128] = Reshape(%a)   ->   %b = Gather(%x, [0])
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value


def keep_gathered_axes(graph: Graph) -> Graph:
    makers = {v: n for n in graph.nodes if isinstance(n, Node) for v in n.writes}
    constants = dict(graph.constants)
    nodes = [_kept(n, makers, constants) if isinstance(n, Node) else n for n in graph.nodes]
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)


def _kept(node: Node, makers: dict[Value, Node], constants: dict[Value, Constant]) -> Node | If:
    if not node.is_onnx("Reshape"):
        return node
    gather = makers.get(node.inputs[0]) if node.inputs[0] else None
    if gather is None or not gather.is_onnx("Gather"):
        return node
    (x, place), (output,) = gather.inputs, node.outputs
    if x is None or place is None or output is None or place not in constants or place.known_sizes != ():
        return node
    sizes, wanted = x.known_sizes, output.known_sizes
    axis = gather.attributes["axis"].i if "axis" in gather.attributes else 0
    if sizes is None or wanted != tuple(1 if k == axis % len(sizes) else n for k, n in enumerate(sizes)):
        return node
    index = Value(f"{output.name}~index", TensorType("int64", (1,)))
    constants[index] = Constant(np.array([constants[place].content.item()], np.int64))
    return replace(gather, inputs=(x, index), outputs=(output,))
