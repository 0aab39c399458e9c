"""ONNX models as sessions, used like onnxruntime's InferenceSession.

    session = load("model.onnx", threads=1)
    outputs = session.run(None, {"x": x})

A session specialises: for the shapes it is fed, and for the contents of the small inputs that decide
branches, it makes a plan in which what is known is done already. See `Session.explain`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, Self

from anydml.display import page, signature, text
from anydml.errors import (
    AnyDMLError,
    InvalidInput,
    Problem,
    check_by_name,
    nearest,
    out_of_memory,
    short_repr,
    translate_memory_error,
)
from anydml.ir.graph import Value
from anydml.onnx.execute.bound import Bound
from anydml.onnx.execute.loaded import Key, Loaded, LoadedModels, RecentModels, Settings
from anydml.onnx.execute.program import Program
from anydml.onnx.feeds import as_array, check_call, check_places, checked, is_text
from anydml.onnx.inference_session import InferenceSessionMethods, NodeArg, Providers
from anydml.onnx.providers.provider import RanksDiffer
from anydml.onnx.providers.session_options import (
    check_run_options,
    execution_providers,
    fixed_sizes,
    options_of,
    requested_options,
    warn,
    write_optimized,
)
from anydml.onnx.providers.their_errors import become_theirs, raises_theirs
from anydml.onnx.serde.deserialize import Argument, Model
from anydml.onnx.serde.parse import Meta, ModelSource
from anydml.onnx.types import type_text
from anydml.runtime.threads import check_threads

_log = logging.getLogger("anydml.session")


@raises_theirs
@translate_memory_error
def load(
    model: ModelSource,
    sess_options: object = None,
    providers: Providers | None = None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    threads: int | None = None,
    dims: Mapping[str, int] | None = None,
    native: bool | None = None,
) -> Session:
    """An ONNX model, ready to run. The first four arguments are those of onnxruntime's `InferenceSession`.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        sess_options: an `onnxruntime.SessionOptions`. Its `intra_op_num_threads` is `threads`; with
            `use_deterministic_compute`, or $ANYDML_DETERMINISTIC, a first run waits for machine code that is
            not on disk, so that its last bits are those of later runs; else that is made at the second run.
            With "session.x64quantprecision" told to be "0", sums of products of 8-bit integers are cut off
            at 16 bits on processors without VNNI, as onnxruntime's are by default; else they are exact.
            With `optimized_model_filepath`, onnxruntime writes that file, as it would.
            Custom operators of libraries that were registered with it run, and what is around them in one
            region of onnxruntime, with these options as they are. Sizes that it has for symbols are `dims`.
            A warning names what else it asks for, which has no meaning here; the logger `anydml.session`, at
            INFO, what it says of how onnxruntime works.
        providers: onnxruntime's execution providers, in order, for what it runs: names, or pairs of a name
            and its options. Default: the CPU. Conditions are decided on the host.
        provider_options: options for each of them.
        threads: of one run; default as many as cores.
        dims: sizes for symbols that its inputs declare, as in `{"batch": 8}`; other sizes are refused then.
        native: whether a graph of small tensors of fixed sizes becomes one function of machine code,
            branches and loops included. None: models with control flow do, where that takes less than half
            a second once on a machine; True: whatever can, for the first run already; False: never.

    Raises:
        InvalidInput: `dims` names no symbol of an input; a provider that the installed onnxruntime has not;
            `native` is none of these.
        InvalidModel: not an ONNX model, or one that is not well formed.
        Unsupported: the model needs a newer opset than the installed onnx package knows.
        OSError: the file cannot be read.
    """
    if native not in (None, True, False):
        raise InvalidInput(Problem("native", f"expected True, False or None, but got {short_repr(native)}"))
    check_by_name("dims", {} if dims is None else dims)
    requested = requested_options(sess_options)
    if requested.ignored:
        warn(f"sess_options: no meaning in anydml, and ignored: {', '.join(requested.ignored)}")
    if requested.unused:
        _log.info("sess_options: no meaning in anydml: %s", ", ".join(requested.unused))
    settings = Settings(
        check_threads(requested.threads if threads is None else threads),
        tuple(sorted((dims or {}).items(), key=str)),
        execution_providers(providers, provider_options),
        native,
        requested.deterministic
        or os.environ.get("ANYDML_DETERMINISTIC", "0").lower() not in ("", "0", "off"),
        requested.exact,
    )
    loaded = _recent.loaded(model, settings, requested.given)
    if told := fixed_sizes(requested.given, loaded.symbols):
        settings = replace(settings, dims=tuple(sorted({**told, **dict(settings.dims)}.items())))
        loaded = _recent.loaded(model, settings, requested.given)
    write_optimized(model, requested.given, settings.providers)
    return Session(loaded)


class Session(InferenceSessionMethods):
    """A loaded model. Safe to use from several threads at once, and in forked children. Made by `load`.

    A forked child makes the libraries' part of its plans anew. If onnxruntime was imported before anydml's
    first session, its own telemetry may hold up children that end by `sys.exit`, and so do sessions of
    onnxruntime that are yours: see docs/reliability.md.

    A session can be pickled: by its path and what the file is, where it was loaded from one; else with the
    whole model. Where another file is there, or external data of another size or time, unpickling raises
    `InvalidModel`; pickling does, too, if the file was changed since it was loaded. Sessions that come from
    equal pickles, and copies, share their plans.
    """

    def __init__(self, loaded: Loaded) -> None:
        self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        if leave := vars(self).get("_leave"):
            leave()
        self._loaded, self._model, self._program = loaded, loaded.model, loaded.program
        self._leave = loaded.used_by(self)
        self._names = tuple(i.name for i in self._model.inputs)
        self._whole: tuple[tuple[str, ...], Program] | None = None
        """Of all inputs, once one was fed that need not be."""
        self._overridable = frozenset(i.name for i in self._model.overridable)
        self._outputs = {o.name: k for k, o in enumerate(self._model.outputs)}

    @classmethod
    def _of(cls, loaded: Loaded, **others: Any) -> Self:
        """One of a class that may be a user's, of which nobody knows what its `__init__` takes."""
        made = object.__new__(cls)
        made._take(loaded)
        vars(made).update(others)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        key = self._loaded.describe()
        if self._loaded.source.nofail:
            _known.add(key, self._loaded)
        return _restore, (key, type(self)), self._others()

    def _others(self) -> dict[str, Any]:
        """What a class of a user's keeps besides."""
        own = vars(Session(self._loaded))
        return {name: x for name, x in vars(self).items() if name not in own}

    def __copy__(self) -> Self:
        return self._of(self._loaded, **self._others())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        memo[id(self)] = made = self._of(self._loaded)
        vars(made).update(deepcopy(self._others(), memo))
        return made

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that must be fed; those with a default in the file are left out, as in onnxruntime."""
        return [NodeArg(i) for i in self._model.inputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs with a default in the file, which may be fed."""
        return [NodeArg(i) for i in self._model.overridable]

    def get_outputs(self) -> list[NodeArg]:
        """With the sizes that follow, where the file says none."""

        def followed(k: int) -> Argument:
            return self._loaded.outputs[k]

        return [NodeArg(o, partial(followed, k)) for k, o in enumerate(self._model.outputs)]

    def get_providers(self) -> list[str]:
        """onnxruntime's execution providers, in order, for what it runs."""
        return [name for name, _ in self._loaded.settings.providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {name: dict(options) for name, options in self._loaded.settings.providers}

    def set_providers(
        self,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Others from now on, as for `load`; plans are made anew.

        Raises:
            InvalidInput: a provider that the installed onnxruntime has not.
        """
        self._take(self._loaded.with_providers(execution_providers(providers, provider_options)))

    def get_session_options(self) -> Any:
        """onnxruntime's SessionOptions of what `load` was told."""
        return options_of(self._loaded.settings.threads, self._loaded.settings.deterministic)

    @property
    def _model_path(self) -> str | None:
        """Where the model was loaded from: Hugging Face's optimum asks sessions for it."""
        return self._loaded.source.path

    def get_modelmeta(self) -> Meta:
        """What the file says about itself: `producer_name`, `custom_metadata_map`, ..."""
        return self._model.meta

    def bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> Bound:
        """The model with arrays to run on again and again; what they contain may change in between.

        Args:
            inputs: as for `run`.
            outputs: arrays that the outputs of these names are written to, of their types and shapes.

        Raises:
            InvalidInput: as `run`; or an output that is unknown, no array that can be written to, or shares
                memory with another one.
        """
        check_places(outputs or {}, self._outputs)
        places = {self._outputs[name]: y for name, y in (outputs or {}).items()}
        model, program, conditions = self._fed(inputs)
        names = [i.name for i in model.inputs]
        feed = dict(zip(names, checked(inputs, model, conditions), strict=True))
        return Bound(self, program, feed, places, [o.name for o in model.outputs])

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """Run the model once.

        Args:
            output_names: which outputs, in which order; None or empty: all.
            input_feed: an array (or list of arrays, for a sequence; or None, for an optional) by input name.
            run_options: an `onnxruntime.RunOptions`. Where its `terminate` is set before the run, that is not
                begun. Adapters (`add_active_adapter`), of which it does not tell, are left out.

        Returns:
            The outputs: arrays, lists for sequences, None for empty optionals. They are the caller's: their
            memory is that of nothing else, and is used again only when nobody has an array over it any more.

        Raises:
            InvalidInput: unknown or missing names, a wrong data type, rank or size.
            ExecutionFailed: a node failed; tells which one, and the way through the branches to it; or the
                run is ended. One that needs more memory than there is raises `OutOfMemory`, one of its kind.
            Unsupported: no provider runs a node that is needed.
        """
        # checks are made where something is unusual: they would cost a tenth of a small model's run
        try:
            if type(input_feed) is not dict or not (output_names is None or type(output_names) is list):
                check_call(output_names, input_feed)
            try:
                places = [self._outputs[name] for name in output_names] if output_names else None
            except (KeyError, TypeError):
                raise self._unknown_outputs(output_names or ()) from None
            if run_options is not None:
                check_run_options(run_options)
            entry = self._program.entry
            results = None if entry is None else entry(input_feed)
            if results is None:
                results = self._results(input_feed)
        except AnyDMLError as error:
            become_theirs(error)
            raise
        except MemoryError as error:
            become_theirs(ours := out_of_memory(error))
            raise ours from error
        return results if places is None else [results[k] for k in places]

    def _unknown_outputs(self, names: Sequence[object]) -> InvalidInput:
        known = self._outputs
        unknown = [n for n in names if not isinstance(n, str) or n not in known]
        told = "expected a name of an output, but got"
        return InvalidInput(*(Problem("outputs", f"{told} {n!r}", nearest(str(n), known)) for n in unknown))

    def __repr__(self) -> str:
        ends = ({a.name: type_text(a.type) for a in e} for e in (self._model.inputs, self._model.outputs))
        return f"<Session {signature(*ends)}>"

    def _repr_html_(self) -> str:
        return page(repr(self)[1:-1], text(self.explain()))

    def explain(self) -> str:
        """The plans made so far: the shapes and contents that each is for, and what runs where."""
        return "\n".join(program.explain() for program in self._programs)

    def emit(self, form: str = "llvm") -> str:
        """The programs made so far, to read: in LLVM's language, or as this processor's assembly.

        Args:
            form: "llvm" or "asm".

        Raises:
            InvalidInput: another form; or no plan is a program, so far: see `load`'s `native`.
        """
        if form not in ("llvm", "asm"):
            raise InvalidInput(Problem("form", f"expected 'llvm' or 'asm', but got {short_repr(form)}"))
        found = "\n".join(filter(None, (program.emit(form) for program in self._programs)))
        if not found:
            message = "expected a plan that is a program, but there is none so far"
            remedy = "load with native=True, and run once; the logger 'anydml.session' tells why not, at INFO"
            raise InvalidInput(Problem("session", message, remedy))
        return found

    def _results(self, feed: Mapping[str, Any]) -> list[Any]:
        """All outputs. Kinds of arrays that were right before are not checked again."""
        names, program = self._names, self._program
        if len(feed) != len(names) and self._whole is not None:
            names, program = self._whole
        if len(feed) == len(names):
            try:
                values = [feed[name] for name in names]
            except KeyError:  # told below
                values = None
            plan = None if values is None else program.met(values)
            if values is not None and plan is None and any(map(is_text, values)):
                values = [as_array(x, None) for x in values]
                plan = program.met(values)
            if values is not None and plan is not None:
                try:
                    entry = program.entry  # of this plan by now, if another one was the last
                    found = None if entry is None else entry(feed)
                    return plan.run_owned(values) if found is None else found
                except RanksDiffer as differ:
                    program.forget_sizes_of(differ)
        model, program, conditions = self._fed(feed)
        if program is not self._program:
            self._whole = tuple(i.name for i in model.inputs), program
        return program.run(checked(feed, model, conditions))

    def _fed(self, feed: Mapping[str, Any]) -> tuple[Model, Program, Mapping[Value, str]]:
        """What runs such a feed, all that need not be fed being constant, unless one of it is; and the labels
        of Ifs by their conditions."""
        if self._overridable.isdisjoint(feed):
            return self._model, self._program, self._loaded.conditions
        return self._loaded.whole

    @property
    def _programs(self) -> list[Program]:
        whole = self._loaded.overridden
        return [self._program] if whole is None else [self._program, whole]


class InferenceSession(Session):
    """`load` as a class, with the parameters of onnxruntime's: for code that makes sessions, or derives from
    theirs. `onnxruntime.InferenceSession = anydml.InferenceSession` puts it under a library."""

    def __init__(
        self,
        path_or_bytes: ModelSource,
        sess_options: object = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        """`options`: `threads`, `dims` and `native` of `load`; `disabled_optimizers`, `enable_fallback` and
        `read_config_from_model` have no meaning here."""
        options.pop("enable_fallback", None)
        for name in ("disabled_optimizers", "read_config_from_model"):
            if options.pop(name, None):
                warn(f"{name} has no meaning in anydml, and is ignored")
        self._take(load(path_or_bytes, sess_options, providers, provider_options, **options)._loaded)


_known, _recent = LoadedModels(), RecentModels()


@translate_memory_error
def _restore(key: Key, kind: type[Session] = Session) -> Session:
    return kind._of(_known.loaded(key))
