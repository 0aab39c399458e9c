"""Odd arguments of functions and graphs: told in the package's own words, and never half right."""

import os

import numpy as np
import pytest

import anydml as dml
from anydml.codegen import cache

F, WHOLE = np.float32([1, -2, 3]), np.int32([1, -2, 3])


def graph(dtype="FLOAT32", sizes=(2, 2)):
    g = dml.GraphBuilder()
    return g, g.input("x", dtype, sizes)


def test_an_output_that_is_a_view_of_a_computed_value():
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    g, e = graph()
    y = e + 1
    got = g.compile({"t": y.transpose(), "r": y.reinterpret([2, 2], [0, 1]), "y": y})({"x": x})
    assert np.array_equal(got["t"], (x + 1).T)
    assert np.array_equal(got["r"], [[1, 2], [1, 2]])
    assert np.array_equal(got["y"], x + 1)


def test_zeros_of_both_signs_are_different_attributes():
    z = np.float32([-0.0, 0.0])
    for _ in range(2):
        assert np.signbit(dml.activation_linear(z, 1.0, 0.0)).tolist() == [False, False]
        assert np.signbit(dml.activation_linear(z, 1.0, -0.0)).tolist() == [True, False]
        assert np.signbit(dml.identity(z, scale_bias=(1, 0.0))).tolist() == [False, False]
        assert np.signbit(dml.identity(z, scale_bias=(1, -0.0))).tolist() == [True, False]
        assert np.signbit(dml.clip(np.float32([-5]), -0.0, 1)).tolist() == [True]
        assert np.signbit(dml.clip(np.float32([-5]), 0.0, 1)).tolist() == [False]


@pytest.mark.parametrize(
    "call",
    [
        lambda: dml.add(np.float16([1]), 2**70),
        lambda: dml.add(WHOLE, 2**70),
        lambda: dml.pow(WHOLE, 10**400),
        lambda: dml.quantize_linear(F, 1, 10**400),
        lambda: dml.clip(F, -(10**400), 1),
        lambda: dml.clip(F, 0, 1e300),
        lambda: dml.clip1(F, -(10**400), 1),
        lambda: dml.clip1(F, 0, 1e300),
        lambda: dml.clip1(np.uint8([3]), -5, 300),
        lambda: dml.clip1(np.uint8([3]), 0.5, 100),
        lambda: dml.activation_softmax1(F, np.array(0)),
        lambda: dml.activation_softmax1(F, [3]),
        lambda: dml.activation_softmax1(F, [0, -1]),
        lambda: dml.activation_softmax(np.float32(1)),
        lambda: dml.activation_softplus(F, 0),
        lambda: dml.quantize_linear(WHOLE, np.float16(1)),
        lambda: dml.quantized_linear_add(np.uint8([1]), [0.5, 1], None, np.uint8([1]), 1.0, None, 1.0),
        lambda: dml.add1(F, F, fused_activation="SIGN"),
        lambda: dml.add1(F, F, fused_activation={"Type": "GEMM"}),
        lambda: dml.less_than(F, F, output_data_type="FLOAT32"),
        lambda: dml.abs(F, scale_bias=2),
        lambda: graph()[1] + (2**1100),
        lambda: graph("INT32")[1] ** (10**400),
        lambda: graph()[1].transpose(1.0, 0),
        lambda: graph()[1].broadcast_to(6),
        lambda: graph()[1].broadcast_to([0, 2, 2]),
        lambda: graph()[1].broadcast_to([2**33, 2, 2]),
        lambda: graph()[1].broadcast_to([1] * 7 + [2, 2]),
        lambda: dml.add(*[graph()[1]] * 2, out=F),
    ],
)
def test_refused_in_our_own_words(call):
    with pytest.raises((dml.InvalidOperator, dml.InvalidInput), match="expected"):
        call()


def test_messages_of_functions_speak_of_parameters():
    with pytest.raises(dml.InvalidOperator, match="steepness: expected a number other than 0"):
        dml.activation_softplus(F, 0)
    with pytest.raises(dml.InvalidOperator, match="min: expected a value that uint8 can hold, but got -5"):
        dml.clip1(np.uint8([3]), -5, 300)
    with pytest.raises(dml.InvalidOperator, match="allowed: ACTIVATION_LINEAR, "):
        dml.add1(F, F, fused_activation={"Type": "GEMM"})
    assert dml.add1(F, F, fused_activation="relu").tolist() == [2, 0, 6]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: dml.fill_value_constant([2], 300, output_data_type="UINT8"), "value"),
        (lambda: dml.fill_value_constant([2], 1.5, output_data_type="INT32"), "value"),
        (lambda: dml.fill_value_constant([2], 70000.0, output_data_type="FLOAT16"), "value"),
        (lambda: dml.fill_value_sequence([2], 3, -1, output_data_type="UINT8"), "value_delta"),
        (lambda: dml.fill_value_sequence([2], 2**31, 1, output_data_type="INT32"), "value_start"),
        (
            lambda: dml.diagonal_matrix1(
                output_sizes=[2, 2],
                value=-1,
                diagonal_fill_begin=0,
                diagonal_fill_end=1,
                output_data_type="UINT16",
            ),
            "value",
        ),
        (lambda: dml.padding1(np.uint8([[3]]), "CONSTANT", 256, 1, 1), "padding_value"),
        (lambda: dml.clip1(np.uint8([3]), 0, 300), "max"),
    ],
)
def test_numbers_of_the_tensors_type_are_of_it(call, field):
    """A scalar union cannot say 300 to UINT8 tensors."""
    with pytest.raises(dml.InvalidOperator, match=rf"\b{field}: expected a value that \w+ can hold, but got"):
        call()


def test_whole_exponents_stay_whole():
    assert dml.pow(np.uint8([3]), 300).tolist() == [3**300 % 256]
    assert dml.pow(np.int32([3]), 2**31).tolist() == [pow(3, 2**31, 2**32)]
    assert dml.pow(2, WHOLE.clip(0)).dtype == np.int32
    assert dml.pow(WHOLE, 0.5).dtype == np.int32
    _, i = graph("INT32")
    assert (2**i).data_type.name == "INT32"


def test_a_modulus_of_zero_has_the_divisors_sign():
    a, b = np.float32([-3, 3, -0.0, 0.0]), np.float32([3, -3, 5, -5])
    assert np.array_equal(np.signbit(dml.modulus_floor(a, b)), np.signbit(np.mod(a, b)))


def test_infinities_have_names_in_descriptions():
    tensor = {"DataType": "FLOAT32", "Sizes": [3]}
    desc = {
        "Type": "ELEMENT_WISE_CLIP",
        "InputTensor": tensor,
        "OutputTensor": tensor,
        "Min": "-inf",
        "Max": 1,
    }
    assert dml.validate(desc) == []
    assert "expected a number, but got 'low'" in str(dml.validate(desc | {"Min": "low"})[0])


def test_a_broken_node_is_told_only_where_it_is_needed():
    g, x = graph()
    wrong = x << 1
    fine = g.compile({"y": x + 1})
    assert fine({"x": np.zeros((2, 2), np.float32)})["y"].tolist() == [[1, 1], [1, 1]]
    with pytest.raises(dml.InvalidOperator, match="bit_shift_left_1") as raised:
        g.compile({"y": wrong})
    assert len(raised.value.problems) == 1
    assert wrong.data_type.name == "FLOAT32"


def test_a_call_of_a_graph_takes_arrays_of_its_sizes():
    g, x = graph(sizes=(2, 3))
    compiled = g.compile({"y": x + 1})
    with pytest.raises(dml.InvalidInput, match=r"expected shape \(2, 3\), but got \(3, 2\)"):
        compiled({"x": np.zeros((3, 2), np.float32)})
    assert compiled({"x": np.zeros(6, np.float32)})["y"].shape == (2, 3)


def test_inputs_that_no_output_needs_need_not_be_given():
    g, x = graph()
    g.input("late", "INT8", [7])
    compiled, array = g.compile({"y": x + 1}), np.zeros((2, 2), np.float32)
    assert compiled({"x": array})["y"].tolist() == [[1, 1], [1, 1]]
    assert compiled({"x": array, "late": np.zeros(7, np.int8)})["y"].tolist() == [[1, 1], [1, 1]]


def test_a_long_graph_compiles():
    g, x = graph()
    y = x
    for _ in range(600):
        y = dml.max(y * 0.5, x) + 0.25
    got = g.compile({"y": y})({"x": np.ones((2, 2), np.float32)})["y"]
    assert got.tolist() == [[1.25, 1.25], [1.25, 1.25]]


def test_the_cache_takes_away_its_own_files_only(tmp_path, monkeypatch):
    monkeypatch.setenv("ANYDML_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "MAX_ENTRIES", 5)
    cache.directory.cache_clear()
    cache._stored.clear()
    type_variables = [tmp_path / f"letter{k}.txt" for k in range(20)]
    for type_variable in type_variables:
        type_variable.write_text("dear")
    for k in range(10):
        (tmp_path / cache.key_of(str(k))).write_bytes(b"old")
        os.utime(tmp_path / cache.key_of(str(k)), (k, k))
    cache.store(cache.key_of("new"), b"code")
    cache.directory.cache_clear()
    assert all(type_variable.exists() for type_variable in type_variables)
    assert sum(p.name.startswith("letter") for p in tmp_path.iterdir()) == 20
    assert len(list(tmp_path.iterdir())) == 20 + 5 + 1


@pytest.mark.parametrize("name", ["RELU", "relu", "ACTIVATION_RELU", "DML_OPERATOR_ACTIVATION_RELU"])
def test_a_fused_activation_by_either_name(name):
    a, b = np.float32([-3, 2]), np.float32([1, 1])
    for given in (name, {"Type": name}, {"Type": name, "Desc": {}}):
        assert dml.add1(a, b, fused_activation=given).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("RELUU", "expected a DirectML operator, but got 'RELUU'; did you mean 'ACTIVATION_RELU'"),
        ("SOFTMAX", "expected an activation that can be fused, but got ACTIVATION_SOFTMAX; allowed: "),
        ("GEMM", "expected an activation that can be fused, but got GEMM; allowed: "),
    ],
)
def test_what_is_no_fused_activation(name, told):
    x = np.float32([1])
    for given in (name, {"Type": name, "Desc": {}}):
        with pytest.raises(dml.InvalidOperator) as error:
            dml.add1(x, x, fused_activation=given)
        assert told in str(error.value)


def test_numpys_numbers_and_types_are_taken_as_pythons():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(dml.max_pooling(x, np.int64(2)), dml.max_pooling(x, 2))
    np.testing.assert_array_equal(dml.reduce(x, "SUM", np.int32(-1)), dml.reduce(x, "SUM", [3]))
    np.testing.assert_array_equal(dml.reduce(x, "SUM", 0), dml.reduce(x, "SUM", [0]))
    for wanted in (np.int8, np.dtype("int8"), np.dtype(">i1"), "INT8"):
        assert dml.cast(x, output_data_type=wanted).dtype == np.int8
    for wrong in (np.complex64, np.dtype("U3"), int):
        with pytest.raises(dml.InvalidOperator, match="output_data_type"):
            dml.cast(x, output_data_type=wrong)
    with pytest.raises(dml.InvalidOperator, match="axes"):
        dml.reduce(x, "SUM", True)
