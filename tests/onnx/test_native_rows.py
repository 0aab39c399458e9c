"""Programs whose outputs have sizes that only the data decides: rows of loops that it ends, and branches."""

import sys
import threading
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import anydml as dml
from tests.onnx.test_native import agree, expected, model, native, same

DOUBLING = """y, rows, numbers = Loop (trips, begin, x) <body = b (int64 k, bool c, float[3] v)
    => (bool go, float[3] w, float[3] row, int64 number) {
        w = Add (v, v) s = ReduceMax <keepdims = 0> (w) go = Less (s, limit) row = Neg (w) number = Add (k, one) }>"""
CONSTANTS = "<float limit = {100}, int64 one = {1}, int64 trips = {12}, bool begin = {1}>"


def doubling(after="", outputs="float[3] y, float[n,3] rows, int64[n] numbers", inputs="float[3] x"):
    return model(f"m ({inputs}) => ({outputs}) {CONSTANTS} {{ {DOUBLING} {after} }}")


def starts(*firsts):
    return [{"x": np.float32([first, -1, 0.5])} for first in firsts]


def test_rows_of_a_loop_that_data_ends():
    least = {"x": np.float32([1e-9, -1, 1e-9])}
    session = agree(doubling(), *starts(1, 60, 20, 3, 3), least)
    assert [len(session.run(None, feeds)[1]) for feeds in (*starts(60, 20, 3), least)] == [1, 3, 6, 12]


def test_rows_are_the_callers():
    session = native(doubling())
    (first,) = starts(20)
    _, rows, numbers = session.run(None, first)
    kept = rows.copy(), numbers.copy()
    rows += 1
    for feeds in starts(1, 1e-9, 60):
        session.run(None, feeds)
    np.testing.assert_array_equal(rows, kept[0] + 1)
    np.testing.assert_array_equal(numbers, kept[1])
    assert rows.base is None


def test_no_iteration_gives_no_rows():
    made = doubling(inputs="float[3] x, bool begin")
    del made.graph.initializer[3]
    x = starts(1)[0]
    session = native(made)
    for begin in (False, True, False):
        feeds = {**x, "begin": np.array(begin)}
        found, wanted = session.run(None, feeds), expected(made, feeds)
        assert found[1].shape == ((7, 3) if begin else (0, 3))
        same(found, [w.reshape(f.shape) for f, w in zip(found, wanted, strict=True)])
    assert "program: " in session.explain()


def test_what_computes_with_such_rows():
    after = "z = ReduceSum <keepdims = 0> (rows) n = Shape (rows) r = Exp (rows) last = Gather <axis = 0> (numbers, back)"
    made = doubling(after, "float z, int64[2] n, float[k,3] r, int64 last")
    made.graph.initializer.append(numpy_helper.from_array(np.array(-1), "back"))
    agree(made, *starts(1, 20, 60, 1e-9), rtol=1e-5)


def test_loops_without_a_bound_are_left_to_others():
    made = doubling()
    made.graph.node[0].input[0] = ""
    session = native(made)
    for feeds in starts(1, 20):
        same(session.run(None, feeds), expected(made, feeds))
    assert "program: " not in session.explain()


def test_many_rows_are_left_to_others():
    """Of which a run would make room for all, however few there are."""
    made = doubling()
    made.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.array(100_000), "trips"))
    session = native(made)
    for feeds in starts(1, 20):
        same(session.run(None, feeds), expected(made, feeds))
    assert "program: " not in session.explain()


def branches(one, other, more=""):
    return model(
        f"m (float[6] x, float[4] y) => (float[n] z, float w) <float zero = {{0}}> {{"
        f" s = ReduceSum <keepdims = 0> (x) c = Less (s, zero) {more}"
        f" z = If (c) <then_branch = t () => (float[a] p) {{ {one} }},"
        f" else_branch = e () => (float[b] q) {{ {other} }}> w = ReduceMax <keepdims = 0> (z) }}"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("p = Neg (x)", "q = Abs (y)"),
        ("p = Abs (y)", "q = Neg (x)"),
        ("p = Concat <axis = 0> (x, y, x)", "q = Sigmoid (y)"),
    ],
)
def test_branches_of_other_sizes_as_outputs(one, other):
    x, y = np.float32([1, 2, -3, 4, 5, 6]), np.float32([3, -4, 5, -6])
    session = agree(branches(one, other), {"x": x, "y": y}, {"x": -x, "y": y}, {"x": x, "y": -y})
    program = next(iter(session._program._plans)).plan.steps[0].program
    for pattern in (0x00, 0xFF, 0x7F):
        block, address = program._memory()
        block[:] = pattern
        program._spare[:] = [(block, address)]
        for feeds in ({"x": x, "y": y}, {"x": -x, "y": y}):
            same(session.run(None, feeds), expected(branches(one, other), feeds))


def test_branches_and_rows_at_once():
    after = """m1 = ReduceMin <keepdims = 0> (x) d = Less (m1, limit)
        z = If (d) <then_branch = t () => (float[2,a] p) { two = Constant <value_ints = [2, 3]> () p = Expand (x, two) },
                    else_branch = e () => (float[2,b] q) { r = Concat <axis = 0> (x, x) four = Constant <value_ints = [2, 6]> ()
                        q = Expand (r, four) }>"""
    made = doubling(after, "float[3] y, float[n,3] rows, float[2,k] z")
    feeds = [*starts(1, 20), {"x": np.float32([500, 400, 300])}]
    agree(made, *feeds)


def test_several_threads():
    session, wrong = native(doubling()), []
    wanted = {first: expected(doubling(), starts(first)[0]) for first in (1, 20, 60)}

    def work(first):
        for _ in range(300):
            for a, b in zip(session.run(None, starts(first)[0]), wanted[first], strict=True):
                if a.shape != b.shape or not np.allclose(a, b):
                    wrong.append(first)

    threads = [threading.Thread(target=work, args=(first,)) for first in (1, 20, 60, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_bound_run_goes_the_ordinary_way():
    session, (feeds,) = native(doubling()), starts(20)
    wanted = session.run(None, feeds)
    outputs = {"rows": np.zeros((3, 3), np.float32)}
    found = session.bind(feeds, outputs).run()
    same(found, wanted)
    np.testing.assert_array_equal(outputs["rows"], wanted[1])


def test_a_c_function_has_outputs_of_fixed_sizes():
    with pytest.raises(dml.Unsupported, match="the data decides the sizes of its outputs"):
        dml.compile_model(doubling())


def test_many_outputs_of_open_sizes():
    """More sizes than programs tell."""
    names = [f"z{k}" for k in range(40)]
    made = branches("p = Neg (x)", "q = Abs (y)")
    made.graph.node.extend(helper.make_node("Neg", ["z"], [name]) for name in names)
    made.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in names
    )
    session = native(made)
    x, y = np.float32([1, 2, -3, 4, 5, 6]), np.float32([3, -4, 5, -6])
    for feeds in ({"x": x, "y": y}, {"x": -x, "y": y}):
        same(session.run(None, feeds), expected(made, feeds))
    assert "program: " not in session.explain()


def test_the_entry_makes_what_the_data_decides():
    """Arrays of their own; nothing stays behind, and none are taken to write to."""
    session, (feeds,) = native(doubling()), starts(20)
    wanted = session.run(None, feeds)
    entry = session._program.entry
    assert entry is not None
    assert entry(feeds, [np.empty_like(y) for y in wanted]) is None
    for one in starts(20, 1, 60, 1e-9, 20):
        same(entry(one), expected(doubling(), one))
    found = entry(feeds)
    assert all(y.flags.owndata and y.flags.writeable and y.base is None for y in found)
    types = [y.dtype for y in wanted]
    before = [sys.getrefcount(dtype) for dtype in types]
    tracemalloc.start()
    for _ in range(50):
        entry(feeds)
    least = tracemalloc.get_traced_memory()[0]
    for _ in range(2000):
        entry(feeds)
    grown = tracemalloc.get_traced_memory()[0] - least
    tracemalloc.stop()
    assert grown < 1000
    assert [sys.getrefcount(dtype) for dtype in types] == before
