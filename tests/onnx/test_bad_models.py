"""Models and feeds that are wrong: a clear error of our own, never another exception and never a crash."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

import anydml
from tests.models import (
    COND,
    NEWEST,
    assert_same,
    branch,
    choice,
    constant,
    if_node,
    info,
    initializer,
    model,
    nested,
    node,
    one_if,
    refused,
    run,
    seq_info,
    untyped,
)

TRUE, FALSE = np.array(True), np.array(False)
X = np.float32([1, -2, 3])
NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])


# ---- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"not a model\n", b"\xff" * 100, b"PK\x03\x04 a zip", np.random.default_rng(1).bytes(500)],
    ids=["empty", "zero", "text", "ones", "zip", "random"],
)
def test_not_onnx(tmp_path, content):
    refused(content, r"expected an ONNX model, but got")
    path = tmp_path / "some.onnx"
    path.write_bytes(content)
    refused(path, r"some\.onnx", r"expected an ONNX model, but got")


def test_onnxruntimes_own_format(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "x.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    built = one_if(NEG, ABS, info("x")).SerializeToString()
    onnxruntime.InferenceSession(built, options, providers=["CPUExecutionProvider"])
    for take in (anydml.load, anydml.flatten, anydml.inspect, anydml.check_model):
        with pytest.raises(anydml.InvalidModel, match=r"x\.ort: .*onnxruntime's own format"):
            take(tmp_path / "x.ort")


def test_random_bytes():
    rng = np.random.default_rng(0)
    for size in range(1, 300):
        with pytest.raises(anydml.AnyDMLError):
            anydml.load(rng.bytes(size), threads=1)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        anydml.load(tmp_path / "nothing.onnx")


def feeds_of(session):
    shapes = {"cond": TRUE, "conds": np.arange(4) < 3, "x": X}
    return {i.name: shapes.get(i.name, X) for i in session.get_inputs()}


@pytest.mark.parametrize(
    "built", [nested(4), choice(), one_if(NEG, ABS, info("x"))], ids=["nested", "choice", "one"]
)
def test_truncated(built):
    """What remains is refused, or is by chance a smaller model; then it runs, or says why not."""
    data = built.SerializeToString()
    loaded = 0
    for size in range(len(data)):
        try:
            session = anydml.load(data[:size], threads=1)
            loaded += 1
            session.run(None, feeds_of(session))
        except anydml.AnyDMLError:
            continue
    assert loaded < len(data) / 10
    with pytest.raises(anydml.InvalidModel, match="truncated"):
        anydml.load(data[: len(data) // 2], threads=1)


def test_damaged():
    """One byte is another: an error of ours, or a model that differs."""
    data = one_if(
        branch([constant("k", X), node("Add", ["x", "k"], "t")], ["t"]), ABS, info("x")
    ).SerializeToString()
    rng = np.random.default_rng(3)
    failed = 0
    for _ in range(600):
        broken = bytearray(data)
        broken[rng.integers(len(data))] ^= 1 << rng.integers(8)
        try:
            session = anydml.load(bytes(broken), threads=1)
            session.run(None, feeds_of(session))
        except anydml.AnyDMLError:
            failed += 1
    assert 0 < failed < 600


@pytest.mark.parametrize("word", [b"valueq", b"nodeqq", b"Absqqq", b"domainq"])
def test_names_that_are_not_utf_8(word):
    """Whatever reads such a file may refuse it; nothing else may come out."""
    strange = node("Absqqq" if word == b"Absqqq" else "Abs", ["x"], "valueq", "nodeqq")
    strange.domain = "domainq" if word == b"domainq" else ""
    built = model([strange, if_node("cond", NEG, branch([], ["valueq"]))], [COND, info("x")], [info("y")])
    data = built.SerializeToString()
    assert word in data
    with contextlib.suppress(anydml.AnyDMLError):
        run(data.replace(word, b"\xb4" * len(word)), cond=FALSE, x=X)


def test_a_newer_opset():
    refused(choice(NEWEST + 1), rf"opset {NEWEST} or older.*got opset {NEWEST + 1}", error=anydml.Unsupported)


# ---- structure ---------------------------------------------------------------------------------------


def test_a_function_of_a_newer_opset_than_its_model():
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17, "local": 1]> g (float[2] x) => (float[2] y) { y = local.f (x) }'
        '<domain: "local", opset_import: ["": 20]> f (x) => (y) { y = Gelu (x) }'
    )
    told = "got: No Previous Version of Gelu exists; the model imports opset 17, but 'f' imports opset 20"
    with pytest.raises(anydml.InvalidModel, match=told):
        anydml.load(model)


def test_undefined_names_are_all_told_with_their_place():
    then = branch([node("Add", ["x", "nowhere"], "t", "adder")], ["t"])
    otherwise = branch([node("Neg", ["x"], "e")], ["missing"])
    inner = branch([if_node("cond", then, otherwise, "u", "inner")], ["u"])
    built = model(
        [if_node("cond", inner, NEG, "y", "outer"), node("Abs", ["lost"], "z", "last")],
        [COND, info("x")],
        [info("y"), info("z")],
    )
    error = refused(
        built,
        r"outer/then/inner/then/adder: .*'nowhere'",
        r"outer/then/inner/else: .*'missing'",
        r"last: .*'lost'",
    )
    assert len(error.problems) == 3


def test_an_output_that_nothing_computes():
    refused(model([node("Neg", ["x"], "y")], [info("x")], [info("y"), info("z")]), r"output 'z'")


def test_names_of_a_branch_are_not_seen_outside_or_in_the_other_branch():
    refused(
        model([if_node("cond", NEG, ABS), node("Neg", ["t"], "z")], [COND, info("x")], [info("z")]),
        r"but got 't'",
    )
    refused(one_if(NEG, branch([node("Abs", ["t"], "e")], ["e"]), info("x")), r"choose/else.*but got 't'")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Neg", ["x"], "y"), node("Abs", ["x"], "y")],
        [node("Neg", ["x"], "x"), node("Abs", ["x"], "y")],
        [node("Split", ["x"], ["y", "y"], num_outputs=2)],
        [node("Neg", ["x"], "w"), node("Abs", ["w"], "y")],
        [if_node("cond", NEG, ABS, "x"), node("Abs", ["x"], "y")],
    ],
    ids=["two nodes", "an input", "one node", "an initializer", "an If"],
)
def test_duplicate_names(nodes):
    built = model(nodes, [COND, info("x")], [info("y")], initializers=[initializer("w", X)])
    refused(built, r"defined once, but got '[xyw]' twice")


TWICE = [initializer("w", X), initializer("w", X * 2)]


@pytest.mark.parametrize(
    ("nodes", "initializers"),
    [
        ([node("Add", ["x", "w"], "y")], TWICE),
        ([constant("w", X * 3), node("Add", ["x", "w"], "y")], TWICE),
        ([constant("w", X * 3), constant("w", X * 4), node("Add", ["x", "w"], "y")], []),
        ([constant("w", X * 3), constant("w", X * 4), node("Add", ["x", "w"], "y")], TWICE[:1]),
    ],
)
def test_of_constants_of_one_name_the_last_counts(nodes, initializers, caplog):
    """As in onnxruntime, which warns of it: files that its own tools made are so."""
    built = model(nodes, [info("x")], [info("y")], initializers=initializers)
    (theirs,) = onnxruntime.InferenceSession(built.SerializeToString()).run(None, {"x": X})
    (ours,) = anydml.load(built).run(None, {"x": X})
    np.testing.assert_array_equal(ours, theirs)
    assert "more than once" in caplog.text
    assert [n.op_type for n in anydml.flatten(built)[0].graph.node][-1] == "Add"


def test_duplicate_initializers_of_a_branch():
    then = branch([node("Add", ["x", "w"], "t")], ["t"], TWICE)
    refused(one_if(then, ABS, info("x")), r"choose/then: .*'w' twice")


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        ("Identity", [], ["t"]),
        ("Identity", ["x", "x"], ["t"]),
        ("Identity", ["x"], ["t", "u"]),
        ("Where", ["b"], ["t"]),
        ("Where", ["b", "x"], ["t"]),
        ("Where", ["b", "x", "x", "x"], ["t"]),
        ("Where", ["b", "x", "x"], ["t", "u"]),
        ("Where", ["b", "x", ""], ["t"]),
        ("IsInf", [], ["t"]),
        ("IsInf", ["x", "x"], ["t"]),
        ("Neg", [], ["t"]),
        ("Neg", ["x", "x"], ["t"]),
        ("Shape", [], ["t"]),
    ],
)
def test_wrong_number_of_inputs_or_outputs(op, inputs, outputs):
    """In a branch, taken or not: the model is refused when it is loaded."""
    nodes = [node("Greater", ["x", "x"], "b"), node(op, inputs, outputs, "odd")]
    built = one_if(branch(nodes, [untyped(o) for o in outputs]), branch([], ["x"] * len(outputs)), info("x"))
    names = ["y", "z"][: len(outputs)]
    built.graph.node[0].output[:] = names
    del built.graph.output[:]
    built.graph.output.extend(untyped(n) for n in names)
    with pytest.raises(anydml.InvalidModel, match="odd: expected"):
        anydml.load(built)


def test_an_attribute_of_wrong_type():
    built = one_if(
        branch([node("IsInf", ["x"], "t", "odd", detect_positive="no")], [untyped("t")]), ABS, info("x")
    )
    with pytest.raises(anydml.AnyDMLError, match="odd"):
        run(built, cond=TRUE, x=X)


def test_nodes_in_no_order():
    """Any other order is brought into one that runs."""
    circle = [node("Neg", ["m"], "y", "first"), node("Abs", ["y"], "m")]
    refused(model(circle, [info("x")], [info("y")]), r"first: .*'m'.*order")
    inner = branch([node("Neg", ["later"], "t", "early")], ["t"])
    built = model([if_node("cond", inner, ABS), node("Abs", ["y"], "later")], [COND, info("x")], [info("y")])
    refused(built, r"choose/then/early: .*'later'")


def test_a_cycle():
    refused(model([node("Add", ["x", "y"], "y", "round")], [info("x")], [info("y")]), r"round: .*'y'")


@pytest.mark.parametrize("kept", [["then_branch"], ["else_branch"], []])
def test_a_branch_is_missing(kept):
    built = one_if(NEG, ABS, info("x"))
    for k in reversed(range(2)):
        if built.graph.node[0].attribute[k].name not in kept:
            del built.graph.node[0].attribute[k]
    missing = [n for n in ("then_branch", "else_branch") if n not in kept]
    error = refused(built, *(rf"choose: expected attribute {n}" for n in missing))
    assert len(error.problems) == len(missing)


def test_a_branch_that_is_no_graph():
    built = one_if(NEG, ABS, info("x"))
    del built.graph.node[0].attribute[:]
    built.graph.node[0].attribute.extend(
        [helper.make_attribute("then_branch", 1), helper.make_attribute("else_branch", ABS)]
    )
    refused(built, r"choose: expected attribute then_branch")


def test_output_counts_differ():
    two = branch([node("Neg", ["x"], "t"), node("Abs", ["x"], "u")], ["t", "u"])
    refused(one_if(two, ABS, info("x")), r"choose: expected 1 outputs? of then_branch.*but got 2")
    refused(
        model([if_node("cond", two, ABS, ["y", "z"])], [COND, info("x")], [info("y"), info("z")]),
        r"choose: expected 2 outputs of else_branch.*but got 1",
    )


def test_a_branch_with_inputs():
    built = one_if(NEG, ABS, info("x"))
    for attribute in built.graph.node[0].attribute:
        if attribute.name == "then_branch":
            attribute.g.input.append(info("surplus"))
    refused(built, r"choose/then: expected a branch without inputs, but got 'surplus'")


@pytest.mark.parametrize("inputs", [[], [""], ["cond", "x"]])
def test_not_one_condition(inputs):
    refused(
        model(
            [node("If", inputs, "y", "choose", then_branch=NEG, else_branch=ABS)],
            [COND, info("x")],
            [info("y")],
        ),
        r"choose: expected one input, the condition",
    )


def test_an_initializer_of_a_branch_that_shadows_an_outer_name():
    """onnxruntime and the specification disagree on which one is meant, so neither is chosen."""
    for name in ("x", "w", "m"):
        then = branch([node("Neg", [name], "t")], ["t"], [initializer(name, X)])
        built = model(
            [node("Abs", ["x"], "m"), if_node("cond", then, branch([node("Abs", ["m"], "e")], ["e"]))],
            [COND, info("x")],
            [info("y")],
            initializers=[initializer("w", X)],
        )
        refused(built, rf"choose/then: .*'{name}' of an outer graph", r"rename")


def test_a_constant_of_no_type_or_size():
    for change in ({"data_type": 999}, {"dims": [-3]}):
        wrong = initializer("w", X)
        del wrong.dims[:]
        wrong.dims.extend(change.get("dims", [3]))
        wrong.data_type = change.get("data_type", wrong.data_type)
        built = model([node("Add", ["x", "w"], "y")], [info("x")], [info("y")], initializers=[wrong])
        refused(built, r"constant 'w'", r"expected .* but got")


@pytest.mark.parametrize("where", ["outer", "branch"])
def test_contents_that_do_not_fit_their_sizes(where):
    """Told at load, wherever the constant stands: the file is damaged."""
    wrong = initializer("w", X)
    wrong.dims[0] = 5
    used = [node("Add", ["x", "w"], "t")]
    then, outer = (
        branch(used, ["t"], [] if where == "outer" else [wrong]),
        [wrong] if where == "outer" else [],
    )
    built = model([if_node("cond", then, ABS)], [COND, info("x")], [info("y")], initializers=outer)
    refused(built, "constant 'w'", "expected 20 bytes, but got 12")


# ---- conditions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8", "string"])
def test_a_condition_declared_of_another_type(dtype):
    built = model([if_node("cond", NEG, ABS)], [info("cond", dtype, []), info("x")], [info("y")])
    refused(built, rf"choose: expected a condition of type bool, but got {dtype}")
    held = initializer(
        "cond",
        np.array(1, object if dtype == "string" else dtype) if dtype != "string" else np.array("a", object),
    )
    refused(
        model([if_node("cond", NEG, ABS)], [info("x")], [info("y")], initializers=[held]), r"bool, but got"
    )


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_a_condition_computed_of_another_type(dtype):
    cast = node("Cast", ["x"], "c", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    with pytest.raises(
        (anydml.ExecutionFailed, anydml.InvalidModel), match=rf"'choose' \(If\).*bool.*{dtype}"
    ):
        run(model([cast, if_node("c", NEG, ABS)], [info("x")], [info("y")]), x=X[:1])


@pytest.mark.parametrize("count", [0, 2, 3])
@pytest.mark.parametrize("origin", ["fed", "computed", "initializer"])
def test_a_condition_of_not_one_element(count, origin):
    before = [node("Greater", ["x", "zero"], "c")] if origin == "computed" else []
    weights = [initializer("zero", np.float32(0))]
    weights += [initializer("c", np.ones(count, bool))] if origin == "initializer" else []
    given = [info("c", "bool")] if origin == "fed" else []
    built = model([*before, if_node("c", NEG, ABS)], [info("x"), *given], [info("y")], initializers=weights)
    with pytest.raises(
        anydml.InvalidInput if origin == "fed" else anydml.ExecutionFailed,
        match=rf"(?s)(choose.*one bool|one bool.*choose).*\({count},\)",
    ):
        run(built, x=X[:count], **({"c": np.ones(count, bool)} if origin == "fed" else {}))


@pytest.mark.parametrize("value", [None, [np.array(True)], 1, "yes"])
def test_a_condition_that_is_no_array(value):
    built = model([if_node("cond", NEG, ABS)], [untyped("cond"), info("x")], [info("y")])
    with pytest.raises(anydml.AnyDMLError, match="cond"):
        run(built, x=X, cond=value)


def test_branches_of_different_types():
    """ONNX forbids it: shapes may differ, element types and kinds may not."""
    number = branch([node("Shape", ["x"], "n")], [info("n", "int64")])
    refused(
        one_if(NEG, number, info("x")),
        r"choose: .*one type for output 0, but got tensor\(.*\) and tensor\(.*\)",
    )
    row = branch([node("SequenceConstruct", ["x"], "s")], [seq_info("s")])
    refused(one_if(row, ABS, info("x")), r"one type for output 0, but got .*seq\(tensor\(float\)\)")


def test_branches_that_lie_about_types():
    """Both declare float32 and compute int64: the truth, or an error of ours."""
    lying = [branch([node("Shape", ["x"], "n"), node("Mul", ["n", k], "t")], ["t"]) for k in ("one", "two")]
    built = model(
        [
            node("ReduceSum", ["x"], "s", keepdims=0),
            node("Greater", ["s", "zero"], "c"),
            if_node("c", *lying, "r"),
            node("Where", ["c", "r", "r"], "w"),
            node("Add", ["w", "w"], "y"),
        ],
        [info("x")],
        [untyped("y")],
        initializers=[
            initializer("zero", np.float32(0)),
            initializer("one", np.int64(1)),
            initializer("two", np.int64(2)),
        ],
    )
    try:
        (y,) = run(built, x=X)
    except anydml.AnyDMLError:
        return
    assert_same(y, np.int64([6]))


def test_sources_that_are_no_models():
    for source in (None, 5, [], onnx.GraphProto(), "a\0b"):
        with pytest.raises(anydml.InvalidInput, match="model: expected a path"):
            anydml.load(source)
    with pytest.raises(anydml.InvalidModel, match="without a graph"):
        anydml.load(onnx.ModelProto())


def test_a_model_nested_absurdly_deep():
    """No file can hold this, but a ModelProto in memory can."""
    built = one_if(NEG, ABS, info("x"))
    graph = built.graph.node[0].attribute[0].g
    for depth in range(1000):
        (inner := graph.node.add()).CopyFrom(if_node("cond", NEG, ABS, f"y{depth}"))
        graph = inner.attribute[0].g
    refused(built, "too deeply")


def test_numbers_that_do_not_fill_their_tensor():
    wrong = helper.make_tensor("w", 1, [2], [1.0, 2.0])
    wrong.dims[0] = 3
    built = model([node("Add", ["x", "w"], "y")], [info("x")], [info("y")], initializers=[wrong])
    refused(built, "constant 'w'.*expected 3 numbers in float_data, but got 2")


def test_feeds_and_names_of_wrong_kinds():
    session = anydml.load(one_if(NEG, ABS, info("x")))
    for names, feed in (
        (None, None),
        (None, [X]),
        (5, {"cond": TRUE, "x": X}),
        ("y", {"cond": TRUE, "x": X}),
    ):
        with pytest.raises(anydml.InvalidInput, match=r"expected a (dictionary|list)"):
            session.run(names, feed)
    with pytest.raises(anydml.InvalidInput, match="but got MaskedArray"):
        session.run(None, {"cond": TRUE, "x": np.ma.masked_array(X)})


def test_a_map_of_keys_without_a_type():
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }'
    )
    proto.graph.output[0].type.map_type.value_type.tensor_type.elem_type = 1
    (y,) = anydml.load(proto).run(None, {"x": np.float32([1, 2])})
    assert y.tolist() == [-1, -2]


IN_PYTHON = """
import numpy as np, onnx.parser
from google.protobuf.internal import api_implementation
import anydml
assert api_implementation.Type() == "python"
model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Neg (x) }')
print(anydml.load(model).run(None, {"x": np.float32([1, 2])})[0].tolist())
data = model.SerializeToString()
for wrong in (data.replace(b"Neg", b"N\\xd8g"), data[:-3]):
    try:
        anydml.load(wrong)
    except anydml.InvalidModel as error:
        print(error)
"""


def test_with_protobuf_in_python():
    """As it is where there is no wheel of it for a Python, or people ask for it."""
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run([sys.executable, "-c", IN_PYTHON], capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    assert lines[0] == "[-1.0, -2.0]", done.stderr
    assert "UTF-8" in lines[1]
    assert "do not parse" in lines[2]


def small(body, domain=""):
    opsets = '"": 17' + (f', "{domain}": 1' if domain else "")
    text = f"<ir_version: 8, opset_import: [{opsets}]> g (float[2] x, int64[2] k, bool c) => (y) {{ {body} }}"
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize(
    ("body", "domain", "error", "told"),
    [
        (
            "y = Fooler (x)",
            "",
            anydml.Unsupported,
            r"no provider runs Fooler of opset 17; did you mean 'Floor'\?",
        ),
        (
            "y = Gelu (x)",
            "",
            anydml.Unsupported,
            "no provider runs Gelu of opset 17; it exists from opset 20 on",
        ),
        ("y = mine.Relu (x)", "mine", anydml.Unsupported, "register_custom_ops_library"),
        (
            "y = Relu <slope = 1.0> (x)",
            "",
            anydml.InvalidModel,
            "no attribute 'slope' of Relu; Relu has none",
        ),
        (
            "y = LeakyRelu <alpa = 1.0> (x)",
            "",
            anydml.InvalidModel,
            r"no attribute 'alpa' of LeakyRelu; did you mean 'alpha'\?",
        ),
    ],
)
def test_told_when_it_is_loaded(body, domain, error, told):
    with pytest.raises(error, match=told):
        anydml.load(small(body, domain))


def test_types_that_differ():
    session = anydml.load(small("y = Add (x, k)"))
    feed = {"x": np.ones(2, np.float32), "k": np.ones(2, np.int64), "c": np.array(True)}
    told = "expected inputs A and B of Add to be of one type, but got tensor.float. and tensor.int64."
    with pytest.raises(anydml.InvalidModel, match=told):
        session.run(None, feed)


def test_an_unknown_operator_in_a_branch_that_is_not_taken():
    branches = "then_branch = a () => (y1) { y1 = Fooler (x) }, else_branch = b () => (y2) { y2 = Relu (x) }"
    session = anydml.load(small(f"y = If (c) <{branches}>"))
    feed = {"x": np.ones(2, np.float32), "k": np.ones(2, np.int64)}
    assert session.run(None, feed | {"c": np.array(False)})[0].tolist() == [1, 1]
    with pytest.raises(anydml.Unsupported, match="no provider runs Fooler"):
        session.run(None, feed | {"c": np.array(True)})


def test_what_only_onnxruntime_has_in_onnxs_domain():
    session = anydml.load(small("w = Exp (x) y = SimplifiedLayerNormalization <axis = -1> (x, w)"))
    x = np.float32([1, 2])
    feed = {"x": x, "k": np.ones(2, np.int64), "c": np.array(True)}
    np.testing.assert_allclose(session.run(None, feed)[0], x / np.sqrt(2.5) * np.exp(x), rtol=1e-5)


def test_attributes_for_tools_are_left_alone():
    model = onnx.ModelProto.FromString(small("y = Relu (x)"))
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("__note", 1))
    feed = {"x": np.float32([-1, 2]), "k": np.ones(2, np.int64), "c": np.array(True)}
    assert anydml.load(model.SerializeToString()).run(None, feed)[0].tolist() == [0, 2]
