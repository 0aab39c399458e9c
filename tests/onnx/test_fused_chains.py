"""Drawn chains of nodes of all types: one kernel, or program, gives the bits that the nodes give one by one."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import anydml as dml

FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int8", "uint8", "int16", "int32", "int64")
ONE = "Neg Abs Relu Sign Exp Tanh Sigmoid Sqrt Softplus Reciprocal Floor Round LeakyRelu".split()
TWO = "Add Sub Mul Max Min Div".split()


def numpy_type(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def code(name):
    return helper.np_dtype_to_tensor_dtype(numpy_type(name))


class Chain:
    """Nodes over what came before, and its types."""

    def __init__(self, rng):
        self.rng, self.nodes, self.constants = rng, [], []
        self.types = {"a": str(rng.choice(FLOATS)), "b": str(rng.choice(WHOLE))}
        self.last = "a"
        for _ in range(7):
            self.grow()

    def add(self, op, inputs, dtype, **attributes):
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [self.last], **attributes))
        self.types[self.last] = dtype

    def known(self, value, dtype):
        name = f"k{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, numpy_type(dtype)), name))
        return name

    def grow(self):
        rng, x, dtype = self.rng, self.last, self.types[self.last]
        others = [v for v, t in self.types.items() if t == dtype]
        kind = rng.integers(5)
        if kind == 0:
            wanted = str(rng.choice([t for t in (*FLOATS, *WHOLE) if t != dtype]))
            self.add("Cast", [x], wanted, to=code(wanted))
        elif kind == 1 and dtype in ("float16", "float32"):
            whole = str(rng.choice(WHOLE[:3]))
            scale, zero = self.known(rng.choice([0.1, 0.5, 3]), dtype), self.known(3, whole)
            self.add("QuantizeLinear", [x, scale, zero], whole)
            self.add("DequantizeLinear", [self.last, scale, zero], dtype)
        elif kind == 2 and dtype in WHOLE:
            op = str(rng.choice(["Div", "Mod"]))
            self.add(op, [x, self.known(rng.choice([-3, 2, 7]) if dtype != "uint8" else 7, dtype)], dtype)
        elif kind == 3 or dtype in WHOLE:
            ops = TWO if dtype in FLOATS else TWO[:5]
            self.add(str(rng.choice(ops)), [x, str(rng.choice(others))], dtype)
        else:
            self.add(str(rng.choice(ONE)), [x], dtype)

    def model(self, nodes, results):
        made = {o for n in nodes for o in n.output}
        read = dict.fromkeys(i for n in nodes for i in n.input if i not in made)
        known = [c for c in self.constants if c.name in read]
        inputs = [
            helper.make_tensor_value_info(v, code(self.types[v]), [5, 33]) for v in read if v in self.types
        ]
        outputs = [helper.make_tensor_value_info(v, code(self.types[v]), [5, 33]) for v in results]
        graph = helper.make_graph(nodes, "g", inputs, outputs, known)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run(model, values, native):
    session = dml.load(model, threads=1, native=native)
    results = session.run(None, {i.name: values[i.name] for i in model.graph.input})
    return dict(zip([o.name for o in model.graph.output], results, strict=True)), session.explain()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.drawn
def test_a_chain(seed, native):
    rng = np.random.default_rng(seed)
    chain = Chain(rng)
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 127.5, -128.5, 255, 65504]
    numbers = np.concatenate([rng.standard_normal(165 - len(special)) * 50, special]).reshape(5, 33)
    values = {"a": numbers.astype(numpy_type(chain.types["a"]))}
    values["b"] = rng.integers(-100, 100, (5, 33)).astype(chain.types["b"])
    alone = dict(values)
    for node in chain.nodes:
        found, _ = run(chain.model([node], list(node.output)), alone, False)
        alone |= found
    ends = [chain.last, chain.nodes[2].output[0]]
    together, said = run(chain.model(chain.nodes, ends), values, native)
    assert ("program" if native else "kernels") in said
    for v in ends:
        got, wanted = together[v], alone[v]
        assert got.dtype == wanted.dtype
        number = ~np.isnan(wanted.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), ~number)
        bits = f"u{wanted.dtype.itemsize}"
        np.testing.assert_array_equal(got[number].view(bits), wanted[number].view(bits))
