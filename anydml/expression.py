"""Tensors of a graph that is being built, and Python's operators on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, Protocol

from anydml.directml.validation import check_tensor
from anydml.errors import InvalidOperator, Problem, short_repr
from anydml.ir.graph import Value
from anydml.ops.catalog import BY_NAME
from anydml.ops.dtypes import FLOATING, SIZE
from anydml.ops.enums import TensorDataType, parse
from anydml.ops.opdef import Operand, Operator
from anydml.ops.tensor_desc import MAX_RANK, TensorDesc


class Recorder(Protocol):
    """What an expression belongs to."""

    def record(
        self, operator: Operator, arguments: Sequence[Any], attributes: Sequence[Any], output: Any = None
    ) -> Expression: ...

    def record_tensors(self, operator: Operator, given: Mapping[str, Any], output_data_type: Any) -> Any: ...


ANY_TENSOR = Operand("", "input", "", "")


class Expression:
    """A tensor of a graph that is being built: what operators give when they are given one.

    Python's operators work on it: + - * / and unary -, % (MODULUS_FLOOR, as in Python), ** , comparisons
    (UINT8), and | & ^ ~ << >> (the BIT operators; ~ of what is 0 or 1 because a comparison, or a LOGICAL
    operator, or several of them with | & ^ give it, is LOGICAL_NOT, as of NumPy's bools). Numbers beside it
    become constants of its type, and tensors broadcast against each other, both with strides of 0 and
    without memory of their own.
    """

    __slots__ = ("_builder", "_desc", "_is_truth", "_value")
    __array_ufunc__ = None  # NumPy leaves the operators to us
    __hash__ = object.__hash__

    def __init__(self, builder: Recorder, value: Value, desc: TensorDesc, is_truth: bool = False) -> None:
        self._builder, self._value, self._desc, self._is_truth = builder, value, desc, is_truth

    @property
    def name(self) -> str:
        """That of the input, or of the node that computes it."""
        return self._value.name.removeprefix("%input ").removeprefix("%")

    @property
    def data_type(self) -> TensorDataType:
        return self._desc.data_type

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._desc.sizes

    @property
    def desc(self) -> TensorDesc:
        """Type, sizes and strides."""
        return self._desc

    def reinterpret(
        self,
        sizes: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        data_type: TensorDataType | str | None = None,
    ) -> Expression:
        """The same memory read with other sizes and strides, or as another type of the same width.

        As DirectMLX's, it sees memory as it lies there: of a view (`transpose`, `broadcast_to`) not in the
        view's order, and it may see fewer elements. For NumPy's `reshape` of a view, write that out first:
        `anydml.identity(x.transpose()).reinterpret(sizes)`.

        Args:
            sizes, strides: as in a tensor description; strides in elements, None: packed.
            data_type: default as it is.

        Raises:
            InvalidOperator: it would reach beyond the memory, or the widths differ.
        """
        given = self.data_type if data_type is None else parse(TensorDataType, data_type, "data_type")
        new = TensorDesc(given, self.sizes if sizes is None else sizes, strides)
        problems = check_tensor(ANY_TENSOR, new)
        if given not in SIZE or SIZE[given] != SIZE[self.data_type]:
            message = f"expected a type as wide as {self.data_type.label}, but got {given.label}"
            problems.append(Problem(f"reinterpret {self.name!r}", message))
        elif not problems and new.reach > self._desc.reach:
            message = f"expected at most {self._desc.reach} bytes, but got {new.reach}"
            problems.append(Problem(f"reinterpret {self.name!r}", message))
        if problems:
            raise InvalidOperator(*problems)
        return Expression(self._builder, self._value, new)

    def transpose(self, *axes: int | Sequence[int]) -> Expression:
        """The dimensions in another order (default: reversed), by strides alone."""
        rank, where = len(self.sizes), f"transpose {self.name!r}"
        given = axes[0] if len(axes) == 1 and isinstance(axes[0], Sequence) else axes
        asked = _whole_numbers(given, where) if axes else tuple(range(rank))[::-1]
        order = [a + rank if -rank <= a < 0 else a for a in asked]
        if sorted(order) != list(range(rank)):
            message = f"expected each of the {rank} dimensions once, but got {short_repr(asked)}"
            raise InvalidOperator(Problem(where, message))
        strides = self._desc.effective_strides
        return self._view_as([self.sizes[a] for a in order], [strides[a] for a in order])

    def broadcast_to(self, sizes: Sequence[int]) -> Expression:
        """Repeated along new leading dimensions and those of size 1, by strides of 0."""
        where = f"broadcast {self.name!r}"
        wanted = _whole_numbers(sizes, where)
        if wanted == self.sizes and len(wanted) <= MAX_RANK:
            return self
        own = (1,) * (len(wanted) - len(self.sizes)) + self.sizes
        if len(own) != len(wanted) or any(a not in (1, n) for a, n in zip(own, wanted, strict=True)):
            message = f"expected sizes that {self.sizes} broadcasts to, but got {short_repr(wanted)}"
            raise InvalidOperator(Problem(where, message))
        lead = len(wanted) - len(self.sizes)
        strides = [
            0 if a == 1 and n != 1 else s
            for a, n, s in zip(self.sizes, wanted[lead:], self._desc.effective_strides, strict=True)
        ]
        seen = self._view_as(wanted, [0] * lead + strides)
        problems = [Problem(where, p.message, p.remedy) for p in check_tensor(ANY_TENSOR, seen.desc)]
        if len(wanted) > MAX_RANK:
            problems.append(Problem(where, f"expected at most {MAX_RANK} dimensions, but got {len(wanted)}"))
        if problems:
            raise InvalidOperator(*problems)
        return seen

    def _view_as(self, sizes: Sequence[int], strides: Sequence[int]) -> Expression:
        return Expression(
            self._builder, self._value, TensorDesc(self.data_type, sizes, strides), self._is_truth
        )

    def __repr__(self) -> str:
        return f"<{self.name}: {self.data_type.label} {list(self.sizes)}>"

    def __bool__(self) -> bool:
        raise TypeError("an expression has no value before its graph runs; use dml.if_ to choose by it")

    def _record(self, operator: Operator, arguments: Sequence[Any], attributes: Sequence[Any]) -> Expression:
        return self._builder.record(operator, arguments, attributes)

    def _with(self, name: str, *others: Any) -> Expression:
        return self._record(BY_NAME[f"ELEMENT_WISE_{name}"], (self, *others), ())

    def _scale(self, name: str) -> Expression:
        return self._record(BY_NAME[f"ELEMENT_WISE_{name}"], (self,), (None,))

    def _after(self, name: str, other: Any) -> Expression:
        return self._record(BY_NAME[f"ELEMENT_WISE_{name}"], (other, self), ())

    def __add__(self, other: Any) -> Expression:
        return self._with("ADD", other)

    def __radd__(self, other: Any) -> Expression:
        return self._after("ADD", other)

    def __sub__(self, other: Any) -> Expression:
        return self._with("SUBTRACT", other)

    def __rsub__(self, other: Any) -> Expression:
        return self._after("SUBTRACT", other)

    def __mul__(self, other: Any) -> Expression:
        return self._with("MULTIPLY", other)

    def __rmul__(self, other: Any) -> Expression:
        return self._after("MULTIPLY", other)

    def __truediv__(self, other: Any) -> Expression:
        return self._with("DIVIDE", other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._after("DIVIDE", other)

    def __mod__(self, other: Any) -> Expression:
        return self._with("MODULUS_FLOOR", other)

    def __rmod__(self, other: Any) -> Expression:
        return self._after("MODULUS_FLOOR", other)

    def __pow__(self, other: Any) -> Expression:
        if isinstance(other, int | float) and self.data_type in FLOATING:
            return self._record(BY_NAME["ELEMENT_WISE_CONSTANT_POW"], (self,), (None, other))
        return self._record(BY_NAME["ELEMENT_WISE_POW"], (self, other), (None,))

    def __rpow__(self, other: Any) -> Expression:
        return self._record(BY_NAME["ELEMENT_WISE_POW"], (other, self), (None,))

    def __neg__(self) -> Expression:
        return self._with("NEGATE")

    def __abs__(self) -> Expression:
        return self._scale("ABS")

    def __lt__(self, other: Any) -> Expression:
        return self._with("LOGICAL_LESS_THAN", other)

    def __le__(self, other: Any) -> Expression:
        return self._with("LOGICAL_LESS_THAN_OR_EQUAL", other)

    def __gt__(self, other: Any) -> Expression:
        return self._with("LOGICAL_GREATER_THAN", other)

    def __ge__(self, other: Any) -> Expression:
        return self._with("LOGICAL_GREATER_THAN_OR_EQUAL", other)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with("LOGICAL_EQUALS", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._record(BY_NAME["ELEMENT_WISE_LOGICAL_NOT"], (self == other,), ())

    def __and__(self, other: Any) -> Expression:
        return self._with("BIT_AND", other)

    def __rand__(self, other: Any) -> Expression:
        return self._after("BIT_AND", other)

    def __or__(self, other: Any) -> Expression:
        return self._with("BIT_OR", other)

    def __ror__(self, other: Any) -> Expression:
        return self._after("BIT_OR", other)

    def __xor__(self, other: Any) -> Expression:
        return self._with("BIT_XOR", other)

    def __rxor__(self, other: Any) -> Expression:
        return self._after("BIT_XOR", other)

    def __invert__(self) -> Expression:
        return self._with("LOGICAL_NOT" if self._is_truth else "BIT_NOT")

    def __lshift__(self, other: Any) -> Expression:
        return self._with("BIT_SHIFT_LEFT", other)

    def __rlshift__(self, other: Any) -> Expression:
        return self._after("BIT_SHIFT_LEFT", other)

    def __rshift__(self, other: Any) -> Expression:
        return self._with("BIT_SHIFT_RIGHT", other)

    def __rrshift__(self, other: Any) -> Expression:
        return self._after("BIT_SHIFT_RIGHT", other)


def _whole_numbers(values: object, where: str) -> tuple[int, ...]:
    try:
        return tuple(index(v) for v in values)  # type: ignore[attr-defined]
    except TypeError:
        raise InvalidOperator(Problem(where, f"expected integers, but got {short_repr(values)}")) from None
