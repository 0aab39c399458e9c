"""Resize and Upsample."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from anydml.onnx.ops.opinfo import NotFoldable
from tests.models import info
from tests.onnx.ops.checking import check, check_fails, folded, strings

NAN, INF = np.nan, np.inf
F = np.float32
X = np.arange(24, dtype=F).reshape(1, 2, 4, 3)
PLACES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def f(*values):
    return np.array(values, F)


def scaled(*scales):
    return [None, f(*scales)]


def sized(*sizes):
    return [None, None, np.array(sizes, np.int64)]


def computed(x, inputs, version, **attributes):
    """What onnxruntime says, with the inputs but x as initializers: ONNX's own inference takes `sizes` of
    unknown length for none."""
    names = ["" if part is None else f"part{k}" for k, part in enumerate(inputs)]
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", *names], ["y"], **attributes)],
        "one",
        [info("x", x.dtype.name, x.shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(part, name) for part, name in zip(inputs, names, strict=True) if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def resized(version, x, how, tolerance=0, **attributes):
    """Compare; opset 11 wants roi and scales to be there. The rule may say NotFoldable."""
    if version < 13:
        how = [np.zeros(0, F) if part is None else part for part in how]
    expected = computed(x, how, version, **attributes)
    check("Resize", [x, *how], version, tolerance=tolerance, expected=expected, **attributes)


@pytest.mark.parametrize("version", [11, 13, 18, 19])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nearest", NEAREST)
def test_nearest(version, place, nearest):
    """Where the float32 of libraries and the float64 of the formula agree, as is told by NotFoldable."""
    attributes = {"coordinate_transformation_mode": place, "nearest_mode": nearest}
    answered = 0
    for how in (
        scaled(1, 1, 2, 2),
        sized(1, 2, 8, 3),
        sized(1, 2, 3, 2),
        sized(1, 2, 6, 9),
        scaled(1, 1, 0.5, 1),
        sized(1, 2, 5, 7),
    ):
        try:
            resized(version, X, how, mode="nearest", **attributes)
            answered += 1
        except NotFoldable:
            pass
    assert answered >= 4


@pytest.mark.parametrize("version", [11, 13, 18, 19])
@pytest.mark.parametrize("place", PLACES)
def test_linear(version, place):
    attributes = {"coordinate_transformation_mode": place, "mode": "linear", "tolerance": 16}
    for how in (
        scaled(1, 1, 2, 2),
        sized(1, 2, 8, 3),
        sized(1, 2, 3, 2),
        sized(1, 2, 5, 7),
        scaled(1, 1, 1, 3),
    ):
        resized(version, X + 1, how, **attributes)
    resized(version, X[0, 0] + 1, scaled(2, 2), **attributes)


def test_symmetric():
    attributes = {"coordinate_transformation_mode": "half_pixel_symmetric"}
    for how in (scaled(1, 1, 2, 2), sized(1, 2, 8, 5)):
        resized(19, X + 1, how, **attributes)
        resized(19, X + 1, how, tolerance=16, mode="linear", **attributes)


def test_types():
    for dtype in ("uint8", "int8", "int32", "float16", "float64"):
        x = X.astype(dtype)
        if dtype in ("uint8", "int8", "int32"):
            resized(13, x, sized(1, 2, 8, 6))
            with pytest.raises(NotFoldable):
                folded("Resize", [x, *sized(1, 2, 8, 6)], 13, mode="linear")
        else:  # by hand: onnxruntime has neither without a detour
            expected = folded("Resize", [X, *sized(1, 2, 8, 6)], 13)[0].astype(dtype)
            check("Resize", [x, *sized(1, 2, 8, 6)], 13, expected=expected)
    # By hand: types that onnxruntime does not resize.
    check("Resize", [strings("a", "b"), *sized(4)], 13, expected=strings("a", "a", "b", "b"))
    check("Resize", [np.array([True, False]), *sized(4)], 13, expected=np.array([True, True, False, False]))
    b = ml_dtypes.bfloat16
    check(
        "Resize", [np.array([1, 3], b), *sized(4)], 13, expected=np.array([1, 1.5, 2.5, 3], b), mode="linear"
    )


def test_neighbours_of_no_weight():
    """By hand: 0 times infinity is NaN in onnxruntime."""
    x = f(INF, 1)
    check("Resize", [x, *sized(4)], 13, expected=f(INF, INF, 1, 1))
    attributes = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    check("Resize", [f(1, INF), *sized(4)], 13, expected=f(1, INF, INF, INF), **attributes)
    check("Resize", [f(INF, 1), *sized(2)], 13, expected=f(INF, 1), mode="linear")


def test_axes():
    for axes, sizes in [([2, 3], [8, 6]), ([-1], [6]), ([3, 2], [6, 8])]:
        resized(18, X, sized(*sizes), axes=axes)
        resized(18, X, sized(*sizes), tolerance=16, axes=axes, mode="linear")
    resized(18, X, scaled(2), axes=[2])
    check_fails("Resize", [X, *sized(6)], 18, axes=[4])


def test_proportions():
    for policy in ("stretch", "not_larger", "not_smaller"):
        resized(18, X, sized(8, 7), axes=[2, 3], keep_aspect_ratio_policy=policy)
        resized(18, X, sized(3, 9), axes=[2, 3], keep_aspect_ratio_policy=policy, nearest_mode="floor")


def test_nothing():
    check("Resize", [np.zeros((0, 3), F), *scaled(2, 2)], 13, expected=np.zeros((0, 6), F))
    check("Resize", [np.zeros((0, 3), F), *scaled(2, 2)], 13, expected=np.zeros((0, 6), F), mode="linear")
    for inputs in ([X[:0], *sized(1, 2, 4, 3)], [X], [X, None, f()], [np.array(1, F), *sized()]):
        with pytest.raises(NotFoldable):
            folded("Resize", inputs, 13)


def test_inputs_that_do_not_fit():
    check_fails("Resize", [X, *scaled(2, 2)], 13)
    check_fails("Resize", [X, *scaled(1, 1, 0, 1)], 13)
    check_fails("Resize", [X, None, f(1, 1, 2, 2), np.array([1, 2, 8, 6])], 13)


def test_what_is_left_to_libraries():
    for how, attributes in [
        (sized(1, 2, 8, 6), {"mode": "cubic"}),
        (sized(1, 2, 2, 3), {"mode": "linear", "antialias": 1}),
        (sized(1, 2, 8, 6), {"mode": "linear", "exclude_outside": 1}),
        (sized(1, 2, 8, 6), {"coordinate_transformation_mode": "tf_crop_and_resize"}),
        (sized(1, 2, 1, 3), {"coordinate_transformation_mode": "align_corners"}),
        (scaled(1, 1, 1.3, 1), {"mode": "linear"}),
        (sized(1, 2, 4, 3), {"axes": [0, 1, 1, 2]}),
    ]:
        with pytest.raises(NotFoldable):
            folded("Resize", [X, *how], 18, **attributes)


def test_whole_factors():
    """Before opset 11 ONNX does not say where outputs lie; by whole factors all libraries agree."""
    scales = f(1, 1, 2, 3)
    check("Resize", [X, scales], 10)
    check("Upsample", [X], 7, scales=scales.tolist())
    check("Upsample", [X, scales], 9)
    check("Upsample", [X.astype(np.int32), scales], 9)
    check("Upsample", [X[:, :, :0], scales], 9, expected=np.zeros((1, 2, 0, 9), F))
    expected = X.repeat(2, 2).repeat(3, 3)
    check(
        "Upsample", [X], 1, expected=expected, height_scale=2.0, width_scale=3.0
    )  # onnxruntime begins with 7
    for op, inputs, attributes in [
        ("Resize", [X, f(1, 1, 1.5, 1)], {}),
        ("Resize", [X, scales], {"mode": "linear"}),
        ("Upsample", [X, f(1, 1, 1.5, 1)], {}),
    ]:
        with pytest.raises(NotFoldable):
            folded(op, inputs, 10 if op == "Resize" else 9, **attributes)
    check_fails("Upsample", [X, f(1, 1, 2)], 9)
