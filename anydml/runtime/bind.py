"""Compiled work meets arrays: what may be bound is checked once, and then dispatched again and again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.compiling import compiling
from anydml.codegen.jit import assembly
from anydml.codegen.kernel import MIN_SPLIT_BYTES
from anydml.dataclass import dataclass
from anydml.errors import (
    InvalidInput,
    Problem,
    cannot_leave,
    counted,
    nearest,
    short_repr,
    translate_memory_error,
)
from anydml.ir.graph import DirectMLGraph, Value
from anydml.ops.dtypes import IN_BUFFERS, SIZE, UINT8, is_masked
from anydml.ops.enums import TensorFlags
from anydml.ops.formula import listing
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.addresses import address
from anydml.runtime.call import bound_dispatch
from anydml.runtime.memory import kept_in_place
from anydml.runtime.plan import ALIGNMENT, KernelStep, Plan, plan
from anydml.runtime.process import RenewedLock
from anydml.runtime.tensor_step import BoundLaunches, Implement, TensorStep, reach

Array = NDArray[Any]


class Compiled:
    """An operator or graph that can run. Safe to use from several threads at once.

    Each array is C-contiguous memory of its tensor's data type, read through the tensor's sizes and
    strides; its own shape does not matter.
    """

    def __init__(
        self,
        label: str,
        graph: DirectMLGraph,
        inputs: Mapping[str, TensorDesc],
        outputs: Mapping[str, TensorDesc],
        threads: int | None,
        in_place: Sequence[str] = (),
        values: Mapping[str, Value] | None = None,
        implement: Implement | None = None,
        arrange: Callable[[DirectMLGraph, int | None], DirectMLGraph] | None = None,
    ) -> None:
        """`values`: the graph's values of the tensors; None: those that have the tensors' names.
        `implement`, `arrange`: who computes nodes otherwise than kernels and definitions do."""
        self._implement = implement
        self._label = label
        self._inputs, self._outputs = dict(inputs), dict(outputs)
        self._threads = threads
        self._in_place = tuple(in_place)
        self._graph = graph
        self._values = values or {v.name: v for v in (*graph.inputs, *graph.outputs)}
        self._plan = plan(arrange(graph, threads) if arrange else graph)
        self._owned: dict[str, _Pinned] = {}

    def __repr__(self) -> str:
        return f"<compiled {self._label}>"

    @property
    def tensors(self) -> Mapping[str, TensorDesc]:
        """The tensors by name."""
        return {**self._inputs, **self._outputs}

    @property
    def output_names(self) -> tuple[str, ...]:
        """What dispatch writes."""
        return tuple(self._outputs)

    def initialize(self, inputs: Mapping[str, Array]) -> None:
        """Give the inputs that are flagged OWNED_BY_DML. Their contents are copied; dispatch takes the rest.

        Raises:
            InvalidInput: a missing, unknown or unsuitable array.
        """
        self.take(self.check_owned(inputs))

    def check_owned(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays of the inputs that are flagged OWNED_BY_DML, which `take` copies.

        Raises:
            InvalidInput: a missing, unknown or unsuitable array.
        """
        tensors = {n: t for n, t in self._inputs.items() if _is_owned(t)}
        return {n: p.array for n, p in self._pin(tensors, inputs, "initialize", writable=False).items()}

    def take(self, owned: Mapping[str, Array]) -> None:
        """Keep copies of what `check_owned` gave."""
        self._owned = {name: _Pinned(x.copy()) for name, x in owned.items()}

    @property
    def binding_properties(self) -> BindingProperties:
        """What an application of DirectML has to provide (IDMLDispatchable::GetBindingProperties)."""
        owned = sum(_rounded(self._reach(n)) for n, t in self._inputs.items() if _is_owned(t))
        return BindingProperties(len(self.tensors), _rounded(self._plan.scratch), owned)

    def dispatch(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run once: `bind`, then dispatch the binding."""
        self.bind(inputs, outputs).dispatch()

    @translate_memory_error
    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Binding:
        """Fix the arrays of many dispatches.

        An output may be exactly one of the inputs where DirectML's documents say that the operator works
        in place; otherwise no input may overlap an output.

        Args:
            inputs, outputs: arrays by name, such as "ConditionTensor".

        Raises:
            InvalidInput: with everything that is wrong with the arrays.
            OutOfMemory: there is not as much as intermediate values need.
        """
        problems: list[Problem] = []
        pinned: dict[str, _Pinned] = {}
        free = {}
        for name, tensor in self._inputs.items():
            if not _is_owned(tensor):
                free[name] = tensor
            elif name not in self._owned:
                where = f"{self._label}: {name}"
                problems.append(Problem(where, "expected initialize() first", "the tensor is OWNED_BY_DML"))
        for tensors, given, writable in ((free, inputs, False), (self._outputs, outputs, True)):
            try:
                pinned |= self._pin(tensors, given, "bind", writable=writable)
            except InvalidInput as error:
                problems += error.problems
        if not problems:
            problems += self._overlaps(pinned)
        if problems:
            raise InvalidInput(*problems)
        placed = {self._values[n]: p for n, p in (pinned | self._owned).items()}
        binding = Binding(self._plan, placed, self._threads, self._implement)
        compiling.rest()  # steps of whole tensors are compiled when they meet memory
        return binding

    @property
    def owned(self) -> dict[str, Array]:
        """Copies of what `initialize` was given, by name."""
        return {name: p.array.copy() for name, p in self._owned.items()}

    @property
    def kernels(self) -> int:
        """How many kernels one dispatch runs."""
        return len(self._plan.steps)

    def explain(self) -> str:
        """The kernels: what each reads, computes and writes, and the bytes that it moves at least."""
        shown_names = {value: name for name, value in self._values.items()}
        count = len(self._plan.steps)
        lines = [f"{counted(count, 'kernel')}, {self._plan.scratch:,} bytes of intermediate memory"]
        for k, step in enumerate(self._plan.steps, start=1):
            names = [shown_names.get(v, v.name.removeprefix("%")) for v in step.values]
            if isinstance(step, TensorStep):
                head, *rest = step.describe(names)
                lines += [f"step {k}: {head}", *rest]
                continue
            reads = len(step.kernel.sources)
            lines.append(f"kernel {k}: over {list(step.sizes)}, {step.bytes_moved:,} bytes moved")
            for name, dtype, strides in zip(names, step.group.operands, step.strides, strict=True):
                elements = [s // SIZE[dtype] for s in strides]
                verb = "reads " if reads > 0 else "writes"
                reads -= 1
                lines.append(f"  {verb} {name}: {dtype.label}, strides {elements}")
            results = dict(zip(names[len(step.kernel.sources) :], step.group.outputs, strict=True))
            lines += (f"  {line}" for line in listing(results, names))
        return "\n".join(lines)

    def emit(self, form: str = "llvm") -> str:
        """The kernels' code: "text" (formulas), "llvm" (intermediate code) or "asm" (this machine's).

        Raises:
            InvalidInput: another form.
        """
        if form == "text":
            return self.explain()
        if form not in ("llvm", "asm"):
            raise InvalidInput(Problem("emit", f"expected text, llvm or asm, but got {short_repr(form)}"))
        parts = []
        for k, step in enumerate(self._plan.steps, start=1):
            if isinstance(step, TensorStep):
                codes = step.code(self._implement, self._threads)
                how = step.computed_by(self._implement, self._threads, launches=bool(codes))
                parts.append(f"; step {k}: {step.operator.name}, computed by {how}")
            else:
                parts.append(f"; kernel {k}")
                codes = [step.code()]
            parts += codes if form == "llvm" else map(assembly, codes)
        return "\n".join(parts)

    def _pin(
        self, tensors: Mapping[str, TensorDesc], given: Mapping[str, Array], verb: str, *, writable: bool
    ) -> dict[str, _Pinned]:
        """The arrays given for exactly these tensors, checked and held."""
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            message = f"expected a dictionary of arrays by field name, but got {kind}"
            raise InvalidInput(Problem(self._label, message))
        problems = []
        given = _separate(given, self.tensors)
        for name in given:
            if name in tensors:
                continue
            if name in self._inputs and not writable:
                remedy = (
                    "the tensor is OWNED_BY_DML: give it to initialize(), once"
                    if verb == "bind"
                    else "the tensor is not OWNED_BY_DML: give it to dispatch()"
                )
            else:
                remedy = nearest(name, tensors)
            listed = ", ".join(tensors) or "no array"
            message = f"expected {listed} at {verb}, but got {short_repr(name)}"
            problems.append(Problem(self._label, message, remedy))
        pinned: dict[str, _Pinned] = {}
        for name, tensor in tensors.items():
            where = f"{self._label}: {name}"
            if name not in given:
                problems.append(Problem(where, "expected an array, but it is missing"))
                continue
            found = list(_array_problems(given[name], tensor, self._reach(name), writable))
            problems += [p.under(where) for p in found]
            if not found:
                pinned[name] = _Pinned(given[name])
        if problems:
            raise InvalidInput(*problems)
        return pinned

    def _overlaps(self, pinned: Mapping[str, _Pinned]) -> Iterator[Problem]:
        """Ranges that meet although one of them is written."""
        ranges = {n: range(p.address, p.address + self._reach(n)) for n, p in pinned.items()}
        written: list[str] = []
        for output in self._outputs:
            for other in (*self._inputs, *written):
                if other not in ranges:
                    continue
                mine, its = ranges[output], ranges[other]
                if mine == its and self.may_share(output, other):
                    continue
                if mine.start < its.stop and its.start < mine.stop:
                    message = f"expected {output} apart from {other}, but their memory overlaps"
                    remedy = "bind another array"
                    if mine == its and other in self._in_place:
                        remedy = "in place, both need the same Sizes and Strides"
                    yield Problem(self._label, message, remedy)
            written.append(output)

    def _reach(self, name: str) -> int:
        """Bytes of a tensor's memory that are read or written."""
        return reach(self._values[name])

    def may_share(self, output: str, other: str) -> bool:
        """Whether an output may be the same memory as another tensor: each element in place of another."""
        if other not in self._in_place:
            return False
        a, b = self._outputs[output], self._inputs[other]
        return a.sizes == b.sizes and a.effective_strides == b.effective_strides


@dataclass(frozen=True)
class BindingProperties:
    """DML_BINDING_PROPERTIES."""

    required_descriptor_count: int
    """Tensors of the operator or graph."""
    temporary_resource_size: int
    """Bytes of intermediate values while it runs."""
    persistent_resource_size: int
    """Bytes of what it was initialized with."""


def _rounded(size: int) -> int:
    """Up to 256 bytes, the alignment of such resources."""
    return -(-size // 256) * 256


def _separate(given: Mapping[str, Any], tensors: Mapping[str, TensorDesc]) -> dict[str, Any]:
    """Lists of arrays, for fields of several tensors, as arrays by name."""
    found: dict[str, Any] = {}
    for name, x in given.items():
        if f"{name}[0]" in tensors and isinstance(x, list | tuple):
            found |= {f"{name}[{k}]": y for k, y in enumerate(x)}
        else:
            found[name] = x
    return found


def _is_owned(tensor: TensorDesc) -> bool:
    return bool(tensor.flags & TensorFlags.OWNED_BY_DML)


class _Pinned:
    """An array that stays where it is: referenced, and unable to be resized in place."""

    def __init__(self, array: Array) -> None:
        self.array = np.ndarray.view(array, np.ndarray)  # for the methods of a user's class may do anything
        self.address = address(array)
        self._held = kept_in_place(array)


def _array_problems(array: object, desc: TensorDesc, size: int, writable: bool) -> Iterator[Problem]:
    """What keeps `array` from being bound as a tensor."""
    dtype = IN_BUFFERS[desc.data_type]
    if not isinstance(array, np.ndarray):
        remedy = "np.from_dlpack(...) shares a tensor's memory" if hasattr(array, "__dlpack__") else ""
        yield Problem("", f"expected a NumPy array, but got {type(array).__name__}", remedy)
        return
    if is_masked(array):
        yield Problem("", "expected an array without mask, but got a MaskedArray")
        return
    array = np.ndarray.view(array, np.ndarray)  # what a class of somebody else's says of it may be anything
    boolean = array.dtype == np.bool_ and desc.data_type is UINT8 and not writable
    if (array.dtype != dtype or not array.dtype.isnative) and not boolean:
        yield Problem(
            "", f"expected {dtype}, but got {array.dtype if array.dtype.isnative else array.dtype.str}"
        )
    elif not array.flags.c_contiguous:
        yield Problem(
            "",
            f"expected C-contiguous memory, but got strides {array.strides}",
            "describe the layout in Strides",
        )
    elif array.nbytes < size:
        yield Problem("", f"expected at least {size} bytes, but got {array.nbytes}")
    if writable and not array.flags.writeable:
        yield Problem("", "expected a writable array, but got a read-only one")
    alignment = desc.guaranteed_base_offset_alignment
    if alignment and (rest := address(array) % alignment):
        yield Problem(
            "",
            f"expected an address that is a multiple of {alignment}, but got one with remainder {rest}",
            "GuaranteedBaseOffsetAlignment promises it",
        )


def _bytes(x: Array) -> Array:
    return x.reshape(-1).view(np.uint8)


def _one_at_a_time(run: Callable[[], None]) -> Callable[[], None]:
    renewed = RenewedLock()

    def dispatch() -> None:
        with renewed.lock:
            run()

    dispatch.__wrapped__ = run  # type: ignore[attr-defined]  # as functools does
    return dispatch


def _one_after_the_other(runs: Sequence[Callable[[], None]]) -> Callable[[], None]:
    def dispatch() -> None:
        for run in runs:
            run()

    return dispatch


class Binding:
    """Compiled work with its arrays. They stay alive and cannot be resized while it lives."""

    dispatch: Callable[[], None]
    """Run once more: no checks, no allocation. May be called from several threads: as each call writes the
    same output arrays, it waits for another one that is at work."""

    def __init__(
        self,
        plan: Plan,
        pinned: Mapping[Value, _Pinned],
        threads: int | None,
        implement: Implement | None = None,
    ) -> None:
        scratch = np.empty(plan.scratch + ALIGNMENT, np.uint8)
        begin = -(-address(scratch) // ALIGNMENT) * ALIGNMENT
        addresses = {value: p.address for value, p in pinned.items()}
        addresses |= {value: begin + offset for value, offset in plan.offsets.items()}
        addresses |= {value: address(x) for value, x in plan.constants.items()}
        # Whoever keeps the method alone must keep all that its addresses lead to.
        kept: list[object] = [dict(pinned), scratch, plan.constants]
        runs: list[Callable[[], None]] = []
        launches: list[tuple[array[int], int]] = []

        def dispatch_launches() -> None:
            if launches:
                descriptors = [descriptor for descriptor, _ in launches]
                runs.append(bound_dispatch(descriptors, sum(moved for _, moved in launches), kept))
                launches.clear()

        memory: dict[Value, Array] = {}
        if len(plan.kernels) < len(plan.steps):
            memory = {value: _bytes(p.array) for value, p in pinned.items()}
            memory |= {value: _bytes(x) for value, x in plan.constants.items()}
            first = begin - address(scratch)
            memory |= {value: scratch[first + offset :] for value, offset in plan.offsets.items()}
        for step in plan.steps:
            if isinstance(step, KernelStep):
                launches.append((step.descriptor(addresses, threads), step.bytes_moved))
                continue
            bound = step.bind(memory, implement, threads)
            if isinstance(bound, BoundLaunches):
                moved = [step.bytes_moved, *[0] * (len(bound.descriptors) - 1)]
                launches += zip(bound.descriptors, moved, strict=True)
                kept.append(bound.kept)
            else:
                dispatch_launches()
                runs.append(bound)
        dispatch_launches()
        dispatch = runs[0] if len(runs) == 1 else _one_after_the_other(runs)
        small = sum(step.bytes_moved for step in plan.steps) < MIN_SPLIT_BYTES
        at_once = small and isinstance(dispatch, BuiltinFunctionType)  # with Python's lock
        # Beside intermediate memory, outputs hold what kernels of rows have found so far.
        self.dispatch = dispatch if at_once else _one_at_a_time(dispatch)

    def __reduce__(self) -> tuple[Any, ...]:
        raise cannot_leave("compiled operator or graph")
