"""Queues that other processes do not append to while their host leads them, or before it does."""

import shutil
import subprocess
import sys
from pathlib import Path

import trio

from cqrepl import Queue
from tests.support.replicas import copied
from tests.support.samples import fill, read
from tests.support.threehosts import three_hosts

EXCLUSIVE = "  queues: {q: {exclusive: true}}"


async def append_by_command(path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "cqrepl", "append", str(path), "--lines"]

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, input="other\n", capture_output=True, text=True, timeout=120, check=False
        )

    return await trio.to_thread.run_sync(run)


async def test_the_process_of_the_leader_alone_appends(tmp_path: Path) -> None:
    """Also after a promotion; and where a promotion is refused it is kept out as before."""
    async with three_hosts(tmp_path, EXCLUSIVE) as cluster:
        refused = await append_by_command(cluster.at(1))
        assert (refused.returncode, "keeps the append lock" in refused.stderr) == (5, True)
        cluster.hosts[1].queue("q").leading.append([b"own"])
        await cluster.hosts[1].queue("q").append(b"own")
        await cluster.follow(1)
        await cluster.hosts[2].leaders.promote("q")
        cluster.hosts[2].queue("q").leading.append([b"own"])
        await cluster.follow(2)
        for host_id in (1, 2):
            refused = await append_by_command(cluster.at(host_id))
            assert (refused.returncode, "keeps the append lock" in refused.stderr) == (5, True)
        await cluster.stop(2)
        with Queue.open_for_append(cluster.at(2)) as queue:
            assert queue.append_lock.holder() is None, "it was given back"
        assert len(read(cluster.at(1))) == 13


async def test_what_comes_back_gets_in(tmp_path: Path) -> None:
    """The lock is given back for that, and taken again."""
    async with three_hosts(tmp_path, EXCLUSIVE) as cluster:
        await cluster.stop(1)
        shutil.copytree(cluster.at(1), tmp_path / "backup")
        await cluster.start(1)
        await cluster.meet()
        cluster.hosts[1].queue("q").leading.append([b"lost"])
        await cluster.follow(1)
        await cluster.stop(1)
        shutil.rmtree(cluster.at(1))
        (tmp_path / "backup").rename(cluster.at(1))
        await cluster.start(1)
        await copied(cluster.at(2), cluster.at(1))
        assert len(read(cluster.at(1))) == 11
        await cluster.hosts[2].leaders.promote("q")  # any back copy is over then
        await cluster.hosts[1].leaders.promote("q")
        refused = await append_by_command(cluster.at(1))
        assert (refused.returncode, "keeps the append lock" in refused.stderr) == (5, True)


async def test_no_writer_gets_in_before_a_host_leads(tmp_path: Path) -> None:
    """Though nothing was promised there, by which it would be known as a copy."""
    async with three_hosts(tmp_path, awaits_leader=True) as cluster:
        await cluster.stop(1)
        fill(cluster.at(1), "FAST_DAILY", {0: 3})
        cluster.start_locked = frozenset({"q"})
        await cluster.start(1)
        await cluster.meet()
        refused = await append_by_command(cluster.at(1))
        assert (refused.returncode, "keeps the append lock" in refused.stderr) == (5, True)
        await cluster.hosts[1].leaders.promote("q")
        done = await append_by_command(cluster.at(1))
        assert (done.returncode, len(read(cluster.at(1)))) == (0, 4)
