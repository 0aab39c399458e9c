"""First runs of sessions whose code is not on disk: others than our kernels run, and the second one is ours."""

import os
import subprocess
import sys
from textwrap import dedent

import onnx
import pytest

CHAIN = """
    <ir_version: 8, opset_import: ["" : 17]>
    chain (float[N] x) => (float[N] y) {
        a = Relu(x)
        b = Exp(a)
        c = Tanh(b)
        y = Sigmoid(c)
    }
"""
FORK = """
    <ir_version: 8, opset_import: ["" : 17]>
    fork (float[4] x) => (float[4] y) {
        zero = Constant<value = float {0.0}>()
        sum = ReduceSum<keepdims = 0>(x)
        up = Greater(sum, zero)
        y = If (up) <
            then_branch = then () => (float[4] a) { a = Mul(x, x) },
            else_branch = else () => (float[4] b) { b = Neg(x) }
        >
    }
"""
BEGIN = """
    import sys
    import numpy as np
    import anydml

    x = np.array([1, -2, 3, 4], np.float32)
    session = anydml.load(sys.argv[1])
    if session.get_inputs()[0].shape != [4]:
        x = np.resize(x, 1 << 17)  # more than a program would be made for later
    loaded = lambda: "llvmlite.binding" in sys.modules
"""


def in_a_new_process(model: str, code: str, folder, **environment) -> None:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(model), path)
    text = dedent(BEGIN) + dedent(code)
    variables = {"ANYDML_CACHE_DIR": str(folder / "kernels"), "ANYDML_DETERMINISTIC": "0"}
    done = subprocess.run(
        [sys.executable, "-c", text, str(path)],
        env=os.environ | variables | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", [CHAIN, FORK])
def test_a_first_run_does_without_llvm(model, tmp_path):
    in_a_new_process(
        model,
        """
        first = session.run(None, {"x": x})[0]
        assert not loaded()
        second = session.run(None, {"x": x})[0]
        assert loaded()
        third = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(first, second, rtol=1e-6)
        np.testing.assert_array_equal(second, third)
        """,
        tmp_path,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="code on disk is linked by LLVM elsewhere")
@pytest.mark.parametrize("model", [CHAIN, FORK])
def test_another_process_has_the_code_at_once_and_no_llvm(model, tmp_path):
    run_twice = """
        first, second = (session.run(None, {"x": x})[0] for _ in range(2))
        np.save(sys.argv[1] + ".npy", second)
        assert loaded()
        """
    in_a_new_process(model, run_twice, tmp_path)
    in_a_new_process(
        model,
        """
        for _ in range(3):
            got = session.run(None, {"x": x})[0]
            np.testing.assert_array_equal(got, np.load(sys.argv[1] + ".npy"))
        told = session.explain()
        assert "kernels:" in told or "program:" in told
        assert not loaded()
        """,
        tmp_path,
    )


@pytest.mark.parametrize("model", [CHAIN, FORK])
@pytest.mark.parametrize("how", ["variable", "option"])
def test_all_runs_give_the_same_bits_where_that_is_wanted(model, how, tmp_path):
    in_a_new_process(
        model,
        f"""
        if {how == "option"}:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.use_deterministic_compute = True
            session = anydml.load(sys.argv[1], sess_options=options)
        runs = [session.run(None, {{"x": x}})[0]]
        assert loaded()
        runs += [session.run(None, {{"x": x}})[0] for _ in range(3)]
        assert len({{run.tobytes() for run in runs}}) == 1
        """,
        tmp_path,
        **({"ANYDML_DETERMINISTIC": "1"} if how == "variable" else {}),
    )


def test_other_shapes(tmp_path):
    in_a_new_process(
        CHAIN,
        """
        wanted = 1 / (1 + np.exp(-np.tanh(np.exp(np.maximum(x, 0)))))
        for part in (1, 2, 3, 4, 3, 2, 1, 4):
            size = part << 15
            got = session.run(None, {"x": x[:size]})[0]
            np.testing.assert_allclose(got, wanted[:size], rtol=1e-6)
        assert loaded()
        """,
        tmp_path,
    )


def test_explain_tells_what_runs_from_now_on(tmp_path):
    in_a_new_process(
        FORK,
        """
        session.run(None, {"x": x})
        assert not loaded()
        assert "program:" in session.explain()
        assert "define" in session.emit("llvm")
        session.run(None, {"x": x})
        assert session._program.entry is not None
        """,
        tmp_path,
    )


def test_a_program_that_was_asked_for_is_there_at_once(tmp_path):
    in_a_new_process(
        FORK,
        """
        session = anydml.load(sys.argv[1], native=True)
        session.run(None, {"x": x})
        assert loaded() and session._program.entry is not None
        """,
        tmp_path,
    )


def test_what_decides_is_kept_as_it_was(tmp_path):
    """Deciding contents of the first run belong to its plan, also when their array has changed since."""
    model = """
    <ir_version: 8, opset_import: ["" : 17]>
    fork (float[4] x, bool[1] c) => (float[4] y) {
        zero = Constant<value = float {0.0}>()
        sum = ReduceSum<keepdims = 0>(x)
        up = Greater(sum, zero)
        z = If (up) <
            then_branch = then () => (float[4] a) { a = Mul(x, x) },
            else_branch = else () => (float[4] b) { b = Neg(x) }
        >
        y = If (c) <
            then_branch = then2 () => (float[4] d) { d = Add(z, z) },
            else_branch = else2 () => (float[4] e) { e = Sub(z, x) }
        >
    }
    """
    in_a_new_process(
        model,
        """
        c = np.array([True])
        for truth in (True, False, True, False, True, False):
            c[:] = truth
            got = session.run(None, {"x": x, "c": c})[0]
            np.testing.assert_array_equal(got, 2 * x * x if truth else x * x - x)
        bound = anydml.load(sys.argv[1]).bind({"x": x, "c": c}, {"y": (y := np.empty(4, np.float32))})
        for truth in (True, False, True, False):
            c[:] = truth
            bound.run()
            np.testing.assert_array_equal(y, 2 * x * x if truth else x * x - x)
        """,
        tmp_path,
    )


def test_threads_at_the_first_run(tmp_path):
    in_a_new_process(
        FORK,
        """
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            for got in pool.map(lambda _: session.run(None, {"x": x})[0], range(64)):
                np.testing.assert_array_equal(got, x * x)
        """,
        tmp_path,
    )
