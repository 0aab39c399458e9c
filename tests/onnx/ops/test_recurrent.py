"""LSTM, GRU and RNN of no steps: what they give is what the rest of a sequence begins with."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydml
from tests.onnx.ops.checking import check, check_fails, check_open, computed

HIDDEN, WIDTH, BATCH = 3, 2, 4
GATES, STATES = {"LSTM": 4, "GRU": 3, "RNN": 1}, {"LSTM": 2, "GRU": 1, "RNN": 1}
WAYS = {"forward": 1, "reverse": 1, "bidirectional": 2}
rng = np.random.default_rng(3)


def floats(*sizes):
    return rng.normal(size=sizes).astype(np.float32)


def operands(op, steps, ways=1):
    """Of a layer: the sequence, weights, and initial states."""
    rows = GATES[op] * HIDDEN
    weights = [floats(ways, rows, WIDTH), floats(ways, rows, HIDDEN), floats(ways, 2 * rows)]
    return [floats(steps, BATCH, WIDTH), *weights, None], [floats(ways, BATCH, HIDDEN)] * STATES[op]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("direction", WAYS)
@pytest.mark.parametrize("op", GATES)
def test_no_steps(op, direction, given):
    fed, states = operands(op, 0, WAYS[direction])
    expected = states if given else [np.zeros_like(s) for s in states]
    check(
        op,
        [*fed, *(states if given else ())],
        outputs=1 + len(states),
        expected=(np.zeros((0, WAYS[direction], BATCH, HIDDEN), np.float32), *expected),
        hidden_size=HIDDEN,
        direction=direction,
    )


@pytest.mark.parametrize("op", GATES)
def test_no_steps_by_batches(op):
    fed, states = operands(op, 0)
    turned = [s.swapaxes(0, 1) for s in states]
    expected = (np.zeros((BATCH, 0, 1, HIDDEN), np.float32), *turned)
    inputs = [fed[0].swapaxes(0, 1), *fed[1:], *turned]
    check(op, inputs, outputs=len(expected), expected=expected, hidden_size=HIDDEN, layout=1)


@pytest.mark.parametrize("op", GATES)
def test_steps_are_left_to_libraries(op):
    check_open(op, operands(op, 1)[0], hidden_size=HIDDEN)


@pytest.mark.parametrize("op", GATES)
def test_states_that_do_not_fit(op):
    fed, states = operands(op, 0)
    check_fails(op, [*fed, states[0][:, 1:], *states[1:]], hidden_size=HIDDEN, alone=True)


@pytest.mark.parametrize("declared", [None, "n", 0])
@pytest.mark.parametrize("op", GATES)
def test_a_sequence_in_two_parts(op, declared):
    """A session runs no steps, and then all of them; onnxruntime runs all at once."""
    (x, *weights), states = operands(op, 5)
    names = ["x", "w", "r", "b", "", *("h", "c")[: STATES[op]]]
    results = ["y", *("hh", "cc")[: STATES[op]]]
    node = helper.make_node(op, names, results, hidden_size=HIDDEN)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [declared, BATCH, WIDTH]),
        *(helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, BATCH, HIDDEN]) for n in names[5:]),
    ]
    known = [
        helper.make_tensor(n, TensorProto.FLOAT, v.shape, v) for n, v in zip("wrb", weights[:3], strict=True)
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in results]
    graph = helper.make_graph([node], "layer", inputs, outputs, known)
    session = anydml.load(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    )
    given = dict(zip(names[5:], states, strict=True))
    nothing, *between = session.run(None, {"x": x[:0], **given})
    assert nothing.shape == (0, 1, BATCH, HIDDEN)
    rest = computed(op, [x, *weights, *between], 22, 1 + len(states), hidden_size=HIDDEN)
    whole = computed(op, [x, *weights, *states], 22, 1 + len(states), hidden_size=HIDDEN)
    for a, b in zip(rest, whole, strict=True):
        np.testing.assert_array_equal(a, b)
