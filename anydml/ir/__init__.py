"""Graphs: the one representation between the doors (descriptions, ONNX files) and the kernels."""
