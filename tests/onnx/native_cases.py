"""Nodes with drawn sizes, attributes and opsets, of which programs have rules of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.onnx import native_normalization_cases as more
from tests.onnx.native_draw import I8, I32, I64, U8, Case, Draw, F


def gather(d: Draw) -> Case:
    x = d.array(d.sizes(1, 4), d.one_of(F, I64, U8, np.bool_, np.float64))
    axis = d.integer(0, x.ndim - 1)
    at = d.indices(d.sizes(0, 2), x.shape[axis])
    return Case("Gather", d.one_of(11, 13), [(x, True), (at, d.flag())], {"axis": axis - d.flag() * x.ndim})


def gather_elements(d: Draw) -> Case:
    x = d.array(d.sizes(1, 4), d.one_of(F, I64, U8, np.bool_, np.float16))
    axis = d.integer(0, x.ndim - 1)
    sizes = [d.integer(1, n) for n in x.shape]
    sizes[axis] = d.integer(1, 9)
    at = d.indices(tuple(sizes), x.shape[axis])
    return Case("GatherElements", d.one_of(11, 13), [(x, True), (at, d.flag())], {"axis": axis})


def gather_nd(d: Draw) -> Case:
    x = d.array(d.sizes(1, 4), d.one_of(F, I64, np.bool_))
    opset = d.one_of(11, 12, 13)
    batch = d.integer(0, x.ndim - 1) if opset > 11 else 0
    count = d.integer(1, x.ndim - batch)
    rows = (*x.shape[:batch], *d.sizes(0, 2))
    at = np.stack([d.indices(rows, x.shape[batch + k], I64) for k in range(count)], -1)
    told = {"batch_dims": batch} if opset > 11 else {}
    return Case("GatherND", opset, [(x, True), (at, d.flag())], told)


REDUCTIONS = ("none", "add", "mul", "max", "min")


def _reduction(d: Draw, opset: int) -> dict[str, Any]:
    return {} if opset < 16 else {"reduction": d.one_of(*REDUCTIONS[: 5 if opset >= 18 else 3])}


def scatter_elements(d: Draw) -> Case:
    opset = d.one_of(11, 13, 16, 18)
    told = _reduction(d, opset)
    x = d.array(d.sizes(1, 3), d.one_of(F, I64, I32, np.float64))
    axis = d.integer(0, x.ndim - 1)
    sizes = [d.integer(1, n) for n in x.shape]
    at = d.indices(tuple(sizes), x.shape[axis])
    if told.get("reduction", "none") == "none":  # of two of one place, either may be the last
        order = np.argsort(d.rng.random(x.shape), axis)
        at = order[tuple(map(slice, sizes))].astype(at.dtype)
    new = d.array(tuple(sizes), x.dtype)
    attributes = {"axis": axis, **told}
    return Case("ScatterElements", opset, [(x, d.flag()), (at, d.flag()), (new, True)], attributes, 1, 1e-4)


def scatter_nd(d: Draw) -> Case:
    opset = d.one_of(11, 13, 16, 18)
    told = _reduction(d, opset)
    x = d.array(d.sizes(1, 4, 5), d.one_of(F, I64, I32, np.float64))
    count = d.integer(1, x.ndim)
    places = np.array(list(np.ndindex(*x.shape[:count])))
    d.rng.shuffle(places)
    at = places[: d.integer(1, min(len(places), 6))].astype(I64)
    new = d.array((len(at), *x.shape[count:]), x.dtype)
    return Case("ScatterND", opset, [(x, d.flag()), (at, d.flag()), (new, True)], told, 1, 1e-4)


def one_hot(d: Draw) -> Case:
    of, dtype = d.one_of((I64, F), (I64, I64), (I32, F))
    at, values = d.array(d.sizes(1, 3), of) // 12, d.array((2,), dtype)
    depth = np.array(d.integer(1, 9), of).reshape(d.one_of((), (1,)))
    axis = d.integer(-1, at.ndim)
    given: list[Any] = [(at, True), (depth, False), (values, d.flag())]
    return Case("OneHot", d.one_of(9, 11), given, {"axis": axis}, result=dtype)


def top_k(d: Draw) -> Case:
    x = d.array(d.sizes(1, 3, 20), d.one_of(F, F, np.float64, I64, I32))
    if d.flag():
        x = (x // 3).astype(x.dtype)  # with equal ones
    axis, opset = d.integer(0, x.ndim - 1), d.one_of(10, 11, 24)
    k = np.array([d.integer(1, min(x.shape[axis], 9))], I64)
    told = {"axis": axis - d.flag() * x.ndim}
    if opset == 10:
        x = x.astype(F)
    else:
        told["largest"] = int(d.flag())
    return Case("TopK", min(opset, 17), [(x, True), (k, False)], told, 2)


def cum_sum(d: Draw) -> Case:
    x = d.array(d.sizes(1, 3, 12), d.one_of(F, np.float64, I32, I64))
    axis = np.array(d.integer(-x.ndim, x.ndim - 1), d.one_of(I32, I64))
    told = {"exclusive": int(d.flag()), "reverse": int(d.flag())}
    return Case("CumSum", d.one_of(11, 14), [(x, True), (axis, False)], told)


def eye_like(d: Draw) -> Case:
    x = d.array((d.integer(1, 6), d.integer(1, 6)), d.one_of(F, I64, I32))
    told = {"k": d.integer(-4, 4)} | ({"dtype": d.one_of(1, 6, 7, 11)} if d.flag() else {})
    return Case("EyeLike", 9, [(x, True)], told)


def trilu(d: Draw) -> Case:
    x = d.array(d.sizes(2, 4), d.one_of(F, I64, np.bool_))
    k = d.one_of(None, (np.array(d.integer(-8, 8), I64), d.flag()))
    return Case("Trilu", 14, [(x, True), k] if k else [(x, True)], {"upper": int(d.flag())})


def resize(d: Draw) -> Case:
    mode = d.one_of("nearest", "linear")
    opset = d.one_of(11, 13, 18, 19)
    rank = d.one_of(2, 4) if mode == "linear" else d.integer(1, 4)
    x = d.array(tuple(d.integer(1, 6) for _ in range(rank)), F)
    changes = [1.0] * (rank - 2) + [d.one_of(0.5, 1, 2, 3, 1.5, 2.5) for _ in range(min(rank, 2))]
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    told: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": d.one_of(*places, *(["half_pixel_symmetric"] * (opset >= 19))),
    }
    if mode == "nearest":
        told["nearest_mode"] = d.one_of("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    after = [max(int(n * s), 1) for n, s in zip(x.shape, changes, strict=True)]
    scales = np.array([m / n for m, n in zip(after, x.shape, strict=True)], F)
    roi = None if opset > 11 else (np.zeros(0, F), False)
    given: list[Any] = [(x, True), roi, (scales, False)]
    corners = mode == "linear" and told["coordinate_transformation_mode"] == "align_corners"
    if corners or d.flag():  # by scales, onnxruntime takes others than ONNX has
        given[2:] = [None if opset > 11 else (np.zeros(0, F), False), (np.array(after, I64), False)]
    return Case("Resize", opset, given, told, 1, 1e-4)


def _windows(d: Draw, axes: int) -> dict[str, Any]:
    return {
        "strides": [d.integer(1, 3) for _ in range(axes)],
        "dilations": [d.integer(1, 2) for _ in range(axes)],
        "pads": [d.integer(0, 1) for _ in range(2 * axes)],
    }


def conv(d: Draw) -> Case:
    axes, groups = d.integer(1, 2), d.integer(1, 3)
    ingoing, outgoing = d.integer(1, 3), d.integer(1, 4)
    kernel = [d.integer(1, 3) for _ in range(axes)]
    x = d.array((d.integer(1, 2), groups * ingoing, *(d.integer(5, 9) for _ in range(axes))))
    w = d.array((groups * outgoing, ingoing, *kernel))
    bias = [(d.array((groups * outgoing,)), False)] if d.flag() else []
    told = {"group": groups, **_windows(d, axes)}
    return Case("Conv", d.one_of(11, 17), [(x, True), (w, False), *bias], told, 1, 1e-4)


def conv_transpose(d: Draw) -> Case:
    axes, groups = d.integer(1, 2), d.integer(1, 3)
    ingoing, outgoing = d.integer(1, 3), d.integer(1, 4)
    kernel = [d.integer(1, 4) for _ in range(axes)]
    x = d.array((d.integer(1, 2), groups * ingoing, *(d.integer(2, 6) for _ in range(axes))))
    w = d.array((groups * ingoing, outgoing, *kernel))
    bias = [(d.array((groups * outgoing,)), False)] if d.flag() else []
    told = {"group": groups, **_windows(d, axes)}
    told["pads"] = [min(p, k - 1) for p, k in zip(told["pads"], kernel * 2, strict=True)]
    told["output_padding"] = [d.integer(0, s - 1) for s in told["strides"]]
    return Case("ConvTranspose", d.one_of(11, 17), [(x, True), (w, False), *bias], told, 1, 1e-4)


def _recurrent(d: Draw, op: str, gates: int, states: int, functions: int) -> Case:
    way = d.one_of("forward", "reverse", "bidirectional")
    ways = 2 if way == "bidirectional" else 1
    steps, batch, width, hidden = d.integer(1, 5), d.integer(1, 3), d.integer(1, 9), d.one_of(1, 3, 8, 17)
    x = d.array((steps, batch, width))
    w, r = (d.array((ways, gates * hidden, n)) / 6 for n in (width, hidden))
    bias = (d.array((ways, 2 * gates * hidden)) / 3, False) if d.flag() else None
    first = [(d.array((ways, batch, hidden)) / 3, d.flag()) if d.flag() else None for _ in range(states)]
    told: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if d.flag():
        told["activations"] = [d.one_of("Sigmoid", "Tanh", "Relu") for _ in range(functions * ways)]
        w /= 4  # so that sums do not grow from step to step
        r /= 4
    if op == "GRU":
        told["linear_before_reset"] = d.integer(0, 1)
    given: list[Any] = [(x, True), (w, False), (r, False)]
    return Case(op, d.one_of(7, 14), [*given, bias, None, *first], told, 1 + states, 1e-4)


def gru(d: Draw) -> Case:
    return _recurrent(d, "GRU", 3, 1, 2)


def rnn(d: Draw) -> Case:
    return _recurrent(d, "RNN", 1, 1, 1)


def lstm(d: Draw) -> Case:
    return _recurrent(d, "LSTM", 4, 2, 3)


def _scale(d: Draw, sizes: tuple[int, ...] = ()) -> np.ndarray:
    return np.asarray(d.rng.random(sizes) / 9 + 0.01, F)


def _along_axis(d: Draw, x: np.ndarray, dtype: Any) -> tuple[list[Any], dict[str, Any]]:
    """Scale and zero point: one of each, or for each place of an axis."""
    by_axis = d.flag() and x.ndim > 0
    axis = d.integer(0, x.ndim - 1) if by_axis else 0
    sizes = (x.shape[axis],) if by_axis else d.one_of((), (1,))
    found = [(_scale(d, sizes), d.flag()), (d.array(sizes, dtype), d.flag())]
    return found, {"axis": axis} if by_axis else {}


def quantize(d: Draw) -> Case:
    opset, x = d.one_of(10, 13, 21), d.array(d.sizes(1, 3, 12))
    dtype = d.one_of(U8, I8, *([np.int16, np.uint16] if opset >= 21 else []))
    more, told = _along_axis(d, x, dtype)
    if opset == 10:
        more, told = [(_scale(d), True), (d.array((), dtype), True)], {}
    return Case(
        "QuantizeLinear", opset, [(x, True), *more[: 2 if dtype is not U8 else d.integer(1, 2)]], told
    )


def dequantize(d: Draw) -> Case:
    opset = d.one_of(10, 13, 21)
    dtype = d.one_of(U8, I8, I32, *([np.int16, np.uint16] if opset >= 21 else []))
    x = d.array(d.sizes(1, 3, 12), dtype)
    more, told = _along_axis(d, x, dtype)
    if opset == 10:
        more, told = [(_scale(d), True), (d.array((), dtype), True)], {}
    return Case("DequantizeLinear", opset, [(x, True), *more[: 1 if dtype is I32 else 2]], told)


def _matrices(d: Draw) -> tuple[np.ndarray, np.ndarray]:
    stack = d.one_of((), (2,), (2, 3))
    m, k, n = d.integer(1, 6), d.one_of(1, 5, 40), d.one_of(1, 3, 16, 21)
    return d.array((*stack, m, k), d.one_of(U8, I8)), d.array((*d.one_of((), stack), k, n), d.one_of(U8, I8))


def matmul_integer(d: Draw) -> Case:
    x, y = _matrices(d)
    zeros = [(d.array((), t.dtype), d.flag()) for t in (x, y)][: d.integer(0, 2)]
    if len(zeros) == 2 and y.ndim == 2 and d.flag():
        zeros[1] = (d.array((y.shape[1],), y.dtype), d.flag())
    return Case("MatMulInteger", 10, [(x, True), (y, d.flag()), *zeros])


def qlinear_matmul(d: Draw) -> Case:
    x, y = _matrices(d)
    y = y.astype(I8) if x.dtype == I8 else y
    columns = (y.shape[1],) if y.ndim == 2 and d.flag() else ()
    given: list[Any] = [(x, True), (_scale(d), d.flag()), (d.array((), x.dtype), d.flag())]
    given += [(y, d.flag()), (_scale(d, columns), d.flag()), (d.array(columns, y.dtype), d.flag())]
    given += [(np.asarray(_scale(d) * F(x.shape[-1] * 20)), d.flag()), (d.array((), x.dtype), d.flag())]
    return Case("QLinearMatMul", 10, given)


def matmul(d: Draw) -> Case:
    """Of integers, which wrap around."""
    dtype = d.one_of(I32, I64, np.uint32, np.uint64)
    x, y = (t.astype(dtype) << 20 for t in _matrices(d))
    return Case("MatMul", 13, [(x, True), (y, d.flag())])


def _several(d: Draw, op: str, *dtypes: Any) -> Case:
    """Which broadcast."""
    sizes, dtype = d.sizes(0, 3), d.one_of(*dtypes)
    given = []
    for _ in range(d.integer(1, 5)):
        kept = sizes[d.integer(0, len(sizes)) :]
        given.append((d.array(tuple(n if d.flag() else 1 for n in kept), dtype), d.flag() or not given))
    return Case(op, 13, list(given))


def add_all(d: Draw) -> Case:
    return _several(d, "Sum", F, np.float64)


def mean_of_all(d: Draw) -> Case:
    return _several(d, "Mean", F)


def greatest(d: Draw) -> Case:
    return _several(d, "Max", F, np.float64, I32, I64, np.uint32)


def smallest(d: Draw) -> Case:
    return _several(d, "Min", F, np.float64, I32, I64, np.uint32)


CASES: dict[str, Callable[[Draw], Case]] = {
    f.__name__: f
    for f in (
        gather,
        gather_elements,
        gather_nd,
        scatter_elements,
        scatter_nd,
        one_hot,
        top_k,
        cum_sum,
        eye_like,
        trilu,
        resize,
        conv,
        conv_transpose,
        gru,
        rnn,
        lstm,
        quantize,
        dequantize,
        matmul_integer,
        qlinear_matmul,
        matmul,
        add_all,
        mean_of_all,
        greatest,
        smallest,
        more.softmax,
        more.log_softmax,
        more.lp_normalization,
        more.batch_normalization,
        more.instance_normalization,
        more.group_normalization,
        more.layer_normalization,
        more.rms_normalization,
        more.mean_variance_normalization,
        more.reduce_log_sum,
        more.reduce_log_sum_exp,
        more.shrink,
        more.cast_like,
        more.reverse_sequence,
        more.compress,
    )
}
