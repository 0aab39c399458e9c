"""The language of meanings: typed trees, evaluated by NumPy and printed."""

import numpy as np
import pytest

from anydml.directml.descriptions import read_attribute
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.dtypes import BOOL, FLOAT16, FLOAT32, FLOATING, INT8, INT32, UINT8
from anydml.ops.enums import FeatureLevel
from anydml.ops.expr import (
    absolute,
    add,
    and_,
    bitcast,
    constant,
    convert,
    eq,
    fma,
    ge,
    gt,
    lt,
    maximum,
    mul,
    ne,
    not_,
    or_,
    read,
    select,
    trunc,
    xor,
)
from anydml.ops.formula import listing, text
from anydml.ops.interpret import evaluate


def test_equal_trees_are_one_object():
    first, second = (select(ne(read(0, UINT8), 0), read(1, FLOAT32), 1.5) for _ in range(2))
    assert first is second
    assert constant(0.0, FLOAT32) is not constant(-0.0, FLOAT32)
    assert constant(float("nan"), FLOAT32) is constant(float("nan"), FLOAT32)
    assert constant(1, INT8) is not constant(1, UINT8)


def test_truths_between_operators_do_not_become_numbers():
    x = read(0, FLOAT32)
    below, above = (convert(t, UINT8) for t in (lt(x, 0), ge(x, 5)))
    assert ne(below, 0) is lt(x, 0)
    assert and_(below, above) is convert(and_(lt(x, 0), ge(x, 5)), UINT8)
    assert eq(below, 0) is not_(lt(x, 0))
    assert ne(below, 0).dtype == BOOL


x, h, i, u = read(0, FLOAT32), read(0, FLOAT16), read(0, INT32), read(0, UINT8)
below, above = lt(x, 0), ge(x, 5)
positive = select(gt(x, 0.0), x, 0.0)


@pytest.mark.parametrize(
    ("simplified", "expected"),
    [
        (select(below, x, x), x),
        (mul(x, 1), x),
        (mul(1.0, x), x),
        (mul(i, 1), i),
        (ne(convert(below, UINT8), 0), below),
        (eq(convert(below, UINT8), 0), not_(below)),
        (and_(convert(below, UINT8), convert(above, UINT8)), convert(and_(below, above), UINT8)),
        (or_(convert(below, UINT8), convert(above, UINT8)), convert(or_(below, above), UINT8)),
        (xor(convert(below, UINT8), convert(above, UINT8)), convert(xor(below, above), UINT8)),
        (convert(x, FLOAT32), x),
        (convert(constant(3, INT32), FLOAT32), constant(3, FLOAT32)),
        (convert(constant(300, INT32), UINT8), constant(44, UINT8)),
        (convert(constant(-1, INT32), UINT8), constant(255, UINT8)),
        (convert(convert(h, FLOAT32), FLOAT16), h),
        (convert(i, FLOAT16), convert(convert(i, FLOAT32), FLOAT16)),
        (convert(h, INT32), convert(convert(h, FLOAT32), INT32)),
        (convert(convert(x, UINT8), FLOAT32), trunc(select(lt(positive, 255.0), positive, 255.0))),
        (bitcast(x, FLOAT32), x),
    ],
)
def test_a_simplification(simplified, expected):
    assert simplified is expected


@pytest.mark.parametrize(
    ("made", "opcode"),
    [
        (select(below, x, absolute(x)), "select"),
        (mul(x, 2), "mul"),
        (mul(x, 0), "mul"),  # which a NaN stays
        (add(x, 0), "add"),  # which makes 0 of -0
        (ne(u, 0), "ne"),
        (ne(convert(below, UINT8), 1), "ne"),
        (and_(convert(below, UINT8), u), "and"),
        (convert(constant(1.5, FLOAT32), INT32), "convert"),
        (convert(convert(i, FLOAT32), INT32), "convert"),  # FLOAT32 does not hold every INT32
        (convert(convert(x, INT32), FLOAT32), "convert"),
        (bitcast(x, INT32), "bitcast"),
    ],
)
def test_what_is_not_simpler(made, opcode):
    assert made.opcode == opcode


def test_a_number_takes_the_type_beside_it():
    assert eq(read(0, FLOAT16), 2).args[1].dtype is FLOAT16
    assert isinstance(eq(read(0, FLOAT16), 2).args[1].value, float)
    assert isinstance(eq(read(0, INT8), 2).args[1].value, int)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: eq(read(0, INT8), read(1, FLOAT32)),
        lambda: eq(1, 2),
        lambda: select(read(0, UINT8), read(1, FLOAT32), read(2, FLOAT32)),
        lambda: convert(read(0, UINT8), BOOL),
        lambda: and_(read(0, FLOAT32), read(1, FLOAT32)),
        lambda: fma(read(0, INT8), 2, 1),
    ],
)
def test_types_that_do_not_fit_are_refused(wrong):
    with pytest.raises(TypeError):
        wrong()


def test_evaluate():
    x = np.array([-3, 0, 3], np.int8)
    same = eq(absolute(read(0, INT8)), 3)
    assert evaluate(convert(same, UINT8), [x]).tolist() == [1, 0, 1]
    assert evaluate(convert(same, UINT8), [x]).dtype == np.uint8


def test_text():
    expression = select(ne(read(0, UINT8), 0), read(1, FLOAT32), float("-inf"))
    assert text(expression, ["c", "a"]) == "c != 0 ? a : -∞"
    assert text(convert(eq(absolute(read(0, FLOAT32)), 2), UINT8), ["x"]) == "|x| == 2 ? 1 : 0"


@pytest.mark.parametrize("operator", ELEMENT_WISE, ids=lambda o: o.name)
def test_examples_of_the_records(operator):
    """What a definition shows is what its meaning gives, for every type of its newest table."""
    example, table = operator.example, operator.levels[max(operator.levels)]
    values = {a.name: a.default for a in operator.parameters}
    for a in operator.parameters:
        if a.parameter in example.attributes:
            given = example.attributes[a.parameter]
            values[a.name] = read_attribute(a, given, "", FeatureLevel.newest())
    type_variable = operator.inputs[0].dtype
    for dtype in table.dtypes[type_variable] if not example.types else [operator.example_type(type_variable)]:
        type_variables = {k: operator.example_type(k) for k in table.dtypes} | {type_variable: dtype}
        if dtype not in FLOATING and not holds(dtype, example, operator):
            continue
        if operator.name == "ELEMENT_WISE_QUANTIZE_LINEAR":
            type_variables["C"] = FLOAT32 if dtype is INT32 else dtype
        types = tuple(
            None if x is None else type_variables[s.dtype]
            for s, x in zip(operator.inputs, example.inputs, strict=True)
        )
        arrays = [np.array(x).astype(t.label) for x, t in zip(example.inputs, types, strict=True) if t]
        output = type_variables[operator.outputs[0].dtype]
        result = evaluate(operator.expression(types, output, values, arrays[0].ndim), arrays)
        expected = np.array(example.output).astype(output.label)
        assert result.dtype == expected.dtype
        if output in FLOATING:
            assert np.allclose(
                result, expected, rtol=3e-3 if FLOAT16 in type_variables.values() else 2e-7, atol=0
            )
        else:
            assert result.tolist() == expected.tolist()


def holds(dtype, example, operator):
    """Whether the example's numbers are numbers of an integer type."""
    whole = [
        x for s, x in zip(operator.inputs, example.inputs, strict=True) if s.dtype == operator.inputs[0].dtype
    ]
    numbers = np.concatenate(
        [*(np.ravel(w) for w in whole if w is not None), np.ravel(example.output)]
    ).astype(float)
    info = np.iinfo(dtype.label)
    return bool(np.all((numbers == np.floor(numbers)) & (numbers >= info.min) & (numbers <= info.max)))


def test_larger_subexpressions_get_a_name_once():
    x = read(0, FLOAT32)
    t = maximum(x, 0.0)
    assert listing({"y": select(lt(t, 1), t, fma(t, t, 1.0))}, ["x"]) == [
        "t0 = max(x, 0)",
        "y = t0 < 1 ? t0 : fma(t0, t0, 1)",
    ]
