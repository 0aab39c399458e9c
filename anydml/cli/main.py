"""The command line: the group of commands, each in a file of its own that is loaded when it is asked for."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class

import anydml
from anydml.errors import AnyDMLError, Problem, close_names, nearest

_COMMANDS = {
    "bench": "How long a model's runs take, beside onnxruntime's.",
    "check": "Which nodes another runtime takes, and why not the others.",
    "compile": "A model as a C function, control flow and weights inside.",
    "demo": "Write a small model with Ifs, to try the others on.",
    "diff": "Two models side by side, and on random inputs.",
    "flatten": "The same model without its Ifs, for devices that have none.",
    "inspect": "What a model consists of, and what its Ifs decide by.",
    "operators": "DirectML's operators: formulas, types, levels, examples.",
    "run": "Run an ONNX model, or a DxDispatch model of operators.",
}
"""With what `--help` says of each, so that it need not import them."""


def _interrupted() -> NoReturn:
    click.echo("anydml: interrupted", err=True)
    sys.exit(130)


class _Commands(click.Group):
    """Verbs by name; and what the shell is told when one ends early."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *super().list_commands(context)})

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does, but from the table."""
        others = super().list_commands(context)
        told = _COMMANDS | {n: self.commands[n].get_short_help_str(60) for n in others}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(told.items()))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return super().get_command(context, name)
        found: click.Command = getattr(import_module(f"anydml.cli.{name}"), f"{name}_command")
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(context)
        if args and args[0] not in known and not args[0].startswith("-"):
            guess = nearest(args[0], known)
            context.fail(f"No such command {args[0]!r}; {guess}" if guess else f"No such command {args[0]!r}")
        return super().resolve_command(context, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            _interrupted()

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        with self._options_told():
            return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> object:
        try:
            with self._options_told():
                return super().invoke(context)
        except AnyDMLError as error:
            command = self.get_command(context, context.invoked_subcommand or "")
            if command is not None:
                error.problems = tuple(_by_options(p, command) for p in error.problems)
            raise
        except KeyboardInterrupt:
            _interrupted()
        except BrokenPipeError:  # the reader, head perhaps, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(0)

    @contextmanager
    def _options_told(self) -> Iterator[None]:
        """Tell which commands have an option that this one has not, or which of its own is near."""
        try:
            yield
        except click.NoSuchOption as error:
            name, context = error.option_name, error.ctx
            if context is None:
                raise
            others = {n: _options(self.get_command(context, n)) for n in _COMMANDS}
            having = {n: options[name] for n, options in others.items() if name in options}
            mine = _options(context.command)
            bare = {option.lstrip("-"): option for option in mine}
            close = [bare[n] for n in close_names(name.lstrip("-"), bare)] if len(name) > 2 else []
            alike = [n for n, takes in mine.items() if takes in having.values() and "=" in takes]
            told = f"No such option {name!r}"
            if having:
                told += f"; {', '.join(having)} {'has' if len(having) == 1 else 'have'} it"
                told += f", and here {' and '.join(alike)} takes {mine[alike[0]]}" if alike else ""
            elif close:
                told += f"; did you mean {' or '.join(close)}?"
            raise click.UsageError(told, context) from error


def _options(command: click.Command | None) -> dict[str, str]:
    """The options of a command that its help lists, without their short forms, and what they take."""
    params = command.params if command is not None else ()
    shown = (p for p in params if isinstance(p, click.Option) and not p.hidden)
    return {name: p.metavar or "" for p in shown for name in p.opts if name.startswith("--")}


def _by_options(problem: Problem, command: click.Command) -> Problem:
    """A problem with an argument of a function, told by its option: `shapes 'x'` as `--shape 'x'`.

    Options have the names of the arguments that they become; files are the command line's own.
    """
    given = (p for p in command.params if isinstance(p, click.Option) and not isinstance(p.type, click.Path))
    options = {p.name: max(p.opts, key=len) for p in given}
    first = re.match(r"\w*", problem.where)
    word = first[0] if first is not None else ""
    remedy = re.sub(r"`(\w+)`", lambda name: options.get(name[1], name[0]), problem.remedy)
    return replace(problem, where=options.get(word, word) + problem.where[len(word) :], remedy=remedy)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(anydml.__version__, prog_name="anydml")
@click.option(
    "--debug",
    is_flag=True,
    help="Show the traceback of an error, and whether kernels are kept on disk; before the command.",
)
def cli(debug: bool) -> None:
    """DirectML's operators and ONNX models with control flow, on any machine that runs Python.

    \b
    Exit codes: 0, done; 1, the model or its input is at fault; 2, wrong usage
    (flatten --require-none: an If remains); 130, Ctrl-C.
    """
    if debug:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("anydml: %(message)s"))
        logging.getLogger("anydml").addHandler(handler)
        logging.getLogger("anydml").setLevel(logging.INFO)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete what is typed.

    Commands, options and operators are completed.

    \b
    Examples:
      anydml completion bash >> ~/.bashrc
      anydml completion zsh >> ~/.zshrc
      anydml completion fish > ~/.config/fish/completions/anydml.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(cli, {}, "anydml", "_ANYDML_COMPLETE").source())


def main() -> None:
    """The entry point: errors of ours are told on stderr, without a traceback unless asked for."""
    debug = "--debug" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign still shows the rest
    if not debug:  # where in the code a warning comes from does not help who typed a command
        warnings.showwarning = lambda message, *_: click.echo(f"anydml: warning: {message}", err=True)
    try:
        cli(prog_name="anydml")
    except (AnyDMLError, OSError) as error:
        if debug:
            raise
        for line in _report(error).splitlines():
            click.echo(f"anydml: {line}", err=True)
        sys.exit(1)


def _report(error: AnyDMLError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    return str(error)
