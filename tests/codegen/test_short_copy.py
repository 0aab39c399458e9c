"""Copies of a few bytes: each number of them, and nothing beyond."""

import ctypes

import numpy as np
import pytest

from anydml.codegen.compiling import compiling
from anydml.codegen.jit import compile_ir
from anydml.codegen.short_copy import short_copy


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("most", [16, 32, 64])
def test_every_number_of_bytes(width, most):
    lines = short_copy("c", "%to", "%from", "%n", most, width)
    text = "define void @row(ptr %to, ptr %from, i64 %n) {\nentry:\n" + "\n".join(lines)
    with compiling.lock:
        (address,) = compile_ir(text + "\n  ret void\n}\n", ["row"])
    copy = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    source = np.arange(1, most + 1, dtype=np.uint8)
    for count in range(0, most, width):
        target = np.full(3 * most, 255, np.uint8)
        copy(target[most:].ctypes.data, source.ctypes.data, count)
        np.testing.assert_array_equal(target[most : most + count], source[:count])
        assert (target[:most] == 255).all()
        assert (target[most + count :] == 255).all()
