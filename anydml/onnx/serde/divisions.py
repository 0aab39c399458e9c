"""Divisions of INT32 and INT64 by -1 as negations.

%y = Div(%a, %b)   ->   %m = Equal(%b, -1); %s = Where(%m, 1, %b); %q = Div(%a, %s)
                        %n = Neg(%a); %y = Where(%m, %n, %q)

onnxruntime ends the process when the smallest integer is divided by -1, where a negation wraps around. A
remainder is 0 then, as it is of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anydml.ir.graph import Constant, Node, Value
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.serde.parts import PartWriter, part


def right_divisions(node: Node, constants: Mapping[Value, Constant]) -> list[Node]:
    """The node, or what stands for it where the library might end the process."""
    if node.op.domain or node.op.name not in ("Div", "Mod"):
        return [node]
    from anydml.onnx.ops.arithmetic import is_mended_division  # which other models do not need

    n = KnownNode(node, constants)
    if not is_mended_division(n):
        return [node]
    dividend, divisor = node.inputs[:2]
    dtype = n.dtype()
    assert dividend is not None
    assert divisor is not None
    assert dtype is not None
    w = PartWriter(node)
    turns = w.made("Equal", "turns", divisor, w.integers("minus", -1, dtype), dtype="bool")
    safe = w.made("Where", "safe", turns, w.integers("one", 1, dtype), divisor, dtype=dtype)
    if node.op.name == "Mod":
        return [*w.nodes, replace(node, inputs=(dividend, safe))]
    quotient = w.value("quotient", dtype)
    w.nodes.append(replace(node, inputs=(dividend, safe), outputs=(quotient,)))
    negative = w.made("Neg", "negative", dividend, dtype=dtype)
    w.nodes.append(part(node, "Where", (turns, negative, quotient), w.output))
    return w.nodes
