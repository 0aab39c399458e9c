"""Sequences and optionals: rules against onnxruntime."""

import numpy as np
import pytest

from tests.onnx.ops.checking import case, check, check_fails, check_open, folded, strings, table

f4, i4 = np.float32, np.int32


def i(*numbers):
    return np.array(numbers, np.int64)


PLACES = (i(0)[0], i(-1)[0], i(2)[0], i(-3)[0], i4(1), i(1))
THREE = [f4([1, 2]), f4([3]), f4([[4, 5]])]
CUBE = np.arange(24, dtype=f4).reshape(2, 3, 4)
MATRIX = CUBE[0]
EQUAL = [CUBE[0], CUBE[1]]
NONE = np.zeros((0, 2), f4)


@table(
    [
        case("SequenceConstruct", *THREE),
        case("SequenceConstruct", strings("a"), strings()),
        *(case(op, THREE, place) for op in ("SequenceAt", "SequenceErase") for place in PLACES),
        *(case("SequenceInsert", THREE, f4([9]), place) for place in (*PLACES, i(3)[0])),
        case("SequenceInsert", THREE, f4([9])),
        case("SequenceErase", THREE),
        case("SequenceErase", THREE[:1]),
        case("SequenceLength", THREE),
        case("Identity", EQUAL, version=16),
        *(
            case("SplitToSequence", MATRIX, split, keepdims=keepdims, axis=axis, version=version)
            for split in (None, i(1)[0])
            for keepdims in (0, 1)
            for axis in (0, -1)
            for version in (11, 24)
        ),
        *(
            case("SplitToSequence", MATRIX, split)
            for split in (i(2)[0], i(3)[0], i(5)[0], i4(2), i(1, 2), i(3), i(0, 3))
        ),
        *(case("SplitToSequence", MATRIX, split, keepdims=0) for split in (i(1, 1, 1), i(1, 2))),
        *(case("SplitToSequence", CUBE, split, axis=-2) for split in (i(2)[0], i(1, 1, 1), None)),
        case("SplitToSequence", strings("a", "b", "c"), i(2)[0]),
        *(case("ConcatFromSequence", EQUAL, axis=axis) for axis in (0, 1, -1, -2)),
        *(case("ConcatFromSequence", EQUAL, axis=axis, new_axis=1) for axis in (0, 1, 2, -1, -3)),
        case("ConcatFromSequence", THREE[:2], axis=0),
        *(case("OptionalHasElement", x, version=18) for x in (CUBE, EQUAL)),
        *(case("OptionalGetElement", x, version=18) for x in (CUBE, EQUAL, strings("a"))),
    ]
)
def test_exact(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        # a lone sequence without elements tells no type
        case("SequenceEmpty", expected=([],)),
        case("SequenceEmpty", dtype=7, expected=([],)),
        case("SequenceLength", [], expected=np.array(0)),
        case("SequenceInsert", [], f4([1]), expected=([f4([1])],)),
        case("SplitToSequence", NONE, expected=([],)),
        case("SplitToSequence", NONE, i(2)[0], expected=([],)),
        case("ConcatFromSequence", [f4(1), f4(2)], axis=0, new_axis=1, expected=f4([1, 2])),
        # onnxruntime cannot squeeze these parts, though ONNX says that keepdims is ignored
        case("SplitToSequence", MATRIX, i(2)[0], keepdims=0, expected=([MATRIX[:2], MATRIX[2:]],)),
        # optionals are no outputs of onnxruntime's
        case("Optional", CUBE, expected=(CUBE,)),
        case("Optional", EQUAL, expected=(EQUAL,)),
        case("OptionalHasElement", CUBE, version=15, expected=np.array(True)),
        case("OptionalHasElement", EQUAL, version=15, expected=np.array(True)),
        case("OptionalHasElement", None, version=15, expected=np.array(False)),
        case("OptionalHasElement", version=18, expected=np.array(False)),
        case("OptionalGetElement", CUBE, version=15, expected=(CUBE,)),
    ]
)
def test_by_hand(op, inputs, how):
    check(op, inputs, **how)


@table(
    [
        *(case(op, THREE, i(k)[0]) for op in ("SequenceAt", "SequenceErase") for k in (3, -4)),
        *(case("SequenceInsert", THREE, f4([9]), i(k)[0]) for k in (4, -4)),
        *(case("SplitToSequence", MATRIX, split) for split in (i(0)[0], i(-1)[0], i(1, 1), i(4, -1))),
        case("SplitToSequence", MATRIX, axis=2),
        *(case("ConcatFromSequence", EQUAL, axis=axis) for axis in (2, -3)),
        case("ConcatFromSequence", EQUAL, axis=3, new_axis=1),
        case("ConcatFromSequence", THREE, axis=0),
        case("ConcatFromSequence", THREE[:2], axis=0, new_axis=1),
    ]
)
def test_the_node_fails(op, inputs, how):
    check_fails(op, inputs, **how)


def test_the_element_of_nothing():
    check_open("OptionalGetElement", [None], 15)
    check_open("Optional", [None])
    check_open("SplitToSequence", [MATRIX, i()])
    check_fails("SequenceEmpty", [], dtype=99)
    for op in ("SequenceAt", "ConcatFromSequence", "SequenceErase"):
        with pytest.raises((ValueError, IndexError)):
            folded(op, [[], i(0)[0]] if op == "SequenceAt" else [[]], **({"axis": 0} if op[0] == "C" else {}))


def test_tensors_of_other_types_do_not_join_a_sequence():
    check_fails("SequenceInsert", [THREE, i(1)])
