"""anydml as a backend of the onnx package: `onnx.backend.base.Backend`, for what is written against it.

import anydml.backend
anydml.backend.run_model(model, [x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep

from anydml.errors import InvalidInput, Problem, Unsupported, counted, short_repr
from anydml.session import Session, load


class SessionRep(BackendRep):
    """A model that was prepared: a session whose inputs come in the order of the file."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for `inputs`: a sequence in the file's order, or a mapping by name.

        Raises:
            InvalidInput: too many inputs, or what `Session.run` refuses.
            ExecutionFailed: a node failed.
        """
        if isinstance(inputs, Mapping):
            return tuple(self.session.run(None, inputs))
        given = list(inputs) if isinstance(inputs, Sequence) else [inputs]
        names = [i.name for i in self.session.get_inputs()]
        names += [i.name for i in self.session.get_overridable_initializers()]
        if len(given) > len(names):
            message = f"expected at most {counted(len(names), 'input')}, but got {len(given)}"
            raise InvalidInput(Problem("inputs", message))
        return tuple(self.session.run(None, dict(zip(names, given, strict=False))))


class AnyDML(Backend):
    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> SessionRep:
        """A model ready to run, like `anydml.load`, whose keyword arguments are taken.

        Raises:
            Unsupported: another device than the CPU.
        """
        if not cls.supports_device(device):
            raise Unsupported(Problem("device", f"expected CPU, but got {short_repr(device)}"))
        return SessionRep(load(model, **kwargs))

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """One node on arrays; `opset_version` (default: the newest) says which meaning it has."""
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        wanted, inputs = [n for n in node.input if n], list(inputs)
        if len(inputs) != len(wanted):  # an input may be named twice, and given once
            wanted = list(dict.fromkeys(wanted))
        if len(inputs) != len(wanted):
            message = f"expected {counted(len(wanted), 'array')}, one for each input, but got {len(inputs)}"
            raise InvalidInput(Problem("inputs", message))
        given = dict(zip(wanted, inputs, strict=True))
        infos = [_info(n, np.asarray(x)) for n, x in given.items()]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = helper.make_graph([node], "node", infos, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.prepare(model, device).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


def _info(name: str, x: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


is_compatible = AnyDML.is_compatible
prepare = AnyDML.prepare
run = AnyDML.run_model
run_model = AnyDML.run_model
run_node = AnyDML.run_node
supports_device = AnyDML.supports_device
