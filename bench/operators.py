"""Every element-wise operator in every type that it takes, beside NumPy, torch and onnxruntime.

Functions on 2^20 elements into memory that is there already (`python -m bench --operators`).
A peer's way is what its users would write; where it has none for a type, it is left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import anydml as dml
from anydml.runtime.threads import default_threads
from bench.peers import installed

Call = Callable[[], object]
POWER = 20
FLOATS = ("float32", "float16")
ALL = (*FLOATS, "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True)
class Way:
    """How the libraries say one operator."""

    numpy: str = ""
    torch: str = ""
    """Of torch, or with a dot in front of torch.nn.functional."""
    onnx: str = ""
    inputs: int = 1
    low: float = -6.0
    high: float = 6.0
    arguments: tuple[Any, ...] = ()
    """Behind the arrays: ours, and theirs."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Of the ONNX operator."""


WAYS = {
    "identity": Way("positive", "", "Identity"),
    "abs": Way("absolute", "abs", "Abs"),
    "acos": Way("arccos", "acos", "Acos", low=-0.99, high=0.99),
    "asin": Way("arcsin", "asin", "Asin", low=-0.99, high=0.99),
    "atan": Way("arctan", "atan", "Atan"),
    "ceil": Way("ceil", "ceil", "Ceil"),
    "floor": Way("floor", "floor", "Floor"),
    "round": Way("rint", "round", "Round"),
    "cos": Way("cos", "cos", "Cos"),
    "sin": Way("sin", "sin", "Sin"),
    "tan": Way("tan", "tan", "Tan"),
    "exp": Way("exp", "exp", "Exp"),
    "log": Way("log", "log", "Log", low=0.01, high=50),
    "sqrt": Way("sqrt", "sqrt", "Sqrt", low=0, high=50),
    "recip": Way("reciprocal", "reciprocal", "Reciprocal", low=0.5),
    "sign": Way("sign", "sign", "Sign"),
    "negate": Way("negative", "neg", "Neg"),
    "is_nan": Way("isnan", "isnan", "IsNaN"),
    "is_infinity": Way("isinf", "isinf", "IsInf"),
    "erf": Way("", "erf", "Erf"),
    "sinh": Way("sinh", "sinh", "Sinh"),
    "cosh": Way("cosh", "cosh", "Cosh"),
    "tanh": Way("tanh", "tanh", "Tanh"),
    "asinh": Way("arcsinh", "asinh", "Asinh"),
    "acosh": Way("arccosh", "acosh", "Acosh", low=1, high=50),
    "atanh": Way("arctanh", "atanh", "Atanh", low=-0.99, high=0.99),
    "bit_not": Way("invert", "bitwise_not", "BitwiseNot"),
    "bit_count": Way("bitwise_count"),
    "add": Way("add", "add", "Add", 2),
    "subtract": Way("subtract", "sub", "Sub", 2),
    "multiply": Way("multiply", "mul", "Mul", 2),
    "divide": Way("divide", "div", "Div", 2, low=1, high=9),
    "max": Way("maximum", "maximum", "Max", 2),
    "min": Way("minimum", "minimum", "Min", 2),
    "mean": Way("", "", "Mean", 2),
    "pow": Way("power", "pow", "Pow", 2, low=0.1, high=4),
    "constant_pow": Way("power", "pow", low=0.1, high=4, arguments=(2.5,)),
    "equals": Way("equal", "eq", "Equal", 2),
    "greater_than": Way("greater", "gt", "Greater", 2),
    "less_than": Way("less", "lt", "Less", 2),
    "greater_than_or_equal": Way("greater_equal", "ge", "GreaterOrEqual", 2),
    "less_than_or_equal": Way("less_equal", "le", "LessOrEqual", 2),
    "bit_and": Way("bitwise_and", "bitwise_and", "BitwiseAnd", 2),
    "bit_or": Way("bitwise_or", "bitwise_or", "BitwiseOr", 2),
    "bit_xor": Way("bitwise_xor", "bitwise_xor", "BitwiseXor", 2),
    "bit_shift_left": Way("left_shift", "bitwise_left_shift", "", 2, low=0),
    "bit_shift_right": Way("right_shift", "bitwise_right_shift", "", 2, low=0),
    "modulus_truncate": Way("fmod", "fmod", "", 2, low=1, high=9),
    "modulus_floor": Way("remainder", "remainder", "", 2, low=1, high=9),
    "atan_yx": Way("arctan2", "atan2", "", 2),
    "clip": Way("clip", "clamp", arguments=(-1, 2)),
    "activation_relu": Way("", ".relu", "Relu"),
    "activation_leaky_relu": Way("", ".leaky_relu", "LeakyRelu"),
    "activation_elu": Way("", ".elu", "Elu"),
    "activation_celu": Way("", ".celu", "Celu"),
    "activation_scaled_elu": Way("", ".selu", "Selu"),
    "activation_sigmoid": Way("", "sigmoid", "Sigmoid"),
    "activation_tanh": Way("tanh", "tanh", "Tanh"),
    "activation_softplus": Way("", ".softplus", "Softplus"),
    "activation_softsign": Way("", ".softsign", "Softsign"),
    "activation_gelu": Way("", ".gelu", "Gelu"),
    "activation_hard_swish": Way("", ".hardswish", "HardSwish"),
    "activation_swish": Way("", ".silu"),
    "activation_hard_sigmoid": Way("", "", "HardSigmoid"),
    "activation_thresholded_relu": Way("", "", "ThresholdedRelu"),
    "activation_shrink": Way("", ".softshrink", "Shrink"),
    "activation_parameterized_relu": Way("", "", "PRelu", 2),
    "if_": Way("where", "where", "Where", 2),
}
"""By the name of our function."""


def contenders() -> Iterator[tuple[str, dict[str, Call]]]:
    """By operator and type: what ours is called as, and each peer that has it."""
    for name, way in WAYS.items():
        for dtype in ALL:
            arrays, function = _arrays(name, way, dtype), getattr(dml, name)
            try:
                out = np.empty(1 << POWER, function(*(a[:4] for a in arrays), *way.arguments).dtype)
            except dml.InvalidOperator:  # it does not take the type
                continue
            made: dict[str, Call] = {"anydml": partial(function, *arrays, *way.arguments, out=out)}
            for peer, make in (("NumPy", _numpy), ("torch", _torch), ("onnxruntime", _onnxruntime)):
                # whatever a library raises where it lacks a type
                with suppress(Exception), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    call = make(name, way, arrays, np.empty_like(out))
                    if call is not None:
                        call()
                        made[peer] = call
            yield f"{name}, {dtype}", made


def _arrays(name: str, way: Way, dtype: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    low = max(way.low, 0) if dtype.startswith("u") else way.low
    arrays = [rng.uniform(low, way.high, 1 << POWER).astype(dtype) for _ in range(way.inputs)]
    return [rng.integers(0, 2, 1 << POWER, np.uint8), *arrays] if name == "if_" else arrays


def _numpy(name: str, way: Way, arrays: list[np.ndarray], out: np.ndarray) -> Call | None:
    if not way.numpy:
        return None
    if name == "if_":
        c, a, b = arrays
        return partial(np.where, c.view(np.bool_), a, b)
    target = out.view(np.bool_) if out.dtype == np.uint8 and arrays[0].dtype != np.uint8 else out
    if way.numpy.startswith(("is", "equal", "greater", "less")):
        target = out.view(np.bool_)
    if name == "divide" and out.dtype.kind != "f":
        return partial(np.floor_divide, *arrays, out=target)
    return partial(getattr(np, way.numpy), *arrays, *way.arguments, out=target)


def _torch(name: str, way: Way, arrays: list[np.ndarray], out: np.ndarray) -> Call | None:
    torch = installed("torch")
    if torch is None:
        return None
    tensors, target = [torch.from_numpy(a) for a in arrays], torch.from_numpy(out)
    if name == "identity":
        return partial(target.copy_, tensors[0])
    if not way.torch:
        return None
    if way.torch.startswith("."):
        return partial(getattr(torch.nn.functional, way.torch[1:]), *tensors)
    if way.torch in ("isnan", "isinf"):  # they take no memory to write to
        return partial(getattr(torch, way.torch), *tensors)
    if way.torch in ("eq", "gt", "lt", "ge", "le"):
        target = torch.from_numpy(out.view(np.bool_))
    if name == "if_":
        tensors[0] = torch.from_numpy(arrays[0].view(np.bool_))
    named = {"rounding_mode": "trunc"} if name == "divide" and out.dtype.kind != "f" else {}
    return partial(getattr(torch, way.torch), *tensors, *way.arguments, out=target, **named)


def _onnxruntime(name: str, way: Way, arrays: list[np.ndarray], out: np.ndarray) -> Call | None:
    if not way.onnx:
        return None
    tells = way.onnx in ("IsNaN", "IsInf", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    given = [a.view(np.bool_) if name == "if_" and k == 0 else a for k, a in enumerate(arrays)]
    made = out.view(np.bool_) if tells else out
    names = [f"x{k}" for k in range(len(given))]
    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(("y", *names), (made, *given), strict=True)
    ]
    node = helper.make_node(way.onnx, names, ["y"], **way.attributes)
    graph = helper.make_graph([node], "one", ends[1:], ends[:1])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    assert TensorProto.UNDEFINED not in {e.type.tensor_type.elem_type for e in ends}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = default_threads()
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n, a in zip(names, given, strict=True):
        binding.bind_ortvalue_input(n, ort.OrtValue.ortvalue_from_numpy(a))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(made))
    return partial(session.run_with_iobinding, binding)
