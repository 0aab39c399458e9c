"""The kinds of fields that are not tensors: how a value is read, and what becomes of it in a formula."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anydml.dataclass import dataclass, field
from anydml.errors import InvalidOperator, Problem, short_repr
from anydml.ops.dtypes import FLOATING, NUMPY, ScalarType
from anydml.ops.enums import FeatureLevel, parse

if TYPE_CHECKING:
    from anydml.ops.opdef import Operator


class Kind:
    """How the values of an attribute are written. `read` gives the value that definitions compute with."""

    annotation: ClassVar[str] = "Any"
    """Of the Python parameter."""
    form: str = "..."
    """How a description writes it, for messages."""
    documented: str = ""

    def read(self, value: object, where: str) -> Any:
        raise NotImplementedError


def _refuse(where: str, message: str, remedy: str = "") -> InvalidOperator:
    return InvalidOperator(Problem(where, message, remedy))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def _name_infinity(value: object) -> object:
    """JSON has no infinities: they are written as strings."""
    if isinstance(value, str) and value.strip().lower().lstrip("+-") in ("inf", "infinity", "nan"):
        return float(value)
    return value


@dataclass(frozen=True)
class EnumKind(Kind):
    cls: type[Enum]

    @property
    def annotation(self) -> str:  # type: ignore[override]
        return f"{self.cls.__name__} | str"

    @property
    def form(self) -> str:  # type: ignore[override]
        return " | ".join(n for n in self.cls.__members__ if n != "UNKNOWN")

    @property
    def documented(self) -> str:  # type: ignore[override]
        return f"a `{self.cls.__name__}` or its name: {self.form}"

    def read(self, value: object, where: str) -> Any:
        return parse(self.cls, value, where)


@dataclass(frozen=True)
class FloatKind(Kind):
    """A FLOAT field: a number, rounded to float32."""

    annotation: ClassVar[str] = "float"
    form = "a number"
    documented = "a number (float32)"

    def read(self, value: object, where: str) -> float:
        value = _name_infinity(value)
        if not _is_number(value):
            raise _refuse(where, f"expected a number, but got {short_repr(value)}")
        try:
            with np.errstate(over="ignore"):
                number: float = np.float32(value).item()  # type: ignore[arg-type]
            if math.isfinite(number) or not math.isfinite(value):  # type: ignore[arg-type]
                return number
        except OverflowError:
            pass
        raise _refuse(where, f"expected a number that float32 can hold, but got {short_repr(value)}")


@dataclass(frozen=True)
class ScalarKind(Kind):
    """A DML_SCALAR_UNION: a number of the tensor's own type."""

    annotation: ClassVar[str] = "float"
    form = "a number of the tensor's type"
    documented = "a number of the tensor's type"

    def read(self, value: object, where: str) -> int | float:
        value = _name_infinity(value)
        if not _is_number(value):
            raise _refuse(where, f"expected a number, but got {short_repr(value)}")
        return int(value) if isinstance(value, Integral) else float(value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class ScaleBias:
    """Scale and bias applied to the input first: x * scale + bias (DML_SCALE_BIAS)."""

    scale: float
    bias: float


@dataclass(frozen=True)
class ScaleBiasKind(Kind):
    annotation: ClassVar[str] = "ScaleBias | tuple[float, float] | None"
    form = '{"Scale": 1.0, "Bias": 0.0}'
    documented = "(scale, bias): the input is taken times scale plus bias first"

    def read(self, value: object, where: str) -> ScaleBias:
        if isinstance(value, ScaleBias):
            value = (value.scale, value.bias)
        if isinstance(value, Mapping):
            if set(value) != {"Scale", "Bias"}:
                raise _refuse(where, f"expected {self.form}, but got {short_repr(value)}")
            value = (value["Scale"], value["Bias"])
        if not isinstance(value, tuple) or len(value) != 2:
            raise _refuse(
                where, f"expected a scale and a bias, but got {short_repr(value)}", f"write {self.form}"
            )
        number = FloatKind()
        return ScaleBias(number.read(value[0], f"{where}.Scale"), number.read(value[1], f"{where}.Bias"))


@dataclass(frozen=True)
class AxesKind(Kind):
    annotation: ClassVar[str] = "Sequence[int] | int"
    form = "[0, ...]"
    documented = "the dimensions that a row runs along, counted from 0 or (negative) from the end"

    def read(self, value: object, where: str) -> tuple[int, ...]:
        listed = isinstance(value, list | tuple | range) or np.ndim(value) == 1  # type: ignore[arg-type]
        if not listed or not all(
            isinstance(a, Integral) and not isinstance(a, bool | np.bool_)
            for a in value  # type: ignore[attr-defined]
        ):
            raise _refuse(where, f"expected a list of integers, but got {short_repr(value)}")
        return tuple(int(a) for a in value)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class IntegerKind(Kind):
    """A UINT or INT field."""

    signed: bool = False

    annotation: ClassVar[str] = "int"

    @property
    def form(self) -> str:  # type: ignore[override]
        return "an integer" if self.signed else "an integer from 0 on"

    @property
    def documented(self) -> str:  # type: ignore[override]
        return self.form

    def read(self, value: object, where: str) -> int:
        low, high = (-(2**31), 2**31 - 1) if self.signed else (0, 2**32 - 1)
        if not _is_integer(value) or not low <= value <= high:  # type: ignore[operator]
            bounds = "-2^31 to 2^31-1" if self.signed else "0 to 2^32-1"
            raise _refuse(where, f"expected an integer from {bounds}, but got {short_repr(value)}")
        return int(value)  # type: ignore[call-overload,no-any-return]


@dataclass(frozen=True)
class BoolKind(Kind):
    """A BOOL field. JSON files write 0 and 1 as well."""

    annotation: ClassVar[str] = "bool"
    form = "true | false"
    documented = "True or False"

    def read(self, value: object, where: str) -> bool:
        if isinstance(value, bool | np.bool_) or (_is_integer(value) and value in (0, 1)):
            return bool(value)
        raise _refuse(where, f"expected true or false, but got {short_repr(value)}")


@dataclass(frozen=True)
class ListKind(Kind):
    """A list of numbers whose length is a field of its own, or the tensors'."""

    item: IntegerKind | FloatKind

    @property
    def annotation(self) -> str:  # type: ignore[override]
        return f"Sequence[{self.item.annotation}] | {self.item.annotation}"

    @property
    def form(self) -> str:  # type: ignore[override]
        return "[1.0, ...]" if isinstance(self.item, FloatKind) else "[1, ...]"

    @property
    def documented(self) -> str:  # type: ignore[override]
        return f"a list; each {self.item.documented}"

    def read(self, value: object, where: str) -> tuple[Any, ...]:
        flat = isinstance(value, list | tuple | range) or (isinstance(value, np.ndarray) and value.ndim == 1)
        if not flat:
            raise _refuse(where, f"expected a list such as {self.form}, but got {short_repr(value)}")
        items: Any = value.tolist() if isinstance(value, np.ndarray) else value
        return tuple(self.item.read(v, f"{where}[{k}]") for k, v in enumerate(items))


@dataclass(frozen=True)
class Size2DKind(Kind):
    """A DML_SIZE_2D: (height, width) in functions."""

    annotation: ClassVar[str] = "tuple[int, int]"
    form = '{"Width": 2, "Height": 2}'
    documented = "(height, width)"

    def read(self, value: object, where: str) -> tuple[int, int]:
        number = IntegerKind()
        if isinstance(value, Mapping) and set(value) == {"Width", "Height"}:
            return number.read(value["Height"], f"{where}.Height"), number.read(
                value["Width"], f"{where}.Width"
            )
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise _refuse(where, f"expected {self.form}, but got {short_repr(value)}")
        return number.read(value[0], where), number.read(value[1], where)


UINT, INT, BOOLEAN = IntegerKind(), IntegerKind(signed=True), BoolKind()
UINTS, INTS, FLOATS = ListKind(UINT), ListKind(INT), ListKind(FloatKind())


@dataclass(frozen=True, eq=False)
class Activation:
    """An activation that another operator applies to its result."""

    operator: Operator
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Activation) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.operator, *self.attributes.items()


@dataclass(frozen=True)
class ActivationKind(Kind):
    """An operator description without tensors. Read by directml.descriptions, which knows all."""

    allowed: tuple[str, ...]
    later: tuple[tuple[str, FeatureLevel], ...] = ()
    """Those that are allowed only from a level on."""

    annotation: ClassVar[str] = "Mapping[str, Any] | OperatorDesc | str | None"
    form = '{"Type": "ACTIVATION_RELU"}'
    documented = (
        'an activation applied to the result: its name, or a description such as {"Type": "ACTIVATION_RELU"}'
    )


@dataclass(frozen=True)
class ActivationsKind(Kind):
    """A list of operator descriptions without tensors, one for each function of a recurrent cell."""

    each: ActivationKind

    annotation: ClassVar[str] = "Sequence[Mapping[str, Any] | OperatorDesc | str] | None"
    form = '[{"Type": "ACTIVATION_TANH"}, ...]'
    documented = "the activations: each a name, or a description"


def signs(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The signs of the numbers among values of attributes, which tell 0.0 and -0.0 apart."""
    result: list[Any] = []
    for value in values:
        if isinstance(value, float):
            result.append(math.copysign(1.0, value))
        elif isinstance(value, ScaleBias):
            result.append(signs((value.scale, value.bias)))
        elif isinstance(value, Activation):
            result.append(signs(tuple(value.attributes.values())))
    return tuple(result)


def as_type(value: int | float, dtype: ScalarType) -> int | float:
    """A number converted to a tensor's type: to integers it truncates and saturates, and NaN becomes 0.

    >>> from anydml.ops.dtypes import INT32, UINT8
    >>> as_type(-1.5, UINT8), as_type(2.5, INT32)
    (0, 2)
    """
    if dtype in FLOATING:
        try:
            with np.errstate(over="ignore"):
                return float(NUMPY[dtype].type(value))
        except OverflowError:  # an integer beyond any float
            return math.inf if value > 0 else -math.inf
    info = np.iinfo(NUMPY[dtype])
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else int(info.max if value > 0 else info.min)
    return min(max(int(value), int(info.min)), int(info.max))
