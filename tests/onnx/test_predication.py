"""Nodes that may fail, in branches that run whether they are taken or not: nothing fails that did not before."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, parser

import anydml

X = np.arange(12, dtype=np.float32).reshape(3, 4)
NONE = np.zeros((0, 4), np.float32)


def model(text: str, opset: int = 20) -> ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": {opset}]> g {text}')


def outcome(content: bytes, feeds: dict) -> list | None:
    """What onnxruntime gives; None where it fails."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runner = ort.InferenceSession(content, options)
    wanted = {i.name for i in runner.get_inputs()}
    try:
        return runner.run(None, {n: x for n, x in feeds.items() if n in wanted})
    except Exception:
        return None


def check(built: ModelProto, many: list[dict]) -> None:
    """No If is left, and each feed has the same outcome as before."""
    flat, report = anydml.flatten(built, convert="always", verify=False)
    assert report.left == 0, report.ifs
    ran = 0
    for feeds in many:
        truth, found = (outcome(m.SerializeToString(), feeds) for m in (built, flat))
        if truth is None:
            assert found is None, f"only the original fails on {feeds}"
            continue
        ran += 1
        assert found is not None, f"only the original runs on {feeds}"
        for a, b in zip(found, truth, strict=True):
            np.testing.assert_array_equal(a, b)
    assert ran > len(many) // 4


K = [-5, -1, 0, 2, 7]
CASES = {
    "Gather": ("int64[q] k", "Gather (x, k)", [np.array([k]) for k in K], 20),
    "Gather of a scalar": ("int64 k", "Gather (x, k)", [np.array(k) for k in K], 20),
    "GatherElements": ("int64[q, 4] k", "GatherElements (x, k)", [np.full((1, 4), k) for k in K], 20),
    "GatherND": ("int64[q, 1] k", "GatherND (x, k)", [np.array([[k]]) for k in K], 20),
    "GatherND of none": ("int64[q, 2] k", "GatherND (x, k)", [np.array([[k, 1]]) for k in K], 20),
    "ScatterND": (
        "int64[q, 1] k, float[q, 4] u",
        "ScatterND (x, k, u)",
        [(np.array([[k]]), np.ones((1, 4), np.float32)) for k in K],
        20,
    ),
    "ReduceMax": ("int64 k", "ReduceMax <keepdims = 0> (x)", [np.array(0)], 17),
    "ReduceMin of an axis": ("int64 k", "ReduceMin <axes = [0]> (x)", [np.array(0)], 17),
    "ReduceMean": ("int64 k", "ReduceMean <axes = [0]> (x)", [np.array(0)], 17),
    "ArgMax": ("int64 k", "ArgMax <axis = 0> (x)", [np.array(0)], 17),
    "TopK": ("int64[1] k", "TopK (x, k)", [np.array([k]) for k in (0, 1, 4, 5)], 17),
    "TopK of three": ("int64[1] k", "TopK <axis = 0> (x, three)", [np.array([1])], 17),
    "Pad": ("int64[4] k", "Pad (x, k)", [np.array([k, 0, 1, 0]) for k in (0, 2, -2, -5)], 17),
    "Pad by reflections": (
        "int64[4] k",
        'Pad <mode = "reflect"> (x, k)',
        [np.array([k, 0, 0, 0]) for k in (0, 2, 3, 9)],
        17,
    ),
    "Resize to sizes": (
        "int64[2] k",
        'Resize <mode = "linear"> (x, nothing, nothing, k)',
        [np.array([2, 8]), np.array([-2, 8])],
        17,
    ),
    "Range": ("int64 k", "Range (one, k, k)", [np.array(k) for k in (0, 1, 5, -2)], 17),
    "ConstantOfShape": ("int64[2] k", "ConstantOfShape (k)", [np.array([2, k]) for k in (3, -1)], 17),
    "Expand": ("int64[2] k", "Expand (x, k)", [np.array([k, 1]) for k in (1, 3, 2)], 17),
    "Reshape": ("int64[2] k", "Reshape (x, k)", [np.array([k, -1]) for k in (1, 4, 5)], 17),
    "Squeeze": ("int64[1] k", "Squeeze (x, zero)", [np.array([0])], 17),
    "Div": ("int64[2] k", "Div (seven, k)", [np.array([2, k]) for k in (0, 1, -3)], 17),
    "Mod": ("int64[2] k", "Mod (seven, k)", [np.array([2, k]) for k in (0, 1, -3)], 17),
    "OneHot": ("int64 k", "OneHot (seven, k, two_values)", [np.array(k) for k in (3, 0, -1)], 17),
    "RoiAlign": (
        "float[q, 4] k, int64[q] u",
        "RoiAlign <output_height = 2, output_width = 2> (images, k, u)",
        [(np.float32([[0, 0, 2, 2]]), np.array([j])) for j in (0, 1, 9)],
        17,
    ),
    "NonMaxSuppression": (
        "float[1, 3, 4] k, float[1, 1, 3] u",
        "NonMaxSuppression (k, u)",
        [(np.ones((1, 3, 4), np.float32), np.ones((1, 1, 3), np.float32))],
        17,
    ),
}


OTHERS = {
    "floats of rank 0": "q = ReduceSum <keepdims = 0> (x)",
    "floats of rank 1": "q = Reshape (x, minus)",
    "floats of rank 2": "q = Relu (x)",
    "floats of rank 4": "q = Unsqueeze (x, lead)",
    "integers of rank 1": "w = Cast <to = 7> (x)  q = Reshape (w, minus)",
    "integers of rank 2": "q = Cast <to = 7> (x)",
}
RESULTS = {
    "Gather of a scalar": "floats of rank 1",
    "GatherND of none": "floats of rank 1",
    "ReduceMax": "floats of rank 0",
    "Squeeze": "floats of rank 1",
    "RoiAlign": "floats of rank 4",
    "ArgMax": "integers of rank 2",
    "Range": "integers of rank 1",
    "Div": "integers of rank 1",
    "Mod": "integers of rank 1",
    "NonMaxSuppression": "integers of rank 2",
}
"""What the other branch gives, of the rank and type of the case's."""


@pytest.mark.parametrize("truth_first", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_in_a_branch(name: str, truth_first: bool) -> None:
    """Taken, it does what it did, failures included; not taken, it disturbs nobody."""
    inputs, node, fed, opset = CASES[name]
    made = "p, places" if name.startswith("TopK") else "p"
    node = node.replace("nothing", '""')
    branches = [
        f"t () => (p) {{ {made} = {node} }}",
        f"e () => (q) {{ {OTHERS[RESULTS.get(name, 'floats of rank 2')]} }}",
    ]
    then_branch, else_branch = branches if truth_first else branches[::-1]
    built = model(
        f"""(bool c, float[n, 4] x, {inputs}) => (y)
        <int64 one = {{1}}, int64[1] zero = {{0}}, int64[1] three = {{3}}, int64[2] seven = {{7, 9}},
         int64[1] minus = {{-1}}, int64[2] lead = {{0, 1}},
         float[2] two_values = {{0, 1}}, float[2, 1, 4, 4] images = {{{", ".join(map(str, range(32)))}}}> {{
            y = If (c) <then_branch = {then_branch}, else_branch = {else_branch}> }}""",
        opset,
    )
    names = [i.name for i in built.graph.input][2:]
    many = []
    for c, x, values in itertools.product((True, False), (X, X[:1], NONE), fed):
        given = values if isinstance(values, tuple) else (values,)
        if name.startswith("Resize") and c == truth_first and not x.size:
            continue  # what onnxruntime makes of it is not defined
        many.append({"c": np.array(c), "x": x, **dict(zip(names, given, strict=True))})
    check(built, many)


def test_a_branch_in_a_branch() -> None:
    """What is safe since the inner branch is not taken has to be safe where the outer one is not, either."""
    built = model("""(bool c, bool d, float[n, 4] x, int64[q] k) => (y) {
        y = If (c) <then_branch = t () => (p) {
                p = If (d) <then_branch = t2 () => (p2) { p2 = Gather (x, k) }, else_branch = e2 () => (q2) { q2 = Relu (x) }> },
            else_branch = e () => (q) { q = Neg (x) }> }""")
    check(
        built,
        [
            {"c": np.array(c), "d": np.array(d), "x": x, "k": np.array([k])}
            for c, d, x, k in itertools.product((True, False), (True, False), (X, NONE), (0, 9))
        ],
    )


def test_a_chain_of_nodes() -> None:
    """Places found in an image, of which there may be none; what is gathered there is put back."""
    built = model("""(float[h, 4] e, float[h, 4] x) => (y) <float half = {0.5}, int64[1] zero = {0}> {
        found = Greater (e, half)
        list = NonZero (found)
        places = Transpose (list)
        sizes = Shape (places)
        count = Gather (sizes, zero)
        some = Greater (count, zero)
        y = If (some) <then_branch = t () => (p) { v = GatherND (x, places) w = Relu (v) p = ScatterND (x, places, w) },
                       else_branch = f () => (q) { q = Identity (x) }> }""")
    rng = np.random.default_rng(5)
    noise = [rng.random((3, 4), np.float32) for _ in range(3)]
    check(built, [{"e": e, "x": x} for e in (*noise, 0 * X) for x in (X, -X)] + [{"e": NONE, "x": NONE}])


def test_a_parameter_is_chosen_instead_of_the_result() -> None:
    built = model(
        """(bool c, float[n, 4] x, int64[4] pads) => (y) {
        y = If (c) <then_branch = t () => (p) { p = Pad (x, pads) }, else_branch = e () => (q) { q = Identity (x) }> }"""
    )
    flat, report = anydml.flatten(built, convert="always")
    assert [n.op_type for n in flat.graph.node] == ["Where", "Pad"]
    assert report.left == 0
    check(
        built,
        [
            {"c": np.array(c), "x": x, "pads": np.array([k, 0, 1, 0])}
            for c, x, k in itertools.product((True, False), (X, NONE), (0, 2, -9))
        ],
    )


def test_what_an_inner_branch_gives_while_the_outer_one_is_not_taken() -> None:
    """Sizes that are equal where both are taken need not be equal then: the choice must not rely on it."""
    built = model("""(float[n, 3] x, int64 k, float[2] z, bool c) => (y) <int64 zero = {0}, int64[2, 2] places = {0, 1, 0, -1}> {
        y = If (c) <then_branch = t () => (p) {
                low = Less (k, zero)
                p = If (low) <then_branch = t2 () => (p2) { p2 = Identity (z) }, else_branch = e2 () => (q2) { q2 = GatherND (x, places) }> },
            else_branch = e () => (q) { q = Neg (z) }> }""")
    three, two = np.arange(3, dtype=np.float32)[None], np.float32([4, 5])
    check(
        built,
        [
            {"x": x, "k": np.array(k), "z": two, "c": np.array(c)}
            for x, k, c in itertools.product((three, three[:0]), (-1, 1), (True, False))
        ],
    )


def test_a_branch_in_a_loop_in_a_branch() -> None:
    """What is safe in a body, since a branch there is not taken, need not be where the loop runs in vain."""
    built = model("""(float[m, n] x, float[n, m] z, int64 k, bool c) => (y) <int64 one = {1}, bool yes = {1}, int64[2] sizes = {3, 1}> {
        y = If (c) <then_branch = t () => (p) {
                p = Loop (one, yes, z) <body = b (int64 i, bool go, float[?, ?] s) => (bool on, float[?, ?] w) {
                    on = Identity (go)
                    same = Equal (k, one)
                    w = If (same) <then_branch = t2 () => (p2) { p2 = Identity (x) }, else_branch = e2 () => (q2) { q2 = Expand (x, sizes) }> }> },
            else_branch = e () => (q) { q = Identity (z) }> }""")
    check(
        built,
        [
            {
                "x": np.ones(s, np.float32),
                "z": np.ones(s[::-1], np.float32),
                "k": np.array(k),
                "c": np.array(c),
            }
            for s, k, c in itertools.product(((3, 3), (4, 3)), (1, -3), (True, False))
        ],
    )


def test_witnesses_leave_conditions_alone_and_are_small() -> None:
    built = model("""(float[m, 3, n] x, float[m, m, 1] z, int64[n, 3, n, n] k, bool[q] c) => (y, v) <int64[2] s = {1, -1}> {
        y, v = If (c) <then_branch = t () => (p, u) { p = Reshape (k, s)  u = AveragePool <kernel_shape = [2]> (x) },
                       else_branch = e () => (p2, u2) { r = Cast <to = 7> (z)  p2 = Reshape (r, s)  u2 = Identity (z) }> }""")
    flat, report = anydml.flatten(built, convert="always", verify=False)
    feeds = {
        "x": np.ones((1, 3, 5), np.float32),
        "z": np.ones((1, 1, 1), np.float32),
        "k": np.ones((5, 3, 5, 5), np.int64),
    }
    for truth in (True, False):
        given = {**feeds, "c": np.array([truth])}
        a, b = (outcome(m.SerializeToString(), given) for m in (built, flat))
        assert a is not None
        assert b is not None, report.verdict
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_an_empty_constant_that_a_branch_reads_too() -> None:
    built = model("""(float[n, m] x, bool c) => (r, y) <float[2] scales = {1, 2}, float[0] none = {}> {
        r = Resize (x, none, scales)
        y = If (c) <then_branch = t () => (p) { p = Concat <axis = 0> (none, none) },
                    else_branch = e () => (q) { s, a, b, d = Unique (x)  q = Neg (s) }> }""")
    flat, report = anydml.flatten(built, convert="always", verify=False)
    assert report.left == 1
    for truth in (True, False):
        feeds = {"x": X, "c": np.array(truth)}
        a, b = (outcome(m.SerializeToString(), feeds) for m in (built, flat))
        assert a is not None
        assert b is not None
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_places_in_a_scalar() -> None:
    """onnxruntime gives one row of places for a scalar, ONNX none: nothing may follow from it."""
    built = model("""(int64 a, float[n] x) => (y) <int64 zero = {0}> {
        places = NonZero (a)  s = Size (places)  c = Greater (s, zero)
        y = If (c) <then_branch = t () => (p) { p = Relu (x) }, else_branch = e () => (q) { q = Neg (x) }> }""")
    check(built, [{"a": np.array(k), "x": X[0]} for k in (0, 3)])


def test_a_branch_that_the_sizes_forbid() -> None:
    """With these sizes it always fails, and a file that declares them would not be loaded."""
    built = model("""(float[a, 4] x, float[b, 4] z, bool c) => (y) {
        y = If (c) <then_branch = t () => (p) { p = Relu (x) }, else_branch = e () => (q) { q = Add (x, z) }> }""")
    flat, report = anydml.flatten(built, shapes={"x": (3, 4), "z": (2, 4)}, verify=False)
    assert (report.left, report.ifs[0].decision) == (0, "guarded")
    feeds = {"x": X, "z": X[:2]}
    content = flat.SerializeToString()
    assert outcome(content, {**feeds, "c": np.array(False)}) is None
    (found,) = outcome(content, {**feeds, "c": np.array(True)}) or []
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_a_function_whose_branch_gives_an_initializer() -> None:
    built = parser.parse_model("""<ir_version: 9, opset_import: ["": 20, "own": 1]>
        g (bool c, float[2] x) => (float[2] y) { y = own.choose (c, x) }
        <domain: "own", opset_import: ["": 20]>
        choose (c, x) => (y) {
            y = If (c) <then_branch = t () => (float[2] p) { p = Relu (x) },
                        else_branch = e () => (float[2] q) <float[2] q = {1, 2}> { }> }""")
    check(built, [{"c": np.array(c), "x": np.float32([-1, 3])} for c in (True, False)])
