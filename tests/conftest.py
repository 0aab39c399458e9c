"""Tests keep their compiled code to themselves: one folder for a run, which its processes share."""

import os
import signal
import tempfile

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, as by `make test &` in a script: the processes that tests interrupt would
    # inherit that, and never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="anydml-kernels-", ignore_cleanup_errors=True)
    os.environ["ANYDML_CACHE_DIR"] = _folder.name
