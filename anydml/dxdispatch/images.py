"""Pictures as tensors and back, as DxDispatch has them: N (which is 1), C (grey, RGB or RGBA), H, W."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.errors import InvalidModel, Problem, Unsupported, by_a_handler, short_repr

SUFFIXES = (".png", ".jpg", ".jpeg")
_MOST_PIXELS = 1 << 26
"""Of a picture: a small file can tell many more than memory has room for."""
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: Path, dtype: np.dtype, sizes: Sequence[int] | None) -> NDArray[Any]:
    """The picture as a tensor of `dtype`, resampled (bicubic) to `sizes` if they are given.

    Raises:
        InvalidModel: no picture, or a type or sizes that a picture cannot have.
        Unsupported: without Pillow.
    """
    if not _fits(dtype):
        message = f"expected FLOAT32, FLOAT16 (from 0 to 1) or UINT8 (to 255), but got {dtype}"
        raise InvalidModel(Problem("initialValuesDataType", message))
    if sizes is not None and (len(sizes) != 4 or sizes[0] != 1 or sizes[1] not in _MODES or 0 in sizes):
        message = f"expected [1, channels (1, 3 or 4), height, width], but got {short_repr(list(sizes))}"
        raise InvalidModel(Problem("resampleSize", message))
    library = _pillow()
    try:
        with library.open(path) as picture:
            if prod(picture.size) > _MOST_PIXELS:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels")
            channels = sizes[1] if sizes else {"L": 1, "1": 1, "RGBA": 4, "LA": 4}.get(picture.mode, 3)
            pixels = picture.convert(_MODES[channels])
            if sizes is not None and pixels.size != (sizes[3], sizes[2]):
                pixels = pixels.resize((sizes[3], sizes[2]), library.Resampling.BICUBIC)
            values = np.asarray(pixels)
    except Exception as error:  # a decoder meets anything in a damaged file
        if by_a_handler(error):
            raise
        message = f"expected a picture, but {path.name!r} cannot be read as one: {error}"
        raise InvalidModel(Problem("initialValues.sourcePath", message)) from error
    planes = values.reshape(*values.shape[:2], channels).transpose(2, 0, 1)[None]
    if dtype.kind == "u":
        return np.ascontiguousarray(planes)
    return (planes.astype(np.float32) / np.float32(255)).astype(dtype)


def write_image(file: Any, values: NDArray[Any], suffix: str) -> None:
    """Write a tensor that `image_sizes` accepts: floats are clamped to 0 .. 1 (NaN becomes 0) and rounded."""
    sizes = image_sizes(values.shape, values.dtype, suffix)
    pixels = values.reshape(sizes)[0].transpose(1, 2, 0)
    if values.dtype.kind == "f":
        bounded = np.clip(np.nan_to_num(pixels.astype(np.float32), nan=0.0), 0, 1)
        pixels = np.rint(bounded * 255).astype(np.uint8)
    pixels = np.ascontiguousarray(pixels[:, :, 0] if sizes[1] == 1 else pixels)
    _pillow().fromarray(pixels).save(file, "PNG" if suffix == ".png" else "JPEG")


def image_sizes(shape: Sequence[int], dtype: np.dtype, suffix: str) -> tuple[int, int, int, int]:
    """A tensor's sizes as those of one picture.

    Raises:
        InvalidModel: it is none, or the file's format cannot hold it.
    """
    sizes = (1,) * (4 - len(shape)) + tuple(shape)
    if len(shape) < 2 or len(sizes) != 4 or sizes[0] != 1 or sizes[1] not in _MODES or 0 in sizes:
        message = f"expected [1, channels (1, 3 or 4), height, width] for a picture, but got {list(shape)}"
        raise InvalidModel(Problem("dimensions", message, 'give them: "dimensions": [1, 3, 600, 800]'))
    if not _fits(dtype):
        message = f"expected FLOAT32, FLOAT16 (from 0 to 1) or UINT8 (to 255) for a picture, but got {dtype}"
        raise InvalidModel(Problem("resource", message))
    if sizes[1] == 4 and suffix != ".png":
        raise InvalidModel(Problem("targetPath", "expected .png for four channels: JPEG has no transparency"))
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _fits(dtype: np.dtype) -> bool:
    return dtype in (np.float32, np.float16, np.uint8)


def _pillow() -> ModuleType:
    try:
        from PIL import Image  # not needed for anything else
    except ImportError as error:
        remedy = "pip install pillow"
        raise Unsupported(Problem("", "pictures need Pillow, which is not installed", remedy)) from error
    return Image
