"""Programs in which convolutions leave channels as neighbours in memory, and others read that."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.native_draw import Draw
from tests.onnx.test_native import agree

KINDS = (
    "Conv Conv depthwise grouped Relu MaxPool Add ConvTranspose Transpose Softmax ReduceMean Resize".split()
)


class Chain:
    """Nodes one after the other, over [batch, channels, and one or two axes more]."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        self.axes = self.draw.integer(1, 2)
        self.sizes = [self.draw.integer(1, 2), self.draw.one_of(1, 2, 4, 20), *[9, 7][: self.axes]]
        self.given = self.draw.array(tuple(self.sizes))
        self.nodes, self.weights, self.last = [], [], "x"
        for _ in range(self.draw.integer(2, 5)):
            self.add(self.draw.one_of(*KINDS))

    def add(self, kind: str) -> None:
        channels = self.sizes[1]
        if kind in ("Conv", "ConvTranspose", "depthwise", "grouped"):
            self.convolve(kind, channels)
        elif kind == "MaxPool":
            self.node(kind, kernel_shape=[3] * self.axes, pads=[1] * 2 * self.axes)
        elif kind == "Transpose":
            order = [0, *self.draw.rng.permutation(range(1, 2 + self.axes)).tolist()]
            self.node(kind, perm=order)
            self.sizes = [self.sizes[k] for k in order]
        elif kind == "ReduceMean":
            axis = self.draw.integer(1, 1 + self.axes)
            self.node(kind, axes=[axis])
            self.sizes[axis] = 1
        elif kind == "Resize":
            scales = numpy_helper.from_array(np.float32([1, 1, *[2] * self.axes]), f"s{len(self.nodes)}")
            self.weights.append(scales)
            self.node(kind, "", scales.name, mode="nearest", coordinate_transformation_mode="asymmetric")
            self.sizes[2:] = [2 * n for n in self.sizes[2:]]
        elif kind == "Add":
            self.node(kind, self.last)
        else:
            self.node(kind, **({"axis": self.draw.integer(1, 1 + self.axes)} if kind == "Softmax" else {}))

    def convolve(self, kind: str, channels: int) -> None:
        groups = {"depthwise": channels, "grouped": 2 - channels % 2}.get(kind, 1)
        kernel, stride = self.draw.one_of(1, 3), self.draw.one_of(1, 1, 2)
        outgoing = channels if groups > 1 else self.draw.one_of(1, 3, 16, 24)
        told = {"kernel_shape": [kernel] * self.axes, "pads": [kernel // 2] * 2 * self.axes, "group": groups}
        sizes = (outgoing, channels // groups)
        if kind == "ConvTranspose":
            stride, sizes = 1, (channels, outgoing)
        filters = self.draw.array((*sizes, *[kernel] * self.axes)) / np.float32(4)
        self.weights.append(numpy_helper.from_array(filters, f"w{len(self.nodes)}"))
        op = kind if kind == "ConvTranspose" else "Conv"
        self.node(op, self.weights[-1].name, strides=[stride] * self.axes, **told)
        self.sizes[1:] = [outgoing, *(-(-n // stride) for n in self.sizes[2:])]

    def node(self, op, *others, **attributes) -> None:
        name = f"y{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *others], [name], **attributes))
        self.last = name

    def model(self):
        made = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)
        made.type.tensor_type.ClearField("shape")
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.given.shape)
        graph = helper.make_graph(self.nodes, "g", [given], [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(60))
def test_chains_of_convolutions_and_others(seed):
    chain = Chain(seed)
    agree(chain.model(), {"x": chain.given}, rtol=2e-4, atol=2e-4)
