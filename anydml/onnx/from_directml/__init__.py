"""DirectML's operators as ONNX nodes: to write graphs as models, and to let a library compute heavy ones."""
