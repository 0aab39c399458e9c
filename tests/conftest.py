"""Tests keep their compiled code to themselves: one folder for a run, which its processes share."""

import os
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="anydml-kernels-", ignore_cleanup_errors=True)
    os.environ["ANYDML_CACHE_DIR"] = _folder.name
