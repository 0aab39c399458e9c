"""Random graphs: fused kernels, one kernel a node, and the NumPy reference give the same bits."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import anydml as dml
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.dtypes import SIGNED
from anydml.ops.enums import FeatureLevel
from anydml.runtime.reference import run_reference

NEWEST = FeatureLevel.newest()
SIZES = [(3, 4, 5), (4, 5), (1, 5), (3, 1, 1), (5,), (3, 4, 1), (1, 1, 1)]
FULL = SIZES[0]
ATTRIBUTES = {
    "alpha": 0.5,
    "beta": 0.75,
    "min": -1,
    "max": 3,
    "bias": 1,
    "threshold": 0.5,
    "exponent": 1.5,
    "axes": [-1],
}
OPERATORS = [o for o in ELEMENT_WISE if not any(s.sizes == "1" for s in o.tensors)]
ROWS_ONLY = {f"ACTIVATION_{name}" for name in ("SOFTMAX", "LOG_SOFTMAX", "HARDMAX")}


def contents(rng, dtype, sizes):
    kind = np.dtype(dtype)
    if kind.kind == "f":
        x = rng.standard_normal(sizes) * rng.choice([0.1, 1, 30])
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 65504], sizes)
        return np.where(rng.random(sizes) < 0.05, special, x).astype(kind)
    low = -9 if kind.kind == "i" else 0
    return rng.integers(low, 9, sizes).astype(kind)


class Growing:
    """A graph that is drawn node by node."""

    def __init__(self, draw, seed):
        self.draw, self.rng = draw, np.random.default_rng(seed)
        self.g, self.arrays, self.known = dml.GraphBuilder(dml.Device(threads=1)), {}, []

    def input(self, dtype):
        sizes = self.draw(st.sampled_from(SIZES))
        name = f"in{len(self.arrays)}"
        self.arrays[name] = contents(self.rng, dtype, sizes)
        e = self.g.input(name, dtype.upper(), sizes)
        if len(sizes) == 3 and self.draw(st.integers(0, 5)) == 0:
            turned = self.g.input(name + "t", dtype.upper(), sizes[::-1])
            self.arrays[name + "t"] = contents(self.rng, dtype, sizes[::-1])
            e = turned.transpose()
        self.known.append(e)
        return e

    def operand(self, dtype):
        """Something known of this type, a number, or a new input."""
        fitting = [e for e in self.known if e.data_type.label == dtype]
        if fitting and self.draw(st.integers(0, 4)):
            return self.draw(st.sampled_from(fitting[-6:]))
        return self.input(dtype)

    def node(self):
        operator = self.draw(st.sampled_from(OPERATORS))
        table = operator.table(NEWEST)
        letters = {
            k: self.draw(st.sampled_from(sorted(t.label for t in ts))) for k, ts in table.dtypes.items()
        }
        letters = self.favour(operator, table, letters)
        if operator.name == "ELEMENT_WISE_QUANTIZE_LINEAR":
            letters["C"] = "float32" if letters["T"] == "int32" else letters["T"]
        operands = [self.operand(letters[s.dtype]) for s in operator.inputs]
        if operator.name.startswith("ELEMENT_WISE_BIT_"):
            operands = [settled(e) for e in operands]
        if (
            len(operands) > 1
            and operator.inputs[0].dtype == operator.inputs[1].dtype
            and self.draw(st.integers(0, 6)) == 0
        ):
            operands[1] = self.draw(st.sampled_from([0, 1, 2]))
        values = {
            a.parameter: ATTRIBUTES[a.parameter] for a in operator.parameters if a.parameter in ATTRIBUTES
        }
        if "min" in values and not (
            letters["T"].startswith("f") or dml.TensorDataType[letters["T"].upper()] in SIGNED
        ):
            values["min"] = 1
        if operator.name in ROWS_ONLY and len(operands[0].sizes) > 2 and operands[0].sizes[0] > 1:
            return
        if operator.free_output and len(table.dtypes[operator.free_output]) > 1:
            values["output_data_type"] = letters[operator.free_output]
        self.known.append(getattr(dml, operator.function)(*operands, **values))

    def favour(self, operator, table, letters):
        """Types that something known has, so that graphs hang together."""
        for letter, types in table.dtypes.items():
            labels = {t.label for t in types}
            at_hand = [e.data_type.label for e in self.known if e.data_type.label in labels]
            if at_hand and self.draw(st.integers(0, 3)):
                letters[letter] = self.draw(st.sampled_from(at_hand[-4:]))
        return letters


@st.composite
def graphs(draw):
    growing = Growing(draw, draw(st.integers(0, 2**32 - 1)))
    growing.input(draw(st.sampled_from(["float32", "float16", "int32", "uint8", "float32"])))
    for _ in range(draw(st.integers(1, 30))):
        growing.node()
    while all(e.name.startswith("%input") for e in growing.known):
        growing.node()
    made = [e for e in growing.known if not e.name.startswith("%input")]
    outputs = [made[-1], *draw(st.lists(st.sampled_from(made), max_size=3))]
    return growing.g, growing.arrays, {f"out{k}": e for k, e in enumerate(outputs)}, made


def settled(e):
    """Floats whose bits say no more than `same` asks for: neither NaNs nor negative zeros."""
    return dml.if_(dml.is_nan(e), 0.0, e) + 0.0 if e.data_type.label in ("float16", "float32") else e


def same(a, b):
    """Equal bits, but for NaN payloads and the sign of a zero that max and min may choose.

    Next to 0, the result of a sum shows the order of its additions in float64.
    """
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f") or (
        a.dtype == np.float32 and np.allclose(a, b, rtol=0, atol=1e-15, equal_nan=True)
    )


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_fused_unfused_and_reference_agree(drawn):
    g, arrays, outputs, made = drawn
    fused = g.compile(outputs)
    got = fused(arrays)
    unfused = g.compile({**outputs, **{f"node {k}": e for k, e in enumerate(made)}})
    plain = one_kernel_a_node(unfused, arrays)
    inputs = {fused._values[n]: a for n, a in arrays.items()}
    results = {n: np.zeros(t.sizes, t.data_type.label) for n, t in fused._outputs.items()}
    with np.errstate(all="ignore"):
        run_reference(fused._graph, [inputs[v] for v in fused._graph.inputs], list(results.values()))
    for name, y in got.items():
        reference = results[name]
        assert same(y, reference), (name, fused.explain(), y, reference)
        assert same(y, plain[name]), (name, fused.explain(), y, plain[name])


def one_kernel_a_node(compiled, arrays):
    """Each node computed alone, through memory."""
    memory = {compiled._values[n]: a for n, a in arrays.items()}
    from anydml.compiled_graph import CompiledGraph
    from anydml.ir.graph import Graph, TensorType

    graph = compiled._graph
    for node in graph.nodes:
        inputs = tuple(dict.fromkeys(v for v in node.inputs if v is not None and v not in graph.constants))
        constants = {v: c for v, c in graph.constants.items() if v in node.inputs}
        alone = Graph("node", inputs, node.outputs, (node,), constants)

        def desc(v):
            assert isinstance(v.type, TensorType)
            return dml.TensorDesc(v.type.dtype.upper(), v.type.sizes, v.type.strides)

        (output,) = node.outputs
        values = {str(k): v for k, v in enumerate((*inputs, output))}
        descs = {n: desc(v) for n, v in values.items()}
        result = str(len(inputs))
        step = CompiledGraph(alone, descs, set(), {result: descs.pop(result)}, 1, values)
        memory[output] = step({n: memory[values[n]] for n in descs})[result]
    return {n: memory[compiled._values[n]] for n in compiled._outputs}
