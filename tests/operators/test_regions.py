"""Regions of interest against loops over bins and samples, onnxruntime, and numerical derivatives."""

from math import ceil, floor

import numpy as np
import pytest

import anydml as dml
from anydml.ops import region_samples

from ..onnx.ops.checking import computed
from .tensors import check_floats, derivative, layouts

# ---- pooling -----------------------------------------------------------------------------------------------


def plain_pooling(x, rois, size, scale):
    made = np.zeros((len(rois), x.shape[1], *size), x.dtype)
    for r, (batch, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (round(float(np.float32(v) * np.float32(scale))) for v in corners)
        image = x[min(max(int(batch), 0), len(x) - 1)]
        width, height = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
        for i, j in np.ndindex(*size):
            rows = range(y1 + i * height // size[0], y1 + ((i + 1) * height + size[0] - 1) // size[0])
            columns = range(x1 + j * width // size[1], x1 + ((j + 1) * width + size[1] - 1) // size[1])
            rows = [y for y in rows if 0 <= y < x.shape[2]]
            columns = [v for v in columns if 0 <= v < x.shape[3]]
            if rows and columns:
                made[r, :, i, j] = image[:, rows][:, :, columns].max(axis=(1, 2))
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_roi_pooling(dtype):
    rng = np.random.default_rng(len(dtype))
    for trial in range(12):
        x = rng.standard_normal((rng.integers(1, 4), 3, *rng.integers(1, 12, 2))).astype(dtype)
        size, scale = tuple(rng.integers(1, 6, 2).tolist()), [1.0, 0.5, 0.3, 7.0][trial % 4]
        rois = rng.uniform(-3, 13, (6, 5)) / scale
        rois[:, 0] = rng.integers(-1, 5, 6)
        if trial % 2:  # ends behind their starts, as they usually are; halves
            rois[:, 3:] = rois[:, 1:3] + rng.integers(0, 9, (6, 2)) / scale
        rois = np.round(rois * 4).astype(dtype) / np.array(4, dtype)
        wanted = plain_pooling(x, rois, size, scale)
        for other in (x, *layouts(x)):
            for where in (rois[None, None], *layouts(rois[None, None])):
                y = dml.roi_pooling(other, where, size, spatial_scale=scale)
                np.testing.assert_array_equal(y, wanted, strict=True)


def test_roi_pooling_as_in_onnxruntime():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 2, 16, 19)).astype(np.float32)
    rois = rng.uniform(0, 30, (20, 5)).astype(np.float32)
    rois[:, 0], rois[:, 3:] = rng.integers(0, 3, 20), rois[:, 1:3] + rng.uniform(0, 12, (20, 2))
    for size in ((1, 1), (2, 4), (8, 2)):
        (theirs,) = computed("MaxRoiPool", [x, rois], 21, pooled_shape=size, spatial_scale=0.6)
        np.testing.assert_array_equal(dml.roi_pooling(x, rois[None, None], size, spatial_scale=0.6), theirs)


# ---- samples -----------------------------------------------------------------------------------------------


def counts(rois, size, o):
    """How many samples an output has along y and x, of each region."""
    found = []
    for x1, y1, x2, y2 in rois.astype(np.float32):
        both = []
        for start, end, n, scale in (
            (y1, y2, size[0], "spatial_scale_y"),
            (x1, x2, size[1], "spatial_scale_x"),
        ):
            scale = np.float32(o[scale])
            wanted = ceil((end * scale - start * scale) / np.float32(n))
            both.append(min(max(wanted, o["minimum_samples_per_output"], 1), o["maximum_samples_per_output"]))
        found.append(both)
    return found


def places(start, end, count, outputs, o):
    """Where the samples are along an axis."""
    total = count * outputs - o["align_regions_to_corners"]
    for k in range(count * outputs):
        along = (k - o["output_pixel_offset"]) / total if total else 0.5
        yield along * (end - start) + start - o["input_pixel_offset"]


def taps(place, size, mode):
    """The elements that a sample is made of, with their weights; None if it is out of bounds."""
    if not -1 < place < size:
        return None
    place = min(max(place, 0), size - 1)
    if mode == "NEAREST_NEIGHBOR":
        return [(ceil(place - 0.5), 1.0)]
    low, weight = floor(place), place - floor(place)
    return [(low, 1 - weight), (low + 1, weight)] if weight else [(low, 1.0)]


def plain_align(x, rois, batches, size, o, fixed=None):
    """Sample by sample; `fixed`: numbers of samples that are not to be found out."""
    made = np.zeros((len(rois), x.shape[1], *size))
    for r, (x1, y1, x2, y2) in enumerate(rois.astype(np.float64)):
        image = x[min(int(batches[r]), len(x) - 1)]
        ny, nx = (fixed or counts(rois, size, o))[r]
        ys = list(places(y1 * o["spatial_scale_y"], y2 * o["spatial_scale_y"], ny, size[0], o))
        xs = list(places(x1 * o["spatial_scale_x"], x2 * o["spatial_scale_x"], nx, size[1], o))
        for i, j in np.ndindex(*size):
            found = []
            for y in ys[i * ny : (i + 1) * ny]:
                for v in xs[j * nx : (j + 1) * nx]:
                    rows = taps(y, x.shape[2], o["interpolation_mode"])
                    columns = taps(v, x.shape[3], o["interpolation_mode"])
                    if rows is None or columns is None:
                        found.append(np.full(x.shape[1], o["out_of_bounds_input_value"]))
                    else:
                        found.append(sum(image[:, a, b] * p * q for a, p in rows for b, q in columns))
            made[r, :, i, j] = np.mean(found, 0) if o["reduction_function"] == "AVERAGE" else np.max(found, 0)
    return made


def drawn(rng, dtype, trial, newer):
    """Images, regions, their batches, the output's size, and attributes."""
    x = rng.standard_normal((rng.integers(1, 4), 2, *rng.integers(1, 8, 2))).astype(dtype)
    rois = rng.uniform(-4, 12, (3, 4))
    if trial % 3:
        rois[:, 2:] = rois[:, :2] + rng.uniform(0, 12, (3, 2))
    least = int(rng.integers(0, 3))
    o = {
        "reduction_function": ("AVERAGE", "MAX")[trial % 2],
        "interpolation_mode": ("LINEAR", "NEAREST_NEIGHBOR")[trial // 2 % 2],
        "spatial_scale_x": float(rng.choice([0.5, 1, 1.25])),
        "spatial_scale_y": float(rng.choice([0.75, 1, 0.5])),
        "input_pixel_offset": float(rng.choice([0, 0.5, -0.25])) if newer else 0.5,
        "output_pixel_offset": float(rng.choice([0, -0.5, 0.25])) if newer else -0.5,
        "out_of_bounds_input_value": float(rng.choice([0, -1.5, 3])),
        "minimum_samples_per_output": least,
        "maximum_samples_per_output": int(rng.integers(max(least, 1), 5)),
        "align_regions_to_corners": bool(newer and trial // 4 % 2),
    }
    size = tuple(rng.integers(1, 4, 2).tolist())
    return x, rois.astype(dtype), rng.integers(0, 5, 3).astype(np.uint32), size, o


NEWER = ("input_pixel_offset", "output_pixel_offset", "align_regions_to_corners")
FORMS = [(3, 4), (1, 3, 4), (1, 1, 3, 4)], [(3,), (1, 3), (1, 1, 3), (1, 1, 1, 3)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("newer", [False, True])
def test_roi_align(dtype, newer):
    rng = np.random.default_rng([len(dtype), newer])
    for trial in range(24):
        x, rois, batches, size, o = drawn(rng, dtype, trial, newer)
        if trial % 4 == 2:  # nearest neighbors of halves
            rois, o["spatial_scale_x"] = np.round(rois * 2) / np.array(2, dtype), 1.0
            size, o["maximum_samples_per_output"] = (2, 1), max(o["minimum_samples_per_output"], 1)
        wanted = plain_align(x.astype(np.float64), rois, batches, size, o)
        given = o if newer else {n: v for n, v in o.items() if n not in NEWER}
        function = dml.roi_align1 if newer else dml.roi_align
        rois, batches = rois.reshape(FORMS[0][trial % 3]), batches.reshape(FORMS[1][trial % 4])
        for other, where in zip((x, *layouts(x)), (rois, *layouts(rois)), strict=True):
            for index in (batches, batches.astype(np.uint64), *layouts(batches)):
                check_floats(function(other, where, index, size, **given), dtype, wanted, 1e-5)


@pytest.mark.parametrize("sampling_ratio", [0, 1, 3])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_roi_align_as_in_onnxruntime(sampling_ratio, mode):
    rng = np.random.default_rng(sampling_ratio)
    x = rng.standard_normal((3, 2, 12, 15)).astype(np.float32)
    rois = rng.uniform(-2, 20, (12, 4)).astype(np.float32)
    rois[:, 2:] = rois[:, :2] + rng.uniform(2, 20, (12, 2))
    batches = rng.integers(0, 3, 12)
    names = {"output_height": 3, "output_width": 4, "sampling_ratio": sampling_ratio, "spatial_scale": 0.5}
    (theirs,) = computed("RoiAlign", [x, rois, batches], 21, coordinate_transformation_mode=mode, **names)
    offset = 0.5 if mode == "half_pixel" else 0.0
    most = sampling_ratio or 1000
    settings = ("AVERAGE", "LINEAR", 0.5, 0.5, offset, -0.5, 0.0, max(sampling_ratio, 1), most, False)
    y = dml.roi_align1(x, rois, batches.astype(np.uint32), (3, 4), *settings)
    check_floats(y, "float32", theirs.astype(np.float64), 2e-5)


def test_a_region_of_one_sample_and_none():
    x = np.float32([[[[1, 2], [3, 4]]]])
    index = np.uint32([0])
    settings = ("LINEAR", 1, 1, 0, 0, -7.0, 1, 1, True)
    for reduction in ("AVERAGE", "MAX"):
        given = dml.roi_align1(x, np.float32([[0, 0, 1, 1]]), index, (1, 1), reduction, *settings)
        assert given.tolist() == [[[[2.5]]]]
        away = dml.roi_align1(x, np.float32([[50, 50, 60, 60]]), index, (2, 1), reduction, *settings)
        assert away.tolist() == [[[[-7], [-7]]]]


# ---- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients(dtype):
    """Out of bounds is 0 there, and for maxima less than all numbers: in no gradient either way."""
    rng = np.random.default_rng(len(dtype))
    for trial in range(16):
        x, rois, batches, size, o = drawn(rng, dtype, trial, newer=True)
        average = o["reduction_function"] == "AVERAGE"
        o["out_of_bounds_input_value"] = 0.0 if average else -1000.0
        fixed, exact = counts(rois, size, o), x.astype(np.float64)
        g = rng.standard_normal((3, 2, *size)).astype(dtype)

        def of_images(v, rois=rois, batches=batches, size=size, o=o, fixed=fixed):
            return plain_align(v, rois, batches, size, o, fixed)

        def of_regions(v, x=exact, batches=batches, size=size, o=o, fixed=fixed):
            return plain_align(x, v, batches, size, o, fixed)

        wanted = derivative(of_images, exact, g.astype(np.float64), 1e-7)
        by_roi = derivative(of_regions, rois.astype(np.float64), g.astype(np.float64), 1e-7)
        given = {n: v for n, v in o.items() if n != "out_of_bounds_input_value"}
        where, index = rois.reshape(FORMS[0][trial % 3]), batches.reshape(FORMS[1][trial % 4])
        for v, other, at in zip((x, *layouts(x)), (g, *layouts(g)), (where, *layouts(where)), strict=True):
            y, of_rois = dml.roi_align_grad(v, other, at, index, **given)
            check_floats(y, dtype, wanted, 2e-5)
            check_floats(of_rois, dtype, by_roi.reshape(where.shape), 1e-4)
        if average:
            y, none = dml.roi_align_grad(None, g, rois, batches, x.shape, **given)
            check_floats(y, dtype, wanted, 2e-5)
            assert none is None


def test_the_gradient_of_equal_maxima_goes_to_the_first_sample():
    x = np.full((1, 1, 3, 3), 5, np.float32)
    settings = {"reduction_function": "MAX", "interpolation_mode": "NEAREST_NEIGHBOR", "spatial_scale_x": 1}
    settings |= {"spatial_scale_y": 1, "input_pixel_offset": 0.5, "output_pixel_offset": -0.5}
    settings |= {"minimum_samples_per_output": 3, "maximum_samples_per_output": 3}
    g, roi = np.float32([[[[2]]]]), np.float32([[0, 0, 3, 3]])
    y, of_roi = dml.roi_align_grad(x, g, roi, np.uint32([0]), align_regions_to_corners=False, **settings)
    assert y.tolist() == [[[[2, 0, 0], [0, 0, 0], [0, 0, 0]]]]
    assert of_roi.tolist() == [[0, 0, 0, 0]]


@pytest.mark.drawn
@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("least", [1, 7, 60])
def test_the_maximum_of_many_samples(least, mode):
    """Between two elements only the outermost samples can be it."""
    rng = np.random.default_rng([least, len(mode)])
    for _ in range(6):
        x = rng.standard_normal((1, 2, 5, 6)).astype(np.float32)
        x[0, 0, 2, 3] = rng.choice([np.inf, -np.inf, 1, 1])
        rois = rng.uniform(-2, 7, (3, 4)).astype(np.float32)
        o = {
            "minimum_samples_per_output": least,
            "maximum_samples_per_output": 100,
            "spatial_scale_x": 1.0,
            "spatial_scale_y": 1.0,
            "out_of_bounds_input_value": -9.0,
            "reduction_function": "MAX",
            "interpolation_mode": mode,
        }
        offsets = {"input_pixel_offset": 0.5, "output_pixel_offset": -0.5, "align_regions_to_corners": False}
        batches = np.zeros(3, np.uint32)
        got = dml.roi_align(x, rois, batches, output_size=[2, 3], **o)
        wanted = plain_align(x, rois, batches, (2, 3), o | offsets)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("samples", [1, 2, 3, 5, 11])
def test_what_is_beyond_counts_for_samples_that_are(samples, mode):
    """And for no others, however many lie between two elements."""
    x, asked = np.zeros((1, 1, 20, 20), np.float32), {"output_size": (2, 2), "interpolation_mode": mode}
    asked |= {"minimum_samples_per_output": samples, "maximum_samples_per_output": samples}
    asked |= {"spatial_scale_x": 1, "spatial_scale_y": 1, "reduction_function": "MAX"}
    rois, first = np.float32([[5, 5, 6.3, 6.3], [2, 3, 12, 9], [15, 15, 30, 30]]), np.zeros(3, np.uint32)
    found = dml.roi_align(x, rois, first, out_of_bounds_input_value=100, **asked)
    assert not found[:2].any()
    assert found[2, 0].tolist() == [[100 if samples > 1 else 0, 100], [100, 100]]


def test_as_many_samples_as_can_be_asked_for():
    """The maximum of a slope is where it ends."""
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5).repeat(4, 2)
    got = dml.roi_align(
        x, np.float32([[0.5, 0.5, 4.5, 2.5]]), np.uint32([0]), output_size=[1, 2], reduction_function="MAX",
        minimum_samples_per_output=2**32 - 1, maximum_samples_per_output=2**32 - 1, interpolation_mode="LINEAR",
        spatial_scale_x=1.0, spatial_scale_y=1.0, out_of_bounds_input_value=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(got, [[[[2, 4]]]], atol=1e-4)


@pytest.mark.parametrize("mode", ["LINEAR", "NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("function", ["AVERAGE", "MAX"])
@pytest.mark.parametrize("corners", [False, True])
def test_few_samples_of_many_regions_at_once(monkeypatch, mode, function, corners):
    """As by each region alone: outside, mirrored, of nothing, of what is no number, beyond any image."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((2, 5, 9, 14)).astype(np.float32)
    odd = [
        [0, 0, 0, 0],
        [3, 2, 1, 0],
        [-9, -9, 30, 30],
        [40, 40, 50, 50],
        [np.nan, 0, 3, 3],
        [0, 0, np.inf, 3],
    ]
    odd += [[1, 1, 1.5, 1.5], [-np.inf, 0, np.inf, 1], [1e30, 0, 2e30, 5], [13, 8, 14, 9]]
    rois = np.vstack([np.float32(odd), rng.uniform(-4, 18, (30, 4)).astype(np.float32)])
    batches = rng.integers(0, 4, len(rois)).astype(np.uint32)
    for size in ((1, 1), (2, 3), (7, 7)):
        for least, most in ((0, 1), (2, 2), (0, 6), (1, 2**32 - 1)):
            arguments = (size, function, mode, 0.75, 1.25, 0.5, -0.5, -2.5, least, most, corners)
            made = dml.roi_align1(x, rois, batches, *arguments)
            with monkeypatch.context() as alone:
                alone.setattr(region_samples, "_MOST_READ", 0)
                wanted = dml.roi_align1(x, rois, batches, *arguments)
            np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
            with monkeypatch.context() as parts:
                parts.setattr(region_samples, "_READ_AT_ONCE", 2000)
                np.testing.assert_allclose(
                    dml.roi_align1(x, rois, batches, *arguments), wanted, rtol=1e-5, atol=1e-5
                )
