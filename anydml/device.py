"""DirectML's way of working: a device creates an operator from a description, compiles it, dispatches it.

device = Device(feature_level="5_0")
operator = device.create_operator({"Type": "ELEMENT_WISE_IF", "Desc": {...}})   # checks every rule
compiled = device.compile_operator(operator)                                    # makes the kernel
compiled.dispatch({"ConditionTensor": c, "ATensor": a, "BTensor": b}, {"OutputTensor": y})
bound = compiled.bind(inputs, outputs)                                          # checks the arrays once
bound.dispatch()                                                                # and again, and again
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.jit import driver
from anydml.ir.descs import Checked, Description, read_desc, to_graph
from anydml.problems import InvalidInput, InvalidOperator, Problem, Unsupported, nearest, shown
from anydml.runtime.launch import address
from anydml.runtime.plan import KernelStep, plan
from anydml.runtime.threads import check_threads
from anydml.spec.dtypes import NUMPY, UINT8
from anydml.spec.enums import FeatureLevel, OperatorType, TensorFlags, parse
from anydml.spec.schema import Slot
from anydml.spec.tensors import TensorDesc

Array = NDArray[Any]


class Device:
    """A DirectML device of a feature level: it accepts exactly what the documents allow there.

    Args:
        feature_level: a `FeatureLevel` or its name ("5_0", "DML_FEATURE_LEVEL_5_0"); default the newest.
        threads: threads of one dispatch at most; default as many as cores.

    Raises:
        InvalidOperator: there is no such feature level.
    """

    def __init__(
        self, feature_level: FeatureLevel | str | int | None = None, *, threads: int | None = None
    ) -> None:
        self.feature_level = _level(feature_level)
        self._threads = check_threads(threads)

    def create_operator(self, desc: Description) -> DeviceOperator:
        """Check a description against DirectML's rules (IDMLDevice::CreateOperator).

        Args:
            desc: an `OperatorDesc`, or the dictionary of DxDispatch JSON.

        Raises:
            InvalidOperator: with every broken rule, one line each.
            Unsupported: DirectML has the operator, but it is not implemented here.
        """
        checked, problems = read_desc(desc, self.feature_level)
        if problems or checked is None:
            raise InvalidOperator(*problems)
        return DeviceOperator(checked)

    def compile_operator(self, operator: DeviceOperator) -> CompiledOperator:
        """Make the operator's kernel (IDMLDevice::CompileOperator)."""
        if not isinstance(operator, DeviceOperator):
            kind = type(operator).__name__
            remedy = "make it with device.create_operator(...)"
            raise InvalidInput(Problem("compile_operator", f"expected an operator, but got {kind}", remedy))
        return CompiledOperator(operator, self._threads)

    def __repr__(self) -> str:
        return f"Device(feature_level={self.feature_level.label!r})"


def _level(level: FeatureLevel | str | int | None) -> FeatureLevel:
    return FeatureLevel.newest() if level is None else parse(FeatureLevel, level, "feature_level")


def validate(desc: Description, feature_level: FeatureLevel | str | int | None = None) -> list[Problem]:
    """Everything that is wrong with an operator description at a feature level; nothing is raised for it.

    An operator that DirectML has but that is not implemented here is a problem, too.

    >>> validate({"Type": "ELEMENT_WISE_FI", "Desc": {}})[0].remedy
    "did you mean 'ELEMENT_WISE_IF'?"
    """
    try:
        return read_desc(desc, _level(feature_level))[1]
    except (InvalidOperator, Unsupported) as error:  # no such level; no such operator here
        return list(error.problems)


class DeviceOperator:
    """An operator whose description holds (IDMLOperator)."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked

    @property
    def type(self) -> OperatorType:
        return self._checked.operator.type

    @property
    def tensors(self) -> Mapping[str, TensorDesc]:
        """The tensors by field name."""
        return self._checked.tensors

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All other fields by name."""
        return self._checked.attributes

    def __repr__(self) -> str:
        return f"<{self._checked.operator.name} operator>"


class CompiledOperator:
    """An operator that can run (IDMLCompiledOperator). Safe to use from several threads at once."""

    def __init__(self, operator: DeviceOperator, threads: int | None) -> None:
        self._checked = operator._checked
        self._threads = threads
        self._steps = plan(to_graph(self._checked))
        self._owned: dict[str, _Pinned] = {}

    @property
    def tensors(self) -> Mapping[str, TensorDesc]:
        """The tensors by field name."""
        return self._checked.tensors

    def __repr__(self) -> str:
        return f"<compiled {self._checked.operator.name}>"

    @property
    def output_names(self) -> tuple[str, ...]:
        """The fields that dispatch writes."""
        return tuple(s.name for s in self._checked.operator.outputs)

    def initialize(self, inputs: Mapping[str, Array]) -> None:
        """Give the inputs that are flagged OWNED_BY_DML. Their contents are copied; dispatch takes the rest.

        Raises:
            InvalidInput: a missing, unknown or unsuitable array.
        """
        slots = [s for s in self._checked.operator.inputs if self._is_owned(s)]
        pinned = self._pinned(slots, inputs, "initialize", writable=False)
        self._owned = {name: _Pinned(p.array.copy()) for name, p in pinned.items()}

    def dispatch(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run once: `bind`, then dispatch the binding."""
        self.bind(inputs, outputs).dispatch()

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Binding:
        """Fix the arrays of many dispatches.

        Each array is C-contiguous memory of its tensor's data type, read through the tensor's sizes and
        strides; its own shape does not matter. An output may be exactly one of the inputs where the
        documents say that the operator works in place (neither of those that exist here does); otherwise
        no input may overlap an output.

        Args:
            inputs, outputs: arrays by field name, such as "ConditionTensor".

        Raises:
            InvalidInput: with everything that is wrong with the arrays.
        """
        operator = self._checked.operator
        problems: list[Problem] = []
        pinned: dict[str, _Pinned] = {}
        missing = [s.name for s in operator.inputs if self._is_owned(s) and s.name not in self._owned]
        for name in missing:
            problems.append(
                Problem(
                    f"{operator.name}: {name}", "expected initialize() first", "the tensor is OWNED_BY_DML"
                )
            )
        free = [s for s in operator.inputs if not self._is_owned(s)]
        for slots, given, writable in ((free, inputs, False), (operator.outputs, outputs, True)):
            try:
                pinned |= self._pinned(slots, given, "bind", writable=writable)
            except InvalidInput as error:
                problems += error.problems
        if not problems:
            problems += self._overlaps(pinned)
        if problems:
            raise InvalidInput(*problems)
        return Binding(self._steps, pinned | self._owned, self._threads)

    def _is_owned(self, slot: Slot) -> bool:
        return bool(self._checked.tensors[slot.name].flags & TensorFlags.OWNED_BY_DML)

    def _pinned(
        self, slots: list[Slot] | tuple[Slot, ...], given: Mapping[str, Array], verb: str, *, writable: bool
    ) -> dict[str, _Pinned]:
        """The arrays given for exactly these slots, checked and held."""
        where = self._checked.operator.name
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise InvalidInput(
                Problem(where, f"expected a dictionary of arrays by field name, but got {kind}")
            )
        names = [s.name for s in slots]
        problems = []
        for name in given:
            if name in names:
                continue
            slot = next((s for s in self._checked.operator.tensors if s.name == name), None)
            if slot is not None and slot.kind == "input" and not writable:
                remedy = (
                    "the tensor is OWNED_BY_DML: give it to initialize(), once"
                    if verb == "bind"
                    else "the tensor is not OWNED_BY_DML: give it to dispatch()"
                )
            else:
                remedy = nearest(name, names)
            listed = ", ".join(names) or "no array"
            problems.append(Problem(where, f"expected {listed} at {verb}, but got {shown(name)}", remedy))
        pinned: dict[str, _Pinned] = {}
        for name in names:
            if name not in given:
                problems.append(Problem(f"{where}: {name}", "expected an array, but it is missing"))
                continue
            found = list(_array_problems(given[name], self._checked.tensors[name], writable))
            problems += [p.under(f"{where}: {name}") for p in found]
            if not found:
                pinned[name] = _Pinned(given[name])
        if problems:
            raise InvalidInput(*problems)
        return pinned

    def _overlaps(self, pinned: Mapping[str, _Pinned]) -> Iterator[Problem]:
        """Ranges that meet although one of them is written."""
        operator, tensors = self._checked.operator, self._checked.tensors
        ranges = {n: range(p.address, p.address + tensors[n].reach) for n, p in pinned.items()}
        for k, output in enumerate(operator.outputs):
            for other in (*operator.inputs, *operator.outputs[:k]):
                if other.name not in ranges:
                    continue
                mine, its = ranges[output.name], ranges[other.name]
                if mine == its and other.name in operator.in_place:
                    continue
                if mine.start < its.stop and its.start < mine.stop:
                    yield Problem(
                        operator.name,
                        f"expected {output.name} apart from {other.name}, but their memory overlaps",
                        "bind another array",
                    )


class _Pinned:
    """An array that stays where it is: referenced, and unable to be resized in place.

    NumPy refuses to resize an array that has a weak reference, whatever the caller says about
    reference counts; so one is held on the array and on every array that it is a view of.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self.address = address(array)
        self._held = []
        base: Any = array
        while isinstance(base, np.ndarray | memoryview):
            if isinstance(base, np.ndarray):
                self._held.append(weakref.ref(base))
            base = base.base if isinstance(base, np.ndarray) else base.obj


def _array_problems(array: object, desc: TensorDesc, writable: bool) -> Iterator[Problem]:
    """What keeps `array` from being bound as a tensor."""
    dtype = NUMPY[desc.data_type]
    if not isinstance(array, np.ndarray):
        remedy = "np.from_dlpack(...) shares a tensor's memory" if hasattr(array, "__dlpack__") else ""
        yield Problem("", f"expected a NumPy array, but got {type(array).__name__}", remedy)
        return
    if isinstance(array, np.ma.MaskedArray):
        yield Problem("", "expected an array without mask, but got a MaskedArray")
        return
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
    elif array.nbytes < desc.reach:
        yield Problem("", f"expected at least {desc.reach} bytes, but got {array.nbytes}")
    if writable and not array.flags.writeable:
        yield Problem("", "expected a writable array, but got a read-only one")
    alignment = desc.guaranteed_base_offset_alignment
    if alignment and (rest := address(array) % alignment):
        yield Problem(
            "",
            f"expected an address that is a multiple of {alignment}, but got one with remainder {rest}",
            "GuaranteedBaseOffsetAlignment promises it",
        )


class Binding:
    """A compiled operator with its arrays. They stay alive and cannot be resized while it lives."""

    dispatch: Callable[[], None]
    """Run once more: no checks, no allocation. May be called from several threads, but each call writes
    the same output arrays."""

    def __init__(
        self, steps: tuple[KernelStep, ...], pinned: Mapping[str, _Pinned], threads: int | None
    ) -> None:
        addresses = {name: p.address for name, p in pinned.items()}
        (job,) = (step.job(addresses, threads) for step in steps)
        dispatch = partial(driver().run, job.buffer_info()[0])
        # Whoever keeps the method alone must keep all that its address leads to.
        dispatch.__dict__["keeps"] = (job, dict(pinned))
        self.dispatch = dispatch
