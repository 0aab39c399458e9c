"""What a session and `flatten` are told beside a model, where it cannot be meant."""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import anydml as dml
from anydml import benchmark

MODEL = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> m (float[n, 4] x, float y) => (float[n, 4] z) { z = Add (x, y) }'
)
OPEN = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> m (float x, int64[k] s) => (z) { z = Expand (x, s) }'
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fixed": 5}, "fixed: expected a dictionary"),
        ({"shapes": [1]}, "shapes: expected a dictionary"),
        ({"witness": 1.5}, "witness: expected a dictionary"),
        ({"max_extra_cost": -1}, "max_extra_cost: expected a number from 0 on"),
        ({"max_extra_cost": float("nan")}, "max_extra_cost: expected a number from 0 on"),
        ({"unroll": -1}, "unroll: expected an integer from 0 on"),
        ({"unroll": 1.5}, "unroll: expected an integer from 0 on"),
        ({"shapes": {"x": (2**63, 4)}}, "at most 2.63-1 elements"),
        ({"shapes": {"x": (2**61, 4)}}, "at most 2.63-1 elements"),
        ({"witness": {"x": (10**20, 4)}}, "witness 'x': expected sizes"),
    ],
    ids=repr,
)
def test_flatten(given, told):
    with pytest.raises(dml.InvalidInput, match=told):
        dml.flatten(MODEL, **given)


def test_sizes_by_symbol_are_a_dictionary():
    with pytest.raises(dml.InvalidInput, match="dims: expected a dictionary, but got 5"):
        dml.load(MODEL, dims=5)


def test_inputs_that_do_not_fit_into_memory():
    with pytest.raises(dml.OutOfMemory, match=r"input 'x': expected at most .* all the memory there is"):
        benchmark.bench(MODEL, shapes={"x": (10**12, 4)})


def test_shapes_are_lists_whatever_is_known():
    """As with onnxruntime, where nothing is known of a rank."""
    theirs = onnxruntime.InferenceSession(OPEN.SerializeToString(), providers=["CPUExecutionProvider"])
    session = dml.load(OPEN)
    assert [a.shape for a in session.get_outputs()] == [a.shape for a in theirs.get_outputs()] == [[]]
    assert [a.rank for a in (*session.get_inputs(), *session.get_outputs())] == [0, 1, None]


def test_what_onnxruntime_takes():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = -1
    with pytest.warns(UserWarning, match="read_config_from_model has no meaning"):
        session = dml.InferenceSession(MODEL.SerializeToString(), options, read_config_from_model=1)
    feeds = {"x": np.ones((2, 4), np.float32), "y": np.float32(1)}
    assert (session.run(None, feeds)[0] == 2).all()
