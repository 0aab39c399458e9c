"""Normalization, as inference does it. All of it is computed in float64 and rounded once."""

from __future__ import annotations

import numpy as np

from anydml.ir.dims import may_be_zero
from anydml.onnx.ops import native_normalization, result_types
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import round_to, to_float64, widen
from anydml.onnx.ops.shared import axis_in
from anydml.onnx.ops.speculation import if_run, scalar_parameters

_FLOAT = 1
"""ONNX's number of float32."""


def _only_first_output(node: NodeView) -> None:
    if any(node.outputs[1:]):
        raise NotFoldable("outputs of training")


def _in_inference(node: NodeView) -> None:
    """`is_test` came and went with opset 6; before 7 training is the default."""
    if node.version < 7 and not node.attribute("is_test"):
        raise NotFoldable("training")


def _per_channel(x: Array, *parameters: Array) -> list[Array]:
    """Parameters of length C as float64 that broadcast with x of shape [N, C, ...]."""
    channels = x.shape[1]
    for p in parameters:
        if p.shape != (channels,):
            raise ValueError(f"expected parameters of shape [{channels}], but got {list(p.shape)}")
    return [to_float64(p).reshape(-1, *[1] * (x.ndim - 2)) for p in parameters]


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """x of float64 with mean 0 and variance 1 along axes; the mean; 1 over the standard deviation."""
    if x.size == 0:
        shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape))
        if 0 not in shape:
            raise NotFoldable("the mean of nothing")
        return x, np.empty(shape), np.empty(shape)
    mean = x.mean(axes, keepdims=True)
    apart = x - mean
    inverse = 1 / np.sqrt(np.square(apart).mean(axes, keepdims=True) + epsilon)
    return apart * inverse, mean, inverse


def _batch(node: NodeView, x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    """Per channel, of which rank 1 has one; before opset 9 also, with spatial=0, per element of a sample."""
    _only_first_output(node)
    _in_inference(node)
    if node.attribute("training_mode"):
        raise NotFoldable("training")
    if x.ndim == 0:
        raise ValueError("expected a batch, but got a scalar")
    parameters = (scale, bias, mean, variance)
    if node.version < 9 and not node.int("spatial"):
        for p in parameters:
            if p.shape != x.shape[1:]:
                raise ValueError(f"expected parameters of shape {list(x.shape[1:])}, but got {list(p.shape)}")
        factor, shift, middle, spread = (to_float64(p) for p in parameters)
    elif x.ndim == 1:
        factor, shift, middle, spread = (p.reshape(1) for p in _per_channel(x.reshape(-1, 1), *parameters))
    else:
        factor, shift, middle, spread = _per_channel(x, *parameters)
    normal = (to_float64(x) - middle) / np.sqrt(spread + node.float("epsilon"))
    return round_to(normal * factor + shift, x.dtype)


def _instance(node: NodeView, x: Array, scale: Array, bias: Array) -> Array:
    if x.ndim < 3:
        raise ValueError(f"expected an input of rank 3 or more, but got {x.ndim}")
    factor, shift = _per_channel(x, scale, bias)
    normal, _, _ = _standard(to_float64(x), tuple(range(2, x.ndim)), node.float("epsilon"))
    return round_to(normal * factor + shift, x.dtype)


def _group(node: NodeView, x: Array, scale: Array, bias: Array) -> Array:
    """Scale and bias are per group at opset 18, per channel since 21."""
    if x.ndim < 2:
        raise ValueError(f"expected an input of rank 2 or more, but got {x.ndim}")
    groups = node.int("num_groups")
    batch, channels = x.shape[:2]
    if groups < 1 or channels % groups:
        raise ValueError(f"expected groups of {channels} channels that are equal, but got {groups}")
    if node.version >= 21:
        _stage_in_float32(node)
        x_wide = to_float64(x.astype(np.float32))
    else:
        x_wide = to_float64(x)
    parts = x_wide.reshape(batch, groups, channels // groups, *x.shape[2:])
    normal, _, _ = _standard(parts, tuple(range(2, parts.ndim)), node.float("epsilon"))
    if node.version < 21:
        factor, shift = _per_channel(parts, scale, bias)
        return round_to((normal * factor + shift).reshape(x.shape), x.dtype)
    if x.dtype == np.float64:
        normal = to_float64(normal.astype(np.float32))
    factor, shift = _per_channel(x, scale, bias)
    return round_to(normal.reshape(x.shape) * factor + shift, x.dtype)


def _stage_in_float32(node: NodeView) -> None:
    if node.int("stash_type") != _FLOAT:
        raise NotFoldable("statistics in another type than float32")


def _last_axes(node: NodeView, x: Array) -> tuple[int, ...]:
    """From `axis` to the last.

    Raises:
        NotFoldable: float64, of which ONNX takes the statistics in float32, and onnxruntime in float64.
    """
    _stage_in_float32(node)
    if x.dtype == np.float64:
        raise NotFoldable("statistics of float64 in float32")
    return tuple(range(axis_in(node.int("axis"), x.ndim), x.ndim))


def _spread(parameter: Array, x: Array) -> Array:
    return np.broadcast_to(to_float64(parameter), x.shape)


def _layer(node: NodeView, x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, Array, Array]:
    axes = _last_axes(node, x)
    normal, mean, inverse = _standard(to_float64(x), axes, node.float("epsilon"))
    scaled = normal * _spread(scale, x)
    if bias is not None:
        scaled = scaled + _spread(bias, x)
    return round_to(scaled, x.dtype), mean.astype(np.float32), inverse.astype(np.float32)


def _root_mean_square(node: NodeView, x: Array, scale: Array) -> Array:
    if scale.dtype != x.dtype:
        raise NotFoldable("a scale of another type than the input")
    axes = _last_axes(node, x)
    wide = to_float64(x)
    squares = np.square(wide).sum(axes, keepdims=True) / max(np.prod([x.shape[k] for k in axes]), 1)
    return round_to(wide / np.sqrt(squares + node.float("epsilon")) * _spread(scale, x), x.dtype)


def _lp(node: NodeView, x: Array) -> Array:
    """Where the norm is 0 so are the results."""
    p = node.int("p")
    if p not in (1, 2):
        raise ValueError(f"expected a norm 1 or 2, but got {p}")
    axis = axis_in(node.int("axis"), x.ndim)
    wide, narrow = to_float64(x), widen(x)
    powers = np.square(wide) if p == 2 else np.abs(wide)
    total = powers.sum(axis, keepdims=True)
    limits = np.finfo(narrow.dtype)
    if not (np.isfinite(total) & (total < limits.max) & ((total == 0) | (total > limits.tiny))).all():
        raise NotFoldable("a norm that overflows, underflows or is of no number")
    norm = np.sqrt(total) if p == 2 else total
    return round_to(np.where(norm == 0, 0.0, wide / np.where(norm == 0, 1.0, norm)), x.dtype)


def _mean_variance(node: NodeView, x: Array) -> Array:
    """By (X - EX) / sqrt(E(X - EX)^2).

    Raises:
        NotFoldable: hardly any variance: ONNX's own definition takes the difference of two large numbers.
    """
    named = node.ints("axes") or []
    if any(not -x.ndim <= axis < x.ndim for axis in named):
        raise NotFoldable("an axis that is not there")
    axes = tuple(axis % x.ndim for axis in named)
    if len(set(axes)) < len(axes):
        raise NotFoldable("an axis that is named twice")
    normal, mean, inverse = _standard(to_float64(x), axes, 0.0)
    deviation = 1 / inverse
    if x.size and not (deviation > 1e-3 * np.abs(mean) + 1e-3).all():
        raise NotFoldable("next to no variance")
    return round_to(normal, x.dtype)


def _local_response(node: NodeView, x: Array) -> Array:
    """By the squares of the neighbours, from channel c - floor((size-1)/2) to c + ceil((size-1)/2)."""
    if x.ndim < 3:
        raise ValueError(f"expected an input of rank 3 or more, but got {x.ndim}")
    size = node.int("size")
    if size < 1:
        raise ValueError(f"expected a size of at least 1, but got {size}")
    wide = to_float64(x)
    squares, total, channels = np.square(wide), np.zeros(x.shape), x.shape[1]
    for c in range(channels):
        first, last = max(0, c - (size - 1) // 2), min(channels - 1, c + size // 2)
        total[:, c] = squares[:, first : last + 1].sum(1)
    base = node.float("bias") + node.float("alpha") / size * total
    return round_to(wide / base ** node.float("beta"), x.dtype)


def _dropout(
    node: NodeView, x: Array, ratio: Array | None = None, training: Array | None = None
) -> tuple[Array, ...]:
    """Nothing is dropped. Before opset 12 nothing says what the mask is then."""
    _in_inference(node)
    if training is not None and training.any():
        raise NotFoldable("training")
    if node.version >= 12:
        return x, np.ones(x.shape, np.bool_)
    _only_first_output(node)
    return (x,)


def _draws_by_a_seed(n: KnownNode) -> bool:
    """Whether it may train: without a seed nobody knows what is dropped."""
    training = n.content(2)
    return n.value(2) is not None and "seed" in n.given and (training is None or bool(training.any()))


def _nothing_normalized(n: KnownNode) -> bool:
    axis, sizes = n.attribute("axis"), n.sizes(0) or ()
    return isinstance(axis, int) and 0 in sizes[axis if -len(sizes) <= axis else 0 :]


_NO_SLICES = Quirk("onnxruntime refuses to normalize empty slices", _nothing_normalized)


def _scales_fit(n: KnownNode) -> bool:
    """Axes of known sizes, of which the scale and the bias have as many."""
    sizes, axis = n.sizes(0), n.attribute("axis")
    if not sizes or not isinstance(axis, int) or not -len(sizes) <= axis < len(sizes):
        return False
    normalized = sizes[axis:]
    if not all(isinstance(size, int) and size > 0 for size in normalized):
        return False
    return all(n.value(k) is None or n.sizes(k) == normalized for k in (1, 2))


def _groups_fit(n: KnownNode) -> bool:
    """Whole groups of channels, each with a scale and a bias; onnxruntime refuses an empty tensor."""
    sizes, groups = n.sizes(0), n.attribute("num_groups")
    if n.version < 21 or sizes is None or len(sizes) < 3 or any(map(may_be_zero, sizes)):
        return False
    channels = sizes[1]
    if not isinstance(channels, int) or not groups or channels % groups:
        return False
    return n.sizes(1) == n.sizes(2) == (channels,)


OPS = (
    OpInfo(
        "BatchNormalization",
        native=native_normalization.batch,
        any_batch=True,
        result=result_types.same,
        fold=_batch,
        speculatable=if_run,
        reference_error=("has another formula before opset 14", lambda n: 9 <= n.version < 14),
    ),
    OpInfo(
        "InstanceNormalization",
        native=native_normalization.instance,
        result=result_types.same,
        fold=_instance,
        speculatable=if_run,
        quirks=(
            Quirk(
                "onnxruntime ends the process on empty channels",
                lambda n: n.may_be_empty(0, 2),
                fatal=True,
                empty=True,
            ),
        ),
    ),
    OpInfo(
        "GroupNormalization",
        result=result_types.same,
        native=native_normalization.group,
        fold=_group,
        speculatable=_groups_fit,
        quirks=(Quirk("onnxruntime refuses to normalize an empty tensor", lambda n: n.empty(0)),),
        minimums={"num_groups": 1},
    ),
    OpInfo(
        "LayerNormalization",
        native=native_normalization.layer,
        result=result_types.same,
        fold=_layer,
        speculatable=_scales_fit,
        quirks=(_NO_SLICES,),
    ),
    OpInfo(
        "RMSNormalization",
        result=result_types.like_second,
        native=native_normalization.root_mean_square,
        fold=_root_mean_square,
        speculatable=_scales_fit,
        quirks=(_NO_SLICES,),
    ),
    OpInfo(
        "LpNormalization",
        result=result_types.same,
        native=native_normalization.lp,
        any_batch=True,
        fold=_lp,
        speculatable=if_run,
        reference_error=("takes another norm", lambda n: n.attribute("p") == 1),
    ),
    OpInfo(
        "MeanVarianceNormalization",
        result=result_types.same,
        native=native_normalization.mean_variance,
        fold=_mean_variance,
        quirks=(
            Quirk(
                "onnxruntime divides 0 by 0 where there is no variance",
                lambda n: n.dtype() in ("float32", "float64", None) and bool(n.ints("axes")),
                mended=True,
            ),
        ),
    ),
    OpInfo(
        "LRN",
        result=result_types.same,
        fold=_local_response,
        quirks=(Quirk("onnxruntime wants tensors of rank 4 here", lambda n: n.rank(0) not in (None, 4)),),
        minimums={"size": 1},
    ),
    OpInfo(
        "Dropout",
        result=result_types.same,
        fold=_dropout,
        speculatable=scalar_parameters,
        quirks=(
            Quirk("onnxruntime drops others than ONNX's generator in training, by a seed", _draws_by_a_seed),
        ),
        draws=lambda n: n.version < 7 or n.value(2) is not None,
    ),
)
