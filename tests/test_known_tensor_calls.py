"""Calls of operators of whole tensors that machine code knows from earlier ones: the same results and errors."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors
from anydml.codegen.python_objects import have_known_layout
from anydml.ops.catalog import CATALOG

pytestmark = pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
SIZES = (2, 16, 32, 32)
ENDS = {"start_padding": [0, 0, 1, 2], "end_padding": [0, 0, 1, 1], "padding_value": 0}
SUMS = {"axis_direction": "INCREASING", "has_exclusive_sum": False}
ROW = {"axes": [3], "normalize_variance": True}
AROUND = {"start_padding": [1, 1], "end_padding": [1, 1]}
TWICE = {
    "interpolation_mode": "LINEAR",
    "scales": [1, 1, 2, 2],
    "input_pixel_offsets": [0.5] * 4,
    "output_pixel_offsets": [-0.5] * 4,
}
CASES = {
    "gather": lambda f, d, **to: f(d(), d.places(1, 1, 1, 600, below=2), axis=0, index_dimensions=1, **to),
    "gather_elements": lambda f, d, **to: f(d(), d.places(*SIZES, below=32), axis=3, **to),
    "scatter": lambda f, d, **to: f(d(), d.places(*SIZES, below=32), d(), axis=3, **to),
    "one_hot": lambda f, d, **to: f(d.places(8, 1, 20, below=9), d(1, 1, 2), 6, 1, **to),
    "join": lambda f, d, **to: f([d(), d(), d()], axis=1, **to),
    "split": lambda f, d, **to: f(d(8, 16, 32, 32), [8, 8], axis=1, **to),
    "padding": lambda f, d, **to: f(d(), padding_mode="EDGE", **ENDS, **to),
    "tile": lambda f, d, **to: f(d(), repeats=[1, 2, 1, 3], **to),
    "depth_to_space": lambda f, d, **to: f(d(), block_size=2, **to),
    "slice": lambda f, d, **to: f(d(), offsets=[0, 1, 2, 3], sizes=[2, 5, 10, 9], strides=[1, 3, 2, 3], **to),
    "reduce": lambda f, d, **to: f(d(), "SUM", [2, 3], **to),
    "argmax": lambda f, d, **to: f(d(), [3], **to),
    "mean_variance_normalization1": lambda f, d, **to: f(d(), d(1, 1, 1, 32), d(1, 1, 1, 32), **ROW, **to),
    "batch_normalization": lambda f, d, **to: f(d(), *(abs(d(1, 16, 1, 1)) for _ in range(4)), **to),
    "max_pooling": lambda f, d, **to: f(d(), window_size=2, **to),
    "max_pooling1": lambda f, d, **to: f(d(4, 16, 32, 32), window_size=2, **to),
    "upsample_2d": lambda f, d, **to: f(d(), scale_size=[2, 1], interpolation_mode="NEAREST_NEIGHBOR", **to),
    "top_k": lambda f, d, **to: f(d(), axis=3, k=4, **to),
    "top_k ": lambda f, d, **to: f(d(), axis=1, k=4, **to),
    "gemm": lambda f, d, **to: f(d(), d(2, 16, 32, 24), d(1, 1, 1, 24), fused_activation="RELU", **to),
    "convolution": lambda f, d, **to: f(d(1, 8, 16, 16), d(8, 8, 3, 3), d(1, 8, 1, 1), **AROUND, **to),
    "resample1": lambda f, d, **to: f(d(1, 4, 16, 16), **TWICE, **to),
    "matrix_multiply_integer": lambda f, d, **to: f(
        d.bytes(40, 50), d.bytes(40, 1), d.bytes(50, 60), d.bytes(1, 60), **to
    ),
    "quantized_linear_convolution": lambda f, d, **to: f(
        *(d.bytes(2, 6, 16, 16), d.scale(1), d.bytes(1, 1, 1, 1)),
        *(d.bytes(4, 3, 3, 3), d.scale(4), None, None, 300 * d.scale(1), d.bytes(1, 1, 1, 1)),
        group_count=2,
        **AROUND,
        **to,
    ),
    "multihead_attention": lambda f, d, **to: f(
        *(d(2, 20, 48), d(2, 30, 48), d(2, 30, 48), None, None, None, d(144)),
        *(d.places(2, 2, below=20), d(2, 4, 20, 35), d(2, 4, 5, 12), d(2, 4, 5, 12)),
        head_count=4,
        scale=0.3,
        mask_type="KEY_SEQUENCE_END_START",
        **to,
    ),
    "cumulative_summation": lambda f, d, **to: f(d(), axis=2, **SUMS, **to),
}


COPIED = ("reduce", "top_k", "top_k ", "mean_variance_normalization1", "cumulative_summation")
"""What is read packed, and so copied first by a launch of the call."""


HALVES = ("reduce", "argmax", "mean_variance_normalization1", "gather", "join", "convolution")
"""What is small enough in float16 and float32 together."""


class Draw:
    """Arrays of a layout, with other contents each time."""

    def __init__(self, layout):
        self.rng, self.layout = np.random.default_rng(0), layout

    def __call__(self, *sizes):
        return LAYOUTS[self.layout](self.rng.standard_normal(sizes or SIZES).astype(np.float32))

    def scale(self, channels):
        return abs(self.rng.standard_normal((1, channels, 1, 1))).astype(np.float32)

    def bytes(self, *sizes):
        return LAYOUTS[self.layout](self.rng.integers(0, 256, sizes).astype(np.uint8))

    def places(self, *sizes, below):
        return self.rng.integers(-below, below, sizes).astype(np.int32)


LAYOUTS = {
    "packed": lambda x: x,
    "half": lambda x: x.astype(np.float16) if x.dtype == np.float32 else x,
    "turned": lambda x: np.ascontiguousarray(x.T).T,
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "unaligned": lambda x: np.frombuffer(b"-" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
}


@pytest.fixture
def ordinary(monkeypatch):
    """The calls that go the ordinary way."""
    calls = []
    call = eager_tensors._WholeTensors.__call__

    def noted(self, *given):
        calls.append(self._operator.function)
        return call(self, *given)

    monkeypatch.setattr(eager_tensors._WholeTensors, "__call__", noted)
    return calls


def fresh(name):
    """A function that knows no calls so far."""
    eager_tensors.forget()
    return eager_tensors.function(next(o for o in CATALOG if o.function == name.strip()), "m")


def bits(made):
    return [(y.dtype, y.shape, y.tobytes()) for y in (made if isinstance(made, tuple) else [made])]


@pytest.mark.drawn
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_known_calls_compute_the_same(name, layout, ordinary):
    drawn, again = Draw(layout), Draw(layout)
    f = fresh(name)
    found = [bits(CASES[name](f, drawn)) for _ in range(5)]
    known = ordinary.count(name.strip()) == 2
    wanted = [bits(CASES[name](fresh(name), again)) for _ in range(5)]
    assert found == wanted
    assert len({y[0][2] for y in found}) == 5  # of other contents
    if (
        layout == "packed"
        or (name in HALVES and layout == "half")
        or (name in COPIED and layout in ("turned", "every other"))
    ):
        assert known


@pytest.mark.parametrize("name", CASES)
def test_what_is_told_apart(name, ordinary):
    """Calls of several layouts by turns, with and without `out`, of one function."""
    f, wanted = fresh(name), []
    turns = [*LAYOUTS] * 3
    draws = {layout: Draw(layout) for layout in LAYOUTS}
    found = []
    for k, layout in enumerate(turns):
        made = CASES[name](f, draws[layout])
        found.append(bits(made))
        if k % 2:
            targets = [np.empty(y.shape, y.dtype) for y in (made if isinstance(made, tuple) else [made])]
            out = targets if len(targets) > 1 else targets[0]
            assert CASES[name](f, draws[layout], out=out) is out
            found.append(bits(tuple(targets)))
    draws = {layout: Draw(layout) for layout in LAYOUTS}
    for k, layout in enumerate(turns):
        for _ in range(1 + k % 2):
            wanted.append(bits(CASES[name](fresh(name), draws[layout])))
    assert found == wanted


def test_one_array_twice_is_not_two_arrays(ordinary):
    """What is known of it holds for two, too."""
    f, d = fresh("join"), Draw("packed")
    x, y = d(), d()
    for _ in range(4):
        assert np.array_equal(f([x, x], axis=1), np.concatenate([x, x], 1))
    assert ordinary.count("join") == 2
    f, square, whole = fresh("gemm"), d(32, 32), d(64, 32)
    for _ in range(4):
        assert np.allclose(f(square, square.T), square @ square.T, atol=1e-4)
        assert np.allclose(f(whole[:32], whole[16:48]), whole[:32] @ whole[16:48], atol=1e-4)
    assert ordinary.count("gemm") < 8
    f = fresh("join")
    for pair in ([x, y], [y, x], [x, x]):
        assert np.array_equal(f(pair, axis=1), np.concatenate(pair, 1))


def test_lists_of_other_lengths_and_numbers(ordinary):
    f, x = fresh("reduce"), Draw("packed")()
    for _ in range(3):
        for axes in ([3], [2, 3], [1, 2, 3], [0, 1, 2, 3], (2, 3), [-1], [3, 2]):
            made = f(x, "SUM", axes)
            assert np.allclose(
                made, x.sum(tuple(axes), dtype=np.float64, keepdims=True), rtol=1e-6, atol=1e-4
            )
    for axes in ([True], [3.0], ["3"], [4], [3, 3]):
        with pytest.raises(dml.AnyDMLError):
            f(x, "SUM", axes)


def test_integers_and_tuples_are_compared_by_value(ordinary):
    """Those that are computed anew for each call are other objects each time."""
    f, x = fresh("slice"), np.arange(3000, dtype=np.float32).reshape(1, 3000)

    def part(offset, count, kind):
        made = f(x, kind((0, int(str(offset)))), kind((1, int(str(count)))), kind([1, 1]))
        return made.tobytes() == x[:, offset : offset + count].tobytes()

    for _ in range(3):
        for kind in (list, tuple):
            assert all(part(offset, 1000, kind) for offset in (3, 300, 301))
    ordinary.clear()
    assert part(300, 1000, list)
    assert part(301, 1000, tuple)
    assert not ordinary
    for offset in (-300, 2**30, 2**30 + 300, 2**62 + 300, 2001, 300.0):
        with pytest.raises(dml.AnyDMLError):
            f(x, (0, offset), (1, 1000), (1, 1))
    assert np.array_equal(f(x, (0, np.int64(300)), (1, 1000), (1, 1)), x[:, 300:1300])


def test_tuples_of_arrays_and_of_none(ordinary):
    f, x = fresh("join"), Draw("packed")()
    for _ in range(3):
        for several in (1, 3, 2):
            assert np.array_equal(f((x,) * several, 1), np.concatenate((x,) * several, 1))
        with pytest.raises(dml.AnyDMLError):
            f((), 1)
    ordinary.clear()
    assert f((x, x), 1).shape == (2, 32, 32, 32)
    assert not ordinary


FILLED = {"value": 2, "diagonal_fill_begin": 1, "diagonal_fill_end": 3}
CONSTANTS = {
    "fill_value_constant": lambda f, t, n: f([3, n], 2, output_data_type=t),
    "fill_value_sequence": lambda f, t, n: f([2, n], 3, 2, output_data_type=t),
    "diagonal_matrix": lambda f, t, n: f([2, 3, n], 1, 2.5, output_data_type=t),
    "diagonal_matrix1": lambda f, t, n: f(output_sizes=[2, 3, n], **FILLED, output_data_type=t),
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "uint16"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_made_of_nothing(name, dtype, ordinary):
    """Each call gives another array, whatever was done with those before it."""
    f, call = fresh(name), CONSTANTS[name]
    if name == "fill_value_sequence" and dtype == "float64":
        with pytest.raises(dml.InvalidOperator):
            call(f, dtype, 5)
        return
    for n in (5, 300, 20_000):
        expected = call(f, dtype, n).copy()
        for _ in range(3):
            made = call(f, dtype, n)
            assert bits(made) == bits(expected)
            made[...] = 7
    ordinary.clear()
    call(f, dtype, 5)[...] = 9
    assert bits(call(f, dtype, 5)) == bits(call(fresh(name), dtype, 5))
    assert ordinary == [name] * (
        3 if dtype == "float16" and name in ("fill_value_sequence", "diagonal_matrix") else 1
    )


def test_lists_of_classes_of_their_own_may_change():
    class Axes(list):
        """One that is no list of Python's."""

    f, x, axes = fresh("reduce"), Draw("packed")(), Axes([3])
    for axis in (3, 3, 3, 2, 1, 1):
        axes[0] = axis
        assert np.array_equal(f(x, "MAX", axes), x.max(axis, keepdims=True))
    shared = ([0, 1],)
    for k in range(4):
        shared[0][0] = k % 2
        with pytest.raises(dml.AnyDMLError):
            f(x, "MAX", shared)


def test_other_types_and_sizes_are_other_calls():
    f, d = fresh("argmax"), Draw("packed")
    for _ in range(3):
        for x in (d(), d(4, 16, 32, 32), d().astype(np.float16), (d() * 50).astype(np.int32), d()[0]):
            axis = x.ndim - 1
            assert np.array_equal(f(x, [axis]), x.argmax(axis, keepdims=True).astype(np.uint32))


def test_out_that_overlaps_or_does_not_fit():
    f, d = fresh("reduce"), Draw("packed")
    x = d()
    wanted = bits(f(x, "MAX", [3]))
    for _ in range(3):
        y = np.empty((2, 16, 32, 1), np.float32)
        assert f(x, "MAX", [3], out=y) is y
        assert bits(y) == wanted
    for out in (np.empty((2, 16, 32), np.float32), np.empty((2, 16, 32, 1)), np.broadcast_to(y, y.shape)):
        with pytest.raises(dml.AnyDMLError):
            f(x, "MAX", [3], out=out)
    inside = x.reshape(-1)[: y.size].reshape(y.shape)  # of the input's memory: as if that had been copied
    assert bits(f(x, "MAX", [3], out=inside)) == wanted


def test_nothing_is_left_behind(ordinary):
    f, d = fresh("top_k"), Draw("packed")
    g = fresh("join")
    x, parts = d(), [d(), d()]
    for _ in range(3):
        f(x, axis=3, k=4), g(parts, axis=1)
    gc.collect()
    before = sys.getrefcount(x), [sys.getrefcount(p) for p in parts], len(gc.get_objects())
    ordinary.clear()
    for _ in range(500):
        values, places = f(x, axis=3, k=4)
        joined = g(parts, axis=1)
    assert sys.getrefcount(values) == sys.getrefcount(places) == sys.getrefcount(joined) == 2
    del values, places, joined
    gc.collect()
    assert (sys.getrefcount(x), [sys.getrefcount(p) for p in parts]) == before[:2]
    assert len(gc.get_objects()) <= before[2] + 5
    assert ordinary.count("top_k") == 0


@pytest.mark.parametrize("name", ["convolution", "reduce"])
def test_arrays_of_watched_calls_go(name, ordinary):
    """Those by which a call became known are nobody's any more."""
    f, d, seen = fresh(name), Draw("packed"), []

    def noted(*given, **to):
        seen.extend(weakref.ref(x) for x in given if isinstance(x, np.ndarray))
        made = f(*given, **to)
        seen.append(weakref.ref(made))

    for _ in range(4):
        CASES[name](noted, d)
    gc.collect()
    assert ordinary.count(name) == 2
    assert not any(one() is not None for one in seen)


def test_a_list_that_changes_while_it_is_read():
    """Another thread takes the arrays away: those of the call stay until it is done."""
    f, d = fresh("join"), Draw("packed")
    sources = [[d(16, 16, 32, 32), d(16, 16, 32, 32)] for _ in range(2)]
    wanted = [np.concatenate([sources[0][0], last], 1) for _, last in sources]
    listed, stop = list(sources[0]), threading.Event()
    for _ in range(3):
        f(listed, axis=1)

    def change():
        k = 0
        while not stop.is_set():
            k += 1
            listed[1] = sources[k % 2][1].copy()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            made = f(listed, axis=1)
            assert any(np.array_equal(made, w) for w in wanted)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", ["convolution", "matrix_multiply_integer"])
def test_what_lies_between_launches_is_of_one_call_at_a_time(name):
    """Threads call one function, of which each has arrays of its own."""
    f, drawn = fresh(name), [Draw("packed") for _ in range(4)]
    for k, d in enumerate(drawn):
        d.rng = np.random.default_rng(k)
    wanted = []
    for d in drawn:
        given = []
        CASES[name](lambda *args, given=given, **to: given.append((args, to)), d)
        (args, to), *_ = given
        wanted.append((args, to, bits(f(*args, **to))))
    for args, to, _ in wanted:
        f(*args, **to)
    wrong, start = [], threading.Barrier(len(wanted))

    def call(args, to, result):
        start.wait()
        wrong.extend(1 for _ in range(400) if bits(f(*args, **to)) != result)

    threads = [threading.Thread(target=call, args=one) for one in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("activation", ["RELU", "SIGMOID"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, **how: dml.mean_variance_normalization1(x, axes=[3], normalize_variance=True, **how),
        lambda x, **how: dml.mean_variance_normalization(
            x, cross_channel=False, normalize_variance=True, **how
        ),
        lambda x, **how: dml.batch_normalization(x, *(abs(x[:1, :, :1, :1]) + 1 for _ in range(4)), **how),
        lambda x, **how: dml.gemm(x, x, trans_b="TRANSPOSE", **how),
        lambda x, **how: dml.convolution(x, x[:4, :, :3, :3].copy(), **how),
    ],
)
def test_fused_activations_in_every_call(call, activation):
    """The activation comes behind the launch of a kernel: a call that is known must not leave it out."""
    for seed in range(8):
        x = np.random.default_rng(seed).standard_normal((4, 16, 32, 32)).astype(np.float32)
        plain, made = call(x), call(x, fused_activation=activation)
        wanted = getattr(dml, f"activation_{activation.lower()}")(plain)
        np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)


def test_what_others_compute_of_float16_is_no_known_call(ordinary):
    """Between launches that read and round, onnxruntime does the work."""
    f, d = fresh("convolution"), Draw("half")
    filters = d(32, 64, 3, 3)
    for _ in range(6):
        x = d(1, 64, 28, 28)
        wanted = f(x.astype(np.float32), filters.astype(np.float32))
        assert np.allclose(f(x, filters), wanted, rtol=1e-2, atol=1e-2)
    assert ordinary.count("convolution") == 12
