"""Kernels over NumPy arrays: what an eager call and a step of a plan have in common."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.compiling import uninterrupted
from anydml.codegen.descriptor import DescriptorTemplate, body_of, template_of
from anydml.codegen.group import KernelSpec
from anydml.codegen.jit import body_at, driver
from anydml.codegen.kernel import MemoryOperand, group, make_descriptor, packed_descriptor, streams
from anydml.codegen.python_objects import DATA
from anydml.dataclass import dataclass
from anydml.errors import require
from anydml.ops.attributes import Activation
from anydml.ops.dtypes import FROM_NUMPY
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import read
from anydml.runtime.addresses import address
from anydml.runtime.arena import Arena
from anydml.runtime.memory import limit
from anydml.runtime.threads import default_threads, pool

Array = NDArray[Any]
T = TypeVar("T")


_fresh = Arena(least=1 << 24, most=min(1 << 28, limit() // 16))
"""Of outputs so large that the system gives each anew, and takes it back when nobody has it any more."""


_scratch = Arena(most=min(1 << 27, limit() // 16))
"""Of what lies between launches."""


def launch(kernel: KernelSpec, arrays: Sequence[Array], threads: int | None = None) -> None:
    """Compute `kernel` over arrays of one shape: its inputs, then its outputs.

    The arrays must have the kernel's types in native byte order; an output must be writable, must not
    overlap itself, and may share memory with an input only element upon element.
    """
    shape = arrays[-1].shape
    size = arrays[-1].size
    if size == 0:
        return
    count = threads_for(threads)
    for a in arrays:
        if not a.flags.c_contiguous:
            break
    else:
        if kernel.axes is None and not streams(kernel, size):
            fields = [id(a) + DATA for a in arrays]
            descriptor = packed_descriptor(kernel, size, fields, pool=pool.address, threads=count)
            driver().run_arrays(descriptor.buffer_info()[0], len(fields))
            _ran(descriptor)
            return
    operands = [MemoryOperand(address(a), a.strides) for a in arrays]
    descriptor = make_descriptor(kernel, shape, operands, pool=pool.address, threads=count)
    driver().run(descriptor.buffer_info()[0])
    _ran(descriptor)


@dataclass(frozen=True)
class Watched:
    """A launch that somebody watched."""

    template: DescriptorTemplate | None
    arrays: Sequence[Array]
    tables: Sequence[Array]
    """Those among the arrays that the launch has for itself."""
    between: Sequence[Array] = ()
    """What else launches of its operator may read and write: see `between`."""


class NotAlone(Exception):
    """Somebody asked what launches would be, and they are not all that computes an operator."""


class _Watching(threading.local):
    def __init__(self) -> None:
        self.seen: list[Watched] | None = None
        self.runs = True
        self.between: list[Array] = []
        self.bodies: dict[int, None] | None = None


_watching = _Watching()


@uninterrupted  # what a signal's handler raises might leave this thread watched
def watched(compute: Callable[[], T], runs: bool = True) -> tuple[T, list[Watched]]:
    """What `compute` gives, and those of its launches that are all that computes operators. `runs`: whether
    they are to run; if not, others raise `NotAlone`."""
    before = _watching.seen, _watching.runs, _watching.between
    _watching.seen, _watching.runs, _watching.between = [], runs, []
    try:
        return compute(), _watching.seen
    finally:
        _watching.seen, _watching.runs, _watching.between = before


@uninterrupted
def kernels_of(compute: Callable[[], object]) -> list[str]:
    """The code of the kernels that `compute` launches, in LLVM's intermediate language."""
    _watching.bodies = {}
    try:
        compute()
        return [body_at(address) for address in _watching.bodies]
    finally:
        _watching.bodies = None


def _ran(descriptor: array[int]) -> None:
    if _watching.bodies is not None:
        _watching.bodies[body_of(descriptor)] = None


def between(x: Array) -> Array:
    """Memory of one call of an operator, of which all that is ever read is zeros that are there, or written
    before by launches that are all there is to the operator."""
    if _watching.seen is not None:
        _watching.between.append(x)
    return x


def scratch(shape: Sequence[int], dtype: np.dtype) -> Array:
    """Memory as `between` has it, of any contents."""
    return between(_scratch.empty(shape, dtype))


def not_alone() -> None:
    """An operator is more than the launches that computed it so far."""
    if not _watching.runs:
        raise NotAlone
    if _watching.seen is not None:
        _watching.seen.append(Watched(None, (), ()))


def count_launches() -> int | None:
    """How many launches were watched so far; None where nobody watches."""
    return None if _watching.seen is None else len(_watching.seen)


def launches_run() -> bool:
    """Whether launches run, and are not only watched."""
    return _watching.runs


class RepeatedLaunch:
    """A kernel over arrays of one shape, again and again: of known strides, only addresses are written.

    Outputs are apart from the inputs.
    """

    tables: Sequence[Array] = ()
    """Arrays that it has for itself."""

    def __init__(self, kernel: KernelSpec, threads: int | None) -> None:
        self._kernel, self._threads = kernel, threads
        self._known: dict[Any, DescriptorTemplate] = {}

    def alone(self, arrays: Sequence[Array], shape: tuple[int, ...] | None = None) -> None:
        """As a call, where such calls are all there is to an operator, whatever the arrays hold."""
        seen = _watching.seen
        template = self._run(arrays, shape) if _watching.runs else self._known_template(arrays, shape)
        if seen is not None:
            seen.append(Watched(template, arrays, self.tables, _watching.between))

    def __call__(
        self, arrays: Sequence[Array], shape: tuple[int, ...] | None = None
    ) -> DescriptorTemplate | None:
        """As `launch`; arrays of fewer elements than `shape` (the output's, by default) are repeated.

        Returns:
            The descriptor without addresses; None where more of it depends on them.
        """
        not_alone()
        return self._run(arrays, shape)

    def _run(self, arrays: Sequence[Array], shape: tuple[int, ...] | None) -> DescriptorTemplate | None:
        template = self._known_template(arrays, shape)
        if template is None:
            self._once(arrays, shape)
            return None
        descriptor = template.at([id(a) + DATA for a in arrays])
        driver().run_arrays(descriptor.buffer_info()[0], len(arrays))
        _ran(descriptor)
        return template

    def _known_template(
        self, arrays: Sequence[Array], shape: tuple[int, ...] | None
    ) -> DescriptorTemplate | None:
        count = threads_for(self._threads)
        key = (count, shape, *[a.shape for a in arrays], *[a.strides for a in arrays])
        template = self._known.get(key)
        if template is None:
            template = self._template(arrays, arrays[-1].shape if shape is None else shape, count)
            if template is None:
                return None
            if len(self._known) >= 16:
                self._known.clear()
            self._known[key] = template
        return template

    def _template(
        self, arrays: Sequence[Array], shape: tuple[int, ...], count: int
    ) -> DescriptorTemplate | None:
        """None where what the descriptor says depends on addresses."""
        kernel = self._kernel
        require(tuple(a.itemsize for a in arrays) == kernel.widths)
        given = [np.broadcast_to(a, shape) for a in arrays]
        if streams(kernel, given[-1].size) or any(s < 0 for a in given for s in a.strides):
            return None
        operands = [MemoryOperand(address(a), a.strides) for a in given]
        descriptor = make_descriptor(kernel, shape, operands, pool=pool.address, threads=count)
        return template_of(descriptor, len(arrays))

    def _once(self, arrays: Sequence[Array], shape: tuple[int, ...] | None) -> None:
        """On arrays for which there is no template."""
        whole = arrays[-1].shape if shape is None else shape
        launch(self._kernel, [np.broadcast_to(a, whole) for a in arrays], self._threads)


MIN_TURNED = 1 << 15
"""Elements from which a kernel is faster than NumPy, which copies those of a turned array one by one."""


def packed(x: Array, threads: int | None = None) -> Array:
    """The array itself where it is C-contiguous, or else a copy that is."""
    if x.flags.c_contiguous:
        return x
    if _watching.seen is not None and x.flags.aligned:
        result = scratch(x.shape, x.dtype)
        _copy(x.dtype, threads).alone([x, result])
        return result
    if x.size < MIN_TURNED or x.strides[-1] == x.itemsize or not x.flags.aligned:
        return np.ascontiguousarray(x)
    result = np.empty(x.shape, x.dtype)
    _copy(x.dtype, threads)([x, result])
    return result


def copying(type: TensorDataType, threads: int | None) -> RepeatedLaunch:
    """What copies an array to another one."""
    return RepeatedLaunch(group((type,), (read(0, type),)), threads)


@cache
def _copy(dtype: np.dtype, threads: int | None) -> RepeatedLaunch:
    return copying(FROM_NUMPY[dtype], threads)


def apply_activation(activation: Activation, x: Array) -> Array:
    """An activation of every element, in the array's memory if that is nobody else's."""
    not_alone()
    dtype = FROM_NUMPY[x.dtype]
    meaning = activation.operator.expression((dtype,), dtype, activation.attributes, max(x.ndim, 1))
    own = x.flags.c_contiguous and x.flags.writeable and x.base is None
    kernel = group((dtype,), (meaning,))
    result = x if own and kernel.axes is None else np.empty(x.shape, x.dtype)
    launch(kernel, [x, result])
    return result


def threads_for(threads: int | None) -> int:
    """How many threads a launch descriptor may use; starts the pool's workers when that is more than one."""
    count = default_threads() if threads is None else threads
    if pool.size < count:
        pool.start(count)
    return count


def _order_of(strides: Sequence[int]) -> list[int]:
    """Axes from the outermost in; one that is repeated (of stride 0) stays before what is behind it."""
    inner: list[int] = []
    for d in reversed(range(len(strides))):
        at = len(inner)
        for k in reversed(range(len(inner))):
            here, other = abs(strides[d]), abs(strides[inner[k]])
            if here and other:
                if here >= other:
                    break
                at = k
        inner.insert(at, d)
    return inner[::-1]


def empty_like_inputs(shape: tuple[int, ...], dtype: np.dtype, inputs: Sequence[Array]) -> Array:
    """A new array whose axes lie in memory in the order of the first input of that shape (as ufuncs do)."""
    if len(shape) > 1:
        for a in inputs:
            if a.shape == shape:
                if a.flags.c_contiguous:
                    break
                order = _order_of(a.strides)
                if order == [*range(len(shape))]:
                    break
                back = np.argsort(order)
                return _fresh.empty([shape[d] for d in order], dtype).transpose(back)
    return _fresh.empty(shape, dtype)
