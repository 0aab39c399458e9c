"""`python -m tests.robustness --seed 1 --count 20000 --processes 2`: random models, checked; `abuse`: all checks."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.robustness.differential import Checks
from tests.robustness.reducing import reduce_seed
from tests.robustness.running import Summary, outcomes


def main() -> int:
    if sys.argv[1:2] == ["abuse"]:
        from tests.robustness import abuse  # which needs pytest and hypothesis

        return abuse.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.robustness", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds from there on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, help="a folder for models and feeds on which something was found"
    )
    parser.add_argument("--no-idempotent", action="store_true", help="flattening twice may give other bytes")
    parser.add_argument("--no-flatten", action="store_true")
    parser.add_argument("--no-constants", action="store_true", help="not with the inputs in the file, too")
    parser.add_argument("--quiet", action="store_true", help="only the summary")
    parser.add_argument(
        "--reduce",
        metavar="SEED",
        help="print a smaller model that fails as this one does; or as a kept .onnx file does",
    )
    parser.add_argument("--kind", help="of which finding the reduced model has to be, e.g. 'flatten wrong'")
    options = parser.parse_args()
    checks = Checks(not options.no_idempotent, not options.no_flatten, not options.no_constants)
    if options.reduce is not None:
        which = int(options.reduce) if options.reduce.isdecimal() else Path(options.reduce)
        return reduce_seed(which, checks, options.kind, options.keep)
    summary = Summary()
    seeds = range(options.seed, options.seed + options.count)
    told = time.monotonic()
    for outcome in outcomes(seeds, options.processes, checks, options.keep):
        summary.add(outcome)
        for note in outcome.notes:
            if "of an oracle" in note:
                print(f"seed {outcome.seed}: {note}", flush=True)
        for finding in [] if options.quiet else outcome.findings:
            print(finding, flush=True)
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print(next(iter(summary.lines())), file=sys.stderr, flush=True)
    print(*summary.lines(), sep="\n")
    return 1 if summary.findings else 0


if __name__ == "__main__":
    sys.exit(main())
