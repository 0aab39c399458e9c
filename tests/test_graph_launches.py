"""Operators of whole tensors in graphs as launches of kernels, and calls by memory of the graph's own."""

import threading
from types import BuiltinFunctionType

import numpy as np
import pytest

import anydml as dml
from anydml.codegen.python_objects import have_known_layout

RNG = np.random.default_rng(0)
SIZES = (1, 16, 32, 32)
ROWS = np.array([[[[0, 3, -1, 40, 7, 7, 2, 1]]]], np.int32)
SUMS = {"axis_direction": "INCREASING", "has_exclusive_sum": False}
ENDS = {"start_padding": [0, 0, 1, 2], "end_padding": [0, 0, 1, 1], "padding_value": 0}
CASES = {
    "pooling": lambda x: dml.max_pooling(x, window_size=2, strides=2),
    "normalization": lambda x: dml.mean_variance_normalization1(
        x, None, None, axes=[3], normalize_variance=True
    ),
    "reduce": lambda x: dml.reduce(x, "MAX", [2, 3]),
    "argmax": lambda x: dml.argmax(x, [3]),
    "top_k": lambda x: dml.top_k(x, axis=3, k=3),
    "join": lambda x: dml.join([x, x * 2], axis=1),
    "product": lambda x: dml.gemm(x, x, trans_b="TRANSPOSE", fused_activation="RELU"),
    "split": lambda x: dml.split(x, [8, 8], axis=1),
    "blocks": lambda x: dml.space_to_depth(x, block_size=2),
    "tile": lambda x: dml.tile(x, repeats=[1, 1, 2, 2]),
    "gather": lambda x: dml.gather(x, ROWS, axis=1, index_dimensions=1),
    "running": lambda x: dml.cumulative_summation(x, axis=3, **SUMS),
    "padding": lambda x: dml.padding(x, padding_mode="REFLECTION", **ENDS),
    "resample": lambda x: dml.upsample_2d(x, scale_size=[2, 1], interpolation_mode="NEAREST_NEIGHBOR"),
    "several": lambda x: dml.reduce(dml.activation_relu(dml.max_pooling(x, window_size=2)) + 1, "L2", [3]),
}
NOT_ALONE = {
    "average": lambda x: dml.average_pooling(x, window_size=2, include_padding=False),
    "columns": lambda x: dml.reduce(x, "SUM", [2]),
}


def drawn(*sizes):
    return RNG.standard_normal(sizes or SIZES).astype(np.float32)


def compiled(case, dtype="FLOAT32"):
    g = dml.GraphBuilder()
    made = case(g.input("x", dtype, SIZES))
    made = made if isinstance(made, tuple | list) else [made]
    return g.compile({f"y{k}": y for k, y in enumerate(made)})


def eagerly(case, x):
    made = case(x)
    return {f"y{k}": y for k, y in enumerate(made if isinstance(made, tuple | list) else [made])}


def same(one, other):
    assert one.keys() == other.keys()
    for name, y in one.items():
        assert (y.dtype, y.shape) == (other[name].dtype, other[name].shape)
        assert y.tobytes() == other[name].tobytes()


@pytest.mark.parametrize("name", [*CASES, *NOT_ALONE])
def test_a_graph_computes_what_functions_do(name):
    case = (CASES | NOT_ALONE)[name]
    graph, x = compiled(case), drawn()
    wanted = eagerly(case, x)
    outputs = {n: np.full_like(y, 77) for n, y in wanted.items()}
    before = {n: y.tobytes() for n, y in outputs.items()}
    bound = graph.bind({"x": x}, outputs)
    assert {n: y.tobytes() for n, y in outputs.items()} == before, "binding must write nothing"
    for _ in range(3):
        bound.dispatch()
        same(outputs, wanted)
        same(graph({"x": x}), wanted)
        x[:] = drawn()
        wanted = eagerly(case, x)
    if name in CASES and have_known_layout():
        runs = getattr(bound.dispatch, "__wrapped__", bound.dispatch)
        assert isinstance(runs, BuiltinFunctionType), "no Python between its kernels"


def test_half_floats_are_computed_in_float32():
    graph, x = compiled(CASES["normalization"], "FLOAT16"), drawn().astype(np.float16)
    same(graph({"x": x}), eagerly(CASES["normalization"], x))


def test_results_are_the_callers():
    graph = compiled(CASES["top_k"])
    first, second = drawn(), drawn()
    one = graph({"x": first})
    kept = {n: y.copy() for n, y in one.items()}
    two = graph({"x": second})
    same(one, kept)
    for y in one.values():
        assert y.flags.writeable
        y[...] = 0
    same(graph({"x": second}), two)
    same(graph({"x": first}), kept)


def test_layouts_and_mistakes_as_before():
    graph, x = compiled(CASES["argmax"]), drawn()
    wanted = graph({"x": x})
    same(graph({"x": np.ascontiguousarray(x.T).T}), wanted)
    same(graph({"x": x.ravel()}), wanted)
    same(graph({"x": np.repeat(x, 2, axis=-1)[..., ::2]}), wanted)
    for given in ({}, {"x": x, "y": x}, {"y": x}, {"x": x.astype(float)}, {"x": x[..., :-1]}, {"x": [1]}):
        with pytest.raises(dml.AnyDMLError):
            graph(given)
    same(graph({"x": x}), wanted)


def test_many_threads_call_one_graph():
    graph = compiled(CASES["several"])
    inputs = [drawn() for _ in range(8)]
    wanted = [eagerly(CASES["several"], x)["y0"].tobytes() for x in inputs]
    wrong = []

    def work(k):
        for _ in range(100):
            if graph({"x": inputs[k]})["y0"].tobytes() != wanted[k]:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_large_graphs_bind_what_they_are_given():
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [1024, 512])
    graph, given = g.compile({"y": dml.reduce(x * 2, "SUM", [1])}), drawn(1024, 512)
    wanted = dml.reduce(given * 2, "SUM", [1])
    assert graph({"x": given})["y"].tobytes() == wanted.tobytes()
    assert not graph._idle
