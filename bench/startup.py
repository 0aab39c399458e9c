"""How long commands take to begin, and how much is installed: `python -m bench.startup` (docs/benchmarks.md).

Commands run in turns, each as a process of its own; what is not installed is left out. Sizes are those of
the files that the installed packages record.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import time
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from statistics import median

import onnx
from packaging.requirements import Requirement
from rich.console import Console

from anydml.sample import sample_model

ROUNDS = 11
SCRIPTS = Path(sysconfig.get_path("scripts"))
FEEDS = ["--feed", "sr=8000", "--feed", "sound=[[0,0,1,0,0,-1,0,0]]"]


def commands(model: str) -> dict[str, list[str]]:
    """By what the table calls them."""
    python = [sys.executable, "-c"]
    found = {
        "python -c pass": [*python, "pass"],
        "import anydml": [*python, "import anydml"],
        "import numpy": [*python, "import numpy"],
        "import onnxruntime": [*python, "import onnxruntime"],
    }
    for tool, *arguments in (
        ("anydml", "--help"),
        ("onnxslim", "--help"),
        ("onnxsim", "--help"),
        ("polygraphy", "--help"),
        ("anydml", "run", model, *FEEDS),
        ("anydml", "inspect", model),
        ("onnxslim", "--inspect", model),
        ("polygraphy", "inspect", "model", model),
    ):
        if (SCRIPTS / tool).is_file():
            shown = " ".join([tool, *("demo.onnx" if a == model else a for a in arguments if a not in FEEDS)])
            found[shown] = [str(SCRIPTS / tool), *arguments]
    return found


def seconds(command: list[str]) -> float | None:
    """Of one run; None if it fails."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False)
    return time.perf_counter() - begin if done.returncode == 0 else None


def size(package: str) -> int | None:
    """Bytes of what a package installed; None if it is not there."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return None
    return sum(f.size or 0 for f in files)


def pulled_in(package: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The packages that a package needs, those that they need included."""
    for line in requires(package) or ():
        requirement = Requirement(line)
        name = requirement.name.lower().replace("_", "-")
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if wanted and name not in seen and size(name) is not None:
            seen = pulled_in(name, seen | {name})
    return seen


def wheel() -> int:
    """Bytes of anydml's own wheel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder]
        subprocess.run(command, capture_output=True, check=True, cwd=Path(__file__).parents[1])
        return next(Path(folder).glob("*.whl")).stat().st_size


def main() -> None:
    out = Console()
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "demo.onnx")
        onnx.save(sample_model(), model)
        listed = commands(model)
        times: dict[str, list[float | None]] = {name: [] for name in listed}
        for _ in range(ROUNDS):
            for name, command in listed.items():
                times[name].append(seconds(command))
    out.print("| command | seconds |\n| --- | --: |")
    for name, measured in times.items():
        told = [t for t in measured if t is not None]
        out.print(f"| `{name}` | {median(told):.2f} |" if told else f"| `{name}` | fails |")
    out.print("\n| package | MB installed |\n| --- | --: |")
    out.print(f"| anydml, its wheel | {wheel() / 1e6:.1f} |")
    sizes = {name: size(name) or 0 for name in pulled_in("anydml")}
    for name in sorted(sizes, key=lambda n: -sizes[n]):
        out.print(f"| {name} | {sizes[name] / 1e6:.0f} |" if sizes[name] > 5e5 else f"| {name} | < 1 |")
    out.print(f"| all that it pulls in | {sum(sizes.values()) / 1e6:.0f} |")


if __name__ == "__main__":
    main()
