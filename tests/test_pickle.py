"""Pickles and copies: what is compiled travels as what it was made from, and is made again there."""

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import anydml as dml
from anydml.onnx.execute.bound import Bound
from anydml.ops.catalog import BY_NAME, ELEMENT_WISE
from anydml.ops.opdef import ONE, REQUIRED

X = np.array([1, -np.inf, 3, np.nan], np.float32)
WAYS = [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy]
WAY_NAMES = ["pickle", "copy", "deepcopy"]


def in_another_process(thing: object, code: str, **environment: str) -> str:
    """What code prints of `thing`, in an interpreter that knows nothing but its pickle."""
    load = "import sys, pickle; import numpy as np; thing = pickle.load(sys.stdin.buffer)\n"
    done = subprocess.run(
        [sys.executable, "-c", load + code],
        input=pickle.dumps(thing),
        capture_output=True,
        timeout=100,
        env=os.environ | environment,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return done.stdout.decode().strip()


# ---- operators and graphs ----------------------------------------------------------------------------


def tensor(data_type="FLOAT32", **fields):
    return {"DataType": data_type, "Sizes": [4], **fields}


def operator(device, **fields):
    desc = {"InputTensor": tensor(**fields), "OutputTensor": tensor("UINT8"), "InfinityMode": "EITHER"}
    return device.create_operator({"Type": "ELEMENT_WISE_IS_INFINITY", "Desc": desc})


def compiled_operator(threads=None, **fields):
    device = dml.Device("5_0", threads=threads)
    return device.compile_operator(operator(device, **fields))


def infinite(compiled, inputs):
    y = np.zeros(4, np.uint8)
    compiled.dispatch(inputs, {"OutputTensor": y})
    return y.tolist()


def infinite_in_a_worker(compiled):
    return infinite(compiled, {"InputTensor": X})


def compiled_graph(flags="NONE"):
    builder = dml.GraphBuilder(dml.Device("6_2", threads=1))
    x, w = builder.input("x", "FLOAT32", [4]), builder.input("w", "FLOAT32", [4], flags=flags)
    builder.input("nobody reads it", "FLOAT32", [1])
    scaled = dml.add1(x, w, "RELU")
    return builder.compile({"y": dml.if_(dml.is_infinity(x), 0.0, scaled) * 2, "z": x.reinterpret([2, 2])})


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_a_compiled_operator(way, threads):
    compiled = compiled_operator(threads)
    again = way(compiled)
    assert infinite(again, {"InputTensor": X}) == [0, 1, 0, 0]
    assert again is not compiled
    assert (again._threads, again.tensors) == (threads, compiled.tensors)
    assert again._operator._feature_level is dml.FeatureLevel.FL_5_0
    assert (again.explain(), again.emit()) == (compiled.explain(), compiled.emit())


def test_a_compiled_operator_in_a_spawned_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(infinite_in_a_worker, (compiled_operator(),)) == [0, 1, 0, 0]


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_what_an_operator_owns_goes_along(way):
    compiled = compiled_operator(Flags="OWNED_BY_DML")
    with pytest.raises(dml.InvalidInput, match=r"expected initialize\(\) first"):
        infinite(way(compiled), {})
    compiled.initialize({"InputTensor": X})
    again = way(compiled)
    compiled.initialize({"InputTensor": np.zeros(4, np.float32)})
    assert infinite(again, {}) == [0, 1, 0, 0]
    assert infinite(compiled, {}) == [0, 0, 0, 0]


def example_desc(operator):
    """A description with the types and attributes of a record's example."""
    fields, letters = {}, {slot.dtype: operator.example_type(slot.dtype) for slot in operator.tensors}
    for slot, x in zip(operator.inputs, operator.example.inputs, strict=True):
        if x is not None:
            sizes = [1, 1, 1, 1] if slot.sizes == ONE else [1, 1, 3, 4]
            fields[slot.name] = dml.TensorDesc(letters[slot.dtype], sizes)
    (output,) = operator.outputs
    fields[output.name] = dml.TensorDesc(letters[output.dtype], [1, 1, 3, 4])
    for attribute in operator.attributes:
        value = letters[output.dtype] if attribute.implied else attribute.default
        value = operator.example.attributes.get(attribute.parameter, value)
        if value is not REQUIRED:
            fields[attribute.name] = value
    return dml.OperatorDesc(operator.type, fields)


@pytest.mark.parametrize("name", [o.name for o in ELEMENT_WISE])
def test_every_operators_description(name):
    """By its example: tensors, enumerations, scalars, axes, scale and bias."""
    device = dml.Device()
    made = device.create_operator(example_desc(BY_NAME[name]))
    for way in WAYS:
        again = way(made)
        assert (again.type, again.tensors, again.attributes) == (made.type, made.tensors, made.attributes)
    ours, its = device.compile_operator(made), device.compile_operator(again)
    assert ours.explain() == its.explain()


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_a_fused_activation_and_a_scale(way):
    tensors = {name: tensor() for name in ("ATensor", "BTensor", "OutputTensor")}
    activation = {"Type": "ACTIVATION_LEAKY_RELU", "Desc": {"Alpha": 0.5}}
    device = dml.Device()
    made = device.create_operator(
        {"Type": "ELEMENT_WISE_ADD1", "Desc": {**tensors, "FusedActivation": activation}}
    )
    assert way(made).attributes == made.attributes
    tensors = {name: tensor() for name in ("InputTensor", "OutputTensor")}
    scaled = {**tensors, "ScaleBias": {"Scale": 2.0, "Bias": 1.0}}
    made = device.create_operator({"Type": "ELEMENT_WISE_ABS", "Desc": scaled})
    assert way(made).attributes == made.attributes


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize(
    "thing",
    [
        dml.TensorDesc("FLOAT16", [2, 3], [6, 2], "OWNED_BY_DML", 32, 8),
        dml.OperatorDesc("ELEMENT_WISE_IF", {"ATensor": dml.TensorDesc("INT8", [2])}),
        dml.FeatureLevel.FL_3_1,
        dml.ScaleBias(2, 1),
        dml.Problem("here", "expected this", "do that"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_descriptions(way, thing):
    assert way(thing) == thing


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("threads", [None, 2])
def test_devices(way, threads):
    device = way(dml.Device("4_1", threads=threads))
    assert device.feature_level is dml.FeatureLevel.FL_4_1
    assert device.compile_operator(operator(device))._threads == threads


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_a_compiled_graph(way):
    compiled = compiled_graph()
    again, inputs = way(compiled), {"x": X, "w": np.ones(4, np.float32), "nobody reads it": X[:1]}
    ours, its = compiled(inputs), again(inputs)
    assert its.keys() == ours.keys()
    for name, y in ours.items():
        assert its[name].tobytes() == y.tobytes()
    assert (again._threads, again.tensors) == (1, compiled.tensors)
    assert (again.explain(), again.emit()) == (compiled.explain(), compiled.emit())


def test_a_compiled_graph_in_another_process():
    compiled = compiled_graph("OWNED_BY_DML")
    compiled.initialize({"w": np.arange(4, dtype=np.float32)})
    assert in_another_process(
        compiled, "print(thing({'x': np.float32([1, np.inf, 2, -9])})['y'].tolist())"
    ) == ("[2.0, 0.0, 8.0, 0.0]")


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]], ids=["pickle", "deepcopy"])
def test_a_graph_goes_on_elsewhere(way):
    builder = dml.GraphBuilder()
    x = builder.input("x", "FLOAT32", [4])
    theirs, sine = way((builder, dml.sin(x)))
    y = theirs.compile({"y": sine + theirs.input("b", "FLOAT32", [4])})
    np.testing.assert_array_equal(y({"x": np.zeros(4, np.float32), "b": X})["y"], X)
    with pytest.raises(dml.InvalidInput, match="expected an expression of this graph"):
        builder.compile({"y": sine})


def bindings():
    operator, graph = compiled_operator(), compiled_graph()
    arrays = {"x": X, "w": X.copy()}
    yield operator.bind({"InputTensor": X}, {"OutputTensor": np.zeros(4, np.uint8)})
    yield graph.bind(arrays, {"y": X.copy(), "z": X.copy()})
    yield dml.load(model("Neg")).bind({"x": X})


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
def test_bindings_stay_where_they_are(way):
    for bound in bindings():
        what = "session" if isinstance(bound, Bound) else "compiled operator or graph"
        with pytest.raises(
            TypeError, match=f"bound to memory; pickle .*the {what}, and bind again in the other"
        ):
            way(bound)


# ---- sessions ----------------------------------------------------------------------------------------


def model(op="Neg", size="n"):
    text = (
        f'<ir_version: 8, opset_import: ["": 17]> m (float[{size}] x) => (float[{size}] y) {{ y = {op}(x) }}'
    )
    return parser.parse_model(text)


def weighted(folder):
    """A model with its weight in another file."""
    weight = numpy_helper.from_array(np.full(2048, 3, np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2048]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "m", ends[:1], ends[1:], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return folder / "m.onnx", folder / "w.bin"


def negated(session):
    return session.run(None, {"x": X})[0].tobytes() == (-X).tobytes()


SOURCES = [model, lambda: model().SerializeToString(), lambda: bytearray(model().SerializeToString())]


@pytest.mark.parametrize("way", WAYS, ids=WAY_NAMES)
@pytest.mark.parametrize("source", SOURCES, ids=["message", "bytes", "bytearray"])
def test_a_session_of_a_model_in_memory(way, source):
    session = dml.load(source(), dims={"n": 4})
    again = way(session)
    assert again is not session
    assert negated(again)
    with pytest.raises(dml.InvalidInput, match="expected shape"):
        again.run(None, {"x": X[:2]})


def test_a_session_in_another_process(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    run = "print(thing.run(None, {'x': np.ones(3, np.float32)})[0].tolist())"
    for source in (path, str(path), path.read_bytes()):
        assert in_another_process(dml.load(source), run) == "[-1.0, -1.0, -1.0]"


def test_threads_travel_only_if_they_were_given(tmp_path):
    show = "print(thing._program.libraries.threads)"
    for threads, there in ((None, "3"), (2, "2")):
        session = dml.load(model(), threads=threads)
        assert in_another_process(session, show, ANYDML_NUM_THREADS="3") == there


def test_a_changed_file_is_refused_by_who_loads_the_pickle(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model("Neg"), path)
    session = dml.load(path)
    data = pickle.dumps(session)
    onnx.save(model("Floor"), path)
    os.utime(path, ns=(1, 1))
    for kept in (session, None):  # while there is one that knows the model, and when there is not
        session = kept
        with pytest.raises(dml.InvalidModel, match=r"m\.onnx: expected SHA-256 .* but got .*load and pickle"):
            pickle.loads(data)
    onnx.save(model("Neg"), path)
    assert negated(pickle.loads(data))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"m\.onnx"):
        pickle.loads(data)


def test_a_changed_file_is_refused_by_who_pickles(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model("Neg"), path)
    session = dml.load(path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(dml.InvalidModel, match=r"m\.onnx: expected the file that was loaded.*load it again"):
        pickle.dumps(session)
    path.unlink()
    with pytest.raises(dml.InvalidModel, match=r"m\.onnx: expected the file that was loaded.*load it again"):
        pickle.dumps(session)
    assert negated(copy.copy(session))
    assert negated(copy.deepcopy(session))


def _grown(file):
    with file.open("ab") as f:
        f.write(b"\0" * 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_grown, "expected 8192 bytes of external data, but got 8200"),
        (
            lambda file: os.utime(file, ns=(1, 1)),
            r"expected external data of time \d+, but got 1 \(nanoseconds\)",
        ),
        (lambda file: file.unlink(), "expected external data, but there is no such file"),
    ],
    ids=["grown", "touched", "gone"],
)
def test_changed_external_data_is_refused(tmp_path, change, message):
    path, weights = weighted(tmp_path)
    session = dml.load(path)
    x = np.arange(2048, dtype=np.float32)
    data = pickle.dumps(session)
    (y,) = pickle.loads(data).run(None, {"x": x})
    np.testing.assert_array_equal(y, 3 * x)
    change(weights)
    with pytest.raises(dml.InvalidModel, match=rf"w\.bin: {message}; the file changed since it was pickled"):
        pickle.loads(data)
    with pytest.raises(dml.InvalidModel, match=rf"w\.bin: {message}; the file changed since it was loaded"):
        pickle.dumps(session)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the platform has no pipes in folders")
def test_a_model_that_came_through_a_pipe_cannot_go_by_its_path(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(model().SerializeToString(),))
    writer.start()
    session = dml.load(path)
    writer.join()
    with pytest.raises(dml.InvalidModel, match=r"expected .*file"):
        pickle.dumps(session)


def test_equal_sessions_share_their_plans(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    for source in (path, path.read_bytes()):
        session = dml.load(source, threads=1)
        data = pickle.dumps(session)
        others = [pickle.loads(data) for _ in range(3)]
        assert len({id(s) for s in (session, *others)}) == 4
        assert {id(s._program) for s in others} == {id(session._program)}
        assert negated(others[0])
        assert session.explain() == others[1].explain() != ""
        assert pickle.loads(pickle.dumps(dml.load(source, threads=2)))._program is not session._program
        assert pickle.loads(pickle.dumps(dml.load(source, dims={"n": 4})))._program is not session._program


def test_a_session_that_comes_again_and_again_is_planned_once():
    data = pickle.dumps(dml.load(model("Ceil").SerializeToString()))
    plans = set()
    for _ in range(3):  # dropped each time, as with each piece of work of a pool
        session = pickle.loads(data)
        session.run(None, {"x": X})
        plans.add(session.explain())
    programs = {id(pickle.loads(data)._program) for _ in range(3)}
    assert (len(plans), len(programs)) == (1, 1)


def test_one_that_comes_to_several_threads_is_loaded_once():
    data, come = pickle.dumps(dml.load(model("Sign"))), []
    threads = [threading.Thread(target=lambda: come.append(pickle.loads(data))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(s._program) for s in come}) == 1
    assert len(come) == 6


def test_what_is_pickled_of_a_message_is_not_taken_for_what_was_loaded():
    message = model("Neg")
    session = dml.load(message)
    message.graph.node[0].op_type = "Abs"
    again = pickle.loads(pickle.dumps(session))
    assert again._program is not session._program
    assert negated(session)
