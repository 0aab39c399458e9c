"""Functions of one tensor: activations, and what mathematics knows by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from anydml.onnx.ops import meanings, result_types
from anydml.onnx.ops.arithmetic import is_64_bit
from anydml.onnx.ops.directml import (
    DOUBLE,
    FLOATING,
    SIGNED,
    Attributes,
    DirectMLForm,
    float_attributes,
    one_attribute,
    unary,
)
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, round_to, widen
from anydml.onnx.ops.shared import in_double, in_single
from anydml.onnx.ops.speculation import always
from anydml.ops import activation, elementwise
from anydml.ops import unary as unary_ops
from anydml.ops.enums import IsInfinityMode

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _function(formula: Callable[[Array], Any]) -> Fold:
    return in_double(lambda node, x: formula(x))


def _doubles(x: Any) -> Array:
    """What Python's functions give, as an array."""
    return np.asarray(x, np.float64)


def _relu(node: NodeView, x: Array) -> Array:
    return np.where(x < 0, np.zeros((), x.dtype), x)


def _leaky_relu(node: NodeView, x: Array) -> Array:
    return np.where(x < 0, node.float("alpha") * x, x)


def _prelu(node: NodeView, x: Array, slope: Array) -> Array:
    if node.version < 7 and slope.size != 1:
        raise NotFoldable("a slope for each channel")
    slope = slope if node.version >= 7 else slope.reshape(())
    if np.broadcast_shapes(x.shape, slope.shape) != x.shape:
        raise NotFoldable("a slope that is larger than x")  # ONNX has none, and onnxruntime a larger result
    if x.dtype not in FLOATS:
        return np.where(x < 0, x * slope, x)
    return round_to(np.where(widen(x) < 0, widen(x) * widen(slope), widen(x)), x.dtype)


def _exponential(x: Array) -> Array:
    """exp(x) - 1 where x is negative, NaN where it is, and 0 elsewhere."""
    return np.expm1(np.where(x > 0, 0, x) + 0.0)  # of -0, too, it is 0


def _elu(node: NodeView, x: Array) -> Array:
    return np.where(x < 0, node.float("alpha") * _exponential(x), x)


def _celu(node: NodeView, x: Array) -> Array:
    alpha = node.float("alpha")
    if not alpha > 0:
        raise NotFoldable(f"Celu with alpha {alpha}")
    return np.where(x < 0, alpha * _exponential(x / alpha), x) + 0.0  # it is a sum, of which -0 is none


def _selu(node: NodeView, x: Array) -> Array:
    inner = np.where(x > 0, x, node.float("alpha") * _exponential(x))
    return node.float("gamma") * inner


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _hard_sigmoid(node: NodeView, x: Array) -> Array:
    return np.clip(node.float("alpha") * x + node.float("beta"), 0, 1)


_SIXTH = float(np.float32(1 / 6))
"""What ONNX's function body of HardSwish gives HardSigmoid, at all types."""


def _hard_swish(node: NodeView, x: Array) -> Array:
    inner: Array = np.clip(x * _SIXTH + 0.5, 0, 1)
    return x * inner


def _gelu(node: NodeView, x: Array) -> Array:
    """By the complement where x is negative: 1 + erf has no digits left there."""
    how = node.text("approximate")
    if how == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.where(np.isneginf(x), np.nan, x * _sigmoid(2 * inner))
    if how != "none":
        raise NotFoldable(f"approximate {how}")
    return 0.5 * x * _doubles(_erfc(-x / math.sqrt(2)))


def _shrink(node: NodeView, x: Array) -> Array:
    bias, limit = node.float("bias"), node.float("lambd")
    if x.dtype in FLOATS:
        y = widen(x)
        return round_to(np.where(y < -limit, y + bias, np.where(y > limit, y - bias, 0)), x.dtype)
    if bias != int(bias) or not math.isfinite(limit):
        raise NotFoldable("Shrink of integers by what is none")
    wanted = [
        n + int(bias) if n < -limit else n - int(bias) if n > limit else 0 for n in x.reshape(-1).tolist()
    ]
    limits = np.iinfo(x.dtype)
    if any(not limits.min <= n <= limits.max for n in wanted):
        raise NotFoldable("a result that the type does not have")
    return np.array(wanted, x.dtype).reshape(x.shape)


def _shrink_attributes(node: KnownNode) -> dict[str, Any] | None:
    """Where a negative threshold makes both sides meet, ONNX adds the bias, and DirectML takes it away."""
    found = float_attributes(node, bias="Bias", lambd="Threshold")
    return found if found is not None and found["Threshold"] >= 0 else None


def _is_inf(node: NodeView, x: Array) -> Any:
    y = widen(x) if x.dtype in FLOATS else x.astype(np.float32)
    positive, negative = node.int("detect_positive"), node.int("detect_negative")
    return np.logical_and(np.isinf(y), np.where(y > 0, bool(positive), bool(negative)))


def _slope_broadcasts(n: KnownNode) -> bool:
    """The slope broadcasts to the input, not the input to it."""
    x, slope = n.sizes(0), n.sizes(1)
    if x is None or slope is None or len(slope) > len(x) or None in x:
        return False
    return all(a in (1, b) for a, b in zip(slope[::-1], x[::-1], strict=False))


_MODES = {
    (True, True): IsInfinityMode.EITHER,
    (True, False): IsInfinityMode.POSITIVE,
    (False, True): IsInfinityMode.NEGATIVE,
}


def _infinity_mode(node: NodeView) -> Attributes | None:
    """None when neither sign is to be detected: then nothing is infinite, which a library computes."""
    mode = _MODES.get((node.int("detect_positive") != 0, node.int("detect_negative") != 0))
    return None if mode is None else {"InfinityMode": mode}


def _gelu_is(how: str) -> Callable[[KnownNode], Attributes | None]:
    return lambda n: {} if n.text("approximate") == how else None


OPS = (
    OpInfo(
        "Acos",
        result=result_types.same,
        fold=_function(np.arccos),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ACOS),
    ),
    OpInfo(
        "Acosh",
        result=result_types.same,
        fold=_function(np.arccosh),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ACOSH),
    ),
    OpInfo(
        "Asin",
        result=result_types.same,
        fold=_function(np.arcsin),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ASIN),
    ),
    OpInfo(
        "Asinh",
        result=result_types.same,
        fold=_function(np.arcsinh),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ASINH),
    ),
    OpInfo(
        "Atan",
        result=result_types.same,
        fold=_function(np.arctan),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ATAN),
    ),
    OpInfo(
        "Atanh",
        result=result_types.same,
        fold=_function(np.arctanh),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ATANH),
    ),
    OpInfo(
        "Celu",
        result=result_types.same,
        fold=in_double(_celu),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_CELU, frozenset({"float32"}), attributes=one_attribute("alpha", "Alpha")
        ),
    ),
    OpInfo(
        "Cos",
        result=result_types.same,
        fold=_function(np.cos),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_COS),
    ),
    OpInfo(
        "Cosh",
        result=result_types.same,
        fold=_function(np.cosh),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_COSH),
    ),
    OpInfo(
        "Elu",
        result=result_types.same,
        fold=in_double(_elu),
        speculatable=always,
        directml=DirectMLForm(activation.ACTIVATION_ELU, attributes=partial(float_attributes, alpha="Alpha")),
    ),
    OpInfo(
        "Erf",
        result=result_types.same,
        fold=_function(lambda x: _doubles(_erf(x))),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_ERF),
    ),
    OpInfo(
        "Gelu",
        result=result_types.same,
        fold=in_double(_gelu),
        speculatable=always,
        directml=(
            DirectMLForm(activation.ACTIVATION_GELU, attributes=_gelu_is("none")),
            DirectMLForm(meanings.GELU_BY_TANH, attributes=_gelu_is("tanh")),
        ),
    ),
    OpInfo(
        "HardSigmoid",
        result=result_types.same,
        fold=in_single(_hard_sigmoid),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_HARD_SIGMOID,
            FLOATING,
            attributes=partial(float_attributes, alpha="Alpha", beta="Beta"),
        ),
    ),
    OpInfo(
        "HardSwish",
        result=result_types.same,
        fold=in_single(_hard_swish),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_HARD_SWISH, FLOATING, attributes=lambda n: {"Alpha": _SIXTH, "Beta": 0.5}
        ),
    ),
    OpInfo(
        "IsInf",
        result=result_types.bools,
        fold=_is_inf,
        speculatable=always,
        directml=DirectMLForm(elementwise.ELEMENT_WISE_IS_INFINITY, FLOATING, attributes=_infinity_mode),
    ),
    OpInfo(
        "IsNaN",
        result=result_types.bools,
        fold=lambda node, x: np.isnan(x if x.dtype in FLOATS else x.astype(np.float32)),
        speculatable=always,
        directml=unary(elementwise.ELEMENT_WISE_IS_NAN, FLOATING),
    ),
    OpInfo(
        "LeakyRelu",
        result=result_types.same,
        fold=in_single(_leaky_relu),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_LEAKY_RELU, FLOATING, attributes=partial(float_attributes, alpha="Alpha")
        ),
    ),
    OpInfo(
        "Mish",
        result=result_types.same,
        fold=_function(lambda x: x * np.tanh(_softplus(x))),
        speculatable=always,
        directml=unary(meanings.MISH),
    ),
    OpInfo(
        "PRelu",
        result=result_types.same,
        fold=_prelu,
        speculatable=_slope_broadcasts,
        directml=DirectMLForm(
            activation.ACTIVATION_PARAMETERIZED_RELU,
            FLOATING | {"int32", "int64", "uint32", "uint64"},
            inputs=(2,),
            attributes=lambda n: {} if _slope_broadcasts(n) else None,
        ),
    ),
    OpInfo(
        "Relu",
        result=result_types.same,
        fold=_relu,
        speculatable=always,
        directml=unary(activation.ACTIVATION_RELU, SIGNED, since=6),
    ),
    OpInfo(
        "Selu",
        result=result_types.same,
        fold=in_double(_selu),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_SCALED_ELU,
            attributes=partial(float_attributes, alpha="Alpha", gamma="Gamma"),
        ),
    ),
    OpInfo(
        "Shrink",
        result=result_types.same,
        fold=_shrink,
        speculatable=always,
        directml=DirectMLForm(activation.ACTIVATION_SHRINK, FLOATING, attributes=_shrink_attributes),
        quirks=(Quirk("onnxruntime takes 64-bit integers as if they were float64", is_64_bit),),
    ),
    OpInfo(
        "Sigmoid",
        result=result_types.same,
        fold=_function(_sigmoid),
        speculatable=always,
        directml=(unary(activation.ACTIVATION_SIGMOID), unary(meanings.SIGMOID, DOUBLE)),
    ),
    OpInfo(
        "Sin",
        result=result_types.same,
        fold=_function(np.sin),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_SIN),
    ),
    OpInfo(
        "Sinh",
        result=result_types.same,
        fold=_function(np.sinh),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_SINH),
    ),
    OpInfo(
        "Softplus",
        result=result_types.same,
        fold=_function(_softplus),
        speculatable=always,
        directml=(unary(activation.ACTIVATION_SOFTPLUS), unary(meanings.SOFTPLUS, DOUBLE)),
    ),
    OpInfo(
        "Softsign",
        result=result_types.same,
        fold=in_single(lambda node, x: x / (1 + np.abs(x))),
        speculatable=always,
        directml=unary(activation.ACTIVATION_SOFTSIGN, FLOATING),
    ),
    OpInfo(
        "Swish",
        result=result_types.same,
        fold=in_double(lambda node, x: x * _sigmoid(node.float("alpha") * x)),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_SWISH, attributes=one_attribute("alpha", "SigmoidInputScale")
        ),
    ),
    OpInfo(
        "Tan",
        result=result_types.same,
        fold=_function(np.tan),
        speculatable=always,
        directml=unary(unary_ops.ELEMENT_WISE_TAN),
    ),
    OpInfo(
        "Tanh",
        result=result_types.same,
        fold=_function(np.tanh),
        speculatable=always,
        directml=(unary(unary_ops.ELEMENT_WISE_TANH), unary(meanings.TANH, DOUBLE)),
    ),
    OpInfo(
        "ThresholdedRelu",
        result=result_types.same,
        fold=in_single(lambda node, x: np.where(x > node.float("alpha"), x, 0)),
        speculatable=always,
        directml=DirectMLForm(
            activation.ACTIVATION_THRESHOLDED_RELU, FLOATING, attributes=one_attribute("alpha", "Alpha")
        ),
    ),
)
