"""The command line's `anydml compile`: a model as an object file or a library, and its header."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from math import prod
from pathlib import Path

import click
from rich.markup import escape

from anydml.cli.common import SET, SHAPE, busy, console, named_values, partial_shapes, table
from anydml.cli.files import MODEL, Output, given_onnx_model
from anydml.codegen.target import PROCESSORS
from anydml.compilation import CompiledModel, compile_model
from anydml.files import write_atomically

_LIBRARIES = (".so", ".dylib", ".dll")


@click.command("compile")
@MODEL
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), required=True, help="An object file, or a library."
)
@SHAPE
@SET
@click.option("--name", help="Of the function; by default OUTPUT's.")
@click.option("--cpu", type=click.Choice([*PROCESSORS]), help="By default the processor at hand.")
def compile_command(
    model: str,
    output: str,
    shapes: tuple[str, ...],
    fixed: tuple[str, ...],
    name: str | None,
    cpu: str | None,
) -> None:
    """Write MODEL as a C function, control flow and weights included, and a header beside it.

    The object file needs no library (for processors without fused multiplication, the C library's `fmaf`).
    An OUTPUT that ends in .so, .dylib or .dll is linked with the C compiler $CC, or cc.

    \b
    Examples:
      anydml compile vad.onnx -o vad.o --set sr=16000 --shape input=1,576 \\
        --shape state=2,1,128
      anydml compile model.onnx -o libmodel.so
      anydml compile model.onnx -o model.o --cpu x86-64-v3

    Exit codes: 0, done; 1, the model cannot be one function, or something is wrong; 2, wrong usage.
    """
    path = Path(output)
    library = path.suffix in _LIBRARIES
    compiler = shutil.which(os.environ.get("CC", "cc")) if library else None
    if library and compiler is None:
        raise click.UsageError(f"{output}: a library needs a C compiler; write an object file, like model.o")
    if path.suffix == ".h":
        raise click.UsageError(f"{output}: the header is written beside OUTPUT; name that like model.o")
    if not library and path.suffix not in ("", ".o", ".obj"):
        raise click.UsageError(f"{output}: expected a name like model.o, or libmodel.so for a library")
    out, given = Output(output), given_onnx_model(model)
    if out.is_stdout:
        raise click.UsageError(f"{output}: a header is written beside OUTPUT; name a file, like model.o")
    header = Output(str(path.with_suffix(".h")))
    given.check_distinct(out, header)
    stem = path.stem.removeprefix("lib") if library else path.stem
    with busy("compiling"):
        compiled = compile_model(
            given.source,
            shapes=partial_shapes(shapes),
            fixed=named_values(fixed),
            name=name or re.sub(r"[^A-Za-z0-9_]", "_", f"_{stem}" if stem[:1].isdigit() else stem),
            cpu=cpu,
        )
    content = compiled.object_file if compiler is None else _linked(compiled, compiler, path.suffix)
    write_atomically(out.path, lambda file: file.write(content))
    write_atomically(header.path, lambda file: file.write(compiled.header().encode()))
    _print(compiled)
    sizes = f"{len(content):,} bytes of code and constants, {compiled.memory:,} bytes of memory a call"
    console().print(escape(f"written to {out.name} and {header.name}: {sizes}"), soft_wrap=True)


def _linked(compiled: CompiledModel, compiler: str, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"made{suffix}"
        (Path(folder) / "made.o").write_bytes(compiled.object_file)
        command = [compiler, "-shared", "-o", str(made), str(Path(folder) / "made.o"), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise click.ClickException(f"{compiler} failed: {done.stderr.strip()[:500]}")
        return made.read_bytes()


def _print(compiled: CompiledModel) -> None:
    made = table("parameter", "in the model", "C", "elements")
    for k, p in enumerate((*compiled.inputs, *compiled.outputs)):
        constant = "const " if k < len(compiled.inputs) else ""
        made.add_row(p.name, escape(str(p)), f"{constant}{p.c_type} *", f"{prod(p.sizes):,}")
    console().print(made)
