"""One use of an operator of whole tensors: its arrays and values by name, and what it gives.

def _gather(c: Call) -> Array:                          c.input, c.indices: arrays; c.axis: an attribute
    return np.take(c.input, c.indices, axis=c.axis)     c.output: a stand-in of the output's sizes and type,
                                                        or the memory where it is wanted (see `empty`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anydml.errors import require
from anydml.ops.attributes import Activation
from anydml.ops.dtypes import FROM_NUMPY, IN_ARRAYS
from anydml.ops.enums import TensorDataType
from anydml.ops.interpret import evaluate
from anydml.ops.tensor_desc import TensorDesc

if TYPE_CHECKING:
    from anydml.ops.opdef import Operand, Operator

Array = NDArray[Any]


class Call:
    """What definitions compute with: each tensor and attribute under the name of the function's parameter.

    A tensor that was left out is None, several tensors of one field are a list, and outputs are stand-ins.
    Rules and sizes look at `shape`, `ndim` and `dtype` alone: there the inputs are stand-ins, too.
    """

    operator: Operator
    types: Mapping[str, TensorDataType]
    """The outputs' data types, by parameter."""

    def __init__(
        self, operator: Operator, values: Mapping[str, Any], outputs: Mapping[str, TensorDesc]
    ) -> None:
        types = {s.parameter: outputs[s.name].data_type for s in operator.outputs if s.name in outputs}
        self.__dict__.update(values, operator=operator, types=types)

    def by_definition(self) -> Any:
        """What the operator's definition computes."""
        assert self.operator.compute is not None
        with np.errstate(all="ignore"):
            return self.operator.compute(self)

    def __getattr__(self, name: str) -> Any:
        """What functions are told and descriptions do not say."""
        for asked in self.operator.asks:
            if asked.name == name:
                return asked.of_outputs(self)
        raise AttributeError(f"{self.operator.name} has no {name}")


def stand_in(desc: TensorDesc) -> Array:
    """An array of a tensor's sizes and type, without memory of its own."""
    dtype, sizes = IN_ARRAYS.get(desc.data_type, _UINT8), desc.sizes
    return np.ndarray(sizes, dtype, _ONE_ZERO, 0, (0,) * len(sizes))  # broadcast_to takes ten times as long


_UINT8 = np.dtype(np.uint8)
_ONE_ZERO = bytes(16)
"""Memory that cannot be written."""


def empty(output: Array, dtype: np.dtype[Any]) -> Array:
    """Memory for an output, to be returned: where it is wanted, if that is of the type, or else new."""
    if output.flags.writeable and output.dtype == dtype:  # stand-ins are not
        return output
    return np.empty(output.shape, dtype)


def takes_results(y: Array, inputs: Iterable[Array]) -> bool:
    """Whether results may be computed in this memory, while these inputs are read."""
    flags = y.flags
    packed = y.__class__ is np.ndarray and flags.c_contiguous and flags.writeable and flags.aligned
    return packed and not any(np.may_share_memory(x, y) for x in inputs)


def field(operand: str, k: int) -> str:
    """The name of one of several tensors behind a field."""
    return f"{operand}[{k}]"


def by_parameter(operator: Operator, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of tensors by field name, by the names that a `Call` has."""
    found: dict[str, Any] = {}
    for operand in operator.tensors:
        if operand.array:
            found[operand.parameter] = [tensors[n] for n in fields_of(operand.name, tensors)]
        else:
            found[operand.parameter] = tensors.get(operand.name)
    return found


def fields_of(name: str, tensors: Mapping[str, Any]) -> Iterator[str]:
    """The names of the tensors behind a field of several, in order."""
    k = 0
    while field(name, k) in tensors:
        yield field(name, k)
        k += 1


def fields(operands: Sequence[Operand], count: int) -> list[str]:
    """The names of `count` tensors of these operands, of which one may stand for several."""
    several = count - sum(not s.array for s in operands)
    names: list[str] = []
    for s in operands:
        names += [field(s.name, k) for k in range(several)] if s.array else [s.name]
    return names


def names_of(operands: Sequence[Operand], tensors: Mapping[str, Any]) -> list[str]:
    """The names of all tensors of these operands, those that were left out included."""
    return [n for s in operands for n in (fields_of(s.name, tensors) if s.array else [s.name])]


def described(operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any]) -> Call:
    """A description as a call of stand-ins: for rules and sizes."""
    values = by_parameter(operator, {name: stand_in(desc) for name, desc in tensors.items()})
    values |= {a.parameter: attributes.get(a.name) for a in operator.attributes}
    values |= {s.parameter: values[s.parameter] or None for s in operator.outputs if s.array}
    return Call(operator, values, tensors)


Implementation = Callable[[Call], Any]
"""What computes a call: the array of its output, or one for each of them."""


class Halves:
    """How float16 gets to what computes in float32, and back: by NumPy."""

    def widened(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The inputs, those of float16 as float32."""
        return {n: x.astype(np.float32) if x.dtype.char == "e" else x for n, x in inputs.items()}

    def rooms(self, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """Memory for results that are to be rounded, where they may be computed."""
        return {}

    def computed(self, compute: Implementation, call: Call) -> Any:
        """What is computed between reading and rounding."""
        return compute(call)

    def rounded(self, x: Array, result: Array | None) -> Array:
        """A result as float16, in memory that is there for it; or as it is, which is rounded later."""
        return x


_BY_NUMPY = Halves()


class Computation:
    """An operator of whole tensors on sizes and types that are known: made once, called again and again.

    float16 is computed in float32 and rounded once; operators that only move elements are left their types.
    """

    def __init__(
        self,
        operator: Operator,
        outputs: Mapping[str, TensorDesc],
        attributes: Mapping[str, Any],
        by: Implementation | None = None,
        apply: Callable[[Activation, Array], Array] | None = None,
        halves: Halves = _BY_NUMPY,
    ) -> None:
        """`by`: another implementation than the definition's, which tells by `activates` that it does the
        fused activation; `apply`: what does it otherwise, and may do so in the result's memory; `halves`:
        what reads and rounds float16 around `by`."""
        assert operator.compute is not None
        self._operator, self._outputs, self.by = operator, outputs, by
        self._compute: Implementation = by or Call.by_definition
        self._inputs: list[tuple[str, str | list[str]]] = []
        """Parameters, and the fields behind them, which the first inputs tell."""
        self.fields = [
            [*fields_of(s.name, outputs)] if s.array else s.name if s.name in outputs else None
            for s in operator.outputs
        ]
        """Of each output: a list where there may be several, None where it is not wanted."""
        self._wanted = {name: (desc.sizes, IN_ARRAYS[desc.data_type]) for name, desc in outputs.items()}
        self._only = None
        """The output's name, if it can have but one."""
        if len(operator.outputs) == 1 and not operator.outputs[0].array:
            (self._only,) = outputs
        self._halves = _BY_NUMPY if by is None else halves
        halved = {} if operator.moves else self._wanted
        self._rounded = {n: sizes for n, (sizes, dtype) in halved.items() if dtype.char == "e"}
        """The sizes of outputs that are rounded to float16."""
        self._stand_ins = {name: stand_in(desc) for name, desc in outputs.items()}
        values = by_parameter(operator, self._stand_ins)
        values = {s.parameter: values[s.parameter] for s in operator.outputs}
        values |= {a.parameter: attributes.get(a.name) for a in operator.attributes}
        self._values = vars(Call(operator, values, outputs))
        fused = attributes.get("FusedActivation")
        activated = getattr(by, "activates", False)
        self._activation = fused if isinstance(fused, Activation) and not activated else None
        self._apply = apply or activate

    def __call__(
        self, inputs: Mapping[str, Array], memory: dict[str, Array] | None = None
    ) -> dict[str, Array]:
        """The outputs, by field name: arrays of the described sizes and types, or views of such.

        `memory`: where outputs may be computed, of their sizes and types (see `takes_results`). Those that
        were are these arrays.
        """
        halves, places = self._halves, memory or {}
        reads_halves = not self._operator.moves and "e" in [x.dtype.char for x in inputs.values()]
        if reads_halves:
            inputs = halves.widened(inputs)
        if self._rounded:
            places = places | halves.rooms(self._rounded)
        values = self._values.copy()
        if not self._inputs:
            self._inputs = [
                (s.parameter, [*fields_of(s.name, inputs)] if s.array else s.name)
                for s in self._operator.inputs
            ]
        for parameter, name in self._inputs:
            values[parameter] = [inputs[n] for n in name] if isinstance(name, list) else inputs.get(name)
        if places:
            outputs = by_parameter(self._operator, self._stand_ins | places)
            values |= {s.parameter: outputs[s.parameter] for s in self._operator.outputs}
        call = Call.__new__(Call)
        call.__dict__ = values
        is_half = reads_halves or self._rounded
        made = halves.computed(self._compute, call) if is_half else self._compute(call)
        if self._only is None:
            results = self._by_field(made if len(self.fields) > 1 else (made,))
        else:
            results = {self._only: np.asarray(made)}
        if self._activation is not None:
            first = next(iter(results))
            results[first] = self._apply(self._activation, results[first])
        for name in self._rounded:
            results[name] = halves.rounded(results[name], (memory or {}).get(name))
        return {n: _as_type(results[n], *wanted) for n, wanted in self._wanted.items()}

    def _by_field(self, parts: Sequence[Any]) -> dict[str, Array]:
        """Results in the order of the outputs, by field name; those that nobody wants left out."""
        found: dict[str, Array] = {}
        for name, part in zip(self.fields, parts, strict=True):
            if isinstance(name, list):
                found.update(zip(name, map(np.asarray, part), strict=True))
            elif name is not None:
                found[name] = np.asarray(part)
        return found


def activate(activation: Activation, x: Array) -> Array:
    """An activation of every element, in the array's type."""
    dtype = FROM_NUMPY[x.dtype]
    meaning = activation.operator.expression((dtype,), dtype, activation.attributes, max(x.ndim, 1))
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(meaning, [x]), x.shape)


def _as_type(x: Array, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A result in the type of its tensor: floats rounded, whole numbers taken modulo their width."""
    require(x.shape == sizes)
    if x.dtype == dtype:
        return x
    with np.errstate(all="ignore"):
        return x.astype(dtype)
