"""Operators of whole tensors, by their kernels and by their definitions."""

import pytest

from anydml import eager_tensors, heavy
from anydml.runtime.launch import RepeatedLaunch


@pytest.fixture(params=["alone", "shared"])
def by_both(request, monkeypatch, share_all_work):
    """Calls something by a kernel, whose work is shared by threads or not, then by the definition.

    `by_both(call)`; `by_kernel`: whether it is expected to have one.
    """
    if request.param == "shared":
        share_all_work()
    used = []
    launch = RepeatedLaunch._run
    monkeypatch.setattr(RepeatedLaunch, "_run", lambda *a: (used.append(1), launch(*a))[1])

    def run(call, by_kernel=True):
        found = []
        for least in (1, 1 << 60):
            monkeypatch.setattr(heavy, "MIN_ELEMENTS", least)
            eager_tensors.forget()
            used.clear()
            found.append(call())
            assert bool(used) is (by_kernel and least == 1)
        return found

    return run


@pytest.fixture
def same_bytes():
    def check(one, other):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()

    return check
