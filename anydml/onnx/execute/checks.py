"""What is looked at before a graph is planned: whether its tensors fit, and its nodes are ONNX's."""

from __future__ import annotations

from collections.abc import Mapping

from anydml.errors import InvalidModel, OutOfMemory, Problem, Unsupported, by_a_handler
from anydml.ir.graph import Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.names import Names
from anydml.onnx.providers.onnxruntime import may_have
from anydml.onnx.schema import is_custom, is_foreign, schema_of, unknown_operator
from anydml.onnx.serde.region_model import IR_VERSION, node_proto
from anydml.onnx.types import numpy_type
from anydml.runtime.memory import size_problem


def check_sizes(graph: Graph) -> None:
    """Refuse a plan that is known to need more memory than there is.

    Raises:
        OutOfMemory: names the node and its output.
    """
    for node in graph.nodes:
        for value in node.writes:
            known = fixed_type(value)
            if known is not None and known[0] != "string":
                dtype, sizes = known
                problem = size_problem(
                    f"output {value.name!r} of {node.label}", dtype, sizes, numpy_type(dtype).itemsize
                )
                if problem is not None:
                    raise OutOfMemory(problem)


def check_operators(graph: Graph, custom: bool) -> None:
    """Refuse a model with an operator that nobody runs, unless only a branch or body has it, which may not be
    taken. `custom`: libraries of custom operators are there.

    Raises:
        Unsupported: names the node and its operator.
    """
    asked: set[OnnxOp] = set()
    for node in graph.nodes:
        if isinstance(node, If) or node.op in asked:
            continue
        asked.add(op := node.op)
        may_run = custom if is_custom(op) else bool(op.domain) or not is_foreign(op) or may_have(op)
        if not may_run:
            raise unsupported(node)


def unsupported(node: Node, why: str = "", wrong: str = "") -> Unsupported:
    """What is told of a node that no provider runs: what is `wrong` where one has it, else what is known of
    its operator, or `why`."""
    said = f"no provider runs {node.op} of opset {node.op.version}"
    return Unsupported(Problem(node.label, said, wrong or unknown_operator(node.op) or why))


def check_node(node: Node, opsets: Mapping[str, int]) -> None:
    """ONNX's own rules for a node that no compiler of a library has looked at.

    Raises:
        InvalidModel: a wrong number of inputs or outputs, an unknown attribute or one of a wrong type.
    """
    if schema_of(node.op) is None or node.bodies:  # whose surroundings it needs
        return
    from onnx import checker  # for what no library has looked at

    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = IR_VERSION, dict(opsets)
    try:
        checker.check_node(node_proto(node, Names()), context)
    except Exception as error:  # ValidationError, or what damaged bytes make of it
        if by_a_handler(error):
            raise
        raise InvalidModel(Problem(node.label, str(error).splitlines()[0])) from error


def fixed_type(value: Value) -> tuple[str, tuple[int, ...]] | None:
    """Type and sizes, where all are known."""
    sizes = value.known_sizes
    return None if sizes is None or not isinstance(value.type, TensorType) else (value.type.dtype, sizes)
