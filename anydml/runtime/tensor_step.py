"""An operator of whole tensors as a step of a plan: it sees its tensors in memory, and writes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from anydml.ir.graph import DirectMLNode, TensorType, Value
from anydml.ops.call import Call, Computation, fields, takes_results
from anydml.ops.dtypes import INT4, NUMPY, UINT4
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc, last_element
from anydml.runtime.launch import Array, apply_activation

Implement = Callable[
    [Operator, Mapping[str, TensorDesc], Mapping[str, Any], "int | None"], "Callable[[Call], Any] | None"
]
"""Gives the implementation for tensors of known sizes, where that is another one than the definition's."""


@dataclass(frozen=True)
class TensorStep:
    node: DirectMLNode

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.node.reads, *self.node.writes)

    @property
    def operator(self) -> Operator:
        assert isinstance(self.node.op, Operator)
        return self.node.op

    @property
    def bytes_moved(self) -> int:
        return sum(map(reach, self.values))

    def bind(
        self, memory: Mapping[Value, Array], implement: Implement | None, threads: int | None
    ) -> Callable[[], None]:
        """A function that computes the step in memory: flat arrays of bytes, by value."""
        node, operator = self.node, self.operator
        inputs: dict[str, Array] = {}
        packed: dict[str, tuple[Array, TensorType]] = {}
        for k, (name, value) in enumerate(named(operator, "input", node.inputs)):
            if value is not None:
                type = node.views.get(k) or value.tensor
                if type.data_type in (INT4, UINT4):
                    packed[name] = memory[value], type
                else:
                    inputs[name] = view(memory[value], type)
        outputs = {name: v for name, v in named(operator, "output", node.outputs) if v is not None}
        descs = {n: TensorDesc(v.data_type, v.tensor.static_sizes) for n, v in outputs.items()}
        seen = {
            n: TensorDesc(t.data_type, t.static_sizes)
            for k, (n, v) in enumerate(named(operator, "input", node.inputs))
            if v is not None
            for t in [node.views.get(k) or v.tensor]
        }
        by = implement(operator, seen | descs, node.attributes, threads) if implement else None
        computed = Computation(operator, descs, node.attributes, by, apply_activation)
        halves = {n: v for n, v in outputs.items() if v.data_type in (INT4, UINT4)}
        targets = {n: view(memory[v], v.tensor) for n, v in outputs.items() if n not in halves}
        direct = {
            n: y
            for n, y in targets.items()
            if takes_results(y, [memory[v] for v in (*node.reads, *node.writes) if v is not outputs[n]])
        }

        def run() -> None:
            given = inputs | {name: unpacked(*where) for name, where in packed.items()}
            for name, made in computed(given, direct).items():
                if name in halves:
                    pack(made, memory[halves[name]], halves[name].tensor)
                elif made is not targets[name]:
                    np.copyto(targets[name], made)

        return run

    def describe(self, names: Sequence[str]) -> list[str]:
        """What it does, for `explain`."""
        reads = len(list(self.node.reads))
        lines = [f"{self.operator.name}: {self.operator.text}, {self.bytes_moved:,} bytes moved"]
        for k, (name, value) in enumerate(zip(names, self.values, strict=True)):
            verb = "reads " if k < reads else "writes"
            lines.append(f"  {verb} {name}: {value.data_type.label}, sizes {list(value.tensor.static_sizes)}")
        return lines


def named(operator: Operator, kind: str, values: Sequence[Value | None]) -> list[tuple[str, Value | None]]:
    """A node's inputs or outputs with the names of their tensors."""
    operands = operator.inputs if kind == "input" else operator.outputs
    return list(zip(fields(operands, len(values)), values, strict=True))


def reach(value: Value) -> int:
    """Bytes from the start of a value to the end of its last element."""
    return TensorDesc(value.data_type, value.tensor.static_sizes, value.tensor.element_strides).reach


def unpacked(flat: Array, type: TensorType) -> Array:
    """A tensor of 4-bit elements, of which the first in a byte is its lower half, one in a byte."""
    halves = np.empty(2 * flat.size, np.uint8)
    halves[::2], halves[1::2] = flat & 15, flat >> 4
    if type.data_type is INT4:
        halves = (((halves ^ 8).astype(np.int16)) - 8).astype(np.int8)
    return as_strided(halves, type.static_sizes, type.element_strides)


def pack(content: Array, flat: Array, type: TensorType) -> None:
    """4-bit elements into their tensor's memory; what lies between them stays."""
    halves = np.empty(2 * flat.size, np.uint8)
    halves[::2], halves[1::2] = flat & 15, flat >> 4
    as_strided(halves, type.static_sizes, type.element_strides)[...] = content.view(np.uint8) & 15
    flat[...] = halves[::2] | halves[1::2] << 4


def view(flat: Array, type: TensorType) -> Array:
    """A tensor seen in the bytes from its start on."""
    dtype = NUMPY[type.data_type]
    strides = [s * dtype.itemsize for s in type.element_strides]
    needed = (last_element(type.static_sizes, type.element_strides) + 1) * dtype.itemsize
    assert flat.dtype == np.uint8
    assert flat.size >= needed, (flat.size, needed)
    return as_strided(flat[:needed].view(dtype), type.static_sizes, strides)
