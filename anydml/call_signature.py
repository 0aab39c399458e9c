"""What the types of a call's arguments decide: its kernel, and the types of what goes in and comes out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.group import KernelSpec
from anydml.codegen.kernel import group
from anydml.dataclass import dataclass
from anydml.directml.type_inference import infer_types
from anydml.errors import InvalidOperator
from anydml.ops.attributes import ScaleBias
from anydml.ops.dtypes import BOOL, FROM_NUMPY, NUMPY, UINT8, native
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr
from anydml.ops.opdef import Operator
from anydml.ops.parametric import Family

Array = NDArray[Any]


@dataclass(frozen=True)
class CallSignature:
    """What the types of a call's arguments decide."""

    group: KernelSpec
    inputs: tuple[np.dtype | None, ...]
    output: np.dtype
    keeps_bool: bool  # every array behind the output's type is bool, so the result is bool
    takes_bool: bool  # `out` may be bool
    numbers: tuple[Array, ...] = ()  # the kernel's operands behind the inputs: what attributes decide

    @property
    def result(self) -> np.dtype:
        """The type of a new array."""
        return np.dtype(np.bool_) if self.keeps_bool else self.output


@lru_cache(maxsize=4096)
def signature_of(
    operator: Operator,
    kinds: tuple[Any, ...],
    numbers: tuple[Any, ...],
    attributes: tuple[Any, ...],
    zeros: tuple[Any, ...],
    wanted: TensorDataType | None,
    rank: int,
) -> CallSignature:
    """What arguments of these types mean. All problems of types at once.

    `zeros`: what tells attributes apart that are equal, 0.0 and -0.0.
    """
    dtypes = tuple(k if isinstance(k, np.dtype) else None for k in kinds)
    arrays = {k: UINT8 if d == np.bool_ else FROM_NUMPY.get(native(d), d) for k, d in enumerate(dtypes) if d}
    inputs, output, problems = infer_types(operator, arrays, numbers, wanted)
    if problems:
        raise InvalidOperator(*problems)
    (operand,) = operator.outputs
    values = {a.name: v for a, v in zip(operator.parameters, attributes, strict=True)}
    expression = operator.expression(inputs, output, values, rank)
    types = tuple(t for t in inputs if t is not None)
    more: tuple[Expr, ...] = ()
    if attributes:
        kept = tuple(type(v) if type(v) in (int, float, ScaleBias) else v for v in attributes)
        family = _families.setdefault((operator.name, types, output, rank, kept), Family(len(types)))
        expression, more = family.of(expression)
    tied = [
        d for s, d in zip(operator.inputs, dtypes, strict=True) if s.dtype == operand.dtype and d is not None
    ]
    all_bool = operator.of_bool and bool(tied) and all(d == np.bool_ for d in tied)
    truth = expression.opcode == "convert" and expression.args[0].dtype is BOOL
    return CallSignature(
        group((*types, *(n.dtype for n in more)), (expression,)),
        tuple(None if t is None else NUMPY[t] for t in inputs),
        NUMPY[output],
        keeps_bool=all_bool,
        takes_bool=output is UINT8 and (all_bool or (truth and not tied)),
        numbers=tuple(np.array(n.value, NUMPY[n.dtype]) for n in more),
    )


_families: dict[Any, Family] = {}
