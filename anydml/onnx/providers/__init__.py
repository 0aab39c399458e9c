"""Libraries that run the operators anydml does not exist for."""

import os

# From 1.29 on onnxruntime's telemetry has a thread, which a forked child that ends by sys.exit waits for, for
# ever. It is read when onnxruntime is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
