"""The main job: speech found in a recording by a real model with 25 nested Ifs, as onnxruntime finds it."""

import numpy as np
import onnxruntime as ort
import pytest

import anydml as dml
from demo.__main__ import HERE, axis, picture, timeline
from demo.speech import halved, listen, model_path, read_wav


@pytest.fixture(scope="module")
def sessions():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    peer = ort.InferenceSession(model_path(), options, providers=["CPUExecutionProvider"])
    return dml.load(model_path(), threads=1), peer


@pytest.fixture(scope="module")
def tracks(sessions):
    samples, rate = read_wav(HERE / "speech.wav")
    sounds = [(samples, rate), (halved(samples), rate // 2)]
    return [
        (sound, listen(sessions[0].run, sound, hertz), listen(sessions[1].run, sound, hertz))
        for sound, hertz in sounds
    ]


def test_probabilities_equal_those_of_onnxruntime(tracks):
    for _, ours, theirs in tracks:
        assert np.abs(ours.probabilities - theirs.probabilities).max() <= 1e-5


def test_speech_is_where_it_is_spoken(tracks):
    """The recording speaks from 1.2 to 4.6, 6.4 to 9.3 and 10.9 to 12.4 seconds, and is quiet between."""
    for _, track, _ in tracks:
        middles = [(start + end) / 2 for start, end in track.segments()]
        assert all(any(a < m < b for a, b in [(1.2, 4.6), (6.4, 9.3), (10.9, 12.4)]) for m in middles)
        for a, b in [(1.5, 4.2), (7.0, 9.0), (11.2, 12.0)]:
            assert any(start < b and a < end for start, end in track.segments())


def test_without_programs(tracks, sessions):
    session = dml.load(model_path(), threads=1, native=False)
    for sound, ours, _ in tracks:
        found = listen(session.run, sound, ours.rate)
        assert np.abs(found.probabilities - ours.probabilities).max() <= 1e-5
    assert sessions[0].explain().count("program: ") == 2
    assert session.explain().count("onnxruntime: ") == 2


def test_no_if_is_left_and_one_plan_serves_each_rate(sessions, tracks):
    text = sessions[0].explain()
    assert text.count("plan for") == 2
    assert "sr = 16000" in text
    assert "sr = 8000" in text
    assert "known only when it runs" not in text


def test_a_window_that_the_model_refuses_is_refused(sessions):
    feeds = {
        "input": np.zeros((1, 100), np.float32),
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000),
    }
    with pytest.raises(dml.ExecutionFailed, match=r"\(Conv\) in If_0/then"):
        sessions[0].run(None, feeds)


def test_pictures(tracks, tmp_path):
    shown = [(sound, track) for sound, track, _ in tracks]
    assert len(timeline(shown[0][1], 60)) == 60
    assert axis(shown[0][1], 60).split() == [str(k) for k in range(14)]
    picture(shown, tmp_path / "speech.png")
    assert (tmp_path / "speech.png").read_bytes().startswith(b"\x89PNG")
