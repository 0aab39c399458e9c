"""Functions on arrays of dask and xarray: block by block, once somebody asks for the result.

Element-wise operators go by blocks, broadcasting included, and so do those along axes, if the array is one
block there. Of xarray, dimensions are matched by name, and coordinates stay. Neither library is imported
before somebody comes with an array of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.eager import reduced_axes
from anydml.errors import AnyDMLError, InvalidInput, Problem, Unsupported
from anydml.ops.opdef import Operator

_ALONG_AXES = """
REDUCE ARGMIN ARGMAX CUMULATIVE_SUMMATION CUMULATIVE_PRODUCT LP_NORMALIZATION
""".split()
"""Operators of whole tensors that compute nothing across other axes than those that they are told."""
Function = Callable[..., Any]


def is_lazy(x: object) -> bool:
    """Whether an argument is an array of dask or xarray, neither of which need be installed."""
    return type(x).__module__.startswith("dask.array.") or _is_named(x)


def compute_lazily(operator: Operator, function: Function, given: Mapping[str, Any]) -> Any:
    """What an operator's function gives of arrays of which some are lazy: such an array.

    Args:
        given: all parameters of the function.

    Raises:
        InvalidInput: `out`, or several blocks along an axis of the operator.
        InvalidOperator: types that do not go together, which is told at once.
        Unsupported: an operator that does not go by blocks.
    """
    if given.get("out") is not None:
        raise InvalidInput(Problem(operator.name, "expected no `out` beside an array that is computed later"))
    named = any(_is_named(y) for x in given.values() for y in (x if isinstance(x, list | tuple) else [x]))
    if operator.compute is not None and (named or operator.name not in _ALONG_AXES):
        message = "expected arrays in memory, but got one that is computed later"
        remedy = "x.compute(), or x.map_blocks(function) where blocks have nothing to do with each other"
        if named:
            message, remedy = "expected arrays whose dimensions have no names", "give x.data"
        raise Unsupported(Problem(operator.name, message, remedy))
    operands = {s.parameter for s in operator.inputs}
    arrays = {
        name: x
        for name, x in given.items()
        if name in operands and (is_lazy(x) or isinstance(x, np.ndarray | np.generic))
    }
    others = {name: x for name, x in given.items() if name not in arrays and name != "out"}
    on_arrays = _OnArrays(function, tuple(arrays), others)
    try:
        if named:
            return _by_names(on_arrays, arrays)
        return _by_blocks(operator, on_arrays, arrays, others)
    except ValueError as error:  # of dask or xarray: shapes, or coordinates, that do not go together
        if isinstance(error, AnyDMLError):
            raise
        raise InvalidInput(Problem(operator.name, str(error).partition("\n")[0])) from error


@dataclass(frozen=True)
class _OnArrays:
    """An operator's function of its arrays alone, which travels to other processes."""

    function: Function
    names: Sequence[str]
    others: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        """What dask calls its tasks."""
        return str(self.function.__name__)

    def __call__(self, *arrays: Any) -> Any:
        return self.function(**dict(zip(self.names, arrays, strict=True)), **self.others)


def _by_names(on_arrays: _OnArrays, arrays: Mapping[str, Any]) -> Any:
    import xarray

    return xarray.apply_ufunc(on_arrays, *arrays.values(), dask="allowed", keep_attrs=True)


def _by_blocks(operator: Operator, on_arrays: _OnArrays, arrays: Mapping[str, Any], others: Any) -> Any:
    from dask.array.core import elemwise

    samples = {name: np.ones((1,) * np.ndim(x), x.dtype) for name, x in arrays.items()}
    dtype = on_arrays(*samples.values()).dtype  # and what is wrong with types and axes is told
    axes = _axes(operator, samples | others)
    if not axes:
        return elemwise(on_arrays, *arrays.values(), dtype=dtype)
    ((name, x),) = arrays.items()
    axes = tuple(sorted(axis % max(x.ndim, 1) for axis in axes))
    for axis in axes:
        if axis < x.ndim and x.numblocks[axis] > 1:
            message = f"expected one block along axis {axis}, but got {x.numblocks[axis]}"
            remedy = f"x.rechunk({{{axis}: -1}})"
            raise InvalidInput(Problem(f"{operator.name}: {name}", message, remedy))
    sample = on_arrays(np.ones([2 if k in axes else 1 for k in range(x.ndim)], x.dtype))
    chunks = [(1,) if k in axes and sample.shape[k] == 1 else c for k, c in enumerate(x.chunks)]
    return x.map_blocks(on_arrays, dtype=dtype, chunks=tuple(chunks))


def _axes(operator: Operator, given: Mapping[str, Any]) -> Sequence[int]:
    """Along which the operator computes; none for most."""
    if operator.compute is None:
        return reduced_axes(operator, given)
    found: list[int] = np.atleast_1d(given["axis"] if "axis" in given else given["axes"]).tolist()
    return found


def _is_named(x: object) -> bool:
    """Whether it is xarray's: its dimensions have names."""
    kind = type(x)
    return kind.__module__.startswith("xarray.") and kind.__name__ in ("DataArray", "Dataset", "Variable")
