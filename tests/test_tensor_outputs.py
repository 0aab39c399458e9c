"""`out` of operators of whole tensors: results are computed there, unless that would change what is read."""

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors
from anydml.runtime import memory, tensor_step

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 16, 32, 32)).astype(np.float32)
SAME = X.shape
ROWS = RNG.integers(0, 4, (1, 1, 1, 6)).astype(np.int32)
ALONG = RNG.integers(-40, 40, SAME).astype(np.int32)
ENDS = {"start_padding": [0, 0, 1, 2], "end_padding": [0, 0, 1, 1], "padding_value": 0}
CASES = {
    "gather": lambda **to: dml.gather(X, ROWS, axis=0, index_dimensions=1, **to),
    "gather_elements": lambda **to: dml.gather_elements(X, ALONG, axis=3, **to),
    "scatter": lambda **to: dml.scatter(X, ALONG, X, axis=3, **to),
    "join": lambda **to: dml.join([X] * 5, axis=1, **to),
    "split": lambda **to: dml.split(X, [8, 8], axis=1, **to),
    "padding": lambda **to: dml.padding(X, padding_mode="EDGE", **ENDS, **to),
    "reverse": lambda **to: dml.reverse_subsequences(X, np.full((4, 1, 32, 32), 7, np.uint32), axis=1, **to),
    "reduce": lambda **to: dml.reduce(X, "SUM", [2, 3], **to),
    "argmax": lambda **to: dml.argmax(X, [3], **to),
    "mean_variance": lambda **to: dml.mean_variance_normalization1(
        X, None, None, axes=[2, 3], normalize_variance=True, **to
    ),
    "batch": lambda **to: dml.batch_normalization(X, *(np.ones((1, 16, 1, 1), np.float32),) * 4, **to),
    "max_pooling1": lambda **to: dml.max_pooling1(X, window_size=2, **to),
    "average_pooling": lambda **to: dml.average_pooling(X, window_size=2, include_padding=False, **to),
    "resample": lambda **to: dml.upsample_2d(
        X, scale_size=[2, 2], interpolation_mode="NEAREST_NEIGHBOR", **to
    ),
    "top_k": lambda **to: dml.top_k(X, axis=3, k=4, **to),
    "running": lambda **to: dml.cumulative_summation(
        X, axis=2, axis_direction="INCREASING", has_exclusive_sum=False, **to
    ),
    "gemm": lambda **to: dml.gemm(X, X, trans_b="TRANSPOSE", **to),
    "fill": lambda **to: dml.fill_value_constant(value=np.float32(3), output_sizes=SAME, **to),
}


def listed(made):
    """Results as a flat list."""
    if isinstance(made, np.ndarray):
        return [made]
    return [x for part in made for x in listed(part)]


@pytest.fixture
def copies(monkeypatch):
    """Counts what is copied to where it is wanted."""
    found = []

    def copy(target, source):
        found.append(target)
        target[...] = source

    for module in (eager_tensors, tensor_step):
        monkeypatch.setattr(module.np, "copyto", copy)
    return found


@pytest.mark.parametrize("name", CASES)
def test_packed_memory_is_written_directly(name, copies):
    wanted = listed(CASES[name]())
    targets = [np.full_like(y, 77) for y in wanted]
    copies.clear()
    CASES[name](out=targets if len(targets) > 1 else targets[0])
    assert not copies
    for y, x in zip(targets, wanted, strict=True):
        assert y.tobytes() == x.tobytes()


def every_other(y):
    return np.full((*y.shape, 2), 77, y.dtype)[..., 1]


def backwards(y):
    return np.full(y.shape, 77, y.dtype)[::-1]


def between_words(y):
    return np.zeros(y.nbytes + 1, np.uint8)[1:].view(y.dtype).reshape(y.shape)


@pytest.mark.parametrize("memory", [every_other, backwards, between_words])
@pytest.mark.parametrize("name", CASES)
def test_any_other_memory_is_copied_to(name, memory):
    wanted = listed(CASES[name]())
    targets = [memory(y) for y in wanted]
    CASES[name](out=targets if len(targets) > 1 else targets[0])
    for y, x in zip(targets, wanted, strict=True):
        assert y.tobytes() == x.tobytes()
        if memory is every_other:
            assert (y.base[..., 0] == 77).all()


OVERLAPPING = {
    "gather_elements": lambda x, out: dml.gather_elements(x, ALONG, axis=3, out=out),
    "scatter": lambda x, out: dml.scatter(x, ALONG, x, axis=3, out=out),
    "reverse": lambda x, out: dml.reverse_subsequences(
        x, np.full((4, 1, 32, 32), 7, np.uint32), axis=1, out=out
    ),
    "mean_variance": lambda x, out: dml.mean_variance_normalization1(
        x, None, None, axes=[2, 3], normalize_variance=True, out=out
    ),
    "running": lambda x, out: dml.cumulative_summation(
        x, axis=2, axis_direction="DECREASING", has_exclusive_sum=True, out=out
    ),
    "gemm": lambda x, out: dml.gemm(x, x, out=out),
    "pooling": lambda x, out: dml.max_pooling(x, window_size=3, start_padding=1, end_padding=1, out=out),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_what_is_read_is_not_written_to(name):
    wanted = np.empty_like(X)
    OVERLAPPING[name](X.copy(), wanted)
    for first in (0, 1, 1000, X.size):
        memory = np.zeros(2 * X.size, np.float32)
        x, y = memory[: X.size].reshape(SAME), memory[first : first + X.size].reshape(SAME)
        x[...] = X
        OVERLAPPING[name](x, y)
        assert y.tobytes() == wanted.tobytes()


def test_one_of_two_outputs_in_the_input():
    x = X.copy()
    other = np.empty((4, 15, 32, 32), np.float32)
    dml.split(x, [1, 15], axis=1, out=(x.reshape(-1)[: 4 * 1024].reshape(4, 1, 32, 32), other))
    assert np.array_equal(other, X[:, 1:])
    assert np.array_equal(x.reshape(-1)[: 4 * 1024], X[:, 0].ravel())


def test_calls_like_earlier_ones_look_at_out_again():
    x, y = X[0, 0], np.empty((32, 32), np.float32)
    for _ in range(3):
        assert dml.gemm(x, x, out=y) is y
        for wrong in (y[:, 0], y.astype(np.float64), 3):
            with pytest.raises(dml.InvalidInput, match="expected an array of float32 of shape"):
                dml.gemm(x, x, out=wrong)
        with pytest.raises(dml.InvalidInput, match="read-only"):
            dml.gemm(x, x, out=np.broadcast_to(np.float32(0), y.shape))
    for kind in (np.uint32, np.int64, np.uint32):
        places = np.full((32, 1), 99, kind)
        assert dml.argmax(x, [1], out=places) is places
        assert np.array_equal(places[:, 0], x.argmax(1))
        assert dml.argmax(x, [1], out=None).dtype == np.uint32


def test_outputs_that_the_memory_cannot_hold(monkeypatch):
    """Their pages are had when they are written to: the system would end the process."""
    monkeypatch.setattr(memory, "limit", lambda: 1 << 30)
    message = "output: expected at most 1.0 GiB, all the memory there is, but got 8.0 GiB for float32"
    with pytest.raises(dml.InvalidOperator, match=f"FILL_VALUE_CONSTANT: {message}"):
        dml.fill_value_constant(value=np.float32(3), output_sizes=[1 << 31])
    with pytest.raises(dml.InvalidOperator, match=f"TILE: {message}"):
        dml.tile(np.zeros((1, 1), np.float32), [1 << 15, 1 << 16])


def test_other_classes_of_arrays_are_copied_to():
    wanted = dml.reduce(X[0, 0], "SUM", [1])
    matrix = np.zeros((32, 1), np.float32).view(np.matrix)
    assert dml.reduce(X[0, 0], "SUM", [1], out=matrix) is matrix
    assert np.array_equal(matrix, wanted)


def test_bound_memory_is_written_directly(copies):
    device = dml.Device()
    desc = {
        "Type": "CUMULATIVE_SUMMATION",
        "InputTensor": {"DataType": "FLOAT32", "Sizes": SAME},
        "OutputTensor": {"DataType": "FLOAT32", "Sizes": SAME},
        "Axis": 2,
        "AxisDirection": "INCREASING",
        "HasExclusiveSum": False,
    }
    compiled = device.compile_operator(device.create_operator(desc))
    y = np.zeros_like(X)
    compiled.dispatch({"InputTensor": X}, {"OutputTensor": y})
    assert not copies
    assert y.tobytes() == CASES["running"]().tobytes()
