"""Draws docs/speech.png: the demonstration's recording, and where anydml hears speech in it."""

from __future__ import annotations

from pathlib import Path

import anydml
from demo.__main__ import HERE, picture
from demo.speech import Samples, Track, halved, listen, model_path, read_wav

TARGET = Path(__file__).parent.parent / "docs" / "speech.png"


def main(target: Path = TARGET) -> None:
    samples, rate = read_wav(HERE / "speech.wav")
    session = anydml.load(model_path(), threads=1)
    sounds: list[tuple[Samples, int]] = [(samples, rate), (halved(samples), rate // 2)]
    tracks: list[tuple[Samples, Track]] = [(s, listen(session.run, s, hertz)) for s, hertz in sounds]
    picture(tracks, target)


if __name__ == "__main__":
    main()
