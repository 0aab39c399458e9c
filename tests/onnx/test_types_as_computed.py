"""Sizes and types that rules tell of operators are those of what onnxruntime computes, whatever part of the
inputs' sizes is known."""

import random
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from anydml.ir.dims import Affine, Symbol
from anydml.ir.graph import Constant, Node, OnnxOp, SequenceType, TensorType, Value
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.types import dtype_name

CASES = 60
"""Of each operator."""
Case = tuple[list[np.ndarray | None], dict, int]
"""Inputs, attributes, outputs."""


def floats(*sizes: int) -> np.ndarray:
    return np.ones(sizes, np.float32)


def sizes_of(r: random.Random, rank: int, least: int = 1) -> list[int]:
    return [r.randint(least, 4) for _ in range(rank)]


def axis_of(r: random.Random, rank: int) -> int:
    return r.randrange(-rank, rank)


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def top_k(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    axis = axis_of(r, len(sizes))
    return [floats(*sizes), integers(r.randint(0, sizes[axis]))], {"axis": axis}, 2


def gather_nd(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 4))
    batch = r.randrange(len(sizes))
    last = r.randint(1, len(sizes) - batch)
    places = np.zeros((*sizes[:batch], *sizes_of(r, r.randint(0, 2)), last), np.int64)
    return [floats(*sizes), places], {"batch_dims": batch}, 1


def one_hot(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    depth = np.array(r.randint(1, 5), np.int64)
    depth = depth.reshape(1) if r.random() < 0.5 else depth
    values = np.array([0, 1], r.choice(["float32", "int64"]))
    return [np.zeros(sizes, np.int64), depth, values], {"axis": axis_of(r, len(sizes) + 1)}, 1


def tile(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    return [floats(*sizes), integers(*[r.randint(0, 3) for _ in sizes])], {}, 1


def compress(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    given = {"axis": axis_of(r, len(sizes))} if r.random() < 0.7 else {}
    count = sizes[given["axis"]] if given else int(np.prod(sizes))
    return [floats(*sizes), np.array([r.random() < 0.5 for _ in range(count)])], given, 1


def depth_to_space(r: random.Random) -> Case:
    b = r.randint(1, 3)
    n, c, h, w = sizes_of(r, 4)
    return [floats(n, c * b * b, h, w)], {"blocksize": b, "mode": r.choice(["DCR", "CRD"])}, 1


def space_to_depth(r: random.Random) -> Case:
    b = r.randint(1, 3)
    n, c, h, w = sizes_of(r, 4)
    return [floats(n, c, h * b, w * b)], {"blocksize": b}, 1


def slices(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    axes = r.sample(range(len(sizes)), r.randint(1, len(sizes)))
    ends = [*range(-6, 7), 2**63 - 1, -(2**63) + 1]
    starts, steps = ([r.choice(some) for _ in axes] for some in (ends, [1, 2, -1, -3]))
    stops = [r.choice(ends if step > 0 else ends[:-2]) for step in steps]  # onnxruntime errs on the largest
    return [floats(*sizes), *[integers(*x) for x in (starts, stops, axes, steps)]], {}, 1


def squeeze(r: random.Random) -> Case:
    sizes = [r.choice([1, 1, 3]) for _ in range(r.randint(1, 4))]
    ones = [k - r.choice([0, len(sizes)]) for k, n in enumerate(sizes) if n == 1]
    told = integers(*r.sample(ones, r.randint(0, len(ones))))
    return [floats(*sizes)] + ([told] if told.size else []), {}, 1


def conv_transpose(r: random.Random) -> Case:
    n, c, m, group = *sizes_of(r, 3), r.choice([1, 2])
    axes = r.randint(1, 2)
    kernel, strides, dilations = (sizes_of(r, axes) for _ in range(3))
    more = [r.randrange(max(s, d)) for s, d in zip(strides, dilations, strict=True)]
    given = {"strides": strides, "dilations": dilations, "group": group, "output_padding": more}
    given |= {"pads": [r.randint(0, 1) for _ in range(2 * axes)]} if r.random() < 0.5 else {}
    given |= {"kernel_shape": kernel} if r.random() < 0.5 else {}
    return [floats(n, c * group, *sizes_of(r, axes)), floats(c * group, m, *kernel)], given, 1


def quantize(r: random.Random) -> Case:
    zero = [np.array(0, r.choice(["uint8", "int8"]))] if r.random() < 0.7 else []
    return [floats(*sizes_of(r, r.randint(1, 3))), np.float32(0.5), *zero], {}, 1


def dequantize(r: random.Random) -> Case:
    dtype = r.choice(["uint8", "int8", "int32"])
    return [np.ones(sizes_of(r, r.randint(1, 3)), dtype), np.float32(0.5)], {}, 1


def quantize_dynamically(r: random.Random) -> Case:
    return [floats(*sizes_of(r, r.randint(1, 3)))], {}, r.choice([1, 3])


def matmul_integer(r: random.Random) -> Case:
    m, k, n = sizes_of(r, 3)
    return [np.ones((*sizes_of(r, r.randint(0, 1)), m, k), np.uint8), np.ones((k, n), np.int8)], {}, 1


def qlinear_matmul(r: random.Random) -> Case:
    m, k, n = sizes_of(r, 3)
    zero, scale = np.uint8(1), np.float32(0.5)
    a, b = np.ones((m, k), np.uint8), np.ones((k, n), np.uint8)
    return [a, scale, zero, b, scale, zero, scale, zero], {}, 1


def conv_integer(r: random.Random) -> Case:
    n, c, m = sizes_of(r, 3)
    x, w = np.ones((n, c, 5, 4), np.uint8), np.ones((m, c, 2, 3), np.uint8)
    return [x, w], {"strides": sizes_of(r, 2), "pads": [1, 0, 1, 0]}, 1


def qlinear_conv(r: random.Random) -> Case:
    (x, w), given, _ = conv_integer(r)
    zero, scale = np.uint8(1), np.float32(0.5)
    return [x, scale, zero, w, scale, zero, scale, zero], given, 1


def eye_like(r: random.Random) -> Case:
    return [floats(*sizes_of(r, 2))], r.choice([{}, {"dtype": 7}]), 1


def of_random_numbers(r: random.Random) -> Case:
    return [floats(*sizes_of(r, r.randint(0, 3)))], r.choice([{}, {"dtype": 11}]), 1


def rms(r: random.Random) -> Case:
    sizes = sizes_of(r, r.randint(1, 3))
    return [floats(*sizes), floats(sizes[-1])], {}, 1


def mean_variance(r: random.Random) -> Case:
    return [floats(*sizes_of(r, 4))], {}, 1


def boxes(r: random.Random) -> Case:
    n, c, k = sizes_of(r, 3)
    return [np.arange(n * k * 4, dtype=np.float32).reshape(n, k, 4), floats(n, c, k), integers(2)], {}, 1


def reverse(r: random.Random) -> Case:
    t, b = sizes_of(r, 2)
    return [floats(t, b, *sizes_of(r, r.randint(0, 2))), integers(*[1] * b)], {}, 1


def einsum(r: random.Random) -> Case:
    size = {c: r.randint(1, 4) for c in "bijk"}
    equation = r.choice(
        ["bij,bjk->bik", "ij,jk", "bij->bji", "i,j->ij", "...ij,...jk->...ik", "b...,b...->b...", "ji,bj"]
    )
    operands = []
    for term in equation.split("->")[0].split(","):
        front, dots, back = term.partition("...")
        between = [1] if dots and r.random() < 0.5 else [3] if dots else []
        operands.append(
            floats(*(1 if r.random() < 0.2 else size[c] for c in front), *between, *(size[c] for c in back))
        )
    return operands, {"equation": equation}, 1


DRAWN: dict[str, Callable[[random.Random], Case]] = {
    "TopK": top_k,
    "GatherND": gather_nd,
    "OneHot": one_hot,
    "Tile": tile,
    "Compress": compress,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "Slice": slices,
    "Squeeze": squeeze,
    "ConvTranspose": conv_transpose,
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": quantize_dynamically,
    "MatMulInteger": matmul_integer,
    "QLinearMatMul": qlinear_matmul,
    "ConvInteger": conv_integer,
    "QLinearConv": qlinear_conv,
    "EyeLike": eye_like,
    "RandomNormalLike": of_random_numbers,
    "RMSNormalization": rms,
    "MeanVarianceNormalization": mean_variance,
    "NonMaxSuppression": boxes,
    "ReverseSequence": reverse,
    "Einsum": einsum,
}
OPSETS = {"RMSNormalization": (23,)}


def computed(name: str, opset: int, case: Case) -> list[np.ndarray] | None:
    """By onnxruntime; None if it refuses."""
    arrays, attributes, outputs = case
    names = ["" if x is None else f"x{k}" for k, x in enumerate(arrays)]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(name, names, results, **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
        for n, x in zip(names, arrays, strict=True)
        if x is not None
    ]
    made = [helper.make_empty_tensor_value_info(n) for n in results]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, made),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        feeds = {n: np.asarray(x) for n, x in zip(names, arrays, strict=True) if x is not None}
        return session.run(None, feeds)
    except Exception:
        return None


def told(r: random.Random, name: str, opset: int, case: Case):
    """By the rule, where some sizes and some contents are known."""
    arrays, attributes, outputs = case
    values: list[Value | None] = []
    constants = {}
    for k, x in enumerate(arrays):
        if x is None:
            values.append(None)
            continue
        x = np.asarray(x)
        known = k > 0 and x.ndim < 2 and r.random() < 0.8
        hidden = 0.0 if known else r.choice([0.0, 0.3, 1.0])
        sizes = [Affine.of(Symbol(likely=n)) if r.random() < hidden else n for n in x.shape]
        value = Value(f"x{k}", TensorType(dtype_name(x.dtype), tuple(sizes)))
        if known:
            constants[value] = Constant(x)
        values.append(value)
    given = {n: helper.make_attribute(n, a) for n, a in attributes.items()}
    made = tuple(Value(f"y{k}") for k in range(outputs))
    rule = OPS[name].result
    assert rule is not None
    return rule(KnownNode(Node(OnnxOp("", name, opset), tuple(values), made, given), constants))


def agree(size, number: int) -> bool:
    if isinstance(size, Affine):
        return size.likely in (None, number)
    return size in (None, number)


@pytest.mark.parametrize("name", DRAWN)
def test_sizes_and_types(name):
    r, compared = random.Random(name), 0
    for _ in range(CASES):
        case, opset = DRAWN[name](r), r.choice(OPSETS.get(name, (11, 12, 13, 17, 19, 21, 22)))
        truth = computed(name, opset, case)
        if truth is None:
            continue
        for _ in range(4):
            types = told(r, name, opset, case)
            if types is None:
                continue
            assert len(types) == len(truth)
            for type, y in zip(types, truth, strict=True):
                assert isinstance(type, TensorType)
                assert type.dtype == dtype_name(y.dtype)
                if type.sizes is not None:
                    assert len(type.sizes) == y.ndim, case
                    assert all(map(agree, type.sizes, y.shape)), (case, type, y.shape)
                    compared += 1
    assert compared > CASES


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("lengths", [None, np.array(2), integers(1, 3), integers(2, 2)])
@pytest.mark.parametrize("axis", [0, -1])
def test_parts(keepdims, lengths, axis):
    """Of what libraries agree on; where they do not, no type is believed."""
    if lengths is not None and not keepdims:
        assert OPS["SplitToSequence"].rank_unsure is not None
        return
    case: Case = (
        [floats(4, 4)] + ([] if lengths is None else [lengths]),
        {"axis": axis, "keepdims": keepdims},
        1,
    )
    truth = computed("SplitToSequence", 17, case)
    assert truth is not None
    for seed in range(20):
        types = told(random.Random(seed), "SplitToSequence", 17, case)
        (type,) = types
        assert isinstance(type, SequenceType)
        for part in truth[0]:
            assert type.element.dtype == "float32"
            assert len(type.element.sizes) == part.ndim
            assert all(map(agree, type.element.sizes, part.shape))
