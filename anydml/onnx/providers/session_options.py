"""What people pass to onnxruntime's sessions, checked."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnxruntime as ort
from onnxruntime import SessionOptions as SessionOptions
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # whatever takes its place

from anydml.dataclass import dataclass
from anydml.errors import (
    ExecutionFailed,
    InvalidInput,
    Problem,
    Unsupported,
    by_a_handler,
    nearest,
    short_repr,
    type_name,
)
from anydml.onnx.protos import ModelProto, TensorProto, make_node, make_tensor_value_info, model_of_one
from anydml.onnx.providers.products_of_bytes import allows_cut_off_sums
from anydml.onnx.providers.words import first_line

ExecutionProviders = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
"""onnxruntime's execution providers in order, each with its options."""
CPU: ExecutionProviders = (("CPUExecutionProvider", ()),)


def execution_providers(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
) -> ExecutionProviders:
    """What a user passes to onnxruntime, checked.

    Providers of other builds of onnxruntime are left out, with a warning: people name those of every machine
    that they know, in order, and so get what there is.

    Raises:
        InvalidInput: no name of a provider; options without one.
    """
    if providers is None:
        if provider_options:
            raise InvalidInput(Problem("provider_options", "expected providers beside them, but got none"))
        return CPU
    if isinstance(providers, str) or not isinstance(providers, Sequence) or not providers:
        message = f"expected a list of names, but got {short_repr(providers)}"
        raise InvalidInput(Problem("providers", message))
    if provider_options is not None and len(provider_options) != len(providers):
        message = f"expected options for each of {len(providers)} providers, but got {len(provider_options)}"
        raise InvalidInput(Problem("provider_options", message))
    known, found, problems = ort.get_available_providers(), [], []
    beside = provider_options or [{}] * len(providers)
    for given, more in zip(providers, beside, strict=True):
        name, options = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
        if name not in known and name in ort.get_all_providers():
            message = f"{name} is not in the installed onnxruntime, which has {', '.join(known)}"
            warn(message)
            continue
        if name not in known:
            message = f"expected {' | '.join(known)}, but got {short_repr(name)}"
            problems.append(Problem("providers", message, nearest(name, known)))
        if not isinstance(options, Mapping) or not isinstance(more, Mapping):
            wrong = more if isinstance(options, Mapping) else options
            message = f"expected a dictionary of options, but got {short_repr(wrong)}"
            problems.append(Problem(f"provider {short_repr(name)}", message))
            continue
        options = {**options, **more}
        found.append((str(name), tuple(sorted((str(n), str(v)) for n, v in options.items()))))
    if problems:
        raise InvalidInput(*problems)
    names = [name for name, _ in found]
    return tuple(found) if "CPUExecutionProvider" in names else (*found, *CPU)


@dataclass(frozen=True)
class RequestedOptions:
    """What onnxruntime's SessionOptions ask for."""

    threads: int | None = None
    deterministic: bool = False
    exact: bool = True
    """Whether sums of products of 8-bit integers are not to be cut off, whatever the processor has."""
    ignored: tuple[str, ...] = ()
    """What else they ask for, and do not get."""
    unused: tuple[str, ...] = ()
    """What they say of how onnxruntime works, which nobody sees."""
    given: ort.SessionOptions | None = None
    """The options themselves."""


def requested_options(options: object) -> RequestedOptions:
    """What a user's SessionOptions ask for; nothing where there are none.

    Raises:
        InvalidInput: something else than onnxruntime's SessionOptions, or None.
    """
    if options is None:
        return RequestedOptions()
    if not isinstance(options, ort.SessionOptions):
        message = f"expected onnxruntime.SessionOptions, but got {type_name(options)}"
        raise InvalidInput(Problem("sess_options", message))
    usual, ours = ort.SessionOptions(), _OURS_TOO
    names = [n for n in dir(usual) if not n.startswith("_") and not callable(getattr(usual, n))]
    others = [n for n in names if getattr(options, n) != getattr(usual, n) and n not in ours]
    ignored, unused = ([n for n in others if (n in UNSEEN) is unseen] for unseen in (False, True))
    threads = options.intra_op_num_threads if options.intra_op_num_threads > 0 else None
    deterministic = bool(options.use_deterministic_compute)
    exact = not allows_cut_off_sums(options)
    return RequestedOptions(threads, deterministic, exact, tuple(ignored), tuple(unused), options)


_OURS_TOO = ("intra_op_num_threads", "use_deterministic_compute", "optimized_model_filepath")
UNSEEN = frozenset(
    """enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse execution_mode inter_op_num_threads
    log_severity_level log_verbosity_level logid""".split()
)
"""Options that change no result, no file and no time that is ours."""


def fixed_sizes(options: ort.SessionOptions | None, symbols: Sequence[str]) -> dict[str, int]:
    """The sizes that a user's options have for symbols (`add_free_dimension_override_by_name`).

    They do not tell, so onnxruntime is asked what becomes of a model that has these symbols. That would write
    the files which some options ask for: their sizes are not found out.
    """
    if options is None or not symbols or options.enable_profiling or options.optimized_model_filepath:
        return {}
    probe = _model_of_sizes(tuple(symbols))
    try:
        (x,) = InferenceSession(probe, options, providers=["CPUExecutionProvider"]).get_inputs()
    except Exception as error:  # told where the model itself is opened with them
        if by_a_handler(error):
            raise
        return {}
    return {name: size for name, size in zip(symbols, x.shape, strict=True) if isinstance(size, int)}


@lru_cache(maxsize=16)
def _model_of_sizes(symbols: tuple[str, ...]) -> bytes:
    x, y = (make_tensor_value_info(n, TensorProto.FLOAT, symbols) for n in "xy")
    return model_of_one(make_node("Identity", ["x"], ["y"]), [x], y, 13)


def check_run_options(options: object) -> None:
    """See that nobody has ended the run before it begins.

    Raises:
        InvalidInput: something else than onnxruntime's RunOptions.
        ExecutionFailed: their `terminate` is set.
    """
    if not isinstance(options, ort.RunOptions):
        raise InvalidInput(
            Problem("run_options", f"expected onnxruntime.RunOptions, but got {type_name(options)}")
        )
    if options.terminate:
        raise ExecutionFailed(Problem("run_options", "terminate is set, which ends the run"))


def write_optimized(model: Any, options: ort.SessionOptions | None, providers: ExecutionProviders) -> None:
    """Have onnxruntime write the model as it optimises it, to where its options say, if they do.

    Raises:
        Unsupported: it refuses the model, or cannot write the file.
    """
    if options is None or not options.optimized_model_filepath:
        return
    if isinstance(model, str | bytes | os.PathLike):
        source = model
    else:
        source = model.SerializeToString() if isinstance(model, ModelProto) else bytes(model)
    try:
        InferenceSession(source, options, providers=[(name, dict(given)) for name, given in providers])
    except Exception as error:  # of onnxruntime's many classes
        if by_a_handler(error):
            raise
        where = f"optimized_model_filepath {options.optimized_model_filepath}"
        raise Unsupported(Problem(where, first_line(error))) from error


def warn(message: str) -> None:
    """A warning of whoever called us."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


_OURS = ("anydml", "contextlib")


def options_of(threads: int | None, deterministic: bool) -> ort.SessionOptions:
    """onnxruntime's SessionOptions that ask for these."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.use_deterministic_compute = deterministic
    return options
