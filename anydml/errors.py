"""What can go wrong, and how it is told: *where*, `expected X, but got Y`, then the remedy.

A check collects each `Problem`, so that a caller sees all broken rules at once; whoever must stop
raises them together as one of the errors below.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from importlib import import_module
from typing import ClassVar, ParamSpec, TypeVar

from anydml.dataclass import dataclass

E_INVALIDARG = 0x80070057
"""The HRESULT that DirectML itself answers an invalid description with."""


@dataclass(frozen=True)
class Problem:
    """One broken rule: the place, what was expected and found there, and what to do about it."""

    where: str
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}; {self.remedy}" if self.remedy else text

    def under(self, where: str) -> Problem:
        """The same problem, seen from further out: `where` comes first."""
        return Problem(f"{where}: {self.where}" if self.where else where, self.message, self.remedy)


def require(*conditions: object) -> None:
    """What a kernel relies on. It is looked at with `python -O`, too: pointers do not know where memory ends.

    Raises:
        AssertionError: one does not hold, which is a mistake of anydml's. Nothing was written.
    """
    for k, holds in enumerate(conditions):
        if not holds:
            raise AssertionError(
                f"a kernel does not fit what it is given (condition {k + 1}); please report it"
            )


class AnyDMLError(Exception):
    """Every error that anydml raises on purpose. `problems` lists what is wrong, one entry a rule."""

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__(*problems)
        self.problems = tuple(p if isinstance(p, Problem) else Problem("", p) for p in problems)

    def __str__(self) -> str:
        return "\n".join(str(p) for p in self.problems)


class InvalidOperator(AnyDMLError, ValueError):
    """An operator description breaks DirectML's documented rules (DirectML: E_INVALIDARG)."""

    hresult: ClassVar[int] = E_INVALIDARG


class InvalidModel(AnyDMLError, ValueError):
    """A model file is damaged, or says something that ONNX or DxDispatch does not allow."""


class InvalidInput(AnyDMLError, ValueError):
    """An array that was fed or bound does not fit: name, data type, rank, size, layout or overlap."""


class ExecutionFailed(AnyDMLError, RuntimeError):
    """A node failed while it ran; the message names the node and its path through the branches."""


class OutOfMemory(ExecutionFailed, MemoryError):
    """There is not as much memory as is needed. What was there before is as it was, and can be used."""


class VerificationFailed(AnyDMLError, RuntimeError):
    """A rewritten model does not do what the original does; nothing was written."""


class Unsupported(AnyDMLError, NotImplementedError):
    """A valid request that anydml cannot fulfil yet."""


class UnknownFieldWarning(UserWarning):
    """A DxDispatch file has fields that are not known: they are ignored, as DxDispatch does.

    There is one warning for a file, with the place of each field and the nearest known one. To have an error
    instead: `warnings.simplefilter("error", anydml.UnknownFieldWarning)`.
    """


_P = ParamSpec("_P")
_R = TypeVar("_R")


def translate_memory_error(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A call behind which memory may run out anywhere: what comes out is an error of ours."""

    @wraps(function)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except OutOfMemory:
            raise
        except MemoryError as error:
            raise out_of_memory(error) from error

    return told


def out_of_memory(error: MemoryError) -> OutOfMemory:
    """It as an error of ours."""
    message = f"expected as much memory as is needed, but there is no more {error}".rstrip()
    return OutOfMemory(Problem("", message))


_SIGNALS = tuple(map(int, signal.valid_signals()))
# what `signal.getsignal` calls; that makes enums of all, which takes half a millisecond for each error caught
_handler_of = import_module("_signal").getsignal


def by_a_handler(error: BaseException) -> bool:
    """Whether a signal's handler raised what was caught around a call of a library (a timeout, say): it went
    through the code of one that is installed."""
    handlers = {_code_of(_handler_of(number)) for number in _SIGNALS} - {None}
    entry = error.__traceback__ if handlers else None
    while entry is not None:
        if entry.tb_frame.f_code in handlers:
            return True
        entry = entry.tb_next
    return False


def _code_of(handler: object) -> object:
    """What Python runs of it; None of none of Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = getattr(handler, "__func__", handler)
    return getattr(function, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def check_by_name(word: str, given: object) -> None:
    """What is told of inputs or sizes by their names.

    Raises:
        InvalidInput: it is no dictionary.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(Problem(word, f"expected a dictionary, but got {short_repr(given)}"))


def short_repr(value: object) -> str:
    """A value in a message: as Python writes it, but never more than a line of it."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python converts
        text = "a number of thousands of digits"
    except Exception as error:  # somebody else's __repr__
        if by_a_handler(error):
            raise
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:80]} ... ({len(text)} characters)"


def type_name(value: object) -> str:
    """What sort of thing a value is, in a message that expected another sort."""
    return "nothing" if value is None else type(value).__name__


def counted(count: int, word: str) -> str:
    """How many there are, in words: `1 node`, `2,000 nodes`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


_MOST_COMPARED, _LONGEST_COMPARED = 1000, 100
"""Comparing takes time, which a hostile file has none to ask for."""


def nearest(name: object, known: Iterable[str]) -> str:
    """A remedy for a misspelt name: `did you mean 'x'?`, or all names when there are few."""
    names = list(known)[:_MOST_COMPARED]
    if close := close_names(name, names):
        return "did you mean " + " or ".join(map(repr, close)) + "?"
    return "known: " + ", ".join(sorted(names)) if 0 < len(names) <= 16 else ""


def close_names(name: object, known: Iterable[str]) -> list[str]:
    """Up to three names that somebody may have meant who wrote another one."""
    import difflib  # when something is wrong

    names = list(known)[:_MOST_COMPARED]
    name = name[:_LONGEST_COMPARED] if isinstance(name, str) else ""
    folded = {n.lower(): n for n in names}
    typed = name.lower()
    scores = {n: difflib.SequenceMatcher(None, typed, n).ratio() for n in folded}
    scores |= {n: 1.0 for n in folded if sorted(n) == sorted(typed)}  # letters that changed places
    bare = typed.replace("_", "")
    whole = [n for n in folded if len(bare) > 3 and bare in n.replace("_", "")]
    if whole:  # a part of a name: of the shortest one
        shortest = min(whole, key=len)
        scores[shortest] = max(scores[shortest], 0.99)
    best = max(scores.values(), default=0)
    return [folded[n] for n, score in scores.items() if score >= max(0.6, best - 0.05)][:3]


def cannot_leave(what: str) -> TypeError:
    """What pickling or copying a binding raises."""
    remedy = f"pickle what was bound, the {what}, and bind again in the other process"
    return TypeError(f"expected something to pickle or copy, but got arrays bound to memory; {remedy}")
