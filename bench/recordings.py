"""An hour of recordings through Silero VAD, with dask and with Ray: `python -m bench.recordings`.

As docs/howto/many-machines.md does it, with two worker processes of one thread each. The recordings are the
demonstration's, repeated; each is judged window by window, and all ways must find the same.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import anydml as dml
from demo import speech

MINUTES_EACH = 1.25
Work = Callable[[list[str]], list[float]]


def spoken(session: dml.Session, path: str) -> float:
    """Seconds of speech in a recording."""
    samples = np.load(path)
    return sum(end - begin for begin, end in speech.listen(session.run, samples, 16000).segments())


def recordings(folder: Path, hours: float) -> list[str]:
    """Files of the demonstration's recording, each begun somewhere else."""
    sound, rate = speech.read_wav(Path(speech.__file__).with_name("speech.wav"))
    count, length = round(hours * 60 / MINUTES_EACH), round(MINUTES_EACH * 60 * rate)
    paths = []
    for k in range(count):
        shifted = np.roll(sound, -k * rate // 7)
        paths.append(str(folder / f"{k}.npy"))
        np.save(paths[-1], np.resize(shifted, length))
    return paths


def in_one_process(paths: list[str]) -> list[float]:
    session = dml.load(speech.model_path(), threads=1)
    return [spoken(session, path) for path in paths]


def with_dask(paths: list[str]) -> list[float]:
    from dask.distributed import Client, LocalCluster

    session = dml.load(speech.model_path(), threads=1)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        there = client.scatter(session, broadcast=True)
        found: list[float] = client.gather([client.submit(spoken, there, path) for path in paths])
        return found


def with_ray(paths: list[str]) -> list[float]:
    import ray
    from ray.util import ActorPool

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    class Listener:
        def __init__(self, model: str) -> None:
            self.session = dml.load(model, threads=1)

        def spoken(self, path: str) -> float:
            return spoken(self.session, path)

    remote: Any = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)(Listener)
    pool = ActorPool([remote.remote(str(speech.model_path())) for _ in range(2)])
    found = list(pool.map(lambda listener, path: listener.spoken.remote(path), paths))
    ray.shutdown()
    return found


def measured(ways: Mapping[str, Work], paths: list[str]) -> Iterator[tuple[str, float]]:
    """Seconds of each way, the engine's start included."""
    wanted: list[float] | None = None
    for name, work in ways.items():
        begin = time.perf_counter()
        found = work(paths)
        yield name, time.perf_counter() - begin
        if wanted is not None and found != wanted:
            raise SystemExit(f"{name}: found something else")
        wanted = found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recordings", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ways = {"one process": in_one_process, "dask, two workers": with_dask, "Ray, two actors": with_ray}
    with tempfile.TemporaryDirectory() as folder:
        paths = recordings(Path(folder), parser.parse_args().hours)
        print(f"{len(paths)} recordings of {MINUTES_EACH} minutes\n\n| how | seconds |\n| --- | --: |")
        for name, seconds in measured(ways, paths):
            print(f"| {name} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
