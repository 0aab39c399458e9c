"""The activations' part of `oracle.ORACLE`."""

import math

import numpy as np

from .oracle import ORACLE, erfc, f32, is_float, multiply, nan_or, operator, real, truncated


def _log1p_exp(x):
    return np.logaddexp(0.0, x)


def _logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


def _hard(x, alpha, beta):
    return nan_or(lambda v: np.maximum(0, np.minimum(v, 1)), f32(alpha) * x + f32(beta))


def _elu(x, alpha):
    return np.where(x >= 0, x, f32(alpha) * np.expm1(np.where(x >= 0, 0, x)))


def _selu(x, alpha, gamma):
    return f32(gamma) * np.where(x > 0, x, f32(alpha) * np.expm1(np.where(x > 0, 0, x)))


ACTIVATIONS = {  # of a real number and the attributes
    "CELU": lambda x, alpha: nan_or(
        lambda v: np.maximum(0, v) + np.minimum(0, f32(alpha) * np.expm1(v / f32(alpha))), x
    ),
    "ELU": _elu,
    "GELU": lambda x: 0.5 * x * erfc(-x / math.sqrt(2)),
    "HARD_SIGMOID": _hard,
    "HARD_SWISH": lambda x, alpha, beta: x * _hard(x, alpha, beta),
    "LINEAR": lambda x, alpha, beta: f32(alpha) * x + f32(beta),
    "PARAMETRIC_SOFTPLUS": lambda x, alpha, beta: f32(alpha) * _log1p_exp(f32(beta) * x),
    "SCALED_ELU": _selu,
    "SCALED_TANH": lambda x, alpha, beta: f32(alpha) * np.tanh(f32(beta) * x),
    "SIGMOID": _logistic,
    "SOFTPLUS": lambda x, steepness: _log1p_exp(f32(steepness) * x) / f32(steepness),
    "SOFTSIGN": lambda x: x / (1 + np.abs(x)),
    "SWISH": lambda x, sigmoid_input_scale: x * _logistic(f32(sigmoid_input_scale) * x),
    "TANH": np.tanh,
}
for _name, _f in ACTIVATIONS.items():
    ORACLE[f"ACTIVATION_{_name}"] = lambda x, *, to, f=_f, **attributes: f(real(x), **attributes)


@operator("ACTIVATION_RELU")
def relu(x, *, to):
    return np.maximum(x, x.dtype.type(0))


@operator("ACTIVATION_RELU_GRAD")
def relu_grad(x, dy, *, to):
    return np.where(x > 0, dy, 0)


@operator("ACTIVATION_LEAKY_RELU")
def leaky_relu(x, *, to, alpha):
    return np.where(x >= 0, real(x), f32(alpha) * real(x))


@operator("ACTIVATION_PARAMETERIZED_RELU")
def parameterized_relu(x, slope, *, to):
    return np.where(x >= 0, real(x) if is_float(x) else x, multiply(slope, x, to=to))


@operator("ACTIVATION_THRESHOLDED_RELU")
def thresholded_relu(x, *, to, alpha):
    return np.where(real(x) > f32(alpha), real(x), 0)


@operator("ACTIVATION_SHRINK")
def shrink(x, *, to, bias, threshold):
    """For integers only with integral attributes, and where the result does not overflow."""
    limit, bias = f32(threshold), f32(bias)
    y = np.where(real(x) > limit, real(x) - bias, np.where(real(x) < -limit, real(x) + bias, 0))
    return y if is_float(x) else truncated(y, to)


# ---- over rows ---------------------------------------------------------------------------------------


def _exponentials(x, axes):
    x = real(x)
    below = x - x.max(axes, keepdims=True)
    return below, np.exp(below).sum(axes, keepdims=True)


@operator("ACTIVATION_SOFTMAX1", "ACTIVATION_SOFTMAX")
def softmax(x, *, to, axes=(-1,)):
    below, total = _exponentials(x, tuple(axes))
    return np.exp(below) / total


@operator("ACTIVATION_LOG_SOFTMAX1", "ACTIVATION_LOG_SOFTMAX")
def log_softmax(x, *, to, axes=(-1,)):
    below, _ = _exponentials(x, tuple(axes))
    others = np.exp(below).sum(tuple(axes), keepdims=True) - 1  # the maximum itself is exp(0)
    return below - np.log1p(others)


@operator("ACTIVATION_HARDMAX1", "ACTIVATION_HARDMAX")
def hardmax(x, *, to, axes=(-1,)):
    """The first maximum in row-major order of the joint axes."""
    joint = sorted(axis % x.ndim for axis in axes)
    last = range(x.ndim - len(joint), x.ndim)
    moved = np.moveaxis(real(x), joint, last)
    rows = moved.reshape(*moved.shape[: x.ndim - len(joint)], -1)
    first = np.arange(rows.shape[-1]) == rows.argmax(-1, keepdims=True)
    return np.moveaxis(first.reshape(moved.shape).astype(np.float64), last, joint)
