"""Every row of `If`'s type constraints, at every opset that changed it: tensors, sequences and optionals."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper

import anydml
from anydml.onnx.types import CODES
from tests.models import NEWEST, OPSETS, assert_same, branch, if_node, info, initializer, model, node, untyped

ROWS = [
    (opset, row)
    for opset in OPSETS
    for constraint in onnx.defs.get_schema("If", opset).type_constraints
    if constraint.type_param_str == "V"
    for row in constraint.allowed_type_strs
]
RENAMED = {"float": "float32", "double": "float64"}


def test_the_rows():
    assert len(ROWS) == len(set(ROWS)) >= 549
    assert {o for o, _ in ROWS} >= {1, 11, 13, 16, 19, 21, 23, 24, 25, NEWEST}


def element_type(row):
    name = re.search(r"tensor\((\w+)\)", row)[1]
    return RENAMED.get(name, name)


def declared(name, row):
    made = helper.make_tensor_type_proto(CODES[element_type(row)], None)
    for kind in reversed(re.findall("seq|optional", row)):
        make = helper.make_sequence_type_proto if kind == "seq" else helper.make_optional_type_proto
        made = make(made)
    return helper.make_value_info(name, made)


def content(row, numbers):
    name = element_type(row)
    if name == "string":
        array = np.array([str(n) for n in numbers], object)
    else:
        array = np.array(numbers).astype(helper.tensor_dtype_to_np_dtype(CODES[name]))
    return [array, array[:1]] if "seq" in row else array


def identity_takes(opset, row):
    schema = onnx.defs.get_schema("Identity", opset)
    return any(row in c.allowed_type_strs for c in schema.type_constraints)


@pytest.mark.parametrize(("opset", "row"), ROWS)
@pytest.mark.drawn
def test_row(opset, row):
    """One branch returns a value of outside as it is, the other one computes it where ONNX can."""
    a, b = content(row, [1, 0, 1]), content(row, [0, 1])
    if row.startswith("optional"):
        b = None
    moved = [node("Identity", ["b"], "e")] if identity_takes(opset, row) else []
    branches = branch([], [declared("a", row)]), branch(moved, [declared("e" if moved else "b", row)])
    decided = [node("Greater", ["d", "zero"], "cond")]
    built = model(
        [*decided, if_node("cond", *branches, "y"), if_node("fed", *branches, "z")],
        [info("d", sizes=[1]), info("fed", "bool", []), declared("a", row), declared("b", row)],
        [untyped("y"), untyped("z")],
        opset,
        [initializer("zero", np.float32([0]))],
    )
    session = anydml.load(built, threads=1)
    for computed, fed in ((1, False), (-1, True)):
        feeds = {"d": np.float32([computed]), "fed": np.array(fed), "a": a, "b": b}
        y, z = session.run(None, feeds)
        for got, expected in ((y, a if computed > 0 else b), (z, a if fed else b)):
            if expected is None:
                assert got is None
            else:
                assert_same(got, expected)
