"""A DirectML graph planned for bound buffers: every layout is known, only addresses are not."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from anydml.codegen.jit import driver
from anydml.codegen.kernel import Group, Operand, group, make_job
from anydml.ir.graph import Graph, Node, TensorType, Value
from anydml.runtime.launch import threads_for
from anydml.runtime.threads import pool
from anydml.spec.dtypes import SIZE
from anydml.spec.enums import TensorDataType
from anydml.spec.schema import Operator


@dataclass(frozen=True)
class KernelStep:
    """One kernel over bound tensors: names, sizes, and strides in bytes, inputs before outputs."""

    group: Group
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    def job(self, addresses: Mapping[str, int], threads: int | None) -> array[int]:
        """The work on tensors that begin at these addresses."""
        operands = [Operand(addresses[n], s) for n, s in zip(self.names, self.strides, strict=True)]
        return make_job(self.group, self.sizes, operands, pool=pool.address, threads=threads_for(threads))


def plan(graph: Graph) -> tuple[KernelStep, ...]:
    """The steps of a checked DirectML graph. Compiles the kernels, so that dispatch need not."""
    steps = tuple(_step(node) for node in graph.nodes if isinstance(node, Node))
    driver()
    for step in steps:
        step.job(dict.fromkeys(step.names, 0), 1)
    return steps


def _step(node: Node) -> KernelStep:
    assert isinstance(node.op, Operator)
    inputs, outputs = [tensor(v) for v in node.inputs], [tensor(v) for v in node.outputs]
    types = tuple(TensorDataType[t.dtype.upper()] for _, t in inputs)
    (result,) = outputs
    expression = node.op.expression(types, TensorDataType[result[1].dtype.upper()], node.attributes)
    sizes = result[1].known_sizes
    assert sizes is not None
    return KernelStep(
        group(types, (expression,)),
        tuple(name for name, _ in (*inputs, *outputs)),
        sizes,
        tuple(_byte_strides(t) for _, t in (*inputs, *outputs)),
    )


def tensor(value: Value | None) -> tuple[str, TensorType]:
    assert value is not None
    assert isinstance(value.type, TensorType)
    return value.name, value.type


def _byte_strides(type: TensorType) -> tuple[int, ...]:
    assert type.strides is not None
    return tuple(s * SIZE[TensorDataType[type.dtype.upper()]] for s in type.strides)
