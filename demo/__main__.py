"""`make demo`: an operator by the document, then speech in a recording."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import anydml as dml
from demo.speech import THRESHOLD, WINDOW, Samples, Track, halved, listen, model_path, read_wav

HERE = Path(__file__).parent
ROUNDS = 3
BARS = " ▁▂▃▄▅▆▇█"


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals without block characters
    console = Console(highlight=False)
    console.rule("[bold]DirectML's ELEMENT_WISE_IF, the document's example")
    condition = np.array([[1, 0], [1, 1]], np.uint8)
    a, b = np.array([[1, 2], [3, 4]], np.float32), np.array([[9, 8], [7, 6]], np.float32)
    console.print("dml.if_([[1, 0], [1, 1]], [[1, 2], [3, 4]], [[9, 8], [7, 6]]) =")
    console.print(dml.if_(condition, a, b))

    console.rule("[bold]Speech in a recording, by Silero VAD (25 nested Ifs)")
    path = model_path()
    samples, rate = read_wav(HERE / "speech.wav")
    session = dml.load(path, threads=1)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    peer = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    tracks: list[tuple[Samples, Track]] = []
    table = Table("sample rate", "windows", "onnxruntime", "anydml", "ratio", "largest difference")
    for sound, hertz in ((samples, rate), (halved(samples), rate // 2)):
        ours, theirs = [], []
        with console.status(f"listening at {hertz} Hz"):
            for _ in range(ROUNDS):  # in turns, so that both meet the same machine
                ours.append(listen(session.run, sound, hertz))
                theirs.append(listen(peer.run, sound, hertz))
        mine, its = (float(np.median([t.microseconds for t in listened])) for listened in (ours, theirs))
        difference = float(np.abs(ours[0].probabilities - theirs[0].probabilities).max())
        table.add_row(
            f"{hertz} Hz",
            str(len(ours[0].probabilities)),
            f"{its:.0f} µs",
            f"{mine:.0f} µs",
            f"{mine / its:.2f}",
            f"{difference:.1e}",
        )
        tracks.append((sound, ours[0]))

    width = max(20, min(console.width, 120) - 12)
    for _, track in tracks:
        console.print(f"{track.rate:>6} Hz  [green]{timeline(track, width)}[/green]", soft_wrap=True)
    console.print(f"{'seconds':>9}  {axis(tracks[0][1], width)}", soft_wrap=True)
    spoken = ", ".join(f"{start:.1f}-{end:.1f} s" for start, end in tracks[0][1].segments())
    console.print(f"Speech at {spoken or 'no time'}.")
    console.print("Time of one window (32 ms of sound), one thread each:")
    console.print(table)

    out = HERE / "out" / "speech.png"
    picture(tracks, out)
    console.print(f"Picture: {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")


def timeline(track: Track, width: int) -> str:
    """The probability over time, one character a stretch."""
    parts = np.array_split(track.probabilities, width)
    return "".join(BARS[round(float(p.max()) * (len(BARS) - 1))] if p.size else "" for p in parts)


def axis(track: Track, width: int) -> str:
    """A mark for every second below a timeline."""
    total = len(track.probabilities) * WINDOW[track.rate] / track.rate
    line = [" "] * (width + 4)
    for second in range(int(total) + 1):
        place = int(second / total * width)
        line[place : place + 2] = f"{second:<2}"
    return "".join(line).rstrip()


def picture(tracks: list[tuple[Samples, Track]], path: Path) -> None:
    """The sound and the probability of speech, one panel a sample rate."""
    import matplotlib  # only here: it takes a while to import

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(tracks), 1, figsize=(11, 5.5), sharex=True, layout="constrained")
    for panel, (sound, track) in zip(panels, tracks, strict=True):
        panel.plot(np.arange(len(sound)) / track.rate, sound, color="0.65", linewidth=0.4)
        panel.set_ylim(-1.05, 1.05)
        panel.set_ylabel("sound")
        for start, end in track.segments():
            panel.axvspan(start, end, color="tab:green", alpha=0.15, linewidth=0)
        right = panel.twinx()
        step = WINDOW[track.rate] / track.rate
        times = (np.arange(len(track.probabilities)) + 0.5) * step
        right.plot(times, track.probabilities, color="tab:green", linewidth=1.5)
        right.axhline(THRESHOLD, color="tab:green", linewidth=0.6, linestyle=":")
        right.set_ylim(-0.05, 1.05)
        right.set_ylabel("probability of speech", color="tab:green")
        panel.set_title(
            f"{track.rate} Hz: {len(track.segments())} stretches of speech", loc="left", fontsize=10
        )
    panels[-1].set_xlabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
