"""What every operator must compute, in NumPy alone and with more precision than its types have.

`ORACLE[name](*tensors, to=dtype, **attributes)` takes the tensors in operand order, None where an optional
one is absent, and the attributes in snake case. Where the result is a float it comes back as float64:
the exact value, rounded at most a few times at 53 bits. Any other result has the type `to` and is exact.
"""

import math

import numpy as np

ORACLE = {}


def operator(*names):
    def add(f):
        for name in names:
            ORACLE[name] = f
        return f

    return add


# ---- numbers -----------------------------------------------------------------------------------------


def is_float(x):
    return np.asarray(x).dtype.kind == "f"


def real(x):
    return np.asarray(x).astype(np.float64)


def whole(x):
    """Python's integers."""
    return np.asarray(x).astype(object)


def wrapped(values, dtype):
    """Integers of any size, modulo 2^width, as two's complement."""
    bits = np.iinfo(dtype).bits
    low = np.asarray(values, object) % (1 << bits)
    return np.asarray(low, f"u{bits // 8}").view(dtype)


def truncated(values, dtype):
    """Reals as integers: toward zero, saturated, NaN as 0."""
    info, values = np.iinfo(dtype), np.trunc(np.nan_to_num(np.asarray(values, np.float64), nan=0.0))
    inside = (values >= info.min) & (values < float(info.max))
    edge = np.where(values < 0, np.array(info.min, dtype), np.array(info.max, dtype))
    return np.where(inside, np.where(inside, values, 0).astype(dtype), edge)


def as_type(value, dtype):
    """An attribute of type FLOAT as an element of the tensor."""
    number = np.float32(value)
    return number.astype(dtype) if np.dtype(dtype).kind == "f" else truncated(number, dtype)[()]


def as_bits(x):
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


def f32(value):
    """An attribute as DirectML stores it."""
    return float(np.float32(value))


def scaled(x, scale_bias, to):
    """x * Scale + Bias: float64 for floats; for integers only values where this is an integer."""
    if scale_bias is None:
        return real(x) if is_float(x) else x
    y = real(x) * f32(scale_bias[0]) + f32(scale_bias[1])
    return y if np.dtype(to).kind == "f" else truncated(y, to)


def nan_or(f, *xs):
    """f, but NaN wherever an operand is."""
    y = f(*xs)
    return np.where(np.logical_or.reduce(np.broadcast_arrays(*map(np.isnan, xs))), np.nan, y)


# ---- one operand -------------------------------------------------------------------------------------

erf, erfc = (np.vectorize(f, otypes=[np.float64]) for f in (math.erf, math.erfc))

FUNCTIONS = {  # of a real number
    "ACOS": np.arccos,
    "ACOSH": np.arccosh,
    "ASIN": np.arcsin,
    "ASINH": np.arcsinh,
    "ATAN": np.arctan,
    "ATANH": np.arctanh,
    "CEIL": np.ceil,
    "COS": np.cos,
    "COSH": np.cosh,
    "ERF": erf,
    "EXP": np.exp,
    "FLOOR": np.floor,
    "LOG": np.log,
    "RECIP": np.reciprocal,
    "SIN": np.sin,
    "SINH": np.sinh,
    "SQRT": np.sqrt,
    "TAN": np.tan,
    "TANH": np.tanh,
}
for _name, _f in FUNCTIONS.items():
    ORACLE[f"ELEMENT_WISE_{_name}"] = lambda x, *, to, scale_bias=None, f=_f: f(scaled(x, scale_bias, to))


@operator("ELEMENT_WISE_IDENTITY", "ACTIVATION_IDENTITY")
def identity(x, *, to, scale_bias=None):
    return scaled(x, scale_bias, to)


@operator("ELEMENT_WISE_ABS")
def absolute(x, *, to, scale_bias=None):
    y = scaled(x, scale_bias, to)
    return np.abs(y) if is_float(y) else wrapped(abs(whole(y)), to)


@operator("ELEMENT_WISE_NEGATE")
def negate(x, *, to):
    return -real(x) if is_float(x) else wrapped(-whole(x), to)


@operator("ELEMENT_WISE_SIGN")
def sign(x, *, to):
    return (x > 0).astype(to) - (x < 0).astype(to)  # of a NaN too: it is neither


@operator("ELEMENT_WISE_ROUND")
def rounded(x, *, to, rounding_mode):
    x = real(x)
    if rounding_mode == "HALVES_TO_NEAREST_EVEN":
        return np.rint(x)
    if rounding_mode == "TOWARD_ZERO":
        return np.trunc(x)
    whole_part = np.trunc(x)
    return np.copysign(whole_part + np.where(np.abs(x - whole_part) >= 0.5, np.sign(x), 0), x)


@operator("ELEMENT_WISE_IS_NAN")
def is_nan(x, *, to):
    return (x != x).astype(to)


@operator("ELEMENT_WISE_IS_INFINITY")
def is_infinity(x, *, to, mode):
    wanted = {"EITHER": np.isinf, "POSITIVE": np.isposinf, "NEGATIVE": np.isneginf}
    return wanted[mode](x).astype(to)


@operator("ELEMENT_WISE_LOGICAL_NOT")
def logical_not(x, *, to):
    return (x == 0).astype(to)


@operator("ELEMENT_WISE_BIT_NOT")
def bit_not(x, *, to):
    return np.invert(as_bits(x)).view(to)


@operator("ELEMENT_WISE_BIT_COUNT")
def bit_count(x, *, to):
    return np.unpackbits(as_bits(x).reshape(-1, 1).view(np.uint8), axis=1).sum(1).reshape(x.shape).astype(to)


@operator("ELEMENT_WISE_CLIP")
def clip(x, *, to, min, max, scale_bias=None):
    return clip1(x, to=to, min=as_type(min, to), max=as_type(max, to), scale_bias=scale_bias)


@operator("ELEMENT_WISE_CLIP1")
def clip1(x, *, to, min, max, scale_bias=None):
    y, (low, high) = scaled(x, scale_bias, to), np.array([min, max], to)
    return np.maximum(low, np.minimum(y, high))


@operator("ELEMENT_WISE_THRESHOLD")
def threshold(x, *, to, min, scale_bias=None):
    return np.maximum(scaled(x, scale_bias, to), as_type(min, to))


@operator("ELEMENT_WISE_CLIP_GRAD")
def clip_grad(x, dy, *, to, min, max):
    return clip_grad1(x, dy, to=to, min=as_type(min, to), max=as_type(max, to))


@operator("ELEMENT_WISE_CLIP_GRAD1")
def clip_grad1(x, dy, *, to, min, max):
    low, high = np.array([min, max], to)
    return np.where((x <= low) | (x >= high), 0, dy)


# ---- two operands ------------------------------------------------------------------------------------


def _quotient(a, b):
    """Of integers, toward zero; 0 where the divisor is 0."""
    a, b = whole(a), whole(b)
    zero = b == 0
    q = abs(a) // np.where(zero, 1, abs(b))
    return np.where(zero, 0, np.where((a < 0) != (b < 0), -q, q))


def _float_modulus(a, b):
    r = np.fmod(real(a), real(b))
    return r, r + np.where((r != 0) & ((r < 0) != (b < 0)), real(b), 0)


@operator("ELEMENT_WISE_ADD")
def add(a, b, *, to):
    return real(a) + real(b) if is_float(a) else wrapped(whole(a) + whole(b), to)


@operator("ELEMENT_WISE_SUBTRACT")
def subtract(a, b, *, to):
    return real(a) - real(b) if is_float(a) else wrapped(whole(a) - whole(b), to)


@operator("ELEMENT_WISE_MULTIPLY")
def multiply(a, b, *, to):
    return real(a) * real(b) if is_float(a) else wrapped(whole(a) * whole(b), to)


@operator("ELEMENT_WISE_DIVIDE")
def divide(a, b, *, to):
    return real(a) / real(b) if is_float(a) else wrapped(_quotient(a, b), to)


@operator("ELEMENT_WISE_MODULUS_TRUNCATE")
def modulus_truncate(a, b, *, to):
    if is_float(a):
        return _float_modulus(a, b)[0]
    return wrapped(np.where(b == 0, 0, whole(a) - whole(b) * _quotient(a, b)), to)


@operator("ELEMENT_WISE_MODULUS_FLOOR")
def modulus_floor(a, b, *, to):
    if is_float(a):
        return _float_modulus(a, b)[1]
    return wrapped(np.where(b == 0, 0, whole(a) % np.where(b == 0, 1, whole(b))), to)


@operator("ELEMENT_WISE_MEAN")
def mean(a, b, *, to):
    if is_float(a):
        return (real(a) + real(b)) / 2
    total = whole(a) + whole(b)
    return wrapped(np.where(total < 0, -(-total // 2), total // 2), to)


@operator("ELEMENT_WISE_DIFFERENCE_SQUARE")
def difference_square(a, b, *, to):
    return (real(a) - real(b)) ** 2 if is_float(a) else wrapped((whole(a) - whole(b)) ** 2, to)


@operator("ELEMENT_WISE_MAX")
def maximum(a, b, *, to):
    return np.maximum(a, b)


@operator("ELEMENT_WISE_MIN")
def minimum(a, b, *, to):
    return np.minimum(a, b)


@operator("ELEMENT_WISE_ATAN_YX")
def atan_yx(a, b, *, to):
    return np.arctan2(real(a), real(b))


def c_power(x, n):
    """C's pow. NumPy's takes sqrt where one exponent of 0.5 meets many bases, and 1^NaN may be NaN in it."""
    x, n = (np.where(np.isnan(v), np.nan, v) for v in np.broadcast_arrays(real(x), real(n)))
    return np.power(np.append(x, 1.0), np.append(n, 0.3))[:-1].reshape(x.shape)


def _integer_power(x, n, bits):
    if n < 0:
        return {1: 1, -1: 1 - 2 * (n & 1)}.get(x, 0)
    return pow(x, n, 1 << bits)


@operator("ELEMENT_WISE_POW")
def power(x, n, *, to, scale_bias=None):
    x = scaled(x, scale_bias, to)
    if is_float(x) or is_float(n):
        y = c_power(x, n)
        return y if np.dtype(to).kind == "f" else truncated(y, to)
    bits, (x, n) = np.iinfo(to).bits, np.broadcast_arrays(whole(x), whole(n))
    powers = [_integer_power(a, b, bits) for a, b in zip(x.flat, n.flat, strict=True)]
    return wrapped(np.array(powers, object).reshape(x.shape), to)


@operator("ELEMENT_WISE_CONSTANT_POW")
def constant_power(x, *, to, exponent, scale_bias=None):
    return c_power(scaled(x, scale_bias, to), f32(exponent))


for _name, _f in {
    "LOGICAL_AND": lambda a, b: (a != 0) & (b != 0),
    "LOGICAL_OR": lambda a, b: (a != 0) | (b != 0),
    "LOGICAL_XOR": lambda a, b: (a != 0) != (b != 0),
    "LOGICAL_EQUALS": np.equal,
    "LOGICAL_GREATER_THAN": np.greater,
    "LOGICAL_LESS_THAN": np.less,
    "LOGICAL_GREATER_THAN_OR_EQUAL": np.greater_equal,
    "LOGICAL_LESS_THAN_OR_EQUAL": np.less_equal,
}.items():
    ORACLE[f"ELEMENT_WISE_{_name}"] = lambda a, b, *, to, f=_f: f(a, b).astype(to)

for _name, _f in {"AND": np.bitwise_and, "OR": np.bitwise_or, "XOR": np.bitwise_xor}.items():
    ORACLE[f"ELEMENT_WISE_BIT_{_name}"] = lambda a, b, *, to, f=_f: f(as_bits(a), as_bits(b)).view(to)


@operator("ELEMENT_WISE_BIT_SHIFT_LEFT")
def bit_shift_left(a, b, *, to):
    bits = np.iinfo(to).bits
    return wrapped(np.asarray(whole(a) << np.minimum(whole(b), bits), object), to)


@operator("ELEMENT_WISE_BIT_SHIFT_RIGHT")
def bit_shift_right(a, b, *, to):
    return wrapped(whole(a) >> np.minimum(whole(b), np.iinfo(to).bits), to)


@operator("ELEMENT_WISE_IF")
def if_(condition, a, b, *, to):
    return np.where(condition != 0, as_bits(a), as_bits(b)).view(to)


@operator("ELEMENT_WISE_ADD1")
def add1(a, b, *, to, fused_activation=None):
    total = real(a) + real(b)
    if fused_activation is None:
        return total
    return ORACLE[fused_activation["type"]](total, to=to, **fused_activation["attributes"])


# ---- quantization ------------------------------------------------------------------------------------


def quantized(q, zero_point, to):
    """A real number of quanta: halves to even, the zero point, saturation."""
    return truncated(np.rint(q) + real(zero_point), to)


@operator("ELEMENT_WISE_QUANTIZE_LINEAR")
def quantize_linear(x, scale, zero_point=None, *, to):
    zero = np.zeros(1, to) if zero_point is None else zero_point
    return quantized(real(x) / real(scale), zero, to)


@operator("ELEMENT_WISE_DEQUANTIZE_LINEAR")
def dequantize_linear(x, scale, zero_point=None, *, to):
    zero = np.int64(0) if zero_point is None else zero_point.astype(np.int64)
    return real(x.astype(np.int64) - zero) * real(scale)


def quanta(a, a_scale, a_zero, b, b_scale, b_zero, scale):
    """The sum in units of the output's scale, before it is rounded."""
    terms = ((a, a_scale, a_zero), (b, b_scale, b_zero))
    total = sum((real(x) - (0 if z is None else real(z))) * real(s) for x, s, z in terms)
    return total / real(scale)


@operator("ELEMENT_WISE_QUANTIZED_LINEAR_ADD")
def quantized_linear_add(a, a_scale, a_zero, b, b_scale, b_zero, scale, zero_point=None, *, to):
    zero = np.zeros(1, to) if zero_point is None else zero_point
    return quantized(quanta(a, a_scale, a_zero, b, b_scale, b_zero, scale), zero, to)
