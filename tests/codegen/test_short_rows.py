"""Short rows of cheap expressions: every width, beside rows, columns and single elements, in place too."""

import numpy as np
import pytest

import anydml as dml
from anydml import templates
from anydml.codegen import kernel, kernel_body, short_rows
from anydml.codegen.group import Access, KernelVariant
from anydml.codegen.jit import assembly
from anydml.codegen.target import PROCESSORS
from anydml.ops.catalog import CATALOG
from anydml.ops.dtypes import FLOAT32, INT8
from anydml.ops.expr import add, read

RNG = np.random.default_rng(0)
WIDTHS = [6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 128, 200, 511, 512, 513]
TYPES = ["float32", "int32", "int64", "uint8", "int16", "float16"]


def drawn(dtype, *sizes):
    return RNG.integers(-100, 100, sizes).astype(dtype)


@pytest.fixture(params=["alone", "shared"], autouse=True)
def sharing(request, share_all_work):
    if request.param == "shared":
        share_all_work()


@pytest.fixture
def written(monkeypatch):
    """The bodies of short rows that are asked for."""
    found = []
    lay_out = kernel._lay_out_short

    def noted(*given):
        made = lay_out(*given)
        found.append(made is not None)
        return made

    monkeypatch.setattr(kernel, "_lay_out_short", noted)
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width(width, dtype, written):
    x = drawn(dtype, 21, width)
    plus = templates.function(next(o for o in CATALOG if o.function == "add"), "m")  # which knows no calls
    for y in (drawn(dtype, width), drawn(dtype, 21, 1), drawn(dtype, 21, width + 3)[:, 3:]):
        assert np.array_equal(plus(x, y), x + y)
        assert np.array_equal(plus(y, x), x + y)
    short = dtype in ("float32", "int32") and kernel.host().masks and width <= 512
    assert any(written) or not short


@pytest.mark.parametrize("width", [6, 16, 33, 100])
def test_in_place(width):
    """The end of a row must not have its turn twice."""
    x = drawn("float32", 40, width)
    rows, columns = drawn("float32", width), drawn("float32", 40, 1)
    wanted = (x + rows) * columns
    assert dml.add(x, rows, out=x) is x
    assert dml.multiply(x, columns, out=x) is x
    assert np.array_equal(x, wanted)


@pytest.mark.parametrize("width", [7, 32, 50])
def test_views(width):
    """Rows with something between them, from the last to the first, in several dimensions, repeated."""
    whole = drawn("float32", 6, 9, width + 5)
    kept = whole.copy()
    inside = whole[:, 1:8, 2 : 2 + width]
    row, column = drawn("float32", width), drawn("float32", 6, 1, 1)
    for x in (inside, inside[::-1], inside[:, ::-1], inside.transpose(1, 0, 2)):
        y = column if x.shape[0] == 6 else column.transpose(1, 0, 2)
        assert np.array_equal(dml.add(x, row), x + row)
        assert np.array_equal(dml.subtract(x, y), x - y)
        assert np.array_equal(dml.add(np.broadcast_to(row, x.shape), x), x + row)
    out = whole[:, 1:8, 2 : 2 + width]
    dml.add(inside, row, out=out)
    assert np.array_equal(out, kept[:, 1:8, 2 : 2 + width] + row)
    kept[:, 1:8, 2 : 2 + width] = out
    assert np.array_equal(whole, kept), "something between the rows was written"


@pytest.mark.parametrize("width", [6, 19, 64])
def test_several_operands(width):
    x, low, high = drawn("float32", 30, width), drawn("float32", 30, 1), drawn("float32", width)
    flags = RNG.random((30, width)) < 0.5
    assert np.array_equal(dml.if_(flags, x, low), np.where(flags, x, low))
    assert np.array_equal(dml.max(dml.min(x, high), low), np.maximum(np.minimum(x, high), low))
    assert np.array_equal(dml.greater_than(x, low).astype(bool), x > low)
    divisor = drawn("int32", 30, 1)
    divisor[divisor == 0] = 3
    wanted = np.trunc(x.astype(np.int32) / divisor).astype(np.int32)
    assert np.array_equal(dml.divide(x.astype(np.int32), divisor), wanted)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_processors(processor):
    target = PROCESSORS[processor]
    for dtype in (FLOAT32, INT8):
        group = kernel.group((dtype, dtype), (add(read(0, dtype), read(1, dtype)),))
        for beside in (Access.PACKED, Access.SPLAT):
            variant = KernelVariant((Access.PACKED, beside, Access.PACKED), short=True)
            assert short_rows.lanes_of_rows(group, target) >= 4
            assert assembly(kernel_body.kernel_body(group, variant, target), processor)
