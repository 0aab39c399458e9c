"""Functions on arrays of dask and xarray: lazy, block by block, and the same as on arrays."""

import pickle

import dask
import dask.array as da
import numpy as np
import pytest
import xarray

import anydml as dml
from anydml.eager import reduced_axes
from anydml.lazy import _ALONG_AXES
from anydml.ops.catalog import CATALOG, ELEMENT_WISE
from anydml.ops.document import call_of_example
from anydml.ops.opdef import ONE, REQUIRED

X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
LAZY = da.from_array(X, chunks=(2, 4))


def example(operator):
    """The parameters of an operator's worked example."""
    shown = operator.example
    given = {
        s.parameter: np.asarray(x, operator.example_type(s.dtype).label) if isinstance(x, list) else x
        for s, x in zip(operator.inputs, shown.inputs, strict=True)
    }
    defaults = {a.parameter: a.default for a in operator.asked if a.default is not REQUIRED}
    return defaults | given | dict(shown.attributes)


def cut(x, spared=()):
    """One element a block, but along axes that are spared."""
    sizes = [n if k in spared or k - x.ndim in spared else 1 for k, n in enumerate(x.shape)]
    return da.from_array(x, chunks=tuple(sizes))


@pytest.mark.parametrize("operator", ELEMENT_WISE, ids=lambda o: o.name)
def test_every_element_wise_operator(operator):
    function, given = getattr(dml, operator.function), example(operator)
    wanted, axes = function(**given), reduced_axes(operator, given)
    tensors = [s.parameter for s in operator.inputs if s.sizes != ONE and np.ndim(given.get(s.parameter))]
    result = function(**given | {n: cut(given[n], axes) for n in tensors})
    assert isinstance(result, da.Array)
    assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
    assert np.array_equal(result.compute(), wanted, equal_nan=wanted.dtype.kind == "f")
    if axes:
        with pytest.raises(dml.InvalidInput, match=r"expected one block along axis .*x\.rechunk"):
            function(**given | {n: cut(given[n]) for n in tensors})


@pytest.mark.parametrize(
    "call",
    [
        lambda x: dml.reduce(x, "SUM", axes=[1]),
        lambda x: dml.reduce(x, "ARGMAX", axes=[-1], output_data_type="UINT32"),
        lambda x: dml.argmin(x, axes=[1], axis_direction="DECREASING"),
        lambda x: dml.argmax(x, axes=[1]),
        lambda x: dml.cumulative_summation(x, -1, "INCREASING", False),
        lambda x: dml.cumulative_product(x, 1, "DECREASING", True),
        lambda x: dml.lp_normalization(x, 1, 0.0, 2),
        lambda x: dml.activation_hardmax(x),
    ],
)
def test_along_an_axis(call):
    """Blocks along the other axes; the last axis is one block."""
    wanted, result = call(X), call(LAZY.rechunk({1: -1}))
    assert isinstance(result, da.Array)
    assert (result.shape, result.dtype, result.numblocks) == (wanted.shape, wanted.dtype, (3, 1))
    assert np.array_equal(result.compute(), wanted)
    with pytest.raises(dml.InvalidInput, match=r"axis 1, but got 2; x\.rechunk\(\{1: -1\}\)"):
        call(LAZY)


def test_nothing_is_computed_before_somebody_asks():
    def never(block):
        raise RuntimeError("computed")

    x = LAZY.map_blocks(never, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    result = dml.if_(dml.is_nan(x), 0, dml.add(x, LAZY[0]))
    with pytest.raises(RuntimeError, match="computed"):
        result.compute(scheduler="synchronous")


def test_arrays_and_numbers_stand_beside_lazy_ones():
    assert np.array_equal(dml.add(LAZY, X[0]).compute(), dml.add(X, X[0]))
    assert np.array_equal(dml.add(X, LAZY[:, :1]).compute(), dml.add(X, X[:, :1]))
    assert np.array_equal(dml.multiply(2, LAZY).compute(), dml.multiply(2, X))
    assert np.array_equal(dml.add(LAZY, np.float32(3)).compute(), dml.add(X, 3))
    assert np.array_equal(
        dml.clip(LAZY, -1, 1, scale_bias=(2, 1)).compute(), dml.clip(X, -1, 1, scale_bias=(2, 1))
    )


def test_sizes_that_nobody_knows_yet():
    some = LAZY[LAZY[:, 0] > 0]
    assert np.array_equal(dml.activation_relu(some).compute(), dml.activation_relu(X[X[:, 0] > 0]))


def test_what_cannot_be_is_told_at_once():
    with pytest.raises(dml.InvalidOperator, match="expected equal data types"):
        dml.add(LAZY, LAZY.astype(np.float16))
    with pytest.raises(dml.InvalidInput, match="expected no `out`"):
        dml.add(LAZY, LAZY, out=X.copy())
    with pytest.raises(dml.InvalidInput, match="expected no `out`"):
        dml.reduce(LAZY, "SUM", axes=[1], out=np.empty((6, 1), np.float32))
    with pytest.raises(dml.InvalidInput, match="broadcast"):
        dml.add(LAZY, np.ones(5, np.float32))
    with pytest.raises(dml.InvalidInput, match="expected an array, but got Delayed"):
        dml.add(dask.delayed(X), X)
    for axes in ("a", [1.5], [2]):
        with pytest.raises(dml.AnyDMLError, match="axes"):
            dml.reduce(LAZY, "SUM", axes)


def test_attributes_may_be_numbers_of_numpy():
    """They are no operands."""
    whole = LAZY.rechunk({1: -1})
    assert np.array_equal(dml.clip(LAZY, np.float32(-1), np.float32(1)).compute(), np.clip(X, -1, 1))
    wanted = dml.cumulative_summation(X, 1, "INCREASING", False)
    assert np.array_equal(dml.cumulative_summation(whole, np.int64(1), "INCREASING", False).compute(), wanted)
    assert np.array_equal(dml.reduce(whole, "SUM", np.array([1])).compute(), dml.reduce(X, "SUM", [1]))


class Lazily:
    """Stands for NumPy where an example makes its arrays."""

    def __getattr__(self, name):
        return lambda content: da.from_array(np.atleast_1d(getattr(np, name)(content)), chunks=-1)


@pytest.mark.parametrize("operator", [o for o in CATALOG if o.compute is not None], ids=lambda o: o.name)
def test_operators_of_whole_tensors(operator):
    """Their examples with lazy arrays: those along axes go by blocks, the others say that they do not."""
    call = call_of_example(operator)
    if "np." not in call:
        return  # makes something of nothing
    names = {"dml": dml, "np": Lazily()}
    if operator.name in _ALONG_AXES:
        assert np.array_equal(eval(call, names).compute(), eval(call, {"dml": dml, "np": np}))
        return
    with pytest.raises(dml.Unsupported, match=r"expected arrays in memory.*x\.compute\(\)"):
        eval(call, names)


def test_functions_travel():
    result = pickle.loads(pickle.dumps(dml.add(LAZY, 1.0)))
    assert np.array_equal(result.compute(), dml.add(X, 1.0))
    assert dask.base.tokenize(dml.add(LAZY, 1.0)) == dask.base.tokenize(dml.add(LAZY, 1.0))


# ---- xarray ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [X, LAZY], ids=["in memory", "of dask"])
def test_dimensions_are_matched_by_name(data):
    sound = xarray.DataArray(data, dims=("time", "channel"), coords={"time": range(6)}, attrs={"unit": "V"})
    offset = xarray.DataArray(X[:, 0], dims="time", coords={"time": range(6)})
    result = dml.subtract(sound, offset)
    assert type(result.data) is type(data)
    assert (result.dims, result.attrs, list(result.time.values)) == (
        ("time", "channel"),
        {"unit": "V"},
        [*range(6)],
    )
    assert np.array_equal(result.values, X - X[:, :1])
    dataset = dml.activation_relu(xarray.Dataset({"a": sound, "b": offset}))
    assert np.array_equal(dataset["b"].values, np.maximum(X[:, 0], 0))


def test_xarray_and_axes():
    sound = xarray.DataArray(X, dims=("time", "channel"))
    assert np.array_equal(
        dml.activation_softmax1(sound, axes=[1]).values, dml.activation_softmax1(X, axes=[1])
    )
    for call in (lambda: dml.gemm(sound, sound), lambda: dml.reduce(sound, "SUM", [1])):
        with pytest.raises(dml.Unsupported, match=r"(GEMM|REDUCE).*give x\.data"):
            call()
    other = xarray.DataArray(X, dims=("time", "channel"), coords={"time": range(1, 7)})
    with pytest.raises(dml.InvalidInput), xarray.set_options(arithmetic_join="exact"):
        dml.add(sound.assign_coords(time=range(6)), other)
