"""The vocabulary of an operator definition: operands, attributes, level tables.

Each operand has a type variable and a shape variable. Operands that share one must agree, and type variables
key the feature-level tables, so that a constraint and its table cannot disagree. What variables cannot say
is a rule of its own, beside the table of the level it holds from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Literal

from anydml.cached import cached_property
from anydml.dataclass import dataclass, field, replace
from anydml.errors import Problem, Unsupported
from anydml.ops.attributes import AxesKind, EnumKind, FloatKind, Kind, ScaleBiasKind
from anydml.ops.enums import FeatureLevel, OperatorType, TensorDataType
from anydml.ops.expr import Expr, Scalar, convert, read
from anydml.ops.shapes import from_terms


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


ONE = "1"
"""The sizes type variable of a tensor of one element."""


@dataclass(frozen=True)
class Operand:
    """One tensor of an operator: its DirectML field name, direction, and the type variables it is tied by."""

    name: str
    kind: Literal["input", "output"]
    dtype: str
    sizes: str
    optional: FeatureLevel | None = None
    """The level from which the tensor may be left out."""
    count: str = ""
    """Of several tensors behind one field: the field that tells how many."""
    dtypes: tuple[str, ...] = ()
    """Their types where they differ, one after the other; the last one is that of all further ones, too."""

    def nth(self, k: int) -> Operand:
        """One of several tensors, as an operand of its own."""
        dtype = self.dtypes[min(k, len(self.dtypes) - 1)] if self.dtypes else self.dtype
        return replace(self, name=f"{self.name}[{k}]", dtype=dtype, count="", dtypes=())

    @cached_property
    def array(self) -> bool:
        """Whether several tensors stand behind the field."""
        return bool(self.count)

    @cached_property
    def parameter(self) -> str:
        """The field in snake case without `Tensor`: `ConditionTensor` is `condition`."""
        plural = "s" if self.array else ""
        return snake(self.name.removesuffix("s" * self.array).removesuffix("Tensor")) + plural


REQUIRED: Any = object()
"""The default of an attribute that the Python functions must be given."""


@dataclass(frozen=True)
class Attribute:
    """A field of an operator that is not a tensor."""

    name: str
    kind: Kind
    default: Any
    """What the Python functions take when it is not given (as DirectMLX); a description must give it."""
    parameter: str
    optional: bool = False
    """A description may leave it out; then it is None."""
    count: str = ""
    """The field that tells its length, which a description may leave out."""
    implied: bool = False
    """It must repeat what the tensors say (a rule sees to it), so that functions do not ask for it."""
    per: Literal["", "dimension", "spatial"] = ""
    """Of a list: it has one entry for each dimension, or each behind the first two. Functions take one
    number for all of them."""
    since: Mapping[Any, FeatureLevel] = field(default_factory=dict, hash=False)
    """Values that are allowed only from a level on."""


@dataclass(frozen=True)
class Asked:
    """What a function must be told to know its outputs' sizes, and a description tells by them."""

    name: str
    annotation: str
    documented: str
    of_outputs: Callable[[Any], Any]
    """The value in a description, of its `Call`."""
    default: Any = REQUIRED


def inp(
    name: str,
    *,
    dtype: str | tuple[str, ...],
    sizes: str = "",
    optional: FeatureLevel | None = None,
    count: str = "",
) -> Operand:
    several = dtype if isinstance(dtype, tuple) else ()
    return Operand(name, "input", several[0] if several else str(dtype), sizes, optional, count, several)


def out(
    name: str, *, dtype: str, sizes: str = "", optional: FeatureLevel | None = None, count: str = ""
) -> Operand:
    return Operand(name, "output", dtype, sizes, optional, count)


def attr(
    name: str,
    type: type[Enum] | Kind = FloatKind(),  # noqa: B008  (immutable)
    default: Any = REQUIRED,
    *,
    parameter: str = "",
    implied: bool = False,
    optional: bool | None = None,
    count: str = "",
    per: Literal["", "dimension", "spatial"] = "",
    since: Mapping[Any, FeatureLevel] | None = None,
) -> Attribute:
    kind = type if isinstance(type, Kind) else EnumKind(type)
    count = count or ("AxisCount" if isinstance(kind, AxesKind) else "DimensionCount" if per else "")
    optional = default is None if optional is None else optional
    return Attribute(
        name, kind, default, parameter or snake(name), optional, count, implied, per, since or {}
    )


SCALE_BIAS = attr("ScaleBias", ScaleBiasKind(), None)


@dataclass(frozen=True)
class Rule:
    """A constraint that type variables cannot say."""

    text: str
    """For the documentation: what must hold."""
    broken: Callable[..., Iterable[tuple[str, str]]]
    """Message and remedy of each breach, of the tensors and attributes (by field name) that could be read."""
    of_call: bool = False
    """It is asked of a `Call` instead, if all that the operator needs is there and of legal ranks."""


@dataclass(frozen=True)
class Table:
    """What one feature level allows: ranks (both ends included), the types of each type variable, rules."""

    rank: tuple[int, int]
    dtypes: Mapping[str, tuple[TensorDataType, ...]]
    rules: tuple[Rule, ...] = ()
    ranks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By field name, of tensors that have ranks of their own."""

    def rank_of(self, operand: Operand) -> tuple[int, int]:
        return self.ranks.get(operand.name, self.rank)


def at(
    *,
    rank: tuple[int, int],
    rules: tuple[Rule, ...] = (),
    ranks: Mapping[str, tuple[int, int]] | None = None,
    **dtypes: TensorDataType | tuple[TensorDataType, ...],
) -> Table:
    return Table(
        rank,
        {type_variable: d if isinstance(d, tuple) else (d,) for type_variable, d in dtypes.items()},
        rules,
        ranks or {},
    )


Levels = Mapping[FeatureLevel, Table]


@dataclass(frozen=True)
class Example:
    """Input arrays in operand order (None: left out), attributes by parameter, and the output computed."""

    inputs: tuple[Any, ...]
    output: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, TensorDataType] = field(default_factory=dict)
    """By type variable, where FLOAT32 (or what comes first in the table) will not do."""


def example(*arrays: Any, types: Mapping[str, TensorDataType] | None = None, **attributes: Any) -> Example:
    """The last array is the output."""
    return Example(arrays[:-1], arrays[-1], attributes, types or {})


def _by_name(name: str) -> Operator:
    """A definition that was pickled or copied: there is one of each name."""
    from anydml.ops.catalog import BY_NAME

    if name not in BY_NAME:
        remedy = "it was pickled by another version of anydml"
        raise Unsupported(
            Problem(name, "expected an operator, but this version has none of that name", remedy)
        )
    return BY_NAME[name]


@dataclass(frozen=True, eq=False)
class Operator:
    """One DirectML operator, whole. Validation, functions, parser, kernel and reference derive from it."""

    name: str
    doc: str
    operands: tuple[Operand | Attribute, ...]
    levels: Levels
    scalar: Scalar | None
    """The meaning of one output element: of the inputs' elements, then the attributes, in operand order.
    An optional tensor or attribute that is not there is None; an implied attribute is not handed over.
    None: an operator of whole tensors, whose meaning is `compute`."""
    example: Example
    in_place: tuple[str, ...] = field(default=())
    notes: str = ""
    """For the documentation: what DirectML's documents leave open, and how it is here."""
    of_bool: bool = False
    """Of 0s and 1s it makes 0s and 1s: functions give bools for bools."""
    told: bool = False
    """The output may have any type: functions must be told which."""
    compute: Callable[[Any], Any] | None = None
    """The meaning of an operator of whole tensors: of its `Call`, the output array, or a tuple of them."""
    sizes: Callable[[Any], Any] | None = None
    """The outputs' sizes, of a `Call`: those of the output, or a tuple (of several behind one field, a list)
    of them. None where an output's sizes are the `S` of an input."""
    shapes: Mapping[str, str] = field(default_factory=dict)
    """Of an operator of whole tensors, by parameter: see `anydml.ops.shapes`."""
    asks: tuple[Asked, ...] = ()
    moves: bool = False
    """It computes nothing: elements keep their bits."""
    view: Callable[[Any], Any] | None = None
    """Where the output is elements of the input in another order, or again: those as a view of the input (if
    it is packed), in the output's order."""
    text: str = ""
    """The formula of an operator of whole tensors, for the documentation."""
    usual_type: Callable[[Mapping[str, Any], Mapping[str, TensorDataType]], TensorDataType] | None = None
    """The type of the output where nobody asks for one, and the inputs alone do not decide it: of the
    function's arguments, and of the types by letter."""

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    @cached_property
    def type(self) -> OperatorType:
        return OperatorType[self.name]

    @cached_property
    def function(self) -> str:
        """The name of its Python function."""
        name = self.name.removeprefix("ELEMENT_WISE_").lower()
        if name in _COMPARISONS:
            return name.removeprefix("logical_")
        return "if_" if name == "if" else name

    @cached_property
    def inputs(self) -> tuple[Operand, ...]:
        return tuple(s for s in self.operands if isinstance(s, Operand) and s.kind == "input")

    @cached_property
    def outputs(self) -> tuple[Operand, ...]:
        return tuple(s for s in self.operands if isinstance(s, Operand) and s.kind == "output")

    @cached_property
    def gives_several(self) -> bool:
        """Whether its function gives a tuple of arrays."""
        return len(self.outputs) > 1 or self.outputs[0].array

    @cached_property
    def tensors(self) -> tuple[Operand, ...]:
        return tuple(s for s in self.operands if isinstance(s, Operand))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(s for s in self.operands if isinstance(s, Attribute))

    @cached_property
    def parameters(self) -> tuple[Attribute, ...]:
        """The attributes that functions ask for."""
        return tuple(a for a in self.attributes if not a.implied)

    @cached_property
    def asked(self) -> tuple[Attribute, ...]:
        """`parameters` in the order of the Python function: what must be given, what has a default, and
        ScaleBias last (as in DirectMLX)."""
        rank = lambda a: 0 if a.default is REQUIRED else 2 if a.name == "ScaleBias" else 1  # noqa: E731
        return tuple(sorted(self.parameters, key=rank))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of all parameters of the function that are no tensors."""
        return (*(a.name for a in self.asks), *(a.parameter for a in self.asked))

    @cached_property
    def has_axes(self) -> bool:
        return any(isinstance(a.kind, AxesKind) for a in self.attributes)

    @cached_property
    def has_special_shapes(self) -> bool:
        """Whether functions must look at more than whether the shapes broadcast."""
        return any(s.sizes == ONE for s in self.tensors) or bool(self.levels[max(self.levels)].rules)

    @property
    def introduced(self) -> FeatureLevel:
        return min(self.levels)

    @cached_property
    def free_output(self) -> str | None:
        """The type variable of the output's type if its inputs need not decide it."""
        tied = {s.dtype for s in self.inputs if s.optional is None}
        if len(self.inputs) > 1:  # one of several must be given, by a rule
            tied = tied or {s.dtype for s in self.inputs}
        return next((s.dtype for s in self.outputs if s.dtype not in tied), None)

    @cached_property
    def output_types(self) -> tuple[TensorDataType, ...]:
        """What a caller may choose the output's type from; nothing where there is no choice."""
        allowed = self.levels[max(self.levels)].dtypes[self.free_output] if self.free_output else ()
        return allowed if len(allowed) > 1 else ()

    def example_type(self, type_variable: str) -> TensorDataType:
        """The type of the example's arrays behind a type variable."""
        allowed = self.levels[max(self.levels)].dtypes[type_variable]
        usual = [TensorDataType.UINT8] if type_variable == self.free_output and self.scalar else []
        usual += [TensorDataType.FLOAT32, TensorDataType.UINT32]
        preferred = (
            [self.example.types.get(type_variable, allowed[0])]
            if type_variable in self.example.types
            else usual
        )
        return next((t for t in preferred if t in allowed), allowed[0])

    def table(self, level: FeatureLevel) -> Table | None:
        """The effective table: the newest at or below `level`; None below the introduction."""
        reached = [at_level for at_level in self.levels if at_level <= level]
        return self.levels[max(reached)] if reached else None

    def allowed_from(self, type_variable: str, dtype: TensorDataType) -> FeatureLevel | None:
        """The first level whose table has `dtype` behind `type_variable`, if any has."""
        return min((lv for lv, t in self.levels.items() if dtype in t.dtypes[type_variable]), default=None)

    def expression(
        self,
        inputs: tuple[TensorDataType | None, ...],
        output: TensorDataType,
        attributes: Mapping[str, Any],
        rank: int,
    ) -> Expr:
        """The meaning for these input types and attribute values, as the output's type.

        Operands are numbered over the inputs that are there. Axes are taken modulo `rank`, each once.
        """
        assert self.scalar is not None
        symbols: list[Expr | None] = []
        for dtype in inputs:
            given = sum(s is not None for s in symbols)
            symbols.append(None if dtype is None else read(given, dtype))
        values = []
        for attribute in self.parameters:
            value = attributes.get(attribute.name)
            if isinstance(attribute.kind, AxesKind) and value is not None:
                value = tuple(sorted({a % rank - rank for a in value}))
            values.append(value)
        return convert(self.scalar(*symbols, *values), output)


def of_tensors(
    *,
    name: str,
    doc: str,
    operands: tuple[Operand | Attribute, ...],
    levels: Levels,
    example: Example,
    text: str,
    compute: Callable[[Any], Any] | None = None,
    view: Callable[[Any], Any] | None = None,
    usual_type: Callable[[Mapping[str, Any], Mapping[str, TensorDataType]], TensorDataType] | None = None,
    sizes: Callable[[Any], Any] | None = None,
    shapes: Mapping[str, str] | None = None,
    asks: tuple[Asked, ...] = (),
    moves: bool = False,
    in_place: tuple[str, ...] = (),
    notes: str = "",
) -> Operator:
    """An operator of whole tensors, by what it computes, or by what it is a view of.

    `sizes`: where the outputs' `shapes` do not say them.
    """
    if view is not None:
        compute, moves = _viewed(view), True
    assert compute is not None
    tensors = [s for s in operands if isinstance(s, Operand)]
    outputs = [s for s in tensors if s.kind == "output"]
    given = [s for s in tensors if s.kind == "input" and s.optional is None]
    tied = {s.sizes for s in given if s.sizes}
    if sizes is None and shapes and not all(s.sizes in tied for s in outputs):
        sizes = from_terms(shapes, [s.parameter for s in given], [s.parameter for s in outputs])
    return Operator(
        name,
        doc,
        operands,
        levels,
        None,
        example,
        in_place,
        notes,
        compute=compute,
        sizes=sizes,
        shapes=shapes or {},
        asks=asks,
        moves=moves,
        view=view,
        text=text,
        usual_type=usual_type,
    )


def _viewed(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda c: view(c).reshape(c.output.shape)


_COMPARISONS = (
    "logical_equals",
    "logical_greater_than",
    "logical_greater_than_or_equal",
    "logical_less_than",
    "logical_less_than_or_equal",
)
