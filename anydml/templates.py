"""Python functions of operators: with their own parameters, and as quick as if they were written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence  # noqa: F401  (annotations name what is not used)
from types import FunctionType
from typing import Any

from anydml.codegen.python_objects import have_known_layout
from anydml.directml.descriptions import OperatorDesc  # noqa: F401
from anydml.eager import Array, Out, Tensor, compute, known_call  # noqa: F401
from anydml.errors import InvalidInput, Problem
from anydml.expression import Expression
from anydml.lazy import compute_lazily, is_lazy
from anydml.ops.attributes import ScaleBias  # noqa: F401
from anydml.ops.docstring import docstring
from anydml.ops.enums import IsInfinityMode, RoundingMode, TensorDataType  # noqa: F401
from anydml.ops.opdef import REQUIRED, Operator
from anydml.runtime.call import KnownCall, KnownCalls


class _Function:
    """What an operator's function does; calls like earlier ones need none of it."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._order = [len(operator.inputs) + operator.asked.index(a) for a in operator.parameters]
        self._typed = bool(operator.output_types)
        self._known: KnownCalls | None = None
        self._parameters: Sequence[str] = ()
        self.made: FunctionType | None = None

    def __call__(self, *given: Any) -> Any:
        """`given`: tensors, other parameters as the function takes them, the output's type where that may be
        chosen, and `out`."""
        operator, out = self._operator, given[-1]
        tensors = given[: len(operator.inputs)]
        attributes = tuple([given[k] for k in self._order])
        output_data_type = given[-2] if self._typed else None
        for x in tensors:
            if isinstance(x, Expression):
                if out is not None:
                    problem = (
                        "expected no `out` beside an expression, which has no memory before its graph runs"
                    )
                    raise InvalidInput(Problem(operator.name, problem))
                return x._builder.record(operator, tensors, attributes, output_data_type)
            if is_lazy(x):
                assert self.made is not None
                return compute_lazily(operator, self.made, dict(zip(self._parameters, given, strict=True)))
        result = compute(operator, tensors, attributes, out, output_data_type)
        if have_known_layout() and not (self._known is not None and self._known.full):
            others = given[len(operator.inputs) : -1]
            call = known_call(operator, tensors, attributes, others, output_data_type, out, result)
            if call is not None:
                self._know(call)
        return result

    def _know(self, call: KnownCall) -> None:
        if self._known is None:
            self._known = KnownCalls(self)
            self._known.add(call)
            assert self.made is not None
            assert self.made.__closure__ is not None
            self.made.__closure__[0].cell_contents = self._known.function()
        else:
            self._known.add(call)


# By how many parameters there are beside keywords, and whether the caller may choose the output's type. `f`
# is a `_Function`, or, once that knows calls, the machine code that knows them.
_TEMPLATES: dict[tuple[int, bool], Callable[[Callable[..., Any]], Any]] = {
    (1, False): lambda f: lambda a, *, out=None: f(a, out),
    (2, False): lambda f: lambda a, b, *, out=None: f(a, b, out),
    (3, False): lambda f: lambda a, b, c, *, out=None: f(a, b, c, out),
    (4, False): lambda f: lambda a, b, c, d, *, out=None: f(a, b, c, d, out),
    (1, True): lambda f: lambda a, *, output_data_type=None, out=None: f(a, output_data_type, out),
    (2, True): lambda f: lambda a, b, *, output_data_type=None, out=None: f(a, b, output_data_type, out),
    (3, True): lambda f: (
        lambda a, b, c, *, output_data_type=None, out=None: f(a, b, c, output_data_type, out)
    ),
    (8, True): lambda f: (
        lambda a, b, c, d, e, f_, g, h, *, output_data_type=None, out=None: f(
            a, b, c, d, e, f_, g, h, output_data_type, out
        )
    ),
}


def function(operator: Operator, module: str) -> Callable[..., Any]:
    """The operator's function, as one of `module`.

    It is a template whose parameters have the names and defaults of the definition. Instructions count
    parameters, and a code object lists their names beside: with other names it is the same code. So calls,
    messages of wrong calls, signatures and tracebacks are those of a function written out, and no call does
    more. (No inner function may use a parameter: it would go by the name.)
    """
    behind = _Function(operator)
    count = len(operator.inputs) + len(operator.asked)
    made: FunctionType = _TEMPLATES[count, bool(operator.output_types)](behind)
    behind.made = made
    parameters = {s.parameter: "Tensor | Expression" for s in operator.inputs}
    parameters |= {
        s.parameter: "Tensor | Expression | None" for s in operator.inputs if s.optional is not None
    }
    parameters |= {a.parameter: a.kind.annotation for a in operator.asked}
    needed = max(k for k, s in enumerate(operator.inputs) if s.optional is None) + 1
    defaults = [None] * (len(operator.inputs) - needed)
    defaults += [a.default for a in operator.asked if a.default is not REQUIRED]
    name, code = operator.function, made.__code__
    names = (*parameters, *code.co_varnames[len(parameters) :])
    made.__code__ = code.replace(co_name=name, co_qualname=name, co_varnames=names)
    behind._parameters = names
    made.__defaults__ = tuple(defaults)
    options = {"output_data_type": "TensorDataType | str | None"} if operator.output_types else {}
    made.__annotations__ = parameters | options | {"out": "Out | None", "return": "Array | Out | Expression"}
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    made.__doc__ = docstring(operator)
    return made
