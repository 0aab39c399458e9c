"""Python functions of operators: with their own parameters, and as quick as if they were written out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence  # noqa: F401  (annotations name what is not used)
from functools import lru_cache
from inspect import Parameter, Signature
from types import CellType, CodeType, FunctionType
from typing import Any

from anydml.codegen.python_objects import have_known_layout
from anydml.directml.descriptions import OperatorDesc  # noqa: F401
from anydml.eager import Array, Out, Tensor, compute, known_call  # noqa: F401
from anydml.errors import InvalidInput, Problem
from anydml.expression import Expression
from anydml.lazy import compute_lazily, is_lazy
from anydml.ops.attributes import ScaleBias  # noqa: F401
from anydml.ops.docstring import docstring
from anydml.ops.enums import (  # noqa: F401
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DepthSpaceOrder,
    InterpolationMode,
    IsInfinityMode,
    MatrixTransform,
    MultiheadAttentionMaskType,
    PaddingMode,
    QuantizationType,
    RandomGeneratorType,
    RecurrentNetworkDirection,
    ReduceFunction,
    RoundingMode,
    TensorDataType,
)
from anydml.ops.opdef import Operator
from anydml.ops.signature import signature
from anydml.runtime.call import KnownCall, KnownCalls, knowing


class Behind(ABC):
    """What an operator's function does, of all its parameters by position; calls like earlier ones need none
    of it."""

    def __init__(self, operator: Operator, form: Signature) -> None:
        self._operator, self._parameters = operator, list(form.parameters)
        self._known: KnownCalls | None = None
        self.made: FunctionType | None = None

    @abstractmethod
    def __call__(self, *given: Any) -> Any:
        """The result."""

    def _named(self, given: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self._parameters, given, strict=True))

    def _lazily(self, given: Sequence[Any]) -> Any:
        assert self.made is not None
        return compute_lazily(self._operator, self.made, self._named(given))

    def _is_due(self) -> bool:
        """Whether this call is to become known."""
        return have_known_layout() and (self._known is None or self._known.is_due())

    def _know(self, call: KnownCall) -> None:
        with knowing.lock:
            known = KnownCalls(self) if self._known is None else self._known
            known.add(call)
            if known is not self._known:
                assert self.made is not None
                assert self.made.__closure__ is not None
                self._known = known  # first: it has what the function's code reads
                self.made.__closure__[0].cell_contents = known.function()


class _ElementWise(Behind):
    def __init__(self, operator: Operator, form: Signature) -> None:
        super().__init__(operator, form)
        self._order = [len(operator.inputs) + operator.asked.index(a) for a in operator.parameters]
        self._typed = bool(operator.output_types)
        self._called = False
        """The first call is not known: what knows calls takes 10 ms to compile, in vain if no other comes."""

    def __call__(self, *given: Any) -> Any:
        """`given`: tensors, other parameters as the function takes them, the output's type where that may be
        chosen, and `out`."""
        operator, out = self._operator, given[-1]
        tensors = given[: len(operator.inputs)]
        attributes = tuple([given[k] for k in self._order])
        output_data_type = given[-2] if self._typed else None
        for x in tensors:
            if isinstance(x, Expression):
                refuse_out(operator, out)
                return x._builder.record(operator, tensors, attributes, output_data_type)
            if is_lazy(x):
                return self._lazily(given)
        result = compute(operator, tensors, attributes, out, output_data_type)
        again, self._called = self._called, True
        if again and self._is_due():
            others = given[len(operator.inputs) : -1]
            call = known_call(operator, tensors, attributes, others, output_data_type, out, result)
            if call is not None:
                self._know(call)
        return result


def refuse_out(operator: Operator, out: Any) -> None:
    """Beside an expression.

    Raises:
        InvalidInput: there is one.
    """
    if out is not None:
        message = "expected no `out` beside an expression, which has no memory before its graph runs"
        raise InvalidInput(Problem(operator.name, message))


def function(operator: Operator, module: str) -> Callable[..., Any]:
    """An element-wise operator's function, as one of `module`."""
    form = signature(operator)
    return written_out(operator, form, _ElementWise(operator, form), module)


@lru_cache
def _template(count: int) -> CodeType:
    """The code of a function that hands so many parameters on to what its cell holds."""
    names = ", ".join(f"p{k}" for k in range(count))
    code = compile(f"lambda behind: lambda {names}: behind({names})", "<function of an operator>", "eval")
    for _ in range(2):  # the outer function's, and that of the one in it
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code


def written_out(operator: Operator, form: Signature, behind: Behind, module: str) -> FunctionType:
    """The function of these parameters.

    It is a template whose parameters have other names. Instructions count parameters, and a code object lists
    their names beside, and says how many may be given by position: with other names it is the same code. So
    calls, messages of wrong calls, signatures and tracebacks are those of a function written out, and no call
    does more.
    """
    parts = form.parameters
    name, by_name = operator.function, [p for p in parts.values() if p.kind is Parameter.KEYWORD_ONLY]
    code = _template(len(parts)).replace(
        co_name=name,
        co_qualname=name,
        co_varnames=tuple(parts),
        co_argcount=len(parts) - len(by_name),
        co_kwonlyargcount=len(by_name),
    )
    made = FunctionType(code, globals(), name, closure=(CellType(behind),))
    behind.made = made
    given = [p for p in parts.values() if p.default is not Parameter.empty]
    made.__defaults__ = tuple(p.default for p in given if p not in by_name)
    made.__kwdefaults__ = {p.name: p.default for p in given if p in by_name}
    made.__annotations__ = {p.name: p.annotation for p in parts.values()} | {"return": form.return_annotation}
    made.__module__ = module
    made.__doc__ = docstring(operator)
    return made
