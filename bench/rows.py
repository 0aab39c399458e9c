"""What is measured: operators and groups of them, each written for us and for every peer.

A peer's function takes the arrays and an array to write to where it can; what a peer lacks is left out.
`nodes` is the same in ONNX's text, `formula` in numexpr's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import anydml as dml

Arrays = dict[str, Any]
SIZES = (16, 20, 24)


@dataclass(frozen=True)
class Row:
    name: str
    bound: str
    """By what it is limited: "memory", or "compute"."""
    ours: Callable[..., Any]
    """On expressions of a graph."""
    numpy: Callable[..., Any] | None = None
    """On arrays and `out`."""
    torch: Callable[..., Any] | None = None
    """On `torch`, tensors and `out`."""
    jax: Callable[..., Any] | None = None
    """On `jax.numpy` and arrays."""
    formula: str = ""
    nodes: str = ""
    inputs: Mapping[str, str] | None = None
    """Types by name; default one float32 `x`."""
    shapes: Mapping[str, str] | None = None
    """ "row", "one", or all elements; by name."""
    row: int = 1024
    """Elements of a row, for shapes and reductions."""
    result: str = "float32"

    def arrays(self, power: int) -> Arrays:
        """Random contents: some infinities and NaNs among floats."""
        rng = np.random.default_rng(power)
        count = (1 << power) // self.row
        made = {}
        for name, dtype in (self.inputs or {"x": "float32"}).items():
            kind = (self.shapes or {}).get(name)
            sizes = {"row": (1, self.row), "one": (1, 1)}.get(kind or "", (count, self.row))
            if np.dtype(dtype).kind == "f":
                x = rng.standard_normal(sizes).astype(dtype)
                if self.name.startswith("clean"):
                    x.reshape(-1)[:: 1 + x.size // 7] = np.inf
            else:
                x = rng.integers(0, 2, sizes).astype(dtype)
            made[name] = x
        return made

    def bytes_moved(self, arrays: Arrays, power: int) -> int:
        return sum(int(a.nbytes) for a in arrays.values()) + (1 << power) * np.dtype(self.result).itemsize


def _chain(m: Any, x: Any, r: Any) -> Any:
    """Ten operators with a row that is broadcast; `m` has abs, max and min of two."""
    y = m.abs(x * r + 1.0)
    y = m.max(y - 0.5, 0.1)
    y = m.min(y * y + x, 4.0)
    return y * 0.3 - r


class _NumPy:
    abs, max, min = np.abs, np.maximum, np.minimum


class _Of:
    """abs, max and min of a library, with numbers on the right."""

    def __init__(self, abs: Any, max: Any, min: Any) -> None:
        self.abs, self.max, self.min = abs, max, min


def _tanh_gelu(tanh: Callable[[Any], Any], x: Any) -> Any:
    return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _jax(name: str) -> Any:
    """A function of JAX, in whichever of its modules it stands."""
    jax = import_module("jax")
    return next(getattr(m, name) for m in (import_module("jax.numpy"), jax.nn, jax.lax) if hasattr(m, name))


def _softmax(row: int) -> Row:
    return Row(
        f"softmax, rows of {row}",
        "compute",
        lambda x: dml.activation_softmax(x),
        None,
        lambda t, x, out: t.softmax(x, -1, out=out),
        lambda j, x: _jax("softmax")(x),
        nodes="y = Softmax <axis = -1> (x)",
        row=row,
    )


def _unary(
    name: str, ours: Any, bound: str, numpy: Any, torch: str, jax: str, formula: str, node: str
) -> Row:
    return Row(
        name,
        bound,
        ours,
        (lambda x, out: numpy(x, out=out)) if numpy else None,
        lambda t, x, out: getattr(t, torch)(x, out=out),
        lambda j, x: _jax(jax)(x),
        formula,
        f"y = {node} (x)" if node else "",
    )


SINGLE = [
    Row(
        "add",
        "memory",
        lambda a, b: a + b,
        lambda a, b, out: np.add(a, b, out=out),
        lambda t, a, b, out: t.add(a, b, out=out),
        lambda j, a, b: a + b,
        "a + b",
        "y = Add (a, b)",
        {"a": "float32", "b": "float32"},
    ),
    Row(
        "if_",
        "memory",
        dml.if_,
        lambda c, a, b, out: np.where(c.view(np.bool_), a, b),
        lambda t, c, a, b, out: t.where(c.view(t.bool), a, b, out=out),
        lambda j, c, a, b: j.where(c != 0, a, b),
        "where(c != 0, a, b)",
        "t = Cast <to = 9> (c) y = Where (t, a, b)",
        {"c": "uint8", "a": "float32", "b": "float32"},
    ),
    Row(
        "is_infinity",
        "memory",
        lambda x: dml.is_infinity(x),
        lambda x, out: np.isinf(x, out=out.view(np.bool_)),
        lambda t, x, out: t.isinf(x),
        lambda j, x: j.isinf(x),
        nodes="t = IsInf (x) y = Cast <to = 2> (t)",
        result="uint8",
    ),
    _unary("sqrt", dml.sqrt, "memory", np.sqrt, "sqrt", "sqrt", "sqrt(x)", "Sqrt"),
    _unary("exp", dml.exp, "compute", np.exp, "exp", "exp", "exp(x)", "Exp"),
    _unary("log", lambda x: dml.log(x), "compute", np.log, "log", "log", "log(x)", "Log"),
    _unary("sin", dml.sin, "compute", np.sin, "sin", "sin", "sin(x)", "Sin"),
    _unary("atan", dml.atan, "compute", np.arctan, "atan", "arctan", "arctan(x)", "Atan"),
    _unary("tanh", dml.tanh, "compute", np.tanh, "tanh", "tanh", "tanh(x)", "Tanh"),
    _unary("erf", dml.erf, "compute", None, "erf", "erf", "", "Erf"),
    _unary(
        "sigmoid", dml.activation_sigmoid, "compute", None, "sigmoid", "sigmoid", "1/(1+exp(-x))", "Sigmoid"
    ),
]

FUSED = [
    Row(
        "LeakyRelu: if_(x < 0, 0.01 x, x)",
        "memory",
        lambda x: dml.if_(dml.less_than(x, 0.0), x * 0.01, x),
        lambda x, out: np.where(x < 0, x * np.float32(0.01), x),
        lambda t, x, out: t._C._nn.leaky_relu(x, 0.01, out=out),
        lambda j, x: j.where(x < 0, x * 0.01, x),
        "where(x < 0, x * c, x)",
        "y = LeakyRelu <alpha = 0.01> (x)",
    ),
    Row(
        "clean-up: if_(is_infinity(x) | is_nan(x), 0, x)",
        "memory",
        lambda x: dml.if_(dml.is_infinity(x) | dml.is_nan(x), 0.0, x),
        lambda x, out: np.where(np.isfinite(x), x, np.float32(0)),
        lambda t, x, out: t.nan_to_num(x, 0.0, 0.0, 0.0, out=out),
        lambda j, x: j.where(j.isinf(x) | j.isnan(x), 0.0, x),
        nodes="i = IsInf (x) n = IsNaN (x) b = Or (i, n) z = Constant <value_float = 0.0> () "
        "y = Where (b, z, x)",
    ),
    Row(
        "GELU, exact",
        "compute",
        lambda x: dml.activation_gelu(x),
        None,
        lambda t, x, out: t._C._nn.gelu(x, out=out),
        lambda j, x: _jax("gelu")(x, approximate=False),
        nodes="y = Gelu (x)",
    ),
    Row(
        "GELU by tanh",
        "compute",
        lambda x: _tanh_gelu(dml.tanh, x),
        None,
        lambda t, x, out: t._C._nn.gelu(x, approximate="tanh", out=out),
        lambda j, x: _tanh_gelu(j.tanh, x),
        "0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))",
        'y = Gelu <approximate = "tanh"> (x)',
    ),
    Row(
        "Swish",
        "compute",
        lambda x: dml.activation_swish(x),
        None,
        lambda t, x, out: t._C._nn.silu(x, out=out),
        lambda j, x: _jax("silu")(x),
        "x / (1 + exp(-x))",
        "s = Sigmoid (x) y = Mul (x, s)",
    ),
    Row(
        "quantize, dequantize",
        "memory",
        lambda x: dml.dequantize_linear(dml.quantize_linear(x, 0.05, 128), 0.05, 128),
        lambda x, out: (np.clip(np.rint(x / np.float32(0.05)) + 128, 0, 255) - 128) * np.float32(0.05),
        lambda t, x, out: t.fake_quantize_per_tensor_affine(x, 0.05, 128, 0, 255),
        lambda j, x: (j.clip(j.round(x / 0.05) + 128, 0, 255) - 128) * 0.05,
        nodes="s = Constant <value_float = 0.05> () z = Constant <value = uint8 {128}> () "
        "q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)",
    ),
    Row(
        "ten operators, a broadcast row",
        "memory",
        lambda x, r: _chain(dml, x, r),
        lambda x, r, out: _chain(_NumPy, x, r),
        lambda t, x, r, out: _chain(_Of(t.abs, t.clamp_min, t.clamp_max), x, r),
        lambda j, x, r: _chain(_Of(j.abs, j.maximum, j.minimum), x, r),
        nodes="one = Constant <value_float = 1.0> () half = Constant <value_float = 0.5> () "
        "tenth = Constant <value_float = 0.1> () four = Constant <value_float = 4.0> () "
        "third = Constant <value_float = 0.3> () a = Mul (x, r) b = Add (a, one) c = Abs (b) "
        "d = Sub (c, half) e = Max (d, tenth) f = Mul (e, e) g = Add (f, x) h = Min (g, four) "
        "i = Mul (h, third) y = Sub (i, r)",
        inputs={"x": "float32", "r": "float32"},
        shapes={"r": "row"},
    ),
    Row(
        "masked add, a mask for each column",
        "memory",
        lambda m, a, b: dml.if_(m, a + b, a),
        lambda m, a, b, out: np.where(m.view(np.bool_), a + b, a),
        lambda t, m, a, b, out: t.where(m.view(t.bool), a + b, a),
        lambda j, m, a, b: j.where(m != 0, a + b, a),
        "where(m != 0, a + b, a)",
        "t = Cast <to = 9> (m) s = Add (a, b) y = Where (t, s, a)",
        inputs={"m": "uint8", "a": "float32", "b": "float32"},
        shapes={"m": "row"},
    ),
    *map(_softmax, (64, 1024, 32768)),
]
