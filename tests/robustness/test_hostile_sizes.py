"""Models that ask for absurd sizes, when they run or while constants are folded; negative sizes, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import anydml
from tests.robustness.hostile import ANY_ERROR, EITHER, X, built, chain, limited, parsed, run, same, texts

HUGE = 1 << 40


def asks(text: str, **feeds: Any) -> None:
    """The size is known when the model is read, and then only when it runs: both must fail."""
    model = parsed(text)
    try:
        run(model, **feeds)
    except anydml.AnyDMLError:
        fixed = onnx.ModelProto()
        fixed.CopyFrom(model)
        kept = [i for i in fixed.graph.input if i.name not in feeds or feeds[i.name].dtype != np.int64]
        del fixed.graph.input[:]
        fixed.graph.input.extend(kept)
        ints = {n: v for n, v in feeds.items() if v.dtype == np.int64}
        fixed.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in ints.items())
        run(fixed, **{n: v for n, v in feeds.items() if n not in ints})
        raise AssertionError("the size that is a constant is taken") from None


ASKING: dict[str, tuple[str, dict[str, Any]]] = {
    "ConstantOfShape": ("(int64[1] n) => (y) { y = ConstantOfShape (n) }", {"n": [HUGE]}),
    "Expand": ("(float[N] x, int64[2] n) => (y) { y = Expand (x, n) }", {"x": X, "n": [HUGE, 3]}),
    "Tile": ("(float[N] x, int64[1] n) => (y) { y = Tile (x, n) }", {"x": X, "n": [HUGE]}),
    "Tile beyond int64": ("(float[N] x, int64[1] n) => (y) { y = Tile (x, n) }", {"x": X, "n": [2**62]}),
    "Range": ("(int64 a, int64 n, int64 d) => (y) { y = Range (a, n, d) }", {"a": 0, "n": HUGE, "d": 1}),
    "Pad": ("(float[N] x, int64[2] n) => (y) { y = Pad (x, n) }", {"x": X, "n": [HUGE, HUGE]}),
    "OneHot": (
        "(float[N] x, int64 n, float[2] v) => (y) { y = OneHot (x, n, v) }",
        {"x": X, "n": HUGE, "v": X[:2]},
    ),
}


@pytest.mark.parametrize("name", ASKING)
@limited("ExecutionFailed", "InvalidModel")
def test_huge_sizes_that_are_given(name: str) -> None:
    text, feeds = ASKING[name]
    asks(f"m {text}", **{n: np.asarray(v) for n, v in feeds.items()})


@limited("ExecutionFailed", "InvalidModel")
def test_range_of_tiny_steps() -> None:
    text = "m (double a, double n, double d) => (y) { y = Range (a, n, d) }"
    run(parsed(text), a=np.array(0.0), n=np.array(1e300), d=np.array(1e-300))


@limited("ExecutionFailed", "InvalidModel")
def test_resize_huge() -> None:
    text = "m (float[1, 1, H, W] x, float[4] s) => (y) { y = Resize (x, , s) }"
    run(parsed(text, 18), x=np.ones((1, 1, 4, 4), np.float32), s=np.array([1, 1, 1e6, 1e6], np.float32))


@limited(*ANY_ERROR)
def test_random_huge() -> None:
    run(built([helper.make_node("RandomNormal", [], ["y"], shape=[1 << 20, 1 << 20])], []))


@limited(*EITHER)
def test_eye_like_huge() -> None:
    run(built([helper.make_node("EyeLike", ["x"], ["y"], k=2**62)]), x=np.ones((2, 2), np.float32))


@limited(*EITHER)
def test_top_k_huge() -> None:
    asks("m (float[N] x, int64[1] n) => (y, i) { y, i = TopK (x, n) }", x=X, n=np.array([2**62]))


# ---- folding -----------------------------------------------------------------------------------------


@limited(*EITHER)
def test_a_large_constant_of_which_only_the_shape_is_used() -> None:
    text = """m (float[N] x) => (y) { n = Constant <value_ints = [16384, 16384]> ()
        b = ConstantOfShape (n)  r = Constant <value_ints = [4, 1]> ()  t = Tile (b, r)  y = Shape (t) }"""
    same(run(parsed(text), x=X)[0], [65536, 16384])


def growing(count: int) -> onnx.ModelProto:
    """Each Tile is ten times as large."""
    nodes = [helper.make_node("Constant", [], ["n"], value_ints=[10])]
    nodes += [helper.make_node("Tile", [f"v{k}", "n"], [f"v{k + 1}"]) for k in range(count)]
    nodes += [helper.make_node("ReduceSum", [f"v{count}"], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    return built(nodes, weights=[numpy_helper.from_array(np.array([1], np.float32), "v0")])


@limited(*EITHER)
def test_constants_that_grow_flattened() -> None:
    """To fold them all takes 10 ^ 9 elements."""
    anydml.flatten(growing(9), verify=False)


@limited(*ANY_ERROR)
def test_constants_that_grow_beyond_memory() -> None:
    run(growing(12), x=X)


def doubled_strings(count: int) -> onnx.ModelProto:
    nodes = chain("StringConcat", count, "Identity", operands=2)
    return built(nodes, [], weights=[texts("v0", b"ha")], opset=20)


@limited(seconds=20)
def test_strings_that_double() -> None:
    """One element, of 2 ^ 25 bytes: small by its sizes only. More would take what it takes."""
    run(doubled_strings(24))


@limited(*EITHER, seconds=20)
def test_strings_that_double_flattened() -> None:
    anydml.flatten(doubled_strings(40), verify=False)


@pytest.mark.parametrize("flat", [False, True])
@limited(*EITHER)
def test_a_slow_regular_expression(flat: bool) -> None:
    node = helper.make_node("RegexFullMatch", ["w"], ["y"], pattern="(a+)+b")
    model = built([node], [], weights=[texts("w", b"a" * 40)], opset=20)
    anydml.flatten(model, verify=False) if flat else run(model)


@limited(*EITHER)
def test_numbers_that_square() -> None:
    """A size times itself, sixty times, known and not known."""
    model = built([helper.make_node("Size", ["x"], ["v0"]), *chain("Mul", 60, "Identity", operands=2)])
    run(model, x=X)
    anydml.flatten(model, verify=False)
    assert run(model, x=X)[0].dtype == np.int64


def of_two_sizes(nodes: list[NodeProto]) -> None:
    """Flattened and run: nodes that read `v0` and `v1`, which are unknown."""
    sizes = [helper.make_node("Size", [n], [f"v{k}"]) for k, n in enumerate("xz")]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [n.upper()]) for n in "xz"]
    model = built([*sizes, *nodes], inputs)
    anydml.flatten(model, verify=False)
    run(model, x=X, z=X)


@limited(*EITHER)
def test_sizes_that_add_up() -> None:
    """Sums of two different unknown sizes, each the sum of those before."""
    nodes = [helper.make_node("Add", [f"v{k}", f"v{k + 1}"], [f"v{k + 2}"]) for k in range(300)]
    of_two_sizes([*nodes, helper.make_node("Identity", ["v301"], ["y"])])


@limited(*EITHER)
def test_sizes_that_multiply() -> None:
    """Products of sums of unknown sizes, whose terms would double each time."""
    both = helper.make_node("Add", ["v0", "v1"], ["w0"])
    of_two_sizes([both, *chain("Mul", 40, "Identity", "w", operands=2)])


# ---- odd sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[-3], [2**62, 2**62, 2**62]], ids=str)
@limited(*ANY_ERROR)
def test_an_initializer_of_impossible_sizes(sizes: list[int]) -> None:
    weight = TensorProto(name="w", data_type=1, dims=sizes, raw_data=b"")
    run(built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]), x=X)


@limited(*EITHER)
def test_an_initializer_of_huge_empty_sizes() -> None:
    """No elements, but a size beside it that no library counts with."""
    weight = TensorProto(name="w", data_type=1, dims=[0, 2**62, 2**62], raw_data=b"")
    run(built([helper.make_node("Shape", ["w"], ["y"])], weights=[weight]), x=X)


@limited(*ANY_ERROR)
def test_an_initializer_of_a_thousand_axes() -> None:
    weight = TensorProto(name="w", data_type=1, dims=[1] * 1000, raw_data=X[:1].tobytes())
    run(built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]), x=X)


DECLARED = {
    "negative": [-1],
    "beyond int64": [2**62, 2**62],
    "empty": [0, 2**62],
    "a thousand axes": [1] * 1000,
    "the largest": [2**63 - 1],
}
USES: dict[str, Callable[[onnx.ModelProto], object]] = {
    "run": lambda m: run(m, x=X),
    "flatten": lambda m: anydml.flatten(m, verify=False),
    "verify": anydml.flatten,
    "inspect": anydml.inspect,
}


@pytest.mark.parametrize("sizes", DECLARED)
@pytest.mark.parametrize("use", USES)
@limited(*EITHER)
def test_inputs_declared_with_absurd_sizes(sizes: str, use: str) -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, DECLARED[sizes])
    nodes = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Shape", ["y"], ["s"])]
    USES[use](built(nodes, [info]))


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("ConstantOfShape (n)", [-5]),
        ("Expand (x, n)", [-5]),
        ("Reshape (x, n)", [-1, -1]),
        ("Reshape (x, n)", [2**62, 4]),
        ("Tile (x, n)", [-1]),
        ("Pad (x, n)", [-5, -5]),
        ("Pad (x, n)", [2**63 - 1, 2**63 - 1]),
        ("Slice (x, n, n, n, n)", [-(2**63)]),
        ("Gather (x, n)", [2**62]),
        ("TopK (x, n)", [-1]),
    ],
)
@limited(*EITHER, "AssertionError")
def test_shapes_that_are_negative_when_it_runs(text: str, n: list[int]) -> None:
    """Constant ones may be taken."""
    asks(f"m (float[N] x, int64[M] n) => (y) {{ y = {text} }}", x=X, n=np.array(n))
