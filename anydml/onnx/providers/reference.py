"""onnx.reference as the provider of rare operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.errors import Problem, Unsupported, by_a_handler
from anydml.ir.graph import ExternalData, OnnxOp
from anydml.onnx.protos import ModelProto, TypeProto
from anydml.onnx.providers.provider import Call, Region, RegionFailed, Sizes
from anydml.onnx.providers.words import first_line


class Reference:
    name = "onnx.reference"
    on_processor = True
    exact = False  # as it is

    def __init__(self) -> None:
        self.unbelieved: set[OnnxOp] = set()

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        return call

    def result_types(self, model: bytes, custom: bool = False) -> dict[str, TypeProto]:
        return {}

    def compile(self, region: Region, threads: int, alone: bool = True) -> Call:
        from onnx import load_external_data_for_model  # slow to import, and rarely needed
        from onnx.reference import ReferenceEvaluator

        model = ModelProto.FromString(region.model)
        for folder in {c.source.folder for _, c in region.weights if isinstance(c.source, ExternalData)}:
            load_external_data_for_model(model, str(folder))
        if any(n.op_type == "Loop" and not (len(n.input) > 1 and n.input[1]) for n in model.graph.node):
            raise Unsupported(Problem("onnx.reference", "it runs a Loop without a condition zero times"))
        try:
            evaluator = ReferenceEvaluator(model)
        except Exception as error:
            if by_a_handler(error):
                raise
            raise Unsupported(Problem("onnx.reference", first_line(error))) from error
        names = region.inputs

        def call(values: list[Any]) -> list[Any]:
            try:
                with np.errstate(all="ignore"):
                    results = evaluator.run(None, dict(zip(names, values, strict=True)))
            except Exception as error:
                if by_a_handler(error):
                    raise
                raise RegionFailed(0 if len(model.graph.node) == 1 else None, first_line(error)) from error
            return [np.asarray(r) if isinstance(r, np.generic) else r for r in results]

        return call
