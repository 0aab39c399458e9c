"""Calls that are known from earlier ones mean the same, are refused the same, and leave nothing behind."""

import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import anydml as dml
from anydml import eager, templates
from anydml.codegen.python_objects import have_known_layout
from anydml.ops.catalog import CATALOG


@pytest.fixture
def ordinary(monkeypatch):
    """The calls that went the ordinary way, since this fixture was made or emptied."""
    calls = []
    compute = eager.compute

    def noted(operator, *rest):
        calls.append(operator.function)
        return compute(operator, *rest)

    monkeypatch.setattr(templates, "compute", noted)
    return calls


def fresh(name):
    """A function that knows no calls so far, and has been called before."""
    made = templates.function(next(o for o in CATALOG if o.function == name), "m")
    made.__closure__[0].cell_contents._called = True
    return made


def f32(*values):
    return np.array(values, np.float32)


X = np.arange(-6, 6, dtype=np.float32)
LAYOUTS = {
    "packed": lambda x: x,
    "rows": lambda x: x.reshape(3, 4),
    "turned": lambda x: x.reshape(4, 3).T,
    "every other": lambda x: np.repeat(x, 2)[::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "repeated": lambda x: np.broadcast_to(x, (2, 12)),
    "read only": lambda x: np.frombuffer(x.tobytes(), np.float32),
}


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_second_call_of_a_kind_is_known(ordinary, layout):
    add, softmax = fresh("add"), fresh("activation_softmax")
    for k in range(3):
        x, y = LAYOUTS[layout](X + k), LAYOUTS[layout](X * 2)
        out = np.empty(x.shape, np.float32)
        assert add(x, y, out=out) is out
        np.testing.assert_array_equal(out, x + y)
        rows = softmax(x, out=out.copy())
        np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-5)
    assert ordinary == ["add", "activation_softmax"]


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
def test_what_knows_calls_is_not_made_for_a_first_call():
    code = """
import numpy as np
import anydml
from anydml.runtime.call import _code

x = np.ones(3, np.float32)
for function in (anydml.add, anydml.subtract, anydml.add, anydml.add):
    function(x, x)
    print(_code.cache_info().currsize)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", "0", "1", "1"]


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
def test_one_record_serves_packed_arrays_of_any_shape(ordinary):
    add = fresh("add")
    for shape in [(3,), (2, 5), (1, 1, 7), (), (40_000,), (300, 1000), (1,)]:
        x = np.random.default_rng(0).random(shape, np.float32)
        np.testing.assert_array_equal(add(x, x), x + x)
        assert add(x, x).shape == shape
    assert ordinary == ["add"]


@pytest.mark.parametrize(
    "second",
    [2.0, -0.0, 3, True, np.float32(1.5), float("nan"), float("inf"), 1e-50, np.array(2.5, np.float32)],
    ids=repr,
)
def test_numbers(second):
    add, x = fresh("add"), f32(1, -0.0, np.inf)
    expected = x + np.float32(second)
    for _ in range(3):
        np.testing.assert_array_equal(add(x, second).view(np.int32), expected.view(np.int32))
        add(x, 7.5)  # a number of the same kind in between


def test_numbers_that_a_type_has_not_are_told_each_time():
    add, x = fresh("add"), f32(1, 2)
    for _ in range(3):
        add(x, 1.0)
        with pytest.raises(dml.InvalidInput, match="float32 can hold, but got 1e"):
            add(x, 1e300)
    integers = np.array([1, 2], np.int8)
    for _ in range(3):
        assert add(integers, 5).tolist() == [6, 7]
        with pytest.raises(dml.InvalidInput, match="int8 can hold"):
            add(integers, 1000)


def test_attributes_are_compared_by_what_they_are():
    clip, x = fresh("clip"), f32(-3, 0, 3)
    for _ in range(2):
        for low, high in [(-1.0, 1.0), (0.0, 2.0), (-0.0, 2.0), (-1.0, float("inf"))]:
            np.testing.assert_array_equal(clip(x, low, high), np.clip(x, low, high))
    infinite = fresh("is_infinity")
    for _ in range(2):
        for mode, expected in [("positive", [1, 0]), ("negative", [0, 1]), ("either", [1, 1])]:
            assert infinite(f32(np.inf, -np.inf), mode=mode).tolist() == expected


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
def test_lists_are_compared_by_what_they_hold(ordinary):
    softmax, x = fresh("activation_softmax1"), np.reshape(X, (2, 3, 2))
    for _ in range(3):
        for axes in ([0], [1], [0, 1], [-1]):
            given = list(axes)
            rows = softmax(x, axes=given)
            np.testing.assert_allclose(rows.sum(tuple(axes)), 1, rtol=1e-5)
            given.append(2)  # which is nobody else's list
    assert len(ordinary) == 4


def test_what_may_change_is_read_anew():
    softmax, x = fresh("activation_softmax1"), np.arange(12, dtype=np.float32).reshape(3, 4)
    axes = [0]
    for axis in (0, 1, 0):
        axes[0] = axis
        np.testing.assert_allclose(softmax(x, axes=axes).sum(axis), 1, rtol=1e-6)


def test_types():
    equal, choose = fresh("equals"), fresh("if_")
    for _ in range(3):
        for dtype in (np.float32, np.int64, np.float16, np.uint8):
            x = np.array([1, 2, 3], dtype)
            truth = equal(x, x)
            assert truth.dtype == np.uint8
            assert choose(x > 1, x, x + x).dtype == dtype
            assert choose(truth, x, x).tolist() == [1, 2, 3]
        assert equal(f32(1, 2), f32(1, 3), output_data_type="UINT32").dtype == np.uint32
        swapped = np.array([1, 2], ">f4")
        assert equal(swapped, swapped).tolist() == [1, 1]


def test_outputs_that_cannot_be_are_refused_each_time():
    add, x = fresh("add"), np.arange(64, dtype=np.float32)
    for size in (16, 40):
        for _ in range(3):
            add(x[:size], x[:size], out=np.empty(size, np.float32))
            add(x[:size], x[:size], out=np.empty(2 * size, np.float32)[::2])
            for out in (x[1 : size + 1], x[2 : 2 * size + 2][:size][::-1]):
                with pytest.raises(dml.InvalidInput, match="apart from"):
                    add(x[:size], x[:size], out=out)
            for out, told in [
                (np.empty(size + 1, np.float32), "expected shape"),
                (np.empty(size, np.float64), "expected float32"),
                (np.frombuffer(bytes(4 * size), np.float32), "writable"),
                (np.empty((1, size), np.float32), "expected shape"),
            ]:
                with pytest.raises(dml.InvalidInput, match=told):
                    add(x[:size], x[:size], out=out)


def test_in_place():
    add, halve = fresh("add"), fresh("identity")
    for _ in range(3):
        for x in (np.arange(5, dtype=np.float32), np.arange(10, dtype=np.float32)[::2]):
            expected = x + x
            assert add(x, x, out=x) is x
            np.testing.assert_array_equal(x, expected)
        block = np.arange(9, dtype=np.float32).reshape(3, 3)
        with pytest.raises(dml.InvalidInput, match="apart from"):
            halve(block, out=block.T)


def test_shapes_that_do_not_broadcast_are_told_each_time():
    add = fresh("add")
    for _ in range(3):
        assert add(np.ones((2, 3), np.float32), np.ones(3, np.float32)).shape == (2, 3)
        assert add(np.ones((0, 3), np.float32), np.ones(3, np.float32)).shape == (0, 3)
        with pytest.raises(dml.InvalidInput, match="broadcast"):
            add(np.ones((2, 3), np.float32), np.ones(2, np.float32))
        with pytest.raises(TypeError):
            add(np.ones(2, np.float32))


def test_expressions_beside_known_calls():
    for _ in range(2):
        dml.abs(f32(-1))
        g = dml.GraphBuilder()
        x = g.input("x", "FLOAT32", [2])
        assert g.compile({"y": dml.abs(x)})({"x": f32(-1, 2)})["y"].tolist() == [1, 2]


def test_results_own_their_memory_from_the_first_call_on():
    multiply, both = fresh("multiply"), fresh("logical_and")
    x, truth = np.ones((2, 4, 8), np.float32), np.ones(3, bool)
    for _ in range(3):
        assert multiply(x[:, :, ::-1], x).flags.owndata
        assert both(truth, truth).flags.owndata


def test_functions_stay_functions():
    dml.abs(f32(-1))
    assert inspect.isfunction(dml.abs)
    assert str(inspect.signature(dml.abs)).startswith("(input: ")
    assert pickle.loads(pickle.dumps(dml.abs)) is dml.abs
    if have_known_layout():
        with pytest.raises(TypeError, match="addresses"):
            pickle.dumps(dml.abs.__closure__[0].cell_contents)


def test_nothing_is_left_behind():
    add, x, out = fresh("add"), f32(1, 2, 3), np.empty(3, np.float32)
    wide, y = np.ones((3, 1), np.float32), np.float32(2)

    def calls():
        for _ in range(1000):
            add(x, x)
            add(x, x, out=out)
            add(x, wide)
            add(x, y)
            add(x, 2.0)
            add(x, 1)
            with pytest.raises(dml.InvalidInput):
                add(x, x, out=x[:2])

    calls()
    gc.collect()
    things = (x, out, wide, x.dtype, np.float32, None, add)
    before = [sys.getrefcount(t) for t in things], sys.getallocatedblocks()
    calls()
    gc.collect()
    after = [sys.getrefcount(t) for t in things], sys.getallocatedblocks()
    assert all(abs(a - b) < 50 for a, b in zip(before[0], after[0], strict=True))
    assert after[1] - before[1] < 500


def test_ever_new_kinds_are_no_leak():
    add = fresh("add")
    for k in range(600):
        x = np.ones((2, k + 1), np.float32)
        assert add(x, x[:1]).shape == x.shape
    assert add(x, x).shape == x.shape


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
def test_a_kind_is_known_after_ever_new_ones(ordinary):
    """What came of no use is given up, and what comes again is known all the same."""
    add = fresh("add")
    for k in range(600):
        x = np.ones((2, k + 1), np.float32)
        add(x, x[:1])
    x = np.ones((3, 5), np.float32)
    for _ in range(70):
        add(x, x[:1])
    ordinary.clear()
    add(x, x[:1])
    assert not ordinary


@pytest.mark.skipif(not have_known_layout(), reason="objects have another layout in this Python")
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_results_in_another_order_of_axes_are_known(ordinary, order):
    add = fresh("add")
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5).transpose(order)
    first = [add(x, x), add(x, x)][1]
    ordinary.clear()
    y = add(x, x)
    assert not ordinary
    np.testing.assert_array_equal(y, x + x)
    assert y.strides == first.strides == x.strides
    assert y.flags.writeable
    assert y.flags.aligned
    assert y.flags.c_contiguous == x.flags.c_contiguous
    assert y.flags.f_contiguous == x.flags.f_contiguous


def test_from_several_threads():
    add, wrong = fresh("add"), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for k in range(300):
            x = rng.random((1 + k % 9, 1 + 997 * (k % 3)), np.float32)
            if not np.array_equal(add(x, x[:1]), x + x[:1]) or not np.array_equal(add(x, x), x + x):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_in_a_forked_child():
    add, x = fresh("add"), np.ones(1 << 18, np.float32)
    add(x, x)
    child = os.fork()
    if not child:
        os._exit(0 if all((add(x, x) == 2).all() for _ in range(3)) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_bound_work_takes_no_arguments_and_keeps_its_arrays():
    device = dml.Device()
    tensor = {"DataType": "FLOAT32", "Sizes": [4]}
    made = device.create_operator(
        {"Type": "ELEMENT_WISE_ABS", "Desc": {"InputTensor": tensor, "OutputTensor": tensor}}
    )
    x, y = f32(-1, 2, -3, 4), np.zeros(4, np.float32)
    dispatch = device.compile_operator(made).bind({"InputTensor": x}, {"OutputTensor": y}).dispatch
    held = sys.getrefcount(x)
    gc.collect()
    dispatch()
    assert y.tolist() == [1, 2, 3, 4]
    with pytest.raises(TypeError):
        dispatch(1)
    del dispatch
    gc.collect()
    assert sys.getrefcount(x) < held
