"""Random descriptions of every operator: problems, or the results of the NumPy reference; nothing else."""

import random

import numpy as np
import pytest

import anydml as dml
from anydml import heavy
from anydml.compiled_graph import _seen as seen
from anydml.directml.descriptions import to_graph
from anydml.ops.call import Computation
from anydml.ops.dtypes import IN_BUFFERS
from anydml.runtime.reference import run_reference
from tests.ops.random_descs import ALL, broken, changed
from tests.robustness.guard_tensors import MOST, fill

CHANGED, BROKEN = 8, 8
"""Descriptions of each operator."""
LEVELS = "1_0 2_1 3_0 3_1 4_1 5_0 6_2 6_4 6_4 6_4".split()


def told(desc, level):
    """The problems of a description, which a device tells as well; or its operator."""
    problems, device = dml.validate(desc, feature_level=level), dml.Device(level, threads=1)
    assert all(isinstance(p, dml.Problem) and str(p) and "\n" not in str(p) for p in problems)
    if not problems:
        return device.create_operator(desc)
    with pytest.raises((dml.InvalidOperator, dml.Unsupported)) as raised:
        device.create_operator(desc)
    assert list(raised.value.problems) == problems
    return None


def filled(operator, numbers):
    """Memory for all tensors, the inputs' with contents."""
    arrays = {}
    for name, tensor in operator.tensors.items():
        dtype = IN_BUFFERS[tensor.data_type]
        arrays[name] = np.zeros(-(-tensor.reach // dtype.itemsize), dtype)
        fill(name, arrays[name], numbers)
    return arrays


def wanted(operator, arrays):
    """The outputs in NumPy, by the definition alone."""
    graph, tensors = to_graph(operator._checked), operator.tensors
    (node,) = graph.nodes
    if node.op.scalar is None:
        outputs = {v.name: tensors[v.name] for v in graph.outputs}
        given = {v.name: seen(arrays[v.name], tensors[v.name]) for v in graph.inputs}
        return Computation(node.op, outputs, operator.attributes)(given)
    made = {v.name: np.zeros_like(arrays[v.name]) for v in graph.outputs}
    with np.errstate(all="ignore"):
        run_reference(graph, [arrays[v.name] for v in graph.inputs], list(made.values()))
    return {n: seen(x, tensors[n]) for n, x in made.items()}


def check_equal(got, right):
    """The same; of floats but for the order of sums, which may also be too large for their type midway."""
    assert (got.shape, got.dtype) == (right.shape, right.dtype)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, right)
        return
    tolerance = 2e-3 if got.dtype == np.float16 else 1e-5
    with np.errstate(invalid="ignore"):  # of NaNs that signal
        got, right = got.astype(float), right.astype(float)
    known = np.isfinite(right)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(right))
    if known.any():
        limit = tolerance * max(abs(right[known]).max(), 1e-6)
        np.testing.assert_allclose(got[known], right[known], rtol=tolerance, atol=limit)
    np.testing.assert_array_equal(got[~known], right[~known])


def check_runs(operator, numbers):
    """By the definition's and by every other implementation."""
    arrays = filled(operator, numbers)
    right = wanted(operator, arrays)
    compiled = operator_device().compile_operator(operator)
    inputs = {n: x for n, x in arrays.items() if n not in compiled.output_names}
    outputs = {n: arrays[n] for n in compiled.output_names}
    compiled.dispatch(inputs, outputs)
    for name, y in outputs.items():
        check_equal(seen(y, operator.tensors[name]), right[name])


def operator_device():
    return dml.Device(threads=1)


def small(operator):
    return all(t.reach <= MOST for t in operator.tensors.values())


@pytest.fixture(autouse=True)
def other_implementations(monkeypatch):
    """However small tensors are."""
    monkeypatch.setattr(heavy, "WORTH", 1)


def one_changed(name, seed):
    """Whether it ran."""
    rng = random.Random(f"{name} {seed}")
    desc, level = changed(name, rng), rng.choice(LEVELS)
    told(desc, level)
    operator = told(desc, "6_4")
    runs = operator is not None and small(operator)
    if runs:
        check_runs(operator, np.random.default_rng([seed, len(name)]))
    return runs


@pytest.mark.parametrize("name", ALL)
@pytest.mark.drawn
def test_valid_ones_run_and_give_what_numpy_gives(name):
    ran = sum(one_changed(name, seed) for seed in range(CHANGED))
    assert ran >= CHANGED // 3, "few could be run"


@pytest.mark.parametrize("name", ALL)
def test_broken_ones_are_told(name):
    """Or taken, where the junk happened to be legal."""
    for seed in range(BROKEN):
        rng = random.Random(f"{name} {seed} broken")
        told(broken(name, rng), rng.choice(LEVELS))
