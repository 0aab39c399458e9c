"""A DirectML graph that runs again and again, on other memory of the same sizes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from math import prod

import numpy as np

from anydml.codegen.compiling import compiling
from anydml.codegen.descriptor import ADDRESSES, DescriptorTemplate, template_of
from anydml.codegen.jit import driver
from anydml.codegen.kernel import streams
from anydml.codegen.python_objects import DATA
from anydml.ir.graph import DirectMLGraph
from anydml.ops.dtypes import NUMPY
from anydml.runtime.addresses import address
from anydml.runtime.launch import Array, threads_for
from anydml.runtime.plan import KernelStep, far_apart, plan
from anydml.runtime.reference import run_reference

Empty = Callable[[tuple[int, ...], np.dtype], Array]


class PreparedGraph:
    """What does not depend on where arrays lie is made once: kernels, and descriptors without addresses."""

    def __init__(self, graph: DirectMLGraph, threads: int) -> None:
        self._graph, self._threads = graph, threads
        self._made = [(v.tensor.static_sizes, NUMPY[v.data_type]) for v in graph.outputs]
        self._empty = any(0 in v.tensor.static_sizes for v in (*graph.inputs, *graph.outputs))
        self._makes_nothing = all(0 in v.tensor.static_sizes for v in graph.outputs)
        self.by_kernels = True
        """Whether it can run: nothing but kernels of ours is needed for it."""
        if self._empty:
            return
        self._plan = plan(graph)
        self._driver = driver()
        threads_for(threads)
        self._steps = [(step, self._template(step)) for step in self._plan.kernels]
        self.by_kernels = len(self._steps) == len(self._plan.steps)
        self._single = self._alone()
        compiling.rest()

    def _template(self, step: KernelStep) -> DescriptorTemplate | None:
        """A step's descriptor without its addresses; None where more depends on where arrays lie."""
        if streams(step.group, prod(step.sizes)):
            return None
        return template_of(step.descriptor(far_apart(step.values), self._threads), len(step.values))

    def _alone(self) -> tuple[array[int], list[tuple[int, int]]] | None:
        """The usual case, one kernel over the arrays: its descriptor, and where each array's address goes."""
        arrays = [*self._graph.inputs, *self._graph.outputs]
        if len(self._steps) != 1 or not set(self._steps[0][0].values) <= set(arrays):
            return None
        step, template = self._steps[0]
        if template is None:
            return None
        places = [(ADDRESSES + k, arrays.index(value)) for k, value in enumerate(step.values)]
        return template.at([0] * len(places)), places

    def __call__(self, inputs: list[Array], empty: Empty = np.empty) -> list[Array]:
        """The outputs, for packed inputs of the graph's sizes and types. Safe from several threads.

        `empty` makes an array of given sizes and type, whose contents do not matter.
        """
        results = [empty(sizes, dtype) for sizes, dtype in self._made]
        if self._makes_nothing:
            return results
        if self._empty:  # next to nothing for a kernel to do
            run_reference(self._graph, inputs, results)
        elif self._single is not None:
            template, places = self._single
            arrays = inputs + results
            descriptor = template[:]
            for at, k in places:
                descriptor[at] = id(arrays[k]) + DATA
            self._driver.run_arrays(descriptor.buffer_info()[0], len(places))
        else:
            self._each(inputs, results)
        return results

    def bind(self, inputs: list[Array], outputs: list[Array]) -> Callable[[], bool] | None:
        """A run on these arrays, which are packed; None where there is more than one kernel to run.

        An output may be of other sizes and type than the graph's, of as many elements and bytes.
        """
        if self._empty or self._single is None:
            return None
        template, places = self._single
        seen = [y.view(t).reshape(n) for (n, t), y in zip(self._made, outputs, strict=True)]
        arrays = inputs + seen
        descriptor = template[:]
        for at, k in places:
            descriptor[at] = address(arrays[k])
        start, run = descriptor.buffer_info()[0], self._driver.run

        def again(kept: object = (arrays, descriptor)) -> bool:
            run(start)
            return True

        return again

    def _each(self, inputs: list[Array], results: list[Array]) -> None:
        at = {v: address(x) for v, x in zip(self._graph.inputs, inputs, strict=True)}
        at |= {v: address(y) for v, y in zip(self._graph.outputs, results, strict=True)}
        scratch = np.empty(self._plan.scratch, np.uint8)
        start = address(scratch)
        at |= {v: start + offset for v, offset in self._plan.offsets.items()}
        for step, template in self._steps:
            if template is None:
                descriptor = step.descriptor(at, self._threads)
            else:
                descriptor = template.at([at[v] for v in step.values])
            self._driver.run(descriptor.buffer_info()[0])
