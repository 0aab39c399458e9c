"""Threads and memory in containers, by files as Linux has them."""

import pytest

from anydml.runtime import control_groups, threads

GIB = 1 << 30


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Write `/proc/self/cgroup` and what lies under `/sys/fs/cgroup`."""

    def write(own, **files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            file = tmp_path / "tree" / name.replace("__", "/").replace("_of_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    monkeypatch.setattr(control_groups, "_GROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(control_groups, "_TREES", str(tmp_path / "tree"))
    return write


def found():
    return control_groups.processors(), control_groups.memory()


def test_nothing_is_limited(groups):
    assert found() == (None, None)  # no such files, as on other systems
    groups("0::/\n")
    assert found() == (None, None)
    groups("0::/a/b\n", a__b__cpu_of_max="max 100000\n", a__b__memory_of_max="max\n")
    assert found() == (None, None)
    groups("not what Linux writes\n:\n::\n")
    assert found() == (None, None)


def test_the_least_of_a_group_and_those_around_it(groups):
    groups(
        "0::/a/b c:d\n",
        cpu_of_max="800000 100000\n",
        a__cpu_of_max="150000 100000\n",
        memory_of_max=f"{4 * GIB}\n",
    )
    assert found() == (1.5, 4 * GIB)
    groups(
        "0::/a/b c:d\n", **{"a__b c:d__cpu_of_max": "50000 100000\n", "a__b c:d__memory_of_max": f"{GIB}\n"}
    )
    assert found() == (0.5, GIB)


def test_a_container_whose_group_is_where_the_tree_begins(groups):
    groups("0::/docker/0123\n", cpu_of_max="200000 100000\n", memory_of_max=f"{GIB}\n")
    assert found() == (2, GIB)


def test_the_first_version(groups):
    groups(
        "9:name=systemd:/x\n4:memory:/x/y\n2:cpu,cpuacct:/x\n0::/\n",
        cpu__x__cpu_of_cfs_quota_us="250000\n",
        cpu__x__cpu_of_cfs_period_us="100000\n",
        cpu__cpu_of_cfs_quota_us="-1\n",
        cpu__cpu_of_cfs_period_us="100000\n",
        memory__x__memory_of_limit_in_bytes=f"{2 * GIB}\n",
        memory__memory_of_limit_in_bytes="9223372036854771712\n",
    )
    assert found() == (2.5, 2 * GIB)


@pytest.mark.parametrize(
    ("quota", "cores", "threads_there"),
    [
        (0.2, 8, 2),
        (1.5, 8, 2),
        (2.5, 8, 3),
        (1, 2, None),
        (7.9, 8, None),
        (8, 8, None),
        (None, 8, None),
        (99, 200, 64),
    ],
)
def test_threads_where_time_is_limited(monkeypatch, quota, cores, threads_there):
    monkeypatch.delenv("ANYDML_NUM_THREADS", raising=False)
    monkeypatch.setattr(control_groups, "processors", lambda: quota)
    monkeypatch.setattr(threads, "cores", lambda: cores)
    asked, default = threads.asked_threads.__wrapped__, threads.default_threads.__wrapped__
    monkeypatch.setattr(threads, "asked_threads", asked)
    assert asked() == threads_there
    assert default() == (threads_there or cores)
    monkeypatch.setenv("ANYDML_NUM_THREADS", "3")
    assert asked() == default() == 3
