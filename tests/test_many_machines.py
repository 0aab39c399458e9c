"""docs/howto/many-machines.md runs as it is written, and what workers that die were doing is not lost.

In processes of their own: dask's and Ray's would outlive a test.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "many-machines.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n((?:    [^\n]*\n)+))?", re.DOTALL)
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def told(code, folder):
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        env=os.environ | QUIET,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_the_page(tmp_path):
    """What stands below a block is what it prints."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) == 6
    shown = [line.removeprefix("    ") for _, text in blocks for line in text.splitlines()]
    assert told("\n".join(code for code, _ in blocks), tmp_path) == shown


TASK = """
import os, signal, time
import numpy as np
import anydml as dml
from anydml.sample import sample_model

def loudest(session, k):
    time.sleep(0.05)
    sound = np.full((1, 160), k / 100, np.float32)
    return os.getpid(), float(session.run(None, {"sound": sound, "sr": np.array(16000)})[0].max())

session = dml.load(sample_model(), threads=1)
wanted = [loudest(session, k)[1] for k in range(40)]
"""
DASK = """
from dask.distributed import Client, LocalCluster, wait

cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)
there = client.scatter(session, broadcast=True)
futures = [client.submit(loudest, there, k) for k in range(40)]
wait(futures[:6])
killed = futures[0].result()[0]
os.kill(killed, signal.SIGKILL)
found = client.gather(futures)
client.close()
cluster.close()
"""
RAY = """
import ray

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)
class Meter:
    def __init__(self, model):
        self.session = dml.load(model, threads=1)

    def loudest(self, k):
        return loudest(self.session, k)

meters = [Meter.remote(sample_model().SerializeToString()) for _ in range(2)]
calls = [meters[k % 2].loudest.remote(k) for k in range(40)]
killed = ray.get(calls[0])[0]
os.kill(killed, signal.SIGKILL)
found = ray.get(calls)
ray.shutdown()
"""
JUDGE = """
others = {pid for pid, _ in found} - {killed, os.getpid()}
print([level for _, level in found] == wanted, len(others) > 0)
"""


@pytest.mark.long
@pytest.mark.parametrize("engine", [DASK, RAY], ids=["dask", "Ray"])
def test_a_worker_is_killed_and_nothing_is_lost(engine, tmp_path):
    """In the middle of forty tasks; those that it had, and those that it was to do, are done."""
    assert told(TASK + engine + JUDGE, tmp_path)[-1] == "True True"  # Ray tells of it before
