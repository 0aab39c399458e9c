"""A model loses its Ifs: what decides them, what became of each, and that the result does the same.

    python examples/without_ifs.py [MODEL [NAME=NUMBER ...]]

Without MODEL it is the loudness meter that `anydml demo` writes, at 16 kHz.
"""

import json
import sys

import anydml
from anydml.sample import sample_model


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else sample_model()
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    fixed = {name: json.loads(text) for name, text in given.items()} if len(sys.argv) > 1 else {"sr": 16000}

    found = anydml.inspect(model)
    print(f"{found.nodes} nodes, {found.ifs} Ifs:")
    for decided, count in found.decided.items():
        print(f"  {count} decided by {decided}")

    _, report = anydml.flatten(model, fixed=fixed)  # what comes first is the flat model, for onnx.save
    for one in report.ifs:
        print(f"  {one.path}: {one.decision}, {one.because}")
    print(report)  # the verdict
    assert report.verified is not None
    print(f"compared with the original on {report.verified.agreed} random inputs")
    if report.verified.time_ratio is not None:
        print(f"there it took {report.verified.time_ratio:.2f} times as long, on one thread")


if __name__ == "__main__":
    main()
