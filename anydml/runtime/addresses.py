"""Where arrays lie in memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.python_objects import DATA


def address(a: NDArray[Any]) -> int:
    """Where the array's first element lies. Five times as fast as asking `__array_interface__`."""
    return ctypes.c_void_p.from_address(id(a) + DATA).value or 0


def over_memory(a: NDArray[Any]) -> NDArray[Any]:
    """An array over the memory of another one, in C's order, which it does not keep alive."""
    memory = (ctypes.c_char * a.nbytes).from_address(address(a))
    return np.ndarray(a.shape, a.dtype, memory)  # type: ignore[arg-type]


_probe = np.zeros(1)
if address(_probe) != _probe.__array_interface__["data"][0]:
    raise ImportError("NumPy's array object has another layout than anydml knows")


def has_no_gaps(x: np.ndarray[Any, Any]) -> bool:
    """Whether the elements fill memory, in whatever order of axes."""
    if x.flags.c_contiguous or x.flags.f_contiguous:
        return True
    return x.transpose(sorted(range(x.ndim), key=lambda d: -x.strides[d])).flags.c_contiguous
