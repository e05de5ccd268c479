"""A program promotes its host, in each kind of event loop and without one."""

import asyncio
from pathlib import Path

import pytest

import cqrepl
from cqrepl.net.threads import in_thread
from cqrepl.replicator.settings import SinkSettings
from tests.support.samples import fill

TOO_FEW = "2 hosts expected to promise, 1 does"


def settings(path: Path) -> cqrepl.HostSettings:
    """Host 1 of two, which leads the queue by their file; the other one is away."""
    fill(path, "FAST_DAILY", {0: 3})
    return cqrepl.HostSettings.of(
        sources={"a": path},
        sink=SinkSettings(masters={"a": 1}),
        host_id=1,
        remote_ids={2},
        listen="127.0.0.1:0",
    )


def check(done: cqrepl.Promotion, position: cqrepl.QueuePosition) -> None:
    assert (done.epoch, done.leader, done.unreached) == (1, 1, (2,))
    assert (position.epoch, position.leader, position.role) == (1, 1, cqrepl.Role.LEADING)


async def test_a_task_of_trio_does(tmp_path: Path) -> None:
    async with cqrepl.Host(settings(tmp_path / "q")) as host:
        with pytest.raises(cqrepl.Refused, match=TOO_FEW):
            await host.promote("a")
        check(await host.promote("a", accept_loss=True), host.position("a"))


async def test_a_plain_thread_does(tmp_path: Path) -> None:
    def work() -> None:
        with cqrepl.blocking.Host(settings(tmp_path / "q")) as host:
            with pytest.raises(cqrepl.Refused, match=TOO_FEW):
                host.promote("a")
            check(host.promote("a", accept_loss=True), host.position("a"))

    await in_thread(work)


async def test_a_task_of_asyncio_does(tmp_path: Path) -> None:
    async def work() -> None:
        async with cqrepl.aio.Host(settings(tmp_path / "q")) as host:
            with pytest.raises(cqrepl.Refused, match=TOO_FEW):
                await host.promote("a")
            check(await host.promote("a", accept_loss=True), host.position("a"))

    await in_thread(lambda: asyncio.run(work()))
