"""Models whose structure is absurd: depths, numbers of things, names, functions, loops."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import anydml
from tests.robustness.hostile import (
    ANY_ERROR,
    COND,
    EITHER,
    FLOATS,
    X,
    built,
    chain,
    limited,
    parsed,
    run,
    same,
    texts,
)

# ---- depth -------------------------------------------------------------------------------------------


def named(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])


def _part(number: int, content: bytes) -> bytes:
    """A field of protobuf: number, length, content."""
    length, size = len(content), bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    size.append(length)
    return bytes([number << 3 | 2]) + bytes(size) + content


def _deep(depth: int) -> bytes:
    """Ifs in the then-branches of Ifs, as bytes: no message class could make them."""
    graph = _part(1, _part(1, b"x") + _part(2, b"y") + _part(4, b"Neg")) + _part(12, _part(1, b"y"))
    other = graph
    for _ in range(depth):
        branches = b"".join(
            _part(5, _part(1, name) + _part(6, g) + b"\xa0\x01\x05")  # with its type: a graph
            for name, g in ((b"then_branch", graph), (b"else_branch", other))
        )
        node = _part(1, _part(1, b"c") + _part(2, b"y") + _part(4, b"If") + branches)
        graph = node + _part(12, _part(1, b"y"))
    inputs = b"".join(_part(11, i.SerializeToString()) for i in (COND, FLOATS))
    return b"\x08\x08" + _part(7, graph + inputs) + _part(8, _part(1, b"") + b"\x10\x11")


@limited("InvalidModel", seconds=20)
def test_nested_ifs() -> None:
    anydml.load(_deep(10_000))


@limited()
def test_ifs_as_deep_as_protobuf_reads() -> None:
    same(run(_deep(24), c=np.array(True), x=X)[0], -X)


@limited(*EITHER, seconds=20)
def test_ifs_nested_in_memory() -> None:
    """Messages made in memory may be deeper than any file."""
    model = built([], [COND, FLOATS])
    graph = model.graph
    for _ in range(400):
        node = graph.node.add(op_type="If", input=["c"], output=["y"])
        other, inner = (node.attribute.add(name=n, type=5).g for n in ("else_branch", "then_branch"))
        for end in (other, inner):
            end.output.add(name="y")
        other.node.add(op_type="Abs", input=["x"], output=["y"])
        graph = inner
    graph.node.add(op_type="Neg", input=["x"], output=["y"])
    run(model, c=np.array(True), x=X)


@limited(*EITHER)
def test_sequences_of_sequences() -> None:
    """A type as deep as protobuf reads."""
    info = onnx.ValueInfoProto(name="s")
    kind = info.type
    for _ in range(40):
        kind = kind.sequence_type.elem_type
    kind.tensor_type.elem_type = 1
    run(built([helper.make_node("Identity", ["s"], ["y"])], [info]).SerializeToString(), s=[])


# ---- functions ---------------------------------------------------------------------------------------


def _functions(*bodies: tuple[str, str]) -> ModelProto:
    texts = [f'<opset_import: ["": 17, "own": 1], domain: "own"> {n} (a) => (b) {{ {b} }}' for n, b in bodies]
    return parsed("m (float[N] x) => (float[N] y) { y = own.f (x) }" + "\n".join(texts))


@limited(*ANY_ERROR)
def test_function_that_calls_itself() -> None:
    run(_functions(("f", "b = own.f (a)")), x=X)


@limited(*ANY_ERROR)
def test_functions_that_call_each_other() -> None:
    run(_functions(("f", "b = own.g (a)"), ("g", "b = own.f (a)")), x=X)


_IS_3 = "n = Size (a) k = Constant <value_int = 3> () c = Equal (n, k) "
_IF = "b = If (c) <then_branch = t () => (p) {{ p = {} (a) }}, else_branch = e () => (q) {{ q = Abs (a) }}>"


@limited(*ANY_ERROR)
def test_functions_that_call_each_other_flattened() -> None:
    anydml.flatten(_functions(("f", _IS_3 + _IF.format("own.g")), ("g", _IS_3 + _IF.format("own.f"))))


_LAUGHING: dict[str, Callable[[], object]] = {
    "run": lambda: run(_laughs(20, "b = Neg (a)"), x=X),
    "flattened with an If at the bottom": lambda: anydml.flatten(_laughs(20, _IS_3 + _IF.format("Neg"))),
    "inspected": lambda: anydml.inspect(_laughs(20, "b = Neg (a)")),
}


@pytest.mark.parametrize("use", _LAUGHING)
@limited(*ANY_ERROR)
def test_billion_laughs(use: str) -> None:
    """Twenty functions, each of which calls the one before ten times."""
    _LAUGHING[use]()


def _laughs(depth: int, bottom: str) -> ModelProto:
    bodies = [("f0", bottom)]
    for k in range(1, depth):
        calls = [f"v{j} = own.f{k - 1} ({f'v{j - 1}' if j else 'a'})" for j in range(10)]
        bodies.append((f"f{k}", " ".join(calls) + " b = Identity (v9)"))
    bodies.append(("f", f"b = own.f{depth - 1} (a)"))
    return _functions(*bodies)


@limited()
def test_functions_in_a_row() -> None:
    bodies = [(f"f{k}", f"b = own.f{k + 1} (a)") for k in range(200)]
    same(run(_functions(("f", "b = own.f0 (a)"), *bodies, ("f200", "b = Neg (a)")), x=X)[0], -X)


# ---- numbers of things -------------------------------------------------------------------------------


@pytest.mark.long
@limited(seconds=60, megabytes=2048)
def test_a_chain_of_40000_nodes() -> None:
    same(run(built(chain("Neg", 40_000, "Abs", "x"), [named("x0")]), x0=X)[0], abs(X))


@limited(seconds=60, megabytes=2048)
def test_a_chain_of_10000_nodes_flattened() -> None:
    anydml.flatten(built(chain("Neg", 10_000, "Abs", "x"), [named("x0")]), verify=False)


@limited(*EITHER, seconds=30)
def test_a_node_of_100000_inputs() -> None:
    same(run(built([helper.make_node("Sum", ["x"] * 100_000, ["y"])]), x=X)[0], X * 100_000)


@limited(*EITHER, seconds=30)
def test_a_node_of_10000_outputs() -> None:
    names = [f"y{k}" for k in range(10_000)]  # onnxruntime takes their square
    split = helper.make_node("Split", ["x"], names, axis=0)
    run(built([split], outputs=names[:1], opset=13), x=np.ones(10_000, np.float32))


@limited(seconds=30)
def test_initializers_50000() -> None:
    weights = [numpy_helper.from_array(np.array([k], np.float32), f"w{k}") for k in range(50_000)]
    same(run(built([helper.make_node("Add", ["x", "w7"], ["y"])], weights=weights), x=X)[0], X + 7)


@limited(seconds=30)
def test_inputs_20000() -> None:
    inputs = [named(f"i{k}") for k in range(20_000)]
    feeds = {i.name: X[:1] for i in inputs}
    same(run(built([helper.make_node("Neg", ["i3"], ["y"])], inputs), **feeds)[0], -X[:1])


def ifs_in_a_row(count: int, inner: str, other: str) -> ModelProto:
    """Each reads what the one before made; `inner` names the results in branches."""
    nodes: list[NodeProto] = []
    for k in range(count):
        end = inner.format(k)
        then, otherwise = (
            helper.make_graph(
                [helper.make_node(op, [f"v{k}" if k else "x"], [end])],
                "g",
                [],
                [onnx.ValueInfoProto(name=end)],
            )
            for op in ("Neg", other)
        )
        nodes.append(helper.make_node("If", ["c"], [f"v{k + 1}"], then_branch=then, else_branch=otherwise))
    return built([*nodes, helper.make_node("Abs", [f"v{count}"], ["y"])], [COND, FLOATS])


@limited(seconds=30)
def test_ifs_in_a_row_2000() -> None:
    """Whose branches all use the same names."""
    same(run(ifs_in_a_row(2000, "same", "Identity"), c=np.array(True), x=X)[0], abs(X))


@limited(*EITHER, seconds=60)
def test_ifs_in_a_row_300_flattened() -> None:
    anydml.flatten(ifs_in_a_row(300, "o{}", "Exp"), convert="always", verify=False)


@limited(*EITHER)
def test_a_name_of_10_megabytes() -> None:
    name = "n" * 10_000_000
    run(built([helper.make_node("Neg", ["x"], [name]), helper.make_node("Abs", [name], ["y"])]), x=X)


@limited(*EITHER, seconds=20, megabytes=1500)
def test_a_string_of_100_megabytes() -> None:
    weight = texts("w", b"s" * 100_000_000)
    (y,) = run(built([helper.make_node("Identity", ["w"], ["y"])], [], weights=[weight]))
    assert len(y[0]) == 100_000_000


# ---- names and order ---------------------------------------------------------------------------------


@limited("InvalidModel")
def test_duplicate_names() -> None:
    anydml.load(built([helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]))


@limited("InvalidModel")
def test_a_cycle() -> None:
    anydml.load(built([helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Abs", ["y"], ["a"])]))


@limited("InvalidModel")
def test_a_branch_that_needs_its_own_result() -> None:
    anydml.load(
        parsed("""m (bool c, float[N] x) => (float[N] y) { y = If (c) <
            then_branch = t () => (p) { p = Neg (y) }, else_branch = e () => (q) { q = Abs (x) }> }""")
    )


@limited(seconds=60)
def test_truncated_at_every_length() -> None:
    """Each is refused, or is by chance a smaller model, which runs or says why not."""
    model = parsed("""m (bool c, float[N] x) => (float[N] y) { w = Exp (x) y = If (c) <
        then_branch = t () => (p) { p = Neg (w) }, else_branch = e () => (q) { q = Abs (x) }> }""")
    data = model.SerializeToString()
    for size in range(len(data)):
        try:
            session = anydml.load(data[:size], threads=1)
            session.run(None, {i.name: X if i.name == "x" else np.array(True) for i in session.get_inputs()})
        except anydml.AnyDMLError:
            continue


# ---- loops -------------------------------------------------------------------------------------------

_LOOP = """m (int64 n, float[N] x) => (float[N] y) {{
    go = Constant <value_int = 1> ()  more = Cast <to = 9> (go)  five = Constant <value_int = 5> ()
    y = Loop (n, more, x) <body = b (int64 i, bool k, float[N] s) => (bool k1, float[N] s1) {{
        k1 = {again}  s1 = {step} }}> }}"""
_STEP = """If (k) <then_branch = t () => (p) { p = Neg (s) }, else_branch = e () => (q) { q = Abs (s) }>"""


STEPS = {"a library": "Neg (s)", "an If": _STEP}


@pytest.mark.parametrize("step", STEPS)
@limited()
def test_a_loop_of_many_trips_that_ends(step: str) -> None:
    text = _LOOP.format(again="Less (i, five)", step=STEPS[step])
    same(run(parsed(text), n=np.array(2**62), x=X)[0], X)


@pytest.mark.parametrize("native", [None, False])
@pytest.mark.parametrize("step", STEPS)
@limited("KeyboardInterrupt", *ANY_ERROR, seconds=10)
def test_an_endless_loop_interrupted(step: str, native: bool | None) -> None:
    """A program runs it, or a library as a whole, or not; Ctrl-C comes two seconds after it began."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text = _LOOP.format(again="Identity (k)", step=STEPS[step])
    session = anydml.load(parsed(text), threads=1, native=native)
    for _ in range(3):
        session.run(None, {"n": np.array(3), "x": X})
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        session.run(None, {"n": np.array(2**62), "x": X})
    finally:
        timer.cancel()


@limited(*EITHER, seconds=20)
def test_an_endless_loop_flattened() -> None:
    """Its trip count is known: whatever follows constants must not run it."""
    text = _LOOP.format(again="Identity (k)", step=_STEP).replace("int64 n, ", "")
    many = "n = Constant <value_int = 4611686018427387904> ()  go = "
    anydml.flatten(parsed(text.replace("go = ", many, 1)), verify=False)


# ---- others ------------------------------------------------------------------------------------------


@limited(*EITHER)
def test_lstm_of_no_rows() -> None:
    text = """m (float[T, B, 2] x, float[1, 4, 2] w, float[1, 4, 1] r) => (y, h, c) {
        y, h, c = LSTM <hidden_size = 1> (x, w, r) }"""
    shapes = {"x": (3, 0, 2), "w": (1, 4, 2), "r": (1, 4, 1)}
    run(parsed(text), **{n: np.ones(s, np.float32) for n, s in shapes.items()})


@pytest.mark.parametrize(
    ("x", "w"),
    [((0, 1, 3, 3), (1, 1, 2, 2)), ((1, 0, 3, 3), (1, 0, 2, 2)), ((1, 1, 0, 0), (1, 1, 2, 2))],
    ids=str,
)
@limited(*EITHER)
def test_convolution_of_nothing(x: tuple[int, ...], w: tuple[int, ...]) -> None:
    text = "m (float[A, B, C, D] x, float[E, F, G, H] w) => (y) { y = Conv (x, w) }"
    run(parsed(text), x=np.ones(x, np.float32), w=np.ones(w, np.float32))


NAN = float("nan")


@pytest.mark.drawn
@pytest.mark.parametrize("opset", [6, 17])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("LeakyRelu", {"alpha": NAN}),
        ("Elu", {"alpha": float("inf")}),
        ("HardSigmoid", {"alpha": NAN, "beta": NAN}),
        ("Clip", {"min": NAN, "max": NAN}),
        ("LRN", {"size": 3, "alpha": NAN}),
        ("RandomNormalLike", {"scale": NAN, "seed": NAN}),
        ("Bernoulli", {"seed": NAN}),
        ("LpNormalization", {"p": 2**62}),
        ("Multinomial", {"sample_size": -1}),
    ],
    ids=str,
)
@limited(*EITHER)
def test_attributes_that_are_no_numbers(op: str, attributes: dict[str, Any], flat: bool, opset: int) -> None:
    """Whatever they mean, the process lives."""
    model = built([helper.make_node(op, ["x"], ["y"], **attributes)], opset=opset)
    anydml.flatten(model) if flat else run(model, x=X)


@limited(seconds=60)
def test_silero_with_a_constant_rate() -> None:
    """The model of the package silero-vad, where it is installed, whose sample rate is an initializer."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        return
    model = onnx.load(Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx")
    feeds = {"input": np.zeros((1, 576), np.float32), "state": np.zeros((2, 1, 128), np.float32)}
    (wanted, _) = run(model, sr=np.array(16000), **feeds)
    kept = [i for i in model.graph.input if i.name != "sr"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.append(numpy_helper.from_array(np.array(16000), "sr"))
    (got, _) = run(model, **feeds)
    assert np.allclose(got, wanted, atol=1e-6)
    flat, report = anydml.flatten(model, trials=2)
    assert report.left == 0
    assert np.allclose(run(flat, **feeds)[0], wanted, atol=1e-6)
