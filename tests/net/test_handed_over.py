"""A host gives a queue up while its program has appenders of its own: nothing gets in between."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host, Queue, QueueLocked
from cqrepl.net.errors import Refused
from cqrepl.replicator import direction
from tests.net.test_masters_by_file import all_same, give, mesh, place
from tests.support.promotions import cluster
from tests.support.replicas import SECONDS, copied, last_of


class Program:
    """Has a queue open beside the host in its process, and tries to append before each of some of
    the host's steps.

    Attributes:
        tried: the steps, each with what has come of it.
    """

    def __init__(self, queue: Queue) -> None:
        self.tried: dict[str, str] = {}
        self._queue = queue

    def before(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            try:
                self._queue.append(b"between")
                self.tried[step] = "appended"
            except QueueLocked as error:
                is_own = error.holder == self._queue.append_lock.holder() == os.getpid()
                self.tried[step] = "locked" if is_own else "nobody's"
            return call(*arguments, **options)

        return wrapped


def watch(monkeypatch: pytest.MonkeyPatch, program: Program, host: Host, *steps: str) -> None:
    for step in steps:
        part, _, name = step.rpartition(".")
        of = getattr(host, part) if part else host
        monkeypatch.setattr(of, name, program.before(step, getattr(of, name)))


@pytest.mark.usefixtures("older_hosts")
async def test_none_gets_in_while_a_master_hands_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (
        "source.has_all",
        "direction.close_writer",
        "source.remove",
        "sink.take_in_again",
        "sink.add",
    )
    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        with Queue.open(place(tmp_path, 1, "a")) as queue:
            queue.append(b"before")
            await all_same(tmp_path, "a", 1)
            program = Program(queue)
            watch(monkeypatch, program, hosts[1], *steps)
            await give(tmp_path, hosts[1], "a", 2)
            assert program.tried == dict.fromkeys(steps, "locked")
            with pytest.raises(QueueLocked):
                queue.append(b"behind")
        await give(tmp_path, hosts[2], "a", 2)
        with Queue.open(place(tmp_path, 2, "a")) as queue:
            queue.append(b"after")
        await copied(place(tmp_path, 2, "a"), place(tmp_path, 1, "a"))
        assert not any(host.stops for host in hosts.values())


async def test_a_program_appends_while_the_new_master_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", 2.0)
    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        with Queue.open(place(tmp_path, 1, "a")) as queue:

            async def give_to_nobody() -> None:
                with pytest.raises(Refused, match="'a' stays here: host 9 is away") as error:
                    await give(tmp_path, hosts[1], "a", 9)
                refused.append(str(error.value))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(give_to_nobody)
                while not refused:
                    queue.append(b"meanwhile")
                    await trio.sleep(0.01)
            assert queue.count() > 11


async def test_all_that_a_thread_of_the_program_has_appended_is_with_the_new_master(
    tmp_path: Path,
) -> None:
    appended: list[int] = []
    began = threading.Event()

    def work() -> None:
        with Queue.open(place(tmp_path, 1, "a")) as queue:
            while True:
                try:
                    appended.append(queue.append(b"%d" % len(appended)))
                except QueueLocked:
                    return
                began.set()

    async with mesh(tmp_path, {"a": 1, "b": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, work)
                await trio.to_thread.run_sync(began.wait, SECONDS)
                await give(tmp_path, hosts[1], "a", 2)
        assert last_of(place(tmp_path, 2, "a")) == appended[-1]
        await give(tmp_path, hosts[2], "a", 2)
        await all_same(tmp_path, "a", 2)
        assert not any(host.stops for host in hosts.values())


async def test_none_gets_in_behind_what_a_leader_has_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An excerpt that came there would be of no epoch, and go to quarantine."""
    steps = ("direction.close_writer", "source.remove", "sink.take_in_again")
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 5, 3: 5})
        with Queue.open(hosts.path(1)) as queue:
            program = Program(queue)
            watch(monkeypatch, program, hosts.hosts[1], *steps)
            await hosts.hosts[2].leaders.promote("a")
            assert program.tried == dict.fromkeys(steps, "locked")
        await hosts.follow(2)
        assert not (hosts.path(1) / "quarantine").exists()
