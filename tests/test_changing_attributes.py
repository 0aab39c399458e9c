"""Functions whose attributes have ever other values: one kernel serves them, with the bits of their own."""

import numpy as np
import pytest

import anydml as dml
from anydml import call_signature
from anydml.ops.attributes import FloatKind, ScalarKind, ScaleBiasKind
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.dtypes import NUMPY
from anydml.ops.enums import FeatureLevel

NUMBERS = (FloatKind, ScalarKind, ScaleBiasKind)
OPERATORS = [o for o in ELEMENT_WISE if any(isinstance(a.kind, NUMBERS) for a in o.parameters)]
ODD = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, np.inf, -np.inf)


def function(operator):
    name = operator.name.removeprefix("ELEMENT_WISE_").lower()
    return getattr(dml, name, None) or getattr(dml, name + "_")


def drawn(rng, attribute, whole):
    def number():
        if whole:
            return int(rng.integers(0, 50))
        return float(np.float32(rng.choice(ODD) if rng.random() < 0.3 else rng.normal() * 3))

    if isinstance(attribute.kind, ScaleBiasKind):
        return (number(), number()) if not whole and rng.random() < 0.8 else None
    return number()


def inputs(rng, operator, dtype):
    found = []
    for s in operator.inputs:
        own = dtype if s.dtype == operator.inputs[0].dtype else NUMPY[operator.example_type(s.dtype)]
        x = rng.normal(size=(3, 37)) * 4 if np.dtype(own).kind == "f" else rng.integers(0, 9, (3, 37))
        found.append(None if s.optional is not None and rng.random() < 0.5 else x.astype(own))
    return found


def compute(operator, given, values):
    with np.errstate(all="ignore"):
        return function(operator)(*given, **values)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
@pytest.mark.drawn
def test_the_same_bits_as_by_a_kernel_of_its_own(operator, monkeypatch):
    table, rng = operator.table(FeatureLevel.newest()), np.random.default_rng(len(operator.name))
    for dtype in table.dtypes[operator.inputs[0].dtype]:
        dtype = NUMPY[dtype]
        if not (np.dtype(dtype).kind == "f" or dtype in (np.int32, np.uint8)):
            continue
        given, found = inputs(rng, operator, dtype), []
        monkeypatch.setattr(call_signature, "_families", {})
        call_signature.signature_of.cache_clear()
        for _ in range(14):
            values = {
                a.parameter: drawn(rng, a, np.dtype(dtype).kind != "f")
                for a in operator.parameters
                if isinstance(a.kind, NUMBERS)
            }
            try:
                found.append((values, compute(operator, given, values)))
            except dml.InvalidOperator:  # a rule between attributes
                continue
        shared = [f.shared for f in call_signature._families.values()]
        assert any(shared) or not found or np.dtype(dtype).kind != "f", "none is shared"
        for values, got in found:  # each as the first of its kind
            call_signature._families.clear()
            call_signature.signature_of.cache_clear()
            wanted = compute(operator, given, values)
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            assert got.tobytes() == wanted.tobytes(), f"{np.dtype(dtype)} {values}"


def test_no_kernel_is_made_for_new_values(monkeypatch):
    from anydml.codegen import jit

    x = np.linspace(-3, 3, 64, dtype=np.float32)
    for k in range(5):
        dml.clip(x, -1.0 - k, 1.0 + 2 * k)
        dml.clip(x, -1.0 - k, 1.0 + 2 * k)
    made = []
    compiled = jit._object_code
    monkeypatch.setattr(jit, "_object_code", lambda *a: made.append(a) or compiled(*a))
    for k in range(50):
        low, high = -0.013 * k - 0.1, 0.017 * k + 0.2
        assert np.array_equal(dml.clip(x, low, high), np.clip(x, np.float32(low), np.float32(high)))
        out = np.zeros_like(x)
        assert dml.clip(x[::-1], low, high, out=out) is out
        assert np.array_equal(out, np.clip(x[::-1], np.float32(low), np.float32(high)))
    assert len(made) <= 1  # of a reversed array
