"""A grid for users of asyncio: calls are awaited, and hold up no other task."""

import asyncio
from pathlib import Path

import pytest
import trio

import cqrepl.grid
from cqrepl.grid.errors import Conflict, GridError, GridRefused
from tests.support.grids import grids
from tests.support.ports import reserved_port


async def test_sessions_and_maps_are_awaited(tmp_path: Path) -> None:
    async with grids(tmp_path) as made:
        hosts = ",".join(made.addresses().values())
        await trio.to_thread.run_sync(lambda: asyncio.run(use(hosts)))
        assert await made.use(lambda grid: grid.session().map("m").get("k0")) == 1


async def use(hosts: str) -> None:
    async with cqrepl.grid.connect_async(hosts, "s", timeout=20.0) as grid:
        assert grid.settings.partitions == 2
        async with grid.session() as s:
            await s.map("m").put("a", 1)
            await s.map("m").put("a", (await s.map("m").get("a"), 2))
        assert await grid.session(at=s.token).map("m").get("a") == (1, 2)
        with pytest.raises(ZeroDivisionError):
            async with grid.session() as s:
                await s.map("m").put("a", 1 / 0)
        with pytest.raises(Conflict):
            await grid.session().map("m").insert("a", 5)
        await grid.session().map("m").update("a", 3)
        rows = [row for each in (0, 1) for row in await grid.session().map("m").scan(each)]
        assert rows == [("a", 3)]
        await grid.session().map("m").remove("a")
        await asyncio.gather(*(count(grid, f"k{nth}") for nth in range(20)))
        await grid.session().map("n").clear()
        kept = grid.session()
        kept.begin()
        await kept.map("n").put("x", 1)
        await kept.rollback()
        assert await grid.session().map("n").get("x", "none") == "none"
    with pytest.raises(GridRefused, match="within the `async with` block"):
        grid.session()


async def count(grid: cqrepl.grid.AsyncGrid, key: str) -> None:
    async with grid.session() as s:
        await s.map("m").put(key, 1)
    assert await grid.session(at=s.token).map("m").get(key) == 1


def test_no_host_is_told() -> None:
    async def fail() -> None:
        at = f"127.0.0.1:{reserved_port()}"
        async with cqrepl.grid.connect_async(at, "s", timeout=0.3):
            raise AssertionError

    with pytest.raises(GridError, match="expected a host that answers"):
        asyncio.run(fail())
