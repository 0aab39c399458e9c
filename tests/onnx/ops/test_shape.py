"""Sizes and moves: rules against onnxruntime, or against ONNX's text where onnxruntime refuses."""

import numpy as np
import onnx
import pytest

from tests.onnx.ops.checking import case, check, check_fails, check_open, folded, strings, table

f4 = np.float32
BIG = 2**63 - 1


def i(*numbers):
    return np.array(numbers, np.int64)


X = np.arange(24, dtype=f4).reshape(2, 3, 4)
Y = X.reshape(1, 2, 1, 12)
EMPTY = np.zeros((0, 3), f4)
ONE = f4(3)
LINE = np.arange(5)
MATRIX = np.arange(12, dtype=f4).reshape(3, 4)
DEEP = np.arange(48, dtype=f4).reshape(1, 8, 2, 3)
WIDE = np.arange(48, dtype=f4).reshape(1, 2, 4, 6)

SLICES = [
    *((0, 5, 1), (1, -1, 1), (-3, BIG, 1), (-1, -BIG, -1), (-100, -1000, -1), (100, 0, -2), (4, -6, -1)),
    *((3, 1, -1), (2, 2, 1), (3, 1, 1), (0, BIG, BIG), (-1, -BIG - 1, -BIG - 1), (10, 20, 1), (-10, -7, 1)),
    *((100, 4, -1), (-5, -100, -1), (-6, -100, -1), (0, 5, 3), (4, -100, -3)),
]
CUTS_AND_PADS = [
    *((1, 2, 1, 0), (0, 0, 0, 0), (-1, 1, 0, -2), (2, 0, 2, 0), (0, 0, 0, 3), (2, -1, 0, 2), (0, 1, -1, 1)),
    *((0, 1, 0, -2), (-1, -1, -1, -1)),
]


@table(
    [
        *(case("Shape", X, **how) for how in ({}, {"start": 1}, {"start": -2, "end": -1}, {"start": 5}, {"end": -9})),
        *(case("Shape", X, start=2, end=1, version=version) for version in (15, 19, 21)),
        *(case("Shape", x, version=version) for x in (X, ONE, EMPTY) for version in (1, 13)),
        *(case("Size", x) for x in (X, ONE, EMPTY, strings("a"))),
        *(
            case("Reshape", X, i(*shape))
            for shape in ((-1,), (0, -1), (4, 0, -1), (0, 0, 0), (1, 1, -1, 1), (24, 1), (2, 3, 4))
        ),
        *(case("Reshape", EMPTY, i(*shape)) for shape in ((0, 3), (-1, 3), (0, 0), (0, 3, 1))),
        *(case("Reshape", EMPTY, i(*shape), allowzero=1) for shape in ((0, 3), (3, 0), (0,), (0, 0), (7, 0, 2))),
        *(case("Reshape", x, s) for x, s in ((ONE, i()), (ONE, i(1, 1)), (ONE, i(-1)), (f4([3]), i()))),
        case("Reshape", X, i(0, -1), version=5),
        case("Reshape", X, i(0, -1), version=13),
        case("Reshape", strings("a", "b"), i(2, 1)),
        *(case("Flatten", X, axis=axis) for axis in (-3, -1, 0, 1, 3)),
        *(case("Flatten", X, axis=axis, version=version) for axis in (0, 2) for version in (1, 9, 11, 13)),
        *(case("Flatten", EMPTY, axis=axis) for axis in (0, 1, 2)),
        case("Flatten", ONE, axis=0),
        *(case("Squeeze", Y, axes) for axes in (i(0), i(-2, 0), i(0, 0), i(2, 0))),
        *(case("Squeeze", x) for x in (Y, X, ONE, EMPTY.reshape(1, 0, 3))),
        case("Squeeze", Y, version=1),
        case("Squeeze", Y, version=1, axes=[2]),
        case("Squeeze", Y, version=11, axes=[-2]),
        *(case("Unsqueeze", Y, axes) for axes in (i(0, -1), i(5, -6), i(), i(2), i(3, 1))),
        case("Unsqueeze", ONE, i(0)),
        case("Unsqueeze", EMPTY, i(1)),
        case("Unsqueeze", Y, version=1, axes=[0, 5]),
        case("Unsqueeze", Y, version=11, axes=[-1, 0]),
        case("Transpose", X),
        *(case("Transpose", X, perm=perm, version=version) for perm in ([2, 0, 1], [0, 1, 2]) for version in (1, 13)),
        case("Transpose", ONE),
        case("Transpose", EMPTY, perm=[1, 0]),
        *(case("Expand", Y, shape) for shape in (i(3, 1, 1, 1, 1), i(3, 1), i(), i(1, 1, 1, 1))),
        *(case("Expand", x, s) for x, s in ((ONE, i(0, 2)), (EMPTY, i(1, 1)), (EMPTY, i(2, 1, 1)), (f4([1]), i(0)))),
        case("Expand", strings("a"), i(2, 2)),
        case("Expand", np.array([True]), i(2), version=8),
        *(case("Identity", x, version=v) for x in (X, ONE, EMPTY, strings("a")) for v in (1, 13, 14, 16)),
        *(case("Concat", X, X[:1], axis=axis) for axis in (0, -3)),
        *(case("Concat", X, X, axis=axis, version=version) for axis in (1, 2) for version in (4, 11, 13)),
        case("Concat", X, axis=0),
        case("Concat", EMPTY, f4([[1, 2, 3]]), EMPTY, axis=0),
        case("Concat", strings("a"), strings(), axis=0),
        *(case("Split", X, outputs=2, num_outputs=2, axis=axis) for axis in (0, 1, 2, -1)),
        case("Split", i(1, 2, 3, 4, 5), outputs=3, num_outputs=3),
        case("Split", X, i(1, 3), outputs=2, axis=-1),
        case("Split", X, i(4, 0), outputs=2, axis=-1),
        case("Split", EMPTY, i(0, 0), outputs=2),
        case("Split", X, outputs=2, version=2, axis=2),
        case("Split", X, outputs=2, version=11, split=[1, 2], axis=1),
        case("Split", X, outputs=2, version=13, axis=2),
        *(case("Slice", LINE, i(a), i(b), i(0), i(step)) for a, b, step in SLICES),
        *(case("Slice", LINE[:0], i(a), i(b), i(0), i(step)) for a, b, step in SLICES),
        case("Slice", X, i(1), i(2), i(-1)),
        case("Slice", X, i(1), i(2)),
        case("Slice", X, i(), i(), i(), i()),
        case("Slice", X, i(0, -1), i(1, -9), i(0, 2), i(1, -2)),
        case("Slice", X, np.int32([1]), np.int32([2**31 - 1]), np.int32([1]), np.int32([1])),
        case("Slice", X, i(1), i(2), version=10),
        case("Slice", X, i(1), i(9), None, i(1)),
        case("Slice", X, version=1, starts=[0, 1], ends=[1, 1000], axes=[0, 2]),
        case("Slice", X, version=9, starts=[0, -1], ends=[1, 1000]),
        case("Slice", strings("a", "b"), i(-1), i(-9), i(0), i(-1)),
        *(case("Tile", X, i(*times)) for times in ((1, 2, 0), (1, 2, 3), (1, 1, 1))),
        *(case("Tile", x, t, version=v) for x, t in ((ONE, i()), (EMPTY, i(2, 2))) for v in (6, 13)),
        case("Tile", strings("a"), i(3)),
        *(case("DepthToSpace", DEEP, blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
        *(case("DepthToSpace", DEEP, blocksize=2, version=version) for version in (1, 11, 13)),
        case("DepthToSpace", DEEP[:0], blocksize=2),
        *(case("SpaceToDepth", WIDE, blocksize=2, version=version) for version in (1, 13)),
        case("SpaceToDepth", WIDE[:, :, :0], blocksize=2),
        case("ReverseSequence", MATRIX, i(1, 2, 3, 0)),
        case("ReverseSequence", MATRIX, i(1, 2, 4), batch_axis=0, time_axis=1),
        case("ReverseSequence", X, i(1, 2, 0)),
        case("ReverseSequence", np.array([["a", "b"]], object), i(2), batch_axis=0, time_axis=1),
        *(case("Trilu", X, np.int64(k), upper=upper) for k in (0, -1, 2, -9, 9, 2**62, -(2**63)) for upper in (0, 1)),
        *(case("Trilu", x) for x in (X, X[:, :0], X.astype(bool), X.astype(np.int64))),
    ]
)  # fmt: skip
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        *(case("Pad", MATRIX, i(*pads), mode=mode) for mode in ("constant", "edge", "reflect", "wrap") for pads in CUTS_AND_PADS),
        *(case("Pad", MATRIX, i(*pads)) for pads in ((0, -4, 0, 0), (-1, 0, -2, 0))),
        *(case("Pad", EMPTY, i(*pads)) for pads in ((1, 1, 0, 0), (0, 0, 2, 0))),
        *(case("Pad", f4([[5]]), i(2, 1, 0, 3), mode=mode) for mode in ("constant", "edge", "wrap")),
        case("Pad", MATRIX, i(0, 5, 0, 9), mode="wrap"),
        case("Pad", EMPTY, i(0, 1, 0, 1), mode="edge"),
        case("Pad", MATRIX, i(1, 2), None, i(-1)),
        case("Pad", MATRIX, i(1, 2, 3, 4), None, np.int32([1, 0]), mode="edge"),
        case("Pad", MATRIX, i(1, 2), None, np.int32([0]), version=18),
        *(case("Pad", MATRIX, i(1, 2, 1, 0), value, version=v) for value in (f4(7), f4([7])) for v in (11, 13)),
        *(case("Pad", MATRIX.astype(t), i(1, 2, 0, 0)) for t in (bool, np.int32, np.int64, np.uint8, np.int8)),
        case("Pad", MATRIX, version=2, pads=[1, 0, 0, 1], value=3.0),
        *(case("Pad", MATRIX, version=2, pads=[1, 0, 0, -1], mode=mode) for mode in ("edge", "reflect")),
        case("Pad", f4([1, 2]), i(1, 1), f4(-0.0)),
    ]
)  # fmt: skip
def test_pad(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        # onnxruntime has no such types
        case("Pad", strings("a"), i(1, 1), expected=strings("", "a", "")),
        case("Pad", strings("a"), i(1, 0), np.array("z", object), expected=strings("z", "a")),
        case("Concat", f4([[1], [2]]), f4([[3], [4]]), version=1, expected=f4([[1, 3], [2, 4]])),
        # onnxruntime wants a rank of 1 or more
        case("Pad", ONE, i(), expected=ONE),
        case("Slice", ONE, i(), i(), expected=ONE),
        # onnxruntime refuses parts without elements, of which ONNX says that the last is smaller
        case("Split", i(1, 2), outputs=3, num_outputs=3, expected=(i(1), i(2), i())),
        # onnxruntime ends the process on an output that nobody wants
        case("Split", X, i(1, 2), outputs=(True, False), axis=1, expected=(X[:, :1], None)),
        case("Split", i(1, 2, 3, 4), outputs=3, num_outputs=3, expected=(i(1, 2), i(3, 4), i())),
    ]
)
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        case("Reshape", EMPTY, i(0, -1), allowzero=1),  # onnxruntime makes 3 of the -1; ONNX forbids it
        case("Squeeze", Y, i()),
        case("Unsqueeze", Y, i(0)[0]),
        case("Split", i(1, 2, 3, 4, 5), outputs=4, num_outputs=4),
        case("Split", X, outputs=2, version=1),
        case("Tile", X, f4([2]), f4([1]), version=1),
        case("Trilu", strings("a", "b").reshape(1, 2)),
        case("Pad", MATRIX, i(3, 0, 0, 0), mode="reflect"),
        case("Pad", EMPTY, i(1, 0, 0, 0), mode="edge"),
        case("Pad", MATRIX, i(-2, 0, -2, 0)),
        case("Pad", MATRIX, i(-4, 0, 2, 0)),
        case("Pad", MATRIX, i(1, 1, 1, 1), None, i(0, 0)),
        case("DepthToSpace", DEEP, blocksize=2, mode="ABC"),
        case("Pad", MATRIX, i(1, 2, 1, 1), mode="mirror"),
    ]
)
def test_left_open(op, inputs, how):
    check_open(op, inputs, **how)


@table(
    [
        *(
            case("Reshape", X, i(*shape))
            for shape in ((2, 3, 5), (0, 0, 0, 0), (), (-2, 3), (-1, -1), (5, -1))
        ),
        *(case("Reshape", EMPTY, i(*shape)) for shape in ((0, -1, 0), (3, 0))),
        *(case("Flatten", X, axis=axis) for axis in (-4, 4)),
        case("Flatten", X, axis=-1, version=9),
        case("Split", i(1, 2, 3), outputs=2),
        *(case("Squeeze", Y, axes) for axes in (i(1), i(7), i(-5))),
        *(case("Unsqueeze", Y, axes) for axes in (i(0, 0), i(6), i(1, -5))),
        *(case("Transpose", X, perm=perm) for perm in ([0, 1], [0, 0, 1], [0, -1, 1], [0, 1, 3])),
        *(case("Expand", Y, shape) for shape in (i(-1), i(3, 5), i(5))),
        case("Expand", EMPTY, i(2, 1)),
        *(case("Concat", X, x, axis=1) for x in (X[:1], X[0], EMPTY)),
        case("Concat", X, X, axis=3),
        case("Concat", ONE, ONE, axis=0),
        *(case("Split", X, sizes, outputs=2, axis=-1) for sizes in (i(1, 2), i(5, -1), i(4))),
        case("Split", X, outputs=2, version=13, axis=1),
        case("Slice", LINE, i(0), i(5), i(0), i(0)),
        case("Slice", X, i(1, 0), i(2, 1), i(0, -3)),
        case("Slice", X, i(1, 1), i(2)),
        case("Slice", X, i(1), i(2), i(3)),
        *(case("Tile", X, i(*times)) for times in ((1, 2), (1, 1, -1))),
        case("DepthToSpace", DEEP, blocksize=3),
        case("DepthToSpace", X, blocksize=2),
        case("SpaceToDepth", WIDE, blocksize=4),
        *(
            case("ReverseSequence", MATRIX, n, batch_axis=0, time_axis=1)
            for n in (i(1, 2, 5), i(1, 2), i(1, 2, -1))
        ),
        case("ReverseSequence", MATRIX, i(1, 2, 3, 3), batch_axis=0, time_axis=0),
        case("Trilu", i(1)),
        case("Pad", MATRIX, i(1, 2)),
        case("Pad", MATRIX, i(1, 2), None, i(2)),
        case("Pad", MATRIX, i(1, 2, 1, 1), f4([1, 2])),
    ]
)
def test_the_node_fails(op, inputs, how):
    check_fails(op, inputs, **how)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="an older onnx")
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space_are_each_others_opposite(mode):
    (wide,) = folded("DepthToSpace", [DEEP], 28, blocksize=2, mode=mode)
    check("SpaceToDepth", [wide], 28, blocksize=2, mode=mode, expected=DEEP)
