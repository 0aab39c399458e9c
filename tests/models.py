"""Small ONNX models for the tests, and how their results are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import anydml

NEWEST = onnx.defs.onnx_opset_version()
OPSETS = [
    *sorted({s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == "If"}),
    NEWEST,
]
"""Every opset that changed `If`, and the newest one."""

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
DTYPES = ["bool", "string", *FLOATS, "complex64", "complex128", *INTEGERS]
"""The element types that `If` takes at opset 13."""


# ---- parts -------------------------------------------------------------------------------------------


def code(dtype: str) -> int:
    return TensorProto.STRING if dtype == "string" else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def info(
    name: str, dtype: str = "float32", sizes: Sequence[int | str | None] | None = None
) -> ValueInfoProto:
    """A tensor's declaration; without sizes it has no shape at all."""
    return helper.make_tensor_value_info(name, code(dtype), sizes)


def seq_info(name: str, dtype: str = "float32") -> ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, code(dtype), None)


def untyped(name: str) -> ValueInfoProto:
    return ValueInfoProto(name=name)


def initializer(name: str, content: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(content), name)


def constant(name: str, content: Any) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=initializer(name, content))


def node(
    op: str, inputs: Sequence[str], outputs: Sequence[str] | str, name: str = "", **attributes: Any
) -> NodeProto:
    outputs = [outputs] if isinstance(outputs, str) else outputs
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def branch(
    nodes: Iterable[NodeProto],
    outputs: Sequence[ValueInfoProto | str],
    initializers: Sequence[TensorProto] = (),
) -> GraphProto:
    """A branch; outputs given by name alone are declared float32 without a shape."""
    declared = [info(o) if isinstance(o, str) else o for o in outputs]
    return helper.make_graph(list(nodes), "branch", [], declared, initializer=list(initializers))


def if_node(
    condition: str,
    then: GraphProto,
    otherwise: GraphProto,
    outputs: Sequence[str] | str = "y",
    name: str = "choose",
) -> NodeProto:
    return node("If", [condition], outputs, name, then_branch=then, else_branch=otherwise)


def model(
    nodes: Iterable[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    opset: int = 21,
    initializers: Sequence[TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> ModelProto:
    graph = helper.make_graph(list(nodes), "main", inputs, outputs, initializer=list(initializers))
    imports = {"": opset, **(domains or {})}
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(d, v) for d, v in imports.items()],
        functions=list(functions),
        ir_version=10 if opset <= 23 else onnx.IR_VERSION,
    )


# ---- models ------------------------------------------------------------------------------------------

COND = info("cond", "bool", [])


def one_if(then: GraphProto, otherwise: GraphProto, *inputs: ValueInfoProto, opset: int = 21) -> ModelProto:
    """`y = If(cond)`, and the inputs that its branches use."""
    return model([if_node("cond", then, otherwise)], [COND, *inputs], [info("y")], opset)


def choice(opset: int = 21) -> ModelProto:
    """`cond` True gives [1, 2], False gives [3, 4]."""
    return one_if(
        branch([constant("t", np.float32([1, 2]))], [info("t", sizes=[2])]),
        branch([constant("e", np.float32([3, 4]))], [info("e", sizes=[2])]),
        opset=opset,
    )


def nested(depth: int) -> ModelProto:
    """`depth` Ifs within each other, on the elements of `conds`: each taken but the deepest adds 1 to x.

    Every level captures x, the 1 and its condition from the outermost graph.
    """
    graph = branch([node("Identity", ["x"], "deepest")], ["deepest"])
    for k in reversed(range(depth)):
        inner = if_node(
            f"c{k}", graph, branch([node("Identity", ["x"], f"e{k}")], [f"e{k}"]), f"y{k}", f"if{k}"
        )
        if k == 0:
            break
        graph = branch([inner, node("Add", [f"y{k}", "one"], f"t{k}")], [f"t{k}"])
    parts = [node("Split", ["conds"], [f"c{k}" for k in range(depth)], num_outputs=depth)]
    return model(
        [*parts, inner],
        [info("conds", "bool", [depth]), info("x")],
        [info("y0")],
        initializers=[initializer("one", np.float32(1))],
    )


# ---- running and comparing ---------------------------------------------------------------------------


def run(source: Any, **feeds: Any) -> list[Any]:
    return anydml.load(source, threads=1).run(None, feeds)


def sample(dtype: str, sizes: tuple[int, ...] = (2, 3), start: int = 0) -> np.ndarray[Any, Any]:
    """Contents that show a wrong bit: extremes, NaN, infinities, -0.0, empty and non-ASCII strings."""
    if dtype == "string":
        few: list[Any] = ["a", "", "ünïcode", "b c", "0"]
    elif dtype == "bool":
        few = [True, False, False, True, True]
    elif dtype in INTEGERS:
        limits = np.iinfo(dtype)
        few = [limits.min, limits.max, 1, 0, 77]
    else:
        few = [np.nan, -0.0, np.inf, -np.inf, 1.5]
        if dtype.startswith("complex"):
            few = [complex(a, b) for a, b in zip(few, [1.0, -0.0, np.nan, 2.0, -0.5], strict=True)]
    size = int(np.prod(sizes))
    content = [few[(start + k) % len(few)] for k in range(size)]
    return np.array(content, dtype=object if dtype == "string" else dtype).reshape(sizes)


def assert_same(got: Any, expected: Any) -> None:
    """The same kind, element type, shape and bits; sequences item by item."""
    if isinstance(expected, list):
        assert isinstance(got, list)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
        return
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if got.dtype == object:
        assert got.tolist() == expected.tolist()
    else:
        assert got.tobytes() == expected.tobytes(), f"{got!r} is not {expected!r}"


def refused(source: Any, *patterns: str, error: type[Exception] = anydml.InvalidModel) -> Any:
    """Loading fails, and the message has all of these; the error."""
    with pytest.raises(error) as caught:
        anydml.load(source, threads=1)
    for pattern in patterns:
        assert re.search(pattern, str(caught.value)), str(caught.value)
    return caught.value


def computed_or_given(x: str, y: str, node: str) -> str:
    """The text of a graph whose If gives what a node makes of `x`, or else the input `z`; `yes` decides.

    `x`, `y`: types with sizes, as in `float[n,8]`.
    """
    return f"""({x} x, bool yes, {y} z) => ({y} y) {{
        y = If (yes) <then_branch = t () => ({y} a) {{ a = {node} }},
            else_branch = e () => ({y} b) {{ b = Identity (z) }}> }}"""


def content_of(declared: str, rng: np.random.Generator, **sizes: int) -> np.ndarray:
    """Numbers from 0 to 5 of a type with sizes, as in `float[n,8]`, with what symbols stand for."""
    kind, _, dims = declared[:-1].partition("[")
    shape = [sizes[n] if n in sizes else int(n) for n in dims.split(",")]
    return rng.uniform(0, 5, shape).astype(np.float32 if kind == "float" else kind)
