"""The language of meanings: typed trees, evaluated by NumPy and printed."""

import numpy as np
import pytest

from anydml.spec.catalog import CATALOG
from anydml.spec.dtypes import FLOAT16, FLOAT32, INT8, UINT8
from anydml.spec.scalar import absolute, convert, eq, evaluate, ne, read, select, text


def test_equal_trees_are_equal_and_hash_so():
    first, second = (select(ne(read(0, UINT8), 0), read(1, FLOAT32), 1.5) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


def test_a_number_takes_the_type_beside_it():
    assert eq(read(0, FLOAT16), 2).args[1].dtype is FLOAT16
    assert isinstance(eq(read(0, FLOAT16), 2).args[1].value, float)
    assert isinstance(eq(read(0, INT8), 2).args[1].value, int)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: eq(read(0, FLOAT16), read(1, FLOAT32)),
        lambda: eq(1, 2),
        lambda: select(read(0, UINT8), read(1, FLOAT32), read(2, FLOAT32)),
        lambda: convert(read(0, UINT8), FLOAT32),
        lambda: convert(eq(read(0, UINT8), 1), FLOAT32),
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


@pytest.mark.parametrize("operator", CATALOG, ids=lambda o: o.name)
def test_examples_of_the_records(operator):
    """What a record shows is what its meaning gives, for every type of its newest table."""
    table = operator.levels[max(operator.levels)]
    *given, expected = operator.example
    values = {a.name: a.default for a in operator.attributes}
    for dtype in table.dtypes["T"]:
        letters = {letter: kinds[0] for letter, kinds in table.dtypes.items()} | {"T": dtype}
        types = tuple(letters[s.dtype] for s in operator.inputs)
        arrays = [np.array(x).astype(t.label) for x, t in zip(given, types, strict=True)]
        result = evaluate(operator.expression(types, letters[operator.outputs[0].dtype], values), arrays)
        assert result.tolist() == expected
        assert result.dtype == letters[operator.outputs[0].dtype].label
