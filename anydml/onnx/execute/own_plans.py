"""Our plans in place of a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anydml.errors import AnyDMLError
from anydml.ir.graph import OnnxOp
from anydml.onnx.execute.loop_steps import ended_after
from anydml.onnx.execute.partition import ProviderRegistry
from anydml.onnx.execute.program import Program
from anydml.onnx.protos import ModelProto, TypeProto
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import Call, Region, RegionFailed, Sizes
from anydml.onnx.serde.deserialize import read_proto
from anydml.onnx.serde.local_functions import inline_functions


class OwnPlans:
    """Our plans as a provider of whole models: for one that could end the process of a library.

    Its calls raise `RegionEnded` when their time is over.
    """

    name = "anydml"
    on_processor = True
    exact = False  # regions of theirs are

    def __init__(self, folder: Path | None, seconds: float) -> None:
        """`folder`: where external data lies. `seconds`: after which a loop, or a library's run, is ended."""
        self._folder, self._seconds = folder, seconds
        self.unbelieved: set[OnnxOp] = set()

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        return call

    def result_types(self, model: bytes, custom: bool = False) -> dict[str, TypeProto]:
        return {}

    def compile(self, region: Region, threads: int, alone: bool = True) -> Call:
        model = read_proto(inline_functions(ModelProto.FromString(region.model), ""), self._folder, "")
        libraries = ProviderRegistry(model.opsets, threads, fast=OnnxRuntime(self._seconds))
        program = Program(model.graph, libraries)
        places = [
            region.inputs.index(v.name) if v.name in region.inputs else None for v in model.graph.inputs
        ]

        def call(values: list[Any]) -> list[Any]:
            fed = [
                model.defaults[v].content if k is None else values[k]
                for v, k in zip(model.graph.inputs, places, strict=True)
            ]
            try:
                with ended_after(self._seconds):
                    return program.run(fed)
            except AnyDMLError as error:
                raise RegionFailed(None, str(error)) from error

        return call
