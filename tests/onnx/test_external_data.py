"""Initializers in other files: read when they are right, and only from the model's folder."""

from __future__ import annotations

import zlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import anydml
from tests.models import (
    COND,
    assert_same,
    branch,
    if_node,
    info,
    initializer,
    model,
    node,
    one_if,
    refused,
    run,
)

TRUE, FALSE = np.array(True), np.array(False)
X = np.float32([1, -2, 3])
BYTES = X.tobytes()
NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])


def stored(folder, location="weights.bin", content=BYTES, **entries):
    """A model file whose initializer lies in another file; the model's path."""
    external = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        external.external_data.add(key=key, value=str(value))
    then = branch([node("Add", ["x", "w"], "t")], ["t"])
    built = model([if_node("cond", then, ABS)], [COND, info("x")], [info("y")], initializers=[external])
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(built.SerializeToString())
    if content is not None and not location.startswith("/"):
        (folder / location).parent.mkdir(exist_ok=True)
        (folder / location).write_bytes(content)
    return folder / "model.onnx"


@pytest.mark.parametrize(
    ("location", "before", "entries"),
    [
        ("weights.bin", b"", {}),
        ("weights.bin", b"", {"offset": 0, "length": 12}),
        ("sub/weights.bin", b"", {"length": 12}),
        ("weights.bin", b"#" * 4096, {"offset": 4096, "length": 12}),
        (
            "weights.bin",
            b"#" * 4096,
            {"offset": 4096, "length": 12, "checksum": f"{zlib.crc32(X.tobytes()):x}"},
        ),
    ],
)
def test_external_data(tmp_path, location, before, entries):
    path = stored(tmp_path / "here", location, before + X.tobytes(), **entries)
    assert_same(run(path, cond=TRUE, x=X)[0], X + X)
    assert_same(run(str(path), cond=FALSE, x=X)[0], abs(X))


def test_external_data_written_by_onnx(tmp_path):
    built = one_if(branch([node("Add", ["x", "w"], "t")], ["t"], [initializer("w", X)]), ABS, info("x"))
    onnx.save(built, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert_same(run(tmp_path / "m.onnx", cond=TRUE, x=X)[0], X + X)


def test_external_data_that_is_missing(tmp_path):
    refused(stored(tmp_path, content=None), r"model\.onnx.*constant 'w'.*weights\.bin.*no such file")


@pytest.mark.parametrize(
    "location", ["../secret.bin", "sub/../../secret.bin", "ABSOLUTE", "", ".", "link.bin", "out/secret.bin"]
)
def test_external_data_outside_the_folder(tmp_path, location):
    (tmp_path / "secret.bin").write_bytes(X.tobytes())
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "link.bin").symlink_to(tmp_path / "secret.bin")
    (here / "out").symlink_to(tmp_path)
    path = stored(here, str(tmp_path / "secret.bin") if location == "ABSOLUTE" else location, None)
    refused(path, r"constant 'w'", r"external data (inside|in)")


@pytest.mark.parametrize("entries", [{"length": 12}, {}, {"offset": 4, "length": 12}, {"offset": 100}])
def test_external_data_that_is_truncated(tmp_path, entries):
    path = stored(tmp_path, content=X.tobytes()[:-2] if "offset" not in entries else X.tobytes(), **entries)
    with pytest.raises(anydml.InvalidModel, match=r"'w'"):
        run(path, cond=TRUE, x=X)


@pytest.mark.parametrize(
    "entries", [{"offset": "x"}, {"length": "long"}, {"length": -12}, {"offset": -4}, {"length": 8}]
)
def test_external_data_with_wrong_entries(tmp_path, entries):
    with pytest.raises(anydml.InvalidModel, match=r"'w'"):
        run(stored(tmp_path, **entries), cond=TRUE, x=X)


def test_external_data_needs_a_path(tmp_path):
    refused(stored(tmp_path).read_bytes(), r"constant 'w'.*weights\.bin.*by its path")
