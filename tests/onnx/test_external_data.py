"""Initializers in other files: read when they are right, and only from the model's folder."""

from __future__ import annotations

import os
import pickle
import sys
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import anydml
from anydml.cli.main import cli
from anydml.onnx.serde import tensors
from anydml.runtime.mapped_file import can_map
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


def flattened(path, target):
    done = CliRunner().invoke(cli, ["flatten", str(path), str(target), "--convert", "always"])
    assert done.exit_code == 0, done.output
    return target


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


@pytest.mark.skipif(os.name == "nt", reason="links take a privilege there")
@pytest.mark.parametrize("below", ["", "data"], ids=["beside", "below"])
@pytest.mark.parametrize("linked", ["model and data", "model"])
def test_external_data_in_the_cache_of_a_hub(tmp_path, linked, below):
    """Files are called by what is in them; a snapshot has links to them, by the names that models know."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    (blobs / below).mkdir(parents=True)
    snapshot.mkdir(parents=True)
    name = "f00" if linked == "model and data" else "weights.bin"
    stored(blobs, content=None).rename(blobs / "cafe")
    (blobs / below / name).write_bytes(X.tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/cafe")
    if linked == "model and data":
        (snapshot / "weights.bin").symlink_to(Path("../../blobs", below, name))
    elif below:
        refused(snapshot / "model.onnx", "no such file")
        return
    path = snapshot / "model.onnx"
    assert_same(run(path, cond=TRUE, x=X)[0], X + X)
    assert_same(run(flattened(path, tmp_path / "flat.onnx"), cond=TRUE, x=X)[0], X + X)
    pickled = pickle.loads(pickle.dumps(anydml.load(path)))
    assert_same(pickled.run(None, {"cond": TRUE, "x": X})[0], X + X)


@pytest.mark.skipif(os.name == "nt", reason="links take a privilege there")
def test_a_model_behind_a_link_with_its_external_data_beside_the_link(tmp_path):
    stored(tmp_path / "model", content=None)
    here = tmp_path / "here"
    here.mkdir()
    (here / "weights.bin").write_bytes(X.tobytes())
    (here / "model.onnx").symlink_to("../model/model.onnx")
    assert_same(run(here / "model.onnx", cond=TRUE, x=X)[0], X + X)
    flat = flattened(here / "model.onnx", tmp_path / "flat.onnx")
    assert_same(run(flat, cond=TRUE, x=X)[0], X + X)


@pytest.mark.skipif(os.name == "nt", reason="links take a privilege there")
def test_external_data_elsewhere_than_the_model_behind_a_link(tmp_path):
    for name in ("model", "data", "snapshot"):
        (tmp_path / name).mkdir()
    stored(tmp_path / "model", content=None)
    (tmp_path / "data" / "f00").write_bytes(X.tobytes())
    (tmp_path / "snapshot" / "model.onnx").symlink_to("../model/model.onnx")
    (tmp_path / "snapshot" / "weights.bin").symlink_to("../data/f00")
    refused(tmp_path / "snapshot" / "model.onnx", "expected external data inside the model's folder")


@pytest.mark.parametrize("entries", [{"length": 12}, {}, {"offset": 4, "length": 12}, {"offset": 100}])
def test_external_data_that_is_truncated(tmp_path, entries):
    path = stored(tmp_path, content=X.tobytes()[:-2] if "offset" not in entries else X.tobytes(), **entries)
    with pytest.raises(anydml.InvalidModel, match=r"'w'"):
        run(path, cond=TRUE, x=X)


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "x"},
        {"offset": ""},
        {"length": ""},
        {"length": "long"},
        {"length": -12},
        {"offset": -4},
        {"length": 8},
    ],
)
def test_external_data_with_wrong_entries(tmp_path, entries):
    with pytest.raises(anydml.InvalidModel, match=r"'w'"):
        run(stored(tmp_path, **entries), cond=TRUE, x=X)


def test_external_data_needs_a_path(tmp_path):
    refused(stored(tmp_path).read_bytes(), r"constant 'w'.*weights\.bin.*by its path")


# ---- large ones --------------------------------------------------------------------------------------


def stored_table(folder, rows, before=64):
    """A model that looks up rows of a table in another file, of which only row 7 is not zero."""
    table = TensorProto(name="w", data_type=1, dims=[rows, 1024], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "sub/weights.bin"), ("offset", before), ("length", rows * 4096)):
        table.external_data.add(key=key, value=str(value))
    look = branch([node("Gather", ["w", "i"], "t")], ["t"])
    then = model([if_node("cond", look, look)], [COND, info("i", "int64")], [info("y")], initializers=[table])
    (folder / "sub").mkdir()
    (folder / "model.onnx").write_bytes(then.SerializeToString())
    with (folder / "sub" / "weights.bin").open("wb") as file:
        file.truncate(before + rows * 4096)
        file.seek(before + 7 * 4096)
        file.write(np.arange(1024, dtype=np.float32).tobytes())
    return folder / "model.onnx"


@pytest.mark.parametrize("before", [64, 61], ids=["aligned", "unaligned"])
def test_weights_of_any_offset(tmp_path, before):
    path = stored_table(tmp_path, 20, before)
    (y,) = run(path, cond=TRUE, i=np.array([7, 0]))
    assert_same(y, np.stack([np.arange(1024), np.zeros(1024)]).astype(np.float32))


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="a file with holes")
def test_a_model_of_more_than_two_gibibytes(tmp_path):
    """Only what is looked up is read."""
    path = stored_table(tmp_path, 600_000)
    session = anydml.load(path, threads=1)
    for truth in (TRUE, FALSE):
        (y,) = session.run(None, {"cond": truth, "i": np.array([7, 599_999])})
        assert_same(y, np.stack([np.arange(1024), np.zeros(1024)]).astype(np.float32))


def test_plans_share_their_weights():
    """However many shapes are met, a weight is in memory once."""
    w = np.ones((64, 64), np.float32)
    built = model(
        [node("MatMul", ["x", "w"], "y")], [info("x")], [info("y")], initializers=[initializer("w", w)]
    )
    session = anydml.load(built, threads=1)
    for shape in ((1, 64), (2, 64), (1, 1, 64)):
        assert_same(session.run(None, {"x": np.ones(shape, np.float32)})[0], np.full(shape, 64, np.float32))
    regions = [region for _, region, *_ in session._program.libraries.regions]
    assert len(regions) == 2
    assert {id(c) for r in regions for _, c in r.weights} == {
        id(c) for c in session._model.graph.constants.values()
    }
    assert all(len(r.model) < 4096 for r in regions)


def test_external_data_in_the_body_of_a_loop(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]> m (int64 n, float[3] x) => (float[3] y) {
        go = Constant <value_int = 1> ()  more = Cast <to = 9> (go)
        y = Loop (n, more, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1)
            { k1 = Identity (k)  s1 = Add (s, w) }> }"""
    built = onnx.parser.parse_model(text)
    weight = built.graph.node[2].attribute[0].g.initializer.add(name="w", data_type=1, dims=[3])
    weight.raw_data = BYTES
    onnx.external_data_helper.set_external_data(weight, "weights.bin")
    weight.ClearField("raw_data")
    (tmp_path / "m.onnx").write_bytes(built.SerializeToString())
    (tmp_path / "weights.bin").write_bytes(BYTES)
    assert_same(run(tmp_path / "m.onnx", n=np.array(2), x=X)[0], X * 3)
    (tmp_path / "weights.bin").write_bytes(BYTES[:-1])
    refused(tmp_path / "m.onnx", "constant 'w'", "truncated")


@pytest.fixture(params=[True, False], ids=["watched", "not watched"])
def watched(request, monkeypatch):
    """Whether files stay open, as those of models with many files do not."""
    if not request.param:
        monkeypatch.setattr(tensors, "MAX_WATCHED", 0)


@pytest.mark.skipif(not can_map(), reason="only some systems let mapped files go")
@pytest.mark.parametrize("first", [False, True], ids=["before the first run", "after it"])
@pytest.mark.parametrize("columns", [3, 1000])
@pytest.mark.usefixtures("watched")
def test_external_data_that_was_removed_since(tmp_path, first, columns):
    """A session goes on, also with branches and sizes that it has not met yet."""
    path, w = product(tmp_path, columns)
    session, x = anydml.load(path, threads=1), np.ones((2, columns), np.float32)
    if first:
        session.run(None, {"cond": TRUE, "x": x})
    (tmp_path / "weights.bin").unlink()
    for rows in (2, 1, 5):
        (y,) = session.run(None, {"cond": TRUE, "x": x[:1].repeat(rows, 0)})
        assert np.allclose(y, x[:1] @ w, rtol=1e-5)
        assert session.run(None, {"cond": FALSE, "x": x})[0].tolist() == x.tolist()


@pytest.mark.skipif(not can_map(), reason="only some systems let mapped files go")
@pytest.mark.usefixtures("watched")
def test_external_data_that_was_written_to_since(tmp_path):
    path, w = product(tmp_path, 1000)
    session, x = anydml.load(path, threads=1), np.ones((2, 1000), np.float32)
    (tmp_path / "weights.bin").write_bytes((w + 1).tobytes() + b"more")
    with pytest.raises(anydml.InvalidModel, match=r"weights\.bin: .*written to since"):
        session.run(None, {"cond": TRUE, "x": x})


def product(folder, columns):
    """A model whose branch multiplies by a matrix that lies beside it, and the matrix."""
    w = np.arange(columns * columns, dtype=np.float32).reshape(columns, columns) / columns**2
    weight = initializer("w", w)
    then = branch([node("MatMul", ["x", "w"], "t")], ["t"])
    ends = [info("x", sizes=["rows", columns])], [info("y", sizes=["rows", columns])]
    built = model([if_node("cond", then, ABS)], [COND, *ends[0]], ends[1], initializers=[weight])
    onnx.save(built, folder / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder / "m.onnx", w


@pytest.mark.parametrize("changed", ["overwritten", "truncated"])
def test_a_models_own_file_that_is_written_to_after_its_first_run(tmp_path, changed):
    """What is made of it later, a program here, is not made of other weights, nor of memory that is gone."""
    columns = 600
    w = np.full((columns, columns), 0.001, np.float32)
    then = branch([node("MatMul", ["x", "w"], "t")], ["t"])
    ends = [info("x", sizes=[2, columns])], [info("y", sizes=[2, columns])]
    built = model([if_node("cond", then, ABS)], [COND, *ends[0]], ends[1], initializers=[initializer("w", w)])
    path = tmp_path / "m.onnx"
    path.write_bytes(built.SerializeToString())
    session, x = anydml.load(path, threads=1), np.ones((2, columns), np.float32)
    session.run(None, {"cond": TRUE, "x": x})
    with path.open("r+b" if changed == "overwritten" else "wb") as file:
        if changed == "overwritten":
            file.write(built.SerializeToString().replace(w[0].tobytes(), (w[0] + 1).tobytes()))
    for _ in range(4):
        assert np.allclose(session.run(None, {"cond": TRUE, "x": x})[0], 0.6)
    session.explain()
    with pytest.raises(anydml.InvalidModel, match=r"m\.onnx: .*written to since"):
        session.run(None, {"cond": FALSE, "x": x})


# ---- sparse ones -------------------------------------------------------------------------------------


def with_sparse(values, indices, dims):
    sparse = helper.make_sparse_tensor(initializer("w", values), initializer("places", indices), dims)
    built = one_if(branch([node("Add", ["x", "w"], "t")], ["t"]), ABS, info("x"))
    built.graph.sparse_initializer.append(sparse)
    return built


@pytest.mark.parametrize("indices", [np.int64([1, 5]), np.int64([[0, 1], [1, 2]])], ids=["flat", "by axis"])
def test_a_sparse_initializer(indices):
    x = np.ones((2, 3), np.float32)
    (y,) = run(with_sparse(np.float32([2, 3]), indices, [2, 3]), cond=TRUE, x=x)
    assert_same(y, x + np.float32([[0, 2, 0], [0, 0, 3]]))


@pytest.mark.parametrize(
    "indices", [np.int64([1, 6]), np.int64([-1, 2]), np.int64([1]), np.int64([[0, 1], [2, 0]])]
)
def test_a_sparse_initializer_of_wrong_indices(indices):
    with pytest.raises(anydml.InvalidModel, match="constant 'w': expected 2 indices"):
        run(with_sparse(np.float32([2, 3]), indices, [2, 3]), cond=TRUE, x=np.ones((2, 3), np.float32))


@pytest.mark.parametrize("dims", [[1 << 40, 1 << 20], [-1, 3], []])
def test_a_sparse_initializer_of_absurd_sizes(dims):
    refused(with_sparse(np.float32([2, 3]), np.int64([0, 1]), dims), "constant 'w': expected")
