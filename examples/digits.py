"""The network of pydirectml's MNIST sample on digits that are drawn here: `python examples/digits.py`.

Its last layer is fitted by least squares on drawings of digits; the filters before it stay as they are made.
"""

from __future__ import annotations

import numpy as np

import anydml as dml

DIGITS = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. ####. ...#. #...# #...#
#.#.# ..#.. ...#. ..##. #..#. ....# #...# ..#.. .###. .####
##..# ..#.. ..#.. ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. .#... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""


def draw(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Digits as pictures of 28 by 28: each somewhere else, and with noise."""
    rows = [line.split() for line in DIGITS.split("\n") if line]
    shapes = np.array([[[c == "#" for c in rows[y][d]] for y in range(7)] for d in range(10)], np.float32)
    large = shapes.repeat(3, axis=1).repeat(3, axis=2)  # 21 by 15
    pictures = rng.normal(0, 0.2, (len(labels), 1, 28, 28)).astype(np.float32)
    for picture, label in zip(pictures, labels, strict=True):
        y, x = rng.integers(0, 8), rng.integers(0, 14)
        picture[0, y : y + 21, x : x + 15] += large[label]
    return pictures


def features(g: dml.GraphBuilder, pictures: dml.Expression, filters: list[np.ndarray]) -> dml.Expression:
    """Two convolutions, each with a Relu and a pooling: 256 numbers for a picture."""
    y = dml.convolution(pictures, filters[0], start_padding=2, end_padding=2, fused_activation="RELU")
    y = dml.max_pooling(y, window_size=2, strides=2)
    y = dml.convolution(y, filters[1], start_padding=2, end_padding=2, fused_activation="RELU")
    y = dml.max_pooling(y, window_size=3, strides=3)
    return y.reinterpret([pictures.sizes[0], 256])


def main() -> None:
    rng = np.random.default_rng(0)
    filters = [rng.normal(0, 0.3, s).astype(np.float32) for s in ((8, 1, 5, 5), (16, 8, 5, 5))]
    labels = rng.integers(0, 10, 2000)

    g = dml.GraphBuilder()
    pictures = g.input("pictures", "FLOAT32", [len(labels), 1, 28, 28])
    known = g.compile({"features": features(g, pictures, filters)})({"pictures": draw(labels, rng)})[
        "features"
    ]
    spread = np.eye(256) * 10.0  # keeps weights small
    weights = np.linalg.solve(known.T @ known + spread, known.T @ np.eye(10)[labels]).astype(np.float32)

    g = dml.GraphBuilder(dml.Device("5_0"))
    pictures = g.input("pictures", "FLOAT32", [500, 1, 28, 28])
    scores = dml.gemm(features(g, pictures, filters), weights)
    network = g.compile({"digit": dml.argmax(scores, axes=[1])})
    truth = rng.integers(0, 10, 500)
    digits = network({"pictures": draw(truth, rng)})["digit"].ravel()
    print(f"{len(truth)} digits, {np.mean(digits == truth):.1%} read right; the first ten: {digits[:10]}")


if __name__ == "__main__":
    main()
