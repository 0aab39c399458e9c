"""Graphs: the one representation between the public API (descriptions, ONNX files) and the kernels."""
