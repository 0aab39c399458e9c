"""Dataclasses whose methods are made when they have been called some times.

The standard ones write up to seven functions as text and compile them, for each class that is defined. A
process imports 140 classes of ours, which took half of the time of `import`, and calls the methods of few, of
most of these once or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, replace
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from dataclasses import dataclass as _standard

    def dataclass(cls=None, /, *, init=True, repr=True, eq=True, frozen=False):
        """As that of `dataclasses`, of which it has what is needed here."""
        if cls is None:
            return lambda cls: dataclass(cls, init=init, repr=repr, eq=eq, frozen=frozen)
        own, documented = cls.__dict__, cls.__doc__
        lazy = {}
        if init and "__init__" not in own:
            lazy["__init__"] = _few_init, _init
        if eq and "__eq__" not in own:
            lazy["__eq__"] = _few_eq, _eq
        if eq and own.get("__hash__") is None:  # as it is beside an __eq__ of a class's own, too
            lazy["__hash__"] = (_few_hash, _hash) if frozen else None
        cls.__doc__ = documented or cls.__name__  # else that module writes the signature there
        _standard(init=False, repr=False, eq=False)(cls)
        cls.__doc__ = documented
        for name, both in lazy.items():
            setattr(cls, name, both and _made_later(cls, name, *both))
        if "__init__" in lazy:
            cls.__signature__ = _Signature(cls)
        if repr and "__repr__" not in own:
            cls.__repr__ = _repr
        if frozen:
            cls.__setattr__, cls.__delattr__ = _frozen(cls)
        return cls


Maker = Callable[[type], Callable[..., Any]]
FEW = 8
"""Calls of a method that take less time by themselves than it takes to compile it: 0.2 ms."""


def _made_later(cls: type, name: str, few: Maker, make: Maker) -> Callable[..., Any]:
    """A method that does the work itself, and then puts the real one in its place."""
    left, work = FEW, None

    def method(*args: Any, **named: Any) -> Any:
        nonlocal left, work
        left -= 1
        if left >= 0:
            work = work or few(cls)
            return work(*args, **named)
        made = cls.__dict__[name]
        if made is method:
            made = make(cls)
            setattr(cls, name, made)
        return made(*args, **named)

    method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
    return method


def _few_init(cls: type) -> Callable[..., None]:
    every, put = fields(cls), object.__setattr__
    names = [f.name for f in every if f.init]
    optional = {f.name for f in every if f.default is not MISSING or f.default_factory is not MISSING}

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        given = dict(zip(names, args, strict=False)) | named
        told = len(given) == len(args) + len(named) and given.keys() <= {*names}
        if not told or not {*names} <= given.keys() | optional:
            _init(cls)(self, *args, **named)  # which says what is wrong
            return
        for f in every:
            if f.name in given:
                put(self, f.name, given[f.name])
            elif f.default_factory is not MISSING:
                put(self, f.name, f.default_factory())
            elif f.init:
                put(self, f.name, f.default)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


def _few_eq(cls: type) -> Callable[..., Any]:
    names = _compared(cls)

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return [getattr(self, n) for n in names] == [getattr(other, n) for n in names]

    return __eq__


def _few_hash(cls: type) -> Callable[..., int]:
    names = _hashed(cls)

    def __hash__(self: Any) -> int:
        return hash(tuple([getattr(self, n) for n in names]))

    return __hash__


def _compared(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if f.compare]


def _hashed(cls: type) -> list[str]:
    return [f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash)]


class _Missing:
    """What stands for the default of an argument that is made anew for each call."""

    def __repr__(self) -> str:
        return "<factory>"


_MISSING = _Missing()


def _init(cls: type) -> Callable[..., Any]:
    """As the standard one: what is frozen is set past `__setattr__`."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    parameters, lines = ["self"], []
    frozen = "__setattr__" in cls.__dict__
    for f in fields(cls):
        value, default = f.name, ""
        if f.default is not MISSING:
            known[f"_default_{f.name}"], default = f.default, f"=_default_{f.name}"
        if f.default_factory is not MISSING:
            known[f"_new_{f.name}"], default = f.default_factory, "=_missing"
            value = f"_new_{f.name}()" + (f" if {f.name} is _missing else {f.name}" if f.init else "")
        elif not f.init:
            continue  # it has its default by its class
        if f.init:
            parameters.append(f.name + default)
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    return _function(cls, f"__init__({', '.join(parameters)})", lines or ["pass"], known)


def _eq(cls: type) -> Callable[..., Any]:
    names = _compared(cls)
    lines = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_tuple('self', names)} == {_tuple('other', names)}",
    ]
    return _function(cls, "__eq__(self, other)", lines, {})


def _hash(cls: type) -> Callable[..., Any]:
    return _function(cls, "__hash__(self)", [f"return hash({_tuple('self', _hashed(cls))})"], {})


def _tuple(thing: str, names: list[str]) -> str:
    return "(" + "".join(f"{thing}.{name}, " for name in names) + ")"


def _function(cls: type, head: str, lines: list[str], known: dict[str, Any]) -> Callable[..., Any]:
    made: dict[str, Any] = {}
    exec("\n  ".join([f"def {head}:", *lines]), known, made)
    (function,) = made.values()
    function.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    return function  # type: ignore[no-any-return]


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _frozen(cls: Any) -> tuple[Callable[..., None], Callable[..., None]]:
    names = {f.name for f in fields(cls)}

    def refuses(self: Any, name: str, what: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {what} field {name!r}")

    def __setattr__(self: Any, name: str, value: object) -> None:
        refuses(self, name, "assign to")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        refuses(self, name, "delete")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


class _Signature:
    """How a class is called, for whoever asks: `inspect`, and what shows help."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, thing: object, cls: type) -> Any:
        if cls.__init__ is not self._cls.__init__:  # type: ignore[misc]
            raise AttributeError("__signature__")  # a subclass has its own
        import inspect

        types = {f.name: f.type for f in fields(self._cls)}
        found = inspect.signature(_init(self._cls))
        own = [p.replace(annotation=types[p.name]) for p in list(found.parameters.values())[1:]]
        return found.replace(parameters=own, return_annotation=None)
