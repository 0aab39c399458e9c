"""The command line's `anydml demo`: a small model with Ifs to try the other commands on."""

from __future__ import annotations

import click

from anydml.cli.common import console, quoted
from anydml.cli.files import OUTPUT, Output
from anydml.sample import sample_model

_TRY = """
Try, in this order:
  anydml inspect {name} --tree
  anydml run {name} --feed sr=8000 --feed "sound=[[0,0,1,0,0,-1,0,0]]"
  anydml flatten {name} flat.onnx --set sr=16000
  anydml check flat.onnx --directml 5_1 --shape sound=1,1600"""


@click.command("demo")
@click.argument("output", type=OUTPUT, default="demo.onnx")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def demo_command(output: str, force: bool) -> None:
    """Write a small model with six Ifs to OUTPUT, by default demo.onnx, and say what to try on it.

    It measures how loud a sound is: two Ifs choose a filter by the sample rate, three squeeze as exporters
    write it, one looks at the data.

    \b
    Examples:
      anydml demo
      anydml demo - | anydml inspect - --tree
    """
    out = Output(output)
    content = sample_model().SerializeToString(deterministic=True)
    if out.path.is_file() and not out.is_stdout and not force and out.path.read_bytes() != content:
        raise click.UsageError(f"{output}: exists; give another name, or --force to replace it")
    out.write(lambda file: file.write(content))
    told = f"{out.name}: a loudness meter for sound of 16, 8 or 48 kHz, {len(content):,} bytes, 6 Ifs"
    if not out.is_stdout:
        told += _TRY.format(name=quoted(output))
    console(errors=out.is_stdout).print(told, markup=False, soft_wrap=True)
