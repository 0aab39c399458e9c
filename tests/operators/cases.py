"""Every element-wise operator and activation: its tensors, types and attributes, and how exact it is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

import anydml as dml
from anydml.ops.catalog import BY_NAME

from .oracle import c_power, f32, quanta, quantized, real, truncated


def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


U = 2.0**-24
"""Half a unit in the last place of 1.0, in float32."""

FLOATS = "float32 float16"
SIGNED = "int64 int32 int16 int8"
UNSIGNED = "uint64 uint32 uint16 uint8"
ALL = f"{FLOATS} {SIGNED} {UNSIGNED}"
NARROW = f"{FLOATS} int32 int16 int8 uint32 uint16 uint8"
WITH_DOUBLE = f"float64 {ALL}"
FLAGS = "uint32 uint8"


@dataclass(frozen=True)
class Operand:
    """One tensor: `kind` tells how to fill it, or that it is "one" element or "optional"."""

    name: str
    type_variable: str
    kinds: tuple[str, ...] = ()

    @property
    def parameter(self):
        return snake(self.name.removesuffix("Tensor"))


def _slots(text):
    parts = [opcode.split(":") for opcode in text.split()]
    return tuple(
        Operand(f"{name}Tensor", type_variable, tuple(kinds)) for name, type_variable, *kinds in parts
    )


@dataclass(frozen=True)
class Case:
    name: str
    operands: tuple[Operand, ...]
    types: Mapping[str, str]
    attributes: tuple[dict, ...] = ({},)
    ulps: float = 0.0
    """How far a float32 result may lie from the exact one; 0: it is the exact one, rounded once."""
    slack: Callable | None = None
    """(inputs, attributes) -> a distance that is allowed even where it is more than `ulps`."""
    defined: Callable | None = None
    """(inputs, attributes) -> where the result is decided."""
    span: Callable | None = None
    """(inputs, attributes, dtype) -> the least and greatest integers allowed."""
    in_place: tuple[str, ...] = ()
    bitwise: bool = False
    """NaN payloads and the signs of zeros matter."""
    scale_bias: bool = False
    needs: Callable = field(default=lambda types: True)
    """Whether a choice of types is allowed."""

    @cached_property
    def inputs(self):
        return self.operands[:-1]

    @cached_property
    def output(self):
        return self.operands[-1]

    @property
    def function(self):
        name = self.name.removeprefix("ELEMENT_WISE_").lower()
        if name.startswith("logical_") and not name.endswith(("_and", "_or", "_xor", "_not")):
            name = name.removeprefix("logical_")
        return getattr(dml, "if_" if name == "if" else name)

    def choices(self):
        """Every allowed choice of types, as {type variable: dtype}."""
        for chosen in product(*(t.split() for t in self.types.values())):
            types = dict(zip(self.types, map(np.dtype, chosen), strict=True))
            if self.needs(types):
                yield types


# ---- the operators -----------------------------------------------------------------------------------

CASES: dict[str, Case] = {}


def _case(names, operands, attributes=({},), *, in_place="", **rest):
    options = {k: rest.pop(k) for k in list(rest) if len(k) != 1}
    for name in names.split():
        full = name if name in BY_NAME else f"ELEMENT_WISE_{name}"
        places = tuple(f"{operand}Tensor" for operand in in_place.split())
        CASES[full] = Case(full, _slots(operands), rest, attributes, in_place=places, **options)


def _float_sum_fits(inputs, attributes):
    a, b = inputs
    return (np.abs(real(a)) + np.abs(real(b)) < 2.0**127) if a.dtype.kind == "f" else True


def _power_span(inputs, attributes, dtype):
    """Of integers to float powers: pow in float32, within 2 units."""
    sb = attributes.get("ScaleBias", {"Scale": 1, "Bias": 0})
    exact = c_power(real(inputs[0]) * sb["Scale"] + sb["Bias"], inputs[1])
    around = np.sort([exact * (1 - 4 * U), exact * (1 + 4 * U)], 0)
    return truncated(around[0], dtype), truncated(around[1], dtype)


def _powers_are_exact_inputs(inputs, attributes):
    """float32 holds both, so no other rounding comes before the power's."""
    x, n = inputs
    if x.dtype.kind != "f" and n.dtype.kind != "f":
        return True
    return (np.abs(real(x)) <= 2**24 if x.dtype.kind != "f" else True) & (
        np.abs(real(n)) <= 2**24 if n.dtype.kind != "f" else True
    )


def _quantize_span(inputs, attributes, dtype):
    x, scale, *zero = inputs
    q = real(x) / real(scale)
    zero = zero[0] if zero and zero[0] is not None else np.zeros(1, dtype)
    return tuple(quantized(v, zero, dtype) for v in np.sort([q * (1 - 1e-6), q * (1 + 1e-6)], 0))


def _quantized_add_span(inputs, attributes, dtype):
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = inputs
    q = quanta(a, a_scale, a_zero, b, b_scale, b_zero, scale)
    return tuple(quantized(q + d, np.zeros(1, dtype) if zero is None else zero, dtype) for d in (-1e-4, 1e-4))


def _not_nan(inputs, attributes):
    return ~np.isnan(real(inputs[0]))


def _finite(inputs, attributes):
    return np.isfinite(real(inputs[0]))


def _constant(*names):
    """Half a unit of 1, times the attributes that scale the result where they are more than 1."""
    return lambda inputs, a: U * np.prod([max(1.0, abs(f32(a[n]))) for n in names])


def _linear_slack(inputs, a):
    return 2 * U * (np.abs(f32(a["Alpha"]) * real(inputs[0])) + abs(f32(a["Beta"])))


def _hard_slack(inputs, a):
    """The linear part matters only where it lies between 0 and 1."""
    inner = np.abs(f32(a["Alpha"]) * real(inputs[0])) <= 1 + abs(f32(a["Beta"]))
    return np.where(inner, 4 * U * (1 + abs(f32(a["Beta"]))), 0)


def _hard_swish_slack(inputs, a):
    hard = _hard_slack(inputs, a)
    return np.where(hard > 0, hard * np.abs(real(inputs[0])), 0)


def _steep_fits(name):
    return lambda inputs, a: ~(np.abs(f32(a[name]) * real(inputs[0])) >= 2.0**127)


ONE, SCALED = "Input:T Output:T", {"scale_bias": True, "in_place": "Input"}
TWO = "A:T B:T Output:T"
GRAD = "Input:T InputGradient:T OutputGradient:T"
ROWS = "Input:T:moderate Output:T"
AXES = tuple({"AxisCount": len(a), "Axes": a} for a in ([1], [0], [0, 1], [1, 0]))
BOUNDS = ({"Min": -3.75, "Max": 100.5}, {"Min": 1.0, "Max": 3e38}, {"Min": 5.0, "Max": -5.0})
TYPED_BOUNDS = ({"Min": 3, "Max": 100}, {"Min": 0, "Max": 1}, {"Min": 9, "Max": 8})

_case("IDENTITY", ONE, T=WITH_DOUBLE, **SCALED)
_case("ABS", ONE, T=f"{FLOATS} {SIGNED}", **SCALED)
_case("CEIL FLOOR RECIP SQRT", ONE, T=FLOATS, **SCALED)
_case("ACOS ASIN ATAN COS EXP LOG SIN TAN", ONE, T=FLOATS, ulps=2, **SCALED)
_case("ERF SINH COSH TANH ASINH ACOSH ATANH", ONE, T=FLOATS, ulps=2, **SCALED)
_case("CLIP", ONE, BOUNDS, T=ALL, **SCALED)
_case("CLIP1", ONE, TYPED_BOUNDS, T=ALL, **SCALED)
_case("THRESHOLD", ONE, ({"Min": 2.5}, {"Min": -7.5}), T=NARROW, **SCALED)
_case(
    "CONSTANT_POW",
    ONE,
    tuple({"Exponent": e} for e in (2.0, 0.5, -1.5, 0.0, 3.0, 1.0, -1.0, 0.3)),
    T=FLOATS,
    ulps=2,
    **SCALED,
)
_case("ADD", TWO, T=ALL, in_place="A B")
_case("BIT_AND BIT_OR BIT_XOR", TWO, T=WITH_DOUBLE, bitwise=True, in_place="A B")
_case("SUBTRACT MULTIPLY DIVIDE MAX MIN MODULUS_TRUNCATE", TWO, T=ALL, in_place="A B")
_case("MODULUS_FLOOR", TWO, T=ALL, ulps=0.5001, in_place="A B")
_case("MEAN", TWO, T=f"{FLOATS} int32 uint32", in_place="A B", defined=_float_sum_fits)
_case("DIFFERENCE_SQUARE", TWO, T=f"{FLOATS} int32 uint32", in_place="A B", ulps=2)
_case("ATAN_YX", TWO, T=FLOATS, in_place="A B", ulps=2)
_case("LOGICAL_AND LOGICAL_OR LOGICAL_XOR", TWO, T=FLAGS, in_place="A B")
_case("BIT_SHIFT_LEFT BIT_SHIFT_RIGHT", TWO, T=UNSIGNED, in_place="A B")
_case("LOGICAL_EQUALS LOGICAL_GREATER_THAN LOGICAL_LESS_THAN", "A:T B:T Output:B", T=ALL, B=FLAGS)
_case("LOGICAL_GREATER_THAN_OR_EQUAL LOGICAL_LESS_THAN_OR_EQUAL", "A:T B:T Output:B", T=ALL, B=FLAGS)
_case("LOGICAL_NOT", ONE, T=FLAGS, in_place="Input")
_case("SIGN", ONE, T=ALL, in_place="Input")
_case("NEGATE", ONE, T=f"{FLOATS} {SIGNED}", in_place="Input")
_case(
    "ROUND",
    ONE,
    tuple({"RoundingMode": m} for m in ("HALVES_TO_NEAREST_EVEN", "TOWARD_ZERO", "TOWARD_INFINITY")),
    T=FLOATS,
    in_place="Input",
)
_case("IS_NAN", "Input:T Output:B", T=FLOATS, B=FLAGS)
_case(
    "IS_INFINITY",
    "Input:T Output:B",
    tuple({"InfinityMode": m} for m in ("EITHER", "POSITIVE", "NEGATIVE")),
    T=FLOATS,
    B="uint8",
)
_case("BIT_NOT", ONE, T=WITH_DOUBLE, bitwise=True, in_place="Input")
_case("BIT_COUNT", "Input:T Output:B", T=WITH_DOUBLE, B=FLAGS)
_case("IF", "Condition:C:flag A:T B:T Output:T", C="uint8", T=WITH_DOUBLE, bitwise=True)
_case("ADD1", TWO, T=FLOATS, in_place="A B")
_case("CLIP_GRAD", GRAD, BOUNDS, T=ALL, in_place="Input")
_case("CLIP_GRAD1", GRAD, TYPED_BOUNDS, T=ALL, in_place="Input")
_case("ACTIVATION_RELU_GRAD", GRAD, T=f"{FLOATS} int32 int16 int8")
_case(
    "POW",
    "Input:T Exponent:E Output:T",
    T=NARROW,
    E=NARROW,
    in_place="Input",
    scale_bias=True,
    ulps=2,
    span=_power_span,
    defined=_powers_are_exact_inputs,
)
_case(
    "QUANTIZE_LINEAR",
    "Input:T Scale:S:scale ZeroPoint:Z:optional Output:Z",
    T=f"{FLOATS} int32",
    S=FLOATS,
    Z="int8 uint8",
    needs=lambda t: t["S"] == (np.float32 if t["T"] == np.int32 else t["T"]),
    defined=_not_nan,
    span=_quantize_span,
)
_case(
    "DEQUANTIZE_LINEAR",
    "Input:T Scale:S:scale ZeroPoint:T:optional Output:S",
    T="int32 int16 int8 uint32 uint16 uint8",
    S=FLOATS,
    ulps=1.6,
)
_case(
    "QUANTIZED_LINEAR_ADD",
    "A:A AScale:S:scale:one AZeroPoint:A:optional:one B:B BScale:S:scale:one BZeroPoint:B:optional:one "
    "OutputScale:S:scale:one OutputZeroPoint:Z:optional:one Output:Z",
    A="int8 uint8",
    B="int8 uint8",
    S="float32",
    Z="int8 uint8",
    span=_quantized_add_span,
)

_in = {"T": FLOATS, "in_place": "Input"}
_in4 = _in | {"ulps": 4}
_A, _AB = ({"Alpha": 1.0}, {"Alpha": 0.25}, {"Alpha": 1.75}), ({"Alpha": 0.25, "Beta": 0.5},)
_case("ACTIVATION_IDENTITY", ONE, **_in)
_case("ACTIVATION_RELU", ONE, in_place="Input", T=f"{FLOATS} int32 int16 int8")
_case("ACTIVATION_LEAKY_RELU ACTIVATION_THRESHOLDED_RELU", ONE, _A, **_in)
_case(
    "ACTIVATION_PARAMETERIZED_RELU",
    "Input:T Slope:T Output:T",
    in_place="Input",
    T=f"{FLOATS} int32 int16 int8",
)
_case(
    "ACTIVATION_SHRINK",
    ONE,
    ({"Bias": 2.0, "Threshold": 5.0}, {"Bias": 0.0, "Threshold": 3.0}),
    in_place="Input",
    T=NARROW,
)
_case("ACTIVATION_TANH", ONE, **_in, ulps=2)
_case("ACTIVATION_SIGMOID", ONE, **_in4, slack=_constant())
_case("ACTIVATION_SOFTSIGN", ONE, **_in4, slack=_constant(), defined=_finite)
_case("ACTIVATION_GELU", ONE, T=FLOATS, ulps=7, defined=_finite)
_case("ACTIVATION_ELU ACTIVATION_CELU", ONE, _A, **_in4, slack=_constant("Alpha"))
_case(
    "ACTIVATION_SCALED_ELU",
    ONE,
    ({"Alpha": 1.6732632, "Gamma": 1.0507010}, {"Alpha": 0.5, "Gamma": 3.0}),
    **_in4,
    slack=_constant("Alpha", "Gamma"),
)
_case(
    "ACTIVATION_SCALED_TANH",
    ONE,
    ({"Alpha": 0.75, "Beta": 0.5}, {"Alpha": 3.0, "Beta": -2.0}),
    **_in4,
    slack=_constant("Alpha"),
)
_case("ACTIVATION_LINEAR", ONE, (*_AB, {"Alpha": -3.0, "Beta": 7.5}), **_in, ulps=1, slack=_linear_slack)
_case("ACTIVATION_HARD_SIGMOID", ONE, (*_AB, {"Alpha": -2.0, "Beta": 3.0}), **_in4, slack=_hard_slack)
_case("ACTIVATION_HARD_SWISH", ONE, _AB, **_in4, slack=_hard_swish_slack, defined=_finite)
_case(
    "ACTIVATION_SOFTPLUS",
    ONE,
    ({"Steepness": 1.0}, {"Steepness": 3.0}, {"Steepness": 0.5}),
    **_in4,
    slack=lambda inputs, a: U * max(1.0, 1 / a["Steepness"]),
    defined=_steep_fits("Steepness"),
)
_case(
    "ACTIVATION_PARAMETRIC_SOFTPLUS",
    ONE,
    ({"Alpha": 1.0, "Beta": 1.0}, {"Alpha": 2.5, "Beta": 0.5}, {"Alpha": -0.5, "Beta": -3.0}),
    **_in4,
    slack=_constant("Alpha"),
    defined=_steep_fits("Beta"),
)
_case(
    "ACTIVATION_SWISH",
    ONE,
    ({"SigmoidInputScale": 1.0}, {"SigmoidInputScale": 1.5}, {"SigmoidInputScale": -0.5}),
    **_in4,
    slack=lambda inputs, a: U * max(1.0, 1 / abs(a["SigmoidInputScale"])),
    defined=_finite,
)
_case("ACTIVATION_SOFTMAX ACTIVATION_LOG_SOFTMAX", ROWS, T=FLOATS, ulps=4, slack=_constant())
_case("ACTIVATION_SOFTMAX1 ACTIVATION_LOG_SOFTMAX1", ROWS, AXES, T=FLOATS, ulps=4, slack=_constant())
_case("ACTIVATION_HARDMAX", ROWS, T=FLOATS)
_case("ACTIVATION_HARDMAX1", ROWS, AXES, T=FLOATS)
