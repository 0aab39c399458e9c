"""Models with their plans, each once in a process however many sessions of it are sent here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from copy import copy
from enum import Enum

from anydml.cached import cached_property
from anydml.dataclass import dataclass, replace
from anydml.ir.dims import Affine
from anydml.ir.graph import Graph, If, Node, TensorType, Value
from anydml.locks import Lock
from anydml.onnx.execute.checks import check_operators
from anydml.onnx.execute.partition import ProviderRegistry
from anydml.onnx.execute.program import Program
from anydml.onnx.partial_eval.annotate import typed_outputs
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.session_options import ExecutionProviders, SessionOptions
from anydml.onnx.providers.weights import copies_weights
from anydml.onnx.schema import is_custom
from anydml.onnx.serde.deserialize import Argument, Model, read
from anydml.onnx.serde.parse import ModelSource
from anydml.onnx.serde.source import Described, Known, Source, check, check_files, known_by
from anydml.runtime.process import RenewedLock, renew_after_fork
from anydml.runtime.threads import asked_threads, default_threads

_reading = RenewedLock()
"""Held while a model is read anew."""


@dataclass(frozen=True)
class Settings:
    """What `load` was told beside the model."""

    threads: int | None
    dims: tuple[tuple[str, int], ...]
    providers: ExecutionProviders
    native: bool | None
    deterministic: bool
    exact: bool
    """What sums of products of 8-bit integers have to be."""


class Stays(Enum):
    """What becomes of a model when its last session is gone."""

    NOT = "not"
    CLOSED = "closed"
    """It keeps its plans; libraries hold nothing for them."""
    READY = "ready"


class Loaded:
    """A model with its plans: what sessions that are alike have in common."""

    def __init__(self, model: ModelSource, settings: Settings, given: SessionOptions | None = None) -> None:
        """`given`: what `load` was told by onnxruntime's options, which know where custom operators are."""
        self.source, self.settings = Source(model), settings
        self.model = self._read(model, fixed=True)
        self.given = given if given is not None and has_custom_operators(self.model.graph) else None
        check_operators(self.model.graph, custom=self.given is not None)
        self.program = self._program(self.model)
        self._users: set[int] = set()
        """Sessions that use it, by their numbers."""
        self._stays = Stays.NOT
        self.overridden: Program | None = None
        """Of all inputs, also those that need not be fed; once somebody has fed one of these."""
        if self.model.overridable:
            self.source.keep()

    def with_providers(self, providers: ExecutionProviders) -> Loaded:
        """The same model with other execution providers."""
        other = copy(self)
        vars(other).pop("whole", None)
        other._users, other._stays = set(), Stays.NOT
        other.settings, other.overridden = replace(self.settings, providers=providers), None
        other.program = other._program(self.model)
        return other

    def stay(self, how: Stays) -> None:
        """From here on, it may be there when nobody uses it."""
        self._stays = how if self._stays is Stays.NOT else self._stays

    def used_by(self, session: object) -> Callable[[], object]:
        """Note that a session uses it, until it goes or calls what this gives."""
        self._users.add(id(session))
        leave = weakref.finalize(session, self._left_by, id(session))
        leave.atexit = False
        return leave

    def go(self) -> None:
        """From here on, it is there for its sessions only."""
        if self._stays is Stays.CLOSED:
            self._stays = Stays.NOT
            self._leave_if_unused()

    def _left_by(self, number: int) -> None:
        """A session is gone."""
        self._users.discard(number)
        self._leave_if_unused()

    def _leave_if_unused(self) -> None:
        """Give back what nobody uses any more."""
        if self._users or self._stays is Stays.READY:
            return
        for program in filter(None, (self.program, self.overridden)):
            if self._stays is Stays.CLOSED:
                program.libraries.rest()
            else:
                program.forget()

    def _read(self, model: ModelSource, fixed: bool) -> Model:
        return read(model, dict(self.settings.dims), mapped=copies_weights(), fixed=fixed)

    def _program(self, model: Model) -> Program:
        settings = self.settings
        libraries = ProviderRegistry(
            model.opsets,
            settings.threads or default_threads(),
            settings.threads or asked_threads(),
            OnnxRuntime(providers=settings.providers, given=self.given, exact=settings.exact),
            native=settings.native,
            at_once=settings.deterministic,
            files=model.mapped,
        )
        return Program(model.graph, libraries, declared=[o.type for o in model.outputs])

    @cached_property
    def conditions(self) -> Mapping[Value, str]:
        return conditions_of(self.model)

    @cached_property
    def whole(self) -> tuple[Model, Program, Mapping[Value, str]]:
        """The model with all of its inputs, read anew: contents that are constants mostly are inputs in it.

        Raises:
            InvalidModel: its file is another one by now.
        """
        with _reading.lock:  # once, by whichever thread comes first
            if "whole" in self.__dict__:
                return self.whole
            self.source.check()
            model = self._read(self.source.again(), fixed=False)
            self.source.check()
            self.overridden = self._program(model)
            self.__dict__["whole"] = found = model, self.overridden, conditions_of(model)
            return found

    @cached_property
    def outputs(self) -> tuple[Argument, ...]:
        return typed_outputs(self.model)

    @property
    def symbols(self) -> list[str]:
        """The names of sizes that its inputs leave open."""
        types = (i.type for i in self.model.inputs)
        sizes = [n for t in types if isinstance(t, TensorType) for n in t.sizes or ()]
        return list(dict.fromkeys(n.name for n in sizes if isinstance(n, Affine) and n.name))

    def describe(self) -> Key:
        """What it is pickled as.

        Raises:
            TypeError: its custom operators are in libraries that only its options know.
        """
        if self.given is not None:
            raise TypeError("a session with custom operators cannot be pickled: load it where it is to run")
        return self.source.describe(self.model.files), self.settings


def has_custom_operators(graph: Graph) -> bool:
    return any(isinstance(n, Node) and is_custom(n.op) for n in graph.walk(bodies=True))


def conditions_of(model: Model) -> Mapping[Value, str]:
    """The labels of Ifs, by what they decide by."""
    return {n.condition: n.label for n in model.graph.nodes if isinstance(n, If)}


Key = tuple[Described, Settings]
"""What a session is pickled as: its model, and what else `load` was told."""


class LoadedModels:
    """What was pickled or unpickled in this process, as long as a session uses it; and what came last."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[Key, Loaded] = weakref.WeakValueDictionary()
        self._last: Loaded | None = None
        """Who is sent a session with each piece of work drops it in between."""
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = Lock()

    def add(self, key: Key, loaded: Loaded) -> None:
        loaded.stay(Stays.READY)
        self._known.setdefault(_short(key), loaded)

    def loaded(self, key: Key) -> Loaded:
        """What a key stands for, from here or loaded now; each once, from however many threads."""
        described, settings = key
        with self._lock:
            loaded = self._known.get(_short(key))
            if loaded is not None and loaded.source.is_unchanged():
                check_files(described, "it was pickled")
            else:
                source = Source(described.place)
                check(described)
                loaded = Loaded(described.place, settings)
                loaded.stay(Stays.READY)
                source.check()  # what was read is what was checked
                self._known[_short(key)] = loaded
            self._last = loaded
            return loaded


KEPT_MODELS = 4


class RecentModels:
    """The last few small models that were loaded, with their plans.

    Some programs make a session for each of their calls. Each would be planned anew, which takes longer than
    onnxruntime takes to open one. Of what is kept here, nothing is open while nobody uses it.
    """

    def __init__(self) -> None:
        self._loaded: dict[tuple[Known, Settings], Loaded] = {}
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = Lock()

    def loaded(self, model: ModelSource, settings: Settings, given: SessionOptions | None) -> Loaded:
        """A model that was loaded lately, or is loaded now."""
        sized = all(isinstance(size, int) for _, size in settings.dims)
        known = known_by(model) if sized else None  # what else is no size is told when it is read
        if known is None:
            return Loaded(model, settings, given)
        key = known, settings
        with self._lock:
            found = self._loaded.get(key)
            if found is not None and (given is None or not has_custom_operators(found.model.graph)):
                self._loaded[key] = self._loaded.pop(key)
                return found
        made = Loaded(model, settings, given)
        alone = not made.model.files and made.given is None  # neither of which is part of the key
        if alone and made.source.is_known_by(known):
            made.stay(Stays.CLOSED)
            with self._lock:
                self._loaded[key] = made
                others = [*self._loaded][:-KEPT_MODELS]
                gone = [self._loaded.pop(other) for other in others]
            for loaded in gone:
                loaded.go()
        return made

    def clear(self) -> None:
        with self._lock:
            gone = [*self._loaded.values()]
            self._loaded.clear()
        for loaded in gone:
            loaded.go()


def _short(key: Key) -> Key:
    """The key without the model itself, which its digest stands for."""
    described, settings = key
    place = described.place if isinstance(described.place, str) else b""
    return replace(described, place=place), settings
