"""Types of what a node gives by others' inference: ONNX's own, and that of the library that runs it.

Mul(float[n,64], float[64])            ->   float[n,64]      by ONNX
com.microsoft.FastGelu(float[n,64])    ->   float[n,64]      by onnxruntime
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from anydml.errors import by_a_handler
from anydml.ir.dims import Dim, as_dim, may_be_zero
from anydml.ir.graph import Node
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import Symbols
from anydml.onnx.protos import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from anydml.onnx.providers.provider import Provider
from anydml.onnx.serde.region_model import IR_VERSION
from anydml.onnx.types import from_proto, to_proto, without_sizes

if TYPE_CHECKING:
    from onnx.defs import OpSchema

Types = dict[str, TypeProto]
"""By names of outputs; of those that are not known there is none."""


def by_onnx(
    schema: OpSchema,
    node: NodeProto,
    inputs: Mapping[str, TypeProto],
    contents: Mapping[str, TensorProto],
    imports: Sequence[OperatorSetIdProto],
) -> tuple[Types, bool]:
    """The types of an operator of ONNX's, and whether its sizes were refused; `contents`: of inputs that are
    known."""
    from onnx.shape_inference import infer_node_outputs

    try:
        given = dict(inputs), dict(contents)
        found = infer_node_outputs(schema, node, *given, opset_imports=list(imports))
    except Exception as error:  # the node will fail when it runs, and then say how; or it is only sizes that
        if by_a_handler(error):
            raise
        bare = _element_types(schema, node, inputs, imports)  # inference refuses, and libraries take
        return bare, bool(bare)
    return found, False


def _element_types(
    schema: OpSchema,
    node: NodeProto,
    inputs: Mapping[str, TypeProto],
    imports: Sequence[OperatorSetIdProto],
) -> Types:
    """The outputs' types as far as they follow without sizes: their element types."""
    types = {name: from_proto(proto) for name, proto in inputs.items()}
    bare = {name: to_proto(without_sizes(type)) for name, type in types.items() if type is not None}
    from onnx.shape_inference import infer_node_outputs

    try:
        found = infer_node_outputs(schema, node, bare, {}, opset_imports=list(imports))
    except Exception as error:
        if by_a_handler(error):
            raise
        return {}
    return dict(found)


def by_library(
    node: NodeProto,
    inputs: Mapping[str, TypeProto],
    contents: Mapping[str, TensorProto],
    declared: Mapping[str, TypeProto],
    imports: Sequence[OperatorSetIdProto],
    provider: Provider,
    custom: bool,
) -> Types:
    """The types of an operator that ONNX does not have: the library is shown a model of this node alone.

    Args:
        declared: what its file says of the outputs, without which some models are refused.
        custom: whether it is of a library that people register.
    """
    graph = GraphProto(name="one", node=[node])
    graph.input.extend(ValueInfoProto(name=n, type=t) for n, t in inputs.items() if n not in contents)
    for name, content in contents.items():
        graph.initializer.add().CopyFrom(content)
        graph.initializer[-1].name = name
    graph.output.extend(ValueInfoProto(name=name, type=declared.get(name)) for name in node.output if name)
    model = ModelProto(ir_version=IR_VERSION, graph=graph, opset_import=imports)
    return provider.result_types(model.SerializeToString(), custom)


_KEEP_ELEMENTS = frozenset(
    """MatMul Gemm Gather GatherElements Concat Transpose Reshape Flatten Squeeze Unsqueeze
    Einsum GRU LSTM RNN ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceSumSquare ArgMax ArgMin Softmax LogSoftmax LayerNormalization BatchNormalization
    GlobalAveragePool GlobalMaxPool DepthToSpace CumSum Dropout""".split()
)
"""ONNX's operators that make something of anything, beside those that go element by element and broadcast."""


def has_elements(node: Node, inputs: Sequence[tuple[tuple[Dim, ...] | None, Symbols | None]]) -> bool:
    """Whether an operator surely gives elements for inputs that have some: also where sizes broadcast, or
    follow from what is not known. onnxruntime's own on integers join, calculate, or go over windows.

    Args:
        inputs: sizes, and integers as far as they are known, of those that are there.
    """
    if any(sizes is None or any(map(may_be_zero, sizes)) for sizes, _ in inputs):
        return False
    if node.op.domain:
        return node.op.domain == "com.microsoft" and node.op.name.startswith("QLinear")
    if node.op.name == "Expand":
        asked = inputs[1][1] if len(inputs) > 1 else None
        return asked is not None and not any(may_be_zero(as_dim(n)) for n in asked.reshape(-1).tolist())
    info = info_of(node.op)
    return node.op.name in _KEEP_ELEMENTS or (info is not None and bool(info.directml))
