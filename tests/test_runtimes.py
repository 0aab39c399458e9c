"""What other runtimes take once it is flat: those of the extra `runtimes` that are installed, each in a process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydml
from bench.runtimes import RUNTIMES, takes
from demo.speech import model_path
from tests.onnx.patterns import PATTERNS

TAKEN = ("mask_head_empty", "pad_window", "squeeze_interp", "rope_squeeze_old")


@pytest.fixture(params=[name for name in RUNTIMES if name != "pnnx"])  # ncnn cannot choose anything
def runtime(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not RUNTIMES[name].there():
        pytest.skip(f"{name} is not there: {RUNTIMES[name].install}")
    return name


def taken(runtime: str, content: bytes, feed: dict[str, np.ndarray], folder: Path) -> str:
    (folder / "model.onnx").write_bytes(content)
    np.savez(folder / "feed.npz", **feed)
    return takes(runtime, folder / "model.onnx", folder / "feed.npz")


@pytest.mark.parametrize("name", RUNTIMES)
def test_what_is_no_model_is_refused(name: str, tmp_path: Path) -> None:
    """Installed or not: the process that is asked answers."""
    assert taken(name, b"no model", {}, tmp_path).startswith("refuses: ")


@pytest.mark.parametrize("pattern", [p for p in PATTERNS if p.name in TAKEN], ids=lambda p: p.name)
def test_a_pattern(runtime: str, pattern, tmp_path: Path) -> None:
    flat, report = anydml.flatten(pattern.path, convert="always")
    assert report.left == 0
    assert taken(runtime, flat.SerializeToString(), pattern.feeds[0], tmp_path) == "takes"


def test_silero(runtime: str, tmp_path: Path) -> None:
    """Which OpenVINO refuses as it is, and OpenCV does not survive."""
    if runtime == "onnx2torch":
        pytest.skip("onnx2torch has no LSTM")
    path = model_path().with_name("silero_vad_16k_op15.onnx")
    window = {"input": np.zeros((1, 576), np.float32), "state": np.zeros((2, 1, 128), np.float32)}
    rate = {"sr": np.array(16000)}
    as_it_is = taken(runtime, path.read_bytes(), {**window, **rate}, tmp_path)
    assert (as_it_is == "takes") == (runtime == "MNN")  # which has an If of its own
    flat, report = anydml.flatten(path, fixed={"sr": 16000})
    assert report.left == 0
    assert taken(runtime, flat.SerializeToString(), window, tmp_path) == "takes"
