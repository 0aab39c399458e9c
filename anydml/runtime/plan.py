"""A DirectML graph planned for bound buffers: kernels whose layouts are known and whose addresses are not."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from anydml.codegen.group import KernelSpec
from anydml.codegen.jit import driver, host
from anydml.codegen.kernel import MemoryOperand, group, make_descriptor, shape_of
from anydml.codegen.kernel_body import kernel_body
from anydml.dataclass import dataclass
from anydml.directml.fusion import Kernel, TensorWork, fuse, intermediates
from anydml.ir.graph import DirectMLGraph, Value
from anydml.ops.dtypes import SIZE
from anydml.runtime.collector import collector_paused
from anydml.runtime.launch import Array, threads_for
from anydml.runtime.tensor_step import TensorStep, reach
from anydml.runtime.threads import pool

ALIGNMENT = 64
"""Of intermediate values, in bytes: a cache line."""


@dataclass(frozen=True)
class KernelStep:
    """One kernel over tensors in memory: values, sizes, and strides in bytes, inputs before outputs."""

    kernel: Kernel
    group: KernelSpec
    values: tuple[Value, ...]
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    def descriptor(self, addresses: Mapping[Value, int], threads: int | None) -> array[int]:
        """The work on tensors that begin at these addresses."""
        operands = [MemoryOperand(addresses[v], s) for v, s in zip(self.values, self.strides, strict=True)]
        return make_descriptor(
            self.group, self.sizes, operands, pool=pool.address, threads=threads_for(threads)
        )

    def code(self) -> str:
        """The kernel's code for this machine, in LLVM's intermediate language."""
        apart = far_apart(self.values)
        operands = [MemoryOperand(apart[v], s) for v, s in zip(self.values, self.strides, strict=True)]
        return kernel_body(self.group, shape_of(self.group, self.sizes, operands), host())

    @property
    def bytes_moved(self) -> int:
        """Read and written at least: each operand's distinct elements, once."""
        reached = (prod(n for n, s in zip(self.sizes, st, strict=True) if s) for st in self.strides)
        return sum(count * width for count, width in zip(reached, self.group.widths, strict=True))


@dataclass(frozen=True)
class Plan:
    """Steps in order, and where intermediate values lie in one block of memory: their offsets.

    Values are known by identity: two may have one name.
    """

    steps: tuple[KernelStep | TensorStep, ...]
    offsets: Mapping[Value, int]
    scratch: int
    """Bytes of that block."""
    constants: Mapping[Value, Array]
    """Constants that are read from memory."""

    @property
    def kernels(self) -> list[KernelStep]:
        """The steps of a plan that has nothing but kernels."""
        return [step for step in self.steps if isinstance(step, KernelStep)]


@collector_paused()
def plan(graph: DirectMLGraph) -> Plan:
    """The plan of a checked DirectML graph. Compiles the kernels, so that dispatch need not."""
    kernels = fuse(graph)
    steps = tuple(TensorStep(k.node) if isinstance(k, TensorWork) else _step(k) for k in kernels)
    for step in steps:
        if isinstance(step, KernelStep):
            driver()
            step.descriptor(far_apart(step.values), 1)
    used = {v for step in steps for v in step.values}
    constants = {v: np.ascontiguousarray(c.content) for v, c in graph.constants.items() if v in used}
    return Plan(steps, *_arena(steps, list(intermediates(kernels, graph.outputs))), constants)


def far_apart(values: Sequence[Value]) -> dict[Value, int]:
    """Addresses that no memory has, for code that is made before there is any."""
    return {value: k << 48 for k, value in enumerate(dict.fromkeys(values))}


def _step(kernel: Kernel) -> KernelStep:
    operands = [(s.value, s.strides) for s in kernel.sources]
    for value, _ in kernel.outputs:
        strides = (0 if d in kernel.reduced else s for d, s in enumerate(value.tensor.element_strides))
        operands.append((value, tuple(strides)))
    types = tuple(s.value.data_type for s in kernel.sources)
    return KernelStep(
        kernel,
        group(types, tuple(e for _, e in kernel.outputs)),
        tuple(v for v, _ in operands),
        kernel.sizes,
        tuple(tuple(s * SIZE[v.data_type] for s in strides) for v, strides in operands),
    )


def _arena(steps: Sequence[KernelStep | TensorStep], values: Sequence[Value]) -> tuple[dict[Value, int], int]:
    """Offsets such that values which live at the same time lie apart: each at the first gap that holds it."""
    wanted, lives = set(values), dict[Value, tuple[int, int]]()
    for k, step in enumerate(steps):
        for value in wanted.intersection(step.values):
            lives[value] = lives.get(value, (k, k))[0], k
    sizes = {value: -(-reach(value) // ALIGNMENT) * ALIGNMENT for value in values}
    offsets: dict[Value, int] = {}
    taken: list[set[tuple[int, int]]] = [set() for _ in steps]  # at each step: from where to where
    for value in sorted(values, key=lambda value: -sizes[value]):
        first, last = lives[value]
        at = 0
        for begin, end in sorted(set().union(*taken[first : last + 1])):
            if at + sizes[value] <= begin:
                break
            at = max(at, end)
        offsets[value] = at
        for step_takes in taken[first : last + 1]:
            step_takes.add((at, at + sizes[value]))
    return offsets, max((offsets[v] + sizes[v] for v in offsets), default=0)
