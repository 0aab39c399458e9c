"""A session in the place of onnxruntime's: metadata, dims, bind, copies, threads and child processes."""

import multiprocessing
import os
import pickle
import threading

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml as dml
from anydml.onnx.providers import onnxruntime as provider

TEXT = """<ir_version: 8, opset_import: ["": 17], producer_name: "maker", model_version: 7, doc_string: "what it does">
m (bool c, float[batch, 3] x) => (float[batch, 3] y, float[batch, 3] z) <float[3, 3] w = {1,0,0,0,2,0,0,0,3}> {
  z = MatMul (x, w)
  y = If (c) <then_branch = t () => (float[n, 3] a) { a = Add (z, x) },
              else_branch = e () => (float[n, 3] b) { b = MatMul (z, w) }>
}"""
X = np.float32([[1, 2, 3], [4, 5, 6]])
Z = X * [1, 2, 3]
TRUE, FALSE = np.array(True), np.array(False)


def model():
    made = onnx.parser.parse_model(TEXT)
    made.metadata_props.add(key="classes", value="2")
    return made


def check(session):
    np.testing.assert_array_equal(session.run(["y"], {"c": TRUE, "x": X})[0], Z + X)
    np.testing.assert_array_equal(session.run(["y"], {"c": FALSE, "x": X})[0], Z * [1, 2, 3])
    return True


def test_metadata_has_the_names_of_onnxruntime():
    meta = dml.load(model()).get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.version) == ("maker", "m", 7)
    assert meta.description == "what it does"
    assert meta.custom_metadata_map == {"classes": "2"}


def test_initializers_that_may_be_fed():
    text = """<ir_version: 8, opset_import: ["": 17]>
    m (float[n] a, float[n] b) => (float[n] y) <float[1] b = {5}> { y = Add (a, b) }"""
    session = dml.load(onnx.parser.parse_model(text))
    assert [i.name for i in session.get_inputs()] == ["a"]
    assert [i.name for i in session.get_overridable_initializers()] == ["b"]


def test_outputs_without_a_declared_type_have_the_one_that_follows():
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    m (float[n,4] x, bool c) => (y, bool[n,4] z, k, g) {
      y = If (c) <then_branch = a () => (float[n,4] u) { u = Neg (x) },
                  else_branch = b () => (float[n,4] v) { v = Abs (x) }>
      z = Greater (y, x)  k = Constant <value = int64[2] {1, 2}> ()  g = com.microsoft.FastGelu (y)
    }"""
    model = onnx.parser.parse_model(text)
    for name in ("y", "k", "g"):
        next(o for o in model.graph.output if o.name == name).ClearField("type")
    theirs = ort.InferenceSession(model.SerializeToString()).get_outputs()
    ours = dml.load(model).get_outputs()
    assert [(o.name, o.type) for o in ours] == [(o.name, o.type) for o in theirs]
    assert [o.shape for o in ours][:3] == [["n", 4], ["n", 4], [2]]


def test_outputs_without_declared_sizes_have_those_that_follow():
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[n,4,6] x) => (float y, int64 k, float[n,4] z) {
      y = LayerNormalization <axis = 2> (x, w)  k = ArgMax <axis = 1> (x)
      z = ReduceMean <axes = [2], keepdims = 0> (x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(6, np.float32), "w"))
    for output in model.graph.output[:2]:
        output.type.tensor_type.ClearField("shape")
    theirs = ort.InferenceSession(model.SerializeToString()).get_outputs()
    ours = dml.load(model).get_outputs()
    assert [(o.name, o.type, o.shape) for o in ours] == [(o.name, o.type, o.shape) for o in theirs]


def test_outputs_have_the_numbers_that_follow_where_the_file_has_names():
    text = """<ir_version: 8, opset_import: ["": 17]>
    m (float[n,4] x) => (float[b,c] y, float[n,d] z, float[w] k) {
      y = MatMul (x, w)  z = Concat <axis = 1> (x, y)  k = Constant <value = float[3] {1, 2, 3}> ()
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 5), np.float32), "w"))
    session, theirs = dml.load(model), ort.InferenceSession(model.SerializeToString())
    assert [o.shape for o in session.get_outputs()] == [["b", 5], ["n", 9], [3]]
    assert [o.shape for o in theirs.get_outputs()] == [["b", 5], ["n", 9], [3]]
    assert session.get_outputs() == dml.load(model).get_outputs()
    assert "shape=['b', 5]" in repr(session.get_outputs()[0])


# ---- feeds -------------------------------------------------------------------------------------------

LISTS = """<ir_version: 8, opset_import: ["": 17]>
m (float[n,2] x, int64[k] i, string[t] s, int64 r) => (float[n,2] y, int64[k] j, string[t] w, int64 q) {
  y = Neg (x)  j = Neg (i)  w = Identity (s)  q = Abs (r)
}"""


def test_lists_are_arrays_where_they_fit():
    """As onnxruntime takes them, which also cuts fractions off."""
    model = onnx.parser.parse_model(LISTS)
    session, theirs = dml.load(model), ort.InferenceSession(model.SerializeToString())
    feed = {"x": [[1.5, 2], [3, 4]], "i": [1, 2], "s": ["a", "b"], "r": np.array(3)}
    for _ in range(3):
        for found, wanted in zip(session.run(None, feed), theirs.run(None, feed), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    wrong = {"i": ([1.5], [2**63]), "x": ([["a", "b"]], [[1], [2, 3]], [[1e300, 0]]), "s": ([None],)}
    for name, value in ((n, v) for n, values in wrong.items() for v in values):
        with pytest.raises(dml.InvalidInput, match=r"use np\.array"):
            session.run(None, feed | {name: value})
    assert session.run(["j"], feed | {"i": [2**53 + 1, 1.0]})[0].tolist() == [-(2**53) - 1, -1]


def test_a_scalar_may_have_any_shape():
    """onnxruntime does not compare shapes with an empty one: a rate is often fed as [16000]."""
    model = onnx.parser.parse_model(LISTS)
    session, theirs = dml.load(model), ort.InferenceSession(model.SerializeToString())
    feed = {"x": np.ones((1, 2), np.float32), "i": np.array([1]), "s": np.array(["a"], object)}
    for rate in (np.array(-3), np.array([-3]), np.array([[-3, 4]]), np.array([-3]), np.int64(-3)):
        (*_, found), (*_, wanted) = (
            each.run(None, feed | {"r": np.asarray(rate)}) for each in (session, theirs)
        )
        assert found.shape == np.shape(wanted)
        np.testing.assert_array_equal(found, wanted)


# ---- dims --------------------------------------------------------------------------------------------


def test_dims_are_sizes_for_symbols():
    session = dml.load(model(), dims={"batch": 2})
    assert session.get_inputs()[1].shape == [2, 3]
    assert session.get_outputs()[1].shape == [2, 3]
    assert check(session)
    with pytest.raises(dml.InvalidInput, match=r"expected shape \(2, 3\), but got \(1, 3\)"):
        session.run(None, {"c": TRUE, "x": X[:1]})


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"bach": 2}, r"expected a symbol of an input \(batch\), but got 'bach'.*did you mean 'batch'"),
        ({"batch": -1}, "expected a size for 'batch', but got -1"),
        ({"batch": True}, "expected a size for 'batch', but got True"),
        ({"batch": 2.0}, "expected a size for 'batch', but got 2.0"),
    ],
)
def test_dims_that_are_none(dims, message):
    with pytest.raises(dml.InvalidInput, match=message):
        dml.load(model(), dims=dims)


# ---- bind --------------------------------------------------------------------------------------------


def test_what_bound_arrays_contain_may_change():
    session = dml.load(model())
    c, x, out = np.array(True), X.copy(), np.zeros((2, 3), np.float32)
    bound = session.bind({"c": c, "x": x}, {"y": out})
    assert bound.run()[0] is out
    np.testing.assert_array_equal(out, Z + X)
    x *= 2
    np.testing.assert_array_equal(bound.run()[1], 2 * Z)
    np.testing.assert_array_equal(out, 2 * (Z + X))
    c[...] = False
    bound.run()
    np.testing.assert_array_equal(out, 2 * Z * [1, 2, 3])


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"yy": np.zeros(1)}, "expected a name of an output, but got 'yy'"),
        ({"y": [1, 2]}, "output 'y': expected an array to write to, but got list"),
        (
            {"y": np.broadcast_to(np.float32(1), (2, 3))},
            "output 'y': expected a writable array, but got a read",
        ),
        ({"y": X, "z": X[:1]}, "outputs: expected arrays apart, but got an overlap"),
    ],
)
def test_outputs_that_cannot_be_bound(outputs, message):
    with pytest.raises(dml.InvalidInput, match=message):
        dml.load(model()).bind({"c": TRUE, "x": X}, outputs)


def test_an_output_that_does_not_fit_its_array_is_not_written():
    out = np.zeros((1, 3), np.float32)
    bound = dml.load(model()).bind({"c": TRUE, "x": X}, {"y": out})
    with pytest.raises(dml.ExecutionFailed, match=r"expected float32 of shape \(1, 3\).*but got.*\(2, 3\)"):
        bound.run()
    assert not out.any()


CHAINS = {
    "a region": "y = MatMul (x, x)",
    "a kernel": "a = Sin (x) y = Mul (a, x)",
    "a truth": "y = IsNaN (x)",
    "a loop": """k = Constant <value = int64 {3}> () t = Constant <value = bool {1}> ()
        y = Loop (k, t, x) <body = b (int64 i, bool c, float[n, n] s) => (bool d, float[n, n] r) {
            d = Identity (c) r = MatMul (s, x) }>""",
}


def chain(body):
    kind = "bool" if "NaN" in body else "float"
    text = f'<ir_version: 8, opset_import: ["": 17]> m (float[n, n] x) => ({kind}[n, n] y) {{ {body} }}'
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CHAINS)
def test_bound_runs_give_what_runs_give(name, threads):
    session = dml.load(chain(CHAINS[name]), threads=threads)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 300), np.float32)
    out = np.zeros((300, 300), np.bool_ if name == "a truth" else np.float32)
    bound = session.bind({"x": x}, {"y": out})
    for _ in range(4):
        x[...] = rng.standard_normal(x.shape)
        (found,) = bound.run()
        assert found is out
        np.testing.assert_array_equal(out, session.run(None, {"x": x})[0])
    assert (bound._direct is None) == (name == "a loop")


@pytest.mark.parametrize("name", ["a region", "a kernel"])
@pytest.mark.parametrize("kind", ["the input", "a part of it", "turned", "every other"])
def test_bound_arrays_of_all_kinds(name, kind):
    """What cannot be written to directly is copied to."""
    session = dml.load(chain(CHAINS[name]), threads=1)
    whole = np.random.default_rng(0).standard_normal((9, 8), np.float32)
    x = whole[:8]
    places = {"the input": x, "a part of it": whole[1:], "turned": np.zeros((8, 8), np.float32).T}
    out = places.get(kind, np.zeros((8, 16), np.float32)[:, ::2])
    bound = session.bind({"x": x}, {"y": out})
    for _ in range(3):
        whole[...] = np.random.default_rng(1).standard_normal(whole.shape)
        (expected,) = session.run(None, {"x": x.copy()})
        bound.run()
        np.testing.assert_array_equal(out, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("name", ["a region", "a kernel"])
def test_a_forked_child_runs_what_is_bound(name):
    session = dml.load(chain(CHAINS[name]), threads=2)
    x = np.random.default_rng(0).standard_normal((300, 300), np.float32)
    out = np.zeros_like(x)
    bound = session.bind({"x": x}, {"y": out})
    for _ in range(2):
        bound.run()
    expected = out.copy()
    out[...] = 0
    child = os.fork()
    if child == 0:
        try:
            bound.run()
            os._exit(int(not np.allclose(out, expected)))
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not out.any()
    bound.run()
    np.testing.assert_array_equal(out, expected)


def test_bound_arrays_of_plans_that_change():
    """The contents of c decide which plan runs; the arrays stay."""
    session = dml.load(model())
    c, y, z = np.array(True), np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    bound = session.bind({"c": c, "x": X}, {"y": y, "z": z})
    for k in range(6):
        c[...] = k % 3 > 0
        assert bound.run()[0] is y
        np.testing.assert_array_equal(y, Z + X if c else Z * [1, 2, 3])
        np.testing.assert_array_equal(z, Z)


# ---- copies, threads, processes ----------------------------------------------------------------------


def test_pickled_with_its_model():
    session = dml.load(model(), threads=1, dims={"batch": 2})
    copy = pickle.loads(pickle.dumps(session))
    assert check(copy)
    assert copy.get_inputs() == session.get_inputs()


def test_pickled_by_its_path(tmp_path, monkeypatch):
    onnx.save(model(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(dml.load("model.onnx"))
    monkeypatch.chdir("/")
    assert len(data) < 1000
    assert check(pickle.loads(data))


def test_runs_from_several_threads():
    session, failures = dml.load(model(), threads=2), []

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                x = rng.standard_normal((rng.integers(1, 12), 3)).astype(np.float32)
                c = rng.integers(0, 2).astype(bool)
                y, z = session.run(None, {"c": np.array(c), "x": x})
                np.testing.assert_allclose(z, x * [1, 2, 3], rtol=1e-6)
                np.testing.assert_allclose(y, z + x if c else z * [1, 2, 3], rtol=1e-6)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_child_runs_it():
    session = dml.load(model(), threads=2)
    assert check(session)
    context = multiprocessing.get_context("fork")
    ok = context.Value("i", 0)

    def child():
        ok.value = int(check(session))

    process = context.Process(target=child)
    process.start()
    process.join(60)
    alive = process.is_alive()
    if alive:
        process.kill()
    assert not alive
    assert ok.value == 1


def test_spawned_workers_run_it():
    session = dml.load(model(), threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        assert workers.apply(check, (session,))


# ---- what people pass to onnxruntime -----------------------------------------------------------------


def test_providers():
    session = dml.load(model(), providers=["CPUExecutionProvider"], provider_options=[{}])
    assert check(session)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert dml.load(model()).get_providers() == ["CPUExecutionProvider"]


def test_providers_reach_the_library(monkeypatch):
    """With options, and the CPU behind them, which has every operator."""
    asked, opened = [], provider.ort.InferenceSession

    def noted(*arguments, **named):
        asked.append(named["providers"])
        return opened(*arguments, **named | {"providers": ["CPUExecutionProvider"]})

    monkeypatch.setattr(provider, "InferenceSession", noted)
    monkeypatch.setattr(
        provider.ort, "get_available_providers", lambda: ["FastProvider", "CPUExecutionProvider"]
    )
    session = dml.load(model(), providers=[("FastProvider", {"device_id": 1})])
    assert check(session)
    assert {str(a) for a in asked} == {"[('FastProvider', {'device_id': '1'}), ('CPUExecutionProvider', {})]"}
    assert session.get_provider_options() == {"FastProvider": {"device_id": "1"}, "CPUExecutionProvider": {}}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"providers": ["CPUExecutionProvide"]},
            r"expected .*CPUExecutionProvider.*, but got 'CPUExecutionProvide'",
        ),
        ({"providers": "CPUExecutionProvider"}, "expected a list of names, but got 'CPUExecutionProvider'"),
        ({"providers": []}, "expected a list of names"),
        ({"native": "yes"}, "native: expected True, False or None, but got 'yes'"),
        ({"provider_options": [{}]}, "expected providers beside them"),
        ({"providers": ["CPUExecutionProvider"], "provider_options": [{}, {}]}, "for each of 1 providers"),
        ({"providers": ["CPUExecutionProvider"], "provider_options": [None]}, "a dictionary of options"),
        ({"providers": [("CPUExecutionProvider", 3)]}, "a dictionary of options, but got 3"),
        ({"sess_options": {"threads": 1}}, "expected onnxruntime.SessionOptions, but got dict"),
    ],
)
def test_wrong_providers_and_options(asked, message):
    with pytest.raises(dml.InvalidInput, match=message):
        dml.load(model(), **asked)


def test_session_options():
    options = provider.ort.SessionOptions()
    options.intra_op_num_threads = 1
    assert check(dml.load(model(), sess_options=options))
    options.enable_profiling = True
    with pytest.warns(UserWarning, match="no meaning in anydml, and ignored: enable_profiling"):
        assert check(dml.load(model(), sess_options=options))


def test_a_default_session_of_onnxruntime_beside_ours():
    text = onnx.parser.parse_model(TEXT).SerializeToString()
    before = provider.ort.InferenceSession(text)
    assert check(dml.load(model()))
    after = provider.ort.InferenceSession(text)
    for theirs in (before, after):
        assert check(theirs)


@pytest.mark.parametrize(("providers", "expected"), [(None, True), (["FastProvider"], False)])
def test_sums_and_normalizations_stay_two_on_the_processor(monkeypatch, providers, expected):
    """onnxruntime's kernel for both in one takes many times as long there."""
    disabled, opened = [], provider.ort.InferenceSession

    def noted(*arguments, **named):
        disabled.append(named["disabled_optimizers"])
        return opened(*arguments, **named | {"providers": ["CPUExecutionProvider"]})

    monkeypatch.setattr(provider, "InferenceSession", noted)
    available = ["FastProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(provider.ort, "get_available_providers", lambda: available)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3, 4] x, float[2, 3, 4] y, float[4] w)
        => (float[2, 3, 4] z) { s = Add (x, y) z = LayerNormalization (s, w) }"""
    x, y, w = (
        np.random.default_rng(k).random(n, np.float32) for k, n in enumerate([(2, 3, 4), (2, 3, 4), 4])
    )
    session = dml.load(onnx.parser.parse_model(text).SerializeToString(), providers=providers, native=False)
    (found,) = session.run(None, {"x": x, "y": y, "w": w})
    s = x + y
    centred = s - s.mean(-1, keepdims=True)
    np.testing.assert_allclose(found, centred / np.sqrt(s.var(-1, keepdims=True) + 1e-5) * w, rtol=1e-4)
    assert disabled
    assert all(("SkipLayerNormFusion" in names) == expected for names in disabled)
