"""DirectML's operators as functions, on NumPy arrays and on expressions of a graph.

Given arrays (and numbers), a function computes at once, in NumPy's manners: arguments broadcast, any
memory layout is read. Given an expression of a `GraphBuilder`, it records the operator in its graph.
`out` is an array to write to: of the result's shape and type, and either one of the inputs itself or
apart from them.

Every function raises `InvalidOperator` for data types and attributes that DirectML does not allow, and
`InvalidInput` for shapes that do not broadcast or an unsuitable `out`.
"""

# Each is made from its definition when it is first asked for: most programs use a few, and their docstrings
# take longer to write than they to make. Editors and type checkers read functions.pyi.

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anydml.ops.catalog import CATALOG

_OPERATORS = {operator.function: operator for operator in CATALOG}

__all__ = sorted(_OPERATORS)


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _OPERATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    operator = _OPERATORS[name]
    if operator.scalar is None:
        from anydml.eager_tensors import function  # which loads all of the larger kernels
    else:
        from anydml.templates import function
    made = function(operator, __name__)
    return globals().setdefault(name, made)  # one, even if two threads ask at once: pickles go by name


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
