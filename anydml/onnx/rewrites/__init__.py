"""Graphs of ONNX nodes to such graphs of fewer or quicker nodes, rules in a table, and two passes."""
