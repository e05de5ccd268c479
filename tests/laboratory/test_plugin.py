"""The fixtures for programs that use cqrepl, used as such a program would."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from cqrepl.queue import Queue

# as a program's own tests have it, in a project that says nothing of trio
PROGRAMS_TEST: Final = """
import pytest
import trio

async def test_a_cluster(cq_cluster, autojump_clock):
    async with cq_cluster(3) as cluster:
        cluster.append(b"hello")
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2)

def test_a_queue(cq_queue):
    cq_queue.append(b"hello")
"""


def run_pytest(folder: Path, *words: str) -> str:
    (folder / "test_program.py").write_text(PROGRAMS_TEST)
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "cqrepl.testing.plugin", *words]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


def test_a_project_runs_its_tests_with_the_plugin(tmp_path: Path) -> None:
    assert "2 passed" in run_pytest(tmp_path)


def test_without_pytest_trio_one_line_says_what_is_missing(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "-p", "no:trio")
    assert "expected pytest-trio" in told
    assert "cqrepl[testing]" in told
    assert "Traceback" not in told


def test_a_queue(cq_queue: Queue) -> None:
    index = cq_queue.append(b"hello")
    assert cq_queue.last_index() == index


async def test_a_pair(cq_pair: Callable[..., Any], autojump_clock: MockClock) -> None:
    async with cq_pair() as cluster:
        cluster.append(b"one", b"two")
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2)
        assert len(cluster.content(2)) >= 2


async def test_a_cluster_through_faults(
    cq_cluster: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with cq_cluster(3, seed=7) as cluster:
        await cluster.settled()
        cluster.hosts[2].kill()
        cluster.network.weather(3, 1).stall()
        cluster.append(b"while one is dead and the other cannot answer")
        with pytest.raises(trio.TooSlowError) as late:
            await cluster.settled(10)
        told = str(late.value)
        assert "host 2, which does not run, lacks of 'q': it ends at 0x" in told
        assert "host 3 lacks of 'q': it ends at " in told or "host 3 has all of" in told
        cluster.network.weather(3, 1).clear()
        cluster.hosts[2].start()
        await cluster.settled()
        assert cluster.content(1) == cluster.content(2) == cluster.content(3)
    said = [entry.text for entry in cluster.story.entries]
    assert "replication is killed" in said


async def test_a_cluster_whose_hosts_stream_to_each_other(
    cq_cluster: Callable[..., Any], autojump_clock: MockClock
) -> None:
    async with cq_cluster(3, both_ways=True) as cluster:
        for master in (1, 2, 3):
            cluster.append(b"from host %d" % master, master=master)
        await cluster.settled()
        for master in (1, 2, 3):
            [own, one, other] = [cluster.content(host, master) for host in (1, 2, 3)]
            assert own == one == other
            assert len(own) >= 2
        assert len(cluster.network.links) == 3  # one for two of them
