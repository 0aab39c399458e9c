"""Drawn nodes that normalize, and some others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.native_draw import I32, I64, Case, Draw, F


def _of_one_axis(d: Draw, op: str, opset: int, **attributes: Any) -> Case:
    x = d.array(d.sizes(1, 4, 20))
    if d.flag():  # whose powers overflow, if nothing is taken away before
        x *= 40
    axis = d.integer(-x.ndim, x.ndim - 1)
    return Case(op, opset, [(x, True)], {"axis": axis, **attributes})


def softmax(d: Draw) -> Case:
    return _of_one_axis(d, "Softmax", 13)


def log_softmax(d: Draw) -> Case:
    return _of_one_axis(d, "LogSoftmax", 13)


def lp_normalization(d: Draw) -> Case:
    case = _of_one_axis(d, "LpNormalization", d.one_of(13, 22), p=d.integer(1, 2))
    x, _ = case.given[0] or (np.zeros(0), True)
    if d.flag():
        x[...] = x * (x.take([0], case.attributes["axis"]) > 0)
    return case


def _drawn(d: Draw, sizes: tuple[int, ...], count: int) -> list[tuple[np.ndarray, bool]]:
    return [(d.array(sizes), d.flag()) for _ in range(count)]


def batch_normalization(d: Draw) -> Case:
    x = d.array(d.sizes(2, 4))
    scale, bias, mean, (variance, fed) = _drawn(d, (x.shape[1],), 4)
    given = [(x, True), scale, bias, mean, (abs(variance) + F(0.1), fed)]
    return Case("BatchNormalization", d.one_of(9, 14, 15), given, {"epsilon": d.one_of(1e-5, 0.1)})


def instance_normalization(d: Draw) -> Case:
    x = d.array((*d.sizes(2, 2), d.integer(2, 9), *d.sizes(0, 1)))
    given = [(x, True), *_drawn(d, (x.shape[1],), 2)]
    return Case("InstanceNormalization", d.one_of(6, 22), given, {"epsilon": d.one_of(1e-5, 0.1)})


def group_normalization(d: Draw) -> Case:
    groups, each, opset = d.integer(1, 4), d.integer(1, 3), d.one_of(18, 21)
    x = d.array((d.integer(1, 3), groups * each, d.integer(2, 9), *d.sizes(0, 1)))
    count = groups if opset == 18 else x.shape[1]
    given = [(x, True), *_drawn(d, (count,), 2)]
    return Case("GroupNormalization", opset, given, {"num_groups": groups, "epsilon": 0.01}, result=F)


def layer_normalization(d: Draw) -> Case:
    x = d.array((*d.sizes(0, 3), d.integer(2, 40)))
    axis = d.integer(0, x.ndim - 1)
    given = [(x, True), *_drawn(d, x.shape[axis:], d.integer(1, 2))]
    return Case("LayerNormalization", 17, given, {"axis": axis - d.flag() * x.ndim, "epsilon": 0.01})


def rms_normalization(d: Draw) -> Case:
    x = d.array((*d.sizes(0, 3), d.integer(2, 40)))
    axis = d.integer(0, x.ndim - 1)
    given = [(x, True), *_drawn(d, x.shape[axis:], 1)]
    return Case("RMSNormalization", 23, given, {"axis": axis - d.flag() * x.ndim, "epsilon": 0.01})


def mean_variance_normalization(d: Draw) -> Case:
    x = d.array((d.integer(2, 5), d.integer(1, 4), *(d.integer(3, 6) for _ in range(2))))
    told = {"axes": d.one_of([0], [0, 2, 3], [2, 3], [-1])} if d.flag() else {}
    return Case("MeanVarianceNormalization", 13, [(x, True)], told)


def _logarithm(d: Draw, op: str) -> Case:
    x = d.array(d.sizes(1, 4, 20))
    opset, axes = d.one_of(13, 18), sorted(set(d.one_of([0], [x.ndim - 1], list(range(x.ndim)))))
    told: dict[str, Any] = {"keepdims": int(d.flag())}
    if opset < 18:
        return Case(op, opset, [(x, True)], {"axes": axes, **told})
    return Case(op, opset, [(x, True), (np.array(axes), False)], told)


def reduce_log_sum(d: Draw) -> Case:
    case = _logarithm(d, "ReduceLogSum")
    x, _ = case.given[0] or (np.zeros(0), True)
    np.abs(x, out=x)
    return case


def reduce_log_sum_exp(d: Draw) -> Case:
    case = _logarithm(d, "ReduceLogSumExp")
    x, _ = case.given[0] or (np.zeros(0), True)
    if d.flag():
        x[:1] = d.one_of(np.inf, -np.inf, 300)
    return case


def shrink(d: Draw) -> Case:
    x = d.array(d.sizes(0, 3))
    return Case("Shrink", 9, [(x, True)], {"lambd": d.one_of(0.5, 1.5), "bias": d.one_of(0.0, 0.25)})


def cast_like(d: Draw) -> Case:
    x = d.array(d.sizes(0, 3), d.one_of(F, I32, I64, np.float64, np.bool_))
    like = d.array((d.integer(1, 3),), d.one_of(F, I32, I64, np.float64, np.bool_))
    return Case("CastLike", d.one_of(15, 19), [(x, True), (like, True)], result=like.dtype)


def reverse_sequence(d: Draw) -> Case:
    time, batch = d.integer(1, 7), d.integer(1, 4)
    turned = d.flag()
    x = d.array(((batch, time) if turned else (time, batch)) + d.sizes(0, 2), d.one_of(F, I64, np.bool_))
    lengths = np.array([d.integer(1, time) for _ in range(batch)])
    axes = {"time_axis": int(turned), "batch_axis": int(not turned)}
    return Case("ReverseSequence", 10, [(x, True), (lengths, False)], axes)


def compress(d: Draw) -> Case:
    x = d.array(d.sizes(1, 3), d.one_of(F, I64, np.bool_))
    axis = d.integer(0, x.ndim - 1)
    chosen = d.array((x.shape[axis],), np.bool_)
    chosen[0] = True
    return Case("Compress", d.one_of(9, 11), [(x, True), (chosen, False)], {"axis": axis}, result=x.dtype)
