"""A merged decoder, token by token: its cache grows, so every run has other shapes."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime as ort
import pytest

import anydml
from bench.decoder import feeds, generate, merged_decoder


@pytest.fixture(scope="module")
def decoder():
    return merged_decoder()


def test_the_same_words_as_onnxruntime(decoder):
    session = anydml.load(decoder, threads=1)
    peer = ort.InferenceSession(decoder, providers=["CPUExecutionProvider"])
    assert generate(session.run) == generate(peer.run)
    text = session.explain()
    assert "known only when it runs" not in text
    assert len(re.findall(r"^plan for", text, re.MULTILINE)) == 2, "the prompt, and all tokens"
    assert "past_0_key float32[1,4,?,64]" in text


@pytest.mark.parametrize("past", [0, 1, 40, 200])
def test_every_output_at_any_length(decoder, past):
    session = anydml.load(decoder, threads=1)
    peer = ort.InferenceSession(decoder, providers=["CPUExecutionProvider"])
    for length in (3, 4, past, past + 1):
        given = feeds(length)
        for mine, its in zip(session.run(None, given), peer.run(None, given), strict=True):
            assert mine.shape == its.shape
            assert np.allclose(mine, its, atol=1e-4)
