"""What reaches a program's code was checked: sizes that do not fit are the library's to refuse, types are the node's."""

import numpy as np
import onnx
import pytest

import anydml

F = np.float32
RECURRENT = {"RNN": 1, "GRU": 3, "LSTM": 4}


def sessions(text, opset=18):
    """Without programs, and with them."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')
    return [anydml.load(model, threads=1, native=native) for native in (False, True)]


def same(text, feed, opset=18):
    plain, program = (s.run(None, feed)[0] for s in sessions(text, opset))
    assert (plain.dtype, plain.shape) == (program.dtype, program.shape)
    np.testing.assert_array_equal(plain, program)


def both_refuse(text, feed, opset=18):
    for session in sessions(text, opset):
        with pytest.raises(anydml.ExecutionFailed):
            session.run(None, feed)


def numbers(*sizes):
    return ", ".join(f"{0.1 * (k % 7 - 3):.1f}" for k in range(int(np.prod(sizes))))


@pytest.mark.parametrize("call", ["Mean (x, x)", "Mean (x, x, x)", "Sum (x, x, x)", "Max (x, x, x)"])
def test_halves_stay_halves(call):
    """Of several tensors: each step is rounded, and the result is of the node's type."""
    x = np.random.default_rng(0).standard_normal(9).astype(np.float16)
    text = f"(float16[9] x) => (float16[9] y) {{ y = {call} }}"
    plain, program = (s.run(None, {"x": x})[0] for s in sessions(text))
    assert plain.dtype == program.dtype == np.float16
    np.testing.assert_allclose(plain, program, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_halves_that_are_put(op, reduction):
    """By hand: onnxruntime does not have it."""
    x, u = np.float16([1, 2, 3]), np.float16([10, 20])
    places = "int64[2] i" if op == "ScatterElements" else "int64[2, 1] i"
    text = f'(float16[3] x, {places}, float16[2] u) => (float16[3] y) {{ y = {op} <reduction = "{reduction}"> (x, i, u) }}'
    _, program = sessions(text)
    i = np.array([0, 0]).reshape((2,) if op == "ScatterElements" else (2, 1))
    (y,) = program.run(None, {"x": x, "i": i, "u": u})
    assert (y.dtype, y.tolist()) == (np.float16, [31, 2, 3] if reduction == "add" else [200, 2, 3])


@pytest.mark.parametrize("op", RECURRENT)
@pytest.mark.parametrize(
    ("sizes", "fits"),
    [((1, 2, 3), True), ((1, 1, 3), False), ((2, 2, 3), False), ((1, 2, 4), False), ((1, 3, 3), False)],
)
def test_states_that_a_recurrent_layer_begins_with(op, sizes, fits):
    gates = RECURRENT[op]
    text = f"""(float[2, 2, 5] x, float[{sizes[0]}, {sizes[1]}, {sizes[2]}] h) => (float[2, 1, 2, 3] y)
        <float[1, {gates * 3}, 5] w = {{{numbers(gates * 15)}}}, float[1, {gates * 3}, 3] r = {{{numbers(gates * 9)}}}>
        {{ y = {op} <hidden_size = 3> (x, w, r, , , h) }}"""
    rng = np.random.default_rng(0)
    feed = {"x": rng.standard_normal((2, 2, 5)).astype(F), "h": rng.standard_normal(sizes).astype(F)}
    if not fits:
        both_refuse(text, feed)
        return
    plain, program = (s.run(None, feed)[0] for s in sessions(text))
    np.testing.assert_allclose(plain, program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", RECURRENT)
def test_a_bias_of_another_layer(op):
    gates = RECURRENT[op]
    text = f"""(float[2, 2, 5] x) => (float[2, 1, 2, 3] y)
        <float[1, {gates * 3}, 5] w = {{{numbers(gates * 15)}}}, float[1, {gates * 3}, 3] r = {{{numbers(gates * 9)}}},
         float[2, {gates * 6}] b = {{{numbers(gates * 12)}}}>
        {{ y = {op} <hidden_size = 3> (x, w, r, b) }}"""
    both_refuse(text, {"x": np.ones((2, 2, 5), F)})


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_bias_that_does_not_fit_a_convolution(count, groups):
    text = f"""(float[1, 4, 3, 3] x) => (float[1, 4, 3, 3] y)
        <float[4, {4 // groups}, 1, 1] w = {{{numbers(16 // groups)}}}, float[{count}] q = {{{numbers(count)}}}>
        {{ y = Conv <group = {groups}> (x, w, q) }}"""
    both_refuse(text, {"x": np.ones((1, 4, 3, 3), F)})


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_what_is_no_number_put_by_reduction(reduction):
    """There, or among the updates: as onnxruntime does it."""
    text = f"""(float[4] x, int64[3] i, float[3] u) => (float[4] y) {{
        y = ScatterElements <reduction = "{reduction}"> (x, i, u) }}"""
    same(text, {"x": F([1, np.nan, 1, 2]), "i": np.array([0, 1, 2]), "u": F([np.nan, 5, np.nan])})
