"""A Java peer as one host of a cluster, the others as `cqrepl run`.

The Java peer knows one queue, and one other host or both. Java dials from the higher id to the
lower one, as we do: so it is dialled as host 1 and dials as host 3, and both as host 2.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import HostSettings, NetSettings, ProtocolSettings, serve_host
from cqrepl.net.address import Address
from cqrepl.protocol.settings import HeartbeatSettings
from tests.interop.test_network_java import NAME, PATIENT, WIDE, last_index
from tests.support.commands import commands, until
from tests.support.copies import assert_same
from tests.support.java import Answer, JavaPeer, JavaQueue, require_java, run_network
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.ports import reserved_port
from tests.support.samples import NOON_MS, fill

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

HOSTS = (1, 2, 3)
COUNT = 200
MORE = 20


@dataclass(frozen=True)
class Place:
    """The host that Java is, the host it talks with, and whether the queue is Java's own."""

    java: int
    other: int
    is_source: bool

    @property
    def master(self) -> int:
        return self.java if self.is_source else self.other


PLACES = [
    pytest.param(Place(1, 2, True), id="host-1-is-dialled-and-streams"),
    pytest.param(Place(1, 3, False), id="host-1-is-dialled-and-takes-in"),
    pytest.param(Place(2, 1, True), id="host-2-dials-and-streams"),
    pytest.param(Place(2, 3, False), id="host-2-is-dialled-and-takes-in"),
    pytest.param(Place(3, 1, False), id="host-3-dials-and-takes-in"),
    pytest.param(Place(3, 2, True), id="host-3-dials-and-streams"),
]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(props=WIDE) as queue:
        yield queue


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty queue that the peer has made."""
    require_java()
    path = tmp_path_factory.mktemp("template") / "queue"
    run_network("QueueTool", queue=path)
    return path


def written(folder: Path, master: int) -> tuple[Path, dict[int, int]]:
    """The file of the cluster, and the port of each host."""
    ports = {each: reserved_port() for each in HOSTS}
    hosts = ", ".join(
        f'host{each}: {{hostId: {each}, connectUri: "127.0.0.1:{port}"}}'
        for each, port in ports.items()
    )
    context = f'heartbeatIntervalMs: 5000, heartbeatTimeoutMs: 60000, basePath: "{folder}/$hostId"'
    path = folder / "cluster.yaml"
    path.write_text(
        f"!QueueReplicationCfg {{cluster: {{context: {{{context}}}, {hosts}}}, "
        f"queues: {{{NAME}: {{masterId: {master}, acknowledge: true}}}}}}\n"
    )
    return path, ports


def filled(
    java: JavaQueue, template: Path, folder: Path, master: int
) -> tuple[dict[int, Path], "partial[Answer]"]:
    queues = {each: folder / str(each) / NAME for each in HOSTS}
    queues[master].parent.mkdir()
    shutil.copytree(template, queues[master])
    append = partial(java.call, "append", queues[master], "FAST_DAILY")
    answer = append(COUNT, "0-70", 1, props={"interop.time": NOON_MS})
    assert answer.exit == 0, answer
    return queues, append


@pytest.mark.parametrize("place", PLACES)
async def test_java_is_a_host_of_the_cluster(
    java: JavaQueue, template: Path, tmp_path: Path, place: Place
) -> None:
    path, ports = written(tmp_path, place.master)
    queues, append = filled(java, template, tmp_path, place.master)
    original = queues[place.master]
    is_dialled = place.java < place.other
    options: dict[str, Any] = {"append": MORE, "expect_ack": True} if place.is_source else {}
    peer = JavaPeer(
        role="source" if place.is_source else "sink",
        queue=queues[place.java],
        name=NAME,
        ack=True,
        local_id=place.java,
        remote_id=place.other,
        listen=ports[place.java] if is_dialled else None,
        connect=None if is_dialled else f"127.0.0.1:{ports[place.other]}",
        expect_count=COUNT + MORE,
        **options,
    )
    async with commands(before=PATIENT) as start:
        ours = [
            await start("run", "-c", path, "--host-id", each, "--run-dir", tmp_path / "run")
            for each in HOSTS
            if each != place.java
        ]
        for command in ours:
            await command.port()
        with peer:
            if not place.is_source:
                answer = await trio.to_thread.run_sync(partial(append, MORE, "0-70", 9))
                assert answer.exit == 0, answer
            assert await trio.to_thread.run_sync(peer.exit_code, 300) == 0
        # a Java source streams to the one host that it knows, and ours to all
        copies = {place.other} if place.is_source else {*HOSTS} - {place.master}
        for each in copies:
            await until(partial(is_whole, original, queues[each]))
            assert_same(original, queues[each])
        for command in ours:
            await command.terminate()


@pytest.mark.parametrize(
    ("at", "is_source"),
    [
        pytest.param(1, False, id="host-1-is-dialled-by-both-and-takes-in"),
        pytest.param(2, True, id="host-2-dials-and-is-dialled-and-streams"),
        pytest.param(3, True, id="host-3-dials-both-and-streams"),
    ],
)
async def test_java_has_a_link_to_each_other_host(
    java: JavaQueue, template: Path, tmp_path: Path, at: int, is_source: bool
) -> None:
    """A full mesh of three hosts, of which one is Java, and streams to both or takes in."""
    first, second = (each for each in HOSTS if each != at)
    master = at if is_source else first
    path, ports = written(tmp_path, master)
    queues, append = filled(java, template, tmp_path, master)
    original = queues[master]
    links = {each: f"127.0.0.1:{ports[each]}" for each in (first, second) if each < at}
    own: dict[str, Any] = {"append": MORE, "expect_ack": True} if is_source else {}
    peer = JavaPeer(
        role="source" if is_source else "sink",
        queue=queues[at],
        name=NAME,
        ack=True,
        local_id=at,
        remote_id=first,
        listen=ports[at] if len(links) < 2 else None,
        connect=links.get(first),
        also=f"{second}={links[second]}" if second in links else second,
        expect_count=COUNT + MORE,
        **own,
    )
    async with commands(120, before=PATIENT) as start:
        words = ("run", "-c", path, "--run-dir", tmp_path / "run", "--host-id")
        ours = [await start(*words, each) for each in (first, second)]
        for command in ours:
            await command.port()
        with peer:
            for nth in (1, 2):
                await trio.to_thread.run_sync(partial(peer.wait_for, "CONNECTED", count=nth))
            linked = {event.values["remote"] for event in peer.events("CONNECTED")}
            assert linked == {str(first), str(second)}
            if not is_source:
                answer = await trio.to_thread.run_sync(partial(append, MORE, "0-70", 9))
                assert answer.exit == 0, answer
            assert await trio.to_thread.run_sync(peer.exit_code, 100) == 0
        for each in {*HOSTS} - {master}:
            await until(partial(is_whole, original, queues[each]))
            assert_same(original, queues[each])
        for command in ours:
            await command.terminate()


@pytest.mark.parametrize(
    ("at", "other"),
    [
        pytest.param(1, 2, id="host-1-is-dialled"),
        pytest.param(2, 3, id="host-2-is-dialled", marks=pytest.mark.long),
        pytest.param(3, 1, id="host-3-dials"),
    ],
)
async def test_java_without_our_queue_keeps_its_connection_and_streams_its_own(
    template: Path, tmp_path: Path, at: int, other: int
) -> None:
    """Java refuses a queue that it does not have without a word."""
    javas, ours, copy = tmp_path / "javas", tmp_path / "ours", tmp_path / "copy"
    shutil.copytree(template, javas)
    fill(ours, "FAST_DAILY", {0: 3})
    port, is_dialled = reserved_port(), at < other
    address = Address("127.0.0.1", port)
    heartbeat = HeartbeatSettings(interval_ms=1000, timeout_ms=5000)
    settings = HostSettings(
        net=NetSettings(connect=address) if is_dialled else NetSettings(listen=address),
        protocol=ProtocolSettings(host_id=other, remote_ids=frozenset({at}), heartbeat=heartbeat),
    )
    peer = JavaPeer(
        role="source",
        queue=javas,
        name=NAME,
        ack=True,
        local_id=at,
        remote_id=other,
        listen=port if is_dialled else None,
        connect=None if is_dialled else str(address),
        append=COUNT,
        append_batch=1,
        append_pause_ms=50,
        expect_count=COUNT,
        expect_ack=True,
    )
    with peer:
        async with serve_host(settings, sources={"ours": ours}, sinks={NAME: copy}) as host:
            assert await trio.to_thread.run_sync(peer.exit_code, 300) == 0
            (stop,) = host.stops
            assert (stop.name, stop.host_id) == ("ours", at)
            assert len(peer.events("CONNECTED")) == 1
    assert_same(javas, copy)


def is_whole(original: Path, copy: Path) -> bool:
    return last_index(copy) == last_index(original)
