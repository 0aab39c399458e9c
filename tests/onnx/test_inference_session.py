"""What else onnxruntime's InferenceSession has: the same calls on both sessions give the same."""

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import threading
import weakref

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, parser

import anydml as dml
import anydml.session

MODEL = parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]> m (float[n,3] x, float[3] w) => (float[n,3] sum, int64[2] sizes) {
        c = Constant<value = float {2}>()
        s = ReduceMax<keepdims=0>(x)
        big = Greater(s, c)
        sum = If(big) <then_branch = g () => (float[n,3] a) { a = Add(x, w) },
                       else_branch = h () => (float[n,3] b) { b = Sub(x, w) }>
        sizes = Shape(x)
    }"""
).SerializeToString()
W = np.array([1, 2, 3], np.float32)


def inputs():
    return np.arange(6, dtype=np.float32).reshape(2, 3), W.copy()


@pytest.fixture(params=["anydml", "onnxruntime"])
def session(request):
    if request.param == "anydml":
        return dml.load(MODEL)
    return ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])


def wanted(x):
    return x + W if x.max() > 2 else x - W


def test_a_binding_reads_and_writes_arrays_and_memory_by_its_address(session):
    """As ultralytics and others run models."""
    (x, w), out = inputs(), np.empty((2, 3), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("w", w)
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("sizes")
    binding.bind_output("sum", "cpu", 0, np.float32, tuple(out.shape), out.ctypes.data)
    for factor in (1.0, -1.0, 3.0, 0.1):
        x *= np.float32(factor)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(out, wanted(x))
        sizes, total = binding.copy_outputs_to_cpu()
        np.testing.assert_array_equal(sizes, [2, 3])
        np.testing.assert_array_equal(total, out)
        assert [v.shape() for v in binding.get_outputs()] == [[2], [2, 3]]


def test_a_binding_takes_types_of_onnx_and_other_inputs_later(session):
    x, w = inputs()
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, TensorProto.FLOAT, [2, 3], x.ctypes.data)
    binding.bind_cpu_input("w", w)
    binding.bind_output("sum")
    session.run_with_iobinding(binding)
    longer = np.ones((5, 3), np.float32)
    binding.bind_cpu_input("x", longer)
    binding.bind_output("sum")  # onnxruntime keeps the sizes of the run before
    session.run_with_iobinding(binding)
    (found,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(found, wanted(longer))
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_cpu_input("w", w)
    binding.bind_cpu_input("x", x)
    binding.bind_output("sizes")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert [y.tolist() for y in binding.copy_outputs_to_cpu()] == [[2, 3]]


def test_ort_values_are_read_and_written(session):
    x, w = inputs()
    given, out = ort.OrtValue.ortvalue_from_numpy(x.copy()), ort.OrtValue.ortvalue_from_numpy(x * 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", given)
    binding.bind_cpu_input("w", w)
    binding.bind_ortvalue_output("sum", out)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out.numpy(), wanted(x))
    given.update_inplace(x * 0)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out.numpy(), wanted(x * 0))
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), wanted(x * 0))


def test_ort_values_are_fed_and_given(session):
    x, w = inputs()
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(x), "w": ort.OrtValue.ortvalue_from_numpy(w)}
    found = session.run_with_ort_values(["sizes", "sum"], feed)
    assert found[0].numpy().tolist() == [2, 3]
    np.testing.assert_array_equal(found[1].numpy(), wanted(x))
    np.testing.assert_array_equal(session.run(["sum"], feed)[0], wanted(x))


def test_a_run_may_come_back_later(session):
    x, w = inputs()
    told, done = [], threading.Event()

    def callback(results, user_data, error):
        told.append((results, user_data, error))
        done.set()

    session.run_async(["sum"], {"x": x, "w": w}, callback, "mine")
    assert done.wait(60)
    ((results, user_data, error),) = told
    np.testing.assert_array_equal(results[0], wanted(x))
    assert (user_data, error) == ("mine", "")


def test_a_callback_comes_whatever_fails():
    class Odd(dict):
        def keys(self):
            raise LookupError("no keys today")

        __iter__ = items = keys

    told, done = [], threading.Event()

    def callback(results, data, error):
        told.extend([results, data, error])
        done.set()

    dml.load(MODEL).run_async(None, Odd(), callback, 7)
    assert done.wait(20)
    assert told[:2] == [[], 7]
    assert told[2]


def test_results_of_memory_that_was_bound_go_with_it():
    session, n = dml.load(MODEL), 3
    binding = session.io_binding()
    x, w = inputs()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("w", w)
    binding.bind_ortvalue_output("sum", ort.OrtValue.ortvalue_from_shape_and_type([2, n], np.float32))
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], wanted(x))
    binding.bind_output("sizes")
    assert binding.get_outputs() == binding.copy_outputs_to_cpu() == []  # until the next run
    session.run_with_iobinding(binding)
    assert [v.numpy().shape for v in binding.get_outputs()] == [(2, n), (2,)]


@pytest.mark.parametrize("which", ["x", "w", "sum"])
def test_bound_arrays_and_what_they_are_views_of_stay(which):
    x, w = inputs()
    arrays = {"x": x, "w": w, "sum": np.zeros((2, 3), np.float32)}
    owner = np.zeros(arrays[which].size, np.float32)
    owner[:] = arrays[which].reshape(-1)
    arrays[which] = owner[:].reshape(arrays[which].shape)
    bound = dml.load(MODEL).bind({k: arrays[k] for k in "xw"}, {"sum": arrays["sum"]})
    for _ in range(4):
        bound.run()
        with pytest.raises(ValueError, match="cannot resize"):
            owner.resize(100_000, refcheck=False)
    assert np.array_equal(arrays["sum"], wanted(x))


def test_options_are_not_changed_and_sessions_explain_themselves_beside_runs():
    """Several threads load with the same options, and ask what runs while others run."""
    options, model = ort.SessionOptions(), parser.parse_model(PLAIN)
    options.intra_op_num_threads = 3
    seen, wrong = [], []

    def work(k):
        try:
            for j in range(6):
                model.graph.name = f"g{k}{j}"  # none that was loaded before
                session = dml.load(model.SerializeToString(), options)
                seen.append(session.get_session_options().intra_op_num_threads)
                shared.run(None, {"x": np.ones(2 + 6 * k + j, np.float32)})
                shared.explain()
        except Exception as error:
            wrong.append(error)

    shared = dml.load(parser.parse_model(PLAIN))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert seen == [3] * 24
    assert options.intra_op_num_threads == 3


PLAIN = '<ir_version: 8, opset_import: ["": 17]> m (float[n] x) => (float[n] y) { y = Neg (x) }'


def test_a_run_that_fails_later_tells_why():
    told, done = [], threading.Event()
    dml.load(MODEL).run_async(
        None, {"x": inputs()[0]}, lambda *all_of_it: (told.append(all_of_it), done.set()), None
    )
    assert done.wait(60)
    assert told[0][:2] == ([], None)
    assert "input 'w': expected tensor(float), but it is missing" in told[0][2]


def test_providers_and_options_are_told_and_changed(session):
    x, w = inputs()
    before = session.run(["sum"], {"x": x, "w": w})[0]
    session.disable_fallback()
    session.enable_fallback()
    session.set_providers(["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(["sum"], {"x": x, "w": w})[0], before)
    assert session.get_session_options().intra_op_num_threads == 0


def test_what_other_providers_ran_is_gone():
    session = dml.load(MODEL, threads=1)
    x, w = inputs()
    before = []
    for _ in range(3):
        session.run(None, {"x": x, "w": w})
        before.append(weakref.ref(session._loaded))
        session.set_providers(["CPUExecutionProvider"])
    gc.collect()
    assert [r() for r in before[1:]] == [None] * 2  # the first may be loaded again
    session.run(None, {"x": x, "w": w})
    session.__init__(session._loaded)
    assert session._loaded._users == {id(session)}


def test_a_session_takes_other_providers_and_keeps_them_to_itself():
    session = dml.load(MODEL, threads=1)
    x, w = inputs()
    session.run(None, {"x": x, "w": w})
    other = session.__copy__()
    session.set_providers(["CPUExecutionProvider"], [{"arena_extend_strategy": "kSameAsRequested"}])
    assert session.get_provider_options()["CPUExecutionProvider"] != {}
    assert other.get_provider_options()["CPUExecutionProvider"] == {}
    assert session.explain() == "not run yet"
    assert session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(dml.InvalidInput, match="providers: expected"):
        session.set_providers(["NoExecutionProvider"])


def test_the_first_arguments_are_those_of_onnxruntime():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = dml.load(MODEL, options, ["CPUExecutionProvider"], [{}])
    assert session.get_session_options().intra_op_num_threads == 1


def test_what_cannot_be_bound_is_told():
    session = dml.load(MODEL)
    x, w = inputs()
    binding = session.io_binding()
    wrong = [
        (lambda: binding.bind_output("total"), "expected sum | sizes, but got 'total'"),
        (lambda: binding.bind_output("sum", "cuda"), "expected memory of the host, 'cpu', but got 'cuda'"),
        (lambda: binding.bind_output("sum", buffer_ptr=8), "expected element_type and shape"),
        (lambda: binding.bind_input("x", "cpu", 0, np.float32, [2], 3), "expected the address of float32"),
        (lambda: binding.bind_input("x", "cpu", 0, np.float32, [-1], 8), "expected numbers of a shape"),
        (lambda: binding.bind_input("x", "cpu", 0, object, [1], 8), "expected numbers of a shape"),
        (lambda: binding.bind_input("x", "cpu", 0, 999, [1], 8), "expected a type of NumPy or of onnx"),
        (lambda: binding.bind_ortvalue_input("x", x), "expected an OrtValue of a tensor, but got ndarray"),
        (lambda: session.run_with_iobinding(object()), "io_binding() of an anydml session gives"),
        (lambda: dml.load(MODEL).run_with_iobinding(binding), "expected one of this session"),
        (lambda: session.run_with_iobinding(binding), "input 'x': expected tensor(float), but it is missing"),
    ]
    for call, message in wrong:
        with pytest.raises(dml.InvalidInput) as told:
            call()
        assert message in str(told.value)
    small = np.empty((1, 3), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("w", w)
    binding.bind_output("sum", "cpu", 0, np.float32, small.shape, small.ctypes.data)
    with pytest.raises(dml.ExecutionFailed, match="the array bound to it"):
        session.run_with_iobinding(binding)


def test_lists_are_no_ort_values():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }'
    )
    session = dml.load(model)
    with pytest.raises(dml.Unsupported, match="onnxruntime makes no OrtValue of a list"):
        session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))})


def test_a_profile_that_nobody_made_has_no_name():
    assert dml.load(MODEL).end_profiling() == ""


def test_a_session_under_code_that_makes_and_derives_sessions(monkeypatch):
    monkeypatch.setattr(ort, "InferenceSession", dml.InferenceSession)

    class Theirs(ort.InferenceSession):
        def __init__(self, path, **given):
            super().__init__(path_or_bytes=path, **given)
            self.path = path

    x, w = inputs()
    session = Theirs(MODEL, providers=["CPUExecutionProvider"], sess_options=ort.SessionOptions())
    assert isinstance(session, ort.InferenceSession)
    assert session.path is MODEL
    np.testing.assert_array_equal(session.run(["sum"], {"x": x, "w": w})[0], wanted(x))
    assert "If" in session.explain() or "program" in session.explain()
    with pytest.warns(UserWarning, match="disabled_optimizers has no meaning"):
        ort.InferenceSession(MODEL, disabled_optimizers=["ConstantFolding"], enable_fallback=0)
    with pytest.raises(TypeError, match="thread"):
        ort.InferenceSession(MODEL, thread=1)


def test_providers_of_other_builds_are_left_out():
    """People name all that they know, in order."""
    asked = [("CUDAExecutionProvider", {"device_id": 0}), "DmlExecutionProvider", "CPUExecutionProvider"]
    there = ort.get_available_providers()
    if "CUDAExecutionProvider" in there or "DmlExecutionProvider" in there:
        pytest.skip("they are here")
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider is not in the installed onnxruntime"),
        pytest.warns(UserWarning, match="DmlExecutionProvider is not in .* which has .*CPUExecutionProvider"),
    ):
        session = dml.load(MODEL, providers=asked)
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="DmlExecutionProvider is not in"):
        assert dml.load(MODEL, providers=["DmlExecutionProvider"]).get_providers() == there[-1:]


@pytest.mark.parametrize(
    "texts",
    [
        np.array([[b"a", b"\xc3\xa4 and more"], [b"", b"d"]]),
        np.array([["a", "b"], ["c", "d"]]),
        np.array([[b"ab", b"cd"], [b"ef", b"gh"]], np.void),
        np.array([["a", "b"], ["c", "d"]], object),
        np.array([["a", 1], [None, 2.5]], object),
        np.array([[b"a", b"b"], ["c", np.str_("d")]], object),
    ],
    ids=["bytes", "texts", "void", "objects", "of a table", "objects of bytes"],
)
@pytest.mark.parametrize("body", ["Identity(x)", "Flatten(x)", "Concat<axis=0>(x, x)"])
def test_texts_are_fed_as_numpy_has_them(texts, body):
    """Also after others, for which there is a plan."""
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> m (string[2,2] x) => (string[n,2] y) {{ y = {body} }}'
    ).SerializeToString()
    theirs, ours = ort.InferenceSession(model, providers=["CPUExecutionProvider"]), dml.load(model)
    for given in (texts, np.array([["a", "b"], ["c", "d"]], object), texts):
        assert ours.run(None, {"x": given})[0].tolist() == theirs.run(None, {"x": given})[0].tolist()


def test_bytes_that_are_no_text_are_refused():
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (string[1] x) => (string[1] y) { y = Identity(x) }'
    )
    with pytest.raises(dml.InvalidInput, match="input 'x': expected string"):
        dml.load(model).run(None, {"x": np.array([b"\xff"])})


def test_a_file_without_a_version_has_onnxruntimes():
    theirs = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    assert dml.load(MODEL).get_modelmeta().version == theirs.get_modelmeta().version


def test_options_that_nobody_sees_are_no_warning_and_others_warn_the_caller(recwarn, caplog):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    with caplog.at_level("INFO", "anydml.session"):
        dml.load(MODEL, options)
    assert not recwarn.list
    assert "enable_cpu_mem_arena, inter_op_num_threads, log_severity_level" in caplog.text
    options.enable_profiling = True
    for make in (dml.load, dml.InferenceSession):
        with pytest.warns(UserWarning, match="no meaning in anydml, and ignored: enable_profiling") as told:
            make(MODEL, options)
        assert told[0].filename == __file__


@pytest.mark.parametrize("make", [ort.InferenceSession, dml.InferenceSession])
def test_sizes_that_options_have_for_symbols(make, tmp_path):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[batch, n] x, float[n] w) => (float[batch, n] y)'
        "{ y = Add (x, w) }"
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_free_dimension_override_by_name("nobody", 5)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    for source in (str(path), model.SerializeToString()):
        session = make(source, options, providers=["CPUExecutionProvider"])
        assert [i.shape for i in session.get_inputs()] == [[2, "n"], ["n"]]
        x, w = np.ones((2, 3), np.float32), np.ones(3, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "w": w})[0], x + w)
        with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
            session.run(None, {"x": x[:1], "w": w})
    if make is dml.InferenceSession:
        assert dml.load(model, options, dims={"batch": 1}).get_inputs()[0].shape == [1, "n"]


@pytest.mark.parametrize("first", ["anydml", "onnxruntime"])
def test_a_function_in_the_place_of_their_sessions(first):
    """Our own sessions of theirs are none of ours, whatever was imported first."""
    script = f"""import {first}, onnxruntime, anydml, numpy as np
onnxruntime.InferenceSession = lambda *given, **named: anydml.load(*given, **named)
from onnx import parser
model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m (float[64,64] x) => (float[64,64] y) {{ y = MatMul(x, x) }}')
session = onnxruntime.InferenceSession(model.SerializeToString())
session.run(None, {{"x": np.ones((64, 64), np.float32)}})
print(session.explain())"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "onnxruntime: MatMul" in done.stdout
    assert not done.stderr


RESHAPE = parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> m (float[n] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }'
).SerializeToString()
X = np.ones(3, np.float32)
WRONG = {
    "no model": ("InvalidProtobuf", lambda make: make(b"garbage")),
    "no file": ("NoSuchFile", lambda make: make("/there/is/no/model.onnx")),
    "rank": ("InvalidArgument", lambda make: make(RESHAPE).run(None, {"x": X, "s": np.array(2)})),
    "data type": (
        "InvalidArgument",
        lambda make: make(RESHAPE).run(None, {"x": X > 0, "s": np.array([1, 3])}),
    ),
    "output": ("InvalidArgument", lambda make: make(RESHAPE).run(["q"], {"x": X, "s": np.array([1, 3])})),
    "node": ("Fail", lambda make: make(RESHAPE).run(None, {"x": X, "s": np.array([2, 2])})),
    "operator": (
        "InvalidGraph",
        lambda make: make(RESHAPE.replace(b"Reshape", b"Reshave")).run(None, {"x": X, "s": np.array([1, 3])}),
    ),
}


@pytest.mark.parametrize("make", [ort.InferenceSession, dml.InferenceSession])
@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_that_others_catch(name, make):
    theirs, call = WRONG[name]
    with pytest.raises(getattr(ort.capi.onnxruntime_pybind11_state, theirs)):
        call(make)


def test_errors_go_to_other_processes():
    with pytest.raises(dml.InvalidInput) as told:
        dml.load(RESHAPE).run(["q"], {})
    again = pickle.loads(pickle.dumps(told.value))
    assert isinstance(again, dml.InvalidInput)
    assert isinstance(again, ort.capi.onnxruntime_pybind11_state.InvalidArgument)
    assert str(again) == str(told.value)
    assert again.problems == told.value.problems
    with pytest.raises(FileNotFoundError) as lost:
        dml.load("/there/is/no/model.onnx")
    again = pickle.loads(pickle.dumps(lost.value))
    assert isinstance(again, ort.capi.onnxruntime_pybind11_state.NoSuchFile)
    assert (again.errno, again.filename) == (lost.value.errno, lost.value.filename)


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy])
def test_bindings_stay_where_their_memory_is(leave):
    with pytest.raises(TypeError):
        leave(dml.load(NEGATED).io_binding())


@pytest.mark.parametrize(
    ("type", "values"),
    [
        ("bool", [1, 0]),
        ("bool", [[True], [False]]),
        ("int64", [1.0, 2.0]),
        ("uint8", [True]),
        ("float", [1, True, 2.5]),
        ("float16", [0.1]),
        ("string", [1, 2.5]),
        ("string", ["a", "b"]),
        ("int32", []),
    ],
)
def test_lists_of_what_a_type_has(type, values):
    shape = ",".join("ab"[: np.ndim(values)])
    text = f'<ir_version: 8, opset_import: ["": 17]> m ({type}[{shape}] x) => ({type}[{shape}] y) {{ y = Identity(x) }}'
    data = parser.parse_model(text).SerializeToString()
    ours, theirs = (make(data).run(None, {"x": values})[0] for make in (dml.load, ort.InferenceSession))
    assert (ours.dtype, ours.tolist()) == (theirs.dtype, theirs.tolist())


@pytest.mark.parametrize(
    ("type", "values"), [("int64", [1.5]), ("uint8", [300]), ("uint8", [-1]), ("int64", ["x"])]
)
def test_lists_of_what_it_has_not(type, values):
    text = f'<ir_version: 8, opset_import: ["": 17]> m ({type}[n] x) => ({type}[n] y) {{ y = Identity(x) }}'
    with pytest.raises(dml.InvalidInput, match="but got list"):
        dml.load(parser.parse_model(text)).run(None, {"x": values})


@pytest.mark.parametrize("given", [bytes, bytearray, parser.parse_model, str])
def test_onnxruntime_writes_its_optimised_model_where_it_is_told(given, tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) { t = Identity(x)  y = Relu(t) }'
    model = parser.parse_model(text)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    source = {str: str(tmp_path / "m.onnx"), parser.parse_model: model}.get(given)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "out.onnx")
    dml.InferenceSession(given(model.SerializeToString()) if source is None else source, options)
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Relu"]
    options.optimized_model_filepath = str(tmp_path / "none" / "out.onnx")
    with pytest.raises(dml.Unsupported, match="optimized_model_filepath"):
        dml.load(model, options)


NEGATED_TEXT = (
    '<ir_version: 8, opset_import: ["": 17]> m (float[4,256] x) => (float[4,256] y) { y = Neg (x) }'
)
NEGATED = parser.parse_model(NEGATED_TEXT).SerializeToString()


@pytest.mark.parametrize("make", [ort.InferenceSession, dml.InferenceSession])
def test_arrays_of_ort_values_outlive_them(make):
    """torch's ONNXProgram keeps nothing but the arrays."""
    session, x = make(NEGATED), np.random.default_rng(0).random((4, 256), np.float32)

    def by_values():
        return session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)})[0].numpy()

    def by_binding():
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0].numpy()

    for run in (by_values, by_binding):
        found = [run() for _ in range(5)]
        others = [np.full((4, 256), 7, np.float32) for _ in range(9)]
        for y in found:
            np.testing.assert_array_equal(y, -x)
        del others


TYPES = {
    "bfloat16": np.uint16,
    "float8e4m3fn": np.uint8,
    "float8e4m3fnuz": np.uint8,
    "float8e5m2": np.uint8,
    "float8e5m2fnuz": np.uint8,
}


@pytest.mark.parametrize("make", [ort.InferenceSession, dml.InferenceSession])
@pytest.mark.parametrize("type", TYPES)
def test_ort_values_of_types_that_numpy_has_not(type, make):
    code = TensorProto.DataType.Value(type.upper())
    head = '<ir_version: 9, opset_import: ["": 19]> m '
    wide = make(
        parser.parse_model(
            f"{head} ({type}[n] x) => (float[n] y) {{ y = Cast <to = 1> (x) }}"
        ).SerializeToString()
    )
    narrow = make(
        parser.parse_model(
            f"{head} (float[n] x) => ({type}[n] y) {{ y = Cast <to = {code}> (x) }}"
        ).SerializeToString()
    )
    x = np.float32([1, 2, 0, -0.5])
    (given,) = narrow.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(x)})
    assert (given.element_type(), given.shape()) == (code, [4])
    bits = np.ctypeslib.as_array(
        (ctypes.c_uint8 * (4 * np.dtype(TYPES[type]).itemsize)).from_address(given.data_ptr())
    )
    again = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits.view(TYPES[type]).copy(), code)
    for value in (given, again):
        (y,) = wide.run_with_ort_values(None, {"x": value})
        np.testing.assert_array_equal(y.numpy(), x)


@pytest.mark.parametrize("make", [ort.InferenceSession, dml.InferenceSession])
def test_ort_values_of_texts(make):
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[a,b] x) => (string[a,b] y) { y = Cast <to = 8> (x) }'
    )
    x = ort.OrtValue.ortvalue_from_numpy(np.float32([[1, 2.5]]))
    (y,) = make(model.SerializeToString()).run_with_ort_values(None, {"x": x})
    assert (y.data_type(), y.numpy().tolist()) == ("tensor(string)", [["1", "2.5"]])


def test_memory_of_elements_that_share_bytes_is_not_taken():
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> m (int4[n] x) => (float[n] y) { y = Cast <to = 1> (x) }'
    )
    binding, memory = dml.load(model).io_binding(), np.zeros(2, np.uint8)
    with pytest.raises(dml.InvalidInput, match="whole bytes"):
        binding.bind_input("x", "cpu", 0, TensorProto.INT4, [4], memory.ctypes.data)


def grouped_attention():
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "past_k", "past_v", "seqlens_k", "total"],
        ["y", "present_k", "present_v"],
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
    )
    info, float32, int32 = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT32
    inputs = [
        info("q", float32, [1, "s", 32]),
        *(info(n, float32, [1, "s", 16]) for n in "kv"),
        *(info(n, float32, [1, 2, "p", 8]) for n in ("past_k", "past_v")),
        info("seqlens_k", int32, [1]),
        info("total", int32, [1]),
    ]
    outputs = [info(n, float32, None) for n in ("y", "present_k", "present_v")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("bound", [["present_k", "present_v"], ["y", "present_k", "present_v"]])
def test_new_rows_are_written_into_a_cache_that_is_input_and_output(bound):
    """As decoders are run: past and present are one memory, of which most rows stay as they are."""
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal((1, 3, w), np.float32) for n, w in (("q", 32), ("k", 16), ("v", 16))}
    caches = rng.standard_normal((2, 1, 2, 16, 8), np.float32)
    found = []
    for make in (ort.InferenceSession, dml.InferenceSession):
        session = make(grouped_attention())
        memory = {
            "y": np.zeros((1, 3, 32), np.float32),
            "present_k": caches[0].copy(),
            "present_v": caches[1].copy(),
        }
        for start in (0, 3, 6):
            binding = session.io_binding()
            for name, x in feeds.items():
                binding.bind_cpu_input(name, x)
            binding.bind_cpu_input("seqlens_k", np.array([start + 2], np.int32))
            binding.bind_cpu_input("total", np.array([start + 3], np.int32))
            for name in ("k", "v"):
                past = memory[f"present_{name}"]
                binding.bind_input(f"past_{name}", "cpu", 0, np.float32, past.shape, past.ctypes.data)
            for name, y in memory.items():
                if name in bound:
                    binding.bind_output(name, "cpu", 0, np.float32, y.shape, y.ctypes.data)
                else:
                    binding.bind_output(name)
            session.run_with_iobinding(binding)
            found.append((binding.copy_outputs_to_cpu()[0], *(memory[f"present_{n}"].copy() for n in "kv")))
    for theirs, ours in zip(found[:3], found[3:], strict=True):
        for x, y in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[5][1][:, :, 9:], caches[0][:, :, 9:])


def test_what_other_libraries_ask_a_session_for(tmp_path, monkeypatch):
    """Hugging Face's optimum wants its path, and makes bindings of it itself; others read what its inputs are."""
    (tmp_path / "m.onnx").write_bytes(NEGATED)
    monkeypatch.setattr(ort, "InferenceSession", dml.InferenceSession)
    monkeypatch.setattr(ort, "IOBinding", dml.IOBinding)
    session = ort.InferenceSession(str(tmp_path / "m.onnx"))
    assert session._model_path == str(tmp_path / "m.onnx")
    assert [i.name for i in session._inputs_meta] == ["x"]
    assert [o.name for o in session._outputs_meta] == ["y"]
    binding, x, y = ort.IOBinding(session), np.ones((4, 256), np.float32), np.empty((4, 256), np.float32)
    for k in range(5):  # bound anew for each run
        x[:] = k
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y, -x)
    assert dml.load(NEGATED)._model_path is None


def test_equal_models_share_their_plans(tmp_path):
    path, x = tmp_path / "m.onnx", np.ones((4, 256), np.float32)
    path.write_bytes(NEGATED)
    for source in (str(path), path, NEGATED):
        dml.load(source, threads=1).run(None, {"x": x})
        assert "plan for" in dml.load(source, threads=1).explain()
    assert "not run yet" in dml.load(path, threads=2).explain()
    assert "not run yet" in dml.load(parser.parse_model(NEGATED_TEXT)).explain()  # which may change
    path.write_bytes(NEGATED.replace(b"Neg", b"Abs"))  # of the same size, at about the same time
    (y,) = dml.load(path, threads=1).run(None, {"x": -x})
    np.testing.assert_array_equal(y, x)
    session = dml.load(NEGATED, threads=1)
    (y,) = session.run(None, {"x": x})
    del session  # the last one: nothing is open now
    np.testing.assert_array_equal(y, -x)
    (y,) = dml.load(NEGATED, threads=1).run(None, {"x": 2 * x})
    np.testing.assert_array_equal(y, -2 * x)


def test_many_models_are_not_kept():
    texts = [NEGATED_TEXT.replace("256", str(256 + k)) for k in range(9)]
    models = [parser.parse_model(t).SerializeToString() for t in texts]
    for k, data in enumerate(models):
        dml.load(data, threads=1).run(None, {"x": np.ones((4, 256 + k), np.float32)})
    kept = ["plan for" in dml.load(data, threads=1).explain() for data in models[::-1]]
    assert kept == [True] * 4 + [False] * 5


def test_what_a_model_was_run_on_is_given_back():
    """A session that is gone leaves nothing of what it ran on, though its model is known again."""
    import psutil

    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[n] x) => (float[n] y, float[n] z) { a = Exp (x)  y = CumSum (a, k)  z = Erf (y) }'
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "k"))
    data, x, process = model.SerializeToString(), np.zeros(1 << 24, np.float32), psutil.Process()
    dml.load(data, threads=1).run(None, {"x": x[:1000]})
    before = process.memory_info().rss
    dml.load(data, threads=1).run(None, {"x": x})
    assert process.memory_info().rss - before < 100 << 20  # its tensors are 64 MiB each


@pytest.mark.parametrize("displaced", ["never known", "before", "after"])
def test_what_nobody_uses_is_gone_at_once(displaced):
    """As in onnxruntime, and not only when Python looks for what nobody can reach."""
    x, w = inputs()
    gc.disable()
    try:
        session = dml.load(
            onnx.load_from_string(MODEL) if displaced == "never known" else MODEL, native=False
        )
        for values in (x, -x, x[:1], x):
            session.run(None, {"x": values, "w": w})
        program = session._program
        held = [weakref.ref(o) for o in (program, program.libraries, *program.libraries.regions.values())]
        assert len(held) > 2
        del program
        if displaced == "before":
            anydml.session._recent.clear()
        del session
        if displaced == "after":
            assert held[0]() is not None
            anydml.session._recent.clear()
        assert [h() for h in held] == [None] * len(held)
    finally:
        gc.enable()


NEGATES = """<ir_version: 8, opset_import: ["": 17]> m (float[n] x) => (float[n] y) { y = Neg (x) }"""


class Predictor(dml.InferenceSession):
    """As packages derive from the class, with what they keep."""

    def __init__(self, data, labels):
        super().__init__(data)
        self.labels = labels

    def predict(self, x):
        (y,) = self.run(None, {"x": x})
        return [self.labels[int(v < 0)] for v in y]


@pytest.mark.parametrize(
    "again",
    [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deep"],
)
def test_copies_are_of_the_same_class_and_keep_what_it_keeps(again):
    session = Predictor(parser.parse_model(NEGATES).SerializeToString(), ["up", "down"])
    other = again(session)
    assert type(other) is Predictor
    assert isinstance(other, dml.InferenceSession)
    assert other.predict(np.float32([-1, 2])) == ["up", "down"]
    assert other._program is session._program
    other.labels[0] = "changed"
    assert (session.labels[0] == "changed") is (again is copy.copy)


def test_run_options():
    session = dml.load(parser.parse_model(NEGATES))
    feeds, options = {"x": np.float32([1])}, ort.RunOptions()
    assert session.run(None, feeds, options)[0] == [-1]
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y")
    options.terminate = True
    for run in (
        lambda o: session.run(None, feeds, o),
        lambda o: session.run_with_iobinding(binding, o),
        lambda o: session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(feeds["x"])}, o),
    ):
        with pytest.raises(dml.ExecutionFailed, match="terminate is set"):
            run(options)
        with pytest.raises(
            dml.InvalidInput, match=r"run_options: expected onnxruntime\.RunOptions, but got str"
        ):
            run("fast")
        run(None)


def test_a_binding_says_at_once_what_it_does_not_have():
    binding = dml.load(parser.parse_model(NEGATES)).io_binding()
    with pytest.raises(dml.InvalidInput, match="expected x, but got 'nope'"):
        binding.bind_cpu_input("nope", np.float32([1]))
    binding.bind_cpu_input("x", np.float32([1]))
    with pytest.raises(dml.InvalidInput, match="at least one output"):
        binding.run()
