"""Tensors that are made of sizes, numbers and attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.ir.dims import UNKNOWN, Affine
from anydml.onnx.arrays import to_array
from anydml.onnx.ops import result_types, safe
from anydml.onnx.ops.cast import dtype_of
from anydml.onnx.ops.native import Inputs, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, round_to, widen
from anydml.onnx.ops.shared import affordable, no_flops, single, sizes_in, texts
from anydml.onnx.ops.speculation import always
from anydml.ops.dtypes import INT64, NUMPY

if TYPE_CHECKING:
    from fractions import Fraction

    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def _range(node: NodeView, start: Array, limit: Array, delta: Array) -> Array:
    """start + k * delta; how many there are is computed exactly."""
    from fractions import Fraction

    first, end, step = (single(x) for x in (start, limit, delta))
    if start.dtype not in FLOATS:
        if step == 0:
            raise ValueError("expected a step other than 0")
        count = _ceil(Fraction(end - first, step))
        affordable([count], start.dtype)
        found: Array = np.arange(count, dtype=np.int64) * step + first
        return found.astype(start.dtype)
    if not np.isfinite([first, end, step]).all():
        raise NotFoldable("a range of infinity or NaN")
    if step == 0:
        raise ValueError("expected a step other than 0")
    count = _ceil((Fraction(end) - Fraction(first)) / Fraction(step))
    if node.version >= 27 and widen(start).dtype != start.dtype and node.int("stash_type") != 1:
        raise NotFoldable("a range of halves that is computed in halves")
    a, b, by = (widen(x).reshape(()) for x in (start, limit, delta))
    for kind in (a.dtype, np.dtype(np.float64)):  # as libraries count
        quotient = (b - a).astype(kind) / by.astype(kind)
        if not np.isfinite(quotient) or max(int(np.ceil(quotient)), 0) != count:
            raise NotFoldable("a range whose end is lost in rounding")
    affordable([count], a.dtype)
    return round_to(a + np.arange(count).astype(a.dtype) * by, start.dtype)


def _ceil(x: Fraction) -> int:
    return max(-(-x.numerator // x.denominator), 0)


def _constant_of_shape(node: NodeView, shape: Array) -> Array:
    proto = node.attribute("value")
    value = np.zeros(1, np.float32) if proto is None else to_array(proto)
    if value.size != 1:
        raise ValueError(f"expected a value of one element, but got {value.shape}")
    return np.full(affordable(sizes_in(shape), value.dtype), value.reshape(-1)[0], value.dtype)


def _eye_like(node: NodeView, x: Array) -> Array:
    if x.ndim != 2:
        raise ValueError(f"expected a matrix, but got rank {x.ndim}")
    code = node.attribute("dtype")
    rows, columns = x.shape
    distance = np.arange(columns) - np.arange(rows)[:, None]
    ones: Array = distance == node.int("k")
    return ones.astype(x.dtype if code is None else dtype_of(code))


def _bernoulli(node: NodeView, p: Array) -> Array:
    """Ones with these probabilities, drawn as in onnx.reference, which cannot draw a single one."""
    code, seed = node.attribute("dtype"), node.attribute("seed")
    draw = np.random.RandomState(None if seed is None or np.isnan(seed) else int(seed))
    return np.asarray(draw.binomial(1, p=p)).astype(p.dtype if code is None else dtype_of(code))


def _native_eye_like(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    return [program.Known.of(_eye_like(n, np.empty(x.sizes, NUMPY[x.dtype])))]


def _native_constant_of_shape(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [program.filled(b, _constant_of_shape(n, np.ones(0, np.int64)), operand(inputs))]


def _native_range(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """From 0 on, up to how long something is."""
    start, limit, step = (operand(inputs, k) for k in range(3))
    numbers = [t.integers for t in (start, step) if isinstance(t, program.Known) and t.dtype is INT64]
    if numbers != [[0], [1]] or limit.count != 1:
        raise NotNative("Range of numbers that are computed")
    (length,) = b.lengths(limit)
    if isinstance(length, int):
        raise NotNative("Range of a number that is computed")
    return [program.Bounded.of(program.Known.of(np.arange(b.most[length])), 0, length)]


def _constant(node: NodeView) -> Any:
    proto = node.attribute("value")
    if proto is not None:
        return _strings(to_array(proto))
    for name, dtype in (("value_int", np.int64), ("value_float", np.float32)):
        found = node.attribute(name)
        if found is not None:
            return np.array(found, dtype)
        found = node.attribute(f"{name}s")
        if found is not None:
            return np.array(found, dtype)
    text, more = node.attribute("value_string"), node.attribute("value_strings")
    if text is not None:
        return texts([text.decode()], ())
    if more is not None:
        return texts([t.decode() for t in more], (len(more),))
    raise NotFoldable("a constant of another form")


def _strings(x: Array) -> Array:
    """Strings of files may be bytes."""
    if x.dtype.kind not in "OSU":
        return x
    found = [t.decode() if isinstance(t, bytes) else t for t in x.reshape(-1).tolist()]
    return texts(found, x.shape)


def _no_distribution(n: KnownNode) -> bool:
    """A scale that is not positive, or a range that is none."""
    low, high, scale = (n.attribute(name) for name in ("low", "high", "scale"))
    if scale is not None:
        return not scale > 0
    return not (low is not None and high is not None and low <= high and high - low < float("inf"))


_RANGE = Quirk(
    "onnxruntime ends the process where a scale is not positive, or a range is none",
    _no_distribution,
    fatal=True,
)


def _range_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    if len(contents) != 3 or any(c is None or c.size != 1 for c in contents):
        return None
    start, limit, delta = (c.reshape(-1)[0] for c in contents)
    if delta.number != 1:
        return None
    count = limit - start
    return [count if count.least is not None and count.least >= 0 else UNKNOWN]


def _ranged(n: KnownNode) -> result_types.Types:
    """How many floats it makes, nobody tells before all three numbers are known."""
    dtype, known = n.dtype(), all(n.content(k) is not None for k in range(3))
    if dtype in ("float32", "float64") and not known:
        return result_types.only(n, dtype, [None])
    return result_types.moved(n)


OPS = (
    OpInfo("Constant", fold=_constant, speculatable=always, flops=no_flops, long_integers=True),
    OpInfo(
        "ConstantOfShape",
        native=_native_constant_of_shape,
        safe=safe.filled,
        safe_if_sized=lambda n, sizes, integers: True,
        result=result_types.filled,
        fold=_constant_of_shape,
        sizes=lambda n, sizes, contents: (
            None if contents[0] is None or contents[0].ndim != 1 else list(contents[0])
        ),
    ),
    OpInfo("EyeLike", result=result_types.like, native=_native_eye_like, fold=_eye_like, matrix_only=True),
    OpInfo(
        "Range",
        native=_native_range,
        native_constants=(0, 2),
        safe=safe.ranged,
        safe_if_sized=lambda n, sizes, integers: True,
        result=_ranged,
        fold=_range,
        sizes=_range_sizes,
    ),
    OpInfo("RandomNormal", draws=always, quirks=(_RANGE,)),
    OpInfo("RandomNormalLike", result=result_types.like, draws=always, quirks=(_RANGE,)),
    OpInfo("RandomUniform", draws=always, quirks=(_RANGE,)),
    OpInfo("RandomUniformLike", result=result_types.like, draws=always, quirks=(_RANGE,)),
    OpInfo("Multinomial", draws=always),
    OpInfo(
        "Bernoulli",
        fold=_bernoulli,
        result=result_types.like,
        draws=always,
        quirks=(Quirk("onnxruntime gives 1 with the probability of 0", lambda n: True),),
    ),
)
