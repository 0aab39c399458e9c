"""Models with control flow run in two ways, as programs and in regions: tests of what they mean try both."""

import inspect

import pytest

import anydml.session

EITHER_WAY = {
    "test_if",
    "test_if_bodies",
    "test_if_types",
    "test_if_rows",
    "test_loop_ifs",
    "test_minimal_cases",
}
EITHER_WAY |= {"test_iterate", "test_decoder", "test_bodies", "test_bad_runs", "test_ownership"}


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.rpartition(".")[2] in EITHER_WAY:
        metafunc.fixturenames.append("native")
        metafunc.parametrize("native", [None, False], ids=["", "regions"], indirect=True)


@pytest.fixture
def native(request, monkeypatch):
    monkeypatch.setitem(inspect.unwrap(anydml.session.load).__kwdefaults__, "native", request.param)
