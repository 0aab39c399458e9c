"""Each operator of whole tensors as ONNX nodes, where ONNX has words for it.

A function is given the `Call` (of stand-ins: sizes, types, attributes) and adds nodes on edges named like the
parameters. It gives the output's edge, or a tuple of them; None where ONNX would compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydml.onnx.from_directml import (
    attention,
    convolutions,
    indexing,
    layout,
    matrices,
    normalization,
    pooling,
    quantization,
    recurrent,
    reductions,
    regions,
    resampling,
)
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call

Lowering = Callable[[Call, OnnxNodes], Any]

LOWERINGS: Mapping[str, Lowering] = {
    "GEMM": matrices.gemm,
    "MATRIX_MULTIPLY_INTEGER": matrices.matrix_multiply_integer,
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": matrices.matrix_multiply_integer_to_float,
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": matrices.quantized_linear_matrix_multiply,
    "CONVOLUTION": convolutions.convolution,
    "CONVOLUTION_INTEGER": convolutions.convolution_integer,
    "QUANTIZED_LINEAR_CONVOLUTION": convolutions.quantized_linear_convolution,
    "AVERAGE_POOLING": pooling.average_pooling,
    "AVERAGE_POOLING1": pooling.average_pooling,
    "AVERAGE_POOLING_GRAD": pooling.average_pooling_grad,
    "QUANTIZED_LINEAR_AVERAGE_POOLING": pooling.quantized_linear_average_pooling,
    "LP_POOLING": pooling.lp_pooling,
    "LP_POOLING1": pooling.lp_pooling,
    "MAX_POOLING": pooling.max_pooling,
    "MAX_POOLING1": pooling.max_pooling,
    "MAX_POOLING2": pooling.max_pooling,
    "MAX_POOLING_GRAD": pooling.max_pooling_grad,
    "MAX_UNPOOLING": pooling.max_unpooling,
    "FOLD": pooling.fold,
    "UNFOLD": pooling.unfold,
    "RNN": recurrent.rnn,
    "GRU": recurrent.gru,
    "LSTM": recurrent.lstm,
    "MULTIHEAD_ATTENTION": attention.attention,
    "MULTIHEAD_ATTENTION1": attention.attention,
    "REDUCE": reductions.reduce,
    "ARGMAX": reductions.argmax,
    "ARGMIN": reductions.argmin,
    "CUMULATIVE_SUMMATION": reductions.cumulative_summation,
    "CUMULATIVE_PRODUCT": reductions.cumulative_product,
    "TOP_K": reductions.top_k,
    "TOP_K1": reductions.top_k,
    "NONZERO_COORDINATES": reductions.nonzero_coordinates,
    "BATCH_NORMALIZATION": normalization.batch_normalization,
    "BATCH_NORMALIZATION_GRAD": normalization.batch_gradient,
    "BATCH_NORMALIZATION_TRAINING": normalization.batch_training,
    "BATCH_NORMALIZATION_TRAINING_GRAD": normalization.batch_training_gradient,
    "MEAN_VARIANCE_NORMALIZATION": normalization.mean_variance,
    "MEAN_VARIANCE_NORMALIZATION1": normalization.mean_variance,
    "MEAN_VARIANCE_NORMALIZATION2": normalization.mean_variance,
    "LOCAL_RESPONSE_NORMALIZATION": normalization.local_response,
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": normalization.local_response_gradient,
    "LP_NORMALIZATION": normalization.lp_normalization,
    "VALUE_SCALE_2D": normalization.value_scale,
    "ADAM_OPTIMIZER": normalization.adam_optimizer,
    "UPSAMPLE_2D": resampling.upsample_2d,
    "RESAMPLE": resampling.resample,
    "RESAMPLE1": resampling.resample,
    "RESAMPLE2": resampling.resample,
    "RESAMPLE3": resampling.resample,
    "RESAMPLE_GRAD": resampling.resample_grad,
    "RESAMPLE_GRAD1": resampling.resample_grad,
    "ROI_POOLING": regions.roi_pooling,
    "ROI_ALIGN": regions.roi_align,
    "ROI_ALIGN1": regions.roi_align,
    "DYNAMIC_QUANTIZE_LINEAR": quantization.dynamic_quantize_linear,
    "QUANTIZE": quantization.quantize,
    "DEQUANTIZE": quantization.dequantize,
    "SLICE": layout.slice_,
    "SLICE1": layout.slice1,
    "SLICE_GRAD": layout.slice_grad,
    "SPLIT": layout.split,
    "JOIN": layout.join,
    "TILE": layout.tile,
    "SPACE_TO_DEPTH": layout.space_to_depth,
    "SPACE_TO_DEPTH1": layout.space_to_depth,
    "DEPTH_TO_SPACE": layout.depth_to_space,
    "DEPTH_TO_SPACE1": layout.depth_to_space,
    "PADDING": layout.padding,
    "PADDING1": layout.padding,
    "REVERSE_SUBSEQUENCES": layout.reverse_subsequences,
    "FILL_VALUE_CONSTANT": layout.fill_constant,
    "FILL_VALUE_SEQUENCE": layout.fill_sequence,
    "DIAGONAL_MATRIX": layout.diagonal_matrix,
    "DIAGONAL_MATRIX1": layout.diagonal_matrix,
    "GATHER": indexing.gather,
    "GATHER_ELEMENTS": indexing.gather_elements,
    "GATHER_ND": indexing.gather_nd,
    "GATHER_ND1": indexing.gather_nd,
    "SCATTER": indexing.scatter,
    "SCATTER_ND": indexing.scatter_nd,
    "ONE_HOT": indexing.one_hot,
}
"""All but ROI_ALIGN_GRAD and RANDOM_GENERATOR, which would be programs, not models."""

OF_ONE_NODE = frozenset(
    "GEMM CONVOLUTION AVERAGE_POOLING AVERAGE_POOLING1 LP_POOLING LP_POOLING1 MAX_POOLING MAX_POOLING1 "
    "MAX_POOLING2 RNN GRU LSTM ARGMAX ARGMIN TOP_K TOP_K1 NONZERO_COORDINATES QUANTIZE DEQUANTIZE".split()
)
"""Those that keep FLOAT16, as libraries compute them in float32 anyway. What becomes several nodes is
computed in float32 and rounded once, as by the definition."""
