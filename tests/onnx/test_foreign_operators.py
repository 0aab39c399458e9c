"""Operators that ONNX does not have and onnxruntime does: what its optimiser and its tools write into files."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper

import anydml
from anydml.onnx import model_pair
from anydml.onnx.partial_eval.shape_inference import ShapeInference
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from tests.models import computed_or_given, content_of

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> main '


def model(text, **weights):
    made = onnx.parser.parse_model(HEAD + text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    return made.SerializeToString()


def weight(*sizes):
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


def theirs(data, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def agree(data, feeds, session=None):
    session = session or anydml.load(data)
    for ours, others in zip(session.run(None, feeds), theirs(data, feeds), strict=True):
        assert ours.dtype == others.dtype
        np.testing.assert_allclose(ours, others, rtol=1e-4, atol=1e-5)
    return session


CASES = {
    "SkipLayerNormalization": """(float[b,s,8] x) => (float[b,s,8] y) {
        n = com.microsoft.SkipLayerNormalization (x, x, gamma)  y = Add (n, x) }""",
    "FastGelu": "(float[b,s,8] x) => (float[b,s,8] y) { g = com.microsoft.FastGelu (x, gamma)  y = Mul (g, x) }",
    "FusedMatMul": """(float[b,s,8] x) => (float[b,s,s] y) {
        f = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (x, x)  y = Softmax (f) }""",
    "QuickGelu": "(float[b,s,8] x) => (float[b,s,8] y) { q = com.microsoft.QuickGelu <alpha = 1.7> (x)  y = Relu (q) }",
    "one in ONNX's domain": """(float[b,s,8] x) => (float[b,s,8] y) {
        n = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001> (x, gamma)  y = Tanh (n) }""",
}


@pytest.mark.parametrize("name", CASES)
def test_types_of_what_is_behind_one_are_known(name):
    data = model(CASES[name], **({"gamma": weight(8)} if "gamma" in CASES[name] else {}))
    session = None
    for sizes in ((2, 3, 8), (1, 5, 8), (4, 1, 8), (2, 2, 8)):  # the third plan has open sizes
        session = agree(data, {"x": weight(*sizes)}, session)
    plans = session.explain().split("plan for")[1:]
    assert all(plan.count("\n  ") == 1 and "onnxruntime: " in plan for plan in plans)  # one region each


SIZED = """(float[b,s,8] x) => (float[b,s,r] y) {
    n = com.microsoft.SkipLayerNormalization (x, x, gamma)
    f = com.microsoft.FusedMatMul (n, matrix)
    shape = Shape (f)  last = Gather (shape, two)  wide = Greater (last, five)
    y = If (wide) <then_branch = a () => (float[b,s,r] t) { t = Relu (f) },
                   else_branch = c () => (float[b,s,r] e) { e = Neg (f) }> }"""
INTEGERS = {"two": np.array(2), "five": np.array(5)}


@pytest.mark.parametrize("columns", [4, 8])
def test_an_if_on_the_sizes_of_what_one_gives_is_decided(columns):
    data = model(SIZED, gamma=weight(8), matrix=weight(8, columns), **INTEGERS)
    agree(data, {"x": weight(2, 3, 8)})
    flat, _ = anydml.flatten(data)
    assert all(n.op_type != "If" for n in flat.graph.node)


def test_the_library_is_asked_once_for_a_kind():
    asked = []
    inner = ShapeInference._infer

    def infer(self, node, inputs):
        asked.append(node.op.name)
        return inner(self, node, inputs)

    data = model(
        """(float[b,8] x) => (float[b,8] y) {
        a = com.microsoft.FastGelu (x)  c = com.microsoft.FastGelu (a)  y = com.microsoft.FastGelu (c) }"""
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShapeInference, "_infer", infer)
        calls = []
        told = OnnxRuntime.result_types
        patch.setattr(
            OnnxRuntime, "result_types", lambda self, model, *a: calls.append(model) or told(self, model, *a)
        )
        agree(data, {"x": weight(3, 8)})
    assert asked.count("FastGelu") >= 3
    assert len(calls) == 1


def test_one_that_nobody_has_is_told():
    data = model("(float[b,8] x) => (float[b,8] y) { y = com.microsoft.NobodyHasThis (x) }")
    with pytest.raises(anydml.Unsupported, match="NobodyHasThis"):
        anydml.load(data).run(None, {"x": weight(3, 8)})


def test_verification_feeds_them_nothing_odd(monkeypatch):
    """On indices out of range, and on nothing, they end the process."""
    fed = []
    inner = model_pair._ran

    def ran(call, values):
        fed.extend(values)
        return inner(call, values)

    monkeypatch.setattr(model_pair, "_ran", ran)
    text = """(float[b,s,8] x, int64[n] k) => (float[b,s,8] y, int64[n] m) {
        y = com.microsoft.SkipLayerNormalization (x, x, gamma)  m = Add (k, k) }"""
    data = model(text, gamma=weight(8))
    for seed in range(4):
        anydml.flatten(data, seed=seed)
    assert len(fed) > 40
    assert all(x.size for x in fed)
    assert all(np.isfinite(x).all() for x in fed)
    assert all(x.min() >= 0 for x in fed if x.dtype.kind == "i")


THREE = """(float[a,b] x) => (float[a,b] y) {
    n = com.microsoft.FastGelu (x)  r = Softmax (n)  y = com.microsoft.QuickGelu (r) }"""


def test_nodes_that_are_refused_together_run_alone_and_are_tried_again(monkeypatch):
    """Sizes that do not fit each other, as of one bad call, must not spoil a session for good."""
    refusing, compiled = [True], []
    inner = OnnxRuntime.compile

    def compile(self, region, threads, alone=True):
        count = len(onnx.ModelProto.FromString(region.model).graph.node)
        if count > 1 and refusing[0]:
            raise anydml.Unsupported(anydml.errors.Problem("", "sizes that do not fit"))
        compiled.append(count)
        return inner(self, region, threads, alone)

    monkeypatch.setattr(OnnxRuntime, "compile", compile)
    data = model(THREE)
    session = agree(data, {"x": weight(2, 3)})
    assert set(compiled) == {1}
    assert session.explain().count("onnxruntime: ") == 3
    assert "onnx.reference" not in session.explain()
    refusing[0] = False
    compiled.clear()
    agree(data, {"x": weight(4, 5)}, session)
    assert compiled == [3]


AXES = """(float[a,b,n] x) => (float[c,d,e] y) {
    y = Scan <num_scan_inputs = 1, scan_input_axes = [2], scan_output_axes = [2],
              body = each (float[s,t] i) => (float[s,t] j) { j = Neg (i) }> (x) }"""


@pytest.mark.parametrize("sizes", [(1, 3, 0), (0, 3, 2), (3, 0, 2)])
def test_scans_along_other_axes_of_nothing(sizes):
    """onnxruntime ends the process on some of them."""
    session = anydml.load(model(AXES))
    (y,) = session.run(None, {"x": np.zeros(sizes, np.float32)})
    assert y.size == 0
    if sizes[2]:
        assert y.shape == sizes
    agree(model(AXES), {"x": weight(2, 3, 4)}, session)
    assert "iteration at a time" not in session.explain().split("plan for")[-1]


JOINED = """(uint8[a,n] x, uint8[n,c] w) => (uint8[a,c] y) {
    left = com.microsoft.QLinearConcat <axis = 1> (s, z, x, s, z, x, s, z)
    right = com.microsoft.QLinearConcat <axis = 0> (s, z, w, s, z, w, s, z)
    y = QLinearMatMul (left, s, z, right, s, z, s, z)
}"""


def test_what_joins_something_is_not_taken_for_nothing():
    """A product over nothing is not the library's; that of joined parts is, also where sizes are open."""
    data = model(JOINED, s=np.array(0.1, np.float32), z=np.array(100, np.uint8))
    session = anydml.load(data)
    rng = np.random.default_rng(0)
    for a, n, c in ((2, 3, 4), (3, 4, 5), (4, 5, 6), (5, 2, 3)):
        feeds = {
            k: rng.integers(80, 120, sizes).astype(np.uint8) for k, sizes in (("x", (a, n)), ("w", (n, c)))
        }
        agree(data, feeds, session)
    plans = session.explain().split("plan for")[1:]
    assert any("?" in plan.splitlines()[0] for plan in plans)
    assert all(plan.count("\n  ") == 1 for plan in plans)


def test_sizes_are_told_to_operators_that_want_them():
    text = """(int32[b,s] ids, float[9,8] words, float[7,8] places) => (float[b,s,8] y) {
        e, m = com.microsoft.EmbedLayerNormalization (ids, "", words, places, "", gamma, beta)  y = Neg (e) }"""
    data = model(text, gamma=weight(8), beta=weight(1, 8)[0])
    session = anydml.load(data)
    for b, s in ((1, 3), (2, 4), (3, 2)):
        ids = np.arange(b * s, dtype=np.int32).reshape(b, s) % 9
        agree(data, {"ids": ids, "words": weight(9, 8), "places": weight(7, 8)}, session)


def test_a_type_that_does_not_follow_is_the_declared_one():
    """onnxruntime does not infer that of the attention's products, and refuses to open what does not tell it."""
    text = """(float[b,s,8] q, float[b,2,t,4] k, float[b,2,t,4] v) => (float[b,s,8] y, float[b,2,s,t] qk) {
        y, "", "", qk = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }"""
    data, session = model(text), None
    for b, s, t in ((1, 3, 5), (2, 2, 4), (3, 1, 2)):
        feeds = {"q": weight(b, s, 8), "k": weight(b, 2, t, 4), "v": weight(b, 2, t, 4)}
        session = agree(data, feeds, session)
    assert "onnxruntime: com.microsoft.MultiHeadAttention" in session.explain()
    flat, _ = anydml.flatten(data)
    agree(flat.SerializeToString(), feeds)


SEARCH = """(int32[b,s] input_ids, int32[1] longest) => (int32[b,m] sequences) {
    ids = Identity (input_ids)
    sequences = com.microsoft.GreedySearch <eos_token_id = 0, pad_token_id = 0, model_type = 0,
        decoder = step (int32[b,n] input_ids, int32[b,n] position_ids, int32[b,t] attention_mask,
                        float[2,b,1,p,4] past_0) => (float[b,n,7] logits, float[2,b,1,t,4] present_0) {
            axes = Constant <value_ints = [0, 2]> ()
            word = Gather (words, input_ids)  place = Gather (words, position_ids)  x = Add (word, place)
            more = Unsqueeze (x, axes)  both = Concat <axis = 0> (more, more)
            present_0 = Concat <axis = 3> (past_0, both)
            prompt = Gather (words, ids)  keep = Constant <value_ints = [1]> ()
            of_prompt = ReduceMean <axes = [1], keepdims = 1> (prompt)
            seen = ReduceMean <axes = [0, 2, 3], keepdims = 0> (present_0)
            late = Unsqueeze (seen, keep)  y = Add (x, late)  z = Add (y, of_prompt)
            l = MatMul (z, out)  logits = Identity (l) }> (input_ids, longest) }"""


def test_graphs_of_a_search_are_found_by_the_names_of_what_they_take():
    """Also where something around them goes by one of these names, as the prompt does here."""
    data, session = model(SEARCH, words=weight(7, 4), out=weight(4, 7)), None
    answers = set()
    for b, s, longest in ((1, 2, 6), (2, 3, 7), (1, 5, 7), (3, 1, 6)):
        ids = np.random.default_rng(s).integers(1, 7, (b, s)).astype(np.int32)
        feeds = {"input_ids": ids, "longest": np.array([longest], np.int32)}
        session = agree(data, feeds, session)
        answers.update(theirs(data, feeds)[0].ravel().tolist())
    assert len(answers) > 3
    flat, _ = anydml.flatten(data)
    agree(flat.SerializeToString(), feeds)
    assert theirs(flat.SerializeToString(), feeds)[0].tolist() == theirs(data, feeds)[0].tolist()


def test_a_file_that_imports_other_domains_only():
    """onnxruntime takes the newest opset of ONNX's own for it, in which axes are inputs."""
    info = helper.make_tensor_value_info

    def branch(operator):
        node = helper.make_node(operator, ["t", "axes"], [f"{operator}_of_t"], keepdims=0)
        return helper.make_graph([node], operator, [], [info(f"{operator}_of_t", 1, None)])

    nodes = [
        helper.make_node("Gelu", ["x"], ["t"], domain="com.microsoft"),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("ReduceSum"), else_branch=branch("ReduceMax")
        ),
    ]
    axes = helper.make_tensor("axes", 7, [1], [1])
    graph = helper.make_graph(
        nodes, "g", [info("x", 1, [2, 3]), info("c", 9, [])], [info("y", 1, None)], [axes]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    flat, _ = anydml.flatten(model)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for c in (True, False):
        feed = {"x": x, "c": np.array(c)}
        (wanted,) = ort.InferenceSession(model.SerializeToString()).run(None, feed)
        (made,) = anydml.load(model).run(None, feed)
        (without,) = ort.InferenceSession(flat.SerializeToString()).run(None, feed)
        np.testing.assert_allclose(made, wanted, rtol=1e-6)
        np.testing.assert_allclose(without, wanted, rtol=1e-6)
    assert "If" not in {n.op_type for n in flat.graph.node}


ENDED_BY_NO_BATCH = {
    "QAttention": """(uint8[b,s,8] x) => (float[b,s,4] y) {
        y = com.microsoft.QAttention <num_heads = 2> (x, w, b, step, step) }""",
    "DynamicQuantizeLSTM": """(float[s,b,8] x) => (float[s,1,b,4] y) {
        y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, k, r, , , , , , steps, zeros, steps, zeros) }""",
}


@pytest.mark.parametrize("name", ENDED_BY_NO_BATCH)
def test_an_empty_batch_that_would_end_the_process(name):
    weights = {
        "w": np.ones((8, 12), np.uint8),
        "b": np.ones(12, np.float32),
        "step": np.float32(0.1),
        "k": np.ones((1, 8, 16), np.uint8),
        "r": np.ones((1, 4, 16), np.uint8),
        "steps": np.ones(1, np.float32),
        "zeros": np.zeros(1, np.uint8),
    }
    first = name == "QAttention"
    dtype = np.uint8 if first else np.float32

    def x(batch, length):
        return {"x": np.ones((batch, length, 8) if first else (length, batch, 8), dtype)}

    session = anydml.load(model(ENDED_BY_NO_BATCH[name], **weights))
    for batch, length in ((2, 3), (1, 0), (2, 0)):
        (y,) = session.run(None, x(batch, length))
        assert y.shape == ((batch, length, 4) if first else (length, 1, batch, 4))
    with pytest.raises(anydml.Unsupported, match=f"{name}.*onnxruntime ends the process on an empty batch"):
        session.run(None, x(0, 3))
    (y,) = session.run(None, x(2, 3))
    assert y.shape[-1] == 4


IN_BRANCHES = {
    "FusedGemm": ("float[n,8]", "float[n,5]", """FusedGemm <activation = "Relu"> (x, w, row)"""),
    "turned": ("float[n,8]", "float[n,5]", """FusedGemm <activation = "Tanh", transB = 1> (x, v, row)"""),
    "FusedMatMul": ("float[b,n,8]", "float[b,n,n]", "FusedMatMul <alpha = 0.5, transB = 1> (x, x)"),
    "FusedConv": ("float[n,2,5,5]", "float[n,4,3,3]", """FusedConv <activation = "Relu"> (x, f, four)"""),
    "Gelu": ("float[n,5]", "float[n,5]", "Gelu (x)"),
    "FastGelu": ("float[n,5]", "float[n,5]", "FastGelu (x, row)"),
    "BiasGelu": ("float[n,5]", "float[n,5]", "BiasGelu (x, row)"),
    "QuickGelu": ("float[n,5]", "float[n,5]", "QuickGelu (x)"),
    "DynamicQuantizeMatMul": ("float[n,8]", "float[n,5]", "DynamicQuantizeMatMul (x, q, s, , row)"),
    "MatMulIntegerToFloat": ("uint8[n,8]", "float[n,5]", "MatMulIntegerToFloat (x, q, s, s, , , row)"),
}
OPERANDS = {
    "w": weight(8, 5),
    "v": weight(5, 8),
    "f": weight(4, 2, 3, 3),
    "four": weight(4),
    "row": weight(5),
    "q": np.arange(40, dtype=np.uint8).reshape(8, 5),
    "s": np.float32(0.1),
}


@pytest.mark.parametrize("name", IN_BRANCHES)
def test_branches_of_a_file_that_onnxruntime_optimised(name):
    x, y, node = IN_BRANCHES[name]
    text = computed_or_given(x, y, f"com.microsoft.{node}")
    operands = {n: c for n, c in OPERANDS.items() if n in node.replace("(", " ").replace(",", "").split()}
    operands |= {n: OPERANDS[n] for n in ("row", "four", "s") if f"{n})" in node}
    given = onnx.load_from_string(model(text, **operands))
    flat, report = anydml.flatten(given, convert="always")
    assert not any(n.op_type == "If" for n in flat.graph.node), str(report)
    rng, sizes = np.random.default_rng(0), {"b": 2, "n": 3}
    for yes in (True, False):
        drawn = {"x": content_of(x, rng, **sizes), "z": content_of(y, rng, **sizes)}
        feeds = {**drawn, "yes": np.array(yes)}
        (wanted,) = theirs(given.SerializeToString(), feeds)
        for found in (theirs(flat.SerializeToString(), feeds), anydml.load(given).run(None, feeds)):
            np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "node",
    [
        "FusedMatMul (x, k)",
        "FusedGemm (x, k)",
        "MurmurHash3 (x)",
    ],
)
def test_what_may_fail_in_a_branch_stays_there(node):
    text = f"""(float[n,m] x, bool yes, float[k] k, float[n,m] z) => (float[i,j] y) {{
        y = If (yes) <then_branch = t () => (float[i,j] a) {{ a0 = com.microsoft.{node} a = Cast <to = 1> (a0) }},
            else_branch = e () => (float[i,j] b) {{ b = Identity (z) }}> }}"""
    flat, _ = anydml.flatten(onnx.load_from_string(model(text)), convert="always", verify=False)
    assert [n.op_type for n in flat.graph.node] == ["If"]
