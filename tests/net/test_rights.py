"""Rights of hosts and guests on the queues of a host."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import Host
from cqrepl.broker.client import TasksRefused
from cqrepl.commands.guestfetch import fetch
from cqrepl.grid import RemoteGrid
from cqrepl.grid.errors import GridRefused
from cqrepl.net.address import Address
from cqrepl.net.errors import Refused
from cqrepl.net.rights import ALL_USUAL, Right, Rights, Subject, rights_of
from cqrepl.queue import Queue
from cqrepl.queue.files.closedcycles import ClosedCycle
from cqrepl.replicator.settings import HostSettings
from tests.support.boards import boards
from tests.support.grids import grids
from tests.support.replicas import BEATS, LOOPBACK, at, copied, eventually, more_excerpts
from tests.support.samples import fill

Named = Mapping[str, Mapping[str, Sequence[str]]]
TWO, GUEST = Subject(host_id=2), Subject(guest="reports")


@pytest.mark.parametrize(
    ("rules", "subject", "has"),
    [
        (None, TWO, {"read", "follow", "return", "lead", "fetch", "observe"}),
        (None, replace(TWO, is_plain=True), {"read", "follow", "fetch", "observe"}),
        (None, GUEST, {"read", "fetch"}),
        (
            None,
            replace(GUEST, is_local=True),
            {"read", "fetch", "submit", "work", "write", "observe"},
        ),
        ({}, TWO, set()),
        ({"orders": {"2": ["read"]}}, TWO, {"read"}),
        ({"or*": {"hosts": ["read"], "2": ["follow"]}}, TWO, {"read", "follow"}),
        ({"trades": {"2": ["read"]}}, TWO, set()),
        ({"orders": {"guests": ["read"], "3": ["follow"]}}, TWO, set()),
        ({"orders": {"guests": ["read"], "reports": ["submit"]}}, GUEST, {"read", "submit"}),
        ({"orders": {"other": ["submit"], "hosts": ["lead"]}}, GUEST, set()),
        ({"orders": {"hosts": ["read"]}}, replace(GUEST, guest="hosts"), set()),
        ({"orders": {"hosts": ["lead", "read"]}}, replace(TWO, is_plain=True), {"read"}),
        ({"orders": {"2": ["lead", "read"]}}, replace(TWO, is_plain=True), {"read", "lead"}),
        ({"orders": {"2": ["administer"]}}, TWO, set()),
        ({"orders": {"2": ["administer"]}}, replace(TWO, has_tls=True), {"administer"}),
    ],
)
def test_rights(rules: Named | None, subject: Subject, has: set[str]) -> None:
    rights = ALL_USUAL if rules is None else rights_of(rules)
    found = {each.value for each in Right if not rights.refusal(subject, each, "orders")}
    assert found == has


def test_a_word_that_is_no_right() -> None:
    with pytest.raises(ValueError, match=r"expected a right .*, got 'reed'"):
        rights_of({"orders": {"hosts": ["reed"]}})


def host_of(path: Path, *, rights: Rights = ALL_USUAL, sink: int = 0, **more: Any) -> Host:
    """A host with a queue `q` that it streams; or takes in, from the one at a port."""
    place: dict[str, Any] = {"connect": at(sink)} if sink else {"listen": LOOPBACK}
    role: dict[str, Any] = {"sinks": {"q": path}} if sink else {"sources": {"q": path}}
    settings = HostSettings.of(**(role | place | BEATS | more))
    return Host(replace(settings, net=replace(settings.net, rights=rights)))


async def test_a_host_that_may_not_follow_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    rights = rights_of({"q": {"3": ["follow"], "hosts": ["read"]}})
    async with host_of(tmp_path / "q", rights=rights) as source:
        assert source.port is not None
        async with host_of(tmp_path / "two", sink=source.port) as two:
            await eventually(lambda: bool(two.stops))
            assert "host 2 lacks the right 'follow' for 'q'" in two.stops[0].message
            async with host_of(tmp_path / "three", sink=source.port, host_id=3):
                await copied(tmp_path / "q", tmp_path / "three")
            more_excerpts(tmp_path / "q", 50, 10)
    lines = [each for each in caplog.messages if "refused: host 2 lacks the right 'follow'" in each]
    assert len(lines) == 1
    assert not any((tmp_path / "two").glob("*.cq4"))


async def test_a_host_that_may_not_lead_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    async with host_of(tmp_path / "q") as source:
        assert source.port is not None
        rights = rights_of({"q": {"hosts": ["follow"]}})
        async with host_of(tmp_path / "copy", sink=source.port, rights=rights) as sink:
            await eventually(lambda: bool(source.stops))
            assert not sink.stops  # another host may lead it
            assert "refused: host 1 lacks the right 'lead' for 'q'" in caplog.text
            assert "host 1 lacks the right 'lead' for 'q'" in source.stops[0].message


async def test_a_host_that_may_not_give_back_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    fill(tmp_path / "copy", "FAST_DAILY", {0: 60})
    rights = rights_of({"q": {"hosts": ["follow"]}})
    async with host_of(tmp_path / "q", rights=rights) as source:
        assert source.port is not None
        async with host_of(tmp_path / "copy", sink=source.port):
            await eventually(lambda: bool(source.stops))
            assert "host 2 lacks the right 'return' for 'q'" in source.stops[0].message


async def test_a_guest_that_may_not_fetch_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50, 1: 5})
    rights = rights_of({"q": {"guests": ["read"]}})
    async with host_of(tmp_path / "q", rights=rights) as source:
        where = Address("127.0.0.1", source.port or 0)
        with Queue.open(tmp_path / "q") as queue:
            wanted = [ClosedCycle(queue.cycles.listing()[0], 50, bytes(16))]
            with pytest.raises(Refused, match="lacks the right 'fetch' for 'q'"):
                await fetch(queue, wanted, "q", where, 1)


async def test_rights_that_are_taken_away_count_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 50})
    with caplog.at_level(logging.INFO, "cqrepl"):
        async with host_of(tmp_path / "q") as source:
            assert source.port is not None
            async with host_of(tmp_path / "copy", sink=source.port) as sink:
                await copied(tmp_path / "q", tmp_path / "copy")
                net = replace(source.settings.net, rights=rights_of({}))
                await source.change(replace(source.settings, net=net))
                await eventually(lambda: bool(sink.stops))
                assert "lacks the right 'follow'" in sink.stops[0].message
    await trio.lowlevel.checkpoint()


# services


def narrowed(host: Host, rules: Named) -> None:
    """Gives the peers of a host that runs these rights alone."""
    net = replace(host.settings.net, rights=rights_of(rules))
    host.endpoint.change(net, host.settings.protocol)


async def test_a_guest_that_may_only_look_puts_no_task(tmp_path: Path) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            number = await client.submit("mail", b"one", "key")
            looks = {"a": {"guests": ["observe"], "hosts": ["follow", "lead"]}}
            narrowed(made.hosts.hosts[1], looks)
            with pytest.raises(TasksRefused, match="lacks the right 'submit' for 'a'"):
                await client.submit("mail", b"two", "other")
            with pytest.raises(TasksRefused, match="lacks the right 'work' for 'a'"):
                await client.work("worker", ["mail"])
            _, row = await client.ask("show", {"task": number})
            assert row.text("type") == "mail"


async def test_a_guest_that_may_only_look_writes_no_entry(tmp_path: Path) -> None:
    def write(grid: RemoteGrid) -> None:
        with pytest.raises(GridRefused, match="lacks the right 'write' for 's-0'"):
            grid.session().map("m").put("k", 1)

    async with grids(tmp_path) as made:
        narrowed(made.hosts.hosts[1], {"s-0": {"guests": ["observe"], "hosts": ["follow", "lead"]}})
        await made.use(write)
