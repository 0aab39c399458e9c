"""Python functions of operators: with their own parameters, and as quick as if they were written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence  # noqa: F401  (annotations name what is not used)
from types import FunctionType
from typing import Any

from anydml.directml.descriptions import OperatorDesc  # noqa: F401
from anydml.eager import Array, Out, Tensor, compute  # noqa: F401
from anydml.errors import InvalidInput, Problem
from anydml.expression import Expression
from anydml.ops.attributes import ScaleBias  # noqa: F401
from anydml.ops.docstring import docstring
from anydml.ops.enums import IsInfinityMode, RoundingMode, TensorDataType  # noqa: F401
from anydml.ops.opdef import REQUIRED, Operator


def _call(
    operator: Operator,
    tensors: tuple[Any, ...],
    attributes: tuple[Any, ...],
    out: Any,
    output_data_type: TensorDataType | str | None = None,
) -> Any:
    for x in tensors:
        if isinstance(x, Expression):
            if out is not None:
                problem = "expected no `out` beside an expression, which has no memory before its graph runs"
                raise InvalidInput(Problem(operator.name, problem))
            return x._builder.record(operator, tensors, attributes, output_data_type)
    return compute(operator, tensors, attributes, out, output_data_type)


# By how many tensors there are, which of the parameters after them each attribute is (functions take them
# in another order than DirectML), and whether the caller may choose the output's type.
_TEMPLATES: dict[tuple[int, tuple[int, ...], bool], Callable[[Operator], Any]] = {
    (1, (), False): lambda o: lambda a, *, out=None: _call(o, (a,), (), out),
    (1, (0,), False): lambda o: lambda a, p, *, out=None: _call(o, (a,), (p,), out),
    (1, (0, 1), False): lambda o: lambda a, p, q, *, out=None: _call(o, (a,), (p, q), out),
    (1, (1, 0), False): lambda o: lambda a, p, q, *, out=None: _call(o, (a,), (q, p), out),
    (1, (2, 0, 1), False): lambda o: lambda a, p, q, r, *, out=None: _call(o, (a,), (r, p, q), out),
    (2, (), False): lambda o: lambda a, b, *, out=None: _call(o, (a, b), (), out),
    (2, (0,), False): lambda o: lambda a, b, p, *, out=None: _call(o, (a, b), (p,), out),
    (2, (0, 1), False): lambda o: lambda a, b, p, q, *, out=None: _call(o, (a, b), (p, q), out),
    (3, (), False): lambda o: lambda a, b, c, *, out=None: _call(o, (a, b, c), (), out),
    (1, (), True): lambda o: (
        lambda a, *, output_data_type=None, out=None: _call(o, (a,), (), out, output_data_type)
    ),
    (2, (), True): lambda o: (
        lambda a, b, *, output_data_type=None, out=None: _call(o, (a, b), (), out, output_data_type)
    ),
    (3, (), True): lambda o: (
        lambda a, b, c, *, output_data_type=None, out=None: _call(o, (a, b, c), (), out, output_data_type)
    ),
    (8, (), True): lambda o: (
        lambda a, b, c, d, e, f, g, h, *, output_data_type=None, out=None: _call(
            o, (a, b, c, d, e, f, g, h), (), out, output_data_type
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
    order = tuple(operator.asked.index(a) for a in operator.parameters)
    made: FunctionType = _TEMPLATES[len(operator.inputs), order, bool(operator.output_types)](operator)
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
    made.__defaults__ = tuple(defaults)
    options = {"output_data_type": "TensorDataType | str | None"} if operator.output_types else {}
    made.__annotations__ = parameters | options | {"out": "Out | None", "return": "Array | Out | Expression"}
    made.__module__, made.__name__, made.__qualname__ = module, name, name
    made.__doc__ = docstring(operator)
    return made
