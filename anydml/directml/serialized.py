"""Serialized DirectML graphs: the FlatBuffers that onnxruntime's DirectML provider writes (Partition_0.bin).

    desc = read_serialized_graph(data, constants=lambda name: Path(f"{name}.bin").read_bytes())

The fields of a table are numbered as in the schema of microsoft/DirectML (DmlGraphDesc, OperatorFieldTypes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anydml.directml.descriptions import OperatorDesc
from anydml.directml.flatbuffer import Table, root
from anydml.directml.graph_desc import ConstantNode, GraphDesc, OperatorNode
from anydml.errors import InvalidModel, Problem, nearest
from anydml.ops.catalog import BY_NAME
from anydml.ops.dtypes import NUMPY
from anydml.ops.enums import OperatorType, TensorDataType, parse, short_name
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc

_OPERATOR, _CONSTANT = 1, 2
_NAMED, _RAW = 1, 2
_SCALARS = {3: "<I", 4: "<Q", 5: "<i", 6: "<f", 13: "<?"}
"""Members of an attribute's union that are one number."""
_ARRAYS = {7: "<u4", 8: "<i4", 9: "<f4"}
_ACTIVATION, _ACTIVATIONS, _SCALE_BIAS, _SIZE, _UNION = 1, 2, 10, 11, 12
_OF_UNION = dict(enumerate("<b <B <h <H <i <I <q <Q <f <d".split(), start=2))
_BYTES = 1


def read_serialized_graph(data: bytes, constants: Callable[[str], bytes]) -> GraphDesc:
    """A graph and its operators, as descriptions.

    Args:
        data: the file.
        constants: gives the bytes of a constant that the file only names.

    Raises:
        InvalidModel: it is no such file; the error names the place.
    """
    table = root(data)
    inputs, outputs = table.strings(1), table.strings(2)
    nodes = [_node(k, node, constants) for k, node in enumerate(table.tables(0))]
    if not nodes:
        raise InvalidModel(Problem("", "expected a serialized DirectML graph, but it has no nodes"))
    return GraphDesc(nodes, inputs, outputs)


def _node(k: int, node: Table, constants: Callable[[str], bytes]) -> OperatorNode | ConstantNode:
    kind, name = node.scalar(0, "<B"), node.text(2) or f"node {k}"
    inner = node.table(1)
    if inner is None or kind not in (_OPERATOR, _CONSTANT):
        raise InvalidModel(Problem(name, f"expected an operator or a constant, but got kind {kind}"))
    inputs, outputs = node.strings(3), node.strings(4)
    if kind == _OPERATOR:
        return OperatorNode(_operator(name, inner, inputs, outputs), inputs, outputs, name)
    content = inner.table(1)
    if content is None or inner.scalar(0, "<B") not in (_NAMED, _RAW) or len(outputs) != 1:
        raise InvalidModel(Problem(name, "expected a constant's bytes or name, and one edge, but got none"))
    if inner.scalar(0, "<B") == _NAMED:
        return ConstantNode(constants(content.text(0)), outputs[0], name)
    raw = content.vector(0, "u1")
    return ConstantNode(b"" if raw is None else raw.tobytes(), outputs[0], name)


def _operator(name: str, table: Table, inputs: list[str], outputs: list[str]) -> OperatorDesc:
    word = table.text(0)
    short = short_name(OperatorType, word)
    if short not in BY_NAME:
        raise InvalidModel(
            Problem(name, f"expected an operator of DirectML, but got {word!r}", nearest(short, BY_NAME))
        )
    operator = BY_NAME[short]
    fields: dict[str, Any] = {}
    for side, edges, tensors in (
        (operator.inputs, inputs, table.tables(1)),
        (operator.outputs, outputs, table.tables(2)),
    ):
        left = iter(tensors)
        given = iter(edges)
        for operand in side:
            try:
                if operand.array:
                    fields[operand.name] = [_tensor(t) for t in left]
                    for _ in fields[operand.name]:
                        next(given)
                elif next(given):
                    fields[operand.name] = _tensor(next(left))
            except StopIteration:
                if operand.optional is None:
                    message = f"expected an edge and a tensor for {operand.name}, but there are too few"
                    raise InvalidModel(Problem(name, message)) from None
    fields |= _attributes(operator, table.tables(3))
    return OperatorDesc(operator.type, {n: v for n, v in fields.items() if v is not None})


def _tensor(table: Table) -> TensorDesc:
    sizes, strides = table.vector(1, "<u4"), table.vector(2, "<u4")
    return TensorDesc(
        parse(TensorDataType, table.text(0), "DataType"),
        [] if sizes is None else sizes.tolist(),
        None if strides is None else strides.tolist(),
        total_tensor_size_in_bytes=table.scalar(3, "<Q") or None,
    )


def _attributes(operator: Operator, tables: list[Table]) -> dict[str, Any]:
    """The fields that are no tensors, by name."""
    found = {t.text(0): _value(t, 1) for t in tables}
    for a in operator.attributes:
        if isinstance(found.get(a.name), bytes):  # a union, of the type that another field says
            declared = next((v for n, v in found.items() if n.endswith("DataType")), None)
            dtype = NUMPY.get(parse(TensorDataType, declared, f"{operator.name}: the type of {a.name}"))
            if dtype is None:
                raise InvalidModel(Problem(f"{operator.name}: {a.name}", "expected a type that has numbers"))
            found[a.name] = np.frombuffer(found[a.name].ljust(8, b"\0"), dtype, 1)[0].item()
    counts = {a.count for a in operator.attributes} | {s.count for s in operator.tensors}
    return {n: v for n, v in found.items() if n not in counts}


def _value(table: Table, field: int) -> Any:
    """The member of a union: its kind is a field, and it is the next one."""
    kind, at = table.scalar(field, "<B"), table.followed(field + 1)
    inner = table.table(field + 1) if kind in (_ACTIVATION, _ACTIVATIONS, *_ARRAYS, _UNION) else None
    if at is None:
        return None
    if kind in _SCALARS:
        return table.number(at, _SCALARS[kind])
    if kind in _ARRAYS and inner is not None:
        numbers = inner.vector(0, _ARRAYS[kind])
        return [] if numbers is None else numbers.tolist()
    if kind == _ACTIVATION and inner is not None:
        return _activation(inner)
    if kind == _ACTIVATIONS and inner is not None:
        return [_activation(t) for t in inner.tables(0)]
    if kind == _SCALE_BIAS:
        return {"Scale": table.number(at, "<f"), "Bias": table.number(at + 4, "<f")}
    if kind == _SIZE:
        return {"Width": table.number(at, "<I"), "Height": table.number(at + 4, "<I")}
    if kind == _UNION and inner is not None:
        return _union(inner)
    return None


def _union(table: Table) -> Any:
    kind, at = table.scalar(0, "<B"), table.followed(1)
    if kind == _BYTES:
        inner = table.table(1)
        raw = inner.vector(0, "u1") if inner is not None else None
        return b"" if raw is None else raw.tobytes()
    return table.number(at, _OF_UNION[kind]) if at is not None and kind in _OF_UNION else None


def _activation(table: Table) -> dict[str, Any]:
    short = short_name(OperatorType, table.text(0))
    operator = BY_NAME.get(short)
    fields = _attributes(operator, table.tables(1)) if operator else {}
    return {"Type": short, "Desc": {n: v for n, v in fields.items() if v is not None}}
