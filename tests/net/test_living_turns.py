"""Queues turn round on the connections that hosts have: none is renewed, and no other queue on them
is disturbed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from cqrepl import Host, Queue
from cqrepl.net.pump import Pump
from cqrepl.protocol.capabilities import CORE_CAPABILITIES, ENDED_CAPABILITY, QUEUES_CAPABILITY
from cqrepl.replicator.direction import Direction
from cqrepl.replicator.duplexsession import DuplexSession
from cqrepl.replicator.sink import Sink
from cqrepl.replicator.source import Source
from tests.net.test_masters_by_file import HOSTS, all_same, give, mesh, place
from tests.support.copies import assert_same
from tests.support.promotions import Cluster, cluster
from tests.support.replicas import SECONDS, copied, eventually, last_of, more_excerpts
from tests.support.samples import fill, read

Connections = dict[tuple[int, int], Pump]


def connections(hosts: Mapping[int, Host]) -> Connections:
    """The connection of each host with each other one."""
    return {
        (host_id, other): pump
        for host_id, host in hosts.items()
        for other, (pump, _) in host.endpoint.connections.items()
    }


async def met(hosts: Mapping[int, Host]) -> Connections:
    pairs = len(hosts) * (len(hosts) - 1)
    await eventually(lambda: len(connections(hosts)) == pairs)
    return connections(hosts)


@pytest.mark.usefixtures("has_pump")
async def test_promotions_renew_no_connection(tmp_path: Path) -> None:
    """Of a host's only queue, to each of three hosts and back."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        before = await met(hosts.hosts)
        count = 3
        for leader in (2, 3, 1, 2):
            await hosts.hosts[leader].leaders.promote("a")
            await appended_by(hosts, leader, 4)
            count += 4
            await hosts.follow(leader)
        assert connections(hosts.hosts) == before
        assert not any(host.stops for host in hosts.hosts.values())
        assert len(read(hosts.path(1))) == count


async def appended_by(hosts: Cluster, leader: int, count: int) -> None:
    """Its program appends, and waits for the two others."""
    queue = hosts.hosts[leader].queue("a")
    with trio.fail_after(SECONDS):
        for nth in range(count):
            await queue.wait_acked(await queue.append(b"%d of host %d" % (nth, leader)), 2)


async def test_a_promotion_without_the_old_leader_renews_none(tmp_path: Path) -> None:
    """The old one finds the others as they are when it is back."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.leaderless({2: 3, 3: 3})
        before = await met(hosts.hosts)
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 3)
        await hosts.follow(2)
        assert connections(hosts.hosts) == before
        await hosts.start(1)
        await met(hosts.hosts)
        await hosts.follow(2)
        assert {pair: pump for pair, pump in connections(hosts.hosts).items() if 1 not in pair} == (
            before
        )


ORDERS = pytest.mark.parametrize("third", ["before", "after", "each in turn"])


@ORDERS
async def test_other_masters_renew_no_connection(tmp_path: Path, third: str) -> None:
    """By files; whichever order the hosts that only follow are reloaded in."""
    await handed_back_and_forth(tmp_path, third)


@ORDERS
@pytest.mark.usefixtures("older_hosts")
async def test_other_masters_without_epochs_renew_no_connection(tmp_path: Path, third: str) -> None:
    await handed_back_and_forth(tmp_path, third)


async def handed_back_and_forth(tmp_path: Path, third: str) -> None:
    async with mesh(tmp_path, {"a": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        before, count = await met(hosts), 10
        for turn, (old, new) in enumerate(((1, 2), (2, 1), (1, 2), (2, 1))):
            is_before = third == "before" or (third == "each in turn" and turn % 2 == 0)
            for host_id in (3, old, new) if is_before else (old, new, 3):
                await give(tmp_path, hosts[host_id], "a", new)
            more_excerpts(place(tmp_path, new, "a"), count, 5, seed=count)
            count += 5
            await all_same(tmp_path, "a", new)
        assert connections(hosts) == before
        assert not any(host.stops for host in hosts.values())


@pytest.mark.usefixtures("older_hosts")
async def test_a_queue_is_not_offered_to_a_host_that_takes_it_from_elsewhere(
    tmp_path: Path,
) -> None:
    """The host says so when its file names another master; its earlier word counts no more."""
    async with mesh(tmp_path, {"a": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        await give(tmp_path, hosts[3], "a", 2)
        connection = hosts[1].endpoint.connections[3][0].connection
        await eventually(lambda: "a" not in named_sinks(connection.peer_queues))
        await give(tmp_path, hosts[3], "a", 1)
        await eventually(lambda: "a" in named_sinks(connection.peer_queues))
        more_excerpts(place(tmp_path, 1, "a"), 10, 5)
        await all_same(tmp_path, "a", 1)


def named_sinks(names: object) -> frozenset[str]:
    return frozenset(getattr(names, "sinks", ()))


async def test_a_first_queue_either_way_renews_none(tmp_path: Path) -> None:
    """A host that only streams takes in its first queue, and its peers stream their first one."""
    async with mesh(tmp_path, {"a": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        before = await met(hosts)
        fill(place(tmp_path, 2, "b"), "FAST_DAILY", {0: 6})
        for host_id in HOSTS:
            await changed(tmp_path, hosts[host_id], {"a": 1, "b": 2})
        await all_same(tmp_path, "b", 2)
        more_excerpts(place(tmp_path, 1, "a"), 10, 3)
        await all_same(tmp_path, "a", 1)
        for host_id in HOSTS:
            await changed(tmp_path, hosts[host_id], {"b": 2})
        more_excerpts(place(tmp_path, 2, "b"), 6, 3)
        await all_same(tmp_path, "b", 2)
        assert connections(hosts) == before


async def changed(folder: Path, host: Host, masters: dict[str, int]) -> None:
    """Change the queues of a host, as a reload does."""
    own = host.settings.protocol.host_id
    paths = {name: place(folder, own, name) for name in masters}
    await host.change(
        replace(
            host.settings,
            sink=replace(host.settings.sink, masters=masters),
            sources={name: path for name, path in paths.items() if masters[name] == own},
            sinks={name: path for name, path in paths.items() if masters[name] != own},
        )
    )


@pytest.mark.usefixtures("has_pump")
async def test_other_queues_on_a_connection_go_on(tmp_path: Path) -> None:
    """One that goes out and one that comes in stream on with the cids that they have, and each of
    their excerpts is acknowledged in its order."""
    async with mesh(tmp_path, {"a": 1, "b": 1, "c": 2}) as hosts:
        for name, master in (("a", 1), ("b", 1), ("c", 2)):
            await all_same(tmp_path, name, master)
        before = await met(hosts)
        behind = cids(hosts)
        is_over = False
        written = {"b": 0, "c": 0}

        async def stream(name: str, master: int, other: int) -> None:
            queue, marks = hosts[master].queue(name), [-1]
            while not is_over:
                index = await queue.append(b"on and on")
                await queue.wait_acked(index, hosts={other})
                written[name] += 1
                marks.append(queue.board.marks[other])
            assert marks == sorted(marks)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream, "b", 1, 2)
            nursery.start_soon(stream, "c", 2, 1)
            for leader in (2, 1, 3, 1):
                await hosts[leader].leaders.promote("a")
                more = dict(written)
                # it is over before `more` changes
                await eventually(lambda: all(written[name] > more[name] for name in more))  # noqa: B023
            is_over = True
        assert connections(hosts) == before
        assert {name: cids(hosts)[name] for name in ("b", "c")} == {
            name: behind[name] for name in ("b", "c")
        }
        await all_same(tmp_path, "a", 1)
        for name, master in (("b", 1), ("c", 2)):
            await all_same(tmp_path, name, master)


def cids(hosts: Mapping[int, Host]) -> dict[str, set[tuple[int, int, int]]]:
    """By queue: source, sink and cid of each of its streams."""
    found: dict[str, set[tuple[int, int, int]]] = {"a": set(), "b": set(), "c": set()}
    for host_id, host in hosts.items():
        for other, (_, session) in host.endpoint.connections.items():
            assert isinstance(session, DuplexSession)
            for cid, each in session.source.outgoing.items():
                found[each.queue.name].add((host_id, other, cid))
    return found


async def test_peers_that_know_no_end_of_a_queue_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Java's: such a connection begins anew, and the queue goes the other way on the next."""
    known = CORE_CAPABILITIES - {ENDED_CAPABILITY, QUEUES_CAPABILITY}
    monkeypatch.setattr("cqrepl.protocol.greeting.CORE_CAPABILITIES", known)
    async with mesh(tmp_path, {"a": 1}) as hosts:
        await all_same(tmp_path, "a", 1)
        before = await met(hosts)
        fill(place(tmp_path, 2, "b"), "FAST_DAILY", {0: 6})
        for host_id in HOSTS:
            await changed(tmp_path, hosts[host_id], {"a": 1, "b": 2})
        await all_same(tmp_path, "b", 2)
        more_excerpts(place(tmp_path, 1, "a"), 10, 3)
        await all_same(tmp_path, "a", 1)
        assert not set(before.values()) & set((await met(hosts)).values())


@pytest.mark.parametrize("at", ["the old leader lets go", "the new leader lets go", "it is open"])
async def test_a_connection_that_breaks_in_the_middle_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        before = await met(hosts.hosts)

        def cut() -> None:
            for (host_id, _), pump in connections(hosts.hosts).items():
                if host_id == 2:
                    pump.fail("for a test")

        remove, forget, add = Source.remove, Sink.remove, Source.add

        async def source_remove(self: Source, name: str, why: str = "") -> None:
            if at == "the old leader lets go":
                cut()
            await remove(self, name, why)

        async def sink_remove(self: Sink, name: str) -> None:
            if at == "the new leader lets go":
                cut()
            await forget(self, name)

        def source_add(self: Source, queue: object) -> None:
            add(self, queue)  # type: ignore[arg-type]  # it passes on what it was given
            if at == "it is open":
                cut()

        with monkeypatch.context() as patch:
            patch.setattr(Source, "remove", source_remove)
            patch.setattr(Sink, "remove", sink_remove)
            patch.setattr(Source, "add", source_add)
            await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 4)
        await hosts.follow(2)
        after = await met(hosts.hosts)
        assert before[1, 3] is after[1, 3]
        assert not any(host.stops for host in hosts.hosts.values())


async def test_a_host_is_killed_in_the_middle_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader, when the old one has let go: it leads when it is back, and no connection of
    the two others is renewed."""
    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        before = await met(hosts.hosts)
        began = trio.Event()

        async def stands(*_: object) -> None:
            began.set()
            await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            with monkeypatch.context() as patch:
                patch.setattr(Direction, "lead", stands)
                nursery.start_soon(hosts.hosts[2].leaders.promote, "a")
                await began.wait()
                await hosts.kill(2)
                nursery.cancel_scope.cancel()
        await hosts.start(2)
        await met(hosts.hosts)
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 4)
        await hosts.follow(2)
        assert connections(hosts.hosts)[1, 3] is before[1, 3]


async def test_a_queue_that_could_not_be_opened_is_taken_on_the_same_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion that fails leaves the copy where it was, and it is streamed once that works."""

    def fails(*_: object) -> None:
        raise OSError(24, "too many open files")

    async with cluster(tmp_path, 3) as hosts:
        await hosts.followed({2: 3, 3: 3})
        before = await met(hosts.hosts)
        with monkeypatch.context() as patch:
            patch.setattr(hosts.hosts[2].source, "open", fails)
            with pytest.raises(OSError, match="too many open files"):
                await hosts.hosts[2].leaders.promote("a")
        assert "a" in hosts.hosts[2].sink.queues
        await hosts.hosts[2].leaders.promote("a")
        more_excerpts(hosts.path(2), 3, 4)
        await hosts.follow(2)
        assert connections(hosts.hosts) == before


async def test_many_queues_that_turn_round_are_answered_together(tmp_path: Path) -> None:
    """A host that took in nothing when its peers connected opens several at a time."""
    names = [f"q{nth:02d}" for nth in range(30)]
    masters = dict.fromkeys(names, 1)
    async with mesh(tmp_path, masters) as hosts:
        await all_same(tmp_path, names[-1], 1)
        before = await met(hosts)
        for name in names:
            await hosts[2].leaders.promote(name)
        for name in names:
            with Queue.open_for_append(place(tmp_path, 2, name)) as queue:
                queue.append(b"from the new leader")
        for name in names:
            await copied(place(tmp_path, 2, name), place(tmp_path, 1, name))
        assert_same(place(tmp_path, 2, names[0]), place(tmp_path, 1, names[0]))
        assert last_of(place(tmp_path, 1, names[0])) is not None
        assert connections(hosts) == before
