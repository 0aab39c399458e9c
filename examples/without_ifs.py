"""A model loses its Ifs: what decides them, what became of each, and that the result does the same.

    python examples/without_ifs.py [MODEL [NAME=NUMBER ...]]

Without MODEL it is the loudness meter that `anydml demo` writes, at 16 kHz.
"""

import json
import sys

import anydml
from anydml.sample import sample_model


def main(model: str = "", *contents: str) -> None:
    fixed = {}
    for name, equals, text in (content.partition("=") for content in contents):
        try:
            fixed[name] = json.loads(text)
        except ValueError:
            sys.exit(f"expected NAME=NUMBER, but got {name}{equals}{text}\n{__doc__}")
    source = model or sample_model()
    fixed = fixed if model else {"sr": 16000}

    found = anydml.inspect(source)
    print(f"nodes: {found.nodes}, Ifs: {found.ifs}")
    for decided, count in found.decided.items():
        print(f"  {count} decided by {decided}")

    _, report = anydml.flatten(source, fixed=fixed)  # what comes first is the flat model, for onnx.save
    for one in report.ifs:
        print(f"  {one.path}: {one.decision}, {one.because}")
    print(report)  # the verdict
    assert report.verified is not None
    print(f"compared with the original on {report.verified.agreed} random inputs")
    if report.verified.time_ratio is not None:
        print(f"there it took {report.verified.time_ratio:.2f} times as long, on one thread")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (anydml.AnyDMLError, OSError) as error:
        sys.exit(f"without_ifs.py: {error}")
