"""Models that ask for absurd sizes, when they run or while constants are folded; negative sizes, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydml
from abuse.nasty_entry import ANY_ERROR, EITHER, nasty
from abuse.nasty_models import X, built, parsed, run, same, texts

HUGE = 1 << 40


def _asks(text: str, opset: int = 17, **feeds: Any) -> None:
    """The size is known when the model is read, and then only when it runs: both must fail."""
    model = parsed(text, opset)
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


@nasty("ExecutionFailed", "InvalidModel")
def constant_of_shape_huge() -> None:
    _asks("m (int64[1] n) => (y) { y = ConstantOfShape (n) }", n=np.array([HUGE]))


@nasty("ExecutionFailed", "InvalidModel")
def expand_huge() -> None:
    _asks("m (float[N] x, int64[2] n) => (y) { y = Expand (x, n) }", x=X, n=np.array([HUGE, 3]))


@nasty("ExecutionFailed", "InvalidModel")
def tile_huge() -> None:
    _asks("m (float[N] x, int64[1] n) => (y) { y = Tile (x, n) }", x=X, n=np.array([HUGE]))


@nasty("ExecutionFailed", "InvalidModel")
def tile_beyond_int64() -> None:
    _asks("m (float[N] x, int64[1] n) => (y) { y = Tile (x, n) }", x=X, n=np.array([2**62]))


@nasty("ExecutionFailed", "InvalidModel")
def range_huge() -> None:
    text = "m (int64 a, int64 n, int64 d) => (y) { y = Range (a, n, d) }"
    _asks(text, a=np.array(0), n=np.array(HUGE), d=np.array(1))


@nasty("ExecutionFailed", "InvalidModel")
def range_of_tiny_steps() -> None:
    text = "m (double a, double n, double d) => (y) { y = Range (a, n, d) }"
    run(parsed(text), a=np.array(0.0), n=np.array(1e300), d=np.array(1e-300))


@nasty("ExecutionFailed", "InvalidModel")
def resize_huge() -> None:
    text = "m (float[1, 1, H, W] x, float[4] s) => (y) { y = Resize (x, , s) }"
    run(parsed(text, 18), x=np.ones((1, 1, 4, 4), np.float32), s=np.array([1, 1, 1e6, 1e6], np.float32))


@nasty("ExecutionFailed", "InvalidModel")
def pad_huge() -> None:
    _asks("m (float[N] x, int64[2] n) => (y) { y = Pad (x, n) }", x=X, n=np.array([HUGE, HUGE]))


@nasty("ExecutionFailed", "InvalidModel")
def one_hot_huge() -> None:
    text = "m (float[N] x, int64 n, float[2] v) => (y) { y = OneHot (x, n, v) }"
    _asks(text, x=X, n=np.array(HUGE), v=X[:2])


@nasty(*ANY_ERROR)
def random_huge() -> None:
    run(built([helper.make_node("RandomNormal", [], ["y"], shape=[1 << 20, 1 << 20])], []))


@nasty(*EITHER)
def eye_like_huge() -> None:
    run(built([helper.make_node("EyeLike", ["x"], ["y"], k=2**62)]), x=np.ones((2, 2), np.float32))


@nasty(*EITHER)
def top_k_huge() -> None:
    _asks("m (float[N] x, int64[1] n) => (y, i) { y, i = TopK (x, n) }", x=X, n=np.array([2**62]))


# ---- folding -----------------------------------------------------------------------------------------


@nasty(*EITHER)
def a_large_constant_of_which_only_the_shape_is_used() -> None:
    text = """m (float[N] x) => (y) { n = Constant <value_ints = [16384, 16384]> ()
        b = ConstantOfShape (n)  r = Constant <value_ints = [4, 1]> ()  t = Tile (b, r)  y = Shape (t) }"""
    same(run(parsed(text), x=X)[0], [65536, 16384])


@nasty(*EITHER)
def constants_that_grow_flattened() -> None:
    """Each Tile is ten times as large: to fold them all takes 10 ^ 9 elements."""
    nodes = [helper.make_node("Constant", [], ["n"], value_ints=[10])]
    nodes += [helper.make_node("Tile", [f"v{k}" if k else "w", "n"], [f"v{k + 1}"]) for k in range(9)]
    nodes += [helper.make_node("ReduceSum", ["v9"], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    weight = numpy_helper.from_array(np.array([1], np.float32), "w")
    anydml.flatten(built(nodes, weights=[weight]), verify=False)


@nasty(*ANY_ERROR, seconds=10)
def constants_that_grow_beyond_memory() -> None:
    nodes = [helper.make_node("Constant", [], ["n"], value_ints=[10])]
    nodes += [helper.make_node("Tile", [f"v{k}" if k else "w", "n"], [f"v{k + 1}"]) for k in range(12)]
    nodes += [helper.make_node("ReduceSum", ["v12"], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    weight = numpy_helper.from_array(np.array([1], np.float32), "w")
    run(built(nodes, weights=[weight]), x=X)


def _doubled_strings(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("StringConcat", [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(count)]
    nodes.append(helper.make_node("Identity", [f"v{count}"], ["y"]))
    return built(nodes, [], weights=[texts("v0", b"ha")], opset=20)


@nasty(seconds=20)
def strings_that_double() -> None:
    """One element, of 2 ^ 25 bytes: small by its sizes only. More would take what it takes."""
    run(_doubled_strings(24))


@nasty(*EITHER, seconds=20)
def strings_that_double_flattened() -> None:
    anydml.flatten(_doubled_strings(40), verify=False)


@nasty(*EITHER)
def a_slow_regular_expression_flattened() -> None:
    node = helper.make_node("RegexFullMatch", ["w"], ["y"], pattern="(a+)+b")
    weight = texts("w", b"a" * 40)
    anydml.flatten(built([node], [], weights=[weight], opset=20), verify=False)


@nasty(*EITHER)
def a_slow_regular_expression() -> None:
    node = helper.make_node("RegexFullMatch", ["w"], ["y"], pattern="(a+)+b")
    weight = texts("w", b"a" * 40)
    run(built([node], [], weights=[weight], opset=20))


@nasty(*EITHER)
def numbers_that_square() -> None:
    """A size times itself, sixty times, known and not known."""
    nodes = [helper.make_node("Size", ["x"], ["v0"])]
    nodes += [helper.make_node("Mul", [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(60)]
    nodes.append(helper.make_node("Identity", ["v60"], ["y"]))
    model = built(nodes)
    for use in (lambda: run(model, x=X), lambda: anydml.flatten(model, verify=False)):
        use()
    assert run(model, x=X)[0].dtype == np.int64


@nasty(*EITHER)
def sizes_that_add_up() -> None:
    """Sums of two different unknown sizes, each the sum of those before."""
    nodes = [helper.make_node("Size", [n], [f"v{k}"]) for k, n in enumerate(("x", "z"))]
    nodes += [helper.make_node("Add", [f"v{k}", f"v{k + 1}"], [f"v{k + 2}"]) for k in range(300)]
    nodes.append(helper.make_node("Identity", ["v301"], ["y"]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [n.upper()]) for n in "xz"]
    anydml.flatten(built(nodes, inputs), verify=False)
    run(built(nodes, inputs), x=X, z=X)


@nasty(*EITHER)
def sizes_that_multiply() -> None:
    """Products of sums of unknown sizes, whose terms would double each time."""
    nodes = [helper.make_node("Size", [n], [f"s{k}"]) for k, n in enumerate(("x", "z"))]
    nodes.append(helper.make_node("Add", ["s0", "s1"], ["v0"]))
    nodes += [helper.make_node("Mul", [f"v{k}", f"v{k}"], [f"v{k + 1}"]) for k in range(40)]
    nodes.append(helper.make_node("Identity", ["v40"], ["y"]))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [n.upper()]) for n in "xz"]
    anydml.flatten(built(nodes, inputs), verify=False)
    run(built(nodes, inputs), x=X, z=X)


# ---- odd sizes ---------------------------------------------------------------------------------------


@nasty(*ANY_ERROR)
def an_initializer_of_negative_size() -> None:
    weight = TensorProto(name="w", data_type=1, dims=[-3], raw_data=b"")
    run(built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]), x=X)


@nasty(*ANY_ERROR)
def an_initializer_of_sizes_beyond_64_bits() -> None:
    weight = TensorProto(name="w", data_type=1, dims=[2**62, 2**62, 2**62], raw_data=b"")
    run(built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]), x=X)


@nasty(*EITHER)
def an_initializer_of_huge_empty_sizes() -> None:
    """No elements, but a size beside it that no library counts with."""
    weight = TensorProto(name="w", data_type=1, dims=[0, 2**62, 2**62], raw_data=b"")
    run(built([helper.make_node("Shape", ["w"], ["y"])], weights=[weight]), x=X)


@nasty(*ANY_ERROR)
def an_initializer_of_a_thousand_axes() -> None:
    weight = TensorProto(name="w", data_type=1, dims=[1] * 1000, raw_data=X[:1].tobytes())
    run(built([helper.make_node("Add", ["x", "w"], ["y"])], weights=[weight]), x=X)


@nasty(*EITHER)
def inputs_declared_with_absurd_sizes() -> None:
    for sizes in ([-1], [2**62, 2**62], [0, 2**62], [1] * 1000, [2**63 - 1]):
        info = helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)
        model = built(
            [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Shape", ["y"], ["s"])], [info]
        )
        for use in (
            lambda m: run(m, x=X),
            lambda m: anydml.flatten(m, verify=False),
            lambda m: anydml.flatten(m),
            lambda m: anydml.inspect(m),
        ):
            try:
                use(model)
            except anydml.AnyDMLError:
                continue


@nasty(*EITHER)
def shapes_that_are_negative_when_it_runs() -> None:
    for text, n in (
        ("y = ConstantOfShape (n)", [-5]),
        ("y = Expand (x, n)", [-5]),
        ("y = Reshape (x, n)", [-1, -1]),
        ("y = Reshape (x, n)", [2**62, 4]),
        ("y = Tile (x, n)", [-1]),
        ("y = Pad (x, n)", [-5, -5]),
        ("y = Pad (x, n)", [2**63 - 1, 2**63 - 1]),
        ("y = Slice (x, n, n, n, n)", [-(2**63)]),
        ("y = Gather (x, n)", [2**62]),
        ("y = TopK (x, n)", [-1]),
    ):
        try:
            _asks(f"m (float[N] x, int64[M] n) => (y) {{ {text} }}", x=X, n=np.array(n))
        except (anydml.AnyDMLError, AssertionError):
            continue
