"""QuickFIX/J whose acceptor keeps its sessions in a queue of three hosts that elect their leader:
its host is killed or frozen under load, and the engine of the next one goes on with the right
numbers, from its copy. The engines are started and ended by `onRole`."""

import json
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl.fixdemo import FixCluster
from cqrepl.fixengine import engine_pid
from cqrepl.fixfindings import FixFindings
from cqrepl.queue import Queue
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, WRITE_LOCK_KEY
from tests.support.invoke import Invoke
from tests.support.javabuild import BUILD_TIMEOUT_S, fix_jar
from tests.support.processes import send
from tests.support.samples import read
from tests.support.tables import lock_words

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

LOCK_SECONDS: Final = 60.0


@asynccontextmanager
async def pair(folder: Path, *, rate: float = 50) -> AsyncIterator[FixCluster]:
    """The hosts and both engines; when the block is over, nothing that was kept may be missing or
    stand twice, and no number may have been set back."""
    cluster = FixCluster(folder, fix_jar(), rate=rate)
    async with cluster.running():
        await cluster.led()
        yield cluster
        await cluster.delivered()
    found = cluster.judge()
    print(found)
    assert found.is_right, found
    assert found == FixFindings(kept=found.kept, resent=found.resent)


async def test_a_host_that_dies_loses_no_message_and_no_number(tmp_path: Path) -> None:
    """A machine dies, with its engine; then a host alone, whose engine finds out by itself."""
    async with pair(tmp_path) as cluster:
        for with_engine in (True, False):
            leader, epoch = cluster.leader()
            more = partial(_has_more_resent, cluster, cluster.heard().resent)
            engine = await cluster.kill(leader, with_engine=with_engine)
            await cluster.led(after=epoch)
            await cluster.until(more)
            await cluster.start(leader)
            await cluster.ended(engine)
        ended = [line for out in tmp_path.glob("*.out") for line in _ends(out)]
        assert any("the lease of the host is over" in each for each in ended), ended


@pytest.mark.long
@pytest.mark.timeout(7200)
async def test_sixty_hosts_that_die_under_load(tmp_path: Path) -> None:
    rng = random.Random(7)
    async with pair(tmp_path, rate=500) as cluster:
        for _ in range(60):
            await trio.sleep(rng.uniform(0, 2))  # at any moment of a lease
            leader, epoch = cluster.leader()
            engine = await cluster.kill(leader, with_engine=rng.random() < 0.7)
            await cluster.led(after=epoch)
            await cluster.start(leader)
            await cluster.ended(engine)
            await cluster.delivered()


@pytest.mark.long
def test_the_demonstration_kills_hosts_and_finds_nothing_wrong(invoke: Invoke) -> None:
    jars = fix_jar().parent
    result = invoke("demo", "--persist", "--fix", jars, "--seconds", "5", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["lost"], found["twice"], found["set_back"]) == (0, 0, 0)
    assert found["kept"] > 0
    assert len(found["leaders"]) > 1


async def test_an_engine_frozen_before_its_append_lands_one_excerpt_at_most(
    tmp_path: Path,
) -> None:
    """It has looked at the append lock and waits for the write lock when its machine freezes.
    Thawed, its host follows; what the engine has begun is all that it still appends. The host puts
    that aside once the engine has ended, and has then all that the next leader has."""
    async with pair(tmp_path) as cluster:
        leader, epoch = cluster.leader()
        engine = engine_pid(tmp_path, leader)
        assert engine is not None
        with (
            Queue.open_for_append(cluster.at(leader)) as queue,
            queue.word_lock(WRITE_LOCK_KEY).held(LOCK_SECONDS),
        ):
            kept = read(cluster.at(leader))  # nothing is written until the lock is given back
            await cluster.until(lambda: queue.acknowledged_index >= kept[-1][0])
            await trio.sleep(0.2)  # so that a session has its next message, and waits for the lock
            assert read(cluster.at(leader)) == kept
            cluster.signal(leader, signal.SIGSTOP)
            await cluster.until(lambda: _has_stopped(engine))
            await cluster.until(lambda: _has_stopped(cluster.pid(leader)))
        await cluster.until(lambda: cluster.leader()[1] > epoch)
        cluster.thaw_host(leader)
        await cluster.until(lambda: _holder(cluster.at(leader)) == cluster.pid(leader))
        send(engine, signal.SIGCONT)
        await cluster.ended(engine)
        # as long as that engine was there, its port has kept the initiator
        next_leader, _ = await cluster.led(after=epoch)
        last, _ = read(cluster.at(next_leader))[-1]
        await cluster.until(lambda: read(cluster.at(leader))[-1][0] >= last)
        aside = [each for folder in _aside(cluster.at(leader)) for each in read(folder)]
        assert all(index > kept[-1][0] for index, _ in aside)
        assert len(aside) <= 1, aside


def _has_more_resent(cluster: FixCluster, before: int) -> bool:
    return cluster.heard().resent > before


def _ends(out: Path) -> list[str]:
    return [line for line in out.read_text().splitlines() if line.startswith("ENDED ")]


def _holder(path: Path) -> int:
    """The process that holds the append lock of a queue."""
    return lock_words(path)[APPEND_LOCK_KEY] & 0xFFFFFFFF


def _has_stopped(pid: int) -> bool:
    """True once no thread of a process goes on."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(each.read_text().rpartition(")")[2].split()[0] == "T" for each in threads)


def _aside(path: Path) -> list[Path]:
    folder = path / "quarantine"
    return sorted(folder.iterdir()) if folder.exists() else []
