"""The functions are made from records, and yet as if they were written out: names, help, errors, pickles."""

import ast
import doctest
import inspect
import pickle
import subprocess
import sys
import traceback
import typing
from enum import Enum

import numpy as np
import pytest

import anydml as dml
from anydml import functions
from anydml.ops.catalog import CATALOG
from tools.generate_functions import TARGET

NAMES = [o.function for o in CATALOG]
X = np.float32([1, 2])
STUB = ast.parse(TARGET.read_text(encoding="utf-8"))
OVERLOADS = {n: [f for f in STUB.body if isinstance(f, ast.FunctionDef) and f.name == n] for n in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    """That each has one, and that it holds."""
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(functions, name), name)
    assert len(example.examples) == 2
    assert doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example).failed == 0


def written(default):
    return f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)


@pytest.mark.parametrize("name", NAMES)
def test_what_editors_read_is_what_python_knows(name):
    """Names, kinds and defaults of the parameters, and the types of all but tensors."""
    made = inspect.signature(getattr(dml, name)).parameters
    told = OVERLOADS[name][0].args
    free = [None] * (len(told.args) - len(told.defaults))
    given = [
        *zip(told.args, free + told.defaults, strict=True),
        *zip(told.kwonlyargs, told.kw_defaults, strict=True),
    ]
    assert list(made) == [a.arg for a, _ in given]
    assert [p.kind for p in made.values()] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(told.args) + [
        inspect.Parameter.KEYWORD_ONLY
    ] * len(told.kwonlyargs)
    for (argument, default), parameter in zip(given, made.values(), strict=True):
        assert (default is None) == (parameter.default is parameter.empty)
        assert default is None or ast.unparse(default) == written(parameter.default)
        if "Expression" not in parameter.annotation and parameter.name != "out":
            assert ast.unparse(argument.annotation) == parameter.annotation
    assert set(typing.get_type_hints(getattr(dml, name))) == {*made, "return"}


def test_a_function_is_found_where_it_says():
    for name in NAMES:
        made = getattr(dml, name)
        assert (made.__module__, made.__name__, made.__qualname__) == ("anydml.functions", name, name)
        assert getattr(functions, name) is made
        assert pickle.loads(pickle.dumps(made)) is made
    assert set(NAMES) == set(functions.__all__) <= set(dir(functions))
    with pytest.raises(AttributeError, match=r"module 'anydml.functions' has no attribute 'iff'"):
        functions.iff  # noqa: B018
    with pytest.raises(ImportError):
        from anydml.functions import iff  # noqa: F401


def test_all_threads_get_the_same_function():
    code = """
import sys, threading
from anydml import functions
sys.setswitchinterval(1e-6)
got, ready = [], threading.Barrier(8)
def ask():
    ready.wait()
    got.append([getattr(functions, name) for name in functions.__all__])
threads = [threading.Thread(target=ask) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(len(got), all(a is b for one in got for a, b in zip(one, got[0], strict=True)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "8 True\n"


def test_help():
    assert inspect.getdoc(dml.if_).startswith(
        "Output is A where Condition is non-zero, else B.\n\nDirectML: "
    )
    assert "\nArgs:\n    condition: uint8.\n" in dml.if_.__doc__
    signature = (
        "(input: 'Tensor | Expression', mode: 'IsInfinityMode | str' = <IsInfinityMode.EITHER: 0>, *, "
    )
    signature += "out: 'Out | None' = None) -> 'Array | Out | Expression'"
    assert str(inspect.signature(dml.is_infinity)) == signature


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: dml.if_(X, X), "if_() missing 1 required positional argument: 'b'"),
        (lambda: dml.clip(), "clip() missing 3 required positional arguments: 'input', 'min', and 'max'"),
        (lambda: dml.if_(X, X, X, X), "if_() takes 3 positional arguments but 4 were given"),
        (
            lambda: dml.clip(X, 1, 2, None, X),
            "clip() takes from 3 to 4 positional arguments but 5 were given",
        ),
        (lambda: dml.add(X, c=X), "add() got an unexpected keyword argument 'c'"),
        (lambda: dml.add(X, X, a=X), "add() got multiple values for argument 'a'"),
    ],
)
def test_wrong_calls_are_told_in_pythons_words(call, told):
    with pytest.raises(TypeError) as raised:
        call()
    assert str(raised.value) == told


def test_tracebacks_name_the_function():
    with pytest.raises(dml.InvalidInput) as raised:
        dml.if_(X, X, "x")
    assert "if_" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_arguments_are_taken_by_name_in_any_order():
    assert dml.clip(X * 2, 1, 2, (0.5, 0)).tolist() == [1, 2]
    assert dml.clip(max=2.5, scale_bias=(2, -1), input=X, min=0).tolist() == [1, 2.5]
    assert dml.activation_linear(X, beta=1, alpha=2).tolist() == [3, 5]
