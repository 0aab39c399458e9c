"""Tensors of another size: Resize and Upsample, nearest and linear.

ONNX says where an output lies between the inputs, and libraries compute that in float32; so each place is
computed in float64, in float32, and for every scale that the texts could mean, and all have to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.dataclass import dataclass, replace
from anydml.ir.dims import UNKNOWN, Affine
from anydml.ir.graph import Node
from anydml.onnx.ops import result_types, safe
from anydml.onnx.ops.native import Inputs, known, moves, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, round_to, to_float64
from anydml.onnx.ops.shared import axis_in
from anydml.onnx.ops.speculation import if_run
from anydml.onnx.ops.symbolic import at_least
from anydml.onnx.protos import make_attribute
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32, FLOAT64, FLOATING, NUMPY

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


@dataclass(frozen=True)
class _Axis:
    """How one axis changes."""

    before: int
    after: int
    scale: float
    given: bool
    """Whether the scale was given, and not the size."""

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale that is given, and that of the rounded sizes."""
        exact = self.after / self.before
        return (self.scale, exact) if self.given and self.scale != exact else (exact,)


_Place = Callable[[Any, Any, "_Axis"], Any]


def _half_pixel(x: Any, scale: Any, axis: _Axis) -> Any:
    return (x + scale.dtype.type(0.5)) / scale - scale.dtype.type(0.5)


def _half_pixel_symmetric(x: Any, scale: Any, axis: _Axis) -> Any:
    number = scale.dtype.type
    if axis.given or number is np.float32:
        width = number(axis.scale) * number(axis.before)
    else:
        width = number(axis.after)
    offset = number(axis.before) / number(2) * (number(1) - number(axis.after) / width)
    return offset + _half_pixel(x, scale, axis)


def _pytorch_half_pixel(x: Any, scale: Any, axis: _Axis) -> Any:
    return _half_pixel(x, scale, axis) if axis.after > 1 else x * 0


def _align_corners(x: Any, scale: Any, axis: _Axis) -> Any:
    if axis.after == 1:
        if axis.before == 1:
            return x * 0
        raise NotFoldable("corners of one element")
    return x * scale.dtype.type(axis.before - 1) / scale.dtype.type(axis.after - 1)


_PLACES: dict[str, _Place] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": lambda x, scale, axis: x / scale,
}
_NEAREST: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - x.dtype.type(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + x.dtype.type(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _places(mode: str, axis: _Axis) -> Iterator[Array]:
    """For each output where it lies among the inputs, in every way to compute it."""
    if mode not in _PLACES:
        raise NotFoldable(f"coordinates of {mode}")
    for scale in axis.scales:
        for number in (np.float64, np.float32):
            place = _PLACES[mode](np.arange(axis.after, dtype=number), np.asarray(scale, number), axis)
            yield place
            if mode == "half_pixel_symmetric" and scale != 1:  # whose terms can be added in several orders
                yield place + number(1e-5)
                yield place - number(1e-5)


# ---- how much --------------------------------------------------------------------------------------


def _scale_size(size: int, scale: float) -> _Axis:
    """By a factor of float32; sizes are cut off."""
    if not scale > 0:
        raise ValueError(f"expected scales above 0, but got {scale}")
    after, rough = size * scale, np.float32(size) * np.float32(scale)
    if not np.isfinite(after) or int(np.floor(after)) != int(np.floor(rough)):
        raise NotFoldable("a size on which float32 and float64 do not agree")
    return _Axis(size, int(np.floor(after)), scale, given=True)


def _resize_scales(before: list[int], sizes: list[int], policy: str) -> list[_Axis]:
    if any(n < 0 for n in sizes):
        raise ValueError(f"expected sizes, but got {sizes}")
    if policy != "stretch":
        if 0 in before:
            raise NotFoldable("proportions of nothing")
        ratios = [after / size for after, size in zip(sizes, before, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        kept = [ratio * n for n in before]
        if any(abs(n - np.floor(n) - 0.5) < 1e-4 for n in kept):
            raise NotFoldable("a size next to a half")
        sizes = [int(np.floor(n + 0.5)) for n in kept]
    return [_Axis(b, a, a / b if b else 1.0, given=False) for b, a in zip(before, sizes, strict=True)]


def _axes(node: NodeView, x: Array, scales: Array | None, sizes: Array | None) -> dict[int, _Axis]:
    """The axes that change, as the inputs say; empty ones are not there."""
    named = node.ints("axes")
    chosen = list(range(x.ndim)) if named is None else [axis_in(k, x.ndim) for k in named]
    if len(set(chosen)) < len(chosen):
        raise NotFoldable("an axis that is named twice")
    scales, sizes = (None if v is None or not v.size else v for v in (scales, sizes))
    given = sizes if scales is None else scales
    if x.ndim == 0 or not chosen or given is None:
        raise NotFoldable("nothing to resize, or nothing that says how much")
    if scales is not None and sizes is not None:
        raise ValueError("expected scales or sizes, but got both")
    if given.shape != (len(chosen),):
        raise ValueError(f"expected {len(chosen)} scales or sizes, but got {list(given.shape)}")
    before = [x.shape[k] for k in chosen]
    if scales is not None:
        changes = [_scale_size(n, float(s)) for n, s in zip(before, scales.tolist(), strict=True)]
    else:
        policy = "stretch" if node.version < 18 else node.text("keep_aspect_ratio_policy")
        changes = _resize_scales(before, given.tolist(), policy)
    if any(not c.before and c.after for c in changes):
        raise NotFoldable("elements out of nothing")
    return dict(zip(chosen, changes, strict=True))


# ---- with what -------------------------------------------------------------------------------------


def _nearest(x: Array, axes: dict[int, _Axis], mode: str, nearest: str) -> Array:
    """Elements are taken as they are, of any type."""
    if nearest not in _NEAREST:
        raise NotFoldable(f"nearest_mode {nearest}")
    for axis, change in axes.items():
        if change.before == 0:
            continue
        found = [
            _NEAREST[nearest](place).clip(0, change.before - 1).astype(np.int64)
            for place in _places(mode, change)
        ]
        if any((other != found[0]).any() for other in found):
            raise NotFoldable("a place next to the middle of two elements")
        x = x.take(found[0], axis)
    return x


def _neighbours(mode: str, change: _Axis, finite: bool) -> tuple[Array, Array, Array]:
    """For each output the two inputs that it lies between, and how near it is to the second one.

    Args:
        finite: whether all inputs are; else it counts on which of them a place lies.
    """
    place, *others = (p.clip(0, change.before - 1) for p in _places(mode, change))
    low = np.floor(place).astype(np.int64)
    weight = place - low
    for other in others:
        if (np.abs(other - place) > 2e-5 * (1 + place)).any():
            raise NotFoldable("a scale that is not that of the sizes")
        if not finite and ((other == np.floor(other)) != (weight == 0)).any():
            raise NotFoldable("next to an element that is not finite")
    return low, np.minimum(low + 1, change.before - 1), weight


def _linear(x: Array, axes: dict[int, _Axis], mode: str) -> Array:
    """Between two neighbours; one of weight 0 is not looked at, so that it may be infinite."""
    if x.dtype not in FLOATS:
        raise NotFoldable("integers between integers")
    wide = to_float64(x)
    finite = bool(np.isfinite(wide).all())
    for axis, change in axes.items():
        if change.before == 0 or change.after == 0:
            wide = wide.take(np.zeros(change.after, np.int64), axis)
            continue
        low, high, weight = _neighbours(mode, change, finite)
        weight = weight.reshape(-1, *[1] * (x.ndim - axis - 1))
        first = wide.take(low, axis)
        mixed = first * (1 - weight) + wide.take(high, axis) * weight
        wide = np.where(weight == 0, first, mixed)
    return round_to(wide, x.dtype)


def _changes(node: NodeView, x: Array, inputs: Sequence[Array | None]) -> dict[int, _Axis]:
    """By scales (opset 10), by roi, scales, sizes (since 11)."""
    _, scales, sizes = (None, *inputs, None) if node.version < 11 else (*inputs, None, None, None)[:3]
    return _axes(node, x, scales, sizes)


def _resize(node: NodeView, x: Array, *inputs: Array | None) -> Array:
    axes = _changes(node, x, inputs)
    mode = node.text("mode")
    if node.version < 11:
        return _upsampled(x, axes, mode)
    place = node.text("coordinate_transformation_mode")
    if mode == "nearest":
        return _nearest(x, axes, place, node.text("nearest_mode"))
    _only_linear(node, axes)
    return _linear(x, axes, place)


def _only_linear(node: NodeView, axes: dict[int, _Axis]) -> None:
    if node.text("mode") != "linear" or node.attribute("exclude_outside"):
        raise NotFoldable(f"resizing by mode {node.text('mode')}")
    if node.attribute("antialias") and any(c.after < c.before for c in axes.values()):
        raise NotFoldable("antialiasing")


def _native_resize(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
    """The nearest elements are moved; those between two are computed axis by axis."""
    x = operand(inputs)
    if n.version < 11 or n.text("mode") == "nearest":
        return moves(_resize)(b, n, inputs)
    told = [known(inputs, k) for k in range(1, len(inputs))]
    axes = _changes(n, np.empty(x.sizes, bool), [None if t is None else t.array for t in told])
    _only_linear(n, axes)
    if x.dtype not in FLOATING:
        raise NotNative("integers between integers")
    wide = FLOAT64 if x.dtype is FLOAT64 else FLOAT32
    one, two, near = expr.read(0, wide), expr.read(1, wide), expr.read(2, wide)
    mixed = expr.add(expr.mul(one, expr.sub(1.0, near)), expr.mul(two, near))
    blend = expr.select(expr.eq(near, 0.0), one, mixed)
    result = x if x.dtype is wide else b.elementwise(expr.convert(expr.read(0, x.dtype), wide), [x])
    for axis, change in axes.items():
        low, high, weight = _neighbours(n.text("coordinate_transformation_mode"), change, finite=True)
        if weight.any() or not np.array_equal(low, np.arange(change.before)):
            result = program.between(b, result, axis, (low, high), weight.astype(NUMPY[wide]), blend)
    return [result if x.dtype is wide else b.elementwise(expr.convert(one, x.dtype), [result])]


def _upsampled(x: Array, axes: dict[int, _Axis], mode: str) -> Array:
    """As before opset 11, where nothing says how coordinates are computed: by whole factors."""
    if mode != "nearest" or any(c.scale != int(c.scale) for c in axes.values()):
        raise NotFoldable("upsampling that ONNX does not define")
    for axis, change in axes.items():
        x = x.repeat(int(change.scale), axis)
    return x


def _upsample(node: NodeView, x: Array, scales: Array | None = None) -> Array:
    """By two attributes (opset 1), by a list of them (7), by an input (9)."""
    if node.version < 7:
        if x.ndim != 4:
            raise ValueError(f"expected an input of rank 4, but got {x.ndim}")
        scales = np.array([1, 1, node.float("height_scale"), node.float("width_scale")], np.float32)
    elif node.version < 9:
        scales = np.array(node.attribute("scales"), np.float32)
    return _upsampled(x, _axes(node, x, scales, None), node.text("mode"))


def _aligned_corners(n: KnownNode) -> bool:
    """Align corners by scales that may give fractions: the sizes that the formula needs are not the rounded
    ones."""
    if n.mode("coordinate_transformation_mode") != "align_corners" or n.mode("mode") == "nearest":
        return False
    if n.value(3) is not None:
        return n.mode("keep_aspect_ratio_policy") not in ("", "stretch")
    scales, sizes = n.content(2), n.sizes(0)
    if scales is None:
        return True
    axes = n.ints("axes") or range(scales.size)
    pairs = [
        (None if sizes is None else n.size(0, k), s) for k, s in zip(axes, scales.tolist(), strict=False)
    ]
    return not all(float(s * (size if isinstance(size, int) else 1)).is_integer() for size, s in pairs)


def _too_many_axes(n: KnownNode) -> bool:
    ranks = {"linear": (2, 3, 4, 5), "cubic": (2, 4)}.get(n.mode("mode"))
    return ranks is not None and n.rank(0) not in (None, *ranks)


def _aspect_from_the_end(n: KnownNode) -> bool:
    kept = n.mode("keep_aspect_ratio_policy") in ("not_larger", "not_smaller")
    return kept and any(axis < 0 for axis in n.ints("axes") or ())


def _resized_sizes(node: NodeView, sizes: Any, contents: Any) -> list[Affine] | None:
    """The sizes that are told, as far as they are known; other axes stay as they are."""
    told = contents[3] if len(contents) > 3 else None
    axes = node.ints("axes")
    kept = node.version >= 18 and node.mode("keep_aspect_ratio_policy") != "stretch"
    chosen = list(range(len(sizes[0]))) if axes is None else axes
    if any(not -len(sizes[0]) <= k < len(sizes[0]) for k in chosen):
        return None
    result: list[Affine] = list(sizes[0])
    for place, axis in enumerate(chosen):
        size = UNKNOWN
        if told is not None and told.shape == (len(chosen),) and not kept:
            size = told[place]
        result[axis] = size if at_least(size, 0) else UNKNOWN
    return result


def _from_the_front(node: Node) -> Node:
    """A node whose axes are counted from the front, as not all libraries take others; but for one that keeps
    an aspect, of which onnxruntime has an idea of its own."""
    view, source = NodeView(node), node.inputs[0]
    axes, rank = view.ints("axes") or [], None if source is None else source.rank
    if rank is None or min(axes, default=0) >= 0 or not all(-rank <= axis < rank for axis in axes):
        return node
    if view.mode("keep_aspect_ratio_policy") not in ("", "stretch"):
        return node
    found = make_attribute("axes", [axis % rank for axis in axes])
    return replace(node, attributes={**node.attributes, "axes": found})


OPS = (
    OpInfo(
        "Resize",
        agreed=_from_the_front,
        native=_native_resize,
        safe=safe.resized,
        result=result_types.resized,
        sizes=_resized_sizes,
        fold=_resize,
        speculatable=if_run,
        quirks=(
            Quirk("onnxruntime aligns corners by rounded sizes", _aligned_corners),
            Quirk("onnxruntime does not interpolate along so many axes", _too_many_axes),
            Quirk(
                "onnxruntime does not keep the aspect of axes that are counted from the end",
                _aspect_from_the_end,
            ),
        ),
        moves_first=True,
    ),
    OpInfo("Upsample", native=moves(_upsample), fold=_upsample),
)
