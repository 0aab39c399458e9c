"""What kernels compute of operands that are one element for all: once, with the same bits as for each."""

from itertools import product

import numpy as np
import pytest

from anydml.codegen.group import Access, KernelVariant
from anydml.codegen.jit import host
from anydml.codegen.kernel import group
from anydml.codegen.kernel_body import kernel_body
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, UINT8
from anydml.ops.elementary import erf, exp
from anydml.ops.expr import add, convert, div, gt, mul, read, select, sqrt
from anydml.runtime.launch import launch

X, S, T = (read(k, FLOAT32) for k in range(3))
WIDE = convert(S, FLOAT64)
MEANINGS = {
    "cheap": add(mul(X, div(S, T)), convert(div(1.0, sqrt(add(mul(WIDE, WIDE), 1.0))), FLOAT32)),
    "a choice": select(gt(S, T), X, add(X, add(S, T))),
    "expensive": add(erf(X), mul(exp(S), exp(div(S, T)))),
    "of the others alone": exp(mul(S, T)),
    "a half": convert(mul(X, exp(S)), FLOAT16),
    "a byte": convert(add(mul(S, T), X), UINT8),
}


@pytest.mark.parametrize("name", MEANINGS)
@pytest.mark.parametrize("length", [1, 7, 64, 1000])
def test_the_same_bits_as_of_repeated_elements(name, length):
    meaning, rng = MEANINGS[name], np.random.default_rng(length)
    kernel = group((FLOAT32,) * 3, (meaning,))
    x = rng.standard_normal((5, length)).astype(np.float32)
    for one, other in product(["rows", "all", "none"], repeat=2):
        arrays = [x]
        for kind in (one, other):
            sizes = {"rows": (5, 1), "all": (1, 1), "none": x.shape}[kind]
            arrays.append(rng.standard_normal(sizes).astype(np.float32))
        y, z = (np.empty(x.shape, meaning.dtype.label) for _ in range(2))
        views = [np.broadcast_to(a, x.shape) for a in arrays]
        launch(kernel, [*views, y], 1)
        launch(kernel, [*(np.ascontiguousarray(v) for v in views), z], 1)
        assert y.tobytes() == z.tobytes()
        turned = np.empty(x.shape[::-1], y.dtype).T
        launch(kernel, [*views, turned], 1)
        assert turned.tobytes() == y.tobytes()


def test_it_is_computed_once():
    """A square root of one element for all is that of a scalar, before any loop."""
    kernel = group((FLOAT32, FLOAT32), (add(X, sqrt(S)),))
    code = kernel_body(kernel, KernelVariant((Access.PACKED, Access.SPLAT, Access.PACKED)), host())
    assert code.count("@llvm.sqrt") == 2, "a call and its declaration"
    assert code.index("@llvm.sqrt.f32") < code.index("phi")
