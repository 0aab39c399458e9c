"""Operators of whole tensors on NumPy arrays, at once: what their functions do.

DirectML's rules of the newest feature level hold, sizes included: what functions have of NumPy is that types
and sizes of results follow from the arguments, that negative axes count from the end, and that one number
stands for a list of equal ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from inspect import Signature
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass
from anydml.directml.arguments import (
    attributes_of,
    do_not_go_together,
    outputs_of,
    repeated,
    types_in,
    types_of,
)
from anydml.directml.type_inference import as_number
from anydml.directml.validation import check
from anydml.eager import asked_type, in_parameters, to_array
from anydml.errors import InvalidInput, InvalidOperator, Problem, counted
from anydml.expression import Expression
from anydml.heavy import implementation_of
from anydml.lazy import is_lazy
from anydml.ops.call import Computation, field, takes_results
from anydml.ops.dtypes import FROM_NUMPY, IN_ARRAYS, native
from anydml.ops.enums import FeatureLevel, TensorDataType
from anydml.ops.opdef import Operand, Operator
from anydml.ops.signature import signature
from anydml.ops.tensor_desc import TensorDesc, TooIntricate, overlaps_itself
from anydml.runtime.addresses import has_no_gaps
from anydml.runtime.arguments import an_argument, an_object
from anydml.runtime.call import KnownCall
from anydml.runtime.halves import halves
from anydml.runtime.known_launch import apart, launched_again
from anydml.runtime.launch import Watched, apply_activation, watched
from anydml.runtime.memory import overlap_among, size_problem
from anydml.runtime.threads import default_threads
from anydml.templates import Behind, refuse_out, written_out

Array = NDArray[Any]


def function(operator: Operator, module: str) -> Callable[..., Any]:
    """The operator's function, as one of `module`."""
    form = signature(operator)
    behind = _WholeTensors(operator, form)
    _FUNCTIONS.add(behind)
    return written_out(operator, form, behind, module)


class _WholeTensors(Behind):
    def __init__(self, operator: Operator, form: Signature) -> None:
        super().__init__(operator, form)
        tensors = {s.parameter for s in operator.inputs}
        self._tensors = [k for k, n in enumerate(self._parameters) if n in tensors]
        self._others = [k for k, n in enumerate(self._parameters) if n not in tensors][:-1]  # without `out`
        self._out_decides = bool(operator.output_types)

    def __call__(self, *given: Any) -> Any:
        kind = self._kind_of(given)
        if kind is None:
            return self._meet(given, None)
        prepared = _KNOWN.get(kind[0])
        if prepared is None:
            return self._meet(given, kind)
        inputs, out = dict(zip(prepared.names, kind[1], strict=True)), given[-1]
        if prepared.tries <= 0 or not self._is_due():
            return prepared.results(inputs) if out is None else prepared.write(inputs, out)
        inputs = dict(zip(prepared.names, arrays := apart(kind[1]), strict=True))
        result, launches = watched(
            lambda: prepared.results(inputs) if out is None else prepared.write(inputs, out)
        )
        call = self._known_call(given, arrays, launches, result)
        if call is None:
            prepared.tries -= 1
        else:
            self._know(call)
        return result

    def _meet(self, given: Sequence[Any], kind: tuple[Any, list[Array]] | None) -> Any:
        """The first call of a kind, or one that needs a closer look."""
        operator, named = self._operator, self._named(given)
        out, output_data_type = named.pop("out"), named.pop("output_data_type", None)
        for s in operator.inputs:
            x = named[s.parameter]
            if x.__class__ is np.ndarray or x is None:
                continue
            for one in x if s.array and isinstance(x, list | tuple) else [x]:
                if isinstance(one, Expression):
                    refuse_out(operator, out)
                    return one._builder.record_tensors(operator, named, output_data_type)
                if is_lazy(one):
                    return self._lazily(given)
        return _compute(operator, named, output_data_type, out, kind)

    def _kind_of(self, given: Sequence[Any]) -> tuple[Any, list[Array]] | None:
        """What tells such calls apart, and their arrays; None of arguments that need a closer look."""
        key: list[Any] = [self._operator]
        out = given[-1]
        if self._out_decides and out is not None:
            if out.__class__ is not np.ndarray:
                return None
            key.append(out.dtype)
        arrays: list[Array] = []
        for k in self._tensors:
            x = given[k]
            if x.__class__ is np.ndarray:
                arrays.append(x)
                key += x.dtype, x.shape
            elif x is None:
                key.append(None)
            elif x.__class__ is list or x.__class__ is tuple:
                key.append(len(x))
                for one in x:
                    if one.__class__ is not np.ndarray:
                        return None
                    arrays.append(one)
                    key += one.dtype, one.shape
            else:
                return None
        for k in self._others:
            x = given[k]
            kind = x.__class__
            if kind in _PLAIN or isinstance(x, Enum):
                key += kind, x
            elif kind is float:
                key.append(x.hex())
            elif (kind is list or kind is tuple) and {*map(type, x)} <= _NUMBERS:
                key.append(_key(x))
            else:
                return None
        return tuple(key), arrays

    def _known_call(
        self, given: Sequence[Any], inputs: Sequence[Array], launches: Sequence[Watched], result: Any
    ) -> KnownCall | None:
        """What a call that went well says of others like it; None if it is more than launches."""
        *values, out = given
        results = list(result) if isinstance(result, tuple) else [result]
        if not all(type(y) is np.ndarray and (out is not None or has_no_gaps(y)) for y in results):
            return None
        launched = launched_again(launches, inputs, results)
        if launched is None:
            return None
        known = [an_argument(x, results[0], k in self._tensors) for k, x in enumerate(values)]
        known.append(an_object(None) if out is None else an_argument(out, results[0], True, written=True))
        return KnownCall([a for a in known if a], launched) if all(known) else None


_FUNCTIONS: WeakSet[_WholeTensors] = WeakSet()


def forget() -> None:
    """What is known of calls: the next ones find out again who computes them, and with how many threads."""
    _forget_prepared()
    for behind in _FUNCTIONS:
        if behind._known is not None:
            behind._known.forget()


_PLAIN, _NUMBERS = {int, bool, str, type(None)}, {int, float}


@dataclass
class _Prepared:
    """What calls like an earlier one need not find out again."""

    operator: Operator
    computation: Computation
    outputs: Mapping[str, TensorDesc]
    names: Sequence[str]
    """Of the inputs that are arrays."""
    numbers: Mapping[str, Array]
    """Python numbers as arrays."""
    repeated: Mapping[str, tuple[int, ...]]
    """The sizes of inputs that are repeated."""
    truths: Sequence[str]
    """The inputs that are bools."""
    tries: int = 4
    """How often it may still turn out that such calls cannot be known, as in some layouts only."""
    holds_session: bool = False
    """Whether a library's session computes it, with threads of its own."""

    def made(
        self, inputs: dict[str, Array], memory: dict[str, Array] | None = None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The results, by field name, and the inputs that they are computed of."""
        for name in self.truths:
            inputs[name] = inputs[name].view(np.uint8)
        if self.numbers:
            inputs |= self.numbers
        for name, sizes in self.repeated.items():
            inputs[name] = np.broadcast_to(inputs[name], sizes)
        return self.computation(inputs, memory), inputs

    def results(self, inputs: dict[str, Array]) -> Any:
        """What the function gives."""
        made, given = self.made(inputs)
        operator = self.operator
        if not operator.gives_several:
            return _own(made[operator.outputs[0].name], given)
        results = {n: _own(x, given) for n, x in made.items()}
        listed = [
            tuple([results[n] for n in name]) if isinstance(name, list) else name and results[name]
            for name in self.computation.fields
        ]
        return tuple(listed) if len(listed) > 1 else listed[0]

    def write(self, inputs: dict[str, Array], out: Any) -> Any:
        """The results, in `out`, which is checked."""
        targets = _targets(self.operator, out, self.outputs)
        memory = {n: y for n, y in targets.items() if takes_results(y, inputs.values())}
        made = self.made(inputs, memory)[0]
        rest = {n: x for n, x in made.items() if x is not targets[n]}
        for name, x in _apart(rest, targets.values()).items():
            np.copyto(targets[name], x)
        return out


_KNOWN: dict[Any, _Prepared] = {}
_MOST_KNOWN = 4096
_WITH_SESSIONS: deque[Any] = deque()
"""The keys of those that hold one, the oldest first."""
_MOST_SESSIONS, _FEWEST_SESSIONS, _MOST_THREADS = 64, 16, 256
"""That are kept, and the threads of all of them: each has as many as are asked for."""


def _know(key: Any, prepared: _Prepared) -> None:
    if len(_KNOWN) >= _MOST_KNOWN:
        _forget_prepared()
    _KNOWN[key] = prepared
    if prepared.holds_session:
        _WITH_SESSIONS.append(key)
        most = min(_MOST_SESSIONS, max(_FEWEST_SESSIONS, _MOST_THREADS // default_threads()))
        if len(_WITH_SESSIONS) > 2 * most:  # most have two keys
            _KNOWN.pop(_WITH_SESSIONS.popleft(), None)


def _forget_prepared() -> None:
    _KNOWN.clear()
    _WITH_SESSIONS.clear()


def _compute(
    operator: Operator,
    given: Mapping[str, Any],
    output_data_type: Any,
    out: Any,
    kind: tuple[Any, list[Array]] | None,
) -> Any:
    inputs, numbers = _arrays(operator, given)
    if numbers and not inputs:
        where = f"{operator.name}: {next(iter(numbers))[0].parameter}"
        raise InvalidInput(
            Problem(where, "expected an array, but got a number", "np.float32([...]) makes one")
        )
    if output_data_type is None and out is not None and operator.output_types:
        output_data_type = _type_of_target(operator, out)
    key: Any = None
    prepared = None
    try:
        key = (
            operator,
            output_data_type,
            tuple([(n, x.dtype, x.shape) for n, x in inputs.items()]),
            tuple([_key(given[name]) for name in operator.names]),
            _key(list(numbers.values())),
        )
        prepared = _KNOWN.get(key)
    except TypeError:  # an attribute that has no hash
        key = None
    if prepared is None:
        prepared = _prepare(operator, given, inputs, numbers, output_data_type)
        if key is not None:
            _know(key, prepared)
    if kind is not None and all(x is y for x, y in zip(inputs.values(), kind[1], strict=True)):
        _know(kind[0], prepared)  # the arrays are taken as they are
    return prepared.results(inputs) if out is None else prepared.write(inputs, out)


def _key(value: Any) -> Any:
    """What tells values of attributes apart: 1, 1.0 and True are not the same, nor are 0.0 and -0.0."""
    kind = value.__class__
    if kind is list or kind is tuple:
        return (list, *value) if {*map(type, value)} == {int} else tuple([_key(v) for v in value])
    if isinstance(value, Mapping):
        return tuple([(k, _key(v)) for k, v in value.items()])
    if isinstance(value, float):
        return value.hex()
    return kind, value


def _prepare(
    operator: Operator,
    given: Mapping[str, Any],
    inputs: Mapping[str, Array],
    numbers: Mapping[tuple[Operand, str], Any],
    output_data_type: Any,
) -> _Prepared:
    """Everything about a call but its arrays' contents.

    Raises:
        InvalidOperator: with every rule that it breaks.
    """
    wanted = asked_type(operator, output_data_type)
    given_types = types_in(operator, inputs, wanted)
    types = types_of(operator, given_types, wanted, given)
    rank = max((x.ndim for x in inputs.values()), default=1)
    tensors = {n: TensorDesc(given_types[n], x.shape) for n, x in inputs.items()}
    made: dict[str, Array] = {}
    for (operand, name), number in numbers.items():
        where = f"{operator.name}: {operand.parameter}"
        made[name] = as_number(number, types[operand.dtype], where).reshape((1,) * rank)
        tensors[name] = TensorDesc(types[operand.dtype], made[name].shape)
    attributes = attributes_of(operator, given, tensors, types, FeatureLevel.newest())
    outputs = outputs_of(operator, given, tensors, attributes, types)
    sizes = dict(repeated(operator, tensors, outputs))
    for name in sizes:
        tensors[name] = TensorDesc(tensors[name].data_type, sizes[name])
    problems = check(operator, tensors | outputs, attributes, FeatureLevel.newest())
    problems = problems or list(do_not_go_together(operator, given, tensors, outputs))
    problems = problems or list(_too_large(operator, outputs))
    if problems:
        told = [[in_parameters(operator, text) for text in (p.where, p.message, p.remedy)] for p in problems]
        raise InvalidOperator(*(Problem(*texts) for texts in told))
    by = implementation_of(operator, tensors | outputs, attributes, None)
    computation = Computation(operator, outputs, attributes, by, apply_activation, halves(None))
    truths = [n for n, x in inputs.items() if x.dtype == np.bool_]
    tries = 0 if made or by is None else _Prepared.tries
    holds_session = getattr(by, "holds_session", False)
    return _Prepared(operator, computation, outputs, [*inputs], made, sizes, truths, tries, holds_session)


def _too_large(operator: Operator, outputs: Mapping[str, TensorDesc]) -> Iterator[Problem]:
    """Outputs that the machine's memory cannot hold."""
    for name, desc in outputs.items():
        width = IN_ARRAYS[desc.data_type].itemsize
        if problem := size_problem(f"{operator.name}: {name}", desc.data_type.label, desc.sizes, width):
            yield problem


def _own(x: Array, given: Mapping[str, Array]) -> Array:
    """A result that is nobody else's memory."""
    flags, inputs = x.flags, given.values()
    if flags.owndata and flags.c_contiguous and flags.writeable:
        for y in inputs:
            if x is y:
                return x.copy()
        return x
    whole = not isinstance(x.base, np.ndarray) or x.base.nbytes == x.nbytes
    if not (whole and x.flags.c_contiguous and x.flags.writeable):
        return x.copy()
    return x.copy() if any(np.may_share_memory(x, y) for y in inputs) else x


def _apart(made: Mapping[str, Array], targets: Iterable[Array]) -> Mapping[str, Array]:
    """Results whose memory no target is, so that writing one changes no other."""
    return {n: x.copy() if any(np.may_share_memory(x, y) for y in targets) else x for n, x in made.items()}


def _type_of_target(operator: Operator, out: Any) -> TensorDataType | None:
    """The type that `out` asks for where there is a choice; `_targets` judges the rest of it."""
    given = out if isinstance(out, list | tuple) else [out]
    for operand, y in zip(operator.outputs, given, strict=False):
        if operand.dtype == operator.free_output and isinstance(y, np.ndarray):
            return FROM_NUMPY.get(y.dtype)
    return None


def _arrays(
    operator: Operator, given: Mapping[str, Any]
) -> tuple[dict[str, Array], dict[tuple[Operand, str], Any]]:
    """The tensors by field name; Python numbers apart, which take the type of the arrays beside them."""
    inputs: dict[str, Array] = {}
    numbers: dict[tuple[Operand, str], Any] = {}
    for operand in operator.inputs:
        x = given[operand.parameter]
        if x.__class__ is np.ndarray and x.dtype.isnative and not operand.array:
            inputs[operand.name] = x
        elif operand.array:
            if not isinstance(x, list | tuple):
                where = f"{operator.name}: {operand.parameter}"
                raise InvalidInput(Problem(where, f"expected a list of arrays, but got {type(x).__name__}"))
            if not x:
                where = f"{operator.name}: {operand.parameter}"
                raise InvalidInput(Problem(where, "expected at least one array, but got none"))
            inputs |= {field(operand.name, k): _array(operator, operand, y) for k, y in enumerate(x)}
        elif x is None and operand.optional is not None:
            continue
        elif isinstance(x, bool | int | float) and not isinstance(x, np.generic):
            numbers[operand, operand.name] = x
        else:
            inputs[operand.name] = _array(operator, operand, x)
    return inputs, numbers


def _array(operator: Operator, operand: Operand, x: Any) -> Array:
    y = to_array(operator, operand, x)
    if not isinstance(y, np.ndarray):
        where = f"{operator.name}: {operand.parameter}"
        raise InvalidInput(Problem(where, f"expected an array, but got {type(x).__name__}"))
    return y if y.dtype.isnative else y.astype(native(y.dtype))


def _overlaps_itself(y: Array) -> bool:
    """Whether two elements share memory; a layout too intricate to decide counts as one that does."""
    try:
        return overlaps_itself(y.shape, y.strides, y.itemsize)
    except TooIntricate:
        return True


def _targets(operator: Operator, out: Any, outputs: Mapping[str, TensorDesc]) -> dict[str, Array]:
    """`out` by field name, checked."""
    given = out if isinstance(out, list | tuple) else [out]
    problems = []
    if len(given) != len(outputs):
        problems.append(
            Problem(
                f"{operator.name}: out", f"expected {counted(len(outputs), 'array')}, but got {len(given)}"
            )
        )
    for (name, desc), y in zip(outputs.items(), given, strict=False):
        where = f"{operator.name}: out" + (f" for {name}" if len(outputs) > 1 else "")
        if not isinstance(y, np.ndarray) or y.shape != desc.sizes or y.dtype != IN_ARRAYS[desc.data_type]:
            got = f"{y.dtype} of shape {y.shape}" if isinstance(y, np.ndarray) else type(y).__name__
            wanted = f"{desc.data_type.label} of shape {desc.sizes}"
            problems.append(Problem(where, f"expected an array of {wanted}, but got {got}"))
        elif not y.flags.writeable:
            problems.append(Problem(where, "expected a writable array, but got a read-only one"))
        elif y.size and not y.flags.c_contiguous and _overlaps_itself(y):
            message = "expected every element in its own place, but the array overlaps itself"
            problems.append(Problem(where, message))
    if not problems and overlap_among(given):
        problems.append(Problem(f"{operator.name}: out", "expected arrays apart, but got an overlap"))
    if problems:
        raise InvalidInput(*problems)
    return dict(zip(outputs, given, strict=True))
