"""DirectML's operators as functions, on NumPy arrays and on expressions of a graph.

Given arrays (and numbers), a function computes at once, in NumPy's manners: arguments broadcast, any
memory layout is read. Given an expression of a `GraphBuilder`, it records the operator in its graph.
`out` is an array to write to: of the result's shape and type, and either one of the inputs itself or
apart from them.

Every function raises `InvalidOperator` for data types and attributes that DirectML does not allow, and
`InvalidInput` for shapes that do not broadcast or an unsuitable `out`.

Generated from the catalog by tools/generate_functions.py. Do not edit: change the records instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from anydml.directml.descriptions import OperatorDesc
from anydml.eager import Array, Out, Tensor, compute
from anydml.errors import InvalidInput, Problem
from anydml.expression import Expression
from anydml.ops.attributes import ScaleBias
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import IsInfinityMode, RoundingMode, TensorDataType

Number = int | float


def _call(
    name: str,
    tensors: tuple[Any, ...],
    attributes: tuple[Any, ...] = (),
    out: Any = None,
    output_data_type: TensorDataType | str | None = None,
) -> Any:
    for x in tensors:
        if isinstance(x, Expression):
            if out is not None:
                problem = "expected no `out` beside an expression, which has no memory before its graph runs"
                raise InvalidInput(Problem(BY_NAME[name].name, problem))
            return x._builder.record(BY_NAME[name], tensors, attributes, output_data_type)
    return compute(BY_NAME[name], tensors, attributes, out, output_data_type)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "activation_celu",
    "activation_elu",
    "activation_gelu",
    "activation_hard_sigmoid",
    "activation_hard_swish",
    "activation_hardmax",
    "activation_hardmax1",
    "activation_identity",
    "activation_leaky_relu",
    "activation_linear",
    "activation_log_softmax",
    "activation_log_softmax1",
    "activation_parameterized_relu",
    "activation_parametric_softplus",
    "activation_relu",
    "activation_relu_grad",
    "activation_scaled_elu",
    "activation_scaled_tanh",
    "activation_shrink",
    "activation_sigmoid",
    "activation_softmax",
    "activation_softmax1",
    "activation_softplus",
    "activation_softsign",
    "activation_swish",
    "activation_tanh",
    "activation_thresholded_relu",
    "add",
    "add1",
    "asin",
    "asinh",
    "atan",
    "atan_yx",
    "atanh",
    "bit_and",
    "bit_count",
    "bit_not",
    "bit_or",
    "bit_shift_left",
    "bit_shift_right",
    "bit_xor",
    "ceil",
    "clip",
    "clip1",
    "clip_grad",
    "clip_grad1",
    "constant_pow",
    "cos",
    "cosh",
    "dequantize_linear",
    "difference_square",
    "divide",
    "equals",
    "erf",
    "exp",
    "floor",
    "greater_than",
    "greater_than_or_equal",
    "identity",
    "if_",
    "is_infinity",
    "is_nan",
    "less_than",
    "less_than_or_equal",
    "log",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "max",
    "mean",
    "min",
    "modulus_floor",
    "modulus_truncate",
    "multiply",
    "negate",
    "pow",
    "quantize_linear",
    "quantized_linear_add",
    "recip",
    "round",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "threshold",
]


@overload
def identity(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def identity(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out
) -> Out: ...
@overload
def identity(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def identity(
    input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None
) -> Any:
    """Output is Input, scaled and biased if that is asked for.

    DirectML: ELEMENT_WISE_IDENTITY, from feature level 1_0 on.

    Args:
        input: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.identity(np.float32([1, 2, 3]), scale_bias=(2, 1))
    array([3., 5., 7.], dtype=float32)
    """
    return _call("ELEMENT_WISE_IDENTITY", (input,), (scale_bias,), out)


@overload
def abs(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def abs(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def abs(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def abs(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the magnitude of Input.

    DirectML: ELEMENT_WISE_ABS, from feature level 1_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.abs(np.float32([-1, 2, -np.inf]))
    array([ 1.,  2., inf], dtype=float32)
    """
    return _call("ELEMENT_WISE_ABS", (input,), (scale_bias,), out)


@overload
def acos(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def acos(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def acos(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def acos(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the arccosine of Input, in radians from 0 to π.

    DirectML: ELEMENT_WISE_ACOS, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.acos(np.float32([1, -1]))
    array([0.       , 3.1415927], dtype=float32)
    """
    return _call("ELEMENT_WISE_ACOS", (input,), (scale_bias,), out)


@overload
def add(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def add(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def add(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def add(a: Number, b: Expression) -> Expression: ...
def add(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A plus B.

    DirectML: ELEMENT_WISE_ADD, from feature level 1_0 on.

    Integers wrap around at overflow (two's complement).

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.add(np.float32([1, 2]), np.float32([10, 20]))
    array([11., 22.], dtype=float32)
    """
    return _call("ELEMENT_WISE_ADD", (a, b), (), out)


@overload
def asin(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def asin(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def asin(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def asin(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the arcsine of Input, in radians from -π/2 to π/2.

    DirectML: ELEMENT_WISE_ASIN, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.asin(np.float32([0, 1]))
    array([0.       , 1.5707964], dtype=float32)
    """
    return _call("ELEMENT_WISE_ASIN", (input,), (scale_bias,), out)


@overload
def atan(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def atan(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def atan(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def atan(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the arctangent of Input, in radians from -π/2 to π/2.

    DirectML: ELEMENT_WISE_ATAN, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.atan(np.float32([0, 1, np.inf]))
    array([0.       , 0.7853982, 1.5707964], dtype=float32)
    """
    return _call("ELEMENT_WISE_ATAN", (input,), (scale_bias,), out)


@overload
def ceil(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def ceil(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def ceil(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def ceil(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the least whole number that is not less than Input.

    DirectML: ELEMENT_WISE_CEIL, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.ceil(np.float32([1.2, -1.2, 3]))
    array([ 2., -1.,  3.], dtype=float32)
    """
    return _call("ELEMENT_WISE_CEIL", (input,), (scale_bias,), out)


@overload
def clip(
    input: Tensor,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: None = None,
) -> Array: ...
@overload
def clip(
    input: Tensor,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: Out,
) -> Out: ...
@overload
def clip(
    input: Expression, min: float, max: float, scale_bias: ScaleBias | tuple[float, float] | None = None
) -> Expression: ...
def clip(
    input: Any,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: Any = None,
) -> Any:
    """Output is Input limited to the range from Min to Max.

    DirectML: ELEMENT_WISE_CLIP, from feature level 1_0 on.

    Min and Max become numbers of the tensor's type first: to an integer they truncate and saturate. If
    Min is greater than Max, the formula gives Min. A NaN stays one.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        min: a number (float32).
        max: a number (float32).
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.clip(np.float32([-2, 0.5, 3]), min=-1, max=1)
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return _call("ELEMENT_WISE_CLIP", (input,), (scale_bias, min, max), out)


@overload
def cos(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def cos(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def cos(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def cos(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the cosine of Input, in radians.

    DirectML: ELEMENT_WISE_COS, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.cos(np.float32([0, 1]))
    array([1.       , 0.5403023], dtype=float32)
    """
    return _call("ELEMENT_WISE_COS", (input,), (scale_bias,), out)


@overload
def divide(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def divide(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def divide(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def divide(a: Number, b: Expression) -> Expression: ...
def divide(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A divided by B; of integers, truncated toward zero.

    DirectML: ELEMENT_WISE_DIVIDE, from feature level 1_0 on.

    An integer divided by 0 gives 0, and the least integer divided by -1 is itself.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.divide(np.float32([1, -7]), np.float32([4, 2]))
    array([ 0.25, -3.5 ], dtype=float32)
    """
    return _call("ELEMENT_WISE_DIVIDE", (a, b), (), out)


@overload
def exp(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def exp(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def exp(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def exp(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is e to the power of Input.

    DirectML: ELEMENT_WISE_EXP, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.exp(np.float32([0, 1, -np.inf]))
    array([1.       , 2.7182817, 0.       ], dtype=float32)
    """
    return _call("ELEMENT_WISE_EXP", (input,), (scale_bias,), out)


@overload
def floor(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def floor(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def floor(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def floor(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the greatest whole number that is not greater than Input.

    DirectML: ELEMENT_WISE_FLOOR, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.floor(np.float32([1.2, -1.2, 3]))
    array([ 1., -2.,  3.], dtype=float32)
    """
    return _call("ELEMENT_WISE_FLOOR", (input,), (scale_bias,), out)


@overload
def log(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def log(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def log(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def log(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the natural logarithm of Input.

    DirectML: ELEMENT_WISE_LOG, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.log(np.float32([1, 0, np.inf]))
    array([  0., -inf,  inf], dtype=float32)
    """
    return _call("ELEMENT_WISE_LOG", (input,), (scale_bias,), out)


@overload
def logical_and(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def logical_and(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def logical_and(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def logical_and(a: Number, b: Expression) -> Expression: ...
def logical_and(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is 1 where both A and B are non-zero, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_AND, from feature level 1_0 on.

    Args:
        a: uint8 | uint32.
        b: uint8 | uint32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.logical_and(np.uint32([0, 0, 1, 2]), np.uint32([0, 1, 0, 3]))
    array([0, 0, 0, 1], dtype=uint32)
    """
    return _call("ELEMENT_WISE_LOGICAL_AND", (a, b), (), out)


@overload
def equals(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def equals(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out
) -> Out: ...
@overload
def equals(
    a: Expression, b: Expression | Number, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
@overload
def equals(
    a: Number, b: Expression, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
def equals(a: Any, b: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None) -> Any:
    """Output is 1 where A equals B, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_EQUALS, from feature level 1_0 on.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.equals(np.float32([1, 2, np.nan]), np.float32([1, 3, np.nan]))
    array([1, 0, 0], dtype=uint8)
    """
    return _call("ELEMENT_WISE_LOGICAL_EQUALS", (a, b), (), out, output_data_type)


@overload
def greater_than(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def greater_than(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out
) -> Out: ...
@overload
def greater_than(
    a: Expression, b: Expression | Number, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
@overload
def greater_than(
    a: Number, b: Expression, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
def greater_than(
    a: Any, b: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None
) -> Any:
    """Output is 1 where A is greater than B, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_GREATER_THAN, from feature level 1_0 on.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.greater_than(np.float32([1, 3, 2]), np.float32([2, 2, 2]))
    array([0, 1, 0], dtype=uint8)
    """
    return _call("ELEMENT_WISE_LOGICAL_GREATER_THAN", (a, b), (), out, output_data_type)


@overload
def less_than(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def less_than(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out
) -> Out: ...
@overload
def less_than(
    a: Expression, b: Expression | Number, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
@overload
def less_than(
    a: Number, b: Expression, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
def less_than(
    a: Any, b: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None
) -> Any:
    """Output is 1 where A is less than B, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_LESS_THAN, from feature level 1_0 on.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.less_than(np.float32([1, 3, 2]), np.float32([2, 2, 2]))
    array([1, 0, 0], dtype=uint8)
    """
    return _call("ELEMENT_WISE_LOGICAL_LESS_THAN", (a, b), (), out, output_data_type)


@overload
def logical_not(input: Tensor, *, out: None = None) -> Array: ...
@overload
def logical_not(input: Tensor, *, out: Out) -> Out: ...
@overload
def logical_not(input: Expression) -> Expression: ...
def logical_not(input: Any, *, out: Any = None) -> Any:
    """Output is 1 where Input is zero, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_NOT, from feature level 1_0 on.

    Args:
        input: uint8 | uint32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.logical_not(np.uint32([0, 1, 2]))
    array([1, 0, 0], dtype=uint32)
    """
    return _call("ELEMENT_WISE_LOGICAL_NOT", (input,), (), out)


@overload
def logical_or(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def logical_or(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def logical_or(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def logical_or(a: Number, b: Expression) -> Expression: ...
def logical_or(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is 1 where A or B (or both) is non-zero, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_OR, from feature level 1_0 on.

    Args:
        a: uint8 | uint32.
        b: uint8 | uint32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.logical_or(np.uint32([0, 0, 1, 2]), np.uint32([0, 1, 0, 3]))
    array([0, 1, 1, 1], dtype=uint32)
    """
    return _call("ELEMENT_WISE_LOGICAL_OR", (a, b), (), out)


@overload
def logical_xor(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def logical_xor(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def logical_xor(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def logical_xor(a: Number, b: Expression) -> Expression: ...
def logical_xor(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is 1 where exactly one of A and B is non-zero, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_XOR, from feature level 1_0 on.

    Args:
        a: uint8 | uint32.
        b: uint8 | uint32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.logical_xor(np.uint32([0, 0, 1, 2]), np.uint32([0, 1, 0, 3]))
    array([0, 1, 1, 0], dtype=uint32)
    """
    return _call("ELEMENT_WISE_LOGICAL_XOR", (a, b), (), out)


@overload
def max(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def max(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def max(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def max(a: Number, b: Expression) -> Expression: ...
def max(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the larger of A and B.

    DirectML: ELEMENT_WISE_MAX, from feature level 1_0 on.

    A NaN in either gives a NaN; of two zeros either may be returned.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.max(np.float32([1, 5]), np.float32([3, 2]))
    array([3., 5.], dtype=float32)
    """
    return _call("ELEMENT_WISE_MAX", (a, b), (), out)


@overload
def mean(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def mean(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def mean(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def mean(a: Number, b: Expression) -> Expression: ...
def mean(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the mean of A and B.

    DirectML: ELEMENT_WISE_MEAN, from feature level 1_0 on.

    Of integers, it is exact (the sum does not overflow) and truncated toward zero.

    Args:
        a: float16 | float32 | int32 | uint32.
        b: float16 | float32 | int32 | uint32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.mean(np.float32([1, 2]), np.float32([2, 4]))
    array([1.5, 3. ], dtype=float32)
    """
    return _call("ELEMENT_WISE_MEAN", (a, b), (), out)


@overload
def min(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def min(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def min(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def min(a: Number, b: Expression) -> Expression: ...
def min(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the smaller of A and B.

    DirectML: ELEMENT_WISE_MIN, from feature level 1_0 on.

    A NaN in either gives a NaN; of two zeros either may be returned.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.min(np.float32([1, 5]), np.float32([3, 2]))
    array([1., 2.], dtype=float32)
    """
    return _call("ELEMENT_WISE_MIN", (a, b), (), out)


@overload
def multiply(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def multiply(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def multiply(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def multiply(a: Number, b: Expression) -> Expression: ...
def multiply(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A times B.

    DirectML: ELEMENT_WISE_MULTIPLY, from feature level 1_0 on.

    Integers wrap around at overflow (two's complement).

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.multiply(np.float32([1, 2]), np.float32([10, 20]))
    array([10., 40.], dtype=float32)
    """
    return _call("ELEMENT_WISE_MULTIPLY", (a, b), (), out)


@overload
def pow(
    input: Tensor,
    exponent: Tensor,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: None = None,
) -> Array: ...
@overload
def pow(
    input: Tensor, exponent: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out
) -> Out: ...
@overload
def pow(
    input: Expression,
    exponent: Expression | Number,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
) -> Expression: ...
@overload
def pow(
    input: Number, exponent: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None
) -> Expression: ...
def pow(
    input: Any, exponent: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None
) -> Any:
    """Output is Input to the power of Exponent.

    DirectML: ELEMENT_WISE_POW, from feature level 1_0 on.

    A negative number to a power that is not whole is NaN. An integer to an integer is exact, modulo 2
    to the width; a negative exponent then gives 1 / x^n, truncated (0 for x = 0). Otherwise the power
    is that of the real numbers, converted to the type of Input.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | uint8 | uint16 | uint32.
        exponent: float16 | float32 | int8 | int16 | int32 | uint8 | uint16 | uint32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.pow(np.float32([2, 9, -2]), np.float32([10, 0.5, 3]))
    array([1024.,    3.,   -8.], dtype=float32)
    """
    return _call("ELEMENT_WISE_POW", (input, exponent), (scale_bias,), out)


@overload
def constant_pow(
    input: Tensor,
    exponent: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: None = None,
) -> Array: ...
@overload
def constant_pow(
    input: Tensor, exponent: float, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out
) -> Out: ...
@overload
def constant_pow(
    input: Expression, exponent: float, scale_bias: ScaleBias | tuple[float, float] | None = None
) -> Expression: ...
def constant_pow(
    input: Any, exponent: float, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None
) -> Any:
    """Output is Input to the power of the number Exponent.

    DirectML: ELEMENT_WISE_CONSTANT_POW, from feature level 1_0 on.

    A negative number to a power that is not whole is NaN.

    Args:
        input: float16 | float32.
        exponent: a number (float32).
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.constant_pow(np.float32([2, 9, 0]), exponent=3)
    array([  8., 729.,   0.], dtype=float32)
    """
    return _call("ELEMENT_WISE_CONSTANT_POW", (input,), (scale_bias, exponent), out)


@overload
def recip(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def recip(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def recip(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def recip(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is 1 divided by Input.

    DirectML: ELEMENT_WISE_RECIP, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.recip(np.float32([1, 2, -4]))
    array([ 1.  ,  0.5 , -0.25], dtype=float32)
    """
    return _call("ELEMENT_WISE_RECIP", (input,), (scale_bias,), out)


@overload
def sin(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def sin(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def sin(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def sin(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the sine of Input, in radians.

    DirectML: ELEMENT_WISE_SIN, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.sin(np.float32([0, 0.5]))
    array([0.        , 0.47942555], dtype=float32)
    """
    return _call("ELEMENT_WISE_SIN", (input,), (scale_bias,), out)


@overload
def sqrt(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def sqrt(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def sqrt(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def sqrt(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the square root of Input.

    DirectML: ELEMENT_WISE_SQRT, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.sqrt(np.float32([0, 4, 2.25]))
    array([0. , 2. , 1.5], dtype=float32)
    """
    return _call("ELEMENT_WISE_SQRT", (input,), (scale_bias,), out)


@overload
def subtract(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def subtract(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def subtract(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def subtract(a: Number, b: Expression) -> Expression: ...
def subtract(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A minus B.

    DirectML: ELEMENT_WISE_SUBTRACT, from feature level 1_0 on.

    Integers wrap around at overflow (two's complement).

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.subtract(np.float32([10, 20]), np.float32([1, 2]))
    array([ 9., 18.], dtype=float32)
    """
    return _call("ELEMENT_WISE_SUBTRACT", (a, b), (), out)


@overload
def tan(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def tan(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def tan(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def tan(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the tangent of Input, in radians.

    DirectML: ELEMENT_WISE_TAN, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.tan(np.float32([0, 1]))
    array([0.       , 1.5574077], dtype=float32)
    """
    return _call("ELEMENT_WISE_TAN", (input,), (scale_bias,), out)


@overload
def threshold(
    input: Tensor, min: float, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def threshold(
    input: Tensor, min: float, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out
) -> Out: ...
@overload
def threshold(
    input: Expression, min: float, scale_bias: ScaleBias | tuple[float, float] | None = None
) -> Expression: ...
def threshold(
    input: Any, min: float, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None
) -> Any:
    """Output is the larger of Input and Min.

    DirectML: ELEMENT_WISE_THRESHOLD, from feature level 1_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | uint8 | uint16 | uint32.
        min: a number (float32).
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.threshold(np.float32([-2, 0.5, 3]), min=1)
    array([1., 1., 3.], dtype=float32)
    """
    return _call("ELEMENT_WISE_THRESHOLD", (input,), (scale_bias, min), out)


@overload
def quantize_linear(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: None = None,
) -> Array: ...
@overload
def quantize_linear(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: Out,
) -> Out: ...
@overload
def quantize_linear(
    input: Expression,
    scale: Expression | Number,
    zero_point: Expression | Number | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
) -> Expression: ...
def quantize_linear(
    input: Any,
    scale: Any,
    zero_point: Any = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: Any = None,
) -> Any:
    """Output is Input / Scale, rounded (halves to even), plus ZeroPoint, limited to its type's range.

    DirectML: ELEMENT_WISE_QUANTIZE_LINEAR, from feature level 1_0 on.

    A scale of 0 divides as IEEE 754 has it; a NaN becomes 0.

    Args:
        input: float16 | float32 | int32.
        scale: float16 | float32.
        zero_point: int8 | uint8; may be left out.
        output_data_type: int8 | uint8; default that of zero_point, else UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.quantize_linear(np.float32([0, 1, 2.5, -300, 300]), 1.0, 128)
    array([128, 129, 130,   0, 255], dtype=uint8)
    """
    return _call("ELEMENT_WISE_QUANTIZE_LINEAR", (input, scale, zero_point), (), out, output_data_type)


@overload
def dequantize_linear(
    input: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, out: None = None
) -> Array: ...
@overload
def dequantize_linear(input: Tensor, scale: Tensor, zero_point: Tensor | None = None, *, out: Out) -> Out: ...
@overload
def dequantize_linear(
    input: Expression, scale: Expression | Number, zero_point: Expression | Number | None = None
) -> Expression: ...
def dequantize_linear(input: Any, scale: Any, zero_point: Any = None, *, out: Any = None) -> Any:
    """Output is Input minus ZeroPoint, times Scale.

    DirectML: ELEMENT_WISE_DEQUANTIZE_LINEAR, from feature level 1_0 on.

    The difference is exact.

    Args:
        input: int8 | int16 | int32 | uint8 | uint16 | uint32.
        scale: float16 | float32.
        zero_point: int8 | int16 | int32 | uint8 | uint16 | uint32; may be left out.
        out: where to write.

    Returns:
        An array of the type of scale and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.dequantize_linear(np.uint8([128, 129, 0]), np.float32([0.5]), 128)
    array([  0. ,   0.5, -64. ], dtype=float32)
    """
    return _call("ELEMENT_WISE_DEQUANTIZE_LINEAR", (input, scale, zero_point), (), out)


@overload
def activation_elu(input: Tensor, alpha: float = 1.0, *, out: None = None) -> Array: ...
@overload
def activation_elu(input: Tensor, alpha: float = 1.0, *, out: Out) -> Out: ...
@overload
def activation_elu(input: Expression, alpha: float = 1.0) -> Expression: ...
def activation_elu(input: Any, alpha: float = 1.0, *, out: Any = None) -> Any:
    """Output is Input where that is not negative, else Alpha * (exp(Input) - 1).

    DirectML: ACTIVATION_ELU, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_elu(np.float32([1, -1]), alpha=1)
    array([ 1.        , -0.63212055], dtype=float32)
    """
    return _call("ACTIVATION_ELU", (input,), (alpha,), out)


@overload
def activation_hardmax(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_hardmax(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_hardmax(input: Expression) -> Expression: ...
def activation_hardmax(input: Any, *, out: Any = None) -> Any:
    """Output is 1 at the first of the greatest elements along the last axis, else 0.

    DirectML: ACTIVATION_HARDMAX, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_hardmax(np.float32([[1, 3, 3], [2, 1, 0]]))
    array([[0., 1., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    return _call("ACTIVATION_HARDMAX", (input,), (), out)


@overload
def activation_hard_sigmoid(
    input: Tensor, alpha: float = 0.2, beta: float = 0.5, *, out: None = None
) -> Array: ...
@overload
def activation_hard_sigmoid(input: Tensor, alpha: float = 0.2, beta: float = 0.5, *, out: Out) -> Out: ...
@overload
def activation_hard_sigmoid(input: Expression, alpha: float = 0.2, beta: float = 0.5) -> Expression: ...
def activation_hard_sigmoid(input: Any, alpha: float = 0.2, beta: float = 0.5, *, out: Any = None) -> Any:
    """Output is max(0, min(Alpha * Input + Beta, 1)).

    DirectML: ACTIVATION_HARD_SIGMOID, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        beta: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_hard_sigmoid(np.float32([-3, 1, 3]), alpha=0.25, beta=0.5)
    array([0.  , 0.75, 1.  ], dtype=float32)
    """
    return _call("ACTIVATION_HARD_SIGMOID", (input,), (alpha, beta), out)


@overload
def activation_identity(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_identity(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_identity(input: Expression) -> Expression: ...
def activation_identity(input: Any, *, out: Any = None) -> Any:
    """Output is Input.

    DirectML: ACTIVATION_IDENTITY, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_identity(np.float32([1, -2]))
    array([ 1., -2.], dtype=float32)
    """
    return _call("ACTIVATION_IDENTITY", (input,), (), out)


@overload
def activation_leaky_relu(input: Tensor, alpha: float = 0.01, *, out: None = None) -> Array: ...
@overload
def activation_leaky_relu(input: Tensor, alpha: float = 0.01, *, out: Out) -> Out: ...
@overload
def activation_leaky_relu(input: Expression, alpha: float = 0.01) -> Expression: ...
def activation_leaky_relu(input: Any, alpha: float = 0.01, *, out: Any = None) -> Any:
    """Output is Input where that is not negative, else Alpha times Input.

    DirectML: ACTIVATION_LEAKY_RELU, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_leaky_relu(np.float32([1, -2]), alpha=0.5)
    array([ 1., -1.], dtype=float32)
    """
    return _call("ACTIVATION_LEAKY_RELU", (input,), (alpha,), out)


@overload
def activation_linear(input: Tensor, alpha: float, beta: float, *, out: None = None) -> Array: ...
@overload
def activation_linear(input: Tensor, alpha: float, beta: float, *, out: Out) -> Out: ...
@overload
def activation_linear(input: Expression, alpha: float, beta: float) -> Expression: ...
def activation_linear(input: Any, alpha: float, beta: float, *, out: Any = None) -> Any:
    """Output is Alpha times Input plus Beta.

    DirectML: ACTIVATION_LINEAR, from feature level 1_0 on.

    Rounded once.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        beta: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_linear(np.float32([1, -2]), alpha=2, beta=3)
    array([ 5., -1.], dtype=float32)
    """
    return _call("ACTIVATION_LINEAR", (input,), (alpha, beta), out)


@overload
def activation_log_softmax(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_log_softmax(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_log_softmax(input: Expression) -> Expression: ...
def activation_log_softmax(input: Any, *, out: Any = None) -> Any:
    """Output is the natural logarithm of the softmax along the last axis.

    DirectML: ACTIVATION_LOG_SOFTMAX, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_log_softmax(np.float32([[0, 0], [1, 1]]))
    array([[-0.6931472, -0.6931472],
           [-0.6931472, -0.6931472]], dtype=float32)
    """
    return _call("ACTIVATION_LOG_SOFTMAX", (input,), (), out)


@overload
def activation_parameterized_relu(input: Tensor, slope: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_parameterized_relu(input: Tensor, slope: Tensor, *, out: Out) -> Out: ...
@overload
def activation_parameterized_relu(input: Expression, slope: Expression | Number) -> Expression: ...
@overload
def activation_parameterized_relu(input: Number, slope: Expression) -> Expression: ...
def activation_parameterized_relu(input: Any, slope: Any, *, out: Any = None) -> Any:
    """Output is Input where that is not negative, else Slope times Input.

    DirectML: ACTIVATION_PARAMETERIZED_RELU, from feature level 1_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32.
        slope: float16 | float32 | int8 | int16 | int32.
        out: where to write.

    Returns:
        An array of the type of input and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_parameterized_relu(np.float32([1, -2]), np.float32([0.5, 0.25]))
    array([ 1. , -0.5], dtype=float32)
    """
    return _call("ACTIVATION_PARAMETERIZED_RELU", (input, slope), (), out)


@overload
def activation_parametric_softplus(
    input: Tensor, alpha: float, beta: float, *, out: None = None
) -> Array: ...
@overload
def activation_parametric_softplus(input: Tensor, alpha: float, beta: float, *, out: Out) -> Out: ...
@overload
def activation_parametric_softplus(input: Expression, alpha: float, beta: float) -> Expression: ...
def activation_parametric_softplus(input: Any, alpha: float, beta: float, *, out: Any = None) -> Any:
    """Output is Alpha * ln(1 + exp(Beta * Input)).

    DirectML: ACTIVATION_PARAMETRIC_SOFTPLUS, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        beta: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_parametric_softplus(np.float32([0, 3]), alpha=3, beta=2)
    array([ 2.0794415, 18.007427 ], dtype=float32)
    """
    return _call("ACTIVATION_PARAMETRIC_SOFTPLUS", (input,), (alpha, beta), out)


@overload
def activation_relu(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_relu(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_relu(input: Expression) -> Expression: ...
def activation_relu(input: Any, *, out: Any = None) -> Any:
    """Output is the larger of Input and 0.

    DirectML: ACTIVATION_RELU, from feature level 1_0 on.

    A NaN stays one.

    Args:
        input: float16 | float32 | int8 | int16 | int32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_relu(np.float32([1, -2]))
    array([1., 0.], dtype=float32)
    """
    return _call("ACTIVATION_RELU", (input,), (), out)


@overload
def activation_scaled_elu(
    input: Tensor, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323, *, out: None = None
) -> Array: ...
@overload
def activation_scaled_elu(
    input: Tensor, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323, *, out: Out
) -> Out: ...
@overload
def activation_scaled_elu(
    input: Expression, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323
) -> Expression: ...
def activation_scaled_elu(
    input: Any, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323, *, out: Any = None
) -> Any:
    """Output is Gamma times Input where that is positive, else Gamma * (Alpha * exp(Input) - Alpha).

    DirectML: ACTIVATION_SCALED_ELU, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        gamma: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_scaled_elu(np.float32([2, -2]), alpha=3, gamma=2)
    array([ 4.       , -5.1879883], dtype=float32)
    """
    return _call("ACTIVATION_SCALED_ELU", (input,), (alpha, gamma), out)


@overload
def activation_scaled_tanh(
    input: Tensor, alpha: float = 1.0, beta: float = 0.5, *, out: None = None
) -> Array: ...
@overload
def activation_scaled_tanh(input: Tensor, alpha: float = 1.0, beta: float = 0.5, *, out: Out) -> Out: ...
@overload
def activation_scaled_tanh(input: Expression, alpha: float = 1.0, beta: float = 0.5) -> Expression: ...
def activation_scaled_tanh(input: Any, alpha: float = 1.0, beta: float = 0.5, *, out: Any = None) -> Any:
    """Output is Alpha * tanh(Beta * Input).

    DirectML: ACTIVATION_SCALED_TANH, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        beta: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_scaled_tanh(np.float32([0, 1]), alpha=2, beta=0.5)
    array([0.        , 0.92423433], dtype=float32)
    """
    return _call("ACTIVATION_SCALED_TANH", (input,), (alpha, beta), out)


@overload
def activation_sigmoid(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_sigmoid(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_sigmoid(input: Expression) -> Expression: ...
def activation_sigmoid(input: Any, *, out: Any = None) -> Any:
    """Output is 1 / (1 + exp(-Input)).

    DirectML: ACTIVATION_SIGMOID, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_sigmoid(np.float32([0, 1]))
    array([0.5      , 0.7310586], dtype=float32)
    """
    return _call("ACTIVATION_SIGMOID", (input,), (), out)


@overload
def activation_softmax(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_softmax(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_softmax(input: Expression) -> Expression: ...
def activation_softmax(input: Any, *, out: Any = None) -> Any:
    """Output is exp(Input) divided by its sum along the last axis.

    DirectML: ACTIVATION_SOFTMAX, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_softmax(np.float32([[0, 0], [1, 1]]))
    array([[0.5, 0.5],
           [0.5, 0.5]], dtype=float32)
    """
    return _call("ACTIVATION_SOFTMAX", (input,), (), out)


@overload
def activation_softplus(input: Tensor, steepness: float = 1.0, *, out: None = None) -> Array: ...
@overload
def activation_softplus(input: Tensor, steepness: float = 1.0, *, out: Out) -> Out: ...
@overload
def activation_softplus(input: Expression, steepness: float = 1.0) -> Expression: ...
def activation_softplus(input: Any, steepness: float = 1.0, *, out: Any = None) -> Any:
    """Output is ln(1 + exp(Steepness * Input)) / Steepness.

    DirectML: ACTIVATION_SOFTPLUS, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        steepness: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_softplus(np.float32([0, 100]), steepness=2)
    array([  0.3465736, 100.       ], dtype=float32)
    """
    return _call("ACTIVATION_SOFTPLUS", (input,), (steepness,), out)


@overload
def activation_softsign(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_softsign(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_softsign(input: Expression) -> Expression: ...
def activation_softsign(input: Any, *, out: Any = None) -> Any:
    """Output is Input / (1 + abs(Input)).

    DirectML: ACTIVATION_SOFTSIGN, from feature level 1_0 on.

    An infinity gives NaN, as the formula does.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_softsign(np.float32([1, -3]))
    array([ 0.5 , -0.75], dtype=float32)
    """
    return _call("ACTIVATION_SOFTSIGN", (input,), (), out)


@overload
def activation_tanh(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_tanh(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_tanh(input: Expression) -> Expression: ...
def activation_tanh(input: Any, *, out: Any = None) -> Any:
    """Output is the hyperbolic tangent of Input.

    DirectML: ACTIVATION_TANH, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_tanh(np.float32([0, 0.5]))
    array([0.        , 0.46211717], dtype=float32)
    """
    return _call("ACTIVATION_TANH", (input,), (), out)


@overload
def activation_thresholded_relu(input: Tensor, alpha: float = 1.0, *, out: None = None) -> Array: ...
@overload
def activation_thresholded_relu(input: Tensor, alpha: float = 1.0, *, out: Out) -> Out: ...
@overload
def activation_thresholded_relu(input: Expression, alpha: float = 1.0) -> Expression: ...
def activation_thresholded_relu(input: Any, alpha: float = 1.0, *, out: Any = None) -> Any:
    """Output is Input where that is greater than Alpha, else 0.

    DirectML: ACTIVATION_THRESHOLDED_RELU, from feature level 1_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_thresholded_relu(np.float32([0.5, 2]), alpha=1)
    array([0., 2.], dtype=float32)
    """
    return _call("ACTIVATION_THRESHOLDED_RELU", (input,), (alpha,), out)


@overload
def sign(input: Tensor, *, out: None = None) -> Array: ...
@overload
def sign(input: Tensor, *, out: Out) -> Out: ...
@overload
def sign(input: Expression) -> Expression: ...
def sign(input: Any, *, out: Any = None) -> Any:
    """Output is 1 where Input is positive, -1 where it is negative, and 0 otherwise.

    DirectML: ELEMENT_WISE_SIGN, from feature level 2_0 on.

    A NaN is neither positive nor negative: it gives 0.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.sign(np.float32([-3, 0, 0.5]))
    array([-1.,  0.,  1.], dtype=float32)
    """
    return _call("ELEMENT_WISE_SIGN", (input,), (), out)


@overload
def is_nan(
    input: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def is_nan(input: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out) -> Out: ...
@overload
def is_nan(input: Expression, *, output_data_type: TensorDataType | str | None = None) -> Expression: ...
def is_nan(input: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None) -> Any:
    """Output is 1 where Input is not a number, else 0.

    DirectML: ELEMENT_WISE_IS_NAN, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.is_nan(np.float32([[1, np.nan], [np.inf, 2]]))
    array([[0, 1],
           [0, 0]], dtype=uint8)
    """
    return _call("ELEMENT_WISE_IS_NAN", (input,), (), out, output_data_type)


@overload
def erf(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def erf(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def erf(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def erf(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the Gauss error function of Input.

    DirectML: ELEMENT_WISE_ERF, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.erf(np.float32([0, 0.5, np.inf]))
    array([0.       , 0.5204999, 1.       ], dtype=float32)
    """
    return _call("ELEMENT_WISE_ERF", (input,), (scale_bias,), out)


@overload
def sinh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def sinh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def sinh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def sinh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the hyperbolic sine of Input.

    DirectML: ELEMENT_WISE_SINH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.sinh(np.float32([0, 1]))
    array([0.       , 1.1752012], dtype=float32)
    """
    return _call("ELEMENT_WISE_SINH", (input,), (scale_bias,), out)


@overload
def cosh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def cosh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def cosh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def cosh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the hyperbolic cosine of Input.

    DirectML: ELEMENT_WISE_COSH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.cosh(np.float32([0, 1]))
    array([1.       , 1.5430807], dtype=float32)
    """
    return _call("ELEMENT_WISE_COSH", (input,), (scale_bias,), out)


@overload
def tanh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def tanh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def tanh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def tanh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the hyperbolic tangent of Input.

    DirectML: ELEMENT_WISE_TANH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.tanh(np.float32([0, 0.5, np.inf]))
    array([0.        , 0.46211717, 1.        ], dtype=float32)
    """
    return _call("ELEMENT_WISE_TANH", (input,), (scale_bias,), out)


@overload
def asinh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def asinh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def asinh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def asinh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the inverse hyperbolic sine of Input.

    DirectML: ELEMENT_WISE_ASINH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.asinh(np.float32([0, 1]))
    array([0.       , 0.8813736], dtype=float32)
    """
    return _call("ELEMENT_WISE_ASINH", (input,), (scale_bias,), out)


@overload
def acosh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def acosh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def acosh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def acosh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the inverse hyperbolic cosine of Input.

    DirectML: ELEMENT_WISE_ACOSH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.acosh(np.float32([1, 2]))
    array([0.      , 1.316958], dtype=float32)
    """
    return _call("ELEMENT_WISE_ACOSH", (input,), (scale_bias,), out)


@overload
def atanh(
    input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: None = None
) -> Array: ...
@overload
def atanh(input: Tensor, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Out) -> Out: ...
@overload
def atanh(input: Expression, scale_bias: ScaleBias | tuple[float, float] | None = None) -> Expression: ...
def atanh(input: Any, scale_bias: ScaleBias | tuple[float, float] | None = None, *, out: Any = None) -> Any:
    """Output is the inverse hyperbolic tangent of Input.

    DirectML: ELEMENT_WISE_ATANH, from feature level 2_0 on.

    Args:
        input: float16 | float32.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.atanh(np.float32([0, 0.5, 1]))
    array([0.        , 0.54930615,        inf], dtype=float32)
    """
    return _call("ELEMENT_WISE_ATANH", (input,), (scale_bias,), out)


@overload
def if_(condition: Tensor, a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def if_(condition: Tensor, a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def if_(condition: Expression, a: Expression | Number, b: Expression | Number) -> Expression: ...
def if_(condition: Any, a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A where Condition is non-zero, else B.

    DirectML: ELEMENT_WISE_IF, from feature level 2_0 on.

    Args:
        condition: uint8.
        a: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        b: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.if_(np.uint8([[1, 0], [1, 1]]), np.float32([[1, 2], [3, 4]]), np.float32([[9, 8], [7, 6]]))
    array([[1., 8.],
           [3., 4.]], dtype=float32)
    """
    return _call("ELEMENT_WISE_IF", (condition, a, b), (), out)


@overload
def add1(
    a: Tensor,
    b: Tensor,
    fused_activation: Mapping[str, Any] | OperatorDesc | str | None = None,
    *,
    out: None = None,
) -> Array: ...
@overload
def add1(
    a: Tensor, b: Tensor, fused_activation: Mapping[str, Any] | OperatorDesc | str | None = None, *, out: Out
) -> Out: ...
@overload
def add1(
    a: Expression,
    b: Expression | Number,
    fused_activation: Mapping[str, Any] | OperatorDesc | str | None = None,
) -> Expression: ...
@overload
def add1(
    a: Number, b: Expression, fused_activation: Mapping[str, Any] | OperatorDesc | str | None = None
) -> Expression: ...
def add1(
    a: Any, b: Any, fused_activation: Mapping[str, Any] | OperatorDesc | str | None = None, *, out: Any = None
) -> Any:
    """Output is A plus B, put through an activation if one is given.

    DirectML: ELEMENT_WISE_ADD1, from feature level 2_0 on.

    Args:
        a: float16 | float32.
        b: float16 | float32.
        fused_activation: an activation applied to the result: its name, or a description such as
            {"Type": "ACTIVATION_RELU"}.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.add1(np.float32([1, -5]), np.float32([2, 3]), fused_activation='ACTIVATION_RELU')
    array([3., 0.], dtype=float32)
    """
    return _call("ELEMENT_WISE_ADD1", (a, b), (fused_activation,), out)


@overload
def activation_shrink(
    input: Tensor, bias: float = 0.0, threshold: float = 0.5, *, out: None = None
) -> Array: ...
@overload
def activation_shrink(input: Tensor, bias: float = 0.0, threshold: float = 0.5, *, out: Out) -> Out: ...
@overload
def activation_shrink(input: Expression, bias: float = 0.0, threshold: float = 0.5) -> Expression: ...
def activation_shrink(input: Any, bias: float = 0.0, threshold: float = 0.5, *, out: Any = None) -> Any:
    """Output is Input minus Bias above Threshold, Input plus Bias below minus Threshold, and 0 between.

    DirectML: ACTIVATION_SHRINK, from feature level 2_0 on.

    Integers are compared and moved as real numbers; the result is truncated and saturates.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | uint8 | uint16 | uint32.
        bias: a number (float32).
        threshold: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_shrink(np.float32([-3, 0.2, 3]), bias=1, threshold=0.5)
    array([-2.,  0.,  2.], dtype=float32)
    """
    return _call("ACTIVATION_SHRINK", (input,), (bias, threshold), out)


@overload
def bit_shift_left(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_shift_left(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def bit_shift_left(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def bit_shift_left(a: Number, b: Expression) -> Expression: ...
def bit_shift_left(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A with its bits moved B places to the left; zeros come in.

    DirectML: ELEMENT_WISE_BIT_SHIFT_LEFT, from feature level 2_1 on.

    A count of the width of the type or more gives 0.

    Args:
        a: uint8 | uint16 | uint32 | uint64.
        b: uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_shift_left(np.uint32([1, 3, 128]), np.uint32([3, 1, 1]))
    array([  8,   6, 256], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_SHIFT_LEFT", (a, b), (), out)


@overload
def bit_shift_right(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_shift_right(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def bit_shift_right(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def bit_shift_right(a: Number, b: Expression) -> Expression: ...
def bit_shift_right(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is A with its bits moved B places to the right; zeros come in.

    DirectML: ELEMENT_WISE_BIT_SHIFT_RIGHT, from feature level 2_1 on.

    A count of the width of the type or more gives 0.

    Args:
        a: uint8 | uint16 | uint32 | uint64.
        b: uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_shift_right(np.uint32([8, 6, 255]), np.uint32([3, 1, 4]))
    array([ 1,  3, 15], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_SHIFT_RIGHT", (a, b), (), out)


@overload
def round(
    input: Tensor,
    rounding_mode: RoundingMode | str = RoundingMode.HALVES_TO_NEAREST_EVEN,
    *,
    out: None = None,
) -> Array: ...
@overload
def round(
    input: Tensor, rounding_mode: RoundingMode | str = RoundingMode.HALVES_TO_NEAREST_EVEN, *, out: Out
) -> Out: ...
@overload
def round(
    input: Expression, rounding_mode: RoundingMode | str = RoundingMode.HALVES_TO_NEAREST_EVEN
) -> Expression: ...
def round(
    input: Any, rounding_mode: RoundingMode | str = RoundingMode.HALVES_TO_NEAREST_EVEN, *, out: Any = None
) -> Any:
    """Output is Input rounded to a whole number.

    DirectML: ELEMENT_WISE_ROUND, from feature level 2_1 on.

    TOWARD_INFINITY rounds to the nearest whole number, halves away from zero.

    Args:
        input: float16 | float32.
        rounding_mode: a `RoundingMode` or its name: HALVES_TO_NEAREST_EVEN | TOWARD_ZERO |
            TOWARD_INFINITY
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.round(np.float32([0.5, 1.5, 2.4, -2.5]))
    array([ 0.,  2.,  2., -2.], dtype=float32)
    """
    return _call("ELEMENT_WISE_ROUND", (input,), (rounding_mode,), out)


@overload
def is_infinity(
    input: Tensor, mode: IsInfinityMode | str = IsInfinityMode.EITHER, *, out: None = None
) -> Array: ...
@overload
def is_infinity(input: Tensor, mode: IsInfinityMode | str = IsInfinityMode.EITHER, *, out: Out) -> Out: ...
@overload
def is_infinity(input: Expression, mode: IsInfinityMode | str = IsInfinityMode.EITHER) -> Expression: ...
def is_infinity(input: Any, mode: IsInfinityMode | str = IsInfinityMode.EITHER, *, out: Any = None) -> Any:
    """Output is 1 where Input is an infinity of the sign that InfinityMode names, else 0.

    DirectML: ELEMENT_WISE_IS_INFINITY, from feature level 2_1 on.

    Args:
        input: float16 | float32.
        mode: a `IsInfinityMode` or its name: EITHER | POSITIVE | NEGATIVE
        out: where to write.

    Returns:
        An array of UINT8 and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.is_infinity(np.float32([[1, np.inf], [-np.inf, 2]]))
    array([[0, 1],
           [1, 0]], dtype=uint8)
    """
    return _call("ELEMENT_WISE_IS_INFINITY", (input,), (mode,), out)


@overload
def modulus_truncate(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def modulus_truncate(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def modulus_truncate(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def modulus_truncate(a: Number, b: Expression) -> Expression: ...
def modulus_truncate(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the rest of A divided by B, with the sign of A (as fmod in C).

    DirectML: ELEMENT_WISE_MODULUS_TRUNCATE, from feature level 2_1 on.

    An integer modulo 0 is 0; a float modulo 0 is NaN.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.modulus_truncate(np.float32([7, -7, 7]), np.float32([3, 3, -3]))
    array([ 1., -1.,  1.], dtype=float32)
    """
    return _call("ELEMENT_WISE_MODULUS_TRUNCATE", (a, b), (), out)


@overload
def modulus_floor(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def modulus_floor(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def modulus_floor(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def modulus_floor(a: Number, b: Expression) -> Expression: ...
def modulus_floor(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the rest of A divided by B, with the sign of B (as % in Python).

    DirectML: ELEMENT_WISE_MODULUS_FLOOR, from feature level 2_1 on.

    An integer modulo 0 is 0; a float modulo 0 is NaN.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.modulus_floor(np.float32([7, -7, 7]), np.float32([3, 3, -3]))
    array([ 1.,  2., -2.], dtype=float32)
    """
    return _call("ELEMENT_WISE_MODULUS_FLOOR", (a, b), (), out)


@overload
def bit_and(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_and(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def bit_and(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def bit_and(a: Number, b: Expression) -> Expression: ...
def bit_and(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output has the bits that are set in both A and B.

    DirectML: ELEMENT_WISE_BIT_AND, from feature level 3_0 on.

    Of floats, the bit patterns are combined.

    Args:
        a: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        b: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_and(np.uint32([12, 255]), np.uint32([10, 16]))
    array([ 8, 16], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_AND", (a, b), (), out)


@overload
def bit_or(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_or(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def bit_or(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def bit_or(a: Number, b: Expression) -> Expression: ...
def bit_or(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output has the bits that are set in A or B.

    DirectML: ELEMENT_WISE_BIT_OR, from feature level 3_0 on.

    Of floats, the bit patterns are combined.

    Args:
        a: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        b: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_or(np.uint32([12, 1]), np.uint32([10, 16]))
    array([14, 17], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_OR", (a, b), (), out)


@overload
def bit_xor(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_xor(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def bit_xor(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def bit_xor(a: Number, b: Expression) -> Expression: ...
def bit_xor(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output has the bits that are set in exactly one of A and B.

    DirectML: ELEMENT_WISE_BIT_XOR, from feature level 3_0 on.

    Of floats, the bit patterns are combined.

    Args:
        a: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        b: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_xor(np.uint32([12, 17]), np.uint32([10, 16]))
    array([6, 1], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_XOR", (a, b), (), out)


@overload
def bit_not(input: Tensor, *, out: None = None) -> Array: ...
@overload
def bit_not(input: Tensor, *, out: Out) -> Out: ...
@overload
def bit_not(input: Expression) -> Expression: ...
def bit_not(input: Any, *, out: Any = None) -> Any:
    """Output has the bits that Input has not.

    DirectML: ELEMENT_WISE_BIT_NOT, from feature level 3_0 on.

    Of floats, the bit patterns are combined.

    Args:
        input: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_not(np.uint32([0, 4294967295, 1]))
    array([4294967295,          0, 4294967294], dtype=uint32)
    """
    return _call("ELEMENT_WISE_BIT_NOT", (input,), (), out)


@overload
def bit_count(
    input: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def bit_count(input: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out) -> Out: ...
@overload
def bit_count(input: Expression, *, output_data_type: TensorDataType | str | None = None) -> Expression: ...
def bit_count(input: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None) -> Any:
    """Output is the number of bits that are set in Input.

    DirectML: ELEMENT_WISE_BIT_COUNT, from feature level 3_0 on.

    Of floats, the bit patterns are counted.

    Args:
        input: float16 | float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.bit_count(np.uint32([0, 1, 255]))
    array([0, 1, 8], dtype=uint8)
    """
    return _call("ELEMENT_WISE_BIT_COUNT", (input,), (), out, output_data_type)


@overload
def greater_than_or_equal(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def greater_than_or_equal(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out
) -> Out: ...
@overload
def greater_than_or_equal(
    a: Expression, b: Expression | Number, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
@overload
def greater_than_or_equal(
    a: Number, b: Expression, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
def greater_than_or_equal(
    a: Any, b: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None
) -> Any:
    """Output is 1 where A is greater than or equal to B, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL, from feature level 3_0 on.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.greater_than_or_equal(np.float32([1, 3, 2]), np.float32([2, 2, 2]))
    array([0, 1, 1], dtype=uint8)
    """
    return _call("ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL", (a, b), (), out, output_data_type)


@overload
def less_than_or_equal(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: None = None
) -> Array: ...
@overload
def less_than_or_equal(
    a: Tensor, b: Tensor, *, output_data_type: TensorDataType | str | None = None, out: Out
) -> Out: ...
@overload
def less_than_or_equal(
    a: Expression, b: Expression | Number, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
@overload
def less_than_or_equal(
    a: Number, b: Expression, *, output_data_type: TensorDataType | str | None = None
) -> Expression: ...
def less_than_or_equal(
    a: Any, b: Any, *, output_data_type: TensorDataType | str | None = None, out: Any = None
) -> Any:
    """Output is 1 where A is less than or equal to B, else 0.

    DirectML: ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL, from feature level 3_0 on.

    Its page says that it exists from 1_0 on; DirectML's header and level history say 3_0, as here.

    Args:
        a: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        b: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        output_data_type: uint8 | uint32; default UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.less_than_or_equal(np.float32([1, 3, 2]), np.float32([2, 2, 2]))
    array([1, 0, 1], dtype=uint8)
    """
    return _call("ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL", (a, b), (), out, output_data_type)


@overload
def activation_celu(input: Tensor, alpha: float = 1.0, *, out: None = None) -> Array: ...
@overload
def activation_celu(input: Tensor, alpha: float = 1.0, *, out: Out) -> Out: ...
@overload
def activation_celu(input: Expression, alpha: float = 1.0) -> Expression: ...
def activation_celu(input: Any, alpha: float = 1.0, *, out: Any = None) -> Any:
    """Output is max(0, Input) + min(0, Alpha * (exp(Input / Alpha) - 1)).

    DirectML: ACTIVATION_CELU, from feature level 3_0 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_celu(np.float32([2, -1]), alpha=0.5)
    array([ 2.        , -0.43233237], dtype=float32)
    """
    return _call("ACTIVATION_CELU", (input,), (alpha,), out)


@overload
def activation_relu_grad(input: Tensor, input_gradient: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_relu_grad(input: Tensor, input_gradient: Tensor, *, out: Out) -> Out: ...
@overload
def activation_relu_grad(input: Expression, input_gradient: Expression | Number) -> Expression: ...
@overload
def activation_relu_grad(input: Number, input_gradient: Expression) -> Expression: ...
def activation_relu_grad(input: Any, input_gradient: Any, *, out: Any = None) -> Any:
    """OutputGradient is InputGradient where Input is positive, else 0.

    DirectML: ACTIVATION_RELU_GRAD, from feature level 3_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32.
        input_gradient: float16 | float32 | int8 | int16 | int32.
        out: where to write.

    Returns:
        An array of the type of input and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_relu_grad(np.float32([1, -2, 0]), np.float32([5, 6, 7]))
    array([5., 0., 0.], dtype=float32)
    """
    return _call("ACTIVATION_RELU_GRAD", (input, input_gradient), (), out)


@overload
def atan_yx(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def atan_yx(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def atan_yx(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def atan_yx(a: Number, b: Expression) -> Expression: ...
def atan_yx(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the angle, in radians from -π to π, of the point whose y is A and whose x is B.

    DirectML: ELEMENT_WISE_ATAN_YX, from feature level 3_1 on.

    Zeros, infinities and signs as IEEE 754's atan2 has them, also at 0, 0.

    Args:
        a: float16 | float32.
        b: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.atan_yx(np.float32([0, 1, -1]), np.float32([1, 0, 0]))
    array([ 0.       ,  1.5707964, -1.5707964], dtype=float32)
    """
    return _call("ELEMENT_WISE_ATAN_YX", (a, b), (), out)


@overload
def clip_grad(
    input: Tensor, input_gradient: Tensor, min: float, max: float, *, out: None = None
) -> Array: ...
@overload
def clip_grad(input: Tensor, input_gradient: Tensor, min: float, max: float, *, out: Out) -> Out: ...
@overload
def clip_grad(
    input: Expression, input_gradient: Expression | Number, min: float, max: float
) -> Expression: ...
@overload
def clip_grad(input: Number, input_gradient: Expression, min: float, max: float) -> Expression: ...
def clip_grad(input: Any, input_gradient: Any, min: float, max: float, *, out: Any = None) -> Any:
    """Output is InputGradient where Input lies strictly between Min and Max, else 0.

    DirectML: ELEMENT_WISE_CLIP_GRAD, from feature level 3_1 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        input_gradient: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        min: a number (float32).
        max: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.clip_grad(np.float32([-2, 0.5, 1]), np.float32([5, 6, 7]), min=-1, max=1)
    array([0., 6., 0.], dtype=float32)
    """
    return _call("ELEMENT_WISE_CLIP_GRAD", (input, input_gradient), (min, max), out)


@overload
def difference_square(a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def difference_square(a: Tensor, b: Tensor, *, out: Out) -> Out: ...
@overload
def difference_square(a: Expression, b: Expression | Number) -> Expression: ...
@overload
def difference_square(a: Number, b: Expression) -> Expression: ...
def difference_square(a: Any, b: Any, *, out: Any = None) -> Any:
    """Output is the square of A minus B.

    DirectML: ELEMENT_WISE_DIFFERENCE_SQUARE, from feature level 3_1 on.

    Integers wrap around at overflow (two's complement).

    Args:
        a: float16 | float32 | int32 | uint32.
        b: float16 | float32 | int32 | uint32.
        out: where to write.

    Returns:
        An array of the type of a and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.difference_square(np.float32([1, 5]), np.float32([3, 2]))
    array([4., 9.], dtype=float32)
    """
    return _call("ELEMENT_WISE_DIFFERENCE_SQUARE", (a, b), (), out)


@overload
def quantized_linear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    output_scale: Tensor,
    output_zero_point: Tensor | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: None = None,
) -> Array: ...
@overload
def quantized_linear_add(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor | None,
    output_scale: Tensor,
    output_zero_point: Tensor | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: Out,
) -> Out: ...
@overload
def quantized_linear_add(
    a: Expression,
    a_scale: Expression | Number,
    a_zero_point: Expression | Number | None,
    b: Expression | Number,
    b_scale: Expression | Number,
    b_zero_point: Expression | Number | None,
    output_scale: Expression | Number,
    output_zero_point: Expression | Number | None = None,
    *,
    output_data_type: TensorDataType | str | None = None,
) -> Expression: ...
def quantized_linear_add(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any = None,
    *,
    output_data_type: TensorDataType | str | None = None,
    out: Any = None,
) -> Any:
    """Output is A plus B, both dequantized, and their sum quantized again.

    DirectML: ELEMENT_WISE_QUANTIZED_LINEAR_ADD, from feature level 4_0 on.

    Computed in float64 and rounded once, halves to even. A missing zero point is 0.

    Args:
        a: int8 | uint8.
        a_scale: float32, one element.
        a_zero_point: int8 | uint8, one element; may be left out.
        b: int8 | uint8.
        b_scale: float32, one element.
        b_zero_point: int8 | uint8, one element; may be left out.
        output_scale: float32, one element.
        output_zero_point: int8 | uint8, one element; may be left out.
        output_data_type: int8 | uint8; default that of zero_point, else UINT8.
        out: where to write.

    Returns:
        An array of that type and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.quantized_linear_add(
    ...     np.uint8([10, 20]), np.float32([0.5]), None, np.uint8([4, 8]),
    ...     np.float32([0.25]), None, np.float32([1.0]), np.uint8([3])
    ... )
    array([ 9, 15], dtype=uint8)
    """
    return _call(
        "ELEMENT_WISE_QUANTIZED_LINEAR_ADD",
        (a, a_scale, a_zero_point, b, b_scale, b_zero_point, output_scale, output_zero_point),
        (),
        out,
        output_data_type,
    )


@overload
def clip1(
    input: Tensor,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: None = None,
) -> Array: ...
@overload
def clip1(
    input: Tensor,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: Out,
) -> Out: ...
@overload
def clip1(
    input: Expression, min: float, max: float, scale_bias: ScaleBias | tuple[float, float] | None = None
) -> Expression: ...
def clip1(
    input: Any,
    min: float,
    max: float,
    scale_bias: ScaleBias | tuple[float, float] | None = None,
    *,
    out: Any = None,
) -> Any:
    """Output is Input limited to the range from Min to Max, which are numbers of the tensor's type.

    DirectML: ELEMENT_WISE_CLIP1, from feature level 5_0 on.

    Min and Max that the tensor's type cannot hold are refused. If Min is greater than Max, the formula
    gives Min. A NaN stays one.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        min: a number of the tensor's type.
        max: a number of the tensor's type.
        scale_bias: (scale, bias): the input is taken times scale plus bias first.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.clip1(np.float32([-2, 0.5, 3]), min=-1, max=1)
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return _call("ELEMENT_WISE_CLIP1", (input,), (scale_bias, min, max), out)


@overload
def clip_grad1(
    input: Tensor, input_gradient: Tensor, min: float, max: float, *, out: None = None
) -> Array: ...
@overload
def clip_grad1(input: Tensor, input_gradient: Tensor, min: float, max: float, *, out: Out) -> Out: ...
@overload
def clip_grad1(
    input: Expression, input_gradient: Expression | Number, min: float, max: float
) -> Expression: ...
@overload
def clip_grad1(input: Number, input_gradient: Expression, min: float, max: float) -> Expression: ...
def clip_grad1(input: Any, input_gradient: Any, min: float, max: float, *, out: Any = None) -> Any:
    """Output is InputGradient where Input lies strictly between Min and Max, else 0.

    DirectML: ELEMENT_WISE_CLIP_GRAD1, from feature level 5_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64.
        input_gradient: float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 |
            uint64.
        min: a number of the tensor's type.
        max: a number of the tensor's type.
        out: where to write.

    Returns:
        An array of the type of input and the common shape, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.clip_grad1(np.float32([-2, 0.5, 1]), np.float32([5, 6, 7]), min=-1, max=1)
    array([0., 6., 0.], dtype=float32)
    """
    return _call("ELEMENT_WISE_CLIP_GRAD1", (input, input_gradient), (min, max), out)


@overload
def negate(input: Tensor, *, out: None = None) -> Array: ...
@overload
def negate(input: Tensor, *, out: Out) -> Out: ...
@overload
def negate(input: Expression) -> Expression: ...
def negate(input: Any, *, out: Any = None) -> Any:
    """Output is Input with the other sign.

    DirectML: ELEMENT_WISE_NEGATE, from feature level 5_0 on.

    Args:
        input: float16 | float32 | int8 | int16 | int32 | int64.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.negate(np.float32([1, -2, 0.5]))
    array([-1. ,  2. , -0.5], dtype=float32)
    """
    return _call("ELEMENT_WISE_NEGATE", (input,), (), out)


@overload
def activation_gelu(input: Tensor, *, out: None = None) -> Array: ...
@overload
def activation_gelu(input: Tensor, *, out: Out) -> Out: ...
@overload
def activation_gelu(input: Expression) -> Expression: ...
def activation_gelu(input: Any, *, out: Any = None) -> Any:
    """Output is 0.5 * Input * (1 + erf(Input / sqrt(2))).

    DirectML: ACTIVATION_GELU, from feature level 5_1 on.

    Args:
        input: float16 | float32.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_gelu(np.float32([0, 1, -1]))
    array([ 0.        ,  0.8413447 , -0.15865526], dtype=float32)
    """
    return _call("ACTIVATION_GELU", (input,), (), out)


@overload
def activation_softmax1(input: Tensor, axes: Sequence[int], *, out: None = None) -> Array: ...
@overload
def activation_softmax1(input: Tensor, axes: Sequence[int], *, out: Out) -> Out: ...
@overload
def activation_softmax1(input: Expression, axes: Sequence[int]) -> Expression: ...
def activation_softmax1(input: Any, axes: Sequence[int], *, out: Any = None) -> Any:
    """Output is exp(Input) divided by its sum over all Axes together.

    DirectML: ACTIVATION_SOFTMAX1, from feature level 5_1 on.

    Args:
        input: float16 | float32.
        axes: the dimensions that a row runs along, counted from 0 or (negative) from the end.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_softmax1(np.float32([[0, 0], [0, 0]]), axes=[0, 1])
    array([[0.25, 0.25],
           [0.25, 0.25]], dtype=float32)
    """
    return _call("ACTIVATION_SOFTMAX1", (input,), (axes,), out)


@overload
def activation_log_softmax1(input: Tensor, axes: Sequence[int], *, out: None = None) -> Array: ...
@overload
def activation_log_softmax1(input: Tensor, axes: Sequence[int], *, out: Out) -> Out: ...
@overload
def activation_log_softmax1(input: Expression, axes: Sequence[int]) -> Expression: ...
def activation_log_softmax1(input: Any, axes: Sequence[int], *, out: Any = None) -> Any:
    """Output is the natural logarithm of the softmax over all Axes together.

    DirectML: ACTIVATION_LOG_SOFTMAX1, from feature level 5_1 on.

    Args:
        input: float16 | float32.
        axes: the dimensions that a row runs along, counted from 0 or (negative) from the end.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_log_softmax1(np.float32([[0, 1], [0, 1]]), axes=[0])
    array([[-0.6931472, -0.6931472],
           [-0.6931472, -0.6931472]], dtype=float32)
    """
    return _call("ACTIVATION_LOG_SOFTMAX1", (input,), (axes,), out)


@overload
def activation_hardmax1(input: Tensor, axes: Sequence[int], *, out: None = None) -> Array: ...
@overload
def activation_hardmax1(input: Tensor, axes: Sequence[int], *, out: Out) -> Out: ...
@overload
def activation_hardmax1(input: Expression, axes: Sequence[int]) -> Expression: ...
def activation_hardmax1(input: Any, axes: Sequence[int], *, out: Any = None) -> Any:
    """Output is 1 at the first of the greatest elements over all Axes together, else 0.

    DirectML: ACTIVATION_HARDMAX1, from feature level 5_1 on.

    Args:
        input: float16 | float32.
        axes: the dimensions that a row runs along, counted from 0 or (negative) from the end.
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_hardmax1(np.float32([[1, 3], [4, 1]]), axes=[0, 1])
    array([[0., 0.],
           [1., 0.]], dtype=float32)
    """
    return _call("ACTIVATION_HARDMAX1", (input,), (axes,), out)


@overload
def activation_swish(input: Tensor, sigmoid_input_scale: float = 1.0, *, out: None = None) -> Array: ...
@overload
def activation_swish(input: Tensor, sigmoid_input_scale: float = 1.0, *, out: Out) -> Out: ...
@overload
def activation_swish(input: Expression, sigmoid_input_scale: float = 1.0) -> Expression: ...
def activation_swish(input: Any, sigmoid_input_scale: float = 1.0, *, out: Any = None) -> Any:
    """Output is Input * sigmoid(SigmoidInputScale * Input).

    DirectML: ACTIVATION_SWISH, from feature level 6_2 on.

    Args:
        input: float16 | float32.
        sigmoid_input_scale: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_swish(np.float32([0, 1]), sigmoid_input_scale=1)
    array([0.       , 0.7310586], dtype=float32)
    """
    return _call("ACTIVATION_SWISH", (input,), (sigmoid_input_scale,), out)


@overload
def activation_hard_swish(
    input: Tensor, alpha: float = 0.16666666666666666, beta: float = 0.5, *, out: None = None
) -> Array: ...
@overload
def activation_hard_swish(
    input: Tensor, alpha: float = 0.16666666666666666, beta: float = 0.5, *, out: Out
) -> Out: ...
@overload
def activation_hard_swish(
    input: Expression, alpha: float = 0.16666666666666666, beta: float = 0.5
) -> Expression: ...
def activation_hard_swish(
    input: Any, alpha: float = 0.16666666666666666, beta: float = 0.5, *, out: Any = None
) -> Any:
    """Output is Input * max(0, min(Alpha * Input + Beta, 1)).

    DirectML: ACTIVATION_HARD_SWISH, from feature level 6_2 on.

    Args:
        input: float16 | float32.
        alpha: a number (float32).
        beta: a number (float32).
        out: where to write.

    Returns:
        An array of the type of input and the shape of input, or `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.activation_hard_swish(np.float32([-1, 1, 3]), alpha=0.25, beta=0.5)
    array([-0.25,  0.75,  3.  ], dtype=float32)
    """
    return _call("ACTIVATION_HARD_SWISH", (input,), (alpha, beta), out)
