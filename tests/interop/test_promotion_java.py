"""A Java application on the host of an old source, before cqrepl runs there again."""

from pathlib import Path

import pytest
import trio

from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.promotions import cluster
from tests.support.replicas import eventually, more_excerpts
from tests.support.samples import NOON_MS, noon_index, read

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]
DAY_MS = 86_400_000


def append(java: JavaQueue, path: Path, count: int, days: int = 0) -> int:
    at = {"interop.time": NOON_MS + days * DAY_MS}
    return java.call("append", path, "FAST_DAILY", count, 40, 1, props=at).exit


@pytest.mark.parametrize("days", [0, 1])
async def test_what_java_writes_on_an_old_leader_comes_to_light_as_a_tail(
    java: JavaQueue, tmp_path: Path, days: int
) -> None:
    """Java appends in the cycle of the rest, or in a later one. No process can keep it out while
    cqrepl does not run there; afterwards it is refused, and it is let in where the queue is led
    from."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.leaderless({2: 5, 3: 5})
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 5, 4)
        old, new = hosts.path(1), hosts.path(2)
        written = await trio.to_thread.run_sync(lambda: append(java, old, 3, days))
        assert written == 0
        tail = read(old, noon_index(sequence=5))
        assert len(tail) == 3
        await hosts.start(1)
        await eventually(lambda: (old / "quarantine").exists())
        await hosts.follow(2)
        (folder,) = (old / "quarantine").iterdir()
        assert read(folder)[-3:] == tail
        assert (folder / "report.json").exists()
        assert await trio.to_thread.run_sync(lambda: append(java, old, 1, days)) != 0
        assert await trio.to_thread.run_sync(lambda: append(java, new, 3, days)) == 0
        await hosts.follow(2)
        assert len(read(old)) == 12
        assert not any(host.stops for host in hosts.hosts.values())
