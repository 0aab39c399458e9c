"""Files of others as onnxruntime is given them: their Ifs are its own to fold, which can end the process."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

import anydml
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.serde.region_model import fatal_optimisations

CONSTANTS = "\n".join(f"g{k} = Constant <value_float = {k}.0> ()" for k in range(4))
NESTED = """<ir_version: 10, opset_import: ["" : 20]>
g (bool c, float[2, n] x, bool d) => (float[?, m] y) {{
    {first}
    y = If (one) <then_branch = a () => (float[?, ?] r) {{
        {second}
        r = If (two) <then_branch = b () => (float[?, ?] q) {{
            s = Neg (x)
            q = If (d) <then_branch = e () => (float[?, ?] t) {{ t = Exp (s) }},
                        else_branch = f () => (float[?, ?] u) {{ u = Abs (x) }}>
        }}, else_branch = h () => (float[?, ?] v) {{
            {constants} v = Sum (x, g0, g1, g2, g3)
        }}>
    }}, else_branch = i () => (float[?, ?] w) {{ w = Abs (x) }}> }}"""
YES = "{} = Constant <value = bool {{1}}> ()"
KNOWN_SIZE = "shape = Shape <end = 1> (x) k = Constant <value_ints = [2]> () {} = Equal (shape, k)"
OPEN_SIZE = "shape2 = Shape <start = 1> (x) l = Constant <value_ints = [2]> () {} = Greater (shape2, l)"
DATA = "{} = Identity (c)"


def nested(first, second):
    text = NESTED.format(first=first.format("one"), second=second.format("two"), constants=CONSTANTS)
    return onnx.parser.parse_model(text)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (YES, YES, True),
        (YES, KNOWN_SIZE, True),
        (KNOWN_SIZE, YES, True),
        (YES, DATA, False),
        (DATA, YES, False),
        (YES, OPEN_SIZE, False),
        (OPEN_SIZE, YES, False),
    ],
)
def test_where_constants_are_not_folded(first, second, expected):
    typed = read_typed(nested(first, second), OnnxRuntime()).graph
    assert list(fatal_optimisations(typed.nodes, typed.constants)) == ["ConstantFolding"] * expected


@pytest.mark.parametrize(
    "call",
    [
        "report = anydml.flatten(path)[1]; assert report.verified.provider == 'onnxruntime', report",
        "assert anydml.compare(path, path).same",
        "from anydml.benchmark import bench; assert len(bench(path, shapes={'x': (2, 3)}, seconds=0.01)) == 2",
    ],
)
def test_ifs_in_ifs_that_constants_decide(call, tmp_path):
    """onnxruntime 1.31 and 1.32 end the process when they take the inner If out of the outer one."""
    path = tmp_path / "nested.onnx"
    onnx.save(nested(YES, YES), path)
    code = f"import anydml; path = {str(path)!r}; {call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_such_ifs_give():
    model, x = nested(YES, YES), np.float32([[1, -2], [3, -4]])
    flat, _ = anydml.flatten(model, verify=False, convert="always")
    for d, expected in ((True, np.exp(-x)), (False, np.abs(x))):
        feeds = {"c": np.array(True), "x": x, "d": np.array(d)}
        for each in (model, flat):
            session = anydml.load(each)
            named = {n.name for n in session.get_inputs()}
            (y,) = session.run(None, {k: v for k, v in feeds.items() if k in named})
            np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_a_loop_that_is_given_nothing_but_its_count():
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
    g (int64 n, float x) => (float[?] y) {
        y = Loop (n, , ) <body = b (int64 i, bool c) => (bool d, float r) { d = Identity (c) r = Neg (x) }> }""")
    assert list(model.graph.node[0].input) == ["n", ""]
    flat, report = anydml.flatten(model)
    assert report.verified.agreed
    assert report.verified.provider == "onnxruntime"
    (y,) = anydml.load(flat).run(None, {"n": np.array(2), "x": np.float32(3)})
    np.testing.assert_array_equal(y, np.float32([-3, -3]))
