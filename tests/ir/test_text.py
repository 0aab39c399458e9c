"""Graphs as text."""

import numpy as np

from anydml.directml.descriptions import read_desc, to_graph
from anydml.ir.graph import (
    Constant,
    Graph,
    If,
    Node,
    OnnxOp,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
)
from anydml.ir.text import graph_text, type_text
from anydml.ops.enums import FeatureLevel


def test_types():
    assert type_text(TensorType("float32", (2, "N", None))) == "float32[2,N,?]"
    assert type_text(TensorType("int64", ())) == "int64[]"
    assert type_text(TensorType("int64")) == "int64"
    assert (
        type_text(SequenceType(OptionalType(TensorType("string", (1,))))) == "sequence(optional(string[1]))"
    )
    assert type_text(None) == "?"


def test_a_graph_with_branches():
    c, x = Value("c", TensorType("bool", ())), Value("x", TensorType("float32", (2, "N")))
    two, t, y = Value("two", TensorType("float32", ())), Value("t"), Value("y")
    big = Value("big", TensorType("float32", (100,)))
    multiply = Node(OnnxOp("", "Mul", 17), (x, two), (t, None), {"axis": 1})
    then = Graph("then", (x,), (t,), (multiply,), {two: Constant(np.array(2, np.float32))})
    graph = Graph(
        "main",
        (c, x),
        (y,),
        (If(c, then, Graph("else", (x,), (x,), ()), (y,)),),
        {big: Constant(np.zeros(100))},
    )
    assert graph_text(graph) == (
        "graph main(%c: bool[], %x: float32[2,N]) -> (%y) {\n"
        "  const %big: float32[100] = ...\n"
        "  %y = If(%c) {\n"
        "    then(%x) -> (%t) {\n"
        "      const %two: float32[] = 2.0\n"
        "      %t, _ = Mul(%x, %two) {axis = 1}\n"
        "    }\n"
        "    else(%x) -> (%x) {\n"
        "    }\n"
        "  }\n"
        "}\n"
    )


def test_a_directml_operator():
    tensor = {"DataType": "FLOAT16", "Sizes": [2]}
    desc = {"Type": "ELEMENT_WISE_IS_INFINITY", "InputTensor": tensor, "InfinityMode": "EITHER"}
    checked, problems = read_desc(
        desc | {"OutputTensor": tensor | {"DataType": "UINT8"}}, FeatureLevel.newest()
    )
    assert not problems
    assert graph_text(to_graph(checked), str) == (
        "graph ELEMENT_WISE_IS_INFINITY(%InputTensor: float16[2]) -> (%OutputTensor) {\n"
        "  %OutputTensor = ELEMENT_WISE_IS_INFINITY(%InputTensor) {InfinityMode = 0}\n"
        "}\n"
    )
