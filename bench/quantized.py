"""Models quantized by onnxruntime's tools: `python -m bench.quantized FOLDER TARGET`.

Of each model in FOLDER (as `bench.ordinary` makes them) there are six, in every way that the tools have with
weights of INT8: quantized as they run, or before that, by pairs or by operators, with activations of UINT8
or INT8. Printed is how far they are from the model of floats, run by both libraries: the root mean square of
the difference, beside that of the results. `python -m bench.alone TARGET` measures their times.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

import anydml

BYTES = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}


class OneFeed(CalibrationDataReader):  # type: ignore[misc]
    """What a model is calibrated with."""

    def __init__(self, feed: dict[str, Any]) -> None:
        self._feeds = iter([feed])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def ways(model: str, feed: dict[str, Any]) -> Iterator[tuple[str, Callable[[str], None]]]:
    """Names of what the tools can make, and what makes it into a file."""
    for name, kind in BYTES.items():

        def as_it_runs(to: str, kind: Any = kind) -> None:
            quantize_dynamic(model, to, weight_type=kind)

        yield f"dynamic_{name}", as_it_runs
    for form, columns in ((QuantFormat.QDQ, True), (QuantFormat.QOperator, False)):
        for name, kind in BYTES.items():

            def make(to: str, form: Any = form, columns: bool = columns, kind: Any = kind) -> None:
                types = {"activation_type": kind, "weight_type": QuantType.QInt8}
                quantize_static(model, to, OneFeed(feed), form, per_channel=columns, **types)

            yield f"{form.name.lower()}_{name}", make


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quantized", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(4)
    print(f"{'':32}{'anydml':>10}{'onnxruntime':>14}")
    for path in sorted(asked.folder.rglob("model.onnx")):
        feed = dict(np.load(path.parent / "feed_0.npz"))
        asked.target.mkdir(parents=True, exist_ok=True)
        ready = str(asked.target / f"{path.parent.name}.onnx")
        quant_pre_process(str(path), ready, skip_symbolic_shape=True)
        wanted = onnxruntime.InferenceSession(str(path)).run(None, feed)[0]
        for way, make in ways(ready, feed):
            place = asked.target / f"{path.parent.name}_{way}"
            place.mkdir(exist_ok=True)
            model = str(place / "model.onnx")
            try:
                make(model)
            except Exception as failure:  # the tools do not know every operator in every way
                print(f"{place.name:32}{str(failure)[:60]}")
                continue
            np.savez(place / "feed_0.npz", **feed)
            both = (load(model).run(None, feed)[0] for load in (anydml.load, onnxruntime.InferenceSession))
            ours, theirs = (error(found, wanted) for found in both)
            print(f"{place.name:32}{ours:10.4f}{theirs:14.4f}", flush=True)
        Path(ready).unlink()


def error(found: Any, wanted: Any) -> float:
    return float(np.sqrt(np.square(found - wanted).mean() / np.square(wanted - wanted.mean()).mean()))


if __name__ == "__main__":
    main()
