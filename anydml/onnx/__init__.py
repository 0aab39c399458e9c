"""ONNX models: read into graphs, specialised, cut into what kernels and libraries run, written out."""
