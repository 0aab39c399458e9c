"""Random whole models, and what onnxruntime and onnx.reference say of them: `python -m tests.robustness`."""
