"""Graphs of ONNX nodes to such graphs of fewer or quicker nodes, one idea a file; `pipeline`: their order."""
