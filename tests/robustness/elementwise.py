"""Nodes that work element by element, and the reductions."""

from __future__ import annotations

import numpy as np

from tests.robustness.building import Graph, Rejected, Value
from tests.robustness.values import CODES, FLOATS, INTEGERS, draw

UNARY = {
    **dict.fromkeys(
        "Abs Neg Ceil Floor Round Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh".split(), 1
    ),
    **dict.fromkeys(
        "Tanh Asinh Acosh Atanh Erf Sigmoid HardSigmoid Relu LeakyRelu Elu Selu Softplus".split(), 1
    ),
    **dict.fromkeys("Softsign Sign Identity ThresholdedRelu Shrink Celu Abs Neg Relu Identity".split(), 12),
    "HardSwish": 14,
    "Mish": 18,
    "Gelu": 20,
    "Swish": 24,
}
ALPHA = {"LeakyRelu", "Elu", "ThresholdedRelu", "Celu", "HardSigmoid", "Swish"}
ARITHMETIC = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Max",
    "Min",
    "Sum",
    "Mean",
    "Pow",
    "Mod",
    "PRelu",
    "Add",
    "Mul",
    "Sub",
]
COMPARISONS = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
REDUCTIONS = """ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceSumSquare""".split()


def broadcasts(g: Graph, a: Value, b: Value) -> bool:
    """Whether they broadcast on every live feed."""
    try:
        for x, y, alive in zip(a.data, b.data, g.live, strict=True):
            if alive and np.prod(np.broadcast_shapes(x.shape, y.shape)) > 4000:
                return False
    except (ValueError, AttributeError):
        return False
    return True


def known_like(g: Graph, a: Value, special: float = 0.1) -> Value:
    """A constant that broadcasts with `a`."""
    shapes = g.shapes(a)
    rank = g.rank(a)
    sizes: list[int] = []
    if rank > 0 and g.shared.chance(0.7):
        keep = int(g.rng.integers(0, rank + 1))
        for axis in range(rank - keep, rank):
            same = {s[axis] for s in shapes}
            size = same.pop() if len(same) == 1 else 1
            sizes.append(size if g.shared.chance(0.7) else 1)
    if g.shared.chance(0.1) and rank >= 0:
        sizes = [1] * (rank + 1 - len(sizes)) + sizes
    return g.const(draw(g.rng, a.dtype, tuple(sizes), special), a.dtype)


def partner(g: Graph, a: Value) -> Value:
    """A value of the same type that broadcasts with `a`."""
    if g.shared.chance(0.65):
        try:
            return g.choose(lambda v: v.kind == a.kind and broadcasts(g, a, v))
        except Rejected:
            pass
    return known_like(g, a)


def either(g: Graph, a: Value, b: Value) -> tuple[Value, Value]:
    return (a, b) if g.shared.chance(0.5) else (b, a)


def unary(g: Graph) -> None:
    op = g.shared.pick([o for o, since in UNARY.items() if since <= g.opset])
    ints = op in {"Abs", "Neg", "Sign", "Identity", "Relu"}
    x = g.tensor((*FLOATS, *INTEGERS) if ints and g.shared.chance(0.4) else FLOATS)
    attributes: dict[str, float | str] = {}
    if op in ALPHA and g.shared.chance(0.6):
        attributes["alpha"] = float(
            g.shared.pick([0.0, 0.25, 0.5, 1.0, 1.5] if op != "Celu" else [0.5, 1.0, 2.0])
        )
    if op == "Gelu" and g.shared.chance(0.5):
        attributes["approximate"] = "tanh"
    if op == "Shrink":
        attributes = {"lambd": 0.5, "bias": float(g.shared.pick([0.0, 0.25]))}
    g.one(op, x, **attributes)


def arithmetic(g: Graph) -> None:
    op = g.shared.pick(ARITHMETIC)
    integers = g.shared.chance(0.35)
    x = g.tensor(INTEGERS if integers else FLOATS)
    if op == "Pow":
        exponent = g.const(g.shared.pick([0, 1, 2, 3] if integers else [0, 0.5, 2, 3, -1]), x.dtype)
        g.one(op, x, exponent)
    elif op in {"Div", "Mod"} and integers:
        # A divisor that can be 0 or -1 ends the process in onnxruntime.
        low = known_like(g, x, special=0.0)
        divisor = g.const(np.maximum(low.data[0], 1), x.dtype)
        fmod = {"fmod": int(g.rng.integers(2))} if op == "Mod" else {}
        g.one(op, x, divisor, **fmod)
    elif op == "Mod":
        g.one(op, x, partner(g, x), fmod=1)
    elif op == "PRelu":
        slope = known_like(g, x)
        if any(np.broadcast_shapes(s, slope.data[0].shape) != s for s in g.shapes(x)):
            raise Rejected("PRelu broadcasts one way")
        g.one(op, x, slope)
    elif op in {"Max", "Min", "Sum", "Mean"}:
        if op in {"Sum", "Mean"} and integers:
            raise Rejected("floats only")
        several = [x, *(partner(g, x) for _ in range(int(g.rng.integers(0, 3))))]
        g.add(op, several)
    else:
        g.one(op, *either(g, x, partner(g, x)))


def comparison(g: Graph) -> None:
    op = g.shared.pick(COMPARISONS if g.opset >= 12 else COMPARISONS[:3])
    types = (*FLOATS, *INTEGERS)
    x = g.tensor((*types, "bool", "string") if op == "Equal" else types)
    g.one(op, *either(g, x, partner(g, x)))


def logic(g: Graph) -> None:
    op = g.shared.pick(["And", "Or", "Xor", "Not"])
    x = g.tensor(["bool"])
    if op == "Not":
        g.one(op, x)
    else:
        g.one(op, *either(g, x, partner(g, x)))


def bits(g: Graph) -> None:
    ops = ["BitShift"] + ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"] * (g.opset >= 18)
    op = g.shared.pick(ops)
    if op == "BitShift":
        x = g.tensor([d for d in INTEGERS if d[0] == "u"])
        g.one(op, x, g.const(g.rng.integers(0, 8, ()), x.dtype), direction=g.shared.pick(["LEFT", "RIGHT"]))
        return
    x = g.tensor(INTEGERS)
    if op == "BitwiseNot":
        g.one(op, x)
    else:
        g.one(op, *either(g, x, partner(g, x)))


def predicates(g: Graph) -> None:
    op = g.shared.pick(["IsNaN", "IsInf"])
    x = g.tensor(["float32", "float64", "float16"])
    if op == "IsNaN" or g.shared.chance(0.5):
        g.one(op, x)
    else:
        g.one(op, x, detect_negative=int(g.rng.integers(2)), detect_positive=int(g.rng.integers(2)))


def where(g: Graph) -> None:
    condition = g.tensor(["bool"])
    x = g.choose(lambda v: v.tensor and broadcasts(g, condition, v))
    y = partner(g, x)
    g.one("Where", condition, *either(g, x, y))


def cast(g: Graph) -> None:
    if g.shared.chance(0.05):
        texts = g.const(np.array(["1", "2.5", "-0.25", "0"], object), "string")
        g.one("Cast", texts, to=CODES[g.shared.pick(["float32", "float64"])])
        return
    x = g.tensor((*FLOATS, *INTEGERS, "bool"))
    to = g.shared.pick(
        ["float32"] * 4 + ["int64"] * 3 + ["float64", "float16", "int32", "uint8", "int8", "bool", "string"]
    )
    if to == "string" and x.dtype not in {"int64", "int32"}:
        raise Rejected("implementations print floats in different ways")
    if x.dtype in FLOATS and to not in FLOATS and to != "bool":
        limits = np.iinfo(to)
        every = [d for d in x.data if isinstance(d, np.ndarray)]
        if x.volatile or not all(
            np.isfinite(d).all() and (d > int(limits.min) - 1.0).all() and (d < float(limits.max)).all()
            for d in every
        ):
            raise Rejected("what has no place in an integer is not defined")
    if g.opset >= 15 and g.shared.chance(0.15):
        g.one("CastLike", x, g.const(draw(g.rng, to, (1,)), to))
    else:
        g.one("Cast", x, to=CODES[to])


def clip(g: Graph) -> None:
    x = g.tensor((*FLOATS, *INTEGERS) if g.opset >= 12 and g.shared.chance(0.4) else ["float32"])
    low, high = sorted(int(k) for k in g.rng.integers(0 if x.dtype[0] == "u" else -3, 4, 2))
    bounds = [g.const(b, x.dtype) if g.shared.chance(0.8) else None for b in (low, high)]
    g.one("Clip", x, *bounds)


def axes_of(g: Graph, rank: int) -> list[int] | None:
    """Some axes, some of them negative; None for none given."""
    if rank == 0 or g.shared.chance(0.2):
        return None
    axes = g.rng.permutation(rank)[: int(g.rng.integers(1, rank + 1))]
    return [int(a) - rank * g.shared.chance(0.3) for a in axes]


def reduction(g: Graph) -> None:
    op = g.shared.pick(REDUCTIONS)
    x = g.tensor(
        (*FLOATS, "int64", "int32") if g.shared.chance(0.3) else FLOATS, test=lambda v: g.rank(v) >= 0
    )
    axes = axes_of(g, g.rank(x))
    attributes: dict[str, object] = {"keepdims": int(g.rng.integers(2))} if g.shared.chance(0.7) else {}
    as_input = g.opset >= (13 if op == "ReduceSum" else 18)
    if as_input and g.shared.chance(0.2):
        attributes["noop_with_empty_axes"] = int(g.rng.integers(2))
    if axes is None:
        g.one(op, x, **attributes)
    elif as_input:
        g.one(op, x, g.const(axes, "int64"), **attributes)
    else:
        g.one(op, x, axes=axes, **attributes)


def arg(g: Graph) -> None:
    x = g.tensor((*FLOATS, "int32"), range(1, 5))
    rank = g.rank(x)
    attributes = {"axis": int(g.rng.integers(-rank, rank)), "keepdims": int(g.rng.integers(2))}
    if g.opset >= 12 and g.shared.chance(0.3):
        attributes["select_last_index"] = 1
    g.one(g.shared.pick(["ArgMax", "ArgMin"]), x, **attributes)


def softmax(g: Graph) -> None:
    x = g.tensor(FLOATS, range(1, 5))
    rank = g.rank(x)
    op = g.shared.pick(["Softmax", "Softmax", "LogSoftmax", "Hardmax"])
    g.one(op, x, **({"axis": int(g.rng.integers(-rank, rank))} if g.shared.chance(0.8) else {}))


def truth(g: Graph) -> None:
    """A bool of one element from data, for later conditions."""
    x = g.tensor(["float32", "int64"])
    total = g.one("ReduceSum", x, keepdims=0)
    g.one(g.shared.pick(["Greater", "Less"]), total, g.const(g.shared.pick([0, 1, 2]), x.dtype))


FAMILIES = [
    (14, unary),
    (14, arithmetic),
    (5, comparison),
    (3, logic),
    (2, bits),
    (2, predicates),
    (5, where),
    (6, cast),
    (4, clip),
    (9, reduction),
    (3, arg),
    (4, softmax),
    (3, truth),
]
