"""Elements in orders of their own, in programs: every other one, backwards, repeated, rows after rows."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.onnx.test_native import agree, numbers

TYPES = ["float32", "float64", "float16", "int64", "uint8", "bool"]


def moved(dtype, sizes, weights, *nodes):
    """A model of nodes on x, in the last of which nothing is left but elements."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        list(nodes),
        "orders",
        [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()],
    )
    graph.output[0].type.tensor_type.ClearField("shape")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def given(dtype, sizes):
    drawn = numbers(*sizes) * 10
    return drawn > 0 if dtype == "bool" else np.abs(drawn).astype(dtype)


def check(dtype, sizes, weights, *nodes):
    agree(moved(dtype, sizes, weights, *nodes), {"x": given(dtype, sizes)})


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("step", [2, 3, 4, 5, 7, -1, -2, -3, -5])
@pytest.mark.parametrize("size", [17, 35, 131])
@pytest.mark.drawn
def test_so_many_apart(dtype, step, size):
    """The last vector begins earlier, and none reaches beyond the last element."""
    weights = {"a": [-1 if step < 0 else 0], "b": [-(2**31) if step < 0 else 2**31], "k": [1], "s": [step]}
    node = helper.make_node("Slice", ["x", "a", "b", "k", "s"], ["z"])
    check(dtype, (3, size), weights, node)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "order",
    [
        np.repeat(np.arange(9), 2),
        np.repeat(np.arange(11), 3),
        np.arange(40) * 2 // 3,
        np.tile(np.arange(7), 5),
        np.roll(np.arange(33), 5),
        np.arange(32).reshape(2, 16).T.ravel(),
        np.arange(48).reshape(16, 3)[:, ::-1].ravel(),
        np.r_[np.arange(20), np.arange(20)[::-1]],
        np.random.default_rng(3).permutation(60),
        np.random.default_rng(4).integers(0, 200, 250),
    ],
    ids=range(10),
)
def test_in_any_order(dtype, order):
    node = helper.make_node("Gather", ["x", "order"], ["z"], axis=-1)
    check(dtype, (2, 3, int(order.max()) + 1), {"order": order}, node)


@pytest.mark.parametrize("wanted", [(2, 2), (3, 1), (1, 4), (9, 16), (16, 7)])
@pytest.mark.parametrize("sizes", [(2, 3, 9, 11), (1, 1, 2, 5), (1, 20, 4, 3), (1, 2, 24, 40)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.drawn
def test_resized(wanted, sizes, mode):
    """By factors, and to sizes; also behind a convolution, which leaves channels beside each other."""
    weights = {"scales": np.array([1, 1, *wanted], np.float32)}
    told = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    names = ["x", "", "scales"]
    if max(wanted) > 4:
        weights = {"sizes": [*sizes[:2], *wanted]}
        names, told = ["x", "", "", "sizes"], {"coordinate_transformation_mode": "half_pixel"}
    node = helper.make_node("Resize", names, ["z"], mode=mode, **told)
    agree(moved("float32", sizes, weights, node), {"x": numbers(*sizes)}, rtol=1e-5, atol=3e-5)
    weights["w"] = numbers(20, sizes[1], 1, 1)
    weights |= {"sizes": [sizes[0], 20, *wanted]} if "sizes" in weights else {}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), node]
    nodes[1].input[0] = "y"
    agree(moved("float32", sizes, weights, *nodes), {"x": numbers(*sizes)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sizes", [(4, 9), (3, 5, 6), (2, 2, 3, 8)])
@pytest.mark.parametrize("repeats", [2, 3])
def test_tiled(sizes, repeats):
    for axis in range(len(sizes)):
        times = [repeats if k == axis else 1 for k in range(len(sizes))]
        check("float32", sizes, {"times": times}, helper.make_node("Tile", ["x", "times"], ["z"]))
        check("bool", sizes, {"times": times}, helper.make_node("Tile", ["x", "times"], ["z"]))


def test_blocks_and_back():
    """Depth to space and space to depth, in both modes."""
    for mode in ("DCR", "CRD"):
        check(
            "float32",
            (1, 36, 3, 5),
            {},
            helper.make_node("DepthToSpace", ["x"], ["z"], blocksize=3, mode=mode),
        )
    check("float32", (1, 4, 6, 10), {}, helper.make_node("SpaceToDepth", ["x"], ["z"], blocksize=2))
