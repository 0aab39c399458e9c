"""Operators of whole tensors on NumPy arrays, at once: what their functions do.

DirectML's rules of the newest feature level hold, sizes included: what functions have of NumPy is that types
and sizes of results follow from the arguments, that negative axes count from the end, and that one number
stands for a list of equal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import Parameter, Signature
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.directml.arguments import (
    attributes_of,
    do_not_go_together,
    outputs_of,
    repeated,
    types_in,
    types_of,
)
from anydml.directml.descriptions import OperatorDesc  # noqa: F401  (annotations name what is not used)
from anydml.directml.type_inference import as_number
from anydml.directml.validation import check
from anydml.eager import Out, Tensor, asked_type, in_parameters, overlaps, to_array  # noqa: F401
from anydml.errors import InvalidInput, InvalidOperator, Problem, counted
from anydml.expression import Expression
from anydml.heavy import implementation_of
from anydml.lazy import compute_lazily, is_lazy
from anydml.ops.attributes import ScaleBias  # noqa: F401
from anydml.ops.call import Computation, field, takes_results
from anydml.ops.docstring import docstring
from anydml.ops.dtypes import FROM_NUMPY, IN_ARRAYS, native
from anydml.ops.enums import (  # noqa: F401
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DepthSpaceOrder,
    FeatureLevel,
    InterpolationMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    PaddingMode,
    QuantizationType,
    RandomGeneratorType,
    RecurrentNetworkDirection,
    ReduceFunction,
    TensorDataType,
)
from anydml.ops.opdef import Operand, Operator
from anydml.ops.signature import signature
from anydml.ops.tensor_desc import TensorDesc, TooIntricate, overlaps_itself
from anydml.runtime.launch import apply_activation
from anydml.runtime.memory import size_problem

Array = NDArray[Any]


def function(operator: Operator, module: str) -> Callable[..., Any]:
    """The operator's function, as one of `module`."""
    form = signature(operator)
    bind = _binder(operator, form)
    manners: dict[Any, _Manner] = {}

    def call(*args: Any, **kwargs: Any) -> Any:
        named = (len(args), *kwargs)
        manner = manners.get(named)
        kind = None if manner is None else manner.kind_of((*args, *kwargs.values()))
        if kind is not None:
            prepared = _KNOWN.get(kind[0])
            if prepared is not None:
                arrays = dict(zip(prepared.names, kind[1], strict=True))
                out = kwargs.get("out")
                return prepared.results(arrays) if out is None else prepared.write(arrays, out)
        given = bind(args, kwargs)
        if manner is None:
            manners[named] = _Manner(operator, [*list(form.parameters)[: len(args)], *kwargs])
        out, output_data_type = given.pop("out"), given.pop("output_data_type", None)
        for s in operator.inputs:
            x = given[s.parameter]
            if x.__class__ is np.ndarray or x is None:
                continue
            for one in x if s.array and isinstance(x, list | tuple) else [x]:
                if isinstance(one, Expression):
                    if out is not None:
                        message = "expected no `out` beside an expression, which has no memory yet"
                        raise InvalidInput(Problem(operator.name, message))
                    return one._builder.record_tensors(operator, given, output_data_type)
                if is_lazy(one):
                    return compute_lazily(operator, call, bind(args, kwargs))
        return _compute(operator, given, output_data_type, out, kind)

    call.__signature__ = form  # type: ignore[attr-defined]
    call.__module__, call.__name__, call.__qualname__ = module, operator.function, operator.function
    annotations = {p.name: p.annotation for p in form.parameters.values()}
    call.__annotations__ = annotations | {"return": form.return_annotation}
    call.__doc__ = docstring(operator)
    return call


def _binder(operator: Operator, form: Signature) -> Callable[[Any, Any], dict[str, Any]]:
    """The arguments of a call by name, with defaults: what `form.bind` does, in a tenth of its time."""
    by_place = [p.name for p in form.parameters.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    defaults = {n: p.default for n, p in form.parameters.items() if p.default is not Parameter.empty}
    required = form.parameters.keys() - defaults.keys()

    def bind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        placed = dict(zip(by_place, args, strict=False))
        given = {**defaults, **placed, **kwargs}
        if (
            len(placed) != len(args)
            or not placed.keys().isdisjoint(kwargs)
            or not required <= given.keys()
            or len(given) != len(form.parameters)
        ):
            try:
                form.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{operator.function}(): {error}") from None
            raise AssertionError(f"{operator.function} cannot bind its arguments")
        return given

    return bind


@dataclass(frozen=True)
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


def _know(key: Any, prepared: _Prepared) -> None:
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[key] = prepared


class _Manner:
    """How calls are written, with arguments of these names: which of them are tensors."""

    def __init__(self, operator: Operator, names: Sequence[str]) -> None:
        tensors = [s.parameter for s in operator.inputs]
        self._tensors = [names.index(n) for n in tensors if n in names]
        self._others = [k for k, n in enumerate(names) if n not in (*tensors, "out")]
        self._out = names.index("out") if "out" in names and operator.output_types else None
        """Where it says what type is wanted."""
        self._written = operator, tuple(names)

    def kind_of(self, values: Sequence[Any]) -> tuple[Any, list[Array]] | None:
        """What tells such calls apart, and their arrays; None of arguments that need a closer look."""
        if self._out is not None and values[self._out] is not None:
            return None
        key: list[Any] = [self._written]
        arrays: list[Array] = []
        for k in self._tensors:
            x = values[k]
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
            x = values[k]
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


_PLAIN = {int, bool, str, type(None)}
_NUMBERS = {int, float}


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
    problems = problems or list(do_not_go_together(operator, tensors, outputs))
    problems = problems or list(_too_large(operator, outputs))
    if problems:
        told = [[in_parameters(operator, text) for text in (p.where, p.message, p.remedy)] for p in problems]
        raise InvalidOperator(*(Problem(*texts) for texts in told))
    by = implementation_of(operator, tensors | outputs, attributes, None)
    computation = Computation(operator, outputs, attributes, by, apply_activation)
    truths = [n for n, x in inputs.items() if x.dtype == np.bool_]
    return _Prepared(operator, computation, outputs, [*inputs], made, sizes, truths)


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
    if not problems and any(overlaps(x, y) for x, y in combinations(given, 2)):
        problems.append(Problem(f"{operator.name}: out", "expected arrays apart, but got an overlap"))
    if problems:
        raise InvalidInput(*problems)
    return dict(zip(outputs, given, strict=True))
