"""Models whose weights are large: left in the file, in one plan for all sizes, and nowhere twice."""

import os

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import anydml as dml
from anydml.onnx.serde import raw_data
from anydml.onnx.serde.raw_data import RawData
from anydml.runtime.mapped_file import can_map

needs_maps = pytest.mark.skipif(not can_map(), reason="files are read as a whole on this system")
N = 1100
TEXT = f"""<ir_version: 8, opset_import: ["": 17]>
m (float[batch, {N}] x, bool c) => (float[batch, {N}] y, float[{N}, {N}] v) <float[{N}] bias> {{
  z = MatMul (x, w)
  y = If (c) <then_branch = t () => (float[batch, {N}] a) {{ a = Add (z, bias) }},
              else_branch = e () => (float[batch, {N}] b) {{ b = MatMul (z, u) }}>
  v = Transpose (u)
}}"""
TRUE, FALSE = np.array(True), np.array(False)


def model():
    rng = np.random.default_rng(0)
    made = onnx.parser.parse_model(TEXT)
    del made.graph.initializer[:]
    for name, sizes in (("w", (N, N)), ("u", (N, N)), ("bias", (N,))):
        made.graph.initializer.append(numpy_helper.from_array(rng.standard_normal(sizes, np.float32), name))
    return made


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    found = tmp_path_factory.mktemp("large") / "model.onnx"
    onnx.save(model(), found)
    return found


def feeds(rows, condition):
    x = np.random.default_rng(rows).standard_normal((rows, N), np.float32)
    return {"x": x, "c": condition}


def check(session, path, rows=(1, 2, 3)):
    peer = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for n in rows:
        for condition in (TRUE, FALSE):
            given = feeds(n, condition)
            for mine, its in zip(session.run(None, given), peer.run(None, given), strict=True):
                np.testing.assert_allclose(mine, its, rtol=1e-3, atol=1e-3)


def test_one_plan_serves_all_sizes(path):
    session = dml.load(path)
    check(session, path)
    assert session.explain().count("plan for") == 2  # one for each content of c
    assert "x float32[?,1100]" in session.explain()


@pytest.mark.parametrize("source", ["path", "bytes", "message"])
def test_from_wherever_it_is_loaded(path, source):
    given = {"path": path, "bytes": path.read_bytes(), "message": onnx.load(path)}[source]
    check(dml.load(given), path, [2])


@needs_maps
def test_weights_stay_in_the_file(path):
    session = dml.load(path)
    assert [f.path for f in session._model.mapped] == [path]
    check(session, path)
    owners = {type(c.source).__name__ for c in session._model.graph.constants.values()}
    assert "InFile" in owners


@needs_maps
def test_a_file_that_is_replaced_does_not_matter(path, tmp_path):
    copy, other = tmp_path / "copy.onnx", tmp_path / "other.onnx"
    copy.write_bytes(path.read_bytes())
    session = dml.load(copy)
    other.write_bytes(b"nothing")
    os.replace(other, copy)
    check(session, path)


@needs_maps
def test_a_file_that_is_written_to_matters_to_further_plans_only(path, tmp_path):
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(path.read_bytes())
    session = dml.load(copy)
    expected = session.run(None, feeds(2, TRUE))
    with open(copy, "r+b") as file:
        file.truncate(100)
    again = session.run(None, feeds(2, TRUE))
    for a, b in zip(expected, again, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(dml.InvalidModel, match="expected the file that was loaded, but it was written to"):
        session.run(None, feeds(2, FALSE))


def test_no_file_can_have_a_token():
    data = model().SerializeToString()
    raw = RawData(data)
    light = onnx.ModelProto.FromString(raw.without())
    assert light.ByteSize() < 10_000
    tokens = [t.raw_data for t in light.graph.initializer if len(t.raw_data) == 32]
    assert len(tokens) == 2
    assert raw.of(tokens[0]) is not None
    assert RawData(data).of(tokens[0]) is None  # nor another reading of the same file
    for tensor, whole in zip(light.graph.initializer, model().graph.initializer, strict=True):
        found = raw.of(tensor.raw_data)
        assert (tensor.raw_data if found is None else bytes(found[0])) == whole.raw_data


@pytest.mark.parametrize("cut", [10, 1000, 4_000_000, 9_000_000])
def test_damaged_files_are_told(path, cut, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(dml.InvalidModel, match="expected an ONNX model"):
        dml.load(broken)
    with pytest.raises(dml.InvalidModel, match="expected an ONNX model"):
        dml.load(path.read_bytes()[:cut])


def test_contents_of_another_length_are_told(tmp_path):
    made = model()
    made.graph.initializer[0].raw_data = made.graph.initializer[0].raw_data[:-4]
    with pytest.raises(dml.InvalidModel, match=f"expected {4 * N * N} bytes, but got {4 * N * N - 4}"):
        dml.load(made.SerializeToString())


def test_a_forked_child_runs_what_lies_in_the_file(path):
    session = dml.load(path)
    check(session, path, [1])
    child = os.fork() if hasattr(os, "fork") else None
    if child is None:
        pytest.skip("no fork on this system")
    if child == 0:
        try:
            session.run(None, feeds(1, TRUE))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_plans_that_take_turns_do_not_spin(path):
    """Their threads would take the processor from each other."""
    session = dml.load(path, threads=2)
    registry = session._program.libraries
    for condition in (TRUE, FALSE):
        session.run(None, feeds(2, condition))
        assert not registry.shared
    expected = session.run(None, feeds(2, FALSE))
    session.run(None, feeds(2, TRUE))
    assert registry.shared
    assert all(not call._asked.alone for call in registry.regions.values())
    for a, b in zip(expected, session.run(None, feeds(2, FALSE)), strict=True):
        np.testing.assert_array_equal(a, b)
    check(session, path)


def test_lists_of_attributes_are_not_walked(monkeypatch):
    """Trees have millions of numbers, each of them a field, beside which no weight is."""
    weight = numpy_helper.from_array(np.ones(1 << 15, np.float32), "w")
    lists = {"nodes_nodeids": [*range(5000)], "nodes_values": [0.5] * 5000, "nodes_modes": ["LEAF"] * 5000}
    nodes = [
        helper.make_node("TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", **lists),
        helper.make_node("Constant", [], ["c"], value=weight),
    ]
    graph = helper.make_graph(nodes, "trees", [], [], [weight])
    data = helper.make_model(graph).SerializeToString()
    seen = []
    varint = raw_data._varint
    monkeypatch.setattr(raw_data, "_varint", lambda *given: (seen.append(1), varint(*given))[1])
    raw = RawData(data)
    light = onnx.ModelProto.FromString(raw.without())
    assert len(seen) < 500
    kept = helper.make_model(graph)
    kept.graph.initializer[0].raw_data = light.graph.initializer[0].raw_data
    assert light == kept
    assert bytes(raw.of(light.graph.initializer[0].raw_data)[0]) == weight.raw_data
