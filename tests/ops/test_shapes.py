"""Shapes as terms: what they say of every operator's own example, and how they are read and computed."""

from types import SimpleNamespace

import pytest

from anydml.ops.catalog import BY_NAME
from anydml.ops.shapes import NoShape, bind, from_terms, said, shape_in_words, sizes_by
from anydml.ops.tensor_desc import TensorDesc

OF_TENSORS = [op for op in BY_NAME.values() if op.compute is not None]


@pytest.mark.parametrize("op", OF_TENSORS, ids=str)
def test_every_tensor_has_a_shape(op):
    assert op.shapes.keys() == {s.parameter for s in op.tensors}
    for shape in op.shapes.values():
        assert shape_in_words(shape)


@pytest.mark.parametrize("op", OF_TENSORS, ids=str)
def test_they_hold_for_its_example(op):
    """Of all tensors, outputs included, by what the definition's own sizes say of them."""
    tensors = {}

    def add(operand, content):
        import numpy as np

        parts = content if operand.array else [content]
        for k, part in enumerate(parts):
            if part is not None:
                one = operand.nth(k) if operand.array else operand
                dtype = op.example_type(one.dtype)
                tensors[one.name] = TensorDesc(dtype, np.shape(part) or (1,))

    for operand, content in zip(op.inputs, op.example.inputs, strict=True):
        add(operand, content)
    outputs = op.example.output if op.gives_several else (op.example.output,)
    for operand, content in zip(op.outputs, [outputs] if op.outputs[0].array else outputs, strict=True):
        add(operand, content)
    known = {}
    for operand in op.tensors:
        shape = op.shapes[operand.parameter]
        names = [n for n in tensors if n.partition("[")[0] == operand.name]
        for name in () if isinstance(shape, said) or ("(" in shape and "..." in shape) else names:
            assert bind(shape, tensors[name].sizes, known) is None, (name, shape, tensors[name].sizes)


@pytest.mark.parametrize(
    ("shape", "sizes", "known"),
    [
        ("N C H W", (1, 2, 3, 4), {"N": 1, "C": 2, "H": 3, "W": 4}),
        ("N C S...", (1, 2, 3), {"N": 1, "C": 2, "S": (3,)}),
        ("N C S...", (1, 2), {"N": 1, "C": 2, "S": ()}),
        ("... M K", (5, 6, 7, 8), {"...": (5, 6), "M": 7, "K": 8}),
        ("1 D 4*H H", (1, 2, 12, 3), {"D": 2, "H": 3}),
    ],
)
def test_names_are_taken_from_sizes(shape, sizes, known):
    found = {}
    assert bind(shape, sizes, found) is None
    assert found == known


@pytest.mark.parametrize(
    ("shape", "sizes", "wrong"),
    [
        ("N C H W", (1, 2, 3), "3 sizes"),
        ("N C S...", (1,), "1 sizes"),
        ("N N", (1, 2), "N is 1, and 2"),
        ("1 N", (2, 2), "1 is 1, not 2"),
        ("H 4*H", (2, 9), "4*H is 8, not 9"),
        ("S... T...", (2, 9), "more than one group of sizes"),
    ],
)
def test_what_does_not_fit_is_told(shape, sizes, wrong):
    assert bind(shape, sizes, {}) == wrong


def test_sizes_follow():
    call = SimpleNamespace(block_size=2, input=SimpleNamespace(shape=(1, 8, 3, 5)))
    known = {"N": 1, "C": 8, "H": 3, "W": 5}
    assert sizes_by("N C/(block_size*block_size) H*block_size W-1", known, call) == (1, 2, 6, 4)
    shapes = {"input": "N C H W", "output": "N C*block_size W", "more": "W..."}
    assert from_terms(shapes, ["input"], ["output"])(call) == (1, 16, 5)
    assert from_terms(shapes, ["input"], ["output", "input"])(call) == ((1, 16, 5), (1, 8, 3, 5))
    assert from_terms(shapes | {"output": said("any")}, ["input"], ["output"]) is None
    assert from_terms(shapes | {"output": "N Q"}, ["input"], ["output"]) is None
    for wrong in ("C/Q", "N-1", "C/(N-1)"):
        made = from_terms({"input": "N C H Q", "output": f"{wrong}"}, ["input"], ["output"])
        call.input.shape = (1, 2, 3, 4) if wrong != "C/Q" else (1, 2, 3, 0)
        with pytest.raises(NoShape):
            made(call)


def test_people_read_them():
    assert (
        shape_in_words("N C/(b*b) S... windows(S,K)... n-1")
        == "[N, C / (b * b), S..., windows(S, K)..., n - 1]"
    )
    assert shape_in_words(said("as input, but 1 along axes")) == "as input, but 1 along axes"
