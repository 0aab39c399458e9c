"""Where intermediate values lie in a graph's memory."""

import random

import numpy as np
import pytest

import anydml as dml
from anydml.runtime.tensor_step import reach


def compiled(draw, count):
    """A graph of matrices of two widths, each made of some that came before, near or far."""
    builder = dml.GraphBuilder()
    made = {k: [builder.input(f"x{k}", "FLOAT32", [16, k])] for k in (16, 48)}
    for _ in range(count):
        k = draw.choice((16, 48))
        near = draw.choice((-3, -30))
        a, b = draw.choice(made[16][near:]), draw.choice(made[k][near:])
        made[k].append(dml.activation_softmax(dml.gemm(a, b)))
    return builder.compile({"y": made[16][-1], "z": made[48][-1]})


@pytest.mark.parametrize("seed", range(10))
def test_values_that_live_together_lie_apart(seed):
    graph = compiled(random.Random(seed), 60)
    plan = graph._plan
    lives = {}
    for value in plan.offsets:
        using = [k for k, step in enumerate(plan.steps) if value in step.values]
        lives[value] = min(using), max(using)
    assert len(lives) > 20
    for a in lives:
        assert plan.offsets[a] % 64 == 0
        assert plan.offsets[a] + reach(a) <= plan.scratch
        for b in lives:
            together = lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
            before, behind = sorted((a, b), key=plan.offsets.__getitem__)
            assert a is b or not together or plan.offsets[before] + reach(before) <= plan.offsets[behind]
    assert plan.scratch < sum(map(reach, lives)) / 2, "memory is used again"


def test_a_chain_of_any_length_needs_two_values_at_a_time():
    builder = dml.GraphBuilder()
    x = y = builder.input("x", "FLOAT32", [16, 16])
    for _ in range(600):
        y = dml.gemm(x, y, alpha=1 / 16)
    graph = builder.compile({"y": y})
    assert graph._plan.scratch == 2 * 16 * 16 * 4
    result = graph({"x": np.ones((16, 16), np.float32)})["y"]
    np.testing.assert_array_equal(result, 1)
