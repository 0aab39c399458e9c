"""ONNX's operators, one `OpInfo` each, by family; `catalog` has them all."""
