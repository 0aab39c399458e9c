"""Operators that a library computes: what they keep, and for how long."""

import gc
import weakref

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy
from anydml.onnx.from_directml import library

SIZES = {"InputTensor": (1, 2, 40, 40), "FilterTensor": (3, 2, 3, 3), "OutputTensor": (1, 3, 38, 38)}
WINDOWS = {
    "Mode": "CROSS_CORRELATION",
    "Direction": "FORWARD",
    "Strides": [1, 1],
    "Dilations": [1, 1],
    "GroupCount": 1,
}
WINDOWS |= {"StartPadding": [0, 0], "EndPadding": [0, 0], "OutputPadding": [0, 0]}


@pytest.fixture(autouse=True)
def _by_the_library(monkeypatch):
    monkeypatch.setattr(heavy, "WORTH", 1)
    monkeypatch.setattr(heavy, "best_by_kernels", lambda *_: False)
    eager_tensors.forget()
    gc.collect()
    assert not library._in_use
    yield
    eager_tensors.forget()


def arrays(sizes=SIZES):
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in sizes.items()}


def compiled():
    tensors = {name: {"DataType": "FLOAT32", "Sizes": shape} for name, shape in SIZES.items()}
    device = dml.Device(threads=1)
    return device.compile_operator(device.create_operator({"Type": "CONVOLUTION", **tensors, **WINDOWS}))


def test_arrays_are_not_kept_by_what_ran_on_them():
    """Also where the same ones come again, which the library then has bound."""
    operator, given = compiled(), arrays()
    made = {"OutputTensor": given.pop("OutputTensor")}
    bound = operator.bind(given, made)
    for _ in range(4):
        bound.dispatch()
    wanted = dml.convolution(given["InputTensor"], given["FilterTensor"])
    np.testing.assert_array_equal(made["OutputTensor"], wanted)
    gone = [weakref.ref(x) for x in (*given.values(), *made.values())]
    del bound, given, made
    gc.collect()
    assert [r() for r in gone] == [None] * 3
    again = arrays()
    for _ in range(4):
        operator.dispatch(
            {n: again[n] for n in ("InputTensor", "FilterTensor")}, {"OutputTensor": again["OutputTensor"]}
        )
    np.testing.assert_array_equal(again["OutputTensor"], wanted)


def test_sessions_go_with_what_was_compiled():
    first, second = compiled(), compiled()
    assert len(library._in_use) <= 1
    for operator in (first, second):
        given = arrays()
        operator.dispatch(
            {n: given[n] for n in ("InputTensor", "FilterTensor")}, {"OutputTensor": given["OutputTensor"]}
        )
    assert len(library._in_use) == 1
    del first, second, operator
    gc.collect()
    assert not library._in_use


def test_functions_on_many_sizes_keep_some(monkeypatch):
    monkeypatch.setattr(eager_tensors, "_MOST_SESSIONS", 3)
    w = arrays()["FilterTensor"]
    results = []
    for _ in range(2):
        for n in range(20, 30):
            results.append(dml.convolution(np.full((1, 2, n, n), n, np.float32), w))
    gc.collect()
    assert 0 < len(library._in_use) <= 6  # two keys for each where arrays are taken as they are
    for first, again in zip(results[:10], results[10:], strict=True):
        np.testing.assert_array_equal(first, again)
