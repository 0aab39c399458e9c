"""Files that once came through: what they are answered with. The fuzzer in tests/robustness/ found most of them."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import onnx
import pytest
from onnx import helper

import anydml as dml
from anydml.dxdispatch.model import DispatchModel
from anydml.runtime.memory import size_problem

HEAD = '<ir_version: 8, opset_import: ["": {}]> '


def parsed(text, opset=17, **domains):
    model = onnx.parser.parse_model(HEAD.format(opset) + text)
    for domain, version in domains.items():
        model.opset_import.add(domain=domain, version=version)
    return model


@pytest.mark.parametrize(
    ("text", "opset", "message"),
    [
        ("m (float[2] x) => (float[2] y) { y = Reshape (x) }", 17, "y: expected 2 inputs of Reshape, but got 1"),
        ("m () => (float[2] y) { y = Sqrt () }", 17, "expected 1 input of Sqrt, but got 0"),
        ("m (float[2] x) => (float[2] y) { y = Min (\"\", x) }", 13, "expected input data_0 of Min, but it is missing"),
        ("m (float[2] x) => (float[2] y) { y = Concat (x, x) }", 13, "expected attribute axis of Concat"),
        ("m (float[2] x) => (float[2] y) { y = Concat <axis = 1.5> (x, x) }", 13, "axis of Concat to be of type int, but got float"),
        ("m (float[2] x) => (float[2] a) { a, b, c = Split <num_outputs = 2> (x) }", 18, "as many outputs of Split"),
        ("m (float[2,4,8] q, float[2,4,8] k) => (float[2,4,8] y) { y = Attention <kv_num_heads = 0, q_num_heads = 1> (q, k, k) }", 23, "kv_num_heads of Attention to be at least 1"),
        ("m (float[2] x, int64[1,2] i) => (float[2] y) { y = GatherND <batch_dims = 4611686018427387904> (x, i) }", 17, "to fit 32 bits"),
        ("m (float[2] x) => (float[2] y) { y = Loop () <body = b (int64 k, bool c) => (bool d) { d = Identity (c) }> }", 17, "inputs of Loop|inputs and outputs of a Loop"),
        ("m (float[2] x) => (float[2] y) { y = SequenceMap (x) <body = b (float a, float b) => (float d) { d = Identity (a) }> }", 17, "body with 1 input and"),
        ("m (float[2] x) => (float[2] y) { y = Scan <num_scan_inputs = 2147483648, body = b (float a) => (float d) { d = Identity (a) }> (x) }", 17, "inputs and outputs of a Scan"),
    ],
)  # fmt: skip
def test_malformed_nodes(text, opset, message):
    if '""' in text:  # which the parser does not read
        model = parsed(text.replace('""', "x"), opset)
        model.graph.node[0].input[0] = ""
    else:
        model = parsed(text, opset)
    for use in (dml.load, dml.flatten, dml.inspect):
        with pytest.raises(dml.InvalidModel, match=message):
            use(model)


def test_inputs_left_out_at_the_end():
    """An optional input without a name: onnxruntime crashes on some of them."""
    model = parsed("m (float[2,4] x, float[4] w) => (y) { y = LayerNormalization (x, w) }")
    model.graph.node[0].input.append("")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (y,) = dml.load(model).run(None, {"x": x, "w": np.ones(4, np.float32)})
    assert np.allclose(y.mean(axis=1), 0, atol=1e-5)


def function(name, body, inputs=("a",)):
    return helper.make_function(
        "own", name, list(inputs), ["b"], body, [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )


def calls(name, times):
    nodes = [
        helper.make_node(name, ["a" if k == 0 else f"t{k}"], [f"t{k + 1}"], domain="own")
        for k in range(times)
    ]
    return [*nodes, helper.make_node("Identity", [f"t{times}"], ["b"])]


@pytest.mark.parametrize("use", [dml.load, dml.inspect])
def test_functions(use):
    model = parsed("m (float[2] x) => (float[2] y) { y = Identity (x) }", own=1)
    model.graph.node[0].domain, model.graph.node[0].op_type = "own", "f9"
    model.functions.append(function("f0", [helper.make_node("Neg", ["a"], ["b"])]))
    for k in range(9):
        model.functions.append(function(f"f{k + 1}", calls(f"f{k}", 10)))
    with pytest.raises(dml.InvalidModel, match="expected at most 1,000,000 nodes"):
        use(model)
    del model.functions[1:]
    model.functions.append(function("f9", calls("f9", 1)))
    with pytest.raises(dml.InvalidModel, match="do not call themselves, but 'f9' does"):
        use(model)
    model.functions[1].CopyFrom(function("f9", [helper.make_node("Neg", ["a"], ["b"])]))
    model.graph.node[0].output.append("z")
    with pytest.raises(dml.InvalidModel, match="expected calls that fit"):
        use(model)


def test_what_is_no_text():
    data = parsed("gate (float[2] x) => (float[2] y) { y = Neg (x) }").SerializeToString()
    for word in (b"gate", b"Neg"):
        damaged = data.replace(word, b"\xff" + word[1:])
        with pytest.raises(dml.InvalidModel, match="UTF-8"):
            dml.load(damaged)


def test_versions_of_other_domains():
    model = parsed("m (float[2] x) => (float[2] y) { y = Neg (x) }", **{"ai.onnx.ml": 2**62})
    with pytest.raises(dml.InvalidModel, match=r"expected an opset of domain 'ai\.onnx\.ml'"):
        dml.load(model)


def test_sizes_that_are_declared_wrong():
    """Below zero they say nothing, as exporters mean it; beyond memory nothing is drawn to verify with."""
    model = parsed("m (float[N] x) => (float[N] y) { y = Neg (x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert dml.load(model).run(None, {"x": np.ones(3, np.float32)})[0].tolist() == [-1, -1, -1]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**63 - 1
    _, report = dml.flatten(model)
    assert (report.verified.agreed, report.verified.refused > 0) == (0, True)


@pytest.mark.parametrize("attributes", [{"scale": 0.0}, {"scale": float("nan")}, {"scale": -1.0}])
def test_distributions_that_are_none(attributes):
    """onnxruntime would end the process."""
    node = helper.make_node("RandomNormalLike", ["x"], ["y"], **attributes)
    model = parsed("m (float[2] x) => (float[2] y) { y = Neg (x) }")
    model.graph.node[0].CopyFrom(node)
    try:
        (y,) = dml.load(model).run(None, {"x": np.ones(2, np.float32)})
        assert y.shape == (2,)
    except dml.ExecutionFailed:
        pass  # NumPy refuses some of them


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"A": {"initialValuesDataType": "UINT8", "initialValues": {"valueCount": 2**31, "value": 1}}}, "valueCount: expected a number from 1 to"),
        ({"A": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 2**31, "valueStart": 1, "valueDelta": 1}}}, "valueCount"),
        ({"A": {"initialValuesDataType": "UINT8", "initialValues": [1], "sizeInBytes": 2**40}}, "sizeInBytes"),
        ({f"A{k}": {"initialValuesDataType": "UINT8", "initialValues": [1], "sizeInBytes": 2**29} for k in range(3)}, "bytes in all buffers"),
        ({f"A{k}": 1 for k in range(1000)}, "resources.A99: expected an object"),
    ],
)  # fmt: skip
def test_dispatch_models_that_ask_for_too_much(tmp_path, section, message):
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"resources": section, "dispatchables": {}, "commands": []}))
    with pytest.raises(dml.InvalidModel, match=message) as told:
        DispatchModel(path)
    assert len(told.value.problems) <= 101


def test_hints_take_no_time():
    start = time.perf_counter()
    with pytest.raises(dml.InvalidOperator):
        dml.Device().create_operator({"Type": "ELEMENT_WISE_IF" * 100_000})
    assert time.perf_counter() - start < 10  # it took minutes


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_ctrl_c_ends_a_loop_in_a_library():
    code = """
import signal, numpy as np, onnx, anydml
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
text = '''<ir_version: 8, opset_import: ["": 17]> m (int64 n, float[2] x) => (float[2] y) {
    go = Constant <value = bool {1}> ()
    y = Loop (n, go, x) <body = b (int64 k, bool c, float[2] s) => (bool d, float[2] t) { d = Identity (c)  t = Neg (s) }> }'''
session = anydml.load(onnx.parser.parse_model(text), threads=1)
x = np.ones(2, np.float32)
session.run(None, {"n": np.array(3), "x": x})
print("runs", flush=True)
try:
    session.run(None, {"n": np.array(2**62), "x": x})
except KeyboardInterrupt:
    print(session.run(None, {"n": np.array(4), "x": x})[0].tolist())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(0.5)
            os.kill(process.pid, signal.SIGINT)
            assert process.communicate(timeout=30)[0] == "[1.0, 1.0]\n"
        finally:
            process.kill()  # or a failure would leave it running for ever


@pytest.mark.parametrize("shape", [(), (3,), (3, 3, 3)])
def test_einsums_of_too_few_dimensions(shape):
    """onnxruntime would end the process, where ranks are known only at run time."""
    model = parsed("""m (float[] x, float[B, C] w) => (float[] y) {
        y = Einsum <equation = "ij,jk->ik"> (x, w) }""")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(dml.ExecutionFailed, match="Einsum"):
        dml.load(model).run(None, {"x": np.ones(shape, np.float32), "w": np.ones((3, 3), np.float32)})
    _, report = dml.flatten(model)
    assert report.verified.provider == "anydml"
    square = np.ones((3, 3), np.float32)
    session = dml.load(model)
    assert session.run(None, {"x": square, "w": square})[0].tolist() == [[3] * 3] * 3
    assert "onnxruntime: Einsum" in session.explain()


@pytest.mark.parametrize("equation", [">", "-", "~", ".", "i1", "ij->->i", "....i"])
def test_equations_that_are_none(equation):
    """ONNX's own inference would loop on some of them for ever."""
    model = parsed("m (float[N] x) => (float[N] y) { y = Einsum <equation = 'EQ'> (x) }".replace("'", '"'))
    model.graph.node[0].attribute[0].s = equation.encode()
    for use in (dml.load, dml.inspect, dml.flatten):
        with pytest.raises(dml.InvalidModel, match="an equation of Einsum such as"):
            use(model)


@pytest.mark.parametrize("equation", ["i", " i -> i ", "...", "...i->i...", "i->"])
def test_equations_that_are_some(equation):
    model = parsed("m (float[N] x) => (float[] y) { y = Einsum <equation = 'EQ'> (x) }".replace("'", '"'))
    model.graph.node[0].attribute[0].s = equation.encode()
    (y,) = dml.load(model).run(None, {"x": np.float32([1, 2])})
    assert y.tolist() == (3 if equation == "i->" else [1, 2])


def test_verification_with_inputs_left_out_at_the_end():
    model = parsed("m (float[N] x) => (float[N] y) { y = Min (x, x) z = Abs(x) }")
    model.graph.node[0].input.append("")
    _, report = dml.flatten(model)
    assert report.verified.provider == "onnxruntime"
    assert report.verified.agreed > 0


def test_operators_before_their_time():
    """ConvInteger is of opset 10: before, nobody says how many inputs it has."""
    model = parsed("m (float[3] x) => (float[3] y) { y = ConvInteger (x) }")
    model.opset_import[0].version = 4
    assert dml.inspect(model).operators == {"ConvInteger": 1}


@pytest.mark.parametrize("names", [("a", "b", ""), ("a", "", "b"), ("", "a", "b")])
def test_parts_that_nobody_wants(names):
    """onnxruntime would end the process on a Split of which one result has no name."""
    model = parsed("m (float[1, 6] x) => (float[1, k] a, float[1, k] b) { a, b, c = Split <axis = 1> (x) }")
    del model.graph.node[0].output[:]
    model.graph.node[0].output.extend(names)
    x = np.float32([[0, 1, 2, 3, 4, 5]])
    flat, report = dml.flatten(model)
    assert report.verified.provider == "onnxruntime"
    for one in (model, flat):
        a, b = dml.load(one).run(None, {"x": x})
        assert [a.tolist(), b.tolist()] == [[x[0, 2 * names.index(n) :][:2].tolist()] for n in "ab"]


@pytest.mark.parametrize(
    "node",
    ["p = Squeeze (x, two)", "p = Split <axis = 2> (x, two)", "p = Conv (x, x)", "p = Concat <axis = 5> (x, x)",
     "p = Gather <axis = 3> (x, two)", "p = QuantizeLinear <axis = 7> (x, x)", "p = Flatten <axis = 9> (x)"],
)  # fmt: skip
def test_branches_on_axes_that_are_not_there(node):
    """Whether they may run speculatively is asked of every node."""
    for rank in ("float", "float[3]"):
        text = f"""m (bool c, {rank} x) => (float[n] y) <int64[1] two = {{2}}> {{
            y = If (c) <then_branch = t () => (float[n] p) {{ {node} }}, else_branch = e () => ({rank} q) {{ q = Identity (x) }}> }}"""
        model = parsed(text)
        for convert in ("auto", "always"):
            with suppress(dml.AnyDMLError):
                dml.flatten(model, convert=convert, trials=3)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_no_groups(op):
    """onnxruntime divides by their number while it packs constant weights."""
    model = parsed(f"m (float[1, 3, 8, 8] x) => (float[1, 3, 6, 6] y) {{ y = {op} <group = 0> (x, w) }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((3, 3, 3, 3), np.float32), "w"))
    for use in (dml.load, dml.flatten):
        with pytest.raises(dml.InvalidModel, match=f"attribute group of {op} to be at least 1, but got 0"):
            use(model)


def test_ranks_that_are_none():
    """ONNX's inference of Expand, before opset 13, would write down 2^62 sizes."""
    model = parsed("m (float[1] x, int64[4611686018427387904] n) => (float[a, b] y) { y = Expand (x, n) }")
    model.opset_import[0].version = 9
    start = time.perf_counter()
    assert dml.inspect(model).outputs == {"y": "float32[?,?]"}
    assert time.perf_counter() - start < 10


def test_inputs_without_a_type():
    """ONNX's inference over the whole file ends the process on them."""
    model = parsed(
        """m (string[N] x) => (int64[N] y) {
            y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [0, 1]> (x) }""",
        **{"ai.onnx.ml": 4},
    )
    model.graph.input[0].ClearField("type")
    assert dml.inspect(model).inputs == {"x": "unknown"}


def test_sizes_that_no_float_holds():
    problem = size_problem("there", "float32", [2**62] * 20, 4)
    assert "all the memory there is, but got over 1,000,000,000 GiB" in str(problem)
    assert "but got 4,096.0 GiB" in str(size_problem("there", "float32", [2**40], 4))


def test_odds_and_ends_that_mutation_found(tmp_path):
    with pytest.raises(dml.InvalidInput, match="expected a size for 'N'"):
        dml.load(parsed("m (float[N] x) => (float[N] y) { y = Neg (x) }"), dims={"N": 2**63})
    model = parsed("m (float[2] x) => (float[2] y) { y = Add (x, w) }")
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[2], data_location=1)
    weight.external_data.add(key="location", value="somewhere.bin")
    data = model.SerializeToString().replace(b"somewhere", b"\xffomewhere")
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(dml.InvalidModel, match="expected a place of external data in UTF-8"):
        dml.load(tmp_path / "m.onnx")


def test_an_attribute_of_another_kind_that_the_opset_does_not_have():
    """Since opset 18 a reduction has its axes as an input; nothing says of what kind an attribute may be."""
    reduction = helper.make_node("ReduceMin", ["x"], ["y"], axes=1)
    x, y = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
        for n, s in (("x", [2, 0, 4]), ("y", None))
    )
    graph = helper.make_graph([reduction], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    for work in (
        lambda: dml.flatten(model),
        lambda: dml.load(model).run(None, {"x": np.zeros((2, 0, 4), np.float32)}),
    ):
        with suppress(dml.AnyDMLError):
            work()
