"""What DirectML's devices and graphs have beside operators: feature support, flags, initializers, policies."""

import numpy as np
import pytest

import anydml as dml

T = {"DataType": "FLOAT32", "Sizes": [2, 2]}
OWNED = {**T, "Flags": "OWNED_BY_DML"}
ADD = {"Type": "ELEMENT_WISE_ADD", "Desc": {"ATensor": T, "BTensor": OWNED, "OutputTensor": T}}
X = np.float32([[1, 2], [3, 4]])


def test_types_and_levels_can_be_asked_for():
    assert dml.Device("1_0").check_feature_support("TENSOR_DATA_TYPE_SUPPORT", "FLOAT16") is True
    for data_type in ("FLOAT64", "INT64", "UINT64"):
        assert dml.Device("2_1").check_feature_support("TENSOR_DATA_TYPE_SUPPORT", data_type) is False
        assert dml.Device("3_0").check_feature_support("TENSOR_DATA_TYPE_SUPPORT", data_type) is True
    assert dml.Device("6_2").check_feature_support(dml.Feature.TENSOR_DATA_TYPE_SUPPORT, "INT4") is False
    assert dml.Device().check_feature_support(0, "UINT4") is True
    assert dml.Device().check_feature_support(0, "UNKNOWN") is False
    device = dml.Device("5_1")
    assert device.check_feature_support("FEATURE_LEVELS") is dml.FeatureLevel.FL_5_1
    assert device.check_feature_support("FEATURE_LEVELS", ["6_4", "5_0", "2_0"]) is dml.FeatureLevel.FL_5_0
    with pytest.raises(dml.InvalidOperator, match="expected a level up to 5_1, but got 6_0"):
        device.check_feature_support("FEATURE_LEVELS", ["6_0"])
    with pytest.raises(dml.InvalidOperator, match="DML_FEATURE"):
        device.check_feature_support("SPEED")


def test_execution_flags_are_taken_and_change_nothing():
    device = dml.Device()
    operator = device.create_operator(
        {"Type": "ELEMENT_WISE_NEGATE", "Desc": {"InputTensor": T, "OutputTensor": T}}
    )
    for flags in ("ALLOW_HALF_PRECISION_COMPUTATION", "DML_EXECUTION_FLAG_DISABLE_META_COMMANDS", 5):
        y = np.zeros_like(X)
        device.compile_operator(operator, flags).dispatch({"InputTensor": X}, {"OutputTensor": y})
        assert y.tolist() == (-X).tolist()
    with pytest.raises(dml.InvalidOperator, match="flags"):
        device.compile_operator(operator, "FAST")


def test_an_initializer_gives_all_or_nothing():
    device = dml.Device()
    one, other = (device.compile_operator(device.create_operator(ADD)) for _ in range(2))
    initializer = device.create_operator_initializer([one, other])
    with pytest.raises(dml.InvalidInput, match=r"operator 1: .*BTensor: expected an array"):
        initializer.dispatch([{"BTensor": X}, {}])
    with pytest.raises(dml.InvalidInput, match=r"expected initialize\(\) first"):
        one.dispatch({"ATensor": X}, {"OutputTensor": X.copy()})
    initializer.dispatch([{"BTensor": X}, {"BTensor": 10 * X}])
    for compiled, factor in ((one, 2), (other, 11)):
        y = np.zeros_like(X)
        compiled.dispatch({"ATensor": X}, {"OutputTensor": y})
        assert y.tolist() == (factor * X).tolist()
    with pytest.raises(dml.InvalidInput, match="arrays for 2 operators, but got 1"):
        initializer.dispatch([{"BTensor": X}])
    with pytest.raises(dml.InvalidInput, match="compiled operators or graphs, but got dict"):
        device.create_operator_initializer([ADD])


def test_binding_properties():
    device = dml.Device()
    compiled = device.compile_operator(device.create_operator(ADD))
    properties = compiled.binding_properties
    assert properties.required_descriptor_count == 3
    assert properties.temporary_resource_size == 0
    assert properties.persistent_resource_size == 256
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", [100, 100])
    y = g.compile({"y": dml.gemm(x * 2, x) + 1})
    assert y.binding_properties.temporary_resource_size >= 40_000
    assert y.binding_properties.temporary_resource_size % 256 == 0


def test_a_policy_says_how_tensors_lie():
    """N, C, H, W in memory as N, H, W, C: element-wise nodes, operators of whole tensors, outputs."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    w = rng.standard_normal((6, 3, 1, 1)).astype(np.float32)
    results = {}
    for policy in ("DEFAULT", "interleaved_channel", lambda t, sizes: tuple(np.cumprod((1, *sizes))[:-1])):
        g = dml.GraphBuilder(tensor_policy=policy)
        made = dml.activation_relu(dml.convolution(g.input("x", "FLOAT32", x.shape), w)) + 1
        graph = g.compile({"y": made})
        results[str(policy)] = graph({"x": x})["y"]
        if policy == "interleaved_channel":
            assert made.desc.strides == (120, 1, 30, 6)
            assert graph.tensors["y"].strides == (120, 1, 30, 6)
            flat = np.zeros(240, np.float32)
            graph.bind({"x": x}, {"y": flat}).dispatch()
            np.testing.assert_array_equal(flat.reshape(2, 4, 5, 6), results["DEFAULT"].transpose(0, 2, 3, 1))
    first, *others = results.values()
    for other in others:
        np.testing.assert_array_equal(other, first)
    g = dml.GraphBuilder(tensor_policy="DEFAULTS")
    x = g.input("x", "FLOAT32", [2])
    with pytest.raises(dml.InvalidInput, match=r"tensor_policy: .*did you mean 'DEFAULT'"):
        x + 1
