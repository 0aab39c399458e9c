"""Programs with Ifs whose branches give different shapes: what follows is compiled into both."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import anydml as dml
from tests.onnx.test_native import agree, expected, model, native, numbers, same


def parsed(text: str) -> onnx.ModelProto:
    """Of which branches do not say what sizes they give."""
    made = model(text)

    def forget(graph):
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    forget(attribute.g)
                    if node.op_type == "If":
                        for output in attribute.g.output:
                            output.type.tensor_type.ClearField("shape")

    forget(made.graph)
    return made


def longer(name, condition, x, to="y", half=False):
    """`to` is x, or x twice, or its first half."""
    other = f"{name}_b = Slice ({x}, zero, half)" if half else f"{name}_b = Concat <axis = 0> ({x}, {x})"
    return (
        f"{to} = If ({condition}) <then_branch = {name}t () => (float[q] {name}_a) {{ {name}_a = Neg ({x}) }},"
        f" else_branch = {name}e () => (float[q] {name}_b) {{ {other} }}>"
    )


CONSTANTS = "float nil = {0}, float some = {0.3}, int64[1] zero = {0}, int64[1] half = {2}, int64[1] minus = {-1}, int64[1] far = {-99}"
POSITIVE = "s{0} = ReduceSum <keepdims = 0> ({1}) c{0} = Greater (s{0}, nil)"


@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.parametrize("half", [True, False])
def test_what_follows_sees_both_shapes(size, half):
    """In registers and in memory; sizes that follow are known in each; what was before is still there."""
    made = parsed(
        f"m (float[{size}] x, float[{size}] w) => (float m, int64[1] n, float[{size}] z) <{CONSTANTS}> {{"
        f" t = Tanh (w) u = Exp (w) v = Mul (t, u) {POSITIVE.format('', 'x')} {longer('i', 'c', 'x', 'y', half)}"
        " n = Shape (y) r = Sigmoid (y) m = ReduceMean <keepdims = 0> (r)"
        " e = Expand (m, n) f = Mul (e, y) g = ReduceMax (f) h = Add (v, g) z = Add (h, u) }"
    )
    x = np.abs(numbers(size))
    agree(made, *({"x": s * x, "w": numbers(size) / 4} for s in (1, -1)))


def test_one_behind_the_other():
    steps = " ".join(
        f"{POSITIVE.format(k, f'y{k}')} {longer(f'i{k}', f'c{k}', f'y{k}', f'y{k + 1}')}" for k in range(4)
    )
    made = parsed(
        f"m (float[3] y0) => (float z) <{CONSTANTS}> {{ {steps} z = ReduceL2 <keepdims = 0> (y4) }}"
    )
    feeds = [{"y0": s * np.abs(numbers(3)) / 3} for s in (1, -1)] + [{"y0": numbers(3)} for _ in range(4)]
    session = agree(made, *feeds)
    assert session.emit().count("br i1") >= 15


def test_in_branches_of_others():
    """The inner one decides the shape, and what follows the outer one has to know."""
    inner = longer("j", "d", "x", "k")
    made = parsed(
        f"m (float[30] x, float a, float b) => (float z, float[30] o) <{CONSTANTS}> {{ h = Sin (x)"
        " c = Greater (a, nil) d = Greater (b, nil)"
        f" y = If (c) <then_branch = t () => (float[q] l) {{ {inner} l = Abs (k) }},"
        " else_branch = e () => (float[q] g) { g = Add (x, h) }>"
        " n = Sub (y, nil) z = ReduceProd <keepdims = 0> (n) o = Mul (h, z) }"
    )
    signs = [np.array(s, np.float32) for s in (1, -1)]
    agree(made, *({"x": 1 + numbers(30) / 20, "a": a, "b": b} for a in signs for b in signs), rtol=1e-4)


@pytest.mark.parametrize("size", [3, 30])
def test_in_a_loop(size):
    """What the first branch no longer needs when it ends, the second one still does."""
    made = parsed(
        f"m (float[{size}] x, int64 n) => (float[{size}] y, float[5] r) <{CONSTANTS}, bool yes = {{1}}, int64 five = {{5}}> {{"
        f" y, r = Loop (five, yes, x) <body = b (int64 i, bool go, float[{size}] s) => (bool on, float[{size}] s2, float m) {{"
        f" on = Identity (go) p = Cos (s) {POSITIVE.format(0, 's')} {longer('i', 'c0', 's', 'l')}"
        " m = ReduceMean <keepdims = 0> (l) q = Sub (p, m) back = Slice (p, minus, far, zero, minus) s2 = Mul (q, back) }> }"
    )
    agree(made, *({"x": numbers(size) / 4, "n": np.array(k)} for k in range(3)), rtol=1e-4, atol=1e-4)


def test_what_one_branch_frees_and_the_other_gives_a_part_of():
    made = parsed(
        f"m (float[30] x) => (float[30] y) <{CONSTANTS}, bool yes = {{1}}, int64 five = {{5}}, int64[1] most = {{25}}, int64[1] all = {{60}}> {{"
        " y = Loop (five, yes, x) <body = b (int64 i, bool go, float[30] s) => (bool on, float[30] s2) {"
        f" on = Identity (go) p = Concat <axis = 0> (s, s) {POSITIVE.format(0, 's')}"
        " l = If (c0) <then_branch = t () => (float[q] a) { a = Neg (s) },"
        " else_branch = e () => (float[q] g) { g = Slice (p, most, all) h = Add (p, p) }>"
        " n = Shape (s) f = Slice (l, zero, n) s2 = Slice (f, minus, far, zero, minus) }> }"
    )
    agree(made, *({"x": numbers(30)} for _ in range(6)))


def test_many_shapes_that_the_data_decides_stay_outside():
    """Each doubles what follows."""
    steps = " ".join(
        f"{POSITIVE.format(k, f'y{k}')} {longer(f'i{k}', f'c{k}', f'y{k}', f'y{k + 1}')}" for k in range(9)
    )
    many = parsed(
        f"m (float[2] y0) => (float z) <{CONSTANTS}> {{ {steps} z = ReduceMean <keepdims = 0> (y9) }}"
    )
    session = dml.load(many, threads=1)
    feeds = {"y0": np.ones(2, np.float32)}
    same(session.run(None, feeds), expected(many, feeds))
    assert "program: " not in session.explain()  # too much code


class Writer:
    """Graphs of vectors of which nobody knows how long they are."""

    def __init__(self, seed):
        self.rng, self.count, self.lines = np.random.default_rng(seed), 0, []

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def pick(self, live):
        return live[int(self.rng.integers(len(live)))]

    def steps(self, live, deep, count):
        """Nodes as text; `live` grows by what they give."""
        lines = []
        for _ in range(count):
            y, kind = self.name(), self.rng.integers(6)
            if kind == 0 and deep:
                c, s = self.name(), self.name()
                lines.append(f"{s} = ReduceSum <keepdims = 0> ({self.pick(live)}) {c} = Greater ({s}, some)")
                arms = []
                for word in ("then_branch", "else_branch"):
                    inside = list(live)
                    text = self.steps(inside, deep - 1, int(self.rng.integers(1, 4)))
                    arms.append(f"{word} = {self.name()} () => (float[q] {inside[-1]}) {{ {text} }}")
                lines.append(f"{y} = If ({c}) <{', '.join(arms)}>")
            elif kind == 1:
                lines.append(f"{y} = Concat <axis = 0> ({self.pick(live)}, {self.pick(live)})")
            elif kind == 2:
                lines.append(f"{y} = Slice ({self.pick(live)}, zero, half)")
            elif kind == 3:
                s = self.name()
                lines.append(f"{s} = ReduceMean ({self.pick(live)}) {y} = Add ({self.pick(live)}, {s})")
            else:
                lines.append(f"{y} = {self.rng.choice(['Tanh', 'Neg', 'Sin', 'Abs'])} ({self.pick(live)})")
            live.append(y)
        return " ".join(lines)

    def model(self):
        live = ["x", "w"]
        steps = self.steps(live, 2, 10)
        ends = [self.name() for _ in live]
        sums = " ".join(f"{e} = ReduceMean <keepdims = 0> ({v})" for e, v in zip(ends, live, strict=True))
        return parsed(
            f"m (float[{self.rng.integers(2, 30)}] x, float[20] w) => (float[20] y, float[20] z) <{CONSTANTS}> {{ {steps} {sums}"
            f" total = Sum ({', '.join(ends)}) y = Add (w, total) z = Mul (y, total) }}"
        )


def drawn(seed):
    """Whether a drawn model is a program; it computes what onnxruntime computes."""
    writer = Writer(seed)
    made = writer.model()
    size = made.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    session = native(made)
    for _ in range(4):
        feeds = {"x": writer.rng.standard_normal(size), "w": writer.rng.standard_normal(20)}
        feeds = {name: x.astype(np.float32) for name, x in feeds.items()}
        wanted = expected(made, feeds)
        for _ in range(2):
            same(session.run(None, feeds), wanted, rtol=1e-4, atol=1e-4)
        for planned in session._program._plans:
            for program in [getattr(step, "program", None) for step in planned.plan.steps]:
                if hasattr(program, "_memory"):
                    block, address = program._memory()
                    block[:] = 0x7F
                    program._spare[:] = [(block, address)]
        strided = {name: np.repeat(x, 2)[::2] for name, x in feeds.items()}
        same(session.run(None, strided), wanted, rtol=1e-4, atol=1e-4)
    return "program: " in session.explain()


@pytest.mark.drawn
@pytest.mark.parametrize("begin", range(0, 20, 4))
def test_drawn_graphs(begin):
    assert sum(map(drawn, range(begin, begin + 4))) >= 2
