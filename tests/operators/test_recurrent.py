"""Recurrent layers against loops over steps and rows, and onnxruntime, by NumPy and by the library."""

from math import erf

import numpy as np
import pytest

import anydml as dml
from anydml.onnx.from_directml import library

from ..onnx.ops.checking import computed
from .tensors import check_floats, layouts
from .test_convolution import routes  # noqa: F401  # a fixture

DIRECTIONS = ("FORWARD", "BACKWARD", "BIDIRECTIONAL")
IN_ONNX = {"FORWARD": "forward", "BACKWARD": "reverse", "BIDIRECTIONAL": "bidirectional"}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
USUAL = {"rnn": ["TANH"], "gru": ["SIGMOID", "TANH"], "lstm": ["SIGMOID", "TANH", "TANH"]}


def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(x))


ACTIVATIONS = {
    "SIGMOID": ({}, lambda x: 1 / (1 + np.exp(-x))),
    "TANH": ({}, np.tanh),
    "RELU": ({}, lambda x: np.maximum(x, 0)),
    "IDENTITY": ({}, lambda x: x),
    "SOFTSIGN": ({}, lambda x: x / (1 + np.abs(x))),
    "LINEAR": ({"Alpha": 0.75, "Beta": -0.25}, lambda x: 0.75 * x - 0.25),
    "HARD_SIGMOID": ({"Alpha": 0.25, "Beta": 0.4}, lambda x: np.clip(0.25 * x + 0.4, 0, 1)),
    "SCALED_TANH": ({"Alpha": 0.5, "Beta": 1.5}, lambda x: 0.5 * np.tanh(1.5 * x)),
    "LEAKY_RELU": ({"Alpha": 0.2}, lambda x: np.where(x >= 0, x, 0.2 * x)),
    "THRESHOLDED_RELU": ({"Alpha": 0.3}, lambda x: np.where(x > 0.3, x, 0)),
    "ELU": ({"Alpha": 0.7}, lambda x: elu(x, 0.7)),
    "CELU": ({"Alpha": 1.5}, lambda x: np.maximum(x, 0) + np.minimum(0, 1.5 * np.expm1(x / 1.5))),
    "SCALED_ELU": ({"Alpha": 1.25, "Gamma": 0.5}, lambda x: 0.5 * elu(x, 1.25)),
    "SOFTPLUS": ({"Steepness": 2}, lambda x: np.log1p(np.exp(2 * x)) / 2),
    "PARAMETRIC_SOFTPLUS": ({"Alpha": 0.5, "Beta": 2}, lambda x: 0.5 * np.log1p(np.exp(2 * x))),
    "SHRINK": ({"Bias": 0.1, "Threshold": 0.2}, lambda x: np.where(x > 0.2, x - 0.1, np.where(x < -0.2, x + 0.1, 0))),
    "GELU": ({}, lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2),
}  # fmt: skip


def described(name):
    return {"Type": f"ACTIVATION_{name}", "Desc": ACTIVATIONS[name][0]}


# ---- loops -------------------------------------------------------------------------------------------------


def split(x, parts):
    return [None] * parts if x is None else np.split(x, parts)


def rnn_step(o, w, r, b, states, x, functions):
    (h,) = states
    return (functions[0](w @ x + r @ h + sum(split(b, 2) if b is not None else [0])),)


def gru_step(o, w, r, b, states, x, functions):
    (h,), (f, g) = states, functions
    (wz, wr, wh), (rz, rr, rh) = split(w, 3), split(r, 3)
    bz, br, bh, cz, cr, ch = split(b, 6) if b is not None else [0] * 6
    z, reset = f(wz @ x + bz + rz @ h + cz), f(wr @ x + br + rr @ h + cr)
    inner = reset * (rh @ h + ch) if o["linear_before_reset"] else rh @ (reset * h) + ch
    return ((1 - z) * g(wh @ x + bh + inner) + z * h,)


def lstm_step(o, w, r, b, states, x, functions):
    (h, c), p = states, split(o["peephole"], 3) if o["peephole"] is not None else [0, 0, 0]
    gates = w @ x + r @ h + (sum(split(b, 2)) if b is not None else 0)
    i, out, forget, cell = split(gates, 4)

    def bounded(f):
        limit = o["clip_threshold"]
        return (lambda x: f(np.clip(x, -limit, limit))) if o["use_clip_threshold"] else f

    f, g, last = map(bounded, functions)
    i = f(i + p[0] * c)
    forget = 1 - i if o["couple_input_forget"] else f(forget + p[2] * c)
    after = forget * c + i * g(cell)
    return f(out + p[1] * after) * last(after), after


STEPS = {"rnn": rnn_step, "gru": gru_step, "lstm": lstm_step}


def plain(kind, t, o):
    """The sequence, and the last states, in float64, each row of the batch alone."""
    t = {n: v if v is None or v.dtype == np.uint32 else v.astype(np.float64) for n, v in t.items()}
    _, steps, batch, _ = t["input"].shape
    both, hidden = t["recurrence"].shape[1], t["recurrence"].shape[3]
    starts = [t["hidden_init"], t["cell_mem_init"]][: 1 + (kind == "lstm")]
    sequence, lasts = np.zeros((steps, both, batch, hidden)), np.zeros((len(starts), 1, both, batch, hidden))
    count = len(USUAL[kind])
    for d, n in np.ndindex(both, batch):
        functions = [ACTIVATIONS[a][1] for a in o["activations"][d * count :][:count]]
        length = (
            steps if t["sequence_lengths"] is None else min(steps, int(t["sequence_lengths"][0, 0, 0, n]))
        )
        states = [np.zeros(hidden) if s is None or not length else s[0, d, n] for s in starts]
        order = range(length)
        if o["direction"] == "BACKWARD" or d:
            order = reversed(order)
        b, peephole = (None if t[name] is None else t[name][0, 0, d] for name in ("bias", "peephole"))
        for k in order:
            w, r, x = t["weight"][0, d], t["recurrence"][0, d], t["input"][0, k, n]
            states = STEPS[kind](o | {"peephole": peephole}, w, r, b, states, x, functions)
            sequence[k, d, n] = states[0]
        for last, state in zip(lasts, states, strict=True):
            last[0, d, n] = state
    return [sequence, *lasts]


def drawn(rng, kind, direction, dtype, some=0.6):
    """Tensors, of which those that may be are left out now and then, and options."""
    steps, batch, width, hidden = rng.integers(1, 6, 4).tolist()
    both, gates = 1 + (direction == "BIDIRECTIONAL"), GATES[kind]

    def tensor(*shape):
        return (rng.standard_normal(shape) * 0.8).astype(dtype)

    t = {
        "input": tensor(1, steps, batch, width),
        "weight": tensor(1, both, gates * hidden, width),
        "recurrence": tensor(1, both, gates * hidden, hidden),
        "bias": tensor(1, 1, both, 2 * gates * hidden),
        "hidden_init": tensor(1, both, batch, hidden),
        "sequence_lengths": rng.integers(0, steps + 1, (1, 1, 1, batch)).astype(np.uint32),
        "cell_mem_init": tensor(1, both, batch, hidden) if kind == "lstm" else None,
        "peephole": tensor(1, 1, both, 3 * hidden) if kind == "lstm" else None,
    }
    for name in list(t)[3:]:
        t[name] = t[name] if rng.random() < some else None
    o = {"direction": direction, "activations": USUAL[kind] * both}
    if kind == "gru":
        o["linear_before_reset"] = bool(rng.integers(2))
    if kind == "lstm":
        o |= {
            "couple_input_forget": bool(rng.integers(2)),
            "use_clip_threshold": False,
            "clip_threshold": 0.5,
        }
    return t, o


def arguments(kind, t, o, explicit=True):
    given = t | {n: v for n, v in o.items() if n != "activations"}
    given = {n: v for n, v in given.items() if kind == "lstm" or n not in ("cell_mem_init", "peephole")}
    return given | ({"activation_descs": [described(a) for a in o["activations"]]} if explicit else {})


def check(made, wanted, dtype, slack=3e-6):
    assert len(made) == len(wanted)
    for y, right in zip(made, wanted, strict=True):
        check_floats(y, dtype, right, slack * max(1, np.abs(right).max()))


# ---- tests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_usual_layers(routes, kind, direction, dtype):  # noqa: F811
    rng = np.random.default_rng([len(kind), DIRECTIONS.index(direction), len(dtype)])
    for trial in range(6):
        t, o = drawn(rng, kind, direction, dtype)
        given = arguments(kind, t, o, explicit=trial % 2)
        wanted = plain(kind, t, o)
        for made in routes(getattr(dml, kind), **given):
            check(made, wanted, dtype)
        elsewhere = {n: None if v is None else list(layouts(v))[trial % 3] for n, v in t.items()}
        for made in routes(getattr(dml, kind), **arguments(kind, elsewhere, o)):
            check(made, wanted, dtype)


@pytest.mark.drawn
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("kind", GATES)
def test_other_activations(monkeypatch, kind, name):
    """In each place of each direction; with small weights, since gates that have no bounds let errors grow."""
    rng = np.random.default_rng([len(kind), list(ACTIVATIONS).index(name)])
    for place in range(2 * len(USUAL[kind])):
        t, o = drawn(rng, kind, "BIDIRECTIONAL", "float32", some=0.8)
        o["activations"][place] = name
        t["weight"], t["recurrence"] = t["weight"] / 2, t["recurrence"] / 2
        for worth in (1 << 60, 1):
            monkeypatch.setattr("anydml.heavy.WORTH", worth)
            dml.eager_tensors.forget()
            check(getattr(dml, kind)(**arguments(kind, t, o)), plain(kind, t, o), "float32", 2e-6)
    dml.eager_tensors.forget()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_as_in_onnxruntime(kind, direction):
    """All but bounds, which are others there."""
    rng = np.random.default_rng([len(kind), DIRECTIONS.index(direction)])
    inputs = "input weight recurrence bias sequence_lengths hidden_init cell_mem_init peephole".split()
    for trial in range(4):
        t, o = drawn(rng, kind, direction, "float32", some=0.5 + trial)
        names = {"direction": IN_ONNX[direction], "hidden_size": t["recurrence"].shape[3]}
        if trial == 3:
            o["activations"] = ["HARD_SIGMOID", "ELU", "RELU"][: len(USUAL[kind])] * t["weight"].shape[1]
            onnx = {"HARD_SIGMOID": "HardSigmoid", "ELU": "Elu", "RELU": "Relu"}
            names["activations"] = [onnx[a] for a in o["activations"]]
            numbers = [ACTIVATIONS[a][0] for a in o["activations"]]
            names["activation_alpha"] = [n["Alpha"] for n in numbers if n]
            names["activation_beta"] = [n["Beta"] for n in numbers if "Beta" in n]
        names |= {"linear_before_reset": int(o["linear_before_reset"])} if kind == "gru" else {}
        names |= {"input_forget": int(o["couple_input_forget"])} if kind == "lstm" else {}
        given = [None if t[n] is None else t[n][0] for n in inputs[: 8 if kind == "lstm" else 6]]
        for k in (3, 7)[: 1 + (kind == "lstm")]:
            given[k] = None if given[k] is None else given[k][0]
        given[4] = None if given[4] is None else given[4].reshape(-1).astype(np.int32)
        sequence, *lasts = computed(kind.upper(), given, outputs=3 if kind == "lstm" else 2, **names)
        made = getattr(dml, kind)(**arguments(kind, t, o))
        check(made, [v.astype(np.float64) for v in (sequence, *(v[None] for v in lasts))], "float32", 5e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_bounds_of_lstm(direction):
    rng = np.random.default_rng(DIRECTIONS.index(direction))
    for bound in (0.0, 0.05, 0.5, 100.0):
        t, o = drawn(rng, "lstm", direction, "float32", some=0.8)
        o |= {"use_clip_threshold": True, "clip_threshold": bound}
        check(dml.lstm(**arguments("lstm", t, o)), plain("lstm", t, o), "float32")


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize(
    ("steps", "batch", "hidden", "taken"), [(15, 1, 1, False), (16, 1, 1, True), (1, 400, 64, True)]
)
def test_many_small_steps_are_the_librarys(monkeypatch, kind, steps, batch, hidden, taken):
    """And so are few large ones: rows are multiplied, too."""
    asked, implementation = [], library.implementation
    monkeypatch.setattr(library, "implementation", lambda *a: (asked.append(a), implementation(*a))[1])
    rng = np.random.default_rng(steps)
    shapes = {"input": (1, steps, batch, 2), "weight": (1, 1, GATES[kind] * hidden, 2)}
    shapes |= {"recurrence": (1, 1, GATES[kind] * hidden, hidden)}
    t = {n: rng.standard_normal(s).astype(np.float32) * np.float32(0.1) for n, s in shapes.items()}
    dml.eager_tensors._KNOWN.clear()
    made = getattr(dml, kind)(**t)
    assert bool(asked) is taken
    monkeypatch.setattr("anydml.heavy.WORTH", 1 << 60)
    dml.eager_tensors._KNOWN.clear()
    for y, wanted in zip(made, getattr(dml, kind)(**t), strict=True):
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)
    dml.eager_tensors._KNOWN.clear()


@pytest.mark.parametrize("kind", GATES)
def test_as_large_as_the_library_takes_by_itself(routes, kind):  # noqa: F811
    rng = np.random.default_rng(7)
    hidden, width, steps, batch = 128, 20, 70, 3
    shapes = {"input": (1, steps, batch, width), "weight": (1, 2, GATES[kind] * hidden, width)}
    shapes |= {"recurrence": (1, 2, GATES[kind] * hidden, hidden), "hidden_init": (1, 2, batch, hidden)}
    t = {n: (rng.standard_normal(s) * 0.1).astype(np.float32) for n, s in shapes.items()}
    lengths = np.uint32([[[[steps, 9, 0]]]])
    usual, large = routes(
        getattr(dml, kind), **t, sequence_lengths=lengths, direction="BIDIRECTIONAL", worth=None
    )
    for y, right in zip(large, usual, strict=True):
        np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("kind", GATES)
def test_lengths_beyond_the_sequence_and_great_numbers(routes, kind):  # noqa: F811
    t, o = drawn(np.random.default_rng(1), kind, "FORWARD", "float32", some=0)
    ones = np.ones((1, 1, GATES[kind], 1), np.float32)
    t |= {"input": np.float32([[[[1e30], [-1e30]], [[1], [1]]]]), "weight": ones, "recurrence": ones}
    t |= {"sequence_lengths": np.uint32([[[[2**31 - 1, 3]]]]), "hidden_init": None}
    with np.errstate(over="ignore"):
        wanted = plain(kind, t, o)
    for made in routes(getattr(dml, kind), **arguments(kind, t, o)):
        check(made, wanted, "float32")
