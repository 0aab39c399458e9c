"""`anydml demo`: the model it writes is what it says, and what it says to try works."""

import re
import shlex

import numpy as np
import onnxruntime as ort
import pytest
from click.testing import CliRunner

import anydml
from anydml.cli.main import cli
from anydml.sample import sample_model


def invoke(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_what_it_says_to_try_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = invoke("demo").output
    assert told.startswith("demo.onnx: a loudness meter for sound of 16, 8 or 48 kHz, 2,717 bytes, 6 Ifs\n")
    commands = re.findall(r"^  anydml (.*)$", told, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["inspect", "run", "flatten", "check"]
    said = [invoke(*shlex.split(c)) for c in commands]
    assert [s.exit_code for s in said] == [0, 0, 0, 0], [s.output for s in said]
    assert "control flow: 6 Ifs" in said[0].output
    assert "[[0.25]]" in said[1].output
    assert "no If remains of 6" in said[2].output
    assert "8 in a compiled graph" in said[3].output


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"mine")
    result = invoke("demo", path)
    assert (result.exit_code, path.read_bytes()) == (2, b"mine")
    assert "--force" in result.output
    assert invoke("demo", path, "--force").exit_code == 0
    assert invoke("demo", path).exit_code == 0, "what it wrote itself is no loss"


def test_on_standard_output():
    result = invoke("demo", "-")
    assert result.stdout_bytes == sample_model().SerializeToString(deterministic=True)
    assert "6 Ifs" in result.stderr
    assert "Try" not in result.stderr, "there is no file to try it on"


def test_names_are_quoted(tmp_path):
    path = tmp_path / "my FLAT.onnx"
    assert f"inspect '{path}' --tree" in invoke("demo", path).output
    assert f"next: anydml flatten '{path}' flat.onnx" in invoke("check", path, "--directml", "5_1").output


@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_the_model_measures_loudness(rate):
    """The mean of absolute values, for each millisecond; divided by the largest where that is above 1."""
    content = sample_model().SerializeToString()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    peer = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    for loudness in (0.5, 5):
        sound = np.random.default_rng(rate).standard_normal((2, rate // 100)).astype(np.float32) * loudness
        wanted = np.abs(sound).reshape(2, 10, -1).mean(axis=2)
        wanted /= max(1, wanted.max())
        feeds = {"sound": sound, "sr": np.array(rate)}
        for session in (anydml.load(content), peer):
            np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=1e-5)
