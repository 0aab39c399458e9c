"""Files of others as they are, for a provider to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from anydml.ir.graph import Constant, ExternalData
from anydml.ir.names import Names
from anydml.onnx.protos import ModelProto, NodeProto, TensorProto
from anydml.onnx.providers.provider import Region
from anydml.onnx.serde.node_writer import part_names
from anydml.onnx.subgraphs import all_names, all_nodes


def whole_model(
    proto: ModelProto,
    inputs: Sequence[str],
    folder: Path | None,
    without: Sequence[str],
    declared: bool = True,
) -> Region:
    """A file for a provider.

    Args:
        inputs: by name, in the order in which they will be given.
        folder: where external data lies.
        without: onnxruntime's optimisations that would go wrong with it.
        declared: with what the file says of types of results.
    """
    weights = tuple(
        (t.name, Constant(source=ExternalData(folder, "", 0)))
        for t in proto.graph.initializer
        if folder is not None and t.data_location == TensorProto.EXTERNAL
    )
    trimmed = _trim(proto)
    if not declared:
        proto, trimmed = trimmed, ModelProto()
        trimmed.CopyFrom(proto)
        del trimmed.graph.value_info[:]
        for output in trimmed.graph.output:
            output.ClearField("type")
    return Region(
        trimmed.SerializeToString(),
        tuple(inputs),
        tuple(o.name for o in proto.graph.output),
        weights,
        tuple(without),
    )


def _trim(proto: ModelProto) -> ModelProto:
    """The model without that on which onnxruntime can end the process, and which does not mean anything.

    Inputs that are left out at the end, and results of Split that have no name.
    """
    if not any(_ends_in_nothing(n) or _nameless(n) for n in _all_nodes(proto)):
        return proto
    trimmed = ModelProto()
    trimmed.CopyFrom(proto)
    names = Names(all_names(trimmed.graph))
    for node in _all_nodes(trimmed):
        while _ends_in_nothing(node):
            del node.input[-1]
        if _nameless(node):
            named = part_names(node.output, names)
            del node.output[:]
            node.output.extend(named)
    return trimmed


def _ends_in_nothing(node: NodeProto) -> bool:
    """Whether its last input is left out. The first two of a Loop are places that have to be there."""
    least = 2 if node.op_type == "Loop" else 0
    return len(node.input) > least and not node.input[-1]


def _nameless(node: NodeProto) -> bool:
    return node.op_type == "Split" and "" in node.output


def _all_nodes(proto: ModelProto) -> Iterator[NodeProto]:
    yield from all_nodes(proto.graph.node)
    for function in proto.functions:
        yield from all_nodes(function.node)
