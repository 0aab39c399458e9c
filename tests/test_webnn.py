"""The page about WebNN says for each method what computes it: against NumPy and onnxruntime."""

import re
from collections import Counter
from functools import partial
from math import erf
from pathlib import Path

import numpy as np
import pytest

import anydml as dml
from anydml.ops.dtypes import FROM_NUMPY

from .onnx.ops.checking import computed

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "webnn.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| `(\w+)\(.*?` \| (.*) \|$", PAGE, re.MULTILINE)
METHODS = """
abs add argMax argMin averagePool2d batchNormalization cast ceil clamp concat conv2d convTranspose2d cos
cumulativeSum dequantizeLinear div elu equal erf exp expand floor gather gatherElements gatherND gelu gemm
greater greaterOrEqual gru gruCell hardSigmoid hardSwish identity instanceNormalization isInfinite isNaN
l2Pool2d layerNormalization leakyRelu lesser lesserOrEqual linear log logicalAnd logicalNot logicalOr
logicalXor lstm lstmCell matmul max maxPool2d min mul neg notEqual pad pow prelu quantizeLinear reciprocal
reduceL1 reduceL2 reduceLogSum reduceLogSumExp reduceMax reduceMean reduceMin reduceProduct reduceSum
reduceSumSquare relu resample2d reshape reverse roundEven scatterElements scatterND sigmoid sign sin slice
softmax softplus softsign split sqrt sub tan tanh tile transpose triangular where
""".split()
"""Of MLGraphBuilder, without `input` and `constant`."""


def rows():
    """A method, the second time with a 2, and each line of code beside it."""
    seen = Counter()
    for method, cell in TABLE:
        seen[method] += 1
        key = method if seen[method] == 1 else f"{method} {seen[method]}"
        for k, code in enumerate(re.findall(r"`([^`]*\(.*?|\w [-+*/] \w)`", cell)):
            yield pytest.param(key, code, id=f"{key}-{k}")


def tensors():
    rng = np.random.default_rng(5)
    n = {
        name: rng.standard_normal([int(k) for k in sizes.split(",")]).astype(np.float32)
        for name, sizes in re.findall(
            r"(\w+) ([\d,]+)",
            "a 3,4,5 b 3,1,5 p 3,4,5 o 3,4,5 x 1,4,6,8 w 4,4,3,3 t 4,2,3,3 depthwise 4,1,3,3 bias 1,4,1,1 "
            "mean 1,4,1,1 scale 1,4,1,1 variance 1,4,1,1 step 1,4,1,1 m 5,5 n 5,3 square 5,5 u 5,2 v 1,3 "
            "seq 1,3,2,4 cell 1,1,2,4 h 1,1,2,3 cells 1,1,2,3 gw 1,1,9,4 gr 1,1,9,3 gb 1,1,1,9 grb 1,1,1,9 "
            "lw 1,1,12,4 lr 1,1,12,3 lb 1,1,1,12 peephole 1,1,1,9",
        )
    }
    n["a"] *= 3
    n["a"][1, 2] = n["b"][1, 0]  # some are equal
    n["a"][0, 0, :2] = 0.5, -2.5
    n["o"][0, 0, :3] = np.inf, -np.inf, np.nan
    n |= {name: np.abs(n[name]) + np.float32(0.1) for name in ("p", "variance", "step")}
    n["step"] /= 50
    for name, sizes, end in (("c", (3, 4, 5), 2), ("d", (3, 4, 5), 2), ("q", (1, 4, 6, 8), 256)):
        n[name] = rng.integers(0, end, sizes).astype(np.uint8)
    n["zero"] = rng.integers(0, 256, (1, 4, 1, 1)).astype(np.uint8)
    n |= {"i": np.int32([[4, 0]]), "j": np.int32([rng.permutation(5)[:2] for _ in range(5)])}
    return n | {"k": np.int32([[1, 2], [4, 0], [3, 3]])}


T = tensors()
X, M, A, B, P, C, D = (T[name] for name in "xmabpcd")
PLACES = tuple(T["k"].T)


def onnx(op, *inputs, outputs=1, **attributes):
    """The last of the outputs, by onnxruntime."""
    return computed(op, inputs, outputs=outputs, **attributes)[-1]


def along(function, axes=(3,), x=X):
    return lambda: function(x.astype(np.float64), axis=axes, keepdims=True)


def resized(mode, *scales, **attributes):
    return onnx("Resize", X, None, np.float32([1, 1, *scales]), mode=mode, **attributes)


def scattered(place, values):
    made = M.copy()
    place(made, values)
    return made


def layer(op, x, weight, recurrence, bias, *states, **attributes):
    """The states after the last step. ONNX's tensors, but the input, have no 1 in front."""
    given = [*(v[0] for v in (x, weight, recurrence)), None if bias is None else bias[0, 0], None]
    given += [None if s is None else s[0] for s in states]
    if len(states) == 3:  # the peephole, which has one more
        given[-1] = given[-1][0]
    return onnx(op, *given, outputs=[False, True], hidden_size=3, **attributes)[np.newaxis]


def normalized(axes, scale=1, bias=0):
    centred = X - X.mean(axes, keepdims=True, dtype=np.float64)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5) * scale + bias


POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
EXPECTED = {
    **{name: partial(getattr(np, name), A) for name in "abs ceil cos exp floor sign sin tan tanh".split()},
    "erf": lambda: np.vectorize(erf)(A),
    "identity": lambda: A,
    "isInfinite": lambda: np.isinf(T["o"]),
    "isNaN": lambda: np.isnan(T["o"]),
    "log": lambda: np.log(P),
    "logicalNot": lambda: C == 0,
    "neg": lambda: -A,
    "reciprocal": lambda: 1 / P,
    "roundEven": lambda: np.rint(A),
    "sqrt": lambda: np.sqrt(P),
    "cast": lambda: np.trunc(A),
    "add": lambda: A + B,
    "sub": lambda: A - B,
    "mul": lambda: A * B,
    "div": lambda: A / B,
    "max": lambda: np.maximum(A, B),
    "min": lambda: np.minimum(A, B),
    "pow": lambda: P**B,
    "equal": lambda: A == B,
    "notEqual": lambda: A != B,
    "greater": lambda: A > B,
    "greaterOrEqual": lambda: A >= B,
    "lesser": lambda: A < B,
    "lesserOrEqual": lambda: A <= B,
    "logicalAnd": lambda: C & D,
    "logicalOr": lambda: C | D,
    "logicalXor": lambda: C ^ D,
    "where": lambda: np.where(C, A, B),
    "clamp": lambda: np.clip(A, -1, 1),
    "elu": lambda: onnx("Elu", A, alpha=0.5),
    "gelu": lambda: A * (1 + np.vectorize(erf)(A / np.sqrt(2))) / 2,
    "hardSigmoid": lambda: np.clip(0.2 * A + 0.5, 0, 1),
    "hardSwish": lambda: A * np.clip(A / 6 + 0.5, 0, 1),
    "leakyRelu": lambda: np.where(A < 0, 0.01 * A, A),
    "linear": lambda: 2 * A + 3,
    "prelu": lambda: np.where(X < 0, X * T["scale"], X),
    "relu": lambda: np.maximum(A, 0),
    "sigmoid": lambda: 1 / (1 + np.exp(-A)),
    "softplus": lambda: np.logaddexp(A, 0),
    "softsign": lambda: A / (1 + np.abs(A)),
    "softmax": lambda: onnx("Softmax", X, axis=1),
    "concat": lambda: np.concatenate([X, X], 1),
    "expand": lambda: np.broadcast_to(T["scale"], X.shape),
    "pad": lambda: np.pad(X, [(0, 0), (0, 0), (1, 2), (1, 2)], "edge"),
    "reshape": lambda: X.reshape(4, 48),
    "reverse": lambda: X[..., ::-1],
    "slice": lambda: X[:, 1:3, ::2, 2:7],
    "split": lambda: X[:, 1:],
    "tile": lambda: np.tile(X, (2, 1, 1, 3)),
    "transpose": lambda: X.transpose(0, 2, 3, 1),
    "triangular": lambda: np.triu(M, 1),
    "triangular 2": lambda: np.tril(M, 1),
    "gather": lambda: M[:, T["i"][0]],
    "gatherElements": lambda: np.take_along_axis(M, T["j"].astype(np.int64), 1),
    "gatherND": lambda: M[PLACES][np.newaxis],
    "scatterElements": lambda: scattered(
        lambda y, values: np.put_along_axis(y, T["j"].astype(np.int64), values, 1), T["u"]
    ),
    "scatterND": lambda: scattered(lambda y, values: y.__setitem__(PLACES, values[0]), T["v"]),
    "argMax": lambda: X.argmax(1, keepdims=True),
    "argMin": lambda: X.argmin(1, keepdims=True),
    "cumulativeSum": lambda: onnx("CumSum", X, np.array(2), exclusive=1, reverse=1),
    "reduceL1": along(lambda x, **k: np.abs(x).sum(**k), (2, 3)),
    "reduceL2": along(lambda x, **k: np.sqrt((x * x).sum(**k)), (2, 3)),
    "reduceLogSum": along(lambda x, **k: np.log(x.sum(**k)), (2,), P),
    "reduceLogSumExp": along(lambda x, **k: np.log(np.exp(x).sum(**k))),
    "reduceMax": along(np.max),
    "reduceMean": along(np.mean),
    "reduceMin": along(np.min),
    "reduceProduct": along(np.prod),
    "reduceSum": along(np.sum),
    "reduceSumSquare": along(lambda x, **k: (x * x).sum(**k)),
    "matmul": lambda: M @ T["n"],
    "gemm": lambda: 2 * M @ M.T + 3 * T["square"],
    "conv2d": lambda: onnx("Conv", X, T["w"], T["bias"].ravel(), strides=[2, 2], pads=[1, 1, 1, 1]),
    "conv2d 2": lambda: onnx("Conv", X, T["depthwise"], group=4),
    "convTranspose2d": lambda: onnx("ConvTranspose", X, T["t"], strides=[2, 2], output_padding=[1, 1]),
    "averagePool2d": lambda: onnx("AveragePool", X, **POOL),
    "l2Pool2d": lambda: onnx("LpPool", X, p=2, **POOL),
    "maxPool2d": lambda: onnx("MaxPool", X, **POOL),
    "resample2d": lambda: resized("linear", 2, 1.5),
    "resample2d 2": lambda: resized("nearest", 0.5, 0.5, nearest_mode="round_prefer_floor"),
    "batchNormalization": lambda: onnx(
        "BatchNormalization", X, *(T[name].ravel() for name in ("scale", "bias", "mean", "variance"))
    ),
    "instanceNormalization": lambda: normalized((2, 3), T["scale"], T["bias"]),
    "layerNormalization": lambda: normalized((1, 2, 3)),
    "quantizeLinear": lambda: np.clip(np.rint(X / T["step"]) + T["zero"], 0, 255),
    "dequantizeLinear": lambda: (T["q"].astype(np.float64) - T["zero"]) * T["step"],
    "gru": lambda: layer(
        "GRU",
        *(T["seq"], T["gw"], T["gr"]),
        np.concatenate([T["gb"], T["grb"]], axis=3),
        linear_before_reset=1,
    ),
    "gruCell": lambda: layer("GRU", T["cell"], T["gw"], T["gr"], None, T["h"]),
    "lstm": lambda: layer("LSTM", T["seq"], T["lw"], T["lr"], None, None, None, T["peephole"]),
    "lstmCell": lambda: layer(
        "LSTM",
        *(T["cell"], T["lw"], T["lr"]),
        np.concatenate([T["lb"], 0 * T["lb"]], axis=3),
        *(T["h"], T["cells"]),
    ),
}
"""What each row computes."""


def check(code, names, wanted):
    made = eval(code, {"dml": dml} | names)
    made = made[-1] if isinstance(made, tuple) else made
    if isinstance(made, dml.Expression):
        made = made._builder.compile({"y": made})(T)["y"]
    assert made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("key", "code"), list(rows()))
def test_a_row(key, code):
    """On expressions of a graph; and on arrays, unless it uses what expressions alone have."""
    wanted = EXPECTED[key]()
    g = dml.GraphBuilder()
    check(code, {name: g.input(name, FROM_NUMPY[x.dtype], x.shape) for name, x in T.items()}, wanted)
    if not re.search(r"\w\.(reinterpret|broadcast_to)\(", code):
        check(code, T, wanted)


def test_every_method_has_a_row():
    assert sorted({method for method, _ in TABLE}) == METHODS
    assert len(TABLE) == len(EXPECTED) == sum(p.id.endswith("-0") for p in rows())
    for name in re.findall(r"`dml\.(\w+)`", PAGE):
        assert hasattr(dml, name)


def test_the_layouts_of_filters():
    found = re.findall(r"`(?:filter\.transpose)?\(([\d, ]+)\)` of \"([ohwi]{4})\"", PAGE)
    assert {layout for _, layout in found} == {"hwio", "ohwi", "ihwo"}
    for order, layout in found:
        filter = T["w"][:2].transpose(["oihw".index(c) for c in layout])
        assert np.array_equal(filter.transpose([int(k) for k in order.split(",")]), T["w"][:2])


def test_the_nearest_of_two():
    """`resample` takes the second one, the row of `resample2d` the first."""
    x = np.float32([[[[10, 20]]]])
    given = {"interpolation_mode": "NEAREST_NEIGHBOR", "scales": [1, 1, 1, 1.5]}
    assert dml.resample(x, [1, 1, 1, 3], **given).tolist() == [[[[10, 20, 20]]]]
    found = dml.resample2(x, [1, 1, 1, 3], 1, -0.5, rounding_direction="INCREASING", **given)
    assert found.tolist() == [[[[10, 10, 20]]]]


def test_a_bound_that_is_nan():
    assert np.isnan(dml.clip(np.float32([1, 2]), np.nan, 3)).all()
