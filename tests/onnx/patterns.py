"""The models in tests/data/patterns: what takes each of their branches, and what their users know of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "data" / "patterns"
Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class PatternModel:
    """One model. `shapes`, `fixed`: what its users know.

    `left`: Ifs that stay by default, whatever it costs, and with what users know.
    """

    name: str
    feeds: Sequence[Feed]
    shapes: Mapping[str, tuple[int, ...]]
    left: tuple[int, int, int]
    fixed: Mapping[str, Any] | None = None

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.onnx"


def floats(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes) + len(sizes)).standard_normal(sizes).astype(np.float32)


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def boxes(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    corner = rng.random((count, 2)) * 50
    return np.concatenate([corner, corner + rng.random((count, 2)) * 20 + 1], 1).astype(np.float32)


def images(*sizes: tuple[int, ...]) -> list[Feed]:
    return [{"x": floats(*s)} for s in sizes]


YES, NO = np.array(True), np.array(False)
PATTERNS = (
    PatternModel(
        "any_mask_fill",
        [
            {"x": floats(2, 5, 16), "mask": np.eye(2, 5) > 0},
            {"x": floats(2, 5, 16), "mask": np.zeros((2, 5), bool)},
        ],
        {"x": (1, 5, 16), "mask": (1, 5)},
        (0, 0, 0),
    ),
    PatternModel(
        "batched_nms",
        [
            {"boxes": boxes(9), "scores": abs(floats(9)), "labels": whole(*[0, 1] * 4, 2)},
            {"boxes": boxes(0), "scores": floats(0), "labels": whole()},
        ],
        {"boxes": (100, 4), "scores": (100,), "labels": (100,)},
        (1, 0, 0),
    ),
    PatternModel(
        "cond_attention",
        [{"x": floats(1, 5, 16), "is_first": truth} for truth in (YES, NO)],
        {"x": (1, 8, 16)},
        (1, 0, 0),
    ),
    PatternModel(
        "crf_single_multi",
        [
            {"pot": floats(2, 1, 5), "lengths": whole(1, 1)},
            {"pot": floats(2, 6, 5), "lengths": whole(6, 6)},
        ],
        {"pot": (1, 32, 5), "lengths": (1,)},
        (1, 0, 0),
    ),
    PatternModel(
        "mask_head_empty",
        [{"rois": floats(n, 8, 14, 14)} for n in (3, 0)],
        {"rois": (100, 8, 14, 14)},
        (1, 0, 0),
    ),
    PatternModel(
        "merged_decoder",
        [
            {
                "input_ids": whole(*ids)[None],
                "past_k": floats(1, 2, past, 8),
                "use_cache_branch": np.array([cached]),
            }
            for ids, past, cached in (((1, 2, 3), 0, False), ((4,), 3, True), ((4, 5), 3, False))
        ],
        {"input_ids": (1, 1)},
        (1, 0, 0),
        {"use_cache_branch": [True]},
    ),
    PatternModel(
        "nested_optional",
        [
            {"x": floats(2, 16), "extra": floats(k, 16), "flag": flag}
            for k, flag in ((0, YES), (3, YES), (5, YES), (5, NO))
        ],
        {"x": (1, 16), "extra": (3, 16)},
        (3, 0, 0),
        {"flag": True},
    ),
    PatternModel(
        "pad_window",
        images((1, 3, 16, 24), (1, 3, 17, 24), (2, 3, 16, 25), (1, 3, 7, 9)),
        {"x": (1, 3, 17, 25)},
        (0, 0, 0),
    ),
    PatternModel(
        "pos_embed", images((1, 3, 64, 64), (1, 3, 64, 96), (2, 3, 32, 128)), {"x": (1, 3, 64, 64)}, (0, 0, 0)
    ),
    PatternModel(
        "refine_patches",
        [{"err": abs(floats(1, 1, 8, 9)) * on, "x": floats(1, 3, 8, 9)} for on in (1, 0)],
        {"err": (1, 1, 8, 9), "x": (1, 3, 8, 9)},
        (1, 0, 1),
    ),
    PatternModel(
        "resize_if_differs",
        images((1, 3, 16, 24), (1, 3, 17, 24), (2, 3, 17, 25)),
        {"x": (1, 3, 17, 25)},
        (0, 0, 0),
    ),
    PatternModel(
        "rope_squeeze_old",
        [{"input_ids": whole(*ids)[None], "x": floats(1, len(ids), 16)} for ids in ((1, 2, 3), (1,))],
        {"input_ids": (1, 7), "x": (1, 7, 16)},
        (0, 0, 0),
    ),
    PatternModel(
        "squeeze_depth_static_hw",
        [{"image": floats(n, 3, 56, 70)} for n in (1, 2)],
        {"image": (1, 3, 56, 70)},
        (0, 0, 0),
    ),
    PatternModel(
        "squeeze_interp",
        [{"x": floats(n, 32, t), "mask": floats(n, t)} for n, t in ((1, 64), (3, 30))],
        {"x": (1, 32, 64), "mask": (1, 64)},
        (0, 0, 0),
    ),
    PatternModel("squeeze_unknown", images((2, 1, 5), (2, 3, 5)), {"x": (1, 1, 512)}, (1, 1, 0)),
    PatternModel("unbind_loop", images((3, 8), (1, 8)), {"x": (3, 8)}, (0, 0, 0)),
)
"""Where one stays whatever it costs, the rank changes (squeeze_unknown), or a Scan would run in vain."""
