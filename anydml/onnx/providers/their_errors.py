"""Errors of ours that are onnxruntime's, too: for code that catches those of its sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from onnxruntime.capi import onnxruntime_pybind11_state as theirs

from anydml.errors import AnyDMLError, ExecutionFailed, InvalidInput, InvalidModel, OutOfMemory, Unsupported

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _both(own: type[Exception], *names: str, also: type[Exception] | None = None) -> Any:
    """A class of both libraries, called as ours."""

    def reduce(error: Exception) -> tuple[object, ...]:
        return _remade, (own, own.__reduce__(error)[1])

    bases = (own, *(getattr(theirs, n) for n in names if hasattr(theirs, n)), *filter(None, [also]))
    named = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
    return type(own.__name__, bases, {**named, "__reduce__": reduce})


def _remade(own: type[Exception], args: tuple[Any, ...]) -> Exception:
    """An error that was copied, or came from another process."""
    return _BOTH.get(own, _NoSuchFile)(*args)  # type: ignore[no-any-return]


_BOTH: dict[type[Exception], Any] = {
    InvalidInput: _both(InvalidInput, "InvalidArgument", also=RuntimeError),  # as bindings raise it
    InvalidModel: _both(InvalidModel, "InvalidGraph", "InvalidProtobuf", "InvalidArgument", "Fail"),
    ExecutionFailed: _both(ExecutionFailed, "RuntimeException", "InvalidArgument", "Fail"),
    OutOfMemory: _both(OutOfMemory, "RuntimeException", "Fail"),
    Unsupported: _both(Unsupported, "NotImplemented", "InvalidGraph", "Fail"),
}
"""Which of onnxruntime's classes tells the same; where it has several for one of ours, all of them."""
_NoSuchFile = _both(FileNotFoundError, "NoSuchFile")


def become_theirs(error: AnyDMLError) -> None:
    """Have code that catches onnxruntime's errors catch this one, which is about to be raised again."""
    error.__class__ = _BOTH.get(type(error), type(error))


def raises_theirs(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function whose errors are onnxruntime's, too."""

    @wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except AnyDMLError as error:
            become_theirs(error)
            raise
        except FileNotFoundError as error:
            raise _NoSuchFile(error.errno, error.strerror, error.filename) from error

    return told
