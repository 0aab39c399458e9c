"""onnxruntime as the provider of heavy operators."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # whatever takes its place

from anydml.dataclass import dataclass, replace
from anydml.errors import Problem, Unsupported, by_a_handler
from anydml.ir.graph import OnnxOp, TensorType
from anydml.locks import Lock
from anydml.onnx.protos import (
    TensorProto,
    TypeProto,
    make_node,
    make_tensor_type_proto,
    make_tensor_value_info,
    model_of_one,
)
from anydml.onnx.providers.bound_memory import Binding, Fixed, calls
from anydml.onnx.providers.interrupt import unwatch_ctrl_c, watch_ctrl_c
from anydml.onnx.providers.ort_values import lends, over_array
from anydml.onnx.providers.products_of_bytes import FLOAT_FACTORS
from anydml.onnx.providers.provider import Call, Region, RegionEnded, RegionFailed, Sizes, copied
from anydml.onnx.providers.session_options import CPU, ExecutionProviders
from anydml.onnx.providers.weights import files_of, lend
from anydml.onnx.providers.words import first_line
from anydml.onnx.schema import newest_opset_of_onnx
from anydml.onnx.types import CODES, onnx_name
from anydml.runtime.process import leak, renew_after_fork

DTYPES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string".split(" ")
)
"""Element types that pass between onnxruntime and NumPy."""


_CODES = {onnx_name(TensorType(name)): CODES[name] for name in DTYPES}


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(
        self,
        seconds: float | None = None,
        providers: ExecutionProviders = CPU,
        literal: bool = False,
        given: ort.SessionOptions | None = None,
        exact: bool = True,
    ) -> None:
        """`seconds`: after which a run is ended (None: never); it then raises `RegionEnded`. `literal`: it
        computes node by node, and rounds where the file does. `given`: a user's options, for custom
        operators: nobody but they know the libraries that these are in. `exact`: what products of 8-bit
        integers have to be."""
        self._seconds, self._providers, self._literal, self._given = seconds, providers, literal, given
        self.on_processor = providers == CPU
        self.exact = exact and self.on_processor
        self.unbelieved: set[OnnxOp] = set()

    def compile(self, region: Region, threads: int, alone: bool = True) -> Call:
        kind = _LendingSession if lends(region.model) else _Session
        return kind(region, self._asked(threads, alone), self._seconds)

    def _asked(self, threads: int, alone: bool = True) -> Asked:
        return Asked(threads, alone, self._providers, self._literal, self._given)

    def result_types(self, model: bytes, custom: bool = False) -> dict[str, TypeProto]:
        """Those of tensors; sizes `[]` are a scalar's, or not known: that it does not tell."""
        try:
            session = _Session(Region(model, (), (), custom=custom), self._asked(1), None).session
        except Unsupported:
            return {}
        found = {}
        for output in session.get_outputs():
            code = _CODES.get(output.type)
            if code is not None:
                sizes = [n if isinstance(n, int | str) else None for n in output.shape] or None
                found[output.name] = make_tensor_type_proto(code, sizes)
        return found

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        """Small arrays are copied to and from memory that is bound once, which saves some microseconds."""
        ends = [(np.dtype(t), n) for t, n in (*inputs, *outputs)] if _fixable(inputs, outputs) else []
        if not isinstance(call, _Session) or not call.may_be_bound or not ends:
            return call
        if sum(prod(n) * t.itemsize for t, n in ends) > BOUND:
            return call
        return Fixed(call, ends[: len(inputs)], ends[len(inputs) :])


_spare_options: list[ort.RunOptions] = []
"""Of runs that can be ended one by one, and are over."""


def _spare() -> ort.RunOptions:
    try:
        options = _spare_options.pop()
    except IndexError:  # another thread took the last
        return ort.RunOptions()
    options.terminate = False  # which may have been told when their run was over
    return options


class _Opening:
    """A session that is being made: how it is ended."""

    def __init__(self, options: ort.SessionOptions) -> None:
        self._options = options

    @property
    def terminate(self) -> bool:
        return False

    @terminate.setter
    def terminate(self, ends: bool) -> None:
        if hasattr(self._options, "set_load_cancellation_flag"):  # from 1.21 on
            self._options.set_load_cancellation_flag(ends)


_WRONG_OPTIMIZERS = ["ExpandElimination", "QDQPropagationTransformer", "ReshapeFusion"]
"""onnxruntime's optimisations that go wrong: the first drops an Expand to nothing; the second makes
a QuantizeLinear of two types from opset 21 on, or reads past its inputs and ends the process; the
third takes a Reshape's shape for its data, or a size 0 for "as in the input"."""

_SLOW_OPTIMIZERS = ["SkipLayerNormFusion"]
"""What takes longer than what it replaces, on the processor: a sum and its normalization in one take four to
seven times as long there as one after the other."""

_VERSION = tuple(int(n) for n in re.findall(r"\d+", ort.__version__)[:2])
_REST_SOON = (
    ("session.intra_op.spin_duration_us", "100")
    if _VERSION >= (1, 28)
    else ("session.force_spinning_stop", "1")
)
"""Has threads that wait for the next run go to sleep. Those of older ones do so at once, or after some 60
milliseconds: who calls again and again waits for them to wake then."""


@dataclass(frozen=True)
class Asked:
    """How a region is to run."""

    threads: int
    """0: as onnxruntime does by default."""
    alone: bool
    """Else others compute between its runs, and its threads do not spin meanwhile."""
    providers: ExecutionProviders
    literal: bool = False
    """Whether it leaves nodes as they are."""
    given: ort.SessionOptions | None = None
    """How it is to run if it has custom operators."""


def _open_session(region: Region, asked: Asked) -> tuple[ort.InferenceSession, list[Any]]:
    """A session, and the memory that it reads and does not own.

    Raises:
        Unsupported: onnxruntime refuses the region.
    """
    lent: tuple[list[Any], list[Any]] = [], []
    if region.custom and asked.given is not None:
        options = asked.given  # they are the user's: nothing is changed in them
    else:
        options = _options(asked)
        if region.quantized:
            options.add_session_config_entry(*FLOAT_FACTORS)
        lent = lend(region, options)
    slow = _SLOW_OPTIMIZERS if asked.providers == CPU else []
    opening = _Opening(options)
    try:
        calls.enter(opening)
        session = InferenceSession(
            region.model,
            options,
            providers=[(name, dict(options)) for name, options in asked.providers],
            enable_fallback=0,
            disabled_optimizers=[*_WRONG_OPTIMIZERS, *slow, *region.without],
        )
    except TypeError:  # it is none of onnxruntime's, and nothing that a region does
        raise
    except Exception as error:  # onnxruntime raises a dozen unrelated classes
        if by_a_handler(error):
            raise
        raise Unsupported(Problem("onnxruntime", first_line(error))) from error
    finally:
        calls.leave(opening)
        for file in files_of(region):
            file.release()
    return session, lent[0]


def _options(asked: Asked) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = asked.threads
    if not asked.alone:
        options.add_session_config_entry(*_REST_SOON)
    options.inter_op_num_threads = 1
    if asked.literal:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what goes wrong is raised, and told in our words
    options.add_session_config_entry("session.disable_double_qdq_remover", "1")  # it loses a rounding
    return options


BOUND = 1 << 16
"""Bytes up to which copying is less than binding at each call."""


def _fixable(inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> bool:
    return all(t in DTYPES and t != "string" and 0 not in n for t, n in (*inputs, *outputs))


_LOOPS = (b"\x04Loop", b"\x04Scan", b"\x0bSequenceMap")
"""What may run for ever, as files write its name; a weight that has these bytes does no harm."""


class _Session:
    """A region in onnxruntime. In a forked child it is opened again when it is first called."""

    def __init__(self, region: Region, asked: Asked, seconds: float | None) -> None:
        self._region, self._asked, self._seconds = region, asked, seconds
        self.inputs, self.outputs = region.inputs, list(region.outputs)
        self._loops = any(name in region.model for name in _LOOPS)
        self._lock = Lock()
        self.bindings: weakref.WeakSet[Binding] = weakref.WeakSet()
        self._session: ort.InferenceSession | None = None
        self._weights: list[Any] = []
        self._interrupted: BaseException | None = None
        renew_after_fork(self)  # first: a child destroys what it does not know of, and may wait for ever
        self._open()

    def _open(self) -> None:
        try:
            self._session, self._weights = _open_session(self._region, self._asked)
        except Unsupported:
            raise
        except BaseException as error:  # a signal's handler's: whose traceback has a session by now
            self._interrupted = error
            raise
        # what the wrapper checks at each call is so
        self._run = getattr(self._session, "_sess", self._session).run

    @property
    def session(self) -> ort.InferenceSession:
        found = self._session
        if found is None:
            with self._lock:
                if self._session is None:
                    self._open()
                found = self._session  # before another thread has it rest
        return found

    def after_fork(self) -> None:
        leak(self._session, self._weights, self._interrupted)
        self._lock = Lock()
        self._open_again()

    def share(self) -> None:
        """Have its threads wait without spinning, for others that take turns with it."""
        if self._asked.alone and self._asked.threads != 1:
            self._asked = replace(self._asked, alone=False)
            self.rest()

    def rest(self) -> None:
        """Give back what the library holds for it, until it is called again."""
        with self._lock:
            self._open_again()
        for binding in list(self.bindings):
            binding.bind_again()

    def _open_again(self) -> None:
        """Have the next call open it, or the first after this one in other threads."""
        this = weakref.proxy(self)  # it must not hold itself
        self._session, self._weights, self._run = None, [], lambda *arguments: this._run_again(*arguments)

    @property
    def may_be_bound(self) -> bool:
        """Whether a run on memory that was bound sees what that contains by then: to a device it is copied
        when it is bound. And a loop must end by Ctrl-C, of which bound runs know nothing."""
        return self._asked.providers == CPU and not self._loops and self._seconds is None

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None:
        """A run on these arrays, which tells whether it went well; None where they cannot be bound.

        They are in C's order and aligned, and no output is memory of another array.
        """
        bindable = all(x.size > 0 and x.dtype.name in DTYPES for x in (*inputs, *outputs))
        return Binding(self, inputs, outputs) if bindable and self.may_be_bound else None

    def run_in_place(self, values: list[Any], outputs: list[Any]) -> list[Any]:
        """A run that writes into the arrays among `outputs`, which may be inputs' memory; others are new."""
        binding = self.session.io_binding()
        for name, x in zip(self.inputs, values, strict=True):
            binding.bind_ortvalue_input(name, over_array(x))
        for name, y in zip(self.outputs, outputs, strict=True):
            if y is None:
                binding.bind_output(name)
            else:
                binding.bind_ortvalue_output(name, over_array(y))
        options = calls.options
        try:
            calls.enter(options)
            self.session.run_with_iobinding(binding, options)
        except Exception as error:
            if by_a_handler(error):
                raise
            raise _region_failed(error) from error
        finally:
            calls.leave(options)
        found = binding.get_outputs()
        return [v.numpy() if y is None else y for v, y in zip(found, outputs, strict=True)]

    def _run_again(self, *arguments: Any) -> Any:
        session = self.session
        return getattr(session, "_sess", session).run(*arguments)

    def __call__(self, values: list[Any]) -> list[Any]:
        if self._loops or self._seconds is not None:
            return self._run_for_long(values)
        options = calls.options
        try:
            calls.enter(options)
            feeds = dict(zip(self.inputs, values))  # noqa: B905  (a fifth of a microsecond)
            results: list[Any] = self._run(self.outputs, feeds, options)
            return results
        except Exception as error:
            if by_a_handler(error):
                raise
            raise _region_failed(error) from error
        finally:
            calls.leave(options)

    def _run_for_long(self, values: list[Any]) -> list[Any]:
        """Ended by Ctrl-C, and when its time is over."""
        again: ort.RunOptions | None = None
        options = _spare()
        try:
            calls.enter(options)
            watch_ctrl_c(options)
            feeds = dict(zip(self.inputs, values))  # noqa: B905  (as above)
            if self._seconds is None:
                results: list[Any] = self._run(self.outputs, feeds, options)
            else:
                with _end_after(self._seconds, options):
                    results = self._run(self.outputs, feeds, options)
            again = options
            return results
        except RegionEnded:
            raise
        except Exception as error:
            if by_a_handler(error):
                raise
            raise _region_failed(error) from error
        finally:
            unwatch_ctrl_c(options)
            calls.leave(options)
            if again is not None and not again.terminate:  # nobody has told it to end, late
                _spare_options.append(again)


class _LendingSession(_Session):
    """One whose lists are to be copied."""

    def __call__(self, values: list[Any]) -> list[Any]:
        return [copied(r) if isinstance(r, list) else r for r in super().__call__(values)]


@contextmanager
def _end_after(seconds: float, options: ort.RunOptions) -> Iterator[None]:
    """While this lasts, the library is told to end after so many seconds.

    Raises:
        RegionEnded: it was.
    """
    late = threading.Event()

    def end() -> None:
        late.set()
        options.terminate = True

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise RegionEnded(f"took more than {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()


def _region_failed(error: Exception) -> RegionFailed:
    """What onnxruntime raised; with the number of the node that failed: of those in each other, the
    innermost."""
    found = re.findall(r"Name:'(\d+)'", str(error))
    node, said = int(found[-1]) if found else None, first_line(error)
    if "Failed to allocate memory" in said or "bad allocation" in said or "bad_alloc" in said:
        return RegionFailed(node, f"there is no more memory: {said.rpartition(') ')[2]}", memory=True)
    return RegionFailed(node, said)


OLDEST_NEWEST = 21
"""An opset that every onnxruntime knows which is supported, so that it need not be asked."""


@cache
def may_have(op: OnnxOp) -> bool:
    """Whether onnxruntime has an operator in ONNX's own domain, also one that ONNX does not know; builds that
    do not tell may have any."""
    told = getattr(onnxruntime_pybind11_state, "get_all_operator_schema", None)
    if told is None:
        return True
    named = (s for s in told() if s.name == op.name and not s.domain and not s.deprecated)
    return any(s.since_version <= op.version for s in named)


def knows_opset(version: int) -> bool:
    """Whether the installed onnxruntime takes an opset of ONNX's own domain."""
    return version <= OLDEST_NEWEST or _takes_opset(version)


@cache
def newest_opset() -> int:
    """The newest opset of ONNX's own domain that the installed onnxruntime takes, of those known here."""
    return next(filter(knows_opset, range(newest_opset_of_onnx(), 1, -1)))


@cache
def _takes_opset(version: int) -> bool:
    node = make_node("Identity", ["x"], ["y"])
    x, y = (make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    try:
        OnnxRuntime().compile(Region(model_of_one(node, [x], y, version), ("x",), ("y",)), 1)
    except Unsupported:
        return False
    return True
