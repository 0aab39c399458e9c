"""An operator of whole tensors as a step of a plan: it sees its tensors in memory, and writes there."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from anydml.dataclass import dataclass
from anydml.errors import require
from anydml.ir.graph import DirectMLNode, TensorType, Value
from anydml.ops.call import Computation, Implementation, fields, takes_results
from anydml.ops.dtypes import INT4, NUMPY, UINT4
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.halves import halves
from anydml.runtime.known_launch import bound_launches
from anydml.runtime.launch import Array, NotAlone, apply_activation, kernels_of, watched

Implement = Callable[
    [Operator, Mapping[str, TensorDesc], Mapping[str, Any], "int | None"], Implementation | None
]
"""Gives the implementation for tensors of known sizes, where that is another one than the definition's."""


class TensorStep:
    def __init__(self, node: DirectMLNode) -> None:
        self.node = node
        self._computed: Computation | None = None
        self._may_be_launches = False

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
        self,
        memory: Mapping[Value, Array],
        implement: Implement | None,
        threads: int | None,
        by_launches: bool = True,
    ) -> Callable[[], None] | BoundLaunches:
        """What computes the step in memory (flat arrays of bytes, by value): a function, or launches, if
        there is nothing else to it and they may be."""
        node = self.node
        inputs: dict[str, Array] = {}
        packed: dict[str, tuple[Array, TensorType]] = {}
        for name, (value, type) in self._inputs().items():
            if type.data_type in (INT4, UINT4):
                packed[name] = memory[value], type
            else:
                inputs[name] = view(memory[value], type)
        outputs = self._outputs()
        halves = {n: v for n, v in outputs.items() if v.data_type in (INT4, UINT4)}
        targets = {n: view(memory[v], v.tensor) for n, v in outputs.items() if n not in halves}
        direct = {
            n: y
            for n, y in targets.items()
            if takes_results(y, [memory[v] for v in (*node.reads, *node.writes) if v is not outputs[n]])
        }
        computed = self._computation(implement, threads)
        if by_launches and self._may_be_launches and not packed and direct.keys() == outputs.keys():
            launched = _as_launches(computed, inputs, direct)
            if launched is not None:
                return launched
            self._may_be_launches = False

        def run() -> None:
            given = inputs | {name: unpacked(*where) for name, where in packed.items()}
            for name, made in computed(given, direct).items():
                if name in halves:
                    pack(made, memory[halves[name]], halves[name].tensor)
                elif made is not targets[name]:
                    np.copyto(targets[name], made)

        return run

    def _inputs(self) -> dict[str, tuple[Value, TensorType]]:
        """By the names of tensors: values, and how they are read."""
        named_inputs = enumerate(named(self.operator, "input", self.node.inputs))
        return {n: (v, self.node.views.get(k) or v.tensor) for k, (n, v) in named_inputs if v is not None}

    def _outputs(self) -> dict[str, Value]:
        return {n: v for n, v in named(self.operator, "output", self.node.outputs) if v is not None}

    def _computation(self, implement: Implement | None, threads: int | None) -> Computation:
        """The operator on tensors of these sizes, made once: who compiles a step binds it in one way."""
        if self._computed is None:
            descs = {n: TensorDesc(v.data_type, v.tensor.static_sizes) for n, v in self._outputs().items()}
            seen = {n: TensorDesc(t.data_type, t.static_sizes) for n, (_, t) in self._inputs().items()}
            by = implement(self.operator, seen | descs, self.node.attributes, threads) if implement else None
            self._may_be_launches = by is not None
            self._computed = Computation(
                self.operator, descs, self.node.attributes, by, apply_activation, halves(threads)
            )
        return self._computed

    def computed_by(self, implement: Implement | None, threads: int | None, launches: bool) -> str:
        """Whose code computes it, in words; `launches`: whether it came to launches of kernels."""
        by = self._computation(implement, threads).by
        if getattr(by or self.operator.compute, "holds_session", False):
            return "onnxruntime"
        if by and not launches:
            return "NumPy, at these sizes and strides"
        return "kernels of its own" if by else "NumPy"

    def code(self, implement: Implement | None, threads: int | None) -> list[str]:
        """Its kernels' code for this machine, in LLVM's intermediate language: those that run it on zeros."""
        memory = {v: np.zeros(reach(v), np.uint8) for v in self.values}
        run = self.bind(memory, implement, threads, by_launches=False)
        return [] if isinstance(run, BoundLaunches) else kernels_of(run)

    def describe(self, names: Sequence[str]) -> list[str]:
        """What it does, for `explain`."""
        reads = len(list(self.node.reads))
        lines = [f"{self.operator.name}: {self.operator.text}, {self.bytes_moved:,} bytes moved"]
        for k, (name, value) in enumerate(zip(names, self.values, strict=True)):
            verb = "reads " if k < reads else "writes"
            lines.append(f"  {verb} {name}: {value.data_type.label}, sizes {list(value.tensor.static_sizes)}")
        return lines


@dataclass(frozen=True)
class BoundLaunches:
    """Launch descriptors, and what they lead to."""

    descriptors: Sequence[array[int]]
    kept: object


def _as_launches(
    computed: Computation, inputs: Mapping[str, Array], outputs: dict[str, Array]
) -> BoundLaunches | None:
    """What computes outputs in their memory, if that is launches of kernels and nothing else."""
    try:
        made, launches = watched(lambda: computed(inputs, outputs), runs=False)
    except NotAlone:
        return None
    if any(made[name] is not y for name, y in outputs.items()):
        return None
    descriptors = bound_launches(launches, [*inputs.values(), *outputs.values()])
    return None if descriptors is None else BoundLaunches(descriptors, (computed, launches))


def named(operator: Operator, kind: str, values: Sequence[Value | None]) -> list[tuple[str, Value | None]]:
    """A node's inputs or outputs with the names of their tensors."""
    operands = operator.inputs if kind == "input" else operator.outputs
    return list(zip(fields(operands, len(values)), values, strict=True))


def reach(value: Value) -> int:
    """Bytes from the start of a value to the end of its last element, or of what is read of it beyond."""
    own = TensorDesc(value.data_type, value.tensor.static_sizes, value.tensor.element_strides).reach
    return max(own, value.tensor.extent)


def unpacked(flat: Array, type: TensorType) -> Array:
    """A tensor of 4-bit elements, of which the first in a byte is its lower half, one in a byte."""
    flat = _bytes_of(flat, type)
    halves = np.empty(2 * flat.size, np.uint8)
    halves[::2], halves[1::2] = flat & 15, flat >> 4
    if type.data_type is INT4:
        halves = (((halves ^ 8).astype(np.int16)) - 8).astype(np.int8)
    return as_strided(halves, type.static_sizes, type.element_strides)


def pack(content: Array, flat: Array, type: TensorType) -> None:
    """4-bit elements into their tensor's memory; what lies between them stays."""
    flat = _bytes_of(flat, type)
    halves = np.empty(2 * flat.size, np.uint8)
    halves[::2], halves[1::2] = flat & 15, flat >> 4
    as_strided(halves, type.static_sizes, type.element_strides)[...] = content.view(np.uint8) & 15
    flat[...] = halves[::2] | halves[1::2] << 4


def _bytes_of(flat: Array, type: TensorType) -> Array:
    """A tensor's own bytes: memory behind them is others'."""
    needed = TensorDesc(type.data_type, type.static_sizes, type.element_strides).reach
    require(flat.dtype == np.uint8, flat.size >= needed)
    return flat[:needed]


def view(flat: Array, type: TensorType) -> Array:
    """A tensor seen in the bytes from its start on."""
    dtype = NUMPY[type.data_type]
    strides = [s * dtype.itemsize for s in type.element_strides]
    return as_strided(_bytes_of(flat, type).view(dtype), type.static_sizes, strides)
