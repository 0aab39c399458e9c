"""Every operator on every type that its newest level allows, at several sizes and in every layout."""

import numpy as np
import pytest

import anydml as dml

from .cases import CASES
from .checking import apply, check, dispatch, expected, random_bits, samples, seen

MANY = 41_003
"""More elements than one thread takes."""
SIZES = [(1,), (7,), (17, 59)]
LARGE = (3, 13_669)

ROWS = [name for name in CASES if "MAX" in name and name.startswith("ACTIVATION")]


def label(types):
    return "-".join(t.name for t in types.values())


CHOICES = [pytest.param(c, t, id=f"{c.name}-{label(t)}") for c in CASES.values() for t in c.choices()]
every_choice = pytest.mark.parametrize(("case", "types"), CHOICES)


def one_per_type(name):
    case = CASES[name]
    return [pytest.param(case, types, id=f"{name}-{label(types)}") for types in case.choices()]


def shape_for(operand, shape):
    return (1,) * len(shape) if "one" in operand.kinds else shape


def inputs_for(rng, case, types, shape):
    filled = []
    for operand in case.inputs:
        s = shape_for(operand, shape)
        filled.append(samples(rng, types[operand.type_variable], int(np.prod(s)), operand.kinds).reshape(s))
    return filled


def attributes_for(case, shape):
    """The variants that a tensor of this shape can have."""
    return [a for a in case.attributes if all(axis < len(shape) for axis in a.get("Axes", ()))] or [
        {"AxisCount": 1, "Axes": [0]}
    ]


def check_function(case, inputs, attributes, types):
    y = apply(case, inputs, attributes, types)
    assert y.dtype == types[case.output.type_variable]
    check(case, y, inputs, attributes)


@every_choice
@pytest.mark.drawn
def test_functions_compute_it_at_every_size(case, types):
    rng = np.random.default_rng(11)
    for shape in SIZES:
        for attributes in attributes_for(case, shape):
            check_function(case, inputs_for(rng, case, types, shape), attributes, types)


@every_choice
@pytest.mark.drawn
def test_functions_compute_it_on_several_threads(case, types):
    """Unary operators on float16 see every value that there is."""
    rng = np.random.default_rng(12)
    if types[case.inputs[0].type_variable] == np.float16 and len(case.inputs) == 1 and case.name not in ROWS:
        inputs = [np.arange(1 << 16, dtype=np.uint16).view(np.float16)]
    else:
        inputs = inputs_for(rng, case, types, LARGE)
        if len(inputs) == 2:
            inputs[1] = inputs[1][:1]  # broadcast
    for attributes in (
        attributes_for(case, inputs[0].shape) if inputs[0].dtype.kind == "f" else case.attributes[:1]
    ):
        check_function(case, inputs, attributes, types)


@pytest.mark.parametrize("name", CASES)
def test_functions_compute_it_on_nothing_and_on_a_scalar(name):
    case = CASES[name]
    types = next(case.choices())
    if name in ROWS:
        return
    for shape in ((), (0,), (3, 0)):
        inputs = inputs_for(np.random.default_rng(3), case, types, shape)
        y = apply(case, inputs, case.attributes[0], types)
        assert y.shape == shape
        check(case, y, inputs, case.attributes[0])


# ---- by description ----------------------------------------------------------------------------------

SHAPE = (5, 7)
LAYOUTS = {  # strides of the even inputs, of the odd ones, and of the output
    "packed": (None, None, None),
    "transposed inputs": ((1, 5), (1, 5), None),
    "transposed output": (None, (7, 1), (1, 5)),
    "mixed": ((7, 1), (1, 5), (1, 5)),
    "broadcast rows": ((7, 1), (0, 1), None),
    "broadcast columns": ((1, 0), (7, 1), (1, 6)),
    "broadcast element": ((0, 0), (1, 5), None),
    "padded": ((20, 2), (9, 1), (23, 3)),
}


def check_layout(rng, case, types, strides, attributes, sizes=SHAPE):
    of = {}
    for k, operand in enumerate(case.operands):
        of[operand.name] = strides[2] if operand is case.output else strides[k % 2]
    packed = [int(np.prod(sizes[d + 1 :])) for d in range(len(sizes))]
    memory, tensors = [], []
    for operand in case.operands:
        if "one" in operand.kinds:
            flat = samples(rng, types[operand.type_variable], 1, operand.kinds)
            tensors.append(flat.reshape((1,) * len(sizes)))
        else:
            s = of[operand.name] or packed
            reach = 1 + sum((n - 1) * step for n, step in zip(sizes, s, strict=True))
            kinds = operand.kinds if operand is not case.output else ()
            flat = samples(rng, types[operand.type_variable], reach, kinds)
            tensors.append(seen(flat, sizes, s))
        memory.append(flat)
    before = memory[-1].copy()
    dispatch(case, memory[:-1], attributes, types, sizes, of, memory[-1])
    check(case, tensors[-1], tensors[:-1], attributes)
    tensors[-1][...] = 0
    outside = seen(before, sizes, of[case.output.name] or packed)
    outside[...] = 0
    assert memory[-1].tobytes() == before.tobytes(), "something else was written"


@every_choice
@pytest.mark.drawn
def test_devices_compute_it_in_every_layout(case, types):
    """All layouts for each operator's first types; for the others those that differ most."""
    rng, first = np.random.default_rng(13), types == next(case.choices())
    for layout in LAYOUTS if first else ("mixed", "broadcast element", "padded"):
        check_layout(rng, case, types, LAYOUTS[layout], case.attributes[0])


@pytest.mark.parametrize("name", CASES)
def test_devices_compute_it_with_every_attribute_and_rank(name):
    case, rng = CASES[name], np.random.default_rng(14)
    types = next(case.choices())
    for attributes in case.attributes:
        check_layout(rng, case, types, LAYOUTS["mixed"], attributes)
        check_layout(rng, case, types, (None, None, None), attributes, (1, 1, 5, 7))
        if "Axes" not in attributes:
            check_layout(rng, case, types, (None, None, None), attributes, (1,))
            check_layout(rng, case, types, ((7, 0, 1), None, None), attributes, (1, 4, 7))


@pytest.mark.parametrize("name", CASES)
def test_devices_compute_it_on_several_threads(name):
    case, rng = CASES[name], np.random.default_rng(15)
    types, (rows, columns) = next(case.choices()), LARGE
    for strides in ((None, None, None), ((1, rows), (columns, 1), (1, rows)), ((columns, 1), (0, 1), None)):
        check_layout(rng, case, types, strides, case.attributes[0], LARGE)


@pytest.mark.parametrize(
    ("case", "types"), [p for p in CHOICES if p.values[0].in_place and len(set(p.values[1].values())) == 1]
)
@pytest.mark.drawn
def test_in_place(case, types):
    rng, attributes = np.random.default_rng(16), case.attributes[0]
    for place in range(len(case.inputs)):
        if case.inputs[place].name not in case.in_place:
            continue
        for shape in (SHAPE, LARGE[:1]):
            for transposed in (False, True):
                of = {s.name: (1, shape[0]) for s in case.operands} if transposed and len(shape) == 2 else {}
                inputs = inputs_for(rng, case, types, (int(np.prod(shape)),))
                read = [x.copy() for x in inputs]
                dispatch(case, inputs, attributes, types, shape, of, inputs[place])
                check(case, inputs[place], read, attributes)
        inputs = inputs_for(rng, case, types, (MANY,))
        read = [x.copy() for x in inputs]
        y = apply(case, inputs, attributes, types, out=inputs[place])
        assert y is inputs[place]
        check(case, y, read, attributes)


@pytest.mark.parametrize("name", CASES)
def test_out_of_another_layout(name):
    case, rng = CASES[name], np.random.default_rng(17)
    types = next(case.choices())
    inputs = [x if x.size == 1 else np.asfortranarray(x) for x in inputs_for(rng, case, types, (31, 43))]
    out = np.zeros((43, 62), types[case.output.type_variable])[:, ::2].T
    assert apply(case, inputs, case.attributes[0], types, out=out) is out
    check(case, out, inputs, case.attributes[0])


# ---- scale and bias ----------------------------------------------------------------------------------

SCALED = [p for p in CHOICES if p.values[0].scale_bias]


@pytest.mark.parametrize(("case", "types"), SCALED)
@pytest.mark.drawn
def test_scale_and_bias_come_first(case, types):
    """With values that lose nothing in float32, but are not all in float16."""
    rng, x_type = np.random.default_rng(18), types["T"]
    for shape in ((7,), (17, 59)):
        if x_type.kind == "f":
            sb, x = {"Scale": 0.625, "Bias": 0.375}, rng.integers(-1000, 1000, shape) / 64
        else:
            sb = {"Scale": 2.0, "Bias": -3.0}
            x = rng.integers(2 if x_type.kind == "u" else -50, 50, shape)
        others = inputs_for(rng, case, types, shape)[1:]
        for attributes in case.attributes:
            given = attributes | {"ScaleBias": sb}
            inputs = [x.astype(x_type), *others]
            check_function(case, inputs, given, types)
        y = np.zeros(shape, x_type)
        dispatch(case, inputs, given, types, shape, {}, y)
        check(case, y, inputs, given)


def test_a_scale_of_zero_and_infinities_follow_ieee():
    x = np.float32([1, -2, np.inf, -np.inf, np.nan])
    assert np.array_equal(
        dml.identity(x, scale_bias=(0.0, 3.0)), np.float32([3, 3, np.nan, np.nan, np.nan]), True
    )
    assert np.array_equal(
        dml.abs(x, scale_bias=(-1.0, 0.0)), np.float32([1, 2, np.inf, np.inf, np.nan]), True
    )


# ---- optional tensors and fused activations ----------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "types"), [p for p in CHOICES if any("optional" in s.kinds for s in p.values[0].operands)]
)
def test_absent_zero_points_are_zero(case, types):
    rng = np.random.default_rng(19)
    optional = [k for k, s in enumerate(case.inputs) if "optional" in s.kinds]
    for absent in ([k] for k in optional) if len(optional) == 1 else (optional, optional[:1], optional[1:]):
        for shape in ((7,), (17, 59)):
            inputs = [None if k in absent else x for k, x in enumerate(inputs_for(rng, case, types, shape))]
            check_function(case, inputs, {}, types)
            out = np.zeros(shape, types[case.output.type_variable])
            dispatch(case, inputs, {}, types, shape, {}, out)
            check(case, out, inputs, {})


FUSED = """LINEAR SIGMOID HARD_SIGMOID TANH SCALED_TANH RELU LEAKY_RELU THRESHOLDED_RELU ELU CELU SCALED_ELU
SOFTPLUS PARAMETRIC_SOFTPLUS SOFTSIGN IDENTITY SHRINK GELU""".split()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", FUSED)
def test_add1_applies_an_activation_to_the_sum(name, dtype):
    """Of values whose sums are exact, against the activation's own bounds."""
    rng, activation, add1 = np.random.default_rng(20), CASES[f"ACTIVATION_{name}"], CASES["ELEMENT_WISE_ADD1"]
    types = {"T": np.dtype(dtype)}
    a, b = (rng.integers(-500, 500, (17, 59)).astype(dtype) / dtype(64) for _ in range(2))
    for attributes in activation.attributes:
        fused = {"Type": activation.name, "Desc": attributes} if attributes else {"Type": activation.name}
        y = apply(add1, [a, b], {"FusedActivation": fused}, types)
        check(activation, y, [a + b], attributes)
        y = np.zeros_like(a)
        dispatch(add1, [a, b], {"FusedActivation": fused}, types, a.shape, {}, y)
        check(activation, y, [a + b], attributes)
        exact = expected(add1, [a, b], {"FusedActivation": fused}, np.dtype(dtype))
        assert np.array_equal(exact, expected(activation, [a + b], attributes, np.dtype(dtype)))


# ---- rows --------------------------------------------------------------------------------------------

SOFT = ["ACTIVATION_SOFTMAX", "ACTIVATION_LOG_SOFTMAX"]
JOINT = [
    *(((4, 3, 5), axes) for axes in ([1], [2, 0], [0, 1, 2])),
    *(((2, 3, 4, 5), axes) for axes in ([1, 3], [0, 2], [1, 2])),
    ((2, 1, 3, 2, 1, 2, 3, 2), [7, 2, 3]),
    ((3, 1), [1]),
    ((300, 7, 23), [1]),
]


@pytest.mark.parametrize(("case", "types"), [p for n in ROWS if n.endswith("1") for p in one_per_type(n)])
def test_joint_axes(case, types):
    rng = np.random.default_rng(21)
    for shape, axes in JOINT:
        inputs, attributes = inputs_for(rng, case, types, shape), {"AxisCount": len(axes), "Axes": axes}
        check_function(case, inputs, attributes, types)
        out = np.zeros(shape, types["T"])
        dispatch(case, inputs, attributes, types, shape, {}, out)
        check(case, out, inputs, attributes)


@pytest.mark.parametrize(("case", "types"), [p for n in ROWS for p in one_per_type(n)])
def test_rows_of_every_length(case, types):
    rng, last = np.random.default_rng(22), {"AxisCount": 1, "Axes": [1]} if case.name.endswith("1") else {}
    for length in [*range(1, 40), 63, 64, 65, 127, 1000, 4096]:
        check_function(case, inputs_for(rng, case, types, (3, length)), last, types)
    large = rng.normal(size=(5, 100)) * 1000 + rng.choice([-3e4, 0, 3e4], (5, 1))
    check_function(case, [large.astype(types["T"])], last, types)


@pytest.mark.parametrize(("case", "types"), [p for n in SOFT for p in one_per_type(n)])
def test_rows_with_infinities_and_nan(case, types):
    inf, nan = np.inf, np.nan
    decided = [[1, -inf, 2], [-inf, -inf, 0], [0, 0, 0], [1, nan, 2], [-inf, -inf, -inf], [nan, inf, -inf]]
    x = np.array([*decided, [1, inf, 2]], types["T"])
    y = apply(case, [x], {}, types)
    check(case, y[:-1], [x[:-1]], {})
    zero = -inf if "LOG" in case.name else 0
    assert y[0, 1] == y[1, 0] == y[1, 1] == zero
    assert np.isnan(y[3:6]).all()
    assert np.isnan(y[-1, 1])
    assert np.isnan(y[-1, 0]) or y[-1, 0] == zero  # exp(1) / inf, unless infinity was subtracted first


@pytest.mark.parametrize(("case", "types"), one_per_type("ACTIVATION_HARDMAX"))
def test_hardmax_takes_the_first_of_equal_maxima(case, types):
    rng = np.random.default_rng(23)
    x = rng.integers(0, 4, (200, 37)).astype(types["T"])
    y = apply(case, [x], {}, types)
    check(case, y, [x], {})
    assert (y.argmax(1) == x.argmax(1)).all()
    assert (y.sum(1) == 1).all()
    x = np.array([[-np.inf, -np.inf], [-1, np.inf], [-0.0, 0.0]], types["T"])
    assert np.array_equal(apply(case, [x], {}, types), [[1, 0], [0, 1], [1, 0]])


def test_a_float16_result_is_mostly_the_exact_one_rounded():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for name, case in CASES.items():
        if len(case.inputs) == 1 and name not in ROWS and "float16" in case.types.get("T", "") and case.ulps:
            types = {"T": np.dtype(np.float16)}
            exact = expected(case, [x], case.attributes[0], types["T"])
            with np.errstate(all="ignore"):
                wanted = exact.astype(np.float16)
            y = apply(case, [x], case.attributes[0], types)
            same = (y == wanted) | np.isnan(wanted)
            assert same.mean() > 0.97, f"{name}: {(~same).sum()} differ"


def test_random_bits_have_every_sort_of_number():
    """Of the samples themselves: what the other tests rely on."""
    x = random_bits(np.random.default_rng(1), np.float32, 100_000)
    assert np.isnan(x).any()
    assert (np.abs(x) < np.finfo(np.float32).tiny).any()


@pytest.mark.parametrize("alpha", [0.01, 1 / 3])
def test_attributes_beside_float16_are_float32(alpha):
    x = -np.arange(1, 2048, dtype=np.float16) / 1024
    wanted = (x.astype(np.float32) * np.float32(alpha)).astype(np.float16)
    np.testing.assert_array_equal(dml.activation_leaky_relu(x, alpha=alpha), wanted)
    above = np.array([np.float16(alpha)])
    kept = np.where(above.astype(np.float32) > np.float32(alpha), above, 0)
    np.testing.assert_array_equal(dml.activation_thresholded_relu(above, alpha=alpha), kept)


def test_softplus_is_finite_where_its_product_is_not():
    x = np.array([3.4e38, 1.7e38, 1e38, -3.4e38, np.inf, -np.inf], np.float32)
    line = np.maximum(x, 0)
    for steepness in (1, 2, 1e30):
        np.testing.assert_array_equal(dml.activation_softplus(x, steepness=steepness), line)
    np.testing.assert_array_equal(dml.activation_parametric_softplus(x, alpha=0.25, beta=4), line)
    np.testing.assert_array_equal(
        dml.activation_parametric_softplus(x, alpha=-0.25, beta=-4), np.minimum(x, 0)
    )
