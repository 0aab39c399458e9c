"""Random models with Ifs nested up to 6 deep give what onnx.reference gives, run after run, for every kind of input."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, given, note, settings
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

import anydml
from tests.models import branch, constant, if_node, info, initializer, model, node

INPUTS = {
    "x": ("float32", ["R", "C"]),
    "row": ("float32", ["C"]),
    "s": ("float32", []),
    "k": ("int64", ["C"]),
    "j": ("int64", []),
    "b": ("bool", ["R", "C"]),
    "flag": ("bool", []),
}
FLOATS = [0.0, -0.0, 1.0, -2.0, 3.5, np.inf, -np.inf, np.nan]


@dataclass
class Scope:
    """The values that can be used at one place, and the nodes added there.

    `fits`: by element type, what broadcasts to (R, C); `others`: of any shape; `truths`: conditions.
    """

    depth: int
    fits: dict[str, list[str]]
    others: dict[str, list[str]]
    truths: list[str]
    nodes: list[NodeProto] = field(default_factory=list)
    count: int = 0

    def fresh(self) -> str:
        """Sibling branches get the same names, on purpose."""
        self.count += 1
        return f"v{self.depth}_{self.count}"

    def add(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = self.fresh()
        self.nodes.append(node(op, inputs, name, f"n_{name}", **attributes))
        return name

    def const(self, content: object) -> str:
        name = self.fresh()
        self.nodes.append(constant(name, content))
        return name

    def inner(self) -> Scope:
        fits, others = ({t: list(v) for t, v in d.items()} for d in (self.fits, self.others))
        return Scope(self.depth + 1, fits, others, list(self.truths))


class Builder:
    def __init__(self, draw):
        self.draw = draw

    def pick(self, items):
        return self.draw(st.sampled_from(items))

    def fit(self, scope, dtype):
        return self.pick(scope.fits[dtype])

    def any(self, scope, dtype):
        return self.pick(scope.fits[dtype] + scope.others[dtype])

    def element_wise(self, scope):
        dtype = self.pick(["float32", "int64", "bool"])
        if dtype == "bool":
            op = self.pick(["Not", "And", "Or", "Xor", "IsInf", "IsNaN", "Greater", "Less", "Equal", "Where"])
        else:
            op = self.pick(["Add", "Sub", "Mul", "Neg", "Abs", "Max", "Where", "Where", "Identity", "Cast"])
        source = self.pick(["float32", "int64"]) if op in ("Greater", "Less", "Equal") else dtype
        if op in ("IsInf", "IsNaN"):
            source = "float32"
        attributes = {}
        if op == "Max" and dtype == "float32":
            op = "Sub"  # libraries differ on the maximum of NaN
        if op == "IsInf":
            attributes = {"detect_positive": self.pick([0, 1]), "detect_negative": self.pick([0, 1])}
        if op == "Cast":  # never from floats to integers, where NaN has no meaning
            source = self.pick(["bool", "int64"])
            attributes = {"to": 1 if dtype == "float32" else 7}
        arity = 1 if op in ("Not", "IsInf", "IsNaN", "Neg", "Abs", "Identity", "Cast") else 2
        inputs = [self.fit(scope, source) for _ in range(arity)]
        if op == "Where":
            inputs = [self.fit(scope, "bool"), *inputs]
        scope.fits[dtype].append(scope.add(op, inputs, **attributes))

    def reshaping(self, scope):
        dtype = self.pick(["float32", "int64", "bool"])
        source = self.any(scope, dtype)
        op = self.pick(["Transpose", "Reshape", "Unsqueeze", "Identity", "Neg", "Shape", "Size", "Sum"])
        if op == "Neg" and dtype != "bool":
            name = scope.add("Neg", [source])
        elif op == "Reshape":
            name = scope.add(op, [source, scope.const(np.int64([-1]))])
        elif op == "Unsqueeze":
            name = scope.add(op, [source, scope.const(np.int64([0]))])
        elif op in ("Shape", "Size"):
            name, dtype = scope.add(op, [source]), "int64"
        elif op == "Sum":
            name, dtype = scope.add("ReduceSum", [self.any(scope, "int64")], keepdims=0), "int64"
            scope.fits["int64"].append(name)
            return
        else:
            name = scope.add("Transpose" if op == "Neg" else op, [source])
        scope.others[dtype].append(name)

    def condition(self, scope):
        kind = self.pick(["old", "constant", "size", "shape", "integer", "data", "not", "and"])
        if kind == "old":
            return self.pick(scope.truths)
        limit = scope.const(np.int64(self.pick([0, 1, 2, 3, 6])))
        if kind == "constant":
            name = scope.const(np.full(self.pick([(), (1,), (1, 1)]), self.pick([True, False])))
        elif kind == "size":
            size = scope.add("Size", [self.any(scope, self.pick(["float32", "int64", "bool"]))])
            name = scope.add("Greater", [size, limit])
        elif kind == "shape":
            name = scope.add(
                "Greater", [scope.add("ReduceSum", [scope.add("Shape", ["x"])], keepdims=0), limit]
            )
        elif kind == "integer":
            total = scope.add("ReduceSum", [self.any(scope, "int64")], keepdims=0)
            name = scope.add(self.pick(["Greater", "Less", "Equal"]), [total, limit])
        elif kind == "data":
            count = scope.add("Cast", [self.any(scope, "bool")], to=7)
            name = scope.add(
                "Greater", [scope.add("ReduceSum", [count], keepdims=self.pick([0, 0, 1])), limit]
            )
            if scope.nodes[-2].attribute[0].i:  # kept dimensions of 1: one element, of some rank
                name = scope.add("Reshape", [name, scope.const(np.int64([1, 1]))])
        elif kind == "not":
            name = scope.add("Not", [self.pick(scope.truths)])
        else:
            flat = scope.const(np.int64([1]))
            both = [scope.add("Reshape", [self.pick(scope.truths), flat]) for _ in range(2)]
            name = scope.add("And", both)
        scope.truths.append(name)
        scope.fits["bool"].append(name)
        return name

    def choice(self, scope):
        condition = self.condition(scope)
        dtypes = [self.pick(["float32", "int64", "bool"]) for _ in range(self.draw(st.integers(1, 3)))]
        graphs, fitting = [], []
        for _ in range(2):
            inner = scope.inner()
            self.fill(inner, self.draw(st.integers(0, 4)))
            chosen = [self.any(inner, t) for t in dtypes]
            fitting.append([n in inner.fits[t] for n, t in zip(chosen, dtypes, strict=True)])
            named = [
                inner.add("Identity", [n]) if self.pick([True, True, False]) or n in chosen[:i] else n
                for i, n in enumerate(chosen)
            ]
            graphs.append(branch(inner.nodes, [info(n, t) for n, t in zip(named, dtypes, strict=True)]))
        outputs = [scope.fresh() for _ in dtypes]
        scope.nodes.append(if_node(condition, *graphs, outputs, f"if_{outputs[0]}"))
        for name, dtype, a, b in zip(outputs, dtypes, *fitting, strict=True):
            (scope.fits if a and b else scope.others)[dtype].append(name)

    def fill(self, scope, steps):
        for _ in range(steps):
            kinds = [self.element_wise, self.element_wise, self.reshaping] + [self.choice] * (
                2 if scope.depth < 6 else 0
            )
            self.pick(kinds)(scope)


@st.composite
def models(draw):
    builder = Builder(draw)
    scope = Scope(
        0,
        {"float32": ["x", "row", "s", "w"], "int64": ["k", "j"], "bool": ["b", "flag"]},
        {"float32": [], "int64": [], "bool": []},
        ["flag", "known"],
    )
    builder.fill(scope, draw(st.integers(1, 5)))
    builder.choice(scope)
    builder.fill(scope, draw(st.integers(0, 3)))
    made = {t: scope.fits[t] + scope.others[t] for t in scope.fits}
    outputs = [(n, t) for t, names in made.items() for n in names if n.startswith("v")][-6:]
    return model(
        scope.nodes,
        [info(n, t, sizes) for n, (t, sizes) in INPUTS.items()],
        [info(n, t) for n, t in outputs],
        initializers=[initializer("w", np.float32(2.5)), initializer("known", np.array(draw(st.booleans())))],
    )


@st.composite
def feeds(draw):
    sizes = {"R": draw(st.integers(0, 3)), "C": draw(st.integers(1, 3))}
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    made = {}
    for name, (dtype, shape) in INPUTS.items():
        dims = [sizes[n] for n in shape]
        if dtype == "float32":
            made[name] = rng.choice(np.float32(FLOATS), dims)
        else:
            made[name] = np.asarray(
                rng.integers(0, 2, dims) if dtype == "bool" else rng.integers(-3, 4, dims), dtype
            )
        made[name] = np.asarray(made[name])
    return made


def assert_equal(got, expected):
    """Equal values, types and shapes; every bit but the sign and payload of NaN."""
    expected = np.asarray(expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(got, expected)
    if got.dtype.kind == "f":
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking a model takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(models(), st.lists(feeds(), min_size=3, max_size=3))
def test_random_models(built, many):
    note(onnx.printer.to_text(built))
    session = anydml.load(built, threads=1)
    reference = ReferenceEvaluator(built)
    for given_ in [*many, many[0]]:
        before = {n: a.copy() for n, a in given_.items()}
        with np.errstate(all="ignore"):
            expected = reference.run(None, given_)
        got = session.run(None, given_)
        for a, b in zip(got, expected, strict=True):
            assert_equal(a, b)
        for name, content in before.items():
            assert given_[name].tobytes() == content.tobytes()
