"""Reductions and normalizations in one kernel with their neighbours, beside one operator at a time."""

import random

import numpy as np
import pytest

import anydml as dml

RNG = np.random.default_rng(11)
SIZES = [(40, 64), (3, 5, 70), (2, 8, 7, 9), (1, 1, 33), (6, 1, 16), (64, 7), (2, 3, 4, 5), (9, 300)]


def array(sizes, dtype=np.float32):
    return RNG.uniform(-2, 2, sizes).astype(dtype)


def axes_in(sizes, rnd):
    rank = len(sizes)
    choices = [[rank - 1], [*range(1, rank)], [*range(rank)], [0], [rank // 2]]
    return rnd.choice(choices)


def repeated(x, like):
    return x.broadcast_to(like.sizes)


class Arrays:
    """Operators on arrays, at once: what the fused graph is compared with."""

    @staticmethod
    def repeated(x, like):
        return np.ascontiguousarray(np.broadcast_to(x, like.shape))

    @staticmethod
    def transposed(x):
        return np.ascontiguousarray(x.T)

    @staticmethod
    def sizes(x):
        return x.shape


class Expressions:
    @staticmethod
    def repeated(x, like):
        return x.broadcast_to(like.sizes)

    @staticmethod
    def transposed(x):
        return x.transpose()

    @staticmethod
    def sizes(x):
        return x.sizes


FUNCTIONS = ["SUM", "AVERAGE", "MAX", "MIN", "L1", "L2", "SUM_SQUARE", "LOG_SUM_EXP"]


def steps_of(seed, sizes):
    """Operators on values by number: the first three are inputs of these sizes, the fourth of the last."""
    rnd = random.Random(seed)
    known = [sizes, sizes, sizes, (1,) * (len(sizes) - 1) + sizes[-1:]]
    steps = []
    for _ in range(rnd.randint(3, 9)):
        k = rnd.randrange(len(known))
        kind = rnd.choice(
            ["reduce", "reduce", "unary", "binary", "binary", "repeat", "normalize", "lp", "turn"]
        )
        own = known[k]
        if kind == "reduce":
            axes = axes_in(own, rnd)
            steps.append((kind, k, rnd.choice(FUNCTIONS), axes))
            known.append(tuple(1 if a in axes else n for a, n in enumerate(own)))
        elif kind == "normalize":
            steps.append((kind, k, axes_in(own, rnd), rnd.choice([None, "RELU", "SIGMOID"])))
            known.append(own)
        elif kind == "lp":
            steps.append((kind, k, rnd.choice([1, 2]), rnd.randrange(len(own))))
            known.append(own)
        elif kind == "unary":
            steps.append((kind, k, rnd.choice(["activation_tanh", "negate", "activation_sigmoid", "abs"])))
            known.append(own)
        elif kind == "turn":
            steps.append((kind, k))
            known.append(own[::-1])
        else:
            fit = [j for j, other in enumerate(known) if fits(other, own)]
            j = rnd.choice(fit)
            steps.append(("binary", k, j, rnd.choice(["add", "multiply", "subtract", "max"])))
            known.append(own)
    return steps


def fits(other, sizes):
    return len(other) == len(sizes) and all(a in (1, n) for a, n in zip(other, sizes, strict=True))


def values_of(steps, inputs, way):
    values = list(inputs)
    for kind, k, *how in steps:
        x = values[k]
        if kind == "reduce":
            values.append(dml.reduce(x, how[0], axes=how[1]))
        elif kind == "normalize":
            axes, activation = how
            values.append(
                dml.mean_variance_normalization1(
                    x, axes=axes, normalize_variance=True, epsilon=1e-3, fused_activation=activation
                )
            )
        elif kind == "lp":
            values.append(dml.lp_normalization(x, p=how[0], axis=how[1], epsilon=1e-3))
        elif kind == "unary":
            values.append(getattr(dml, how[0])(x))
        elif kind == "turn":
            values.append(way.transposed(x))
        else:
            y = values[how[0]]
            y = y if way.sizes(y) == way.sizes(x) else way.repeated(y, x)
            values.append(getattr(dml, how[1])(x, y))
    return values[len(inputs) :]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(120))
def test_random_graphs_give_what_their_operators_give(seed):
    sizes = SIZES[seed % len(SIZES)]
    steps = steps_of(seed, sizes)
    g = dml.GraphBuilder()
    shapes = [sizes, sizes, sizes, (1,) * (len(sizes) - 1) + sizes[-1:]]
    arrays = {f"x{k}": array(s) for k, s in enumerate(shapes)}
    inputs = [g.input(name, "FLOAT32", list(x.shape)) for name, x in arrays.items()]
    made = values_of(steps, inputs, Expressions)
    wanted = values_of(steps, [*arrays.values()], Arrays)
    rnd = random.Random(seed)
    asked = {len(made) - 1, *rnd.sample(range(len(made)), min(2, len(made)))}
    compiled = g.compile({f"y{k}": made[k] for k in asked}, threads=1 + seed % 2)
    for name, y in compiled(arrays).items():
        want = wanted[int(name[1:])]
        assert y.shape == want.shape
        scale = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(y, want, rtol=2e-4, atol=2e-5 * scale, err_msg=str(steps))


def kernels(build, *shapes, dtype="FLOAT32"):
    g = dml.GraphBuilder()
    inputs = [g.input(f"x{k}", dtype, list(s)) for k, s in enumerate(shapes)]
    return g.compile({"y": build(*inputs)})


def softmax(x):
    e = dml.exp(x - repeated(dml.reduce(x, "MAX", axes=[1]), x))
    return e / repeated(dml.reduce(e, "SUM", axes=[1]), e)


def layer_normalization(x, scale, bias):
    centred = x - repeated(dml.reduce(x, "AVERAGE", axes=[1]), x)
    variance = dml.reduce(centred * centred, "AVERAGE", axes=[1])
    return centred / repeated(dml.sqrt(variance + 1e-5), x) * repeated(scale, x) + repeated(bias, x)


@pytest.mark.parametrize("rows", [1, 300])
def test_operators_written_out_are_one_kernel(rows):
    x = array((rows, 256))
    whole = kernels(softmax, x.shape)
    assert whole.kernels == 1
    assert whole.explain().startswith("1 kernel, 0 bytes of intermediate memory")
    np.testing.assert_allclose(whole({"x0": x})["y"], dml.activation_softmax1(x, axes=[1]), rtol=1e-6)
    s, b = array((1, 256)), array((1, 256))
    whole = kernels(layer_normalization, x.shape, s.shape, b.shape)
    assert whole.kernels == 1
    wanted = dml.mean_variance_normalization1(x, s, b, axes=[1], normalize_variance=True, epsilon=1e-5)
    np.testing.assert_allclose(whole({"x0": x, "x1": s, "x2": b})["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (lambda x, y: dml.reduce(x * y, "SUM", axes=[1]), 1),  # what is reduced
        (lambda x, y: dml.sqrt(dml.reduce(x * x, "SUM", axes=[1]) + 1e-6), 1),  # what is made of rows
        (lambda x, y: x * repeated(dml.reduce(y, "MAX", axes=[1]), x), 1),  # beside rows
        (lambda x, y: dml.reduce(dml.reduce(x, "SUM", axes=[1]) * 2, "MAX", axes=[0]), 2),  # other rows
        (lambda x, y: dml.reduce(x.transpose() * y.reinterpret([256, 300]), "SUM", axes=[1]), 2),  # turned
        (lambda x, y: dml.gemm(dml.reduce(x, "SUM", axes=[0]), y.transpose()), 2),  # of whole tensors
    ],
)
def test_what_becomes_one_kernel(build, count):
    assert kernels(build, (300, 256), (300, 256)).kernels == count


def test_two_reductions_of_a_tensor_are_one_kernel():
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [50, 80])
    compiled = g.compile({f: dml.reduce(x, f, axes=[1]) for f in ("SUM", "MAX", "L2")})
    assert compiled.kernels == 1
    given = array((50, 80))
    for f, y in compiled({"x": given}).items():
        np.testing.assert_array_equal(y, dml.reduce(given, f, axes=[1]))


@pytest.mark.parametrize("shape", [(40, 64), (300, 7)])
def test_float16_is_rounded_between_operators(shape):
    x, y = array(shape, np.float16), array(shape, np.float16)
    whole = kernels(lambda a, b: dml.reduce(a * b, "SUM", axes=[1]) * 2, x.shape, x.shape, dtype="FLOAT16")
    np.testing.assert_array_equal(whole({"x0": x, "x1": y})["y"], dml.reduce(x * y, "SUM", axes=[1]) * 2)


def test_what_is_reduced_is_an_output_and_used_again():
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [4, 8, 16])
    total = dml.reduce(x * x, "SUM", axes=[1])
    compiled = g.compile({"y": total, "z": x / repeated(total, x)})
    given = array((4, 8, 16))
    made = compiled({"x": given})
    wanted = dml.reduce(given * given, "SUM", axes=[1])
    np.testing.assert_array_equal(made["y"], wanted)
    np.testing.assert_array_equal(made["z"], given / wanted)


def test_integers_and_places():
    g = dml.GraphBuilder()
    x = g.input("x", "INT32", [30, 50])
    best = dml.argmax(x * 3, axes=[1], output_data_type="INT64")
    compiled = g.compile({"y": best, "z": dml.reduce(x * x, "SUM", axes=[1]) + 7})
    given = RNG.integers(-1000, 1000, (30, 50)).astype(np.int32)
    made = compiled({"x": given})
    np.testing.assert_array_equal(made["y"], given.argmax(1)[:, None])
    assert made["y"].dtype == np.int64
    np.testing.assert_array_equal(made["z"], (given * given).sum(1, keepdims=True) + 7)


@pytest.mark.parametrize("function", ["MAX", "SUM", "AVERAGE"])
@pytest.mark.parametrize("length", [1, 4, 16, 33, 200])
def test_rows_of_what_rows_are_reduced_to(function, length):
    """What is the same along a row, and reduced along it again."""
    x = np.random.default_rng(length).standard_normal((3, length)).astype(np.float32)

    def forms(x, most, wide):
        softmax = dml.activation_softmax1(wide, axes=[-1])
        total = dml.reduce(wide, function="SUM", axes=[-1])
        return {"a": (softmax + 1) * (most + 1), "b": softmax * x, "c": total * x, "d": total * (most + 1)}

    most = dml.reduce(x, function=function, axes=[-1])
    wanted = forms(x, most, np.broadcast_to(most, x.shape))
    for name in wanted:
        g = dml.GraphBuilder()
        given = g.input("x", "FLOAT32", x.shape)
        least = dml.reduce(given, function=function, axes=[-1])
        graph = g.compile({"y": forms(given, least, least.broadcast_to(x.shape))[name]})
        assert np.allclose(graph({"x": x})["y"], wanted[name], rtol=1e-5, atol=1e-6)
